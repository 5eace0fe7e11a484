/* SPDX-License-Identifier: MIT
 * Outline: life · units · up · down · threads · exchange thread · after a halt · caller. */
#include "src/fleet/chain.h"

#include <string.h>

#include "src/base/clock.h"
#include "src/base/mem.h"
#include "src/fleet/chain_pace.h"
#include "src/protocol/grad_norm.h"
#include "src/fleet/chain_units.h"

/* The monitor looks so often whether it has to end, or the caller is to stop. */
static const double LISTEN_S = 0.05;
/* mpirun gives processes a second between SIGTERM and SIGKILL, in which the head also writes a checkpoint. */
static const double STOP_S = 0.2;
/* Of a step's gradient. */
typedef struct gradient_norm {
  cvy_grad_norm *sums; /* NULL: not computed */
  double length;       /* negative: not computed */
} gradient_norm;

/* Times that the caller wants (cvy_chain_note). */
typedef struct notes {
  cvy_chain_times *times, *step; /* of all steps, of the one under way; NULL: none */
  int n_steps, noted;
} notes;

/* Called with the lock when the caller's operation counts. */
typedef struct counted {
  void (*fn)(void *user, cvy_roster *roster); /* NULL: it is not called */
  void *user;
} counted;

/* The lock guards these. */
typedef struct shared {
  bool stopping; /* the threads end */
  bool asks[CVY_CHAIN_REQUESTS];
  uint32_t round;        /* the fleet's */
  int64_t done;          /* operations that count */
  bool stepping;         /* the operation under way is a step */
  bool up_due, down_due; /* a step for the thread */
  int busy;              /* threads that may be using the link */
  int given, updated;    /* units of the operation, the sums included */
  int summed;            /* its pieces, and the sums */
  bool committed, ended;
  bool reduced;    /* the caller's operation counts, as was agreed */
  counted counted; /* of that operation */
  const cvy_stop *stop;
  uint64_t moved_ns; /* after a stop: when the monitor last saw no operation under way, or another one; 0: no stop */
  int64_t moved;     /* `done` at that time */
  bool gave_up;
} shared;

struct cvy_chain {
  cvy_chain_params params;
  cvy_fleet *fleet;
  cvy_link *link;
  cvy_roster *roster;
  cvy_ledger *ledger;
  cvy_membership *membership;
  gradient_norm norm;
  cvy_chain_units units;
  cvy_chain_own own; /* of the step's sums */
  cvy_chain_all total;
  const cvy_step *step;
  int n_units, n_pieces; /* that cross in the step: none where a lone device updates its own weights */
  int before, here;      /* samples of the nodes before this one, and of this one */
  notes notes;
  cvy_chain_pace pace; /* of the thread that begins operations, one at a time */
  cvy_thread threads[3];
  int n_threads; /* that were started */
  shared at;
};

/* ---- life ---- */

cvy_status cvy_chain_create(const cvy_chain_params *params, cvy_chain **out) {
  cvy_status status = CVY_OK;
  const cvy_layout *const l = cvy_ledger_layout(params->ledger);
  const int n_devices = cvy_roster_size(params->roster);
  cvy_chain *c = cvy_calloc(1, sizeof *c);
  *out = NULL;
  CVY_REQUIRE(c, CVY_E_MEMORY, "out of host memory");
  *c = (cvy_chain){.params = *params,
                   .fleet = params->fleet,
                   .link = cvy_fleet_link(params->fleet),
                   .roster = params->roster,
                   .ledger = params->ledger};
  CVY_TRY(cvy_chain_sums_init(&c->own, n_devices, &c->total, cvy_fleet_devices(params->fleet)));
  CVY_TRY(cvy_chain_units_init(&c->units, l, params->piece, n_devices));
  c->norm.length = -1;
  if (cvy_norm_wanted(&params->norm)) CVY_TRY(cvy_grad_norm_create(cvy_layout_trained(l), &c->norm.sums));
  CVY_TRY(cvy_membership_create(c->fleet, c->roster, &c->membership));
  c->at.round = cvy_fleet_round(c->fleet);
  *out = c;
  return CVY_OK;
fail:
  cvy_chain_destroy(&c);
  return status;
}

void cvy_chain_destroy(cvy_chain **chain) {
  cvy_chain *const c = *chain;
  if (!c) return;
  cvy_membership_destroy(&c->membership);
  cvy_chain_units_end(&c->units);
  cvy_chain_sums_end(&c->own, &c->total);
  cvy_grad_norm_destroy(&c->norm.sums);
  cvy_free(c);
  *chain = NULL;
}

/* ---- units ---- */

int cvy_chain_parcels(const cvy_chain *c) { return c->units.n; }

int cvy_chain_parcel_at(const cvy_chain *c, int u) { return cvy_chain_units_parcel(cvy_ledger_layout(c->ledger), u); }

void cvy_chain_note(cvy_chain *c, cvy_chain_times *times, int n_steps) {
  c->notes = (notes){.times = times, .n_steps = n_steps};
}

static bool halted(cvy_chain *c) CVY_HOLDS(c->roster);
static bool halted(cvy_chain *c) { return c->at.stopping || cvy_roster_halted(c->roster); }

/* Waits until *count > than. */
static cvy_status await_more(cvy_chain *c, const int *count, int than) {
  cvy_roster_lock(c->roster);
  while (*count <= than && !halted(c)) cvy_roster_wait(c->roster);
  const bool there = *count > than;
  cvy_roster_unlock(c->roster);
  return there ? CVY_OK : CVY_E_INTERRUPTED;
}

static void set_count(cvy_chain *c, int *count, int value) {
  cvy_roster_lock(c->roster);
  *count = value;
  cvy_roster_wake(c->roster);
  cvy_roster_unlock(c->roster);
}

static void set_flag(cvy_chain *c, bool *flag) {
  cvy_roster_lock(c->roster);
  *flag = true;
  cvy_roster_wake(c->roster);
  cvy_roster_unlock(c->roster);
}

/* ---- up ---- */

static cvy_status parcel_up(cvy_chain *c, int u, int previous, int next) {
  cvy_status status = CVY_OK;
  cvy_chain_unit *const p = &c->units.items[u];
  const bool begun = previous >= 0 && c->before > 0; /* nodes without samples send nothing: 0 + x is not x for -0 */
  const bool packed = c->params.packed && !p->running;
  for (int i = 0; i < p->pieces; i++) {
    size_t at, size;
    cvy_chain_unit_range(p, i, &at, &size);
    float *const sum = p->sum + at;
    if (begun) CVY_TRY(cvy_fleet_take(c->fleet, previous, CVY_LINK_UP, sum, size * sizeof *sum));
    CVY_TRY(await_more(c, &c->at.given, u));
    cvy_chain_unit_add(p, sum, size, begun, packed);
    if (next >= 0 && c->before + c->here > 0)
      CVY_TRY(cvy_fleet_give(c->fleet, next, CVY_LINK_UP, sum, size * sizeof *sum));
    if (c->notes.step) c->notes.step[p->first + i].summed_ns = cvy_clock_ns();
    set_count(c, &c->at.summed, p->first + i + 1);
  }
fail:
  return status;
}

static cvy_status sums_up(cvy_chain *c, int previous, int next) {
  cvy_status status = CVY_OK;
  cvy_chain_sums *const total = c->total.sums;
  const int first = cvy_fleet_first_device(c->fleet);
  memset(total, 0, c->total.bytes);
  if (previous >= 0) CVY_TRY(cvy_fleet_take(c->fleet, previous, CVY_LINK_UP, total, c->total.bytes));
  CVY_TRY(await_more(c, &c->at.given, c->n_units));
  for (int r = 0; r < CVY_CHAIN_REQUESTS; r++) total->asks[r] += cvy_chain_asks(c, (cvy_chain_request)r);
  cvy_chain_sums_add(&c->total, &c->own, c->step->times + first, first, cvy_roster_size(c->roster));
  if (next >= 0) CVY_TRY(cvy_fleet_give(c->fleet, next, CVY_LINK_UP, total, c->total.bytes));
  set_count(c, &c->at.summed, c->n_pieces + 1);
fail:
  return status;
}

/* The word that the head has the commit. */
static cvy_status end_up(cvy_chain *c, int previous, int next) {
  cvy_status status = CVY_OK;
  int64_t number = c->step ? c->step->number : 0;
  if (previous >= 0) CVY_TRY(cvy_fleet_take(c->fleet, previous, CVY_LINK_UP, &number, sizeof number));
  else CVY_TRY(await_more(c, &c->at.updated, c->n_units));
  if (next >= 0) CVY_TRY(cvy_fleet_give(c->fleet, next, CVY_LINK_UP, &number, sizeof number));
  set_flag(c, &c->at.ended);
fail:
  return status;
}

static cvy_status go_up(cvy_chain *c) {
  cvy_status status = CVY_OK;
  const int previous = cvy_fleet_previous(c->fleet), next = cvy_fleet_next(c->fleet);
  for (int u = 0; u < c->n_units; u++) CVY_TRY(parcel_up(c, u, previous, next));
  CVY_TRY(sums_up(c, previous, next));
  CVY_TRY(end_up(c, previous, next));
fail:
  return status;
}

/* ---- down ---- */

static void update(cvy_chain *c, int u, size_t at, size_t size, float scale) {
  const cvy_layout *const l = cvy_ledger_layout(c->ledger);
  const cvy_chain_unit *const p = &c->units.items[u];
  const void *const total[] = {p->sum + at};
  if (p->running) cvy_ledger_update_running(c->ledger, total, 1);
  else
    cvy_ledger_update(c->ledger, c->params.pool, &c->step->update,
                      &(cvy_ledger_piece){.offset = l->buckets[cvy_chain_parcel_at(c, u)].offset + at,
                                          .size = size,
                                          .parts = total,
                                          .n_parts = 1,
                                          .scale = scale});
}

static cvy_status parcel_down(cvy_chain *c, int u, int previous, int next) {
  cvy_status status = CVY_OK;
  const bool clips = c->params.norm.clip > 0;
  const cvy_chain_unit *const p = &c->units.items[u];
  for (int i = 0; i < p->pieces; i++) {
    size_t at, size;
    cvy_chain_unit_range(p, i, &at, &size);
    float *const sum = p->sum + at;
    CVY_TRY(await_more(c, &c->at.summed, p->first + i)); /* then it is sent up, and its memory is free for the total */
    if (next >= 0) CVY_TRY(cvy_fleet_take(c->fleet, next, CVY_LINK_DOWN, sum, size * sizeof *sum));
    if (previous >= 0) CVY_TRY(cvy_fleet_give(c->fleet, previous, CVY_LINK_DOWN, sum, size * sizeof *sum));
    if (p->running || !clips) update(c, u, at, size, 1);
    if (c->notes.step) c->notes.step[p->first + i].updated_ns = cvy_clock_ns();
  }
  if (c->norm.sums && !p->running)
    cvy_grad_norm_add(c->norm.sums, c->params.pool, (size_t)(p->sum - c->units.floats), p->size, p->sum);
  if (p->running || !clips) set_count(c, &c->at.updated, u + 1);
fail:
  return status;
}

/* When all parcels have come down: the norm, and with a limit for it the updates. */
static void finish_norm(cvy_chain *c) {
  const cvy_norm_result norm = cvy_grad_norm_finish(c->norm.sums, c->params.norm.clip);
  c->norm.length = cvy_norm_length(&norm.squares);
  for (int u = 0; c->params.norm.clip > 0 && u < c->units.n; u++) {
    if (!c->units.items[u].running) update(c, u, 0, c->units.items[u].size, norm.scale);
    set_count(c, &c->at.updated, u + 1);
  }
}

/* The flag is set before the commit is passed on: when the head has it, all have it. */
static void commit(cvy_chain *c) {
  cvy_roster_lock(c->roster);
  c->at.committed = true;
  c->at.updated = c->n_units + 1;
  cvy_roster_wake(c->roster);
  cvy_roster_unlock(c->roster);
}

static cvy_status go_down(cvy_chain *c) {
  cvy_status status = CVY_OK;
  const int previous = cvy_fleet_previous(c->fleet), next = cvy_fleet_next(c->fleet);
  for (int u = 0; u < c->n_units; u++) CVY_TRY(parcel_down(c, u, previous, next));
  if (c->norm.sums && c->step->lone < 0) finish_norm(c);
  CVY_TRY(await_more(c, &c->at.summed, c->n_pieces));
  if (next >= 0) CVY_TRY(cvy_fleet_take(c->fleet, next, CVY_LINK_DOWN, c->total.sums, c->total.bytes));
  if (c->norm.sums && c->step->lone >= 0) c->norm.length = c->total.sums->norm;
  commit(c);
  if (previous >= 0) CVY_TRY(cvy_fleet_give(c->fleet, previous, CVY_LINK_DOWN, c->total.sums, c->total.bytes));
fail:
  return status;
}

/* ---- threads ---- */

/* A failure of the link is the end of this round: the monitor has the reason, or will have it. */
static void end_use(cvy_chain *c, cvy_status status) CVY_HOLDS(c->roster);
static void end_use(cvy_chain *c, cvy_status status) {
  c->at.busy--;
  if (status == CVY_E_INTERRUPTED && !c->at.stopping) cvy_roster_halt(c->roster);
  else if (status != CVY_OK && status != CVY_E_INTERRUPTED) cvy_roster_fail(c->roster, status);
  cvy_roster_wake(c->roster);
}

static void serve(cvy_chain *c, bool *due, cvy_status (*go)(cvy_chain *chain)) {
  cvy_roster_lock(c->roster);
  while (!c->at.stopping) {
    if (!*due) {
      cvy_roster_wait(c->roster);
      continue;
    }
    *due = false;
    c->at.busy++;
    cvy_roster_unlock(c->roster);
    const cvy_status status = go(c);
    cvy_roster_lock(c->roster);
    end_use(c, status);
  }
  cvy_roster_unlock(c->roster);
}

static void *up_main(void *arg) {
  cvy_chain *const c = arg;
  serve(c, &c->at.up_due, go_up);
  return NULL;
}

static void *down_main(void *arg) {
  cvy_chain *const c = arg;
  serve(c, &c->at.down_due, go_down);
  return NULL;
}

static void heed_stop(cvy_chain *c) CVY_HOLDS(c->roster);
static void heed_stop(cvy_chain *c) {
  if (!cvy_stop_requested(c->at.stop)) return;
  c->at.asks[CVY_ASKS_STOP] = true;
  if (c->at.moved_ns == 0 || c->at.busy == 0 || c->at.moved != c->at.done) {
    c->at.moved_ns = cvy_clock_ns();
    c->at.moved = c->at.done;
  } else if (!c->link->survives && !c->at.gave_up && cvy_clock_seconds_since(c->at.moved_ns) > STOP_S) {
    c->at.gave_up = true;
    cvy_roster_halt(c->roster);
  }
}

static void *monitor_main(void *arg) {
  cvy_chain *const c = arg;
  for (;;) {
    cvy_roster_lock(c->roster);
    heed_stop(c);
    const bool stopping = c->at.stopping, failed = cvy_roster_status(c->roster) != CVY_OK && c->at.busy > 0;
    cvy_roster_unlock(c->roster);
    if (stopping) return NULL;
    if (failed) cvy_link_interrupt(c->link); /* no exchange thread comes to end the round */
    cvy_membership_listen(c->membership, LISTEN_S);
  }
}

cvy_status cvy_chain_start(cvy_chain *c) {
  cvy_status status = CVY_OK;
  static const struct {
    const char *name;
    void *(*main)(void *chain);
  } threads[] = {{"cvy-up", up_main}, {"cvy-down", down_main}, {"cvy-monitor", monitor_main}};
  for (int i = 0; i < 3; i++) {
    CVY_TRY(cvy_thread_start(&c->threads[i], threads[i].name, threads[i].main, c));
    c->n_threads++;
  }
fail:
  return status;
}

void cvy_chain_stop(cvy_chain *c) {
  set_flag(c, &c->at.stopping);
  cvy_membership_stop(c->membership);
  cvy_roster_lock(c->roster);
  const bool using = c->at.busy > 0;
  cvy_roster_unlock(c->roster);
  if (using) cvy_link_interrupt(c->link);
  while (c->n_threads > 0) cvy_thread_join(c->threads[--c->n_threads]);
}

/* ---- exchange thread: a step ---- */

void cvy_chain_begin(cvy_chain *c, const cvy_step *step) {
  const int first = cvy_fleet_first_of(c->fleet, cvy_fleet_rank(c->fleet));
  c->step = step;
  c->n_units = step->lone < 0 ? c->units.n : 0;
  c->n_pieces = step->lone < 0 ? c->units.n_pieces : 0;
  c->before = c->here = 0;
  for (int i = 0; i < first; i++) c->before += step->all_shares[i];
  for (int i = 0; i < cvy_roster_size(c->roster); i++) c->here += step->shares[i];
  const bool noting = step->lone < 0 && c->notes.noted < c->notes.n_steps;
  cvy_chain_pace_begin(&c->pace, c->fleet, c->params.device_timeout_s);
  c->notes.step = noting ? c->notes.times + (size_t)c->units.n_pieces * (size_t)c->notes.noted++ : NULL;
  cvy_roster_lock(c->roster);
  c->at.given = c->at.summed = c->at.updated = 0;
  c->at.committed = c->at.ended = false;
  c->at.stepping = c->at.up_due = c->at.down_due = true;
  cvy_roster_wake(c->roster);
  cvy_roster_unlock(c->roster);
}

void cvy_chain_give(cvy_chain *c, const void *const *parts, int n_parts) {
  cvy_chain_unit *const p = &c->units.items[c->at.given]; /* this thread alone changes `given` */
  if (n_parts > 0) memcpy(p->parts, parts, (size_t)n_parts * sizeof *parts);
  p->n_parts = n_parts;
  for (int i = 0; c->notes.step && i < p->pieces; i++) c->notes.step[p->first + i].given_ns = cvy_clock_ns();
  set_count(c, &c->at.given, c->at.given + 1);
}

void cvy_chain_give_sums(cvy_chain *c, const double *losses, int n, int64_t correct, double norm) {
  memcpy(c->own.losses, losses, (size_t)n * sizeof *losses);
  c->own.n_losses = n;
  c->own.correct = correct;
  c->own.norm = norm;
  set_count(c, &c->at.given, c->n_units + 1);
}

int cvy_chain_await_updates(cvy_chain *c, int than) {
  cvy_roster_lock(c->roster);
  while (c->at.updated <= than && !halted(c)) cvy_roster_wait(c->roster);
  const int updated = c->at.updated > than ? c->at.updated : -1;
  cvy_roster_unlock(c->roster);
  return updated > c->n_units ? c->n_units : updated;
}

int cvy_chain_updates(cvy_chain *c) { return cvy_chain_await_updates(c, -1); }

bool cvy_chain_await_end(cvy_chain *c, cvy_chain_sums *total) {
  cvy_roster_lock(c->roster);
  while ((!c->at.ended || c->at.busy > 0) && !halted(c)) cvy_roster_wait(c->roster);
  const bool ended = c->at.ended && c->at.busy == 0;
  if (ended) {
    c->at.done++;
    c->at.stepping = c->at.committed = false;
    *total = *c->total.sums;
    cvy_chain_pace_end(&c->pace);
  }
  cvy_roster_unlock(c->roster);
  return ended;
}

const cvy_step_time *cvy_chain_measured(const cvy_chain *c) { return c->total.times; }
double cvy_chain_grad_norm(const cvy_chain *c) { return c->norm.length; }

/* ---- exchange thread: after a halt ---- */

void cvy_chain_rest(cvy_chain *c) {
  cvy_link_interrupt(c->link);
  cvy_roster_lock(c->roster);
  c->at.up_due = c->at.down_due = false;
  while (c->at.busy > 0) cvy_roster_wait(c->roster);
  cvy_roster_unlock(c->roster);
}

bool cvy_chain_gave_up(cvy_chain *c) {
  bool none[CVY_FLEET_DEVICES] = {false};
  cvy_roster_lock(c->roster);
  const bool gave_up = c->at.gave_up;
  const cvy_standing mine = {.done = c->at.done + c->at.committed, .devices = none};
  cvy_roster_unlock(c->roster);
  if (gave_up) cvy_membership_leave(c->membership, &mine);
  return gave_up;
}

cvy_status cvy_chain_agree(cvy_chain *c, bool *stops, bool *devices, bool *done, cvy_chain_sums *total) {
  cvy_status status = CVY_OK;
  const int n = cvy_roster_size(c->roster);
  bool *const own = cvy_calloc((size_t)n, sizeof *own);
  cvy_standing mine = {.stops = *stops, .devices = own}, agreed = {.devices = devices};
  *done = false;
  CVY_REQUIRE(own, CVY_E_MEMORY, "out of host memory");
  cvy_roster_lock(c->roster);
  (void)cvy_roster_present(c->roster, own);
  mine.counted = c->at.done;
  mine.done = c->at.done + c->at.committed;
  cvy_roster_unlock(c->roster);
  CVY_TRY(cvy_membership_meet(c->membership, &mine, &agreed));
  cvy_roster_lock(c->roster);
  c->at.round = cvy_fleet_round(c->fleet);
  c->pace.steps = 0;              /* other shares, and kernels for them */
  if (agreed.done > c->at.done) { /* all that are left have the commit */
    c->at.done++;
    *done = c->at.stepping;
    c->at.reduced = !c->at.stepping;
    if (c->at.reduced && c->at.counted.fn) c->at.counted.fn(c->at.counted.user, c->roster);
    *total = *c->total.sums;
  }
  c->at.stepping = c->at.committed = false;
  *stops = agreed.stops;
  cvy_roster_unlock(c->roster);
fail:
  cvy_free(own);
  return status;
}

bool cvy_chain_has_news(const cvy_chain *c) { return cvy_membership_has_news(c->membership); }
bool cvy_chain_meets_again(cvy_chain *c) {
  const bool misses = cvy_fleet_is_opening(c->fleet) && cvy_membership_misses_one(c->membership);
  if (misses) cvy_fleet_note_loss(c->fleet);
  return misses;
}
int cvy_chain_next_lost(cvy_chain *c, cvy_link_news *how) { return cvy_membership_next_lost(c->membership, how); }
int cvy_chain_stopper(const cvy_chain *c, bool *asked) { return cvy_membership_stopper(c->membership, asked); }

/* ---- caller ---- */

void cvy_chain_ask(cvy_chain *c, cvy_chain_request request, bool asks) {
  cvy_roster_lock(c->roster);
  c->at.asks[request] = asks;
  cvy_roster_unlock(c->roster);
}

bool cvy_chain_asks(cvy_chain *c, cvy_chain_request request) {
  cvy_roster_lock(c->roster);
  const bool asks = c->at.asks[request];
  cvy_roster_unlock(c->roster);
  return asks;
}

void cvy_chain_set_stop(cvy_chain *c, const cvy_stop *stop) {
  cvy_roster_lock(c->roster);
  c->at.stop = stop;
  c->at.moved_ns = 0;
  cvy_roster_unlock(c->roster);
}

cvy_status cvy_chain_settle(cvy_chain *c, uint32_t *round) {
  cvy_roster_lock(c->roster);
  while (cvy_roster_halted(c->roster) && cvy_roster_status(c->roster) == CVY_OK) cvy_roster_wait(c->roster);
  const cvy_status status = cvy_roster_status(c->roster);
  *round = c->at.round;
  cvy_roster_unlock(c->roster);
  return status;
}

/* An operation of the callers: bytes that go down at its end. */
typedef struct operation {
  void *data;
  size_t bytes;
  void (*add)(void *user, void *data);
  void *user;
  int from; /* blocks of this node go to all others before it */
  const cvy_chain_block *blocks;
  int n_blocks;
} operation;

static cvy_status operate(cvy_chain *c, const operation *o) {
  cvy_status status = CVY_OK;
  const int previous = cvy_fleet_previous(c->fleet), next = cvy_fleet_next(c->fleet);
  for (int b = 0; b < o->n_blocks; b++)
    CVY_TRY(cvy_chain_block_pass(c->fleet, o->from, &o->blocks[b], c->params.piece));
  if (previous >= 0) CVY_TRY(cvy_fleet_take(c->fleet, previous, CVY_LINK_UP, o->data, o->bytes));
  if (o->add) o->add(o->user, o->data);
  if (next >= 0) {
    CVY_TRY(cvy_fleet_give(c->fleet, next, CVY_LINK_UP, o->data, o->bytes));
    CVY_TRY(cvy_fleet_take(c->fleet, next, CVY_LINK_DOWN, o->data, o->bytes));
  }
  commit(c);
  if (previous >= 0) CVY_TRY(cvy_fleet_give(c->fleet, previous, CVY_LINK_DOWN, o->data, o->bytes));
  CVY_TRY(end_up(c, previous, next));
fail:
  return status;
}

static cvy_status run(cvy_chain *c, uint32_t round, const operation *o, counted counted, bool *again) {
  cvy_roster_lock(c->roster);
  const bool go = !halted(c) && round == c->at.round;
  *again = !go;
  c->at.reduced = false;
  c->at.counted = counted;
  if (go) {
    c->at.stepping = c->at.committed = c->at.ended = false;
    c->at.busy++;
  }
  cvy_roster_unlock(c->roster);
  if (go) {
    cvy_chain_pace_operation(&c->pace, c->fleet, c->params.device_timeout_s);
    const cvy_status status = operate(c, o);
    cvy_roster_lock(c->roster);
    if (status == CVY_OK) {
      c->at.done++;
      c->at.committed = false;
      if (counted.fn) counted.fn(counted.user, c->roster);
      c->pace.ended_ns = cvy_clock_ns();
    }
    end_use(c, status);
    cvy_roster_unlock(c->roster);
    if (status == CVY_OK) return CVY_OK;
  }
  const cvy_status team = cvy_roster_settle(c->roster);
  cvy_roster_lock(c->roster);
  *again = !c->at.reduced;
  cvy_roster_unlock(c->roster);
  return team;
}

cvy_status cvy_chain_reduce(cvy_chain *c, uint32_t round, void *data, size_t bytes, void (*add)(void *user, void *data),
                            void *user, bool *again) {
  return run(c, round, &(operation){.data = data, .bytes = bytes, .add = add, .user = user}, (counted){0}, again);
}

/* The word that goes up and down behind the blocks says that every node has them. */
cvy_status cvy_chain_spread(cvy_chain *c, uint32_t round, int from, const cvy_chain_block *blocks, int n_blocks,
                            void (*fn)(void *user, cvy_roster *roster), void *user, bool *again) {
  char word = 0;
  const operation o = {.data = &word, .bytes = sizeof word, .from = from, .blocks = blocks, .n_blocks = n_blocks};
  return run(c, round, &o, (counted){fn, user}, again);
}
