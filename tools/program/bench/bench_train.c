/* SPDX-License-Identifier: MIT
 * convoy bench train: the rate of whole steps and the times of their operations. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "src/base/clock.h"
#include "src/base/mem.h"
#include "src/nn/instance_parts.h"
#include "src/team/inside.h"
#include "tools/program/bench/bench_ops.h"
#include "tools/program/options/input_options.h"
#include "tools/program/view/progress.h"
#include "tools/program/view/text_table.h"
#include "tools/program/signals.h"
#include "tools/program/view/wait_line.h"

typedef struct train_bench_options {
  const char *devices, *json, *conv_algo;
  const char *model;
  int tune, math;
  int64_t batch, steps, input[3]; /* input: height, width, channels */
  normalize_option normalize;
  augment_option augment;
  bool inference, recompute, no_breakdown, quiet;
} train_bench_options;

#define FIELD(name) .offset = offsetof(train_bench_options, name)
static const option_row rows[] = {
    {OPT_GROUP("Network and measurement")},
    BENCH_ROW_NO_NODES,
    ROW_MODEL(FIELD, "the network"),
    {OPT_PARSE("input", FIELD(input), "HxWxC", "pixels and channels", options_parse_input,
               "size of the network's images" OR_CHANNELS_FIRST),
     .deflt = "28x28x1"},
    ROW_BATCH(FIELD, 1 << 20, "images of a step on all devices together"),
    BENCH_ROW_STEPS(FIELD, 1, BENCH_SAMPLES_MAX, "steps measured, after one of warm-up"),
    {OPT_FLAG("inference", FIELD(inference),
              "measure evaluation instead of training: forward passes, losses and accuracy")},
    ROW_RECOMPUTE(FIELD, "recompute activations, as in convoy train; not with --inference"),
    ROW_NORMALIZE(FIELD),
    ROW_AUGMENT(FIELD),
    ROW_CONV_ALGO(FIELD, "algorithms of convolutions and linear layers, as in convoy train"),
    ROW_MATH(FIELD, HELP_MATH_SHORT),
    ROW_TUNE(FIELD, HELP_TUNE),
    {OPT_FLAG("no-breakdown", FIELD(no_breakdown), "measure only the rate, in half the time")},
    {OPT_GROUP("Devices and output")},
    BENCH_COMMON_ROWS(FIELD, HELP_DEVICES_TOGETHER),
};
static const option_table table = {
    .verb = "bench train",
    .usage = "[options]",
    OPTION_ROWS(rows),
    .about =
        "Measures whole training steps on synthetic data, then the same steps with the times of\n"
        "all kernels, by operation and by layer. These add up to the step's time.",
    .after =
        "GFLOP/s: multiply-adds of direct convolutions and linear layers, times 2; the FMA\n"
        "peak is measured between. Memory: allocated on the devices, and the process's maximum.\n"
        "\"between kernels\": launches, waiting, the exchange.\n"
        "JSON: {\"version\", \"word\", \"model\", \"input\", \"batch\", \"inference\", \"recompute\", \"steps\",\n"
        "\"img_s\" (median step), \"img_s_best\", \"step_ms\", \"step_ms_low\", \"step_ms_high\" (quartiles),\n"
        "\"gflops\", \"peak_gflops\", \"fraction_of_peak\", \"peak_mib\" (CPUs: process, else devices),\n"
        "\"device_mib\", \"process_mib\", \"profiled_step_ms\", \"conv_choices\", \"devices\": [{\"device\",\n"
        "\"driver\", \"platform\", \"platform_version\", \"peaks\", \"share\", \"micro_batch\",\n"
        "\"math\" (fp32 or tf32, as used by its products),\n"
        "\"device_mib\", \"kernels_ms\", \"between_ms\", \"families\": [{\"name\", \"ms\", \"launches\",\n"
        "\"gflops\"}], \"layers\": [{\"name\", \"operation\", \"forward_ms\", \"backward_ms\",\n"
        "\"backward_data_ms\", \"ms\", \"gflops\"}]}]}; backward_ms of convolutions: weights.",
};

typedef struct layer_times {
  double ms[CVY_SCOPE_PARTS];
  long launches[CVY_SCOPE_PARTS];
} layer_times;
/* A family: "conv2d backward_weights". */
typedef struct family {
  char name[48];
  double ms, flops;
  long launches;
} family;
enum { FAMILIES_MAX = 40 };

typedef struct device_times {
  const cvy_instance *instance;
  layer_times *units; /* n_units, then the loss, then kernels that belong to no unit */
  family families[FAMILIES_MAX];
  int n_families;
  double kernels_ms, between_ms; /* of a step */
  int share, micro_batch;
  cvy_math math;
  size_t device_bytes;
  bench_peaks peaks;
  bool events_wrong;
} device_times;

typedef struct train_run {
  const train_bench_options *options;
  cvy_devices *devices;
  bench_subject subject;
  int n;          /* devices */
  cvy_team *team; /* the current one; open until its results are printed, since a driver may crash when it is closed */
  device_times *times;
  bench_samples step_ms;
  bench_spread spread;
  double best_ms, profiled_ms, process_mib, device_mib, flops, peak_gflops;
  json_t *choices;
} train_run;

/* ---- steps ---- */

/* Steps, or evaluations of as many images. step_ms (may be NULL) gets their times. */
static cvy_status run_steps(train_run *run, cvy_team *team, int steps, bench_samples *step_ms) {
  cvy_status status = CVY_OK;
  const cvy_stop *const stop = signals_soft();
  if (!run->options->inference) return bench_steps(&run->subject, team, (int)run->options->batch, steps, step_ms);
  for (int i = 0; i < steps; i++) {
    cvy_eval_result result;
    if (cvy_stop_requested(stop)) CVY_TRY(CVY_E_INTERRUPTED);
    CVY_TRY(cvy_team_evaluate(team, CVY_SET_TRAIN, &result));
    if (step_ms) step_ms->values[step_ms->n++] = 1e3 * result.seconds;
  }
fail:
  return status;
}

static cvy_status open_team(train_run *run, bool profile) {
  cvy_status status = CVY_OK;
  const cvy_team_params params = {.batch = (int)run->options->batch,
                                  .inference = run->options->inference,
                                  .recompute = run->options->recompute,
                                  .input = input_options_params(&run->options->normalize, &run->options->augment, 0),
                                  .conv_algo = run->options->conv_algo,
                                  .math = (cvy_math)run->options->math,
                                  .tune = (cvy_tune_mode)run->options->tune,
                                  .profile = profile,
                                  .allow_nan = true,
                                  .fault_stops = true}; /* a figure is the whole team's */
  progress_status("preparing the devices (kernels are compiled the first time)");
  wait_line_begin();
  wait_line_preparing(run->devices);
  CVY_TRY(bench_team(&run->subject, run->devices, &params, &run->team));
  run->n = cvy_devices_count(run->devices); /* without those that were left out */
  if (run->options->inference) wait_line_evaluating();
  else wait_line_first_step();
  CVY_TRY(run_steps(run, run->team, 1, NULL));
fail:
  progress_wait_end();
  return status;
}

static cvy_status measure_rate(train_run *run) {
  cvy_status status = CVY_OK;
  CVY_TRY(open_team(run, false));
  progress_status("measuring steps");
  CVY_TRY(run_steps(run, run->team, (int)run->options->steps, &run->step_ms));
  run->spread = bench_spread_of(&run->step_ms);
  run->best_ms = run->step_ms.values[0]; /* sorted */
  struct rusage usage;
  if (getrusage(RUSAGE_SELF, &usage) == 0) run->process_mib = (double)usage.ru_maxrss / 1024;
  for (int i = 0; i < run->n; i++) {
    cvy_replica_info info;
    device_times *const t = &run->times[i];
    if (!cvy_team_replica(run->team, i, &info)) continue;
    t->share = info.share, t->micro_batch = info.micro_batch, t->device_bytes = info.device_bytes, t->math = info.math;
    run->device_mib += (double)info.device_bytes / (1 << 20);
  }
  run->choices = json_loads(cvy_team_conv_choices(run->team), 0, NULL);
fail:
  return status;
}

/* ---- where the time goes ---- */

static void add_times(void *user, const cvy_command *c) {
  device_times *const t = user;
  const int n_units = t->instance->plan->n_units, scope = c->scope;
  if (c->kind != CVY_COMMAND_KERNEL) return;
  const int unit = scope >= 0 ? scope / CVY_SCOPE_PARTS : scope == CVY_SCOPE_LOSS ? n_units : n_units + 1;
  /* kernels that belong to no unit are sorted by name: gather, the update, others */
  const int part = scope >= 0                            ? scope % CVY_SCOPE_PARTS
                   : scope == CVY_SCOPE_LOSS             ? 0
                   : strncmp(c->name, "gather", 6) == 0  ? 0
                   : strncmp(c->name, "update_", 7) == 0 ? 1
                                                         : 2;
  const double ms = c->end_ns > c->start_ns ? 1e-6 * (double)(c->end_ns - c->start_ns) : 0;
  t->units[unit].ms[part] += ms;
  t->units[unit].launches[part]++;
  t->kernels_ms += ms;
}

static void ignore_times(void *user, const cvy_command *c) { (void)user, (void)c; }

static void add_family(device_times *t, const char *operation, const char *pass, double ms, long launches,
                       double flops) {
  char name[48];
  int i = 0;
  if (launches == 0) return;
  snprintf(name, sizeof name, "%s%s%s", operation, *pass ? " " : "", pass);
  while (i < t->n_families && strcmp(t->families[i].name, name) != 0) i++;
  if (i == FAMILIES_MAX) return;
  if (i == t->n_families) snprintf(t->families[t->n_families++].name, sizeof name, "%s", name);
  t->families[i].ms += ms;
  t->families[i].launches += launches;
  t->families[i].flops += flops;
}

static bool is_product(const cvy_unit *u) {
  return u->kind == CVY_UNIT_CONV2D || u->kind == CVY_UNIT_CONVPOOL || u->kind == CVY_UNIT_LINEAR;
}

/* Operations of one pass of a convolution or linear layer over n images. */
static double product_flops(const cvy_net *net, const cvy_unit *u, int n) {
  const cvy_layer *const l = &net->layers[u->layer];
  const cvy_shape *const x = &net->layers[u->x[0]].shape;
  if (!is_product(u)) return 0;
  const double taps = u->kind == CVY_UNIT_LINEAR ? (double)x->h * x->w : (double)l->kernel[0] * l->kernel[1];
  return 2.0 * n * l->shape.h * l->shape.w * l->shape.c * taps * (l->groups > 1 ? x->c / l->groups : x->c);
}

/* The same for a part of a step, which recompute runs a second time. */
static double part_flops(const device_times *t, int u, int part) {
  const cvy_unit *const unit = &t->instance->plan->units[u];
  const double one = product_flops(t->instance->net, unit, t->share);
  return part == CVY_SCOPE_FORWARD && unit->again ? 2 * one : one;
}

static const char *part_name(const cvy_unit *u, int part) {
  return part == CVY_SCOPE_FORWARD         ? "forward"
         : part == CVY_SCOPE_BACKWARD_DATA ? "backward_data"
         : is_product(u)                   ? "backward_weights"
                                           : "backward";
}

/* Divides the times of `steps` steps by their number; families are added up. */
static void sum_up(device_times *t, int steps) {
  const cvy_plan *const plan = t->instance->plan;
  static const char *const others[] = {"gather", "update", "other"};
  t->kernels_ms /= steps;
  for (int u = 0; u < plan->n_units + 2; u++) {
    for (int part = 0; part < CVY_SCOPE_PARTS; part++) {
      double *const ms = &t->units[u].ms[part];
      *ms /= steps;
      const long launches = (t->units[u].launches[part] + steps - 1) / steps;
      if (u == plan->n_units) add_family(t, "loss", "", *ms, launches, 0);
      else if (u > plan->n_units && part < 3) add_family(t, others[part], "", *ms, launches, 0);
      else if (u < plan->n_units) {
        const cvy_unit *const unit = &plan->units[u];
        add_family(t, bench_unit_operation(t->instance->net, unit), part_name(unit, part), *ms, launches,
                   part_flops(t, u, part));
      }
    }
  }
}

static void add_json(const train_run *run, const device_times *t, json_t *out);
static void print_device(const train_run *run, const device_times *t, const char *label);

static cvy_status measure_breakdown(train_run *run, json_t *devices) {
  cvy_status status = CVY_OK;
  const int steps = (int)run->options->steps;
  cvy_team_destroy(&run->team);
  CVY_TRY(open_team(run, true));
  for (int i = 0; i < run->n; i++) CVY_TRY(cvy_profile_collect(run->team->replicas[i].device, ignore_times, NULL));
  progress_status("measuring kernels");
  const uint64_t begin = cvy_clock_ns();
  CVY_TRY(run_steps(run, run->team, steps, NULL));
  run->profiled_ms = 1e3 * cvy_clock_seconds_since(begin) / steps;
  for (int i = 0; i < run->n; i++) {
    device_times *const t = &run->times[i];
    if (t->events_wrong) {
      program_warn("%s: no breakdown: the driver's kernel times are wrong", cvy_devices_label(run->devices, i));
      continue;
    }
    t->instance = run->team->replicas[i].instance;
    t->units = cvy_calloc((size_t)t->instance->plan->n_units + 2, sizeof *t->units);
    CVY_REQUIRE(t->units, CVY_E_MEMORY, "no memory for the times of layers");
    CVY_TRY(cvy_profile_collect(run->team->replicas[i].device, add_times, t));
    sum_up(t, steps);
    t->between_ms = run->profiled_ms - t->kernels_ms;
    if (!bench_to_stdout(run->options->json)) print_device(run, t, cvy_devices_label(run->devices, i));
    add_json(run, t, json_array_get(devices, (size_t)i));
  }
  if (run->profiled_ms > 1.1 * run->spread.median || run->profiled_ms < 0.9 * run->spread.median)
    program_warn("the machine was busy with other work: %.1f ms a step first, %.1f ms with the times of kernels",
                 run->spread.median, run->profiled_ms);
fail:
  for (int i = 0; i < run->n; i++) {
    cvy_free(run->times[i].units);
    run->times[i].units = NULL;
  }
  return status;
}

/* ---- output ---- */

static const table_column family_columns[] = {
    {COLUMN("operation", "name", -30, TEXT, 0)},
    {COLUMN("ms", "ms", 11, REAL, 3)},
    {COLUMN("%", NULL, 6, REAL, 1)},
    {COLUMN("launches", "launches", 9, INT, 0)},
    {COLUMN("GFLOP/s", "gflops", 9, REAL, 1)},
    {COLUMN("x peak", NULL, 7, REAL, 2)},
};
static const table_column layer_columns[] = {
    {COLUMN("layer", "name", -38, TEXT, 0)},
    {COLUMN(NULL, "operation", 0, TEXT, 0)},
    {COLUMN("forward", "forward_ms", 10, REAL, 3)},
    {COLUMN("backward", "backward_ms", 10, REAL, 3)},
    {COLUMN("b. data", "backward_data_ms", 10, REAL, 3)},
    {COLUMN("ms", "ms", 10, REAL, 3)},
    {COLUMN("%", NULL, 6, REAL, 1)},
    {COLUMN("GFLOP/s", "gflops", 9, REAL, 1)},
    {COLUMN("x peak", NULL, 7, REAL, 2)},
};
static const text_table family_table = TEXT_TABLE(family_columns, 2), layer_table = TEXT_TABLE(layer_columns, 2);

/* NaN, which no table shows, where there is no rate. */
static double gflops_of(double flops, double ms) { return flops > 0 && ms > 0 ? flops / ms * 1e-6 : NAN; }

static void family_cells(const train_run *run, const device_times *t, const family *f, table_cell *cells) {
  const double gflops = gflops_of(f->flops, f->ms);
  const table_cell all[] = {CELL_TEXT(f->name), CELL(f->ms),  CELL(100 * f->ms / run->profiled_ms),
                            CELL(f->launches),  CELL(gflops), CELL(gflops / t->peaks.fma_gflops)};
  memcpy(cells, all, sizeof all);
}

static double layer_ms(const layer_times *l) { return l->ms[0] + l->ms[1] + l->ms[2] + l->ms[3]; }

/* Operations of all passes that ran. */
static double layer_flops(const device_times *t, int u) {
  double flops = 0;
  for (int part = 0; part < CVY_SCOPE_PARTS; part++)
    if (t->units[u].launches[part] > 0) flops += part_flops(t, u, part);
  return flops;
}

/* title: room for the layer's name. */
static void layer_cells(const train_run *run, const device_times *t, int u, char title[96], table_cell *cells) {
  const cvy_unit *const unit = &t->instance->plan->units[u];
  const layer_times *const l = &t->units[u];
  const double ms = layer_ms(l), gflops = gflops_of(layer_flops(t, u), ms);
  const table_cell all[] = {CELL_TEXT(cvy_layer_title(t->instance->net, unit->layer, title, 96)),
                            CELL_TEXT(bench_unit_operation(t->instance->net, unit)),
                            CELL(l->ms[0]),
                            CELL(l->ms[1]),
                            CELL(l->ms[2]),
                            CELL(ms),
                            CELL(100 * ms / run->profiled_ms),
                            CELL(gflops),
                            CELL(gflops / t->peaks.fma_gflops)};
  memcpy(cells, all, sizeof all);
}

static void add_json(const train_run *run, const device_times *t, json_t *out) {
  json_t *const families = json_array(), *const layers = json_array();
  table_cell cells[TABLE_COLUMNS];
  char title[96];
  for (int i = 0; i < t->n_families; i++) {
    family_cells(run, t, &t->families[i], cells);
    json_array_append_new(families, text_table_json(&family_table, cells));
  }
  for (int u = 0; u < t->instance->plan->n_units; u++) {
    layer_cells(run, t, u, title, cells);
    json_array_append_new(layers, text_table_json(&layer_table, cells));
  }
  json_object_update_new(out, json_pack("{sf sf so so}", "kernels_ms", t->kernels_ms, "between_ms", t->between_ms,
                                        "families", families, "layers", layers));
}

static void print_device(const train_run *run, const device_times *t, const char *label) {
  const double all_ms = t->kernels_ms + t->between_ms;
  table_cell cells[TABLE_COLUMNS];
  char title[96];
  progress_end();
  printf("\n%s\n  %d images, with the times of its kernels: %.3f ms a step\n", label, t->share, run->profiled_ms);
  text_table_head(&family_table);
  for (int i = 0; i < t->n_families; i++) {
    family_cells(run, t, &t->families[i], cells);
    text_table_row(&family_table, cells);
  }
  text_table_row(&family_table,
                 (table_cell[]){CELL_TEXT("between kernels"), CELL(t->between_ms),
                                CELL(100 * t->between_ms / run->profiled_ms), CELL_NONE, CELL_NONE, CELL_NONE});
  text_table_row(&family_table, (table_cell[]){CELL_TEXT("together"), CELL(all_ms),
                                               CELL(100 * all_ms / run->profiled_ms), CELL_NONE, CELL_NONE, CELL_NONE});
  printf("\n");
  text_table_head(&layer_table);
  for (int u = 0; u < t->instance->plan->n_units; u++) {
    layer_cells(run, t, u, title, cells);
    text_table_row(&layer_table, cells);
  }
}

static double peak_mib_of(const train_run *run) {
  bool cpu = true;
  for (int i = 0; i < run->n; i++)
    cpu = cpu && run->devices->list->items[run->devices->selected[i].item].kind == CVY_DEVICE_CPU;
  return cpu ? run->process_mib : run->device_mib;
}

static void print_rates(const train_run *run) {
  const double batch = (double)run->options->batch, ms = run->spread.median;
  const cvy_data *const d = run->subject.data;
  const double gflops = gflops_of(run->flops, ms);
  char *const labels = program_team_labels(run->devices, NULL);
  progress_end();
  program_print("%s, %s, %dx%dx%d, batch %.0f on [%s]\n", run->options->model,
                run->options->inference   ? "evaluation"
                : run->options->recompute ? "training with recompute"
                                          : "training",
                d->h, d->w, d->c, batch, labels ? labels : "?");
  printf("  %.1f img/s, fastest step %.1f; %.3f ms a step +- %.1f %% (%d steps)\n", 1e3 * batch / ms,
         1e3 * batch / run->best_ms, ms, bench_spread_percent(&run->spread), run->step_ms.n);
  printf("  %.1f GFLOP/s, %.2f x the FMA peak of %.1f; memory %.0f MiB on devices, %.0f MiB process at most\n", gflops,
         gflops / run->peak_gflops, run->peak_gflops, run->device_mib, run->process_mib);
  fflush(stdout);
  free(labels);
}

static json_t *result_json(const train_run *run, json_t *devices) {
  json_t *const out = bench_json("train", devices);
  const double batch = (double)run->options->batch;
  char size[64];
  const cvy_data *const d = run->subject.data;
  const double gflops = gflops_of(run->flops, run->spread.median);
  snprintf(size, sizeof size, "%dx%dx%d", d->h, d->w, d->c);
  json_object_update_new(
      out, json_pack("{so ss sI sb sb si sf sf sf sf sf}", "model", program_text_json(run->options->model), "input",
                     size, "batch", (json_int_t)run->options->batch, "inference", run->options->inference, "recompute",
                     run->options->recompute, "steps", run->step_ms.n, "img_s", 1e3 * batch / run->spread.median,
                     "img_s_best", 1e3 * batch / run->best_ms, "step_ms", run->spread.median, "step_ms_low",
                     run->spread.low, "step_ms_high", run->spread.high));
  json_object_update_new(
      out, json_pack("{sf sf sf sf sf sf so sO?}", "gflops", gflops, "peak_gflops", run->peak_gflops,
                     "fraction_of_peak", gflops / run->peak_gflops, "peak_mib", peak_mib_of(run), "device_mib",
                     run->device_mib, "process_mib", run->process_mib, "profiled_step_ms",
                     run->profiled_ms > 0 ? json_real(run->profiled_ms) : json_null(), "conv_choices", run->choices));
  return out;
}

/* ---- the word ---- */

/* Measures the FMA rate of each device, which its replicas share; the best of several calls stays. */
static cvy_status measure_peaks(train_run *run, json_t *devices) {
  cvy_status status = CVY_OK;
  progress_status("measuring peaks");
  run->peak_gflops = 0;
  for (int i = 0; i < run->n; i++) {
    const cvy_selected_device *const c = &run->devices->selected[i];
    bench_device device;
    int same = -1;
    for (int k = 0; k < i && same < 0; k++) {
      const cvy_selected_device *const other = &run->devices->selected[k];
      if (other->item == c->item && other->units == c->units && other->unit_first == c->unit_first) same = k;
    }
    if (same >= 0) {
      run->times[i].peaks = run->times[same].peaks;
      run->times[i].events_wrong = run->times[same].events_wrong;
      json_array_append_new(devices, json_deep_copy(json_array_get(devices, (size_t)same)));
    } else {
      CVY_TRY(bench_device_open(run->devices, i, &device));
      status = bench_measure_rates(&device, 0.2);
      run->times[i].peaks = device.peaks;
      run->times[i].events_wrong = device.events_wrong;
      if (status == CVY_OK) json_array_append_new(devices, bench_device_json(&device));
      bench_device_close(&device);
      CVY_TRY(status);
      run->peak_gflops += run->times[i].peaks.fma_gflops;
    }
    json_t *const json = json_array_get(devices, (size_t)i);
    json_object_set_new(json, "device", json_string(cvy_devices_label(run->devices, i)));
    json_object_set_new(json, "share", json_integer(run->times[i].share));
    json_object_set_new(json, "micro_batch", json_integer(run->times[i].micro_batch));
    json_object_set_new(json, "math", json_string(program_math_name(run->times[i].math)));
    json_object_set_new(json, "device_mib", json_real((double)run->times[i].device_bytes / (1 << 20)));
  }
fail:
  return status;
}

static cvy_status prepare(train_run *run) {
  cvy_status status = CVY_OK;
  const int batch = (int)run->options->batch;
  CVY_TRY(bench_subject_open(run->options->model, run->options->input, batch, !run->options->inference, &run->subject));
  run->n = cvy_devices_count(run->devices);
  run->times = cvy_calloc((size_t)run->n, sizeof *run->times);
  CVY_REQUIRE(run->times, CVY_E_MEMORY, "no memory for %d devices", run->n);
  cvy_plan *plan = NULL;
  CVY_TRY(cvy_plan_create(run->subject.net, &(cvy_plan_params){.n = 1, .inference = run->options->inference}, &plan));
  for (int u = 0; u < plan->n_units; u++) {
    const int passes = run->options->inference ? 1 : plan->units[u].dx[0] == CVY_GRADIENT_NONE ? 2 : 3;
    run->flops += batch * passes * product_flops(run->subject.net, &plan->units[u], 1);
  }
  cvy_plan_destroy(&plan);
fail:
  return status;
}

int bench_train_main(int argc, char **argv) {
  train_bench_options options = {0};
  static train_run run;
  json_t *devices = NULL;
  option_set given = {0};
  int code = options_parse(&table, argc, argv, &options, &given);
  if (code != OPTIONS_GO_ON) return code;
  if (cvy_onnx_is_file(options.model) && options_given(&table, given, "input"))
    return options_error("bench train", "--input with --model %s: a file has its own input; expected resnet18 or lenet",
                         options.model);
  if (options.inference && options.recompute)
    return options_error("bench train",
                         "--recompute with --inference: evaluation has no backward pass; expected one of them");
  code = bench_begin(table.verb, options.json, options.quiet, options.devices, &run.devices);
  if (code != EXIT_DONE) return code;
  cvy_status status = CVY_OK;
  run.options = &options;
  devices = json_array();
  CVY_TRY(prepare(&run));
  CVY_TRY(measure_rate(&run));
  CVY_TRY(measure_peaks(&run, devices));
  if (!bench_to_stdout(options.json)) print_rates(&run);
  if (!options.no_breakdown) CVY_TRY(measure_breakdown(&run, devices));
fail:
  progress_end();
  code = program_exit_code(status);
  if (code == EXIT_DONE && options.json && !program_write_json(options.json, result_json(&run, json_incref(devices))))
    code = EXIT_FAILED;
  program_flush();
  cvy_team_destroy(&run.team);
  json_decref(devices);
  json_decref(run.choices);
  bench_subject_close(&run.subject);
  cvy_devices_destroy(&run.devices);
  cvy_free(run.times);
  return code;
}
