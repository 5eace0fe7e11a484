/* SPDX-License-Identifier: MIT
 * What a device can do, from its driver's answers: kernels are chosen by it. Makes no OpenCL call: tests give it the
 * answers of drivers that this machine lacks. */
#ifndef CVY_CL_DEVICES_CAPABILITIES_H
#define CVY_CL_DEVICES_CAPABILITIES_H

#include <stdbool.h>
#include <stddef.h>

#include "convoy/device.h"
#include "src/base/failure.h"

/* Instructions that multiply matrices, beside the plain ones. src/ops/conv2d/math.c tests whether their results are
 * right. */
typedef enum cvy_matrix_unit {
  CVY_MATRIX_NONE = 0,
  CVY_MATRIX_NVIDIA, /* mma.sync with TF32: compute capability 8.0 and up */
  CVY_MATRIX_AMD,    /* MFMA with float32: gfx908, gfx90a, gfx94x, gfx950 */
} cvy_matrix_unit;

/* cvy_capabilities_find alone sets them. */
typedef struct cvy_capabilities {
  /* Wants float16 vectors and one work-item per work-group; false: SIMT. CVY_FORCE_SHAPE=cpu|simt overrides it at
   * opening, for tests and experiments. */
  bool cpu_shaped;
  int compute_units; /* of this (sub-)device; of a pair of AMD's that is called one unit, both */
  size_t local_bytes, max_work_group;
  bool host_unified;
  bool has_prefetch;           /* compiler takes __builtin_prefetch of an address: -D CVY_PREFETCH */
  cvy_matrix_unit matrix_unit; /* CVY_FORCE_MATRIX=nvidia|amd claims one on any SIMT-shaped device, for tests */
  bool emulates_matrix;        /* CVY_FORCE_MATRIX=nvidia-emulated|amd-emulated: its kernels use plain C instead */
  size_t cache_bytes;          /* of the cache in front of its memory, 0: not known */
  bool has_min_vector_width;   /* compiler takes __attribute__((min_vector_width(512))): -D CVY_MIN_VECTOR_WIDTH=512 */
  int vector_floats;           /* of a CPU-shaped device's vector registers: 8 or 16; -D CVY_VECTOR_FLOATS */
  int sub_group;               /* for kernels that want many registers: -D CVY_SUB_GROUP; 0: the compiler chooses */
  int register_limit;          /* of each work-item: -D CVY_REGISTER_LIMIT; 0: the compiler finds it by itself */
} cvy_capabilities;

/* A driver's answers that are not in cvy_device_info. Zeros: it does not support the query. */
typedef struct cvy_driver_answers {
  int units;          /* compute units of this (sub-)device */
  int nv_capability;  /* CL_DEVICE_COMPUTE_CAPABILITY_MAJOR_NV */
  int amd_simds;      /* CL_DEVICE_SIMD_PER_COMPUTE_UNIT_AMD */
  int least_subgroup; /* of CL_DEVICE_SUB_GROUP_SIZES_INTEL */
} cvy_driver_answers;

/* Fills *out. CVY_FORCE_SHAPE, CVY_FORCE_MATRIX and CVY_FORCE_STAGING take part. CVY_E_ARGUMENT: the value of
 * one is not accepted; CVY_E_UNSUPPORTED: the device has no kernels of that shape. `label` is for messages. */
cvy_status cvy_capabilities_find(const cvy_device_info *info, const cvy_driver_answers *answers, const char *label,
                                 cvy_capabilities *out);

#endif
