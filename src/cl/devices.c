/* SPDX-License-Identifier: MIT
 * The public side of device choice, and what could be there but is not. */
#include "src/cl/devices.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/mem.h"
#include "src/base/text.h"
#include "src/cl/blas.h"
#include "src/cl/fft.h"
#include "src/cl/selector.h"

cvy_status cvy_devices_select(const char *selector, cvy_devices **out) {
  cvy_status status = CVY_OK;
  cvy_devices *devices = cvy_calloc(1, sizeof *devices);
  CVY_REQUIRE(devices, CVY_E_MEMORY, "no memory to choose devices");
  CVY_REQUIRE(selector, CVY_E_ARGUMENT, "no devices are named: NULL instead of a text such as \"auto\"");
  CVY_TRY(cvy_device_list_create(&devices->list));
  CVY_TRY(cvy_select(devices->list, selector, &devices->choices, &devices->n, &devices->fell_back_to_cpu));
  *out = devices;
  return CVY_OK;
fail:
  cvy_devices_destroy(&devices);
  return status;
}

void cvy_devices_destroy(cvy_devices **devices) {
  if (!devices || !*devices) return;
  cvy_free((*devices)->choices);
  cvy_device_list_destroy(&(*devices)->list);
  cvy_free(*devices);
  *devices = NULL;
}

int cvy_devices_count(const cvy_devices *devices) { return devices->n; }

const char *cvy_devices_label(const cvy_devices *devices, int i) {
  return i >= 0 && i < devices->n ? devices->choices[i].label : NULL;
}

bool cvy_devices_fell_back_to_cpu(const cvy_devices *devices) { return devices->fell_back_to_cpu; }

/* A line of a sysfs file such as "0x10de"; -1 if it cannot be read. */
static long read_hex(const char *folder, const char *device, const char *file) {
  char path[PATH_MAX], line[32];
  snprintf(path, sizeof path, "%s/%s/%s", folder, device, file);
  FILE *const f = fopen(path, "r");
  if (!f) return -1;
  const bool got = fgets(line, sizeof line, f) != NULL;
  fclose(f);
  return got ? strtol(line, NULL, 16) : -1;
}

/* Drivers that tell no bus address are believed to mean every card of their vendor. */
static bool offered(const cvy_device_list *list, const char *address, const char *vendor, const char *other_vendor) {
  for (int i = 0; i < list->n; i++) {
    const cvy_device_info *const info = &list->items[i];
    if (info->index < 0 || info->kind == CVY_DEVICE_CPU) continue;
    if (!strncmp(info->uuid, "pci:", 4) ? !strcasecmp(info->uuid + 4, address)
                                        : strstr(info->vendor, vendor) || strstr(info->vendor, other_vendor))
      return true;
  }
  return false;
}

static int by_name(const struct dirent **a, const struct dirent **b) { return strcmp((*a)->d_name, (*b)->d_name); }

void cvy_missing_drivers_in(const char *pci_folder, const cvy_device_list *list, char *out, size_t out_bytes) {
  static const struct { long id; const char *name, *other_name, *packages; } vendors[] = {
    {0x10de, "NVIDIA", "NVIDIA", "nvidia-opencl-icd (in a container: the host's libnvidia-opencl and its .icd file)"},
    {0x1002, "AMD", "Advanced Micro Devices", "rocm-opencl-icd, or mesa-opencl-icd with RUSTICL_ENABLE=radeonsi"},
    {0x8086, "Intel", "Intel", "intel-opencl-icd"},
  };
  struct dirent **names = NULL;
  size_t used = strnlen(out, out_bytes);
  const int n = scandir(pci_folder, &names, NULL, by_name);
  for (int i = 0; i < n; i++) {
    const char *const address = names[i]->d_name;
    const long class = read_hex(pci_folder, address, "class"), vendor = read_hex(pci_folder, address, "vendor");
    for (size_t v = 0; v < sizeof vendors / sizeof vendors[0]; v++) {
      if (class < 0 || class >> 16 != 0x03 || vendor != vendors[v].id ||
          offered(list, address, vendors[v].name, vendors[v].other_name))
        continue;
      if (used + 1 < out_bytes)
        used += (size_t)snprintf(
            out + used, out_bytes - used,
            "There is a graphics card by %s at %s, but no OpenCL platform offers it. Probably missing: %s.\n",
            vendors[v].name, address, vendors[v].packages);
      if (used >= out_bytes) used = out_bytes - 1;
    }
    free(names[i]);
  }
  free(names);
}

void cvy_device_missing_drivers(const cvy_device_list *list, char *out, size_t out_bytes) {
  if (out_bytes == 0) return;
  out[0] = 0;
  cvy_missing_drivers_in("/sys/bus/pci/devices", list, out, out_bytes);
}

void cvy_libraries_describe(char *out, size_t out_bytes) {
  char blas[256], fft[256];
  const bool has_blas = cvy_blas_probe(blas, sizeof blas), has_fft = cvy_fft_probe(fft, sizeof fft);
  snprintf(out, out_bytes, "CLBlast: %s%s%s\nclFFT: %s%s%s\n", has_blas ? "" : "not found (", blas, has_blas ? "" : ")",
           has_fft ? "" : "not found (", fft, has_fft ? "" : ")");
}
