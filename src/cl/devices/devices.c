/* SPDX-License-Identifier: MIT
 * The public side of device choice. */
#include "src/cl/devices/devices.h"

#include <stdio.h>
#include <string.h>

#include "src/base/mem.h"
#include "src/base/text.h"
#include "src/cl/blas.h"
#include "src/cl/fft.h"

/* Why there is no device, or no GPU where the selector means one, a warning each, and how to get one. */
static void tell_none(const cvy_device_list *list, const char *selector) {
  char text[4096];
  bool has_cpu = false;
  for (int i = 0; i < list->n; i++) {
    if (!list->items[i].usable) continue;
    if (list->items[i].kind != CVY_DEVICE_CPU || !cvy_selector_means_gpus(selector)) return;
    has_cpu = true;
  }
  const bool is_hidden = cvy_device_missing_drivers(list, text, sizeof text);
  for (char *at = text, *end; (end = strchr(at, '\n')) != NULL; at = end + 1)
    cvy_log_warning("%.*s", (int)(end - at), at);
  if (!is_hidden) {
    cvy_device_advice(text, sizeof text);
    cvy_log_warning("%.*s", (int)strlen(text) - 1, text);
  }
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
  cvy_free((*devices)->left_out);
  cvy_device_list_destroy(&(*devices)->list);
  cvy_free(*devices);
  *devices = NULL;
}

bool cvy_devices_may_leave_out(const cvy_devices *devices, const cvy_status *faults) {
  int n = 0;
  for (int i = 0; i < devices->n; i++) {
    n += faults[i] != CVY_OK;
    if (faults[i] != CVY_OK && devices->selected[i].by_number) return false;
  }
  return n > 0 && n < devices->n;
}

/* "0:0", of "0:0 NVIDIA H200" or of a part or replica. */
static int place_size(const char *label) { return (int)strcspn(label, " /#"); }

/* The devices that are left, and how to choose them. */
static void say_left(const cvy_devices *devices) {
  cvy_text labels = {0}, places = {0};
  for (int i = 0; i < devices->n; i++) {
    const char *const label = devices->selected[i].label, *const before = i ? devices->selected[i - 1].label : "";
    cvy_text_add(&labels, "%s%s", i ? ", " : "", label);
    if (i == 0 || place_size(before) != place_size(label) || strncmp(before, label, (size_t)place_size(label)) != 0)
      cvy_text_add(&places, "%s%.*s", i ? "," : "", place_size(label), label);
  }
  cvy_log_warning("%d device%s left: %s; --devices %s chooses %s alone", devices->n, devices->n == 1 ? " is" : "s are",
                  cvy_text_get(&labels), cvy_text_get(&places), devices->n == 1 ? "it" : "them");
  cvy_text_clear(&labels);
  cvy_text_clear(&places);
}

cvy_status cvy_devices_leave_out(cvy_devices *devices, const cvy_status *faults) {
  cvy_status status = CVY_OK;
  int kept = 0;
  CVY_ASSERT(cvy_devices_may_leave_out(devices, faults));
  cvy_left_out *const grown = cvy_realloc(devices->left_out, (size_t)devices->n_left_out,
                                          (size_t)devices->n_left_out + (size_t)devices->n, sizeof *grown);
  CVY_REQUIRE(grown, CVY_E_MEMORY, "no memory for the devices that are left out");
  devices->left_out = grown;
  for (int i = 0; i < devices->n; i++) {
    cvy_selected_device *const one = &devices->selected[i];
    if (faults[i] == CVY_OK) {
      devices->selected[kept++] = *one;
      continue;
    }
    cvy_left_out *const left_out = &devices->left_out[devices->n_left_out++];
    *left_out = (cvy_left_out){.fault = faults[i]};
    memcpy(left_out->label, one->label, sizeof left_out->label);
    cvy_log_warning("%s is left out: %s; 'convoy selftest --devices %.*s' tries it alone", one->label,
                    cvy_status_text(faults[i]), place_size(one->label), one->label);
  }
  devices->n = kept;
  say_left(devices);
fail:
  return status;
}

cvy_status cvy_devices_try(cvy_devices *devices) {
  cvy_status status = CVY_OK;
  if (devices->n == 1) return CVY_OK;
  cvy_status *const faults = cvy_calloc((size_t)devices->n, sizeof *faults);
  CVY_REQUIRE(faults, CVY_E_MEMORY, "no memory to choose devices");
  for (int i = 0; i < devices->n; i++) {
    cvy_device *device = NULL;
    faults[i] = cvy_device_open(devices->list, &devices->selected[i], false, &device);
    cvy_device_close(&device);
    if (status == CVY_OK) status = faults[i];
  }
  if (cvy_devices_may_leave_out(devices, faults)) status = cvy_devices_leave_out(devices, faults);
fail:
  cvy_free(faults);
  return status;
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
