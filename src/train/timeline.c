/* SPDX-License-Identifier: MIT
 * Outline: clocks · commands of a device · works of the host · the end of a step · the trace · the public side. */
#include "src/train/timeline.h"

#include <limits.h>
#include <string.h>

#include "src/base/clock.h"
#include "src/base/mem.h"
#include "src/cl/profile.h"
#include "src/train/team.h"
#include "src/train/trace_rows.h"
#include "src/train/usage.h"

enum {
  CLOCK_TRIES = 20,
  CLOCK_SLACK_NS = 1000,            /* drivers round */
  DRIFT_NS = 2000000000,            /* the drift is looked at in stretches of so long … */
  DRIFT_COMMANDS = 200              /* … with at least so many commands */
};

typedef struct device_line {
  cvy_timeline *timeline;
  cvy_replica *replica;
  bool left_out;
  pthread_mutex_t asking;           /* who asks the device; never taken with the timeline's lock: it may hang */
  cvy_command *fetched;             /* what it has said, under `asking` */
  size_t n_fetched, fetched_capacity;
  bool fetch_failed;
  /* its clock: host = device + offset_ns */
  int64_t offset_ns, error_ns;
  int64_t least_ns, first_least_ns, first_offset_ns;   /* of (enqueued by the host's clock - queued by the device's) */
  uint64_t least_since_ns;
  int least_commands;
  bool has_first_least;
  /* llvmpipe says that a kernel began when it ended: then it began when the one before ended, or when it was enqueued */
  uint64_t said_ns, possible_ns;
  bool starts_known, starts_wrong;
  uint64_t queue_end_ns[CVY_QUEUES];         /* of the last command of each queue */
  uint64_t result_ns;               /* when the result of the step that is being finished was there; 0: unknown */
  cvy_spans uses[CVY_USE_IDLE];
  uint64_t cursor_ns;               /* what is before is divided */
  uint64_t ns[CVY_USES];
  uint64_t early_ns;                /* computed for the first step that counts, before the one before it was over */
  long images;
  cvy_row_command *slices;          /* not yet written */
  size_t n_slices, slices_capacity;
} device_line;

struct cvy_timeline {
  device_line *lines;
  int n;
  pthread_mutex_t inbox_lock;       /* inbox, tracing: held for moments only */
  cvy_row_work *inbox, *works;      /* works: being looked at, under `lock` */
  size_t n_inbox, inbox_capacity, works_capacity;
  bool tracing, out_of_memory;
  pthread_mutex_t lock;             /* everything else */
  uint64_t last_done_ns, update_ns, total_ns;
  long steps;
  cvy_trace *trace;
};

/* ---- clocks ---- */

static bool find_offset(device_line *d) {
  cvy_clock_bounds queued = {INT64_MIN, INT64_MAX}, done = queued;
  cvy_clock_pair p;
  for (int i = 0; i < CLOCK_TRIES; i++) {
    if (cvy_profile_clocks(d->replica->device, &p) != CVY_OK) return false;
    if (i == 0) continue;   /* the first one wakes threads up */
    queued = cvy_clock_intersect(
        queued, cvy_clock_between(p.queued_ns, p.host_before - CLOCK_SLACK_NS, p.host_enqueued + CLOCK_SLACK_NS));
    done = cvy_clock_intersect(done,
                               cvy_clock_between(p.end_ns, p.host_before - CLOCK_SLACK_NS, p.host_done + CLOCK_SLACK_NS));
  }
  const cvy_clock_bounds both = cvy_clock_intersect(queued, done);
  const cvy_clock_bounds best = both.low_ns <= both.high_ns ? both : done;
  if (best.low_ns > best.high_ns) return false;
  d->offset_ns = best.low_ns + (best.high_ns - best.low_ns) / 2;
  d->error_ns = (best.high_ns - best.low_ns) / 2;
  return true;
}

/* On the device's thread, where the watch sees it hang. */
static cvy_status place_clock(void *owner, void *arg) {
  device_line *const d = arg;
  (void)owner;
  d->left_out = !find_offset(d);
  return CVY_OK;
}

static uint64_t to_host(const device_line *d, uint64_t device_ns) { return device_ns + (uint64_t)d->offset_ns; }

/* A command is queued before the host says that it was enqueued: the least distance of many is that of the clocks, but for
 * a constant. */
static void follow_drift(device_line *d, const cvy_command *c) {
  const int64_t distance = (int64_t)(c->enqueued_ns - c->queued_ns);
  if (d->least_commands == 0) {
    d->least_ns = distance;
    d->least_since_ns = c->enqueued_ns;
  }
  if (distance < d->least_ns) d->least_ns = distance;
  d->least_commands++;
  if (d->least_commands < DRIFT_COMMANDS || c->enqueued_ns - d->least_since_ns < DRIFT_NS) return;
  d->least_commands = 0;
  if (!d->has_first_least) {
    d->has_first_least = true;
    d->first_least_ns = d->least_ns;
    d->first_offset_ns = d->offset_ns;
  } else {
    d->offset_ns = d->first_offset_ns + (d->least_ns - d->first_least_ns);
  }
}

/* ---- commands of a device ---- */

static uint64_t later(uint64_t a, uint64_t b) { return a > b ? a : b; }

/* Whether the driver's beginnings of kernels are real is seen in the first step: a queue that has work is not empty for
 * nineteen twentieths of its time. */
static void judge_starts(device_line *d) {
  if (d->starts_known || d->possible_ns == 0) return;
  d->starts_known = true;
  d->starts_wrong = d->said_ns < d->possible_ns / 20;
}

static void keep_slice(device_line *d, const cvy_row_command *s) {
  cvy_row_command *const slices = cvy_grow(d->slices, d->n_slices, &d->slices_capacity, 1024, sizeof *slices);
  if (!slices) {
    d->timeline->out_of_memory = true;
    return;
  }
  d->slices = slices;
  d->slices[d->n_slices++] = *s;
}

static void on_command(device_line *d, const cvy_command *c) {
  uint64_t *const last = &d->queue_end_ns[c->queue];
  follow_drift(d, c);
  const uint64_t end = to_host(d, c->end_ns), possible = later(c->enqueued_ns, *last);
  uint64_t begin = later(to_host(d, c->start_ns), *last);
  if (c->kind == CVY_COMMAND_KERNEL) {
    if (!d->starts_known && c->end_ns > c->start_ns) d->said_ns += c->end_ns - c->start_ns;
    if (!d->starts_known && end > possible) d->possible_ns += end - possible;
    if (d->starts_wrong) begin = possible;
  } else if (c->kind == CVY_COMMAND_WAIT) {
    begin = possible;
  }
  const cvy_use use = c->kind == CVY_COMMAND_KERNEL     ? CVY_USE_COMPUTING
                      : c->kind == CVY_COMMAND_TRANSFER ? CVY_USE_EXCHANGING
                                                        : CVY_USE_WAITING;
  if (!cvy_spans_add(&d->uses[use], begin, end)) d->timeline->out_of_memory = true;
  *last = later(*last, end);
  if (d->timeline->trace) {
    const cvy_row_command s = {.begin_ns = begin < end ? begin : end, .end_ns = end, .name = c->name, .kind = c->kind,
                     .queue = c->queue, .scope = c->scope, .step = c->step, .bytes = c->bytes};
    keep_slice(d, &s);
  }
}

/* A device that has failed, or is closed, is not asked again. */
static bool is_lost(const cvy_replica *r) {
  pthread_mutex_lock(r->lock);
  const bool lost = r->lost || r->failure != CVY_OK;
  pthread_mutex_unlock(r->lock);
  return lost;
}

static void fetch(void *user, const cvy_command *c) {
  device_line *const d = user;
  cvy_command *const fetched = cvy_grow(d->fetched, d->n_fetched, &d->fetched_capacity, 256, sizeof *fetched);
  d->fetch_failed |= !fetched;
  if (!fetched) return;
  d->fetched = fetched;
  d->fetched[d->n_fetched++] = *c;
}

/* On the device's worker, or on the exchange thread, where the watch sees the driver hang; then nothing is held that others
 * need. */
static void take_commands(device_line *d, bool on_exchange) {
  cvy_timeline *const t = d->timeline;
  bool good = !is_lost(d->replica);
  const bool entered = good && on_exchange && cvy_replica_enter(d->replica);
  good = good && (entered || !on_exchange);
  if (good) {
    pthread_mutex_lock(&d->asking);
    good = cvy_profile_take(d->replica->device, fetch, d) == CVY_OK;
    pthread_mutex_lock(&t->lock);
    t->out_of_memory |= d->fetch_failed;
    d->left_out |= !good;
    for (size_t i = 0; i < d->n_fetched && !d->left_out; i++) on_command(d, &d->fetched[i]);
    pthread_mutex_unlock(&t->lock);
    d->n_fetched = 0;
    pthread_mutex_unlock(&d->asking);
  } else {
    pthread_mutex_lock(&t->lock);
    d->left_out = true;
    pthread_mutex_unlock(&t->lock);
  }
  if (entered) cvy_replica_leave(d->replica, CVY_OK);
}

/* Everything but what belongs to steps after `step`. */
static void write_slices(device_line *d, long step) {
  if (d->left_out) d->n_slices = 0;   /* their names are the device's, which may be closed */
  if (d->timeline->trace)
    d->n_slices = cvy_rows_commands(d->timeline->trace, d->replica, d->slices, d->n_slices, step);
}

/* ---- works of the host ---- */

uint64_t cvy_timeline_now(const cvy_timeline *t) { return t ? cvy_clock_ns() : 0; }

void cvy_timeline_work(cvy_timeline *t, cvy_work work, int replica, int unit, long step, uint64_t begin_ns) {
  if (!t) return;
  const uint64_t end_ns = cvy_clock_ns();
  pthread_mutex_lock(&t->inbox_lock);
  if (t->tracing || work == CVY_WORK_WEIGHTS || work == CVY_WORK_UPDATE) {   /* the sums need these */
    cvy_row_work *const works = cvy_grow(t->inbox, t->n_inbox, &t->inbox_capacity, 256, sizeof *works);
    if (works) {
      t->inbox = works;
      t->inbox[t->n_inbox++] = (cvy_row_work){work, replica, unit, step, begin_ns, end_ns};
    } else {
      t->out_of_memory = true;
    }
  }
  pthread_mutex_unlock(&t->inbox_lock);
}

/* Under `lock`. */
static void take_works(cvy_timeline *t) {
  pthread_mutex_lock(&t->inbox_lock);
  cvy_row_work *const works = t->inbox;
  const size_t n = t->n_inbox, capacity = t->inbox_capacity;
  t->inbox = t->works;
  t->inbox_capacity = t->works_capacity;
  t->n_inbox = 0;
  t->works = works;
  t->works_capacity = capacity;
  pthread_mutex_unlock(&t->inbox_lock);
  for (size_t i = 0; i < n; i++) {
    const cvy_row_work *const w = &works[i];
    if (w->work == CVY_WORK_UPDATE) t->update_ns += w->end_ns - w->begin_ns;
    if (w->work == CVY_WORK_WEIGHTS && !cvy_spans_add(&t->lines[w->replica].uses[CVY_USE_WAITING], w->begin_ns, w->end_ns))
      t->out_of_memory = true;
    if (t->trace) cvy_rows_work(t->trace, t->lines[0].replica->layout, w);
  }
}

/* ---- the end of a step ---- */

static void divide(device_line *d, uint64_t until_ns) {
  if (until_ns <= d->cursor_ns) return;
  cvy_usage_divide(d->cursor_ns, until_ns, d->uses, d->ns);
  d->cursor_ns = until_ns;
}

static void forget(device_line *d) {
  for (int u = 0; u < CVY_USE_IDLE; u++) cvy_spans_forget(&d->uses[u], d->cursor_ns);
}

void cvy_timeline_result(cvy_timeline *t, int replica, uint64_t ended_ns) {
  if (!t || !ended_ns) return;
  pthread_mutex_lock(&t->lock);
  if (!t->lines[replica].left_out) t->lines[replica].result_ns = to_host(&t->lines[replica], ended_ns);
  pthread_mutex_unlock(&t->lock);
}

/* When the device was done with the step that is being finished; `unknown` if it had no part in it, or does not say. */
static uint64_t end_of_step(const device_line *d, const cvy_step *step, uint64_t unknown_ns) {
  return step->shares[d->replica->index] > 0 && d->result_ns ? d->result_ns : unknown_ns;
}

/* Within its beginning and when it was seen, since how clocks lie to each other is known within bounds only. */
static uint64_t done_at(const cvy_timeline *t, const cvy_step *step, uint64_t begin_ns, uint64_t exchanged_ns,
                        uint64_t seen_ns) {
  uint64_t done_ns = later(begin_ns, exchanged_ns);
  for (int r = 0; r < t->n; r++)
    if (step->shares[r] > 0) done_ns = later(done_ns, end_of_step(&t->lines[r], step, seen_ns));
  return done_ns < seen_ns ? done_ns : seen_ns;
}

void cvy_timeline_fetch(cvy_timeline *t) {
  for (int r = 0; t && r < t->n; r++) take_commands(&t->lines[r], true);
}

uint64_t cvy_timeline_step_done(cvy_timeline *t, const cvy_step *step, uint64_t exchanged_ns, uint64_t seen_ns) {
  if (!t) return seen_ns;
  pthread_mutex_lock(&t->lock);
  if (t->steps == 1) {   /* the first one compiled kernels: it does not count any more */
    t->total_ns = t->update_ns = 0;
    for (int r = 0; r < t->n; r++) {
      device_line *const d = &t->lines[r];
      uint64_t early[CVY_USES] = {0};
      cvy_usage_divide(d->cursor_ns, t->last_done_ns, d->uses, early);
      d->early_ns = early[CVY_USE_COMPUTING];
      memset(d->ns, 0, sizeof d->ns);
      d->images = 0;
      d->cursor_ns = later(d->cursor_ns, t->last_done_ns);
    }
  }
  take_works(t);
  const uint64_t begin_ns = step->begun_ns ? step->begun_ns : t->last_done_ns;
  const uint64_t done_ns = done_at(t, step, begin_ns, exchanged_ns, seen_ns);
  for (int r = 0; r < t->n; r++) {
    device_line *const d = &t->lines[r];
    judge_starts(d);
    if (step->begun_ns) {   /* the time since the last step was not a step's */
      divide(d, t->last_done_ns);
      d->cursor_ns = step->begun_ns;
    }
    const uint64_t said_ns = end_of_step(d, step, done_ns), end_ns = said_ns < done_ns ? said_ns : done_ns;
    d->result_ns = 0;
    divide(d, end_ns);
    if (t->n > 1 && !cvy_spans_add(&d->uses[CVY_USE_WAITING], end_ns, done_ns)) t->out_of_memory = true;
    forget(d);
    d->images += step->shares[r];
    write_slices(d, step->number);
  }
  if (t->trace) cvy_rows_step(t->trace, step, begin_ns, done_ns);
  t->total_ns += done_ns - begin_ns;
  t->last_done_ns = done_ns;
  t->steps++;
  pthread_mutex_unlock(&t->lock);
  return done_ns;
}

void cvy_timeline_drain(cvy_timeline *t, const cvy_replica *replica) {
  if (!t) return;
  device_line *const d = &t->lines[replica->index];
  take_commands(d, false);
  pthread_mutex_lock(&t->lock);
  take_works(t);
  write_slices(d, LONG_MAX);   /* no step is under way */
  divide(d, t->last_done_ns);
  d->cursor_ns = later(d->cursor_ns, cvy_clock_ns());   /* what was not a step's is not kept for one */
  forget(d);
  pthread_mutex_unlock(&t->lock);
}

/* ---- life ---- */

cvy_status cvy_timeline_create(cvy_replica *replicas, int n, cvy_timeline **out) {
  cvy_status status = CVY_OK;
  cvy_timeline *t = cvy_calloc(1, sizeof *t);
  *out = NULL;
  CVY_REQUIRE(t, CVY_E_MEMORY, "out of host memory");
  pthread_mutex_init(&t->lock, NULL);
  pthread_mutex_init(&t->inbox_lock, NULL);
  t->lines = cvy_calloc((size_t)n, sizeof *t->lines);
  CVY_REQUIRE(t->lines, CVY_E_MEMORY, "out of host memory");
  t->n = n;
  for (int r = 0; r < n; r++) pthread_mutex_init(&t->lines[r].asking, NULL);
  for (int r = 0; r < n; r++) {
    device_line *const d = &t->lines[r];
    d->timeline = t;
    d->replica = &replicas[r];
    CVY_TRY(cvy_worker_call(replicas[r].worker, place_clock, d));
    if (d->left_out) cvy_log_info("%s: its driver's times are of no use", cvy_device_label(replicas[r].device));
  }
  *out = t;
  return CVY_OK;
fail:
  cvy_timeline_destroy(&t);
  return status;
}

static cvy_status end_trace(cvy_timeline *t, cvy_trace_totals *out) {
  cvy_status status = CVY_OK;
  pthread_mutex_lock(&t->lock);
  if (out) *out = (cvy_trace_totals){.first_left_out = -1};
  if (t->trace) {
    json_t *const errors = json_array();
    take_works(t);
    for (int r = 0; r < t->n; r++) {
      device_line *const d = &t->lines[r];
      d->left_out = d->left_out || is_lost(d->replica);
      write_slices(d, LONG_MAX);
      json_array_append_new(errors, d->left_out ? json_null() : json_real(1e-3 * (double)d->error_ns));
    }
    if (out)
      *out = (cvy_trace_totals){.events = cvy_trace_events(t->trace),
                                .left_out = cvy_trace_left_out(t->trace),
                                .first_left_out = cvy_trace_first_left_out(t->trace)};
    status = cvy_trace_close(&t->trace, json_pack("{so}", "clock_error_us", errors));
    pthread_mutex_lock(&t->inbox_lock);
    t->tracing = false;
    pthread_mutex_unlock(&t->inbox_lock);
  }
  pthread_mutex_unlock(&t->lock);
  return status;
}

void cvy_timeline_destroy(cvy_timeline **timeline) {
  cvy_timeline *const t = *timeline;
  if (!t) return;
  CVY_ASSERT(!t->trace);
  for (int r = 0; r < t->n; r++) {
    pthread_mutex_destroy(&t->lines[r].asking);
    cvy_free(t->lines[r].fetched);
    for (int u = 0; u < CVY_USE_IDLE; u++) cvy_spans_clear(&t->lines[r].uses[u]);
    cvy_free(t->lines[r].slices);
  }
  cvy_free(t->lines);
  cvy_free(t->inbox);
  cvy_free(t->works);
  pthread_mutex_destroy(&t->lock);
  pthread_mutex_destroy(&t->inbox_lock);
  cvy_free(t);
  *timeline = NULL;
}

/* ---- the public side ---- */

/* What the device computed ahead of time it has waited for, or stood idle, later. */
static void count_early(uint64_t early_ns, uint64_t ns[CVY_USES]) {
  for (int u = CVY_USE_WAITING; u <= CVY_USE_IDLE; u++) {
    const uint64_t moved_ns = early_ns < ns[u] ? early_ns : ns[u];
    ns[u] -= moved_ns;
    ns[CVY_USE_COMPUTING] += moved_ns;
    early_ns -= moved_ns;
  }
}

bool cvy_team_device_times(cvy_team *team, int device, cvy_device_times *out) {
  cvy_timeline *const t = team->timeline;
  *out = (cvy_device_times){0};
  if (!t || device < 0 || device >= t->n) return false;
  pthread_mutex_lock(&t->lock);
  device_line *const d = &t->lines[device];
  uint64_t ns[CVY_USES];
  memcpy(ns, d->ns, sizeof ns);
  cvy_usage_divide(d->cursor_ns, t->last_done_ns, d->uses, ns);
  count_early(d->early_ns, ns);
  *out = (cvy_device_times){.steps = t->steps > 1 ? t->steps - 1 : t->steps,
                            .images = d->images,
                            .finished = t->steps,
                            .total_ms = 1e-6 * (double)t->total_ns,
                            .computing_ms = 1e-6 * (double)ns[CVY_USE_COMPUTING],
                            .exchanging_ms = 1e-6 * (double)ns[CVY_USE_EXCHANGING],
                            .waiting_ms = 1e-6 * (double)ns[CVY_USE_WAITING],
                            .idle_ms = 1e-6 * (double)ns[CVY_USE_IDLE],
                            .update_ms = 1e-6 * (double)t->update_ns,
                            .clock_error_us = 1e-3 * (double)d->error_ns};
  const bool known = !d->left_out && !t->out_of_memory;
  pthread_mutex_unlock(&t->lock);
  return known;
}

cvy_status cvy_team_trace_begin(cvy_team *team, const char *path, long events_max) {
  cvy_status status = CVY_OK;
  cvy_timeline *const t = team->timeline;
  bool traced = false;
  CVY_REQUIRE(t, CVY_E_ARGUMENT, "%s: no trace of a team whose devices keep no times", path);
  CVY_REQUIRE(events_max >= 0, CVY_E_ARGUMENT, "%s: a trace of %ld events: must be 0 (a million) or more", path, events_max);
  CVY_TRY(cvy_team_wait(team));
  pthread_mutex_lock(&t->lock);
  traced = t->trace != NULL;
  if (!traced) status = cvy_trace_open(path, events_max ? events_max : 1000000, cvy_clock_ns(), &t->trace);
  if (t->trace && !traced) cvy_rows_name(t->trace, team->devices, t->n);
  pthread_mutex_lock(&t->inbox_lock);
  t->tracing = t->trace != NULL;
  pthread_mutex_unlock(&t->inbox_lock);
  pthread_mutex_unlock(&t->lock);
  CVY_REQUIRE(!traced, CVY_E_ARGUMENT, "%s: the team is traced already", path);
fail:
  return status;
}

typedef struct last_args {
  cvy_timeline *timeline;
  bool finish;                      /* uploads of the last step may still be under way: their times come when they are done */
} last_args;

static cvy_status take_last(void *owner, void *arg) {
  cvy_status status = CVY_OK;
  cvy_replica *const r = owner;
  const last_args *const a = arg;
  if (a->finish) CVY_TRY(cvy_device_finish(r->device));
  take_commands(&a->timeline->lines[r->index], false);
fail:
  return status;
}

static bool is_traced(cvy_timeline *t) {
  pthread_mutex_lock(&t->lock);
  const bool traced = t->trace != NULL;
  pthread_mutex_unlock(&t->lock);
  return traced;
}

cvy_status cvy_team_trace_end(cvy_team *team, cvy_trace_totals *out) {
  cvy_timeline *const t = team->timeline;
  bool good = true;
  if (out) *out = (cvy_trace_totals){.first_left_out = -1};
  if (!t || !is_traced(t)) return CVY_OK;
  last_args args = {.timeline = t, .finish = cvy_team_wait(team) == CVY_OK};
  (void)cvy_team_try_all(team, take_last, &args, &good);
  if (!good) (void)cvy_team_wait(team);
  for (int r = 0; r < team->n; r++)
    if (team->replicas[r].lost)
      cvy_log_warning("the trace does not have all of device %d (%s), which is lost", r, cvy_devices_label(team->devices, r));
  return end_trace(t, out);
}
