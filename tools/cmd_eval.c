/* SPDX-License-Identifier: MIT
 * convoy eval: accuracy of trained weights on the test images. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/json_log.h"
#include "tools/program_common.h"
#include "tools/progress.h"

typedef struct eval_options {
  const char *weights, *data, *data_dir, *devices, *json, *conv_algo;
  int model, math;
  int64_t classes, batch, seed;
  bool quiet;
} eval_options;
static const char *const models[] = {"resnet18", "lenet"};

#define FIELD(name) .offset = offsetof(eval_options, name)
static const option_row rows[] = {
    {.kind = OPTION_GROUP, .help = "Network and data"},
    {.kind = OPTION_TEXT,
     .name = "weights",
     FIELD(weights),
     .value = "F",
     .required = true,
     .unit = "safetensors file",
     .help = "the trained weights"},
    {.kind = OPTION_CHOICE,
     .name = "model",
     FIELD(model),
     .value = "NAME",
     .choices = "resnet18|lenet",
     .required = true,
     .unit = "name",
     .help = "the network they belong to: resnet18 or lenet"},
    {.kind = OPTION_TEXT,
     .name = "data",
     FIELD(data),
     .value = "DATA",
     .required = true,
     .unit = "data set",
     .help = "fashion-mnist, a folder with idx files, or synthetic[:N[:HxWxC]]"},
    {.kind = OPTION_TEXT,
     .name = "data-dir",
     FIELD(data_dir),
     .value = "DIR",
     .absent = "$CONVOY_DATA, then Debian's folder",
     .unit = "folder",
     .help = "where fashion-mnist lies"},
    {.kind = OPTION_INT,
     .name = "classes",
     FIELD(classes),
     .value = "N",
     .deflt = "0",
     .unit = "classes, 0: largest label + 1",
     .lo = 0,
     .hi = 256,
     .help = "classes of the data"},
    {.kind = OPTION_INT,
     .name = "seed",
     FIELD(seed),
     .value = "N",
     .deflt = "0",
     .unit = "number",
     .lo = 0,
     .hi = 9.2e18,
     .help = "seed of synthetic data, as in training"},
    {.kind = OPTION_GROUP, .help = "Devices"},
    {.kind = OPTION_TEXT,
     .name = "devices",
     .letter = 'd',
     FIELD(devices),
     .value = "SEL",
     .deflt = "auto",
     .unit = "selector",
     .help = "which devices share the work; see convoy train --help"},
    {.kind = OPTION_INT,
     .name = "batch",
     .letter = 'b',
     FIELD(batch),
     .value = "N",
     .deflt = "256",
     .unit = "images",
     .lo = 1,
     .hi = 1 << 24,
     .help = "images at a time, all devices together"},
    {.kind = OPTION_PARSE,
     .name = "conv-algo",
     FIELD(conv_algo),
     .value = "LIST",
     .deflt = "auto",
     .unit = "auto, direct, winograd2, winograd4, gemm, fft",
     .parse = options_parse_conv_algo,
     .help = "how convolutions and linear layers are computed; of several with commas each layer takes the first that "
             "can do it"},
    {.kind = OPTION_CHOICE,
     .name = "math",
     FIELD(math),
     .value = "HOW",
     .choices = "fp32|tf32",
     .deflt = "fp32",
     .unit = "fp32 or tf32",
     .help = "products of convolutions and linear layers: float32, or factors rounded to 10 bits of mantissa on NVIDIA's "
             "matrix units (compute capability 8.0 and up; tried first, float32 elsewhere). Errors of tf32: 2e-3 of a "
             "result; the bounds that are stated for float32 do not hold"},
    {.kind = OPTION_GROUP, .help = "Output"},
    {.kind = OPTION_SINK,
     .name = "json",
     FIELD(json),
     .value = "F",
     .absent = "none",
     .unit = "file, - is stdout",
     .help = "write the result as JSON; on stdout it takes the place of the result line"},
    {.kind = OPTION_FLAG,
     .name = "quiet",
     .letter = 'q',
     FIELD(quiet),
     .absent = "off",
     .unit = "switch",
     .help = "no talk on stderr but errors and warnings"},
};
static const option_table table = {
    .verb = "eval",
    .usage = "--weights F --model NAME --data DATA [options]",
    .rows = rows,
    .n_rows = sizeof rows / sizeof rows[0],
    .about =
        "Measures the accuracy of trained weights on the test images, on one or more devices.\n"
        "Prints: test acc: 0.92 (9213 of 10000), 4.1 sec on [devices]",
};

static bool result_print(const eval_options *options, const program_run *run, const cvy_eval_result *result) {
  char *const labels = program_device_labels(run->devices);
  bool ok = labels != NULL;
  if (ok && (!options->json || strcmp(options->json, "-") != 0)) {
    printf("test acc: %.2f (%d of %d), %.1f sec on [%s]\n", result->accuracy, result->correct, result->images,
           result->seconds, labels);
  }
  if (ok && options->json) {
    json_t *const devices = json_array();
    for (int i = 0; i < cvy_devices_count(run->devices); i++)
      json_array_append_new(devices, json_string(cvy_devices_label(run->devices, i)));
    ok = program_write_json(
        options->json,
        json_pack("{ss ss ss ss so sf si si so so}", "version", cvy_version(), "model", models[options->model],
                  "weights", options->weights, "data", options->data, "devices", devices, "test_acc", result->accuracy,
                  "correct", result->correct, "images", result->images, "loss", json_number(result->loss), "sec",
                  json_number(result->seconds)));
  }
  free(labels);
  return ok;
}

int cmd_eval(int argc, char **argv) {
  eval_options options = {0};
  int code = options_parse(&table, argc, argv, &options, NULL);
  if (code != OPTIONS_GO_ON) return code;
  if (options.json && strcmp(options.json, "-") != 0 && program_same_file(options.weights, options.json)) {
    return options_error("eval", "--weights %s and --json %s are the same file: expected two names", options.weights,
                         options.json);
  }
  code = options_check_data_dir("eval", options.data, options.data_dir);
  if (code != OPTIONS_GO_ON) return code;
  code = program_try_output("eval", "--json", options.json, false, true);
  if (code != EXIT_DONE) return code;

  const program_run_spec spec = {.devices = options.devices,
                                 .model = models[options.model],
                                 .data = options.data,
                                 .data_dir = options.data_dir,
                                 .classes = options.classes,
                                 .seed = options.seed,
                                 .quiet = options.quiet};
  program_run run;
  cvy_team *team = NULL;
  cvy_eval_result result = {0};
  progress_start(options.quiet, 1, 0);
  code = program_run_open(&spec, &run);
  if (code == EXIT_DONE) {
    progress_status("preparing the devices (kernels are compiled the first time)");
    const cvy_team_params params = {.batch = (int)options.batch,
                                    .inference = true,
                                    .conv_algo = options.conv_algo,
                                    .math = (cvy_math)options.math};
    cvy_status status = cvy_team_create(run.devices, run.net, &params, &team);
    if (status == CVY_OK) status = cvy_team_load(team, options.weights);
    if (status == CVY_OK) status = cvy_team_attach(team, run.data);
    if (status == CVY_OK) progress_status("evaluating");
    if (status == CVY_OK) status = cvy_team_evaluate(team, false, &result);
    progress_end();
    code = program_exit_code(status);
    if (status == CVY_OK && !result_print(&options, &run, &result)) code = EXIT_FAILED;
  }
  progress_end();
  cvy_team_destroy(&team);
  program_run_close(&run);
  return program_end(code);
}
