/* SPDX-License-Identifier: MIT
 * The times at which a team's devices and host threads worked: sums per device (cvy_timeline_times), and a trace
 * (cvy_timeline_trace_begin).
 *
 * Devices report the times of commands in their own clock (cl/command_times.h). At the end of each step the exchange
 * thread takes the times of ended commands, moves them to the host's clock, and divides the device's time since it
 * ended the previous step among computing, exchanging, waiting and idle (usage.h). OpenCL 1.2 cannot read both clocks
 * at once. A marker's times lie between readings of the host's clock, which bounds the offset. The commands of all
 * later steps, which cannot have been enqueued later than the host's time, correct the drift.
 *
 * An event for each command costs little beside the kernels of a CPU, but a graphics card waits for the thread that
 * enqueues its short kernels. In a team with a graphics card only the first CVY_MEASURED_STEPS of every
 * CVY_MEASURED_OF steps are measured, unless a trace is written; the sums are over the measured steps.
 *
 * The timeline does not call a lost device, whose times are unknown from then on.
 *
 * Every function takes a NULL timeline and does nothing then. */
#ifndef CVY_TIMES_TIMELINE_H
#define CVY_TIMES_TIMELINE_H

#include <stdint.h>

#include "convoy/profile.h"
#include "src/base/failure.h"

struct cvy_device;
struct cvy_devices;
struct cvy_instance;
struct cvy_layout;
typedef struct cvy_timeline cvy_timeline;

/* Kinds of work of a host thread; the kind determines the thread. */
typedef enum cvy_work {
  CVY_WORK_STEP,     /* caller: cvy_team_step */
  CVY_WORK_EVALUATE, /* caller: cvy_team_evaluate */
  CVY_WORK_ENQUEUE,  /* worker: enqueues a device's work of a step */
  CVY_WORK_WEIGHTS,  /* worker: waits until a parcel's weights are posted */
  CVY_WORK_FINISH,   /* exchange: the whole work of one step */
  CVY_WORK_GRADIENT, /* exchange: waits for a device's part of a parcel */
  CVY_WORK_UPDATE,   /* exchange: sum and update of a parcel */
  CVY_WORK_GIVE,     /* exchange: enqueues a parcel's uploads */
  CVY_WORK_RESULT    /* exchange: waits for a device's result: its sum of losses, and its hits */
} cvy_work;

/* Scopes of commands that belong to no layer but to a parcel of the exchange (protocol/mail.h). */
enum { CVY_SCOPE_PARCEL = -16 }; /* parcel u: CVY_SCOPE_PARCEL - u */

enum { CVY_MEASURED_STEPS = 8, CVY_MEASURED_OF = 100 };

/* For the team's devices; all arguments are borrowed. CVY_E_MEMORY. */
cvy_status cvy_timeline_create(const struct cvy_devices *devices, const struct cvy_layout *layout, cvy_timeline **out);
/* A trace must have ended. */
void cvy_timeline_destroy(cvy_timeline **timeline);
/* [worker i] With the device open, on empty profiling queues: finds its clock's offset to the host's. A device whose
 * clock has none is left out. */
void cvy_timeline_open(cvy_timeline *timeline, int i, struct cvy_device *device);
/* [worker i] The device's present instance, for the names of layers in a trace; NULL: none. */
void cvy_timeline_set_instance(cvy_timeline *timeline, int i, const struct cvy_instance *instance);

/* True if the times of this step's commands are needed (-1: of commands outside steps); true without a timeline, when
 * the caller collects the times. Any thread. */
bool cvy_timeline_measures(cvy_timeline *timeline, long step);
/* The current time, for the beginning of a work; 0 without a timeline. Any thread. */
uint64_t cvy_timeline_now(const cvy_timeline *timeline);
/* The work that began at begin_ns ends now. device, parcel: -1 if it is of none. Any thread. */
void cvy_timeline_work(cvy_timeline *timeline, cvy_work work, int device, int parcel, long step, uint64_t begin_ns);
/* [exchange thread] The command that read device i's result, the step's last one on the compute queue, ended at
 * ended_ns by the device's clock (0: unknown). */
void cvy_timeline_result(cvy_timeline *timeline, int i, uint64_t ended_ns);
/* [exchange thread, inside the device's call; or the device's worker] Takes the times of device i's ended commands. The
 * device may hang in this call, so make it before the step's update is applied: another exchange thread then repeats
 * the step. */
void cvy_timeline_fetch(cvy_timeline *timeline, int i);
/* [worker i] The same outside steps, so that the list of times does not grow. */
void cvy_timeline_drain(cvy_timeline *timeline, int i);
/* Device i is lost: the timeline does not call it any more. */
void cvy_timeline_leave_out(cvy_timeline *timeline, int i);

typedef struct cvy_timeline_step {
  long number;
  int n;                 /* samples */
  uint64_t begun_ns;     /* time of the caller's request, if no step was under way then; else 0 */
  uint64_t exchanged_ns; /* when the exchange of the step ended; 0: there was none */
  uint64_t seen_ns;      /* its result is on the host */
  const int *shares;     /* one per device */
} cvy_timeline_step;
/* [exchange thread] Notes that the step has ended. Returns the time of its end: the latest of the devices' ends and
 * exchanged_ns, since a wait may return only after the device has also done the next step (with Intel's CPU runtime the
 * waiting thread computes). seen_ns without a timeline, or if a device with a share reports no time. */
uint64_t cvy_timeline_step_done(cvy_timeline *timeline, const cvy_timeline_step *step);

/* The public functions (convoy/profile.h), for a team at rest. */
bool cvy_timeline_times(cvy_timeline *timeline, int i, cvy_device_times *out);
cvy_status cvy_timeline_trace_begin(cvy_timeline *timeline, const char *path, long events_max);
bool cvy_timeline_is_traced(cvy_timeline *timeline);
cvy_status cvy_timeline_trace_end(cvy_timeline *timeline, cvy_trace_totals *out);

#endif
