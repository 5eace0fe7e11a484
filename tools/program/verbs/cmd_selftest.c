/* SPDX-License-Identifier: MIT
 * convoy selftest: checks every operation on the user's devices against known results. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/cl/devices/devices.h"
#include "tools/program/options/option_rows.h"
#include "tools/program/program_common.h"
#include "tools/program/view/progress.h"
#include "tools/program/selftest/selftest.h"

typedef struct selftest_options {
  const char *devices, *model, *json;
  int64_t input[3], classes; /* height, width, channels */
  bool quiet;
} selftest_options;

#define FIELD(name) .offset = offsetof(selftest_options, name)
static const option_row rows[] = {
    {OPT_GROUP("Options")},
    {OPT_TEXT("devices", FIELD(devices), "selector", "devices to check; see convoy train --help"), .letter = 'd',
     .value = "SEL", .absent = "all usable devices"},
    {OPT_PARSE("model", FIELD(model), "NAME", UNIT_MODEL, options_parse_model,
               "network whose layers are checked with their shapes; a large one takes minutes"),
     .absent = "resnet18 and lenet"},
    ROW_NET_INPUT(FIELD, ABSENT_OF_FILE("28x28x1"), "size of its images"),
    ROW_NET_CLASSES(FIELD, ABSENT_OF_FILE("10"), "number of its classes"),
    ROW_JSON_OR_TABLE(FIELD),
    ROW_NO_NODES(NODES_ONE_EACH),
    ROW_QUIET(FIELD),
};
static const option_table table = {
    .verb = "selftest",
    .usage = "[options]",
    OPTION_ROWS(rows),
    .about =
        "Runs every operation on your devices, with the shapes of resnet18 and lenet or of\n"
        "the network that --model names, and compares the results with plain loops in\n"
        "double precision. Prints one line per device; exit status 1 if a result is wrong.\n"
        "Takes some seconds per device.",
};

/* "0:0,1:0": all usable devices; NULL when out of memory. */
static char *every_device(const cvy_device_list *list) {
  char *const text = malloc((size_t)list->n * 24 + 1), *at = text;
  if (!text) return NULL;
  *at = '\0';
  for (int i = 0; i < list->n; i++) {
    const cvy_device_info *const d = &list->items[i];
    if (d->usable) at += sprintf(at, "%s%d:%d", at > text ? "," : "", d->platform, d->index);
  }
  return text;
}

static cvy_status choose(const char *selector, cvy_devices **out) {
  cvy_device_list *list = NULL;
  char *all = NULL;
  cvy_status status = CVY_OK;
  if (!selector) {
    status = cvy_device_list_create(&list);
    if (status == CVY_OK && !(all = every_device(list))) status = CVY_E_MEMORY;
  }
  /* without any device: the message of auto, which has advice */
  if (status == CVY_OK) status = cvy_devices_select(selector ? selector : *all ? all : "auto", out);
  free(all);
  cvy_device_list_destroy(&list);
  return status;
}

static void result_print(const selftest *t) {
  for (int i = 0; i < t->n_devices; i++) {
    const selftest_device *const d = &t->devices[i];
    if (!d->cl) {
      printf("%s: FAILED, the device cannot be opened\n", d->label);
      continue;
    }
    printf("%s: %s, %d shapes, %d wrong, %ld kernels run, %.1f s", d->label, d->failed ? "FAILED" : "passed", d->cases,
           d->failed, d->launches, d->seconds);
    if (d->worst_case[0] && !d->failed)
      printf("; largest error %.0f %% of its bound (%s)", 100 * d->worst, d->worst_case);
    printf("\n");
    for (int f = 0; f < d->failed && f < SELFTEST_FAILURES_KEPT; f++) printf("  FAILED %s\n", d->failures[f]);
    if (d->failed > SELFTEST_FAILURES_KEPT) printf("  and %d more\n", d->failed - SELFTEST_FAILURES_KEPT);
  }
}

static json_t *result_json(const selftest *t, bool passed) {
  json_t *const devices = json_array();
  for (int i = 0; i < t->n_devices; i++) {
    const selftest_device *const d = &t->devices[i];
    json_t *const failures = json_array();
    for (int f = 0; f < d->failed && f < SELFTEST_FAILURES_KEPT; f++)
      json_array_append_new(failures, json_string(d->failures[f]));
    json_array_append_new(
        devices, json_pack("{ss sb sb si si sI sf sf ss so}", "device", d->label, "passed", d->cl && d->failed == 0,
                           "opened", d->cl != NULL, "shapes", d->cases, "wrong", d->failed, "kernels",
                           (json_int_t)d->launches, "sec", d->seconds, "worst_error_per_bound",
                           d->worst <= 1e300 ? d->worst : 1e300, "worst_case", d->worst_case, "failures", failures));
  }
  return json_pack("{ss sb so}", "version", cvy_version(), "passed", passed, "devices", devices);
}

int cmd_selftest(int argc, char **argv) {
  selftest_options options = {0};
  int code = options_parse(&table, argc, argv, &options, NULL);
  if (code != OPTIONS_GO_ON) return code;
  code = program_try_output("selftest", "--json", options.json, true);
  if (code != EXIT_DONE) return code;

  cvy_devices *chosen = NULL;
  cvy_net *net = NULL;
  static selftest t;
  if (!options.model && (options.input[0] || options.classes))
    return options_error("selftest", "--input and --classes need --model");
  cvy_status status = options.model ? program_model_net(options.model, options.input, options.classes, &net) : CVY_OK;
  if (status != CVY_OK) return program_exit_code(status);
  progress_start(options.quiet, 1, 0);
  status = choose(options.devices, &chosen);
  if (status != CVY_OK) {
    cvy_net_destroy(&net);
    return program_exit_code_of_select(status);
  }
  selftest_device *const all = calloc((size_t)chosen->n, sizeof *all);
  selftest_device *const opened = calloc((size_t)chosen->n, sizeof *opened);
  if (!all || !opened) status = CVY_E_MEMORY;
  for (int i = 0; status == CVY_OK && i < chosen->n; i++) {
    all[i].label = cvy_devices_label(chosen, i);
    if (cvy_device_open(chosen->list, &chosen->selected[i], false, &all[i].cl) == CVY_OK)
      opened[t.n_devices++] = all[i];
  }
  t.devices = opened;
  if (status == CVY_OK && t.n_devices > 0) status = selftest_run_all(&t, options.model, net);
  progress_end();
  code = program_exit_code(status);
  if (status == CVY_OK) {
    for (int i = 0, next = 0; i < chosen->n; i++) {
      if (all[i].cl) all[i] = opened[next++];
      if (!all[i].cl || all[i].failed) code = EXIT_FAILED;
    }
    const selftest report = {.devices = all, .n_devices = chosen->n};
    if (!options.json || strcmp(options.json, "-") != 0) result_print(&report);
    if (options.json && !program_write_json(options.json, result_json(&report, code == EXIT_DONE))) code = EXIT_FAILED;
  }
  for (int i = 0; i < t.n_devices; i++) cvy_device_close(&opened[i].cl);
  free(all);
  free(opened);
  cvy_devices_destroy(&chosen);
  cvy_net_destroy(&net);
  return code;
}
