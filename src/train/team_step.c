/* SPDX-License-Identifier: MIT
 * The pipeline of training steps: the caller starts them (cvy_team_step), workers enqueue them, the exchange thread
 * finishes them in order. */
#include <math.h>
#include <string.h>

#include "src/base/clock.h"
#include "src/base/mem.h"
#include "src/train/team.h"
#include "src/train/timeline.h"

/* ---- the exchange thread ---- */

static void free_result(cvy_result_entry *e) {
  if (!e) return;
  cvy_free(e->shares);
  cvy_free(e);
}

static cvy_status make_result(const cvy_team *team, cvy_result_entry **out) {
  cvy_status status = CVY_OK;
  cvy_result_entry *const e = cvy_calloc(1, sizeof *e);
  if (e) e->shares = cvy_calloc((size_t)team->n, sizeof *e->shares);
  if (!e || !e->shares) {
    free_result(e);
    CVY_FAIL(CVY_E_MEMORY, "out of host memory for a step's result");
  }
  *out = e;
fail:
  return status;
}

static void queue_result(cvy_team *team, cvy_result_entry *e, const cvy_step *step, double loss, int correct, uint64_t done_ns) {
  memcpy(e->shares, step->shares, (size_t)team->n * sizeof *e->shares);
  pthread_mutex_lock(&team->lock);
  e->result = (cvy_step_result){.step = step->number,
                                .loss = loss,
                                .images = step->n,
                                .correct = correct,
                                .ms = 1e-6 * (double)(done_ns - team->last_done_ns),
                                .shares = e->shares};
  team->usual_ms = team->usual_ms > 0 ? 0.8 * team->usual_ms + 0.2 * e->result.ms : e->result.ms;
  for (int r = 0; r < team->n; r++) team->replicas[r].steps_done += e->shares[r] > 0;
  team->last_done_ns = done_ns;
  if (team->last_result)
    team->last_result->next = e;
  else
    team->results = e;
  team->last_result = e;
  pthread_mutex_unlock(&team->lock);
}

/* On a failure the state has not advanced: a device may fail at the same moment, and then the step is done again. */
static cvy_status finish_step(cvy_team *team, cvy_slot *slot) {
  cvy_status status = CVY_OK;
  cvy_result_entry *result = NULL;
  double loss;
  int correct;
  const uint64_t since = cvy_timeline_now(team->timeline);
  CVY_TRY(make_result(team, &result));
  CVY_TRY(cvy_exchange_finish_step(&team->exchange, &slot->step, &loss, &correct));
  /* all have posted their results: there is nothing in these tasks that could still fail */
  for (int r = 0; r < team->n; r++)
    if (!team->replicas[r].lost) (void)cvy_worker_wait(team->replicas[r].worker, &slot->tasks[r]);
  const bool fine = isfinite(loss) || team->params.allow_nan;
  CVY_REQUIRE(fine || slot->step.number > 0, CVY_E_NOT_FINITE,
              "the loss of step 0 is %g, before the first update: the weights that training began with overflow", loss);
  CVY_REQUIRE(
      fine, CVY_E_NOT_FINITE,
      "the loss of step %ld is %g at learning rate %g: training has diverged; a smaller learning rate usually helps",
      slot->step.number, loss, (double)slot->step.sgd.lr);
  if (team->n > 1 && !team->params.no_sync) cvy_state_advance(team->state);
  cvy_timeline_work(team->timeline, CVY_WORK_FINISH, -1, -1, slot->step.number, since);
  const uint64_t done_ns =
      cvy_timeline_step_done(team->timeline, &slot->step, team->exchange.exchanged_ns, cvy_clock_ns());
  queue_result(team, result, &slot->step, loss, correct, done_ns);
  return CVY_OK;
fail:
  free_result(result);
  return status;
}

cvy_slot *cvy_team_slot(cvy_team *team, long step) { return &team->slots[step % (team->params.run_ahead + 1)]; }

static void *exchange_main(void *arg) {
  cvy_team *const team = arg;
  pthread_mutex_lock(&team->lock);
  for (;;) {
    while (!team->stop && (team->status != CVY_OK || (team->halted == CVY_OK && team->finished == team->next_step)))
      pthread_cond_wait(&team->changed, &team->lock);
    if (team->stop) break;
    if (team->halted != CVY_OK) {
      pthread_mutex_unlock(&team->lock);
      cvy_team_recover(team);
      pthread_mutex_lock(&team->lock);
      continue;
    }
    cvy_slot *const slot = cvy_team_slot(team, team->finished);
    pthread_mutex_unlock(&team->lock);
    const cvy_status status = finish_step(team, slot);
    pthread_mutex_lock(&team->lock);
    if (status == CVY_OK) {
      team->finished++;
      team->n_batches++;
      memcpy(team->done_shares, team->full_shares, (size_t)team->n * sizeof *team->done_shares);
      if (team->n > 1) {
        team->state_step = team->finished;
        team->state_batches = team->n_batches;
      }
    } else if (!cvy_team_halt_for(team, status) && (team->halted == CVY_OK || status != CVY_E_INTERRUPTED)) {
      cvy_team_fail(team, status);
    }
    pthread_cond_broadcast(&team->changed);
  }
  team->exchange_ended = true;
  pthread_cond_broadcast(&team->changed);
  pthread_mutex_unlock(&team->lock);
  return NULL;
}

cvy_status cvy_team_start_exchange(cvy_team *team) {
  return cvy_thread_start(&team->thread, "cvy-exchange", exchange_main, team);
}

cvy_status cvy_team_start_pipeline(cvy_team *team) {
  cvy_status status = CVY_OK;
  const size_t n = (size_t)team->n;
  for (int i = 0; i <= team->params.run_ahead; i++) {
    cvy_slot *const s = &team->slots[i];
    s->tasks = cvy_calloc(n, sizeof *s->tasks);
    s->step = (cvy_step){.samples = cvy_calloc((size_t)team->params.batch, sizeof(int32_t)),
                         .shares = cvy_calloc(n, sizeof(int)),
                         .offsets = cvy_calloc(n, sizeof(int)),
                         .finished = cvy_calloc(n, sizeof(cvy_event *)),
                         .posted = cvy_calloc(n, sizeof(bool)),
                         .timed = team->pace != NULL,
                         .began = cvy_calloc(n, sizeof(cvy_stamp *)),
                         .ended = cvy_calloc(n, sizeof(cvy_stamp *))};
    CVY_TRY(cvy_team_make_bn_sync(team, &s->step.bn));
    CVY_REQUIRE(s->tasks && s->step.began && s->step.ended && s->step.samples && s->step.shares && s->step.offsets &&
                    s->step.finished && s->step.posted,
                CVY_E_MEMORY, "out of host memory");
  }
  team->exchange = (cvy_exchange){.replicas = team->replicas,
                                  .n = team->n,
                                  .state = team->state,
                                  .pool = team->pool,
                                  .no_sync = team->params.no_sync,
                                  .timeline = team->timeline,
                                  .parts = cvy_calloc(n, sizeof(float *))};
  if (team->params.exchange == CVY_EXCHANGE_BF16) team->exchange.packed = cvy_calloc(n, sizeof(uint16_t *));
  CVY_REQUIRE(team->exchange.parts && (team->exchange.packed || team->params.exchange != CVY_EXCHANGE_BF16), CVY_E_MEMORY,
              "out of host memory");
  pthread_mutex_lock(&team->lock);
  status = team->status;   /* a device may have been given up while the team was opened */
  if (status == CVY_OK) status = cvy_team_start_exchange(team);
  team->thread_started = status == CVY_OK;
  pthread_mutex_unlock(&team->lock);
fail:
  return status;
}

void cvy_team_stop_pipeline(cvy_team *team) {
  if (team->thread_started) {
    (void)cvy_team_wait(team);
    pthread_mutex_lock(&team->lock);
    team->stop = true;
    pthread_cond_broadcast(&team->changed);
    /* it may be inside a call that hangs: then the watch puts another one in its place */
    while (team->thread_started && !team->exchange_ended) pthread_cond_wait(&team->changed, &team->lock);
    pthread_mutex_unlock(&team->lock);
    if (team->exchange_ended) pthread_join(team->thread, NULL);
    team->thread_started = false;
  }
  /* workers may still be inside steps that failed: their tasks end because the team is halted */
  for (long step = team->finished; step < team->next_step; step++)
    for (int r = 0; r < team->n; r++) /* who was lost before the step has never had its task */
      if (!team->replicas[r].lost)
        (void)cvy_worker_wait(team->replicas[r].worker, &cvy_team_slot(team, step)->tasks[r]);
  /* devices may still read or write these steps' memory */
  for (int r = 0; team->next_step > team->finished && r < team->n; r++)
    (void)cvy_worker_call(team->replicas[r].worker, cvy_team_clear_steps, team);
  if (team->n_hung > 0) return; /* whoever comes back finds everything in its place */
  for (int i = 0; i <= CVY_MAX_RUN_AHEAD; i++) {
    cvy_slot *const s = &team->slots[i];
    for (int r = 0; s->step.began && s->step.ended && r < team->n; r++) {
      cvy_stamp_destroy(&s->step.began[r]);
      cvy_stamp_destroy(&s->step.ended[r]);
    }
    cvy_free(s->tasks);
    cvy_bn_sync_destroy(&s->step.bn);
    cvy_free(s->step.samples);
    cvy_free(s->step.shares);
    cvy_free(s->step.offsets);
    cvy_free(s->step.finished);
    cvy_free(s->step.posted);
    cvy_free(s->step.began);
    cvy_free(s->step.ended);
  }
  cvy_free(team->exchange.parts);
  cvy_free(team->exchange.packed);
  cvy_result_entry *e = team->results;
  while (e || team->taken) {
    cvy_result_entry *const dead = team->taken ? team->taken : e;
    if (dead == team->taken)
      team->taken = NULL;
    else
      e = e->next;
    free_result(dead);
  }
  team->results = team->last_result = NULL;
}

/* ---- the caller's side ---- */

static cvy_status step_task(void *owner, void *arg) {
  cvy_replica *const r = owner;
  cvy_slot *const slot = arg;
  cvy_team *const team = slot->team;
  const cvy_status status = cvy_replica_step(r, &slot->step);
  if (status != CVY_OK) {
    if (status != CVY_E_INTERRUPTED && !cvy_team_is_of_device(status)) /* the loss of a device is told by itself */
      cvy_log_error("step %ld failed on device %d (%s)", slot->step.number, r->index,
                    cvy_devices_label(team->devices, r->index));
    cvy_team_fail_replica(team, r, status);
  }
  return status;
}

void cvy_team_post(cvy_team *team, cvy_slot *slot) {
  for (int r = 0; r < team->n; r++)
    if (!team->replicas[r].lost) cvy_worker_post(team->replicas[r].worker, &slot->tasks[r], step_task, slot);
}

static cvy_status check_samples(const cvy_team *team, const int32_t *samples, int n) {
  cvy_status status = CVY_OK;
  const int most = cvy_team_most_samples(team);
  CVY_REQUIRE(!team->params.inference, CVY_E_ARGUMENT, "the team was created for inference: it cannot train");
  CVY_REQUIRE(team->data, CVY_E_ARGUMENT, "there is no data to train on: call cvy_team_attach first");
  CVY_REQUIRE(team->initialised, CVY_E_ARGUMENT,
              "there are no weights to train: call cvy_team_init or cvy_team_load first");
  CVY_REQUIRE(n >= 1 && n <= team->params.batch, CVY_E_ARGUMENT,
              "a step of %d samples: must be 1 to %d, the team's batch", n, team->params.batch);
  CVY_REQUIRE(n <= most, CVY_E_ARGUMENT,
              "a step of %d samples: must be 1 to %d, as many training samples as the team was created for (samples)", n, most);
  for (int i = 0; i < n; i++)
    CVY_REQUIRE(samples[i] >= 0 && samples[i] < team->data->train.n, CVY_E_ARGUMENT,
                "sample %d: data set %s has training samples 0 to %d", samples[i], team->data->name,
                team->data->train.n - 1);
fail:
  return status;
}

cvy_status cvy_team_step(cvy_team *team, const int32_t *samples, int n, float lr) {
  cvy_status status = CVY_OK;
  const uint64_t since = cvy_timeline_now(team->timeline);
  CVY_TRY(check_samples(team, samples, n));
  CVY_REQUIRE(isfinite(lr), CVY_E_ARGUMENT, "learning rate %g: must be finite", (double)lr);
  pthread_mutex_lock(&team->lock);
  while (team->halted != CVY_OK && team->status == CVY_OK) pthread_cond_wait(&team->changed, &team->lock);
  status = team->status;
  const bool begins = team->finished == team->next_step;
  if (begins) team->last_done_ns = cvy_clock_ns();
  pthread_mutex_unlock(&team->lock);
  if (status != CVY_OK) return status;

  cvy_slot *const slot = cvy_team_slot(team, team->next_step); /* free: at most run_ahead steps are unfinished */
  cvy_step *const step = &slot->step;
  slot->team = team;
  CVY_TRY(cvy_team_balance_step(team, slot));
  step->number = team->next_step;
  step->n = n;
  step->begun_ns = begins ? team->last_done_ns : 0;
  step->group_size = team->params.bn == CVY_BN_GHOST ? team->params.ghost : 0;
  step->sgd = (cvy_sgd_params){.lr = lr,
                               .momentum = team->params.momentum,
                               .weight_decay = team->params.weight_decay,
                               .nesterov = team->params.nesterov};
  memcpy(step->samples, samples, (size_t)n * sizeof *samples);
  pthread_mutex_lock(&team->lock);
  while (team->halted != CVY_OK && team->status == CVY_OK) pthread_cond_wait(&team->changed, &team->lock);
  status = team->status;
  if (status == CVY_OK) {
    status = cvy_team_cut_step(team, step);
    if (status != CVY_OK && cvy_team_has_lost(team)) { /* those that are left cannot do it */
      while (team->finished < team->next_step && team->status == CVY_OK) pthread_cond_wait(&team->changed, &team->lock);
      cvy_team_end(team, status);
    }
  }
  if (status != CVY_OK) {
    pthread_mutex_unlock(&team->lock);
    return status;
  }
  team->state_is_behind = team->n == 1 && !team->params.no_sync;
  cvy_team_post(team, slot);
  team->next_step++;
  pthread_cond_broadcast(&team->changed);
  while (team->next_step - team->finished > team->params.run_ahead && team->status == CVY_OK)
    pthread_cond_wait(&team->changed, &team->lock);
  status = team->status;
  pthread_mutex_unlock(&team->lock);
  cvy_timeline_work(team->timeline, CVY_WORK_STEP, -1, -1, team->next_step - 1, since);
fail:
  return status;
}

cvy_status cvy_team_take(cvy_team *team, bool wait, cvy_step_result *out, bool *got) {
  *got = false;
  pthread_mutex_lock(&team->lock);
  while (wait && !team->results && team->status == CVY_OK && team->finished < team->next_step)
    pthread_cond_wait(&team->changed, &team->lock);
  cvy_result_entry *const e = team->results;
  const cvy_status status = e ? CVY_OK : team->status;
  if (e) {
    team->results = e->next;
    if (!e->next) team->last_result = NULL;
    free_result(team->taken);
    team->taken = e;
    *out = e->result;
    *got = true;
  }
  pthread_mutex_unlock(&team->lock);
  return status;
}

cvy_status cvy_team_wait(cvy_team *team) {
  pthread_mutex_lock(&team->lock);
  while ((team->finished < team->next_step || team->halted != CVY_OK) && team->status == CVY_OK)
    pthread_cond_wait(&team->changed, &team->lock);
  const cvy_status status = team->status;
  pthread_mutex_unlock(&team->lock);
  return status;
}
