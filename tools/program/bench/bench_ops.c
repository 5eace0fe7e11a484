/* SPDX-License-Identifier: MIT
 * convoy bench conv and convoy bench ops: every distinct operation of a network, or one shape, with every algorithm. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/text.h"
#include "src/nn/convs.h"
#include "src/ops/conv2d/math.h"
#include "tools/program/bench/bench_ops.h"
#include "tools/program/view/progress.h"

typedef struct ops_options {
  const char *devices, *json, *shape, *operation, *baseline;
  const char *model;
  int pass, tiles, tune, math;
  int64_t batch;
  double seconds, max_slowdown;
  cvy_conv_algo_list algos;
  bool only_auto, dump_build, quiet;
} ops_options;

typedef struct ops_run {
  const ops_options *options;
  const char *only;        /* operation, NULL: all */
  cvy_conv2d_params shape; /* of --shape */
  cvy_net *net;            /* else */
  bench_rows rows;
  json_t *devices;
} ops_run;

static const char *const operations[] = {
    "conv2d", "linear",  "batchnorm", "groupnorm",  "pool2d",  "convpool", "relu",         "add",    "mul",  "concat",
    "slice",  "shuffle", "resample",  "activation", "dropout", "softmax",  "softmax_xent", "update", "norm", "gather"};

/* ---- options ---- */

static const char *parse_algos(const char *text, void *target) {
  ops_options *const options = (ops_options *)((char *)target - offsetof(ops_options, algos));
  options->only_auto = strcmp(text, "auto") == 0;
  options->algos.n = 0;
  if (options->only_auto || strcmp(text, "all") == 0) return NULL;
  cvy_log_set(NULL, NULL, CVY_LOG_ERROR); /* the reason below is for users of this option */
  const cvy_status status = cvy_conv_algos_parse(text, &options->algos);
  program_log_start();
  return status == CVY_OK ? NULL
                          : "expected all, auto, or a list of direct, winograd2, winograd2_fused, winograd4, "
                            "winograd4_fused, gemm, fft, separated by commas";
}

static const char *parse_slowdown(const char *text, void *target) {
  char number[40];
  const size_t length = strlen(text), digits = length > 0 && text[length - 1] == '%' ? length - 1 : length;
  double percent;
  static const char expected[] = "expected a percentage from 0 to 1000, such as 5%";
  if (digits >= sizeof number) return expected;
  memcpy(number, text, digits);
  number[digits] = '\0';
  if (!cvy_parse_float(number, 0, 1000, &percent)) return expected;
  *(double *)target = percent / 100;
  return NULL;
}

#define FIELD(name) .offset = offsetof(ops_options, name)
#define GROUP_ROW {OPT_GROUP("Network and measurement")}
#define MODEL_ROW ROW_MODEL(FIELD, "the network whose operations are measured")
#define BATCH_ROW ROW_BATCH(FIELD, 1 << 16, "images of a call")
#define ALGO_ROW                                                                     \
  {OPT_PARSE("algo", FIELD(algos), "LIST", "names", parse_algos,                     \
             "algorithms of convolutions: all, auto, or names separated by commas"), \
   .deflt = "all"}
#define TILES_ROW                                                                        \
  {OPT_CHOICE("tiles", FIELD(tiles), "default|all", "default",                           \
              "tile sizes of each algorithm: its default, or all that the tuner tries"), \
   .value = "WHICH"}
#define TUNE_ROW                                                                           \
  {OPT_CHOICE("tune", FIELD(tune), "cached|off", "cached",                                 \
              "source of auto's choice: results of convoy tune, or the shipped defaults"), \
   .value = "HOW"}
#define MATH_ROW ROW_MATH(FIELD, HELP_MATH_SHORT)
#define PASS_ROW                                                                                            \
  {OPT_CHOICE("pass", FIELD(pass), "fwd|bwd-data|bwd-weights|all", "all", "one pass of convolutions only"), \
   .value = "PASS"}
#define TIME_ROWS                                                                                              \
  {OPT_GROUP("How")},                                                                                          \
      BENCH_ROW_TIME(FIELD, "0.3",                                                                             \
                     "time for each row; at least 3 samples, or one if that takes more than 4 times as long"), \
      {OPT_TEXT("baseline", FIELD(baseline), "JSON file", "an older result of the same word to compare with"), \
       .value = "F", .absent = "none"},                                                                        \
      {OPT_PARSE("max-slowdown", FIELD(max_slowdown), "P", "percent", parse_slowdown,                          \
                 "exit with status 1 if a row is slower than the baseline by more than this, such as 5%"),     \
       .absent = "not checked"},                                                                               \
      {OPT_FLAG("dump-build", FIELD(dump_build),                                                               \
                "print compiled programs, their options and the compiler's log on stderr"),                    \
       .absent = "off", .unit = "switch"}

#define SHARED_ROWS                                                                                \
  PASS_ROW, ALGO_ROW, TILES_ROW, TUNE_ROW, MATH_ROW, TIME_ROWS, {OPT_GROUP("Devices and output")}, \
      BENCH_COMMON_ROWS(FIELD, HELP_DEVICES_IN_TURN)

static const option_row conv_rows[] = {
    GROUP_ROW,
    MODEL_ROW,
    BATCH_ROW,
    {OPT_TEXT("shape", FIELD(shape), "shape",
              "measure one shape instead, such as n64h28w28c64k64r3s1p1: images, height, width, channels, filters, "
              "their size, stride, padding; g32: groups, d2: dilation"),
     .value = "TEXT", .absent = "the model's shapes"},
    SHARED_ROWS,
};
static const option_row ops_rows[] = {
    GROUP_ROW,
    MODEL_ROW,
    BATCH_ROW,
    {OPT_TEXT("op", FIELD(operation), "name",
              "measure one operation only: conv2d, linear, batchnorm, groupnorm, pool2d, convpool, relu, add, mul, "
              "concat, slice, "
              "shuffle, resample, activation, dropout, softmax, softmax_xent, update, norm or gather"),
     .value = "NAME", .absent = "all"},
    SHARED_ROWS,
};

static const char figures[] =
    "ms: median of the samples, only kernels;\n+-%: half the distance of the quartiles; wall ms: one call, with the "
    "wait;\n"
    "GFLOP/s: operations of the direct convolution; x peak: of the FMA rate measured\n"
    "first; GB/s: each input read once, each output written once; % roof: of the\n"
    "roofline of the measured peaks; error: relative L2 against plain loops in\n"
    "double, on two images, exit status 1 if it is out of bounds; *: chosen by auto.\n"
    "Caches are overwritten before each sample.\n"
    "Each pass includes the layer's bias and statistics.\n"
    "JSON: {\"version\", \"word\", \"devices\": [{\"device\", \"driver\", \"platform\",\n"
    "\"platform_version\", \"peaks\": {\"fma_gflops\", \"read_gbs\", \"write_gbs\", \"copy_gbs\"},\n"
    "\"math\" (fp32 or tf32, as used by products),\n"
    "\"rows\": [{\"operation\", \"pass\", \"shape\", \"count\" (in a training step), \"algorithm\",\n"
    "\"tile\", \"chosen\", \"tuned\", \"samples\", \"ms\", \"ms_low\", \"ms_high\" (quartiles), \"wall_ms\",\n"
    "\"event_ms\", \"flops\", \"bytes\", \"gflops\", \"gbs\", \"of_peak\", \"of_roofline\",\n"
    "\"bound\" (arithmetic or memory), \"error\", \"error_bound\", \"change\" (with\n"
    "--baseline; 0.1 is 10 % slower)}]}]}.";

static const option_table conv_table = {
    .verb = "bench conv",
    .usage = "[options]",
    OPTION_ROWS(conv_rows),
    .about =
        "Measures every distinct convolution of a network, or one shape, with every algorithm\n"
        "that supports it. While editing a kernel:\n"
        "  CVY_CL_DIR=cl convoy bench conv --shape n64h28w28c64k64r3s1p1 --pass fwd",
    .after = figures,
};
static const option_table ops_table = {
    .verb = "bench ops",
    .usage = "[options]",
    OPTION_ROWS(ops_rows),
    .about =
        "Measures every distinct operation of a network. CPUs fuse a convolution, its ReLU and\n"
        "2x2 average pool; this operation is convpool. --op conv2d, --op pool2d and the algorithms\n"
        "of --algo measure them separately.",
    .after = figures,
};

/* ---- --shape ---- */

/* "n64h28w28c64k64r3s1p1": each letter once, in any order; w: like h, s, g, d: 1, p: 0. */
static int shape_parse(const char *text, cvy_conv2d_params *out) {
  static const char letters[] = "nhwckrspgd";
  static const char expected[] =
      "expected letters and whole numbers, such as n64h28w28c64k64r3s1p1 (images, height, width, channels, filters, "
      "their size, stride, padding, g: groups, d: dilation)";
  int64_t values[sizeof letters - 1];
  for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) values[i] = -1;
  for (const char *at = text; *at;) {
    const char *const letter = strchr(letters, *at);
    const size_t length = strspn(at + 1, "0123456789");
    char number[16];
    if (!letter || length == 0 || length >= sizeof number || values[letter - letters] >= 0)
      return options_error("bench conv", "--shape %s: at '%s': %s", text, at, expected);
    memcpy(number, at + 1, length);
    number[length] = '\0';
    if (!cvy_parse_int(number, *letter == 'p' ? 0 : 1, 1 << 20, &values[letter - letters]))
      return options_error("bench conv", "--shape %s: '%c%s': expected a number from %d to %d", text, *letter, number,
                           *letter == 'p' ? 0 : 1, 1 << 20);
    at += 1 + length;
  }
  if (values[2] < 0) values[2] = values[1];
  if (values[6] < 0) values[6] = 1;
  if (values[7] < 0) values[7] = 0;
  if (values[8] < 0) values[8] = 1;
  if (values[9] < 0) values[9] = 1;
  for (size_t i = 0; i < sizeof values / sizeof values[0]; i++)
    if (values[i] < 0)
      return options_error("bench conv", "--shape %s: '%c' is missing; %s", text, letters[i], expected);
  *out = (cvy_conv2d_params){
      .n_max = (int)values[0],
      .x = {.h = (int)values[1], .w = (int)values[2], .c = (int)values[3], .pitch = cvy_input_pitch_of((int)values[3])},
      .k = (int)values[4],
      .y_pitch = cvy_pitch_of((int)values[4]),
      .r = (int)values[5],
      .s = (int)values[5],
      .stride_h = (int)values[6],
      .stride_w = (int)values[6],
      .pad_h = (int)values[7],
      .pad_w = (int)values[7],
      .groups = (int)values[8],
      .dilation_h = (int)values[9],
      .dilation_w = (int)values[9],
      .bias = true};
  cvy_shape y;
  return cvy_conv2d_output_shape(out, &y) == CVY_OK ? EXIT_DONE : EXIT_USAGE;
}

/* ---- the operations of a network ---- */

static bool same_unit(const cvy_net *net, const cvy_unit *a, const cvy_unit *b) {
  const cvy_shape *const xa = &net->layers[a->x[0]].shape, *const xb = &net->layers[b->x[0]].shape;
  return a->kind == b->kind && a->relu == b->relu && (a->x[1] >= 0) == (b->x[1] >= 0) &&
         (a->stats >= 0) == (b->stats >= 0) && (a->dx[0] == CVY_GRADIENT_NONE) == (b->dx[0] == CVY_GRADIENT_NONE) &&
         a->spread == b->spread && a->copy.y_at == b->copy.y_at && a->copy.x_at == b->copy.x_at &&
         a->copy.count == b->copy.count && a->more == b->more && memcmp(xa, xb, sizeof *xa) == 0 &&
         (a->activation >= 0) == (b->activation >= 0) &&
         (a->activation < 0 || cvy_layer_alike(&net->layers[a->activation], &net->layers[b->activation])) &&
         cvy_layer_alike(&net->layers[a->layer], &net->layers[b->layer]);
}

static cvy_status measure_net(ops_run *run, bench_device *device, const bench_conv_options *conv) {
  cvy_status status = CVY_OK;
  cvy_plan *plan = NULL;
  const int n = (int)run->options->batch;
  const bool fuse = (!run->only || strcmp(run->only, "convpool") == 0) && cvy_convpool_wanted(device->cl, &conv->algos);
  CVY_TRY(cvy_plan_create(run->net, &(cvy_plan_params){.n = n, .fuse_pools = fuse}, &plan));
  for (int u = 0; u < plan->n_units; u++) {
    const cvy_unit *const unit = &plan->units[u];
    const char *const operation = bench_unit_operation(run->net, unit);
    int count = 0;
    bool seen = false;
    for (int k = 0; k < plan->n_units; k++) {
      if (!same_unit(run->net, unit, &plan->units[k])) continue;
      seen = seen || k < u;
      count++;
    }
    if (seen || (run->only && strcmp(run->only, operation) != 0)) continue;
    if (unit->kind == CVY_UNIT_CONV2D || unit->kind == CVY_UNIT_LINEAR) {
      const cvy_conv2d_params params = cvy_unit_conv(run->net, unit, n, false);
      CVY_TRY(bench_conv(&run->rows, device, operation, &params, count, conv));
    } else if (unit->kind == CVY_UNIT_CONVPOOL) {
      const cvy_convpool_params params = cvy_unit_convpool(run->net, unit->layer, n, false);
      CVY_TRY(bench_convpool(&run->rows, device, &params, count, conv->pass));
    } else {
      CVY_TRY(bench_layer(&run->rows, device, run->net, unit, n, count));
    }
  }
  CVY_TRY(bench_step_parts(&run->rows, device, run->net, n, run->only));
fail:
  cvy_plan_destroy(&plan);
  return status;
}

/* ---- the words ---- */

/* With --dump-build: prints the library's debug messages about builds, too. */
static void dump_message(void *user, cvy_log_level level, const char *message) {
  (void)user;
  progress_message(level == CVY_LOG_ERROR     ? "error: "
                   : level == CVY_LOG_WARNING ? "warning: "
                   : level == CVY_LOG_DEBUG   ? "build: "
                                              : "",
                   message);
}

/* Measures the peaks again at the end. If they differ, another program used the device, and the figures are less
 * reliable. */
static cvy_status say_disturbed(bench_device *device, double seconds) {
  cvy_status status = CVY_OK;
  const bench_peaks before = device->peaks;
  CVY_TRY(bench_measure_rates(device, seconds));
  const double fma = device->peaks.fma_gflops / before.fma_gflops, copy = device->peaks.copy_gbs / before.copy_gbs;
  if (fma < 0.95 || fma > 1.05 || copy < 0.8 || copy > 1.25)
    program_warn("%s was busy with other work: FMA %.1f GFLOP/s before and %.1f after, copy %.1f and %.1f GB/s",
                 device->label, before.fma_gflops, device->peaks.fma_gflops, before.copy_gbs, device->peaks.copy_gbs);
  device->peaks = before;
fail:
  return status;
}

/* The entries of `convoy tune` for the device, empty without a good file. */
static cvy_status read_tuned(const bench_device *device, cvy_tune_table **table) {
  cvy_status status = CVY_OK;
  CVY_TRY(cvy_tune_table_open(device->cl, table));
  CVY_TRY(cvy_tune_table_load(*table));
  if ((*table)->wrong)
    program_say("%s: the file of tuned kernels %s: auto uses the shipped defaults", device->label, (*table)->wrong);
fail:
  return status;
}

static cvy_status measure(void *user, bench_device *device) {
  ops_run *const run = user;
  const ops_options *const options = run->options;
  cvy_status status = CVY_OK;
  cvy_tune_table *tuned = NULL;
  if (options->tune == 0) CVY_TRY(read_tuned(device, &tuned));
  const bench_conv_options conv = {.algos = options->algos,
                                   .only_auto = options->only_auto,
                                   .all_tiles = options->tiles == 1,
                                   .tuned = tuned,
                                   .pass = options->pass == 3 ? CVY_CONV_PASSES : options->pass,
                                   .math = cvy_math_resolve(device->cl, (cvy_math)options->math)};
  const double rates_seconds = options->seconds < 0.3 ? options->seconds : 0.3;
  CVY_TRY(bench_measure_rates(device, rates_seconds));
  if (run->rows.print) {
    progress_end();
    printf("%s%s\n  FMA %.1f GFLOP/s, memory read %.1f, write %.1f, copy %.1f GB/s\n",
           json_array_size(run->devices) > 0 ? "\n" : "", device->label, device->peaks.fma_gflops,
           device->peaks.read_gbs, device->peaks.write_gbs, device->peaks.copy_gbs);
  }
  json_t *const out = bench_device_json(device);
  json_object_set_new(out, "math", json_string(program_math_name(conv.math)));
  run->rows.rows = json_array();
  json_object_set_new(out, "rows", run->rows.rows);
  json_array_append_new(run->devices, out);
  if (run->net) CVY_TRY(measure_net(run, device, &conv));
  else CVY_TRY(bench_conv(&run->rows, device, "conv2d", &run->shape, 1, &conv));
  if (json_array_size(run->rows.rows) == 0 && run->only)
    program_warn("%s: nothing to measure: no %s in %s on this device", device->label, run->only,
                 run->rows.model ? run->rows.model : "this shape");
  bench_rows_totals(&run->rows, device);
  CVY_TRY(say_disturbed(device, rates_seconds));
fail:
  cvy_tune_table_destroy(&tuned);
  return status;
}

static int run_word(const option_table *table, const char *word, const ops_options *options, bool slowdown_given,
                    const char *only) {
  ops_run run = {.options = options,
                 .only = only,
                 .rows = {.word = word,
                          .model = options->shape ? NULL : options->model,
                          .print = !bench_to_stdout(options->json),
                          .seconds = options->seconds,
                          .max_slowdown = slowdown_given ? options->max_slowdown : -1}};
  int code = EXIT_DONE;
  if (slowdown_given && !options->baseline)
    return options_error(table->verb, "--max-slowdown: --baseline F is missing");
  if (options->shape) code = shape_parse(options->shape, &run.shape);
  if (code == EXIT_DONE) code = program_try_output(table->verb, "--json", options->json, true);
  if (code == EXIT_DONE)
    code = program_check_outputs(table->verb, (const program_file[]){{"--json", options->json}, {0}},
                                 (const program_file[]){{"--baseline", options->baseline}, {0}});
  if (code == EXIT_DONE && options->baseline) code = bench_rows_baseline(&run.rows, options->baseline);
  if (code == EXIT_DONE && !options->shape)
    code = program_exit_code(program_model_net(options->model, NULL, 0, &run.net));
  if (code != EXIT_DONE) goto done;
  if (options->dump_build) {
    setenv("CVY_NO_CACHE", "1", 1); /* the compiler must run */
    cvy_log_set(dump_message, NULL, CVY_LOG_DEBUG);
  }
  run.devices = json_array();
  code = bench_each_device(options->devices, options->quiet, measure, &run);
  if (code == EXIT_DONE && options->json &&
      !program_write_json(options->json, bench_json(word, json_incref(run.devices))))
    code = EXIT_FAILED;
  if (code == EXIT_DONE && run.rows.wrong > 0) code = EXIT_FAILED;
  if (code == EXIT_DONE && options->baseline && run.rows.compared == 0) {
    program_say(
        "error: --baseline %s has none of the measured rows; expected rows of the same device, shape and algorithm",
        options->baseline);
    code = EXIT_USAGE;
  }
  if (code == EXIT_DONE && run.rows.slower > 0) {
    program_say("%d of %d rows are slower than in %s by more than %.1f %%", run.rows.slower, run.rows.compared,
                options->baseline, 100 * options->max_slowdown);
    code = EXIT_FAILED;
  }
done:
  json_decref(run.devices);
  json_decref(run.rows.baseline);
  cvy_net_destroy(&run.net);
  return code;
}

int bench_conv_main(int argc, char **argv) {
  ops_options options = {0};
  option_set given;
  const int code = options_parse(&conv_table, argc, argv, &options, &given);
  if (code != OPTIONS_GO_ON) return code;
  const bool slowdown = options_given(&conv_table, given, "max-slowdown");
  if (options.shape) {
    const char *const not_with_shape[] = {"model", "batch"};
    for (int i = 0; i < 2; i++)
      if (options_given(&conv_table, given, not_with_shape[i]))
        return options_error("bench conv", "--%s and --shape %s: expected one of them", not_with_shape[i],
                             options.shape);
  }
  return run_word(&conv_table, "conv", &options, slowdown, "conv2d");
}

int bench_ops_main(int argc, char **argv) {
  ops_options options = {0};
  option_set given;
  const int code = options_parse(&ops_table, argc, argv, &options, &given);
  if (code != OPTIONS_GO_ON) return code;
  bool known = options.operation == NULL;
  for (size_t i = 0; i < sizeof operations / sizeof operations[0] && !known; i++)
    known = strcmp(options.operation, operations[i]) == 0;
  if (!known)
    return options_error("bench ops",
                         "--op %s: expected conv2d, linear, batchnorm, groupnorm, pool2d, convpool, relu, "
                         "add, mul, concat, slice, shuffle, resample, activation, dropout, softmax, softmax_xent, "
                         "update, norm "
                         "or gather",
                         options.operation);
  return run_word(&ops_table, "ops", &options, options_given(&ops_table, given, "max-slowdown"), options.operation);
}
