/* SPDX-License-Identifier: MIT */
#include "src/train/exchange.h"

#include "src/base/clock.h"
#include "src/base/text.h"
#include "src/train/timeline.h"

/* Parts of one unit from all replicas that have samples, in device order. */
static cvy_status take_parts(cvy_exchange *x, const cvy_step *step, int unit, int *n_parts) {
  cvy_status status = CVY_OK;
  *n_parts = 0;
  for (int r = 0; r < x->n; r++)
    if (step->shares[r] > 0) {
      const uint64_t since = cvy_timeline_now(x->timeline);
      const void *part;
      CVY_TRY(cvy_replica_take(&x->replicas[r], unit, step->number, &part));
      x->parts[*n_parts] = part;
      if (x->packed) x->packed[*n_parts] = part;
      ++*n_parts;
      cvy_timeline_work(x->timeline, CVY_WORK_GRADIENT, r, unit, step->number, since);
    }
fail:
  return status;
}

static cvy_status exchange_unit(cvy_exchange *x, const cvy_step *step, int unit) {
  cvy_status status = CVY_OK;
  const cvy_layout *const l = x->state->layout;
  const int next = (int)((x->state->generation + 1) & 1);
  const float *from;
  int n_parts;
  CVY_TRY(take_parts(x, step, unit, &n_parts));
  uint64_t since = cvy_timeline_now(x->timeline);
  if (unit < l->n_buckets) {
    const cvy_bucket *const b = &l->buckets[unit];
    if (x->packed)
      cvy_state_update_packed(x->state, x->pool, &step->sgd, b->offset, b->size, x->packed, n_parts);
    else cvy_state_update(x->state, x->pool, &step->sgd, b->offset, b->size, x->parts, n_parts);
    from = x->state->w[next] + b->offset;
  } else {
    cvy_state_update_running(x->state, x->parts, n_parts);
    from = x->state->running[next];
  }
  cvy_timeline_work(x->timeline, CVY_WORK_UPDATE, -1, unit, step->number, since);
  since = cvy_timeline_now(x->timeline);
  for (int r = 0; r < x->n; r++)
    if (!x->replicas[r].lost && !x->replicas[r].rests) CVY_TRY(cvy_replica_give(&x->replicas[r], unit, step->number + 1, from));
  cvy_timeline_work(x->timeline, CVY_WORK_GIVE, -1, unit, step->number, since);
fail:
  return status;
}

static cvy_status await_result(cvy_exchange *x, cvy_replica *r, cvy_step *step) {
  pthread_mutex_lock(r->lock);
  while (!step->posted[r->index] && *r->team_status == CVY_OK) pthread_cond_wait(r->changed, r->lock);
  const bool there = step->posted[r->index];
  cvy_event *const finished = there ? step->finished[r->index] : NULL;
  if (there) step->finished[r->index] = NULL;
  pthread_mutex_unlock(r->lock);
  uint64_t ended_ns;
  const cvy_status status = there ? cvy_replica_wait(r, finished, &ended_ns) : CVY_E_INTERRUPTED;
  if (status == CVY_OK) cvy_timeline_result(x->timeline, r->index, ended_ns);
  return status;
}

cvy_status cvy_exchange_finish_step(cvy_exchange *x, cvy_step *step, double *loss, int *correct) {
  cvy_status status = CVY_OK;
  const cvy_layout *const l = x->state->layout;
  const bool exchanges = x->n > 1 && !x->no_sync;
  if (exchanges) {
    if (l->n_running) CVY_TRY(exchange_unit(x, step, l->n_buckets)); /* ready first: forward makes it */
    for (int b = 0; b < l->n_buckets; b++) CVY_TRY(exchange_unit(x, step, b));
  }
  x->exchanged_ns = exchanges ? cvy_clock_ns() : 0;
  *loss = 0;
  *correct = 0;
  for (int r = 0; r < x->n; r++) {
    if (x->replicas[r].lost) continue;
    const uint64_t since = cvy_timeline_now(x->timeline);
    CVY_TRY(await_result(x, &x->replicas[r], step));
    cvy_timeline_work(x->timeline, CVY_WORK_RESULT, r, -1, step->number, since);
    if (step->shares[r] == 0) continue;
    const cvy_xent_result *const result = cvy_replica_result(&x->replicas[r], step->number);
    *loss += cvy_xent_loss(result);
    *correct += result->correct;
  }
  *loss = cvy_unsigned_nan(*loss / step->n);
  cvy_timeline_fetch(x->timeline);
fail:
  return status;
}
