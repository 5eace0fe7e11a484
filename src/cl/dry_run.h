/* SPDX-License-Identifier: MIT
 * A known graphics card without the card: nothing is compiled, buffers hold nothing, and a launch is listed instead of
 * enqueued. So any machine plans a step for the card (convoy bench plan). */
#ifndef CVY_CL_DRY_RUN_H
#define CVY_CL_DRY_RUN_H

#include "src/cl/devices/device_open.h"
#include "src/cl/launch.h"

/* The card has SIMT-shaped kernels; no variable of the environment changes its capabilities. */
cvy_status cvy_device_open_dry_run(const cvy_known_device *known, cvy_device **out);
bool cvy_device_is_dry_run(const cvy_device *device);

typedef struct cvy_dry_run_launch {
  char file[40], name[40]; /* of the kernel; file "": a fill or a copy */
  int scope;               /* cvy_profile_scope */
  size_t groups, items;    /* work-groups, work-items of each */
  cvy_launch_work work;
} cvy_dry_run_launch;
/* All launches, fills and copies since the last cvy_dry_run_clear, in their order. Borrowed until the next command. A
 * launch without cvy_launch_expect moves every buffer that is an argument once, `scratch` (may be NULL) left out. */
const cvy_dry_run_launch *cvy_dry_run_launches(const cvy_device *device, int *n);
void cvy_dry_run_clear(cvy_device *device, const cvy_buffer *scratch);
/* Call in front of a launch: its planned cost. Nothing on a real device. */
void cvy_launch_expect(cvy_queue *queue, const cvy_launch_work *work);

#endif
