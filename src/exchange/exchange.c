/* SPDX-License-Identifier: MIT
 * Outline: one parcel · a step's results · the end of a step · the thread. */
#include "src/exchange/exchange.h"

#include <math.h>
#include <string.h>

#include "src/base/clock.h"
#include "src/base/mem.h"
#include "src/base/text.h"
#include "src/protocol/grad_norm.h"
#include "src/protocol/gradient_sum.h"
#include "src/exchange/recover.h"

struct cvy_exchange {
  cvy_exchange_params params;
  cvy_roster *roster;
  cvy_ledger *ledger;
  cvy_timeline *timeline;
  cvy_recovery *recovery;
  cvy_chain *chain; /* in a fleet */
  int n;            /* devices */
  cvy_mail **mail;
  const void **parts; /* of the parcel: one per device with samples */
  float **staged; /* one per device: where its upload of the parcel is taken from, and already lies; NULL: not yet */
  float **copies; /* those that are not NULL */
  double *losses; /* of the step: one per device with samples */
  cvy_grad_norm *norm;   /* of gradients that are summed here; NULL: not computed */
  float *sums;           /* the whole gradient, with `norm` */
  double grad_norm;      /* of the step; negative: not computed */
  uint64_t exchanged_ns; /* when the last parcel of the step was given back; 0: none was */
  uint64_t last_done_ns;
  cvy_thread thread;
  bool running, ended; /* the thread was started; it has returned: with the roster's lock */
};

/* True if gradients of the step are sent to the host, and weights back. */
static bool crosses(const cvy_exchange *x, const cvy_step *step) { return step->lone < 0 && !x->params.no_sync; }

/* Updates wait for the whole gradient. */
static bool clips(const cvy_exchange *x) { return x->params.norm.clip > 0; }

/* ---- one parcel ---- */

/* Waits for an event of device i and destroys it. */
static cvy_status await_event(cvy_exchange *x, int i, cvy_event *event, uint64_t *ended_ns) {
  if (!cvy_roster_enter(x->roster, i)) return CVY_E_DEVICE;
  const cvy_status status = cvy_roster_fns(x->roster, i)->await(cvy_roster_device(x->roster, i), event, ended_ns);
  cvy_roster_leave(x->roster, i, status);
  return status;
}

/* Every device's part of the parcel, in device order, as soon as it is on the host. */
static cvy_status take_parts(cvy_exchange *x, const cvy_step *step, int parcel, int *n_parts) {
  cvy_status status = CVY_OK;
  *n_parts = 0;
  for (int i = 0; i < x->n; i++) {
    if (step->shares[i] == 0) continue;
    const uint64_t since = cvy_timeline_now(x->timeline);
    cvy_event *read;
    const void *part;
    if (!cvy_mail_take(x->mail[i], parcel, step->number, &read, &part)) return CVY_E_INTERRUPTED;
    CVY_TRY(await_event(x, i, read, NULL));
    x->parts[(*n_parts)++] = part;
    cvy_timeline_work(x->timeline, CVY_WORK_GRADIENT, i, parcel, step->number, since);
  }
fail:
  return status;
}

static bool wants_weights(cvy_exchange *x, int i) {
  cvy_roster_lock(x->roster);
  const bool wants = cvy_roster_state(x->roster, i) != CVY_LOST && !cvy_roster_is_idle(x->roster, i);
  cvy_roster_unlock(x->roster);
  return wants;
}

/* Only this thread removes lost devices, so the memory is valid until the parcel has been sent. */
static float *stage_of(cvy_exchange *x, int i, int parcel, long step) {
  return cvy_roster_fns(x->roster, i)->stage(cvy_roster_device(x->roster, i), parcel, step);
}

/* The ledger's next generation of the bucket, written to the memory of uploads in the same pass. */
static void update_bucket(cvy_exchange *x, const cvy_step *step, int bucket, const void *const *parts, int n_parts,
                          bool packed, float scale) {
  const cvy_bucket *const b = &cvy_ledger_layout(x->ledger)->buckets[bucket];
  int n_copies = 0;
  for (int i = 0; i < x->n; i++) {
    x->staged[i] = wants_weights(x, i) ? stage_of(x, i, bucket, step->number + 1) : NULL;
    if (x->staged[i]) x->copies[n_copies++] = x->staged[i];
  }
  cvy_ledger_update(x->ledger, x->params.pool, &step->update,
                    &(cvy_ledger_piece){.offset = b->offset,
                                        .size = b->size,
                                        .parts = parts,
                                        .n_parts = n_parts,
                                        .packed = packed,
                                        .scale = scale,
                                        .copies = x->copies,
                                        .n_copies = n_copies});
}

/* The same from a gradient that is in x->sums. */
static void update_from_sum(cvy_exchange *x, const cvy_step *step, int bucket, float scale) {
  const void *const sum[] = {x->sums + cvy_ledger_layout(x->ledger)->buckets[bucket].offset};
  update_bucket(x, step, bucket, sum, 1, false, scale);
}

/* The ledger's next generation of the parcel; with a limit for the gradient's norm only its sum. */
static void update(cvy_exchange *x, const cvy_step *step, int parcel, int n_parts) {
  const cvy_layout *const l = cvy_ledger_layout(x->ledger);
  if (parcel == l->n_buckets) {
    cvy_ledger_update_running(x->ledger, x->parts, n_parts);
    return;
  }
  const cvy_bucket *const b = &l->buckets[parcel];
  if (x->norm) {
    cvy_gradient_sum(x->params.pool, x->sums + b->offset, false, b->size, x->parts, n_parts, x->params.packed);
    cvy_grad_norm_add(x->norm, x->params.pool, b->offset, b->size, x->sums + b->offset);
    if (!clips(x)) update_from_sum(x, step, parcel, 1);
    return;
  }
  update_bucket(x, step, parcel, x->parts, n_parts, x->params.packed, 1);
}

/* Where device i's upload is taken from. The update has written it there; running values, and what a fleet's chain has
 * updated, are copied. */
static const float *source_of(cvy_exchange *x, int i, int parcel, long step, const float *from, size_t n) {
  float *at = x->staged[i];
  x->staged[i] = NULL;
  if (at) return at;
  at = stage_of(x, i, parcel, step);
  if (at) memcpy(at, from, n * sizeof *at);
  return at ? at : from;
}

static cvy_status give(cvy_exchange *x, int i, int parcel, long step, const float *from) {
  cvy_upload upload = {0};
  if (!cvy_roster_enter(x->roster, i)) return CVY_E_DEVICE;
  const cvy_status status = cvy_roster_fns(x->roster, i)
                                ->upload(cvy_roster_device(x->roster, i), parcel, step, from,
                                         cvy_mail_take_mapped(x->mail[i], parcel), &upload);
  if (status == CVY_OK) cvy_mail_deliver(x->mail[i], parcel, step, upload);
  cvy_roster_leave(x->roster, i, status);
  return status;
}

static cvy_status give_all(cvy_exchange *x, const cvy_step *step, int parcel) {
  cvy_status status = CVY_OK;
  const uint64_t since = cvy_timeline_now(x->timeline);
  const cvy_layout *const l = cvy_ledger_layout(x->ledger);
  const bool running = parcel == l->n_buckets;
  const float *const from =
      running ? cvy_ledger_next_running(x->ledger) : cvy_ledger_next_w(x->ledger) + l->buckets[parcel].offset;
  const size_t floats = running ? cvy_layout_moving(l) : l->buckets[parcel].size;
  for (int i = 0; i < x->n; i++) {
    if (!wants_weights(x, i)) continue;
    const float *const source = source_of(x, i, parcel, step->number + 1, from, floats);
    CVY_TRY(give(x, i, parcel, step->number + 1, source));
  }
  cvy_timeline_work(x->timeline, CVY_WORK_GIVE, -1, parcel, step->number, since);
fail:
  return status;
}

static cvy_status exchange_parcel(cvy_exchange *x, const cvy_step *step, int parcel) {
  cvy_status status = CVY_OK;
  int n_parts;
  CVY_TRY(take_parts(x, step, parcel, &n_parts));
  const uint64_t since = cvy_timeline_now(x->timeline);
  update(x, step, parcel, n_parts);
  cvy_timeline_work(x->timeline, CVY_WORK_UPDATE, -1, parcel, step->number, since);
  if (parcel == cvy_ledger_layout(x->ledger)->n_buckets || !clips(x)) CVY_TRY(give_all(x, step, parcel));
fail:
  return status;
}

/* When all buckets are summed: the norm, and with a limit for it the updates. */
static cvy_status finish_norm(cvy_exchange *x, const cvy_step *step) {
  cvy_status status = CVY_OK;
  const cvy_layout *const l = cvy_ledger_layout(x->ledger);
  const cvy_norm_result norm = cvy_grad_norm_finish(x->norm, x->params.norm.clip);
  x->grad_norm = cvy_norm_length(&norm.squares);
  for (int b = l->n_buckets - 1; clips(x) && b >= 0; b--) { /* the forward pass first needs the last one */
    const uint64_t since = cvy_timeline_now(x->timeline);
    update_from_sum(x, step, b, norm.scale);
    cvy_timeline_work(x->timeline, CVY_WORK_UPDATE, -1, b, step->number, since);
    CVY_TRY(give_all(x, step, b));
  }
fail:
  return status;
}

/* Running sums first: forward makes them, so they are ready first. */
static cvy_status exchange_parcels(cvy_exchange *x, const cvy_step *step) {
  cvy_status status = CVY_OK;
  const cvy_layout *const l = cvy_ledger_layout(x->ledger);
  if (cvy_layout_moves(l)) CVY_TRY(exchange_parcel(x, step, l->n_buckets));
  for (int b = 0; b < l->n_buckets; b++) CVY_TRY(exchange_parcel(x, step, b));
  if (x->norm) CVY_TRY(finish_norm(x, step));
fail:
  return status;
}

/* ---- a step's results ---- */

static cvy_status await_result(cvy_exchange *x, cvy_step *step, int i) {
  cvy_event *finished;
  uint64_t ended_ns;
  if (!cvy_ring_await_result(x->params.ring, step, i, &finished)) return CVY_E_INTERRUPTED;
  const cvy_status status = await_event(x, i, finished, &ended_ns);
  if (status == CVY_OK) cvy_timeline_result(x->timeline, i, ended_ns);
  return status;
}

/* Sums of the loss, one per device with samples, and all hits. */
static cvy_status take_results(cvy_exchange *x, cvy_step *step, int *n_losses, int *correct) {
  cvy_status status = CVY_OK;
  *n_losses = *correct = 0;
  for (int i = 0; i < x->n; i++) {
    if (cvy_roster_is_lost(x->roster, i)) continue;
    const uint64_t since = cvy_timeline_now(x->timeline);
    CVY_TRY(await_result(x, step, i));
    cvy_timeline_work(x->timeline, CVY_WORK_RESULT, i, -1, step->number, since);
    if (step->shares[i] == 0) continue;
    double *const loss = &x->losses[(*n_losses)++];
    *loss = 0;
    x->params.read_result(cvy_roster_device(x->roster, i), step->number, loss, correct);
    if (step->lone >= 0 && cvy_norm_wanted(&x->params.norm))
      x->grad_norm = x->params.read_norm(cvy_roster_device(x->roster, i), step->number);
  }
fail:
  return status;
}

/* Called before the step's update is applied, since a device may hang in the call for its times. */
static void fetch_times(cvy_exchange *x) {
  for (int i = 0; x->timeline && i < x->n; i++) {
    if (cvy_roster_is(x->roster, i, CVY_WORKING) && cvy_roster_enter(x->roster, i)) {
      cvy_timeline_fetch(x->timeline, i);
      cvy_roster_leave(x->roster, i, CVY_OK);
    } else {
      cvy_timeline_leave_out(x->timeline, i);
    }
  }
}

/* ---- a step in a fleet ---- */

/* Gives the devices what the chain has updated since. */
static cvy_status give_updated(cvy_exchange *x, const cvy_step *step, int updated, int *given) {
  cvy_status status = CVY_OK;
  for (; *given < updated; ++*given) CVY_TRY(give_all(x, step, cvy_chain_parcel_at(x->chain, *given)));
fail:
  return status;
}

static cvy_status exchange_in_fleet(cvy_exchange *x, cvy_step *step, cvy_chain_sums *total) {
  cvy_status status = CVY_OK;
  cvy_chain *const chain = x->chain;
  const int n_parcels = crosses(x, step) ? cvy_chain_parcels(chain) : 0;
  int n_parts, n_losses, correct, given = 0;
  cvy_chain_begin(chain, step);
  for (int u = 0; u < n_parcels; u++) {
    CVY_TRY(take_parts(x, step, cvy_chain_parcel_at(chain, u), &n_parts));
    cvy_chain_give(chain, x->parts, n_parts);
    CVY_TRY(give_updated(x, step, cvy_chain_updates(chain), &given));
  }
  CVY_TRY(take_results(x, step, &n_losses, &correct));
  fetch_times(x);
  cvy_ring_await_step(x->params.ring, step);
  cvy_chain_give_sums(chain, x->losses, n_losses, correct, step->lone >= 0 && n_losses > 0 ? fmax(x->grad_norm, 0) : 0);
  while (given < n_parcels) {
    const int updated = cvy_chain_await_updates(chain, given);
    if (updated < 0) return CVY_E_INTERRUPTED;
    CVY_TRY(give_updated(x, step, updated, &given));
  }
  x->exchanged_ns = n_parcels > 0 ? cvy_clock_ns() : 0;
  if (!cvy_chain_await_end(chain, total)) status = CVY_E_INTERRUPTED;
fail:
  return status;
}

/* ---- the end of a step ---- */

static cvy_status check_loss(const cvy_exchange *x, const cvy_step *step, double loss) {
  cvy_status status = CVY_OK;
  const bool fine = isfinite(loss) || x->params.allow_nan;
  CVY_REQUIRE(fine || step->number > 0, CVY_E_NOT_FINITE,
              "the loss of step 0 is %g, before the first update: the initial weights overflow", loss);
  CVY_REQUIRE(fine, CVY_E_NOT_FINITE,
              "the loss of step %ld is %g at learning rate %g: training has diverged; a smaller learning rate usually "
              "helps",
              step->number, loss, (double)step->update.lr);
fail:
  return status;
}

/* Finishes the step: its update becomes the current generation, and the caller gets its result. */
static cvy_status count_step(cvy_exchange *x, cvy_step *step, const cvy_chain_sums *total, double *ms) {
  cvy_status status = CVY_OK;
  const double loss = cvy_unsigned_nan(total->loss / step->n);
  CVY_TRY(check_loss(x, step, loss));
  if (crosses(x, step)) cvy_ledger_advance(x->ledger);
  if (x->chain)
    memcpy(step->times, cvy_chain_measured(x->chain), (size_t)cvy_shares_all(x->params.shares) * sizeof *step->times);
  step->meets = total->asks[CVY_ASKS_MEET] > 0;
  cvy_ledger_step_done(x->ledger, step->number + 1, step->lone < 0);
  const cvy_timeline_step times = {.number = step->number,
                                   .n = step->n,
                                   .begun_ns = step->begun_ns,
                                   .exchanged_ns = x->exchanged_ns,
                                   .seen_ns = cvy_clock_ns(),
                                   .shares = step->shares};
  const uint64_t done_ns = cvy_timeline_step_done(x->timeline, &times);
  *ms = 1e-6 * (double)(done_ns - (step->begun_ns ? step->begun_ns : x->last_done_ns));
  x->last_done_ns = done_ns;
  if (step->redone) return CVY_OK; /* the caller has its result */
  const cvy_step_result result = {.step = step->number,
                                  .loss = loss,
                                  .images = step->n,
                                  .correct = (int)total->correct,
                                  .ms = *ms,
                                  .grad_norm = x->chain ? cvy_chain_grad_norm(x->chain) : x->grad_norm,
                                  .shares = step->all_shares,
                                  .stops = total->asks[CVY_ASKS_STOP] > 0,
                                  .keeps = total->asks[CVY_ASKS_KEEP] > 0};
  cvy_results_add(x->params.results, &result);
fail:
  return status;
}

static cvy_status sum_up_step(cvy_exchange *x, cvy_step *step, cvy_chain_sums *total) {
  cvy_status status = CVY_OK;
  int n_losses, correct;
  x->exchanged_ns = 0;
  if (crosses(x, step)) {
    CVY_TRY(exchange_parcels(x, step));
    x->exchanged_ns = cvy_clock_ns();
  }
  CVY_TRY(take_results(x, step, &n_losses, &correct));
  *total = (cvy_chain_sums){.correct = correct};
  for (int i = 0; i < n_losses; i++) total->loss += x->losses[i];
  fetch_times(x);
  /* all workers have posted their results, so these tasks can no longer fail */
  cvy_ring_await_step(x->params.ring, step);
fail:
  return status;
}

/* On a failure the generation has not advanced, so the team can repeat the step without the failed device. */
static cvy_status finish_step(cvy_exchange *x, cvy_step *step, double *ms) {
  cvy_status status = CVY_OK;
  const uint64_t since = cvy_timeline_now(x->timeline);
  cvy_chain_sums total;
  memset(x->staged, 0, (size_t)x->n * sizeof *x->staged); /* an aborted step may have left some */
  CVY_TRY(cvy_results_reserve(x->params.results));
  if (x->chain) CVY_TRY(exchange_in_fleet(x, step, &total));
  else CVY_TRY(sum_up_step(x, step, &total));
  CVY_TRY(count_step(x, step, &total, ms));
  cvy_timeline_work(x->timeline, CVY_WORK_FINISH, -1, -1, step->number, since);
fail:
  return status;
}

/* A step that was aborted here, but that the nodes of the fleet have agreed to commit. */
static cvy_status count_agreed(void *exchange, const cvy_chain_sums *total) {
  cvy_exchange *const x = exchange;
  cvy_step *const step = cvy_ring_oldest(x->params.ring);
  double ms = 0;
  const cvy_status status = count_step(x, step, total, &ms);
  step->again = true; /* its time is not representative */
  cvy_ring_finish(x->params.ring, status, ms);
  return status;
}

/* ---- the thread ---- */

static void *exchange_main(void *arg) {
  cvy_exchange *const x = arg;
  cvy_step *step;
  for (;;) {
    const cvy_ring_work work = cvy_ring_await_work(x->params.ring, &step);
    double ms = 0;
    if (work == CVY_RING_STOP) break;
    if (work == CVY_RING_RECOVER) {
      cvy_recover(x->recovery, count_agreed, x);
      continue;
    }
    const cvy_status status = finish_step(x, step, &ms);
    cvy_ring_finish(x->params.ring, status, ms);
  }
  cvy_roster_lock(x->roster);
  x->ended = true;
  cvy_roster_wake(x->roster);
  cvy_roster_unlock(x->roster);
  return NULL;
}

cvy_status cvy_exchange_create(const cvy_exchange_params *params, cvy_exchange **out) {
  cvy_status status = CVY_OK;
  const size_t n = (size_t)cvy_roster_size(params->roster);
  cvy_exchange *x = cvy_calloc(1, sizeof *x);
  *out = NULL;
  CVY_REQUIRE(x, CVY_E_MEMORY, "out of host memory");
  *x = (cvy_exchange){.params = *params,
                      .roster = params->roster,
                      .ledger = params->ledger,
                      .timeline = params->timeline,
                      .n = (int)n,
                      .mail = cvy_calloc(n, sizeof *x->mail),
                      .parts = cvy_calloc(n, sizeof *x->parts),
                      .staged = cvy_calloc(n, sizeof *x->staged),
                      .copies = cvy_calloc(n, sizeof *x->copies),
                      .losses = cvy_calloc(n, sizeof *x->losses),
                      .grad_norm = -1};
  CVY_REQUIRE(x->mail && x->parts && x->staged && x->copies && x->losses, CVY_E_MEMORY, "out of host memory");
  if (params->mail) memcpy(x->mail, params->mail, n * sizeof *x->mail);
  x->params.mail = x->mail;
  if (cvy_norm_wanted(&params->norm) && n > 1 && !params->no_sync && !params->fleet) {
    const size_t n_floats = cvy_layout_trained(cvy_ledger_layout(x->ledger));
    CVY_TRY(cvy_grad_norm_create(n_floats, &x->norm));
    x->sums = cvy_calloc(n_floats, sizeof *x->sums);
    CVY_REQUIRE(x->sums, CVY_E_MEMORY, "out of host memory for the whole gradient");
  }
  if (params->fleet)
    CVY_TRY(cvy_chain_create(&(cvy_chain_params){.fleet = params->fleet,
                                                 .roster = params->roster,
                                                 .ledger = params->ledger,
                                                 .pool = params->pool,
                                                 .packed = params->packed,
                                                 .device_timeout_s = params->device_timeout_s,
                                                 .norm = params->norm,
                                                 .piece = params->fleet_piece},
                             &x->chain));
  CVY_TRY(cvy_recovery_create(&x->params, x->chain, &x->recovery));
  *out = x;
  return CVY_OK;
fail:
  cvy_exchange_destroy(&x);
  return status;
}

void cvy_exchange_destroy(cvy_exchange **exchange) {
  cvy_exchange *const x = *exchange;
  if (!x) return;
  cvy_recovery_destroy(&x->recovery);
  cvy_chain_destroy(&x->chain);
  cvy_free(x->mail);
  cvy_free(x->parts);
  cvy_free(x->staged);
  cvy_free(x->copies);
  cvy_free(x->losses);
  cvy_free(x->sums);
  cvy_grad_norm_destroy(&x->norm);
  cvy_free(x);
  *exchange = NULL;
}

cvy_chain *cvy_exchange_chain(const cvy_exchange *x) { return x->chain; }

cvy_status cvy_exchange_start(cvy_exchange *x) {
  cvy_status status = CVY_OK;
  cvy_roster_can_recover(x->roster, true);
  status = cvy_thread_start(&x->thread, "cvy-exchange", exchange_main, x);
  x->running = status == CVY_OK;
  if (!x->running) cvy_roster_can_recover(x->roster, false);
  if (x->running && x->chain) status = cvy_chain_start(x->chain);
  return status;
}

cvy_status cvy_exchange_replace(void *exchange) {
  cvy_exchange *const x = exchange;
  cvy_thread_detach(x->thread);
  const cvy_status status = cvy_thread_start(&x->thread, "cvy-exchange", exchange_main, x);
  x->running = status == CVY_OK;
  return status;
}

/* Devices may still access the memory of aborted steps. */
static void clear_steps(cvy_exchange *x) {
  cvy_ring_await_steps(x->params.ring);
  for (int i = 0; cvy_ring_under_way(x->params.ring) > 0 && i < x->n; i++)
    (void)cvy_worker_call(cvy_roster_worker(x->roster, i), cvy_recovery_clear_device, x->recovery);
}

void cvy_exchange_stop(cvy_exchange *x) {
  if (x->chain) cvy_chain_stop(x->chain); /* the exchange thread may be waiting for other nodes */
  cvy_ring_stop(x->params.ring);
  cvy_roster_lock(x->roster);
  while (x->running && !x->ended) cvy_roster_wait(x->roster); /* the watchdog may replace the thread */
  const bool join = x->running;
  x->running = false;
  cvy_roster_unlock(x->roster);
  if (join) cvy_thread_join(x->thread);
  clear_steps(x); /* workers may still be inside steps that failed; they return since the team is halted */
}
