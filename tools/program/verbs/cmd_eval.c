/* SPDX-License-Identifier: MIT
 * convoy eval: accuracy of trained weights on the test images, or on the validation images. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/program/view/class_table.h"
#include "tools/program/options/input_options.h"
#include "tools/program/log/json_log.h"
#include "tools/program/node.h"
#include "tools/program/options/option_rows.h"
#include "tools/program/program_common.h"
#include "tools/program/view/progress.h"
#include "tools/program/view/wait_line.h"
#include "tools/program/weights_info.h"

typedef struct eval_options {
  const char *weights, *data, *data_dir, *devices, *json, *conv_algo, *confusion;
  normalize_option normalize;
  const char *model;
  int math;
  int64_t classes, batch, seed;
  image_options images;
  fleet_options fleet;
  bool quiet;
} eval_options;

#define FIELD(name) .offset = offsetof(eval_options, name)
static const option_row rows[] = {
    {OPT_GROUP("Network and data")},
    {OPT_TEXT("weights", FIELD(weights), "safetensors file", "the trained weights"), .absent = "those in the ONNX file "
                                                                                               "of --model"},
    ROW_MODEL_OF_WEIGHTS(FIELD, "network of the weights, if their file does not name it"),
    ROW_DATA(FIELD, HELP_DATA),
    ROW_DATA_DIR(FIELD),
    ROW_CLASSES(FIELD),
    ROW_SIZE(FIELD),
    ROW_GRAY(FIELD),
    ROW_PNG16(FIELD, images.png16),
    ROW_EXIF(FIELD, images.exif),
    ROW_NO_DATA_CACHE(FIELD),
    ROW_STRICT(FIELD, HELP_STRICT),
    ROW_NORMALIZE(FIELD),
    ROW_VAL_SPLIT(FIELD,
                  "evaluate the images that training with the same --val-split and --seed held out, instead of the "
                  "test images"),
    ROW_SEED(FIELD, "seed of synthetic data and of --val-split, as in training"),
    {OPT_GROUP("Devices")},
    ROW_DEVICES(FIELD, HELP_DEVICES_TOGETHER),
    ROW_BATCH(FIELD, 1 << 24, "images of a pass on all devices together"),
    ROW_CONV_ALGO(FIELD, HELP_CONV_ALGO),
    ROW_MATH(FIELD, HELP_MATH),
    ROWS_FLEET(FIELD),
    {OPT_GROUP("Output")},
    ROW_JSON(FIELD, "none", "write the result as JSON; on stdout it replaces the result line"),
    {OPT_SINK("confusion", FIELD(confusion), "CSV file",
              "print the confusion matrix, and precision, recall and F1 of each class; with F the matrix is written "
              "there as CSV. Also in --json")},
    ROW_QUIET(FIELD),
};
static const option_table table = {
    .verb = "eval",
    .usage = "--weights F|--model F.onnx --data DATA [options]",
    OPTION_ROWS(rows),
    .about =
        "Measures the accuracy of trained weights on the test images (with --val-split: the\n"
        "images that training held out), on one or more devices, and prints\n"
        "  test acc: 0.92 (9213 of 10000), 4.1 sec on [devices]\n"
        "Exit 1 also if the loss is not finite; a warning names the tensor or the layer.",
};

/* answers NULL: not requested. */
static bool result_print(const eval_options *options, const program_run *run, const cvy_fleet *fleet,
                         const cvy_team *team, const cvy_eval_result *result, const class_predictions *answers) {
  if (!cvy_fleet_writes(fleet)) return true;
  char *const labels = fleet ? fleet_labels(fleet) : program_team_labels(run->devices, team);
  bool ok = labels != NULL;
  if (ok && (!options->json || strcmp(options->json, "-") != 0)) {
    program_print("%s acc: %.2f (%d of %d), %.1f sec on [%s]\n", options->images.val_split > 0 ? "val" : "test",
                  result->accuracy, result->correct, result->images, result->seconds, labels);
    if (answers) ok = confusion_print(answers, stdout);
  }
  if (ok && answers && strcmp(options->confusion, "-") != 0) {
    char *const csv = confusion_csv(answers);
    ok = csv && program_write(options->confusion, csv);
    free(csv);
  }
  if (ok && options->json) {
    json_t *const devices = json_array();
    for (int i = 0; i < cvy_devices_count(run->devices); i++)
      json_array_append_new(devices, json_string(cvy_devices_label(run->devices, i)));
    json_t *const json =
        json_pack("{ss so so so so* so sf si si so so}", "version", cvy_version(), "model",
                  program_text_json(options->model), "weights", program_text_json(options->weights), "data",
                  program_text_json(options->data), "nodes", fleet ? fleet_json(fleet) : NULL, "devices", devices,
                  options->images.val_split > 0 ? "val_acc" : "test_acc", result->accuracy, "correct", result->correct,
                  "images", result->images, "loss", json_number(result->loss), "sec", json_number(result->seconds));
    json_t *const more = answers ? confusion_json(answers) : NULL;
    ok = (more || !answers) && (!more || json_object_update(json, more) == 0);
    json_decref(more);
    if (ok) ok = program_write_json(options->json, json);
    else json_decref(json);
  }
  free(labels);
  return ok;
}

/* *again: the fleet must meet again, and the command starts over. */
static int eval_all(int argc, char **argv, bool *again) {
  eval_options options = {0};
  option_set given = {0};
  int code = options_parse(&table, argc, argv, &options, &given);
  if (code != OPTIONS_GO_ON) return code;
  if (!options.weights && !cvy_onnx_is_file(options.model))
    return options_error("eval", "--weights F is missing; expected a file with trained weights, or --model F.onnx");
  code = fleet_options_check("eval", &options.fleet);
  if (code != OPTIONS_GO_ON) return code;
  const program_file inputs[] = {{"--weights", options.weights}, {0}},
                     outputs[] = {{"--json", options.json}, {"--confusion", options.confusion}, {0}};
  code = program_check_outputs("eval", outputs, inputs);
  if (code != EXIT_DONE) return code;
  code = options_check_data_dir("eval", options.data, options.data_dir);
  if (code != OPTIONS_GO_ON) return code;
  cvy_model_info *info = NULL;
  cvy_fleet *fleet = NULL;
  code = fleet_meet(&options.fleet, options.quiet, &fleet);
  if (code == EXIT_DONE) code = fleet_check_outputs("eval", fleet, outputs);
  if (code == EXIT_DONE && cvy_fleet_writes(fleet)) code = program_try_output("eval", "--json", options.json, true);
  if (code == EXIT_DONE && cvy_fleet_writes(fleet))
    code = program_try_output("eval", "--confusion", options.confusion, true);
  if (code == EXIT_DONE && options.weights) code = weights_info("eval", options.weights, &options.model, &info);
  if (code != EXIT_DONE) {
    *again = fleet_end(&options.fleet, options.quiet, code, &fleet);
    return code;
  }
  if (info) program_take_images(info, &options.images);
  options.quiet = options.quiet || !cvy_fleet_writes(fleet);

  const program_run_spec spec = {.verb = "eval",
                                 .inputs = inputs,
                                 .outputs = outputs,
                                 .devices = options.devices,
                                 .model = options.model,
                                 .data = options.data,
                                 .data_dir = options.data_dir,
                                 .classes = options.classes,
                                 .batch = options.batch,
                                 .seed = options.seed,
                                 .images = &options.images,
                                 .weights = options.weights,
                                 .info = info,
                                 .evaluates = true,
                                 .quiet = options.quiet};
  const bool as_trained = info && !options_given(&table, given, "normalize");
  const cvy_input_params input = as_trained ? cvy_model_input(info) : input_options_params(&options.normalize, NULL, 0);
  program_run run;
  cvy_team *team = NULL;
  cvy_eval_result result = {0};
  class_predictions answers = {0};
  float *probabilities = NULL;
  progress_start(options.quiet, 1, 0);
  wait_line_begin();
  code = program_run_open(&spec, &run);
  if (code == EXIT_DONE) {
    progress_status("preparing the devices (kernels are compiled the first time)");
    wait_line_preparing(run.devices);
    const cvy_team_params params = {.batch = (int)options.batch,
                                    .inference = true,
                                    .split = CVY_SPLIT_UNLIKE,
                                    .conv_algo = options.conv_algo,
                                    .math = (cvy_math)options.math,
                                    .input = input,
                                    .fleet = fleet};
    cvy_status status = cvy_team_create(run.devices, run.net, &params, &team);
    if (status == CVY_OK)
      status = options.weights ? cvy_team_load(team, options.weights)
                               : cvy_team_init(team, &(cvy_init_params){.kind = CVY_INIT_NET});
    if (status == CVY_OK) status = cvy_data_load_end(run.data);
    const cvy_set set = options.images.val_split > 0 ? CVY_SET_VAL : CVY_SET_TEST;
    const cvy_samples *const samples = set == CVY_SET_VAL ? &run.data->val : &run.data->test;
    if (status == CVY_OK && samples->n == 0) {
      if (set == CVY_SET_VAL)
        program_say("error: --val-split %g: no class of %s has enough training images; expected a larger fraction",
                    options.images.val_split, run.data->name);
      else
        program_say(
            "error: data set %s has no test samples: expected a folder with test/CLASS/ or val/CLASS/, or --val-split "
            "X with the --seed of training for the images that training held out",
            run.data->name);
      status = CVY_E_ARGUMENT;
    }
    if (status == CVY_OK) status = cvy_team_attach(team, run.data);
    if (status == CVY_OK && fleet) status = cvy_team_verify(team); /* all nodes have read the same weights */
    if (status == CVY_OK) progress_status("evaluating");
    wait_line_evaluating();
    if (status == CVY_OK && options.confusion) {
      answers.samples = samples;
      answers.classes = cvy_net_classes(run.net);
      answers.names = info && info->class_names              ? info->class_names
                      : run.data->classes == answers.classes ? run.data->class_names
                                                             : NULL;
      probabilities = calloc((size_t)samples->n * (size_t)answers.classes, sizeof *probabilities);
      answers.probabilities = probabilities;
      if (!probabilities) {
        program_say("error: out of memory");
        status = CVY_E_MEMORY;
      }
    }
    if (status == CVY_OK) status = cvy_team_classify(team, set, probabilities, &result);
    progress_wait_end();
    progress_end();
    code = program_exit_code(status);
    if (status == CVY_OK && (!result_print(&options, &run, fleet, team, &result, probabilities ? &answers : NULL) ||
                             !isfinite(result.loss)))
      code = EXIT_FAILED;
  }
  progress_wait_end();
  progress_end();
  program_flush(); /* a driver may crash when its objects are released */
  cvy_team_destroy(&team);
  *again = fleet_end(&options.fleet, options.quiet, code, &fleet);
  free(probabilities);
  program_run_close(&run);
  cvy_model_info_free(&info);
  return code;
}

int cmd_eval(int argc, char **argv) { return fleet_repeat(eval_all, argc, argv); }
