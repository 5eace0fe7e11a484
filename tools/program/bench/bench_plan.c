/* SPDX-License-Identifier: MIT
 * convoy bench plan: a training step planned for another card. The step's code runs as a dry run (src/cl/dry_run.h),
 * which records the launches. */
#include <stdio.h>
#include <string.h>

#include "src/base/mem.h"
#include "src/cl/dry_run.h"
#include "src/nn/instance_parts.h"
#include "src/ops/gather/gather.h"
#include "src/replica/device_update.h"
#include "tools/program/bench/bench_ops.h"
#include "tools/program/bench/bench_plan_fit.h"
#include "tools/program/view/progress.h"
#include "tools/program/view/text_table.h"

typedef struct plan_options {
  const char *json, *conv_algo, *measured;
  const char *model;
  int as;
  int64_t batch;
  bool launches;
} plan_options;

#define FIELD(name) .offset = offsetof(plan_options, name)
static const option_row rows[] = {
    {OPT_GROUP("Network and card")},
    {OPT_CHOICE("as", FIELD(as), CVY_KNOWN_DEVICES, NULL, "the card, by its published and driver-reported data"),
     .value = "NAME", .required = true},
    ROW_MODEL(FIELD, "the network"),
    ROW_BATCH(FIELD, 1 << 20, "images of a step"),
    ROW_CONV_ALGO(FIELD, "algorithms of convolutions and linear layers, as in convoy train"),
    {OPT_TEXT("measured", FIELD(measured), "JSON file",
              "fit the planner's constants to a result of convoy bench conv or ops on the card"),
     .value = "F", .absent = "the card's constants"},
    ROW_NO_MATH("plans are for float32 arithmetic"),
    {OPT_GROUP("Output")},
    {OPT_FLAG("launches", FIELD(launches), "list every launch in order, instead of passes")},
    ROW_JSON_OR_TABLE(FIELD),
};
static const option_table table = {
    .verb = "bench plan",
    .usage = "--as NAME [options]",
    OPTION_ROWS(rows),
    .about =
        "Plans a training step for a graphics card, without the card: launches, work-groups,\n"
        "their occupancy of the card, bytes, and the time that the planner expects. It does not\n"
        "measure.\n"
        "--measured fits the cost of a launch, the bandwidth, and the rate of each product kernel\n"
        "in each pass to rows of convolutions and of operations with a single launch.",
    .after =
        "Fill: work-groups of the largest launch, divided by those that the card holds at once\n"
        "(more than 1: they run one after the other). MB: 10^6 bytes of memory read and written.\n"
        "whole: the expected time if the sums of the pass were not divided into parts.\n"
        "JSON: {\"version\", \"word\", \"device\", \"model\", \"batch\", \"launches\", \"conv_launches\",\n"
        "\"linear_launches\", \"expected_ms\", \"constants\": {\"launch\" (of the time of an empty\n"
        "launch), \"bytes\" (of a copy's rate), \"tf32\" (times as fast), \"products\" (of the FMA\n"
        "rate: by algorithm, forward, backward_data, backward_weights)}, \"fit\" (--measured):\n"
        "{\"rows\", \"left_out\", \"middle_error\", \"worst_error\", \"worst_row\"}, \"passes\":\n"
        "[{\"layer\", \"operation\", \"pass\", \"algorithm\", \"shape\", \"filter\", \"stride\", \"parts\",\n"
        "\"launches\", \"groups\", \"fill\", \"bytes\", \"expected_ms\", \"whole_ms\"}], \"steps\":\n"
        "[{\"layer\", \"pass\", \"kernel\", \"groups\", \"items\", \"fill\", \"fma\", \"bytes\",\n"
        "\"expected_ms\"}]}; algorithm, shape, filter, stride, parts and whole_ms of\n"
        "convolutions and linear layers only.",
};

/* The launches of a unit's pass, of the loss, or of no layer. */
typedef struct pass_sum {
  int launches;
  size_t groups; /* of the launch with the most multiply-adds, else of the longest one */
  double fill, fma, bytes, seconds, most;
} pass_sum;

typedef struct plan_run {
  const plan_options *options;
  const cvy_known_device *known;
  plan_fit fit; /* --measured */
  cvy_device *device;
  bench_subject subject;
  cvy_instance *instance;
  cvy_layout layout; /* a lone card's */
  cvy_gather *gather;
  cvy_device_update *update;
  cvy_buffer *images, *labels, *index;
  pass_sum *sums; /* CVY_SCOPE_PARTS for each unit, the loss, the rest */
  int launches, conv_launches, linear_launches;
  double seconds;
} plan_run;

static const char *const pass_names[CVY_SCOPE_PARTS] = {"forward", "backward", "backward_data", "loss"};

/* ---- the step ---- */

static cvy_status update_bucket(void *user, int bucket) {
  plan_run *const run = user;
  const cvy_update_params update = {.lr = 0.1f, .momentum = 0.9f};
  cvy_profile_scope(run->device, CVY_SCOPE_NONE);
  return cvy_device_update_bucket(run->update, bucket, &update);
}

static cvy_status make_step(plan_run *run) {
  cvy_status status = CVY_OK;
  const int n = (int)run->options->batch;
  const cvy_shape *const x = &run->subject.net->layers[0].shape;
  cvy_instance_params params = {.n = n, .layout = &run->layout, .moments = 1};
  CVY_TRY(cvy_layout_arrange(cvy_net_layout(run->subject.net),
                             &(cvy_layout_params){.bucket_floats = CVY_LAYOUT_LONE_FLOATS}, &run->layout));
  CVY_TRY(cvy_conv_algos_parse(run->options->conv_algo, &params.algos));
  CVY_TRY(cvy_instance_create(run->device, run->subject.net, &params, &run->instance));
  CVY_TRY(cvy_gather_create(run->device, x, NULL, &run->gather));
  CVY_TRY(cvy_device_update_create(run->device, run->instance, &run->layout, 0, false, &run->update));
  CVY_TRY(cvy_buffer_create(run->device, (size_t)n * (size_t)(x->h * x->w * x->c), &run->images));
  CVY_TRY(cvy_buffer_create(run->device, (size_t)n * sizeof(int32_t), &run->labels));
  CVY_TRY(cvy_buffer_create(run->device, (size_t)n * sizeof(int32_t), &run->index));
fail:
  return status;
}

static cvy_status run_step(plan_run *run) {
  cvy_status status = CVY_OK;
  const int n = cvy_instance_micro_batch(run->instance);
  cvy_pass pass = {.n = n,
                   .batch = (int)run->options->batch,
                   .samples = cvy_instance_labels(run->instance), /* dropped values do not affect the plan */
                   .after_bucket = update_bucket,
                   .user = run};
  cvy_dry_run_clear(run->device, run->instance->workspace);
  CVY_TRY(cvy_gather_run(run->gather, run->instance->queue,
                         &(cvy_gather_call){.n = n,
                                            .images = run->images,
                                            .labels = run->labels,
                                            .index = run->index,
                                            .x = cvy_instance_input(run->instance),
                                            .labels_out = cvy_instance_labels(run->instance)}));
  CVY_TRY(cvy_instance_forward(run->instance, &pass, true));
  CVY_TRY(cvy_instance_loss(run->instance, &pass, true));
  CVY_TRY(cvy_instance_backward(run->instance, &pass));
  CVY_TRY(cvy_device_update_running(run->update));
fail:
  return status;
}

/* ---- sums ---- */

static double fill_of(const plan_run *run, const cvy_dry_run_launch *l) {
  return l->work.resident ? (double)l->groups / (run->known->units * l->work.resident) : 0;
}

static int n_units(const plan_run *run) { return run->instance->plan->n_units; }

/* Index of a launch's sums: its unit and part, or one after all units. */
static int place_of(const plan_run *run, const cvy_dry_run_launch *l) {
  const int units = CVY_SCOPE_PARTS * n_units(run);
  return l->scope >= 0 ? l->scope : units + (l->scope == CVY_SCOPE_LOSS ? 0 : 1);
}

static cvy_status add_up(plan_run *run) {
  cvy_status status = CVY_OK;
  int n;
  const cvy_dry_run_launch *const launches = cvy_dry_run_launches(run->device, &n);
  run->sums = cvy_calloc((size_t)(CVY_SCOPE_PARTS * n_units(run) + 2), sizeof *run->sums);
  CVY_REQUIRE(run->sums, CVY_E_MEMORY, "no memory for the plan");
  for (int i = 0; i < n; i++) {
    const cvy_dry_run_launch *const l = &launches[i];
    pass_sum *const sum = &run->sums[place_of(run, l)];
    const cvy_unit_kind kind =
        l->scope >= 0 ? run->instance->plan->units[l->scope / CVY_SCOPE_PARTS].kind : CVY_UNIT_RELU;
    const double weight = l->work.fma > 0 ? 1 + l->work.fma : l->work.seconds;
    sum->launches++;
    sum->fma += l->work.fma, sum->bytes += l->work.bytes, sum->seconds += l->work.seconds;
    if (weight > sum->most) sum->most = weight, sum->groups = l->groups, sum->fill = fill_of(run, l);
    run->launches++, run->seconds += l->work.seconds;
    run->conv_launches += kind == CVY_UNIT_CONV2D, run->linear_launches += kind == CVY_UNIT_LINEAR;
  }
fail:
  return status;
}

/* ---- output ---- */

/* The convolution of a unit, or NULL; linear layers are convolutions. */
static const cvy_conv2d *conv_of(const plan_run *run, int unit) {
  const cvy_unit_op *const op = &run->instance->ops[unit];
  return op->conv2d ? op->conv2d : op->linear ? cvy_linear_conv(op->linear) : NULL;
}

/* The backward pass of a convolution computes weights first. */
static cvy_conv_pass conv_pass_of(int part) {
  return part == CVY_SCOPE_FORWARD    ? CVY_CONV_FORWARD
         : part == CVY_SCOPE_BACKWARD ? CVY_CONV_BACKWARD_WEIGHTS
                                      : CVY_CONV_BACKWARD_DATA;
}

static const char *title_of(const plan_run *run, int place, char *room, size_t room_bytes) {
  const int unit = place / CVY_SCOPE_PARTS;
  if (unit >= n_units(run)) return place % CVY_SCOPE_PARTS == 0 ? "loss" : "data and update";
  return cvy_layer_title(run->subject.net, run->instance->plan->units[unit].layer, room, room_bytes);
}

static const char *pass_of(const plan_run *run, int place) {
  return place / CVY_SCOPE_PARTS < n_units(run) ? pass_names[place % CVY_SCOPE_PARTS] : "";
}

static json_t *sum_json(const plan_run *run, int place) {
  const pass_sum *const sum = &run->sums[place];
  const int unit = place / CVY_SCOPE_PARTS;
  const cvy_conv2d *const conv = unit < n_units(run) ? conv_of(run, unit) : NULL;
  char title[96];
  json_t *const out =
      json_pack("{ss ss ss si sI sf sf sf}", "layer", title_of(run, place, title, sizeof title), "operation",
                unit < n_units(run) ? bench_unit_operation(run->subject.net, &run->instance->plan->units[unit]) : "",
                "pass", pass_of(run, place), "launches", sum->launches, "groups", (json_int_t)sum->groups, "fill",
                sum->fill, "bytes", sum->bytes, "expected_ms", 1e3 * sum->seconds);
  if (conv) {
    const cvy_conv_pass pass = conv_pass_of(place % CVY_SCOPE_PARTS);
    const cvy_conv2d_params *const p = cvy_conv2d_params_of(conv);
    const cvy_conv_expected expected = cvy_conv2d_expected_of(conv, pass);
    char shape[80];
    bench_conv_shape_text(p, shape, sizeof shape);
    json_object_update_new(
        out, json_pack("{ss ss s[ii] s[ii] si sf}", "algorithm", cvy_conv2d_algorithm_name(conv, pass), "shape", shape,
                       "filter", p->r, p->s, "stride", p->stride_h, p->stride_w, "parts", expected.parts, "whole_ms",
                       1e3 * expected.whole_s));
  }
  return out;
}

static const table_column launch_columns[] = {
    {COLUMN("layer", "layer", -30, TEXT, 0)},
    {COLUMN("pass", "pass", -13, TEXT, 0)},
    {COLUMN("kernel", "kernel", -30, TEXT, 0)},
    {COLUMN("groups", "groups", 8, INT, 0)},
    {COLUMN("items", "items", 5, INT, 0)},
    {COLUMN("fill", "fill", 6, REAL, 2), .no_zero = true},
    {COLUMN(NULL, "fma", 0, REAL, 0)},
    {COLUMN("MB", "bytes", 8, REAL, 2), .scale = 1e-6},
    {COLUMN("us", "expected_ms", 8, REAL, 1), .scale = 1e3},
};
static const text_table launch_table = TEXT_TABLE(launch_columns, 0);

/* title: room for the layer's name. */
static void launch_cells(const plan_run *run, const cvy_dry_run_launch *l, char title[96], table_cell *cells) {
  const int place = place_of(run, l);
  const table_cell all[] = {CELL_TEXT(title_of(run, place, title, 96)),
                            CELL_TEXT(pass_of(run, place)),
                            CELL_TEXT(l->name),
                            CELL(l->groups),
                            CELL(l->items),
                            CELL(fill_of(run, l)),
                            CELL(l->work.fma),
                            CELL(l->work.bytes),
                            CELL(1e3 * l->work.seconds)};
  memcpy(cells, all, sizeof all);
}

static json_t *result_json(const plan_run *run) {
  json_t *const passes = json_array(), *const steps = json_array();
  table_cell cells[TABLE_COLUMNS];
  char title[96];
  int n;
  const cvy_dry_run_launch *const launches = cvy_dry_run_launches(run->device, &n);
  for (int place = 0; place < CVY_SCOPE_PARTS * n_units(run) + 2; place++)
    if (run->sums[place].launches) json_array_append_new(passes, sum_json(run, place));
  for (int i = 0; i < n; i++) {
    launch_cells(run, &launches[i], title, cells);
    json_array_append_new(steps, text_table_json(&launch_table, cells));
  }
  json_t *const out =
      json_pack("{ss ss ss so sI si si si sf so so so}", "version", cvy_version(), "word", "plan", "device",
                run->known->name, "model", program_text_json(run->options->model), "batch",
                (json_int_t)run->options->batch, "launches", run->launches, "conv_launches", run->conv_launches,
                "linear_launches", run->linear_launches, "expected_ms", 1e3 * run->seconds, "constants",
                plan_constants_json(cvy_device_get_constants(run->device)), "passes", passes, "steps", steps);
  const plan_fit *const fit = &run->fit;
  if (run->options->measured)
    json_object_set_new(out, "fit",
                        json_pack("{si si sf sf ss}", "rows", fit->rows, "left_out", fit->left_out, "middle_error",
                                  fit->middle, "worst_error", fit->worst, "worst_row", fit->worst_row));
  return out;
}

static void print_passes(const plan_run *run) {
  static const table_column columns[] = {
      {COLUMN("layer", NULL, -30, TEXT, 0)},
      {COLUMN("pass", NULL, -13, TEXT, 0)},
      {COLUMN("algorithm", NULL, -15, TEXT, 0)},
      {COLUMN("parts", NULL, 5, INT, 0)},
      {COLUMN("launches", NULL, 8, INT, 0)},
      {COLUMN("groups", NULL, 7, INT, 0)},
      {COLUMN("fill", NULL, 6, REAL, 2), .no_zero = true},
      {COLUMN("MB", NULL, 8, REAL, 2), .scale = 1e-6},
      {COLUMN("us", NULL, 8, REAL, 1), .scale = 1e6},
      {COLUMN("whole us", NULL, 8, REAL, 1), .scale = 1e6},
  };
  static const text_table table_of_passes = TEXT_TABLE(columns, 0);
  char title[96];
  text_table_head(&table_of_passes);
  for (int place = 0; place < CVY_SCOPE_PARTS * n_units(run) + 2; place++) {
    const pass_sum *const sum = &run->sums[place];
    if (!sum->launches) continue;
    const int unit = place / CVY_SCOPE_PARTS;
    const cvy_conv2d *const conv = unit < n_units(run) ? conv_of(run, unit) : NULL;
    const cvy_conv_pass pass = conv_pass_of(place % CVY_SCOPE_PARTS);
    const cvy_conv_expected expected = conv ? cvy_conv2d_expected_of(conv, pass) : (cvy_conv_expected){0};
    text_table_row(
        &table_of_passes,
        (table_cell[]){CELL_TEXT(title_of(run, place, title, sizeof title)), CELL_TEXT(pass_of(run, place)),
                       CELL_TEXT(conv ? cvy_conv2d_algorithm_name(conv, pass) : ""),
                       conv ? CELL(expected.parts) : CELL_NONE, CELL(sum->launches), CELL(sum->groups), CELL(sum->fill),
                       CELL(sum->bytes), CELL(sum->seconds), conv ? CELL(expected.whole_s) : CELL_NONE});
  }
}

static void print_launches(const plan_run *run) {
  table_cell cells[TABLE_COLUMNS];
  char title[96];
  int n;
  const cvy_dry_run_launch *const launches = cvy_dry_run_launches(run->device, &n);
  text_table_head(&launch_table);
  for (int i = 0; i < n; i++) {
    launch_cells(run, &launches[i], title, cells);
    text_table_row(&launch_table, cells);
  }
}

static void print_fit(const plan_run *run) {
  const plan_fit *const fit = &run->fit;
  const cvy_simt_constants *const c = &fit->constants;
  static const char *const names[CVY_PRODUCTS] = {"direct", "winograd2", "winograd4", "winograd2_fused",
                                                  "winograd4_fused"};
  printf(
      "%s: %d rows, %d left out; error of expected times: median %.0f %%,\n"
      "largest %.0f %%: %s\n",
      run->options->measured, fit->rows, fit->left_out, 100 * fit->middle, 100 * fit->worst, fit->worst_row);
  printf("cost of a launch: %.2f of an empty one; bytes: %.2f of a copy's rate; TF32: %.2f times as fast\n", c->launch,
         c->bytes, c->tf32);
  for (int i = 0; i < CVY_PRODUCTS; i++)
    printf("%-16s %.2f, %.2f, %.2f of the FMA rate: forward, backward_data, backward_weights\n", names[i],
           c->products[i][0], c->products[i][1], c->products[i][2]);
}

static void print_result(const plan_run *run) {
  if (run->options->measured) print_fit(run);
  if (run->options->launches) print_launches(run);
  else print_passes(run);
  program_print(
      "%s, batch %lld on a %s: %d launches a step\n%d of convolutions, %d of linear layers; expected %.3f ms\n",
      run->options->model, (long long)run->options->batch, run->known->name, run->launches, run->conv_launches,
      run->linear_launches, 1e3 * run->seconds);
}

/* ---- the word ---- */

static void close_run(plan_run *run) {
  cvy_device_update_destroy(&run->update);
  cvy_gather_destroy(&run->gather);
  cvy_instance_destroy(&run->instance);
  cvy_layout_clear(&run->layout);
  cvy_buffer_destroy(&run->images);
  cvy_buffer_destroy(&run->labels);
  cvy_buffer_destroy(&run->index);
  bench_subject_close(&run->subject);
  cvy_device_close(&run->device);
  cvy_free(run->sums);
}

int bench_plan_main(int argc, char **argv) {
  cvy_status status = CVY_OK;
  plan_options options = {0};
  plan_run run = {.options = &options};
  int code = options_parse(&table, argc, argv, &options, NULL);
  if (code != OPTIONS_GO_ON) return code;
  code = program_try_output(table.verb, "--json", options.json, true);
  if (code != EXIT_DONE) return code;
  run.known = cvy_known_device_at(options.as);
  if (options.measured) code = plan_fit_read(options.measured, run.known, &run.fit);
  if (code != EXIT_DONE) return program_end(code);
  CVY_TRY(cvy_device_open_dry_run(run.known, &run.device));
  if (options.measured) {
    *cvy_device_get_constants(run.device) = run.fit.constants;
    *cvy_device_get_rates(run.device) = run.fit.rates;
  }
  CVY_TRY(bench_subject_open(options.model, NULL, (int)options.batch, false, &run.subject));
  CVY_TRY(make_step(&run));
  CVY_TRY(run_step(&run));
  CVY_TRY(add_up(&run));
  if (!bench_to_stdout(options.json)) print_result(&run);
  if (options.json && !program_write_json(options.json, result_json(&run))) CVY_TRY(CVY_E_IO);
fail:
  close_run(&run);
  return program_end(program_exit_code(status));
}
