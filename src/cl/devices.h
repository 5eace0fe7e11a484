/* SPDX-License-Identifier: MIT
 * The inside of a cvy_devices (convoy/device.h): the list at the time of the choice, and the choices. */
#ifndef CVY_CL_DEVICES_H
#define CVY_CL_DEVICES_H

#include "src/cl/selector.h"

struct cvy_devices {
  cvy_device_list *list;
  cvy_device_choice *choices;
  int n;
  bool fell_back_to_cpu;
};

#endif
