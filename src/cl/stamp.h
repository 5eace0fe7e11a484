/* SPDX-License-Identifier: MIT
 * The host's time at which a command completes, without profiling and without a thread that waits. */
#ifndef CVY_CL_STAMP_H
#define CVY_CL_STAMP_H

#include "src/cl/opened_device.h"

typedef struct cvy_stamp cvy_stamp;
/* The driver sets the time when `event` completes or fails; the event may be destroyed earlier. CVY_E_MEMORY,
 * CVY_E_DEVICE. */
cvy_status cvy_stamp_create(cvy_event *event, cvy_stamp **out);
/* cvy_clock_ns() at completion; 0: not yet (the driver may set it some moments after a wait for the event has
 * returned), or NULL. Any thread. */
uint64_t cvy_stamp_ns(const cvy_stamp *stamp);
/* At any time, also before completion. */
void cvy_stamp_destroy(cvy_stamp **stamp);

#endif
