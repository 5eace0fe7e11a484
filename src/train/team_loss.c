/* SPDX-License-Identifier: MIT
 * Devices that fail or hang while a team is at work, and how it goes on without them.
 *
 * Whoever sees a device fail (its worker, the exchange thread, the watch thread, the caller in an evaluation) notes it in
 * the replica and halts the team: all waits inside the team end. The exchange thread then takes the lost replicas out,
 * empties the others' queues, gives every device the newest complete generation of the state, and issues the steps under
 * way anew with shares for who is left. Nothing of a step is applied before all of it is there (state.h), so none is
 * applied twice or half.
 *
 * A device that does not get on for too long counts as failed. Its worker may be inside a driver's call for ever: thread
 * and objects are abandoned. So is the exchange thread, if it is inside a call on that device; another one takes over. */
#include <stdio.h>
#include <string.h>

#include "src/base/clock.h"
#include "src/base/mem.h"
#include "src/train/team.h"

/* ---- who failed ---- */

bool cvy_team_is_of_device(cvy_status status) {
  return status == CVY_E_DEVICE || status == CVY_E_DEVICE_MEMORY || status == CVY_E_MEMORY || status == CVY_E_BUILD;
}

void cvy_team_fail(cvy_team *team, cvy_status status) {
  if (team->status == CVY_OK) team->status = status;
  if (team->halted == CVY_OK) team->halted = status;
  pthread_cond_broadcast(&team->changed);
}

void cvy_team_fail_replica(cvy_team *team, cvy_replica *r, cvy_status status) {
  pthread_mutex_lock(&team->lock);
  if (!cvy_team_is_of_device(status)) {
    if (status != CVY_E_INTERRUPTED) cvy_team_fail(team, status);
  } else if (!r->lost) {
    if (r->failure == CVY_OK) r->failure = status;
    if (team->halted == CVY_OK) team->halted = status;
    if (!team->thread_started) cvy_team_fail(team, status); /* nobody is there to take it out */
  }
  pthread_cond_broadcast(&team->changed);
  pthread_mutex_unlock(&team->lock);
}

bool cvy_team_halt_for(cvy_team *team, cvy_status status) {
  bool any = false;
  for (int r = 0; r < team->n; r++) any |= team->replicas[r].failure != CVY_OK && !team->replicas[r].lost;
  if (any && cvy_team_is_of_device(status) && team->halted == CVY_OK) team->halted = status;
  return any && cvy_team_is_of_device(status);
}

/* ---- shares ---- */

cvy_status cvy_team_shares(const cvy_team *team, const cvy_split_params *split, int n, int *shares) {
  cvy_status status = CVY_OK;
  int left = 0;
  double sum = 0, *values = NULL;
  int *few = NULL;
  for (int r = 0; r < team->n; r++) left += !team->replicas[r].lost;
  if (left == team->n) return cvy_split_shares(split, n, shares);
  values = cvy_calloc((size_t)team->n, sizeof *values);
  few = cvy_calloc((size_t)team->n, sizeof *few);
  CVY_REQUIRE(values && few, CVY_E_MEMORY, "out of host memory");
  int at = 0;
  for (int r = 0; r < team->n; r++)
    if (!team->replicas[r].lost && split->kind != CVY_SPLIT_EVEN) sum += values[at++] = split->values[r];
  cvy_split_params rest = *split; /* as a team of those that are left would divide it */
  rest.n_devices = left;
  rest.values = values;
  if (split->kind != CVY_SPLIT_EVEN && !(split->kind == CVY_SPLIT_SHARES && sum == split->batch))
    rest.kind = sum > 0 ? CVY_SPLIT_WEIGHTS : CVY_SPLIT_EVEN;
  CVY_TRY(cvy_split_shares(&rest, n, few));
  at = 0;
  for (int r = 0; r < team->n; r++) shares[r] = team->replicas[r].lost ? 0 : few[at++];
fail:
  cvy_free(values);
  cvy_free(few);
  return status;
}

cvy_status cvy_team_cut_step(cvy_team *team, cvy_step *step) {
  cvy_status status = CVY_OK;
  CVY_TRY(cvy_team_shares(team, &team->split, step->n, step->shares));
  CVY_TRY(cvy_team_check_parts(team, step->shares));
  cvy_bn_sync_begin(step->bn, step->shares);
  for (int r = 0, at = 0; r < team->n; at += step->shares[r++]) {
    step->offsets[r] = at;
    step->posted[r] = false;
    cvy_stamp_destroy(&step->began[r]); /* of an attempt that broke off */
    cvy_stamp_destroy(&step->ended[r]);
  }
fail:
  return status;
}

bool cvy_team_has_lost(const cvy_team *team) {
  bool any = false;
  for (int r = 0; r < team->n; r++) any |= team->replicas[r].lost;
  return any;
}

/* ---- recovery, on the exchange thread ---- */

static cvy_status close_lost(void *owner, void *arg) {
  cvy_replica *const r = owner;
  cvy_team *const team = arg;
  for (int i = 0; i <= team->params.run_ahead; i++) cvy_event_destroy(&team->slots[i].step.finished[r->index]);
  cvy_replica_close(r);
  return CVY_OK;
}

cvy_status cvy_team_clear_steps(void *owner, void *arg) {
  cvy_replica *const r = owner;
  cvy_team *const team = arg;
  const cvy_status status = r->device ? cvy_replica_drain(r) : CVY_OK;
  for (int i = 0; i <= team->params.run_ahead; i++) cvy_event_destroy(&team->slots[i].step.finished[r->index]);
  return status;
}

typedef struct refill {
  cvy_team *team;
  const int *share_max;
} refill;

/* Memory for the larger share, if it is, and the state, if there is one. */
static cvy_status refill_replica(void *owner, void *arg) {
  cvy_status status = CVY_OK;
  cvy_replica *const r = owner;
  const refill *const a = arg;
  const cvy_team *const team = a->team;
  const int share_max = a->share_max[r->index];
  if (share_max > r->share_max) {
    const cvy_replica_params params = cvy_team_replica_params(team, r, share_max);
    CVY_TRY(cvy_replica_replan(r, &params));
    if (team->data) CVY_TRY(cvy_replica_attach(r, team->data));
  }
  if (!team->initialised) return CVY_OK;
  CVY_TRY(cvy_replica_put_state(r, team->finished, cvy_state_w(team->state), team->state->before,
                                team->state->has_momentum ? cvy_state_v(team->state) : NULL,
                                cvy_state_running(team->state)));
  CVY_TRY(cvy_replica_put_rest(r, NULL)); /* of the step that broke off, and of steps that began behind it */
fail:
  return status;
}

cvy_status cvy_team_try_all(cvy_team *team, cvy_task_fn fn, void *arg, bool *good) {
  cvy_status other = CVY_OK;
  cvy_task *const tasks = cvy_team_post_all(team, fn, arg);
  *good = tasks != NULL;
  if (!tasks) return CVY_E_MEMORY;
  for (int r = 0; r < team->n; r++) {
    if (!tasks[r].fn) continue;
    const cvy_status status = cvy_worker_wait(team->replicas[r].worker, &tasks[r]);
    if (status == CVY_OK) continue;
    *good = false;
    if (cvy_team_is_of_device(status)) cvy_team_fail_replica(team, &team->replicas[r], status);
    else if (other == CVY_OK) other = status;
  }
  cvy_free(tasks);
  return other;
}

cvy_status cvy_team_do_all(cvy_team *team, cvy_task_fn fn, void *arg) {
  cvy_status status = CVY_OK;
  for (bool done = false; !done && status == CVY_OK;) {
    status = cvy_team_try_all(team, fn, arg, &done);
    if (status == CVY_OK && !done) status = cvy_team_wait(team);
  }
  return status;
}

/* `more`: others are lost at the same moment and told of behind it; what follows for the team is told once. */
static void say_lost(const cvy_team *team, const cvy_replica *r, int left, bool more) {
  cvy_log_error("device %d (%s) is lost in step %ld: %s%s", r->index, cvy_devices_label(team->devices, r->index),
                r->lost_step, r->hung ? "it hangs" : cvy_status_text(r->failure),
                more                       ? ""
                : left == 0                ? "; it was the last one"
                : team->params.loss_stops ? ""
                : left == 1               ? "; the team goes on without it, on 1 device"
                                          : "; the team goes on without it");
  if (more) return;
  if (left > 1 && !team->params.loss_stops) cvy_log_error("%d devices are left", left);
  if (left > 0 && !team->params.loss_stops && team->params.exchange == CVY_EXCHANGE_BF16)
    cvy_log_warning("exchange bf16: what rounding had left of the gradients, less than one step's worth of their last bits, "
                    "is dropped on all devices");
}

void cvy_team_end(cvy_team *team, cvy_status status) {
  if (team->status == CVY_OK) {
    team->device_failed = true;
    memcpy(team->full_shares, team->done_shares, (size_t)team->n * sizeof *team->full_shares);
  }
  cvy_team_fail(team, status);
}

/* Takes replicas that failed out of the team. False if the run cannot go on. */
static bool take_out(cvy_team *team) {
  int left = 0, leaving = 0;
  cvy_status first = CVY_OK;
  pthread_mutex_lock(&team->lock);
  for (int r = 0; r < team->n; r++) { /* one that fails from here on is taken out next time */
    cvy_replica *const replica = &team->replicas[r];
    left += !replica->lost && replica->failure == CVY_OK;
    replica->leaves = !replica->lost && replica->failure != CVY_OK;
    if (!replica->leaves) continue;
    leaving++;
    replica->lost = true;
    replica->lost_step = team->finished;
    if (first == CVY_OK) first = replica->failure;
  }
  pthread_mutex_unlock(&team->lock);
  for (int r = 0; r < team->n; r++) {
    cvy_replica *const replica = &team->replicas[r];
    if (!replica->leaves) continue;
    replica->leaves = false;
    say_lost(team, replica, left, --leaving > 0);
    if (!replica->hung && left > 0 && !team->params.loss_stops)
      (void)cvy_worker_call(replica->worker, close_lost, team);
  }
  pthread_mutex_lock(&team->lock);
  const bool goes_on = left > 0 && team->status == CVY_OK && (first == CVY_OK || !team->params.loss_stops);
  if (!goes_on && first != CVY_OK) cvy_team_end(team, first);
  else if (!goes_on) cvy_team_fail(team, team->halted);
  pthread_mutex_unlock(&team->lock);
  return goes_on;
}

static void wait_for_tasks(cvy_team *team) {
  for (long step = team->finished; step < team->next_step; step++)
    for (int r = 0; r < team->n; r++)
      if (!team->replicas[r].lost)
        (void)cvy_worker_wait(team->replicas[r].worker, &cvy_team_slot(team, step)->tasks[r]);
}

void cvy_team_recover(cvy_team *team) {
  int *const share_max = cvy_calloc((size_t)team->n, sizeof *share_max);
  bool first = true;
  for (;; first = false) {
    if (first) wait_for_tasks(team);
    if (!take_out(team)) break;
    bool good = true;
    refill args = {.team = team, .share_max = share_max};
    cvy_status status = share_max ? cvy_team_find_shares(team, share_max) : CVY_E_MEMORY;
    if (status == CVY_OK) status = cvy_team_try_all(team, cvy_team_clear_steps, team, &good);
    if (status == CVY_OK && good) status = cvy_team_try_all(team, refill_replica, &args, &good);
    pthread_mutex_lock(&team->lock);
    bool again = !good;
    for (int r = 0; r < team->n; r++) again |= team->replicas[r].failure != CVY_OK && !team->replicas[r].lost;
    for (long step = team->finished; !again && status == CVY_OK && step < team->next_step; step++)
      status = cvy_team_cut_step(team, &cvy_team_slot(team, step)->step);
    if (status != CVY_OK) cvy_team_end(team, status);
    if (again && status == CVY_OK && team->status == CVY_OK) {
      pthread_mutex_unlock(&team->lock);
      continue;
    }
    if (team->status == CVY_OK) {
      team->halted = CVY_OK;
      for (long step = team->finished; step < team->next_step; step++) cvy_team_post(team, cvy_team_slot(team, step));
    }
    pthread_cond_broadcast(&team->changed);
    pthread_mutex_unlock(&team->lock);
    break;
  }
  cvy_free(share_max);
}

bool cvy_team_take_loss(cvy_team *team, cvy_device_loss *out) {
  bool got = false;
  pthread_mutex_lock(&team->lock);
  for (int r = 0; r < team->n && !got; r++) {
    cvy_replica *const replica = &team->replicas[r];
    if (!replica->lost || replica->told || (team->halted != CVY_OK && team->status == CVY_OK)) continue;
    replica->told = got = true;
    memcpy(team->told_shares, team->full_shares, (size_t)team->n * sizeof *team->told_shares);
    *out = (cvy_device_loss){.device = r,
                             .label = cvy_devices_label(team->devices, r),
                             .step = replica->lost_step,
                             .reason = replica->hung ? "it hangs" : cvy_status_text(replica->failure),
                             .hung = replica->hung,
                             .shares = team->told_shares};
  }
  pthread_mutex_unlock(&team->lock);
  return got;
}

/* ---- the watch ---- */

typedef struct patient {      /* what the watch has seen of a replica */
  unsigned long beats, task;
  double quiet_s;
} patient;

/* How long a device may be quiet: kernels may be compiled in its first steps and in what is no step. */
static double patience(const cvy_team *team, const cvy_replica *r) {
  const double s = team->params.device_timeout_s, usual = 5e-3 * team->usual_ms;
  const bool slow = r->steps_done < 2 || (!atomic_load(&r->in_step) && !atomic_load(&r->entered));
  const double limit = s > usual ? s : usual;
  return slow ? 10 * limit : limit;
}

/* With the lock. */
static void give_up(cvy_team *team, cvy_replica *r, const patient *p) {
  long objects;
  if (!cvy_device_abandon(r->device, &r->pulse, p->beats, &objects)) return; /* it has come back at the last moment */
  r->failure = CVY_E_DEVICE;
  r->hung = true;
  team->n_hung++;
  if (team->halted == CVY_OK) team->halted = CVY_E_DEVICE;
  cvy_log_error("device %d (%s): no sign of life for %.1f s; its thread and %ld OpenCL objects are left alone", r->index,
                cvy_devices_label(team->devices, r->index), p->quiet_s, objects);
  cvy_worker_abandon(r->worker);
  if (!team->thread_started) cvy_team_fail(team, CVY_E_DEVICE);
  if (atomic_load(&r->entered)) { /* the exchange thread will not come back either */
    pthread_detach(team->thread);
    team->thread_started = cvy_team_start_exchange(team) == CVY_OK;
    if (!team->thread_started) cvy_team_fail(team, CVY_E_MEMORY);
  }
  pthread_cond_broadcast(&team->changed);
}

static void look_at(cvy_team *team, cvy_replica *r, patient *p, double passed_s) {
  const unsigned long task = cvy_worker_running(r->worker), beats = atomic_load(&r->pulse.beats);
  const bool busy = task != 0 || atomic_load(&r->entered);
  if (!busy || task != p->task || beats != p->beats) p->quiet_s = 0;
  else p->quiet_s += passed_s;
  p->task = task;
  p->beats = beats;
  if (p->quiet_s > patience(team, r)) give_up(team, r, p);
}

static void *watch_main(void *arg) {
  cvy_team *const team = arg;
  const double tenth = team->params.device_timeout_s / 10, period_s = tenth < 1 ? tenth : 1;
  patient *const patients = cvy_calloc((size_t)team->n, sizeof *patients);
  pthread_mutex_lock(&team->lock);
  uint64_t before = cvy_clock_ns();
  while (patients && !team->watch_stop) {
    cvy_cond_wait_for(&team->watch_wakes, &team->lock, period_s);
    const double since_s = cvy_clock_seconds_since(before);
    before = cvy_clock_ns();
    /* a process that was stopped has seen nothing meanwhile */
    const double passed_s = since_s < 2 * period_s ? since_s : 2 * period_s;
    for (int r = 0; r < team->n; r++)
      if (!team->replicas[r].hung) look_at(team, &team->replicas[r], &patients[r], passed_s);
  }
  pthread_mutex_unlock(&team->lock);
  cvy_free(patients);
  return NULL;
}

cvy_status cvy_team_start_watch(cvy_team *team) {
  cvy_status status = CVY_OK;
  if (team->params.device_timeout_s < 0) return CVY_OK;
  CVY_TRY(cvy_thread_start(&team->watch, "cvy-watch", watch_main, team));
  team->watching = true;
fail:
  return status;
}

void cvy_team_stop_watch(cvy_team *team) {
  if (!team->watching) return;
  pthread_mutex_lock(&team->lock);
  team->watch_stop = true;
  pthread_cond_signal(&team->watch_wakes);
  pthread_mutex_unlock(&team->lock);
  pthread_join(team->watch, NULL);
  team->watching = false;
}
