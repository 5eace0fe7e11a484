/* SPDX-License-Identifier: MIT
 * What the devices and host threads of a team did when: sums per device (cvy_team_device_times), and a trace
 * (cvy_team_trace_begin).
 *
 * Devices say when their commands ran, in their own clock (cl/profile.h). At the end of each step the exchange thread takes
 * the times of what is done, moves them to the host's clock, and divides the device's time since its end of the step
 * before among computing, exchanging, waiting and idle (usage.h). OpenCL 1.2 cannot ask for both clocks at once: a marker's
 * times lie between readings of the host's clock, which bounds the offset; the commands of all later steps, which cannot
 * have been enqueued later than the host says, correct the drift.
 *
 * A device that is lost is not asked any more, and its times are not known from then on.
 *
 * Every function takes a NULL timeline and does nothing then. */
#ifndef CVY_TRAIN_TIMELINE_H
#define CVY_TRAIN_TIMELINE_H

#include <stdint.h>

#include "convoy/profile.h"
#include "src/base/status.h"

struct cvy_replica;
struct cvy_step;
typedef struct cvy_timeline cvy_timeline;

/* What a host thread did for a while; the thread follows from it. */
typedef enum cvy_work {
  CVY_WORK_STEP,                    /* caller: cvy_team_step */
  CVY_WORK_EVALUATE,                /* caller: cvy_team_evaluate */
  CVY_WORK_ENQUEUE,                 /* worker: a replica's part of a step */
  CVY_WORK_WEIGHTS,                 /* worker: waits until a unit's weights are posted */
  CVY_WORK_FINISH,                  /* exchange: everything for one step */
  CVY_WORK_GRADIENT,                /* exchange: waits for a replica's part of a unit */
  CVY_WORK_UPDATE,                  /* exchange: sum and update of a unit */
  CVY_WORK_GIVE,                    /* exchange: enqueues a unit's uploads */
  CVY_WORK_RESULT                   /* exchange: waits for a replica's loss and hits */
} cvy_work;

/* Scopes of commands that belong to no layer but to a unit of the exchange (train/replica.h). */
enum { CVY_SCOPE_UNIT = -16 };      /* unit u: CVY_SCOPE_UNIT - u */

/* Of replicas 0..n-1 (borrowed), which are open, on profiling devices with nothing enqueued. A device whose clock cannot be
 * placed is left out. CVY_E_MEMORY; CVY_E_DEVICE: one hangs meanwhile. */
cvy_status cvy_timeline_create(struct cvy_replica *replicas, int n, cvy_timeline **out);
/* A trace must have ended. */
void cvy_timeline_destroy(cvy_timeline **timeline);

/* Now, for the beginning of a work; 0 without a timeline. Any thread. */
uint64_t cvy_timeline_now(const cvy_timeline *timeline);
/* The work that began at begin_ns ends now. replica, unit: -1 if it is of none. Any thread. */
void cvy_timeline_work(cvy_timeline *timeline, cvy_work work, int replica, int unit, long step, uint64_t begin_ns);
/* [exchange thread] What brought the replica's result of the step, the last command of it on the compute queue, ended at
 * ended_ns by the device's clock (0: unknown). */
void cvy_timeline_result(cvy_timeline *timeline, int replica, uint64_t ended_ns);
/* [exchange thread] Takes the times of what the devices have done. One may hang at it, so it comes before the step's update
 * counts: another exchange thread does the step again. */
void cvy_timeline_fetch(cvy_timeline *timeline);
/* [exchange thread] The step, begun at step->begun_ns if there was none under way, is done, as was seen at seen_ns: its
 * result is on the host. No work of it is under way. Returns when it was done: a wait may return as late as when the device
 * has done the next step too (Intel's CPU runtime: whoever waits computes), so it is the latest of the ends that the devices
 * say and of exchanged_ns, when the host's part was over (0: there was none); seen_ns without a timeline, or if a device at
 * work does not say. */
uint64_t cvy_timeline_step_done(cvy_timeline *timeline, const struct cvy_step *step, uint64_t exchanged_ns, uint64_t seen_ns);
/* [worker] Takes the times of what is done outside of steps, so that they do not pile up. */
void cvy_timeline_drain(cvy_timeline *timeline, const struct cvy_replica *replica);

#endif
