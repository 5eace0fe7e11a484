/* SPDX-License-Identifier: MIT
 * The members of a team: each device's state and worker, and the lock and condition variable of the team's threads.
 *
 *   WORKING --fault recorded--> FAILED --removed--> LOST
 *   WORKING, FAILED --no sign of life--> HUNG --removed--> LOST
 *
 * A thread that sees a device fail (its worker, the exchange thread, the watchdog, the caller in an evaluation) records
 * the fault here. That halts the team: every wait inside the team ends. The exchange thread then removes the device
 * (recover.h) and ends the halt. A failure that is no device's fault becomes the team's status, and sticks.
 *
 * The roster is a capability for clang's -Wthread-safety: functions marked CVY_HOLDS need its lock; all others acquire
 * it. No thread calls a driver while it holds the lock, since the call may hang; messages wait until the
 * lock is free (base/sync.h). */
#ifndef CVY_PROTOCOL_ROSTER_H
#define CVY_PROTOCOL_ROSTER_H

#include "src/protocol/member.h"
#include "src/protocol/worker.h"

typedef enum cvy_member_state { CVY_WORKING = 0, CVY_FAILED, CVY_HUNG, CVY_LOST } cvy_member_state;
typedef struct CVY_CAPABILITY("roster") cvy_roster cvy_roster;

/* For n devices; add each of them next. CVY_E_MEMORY. */
cvy_status cvy_roster_create(int n, cvy_roster **out);
/* Adds device i with its worker, whose thread is named after `place`. `label` is borrowed. CVY_E_MEMORY. */
cvy_status cvy_roster_add(cvy_roster *roster, int i, const cvy_member_fns *fns, void *device, int place,
                          const char *label);
/* Ends the workers. Call cvy_roster_destroy next. */
void cvy_roster_end_workers(cvy_roster *roster);
void cvy_roster_destroy(cvy_roster **roster);

int cvy_roster_size(const cvy_roster *roster);
/* Number of a device that was added. */
int cvy_roster_index(const cvy_roster *roster, const void *device);
/* Members of device i; they never change. NULL before it is added. */
void *cvy_roster_device(const cvy_roster *roster, int i);
const cvy_member_fns *cvy_roster_fns(const cvy_roster *roster, int i);
cvy_worker *cvy_roster_worker(const cvy_roster *roster, int i);
const char *cvy_roster_label(const cvy_roster *roster, int i);

/* ---- lock and condition ---- */

void cvy_roster_lock(cvy_roster *roster) CVY_LOCKS(roster);
void cvy_roster_unlock(cvy_roster *roster) CVY_UNLOCKS(roster);
/* Waits until another thread calls cvy_roster_wake. */
void cvy_roster_wait(cvy_roster *roster) CVY_HOLDS(roster);
/* The same for worker i: the watchdog does not count this wait, for other threads, as a hang of the device. */
void cvy_roster_sleep(cvy_roster *roster, int i) CVY_HOLDS(roster);
void cvy_roster_wake(cvy_roster *roster) CVY_HOLDS(roster);

/* ---- the team's state ---- */

/* The first failure of the team; it sticks. */
cvy_status cvy_roster_status(const cvy_roster *roster) CVY_HOLDS(roster);
/* Ends every wait inside the team: permanently with a status, else until failed devices are removed. */
bool cvy_roster_halted(const cvy_roster *roster) CVY_HOLDS(roster);
/* Sets the team's failure permanently and wakes all threads. */
void cvy_roster_fail(cvy_roster *roster, cvy_status status) CVY_HOLDS(roster);
/* The same for a failure of its devices or of the data, which leaves the state on the host complete. False: the team
 * had
 * failed before. */
bool cvy_roster_end(cvy_roster *roster, cvy_status status) CVY_HOLDS(roster);
bool cvy_roster_ended_by_devices(cvy_roster *roster);
/* Aborts the steps under way, which the exchange thread then restarts: another node of the fleet is lost, or has
 * lost a device. Before that thread runs, the team fails. */
void cvy_roster_halt(cvy_roster *roster) CVY_HOLDS(roster);
/* Failed devices have been removed: the team continues. */
void cvy_roster_resume(cvy_roster *roster) CVY_HOLDS(roster);
/* Waits until no device must be removed; returns the team's status. */
cvy_status cvy_roster_settle(cvy_roster *roster);
/* can: the exchange thread runs and removes failed devices. Without it a device's fault becomes the team's failure. */
void cvy_roster_can_recover(cvy_roster *roster, bool can);

/* ---- devices ---- */

cvy_member_state cvy_roster_state(const cvy_roster *roster, int i) CVY_HOLDS(roster);
/* The same, acquiring the lock: the result may be outdated. */
bool cvy_roster_is(cvy_roster *roster, int i, cvy_member_state state);
bool cvy_roster_is_lost(cvy_roster *roster, int i);
/* there[i]: device i is not lost. */
int cvy_roster_present(const cvy_roster *roster, bool *there) CVY_HOLDS(roster);
/* True if a device is FAILED or HUNG and will be removed. */
bool cvy_roster_has_faults(const cvy_roster *roster) CVY_HOLDS(roster);
/* An idle device has no share of any batch, and gets no weights until it needs them. */
bool cvy_roster_is_idle(const cvy_roster *roster, int i) CVY_HOLDS(roster);
void cvy_roster_set_idle(cvy_roster *roster, int i, bool idle) CVY_HOLDS(roster);
/* True for statuses that are a device's fault; others (wrong use, diverged training) would occur on every device. */
bool cvy_is_device_fault(cvy_status status);
/* A call on device i has failed with `status`: records the fault and halts the team. CVY_E_IO: the data cannot be read
 * for any device; recovery ends the run. Another failure that is no device's fault becomes the team's. Does nothing for
 * a device that is already lost. */
void cvy_roster_fault(cvy_roster *roster, int i, cvy_status status);
/* CVY_OK, or the status of the data that could not be read. */
cvy_status cvy_roster_unread(cvy_roster *roster);
/* Halts the team if `status` comes from a device with a recorded fault; else false. */
bool cvy_roster_halt_for(cvy_roster *roster, cvy_status status) CVY_HOLDS(roster);

typedef struct cvy_lost_member {
  int device;
  long step;          /* that was under way, or the next one */
  const char *reason; /* static */
  bool hung;
} cvy_lost_member;
/* [exchange thread] FAILED and HUNG devices become LOST in `step`. lost[0..*n_lost) describes them and has room for all
 * devices; *left: number of working devices. Returns the first fault, CVY_OK if there was none. */
cvy_status cvy_roster_take_out(cvy_roster *roster, long step, cvy_lost_member *lost, int *n_lost, int *left);
/* Describes device i if it is lost; else false. */
bool cvy_roster_lost(const cvy_roster *roster, int i, cvy_lost_member *out) CVY_HOLDS(roster);

/* ---- calls on all devices ---- */

/* Posts the task to every device that is not lost. The caller must wait for each task that has a `fn`, also when its
 * device is lost meanwhile. tasks: one per device. */
void cvy_roster_post_all(cvy_roster *roster, cvy_task *tasks, cvy_task_fn fn, void *arg);
/* All devices at once; the first failure in device order. An error that all share is logged once. */
cvy_status cvy_roster_call_all(cvy_roster *roster, cvy_task_fn fn, void *arg);
/* The same; statuses[i], if it is not NULL: of device i. */
cvy_status cvy_roster_call_each(cvy_roster *roster, cvy_task_fn fn, void *arg, cvy_status *statuses);
/* The same for a task that can be repeated without a device: records the fault of a device that fails in it and sets
 * *good to false; cvy_roster_settle then waits until it is removed. Returns other failures. */
cvy_status cvy_roster_try_all(cvy_roster *roster, cvy_task_fn fn, void *arg, bool *good);
/* The same for a task that every device must complete: repeats it on the remaining devices when one is lost in it. */
cvy_status cvy_roster_do_all(cvy_roster *roster, cvy_task_fn fn, void *arg);

/* ---- signs of life ---- */

/* [exchange thread] Called around each of its calls on device i, so that the watchdog sees them. False: the device is
 * lost or abandoned, and the thread must not call it. leave does not return if the watchdog has abandoned the device
 * meanwhile: another exchange thread has taken over. */
bool cvy_roster_enter(cvy_roster *roster, int i);
void cvy_roster_leave(cvy_roster *roster, int i, cvy_status status);
/* [worker] Marks that its task is a step's. */
void cvy_roster_in_step(cvy_roster *roster, int i, bool in_step);
/* [exchange thread] A step with these shares has taken ms; 0: the time is not a usual one. */
void cvy_roster_step_done(cvy_roster *roster, const int *shares, double ms) CVY_HOLDS(roster);

/* [watchdog] Its view of device i. */
typedef struct cvy_vital_signs {
  unsigned long task, beats; /* task 0: the worker has none */
  bool entered;              /* the exchange thread is inside a call */
  bool fast;                 /* in a step, and not in its first two: no kernel is compiled */
  double usual_ms;           /* of a step, lately */
} cvy_vital_signs;
/* False: the device was abandoned, or is not added yet. */
bool cvy_roster_look(const cvy_roster *roster, int i, cvy_vital_signs *out) CVY_HOLDS(roster);
/* Abandons the device and its worker. False: its thread has made a call since `beats` was read, and the device is
 * kept. */
bool cvy_roster_give_up(cvy_roster *roster, int i, unsigned long beats, long *objects) CVY_HOLDS(roster);
/* Number of abandoned devices: their threads may return and read the team's memory. */
int cvy_roster_hung(cvy_roster *roster);

#endif
