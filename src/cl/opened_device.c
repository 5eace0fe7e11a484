/* SPDX-License-Identifier: MIT */
#include "src/cl/opencl.h"

static atomic_int n_abandoned;

bool cvy_device_abandon(const cvy_device *device, cvy_pulse *pulse, unsigned long seen, long *objects) {
  if (!atomic_compare_exchange_strong(&pulse->beats, &seen, seen | CVY_PULSE_ABANDONED)) return false;
  atomic_fetch_add(&n_abandoned, 1);
  *objects = device ? atomic_load(&device->children) + 4 : 0; /* context, three queues */
  return true;
}

int cvy_devices_abandoned(void) { return atomic_load(&n_abandoned); }

const cvy_device_info *cvy_device_get_info(const cvy_device *device) { return &device->info; }
const cvy_capabilities *cvy_device_get_capabilities(const cvy_device *device) { return &device->capabilities; }
const char *cvy_device_label(const cvy_device *device) { return device->label; }
cvy_matrix_state *cvy_device_matrix(cvy_device *device) { return &device->matrix; }
const cvy_matrix_state *cvy_device_get_matrix(const cvy_device *device) { return &device->matrix; }
cvy_device_rates *cvy_device_get_rates(cvy_device *device) { return &device->rates; }
cvy_simt_constants *cvy_device_get_constants(cvy_device *device) { return &device->simt; }
cvy_queue *cvy_device_compute_queue(cvy_device *device) { return &device->compute; }
cvy_queue *cvy_device_transfer_queue(cvy_device *device) { return &device->transfer; }
cvy_queue *cvy_device_upload_queue(cvy_device *device) { return &device->upload; }
