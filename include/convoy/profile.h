/* SPDX-License-Identifier: MIT
 * Figures of this process: its kernels and the time to the first one; how a team's devices spent the time of its
 * training steps, in sums and as a trace. */
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
  long compiled;     /* programs that the driver got as source; it may have them in a cache of its own (PoCL) */
  long cached;       /* programs loaded from convoy's kernel cache */
  long launched;     /* kernels enqueued */
  long kernels;      /* kernels that exist now */
  long kernels_run;  /* kernels that have run; a driver that compiles at the first launch (PoCL) has compiled these */
  uint64_t build_ns; /* time in which at least one driver built a program, or processes of compile.h compiled */
  long ahead, ahead_done;    /* kernels that those processes were asked for; those of them that are done or given up */
  char ahead_kernel[64];     /* the last one that one of them began */
  uint64_t first_forward_ns; /* CLOCK_MONOTONIC when the first kernel of a forward pass was enqueued; 0: none yet */
} cvy_launch_totals;

/* Any thread. */
cvy_launch_totals cvy_launch_get_totals(void);

/* Sums over the team's finished training steps that were measured: all of them, but in a team with a graphics card,
 * where measuring delays short kernels, 8 of every 100 unless a trace is written. The first step counts only while it
 * is the only one, since drivers may compile kernels in it. Evaluation does not count. The four times do not overlap:
 * they add up to total_ms, which is the sum of cvy_step_result.ms. */
typedef struct cvy_device_times {
  long steps, images;
  long finished; /* steps, those included that do not count or were not measured */
  double total_ms;
  double computing_ms;   /* kernels run */
  double exchanging_ms;  /* no kernel runs, but a transfer: exchange that kernels do not hide */
  double waiting_ms;     /* neither runs: the device waits for weights or for other devices */
  double idle_ms;        /* neither runs: launches, a host that is late, a team of one between two steps */
  double update_ms;      /* on the host, the whole team's sum and update; 0 for a team of one */
  double clock_error_us; /* the offset of the device's clock to the host's is known to +- so much */
} cvy_device_times;
/* False if the device's times are not known: the team was created for inference, with `untimed` or `profile`, the
 * driver's times are of no use, or there is no such device. Any thread; does not wait. */
bool cvy_team_device_times(cvy_team *team, int device, cvy_device_times *out);

/* Waits for steps under way, and from then on writes a trace to `path` (replaced), for Perfetto (ui.perfetto.dev) and
 * chrome://tracing. It has rows for the steps, for each host thread, and for each device's compute, transfer and upload
 * queue, with layers, kernels and buckets, and at most events_max events (0: a million, about 170 MB); later ones are
 * counted, not written. CVY_E_ARGUMENT for a team whose times are not known or that is traced already; CVY_E_IO. */
cvy_status cvy_team_trace_begin(cvy_team *team, const char *path, long events_max);
typedef struct cvy_trace_totals {
  long events, left_out; /* written, not written */
  long first_left_out;   /* the first step of which events are missing, -1: none is */
} cvy_trace_totals;
/* Waits for steps under way, completes and closes the file. CVY_E_IO if it could not be written in full. `out` may be
 * NULL. Does nothing if no trace was begun. Destroying the team does it too. Devices that are lost, in this call (as in
 * a step) or earlier, do not make it fail: a warning says that the trace is incomplete. If a team of one loses its
 * device in this call, it loses the state on the device: save first. */
cvy_status cvy_team_trace_end(cvy_team *team, cvy_trace_totals *out);

#ifdef __cplusplus
}
#endif
#endif
