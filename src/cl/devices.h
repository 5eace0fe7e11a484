/* SPDX-License-Identifier: MIT
 * What a choice of devices (convoy/device.h) holds, for the layers above. */
#ifndef CVY_CL_DEVICES_H
#define CVY_CL_DEVICES_H

#include "src/cl/device.h"

struct cvy_devices {
  cvy_device_list *list;
  cvy_device_choice *choices;
  int n;
  bool fell_back_to_cpu;
};

/* Fills same_as and duplicate: the second driver of one GPU, and the CPU runtimes that share the host's cores with the
 * preferred one. */
void cvy_device_list_mark_same(cvy_device_list *list);

#endif
