/* SPDX-License-Identifier: MIT
 * The public side of device choice. */
#include "src/cl/devices.h"

#include <stdio.h>
#include <string.h>

#include "src/base/mem.h"
#include "src/base/text.h"
#include "src/cl/blas.h"
#include "src/cl/fft.h"
#include "src/cl/selector.h"

/* Why there is no device, or no GPU where the selector means one, a warning each, and how to get one. */
static void tell_none(const cvy_device_list *list, const char *selector) {
  char text[4096];
  bool has_cpu = false;
  for (int i = 0; i < list->n; i++) {
    if (!list->items[i].usable) continue;
    if (list->items[i].kind != CVY_DEVICE_CPU || !cvy_selector_means_gpus(selector)) return;
    has_cpu = true;
  }
  cvy_device_missing_drivers(list, text, sizeof text);
  for (char *at = text, *end; (end = strchr(at, '\n')) != NULL; at = end + 1)
    cvy_log_warning("%.*s", (int)(end - at), at);
  cvy_device_advice(text, sizeof text);
  cvy_log_warning("%.*s", (int)strlen(text) - 1, text);
  if (has_cpu) cvy_log_warning("--devices cpu uses the CPU, --devices auto a GPU or else the CPU");
}

cvy_status cvy_devices_select(const char *selector, cvy_devices **out) {
  cvy_status status = CVY_OK;
  cvy_devices *devices = cvy_calloc(1, sizeof *devices);
  CVY_REQUIRE(devices, CVY_E_MEMORY, "no memory to choose devices");
  CVY_REQUIRE(selector, CVY_E_ARGUMENT, "no devices are named: NULL instead of a text such as \"auto\"");
  CVY_TRY(cvy_device_list_create(&devices->list));
  CVY_TRY(cvy_select(devices->list, selector, &devices->selected, &devices->n, &devices->fell_back_to_cpu));
  *out = devices;
  return CVY_OK;
fail:
  if (status == CVY_E_NO_DEVICE) tell_none(devices->list, selector);
  cvy_devices_destroy(&devices);
  return status;
}

void cvy_devices_destroy(cvy_devices **devices) {
  if (!devices || !*devices) return;
  cvy_free((*devices)->selected);
  cvy_device_list_destroy(&(*devices)->list);
  cvy_free(*devices);
  *devices = NULL;
}

int cvy_devices_count(const cvy_devices *devices) { return devices->n; }

const char *cvy_devices_label(const cvy_devices *devices, int i) {
  return i >= 0 && i < devices->n ? devices->selected[i].label : NULL;
}

bool cvy_devices_fell_back_to_cpu(const cvy_devices *devices) { return devices->fell_back_to_cpu; }

void cvy_libraries_describe(char *out, size_t out_bytes) {
  char blas[256], fft[256];
  const bool has_blas = cvy_blas_probe(blas, sizeof blas), has_fft = cvy_fft_probe(fft, sizeof fft);
  snprintf(out, out_bytes, "CLBlast: %s%s%s\nclFFT: %s%s%s\n", has_blas ? "" : "not found (", blas, has_blas ? "" : ")",
           has_fft ? "" : "not found (", fft, has_fft ? "" : ")");
}
