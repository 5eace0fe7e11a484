/* SPDX-License-Identifier: MIT
 * convoy predict: classifies pictures with trained weights. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/file.h"
#include "tools/program/view/class_table.h"
#include "tools/program/options/input_options.h"
#include "tools/program/options/name_list.h"
#include "tools/program/options/option_rows.h"
#include "tools/program/program_common.h"
#include "tools/program/view/progress.h"
#include "tools/program/view/wait_line.h"
#include "tools/program/weights_info.h"

typedef struct predict_options {
  const char *weights, *devices, *json, *csv, *conv_algo;
  const char *model;
  normalize_option normalize;
  int math, png16, exif;
  int64_t classes, batch, top, input[3];
  bool quiet;
} predict_options;

enum { FILE_COLUMNS = 38, CLASS_COLUMNS = 28 };

#define FIELD(name) .offset = offsetof(predict_options, name)
static const option_row rows[] = {
    {OPT_GROUP("Network")},
    {OPT_TEXT("weights", FIELD(weights), "safetensors file", "the trained weights, or a checkpoint"),
     .absent = "those in the ONNX file of --model"},
    ROW_MODEL_OF_WEIGHTS(FIELD, "network of the weights, if their file does not name it"),
    ROW_NET_INPUT(FIELD, ABSENT_OF_WEIGHTS, "its input, if the file does not have it"),
    ROW_NET_CLASSES(FIELD, ABSENT_OF_WEIGHTS, "its classes, if the file does not have it"),
    ROW_NORMALIZE(FIELD),
    ROW_PNG16(FIELD, png16),
    ROW_EXIF(FIELD, exif),
    {OPT_GROUP("Devices")},
    ROW_DEVICES(FIELD, HELP_DEVICES_TOGETHER),
    ROW_BATCH(FIELD, 1 << 24, "pictures of a pass on all devices together"),
    ROW_CONV_ALGO(FIELD, HELP_CONV_ALGO),
    ROW_MATH(FIELD, HELP_MATH),
    {OPT_GROUP("Output")},
    {OPT_INT("top", FIELD(top), "5", "classes", 1, CVY_MAX_CLASSES,
             "number of most probable classes to print for each picture")},
    ROW_JSON(FIELD, "none", "write the predictions as JSON; on stdout they replace the table"),
    {OPT_SINK("csv", FIELD(csv), NULL, "the same as CSV: file, rank, class, probability")},
    ROW_QUIET(FIELD),
};
static const option_table table = {
    .verb = "predict",
    .usage = "--weights F|--model F.onnx [options] PICTURE...",
    .operand = "PICTURE",
    .least_operands = 1,
    .most_operands = INT_MAX,
    OPTION_ROWS(rows),
    .about =
        "Classifies pictures with trained weights on one or more devices and prints the most probable classes.\n"
        "PICTURE is a JPEG, PNG, PGM or PPM file, a folder with such files, an idx file of images (each\n"
        "row is a picture), or - for a list of names on stdin, one a line, or each followed by a NUL byte\n"
        "(find -print0).\n"
        "Weights files describe the preprocessing of pictures. For an ONNX file the shorter side is resized to\n"
        "the input's size and the centre is cropped; --normalize sets the normalisation of its training.\n"
        "If a picture cannot be read, it is reported, the others are predicted, and the exit status is 1.",
};

/* The predictions for one picture. */
typedef struct guess {
  int class;
  float probability;
} guess;

typedef struct prediction {
  const predict_options *options;
  cvy_picture_list *list;
  cvy_model *model;
  const char *const *names;
  int top, n_broken;
  bool table; /* on stdout */
  json_t *json;
  FILE *csv;
  char *csv_text;
  size_t csv_size;
} prediction;

/* The k most probable classes; of equal ones the first. */
static void find_top(const float *probabilities, int classes, int k, guess *out) {
  int n = 0;
  for (int i = 0; i < classes; i++) {
    int at = n;
    while (at > 0 && probabilities[i] > out[at - 1].probability) at--;
    if (at >= k) continue;
    memmove(&out[at + 1], &out[at], (size_t)((n < k ? n : k - 1) - at) * sizeof *out);
    out[at] = (guess){i, probabilities[i]};
    if (n < k) n++;
  }
}

static bool tell(prediction *p, const char *file, const guess *top) {
  char room[16];
  json_t *const list = p->json ? json_array() : NULL;
  for (int i = 0; i < p->top; i++) {
    const char *const name = class_name(p->names, top[i].class, room);
    if (p->table) {
      class_cell(stdout, i ? "" : file, FILE_COLUMNS, true);
      putchar(' ');
      class_cell(stdout, name, CLASS_COLUMNS, false);
      printf(" %11.4f\n", (double)top[i].probability);
    }
    if (p->csv) {
      csv_field(p->csv, file);
      fprintf(p->csv, ",%d,", i + 1);
      csv_field(p->csv, name);
      fprintf(p->csv, ",%.9g\n", (double)top[i].probability);
    }
    if (list)
      json_array_append_new(list, json_pack("{so sf}", "class", class_json(p->names, top[i].class), "probability",
                                            (double)top[i].probability));
  }
  if (!p->json) return true;
  return json_array_append_new(p->json, json_pack("{so so}", "file", program_text_json(file), "top", list)) == 0;
}

/* Reads and predicts pictures of the list from *at on, as many as fit in a batch. */
static cvy_status predict_batch(prediction *p, int *at, uint8_t *pixels, float *probabilities, int *places,
                                guess *top) {
  cvy_model_info info = *cvy_model_get_info(p->model);
  info.png16_scale = info.png16_scale || p->options->png16 == PNG16_SCALE;
  info.exif_rotate = info.exif_rotate || p->options->exif == EXIF_ROTATE;
  const size_t each = (size_t)info.height * (size_t)info.width * (size_t)info.channels;
  int n = 0;
  for (; *at < cvy_picture_list_count(p->list) && n < p->options->batch; ++*at) {
    const cvy_status status = cvy_picture_list_read(p->list, *at, &info, pixels + (size_t)n * each);
    if (status == CVY_E_MEMORY) return status;
    if (status == CVY_OK) places[n++] = *at;
    else p->n_broken++;
  }
  const cvy_status status = cvy_model_predict(p->model, pixels, n, probabilities);
  for (int i = 0; status == CVY_OK && i < n; i++) {
    find_top(probabilities + (size_t)i * (size_t)info.classes, info.classes, p->top, top);
    if (!tell(p, cvy_picture_list_name(p->list, places[i]), top)) return CVY_E_MEMORY;
  }
  return status;
}

static cvy_status predict_all(prediction *p) {
  const cvy_model_info *const info = cvy_model_get_info(p->model);
  const int all = cvy_picture_list_count(p->list);
  const size_t n = (size_t)(all < p->options->batch ? all : p->options->batch), classes = (size_t)info->classes;
  uint8_t *const pixels = calloc(n + 1, (size_t)info->height * (size_t)info->width * (size_t)info->channels);
  float *const probabilities = calloc((n + 1) * classes, sizeof *probabilities);
  int *const places = calloc(n + 1, sizeof *places);
  guess *const top = calloc((size_t)p->top + 1, sizeof *top);
  cvy_status status = pixels && probabilities && places && top ? CVY_OK : CVY_E_MEMORY;
  if (p->table) {
    class_cell(stdout, "picture", FILE_COLUMNS, false);
    putchar(' ');
    class_cell(stdout, "class", CLASS_COLUMNS, false);
    printf(" %11s\n", "probability");
  }
  if (p->csv) fputs("file,rank,class,probability\n", p->csv);
  for (int at = 0; status == CVY_OK && at < all;) status = predict_batch(p, &at, pixels, probabilities, places, top);
  if (status == CVY_E_MEMORY) program_say("error: out of memory");
  free(pixels);
  free(probabilities);
  free(places);
  free(top);
  return status;
}

/* The library reports a picture that cannot be added; the others are predicted. */
static bool add(prediction *p, const char *path) {
  const cvy_status status = cvy_picture_list_add(p->list, path);
  if (status == CVY_E_MEMORY) return false;
  if (status != CVY_OK) p->n_broken++;
  return true;
}

static bool add_all(prediction *p, const char *const *paths, int n) {
  bool ok = true;
  for (int i = 0; i < n && ok; i++) {
    if (strcmp(paths[i], "-") != 0) {
      ok = add(p, paths[i]);
      continue;
    }
    name_list list;
    int n_names = 0;
    ok = name_list_read(stdin, "-", &list);
    for (const char *name; ok && (name = name_list_next(&list)); n_names++) ok = add(p, name);
    if (ok && n_names == 0) {
      program_say("error: -: the list on stdin has no names");
      p->n_broken++;
    }
    name_list_clear(&list);
  }
  return ok;
}

static int check(const predict_options *o, const char *const *pictures, int n) {
  if (o->json && o->csv && strcmp(o->json, "-") == 0 && strcmp(o->csv, "-") == 0)
    return options_error("predict", "--json - and --csv -: expected one of them on stdout");
  const program_file outputs[] = {{"--json", o->json}, {"--csv", o->csv}, {0}},
                     inputs[] = {
                         {"--weights", o->weights}, {"--model", cvy_onnx_is_file(o->model) ? o->model : NULL}, {0}};
  int code = program_check_outputs("predict", outputs, inputs);
  for (int i = 0; i < n && code == EXIT_DONE; i++)
    code = program_check_outputs("predict", outputs, (const program_file[]){{"the picture", pictures[i]}, {0}});
  if (code == EXIT_DONE && o->json && o->csv && strcmp(o->json, "-") != 0 && cvy_file_same(o->json, o->csv))
    code = options_error("predict", "--json %s and --csv %s are the same file: expected two names", o->json, o->csv);
  if (code == EXIT_DONE) code = program_try_output("predict", "--json", o->json, true);
  if (code == EXIT_DONE) code = program_try_output("predict", "--csv", o->csv, true);
  return code;
}

/* Metadata from options, for a file without it. */
static int info_of_options(const predict_options *o, cvy_model_info *out) {
  if ((!o->input[0] || !o->classes) && o->weights)
    return options_error("predict",
                         "--%s is missing: %s has no size of input and number of classes; expected --input HxWxC and "
                         "--classes N",
                         o->input[0] ? "classes" : "input", o->weights);
  *out = (cvy_model_info){.model = o->model,
                          .height = (int)o->input[0],
                          .width = (int)o->input[1],
                          .channels = (int)o->input[2],
                          .classes = (int)o->classes,
                          .png16_scale = o->png16 == PNG16_SCALE,
                          .exif_rotate = o->exif == EXIF_ROTATE,
                          .n_channels = o->normalize.n_channels};
  if (o->normalize.of_data)
    return options_error("predict",
                         "--normalize dataset: predict has no data set; expected the values that training printed, "
                         "M,.../S,...");
  memcpy(out->mean, o->normalize.mean, sizeof out->mean);
  memcpy(out->deviation, o->normalize.deviation, sizeof out->deviation);
  return EXIT_DONE;
}

/* An option that contradicts the file. */
static int check_info(const predict_options *o, const cvy_model_info *f) {
  if (o->normalize.text)
    return options_error("predict", "--normalize %s: %s has the normalisation of its training; expected no --normalize",
                         o->normalize.text, o->weights);
  if (o->png16 == PNG16_CLIP && f->png16_scale)
    return options_error("predict", "--png16 clip: %s was trained with --png16 scale; expected no --png16", o->weights);
  if (o->exif == EXIF_IGNORE && f->exif_rotate)
    return options_error("predict", "--exif ignore: %s was trained with --exif rotate; expected no --exif", o->weights);
  if (o->input[0] && (o->input[0] != f->height || o->input[1] != f->width || o->input[2] != f->channels))
    return options_error("predict", "--input %lldx%lldx%lld: the network of %s has the input %dx%dx%d",
                         (long long)o->input[0], (long long)o->input[1], (long long)o->input[2], o->weights, f->height,
                         f->width, f->channels);
  if (o->classes && o->classes != f->classes)
    return options_error("predict", "--classes %lld: the network of %s has %d", (long long)o->classes, o->weights,
                         f->classes);
  return EXIT_DONE;
}

static bool write_all(prediction *p) {
  bool ok = true;
  if (p->json) {
    ok = program_write_json(p->options->json, json_pack("{sO}", "predictions", p->json));
  }
  if (p->csv) {
    ok = fflush(p->csv) == 0 && p->csv_text && program_write(p->options->csv, p->csv_text) && ok;
  }
  return ok;
}

static int run(prediction *p, const cvy_model_info *given) {
  const predict_options *const o = p->options;
  wait_line_begin();
  cvy_status status = cvy_model_open(o->weights ? o->weights : o->model, o->devices,
                                     &(cvy_model_params){.batch = (int)o->batch,
                                                         .info = given,
                                                         .model = given ? NULL : o->model,
                                                         .conv_algo = o->conv_algo,
                                                         .math = (cvy_math)o->math},
                                     &p->model);
  progress_wait_end();
  progress_end();
  if (status != CVY_OK) return program_exit_code_of_select(status);
  if (!o->quiet) program_say_no_gpu(cvy_model_devices(p->model), "running on");
  const cvy_model_info *const info = cvy_model_get_info(p->model);
  p->names = info->class_names;
  p->top = o->top < info->classes ? (int)o->top : info->classes;
  status = predict_all(p);
  int code = program_exit_code(status);
  if (status == CVY_OK && !write_all(p)) code = EXIT_FAILED;
  if (p->n_broken && status == CVY_OK) {
    program_say("error: %d of the pictures, folders and files could not be read", p->n_broken);
    code = EXIT_FAILED;
  }
  return code;
}

int cmd_predict(int argc, char **argv) {
  predict_options o = {0};
  option_set given = {0};
  int n, code = options_parse(&table, argc, argv, &o, &given);
  if (code != OPTIONS_GO_ON) return code;
  const char *const *const pictures = options_operands(&n);
  if (cvy_fleet_started() > 1)
    return options_error("predict", "mpirun or srun started %d processes; expected one, with its devices in --devices",
                         cvy_fleet_started());
  if (!options_given(&table, given, "normalize")) o.normalize = (normalize_option){0};
  if (!options_given(&table, given, "png16")) o.png16 = -1;
  if (!options_given(&table, given, "exif")) o.exif = -1;
  if (!o.weights && !cvy_onnx_is_file(o.model))
    return options_error("predict", "--weights F is missing; expected a file with trained weights, or --model F.onnx");
  code = check(&o, pictures, n);
  if (code != EXIT_DONE) return code;
  cvy_model_info *info = NULL, by_hand;
  if (o.weights) code = weights_info("predict", o.weights, &o.model, &info);
  if (code == EXIT_DONE) code = info ? check_info(&o, info) : info_of_options(&o, &by_hand);
  if (code != EXIT_DONE) {
    cvy_model_info_free(&info);
    return code;
  }
  prediction p = {.options = &o,
                  .table = !(o.json && strcmp(o.json, "-") == 0) && !(o.csv && strcmp(o.csv, "-") == 0),
                  .json = o.json ? json_array() : NULL};
  progress_start(o.quiet, 1, 0);
  if (o.csv) p.csv = open_memstream(&p.csv_text, &p.csv_size);
  if (cvy_picture_list_create(&p.list) != CVY_OK || (o.csv && !p.csv) || !add_all(&p, pictures, n)) code = EXIT_FAILED;
  if (code == EXIT_DONE) code = run(&p, info ? NULL : &by_hand);
  progress_wait_end();
  progress_end();
  cvy_model_close(&p.model);
  cvy_picture_list_destroy(&p.list);
  cvy_model_info_free(&info);
  json_decref(p.json);
  if (p.csv) fclose(p.csv);
  free(p.csv_text);
  return code;
}
