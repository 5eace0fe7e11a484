/* SPDX-License-Identifier: MIT
 * convoy bench scaling: measures each device alone and teams of them, and prints whether each one makes steps
 * shorter. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "src/base/clock.h"
#include "src/base/mem.h"
#include "src/nn/layout.h"
#include "src/team/calibrate.h"
#include "src/share/scaling.h"
#include "src/team/inside.h"
#include "tools/program/bench/bench.h"
#include "tools/program/view/progress.h"
#include "tools/program/view/text_table.h"

typedef struct scaling_options {
  const char *devices, *json, *conv_algo;
  const char *model;
  int tune, math;
  int64_t batch, steps, rounds, extrapolate;
  double limit_s;
  bool quiet;
} scaling_options;

#define FIELD(name) .offset = offsetof(scaling_options, name)
static const option_row rows[] = {
    {OPT_GROUP("Network and measurement")},
    BENCH_ROW_NO_NODES,
    ROW_MODEL(FIELD, "the network"),
    ROW_BATCH(FIELD, 1 << 20,
              "images of a step of the whole team. A device alone and smaller teams take the same batch (strong), or "
              "their shares of it (weak)"),
    BENCH_ROW_STEPS(FIELD, 1, 128,
                    "steps measured of each team and size, after warm-up; blocks of steps if they are short"),
    BENCH_ROW_ROUNDS(FIELD, "2",
                     "repetitions of all measurements; the least of each figure is used, since other programs disturb "
                     "unevenly"),
    {OPT_REAL("limit", FIELD(limit_s), "60", "seconds", 1, 86400,
              "time limit; rounds after the first that would exceed it are left out"),
     .value = "S"},
    {OPT_INT("extrapolate", FIELD(extrapolate), "16", "devices", 0, 1024, "predict up to K devices like the first"),
     .value = "K"},
    ROW_CONV_ALGO(FIELD, "algorithms of convolutions and linear layers, as in convoy train"),
    ROW_MATH(FIELD, HELP_MATH_SHORT),
    ROW_TUNE(FIELD, HELP_TUNE),
    {OPT_GROUP("Devices and output")},
    BENCH_COMMON_ROWS(FIELD, HELP_DEVICES_TOGETHER),
};
static const option_table table = {
    .verb = "bench scaling",
    .usage = "[options]",
    OPTION_ROWS(rows),
    .about =
        "Measures each device alone, then teams of the first 2, 3, ... devices (2, 4, 8, ... of\n"
        "more than 4), and prints their bottleneck and whether each device makes steps shorter.",
    .after =
        "A device whose step would take more than 2 s takes fewer images, and so do its teams;\n"
        "long steps are measured for 4 s, instead of --steps.\n"
        "strong: the same batch, divided evenly; weak: the same share per device. Times: lower\n"
        "quartile of steps, or of blocks of them, minimum over rounds. Efficiency: fraction of the\n"
        "sum of the devices' rates alone. Predicted: from each device alone, from the exchange\n"
        "alone, and from the slowdown of all devices that compute at once without an exchange.\n"
        "Devices on the same cores share them in the model.\n"
        "JSON: {\"version\", \"word\", \"model\", \"batch\",\n"
        "\"devices\": [{\"device\", \"math\" (fp32 or tf32, as used by its products),\n"
        "\"alone\": [{\"share\", \"ms\", \"img_s\"}], \"most\" (images that it takes; null: all), \"crowded\",\n"
        "\"shares_cores_with\"}], \"teams\": [{\"devices\", \"verdict\", \"transfer_ms\", \"host_ms\",\n"
        "\"strong\", \"weak\": {\"batch\", \"measured_ms\", \"predicted_ms\", \"efficiency\", \"limit\",\n"
        "\"compute_ms\", \"exposed_ms\", \"compute_by_exchange\"}}], \"extrapolated\": [{\"devices\",\n"
        "\"strong_ms\", \"strong_speedup\", \"weak_efficiency\"}]}.",
};

enum { POINTS = 8, UNMEASURED = 2, HOST_PLACE = 0, BLOCK_MOST = 32, FEW = 8, TRIES = 4 };
static const double BLOCK_MS = 60;
static const double STEP_MOST_S = 2;   /* limit of a step; a device takes fewer images otherwise */
static const double LONG_MS = 500;     /* a step that takes longer is not repeated before it is measured */
static const double MEASURE_MS = 4000; /* time for measuring long steps */

typedef struct one_device {
  cvy_balance_point points[POINTS];
  int n_points;
  int most;         /* images of its steps; 0: not yet known */
  double crowded_s; /* its computing while all compute */
  cvy_math math;    /* of its products */
  int same_as;      /* a device measured already, or itself */
} one_device;

typedef struct mode {
  int batch;
  double measured_s;
  cvy_scaling_step predicted;
  double efficiency;
} mode;
typedef struct team_row {
  int k;
  cvy_scaling_exchange exchange;
  mode strong, weak;
} team_row;

typedef struct scaling_run {
  const scaling_options *options;
  cvy_devices *devices;
  bench_subject subject;
  int n, n_rows, round;
  uint64_t began_ns;
  double opened_ms;      /* the shorter of the first steps of the last opened team */
  double crowded_step_s; /* all devices computing, without an exchange */
  one_device *ones;
  cvy_scaling_device *model;
  team_row *rows;
  int *shares;
} scaling_run;

/* ---- measuring ---- */

static cvy_team_params team_params(const scaling_options *o, int batch, bool no_sync) {
  return (cvy_team_params){
      .batch = batch,
      .samples = batch,
      .conv_algo = o->conv_algo,
      .math = (cvy_math)o->math,
      .tune = (cvy_tune_mode)o->tune,
      .no_sync = no_sync,
      .allow_nan = true,
      .fault_stops = true,
      .all_open = true,                               /* its devices are some of the run's */
      .run_ahead = no_sync ? CVY_RUN_AHEAD_NONE : 0}; /* steps end together even without an exchange */
}

/* A team of all devices leaves out those on which no kernel compiles or no buffer can be made: they may be opened. */
static cvy_status leave_out(scaling_run *run, int batch) {
  cvy_team *all = NULL;
  cvy_team_params params = team_params(run->options, batch, false);
  params.all_open = false;
  params.fault_stops = false;
  const cvy_status status = cvy_team_create(run->devices, run->subject.net, &params, &all);
  cvy_team_destroy(&all);
  return status;
}

static cvy_status open_team(scaling_run *run, cvy_devices *devices, int batch, bool no_sync, cvy_team **team) {
  cvy_status status = CVY_OK;
  const cvy_team_params params = team_params(run->options, batch, no_sync);
  CVY_TRY(bench_team(&run->subject, devices, &params, team));
  static bench_samples opened;
  opened.n = 0;
  CVY_TRY(bench_steps(&run->subject, *team, batch, UNMEASURED, &opened));
  run->opened_ms = fmin(opened.values[0], opened.values[1]);
fail:
  return status;
}

/* Devices [first, first + k) of the run, borrowed. */
static cvy_devices some_of(const scaling_run *run, int first, int k) {
  cvy_devices some = *run->devices;
  some.selected += first;
  some.n = k;
  return some;
}

/* Measures blocks of steps of BLOCK_MS or more, since single short steps end irregularly, and returns the lower
 * quartile of their means: other programs of the machine slow down only some blocks. */
static cvy_status step_s(scaling_run *run, cvy_team *team, int n, double *seconds) {
  cvy_status status = CVY_OK;
  static bench_samples steps, blocks;
  steps.n = blocks.n = 0;
  const bool is_long = run->opened_ms > LONG_MS;
  if (!is_long) CVY_TRY(bench_steps(&run->subject, team, n, UNMEASURED, &steps));
  const double ms = is_long ? run->opened_ms : 0.5 * (steps.values[0] + steps.values[1]);
  const int wanted = ms > 0 ? (int)ceil(BLOCK_MS / ms) : BLOCK_MOST, size = wanted < BLOCK_MOST ? wanted : BLOCK_MOST;
  const double fit = fmax(1, ms > 0 ? MEASURE_MS / ms / size : 1);
  const int n_blocks = (int)fmin((double)run->options->steps, ms > BLOCK_MS ? fit : BENCH_SAMPLES_MAX);
  steps.n = 0;
  CVY_TRY(bench_steps(&run->subject, team, n, size * n_blocks, &steps));
  for (int i = 0; i + size <= steps.n; i += size) {
    double sum = 0;
    for (int k = i; k < i + size; k++) sum += steps.values[k];
    blocks.values[blocks.n++] = sum / size;
  }
  *seconds = 1e-3 * bench_spread_of(&blocks).low;
fail:
  return status;
}

/* The shares of this run's teams, largest first: from the batch itself by halves down to the last team's. */
static int sizes_of(const scaling_run *run, int *sizes) {
  const int batch = (int)run->options->batch;
  int n = 0;
  for (int i = 0; i < run->n_rows && n < POINTS; i++) sizes[n++] = (batch + run->rows[i].k - 1) / run->rows[i].k;
  return n;
}

#define TELL(...) bench_tell(run->round, run->options->rounds, __VA_ARGS__)

/* Seconds of a step of n images of device i alone. */
static cvy_status try_images(scaling_run *run, int i, int n, double *seconds) {
  cvy_status status = CVY_OK;
  cvy_team *team = NULL;
  cvy_devices alone = some_of(run, i, 1);
  TELL("measuring device %d of %d (%s) with %d images", i + 1, run->n, cvy_devices_label(run->devices, i), n);
  CVY_TRY(open_team(run, &alone, n, false, &team));
  *seconds = 1e-3 * run->opened_ms;
fail:
  cvy_team_destroy(&team);
  return status;
}

/* Images of the device's steps: a whole batch, or as many as STEP_MOST_S allows. Estimated from a step of a few images,
 * then of more, since a few images take longer each. */
static cvy_status find_most(scaling_run *run, int i) {
  cvy_status status = CVY_OK;
  const int batch = (int)run->options->batch;
  int n = batch < FEW ? batch : FEW;
  double seconds, all_s = 0;
  for (int tries = 0; tries < TRIES; tries++) {
    CVY_TRY(try_images(run, i, n, &seconds));
    all_s = seconds / n * batch;
    const double fit = fmax(FEW, STEP_MOST_S / seconds * n);
    const int next = n == batch || all_s <= STEP_MOST_S ? batch : fit < batch ? (int)fit : batch;
    const bool settled = next == batch || next <= n * 3 / 2;
    n = next;
    if (settled) break;
  }
  run->ones[i].most = n;
  if (n < batch)
    program_warn(
        "%s: a step of %d images would take about %.1f s; it gets %d images, and each device of its teams at most as "
        "many",
        cvy_devices_label(run->devices, i), batch, all_s, n);
fail:
  return status;
}

/* Images of a batch of the first k devices, in even shares. */
static int batch_for(const scaling_run *run, int k, int batch) {
  for (int i = 0; i < k; i++) {
    const int64_t fit = (int64_t)k * run->ones[run->ones[i].same_as].most;
    if (fit < batch) batch = (int)fit;
  }
  return batch;
}

static cvy_status measure_alone(scaling_run *run, int i) {
  cvy_status status = CVY_OK;
  cvy_team *team = NULL;
  one_device *const one = &run->ones[i];
  cvy_devices alone = some_of(run, i, 1);
  int sizes[POINTS];
  const int n = sizes_of(run, sizes);
  if (one->most == 0) CVY_TRY(find_most(run, i));
  one->n_points = 0;
  for (int s = n - 1; s >= 0; s--) { /* ascending: a replica's memory and kernels depend on its size */
    double seconds;
    const int size = sizes[s] < one->most ? sizes[s] : one->most;
    if (one->n_points > 0 && one->points[one->n_points - 1].n == size) continue;
    TELL("measuring device %d of %d alone, %d images a step", i + 1, run->n, size);
    cvy_balance_point *const point = &one->points[one->n_points++];
    point->n = size;
    CVY_TRY(open_team(run, &alone, size, false, &team));
    CVY_TRY(step_s(run, team, size, &seconds));
    cvy_replica_info info;
    if (cvy_team_replica(team, 0, &info)) one->math = info.math;
    cvy_team_destroy(&team);
    bench_keep_least(&point->seconds, seconds);
  }
fail:
  cvy_team_destroy(&team);
  return status;
}

static cvy_status measure_each(scaling_run *run) {
  cvy_status status = CVY_OK;
  for (int i = 0; i < run->n; i++)
    if (run->ones[i].same_as == i) CVY_TRY(measure_alone(run, i));
fail:
  return status;
}

/* All devices computing at once, without an exchange. */
static cvy_status measure_crowding(scaling_run *run) {
  cvy_status status = CVY_OK;
  cvy_team *team = NULL;
  const int batch = batch_for(run, run->n, (int)run->options->batch);
  double seconds;
  if (run->n == 1) return CVY_OK;
  TELL("measuring all devices at once, without an exchange, %d images a step", batch);
  CVY_TRY(open_team(run, run->devices, batch, true, &team));
  CVY_TRY(step_s(run, team, batch, &seconds));
  bench_keep_least(&run->crowded_step_s, seconds);
  for (int i = 0; i < run->n; i++) {
    cvy_device_times t;
    const bool known = cvy_team_device_times(team, i, &t) && t.steps > 0;
    bench_keep_least(&run->ones[i].crowded_s, known ? seconds * t.computing_ms / t.total_ms : seconds);
  }
fail:
  cvy_team_destroy(&team);
  return status;
}

static cvy_status measure_mode(scaling_run *run, team_row *row, mode *m, bool with_exchange) {
  cvy_status status = CVY_OK;
  cvy_team *team = NULL;
  cvy_devices some = some_of(run, 0, row->k);
  double seconds, transfer_s, host_s;
  CVY_TRY(open_team(run, &some, m->batch, false, &team));
  CVY_TRY(step_s(run, team, m->batch, &seconds));
  bench_keep_least(&m->measured_s, seconds);
  if (with_exchange && row->k > 1) {
    const cvy_layout *const l = cvy_net_layout(run->subject.net);
    CVY_TRY(cvy_calibrate_exchange(team, &transfer_s, &host_s));
    bench_keep_least(&row->exchange.transfer_s, transfer_s);
    bench_keep_least(&row->exchange.host_s, host_s);
    row->exchange.tail = (double)l->buckets[l->n_buckets - 1].size / (double)l->n_floats;
  }
fail:
  cvy_team_destroy(&team);
  return status;
}

static cvy_status measure_teams(scaling_run *run) {
  cvy_status status = CVY_OK;
  const int batch = (int)run->options->batch;
  for (int i = 0; i < run->n_rows; i++) {
    team_row *const row = &run->rows[i];
    row->exchange.host_place = HOST_PLACE;
    row->strong.batch = batch_for(run, row->k, batch);
    row->weak.batch = batch_for(run, row->k, (int)((int64_t)batch * row->k / run->n));
    TELL("measuring %d device%s together, %d images a step", row->k, row->k > 1 ? "s" : "", row->strong.batch);
    CVY_TRY(measure_mode(run, row, &row->strong, true));
    if (row->weak.batch == row->strong.batch) row->weak = row->strong;
    else CVY_TRY(measure_mode(run, row, &row->weak, false));
  }
fail:
  return status;
}

/* ---- the model ---- */

static void even_shares(scaling_run *run, int batch, int k) {
  for (int i = 0; i < k; i++) run->shares[i] = batch / k + (i < batch % k);
}

static void predict(scaling_run *run, const team_row *row, mode *m) {
  double alone_rate = 0;
  even_shares(run, m->batch, row->k);
  m->predicted = cvy_scaling_predict(run->model, run->n, row->k, run->shares, &row->exchange);
  for (int i = 0; i < row->k; i++)
    alone_rate += run->shares[i] / cvy_balance_compute_time(&run->model[i].alone, run->shares[i]);
  m->efficiency = m->batch / m->measured_s / alone_rate;
}

/* Slowdown of each device while all compute. */
static void find_crowding(scaling_run *run) {
  if (run->n == 1) return;
  even_shares(run, batch_for(run, run->n, (int)run->options->batch), run->n);
  const cvy_scaling_step expected = cvy_scaling_predict(run->model, run->n, run->n, run->shares, NULL);
  for (int i = 0; i < run->n; i++) {
    const one_device *const one = &run->ones[i];
    const double alone = cvy_balance_compute_time(&run->model[i].alone, run->shares[i]);
    run->model[i].crowded_share = run->shares[i];
    /* on shared cores only the time of all devices is meaningful */
    run->model[i].crowded =
        expected.shares_cores ? run->crowded_step_s / expected.compute_s : fmax(1, one->crowded_s / alone);
  }
}

static void conclude(scaling_run *run) {
  for (int i = 0; i < run->n; i++) {
    const one_device *const one = &run->ones[run->ones[i].same_as];
    const cvy_selected_device *const c = &run->devices->selected[i];
    const cvy_device_info *const info = &run->devices->list->items[c->item];
    run->model[i] = (cvy_scaling_device){.alone = {.points = one->points, .n_points = one->n_points, .cap = -1},
                                         /* all CPU runtimes use the host's cores */
                                         .place = info->kind == CVY_DEVICE_CPU ? HOST_PLACE : HOST_PLACE + 1 + c->item,
                                         .cores = c->units > 0 ? (double)c->units / (double)info->compute_units : 1};
  }
  find_crowding(run);
  for (int i = 0; i < run->n_rows; i++) {
    predict(run, &run->rows[i], &run->rows[i].strong);
    predict(run, &run->rows[i], &run->rows[i].weak);
  }
}

/* The first device alone is measured twice, first and among the teams. */
static void judge_quiet(const scaling_run *run) {
  const mode *const m = &run->rows[0].strong;
  if (fabs(m->predicted.step_s / m->measured_s - 1) > 0.1)
    program_warn(
        "the machine was busy with other work: the first device alone took %.2f ms a step at first, %.2f ms among the "
        "teams",
        1e3 * m->predicted.step_s, 1e3 * m->measured_s);
}

/* ---- output ---- */

/* "0:0/1" of "0:0/1 pthread-…". */
static const char *name_of(const scaling_run *run, int device, char *out, size_t out_bytes) {
  const char *const label = cvy_devices_label(run->devices, device);
  snprintf(out, out_bytes, "%.*s", (int)strcspn(label, " "), label);
  return out;
}

static double exchange_s(const team_row *row) { return row->exchange.transfer_s + row->exchange.host_s; }

/* The verdict on the devices that this row adds to the previous one; "" for a single device. */
static void verdict_of(const scaling_run *run, int i, char *out, size_t out_bytes) {
  const team_row *const row = &run->rows[i];
  char name[96], last[48];
  out[0] = '\0';
  if (i == 0) return;
  const int before = run->rows[i - 1].k;
  name_of(run, before, name, sizeof name);
  if (row->k - before > 1) {
    strncat(name, " to ", sizeof name - strlen(name) - 1);
    strncat(name, name_of(run, row->k - 1, last, sizeof last), sizeof name - strlen(name) - 1);
  }
  /* for as many images */
  const mode *const without = &run->rows[i - 1].strong;
  const double without_s = without->measured_s * row->strong.batch / without->batch;
  cvy_scaling_verdict(name, without_s, row->strong.measured_s, &row->strong.predicted, out, out_bytes);
}

#define MODE_COLUMNS(ABOVE)                                                             \
  {COLUMN("batch", NULL, 7, INT, 0)}, {COLUMN("predicted", NULL, 10, REAL, 2)},         \
      {COLUMN("measured", NULL, 10, REAL, 2)}, {COLUMN("off %", NULL, 6, SIGNED, 1)}, { \
    "eff.", NULL, 6, COLUMN_REAL, 2, .above = ABOVE                                     \
  }
static const table_column team_columns[] = {
    {COLUMN("devices", NULL, 7, INT, 0)},
    MODE_COLUMNS("strong: the same batch"),
    MODE_COLUMNS("weak: the same share"),
    {COLUMN("limit", NULL, -12, TEXT, 0)},
};
static const table_column more_columns[] = {
    {COLUMN("devices", "devices", 9, INT, 0)},
    {COLUMN("strong ms", "strong_ms", 12, REAL, 2)},
    {COLUMN("faster", "strong_speedup", 10, REAL, 2), .behind = "x"},
    {COLUMN("weak efficiency", "weak_efficiency", 16, REAL, 2)},
};

#define MODE_CELLS(M)                                                               \
  CELL((M)->batch), CELL(1e3 * (M)->predicted.step_s), CELL(1e3 * (M)->measured_s), \
      CELL(100 * ((M)->predicted.step_s / (M)->measured_s - 1)), CELL((M)->efficiency)
static const char *limit_of(const mode *m) {
  return cvy_scaling_limit_name(cvy_scaling_limits(&m->predicted, m->measured_s));
}

/* Rows for more devices than there are: printed, and added to `out`. */
static void extrapolate(const scaling_run *run, bool print, json_t *out) {
  const text_table more = TEXT_TABLE(more_columns, 0);
  const team_row *const last = &run->rows[run->n_rows - 1];
  const int batch = (int)run->options->batch, most = (int)run->options->extrapolate;
  char name[48];
  if (run->n == 1 || most < 2) return;
  const double alone = cvy_balance_compute_time(&run->model[0].alone, batch);
  if (print) {
    printf(
        "\n"
        "Prediction for devices like %s, each with its own cores and link, on this host (concurrent transfers; sum "
        "and\n"
        "update at the speed measured here; no other limit of the host):\n",
        name_of(run, 0, name, sizeof name));
    text_table_head(&more);
  }
  for (int k = 2; k <= most; k *= 2) {
    const cvy_scaling_step strong =
        cvy_scaling_extrapolate(&run->model[0], k, (batch + k - 1) / k, &last->exchange, last->k);
    const cvy_scaling_step weak = cvy_scaling_extrapolate(&run->model[0], k, batch, &last->exchange, last->k);
    const table_cell cells[] = {CELL(k), CELL(1e3 * strong.step_s), CELL(alone / strong.step_s),
                                CELL(alone / weak.step_s)};
    if (print) text_table_row(&more, cells);
    if (out) json_array_append_new(out, text_table_json(&more, cells));
  }
}

static void print_all(const scaling_run *run) {
  const text_table teams = TEXT_TABLE(team_columns, 0);
  char name[48], text[320];
  progress_end();
  program_print("%s, batch %d\n\nAlone:", run->options->model, (int)run->options->batch);
  for (int i = 0; i < run->n; i++) {
    const one_device *const one = &run->ones[run->ones[i].same_as];
    if (run->ones[i].same_as != i) {
      const int first = i;
      while (i + 1 < run->n && run->ones[i + 1].same_as == run->ones[first].same_as) i++;
      printf("\n  %s", name_of(run, first, name, sizeof name));
      if (i > first) printf(" to %s", name_of(run, i, name, sizeof name));
      printf(" the same cores as %s", name_of(run, run->ones[first].same_as, name, sizeof name));
      continue;
    }
    printf("\n  %-40.40s", cvy_devices_label(run->devices, i));
    for (int p = one->n_points - 1; p >= 0; p--)
      printf("%s%d images %.2f ms (%.0f img/s)", p == one->n_points - 1 ? " " : ", ", one->points[p].n,
             1e3 * one->points[p].seconds, one->points[p].n / one->points[p].seconds);
    if (fabs(run->model[i].crowded - 1) > 0.005 && run->model[i].crowded > 0)
      printf(", %.2fx as long with all at work", run->model[i].crowded);
  }
  printf("\n\n");
  text_table_head(&teams);
  for (int i = 0; i < run->n_rows; i++) {
    const mode *const strong = &run->rows[i].strong, *const weak = &run->rows[i].weak;
    text_table_row(&teams, (table_cell[]){CELL(run->rows[i].k), MODE_CELLS(strong), MODE_CELLS(weak),
                                          CELL_TEXT(limit_of(strong))});
  }
  for (int i = 1; i < run->n_rows; i++) {
    const team_row *const row = &run->rows[i];
    if (i == 1) printf("\n");
    printf("%d devices: exchange alone %.2f ms, of it sum and update %.2f; computing takes %.1f times as long\n",
           row->k, 1e3 * exchange_s(row), 1e3 * row->exchange.host_s,
           row->strong.predicted.compute_s / exchange_s(row));
    verdict_of(run, i, text, sizeof text);
    printf("  %s\n", text);
  }
  extrapolate(run, true, NULL);
}

static json_t *mode_json(const team_row *row, const mode *m) {
  return json_pack("{si sf sf sf ss sf sf so}", "batch", m->batch, "measured_ms", 1e3 * m->measured_s, "predicted_ms",
                   1e3 * m->predicted.step_s, "efficiency", m->efficiency, "limit", limit_of(m), "compute_ms",
                   1e3 * m->predicted.compute_s, "exposed_ms", 1e3 * m->predicted.exposed_s, "compute_by_exchange",
                   row->k > 1 ? json_real(m->predicted.compute_s / exchange_s(row)) : json_null());
}

static json_t *result_json(const scaling_run *run) {
  json_t *const devices = json_array(), *const teams = json_array(), *const more = json_array();
  const int batch = (int)run->options->batch;
  char text[320], name[48];
  for (int i = 0; i < run->n; i++) {
    const one_device *const one = &run->ones[run->ones[i].same_as];
    json_t *const alone = json_array();
    for (int p = 0; p < one->n_points; p++)
      json_array_append_new(
          alone, json_pack("{si sf sf}", "share", one->points[p].n, "ms", 1e3 * one->points[p].seconds, "img_s",
                           one->points[p].n / one->points[p].seconds));
    json_array_append_new(
        devices,
        json_pack("{ss ss so so sf so}", "device", cvy_devices_label(run->devices, i), "math",
                  program_math_name(one->math), "alone", alone, "most",
                  one->most < batch ? json_integer(one->most) : json_null(), "crowded",
                  run->model[i].crowded > 0 ? run->model[i].crowded : 1.0, "shares_cores_with",
                  run->ones[i].same_as == i ? json_null()
                                            : json_string(name_of(run, run->ones[i].same_as, name, sizeof name))));
  }
  for (int i = 0; i < run->n_rows; i++) {
    const team_row *const row = &run->rows[i];
    verdict_of(run, i, text, sizeof text);
    json_array_append_new(
        teams, json_pack("{si so sf sf so so}", "devices", row->k, "verdict", i > 0 ? json_string(text) : json_null(),
                         "transfer_ms", 1e3 * row->exchange.transfer_s, "host_ms", 1e3 * row->exchange.host_s, "strong",
                         mode_json(row, &row->strong), "weak", mode_json(row, &row->weak)));
  }
  extrapolate(run, false, more);
  json_t *const out = bench_json("scaling", devices);
  json_object_update_new(out, json_pack("{so si so so}", "model", program_text_json(run->options->model), "batch",
                                        batch, "teams", teams, "extrapolated", more));
  return out;
}

/* ---- the word ---- */

static bool same_cores(const cvy_selected_device *a, const cvy_selected_device *b) {
  return a->item == b->item && a->units == b->units && a->part == b->part && a->n_parts == b->n_parts;
}

static void find_same_cores(scaling_run *run) {
  for (int i = 0; i < run->n; i++) {
    int *const same_as = &run->ones[i].same_as;
    *same_as = i;
    for (int j = 0; j < i && *same_as == i; j++)
      if (same_cores(&run->devices->selected[i], &run->devices->selected[j])) *same_as = j;
  }
}

/* True if the limit allows another round of average length. */
static bool has_time(const scaling_run *run) {
  const double seconds = cvy_clock_seconds_since(run->began_ns), all_s = seconds / run->round * (run->round + 1);
  if (run->round == 0 || all_s <= run->options->limit_s) return true;
  program_warn("%d of %d rounds in %.0f s: --limit is %g s", run->round, (int)run->options->rounds, seconds,
               run->options->limit_s);
  return false;
}

static cvy_status prepare(scaling_run *run) {
  cvy_status status = CVY_OK;
  const int batch = (int)run->options->batch;
  CVY_TRY(bench_subject_open(run->options->model, NULL, batch, true, &run->subject));
  run->n = cvy_devices_count(run->devices);
  CVY_REQUIRE(batch / run->n >= 2, CVY_E_ARGUMENT,
              "--batch %d for %d devices; expected 2 or more images for each device", batch, run->n);
  CVY_TRY(leave_out(run, batch));
  run->n = cvy_devices_count(run->devices);
  const size_t n = (size_t)run->n;
  run->ones = cvy_calloc(n, sizeof *run->ones);
  run->model = cvy_calloc(n, sizeof *run->model);
  run->rows = cvy_calloc(n, sizeof *run->rows);
  run->shares = cvy_calloc(n, sizeof *run->shares);
  CVY_REQUIRE(run->ones && run->model && run->rows && run->shares, CVY_E_MEMORY, "no memory for %d devices", run->n);
  find_same_cores(run);
  for (int k = 1; k < run->n; k = run->n > 4 ? 2 * k : k + 1) run->rows[run->n_rows++].k = k;
  run->rows[run->n_rows++].k = run->n;
fail:
  return status;
}

int bench_scaling_main(int argc, char **argv) {
  scaling_options options = {0};
  static scaling_run run;
  int code = options_parse(&table, argc, argv, &options, NULL);
  if (code != OPTIONS_GO_ON) return code;
  code = bench_begin(table.verb, options.json, options.quiet, options.devices, &run.devices);
  if (code != EXIT_DONE) return code;
  cvy_status status = CVY_OK;
  run.options = &options;
  CVY_TRY(prepare(&run));
  run.began_ns = cvy_clock_ns();
  for (; run.round < options.rounds && has_time(&run); run.round++) {
    CVY_TRY(measure_each(&run));
    CVY_TRY(measure_crowding(&run));
    CVY_TRY(measure_teams(&run));
  }
  conclude(&run);
  judge_quiet(&run);
  if (!bench_to_stdout(options.json)) print_all(&run);
fail:
  progress_end();
  code = program_exit_code(status);
  if (code == EXIT_DONE && options.json && !program_write_json(options.json, result_json(&run))) code = EXIT_FAILED;
  bench_subject_close(&run.subject);
  cvy_devices_destroy(&run.devices);
  cvy_free(run.ones);
  cvy_free(run.model);
  cvy_free(run.rows);
  cvy_free(run.shares);
  return code;
}
