/* SPDX-License-Identifier: MIT
 * What the library has done in this process: kernels and the time to the first one; what a team's devices spent the
 * time of its training steps on, in sums and as a trace. */
#ifndef CONVOY_PROFILE_H
#define CONVOY_PROFILE_H

#include <stdbool.h>
#include <stdint.h>

#include "convoy/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cvy_team cvy_team; /* team.h */

typedef struct cvy_launch_totals {
  long compiled, cached; /* programs given to the driver as source, of which it may have a cache of its own (PoCL),
                                and programs loaded from convoy's kernel cache */
  long launched;         /* kernels enqueued */
  long kernels,
      kernels_run;   /* kernels that are there now; and those, of all there were, that have run once: where a driver
                                compiles at the first launch (PoCL), as many are compiled */
  uint64_t build_ns; /* time in which drivers built programs; of several at once counted once */
  uint64_t first_forward_ns; /* CLOCK_MONOTONIC when the first kernel of a forward pass was enqueued; 0: none yet */
} cvy_launch_totals;

/* Any thread. */
cvy_launch_totals cvy_launch_get_totals(void);

/* Sums over the team's finished training steps; of the first step only as long as it is the only one, since kernels may
 * be compiled in it. Evaluation is not counted. The four times are different stretches of the steps' time: they add up
 * to total_ms, which is the sum of cvy_step_result.ms. */
typedef struct cvy_device_times {
  long steps, images;
  long finished; /* steps, the first one included */
  double total_ms;
  double computing_ms;   /* kernels run */
  double exchanging_ms;  /* no kernel, but a transfer: what is not hidden behind kernels */
  double waiting_ms;     /* neither, for weights or for other devices */
  double idle_ms;        /* neither: launches, a host that is late, a team of one between two steps */
  double update_ms;      /* on the host, the whole team's sum and update; 0 for a team of one */
  double clock_error_us; /* how well the device's clock is known to lie to the host's: +- */
} cvy_device_times;
/* False if the device's times are not known: the team was created for inference, with `untimed` or `profile`, the
 * driver's times are of no use, or there is no such device. Any thread; does not wait. */
bool cvy_team_device_times(cvy_team *team, int device, cvy_device_times *out);

/* Writes what happens from now on to `path` (replaced) as a trace that Perfetto (ui.perfetto.dev) and chrome://tracing
 * show: rows for the steps, for each host thread, and for each device's compute, transfer and upload queue, with
 * layers, kernels and buckets. Steps under way are awaited before. At most events_max events (0: a million, about 170
 * MB); what happens after them is counted, not written. CVY_E_ARGUMENT for a team whose times are not known or that is
 * traced already; CVY_E_IO. */
cvy_status cvy_team_trace_begin(cvy_team *team, const char *path, long events_max);
typedef struct cvy_trace_totals {
  long events, left_out; /* written, not written */
  long first_left_out;   /* the step from which on events are missing, -1: none is */
} cvy_trace_totals;
/* Waits for steps under way, completes and closes the file. CVY_E_IO if it could not be written in full. `out` may be
 * NULL. Nothing if no trace was begun. Destroying the team does it too. Devices that are lost, at this (as in a step)
 * or before, do not make it fail: a warning says that the trace does not have all of them. Where a team of one loses
 * its device at it, the state on the device goes with it: save first. */
cvy_status cvy_team_trace_end(cvy_team *team, cvy_trace_totals *out);

#ifdef __cplusplus
}
#endif
#endif
