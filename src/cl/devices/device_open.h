/* SPDX-License-Identifier: MIT
 * Opens and closes devices. This module knows everything that an opened device has: programs, plans of libraries, times
 * of commands. None of those includes it. */
#ifndef CVY_CL_DEVICES_DEVICE_OPEN_H
#define CVY_CL_DEVICES_DEVICE_OPEN_H

#include "src/cl/devices/selector.h"
#include "src/cl/opened_device.h"

/* Opens a selected device: sub-device if asked, context, queues. `profiling`: queues record event times.
 * CVY_E_DEVICE / CVY_E_UNSUPPORTED (cannot partition like that). Each open is independent (own context), also of the
 * same device. A cvy_device and what is made from it is used by one thread at a time, except that queues, events and
 * buffers may be used from another thread when the caller orders the accesses. */
cvy_status cvy_device_open(const cvy_device_list *list, const cvy_selected_device *selected, bool profiling,
                           cvy_device **out);
/* cvy_device_open with a pulse, which also beats while the device is opened. `pulse` must live as long as a thread may
 * be inside a call. A thread abandoned in here reads neither list nor selected after the driver's call returns. */
cvy_status cvy_device_open_watched(const cvy_device_list *list, const cvy_selected_device *selected, bool profiling,
                                   cvy_pulse *pulse, cvy_device **out);
/* After everything made from it is destroyed. */
void cvy_device_close(cvy_device **device);

#endif
