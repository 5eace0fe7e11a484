/* SPDX-License-Identifier: MIT
 * Times of a team's devices, as a table and for the log. Devices whose times are not known (convoy/profile.h) are left
 * out. */
#ifndef CVY_TOOLS_PROGRAM_VIEW_DEVICE_REPORT_H
#define CVY_TOOLS_PROGRAM_VIEW_DEVICE_REPORT_H

#include <jansson.h>

#include "convoy/convoy.h"
#include "tools/program/view/progress.h"

/* The table at the end of training, on stderr: ms of a step. */
void device_report_print(cvy_team *team);
/* {"step_ms", "update_ms", "devices": [{"device", "share", "images", "computing_ms", "exchanging_ms", "waiting_ms",
 * "idle_ms", "clock_error_us"} or null …]}, ms of a step; null if no device's times are known. */
json_t *device_report_json(cvy_team *team);

/* Current rates of the devices: differences between two readings of their sums. */
typedef struct device_watch device_watch;
/* NULL when out of memory, or if the team has no times. */
device_watch *device_watch_start(cvy_team *team);
void device_watch_end(device_watch **watch);
/* Rates since the last reading, if steps of `least_ms` or more have ended since; else the last rates. shares NULL: the
 * last shares. Returns the number of devices in *out (borrowed), 0 while no rate is known. A NULL watch gives 0. */
int device_watch_look(device_watch *watch, const int *shares, double least_ms, const progress_device **out);

#endif
