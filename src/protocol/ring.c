/* SPDX-License-Identifier: MIT
 * Outline: life · caller · worker · exchange thread. */
#include "src/protocol/ring.h"

#include "src/base/clock.h"
#include "src/base/mem.h"
#include "src/protocol/journal.h"

struct cvy_ring {
  cvy_ring_params params;
  cvy_roster *roster;
  int n; /* devices */
  cvy_step slots[CVY_RUN_AHEAD_MOST + 1];
  cvy_step redone;      /* the slot of repeated steps */
  cvy_journal *journal; /* NULL: there is only one device, so no step can be repeated */
  long next, finished;  /* numbers of the whole run */
  long truth;           /* the first step that the ledger lacks, of those that began, or the next one */
  long redo;            /* the step that is being repeated, -1: none */
  int epoch;            /* of the steps that begin; the caller's */
  long last;            /* the step that ended last, -1: none, and its samples */
  int last_n;
  bool stopping;
};

/* ---- life ---- */

static void free_step(const cvy_ring *r, cvy_step *s) {
  if (r->params.on_free) r->params.on_free(r->params.user, s);
  if (s != &r->redone) cvy_step_images_free(&s->images); /* those are the journal's */
  cvy_free(s->samples);
  cvy_free(s->all_shares);
  cvy_free(s->times);
  cvy_free(s->parts);
}

static cvy_status make_step(cvy_ring *r, cvy_step *s) {
  cvy_status status = CVY_OK;
  const size_t n = (size_t)r->n;
  *s = (cvy_step){.ring = r,
                  .samples = cvy_calloc((size_t)r->params.batch, sizeof *s->samples),
                  .all_shares = cvy_calloc((size_t)cvy_shares_all(r->params.shares), sizeof *s->all_shares),
                  .times = cvy_calloc((size_t)cvy_shares_all(r->params.shares), sizeof *s->times),
                  .parts = cvy_calloc(n, sizeof *s->parts),
                  .timed = r->params.timed};
  CVY_REQUIRE(s->samples && s->all_shares && s->times && s->parts, CVY_E_MEMORY,
              "out of host memory for a step under way");
  s->shares = s->all_shares + cvy_shares_first(r->params.shares);
  if (r->params.on_make) CVY_TRY(r->params.on_make(r->params.user, s));
fail:
  return status;
}

cvy_status cvy_ring_create(const cvy_ring_params *params, cvy_ring **out) {
  cvy_status status = CVY_OK;
  cvy_ring *r = cvy_calloc(1, sizeof *r);
  *out = NULL;
  CVY_REQUIRE(r, CVY_E_MEMORY, "out of host memory");
  r->params = *params;
  r->roster = params->roster;
  r->n = cvy_roster_size(params->roster);
  r->redo = r->last = -1;
  for (int i = 0; i <= params->run_ahead; i++) CVY_TRY(make_step(r, &r->slots[i]));
  if (cvy_shares_all(params->shares) > 1) {
    CVY_TRY(make_step(r, &r->redone));
    CVY_TRY(cvy_journal_create(params->batch, &r->journal));
  }
  *out = r;
  return CVY_OK;
fail:
  cvy_ring_destroy(&r);
  return status;
}

void cvy_ring_destroy(cvy_ring **ring) {
  cvy_ring *const r = *ring;
  if (!r) return;
  for (int i = 0; i <= CVY_RUN_AHEAD_MOST; i++)
    if (r->slots[i].ring) free_step(r, &r->slots[i]);
  if (r->redone.ring) free_step(r, &r->redone);
  cvy_journal_destroy(&r->journal);
  cvy_free(r);
  *ring = NULL;
}

static cvy_step *slot_of(cvy_ring *r, long step) { return &r->slots[step % (r->params.run_ahead + 1)]; }

/* The step that the exchange thread finishes next. */
static cvy_step *oldest(cvy_ring *r) { return r->redo >= 0 ? &r->redone : slot_of(r, r->finished); }

static int in_journal(const cvy_ring *r) { return r->journal ? cvy_journal_size(r->journal) : 0; }

/* ---- caller ---- */

/* Only the caller's thread changes `next`, so it reads without the lock. */
cvy_step *cvy_ring_next(cvy_ring *r) { return slot_of(r, r->next); }

static cvy_status run_step(void *device, void *arg) {
  cvy_step *const step = arg;
  cvy_ring *const r = step->ring;
  const long number = step->number; /* the step may be over before its task is */
  const int i = cvy_roster_index(r->roster, device);
  cvy_roster_lock(r->roster);
  const bool halted = cvy_roster_halted(r->roster);
  cvy_roster_unlock(r->roster);
  if (halted) return CVY_E_INTERRUPTED;
  cvy_roster_in_step(r->roster, i, true);
  const cvy_status status = cvy_roster_fns(r->roster, i)->step(device, step);
  cvy_roster_in_step(r->roster, i, false);
  if (status == CVY_OK) return CVY_OK;
  if (status != CVY_E_INTERRUPTED && !cvy_is_device_fault(status)) /* recovery logs a lost device */
    cvy_log_error("step %ld failed on device %d (%s)", number, i, cvy_roster_label(r->roster, i));
  cvy_roster_fault(r->roster, i, status);
  return status;
}

static void post(cvy_ring *r, cvy_step *step) CVY_HOLDS(r->roster);
static void post(cvy_ring *r, cvy_step *step) {
  for (int i = 0; i < r->n; i++)
    if (cvy_roster_state(r->roster, i) != CVY_LOST)
      cvy_worker_post(cvy_roster_worker(r->roster, i), &step->parts[i].task, run_step, step);
}

/* Shares and offsets of a step that no worker has started. */
static cvy_status cut(cvy_ring *r, cvy_step *step) CVY_HOLDS(r->roster);
static cvy_status cut(cvy_ring *r, cvy_step *step) {
  cvy_status status = CVY_OK;
  CVY_TRY(cvy_shares_cut(r->params.shares, r->roster, step->n, step->all_shares));
  step->lone = cvy_shares_lone_now(r->params.shares, r->roster);
  int at = 0;
  for (const int *before = step->all_shares; before < step->shares; before++) at += *before;
  for (int i = 0; i < r->n; at += step->shares[i++]) {
    step->parts[i].offset = at;
    step->parts[i].posted = false;
  }
  if (r->params.on_cut) r->params.on_cut(r->params.user, step);
fail:
  return status;
}

static void await_recovery(cvy_ring *r) CVY_HOLDS(r->roster);
static void await_recovery(cvy_ring *r) {
  while ((cvy_roster_halted(r->roster) || r->redo >= 0) && cvy_roster_status(r->roster) == CVY_OK)
    cvy_roster_wait(r->roster);
}

static bool any_lost(const cvy_ring *r) CVY_HOLDS(r->roster);
static bool any_lost(const cvy_ring *r) {
  bool any = false;
  for (int i = 0; i < r->n; i++) any |= cvy_roster_state(r->roster, i) == CVY_LOST;
  return any;
}

static cvy_status begin(cvy_ring *r, cvy_step *step) CVY_HOLDS(r->roster);
static cvy_status begin(cvy_ring *r, cvy_step *step) {
  cvy_status status = CVY_OK;
  await_recovery(r);
  CVY_TRY(cvy_roster_status(r->roster));
  step->number = r->next;
  step->epoch = r->epoch;
  step->again = false;
  status = cut(r, step);
  if (status != CVY_OK && any_lost(r)) { /* the remaining devices cannot do it: the last finished step ends the run */
    while (r->finished < r->next && cvy_roster_status(r->roster) == CVY_OK) cvy_roster_wait(r->roster);
    if (cvy_roster_end(r->roster, status)) cvy_shares_go_back(r->params.shares, r->roster);
  }
  CVY_TRY(status);
  post(r, step);
  r->next++;
  cvy_roster_wake(r->roster);
  while (r->next - r->finished > r->params.run_ahead && cvy_roster_status(r->roster) == CVY_OK)
    cvy_roster_wait(r->roster);
  status = cvy_roster_status(r->roster);
fail:
  return status;
}

void cvy_ring_set_epoch(cvy_ring *r, int epoch) { r->epoch = epoch; }

cvy_status cvy_ring_begin(cvy_ring *r) {
  cvy_roster_lock(r->roster);
  const cvy_status status = begin(r, slot_of(r, r->next));
  cvy_roster_unlock(r->roster);
  return status;
}

uint64_t cvy_ring_begins(cvy_ring *r) {
  cvy_roster_lock(r->roster);
  const bool at_rest = r->finished == r->next && r->redo < 0;
  cvy_roster_unlock(r->roster);
  return at_rest ? cvy_clock_ns() : 0;
}

cvy_status cvy_ring_wait(cvy_ring *r) {
  cvy_roster_lock(r->roster);
  while ((r->finished < r->next || r->redo >= 0 || cvy_roster_halted(r->roster)) &&
         cvy_roster_status(r->roster) == CVY_OK)
    cvy_roster_wait(r->roster);
  const cvy_status status = cvy_roster_status(r->roster);
  cvy_roster_unlock(r->roster);
  return status;
}

cvy_status cvy_ring_await_more(cvy_ring *r, long finished, bool wait, bool *more) {
  cvy_roster_lock(r->roster);
  while (wait && r->finished <= finished && r->finished < r->next && cvy_roster_status(r->roster) == CVY_OK)
    cvy_roster_wait(r->roster);
  *more = r->finished > finished;
  const cvy_status status = cvy_roster_status(r->roster);
  cvy_roster_unlock(r->roster);
  return status;
}

long cvy_ring_next_number(cvy_ring *r) { return r->next; }

long cvy_ring_finished(cvy_ring *r) {
  cvy_roster_lock(r->roster);
  const long finished = r->finished;
  cvy_roster_unlock(r->roster);
  return finished;
}

long cvy_ring_truth(cvy_ring *r) {
  cvy_roster_lock(r->roster);
  const long truth = r->truth;
  cvy_roster_unlock(r->roster);
  return truth;
}

bool cvy_ring_is_behind(cvy_ring *r) {
  cvy_roster_lock(r->roster);
  const bool behind = r->truth < r->finished;
  cvy_roster_unlock(r->roster);
  return behind;
}

long cvy_ring_kept(cvy_ring *r, const cvy_roster *roster) {
  (void)roster;
  r->truth = r->finished;
  if (r->journal) cvy_journal_drop(r->journal, r->finished);
  return r->finished;
}

bool cvy_ring_is_full(cvy_ring *r, size_t image_floats) {
  cvy_roster_lock(r->roster);
  const bool full = r->journal && in_journal(r) + (r->next - r->finished) >= cvy_journal_room(r->journal, image_floats);
  cvy_roster_unlock(r->roster);
  return full;
}

void cvy_ring_renumber(cvy_ring *r, long step) {
  cvy_roster_lock(r->roster);
  if (r->journal) cvy_journal_drop(r->journal, r->finished);
  if (step != r->finished) r->last = -1;
  r->next = r->finished = r->truth = step;
  cvy_roster_unlock(r->roster);
}

long cvy_ring_last(cvy_ring *r, int *n) {
  cvy_roster_lock(r->roster);
  const long last = r->last;
  *n = r->last_n;
  cvy_roster_unlock(r->roster);
  return last;
}

void cvy_ring_stop(cvy_ring *r) {
  cvy_roster_lock(r->roster);
  r->stopping = true;
  cvy_roster_wake(r->roster);
  cvy_roster_unlock(r->roster);
}

/* ---- worker ---- */

void cvy_ring_post_result(cvy_ring *r, cvy_step *step, int i, cvy_event *finished) {
  cvy_roster_lock(r->roster);
  step->parts[i].finished = finished;
  step->parts[i].posted = true;
  cvy_roster_wake(r->roster);
  cvy_roster_unlock(r->roster);
}

/* ---- exchange thread ---- */

cvy_ring_work cvy_ring_await_work(cvy_ring *r, cvy_step **step) {
  cvy_ring_work work = CVY_RING_STEP;
  cvy_roster_lock(r->roster);
  while (!r->stopping && (cvy_roster_status(r->roster) != CVY_OK ||
                          (!cvy_roster_halted(r->roster) && r->finished == r->next && r->redo < 0)))
    cvy_roster_wait(r->roster);
  if (r->stopping) work = CVY_RING_STOP;
  else if (cvy_roster_halted(r->roster)) work = CVY_RING_RECOVER;
  *step = oldest(r);
  cvy_roster_unlock(r->roster);
  return work;
}

cvy_step *cvy_ring_oldest(cvy_ring *r) { return oldest(r); }

bool cvy_ring_await_result(cvy_ring *r, cvy_step *step, int i, cvy_event **finished) {
  cvy_roster_lock(r->roster);
  while (!step->parts[i].posted && !cvy_roster_halted(r->roster)) cvy_roster_wait(r->roster);
  const bool there = step->parts[i].posted;
  *finished = there ? step->parts[i].finished : NULL;
  if (there) step->parts[i].finished = NULL;
  cvy_roster_unlock(r->roster);
  return there;
}

static void forget_result(const cvy_ring *r, cvy_step *step, int i) {
  if (!step->parts) return;
  cvy_roster_lock(r->roster);
  cvy_event *event = step->parts[i].finished;
  step->parts[i].finished = NULL;
  cvy_roster_unlock(r->roster);
  if (event) cvy_roster_fns(r->roster, i)->forget(&event);
}

void cvy_ring_forget(cvy_ring *r, int i) {
  for (int s = 0; s <= r->params.run_ahead; s++) forget_result(r, &r->slots[s], i);
  forget_result(r, &r->redone, i);
}

static void post_all(cvy_ring *r) CVY_HOLDS(r->roster);
static void post_all(cvy_ring *r) {
  for (long step = r->finished; step < r->next; step++) post(r, slot_of(r, step));
}

/* Fills the slot of repeated steps with this one. */
static cvy_status take_redone(cvy_ring *r, long number) CVY_HOLDS(r->roster);
static cvy_status take_redone(cvy_ring *r, long number) {
  cvy_journal_get(r->journal, number, &r->redone);
  r->redone.again = r->redone.redone = true;
  r->redone.begun_ns = 0;
  return cut(r, &r->redone);
}

/* A step was repeated: continues with the next one, or with the steps under way. */
static void go_on(cvy_ring *r) CVY_HOLDS(r->roster);
static void go_on(cvy_ring *r) {
  const long next = r->redo + 1;
  if (r->redone.lone < 0) { /* the ledger has it */
    r->truth = next;
    cvy_journal_drop(r->journal, next);
  }
  r->redo = next < r->finished ? next : -1;
  if (r->redo < 0) {
    post_all(r);
    return;
  }
  const cvy_status status = take_redone(r, next);
  if (status == CVY_OK) post(r, &r->redone);
  else cvy_roster_fail(r->roster, status);
}

static void count(cvy_ring *r, cvy_step *step, double ms) CVY_HOLDS(r->roster);
static void count(cvy_ring *r, cvy_step *step, double ms) {
  if (r->journal && step->lone >= 0) cvy_journal_add(r->journal, step);
  r->finished++;
  if (step->lone < 0) r->truth = r->finished;
  cvy_roster_step_done(r->roster, step->shares, step->again ? 0 : ms); /* the time of a recovery is not that of a usual
                                                                        * step */
  cvy_shares_step_done(r->params.shares, r->roster);
}

void cvy_ring_finish(cvy_ring *r, cvy_status status, double ms) {
  cvy_roster_lock(r->roster);
  if (status == CVY_OK) {
    r->last = oldest(r)->number;
    r->last_n = oldest(r)->n;
    if (r->redo >= 0) go_on(r);
    else count(r, slot_of(r, r->finished), ms);
    cvy_roster_wake(r->roster);
  } else if (!cvy_roster_halt_for(r->roster, status) &&
             (!cvy_roster_halted(r->roster) || status != CVY_E_INTERRUPTED)) {
    cvy_roster_fail(r->roster, status);
  }
  cvy_roster_unlock(r->roster);
}

void cvy_ring_await_step(cvy_ring *r, cvy_step *step) {
  for (int i = 0; i < r->n; i++)
    if (!cvy_roster_is_lost(r->roster, i)) /* a device lost before the step never got its task */
      (void)cvy_worker_wait(cvy_roster_worker(r->roster, i), &step->parts[i].task);
}

void cvy_ring_await_steps(cvy_ring *r) {
  if (r->redo >= 0) cvy_ring_await_step(r, &r->redone);
  for (long step = r->finished; step < r->next; step++) cvy_ring_await_step(r, slot_of(r, step));
}

int cvy_ring_under_way(cvy_ring *r) { return (int)(r->next - r->finished); }

int cvy_ring_to_redo(cvy_ring *r) {
  cvy_roster_lock(r->roster);
  const int n = in_journal(r);
  cvy_roster_unlock(r->roster);
  return n;
}

static cvy_status cut_again(cvy_ring *r) CVY_HOLDS(r->roster);
static cvy_status cut_again(cvy_ring *r) {
  cvy_status status = CVY_OK;
  r->redo = -1;
  for (long step = r->finished; step < r->next; step++) {
    slot_of(r, step)->again = true;
    CVY_TRY(cut(r, slot_of(r, step)));
  }
  if (in_journal(r) > 0) CVY_TRY(take_redone(r, r->truth));
fail:
  return status;
}

cvy_status cvy_ring_restart(cvy_ring *r, bool (*may_restart)(void *user), void *user, bool *again) {
  cvy_status status = CVY_OK;
  cvy_roster_lock(r->roster);
  *again = cvy_roster_has_faults(r->roster);
  if (!*again) status = cut_again(r);
  if (status == CVY_OK && !*again && cvy_roster_status(r->roster) == CVY_OK) *again = !may_restart(user);
  if (status == CVY_OK && !*again && cvy_roster_status(r->roster) == CVY_OK) {
    cvy_roster_resume(r->roster);
    if (in_journal(r) > 0) {
      r->redo = r->truth;
      post(r, &r->redone);
    } else {
      post_all(r);
    }
  }
  cvy_roster_unlock(r->roster);
  return status;
}
