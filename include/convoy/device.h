/* SPDX-License-Identifier: MIT
 * The OpenCL devices of this machine, and a choice of them. */
#ifndef CONVOY_DEVICE_H
#define CONVOY_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "convoy/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Arithmetic of the products of convolutions and linear layers. FP32: float32 throughout. TF32, on devices with matrix
 * units for it: factors rounded to 10 bits of mantissa, sums in float32. */
typedef enum cvy_math { CVY_MATH_FP32 = 0, CVY_MATH_TF32 } cvy_math;

typedef enum cvy_device_kind { CVY_DEVICE_CPU, CVY_DEVICE_GPU, CVY_DEVICE_OTHER } cvy_device_kind;

/* One device, as the driver reports it; texts are converted to UTF-8. `usable` false: `reason` has the cause. */
typedef struct cvy_device_info {
  int platform, index; /* numbered as by clinfo, broken ones too; index -1: the platform is broken or empty */
  cvy_device_kind kind;
  char name[128], vendor[128], driver[128], version[128];
  char platform_name[128], platform_version[256];
  char uuid[64];     /* "pci:0000:01:00.0", "uuid:…" or "" if the driver reports neither */
  int compute_units; /* of the whole device */
  size_t global_bytes, max_alloc_bytes, local_bytes, max_work_group;
  size_t cache_bytes;      /* of the global memory cache; 0: none, or not known */
  size_t base_align_bytes; /* alignment of sub-buffers */
  int float_vector_width;  /* native, 1 on most GPUs */
  bool host_unified;       /* host and device share memory: map/unmap without copy */
  bool local_is_dedicated; /* CL_DEVICE_LOCAL_MEM_TYPE == CL_LOCAL */
  bool has_fp16, has_fp64, has_subgroups;
  bool can_partition_by_counts;
  bool software; /* a CPU runtime that emulates a GPU (llvmpipe), or PoCL's `basic`: `auto` selects it last */
  bool usable;
  int same_as;      /* list position of the device that this one duplicates or shares cores with, -1: none */
  bool duplicate;   /* same_as is the same GPU through another driver (uuid/pci); false: it shares cores */
  char reason[256]; /* "", or why it is not usable or what it lacks */
} cvy_device_info;

typedef struct cvy_device_list {
  int n;
  cvy_device_info *items;
  void **handles; /* cl_device_id, parallel to items */
} cvy_device_list;

/* Lists the devices of all platforms. A broken driver is listed with the reason, not an error; without a platform the
 * list is empty (CVY_OK). Thread-safe. Destroy with cvy_device_list_destroy. Opened devices outlive the list. */
cvy_status cvy_device_list_create(cvy_device_list **out);
void cvy_device_list_destroy(cvy_device_list **list);
/* Number of devices of this process that hung and were abandoned (cvy_team_params.device_timeout_s). Their threads stay
 * inside the drivers, and exit() may wait for them forever: leave by _exit() if there are any. */
int cvy_devices_abandoned(void);
/* Writes a line for each likely reason of a missing device. Reasons are: a driver that is registered (.icd file) but
 * cannot be loaded; a graphics card on the PCI bus (class 0x03) that no platform offers, with the package that is
 * probably missing; a device file that is missing or that this user may not open. NUL-terminated, cut at out_bytes.
 * True: drivers are installed, and a variable that a line names hides them; cvy_device_advice is of no use then. */
bool cvy_device_missing_drivers(const cvy_device_list *list, char *out, size_t out_bytes);
/* Instructions for installing a driver on this system, five lines; NUL-terminated, cut at out_bytes. */
void cvy_device_advice(char *out, size_t out_bytes);

/* Libraries found at run time, one per line: "CLBlast: libclblast.so.1" or "clFFT: not found (…)". NUL-terminated,
 * cut at out_bytes. */
void cvy_libraries_describe(char *out, size_t out_bytes);

/* Chosen devices, in order: position i is "device i" in every other function. */
typedef struct cvy_devices cvy_devices;
/* Selector (the text after `--devices`): auto | all | gpu | cpu | terms with commas: P:D | name fragment of 2
 * characters or more, each with suffixes
 * *N (replicas), /a+b+… (sub-devices of a, b, … compute units), /=N (equal parts).
 * CVY_E_ARGUMENT: bad text · CVY_E_NO_DEVICE: no device matches (the message lists all). */
cvy_status cvy_devices_select(const char *selector, cvy_devices **out);
void cvy_devices_destroy(cvy_devices **devices);
int cvy_devices_count(const cvy_devices *devices);
/* "0:0 NVIDIA H200"; borrowed; NULL if i is out of range. */
const char *cvy_devices_label(const cvy_devices *devices, int i);
/* True if `auto` found no GPU and took the CPU. */
bool cvy_devices_fell_back_to_cpu(const cvy_devices *devices);

#ifdef __cplusplus
}
#endif
#endif
