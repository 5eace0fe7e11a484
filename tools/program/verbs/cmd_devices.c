/* SPDX-License-Identifier: MIT
 * convoy devices: the devices, their capabilities, and reasons for missing ones. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/program/options/option_rows.h"
#include "tools/program/program_common.h"

typedef struct devices_options {
  const char *json;
} devices_options;

static const option_row rows[] = {
    {OPT_GROUP("Options")},
    {OPT_SINK("json", .offset = offsetof(devices_options, json), NULL, "write everything as JSON"), .absent = "none: "
                                                                                                              "prints "
                                                                                                              "a "
                                                                                                              "table"},
    ROW_NO_NODES(NODES_ONE_EACH),
};
static const option_table table = {
    .verb = "devices",
    .usage = "[options]",
    OPTION_ROWS(rows),
    .about =
        "Lists the OpenCL devices of this machine, one line each: its number P:D\n"
        "(platform:device, as in clinfo), its kind and its capabilities. A line that begins\n"
        "with - is a device that cannot be used, with the reason.",
    .after =
        "Select a device by its number, a part of its name, or its kind; see --devices\n"
        "in convoy train --help.",
};

static const char *kind_name(cvy_device_kind kind) {
  return kind == CVY_DEVICE_CPU ? "CPU" : kind == CVY_DEVICE_GPU ? "GPU" : "other";
}

static void size_text(size_t bytes, char *out, size_t out_bytes) {
  if (bytes >= (size_t)1 << 30) snprintf(out, out_bytes, "%.1f GiB", (double)bytes / (1 << 30));
  else if (bytes >= (size_t)1 << 20) snprintf(out, out_bytes, "%.0f MiB", (double)bytes / (1 << 20));
  else snprintf(out, out_bytes, "%.0f KiB", (double)bytes / 1024);
}

/* "float16, fp16, fp64, sub-groups, parts": kernels and selectors depend on these. */
static void abilities(const cvy_device_info *d, char *out, size_t out_bytes) {
  size_t used = 0;
  out[0] = '\0';
  const struct {
    bool there;
    const char *name;
  } list[] = {
      {d->has_fp16, "fp16"},
      {d->has_fp64, "fp64"},
      {d->has_subgroups, "sub-groups"},
      {d->host_unified, "unified memory"},
      {d->can_partition_by_counts, "can be split"},
  };
  if (d->float_vector_width > 1) used = (size_t)snprintf(out, out_bytes, "float%d", d->float_vector_width);
  for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) {
    if (list[i].there && used < out_bytes)
      used += (size_t)snprintf(out + used, out_bytes - used, "%s%s", used ? ", " : "", list[i].name);
  }
}

static void number_text(const cvy_device_info *d, char *out, size_t out_bytes) {
  if (d->index < 0) snprintf(out, out_bytes, "%d", d->platform);
  else snprintf(out, out_bytes, "%d:%d", d->platform, d->index);
}

static void line_print(const cvy_device_list *list, int i, int name_width) {
  const cvy_device_info *const d = &list->items[i];
  char number[24], memory[32], can[128], other[24];
  number_text(d, number, sizeof number);
  if (!d->usable) {
    if (d->index < 0) program_print("- %-4s platform %s: %s\n", number, d->platform_name, d->reason);
    else program_print("- %-4s %s (%s): %s\n", number, d->name, d->platform_name, d->reason);
    return;
  }
  size_text(d->global_bytes, memory, sizeof memory);
  abilities(d, can, sizeof can);
  program_print("%-6s %-5s %-*s %4d units %9s  %s [%s]", number, kind_name(d->kind), name_width, d->name,
                d->compute_units, memory, can, d->platform_name);
  if (d->same_as >= 0) {
    number_text(&list->items[d->same_as], other, sizeof other);
    printf("; %s %s", d->duplicate ? "the same device as" : "same cores as", other);
  }
  if (d->reason[0]) program_print("; %s", d->reason);
  printf("\n");
}

/* Prints each line of `text` with the prefix `before`. */
static void lines_print(const char *text, const char *before) {
  while (*text) {
    const int length = (int)strcspn(text, "\n");
    if (length > 0) program_print("%s%.*s\n", before, length, text);
    text += length + (text[length] == '\n');
  }
}

static json_t *lines_json(const char *text) {
  json_t *const array = json_array();
  while (*text) {
    const size_t length = strcspn(text, "\n");
    char *const line = strndup(text, length);
    if (length > 0) json_array_append_new(array, program_text_json(line));
    free(line);
    text += length + (text[length] == '\n');
  }
  return array;
}

static json_t *device_json(const cvy_device_list *list, int i) {
  const cvy_device_info *const d = &list->items[i];
  char number[24], other[24] = "";
  number_text(d, number, sizeof number);
  if (d->same_as >= 0) number_text(&list->items[d->same_as], other, sizeof other);
  json_t *const out = json_pack("{ss sb so si si ss ss}", "id", number, "usable", d->usable, "reason",
                                program_text_json(d->reason), "platform", d->platform, "index", d->index,
                                "platform_name", d->platform_name, "platform_version", d->platform_version);
  if (d->index < 0) return out;
  json_object_update_new(
      out, json_pack("{ss ss ss ss ss ss si sI sI sI sI si}", "kind", kind_name(d->kind), "name", d->name, "vendor",
                     d->vendor, "driver", d->driver, "version", d->version, "uuid", d->uuid, "compute_units",
                     d->compute_units, "global_bytes", (json_int_t)d->global_bytes, "max_alloc_bytes",
                     (json_int_t)d->max_alloc_bytes, "local_bytes", (json_int_t)d->local_bytes, "max_work_group",
                     (json_int_t)d->max_work_group, "float_vector_width", d->float_vector_width));
  json_object_update_new(
      out, json_pack("{sb sb sb sb sb sb sb ss? sb}", "host_unified", d->host_unified, "local_is_dedicated",
                     d->local_is_dedicated, "fp16", d->has_fp16, "fp64", d->has_fp64, "sub_groups", d->has_subgroups,
                     "can_split", d->can_partition_by_counts, "software", d->software, "same_as",
                     other[0] ? other : NULL, "duplicate", d->duplicate));
  return out;
}

static json_t *choice_json(const cvy_devices *devices) {
  json_t *const array = json_array();
  for (int i = 0; devices && i < cvy_devices_count(devices); i++)
    json_array_append_new(array, json_string(cvy_devices_label(devices, i)));
  return array;
}

int cmd_devices(int argc, char **argv) {
  devices_options options = {0};
  int code = options_parse(&table, argc, argv, &options, NULL);
  if (code != OPTIONS_GO_ON) return code;
  code = program_try_output("devices", "--json", options.json, true);
  if (code != EXIT_DONE) return code;

  cvy_device_list *list = NULL;
  cvy_devices *chosen = NULL;
  char missing[4096] = "", advice[1024], libraries[512] = "", labels_none[] = "";
  int usable = 0, name_width = 4;
  const cvy_status status = cvy_device_list_create(&list);
  if (status != CVY_OK) return program_exit_code(status);
  for (int i = 0; i < list->n; i++) {
    const int width = (int)strlen(list->items[i].name);
    usable += list->items[i].usable;
    if (list->items[i].usable && width > name_width) name_width = width;
  }
  const bool is_hidden = cvy_device_missing_drivers(list, missing, sizeof missing);
  cvy_libraries_describe(libraries, sizeof libraries);
  if (usable > 0 && cvy_devices_select("auto", &chosen) != CVY_OK) usable = 0;

  if (!options.json || strcmp(options.json, "-") != 0) {
    for (int i = 0; i < list->n; i++) line_print(list, i, name_width);
    if (chosen) {
      char *const labels = program_team_labels(chosen, NULL);
      printf("--devices auto selects %s%s\n", labels ? labels : labels_none,
             cvy_devices_fell_back_to_cpu(chosen) ? " (there is no GPU)" : "");
      free(labels);
    }
    lines_print(libraries, "");
    lines_print(missing, "missing: ");
  }
  code = usable > 0 ? EXIT_DONE : EXIT_FAILED;
  if (options.json) {
    json_t *const devices = json_array();
    for (int i = 0; i < list->n; i++) json_array_append_new(devices, device_json(list, i));
    if (!program_write_json(options.json, json_pack("{ss so so so so}", "version", cvy_version(), "devices", devices,
                                                    "auto", choice_json(chosen), "libraries", lines_json(libraries),
                                                    "missing", lines_json(missing)))) {
      code = EXIT_FAILED;
    }
  }
  if (usable == 0) {
    cvy_device_advice(advice, sizeof advice);
    program_flush(); /* the lines on missing drivers come first */
    fprintf(stderr, "No usable OpenCL device. %s", is_hidden ? missing : advice);
  }
  cvy_devices_destroy(&chosen);
  cvy_device_list_destroy(&list);
  return code;
}
