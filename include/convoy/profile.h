/* SPDX-License-Identifier: MIT
 * Counters of this process: kernels and the time to the first one; the times of a team's devices in training steps, as
 * sums and as a trace. */
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
  long compiled;          /* programs that the driver got as source; the driver (PoCL) may have its own cache */
  long cached;            /* programs loaded from convoy's kernel cache */
  long launched;          /* kernels enqueued */
  long kernels;           /* kernels that exist now */
  long kernels_run;       /* kernels that have run; a driver that compiles at the first launch (PoCL) compiles these */
  uint64_t build_ns;      /* time in which at least one driver built a program, or processes of compile.h compiled */
  long ahead, ahead_done; /* kernels requested from those processes; of these, done or failed */
  char ahead_kernel[64];  /* the last one that they began */
  uint64_t first_forward_ns; /* CLOCK_MONOTONIC when the first kernel of a forward pass was enqueued; 0: none yet */
} cvy_launch_totals;

/* Any thread. */
cvy_launch_totals cvy_launch_get_totals(void);

/* Sums over the team's finished training steps that were measured. On a graphics card, where measuring delays short
 * kernels, 8 of every 100 steps are measured, unless a trace is written; else all are. The first step counts only while
 * it is the only one, since drivers may compile kernels in it. Evaluation is excluded. The four times do not overlap:
 * their sum is total_ms, the sum of cvy_step_result.ms. */
typedef struct cvy_device_times {
  long steps, images;
  long finished; /* steps, including those that do not count or were not measured */
  double total_ms;
  double computing_ms;   /* kernels run */
  double exchanging_ms;  /* a transfer runs, but no kernel: exchange that is not overlapped */
  double waiting_ms;     /* neither runs: the device waits for weights or for other devices */
  double idle_ms;        /* neither runs: launches, a host that is late, a team of one between two steps */
  double update_ms;      /* on the host: sum and update for the whole team; 0 for a team of one */
  double clock_error_us; /* error bound of the offset between the device's clock and the host's */
} cvy_device_times;
/* False if the device's times are not known: the team was created for inference, with `untimed` or `profile`, the
 * driver's times are unusable, or there is no such device. Any thread; does not wait. */
bool cvy_team_device_times(cvy_team *team, int device, cvy_device_times *out);

/* Waits for steps under way, and from then on writes a trace to `path` (replaced), for Perfetto (ui.perfetto.dev) and
 * chrome://tracing. It has rows for the steps, for each host thread, and for each device's compute, transfer and upload
 * queue, with layers, kernels and buckets, and at most events_max events (0: a million, about 170 MB); later ones are
 * counted, not written. CVY_E_ARGUMENT: the team's times are not known, or a trace is being written · CVY_E_IO. */
cvy_status cvy_team_trace_begin(cvy_team *team, const char *path, long events_max);
typedef struct cvy_trace_totals {
  long events, left_out; /* written, not written */
  long first_left_out;   /* the first step with missing events; -1: none */
} cvy_trace_totals;
/* Waits for steps under way, then completes and closes the file. CVY_E_IO: it could not be written in full. `out` may
 * be NULL. Does nothing if no trace was begun. Destroying the team also ends the trace. A device that is lost, in this
 * call (as in a step) or earlier, is not an error: a warning reports that the trace is incomplete. If a team of one
 * loses its device in this call, the state on the device is lost: save first. */
cvy_status cvy_team_trace_end(cvy_team *team, cvy_trace_totals *out);

#ifdef __cplusplus
}
#endif
#endif
