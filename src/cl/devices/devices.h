/* SPDX-License-Identifier: MIT
 * The inside of cvy_devices (convoy/device.h), for the layers above. */
#ifndef CVY_CL_DEVICES_DEVICES_H
#define CVY_CL_DEVICES_DEVICES_H

#include "src/cl/devices/device_open.h"

/* A device that was chosen, and failed before it did any work. */
typedef struct cvy_left_out {
  char label[160];
  cvy_status fault;
} cvy_left_out;

struct cvy_devices {
  cvy_device_list *list;
  cvy_selected_device *selected;
  int n;
  bool fell_back_to_cpu;
  cvy_left_out *left_out;
  int n_left_out;
};

static inline const cvy_device_info *cvy_devices_info(const cvy_devices *devices, int i) {
  return &devices->list->items[devices->selected[i].item];
}
/* Whether threads that wait for device i should leave the core alone: it is no CPU, but a CPU is among the devices. */
static inline bool cvy_devices_waits_asleep(const cvy_devices *devices, int i) {
  bool beside_cpu = false;
  for (int d = 0; d < devices->n; d++) beside_cpu |= cvy_devices_info(devices, d)->kind == CVY_DEVICE_CPU;
  return beside_cpu && cvy_devices_info(devices, i)->kind != CVY_DEVICE_CPU;
}
/* Devices that have failed (faults[i] is not CVY_OK) may be left out: no term names one of them by number, and
 * others are left. Else the failure is the caller's. */
bool cvy_devices_may_leave_out(const cvy_devices *devices, const cvy_status *faults);
/* Takes these devices out of the choice, with a warning for each and one with those that are left. The others move up.
 * Only if they may be left out, and while nothing uses the devices. CVY_E_MEMORY. */
cvy_status cvy_devices_leave_out(cvy_devices *devices, const cvy_status *faults);
/* Opens each device and closes it again, for a caller that opens them one by one: those that fail are left out if they
 * may be, else the first failure. A device that is alone is not opened: the caller's open finds its failure. */
cvy_status cvy_devices_try(cvy_devices *devices);
/* Compute units of device i (a sub-device's own) and its driver's version, without opening it. */
static inline int cvy_devices_units(const cvy_devices *devices, int i) {
  const int units = devices->selected[i].units;
  return units > 0 ? units : cvy_devices_info(devices, i)->compute_units;
}
static inline const char *cvy_devices_driver(const cvy_devices *devices, int i) {
  return cvy_devices_info(devices, i)->driver;
}

/* Fills same_as and duplicate: the second driver of one GPU, and the CPU runtimes that share the host's cores with the
 * preferred one. */
void cvy_device_list_mark_same(cvy_device_list *list);

/* cvy_device_list_create for a process whose parent has made the list: no context is tried. With NVIDIA's driver one
 * takes 0.2 s for each card. */
cvy_status cvy_device_list_create_untried(cvy_device_list **out);

#endif
