/* SPDX-License-Identifier: MIT
 * convoy data: checks and statistics of a data set. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/text.h"
#include "tools/program/view/class_table.h"
#include "tools/program/options/input_options.h"
#include "tools/program/log/json_log.h"
#include "tools/program/options/option_rows.h"
#include "tools/program/program_common.h"
#include "tools/program/view/progress.h"
#include "tools/program/view/sheet.h"
#include "tools/program/view/wait_line.h"

enum { SETS = 3, MOST_CLASSES_SHOWN = 40, SHEET_PICTURES = 64 };

typedef struct data_options {
  const char *data_dir, *json, *sheet;
  image_options images;
  normalize_option normalize;
  augment_option augment;
  int64_t classes, seed;
  bool quiet;
} data_options;

#define FIELD(name) .offset = offsetof(data_options, name)
static const option_row rows[] = {
    ROW_DATA_DIR(FIELD),
    ROW_CLASSES(FIELD),
    ROWS_IMAGES(FIELD, HELP_STRICT),
    ROW_NORMALIZE(FIELD),
    ROW_AUGMENT(FIELD),
    ROW_SEED(FIELD, "seed of --val-split, --augment and synthetic data"),
    {OPT_TEXT("sheet", FIELD(sheet), "PNG file",
              "write the first 64 training images of an epoch after augmentation, with their classes")},
    ROW_JSON_OR_TABLE(FIELD),
    ROW_QUIET(FIELD),
};
static const option_table table = {
    .verb = "data",
    .usage = "SRC [options]",
    OPTION_ROWS(rows),
    .operand = "SRC",
    .least_operands = 1,
    .most_operands = 1,
    .about =
        "Checks the data set SRC (as for convoy train --data) and prints images per set and class, sizes of pictures, "
        "pictures that cannot be decoded, and mean and standard deviation of each channel of the training images "
        "(pixels / 255).\n"
        "Without --size pictures may have different sizes. Exit 1 if a picture is broken and --strict is given.",
};

typedef struct set_view {
  const char *name;
  const cvy_samples *samples;
  int *counts; /* of each class */
} set_view;

static bool count_classes(const cvy_data *data, set_view views[SETS]) {
  const cvy_samples *const samples[SETS] = {&data->train, &data->val, &data->test};
  static const char *const names[SETS] = {"training", "validation", "test"};
  for (int set = 0; set < SETS; set++) {
    views[set] = (set_view){names[set], samples[set], calloc((size_t)data->classes, sizeof(int))};
    if (!views[set].counts) return false;
    for (int i = 0; i < samples[set]->n; i++) views[set].counts[samples[set]->labels[i]]++;
  }
  return true;
}

/* Prints "text FILE" or "text FILE: why"; FILE may have any characters. */
static void print_file(const char *text, const char *file, const char *why) {
  cvy_text plain = {0};
  cvy_text_add_plain(&plain, file, "");
  if (why) cvy_text_add(&plain, ": ");
  if (why) cvy_text_add_plain(&plain, why, "");
  printf("%s%s\n", text, cvy_text_get(&plain));
  cvy_text_clear(&plain);
}

static int channels_of(const cvy_data *data, const cvy_data_info *info) {
  const int most = (int)(sizeof info->mean / sizeof *info->mean);
  return data->c <= most ? data->c : 0;
}

static void print_text(const cvy_data *data, const cvy_data_info *info, const set_view views[SETS]) {
  char room[16];
  int width = 5;
  printf("%s: ", data->name);
  if (data->h) printf("images %dx%dx%d, ", data->h, data->w, data->c);
  printf("%d classes\n", data->classes);
  const int shown = data->classes <= MOST_CLASSES_SHOWN ? data->classes : MOST_CLASSES_SHOWN;
  for (int k = 0; k < shown; k++) {
    const int n = class_width(class_name(data->class_names, k, room));
    if (n > width) width = n;
  }
  printf("%-*s", width, "class");
  for (int set = 0; set < SETS; set++)
    if (views[set].samples->n) printf("  %10s", views[set].name);
  printf("\n");
  for (int k = 0; k < shown; k++) {
    class_cell(stdout, class_name(data->class_names, k, room), width, false);
    for (int set = 0; set < SETS; set++)
      if (views[set].samples->n) printf("  %10d", views[set].counts[k]);
    printf("\n");
  }
  if (shown < data->classes) printf("... %d more classes (--json has all)\n", data->classes - shown);
  printf("%-*s", width, "all");
  for (int set = 0; set < SETS; set++)
    if (views[set].samples->n) printf("  %10d", views[set].samples->n);
  printf("\n");
  if (info->n_pictures > info->n_broken)
    printf("height of the files: %d to %d, median %d; width: %d to %d, median %d\n", info->h[0], info->h[2], info->h[1],
           info->w[0], info->w[2], info->w[1]);
  const int channels = channels_of(data, info);
  for (int moment = 0; moment < 2 && channels; moment++) {
    printf("%s", moment ? "deviation" : "mean     ");
    for (int ch = 0; ch < channels; ch++) printf(" %.6f", moment ? info->deviation[ch] : info->mean[ch]);
    printf("\n");
  }
  if (info->n_unread) {
    printf("left out, unsupported format (not JPEG, PNG, PGM or PPM): %d, the first is ", info->n_unread);
    print_file("", info->unread, NULL);
  }
  if (info->n_ignored) {
    printf("left out, no picture's extension: %d, the first is ", info->n_ignored);
    print_file("", info->ignored, NULL);
  }
  if (info->n_broken) printf("broken, left out: %d\n", info->n_broken);
  const char *why, *file;
  for (int i = 0; (file = cvy_data_broken(data, i, &why)); i++) print_file("  ", file, why);
}

static json_t *numbers(const double *values, int n) {
  json_t *const list = json_array();
  for (int i = 0; i < n; i++) json_array_append_new(list, json_number(values[i]));
  return list;
}

static json_t *least_median_most(const int values[3]) {
  return json_pack("{si si si}", "least", values[0], "median", values[1], "most", values[2]);
}

static json_t *to_json(const char *source, const cvy_data *data, const cvy_data_info *info,
                       const set_view views[SETS]) {
  json_t *const sets = json_object(), *const classes = data->class_names ? json_array() : json_null(),
                *const broken = json_array();
  const int channels = channels_of(data, info);
  for (int k = 0; data->class_names && k < data->classes; k++)
    json_array_append_new(classes, program_text_json(data->class_names[k]));
  for (int set = 0; set < SETS; set++) {
    json_t *const counts = json_array();
    for (int k = 0; k < data->classes; k++) json_array_append_new(counts, json_integer(views[set].counts[k]));
    json_object_set_new(sets, views[set].name,
                        json_pack("{si so}", "images", views[set].samples->n, "of_class", counts));
  }
  const char *why, *file;
  for (int i = 0; (file = cvy_data_broken(data, i, &why)); i++)
    json_array_append_new(broken, json_pack("{so so}", "file", program_text_json(file), "why", program_text_json(why)));
  json_t *const pictures = info->n_pictures
                               ? json_pack("{si si si so so so}", "files", info->n_pictures, "ignored", info->n_ignored,
                                           "neither_jpeg_nor_png", info->n_unread, "broken", broken, "height",
                                           least_median_most(info->h), "width", least_median_most(info->w))
                               : json_null();
  if (!info->n_pictures) json_decref(broken);
  return json_pack("{ss so so so so so so so so so so}", "version", cvy_version(), "data", program_text_json(source),
                   "height", data->h ? json_integer(data->h) : json_null(), "width",
                   data->w ? json_integer(data->w) : json_null(), "channels", json_integer(data->c), "classes",
                   json_integer(data->classes), "class_names", classes, "sets", sets, "pictures", pictures, "mean",
                   numbers(info->mean, channels), "deviation", numbers(info->deviation, channels));
}

static int show(const data_options *o, const char *source, const cvy_data *data) {
  set_view views[SETS] = {{0}};
  cvy_data_info info;
  int code = program_exit_code(cvy_data_get_info(data, &info));
  if (code == EXIT_DONE && !count_classes(data, views)) {
    program_say("error: out of memory");
    code = EXIT_FAILED;
  }
  if (code == EXIT_DONE) {
    if (!o->json) print_text(data, &info, views);
    else if (!program_write_json(o->json, to_json(source, data, &info, views))) code = EXIT_FAILED;
    if (code == EXIT_DONE && info.n_broken && o->images.strict) {
      program_say("error: --strict: %d picture%s of %s %s broken", info.n_broken, info.n_broken > 1 ? "s" : "", source,
                  info.n_broken > 1 ? "are" : "is");
      code = EXIT_FAILED;
    }
  }
  for (int set = 0; set < SETS; set++) free(views[set].counts);
  return code;
}

/* The first training images in the order of training, augmented. */
static cvy_status draw_sheet(const data_options *o, const cvy_data *data, bool *written) {
  cvy_status status = CVY_OK;
  cvy_input_params input = input_options_params(&o->normalize, &o->augment, o->seed);
  const int n = data->train.n < SHEET_PICTURES ? data->train.n : SHEET_PICTURES;
  const size_t bytes = (size_t)data->h * (size_t)data->w * (size_t)data->c;
  int32_t *const order = malloc((size_t)data->train.n * sizeof *order);
  uint8_t *const pixels = malloc((size_t)n * bytes);
  char(*const names)[16] = calloc((size_t)n, sizeof *names);
  const char **const texts = calloc((size_t)n, sizeof *texts);
  if (!order || !pixels || !names || !texts) {
    program_say("error: out of memory");
    status = CVY_E_MEMORY;
  }
  if (status == CVY_OK && input.of_data) status = cvy_input_take_moments(&input, data);
  if (status == CVY_OK) status = cvy_input_check(&input, data->h, data->w, data->c);
  if (status == CVY_OK) cvy_sampler_order((uint64_t)o->seed, 0, false, data->train.n, order);
  for (int i = 0; i < n && status == CVY_OK; i++) {
    const int label = data->train.labels[order[i]];
    snprintf(names[i], sizeof names[i], "%d", label);
    texts[i] = data->class_names ? data->class_names[label] : names[i];
    status = cvy_input_picture(&input, data->h, data->w, data->c, data->train.images + (size_t)order[i] * bytes,
                               order[i], 0, pixels + (size_t)i * bytes);
  }
  if (status == CVY_OK) *written = sheet_write(o->sheet, pixels, n, data->h, data->w, data->c, texts);
  free(order);
  free(pixels);
  free(names);
  free(texts);
  return status;
}

/* EXIT_DONE if a sheet of these images can be drawn, else the exit status, with the reason printed. */
static int check_sheet(const cvy_data *data) {
  if (!data->train.images) return options_error("data", "--sheet: pictures have different sizes; expected --size, too");
  if (data->c != 1 && data->c != 3)
    return options_error("data", "--sheet: images have %d channels; expected 1 or 3", data->c);
  return EXIT_DONE;
}

static int write_sheet(const data_options *o, const cvy_data *data) {
  bool written = false;
  const int code = check_sheet(data);
  if (code != EXIT_DONE) return code;
  const cvy_status status = draw_sheet(o, data, &written);
  if (status != CVY_OK) return program_exit_code(status);
  if (written && !o->quiet) program_say("saved: %s", o->sheet);
  return written ? EXIT_DONE : EXIT_FAILED;
}

int cmd_data(int argc, char **argv) {
  data_options options = {0};
  int code = options_parse(&table, argc, argv, &options, NULL), n;
  if (code != OPTIONS_GO_ON) return code;
  const char *const source = options_operands(&n)[0];
  code = options_check_data_dir("data", source, options.data_dir);
  if (code != OPTIONS_GO_ON) return code;
  code = program_check_outputs("data",
                               (const program_file[]){{"--json", options.json}, {"--sheet", options.sheet}, {0}}, NULL);
  if (code == EXIT_DONE) code = program_try_output("data", "--json", options.json, true);
  if (code == EXIT_DONE) code = program_try_output("data", "--sheet", options.sheet, false);
  if (code != EXIT_DONE) return code;
  cvy_data_params params = program_data_params(options.data_dir, options.classes, options.seed, &options.images);
  params.look = true;
  params.strict = false; /* lists all broken pictures */
  cvy_data *data = NULL;
  progress_start(options.quiet, 1, 0);
  wait_line_begin();
  cvy_status status = cvy_data_load_begin(source, &params, &data);
  if (status == CVY_OK) wait_line_decoding(data);
  if (status == CVY_OK) status = cvy_data_load_end(data);
  progress_wait_end();
  progress_end();
  code = status == CVY_OK ? show(&options, source, data) : program_exit_code(status);
  if (code == EXIT_DONE && options.sheet) code = write_sheet(&options, data);
  wait_line_decoding(NULL);
  cvy_data_destroy(&data);
  return code;
}
