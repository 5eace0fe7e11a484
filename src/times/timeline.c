/* SPDX-License-Identifier: MIT
 * Outline: clocks · commands of a device · works of the host · the end of a step · life · the public functions. */
#include "src/times/timeline.h"

#include <limits.h>
#include <string.h>

#include "src/base/clock.h"
#include "src/base/mem.h"
#include "src/base/sync.h"
#include "src/cl/devices/devices.h"
#include "src/cl/command_times.h"
#include "src/times/trace_rows.h"
#include "src/times/usage.h"

enum {
  CLOCK_TRIES = 20,
  CLOCK_SLACK_NS = 1000, /* drivers round */
  DRIFT_NS = 2000000000, /* the drift is measured over stretches of so long … */
  DRIFT_COMMANDS = 200   /* … with at least so many commands */
};

/* The relation of a device's clock to the host's: host = device + offset_ns. */
typedef struct device_clock {
  int64_t offset_ns, error_ns;
  int64_t least_ns, first_least_ns, first_offset_ns; /* of (enqueued by the host's clock - queued by the device's) */
  uint64_t least_since_ns;
  int least_commands;
  bool has_first_least;
} device_clock;

/* llvmpipe reports a kernel's end as its beginning. The beginning of such a kernel is then the end of the previous one,
 * or the time of its enqueuing. */
typedef struct kernel_starts {
  uint64_t said_ns, possible_ns; /* sums of the kernels' times: as reported, and since they could have begun */
  bool known, wrong;
} kernel_starts;

/* A device's reported times that are not processed yet, under `asking`. No thread holds this lock together with the
 * timeline's, since the device may hang in the call. */
typedef struct device_answers {
  cvy_mutex asking;
  cvy_command *items;
  size_t n, capacity;
  bool failed;
} device_answers;

typedef struct device_line {
  cvy_timeline *timeline;
  struct cvy_device *device;
  cvy_row_source source;
  bool left_out;
  device_answers answers;
  device_clock clock;
  kernel_starts starts;
  uint64_t queue_end_ns[CVY_QUEUES]; /* of the last command of each queue */
  uint64_t result_ns;                /* arrival of the current step's result; 0: unknown */
  cvy_spans uses[CVY_USE_IDLE];
  uint64_t cursor_ns; /* the time up to here is divided among the uses */
  uint64_t ns[CVY_USES];
  uint64_t early_ns; /* computed for the first step that counts, before the previous one was over */
  long images;
  cvy_row_command *slices; /* not yet written */
  size_t n_slices, slices_capacity;
} device_line;

struct cvy_timeline {
  const cvy_devices *devices;
  const cvy_layout *layout;
  device_line *lines;
  int n;
  cvy_mutex inbox_lock;        /* inbox, tracing, samples, first_step: held for moments only */
  cvy_row_work *inbox, *works; /* works: being processed, under `lock` */
  size_t n_inbox, inbox_capacity, works_capacity;
  bool tracing, out_of_memory;
  bool samples;    /* a device is a graphics card */
  long first_step; /* -1: no step has begun */
  cvy_mutex lock;  /* everything else */
  uint64_t last_done_ns, update_ns, total_ns;
  long finished, measured; /* steps */
  cvy_trace *trace;
};

/* ---- clocks ---- */

static bool find_offset(device_line *d) {
  cvy_clock_bounds queued = {INT64_MIN, INT64_MAX}, done = queued;
  cvy_clock_pair p;
  for (int i = 0; i < CLOCK_TRIES; i++) {
    if (cvy_profile_clocks(d->device, &p) != CVY_OK) return false;
    if (i == 0) continue; /* the first one wakes threads */
    queued = cvy_clock_intersect(
        queued, cvy_clock_between(p.queued_ns, p.host_before - CLOCK_SLACK_NS, p.host_enqueued + CLOCK_SLACK_NS));
    done = cvy_clock_intersect(
        done, cvy_clock_between(p.end_ns, p.host_before - CLOCK_SLACK_NS, p.host_done + CLOCK_SLACK_NS));
  }
  const cvy_clock_bounds both = cvy_clock_intersect(queued, done);
  const cvy_clock_bounds best = both.low_ns <= both.high_ns ? both : done;
  if (best.low_ns > best.high_ns) return false;
  d->clock.offset_ns = best.low_ns + (best.high_ns - best.low_ns) / 2;
  d->clock.error_ns = (best.high_ns - best.low_ns) / 2;
  return true;
}

static uint64_t to_host(const device_line *d, uint64_t device_ns) { return device_ns + (uint64_t)d->clock.offset_ns; }

/* The host reads its clock after the device has queued the command: the least distance of many commands is the clocks'
 * offset plus a constant. */
static void follow_drift(device_line *d, const cvy_command *c) {
  const int64_t distance = (int64_t)(c->enqueued_ns - c->queued_ns);
  if (d->clock.least_commands == 0) {
    d->clock.least_ns = distance;
    d->clock.least_since_ns = c->enqueued_ns;
  }
  if (distance < d->clock.least_ns) d->clock.least_ns = distance;
  d->clock.least_commands++;
  if (d->clock.least_commands < DRIFT_COMMANDS || c->enqueued_ns - d->clock.least_since_ns < DRIFT_NS) return;
  d->clock.least_commands = 0;
  if (!d->clock.has_first_least) {
    d->clock.has_first_least = true;
    d->clock.first_least_ns = d->clock.least_ns;
    d->clock.first_offset_ns = d->clock.offset_ns;
  } else {
    d->clock.offset_ns = d->clock.first_offset_ns + (d->clock.least_ns - d->clock.first_least_ns);
  }
}

/* ---- commands of a device ---- */

static uint64_t later(uint64_t a, uint64_t b) { return a > b ? a : b; }

/* Checks in the first step that the driver's start times of kernels are valid: the kernels of a busy queue fill more
 * than a twentieth of its time. */
static void judge_starts(device_line *d) {
  if (d->starts.known || d->starts.possible_ns == 0) return;
  d->starts.known = true;
  d->starts.wrong = d->starts.said_ns < d->starts.possible_ns / 20;
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
    if (!d->starts.known && c->end_ns > c->start_ns) d->starts.said_ns += c->end_ns - c->start_ns;
    if (!d->starts.known && end > possible) d->starts.possible_ns += end - possible;
    if (d->starts.wrong) begin = possible;
  } else if (c->kind == CVY_COMMAND_WAIT) {
    begin = possible;
  }
  const cvy_use use = c->kind == CVY_COMMAND_KERNEL     ? CVY_USE_COMPUTING
                      : c->kind == CVY_COMMAND_TRANSFER ? CVY_USE_EXCHANGING
                                                        : CVY_USE_WAITING;
  if (!cvy_spans_add(&d->uses[use], begin, end)) d->timeline->out_of_memory = true;
  *last = later(*last, end);
  if (d->timeline->trace) {
    const cvy_row_command s = {.begin_ns = begin < end ? begin : end,
                               .end_ns = end,
                               .name = c->name,
                               .kind = c->kind,
                               .queue = c->queue,
                               .scope = c->scope,
                               .step = c->step,
                               .bytes = c->bytes};
    keep_slice(d, &s);
  }
}

/* Lists have room for this many at first, and grow in the first steps. */
enum { ANSWERS_FIRST = 256, WORKS_FIRST = 256 };

static bool answers_have_room(device_answers *a) {
  cvy_command *const items = cvy_grow(a->items, a->n, &a->capacity, ANSWERS_FIRST, sizeof *items);
  if (items) a->items = items;
  return items != NULL;
}

static void keep_answer(void *user, const cvy_command *c) {
  device_answers *const a = user;
  const bool room = answers_have_room(a);
  a->failed |= !room;
  if (room) a->items[a->n++] = *c;
}

/* The thread holds only `asking` while it calls the device, which may hang. */
void cvy_timeline_fetch(cvy_timeline *t, int i) {
  if (!t) return;
  device_line *const d = &t->lines[i];
  device_answers *const a = &d->answers;
  cvy_mutex_lock(&a->asking);
  const bool good = cvy_profile_take(d->device, keep_answer, a) == CVY_OK;
  cvy_mutex_lock(&t->lock);
  t->out_of_memory |= a->failed;
  d->left_out |= !good;
  for (size_t c = 0; c < a->n && !d->left_out; c++) on_command(d, &a->items[c]);
  cvy_mutex_unlock(&t->lock);
  a->n = 0;
  cvy_mutex_unlock(&a->asking);
}

void cvy_timeline_leave_out(cvy_timeline *t, int i) {
  if (!t) return;
  cvy_mutex_lock(&t->lock);
  t->lines[i].left_out = true;
  cvy_mutex_unlock(&t->lock);
}

/* Writes the slices of steps up to `step`. */
static void write_slices(device_line *d, long step) {
  if (d->left_out) d->n_slices = 0; /* the device owns their names and may be closed */
  if (d->timeline->trace) d->n_slices = cvy_rows_commands(d->timeline->trace, &d->source, d->slices, d->n_slices, step);
}

/* ---- works of the host ---- */

/* Under `inbox_lock`. */
static bool is_measured(cvy_timeline *t, long step) {
  if (step >= 0 && t->first_step < 0) t->first_step = step;
  if (t->tracing || !t->samples) return true;
  return step >= t->first_step && (step - t->first_step) % CVY_MEASURED_OF < CVY_MEASURED_STEPS;
}

bool cvy_timeline_measures(cvy_timeline *t, long step) {
  if (!t) return true;
  cvy_mutex_lock(&t->inbox_lock);
  const bool measured = is_measured(t, step);
  cvy_mutex_unlock(&t->inbox_lock);
  return measured;
}

uint64_t cvy_timeline_now(const cvy_timeline *t) { return t ? cvy_clock_ns() : 0; }

void cvy_timeline_work(cvy_timeline *t, cvy_work work, int device, int parcel, long step, uint64_t begin_ns) {
  if (!t) return;
  const uint64_t end_ns = cvy_clock_ns();
  cvy_mutex_lock(&t->inbox_lock);
  const bool summed = (work == CVY_WORK_WEIGHTS || work == CVY_WORK_UPDATE) && is_measured(t, step);
  if (t->tracing || summed) {
    cvy_row_work *const works = cvy_grow(t->inbox, t->n_inbox, &t->inbox_capacity, WORKS_FIRST, sizeof *works);
    if (works) {
      t->inbox = works;
      t->inbox[t->n_inbox++] = (cvy_row_work){work, device, parcel, step, begin_ns, end_ns};
    } else {
      t->out_of_memory = true;
    }
  }
  cvy_mutex_unlock(&t->inbox_lock);
}

/* Under `lock`. */
static void take_works(cvy_timeline *t) {
  cvy_mutex_lock(&t->inbox_lock);
  cvy_row_work *const works = t->inbox;
  const size_t n = t->n_inbox, capacity = t->inbox_capacity;
  t->inbox = t->works;
  t->inbox_capacity = t->works_capacity;
  t->n_inbox = 0;
  t->works = works;
  t->works_capacity = capacity;
  cvy_mutex_unlock(&t->inbox_lock);
  for (size_t i = 0; i < n; i++) {
    const cvy_row_work *const w = &works[i];
    if (w->work == CVY_WORK_UPDATE) t->update_ns += w->end_ns - w->begin_ns;
    if (w->work == CVY_WORK_WEIGHTS &&
        !cvy_spans_add(&t->lines[w->device].uses[CVY_USE_WAITING], w->begin_ns, w->end_ns))
      t->out_of_memory = true;
    if (t->trace) cvy_rows_work(t->trace, t->layout, w);
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

void cvy_timeline_result(cvy_timeline *t, int i, uint64_t ended_ns) {
  if (!t || !ended_ns) return;
  cvy_mutex_lock(&t->lock);
  if (!t->lines[i].left_out) t->lines[i].result_ns = to_host(&t->lines[i], ended_ns);
  cvy_mutex_unlock(&t->lock);
}

/* The time at which the device ended the current step; unknown_ns if it has no share in it, or reports no time. */
static uint64_t end_of_step(const device_line *d, const cvy_timeline_step *step, uint64_t unknown_ns) {
  return step->shares[d->source.device] > 0 && d->result_ns ? d->result_ns : unknown_ns;
}

/* Between the step's beginning and its seen_ns, since the clocks' offsets are known within bounds only. */
static uint64_t done_at(const cvy_timeline *t, const cvy_timeline_step *step, uint64_t begin_ns) {
  uint64_t done_ns = later(begin_ns, step->exchanged_ns);
  for (int r = 0; r < t->n; r++)
    if (step->shares[r] > 0) done_ns = later(done_ns, end_of_step(&t->lines[r], step, step->seen_ns));
  return done_ns < step->seen_ns ? done_ns : step->seen_ns;
}

uint64_t cvy_timeline_step_done(cvy_timeline *t, const cvy_timeline_step *step) {
  if (!t) return step->seen_ns;
  cvy_mutex_lock(&t->lock);
  if (t->finished == 1) { /* the workers compiled kernels in the first step: it is excluded from here on */
    t->total_ns = t->update_ns = 0;
    t->measured = 0;
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
  const uint64_t done_ns = done_at(t, step, begin_ns);
  const bool measured = cvy_timeline_measures(t, step->number);
  for (int r = 0; r < t->n; r++) {
    device_line *const d = &t->lines[r];
    judge_starts(d);
    if (step->begun_ns || !measured) divide(d, t->last_done_ns);
    if (step->begun_ns) d->cursor_ns = step->begun_ns; /* no step was under way since the last one */
    const uint64_t said_ns = end_of_step(d, step, done_ns), end_ns = said_ns < done_ns ? said_ns : done_ns;
    d->result_ns = 0;
    if (measured) divide(d, end_ns);
    else d->cursor_ns = later(d->cursor_ns, done_ns);
    if (measured && t->n > 1 && !cvy_spans_add(&d->uses[CVY_USE_WAITING], end_ns, done_ns)) t->out_of_memory = true;
    forget(d);
    if (measured) d->images += step->shares[r];
    write_slices(d, step->number);
  }
  if (t->trace) cvy_rows_step(t->trace, step, begin_ns, done_ns);
  if (measured) t->total_ns += done_ns - begin_ns;
  t->last_done_ns = done_ns;
  t->measured += measured;
  t->finished++;
  cvy_mutex_unlock(&t->lock);
  return done_ns;
}

void cvy_timeline_drain(cvy_timeline *t, int i) {
  if (!t) return;
  device_line *const d = &t->lines[i];
  cvy_timeline_fetch(t, i);
  cvy_mutex_lock(&t->lock);
  take_works(t);
  write_slices(d, LONG_MAX); /* no step is under way */
  divide(d, t->last_done_ns);
  d->cursor_ns = later(d->cursor_ns, cvy_clock_ns()); /* drops time outside steps */
  forget(d);
  cvy_mutex_unlock(&t->lock);
}

/* ---- life ---- */

cvy_status cvy_timeline_create(const cvy_devices *devices, const cvy_layout *layout, cvy_timeline **out) {
  cvy_status status = CVY_OK;
  const int n = devices->n;
  cvy_timeline *t = cvy_calloc(1, sizeof *t);
  *out = NULL;
  CVY_REQUIRE(t, CVY_E_MEMORY, "out of host memory");
  cvy_mutex_init(&t->lock);
  cvy_mutex_init(&t->inbox_lock);
  t->devices = devices;
  t->layout = layout;
  t->first_step = -1;
  t->lines = cvy_calloc((size_t)n, sizeof *t->lines);
  CVY_REQUIRE(t->lines, CVY_E_MEMORY, "out of host memory");
  t->n = n;
  t->inbox = cvy_grow(NULL, 0, &t->inbox_capacity, WORKS_FIRST, sizeof *t->inbox);
  t->works = cvy_grow(NULL, 0, &t->works_capacity, WORKS_FIRST, sizeof *t->works);
  bool room = t->inbox && t->works;
  for (int i = 0; i < n; i++) {
    room = answers_have_room(&t->lines[i].answers) && room;
    for (int u = 0; u < CVY_USE_IDLE; u++) room = cvy_spans_have_room(&t->lines[i].uses[u]) && room;
    t->lines[i].timeline = t;
    t->lines[i].source = (cvy_row_source){.device = i, .layout = layout};
    cvy_mutex_init(&t->lines[i].answers.asking);
  }
  CVY_REQUIRE(room, CVY_E_MEMORY, "out of host memory");
  *out = t;
  return CVY_OK;
fail:
  cvy_timeline_destroy(&t);
  return status;
}

void cvy_timeline_open(cvy_timeline *t, int i, cvy_device *device) {
  device_line *const d = &t->lines[i];
  d->device = device;
  d->left_out = !find_offset(d);
  if (!cvy_device_get_capabilities(device)->cpu_shaped) {
    cvy_mutex_lock(&t->inbox_lock);
    t->samples = true;
    cvy_mutex_unlock(&t->inbox_lock);
  }
  if (d->left_out) cvy_log_info("%s: the driver's times are unusable", cvy_device_label(device));
}

void cvy_timeline_set_instance(cvy_timeline *t, int i, const cvy_instance *instance) {
  if (!t) return;
  cvy_mutex_lock(&t->lock);
  t->lines[i].source.instance = instance;
  cvy_mutex_unlock(&t->lock);
}

cvy_status cvy_timeline_trace_end(cvy_timeline *t, cvy_trace_totals *out) {
  cvy_status status = CVY_OK;
  cvy_mutex_lock(&t->lock);
  if (out) *out = (cvy_trace_totals){.first_left_out = -1};
  if (t->trace) {
    json_t *const errors = json_array();
    take_works(t);
    for (int r = 0; r < t->n; r++) {
      device_line *const d = &t->lines[r];
      write_slices(d, LONG_MAX);
      json_array_append_new(errors, d->left_out ? json_null() : json_real(1e-3 * (double)d->clock.error_ns));
    }
    if (out)
      *out = (cvy_trace_totals){.events = cvy_trace_events(t->trace),
                                .left_out = cvy_trace_left_out(t->trace),
                                .first_left_out = cvy_trace_first_left_out(t->trace)};
    status = cvy_trace_close(&t->trace, json_pack("{so}", "clock_error_us", errors));
    cvy_mutex_lock(&t->inbox_lock);
    t->tracing = false;
    cvy_mutex_unlock(&t->inbox_lock);
  }
  cvy_mutex_unlock(&t->lock);
  return status;
}

void cvy_timeline_destroy(cvy_timeline **timeline) {
  cvy_timeline *const t = *timeline;
  if (!t) return;
  CVY_ASSERT(!t->trace);
  for (int r = 0; r < t->n; r++) {
    cvy_mutex_end(&t->lines[r].answers.asking);
    cvy_free(t->lines[r].answers.items);
    for (int u = 0; u < CVY_USE_IDLE; u++) cvy_spans_clear(&t->lines[r].uses[u]);
    cvy_free(t->lines[r].slices);
  }
  cvy_free(t->lines);
  cvy_free(t->inbox);
  cvy_free(t->works);
  cvy_mutex_end(&t->lock);
  cvy_mutex_end(&t->inbox_lock);
  cvy_free(t);
  *timeline = NULL;
}

/* ---- the public functions ---- */

/* Counts time computed ahead as computing, instead of the waiting and idle time that it saved later. */
static void count_early(uint64_t early_ns, uint64_t ns[CVY_USES]) {
  for (int u = CVY_USE_WAITING; u <= CVY_USE_IDLE; u++) {
    const uint64_t moved_ns = early_ns < ns[u] ? early_ns : ns[u];
    ns[u] -= moved_ns;
    ns[CVY_USE_COMPUTING] += moved_ns;
    early_ns -= moved_ns;
  }
}

bool cvy_timeline_times(cvy_timeline *t, int device, cvy_device_times *out) {
  *out = (cvy_device_times){0};
  if (!t || device < 0 || device >= t->n) return false;
  cvy_mutex_lock(&t->lock);
  device_line *const d = &t->lines[device];
  uint64_t ns[CVY_USES];
  memcpy(ns, d->ns, sizeof ns);
  cvy_usage_divide(d->cursor_ns, t->last_done_ns, d->uses, ns);
  count_early(d->early_ns, ns);
  *out = (cvy_device_times){.steps = t->measured,
                            .images = d->images,
                            .finished = t->finished,
                            .total_ms = 1e-6 * (double)t->total_ns,
                            .computing_ms = 1e-6 * (double)ns[CVY_USE_COMPUTING],
                            .exchanging_ms = 1e-6 * (double)ns[CVY_USE_EXCHANGING],
                            .waiting_ms = 1e-6 * (double)ns[CVY_USE_WAITING],
                            .idle_ms = 1e-6 * (double)ns[CVY_USE_IDLE],
                            .update_ms = 1e-6 * (double)t->update_ns,
                            .clock_error_us = 1e-3 * (double)d->clock.error_ns};
  const bool known = !d->left_out && !t->out_of_memory;
  cvy_mutex_unlock(&t->lock);
  return known;
}

cvy_status cvy_timeline_trace_begin(cvy_timeline *t, const char *path, long events_max) {
  cvy_status status = CVY_OK;
  cvy_mutex_lock(&t->lock);
  const bool traced = t->trace != NULL;
  if (!traced) status = cvy_trace_open(path, events_max ? events_max : 1000000, cvy_clock_ns(), &t->trace);
  if (t->trace && !traced) cvy_rows_name(t->trace, t->devices, t->n);
  cvy_mutex_lock(&t->inbox_lock);
  t->tracing = t->trace != NULL;
  cvy_mutex_unlock(&t->inbox_lock);
  cvy_mutex_unlock(&t->lock);
  CVY_REQUIRE(!traced, CVY_E_ARGUMENT, "%s: a trace of this team is already being written", path);
fail:
  return status;
}

bool cvy_timeline_is_traced(cvy_timeline *t) {
  if (!t) return false;
  cvy_mutex_lock(&t->lock);
  const bool traced = t->trace != NULL;
  cvy_mutex_unlock(&t->lock);
  return traced;
}
