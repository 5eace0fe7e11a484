/* SPDX-License-Identifier: MIT
 * The members of a team: each device's state and worker, and the lock and condition under which the team's threads
 * meet.
 *
 *   WORKING --fault noted--> FAILED --taken out--> LOST
 *   WORKING, FAILED --gives no sign of life--> HUNG --taken out--> LOST
 *
 * A thread that sees a device fail (its worker, the exchange thread, the watchdog, the caller in an evaluation) notes
 * the fault here. That halts the team: every wait inside the team ends. The exchange thread then takes the device out
 * (recover.h) and lifts the halt. A failure that is no device's fault becomes the team's status, and sticks.
 *
 * The roster is a capability for clang's -Wthread-safety: functions marked CVY_HOLDS need its lock, all others take it
 * for themselves. No thread calls a driver while it holds the lock, since the call may hang; messages wait until the
 * lock is free (base/sync.h). */
#ifndef CVY_PROTOCOL_ROSTER_H
#define CVY_PROTOCOL_ROSTER_H

#include "src/protocol/member.h"
#include "src/protocol/worker.h"

typedef enum cvy_member_state { CVY_WORKING = 0, CVY_FAILED, CVY_HUNG, CVY_LOST } cvy_member_state;
typedef struct CVY_CAPABILITY("roster") cvy_roster cvy_roster;

/* For n devices; add each of them next. CVY_E_MEMORY. */
cvy_status cvy_roster_create(int n, cvy_roster **out);
/* Device i, with a worker of its own, whose thread is named after `place`. `label` is borrowed. CVY_E_MEMORY. */
cvy_status cvy_roster_add(cvy_roster *roster, int i, const cvy_member_fns *fns, void *device, int place,
                          const char *label);
/* Ends the workers. Call cvy_roster_destroy next. */
void cvy_roster_end_workers(cvy_roster *roster);
void cvy_roster_destroy(cvy_roster **roster);

int cvy_roster_size(const cvy_roster *roster);
/* i of a device that was added. */
int cvy_roster_index(const cvy_roster *roster, const void *device);
/* Members of device i; they never change. NULL before it is added. */
void *cvy_roster_device(const cvy_roster *roster, int i);
const cvy_member_fns *cvy_roster_fns(const cvy_roster *roster, int i);
cvy_worker *cvy_roster_worker(const cvy_roster *roster, int i);
const char *cvy_roster_label(const cvy_roster *roster, int i);

/* ---- meeting ---- */

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
/* Every wait inside the team ends: for good with a status, else until devices that failed have been taken out. */
bool cvy_roster_halted(const cvy_roster *roster) CVY_HOLDS(roster);
/* Sets the team's failure, for good, and wakes all threads. */
void cvy_roster_fail(cvy_roster *roster, cvy_status status) CVY_HOLDS(roster);
/* The same for a failure of its devices or of the data, which leaves the state on the host whole. False: the team had
 * failed before. */
bool cvy_roster_end(cvy_roster *roster, cvy_status status) CVY_HOLDS(roster);
bool cvy_roster_ended_by_devices(cvy_roster *roster);
/* Breaks off the steps under way, which the exchange thread then begins anew: another node of the fleet is lost, or has
 * lost a device. Before that thread runs, the team fails. */
void cvy_roster_halt(cvy_roster *roster) CVY_HOLDS(roster);
/* Devices that failed have been taken out: the team goes on. */
void cvy_roster_resume(cvy_roster *roster) CVY_HOLDS(roster);
/* Waits until no device has to be taken out; the team's status. */
cvy_status cvy_roster_settle(cvy_roster *roster);
/* can: the exchange thread runs and takes out devices that fail. Without it a device's fault becomes the team's
 * failure. */
void cvy_roster_can_recover(cvy_roster *roster, bool can);

/* ---- devices ---- */

cvy_member_state cvy_roster_state(const cvy_roster *roster, int i) CVY_HOLDS(roster);
/* The same with the lock taken for it: the answer may be old. */
bool cvy_roster_is(cvy_roster *roster, int i, cvy_member_state state);
bool cvy_roster_is_lost(cvy_roster *roster, int i);
/* there[i]: device i is not lost. */
int cvy_roster_present(const cvy_roster *roster, bool *there) CVY_HOLDS(roster);
/* A device is FAILED or HUNG and will be taken out. */
bool cvy_roster_has_faults(const cvy_roster *roster) CVY_HOLDS(roster);
/* An idle device has no share of any batch, and gets no weights until it needs them. */
bool cvy_roster_is_idle(const cvy_roster *roster, int i) CVY_HOLDS(roster);
void cvy_roster_set_idle(cvy_roster *roster, int i, bool idle) CVY_HOLDS(roster);
/* True for statuses that are a device's fault; others (wrong use, diverged training) would come on every device. */
bool cvy_is_device_fault(cvy_status status);
/* A call on device i has failed with `status`: notes the fault and halts the team. CVY_E_IO: the data cannot be read,
 * on no device; recovery ends the run. Another failure that is no device's fault becomes the team's. Does nothing for
 * a device that is already lost. */
void cvy_roster_fault(cvy_roster *roster, int i, cvy_status status);
/* CVY_OK, or the status of the data that could not be read. */
cvy_status cvy_roster_unread(cvy_roster *roster);
/* Halts the team if `status` comes from a device whose fault is noted; else false. */
bool cvy_roster_halt_for(cvy_roster *roster, cvy_status status) CVY_HOLDS(roster);

typedef struct cvy_lost_member {
  int device;
  long step;          /* that was under way, or the next one */
  const char *reason; /* static */
  bool hung;
} cvy_lost_member;
/* [exchange thread] FAILED and HUNG devices become LOST in `step`. lost[0..*n_lost) describes them and has room for all
 * devices; *left: how many still work. Returns the first fault, CVY_OK if there was none. */
cvy_status cvy_roster_take_out(cvy_roster *roster, long step, cvy_lost_member *lost, int *n_lost, int *left);
/* Describes device i if it is lost; else false. */
bool cvy_roster_lost(const cvy_roster *roster, int i, cvy_lost_member *out) CVY_HOLDS(roster);

/* ---- calls on all devices ---- */

/* Hands the task to every device that is there. Each task that has a `fn` must be waited for, also when its device is
 * lost meanwhile. tasks: one per device. */
void cvy_roster_post_all(cvy_roster *roster, cvy_task *tasks, cvy_task_fn fn, void *arg);
/* All devices at once; the first failure in device order. An error that all share is logged once. */
cvy_status cvy_roster_call_all(cvy_roster *roster, cvy_task_fn fn, void *arg);
/* The same; statuses[i], if it is not NULL: of device i. */
cvy_status cvy_roster_call_each(cvy_roster *roster, cvy_task_fn fn, void *arg, cvy_status *statuses);
/* The same for a task that can be repeated without a device: notes the fault of a device that fails at it and sets
 * *good to false; cvy_roster_settle then waits until it is taken out. Returns other failures. */
cvy_status cvy_roster_try_all(cvy_roster *roster, cvy_task_fn fn, void *arg, bool *good);
/* The same for a task that every device must complete: repeats it on all that are left when one is lost at it. */
cvy_status cvy_roster_do_all(cvy_roster *roster, cvy_task_fn fn, void *arg);

/* ---- signs of life ---- */

/* [exchange thread] Called around each of its calls on device i, so that the watchdog sees them. False: the device is
 * lost or given up, and the thread must not call it. leave does not return if the watchdog has given the device up
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
/* False: the device was given up, or is not added yet. */
bool cvy_roster_look(const cvy_roster *roster, int i, cvy_vital_signs *out) CVY_HOLDS(roster);
/* Gives the device up and abandons its worker. False: its thread has made a call since `beats` was read, and the device
 * stays. */
bool cvy_roster_give_up(cvy_roster *roster, int i, unsigned long beats, long *objects) CVY_HOLDS(roster);
/* How many devices were given up: their threads may come back and read the team's memory. */
int cvy_roster_hung(cvy_roster *roster);

#endif
