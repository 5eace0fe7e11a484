/* SPDX-License-Identifier: MIT */
#include "src/cl/devices.h"

#include "src/base/mem.h"

cvy_status cvy_devices_select(const char *selector, cvy_devices **out) {
  cvy_status status = CVY_OK;
  cvy_devices *d = cvy_calloc(1, sizeof *d);
  *out = NULL;
  CVY_REQUIRE(d, CVY_E_MEMORY, "out of host memory");
  CVY_TRY(cvy_device_list_create(&d->list));
  CVY_TRY(cvy_select(d->list, selector ? selector : "auto", &d->choices, &d->n, &d->fell_back_to_cpu));
  *out = d;
  return CVY_OK;
fail:
  cvy_devices_destroy(&d);
  return status;
}

void cvy_devices_destroy(cvy_devices **devices) {
  cvy_devices *const d = *devices;
  if (!d) return;
  cvy_free(d->choices);
  cvy_device_list_destroy(&d->list);
  cvy_free(d);
  *devices = NULL;
}

int cvy_devices_count(const cvy_devices *d) { return d->n; }
const char *cvy_devices_label(const cvy_devices *d, int i) { return i >= 0 && i < d->n ? d->choices[i].label : NULL; }
bool cvy_devices_fell_back_to_cpu(const cvy_devices *d) { return d->fell_back_to_cpu; }
