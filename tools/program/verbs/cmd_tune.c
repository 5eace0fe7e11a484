/* SPDX-License-Identifier: MIT
 * convoy tune: finds the fastest kernels for the convolutions of the networks on each device, and saves them. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/text.h"
#include "src/cl/devices/devices.h"
#include "src/nn/convs.h"
#include "src/ops/tune/autotune.h"
#include "src/ops/conv2d/math.h"
#include "tools/program/program_name.h"
#include "tools/program/log/json_log.h"
#include "tools/program/node.h"
#include "tools/program/options/option_rows.h"
#include "tools/program/program_common.h"
#include "tools/program/view/progress.h"
#include "tools/program/signals.h"
#include "tools/program/view/wait_line.h"

typedef struct tune_options {
  const char *devices, *json;
  const char *model;
  int math;
  int64_t batch, classes, input[3]; /* input: height, width, channels */
  double budget_s;
  bool show, clear, quiet;
} tune_options;

enum { BAR = 24 };

static const char *parse_model(const char *text, void *target) {
  if (strcmp(text, "all") != 0) return options_parse_model(text, target);
  *(const char **)target = NULL;
  return NULL;
}

static const char *parse_seconds(const char *text, void *target) {
  char number[32];
  size_t length = strlen(text);
  if (length > 0 && text[length - 1] == 's') length--;
  snprintf(number, sizeof number, "%.*s", (int)(length < sizeof number ? length : 0), text);
  return cvy_parse_float(number, 0.1, 1e6, target) ? NULL : "expected seconds from 0.1 to 1e6, such as 60 or 60s";
}

#define FIELD(name) .offset = offsetof(tune_options, name)
static const option_row rows[] = {
    {OPT_GROUP("Network")},
    ROW_DEVICES(FIELD, HELP_DEVICES_IN_TURN),
    {OPT_PARSE("model", FIELD(model), "NAME", "all, " UNIT_MODEL, parse_model,
               "network whose convolutions and linear layers are measured, for training and evaluation"),
     .deflt = "all"},
    ROW_NET_INPUT(FIELD, ABSENT_OF_FILE("28x28x1"), "size of the network's images"),
    ROW_NET_CLASSES(FIELD, ABSENT_OF_FILE("10"), "number of its classes"),
    ROW_BATCH(FIELD, 1 << 24,
              "images of a pass on each device; results apply to batches up to 8 times larger or smaller"),
    ROW_MATH(FIELD, "arithmetic of products, as in convoy train; results are stored for each separately"),
    {OPT_PARSE("budget", FIELD(budget_s), "S", "seconds per device", parse_seconds,
               "time limit; operations that were not measured keep their defaults"),
     .deflt = "60s"},
    {OPT_GROUP("Output")},
    {OPT_FLAG("show", FIELD(show), "print stored results without measuring")},
    {OPT_FLAG("clear", FIELD(clear), "delete stored results without measuring")},
    ROW_NO_NODES(NODES_ONE_EACH),
    ROW_JSON(FIELD, "none", "write the results as JSON; on stdout they replace the table"),
    ROW_QUIET(FIELD),
};
static const option_table table = {
    .verb = "tune",
    .usage = "[options]",
    OPTION_ROWS(rows),
    .about =
        "Measures algorithms and tile sizes of each convolution on each device, and stores the\n"
        "fastest in $XDG_CACHE_HOME/convoy (or ~/.cache/convoy) for train and eval.",
};

typedef struct tuner {
  const tune_options *options;
  const char *label;
  cvy_net *nets[PROGRAM_BOOK_MODELS];
  cvy_math math; /* of the device that is being tuned, and its operations */
  cvy_conv2d_params *ops;
  int n_ops;
  json_t *devices;
  const cvy_stop *stop; /* while something is measured */
  bool unsaved;         /* a file could not be written */
  pthread_mutex_t lock;
  char line[256]; /* names the pass that is measured; the lock guards it */
} tuner;

/* ---- the operations to tune ---- */

static cvy_status add_ops(tuner *t, cvy_device *device, const cvy_net *net, bool inference) {
  cvy_status status = CVY_OK;
  cvy_conv2d_params *more = NULL;
  int n;
  const bool fuse_pools = cvy_convpool_wanted(device, &(cvy_conv_algo_list){0});
  CVY_TRY(cvy_net_convs(net, (int)t->options->batch, inference, fuse_pools, &more, &n));
  cvy_conv2d_params *const grown = cvy_realloc(t->ops, (size_t)t->n_ops, (size_t)t->n_ops + (size_t)n, sizeof *t->ops);
  CVY_REQUIRE(grown, CVY_E_MEMORY, "out of host memory");
  t->ops = grown;
  memcpy(t->ops + t->n_ops, more, (size_t)n * sizeof *more);
  t->n_ops += n;
fail:
  cvy_free(more);
  return status;
}

/* The device's operations in training and in evaluation. */
static cvy_status find_ops(tuner *t, cvy_device *device) {
  cvy_status status = CVY_OK;
  cvy_free(t->ops);
  t->ops = NULL, t->n_ops = 0;
  t->math = cvy_math_resolve(device, (cvy_math)t->options->math);
  for (int m = 0; m < PROGRAM_BOOK_MODELS; m++) {
    if (!t->nets[m]) continue;
    CVY_TRY(add_ops(t, device, t->nets[m], false));
    CVY_TRY(add_ops(t, device, t->nets[m], true));
  }
  for (int i = 0; i < t->n_ops; i++) t->ops[i].math = t->math;
fail:
  return status;
}

static cvy_status make_nets(tuner *t) {
  cvy_status status = CVY_OK;
  const tune_options *const o = t->options;
  for (int m = 0; m < (o->model ? 1 : PROGRAM_BOOK_MODELS); m++)
    CVY_TRY(program_model_net(o->model ? o->model : program_models[m], o->input, o->classes, &t->nets[m]));
fail:
  return status;
}

/* ---- output ---- */

static void on_progress(void *user, const cvy_tune_report *report, int done) {
  tuner *const t = user;
  int left = 0, all = 0;
  char shape[CVY_TUNE_SHAPE_BYTES];
  for (int i = 0; i < report->n; i++) {
    all += report->items[i].state == CVY_TUNE_WAITING || report->items[i].state == CVY_TUNE_DONE;
    left += report->items[i].state == CVY_TUNE_WAITING;
  }
  if (done == report->n || all == 0) return;
  const int filled = BAR * (all - left) / all;
  const cvy_tune_item *const item = &report->items[done];
  pthread_mutex_lock(&t->lock);
  snprintf(t->line, sizeof t->line, "%s [%.*s%.*s] %d/%d  %s %s", t->label, filled, "##############################",
           BAR - filled, "..............................", all - left, all, cvy_conv_pass_name(item->pass),
           cvy_tune_shape_text(item->params, item->pass, shape));
  pthread_mutex_unlock(&t->lock);
}

static void describe(void *user, double seconds, char *out, size_t out_bytes) {
  tuner *const t = user;
  if (wait_line_compiling(seconds, out, out_bytes)) return;
  pthread_mutex_lock(&t->lock);
  snprintf(out, out_bytes, "%s", t->line);
  pthread_mutex_unlock(&t->lock);
}

static void head_print(const tuner *t) {
  printf("%s\n%-54s %-16s %6s  %-18s %9s  %-18s %6s\n", t->label, "convolution", "pass", "images", "best", "ms",
         "default", "gain");
}

static double gain_of(const cvy_tune_entry *e) {
  return e->choice_us > 0 ? (double)e->standard_us / (double)e->choice_us : 1;
}

static void entry_print(const cvy_tune_entry *e) {
  char choice[CVY_CONV_CHOICE_BYTES], standard[CVY_CONV_CHOICE_BYTES];
  printf("%-54s %-16s %6d  %-18s %9.3f  %-18s %5.2fx\n", e->shape, cvy_conv_pass_name(e->pass), e->n,
         cvy_conv_choice_text(&e->choice, choice, sizeof choice), 1e-3 * (double)e->choice_us,
         cvy_conv_choice_text(&e->standard, standard, sizeof standard), gain_of(e));
}

static json_t *entry_json(const cvy_tune_entry *e) {
  char choice[CVY_CONV_CHOICE_BYTES], standard[CVY_CONV_CHOICE_BYTES];
  return json_pack("{ss ss si ss so ss so so}", "shape", e->shape, "pass", cvy_conv_pass_name(e->pass), "images", e->n,
                   "choice", cvy_conv_choice_text(&e->choice, choice, sizeof choice), "ms",
                   json_number(1e-3 * (double)e->choice_us), "default",
                   cvy_conv_choice_text(&e->standard, standard, sizeof standard), "default_ms",
                   json_number(1e-3 * (double)e->standard_us), "gain", json_number(gain_of(e)));
}

/* Prints this command's entries on stdout and in the JSON. `report` NULL: the command measured nothing. */
static void show(tuner *t, const cvy_tune_table *found, const cvy_tune_report *report) {
  const bool stopped = report && cvy_stop_requested(t->stop);
  const bool prints = !t->options->json || strcmp(t->options->json, "-") != 0;
  json_t *const entries = json_array();
  double standard_us = 0, choice_us = 0;
  int n = 0, waiting = 0, single = 0, rejected = 0;
  for (int i = 0; report && i < report->n; i++) {
    const cvy_tune_item *const item = &report->items[i];
    rejected += item->rejected;
    waiting += item->state == CVY_TUNE_WAITING;
    single += item->state == CVY_TUNE_SINGLE;
    if (item->state != CVY_TUNE_DONE) continue;
    const cvy_tune_entry *const e = cvy_tune_table_find(found, item->params, item->pass);
    if (!e) continue;
    if (prints && n == 0) head_print(t);
    if (prints) entry_print(e);
    json_array_append_new(entries, entry_json(e));
    standard_us += item->uses * (double)e->standard_us;
    choice_us += item->uses * (double)e->choice_us;
    n++;
  }
  for (int i = 0; !report && i < found->n; i++, n++) {
    if (prints && n == 0) head_print(t);
    if (prints) entry_print(&found->entries[i]);
    json_array_append_new(entries, entry_json(&found->entries[i]));
  }
  if (prints && n > 0 && report)
    printf("%s: %d passes measured in %.1f s; all layers together %.1f ms, with the defaults %.1f ms (%.2fx)\n",
           t->label, n, report->seconds, 1e-3 * choice_us, 1e-3 * standard_us,
           choice_us > 0 ? standard_us / choice_us : 1);
  else if (prints && n == 0 && report)
    printf("%s: nothing was measured (%d passes have only one algorithm, %s %d)\n", t->label, single,
           stopped ? "interrupted before" : "the budget ended before", waiting);
  else if (prints && n == 0) printf("%s: no stored results; %s tune measures\n", t->label, program_name());
  if (waiting > 0 && n > 0 && !stopped)
    program_warn("%s: the budget of %g s ended: %d passes of %d keep their defaults; --budget raises it", t->label,
                 t->options->budget_s, waiting, report->n);
  json_array_append_new(
      t->devices, json_pack("{ss so so so sf so si si si}", "device", t->label, "math",
                            report ? json_string(program_math_name(t->math)) : json_null(), "file",
                            program_text_json(found->path), "entries", entries, "seconds",
                            report ? report->seconds : 0.0, "out_of_time", json_boolean(report && report->out_of_time),
                            "waiting", waiting, "single", single, "rejected", rejected));
}

/* ---- devices ---- */

/* If the file cannot be written (the reason is printed), the entries are printed and the next devices are tuned. */
static void save(tuner *t, const cvy_tune_table *found) {
  if (found->n == 0 || cvy_tune_table_save(found) == CVY_OK) return;
  t->unsaved = true;
  program_warn("%s: the results are not stored", t->label);
}

static cvy_status tune_device(tuner *t, cvy_device *device) {
  cvy_status status = CVY_OK;
  cvy_tune_table *found = NULL;
  cvy_tune_report report = {0};
  const tune_options *const o = t->options;
  CVY_TRY(cvy_tune_table_open(device, &found));
  if (o->clear) {
    const bool there = cvy_tune_table_remove(found);
    if (!o->quiet) program_say("%s: %s", t->label, there ? "forgotten" : "no stored results to delete");
    goto fail; /* done */
  }
  if (o->show) {
    CVY_TRY(cvy_tune_table_load(found));
    if (found->wrong) program_say("%s: %s %s: it is not used", t->label, found->path, found->wrong);
    show(t, found, NULL);
    goto fail; /* done */
  }
  CVY_TRY(find_ops(t, device));
  t->stop = signals_soft();
  const cvy_tune_params params = {.budget_s = o->budget_s, .stop = t->stop, .progress = on_progress, .user = t};
  progress_wait_begin(describe, t);
  status = cvy_autotune(device, t->ops, t->n_ops, &params, found, &report);
  progress_wait_end();
  save(t, found); /* also the entries found before a failure */
  CVY_TRY(status);
  if (!found->path)
    program_warn("%s: results cannot be stored: neither XDG_CACHE_HOME nor HOME is a writable folder", t->label);
  progress_end();
  show(t, found, &report);
  progress_start(o->quiet, 1, 0);
  if (cvy_stop_requested(t->stop)) status = CVY_E_INTERRUPTED;
fail:
  cvy_tune_report_clear(&report);
  cvy_tune_table_destroy(&found);
  return status;
}

static cvy_status tune_all(tuner *t, const cvy_devices *devices) {
  cvy_status status = CVY_OK;
  for (int i = 0; i < devices->n; i++) {
    cvy_device *device = NULL;
    t->label = cvy_devices_label(devices, i);
    CVY_TRY(cvy_device_open(devices->list, &devices->selected[i], false, &device));
    status = tune_device(t, device);
    cvy_device_close(&device);
    if (status != CVY_OK) break;
  }
fail:
  return status;
}

int cmd_tune(int argc, char **argv) {
  tune_options o = {0};
  cvy_devices *devices = NULL;
  tuner t = {.options = &o, .lock = PTHREAD_MUTEX_INITIALIZER};
  int code = options_parse(&table, argc, argv, &o, NULL);
  if (code != OPTIONS_GO_ON) return code;
  code = fleet_refuse("tune");
  if (code != EXIT_DONE) return code;
  if (o.show && o.clear) return options_error("tune", "--show and --clear: expected one of them");
  code = program_try_output("tune", "--json", o.json, true);
  if (code != EXIT_DONE) return code;
  progress_start(o.quiet, 1, 0);
  cvy_status status = cvy_devices_select(o.devices, &devices);
  if (status != CVY_OK) return program_exit_code_of_select(status);
  if (!o.quiet) program_say_no_gpu(devices, "tuning");
  t.devices = json_array();
  status = cvy_devices_try(devices);
  if (status == CVY_OK) status = make_nets(&t);
  if (status == CVY_OK) status = tune_all(&t, devices);
  progress_end();
  code = program_exit_code(status);
  if (o.json && (code == EXIT_DONE || code == EXIT_INTERRUPTED)) {
    if (!program_write_json(o.json, json_pack("{ss sO}", "version", cvy_version(), "devices", t.devices)))
      code = EXIT_FAILED;
  }
  if (code == EXIT_DONE && t.unsaved) code = EXIT_FAILED;
  json_decref(t.devices);
  cvy_free(t.ops);
  for (int m = 0; m < PROGRAM_BOOK_MODELS; m++) cvy_net_destroy(&t.nets[m]);
  cvy_devices_destroy(&devices);
  return code;
}
