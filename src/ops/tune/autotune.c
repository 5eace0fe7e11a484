/* SPDX-License-Identifier: MIT
 * Outline: items · memory and inputs · one pass of one candidate · check · timing · the whole. */
#include "src/ops/tune/autotune.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/clock.h"
#include "src/base/quantile.h"
#include "src/base/rng.h"
#include "src/cl/compile/ahead.h"

enum { AHEAD = 4 }; /* items whose kernels are compiled together: enough to keep the cores busy */
enum {
  CANDIDATES_MOST = 64,
  CHOICES_MOST = CANDIDATES_MOST + 1,
  SAMPLES_LEAST = 16,
  RUNS_MOST = CVY_TUNE_ROUNDS_MOST + 1,
  REPEATS_MOST = 64
};

/* ---- items ---- */

bool cvy_tune_has_pass(const cvy_conv2d_params *p, cvy_conv_pass pass) {
  return pass == CVY_CONV_FORWARD || (!p->inference && (pass != CVY_CONV_BACKWARD_DATA || !p->no_backward_data));
}

/* The params without the caller's lists and choices. */
static cvy_conv2d_params free_params(const cvy_conv2d_params *p) {
  cvy_conv2d_params out = *p;
  out.algos.n = 0;
  memset(out.choice, 0, sizeof out.choice);
  return out;
}

/* The algorithms within CVY_TUNE_REACH; returns how many choices they have together. */
static int list_algos(cvy_device *device, const cvy_conv2d_params *p, cvy_conv_pass pass, cvy_conv_algo_list *out) {
  double costs[CVY_CONV_ALGOS], best = 0;
  int tiles[CVY_CONV_ALGOS], n = 0;
  *out = (cvy_conv_algo_list){0};
  for (int algo = CVY_CONV_DIRECT; algo < CVY_CONV_ALGOS; algo++) {
    costs[algo] = cvy_conv2d_expected(device, p, pass, (cvy_conv_algo)algo, &tiles[algo]);
    if (costs[algo] > 0 && (best == 0 || costs[algo] < best)) best = costs[algo];
  }
  for (int algo = CVY_CONV_DIRECT; algo < CVY_CONV_ALGOS; algo++) {
    if (!(costs[algo] > 0) || costs[algo] > CVY_TUNE_REACH * best) continue;
    out->algo[out->n++] = (cvy_conv_algo)algo;
    n += tiles[algo];
  }
  return n;
}

/* The same, with the default if that is out of reach. */
static int count_choices(cvy_device *device, const cvy_conv2d_params *p, cvy_conv_pass pass,
                         cvy_conv_choice *standard) {
  cvy_conv_algo_list algos;
  const int n = list_algos(device, p, pass, &algos);
  if (cvy_conv2d_default(device, p, pass, standard) != CVY_OK) return 0;
  for (int i = 0; i < algos.n; i++)
    if (algos.algo[i] == standard->algo) return n;
  return n + 1;
}

bool cvy_tune_is_missing(cvy_device *device, const cvy_tune_table *table, const cvy_conv2d_params *params,
                         cvy_conv_pass pass) {
  const cvy_conv2d_params p = free_params(params);
  cvy_conv_choice standard;
  if (!cvy_tune_has_pass(&p, pass) || (table && cvy_tune_table_find(table, &p, pass))) return false;
  return count_choices(device, &p, pass, &standard) > 1;
}

static double work_of(const cvy_tune_item *item) {
  return item->uses * cvy_conv2d_flops(item->params, item->params->n_max);
}

static int most_work_first(const void *a, const void *b) {
  const cvy_tune_item *const x = a, *const y = b;
  const double dx = work_of(x), dy = work_of(y);
  if (dx != dy) return dx < dy ? 1 : -1;
  if (x->params != y->params) return x->params < y->params ? -1 : 1; /* of one array: its order */
  return (int)x->pass - (int)y->pass;
}

static bool same_item(const cvy_tune_item *item, const cvy_conv2d_params *p, cvy_conv_pass pass) {
  char a[CVY_TUNE_SHAPE_BYTES], b[CVY_TUNE_SHAPE_BYTES];
  return item->pass == pass && item->params->n_max == p->n_max &&
         strcmp(cvy_tune_shape_text(item->params, pass, a), cvy_tune_shape_text(p, pass, b)) == 0;
}

static cvy_status list_items(const cvy_conv2d_params *ops, int n_ops, cvy_tune_report *report) {
  cvy_status status = CVY_OK;
  report->items = cvy_calloc((size_t)n_ops * CVY_CONV_PASSES, sizeof *report->items);
  CVY_REQUIRE(report->items, CVY_E_MEMORY, "out of host memory");
  for (int i = 0; i < n_ops; i++) {
    for (int p = 0; p < CVY_CONV_PASSES; p++) {
      const cvy_conv_pass pass = (cvy_conv_pass)p;
      cvy_tune_item *same = NULL;
      if (!cvy_tune_has_pass(&ops[i], pass)) continue;
      for (int j = 0; j < report->n && !same; j++)
        if (same_item(&report->items[j], &ops[i], pass)) same = &report->items[j];
      if (!same) {
        same = &report->items[report->n++];
        *same = (cvy_tune_item){.params = &ops[i], .pass = pass};
      }
      same->uses++;
    }
  }
  if (report->n) qsort(report->items, (size_t)report->n, sizeof *report->items, most_work_first);
fail:
  return status;
}

/* ---- memory and inputs ---- */

enum { X, AFFINE, RESIDUAL, W, BIAS, Y, STATS, DY, DX, DW, DB, WORKSPACE, N_BUFFERS };

typedef struct tuning {
  cvy_device *device;
  cvy_queue *queue;
  const cvy_tune_params *params;
  uint64_t deadline_ns;
  cvy_buffer *buffers[N_BUFFERS]; /* all items use them; one is made anew when an item needs a larger one */
  cvy_tune_item *item;
  cvy_conv2d_params p; /* the item's, free */
  cvy_shape y;
  int n; /* samples of a timed run */
} tuning;

static bool time_is_over(const tuning *t) {
  return cvy_stop_requested(t->params->stop) || cvy_clock_ns() >= t->deadline_ns;
}

/* All candidates share the workspace: if a larger one cannot be made, the old one stays for the others. */
static cvy_status need(tuning *t, int which, size_t bytes) {
  cvy_status status = CVY_OK;
  cvy_buffer *larger = NULL;
  if (bytes == 0 || (t->buffers[which] && cvy_buffer_size(t->buffers[which]) >= bytes)) return CVY_OK;
  if (which != WORKSPACE) cvy_buffer_destroy(&t->buffers[which]);
  CVY_TRY(cvy_buffer_create(t->device, bytes, &larger));
  /* touched before anything is timed */
  CVY_TRY(cvy_buffer_fill(t->queue, larger, 0, bytes / sizeof(uint32_t) * sizeof(uint32_t), 0));
  cvy_buffer_destroy(&t->buffers[which]);
  t->buffers[which] = larger;
  larger = NULL;
fail:
  cvy_buffer_destroy(&larger);
  return status;
}

/* rows x pitch floats: the first `drawn` rows are random in [-1,1) with zeros behind c channels, the others repeat
 * them. */
static cvy_status fill(tuning *t, int which, size_t rows, size_t drawn, int c, int pitch) {
  cvy_status status = CVY_OK;
  const cvy_rng rng = {.seed = 1, .purpose = CVY_RNG_TEST, .stream = (uint32_t)which};
  const size_t row_bytes = (size_t)pitch * sizeof(float);
  float *const host = cvy_calloc(drawn * (size_t)pitch, sizeof *host);
  CVY_REQUIRE(host, CVY_E_MEMORY, "out of host memory");
  uint32_t word[4];
  uint64_t at = 0;
  for (size_t r = 0; r < drawn; r++)
    for (int i = 0; i < c; i++, at++) {
      if (at % 4 == 0) cvy_rng_block(&rng, at / 4, word);
      host[r * (size_t)pitch + (size_t)i] = (float)(int32_t)word[at % 4] * 0x1p-31f;
    }
  CVY_TRY(need(t, which, rows * row_bytes));
  CVY_TRY(cvy_buffer_write(t->queue, t->buffers[which], 0, drawn * row_bytes, host, NULL, NULL));
  for (size_t done = drawn; done < rows;) {
    const size_t more = rows - done < done ? rows - done : done;
    CVY_TRY(cvy_buffer_copy(t->queue, t->buffers[which], 0, t->buffers[which], done * row_bytes, more * row_bytes));
    done += more;
  }
fail:
  cvy_free(host);
  return status;
}

static size_t least(size_t a, size_t b) { return a < b ? a : b; }

/* Makes the inputs of the item's pass, for n_max samples, and room for its results. */
static cvy_status prepare(tuning *t) {
  cvy_status status = CVY_OK;
  const cvy_conv2d_params *const p = &t->p;
  const size_t n = (size_t)p->n_max, few = least(n, CVY_TUNE_CHECK_SAMPLES);
  const size_t x_rows = (size_t)p->x.h * (size_t)p->x.w, y_rows = (size_t)t->y.h * (size_t)t->y.w;
  const size_t w_rows = (size_t)p->r * (size_t)p->s * (size_t)cvy_conv_group_c(p);
  const bool forward = t->item->pass == CVY_CONV_FORWARD, data = t->item->pass == CVY_CONV_BACKWARD_DATA;
  if (!data) {
    CVY_TRY(fill(t, X, n * x_rows, few * x_rows, p->x.c, p->x.pitch));
    if (p->prologue & CVY_CONV_SCALE) CVY_TRY(fill(t, AFFINE, 3, 3, p->x.c, p->x.pitch));
    if (p->prologue & CVY_CONV_RESIDUAL) CVY_TRY(fill(t, RESIDUAL, n * x_rows, few * x_rows, p->x.c, p->x.pitch));
  }
  if (forward || data) CVY_TRY(fill(t, W, w_rows, w_rows, p->k, p->y_pitch));
  if (forward) {
    if (p->bias) CVY_TRY(fill(t, BIAS, 1, 1, p->k, p->y_pitch));
    CVY_TRY(need(t, Y, n * cvy_shape_elems(&t->y) * sizeof(float)));
    if (p->stats) CVY_TRY(need(t, STATS, n * 2 * (size_t)p->y_pitch * sizeof(float)));
  } else {
    CVY_TRY(fill(t, DY, n * y_rows, few * y_rows, p->k, p->y_pitch));
    if (data) CVY_TRY(need(t, DX, n * cvy_shape_elems(&p->x) * sizeof(float)));
    else {
      CVY_TRY(need(t, DW, w_rows * (size_t)p->y_pitch * sizeof(float)));
      if (p->bias) CVY_TRY(need(t, DB, (size_t)p->y_pitch * sizeof(float)));
    }
  }
fail:
  return status;
}

/* ---- one pass of one candidate ---- */

/* Takes every shape on every device. */
static const cvy_conv_choice general = {.algo = CVY_CONV_DIRECT};

typedef struct candidate {
  cvy_conv_choice choice;
  cvy_conv2d *op;
  int repeats, n_runs;
  double runs[RUNS_MOST], duel[CVY_TUNE_DUEL]; /* seconds for tuning.n samples */
} candidate;

static cvy_conv2d_params params_of(const tuning *t, const cvy_conv_choice *choice, int n_max) {
  cvy_conv2d_params p = t->p;
  const cvy_conv_pass pass = t->item->pass;
  p.n_max = n_max;
  p.inference = pass == CVY_CONV_FORWARD;
  p.no_backward_data = pass != CVY_CONV_BACKWARD_DATA;
  p.choice[pass] = *choice;
  return p;
}

/* An operation that does the item's pass by this choice; for other passes it has its defaults. */
static cvy_status make_op(tuning *t, const cvy_conv_choice *choice, int n_max, cvy_conv2d **op) {
  cvy_status status = CVY_OK;
  const cvy_conv2d_params p = params_of(t, choice, n_max);
  CVY_TRY(cvy_conv2d_create(t->device, &p, op));
  const cvy_conv_choice taken = cvy_conv2d_chosen(*op, t->item->pass);
  CVY_REQUIRE(cvy_conv_choice_same(&taken, choice), CVY_E_UNSUPPORTED, "the choice is not taken");
  CVY_TRY(need(t, WORKSPACE, cvy_conv2d_workspace_bytes(*op)));
fail:
  return status;
}

static cvy_status run(tuning *t, cvy_conv2d *op, int n) {
  cvy_buffer **const b = t->buffers;
  const cvy_conv2d_params *const p = &t->p;
  const cvy_conv2d_prologue prologue = {.affine = p->prologue & CVY_CONV_SCALE ? b[AFFINE] : NULL,
                                        .residual = p->prologue & CVY_CONV_RESIDUAL ? b[RESIDUAL] : NULL};
  const cvy_conv2d_prologue *const pro = p->prologue ? &prologue : NULL;
  switch (t->item->pass) {
    case CVY_CONV_FORWARD:
      return cvy_conv2d_forward(op, t->queue, n, b[X], pro, b[W], p->bias ? b[BIAS] : NULL, b[Y],
                                p->stats ? b[STATS] : NULL, b[WORKSPACE]);
    case CVY_CONV_BACKWARD_DATA:
      return cvy_conv2d_backward_data(op, t->queue, n, b[DY], b[W], b[DX], false, b[WORKSPACE]);
    default:
      return cvy_conv2d_backward_weights(op, t->queue, n, b[X], pro, b[DY], b[DW], p->bias ? b[DB] : NULL, false,
                                         b[WORKSPACE]);
  }
}

/* ---- check ---- */

typedef struct result {
  int which[2]; /* buffers, -1: none */
  size_t floats[2];
  float *values[2];
} result;

static void result_clear(result *r) {
  for (int i = 0; i < 2; i++) cvy_free(r->values[i]);
  *r = (result){0};
}

static result result_of(const tuning *t, int n) {
  const cvy_conv2d_params *const p = &t->p;
  const size_t k = (size_t)p->y_pitch;
  switch (t->item->pass) {
    case CVY_CONV_FORWARD:
      return (result){.which = {Y, p->stats ? STATS : -1},
                      .floats = {(size_t)n * cvy_shape_elems(&t->y), (size_t)n * 2 * k}};
    case CVY_CONV_BACKWARD_DATA: return (result){.which = {DX, -1}, .floats = {(size_t)n * cvy_shape_elems(&p->x)}};
    default:
      return (result){.which = {DW, p->bias ? DB : -1},
                      .floats = {(size_t)p->r * (size_t)p->s * (size_t)cvy_conv_group_c(p) * k, k}};
  }
}

/* Runs n samples into memory full of NaN and reads the results. */
static cvy_status run_and_read(tuning *t, cvy_conv2d *op, int n, const cvy_conv_choice *spoiled, result *out) {
  cvy_status status = CVY_OK;
  *out = result_of(t, n);
  for (int i = 0; i < 2; i++)
    if (out->which[i] >= 0 && out->floats[i])
      CVY_TRY(cvy_buffer_fill(t->queue, t->buffers[out->which[i]], 0, out->floats[i] * sizeof(float), 0x7fc00000u));
  CVY_TRY(run(t, op, n));
  if (spoiled && t->params->spoil)
    CVY_TRY(t->params->spoil(t->params->user, t->item, spoiled, t->queue, t->buffers[out->which[0]]));
  for (int i = 0; i < 2; i++) {
    if (out->which[i] < 0 || !out->floats[i]) continue;
    out->values[i] = cvy_calloc(out->floats[i], sizeof(float));
    CVY_REQUIRE(out->values[i], CVY_E_MEMORY, "out of host memory");
    CVY_TRY(cvy_buffer_read(t->queue, t->buffers[out->which[i]], 0, out->floats[i] * sizeof(float), out->values[i],
                            NULL, NULL));
  }
fail:
  return status;
}

/* ||a - b|| / ||b||; NaN if a value is not finite. */
static double distance(const float *a, const float *b, size_t n) {
  double difference = 0, norm = 0;
  for (size_t i = 0; i < n; i++) {
    const double d = (double)a[i] - (double)b[i];
    difference += d * d;
    norm += (double)b[i] * (double)b[i];
  }
  return norm > 0 ? sqrt(difference / norm) : sqrt(difference);
}

/* A wide bound for statistics, only against wrong kernels: they follow from y, which has a bound of its own. */
#define STATS_BOUND 1e-3

static bool is_right(const result *got, const result *want, double bound) {
  bool right = distance(got->values[0], want->values[0], want->floats[0]) <= bound;
  if (want->which[1] >= 0)
    right = right && distance(got->values[1], want->values[1], want->floats[1]) <=
                         (want->which[1] == STATS ? STATS_BOUND : bound);
  return right;
}

/* True if the candidate's results are those of the general kernels. */
static bool check(tuning *t, const candidate *c) {
  cvy_status status = CVY_OK;
  cvy_conv2d *trusted = NULL;
  result want = {0}, got = {0};
  bool right = false;
  char word[CVY_CONV_CHOICE_BYTES];
  const int n = t->p.n_max < CVY_TUNE_CHECK_SAMPLES ? t->p.n_max : CVY_TUNE_CHECK_SAMPLES;
  const cvy_math math = t->p.math;
  t->p.math = CVY_MATH_FP32;
  const cvy_status made = make_op(t, &general, n, &trusted);
  t->p.math = math;
  CVY_TRY(made);
  CVY_TRY(run_and_read(t, trusted, n, NULL, &want));
  CVY_TRY(run_and_read(t, c->op, n, &c->choice, &got));
  const double bound = cvy_conv2d_error_bound(trusted, t->item->pass) + cvy_conv2d_error_bound(c->op, t->item->pass);
  right = is_right(&got, &want, bound);
  if (!right)
    cvy_log_info(
        "%s: %s is wrong for %s of %dx%dx%d by %d filters %dx%d (relative error %.1e, its bound is %.1e): it is not "
        "used",
        cvy_device_label(t->device), cvy_conv_choice_text(&c->choice, word, sizeof word),
        cvy_conv_pass_name(t->item->pass), t->p.x.h, t->p.x.w, t->p.x.c, t->p.k, t->p.r, t->p.s,
        distance(got.values[0], want.values[0], want.floats[0]), bound);
fail:
  result_clear(&want);
  result_clear(&got);
  cvy_conv2d_destroy(&trusted);
  return status == CVY_OK && right;
}

/* ---- timing ---- */

static cvy_status time_runs(tuning *t, const candidate *c, int n, int repeats, int number, double *seconds) {
  cvy_status status = CVY_OK;
  CVY_TRY(cvy_queue_finish(t->queue));
  const uint64_t start = cvy_clock_ns();
  for (int i = 0; i < repeats; i++) CVY_TRY(run(t, c->op, n));
  CVY_TRY(cvy_queue_finish(t->queue));
  *seconds = cvy_clock_seconds_since(start) / repeats;
  if (t->params->seconds) *seconds = t->params->seconds(t->params->user, t->item, &c->choice, number);
fail:
  return status;
}

static cvy_status time_once_more(tuning *t, candidate *c) {
  cvy_status status = CVY_OK;
  CVY_TRY(time_runs(t, c, t->n, c->repeats, c->n_runs, &c->runs[c->n_runs]));
  c->n_runs++;
fail:
  return status;
}

/* Chooses how many samples are timed, from one run of the default with all of them, which gives it a first time. */
static cvy_status choose_samples(tuning *t, candidate *standard) {
  cvy_status status = CVY_OK;
  double seconds;
  t->n = t->p.n_max;
  if (t->params->seconds) return CVY_OK;
  CVY_TRY(time_runs(t, standard, t->n, 1, 0, &seconds)); /* the first one compiles, and is slow */
  if (seconds <= CVY_TUNE_LONG_S) return CVY_OK;
  CVY_TRY(time_runs(t, standard, t->n, 1, 0, &seconds));
  if (seconds <= CVY_TUNE_LONG_S) return CVY_OK;
  const int fewer = (int)(t->n * (CVY_TUNE_LONG_S / seconds)) / SAMPLES_LEAST * SAMPLES_LEAST;
  if (fewer < t->n) t->n = fewer < SAMPLES_LEAST ? (t->n < SAMPLES_LEAST ? t->n : SAMPLES_LEAST) : fewer;
fail:
  return status;
}

/* Takes a first time after a run that does not count, and chooses how often a run is repeated to be measurable. */
static cvy_status time_first(tuning *t, candidate *c) {
  cvy_status status = CVY_OK;
  double seconds = 0;
  c->repeats = 1;
  if (!t->params->seconds) {
    CVY_TRY(time_runs(t, c, t->n, 1, 0, &seconds));
    CVY_TRY(time_runs(t, c, t->n, 1, 0, &seconds));
    const double repeats = seconds > 0 ? ceil(CVY_TUNE_SHORT_S / seconds) : REPEATS_MOST;
    c->repeats = repeats < REPEATS_MOST ? (int)repeats : REPEATS_MOST;
    c->runs[0] = seconds;
  }
  if (c->repeats > 1 || t->params->seconds) return time_once_more(t, c);
  c->n_runs = 1;
fail:
  return status;
}

static bool is_faster(double seconds, double standard_s) { return seconds <= (1 - CVY_TUNE_MARGIN) * standard_s; }

/* ---- the whole ---- */

static void drop(candidate *list, int *n, int i) {
  cvy_conv2d_destroy(&list[i].op);
  memmove(&list[i], &list[i + 1], (size_t)(*n - i - 1) * sizeof *list);
  --*n;
}

/* False: the candidate fails or is wrong, which is no failure of the tuner. */
static bool try_candidate(tuning *t, candidate *c) {
  cvy_log_attempt_begin();
  const bool right = make_op(t, &c->choice, t->p.n_max, &c->op) == CVY_OK && check(t, c) && time_first(t, c) == CVY_OK;
  cvy_log_attempt_end(false);
  return right;
}

/* list[0] is the default, and stays. Sets *over if the budget ended before every round was done. */
static cvy_status race(tuning *t, candidate *list, int *n, bool *over) {
  cvy_status status = CVY_OK;
  double best = 0;
  CVY_TRY(choose_samples(t, &list[0]));
  for (int i = 0; i < *n; i++) {
    if ((*over = time_is_over(t))) return CVY_OK;
    if (i > 0 && !try_candidate(t, &list[i])) {
      drop(list, n, i--);
      t->item->rejected++;
      continue;
    }
    if (i == 0) CVY_TRY(time_first(t, &list[0]));
    if (i == 0 || list[i].runs[0] < best) best = list[i].runs[0];
    if (i > 0 && list[i].runs[0] > CVY_TUNE_HOPELESS * best) {
      drop(list, n, i--);
      t->item->dropped++;
    }
  }
  for (int i = 1; i < *n; i++) { /* also candidates that were tried before the best one */
    if (list[i].runs[0] <= CVY_TUNE_HOPELESS * best) continue;
    drop(list, n, i--);
    t->item->dropped++;
  }
  const uint64_t start = cvy_clock_ns();
  for (int round = 0; round < CVY_TUNE_ROUNDS_MOST && *n > 1; round++) {
    if (round >= CVY_TUNE_ROUNDS && cvy_clock_seconds_since(start) > CVY_TUNE_ROUNDS_S) break;
    for (int i = 0; i < *n; i++) {
      if ((*over = time_is_over(t))) return CVY_OK;
      CVY_TRY(time_once_more(t, &list[i]));
    }
  }
fail:
  return status;
}

/* The winner goes to item->choice. Sets *over if the budget ended before it is known. */
static cvy_status find_winner(tuning *t, candidate *list, int n, bool *over) {
  cvy_status status = CVY_OK;
  cvy_tune_item *const item = t->item;
  candidate *const standard = &list[0], *best = &list[0];
  const double scale = (double)t->p.n_max / t->n;
  const double standard_s = cvy_quantile(standard->runs, standard->n_runs, 0.5);
  double best_s = standard_s;
  int wins = 0;
  item->choice = standard->choice;
  item->choice_s = item->standard_s = scale * standard_s;
  for (int i = 1; i < n; i++) {
    const double s = cvy_quantile(list[i].runs, list[i].n_runs, 0.5);
    if (s < best_s) best = &list[i], best_s = s;
  }
  if (!is_faster(best_s, standard_s)) return CVY_OK;
  for (int round = 0; round < CVY_TUNE_DUEL; round++) {
    candidate *const pair[] = {round % 2 ? best : standard, round % 2 ? standard : best};
    for (int i = 0; i < 2; i++) {
      if ((*over = time_is_over(t))) return CVY_OK;
      CVY_TRY(time_runs(t, pair[i], t->n, pair[i]->repeats, RUNS_MOST + round, &pair[i]->duel[round]));
    }
    wins += is_faster(best->duel[round], standard->duel[round]);
  }
  item->choice_s = item->standard_s = scale * cvy_quantile(standard->duel, CVY_TUNE_DUEL, 0.5);
  if (wins < CVY_TUNE_DUEL_WINS) return CVY_OK;
  item->choice = best->choice;
  item->choice_s = scale * cvy_quantile(best->duel, CVY_TUNE_DUEL, 0.5);
fail:
  return status;
}

static cvy_status note(tuning *t, cvy_tune_table *table) {
  cvy_status status = CVY_OK;
  cvy_tune_item *const item = t->item;
  item->state = CVY_TUNE_DONE;
  cvy_tune_entry entry = {.n = t->p.n_max,
                          .pass = item->pass,
                          .choice = item->choice,
                          .standard = item->standard,
                          .choice_us = llround(1e6 * item->choice_s),
                          .standard_us = llround(1e6 * item->standard_s)};
  cvy_tune_shape_text(&t->p, item->pass, entry.shape);
  CVY_TRY(cvy_tune_table_put(table, &entry));
fail:
  return status;
}

/* Sets the tuning to this item. Gives its choices, the default first, and how many. */
static int begin_item(tuning *t, cvy_tune_item *item, cvy_conv_choice choices[CHOICES_MOST]) {
  cvy_conv_choice found[CANDIDATES_MOST];
  int n = 0;
  t->item = item;
  t->p = free_params(item->params);
  cvy_conv2d_params listed = t->p;
  (void)list_algos(t->device, &t->p, item->pass, &listed.algos);
  const int all = cvy_conv2d_candidates(t->device, &listed, item->pass, found, CANDIDATES_MOST);
  choices[n++] = item->standard;
  for (int i = 0; i < all && i < CANDIDATES_MOST; i++)
    if (!cvy_conv_choice_same(&found[i], &item->standard)) choices[n++] = found[i];
  return n;
}

static bool wants_no_more(void *user) { return time_is_over(user); }

/* Has other processes compile the kernels of all choices of these items. Failures show when a choice is tried: nothing
 * is logged here. */
static void compile_ahead(tuning *t, cvy_tune_item *items, int n_items) {
  cvy_conv2d *ops[AHEAD * (CHOICES_MOST + 1)] = {0};
  int made = 0;
  cvy_log_attempt_begin();
  cvy_ahead_begin(t->device);
  for (int i = 0; i < n_items && i < AHEAD; i++) {
    cvy_conv_choice choices[CHOICES_MOST];
    if (items[i].state != CVY_TUNE_WAITING) continue;
    const int n = begin_item(t, &items[i], choices);
    for (int c = 0; c <= n; c++) {
      cvy_conv2d_params p = params_of(t, c < n ? &choices[c] : &general, t->p.n_max);
      if (c == n) p.math = CVY_MATH_FP32; /* checks the others */
      (void)cvy_conv2d_create(t->device, &p, &ops[made++]);
    }
  }
  (void)cvy_ahead_fill(t->device, wants_no_more, t);
  while (made > 0) cvy_conv2d_destroy(&ops[--made]);
  cvy_log_attempt_end(false);
}

static cvy_status tune_item(tuning *t, cvy_tune_item *item, cvy_tune_table *table, bool *over) {
  cvy_status status = CVY_OK;
  cvy_conv_choice choices[CHOICES_MOST];
  candidate *const list = cvy_calloc(CHOICES_MOST, sizeof *list);
  int n = begin_item(t, item, choices);
  CVY_REQUIRE(list, CVY_E_MEMORY, "out of host memory");
  CVY_TRY(cvy_conv2d_output_shape(&t->p, &t->y));
  CVY_TRY(prepare(t));
  for (int i = 0; i < n; i++) list[i].choice = choices[i];
  CVY_TRY(make_op(t, &item->standard, t->p.n_max, &list[0].op));
  cvy_log_attempt_begin();
  const bool right = cvy_conv_choice_same(&item->standard, &general) || check(t, &list[0]);
  cvy_log_attempt_end(false);
  if (!right) {
    item->rejected++;
    cvy_conv2d_destroy(&list[0].op);
    list[0].choice = general;
    CVY_TRY(make_op(t, &general, t->p.n_max, &list[0].op));
    for (int i = 1; i < n; i++)
      if (cvy_conv_choice_same(&list[i].choice, &general)) drop(list, &n, i--);
  }
  CVY_TRY(race(t, list, &n, over));
  if (!*over) CVY_TRY(find_winner(t, list, n, over));
  if (!*over) CVY_TRY(note(t, table));
  else item->choice = list[0].choice;
fail:
  for (int i = 0; list && i < n; i++) cvy_conv2d_destroy(&list[i].op);
  cvy_free(list);
  return status;
}

cvy_status cvy_autotune(cvy_device *device, const cvy_conv2d_params *ops, int n_ops, const cvy_tune_params *params,
                        cvy_tune_table *table, cvy_tune_report *report) {
  cvy_status status = CVY_OK;
  const uint64_t start = cvy_clock_ns();
  const double budget = params->budget_s > 0 ? params->budget_s : 60;
  tuning t = {.device = device,
              .queue = cvy_device_compute_queue(device),
              .params = params,
              .deadline_ns = start + (uint64_t)(budget * 1e9)};
  *report = (cvy_tune_report){0};
  CVY_TRY(list_items(ops, n_ops, report));
  for (int i = 0; i < report->n; i++) {
    cvy_tune_item *const item = &report->items[i];
    const cvy_conv2d_params p = free_params(item->params);
    item->candidates = count_choices(device, &p, item->pass, &item->standard);
    CVY_REQUIRE(item->candidates > 0, CVY_E_ARGUMENT, "there is no such convolution");
    item->choice = item->standard;
    const cvy_tune_entry *const known =
        params->only_missing ? cvy_tune_table_find(table, item->params, item->pass) : NULL;
    if (item->candidates <= 1) item->state = CVY_TUNE_SINGLE;
    else if (known) item->state = CVY_TUNE_KNOWN, item->choice = known->choice;
  }
  for (int i = 0, ready = 0; i < report->n && !report->out_of_time; i++) {
    cvy_tune_item *const item = &report->items[i];
    if (item->state != CVY_TUNE_WAITING) continue;
    if (params->progress) params->progress(params->user, report, i);
    if (i >= ready) {
      ready = i + AHEAD;
      compile_ahead(&t, item, report->n - i);
    }
    if ((report->out_of_time = time_is_over(&t))) break;
    CVY_TRY(tune_item(&t, item, table, &report->out_of_time));
    report->seconds = cvy_clock_seconds_since(start);
  }
  report->seconds = cvy_clock_seconds_since(start);
  if (params->progress) params->progress(params->user, report, report->n);
fail:
  (void)cvy_queue_finish(t.queue);
  for (int i = 0; i < N_BUFFERS; i++) cvy_buffer_destroy(&t.buffers[i]);
  if (status != CVY_OK) cvy_tune_report_clear(report);
  return status;
}

void cvy_tune_report_clear(cvy_tune_report *report) {
  cvy_free(report->items);
  *report = (cvy_tune_report){0};
}
