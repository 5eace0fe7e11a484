/* SPDX-License-Identifier: MIT
 * Outline: life · lock and condition · the team's state · devices · calls on all · signs of life. */
#include "src/protocol/roster.h"

#include <stdatomic.h>
#include <stdio.h>

#include "src/base/mem.h"

typedef struct member {
  const cvy_member_fns *fns;
  void *device;
  cvy_worker *worker;
  const char *label;
  cvy_member_state state;
  cvy_status fault; /* of a call on the device */
  long lost_step;
  bool hung;           /* the watchdog has abandoned it: HUNG, or LOST since */
  bool idle;           /* no share of any batch */
  long steps_done;     /* with samples for this device */
  atomic_bool entered; /* the exchange thread is inside a call on the device */
  atomic_bool in_step; /* the worker's task is a step's */
} member;

struct cvy_roster {
  cvy_mutex mutex;
  cvy_cond changed;
  member *members;
  int n, n_hung;
  cvy_status status; /* the team's first failure; it sticks */
  cvy_status halted; /* not CVY_OK: all waits inside the team end */
  cvy_status unread; /* not CVY_OK: the data can no longer be read */
  bool ended_by_devices, can_recover;
  double usual_ms; /* of a step, lately */
};

/* ---- life ---- */

cvy_status cvy_roster_create(int n, cvy_roster **out) {
  cvy_status status = CVY_OK;
  cvy_roster *r = cvy_calloc(1, sizeof *r);
  *out = NULL;
  CVY_REQUIRE(r, CVY_E_MEMORY, "out of host memory for a team of %d devices", n);
  cvy_mutex_init(&r->mutex);
  cvy_cond_init(&r->changed);
  r->n = n;
  r->members = cvy_calloc((size_t)n, sizeof *r->members);
  CVY_REQUIRE(r->members, CVY_E_MEMORY, "out of host memory for a team of %d devices", n);
  *out = r;
  return CVY_OK;
fail:
  cvy_roster_destroy(&r);
  return status;
}

cvy_status cvy_roster_add(cvy_roster *r, int i, const cvy_member_fns *fns, void *device, int place, const char *label) {
  member *const m = &r->members[i];
  char name[16];
  m->fns = fns;
  m->device = device;
  m->label = label;
  snprintf(name, sizeof name, "cvy-dev%d", place % 10000);
  return cvy_worker_create(name, device, &m->worker);
}

void cvy_roster_end_workers(cvy_roster *r) {
  for (int i = 0; i < r->n; i++) cvy_worker_destroy(&r->members[i].worker);
}

void cvy_roster_destroy(cvy_roster **roster) {
  cvy_roster *const r = *roster;
  if (!r) return;
  cvy_free(r->members);
  cvy_cond_end(&r->changed);
  cvy_mutex_end(&r->mutex);
  cvy_free(r);
  *roster = NULL;
}

int cvy_roster_size(const cvy_roster *r) { return r->n; }

int cvy_roster_index(const cvy_roster *r, const void *device) {
  int i = 0;
  while (r->members[i].device != device) i++;
  return i;
}

void *cvy_roster_device(const cvy_roster *r, int i) { return r->members[i].device; }
const cvy_member_fns *cvy_roster_fns(const cvy_roster *r, int i) { return r->members[i].fns; }
cvy_worker *cvy_roster_worker(const cvy_roster *r, int i) { return r->members[i].worker; }
const char *cvy_roster_label(const cvy_roster *r, int i) { return r->members[i].label; }

/* ---- lock and condition ---- */

#if defined(__clang__) /* the roster is the capability; its mutex is hidden from the analysis */
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wthread-safety-analysis"
#endif
void cvy_roster_lock(cvy_roster *r) { cvy_mutex_lock(&r->mutex); }
void cvy_roster_unlock(cvy_roster *r) { cvy_mutex_unlock(&r->mutex); }
void cvy_roster_wait(cvy_roster *r) { cvy_cond_wait(&r->changed, &r->mutex); }
#if defined(__clang__)
#pragma clang diagnostic pop
#endif

void cvy_roster_sleep(cvy_roster *r, int i) {
  cvy_worker_set_asleep(r->members[i].worker, true);
  cvy_roster_wait(r);
  cvy_worker_set_asleep(r->members[i].worker, false);
}

void cvy_roster_wake(cvy_roster *r) { cvy_cond_wake_all(&r->changed); }

/* ---- the team's state ---- */

cvy_status cvy_roster_status(const cvy_roster *r) { return r->status; }
bool cvy_roster_halted(const cvy_roster *r) { return r->halted != CVY_OK; }

void cvy_roster_fail(cvy_roster *r, cvy_status status) {
  if (r->status == CVY_OK) r->status = status;
  if (r->halted == CVY_OK) r->halted = status;
  cvy_roster_wake(r);
}

bool cvy_roster_end(cvy_roster *r, cvy_status status) {
  const bool first = r->status == CVY_OK;
  r->ended_by_devices |= first;
  cvy_roster_fail(r, status);
  return first;
}

bool cvy_roster_ended_by_devices(cvy_roster *r) {
  cvy_roster_lock(r);
  const bool ended = r->ended_by_devices;
  cvy_roster_unlock(r);
  return ended;
}

void cvy_roster_halt(cvy_roster *r) {
  if (r->halted == CVY_OK) r->halted = CVY_E_INTERRUPTED;
  if (!r->can_recover) cvy_roster_fail(r, CVY_E_DEVICE);
  cvy_roster_wake(r);
}

void cvy_roster_resume(cvy_roster *r) {
  r->halted = CVY_OK;
  cvy_roster_wake(r);
}

cvy_status cvy_roster_settle(cvy_roster *r) {
  cvy_roster_lock(r);
  while (r->halted != CVY_OK && r->status == CVY_OK) cvy_roster_wait(r);
  const cvy_status status = r->status;
  cvy_roster_unlock(r);
  return status;
}

void cvy_roster_can_recover(cvy_roster *r, bool can) {
  cvy_roster_lock(r);
  r->can_recover = can;
  cvy_roster_wake(r);
  cvy_roster_unlock(r);
}

/* ---- devices ---- */

cvy_member_state cvy_roster_state(const cvy_roster *r, int i) { return r->members[i].state; }

bool cvy_roster_is(cvy_roster *r, int i, cvy_member_state state) {
  cvy_roster_lock(r);
  const bool is = r->members[i].state == state;
  cvy_roster_unlock(r);
  return is;
}

bool cvy_roster_is_lost(cvy_roster *r, int i) { return cvy_roster_is(r, i, CVY_LOST); }

int cvy_roster_present(const cvy_roster *r, bool *there) {
  int n = 0;
  for (int i = 0; i < r->n; i++) n += there[i] = r->members[i].state != CVY_LOST;
  return n;
}

bool cvy_roster_has_faults(const cvy_roster *r) {
  bool any = false;
  for (int i = 0; i < r->n; i++) any |= r->members[i].state == CVY_FAILED || r->members[i].state == CVY_HUNG;
  return any;
}

bool cvy_roster_is_idle(const cvy_roster *r, int i) { return r->members[i].idle; }
void cvy_roster_set_idle(cvy_roster *r, int i, bool idle) { r->members[i].idle = idle; }

cvy_status cvy_roster_unread(cvy_roster *r) {
  cvy_roster_lock(r);
  const cvy_status status = r->unread;
  cvy_roster_unlock(r);
  return status;
}

bool cvy_is_device_fault(cvy_status status) {
  return status == CVY_E_DEVICE || status == CVY_E_DEVICE_MEMORY || status == CVY_E_MEMORY || status == CVY_E_BUILD;
}

static void note_fault(member *m, cvy_status status) {
  if (m->state != CVY_WORKING) return;
  m->state = CVY_FAILED;
  m->fault = status;
}

void cvy_roster_fault(cvy_roster *r, int i, cvy_status status) {
  cvy_roster_lock(r);
  if (status == CVY_E_IO && r->can_recover) { /* the exchange thread ends the run */
    if (r->unread == CVY_OK) r->unread = status;
    if (r->halted == CVY_OK) r->halted = status;
  } else if (!cvy_is_device_fault(status)) {
    if (status != CVY_E_INTERRUPTED) cvy_roster_fail(r, status);
  } else if (r->members[i].state != CVY_LOST) {
    note_fault(&r->members[i], status);
    if (r->halted == CVY_OK) r->halted = status;
    if (!r->can_recover) cvy_roster_fail(r, status);
  }
  cvy_roster_wake(r);
  cvy_roster_unlock(r);
}

bool cvy_roster_halt_for(cvy_roster *r, cvy_status status) {
  const bool of_device = cvy_roster_has_faults(r) && cvy_is_device_fault(status);
  if (of_device && r->halted == CVY_OK) r->halted = status;
  if (of_device) cvy_roster_wake(r);
  return of_device;
}

cvy_status cvy_roster_take_out(cvy_roster *r, long step, cvy_lost_member *lost, int *n_lost, int *left) {
  cvy_status first = CVY_OK;
  *n_lost = *left = 0;
  cvy_roster_lock(r);
  for (int i = 0; i < r->n; i++) { /* a device that fails after this loop has passed it is removed next time */
    member *const m = &r->members[i];
    *left += m->state == CVY_WORKING;
    if (m->state != CVY_FAILED && m->state != CVY_HUNG) continue;
    m->state = CVY_LOST;
    m->lost_step = step;
    if (first == CVY_OK) first = m->fault;
    (void)cvy_roster_lost(r, i, &lost[(*n_lost)++]);
  }
  cvy_roster_unlock(r);
  return first;
}

bool cvy_roster_lost(const cvy_roster *r, int i, cvy_lost_member *out) {
  const member *const m = &r->members[i];
  if (m->state != CVY_LOST) return false;
  *out = (cvy_lost_member){
      .device = i, .step = m->lost_step, .reason = m->hung ? "it hangs" : cvy_status_text(m->fault), .hung = m->hung};
  return true;
}

/* ---- calls on all devices ---- */

void cvy_roster_post_all(cvy_roster *r, cvy_task *tasks, cvy_task_fn fn, void *arg) {
  cvy_roster_lock(r);
  for (int i = 0; i < r->n; i++) {
    tasks[i] = (cvy_task){0};
    if (r->members[i].state != CVY_LOST) cvy_worker_post(r->members[i].worker, &tasks[i], fn, arg);
  }
  cvy_roster_unlock(r);
}

/* A task of all devices; an error of several devices is logged once. */
typedef struct group_call {
  const cvy_roster *roster;
  cvy_task_fn fn;
  void *arg;
  cvy_log_group errors;
} group_call;

static cvy_status run_grouped(void *device, void *arg) {
  group_call *const call = arg;
  const cvy_roster *const r = call->roster;
  cvy_log_group_enter(&call->errors, cvy_roster_label(r, cvy_roster_index(r, device)));
  const cvy_status status = call->fn(device, call->arg);
  cvy_log_group_leave();
  return status;
}

cvy_status cvy_roster_call_all(cvy_roster *r, cvy_task_fn fn, void *arg) {
  return cvy_roster_call_each(r, fn, arg, NULL);
}

cvy_status cvy_roster_call_each(cvy_roster *r, cvy_task_fn fn, void *arg, cvy_status *statuses) {
  cvy_status status = CVY_OK;
  cvy_task *const tasks = cvy_calloc((size_t)r->n, sizeof *tasks);
  group_call *const call = cvy_calloc(1, sizeof *call);
  CVY_REQUIRE(tasks && call, CVY_E_MEMORY, "out of host memory");
  *call = (group_call){.roster = r, .fn = fn, .arg = arg};
  cvy_roster_post_all(r, tasks, run_grouped, call);
  for (int i = 0; i < r->n; i++) {
    if (!tasks[i].fn) continue;
    const cvy_status one = cvy_worker_wait(r->members[i].worker, &tasks[i]);
    if (status == CVY_OK) status = one;
    if (statuses) statuses[i] = one;
  }
  cvy_free(tasks);
  /* a hung worker may still use the call, which is leaked on purpose */
  if (cvy_roster_hung(r) > 0) return status;
  if (call->errors.n_silenced > 0)
    cvy_log_info("the same error on %d other device%s", call->errors.n_silenced,
                 call->errors.n_silenced > 1 ? "s" : "");
  cvy_free(call);
  return status;
fail:
  cvy_free(tasks);
  cvy_free(call);
  return status;
}

cvy_status cvy_roster_try_all(cvy_roster *r, cvy_task_fn fn, void *arg, bool *good) {
  cvy_status status = CVY_OK, other = CVY_OK;
  cvy_task *const tasks = cvy_calloc((size_t)r->n, sizeof *tasks);
  *good = tasks != NULL;
  CVY_REQUIRE(tasks, CVY_E_MEMORY, "out of host memory");
  cvy_roster_post_all(r, tasks, fn, arg);
  for (int i = 0; i < r->n; i++) {
    if (!tasks[i].fn) continue;
    status = cvy_worker_wait(r->members[i].worker, &tasks[i]);
    if (status == CVY_OK) continue;
    *good = false;
    if (cvy_is_device_fault(status)) cvy_roster_fault(r, i, status);
    else if (other == CVY_OK) other = status;
  }
  cvy_free(tasks);
  return other;
fail:
  return status;
}

cvy_status cvy_roster_do_all(cvy_roster *r, cvy_task_fn fn, void *arg) {
  cvy_status status = CVY_OK;
  for (bool done = false; !done && status == CVY_OK;) {
    status = cvy_roster_try_all(r, fn, arg, &done);
    if (status == CVY_OK && !done) status = cvy_roster_settle(r);
  }
  return status;
}

/* ---- signs of life ---- */

bool cvy_roster_enter(cvy_roster *r, int i) {
  member *const m = &r->members[i];
  cvy_roster_lock(r);
  const bool there = m->state == CVY_WORKING || m->state == CVY_FAILED;
  if (there) atomic_store(&m->entered, true);
  cvy_roster_unlock(r);
  return there;
}

void cvy_roster_leave(cvy_roster *r, int i, cvy_status status) {
  member *const m = &r->members[i];
  cvy_roster_lock(r);
  const bool hung = m->hung;
  atomic_store(&m->entered, false);
  if (cvy_is_device_fault(status)) note_fault(m, status);
  cvy_roster_unlock(r);
  if (hung) cvy_thread_park();
}

void cvy_roster_in_step(cvy_roster *r, int i, bool in_step) { atomic_store(&r->members[i].in_step, in_step); }

void cvy_roster_step_done(cvy_roster *r, const int *shares, double ms) {
  if (ms > 0) r->usual_ms = r->usual_ms > 0 ? 0.8 * r->usual_ms + 0.2 * ms : ms;
  for (int i = 0; i < r->n; i++) r->members[i].steps_done += shares[i] > 0;
}

bool cvy_roster_look(const cvy_roster *r, int i, cvy_vital_signs *out) {
  const member *const m = &r->members[i];
  if (m->hung || !m->worker) return false;
  const bool entered = atomic_load(&m->entered);
  *out = (cvy_vital_signs){.task = cvy_worker_running(m->worker),
                           .beats = m->fns->beats(m->device),
                           .entered = entered,
                           .fast = m->steps_done >= 2 && (atomic_load(&m->in_step) || entered),
                           .usual_ms = r->usual_ms};
  return true;
}

bool cvy_roster_give_up(cvy_roster *r, int i, unsigned long beats, long *objects) {
  member *const m = &r->members[i];
  if (!m->fns->abandon(m->device, beats, objects)) return false;
  if (m->state != CVY_LOST) m->state = CVY_HUNG;
  m->fault = CVY_E_DEVICE;
  m->hung = true;
  r->n_hung++;
  cvy_worker_abandon(m->worker);
  if (m->state == CVY_HUNG && r->halted == CVY_OK) r->halted = CVY_E_DEVICE;
  if (!r->can_recover) cvy_roster_fail(r, CVY_E_DEVICE);
  cvy_roster_wake(r);
  return true;
}

int cvy_roster_hung(cvy_roster *r) {
  cvy_roster_lock(r);
  const int n = r->n_hung;
  cvy_roster_unlock(r);
  return n;
}
