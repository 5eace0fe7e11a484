/* SPDX-License-Identifier: MIT
 * Facts of a model. Outline: checks · writing · reading. */
#include "src/nn/model_info.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "convoy/net.h"
#include "src/base/json.h"
#include "src/base/mem.h"
#include "src/base/safetensors.h"
#include "src/base/text.h"
#include "src/nn/weights.h"

enum {
  MOST_SIDE = 65536,
  MOST_CLASSES = 65535,
  NAME_BYTES = 64,
  FILE_NAME_BYTES = 1024
}; /* as in convoy/data.h, which no network reads */
/* Values of the JSON text beside the names of classes: more are refused before Jansson takes memory for them. */
enum { MORE_VALUES = 1024 };

cvy_input_params cvy_model_input(const cvy_model_info *info) {
  cvy_input_params input = {.n_channels = info->n_channels};
  memcpy(input.mean, info->mean, sizeof input.mean);
  memcpy(input.deviation, info->deviation, sizeof input.deviation);
  return input;
}

/* ---- checks ---- */

static bool is_side(int n) { return n >= 1 && n <= MOST_SIDE; }

/* A file that this program has written has none in a name. */
static bool has_controls(const char *text) {
  for (; *text; text++)
    if ((unsigned char)*text < ' ' || *text == 127) return true;
  return false;
}

/* One of the program's own networks, or the name of an ONNX file. */
static bool is_name(const char *name) {
  const size_t n = strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-"),
               all = strlen(name);
  if (n > 0 && n < NAME_BYTES && !name[n]) return true;
  return all > 5 && all < FILE_NAME_BYTES && !strcmp(name + all - 5, ".onnx") && !has_controls(name);
}

/* `where` is in front of the message, code its status. The names of classes are the caller's matter. */
static cvy_status check(const char *where, cvy_status code, const cvy_model_info *f) {
  cvy_status status = CVY_OK;
  CVY_REQUIRE(!f->model || is_name(f->model), code,
              "%sthe model's name is not valid: expected 1 to %d letters, digits, '_', '.' and '-', or a file name of "
              "up to %d bytes that ends in .onnx",
              where, NAME_BYTES - 1, FILE_NAME_BYTES - 1);
  CVY_REQUIRE(is_side(f->channels) && is_side(f->height) && is_side(f->width), code,
              "%sthe model's input is %dx%dx%d (channels, height, width); expected 1 to %d", where, f->channels,
              f->height, f->width, MOST_SIDE);
  CVY_REQUIRE(f->classes >= 1 && f->classes <= MOST_CLASSES, code, "%sthe model has %d classes; expected 1 to %d",
              where, f->classes, MOST_CLASSES);
  const bool none = f->size_h == 0 && f->size_w == 0, shorter = f->size_h == -1 && is_side(f->size_w);
  CVY_REQUIRE(none || shorter || (is_side(f->size_h) && is_side(f->size_w)), code,
              "%spictures are resized to %dx%d; expected 1 to %d, or -1 and the shorter side", where, f->size_h,
              f->size_w, MOST_SIDE);
  CVY_REQUIRE(none || (f->size_w == f->width && (f->size_h == f->height || (shorter && f->height == f->width))), code,
              "%spictures are resized to %dx%d, the model's input is %dx%d (height, width): expected the same", where,
              shorter ? f->size_w : f->size_h, f->size_w, f->height, f->width);
  CVY_REQUIRE(f->n_channels == 0 || (f->n_channels == f->channels && f->channels <= CVY_INPUT_CHANNELS_MOST), code,
              "%s%d channels are normalised, the input has %d: all of them or none, at most %d", where, f->n_channels,
              f->channels, CVY_INPUT_CHANNELS_MOST);
  for (int c = 0; c < f->n_channels; c++)
    CVY_REQUIRE(isfinite(f->mean[c]) && isfinite(f->deviation[c]) && f->deviation[c] > 0, code,
                "%schannel %d is normalised by mean %g and deviation %g: expected a finite mean and a deviation above "
                "0",
                where, c, (double)f->mean[c], (double)f->deviation[c]);
fail:
  return status;
}

/* ---- writing ---- */

/* A name as metadata holds it. */
static void fit_name(const char *name, char out[CVY_MODEL_INFO_NAME_BYTES + 1]) {
  cvy_plain_copy(name, "", out, CVY_MODEL_INFO_NAME_BYTES + 1);
  if (!*out) strcpy(out, "?");
}

bool cvy_model_class_is(const cvy_model_info *info, int i, const char *name) {
  char fit[CVY_MODEL_INFO_NAME_BYTES + 1];
  fit_name(name, fit);
  return !info->class_names || strcmp(fit, info->class_names[i]) == 0;
}

static json_t *name_json(const char *name) {
  char fit[CVY_MODEL_INFO_NAME_BYTES + 1];
  fit_name(name, fit);
  return json_string(fit);
}

/* An object takes over its values; false: out of memory. */
static bool put(json_t *object, const char *key, json_t *value) { return json_object_set_new(object, key, value) == 0; }

static json_t *reals(const float *values, int n) {
  json_t *const list = json_array();
  for (int i = 0; i < n; i++)
    if (json_array_append_new(list, json_real((double)values[i])) != 0) {
      json_decref(list);
      return NULL;
    }
  return list;
}

/* A file's name need be no UTF-8. */
static json_t *model_json(const char *model) {
  char fit[FILE_NAME_BYTES];
  cvy_plain_copy(model, "", fit, sizeof fit);
  return json_string(fit);
}

static bool put_all(json_t *o, const cvy_model_info *f) {
  bool ok = put(o, "classes", json_integer(f->classes)) &&
            put(o, "input", json_pack("[i,i,i]", f->channels, f->height, f->width));
  if (f->model) ok = ok && put(o, "model", model_json(f->model));
  if (f->graph) ok = ok && put(o, "graph", json_sprintf("%016" PRIx64, f->graph));
  if (f->gray) ok = ok && put(o, "gray", json_true());
  if (f->png16_scale) ok = ok && put(o, "png16", json_string("scale"));
  if (f->exif_rotate) ok = ok && put(o, "exif", json_string("rotate"));
  if (f->size_h || f->size_w) ok = ok && put(o, "size", json_pack("[i,i]", f->size_h, f->size_w));
  if (f->n_channels)
    ok = ok && put(o, "mean", reals(f->mean, f->n_channels)) && put(o, "deviation", reals(f->deviation, f->n_channels));
  if (f->class_names) {
    json_t *const names = json_array();
    for (int i = 0; i < f->classes && ok; i++) ok = json_array_append_new(names, name_json(f->class_names[i])) == 0;
    if (ok) ok = put(o, "class_names", names);
    else json_decref(names);
  }
  return ok;
}

/* Names that were cut, or were not plain, may have become the same. */
static cvy_status check_names(const json_t *names) {
  cvy_status status = CVY_OK;
  const size_t n = json_array_size(names);
  const char *equal, **const texts = cvy_calloc(n + 1, sizeof *texts);
  CVY_REQUIRE(texts, CVY_E_MEMORY, "no memory for a model's metadata");
  for (size_t i = 0; i < n; i++) texts[i] = json_string_value(json_array_get(names, i));
  CVY_TRY(cvy_text_find_equal(texts, (int)n, &equal));
  CVY_REQUIRE(!equal, CVY_E_ARGUMENT, "two classes are shown as '%s': expected names that differ", equal);
fail:
  cvy_free(texts);
  return status;
}

cvy_status cvy_model_info_write(const cvy_model_info *info, char **text) {
  cvy_status status = CVY_OK;
  char *dumped = NULL;
  json_t *const object = json_object();
  *text = NULL;
  CVY_TRY(check("", CVY_E_ARGUMENT, info));
  CVY_REQUIRE(object && put_all(object, info), CVY_E_MEMORY, "no memory for a model's metadata");
  CVY_TRY(check_names(json_object_get(object, "class_names")));
  dumped = json_dumps(object, JSON_COMPACT | JSON_SORT_KEYS | JSON_REAL_PRECISION(9)); /* float32's digits */
  CVY_REQUIRE(dumped, CVY_E_MEMORY, "no memory for a model's metadata");
  CVY_REQUIRE(strlen(dumped) <= CVY_MODEL_INFO_BYTES, CVY_E_ARGUMENT,
              "the names of %d classes have too many bytes: expected at most %d", info->classes, CVY_MODEL_INFO_BYTES);
  *text = cvy_strdup(dumped);
  CVY_REQUIRE(*text, CVY_E_MEMORY, "no memory for a model's metadata");
fail:
  free(dumped); /* Jansson's allocator */
  json_decref(object);
  return status;
}

/* ---- reading ---- */

/* The texts lie behind the struct, in one block of memory. */
typedef struct info_block {
  cvy_model_info info; /* first */
  const char **names;
  char *texts;
} info_block;

void cvy_model_info_free(cvy_model_info **info) {
  info_block *const b = (info_block *)*info;
  *info = NULL;
  if (!b) return;
  cvy_free(b->names);
  cvy_free(b->texts);
  cvy_free(b);
}

/* Values of an array of whole numbers; a value beyond `int` becomes one that check() refuses. */
static bool read_ints(const json_t *list, int *const *out, size_t n) {
  if (!json_is_array(list) || json_array_size(list) != n) return false;
  for (size_t i = 0; i < n; i++) {
    const json_t *const value = json_array_get(list, i);
    const json_int_t x = json_integer_value(value);
    if (!json_is_integer(value)) return false;
    *out[i] = x < -1 || x > MOST_SIDE ? -2 : (int)x;
  }
  return true;
}

static bool read_reals(const json_t *list, float *out, int n) {
  if (!json_is_array(list) || json_array_size(list) != (size_t)n) return false;
  for (int i = 0; i < n; i++) {
    if (!json_is_number(json_array_get(list, (size_t)i))) return false;
    out[i] = (float)json_number_value(json_array_get(list, (size_t)i));
  }
  return true;
}

/* Copies the model's name and the classes' into the block. */
static cvy_status read_names(const char *path, const json_t *model, const json_t *names, info_block *b) {
  cvy_status status = CVY_OK;
  cvy_model_info *const f = &b->info;
  cvy_text texts = {0};
  CVY_REQUIRE(!names || (json_is_array(names) && json_array_size(names) == (size_t)f->classes), CVY_E_FORMAT,
              "%s: class_names: expected a list of %d names, got %zu", path, f->classes, json_array_size(names));
  if (model) cvy_text_add_bytes(&texts, json_string_value(model), json_string_length(model) + 1);
  for (int i = 0; names && i < f->classes; i++) {
    const json_t *const name = json_array_get(names, (size_t)i);
    const size_t n = json_string_length(name);
    CVY_REQUIRE(
        json_is_string(name) && n >= 1 && n <= CVY_MODEL_INFO_NAME_BYTES && !has_controls(json_string_value(name)),
        CVY_E_FORMAT, "%s: the name of class %d: expected a text of 1 to %d bytes without control characters", path, i,
        CVY_MODEL_INFO_NAME_BYTES);
    cvy_text_add_plain(&texts, json_string_value(name), "");
    cvy_text_add_bytes(&texts, "", 1);
  }
  if (names) b->names = cvy_calloc((size_t)f->classes, sizeof *b->names);
  CVY_REQUIRE(!texts.failed && (b->names || !names), CVY_E_MEMORY, "no memory for the metadata of %s", path);
  char *to = b->texts = texts.data;
  texts.data = NULL;
  if (model) {
    f->model = to;
    to += strlen(to) + 1;
  }
  for (int i = 0; names && i < f->classes; i++, to += strlen(to) + 1) b->names[i] = to;
  f->class_names = b->names;
fail:
  cvy_text_clear(&texts);
  return status;
}

static cvy_status read_object(const char *path, const char *where, const json_t *o, info_block *b) {
  cvy_status status = CVY_OK;
  cvy_model_info *const f = &b->info;
  const json_t *const classes = json_object_get(o, "classes"), *const model = json_object_get(o, "model"),
                      *const gray = json_object_get(o, "gray"), *const size = json_object_get(o, "size"),
                      *const mean = json_object_get(o, "mean"), *const deviation = json_object_get(o, "deviation"),
                      *const graph = json_object_get(o, "graph"), *const png16 = json_object_get(o, "png16"),
                      *const exif = json_object_get(o, "exif");
  CVY_REQUIRE(
      json_is_integer(classes) && json_integer_value(classes) >= 1 && json_integer_value(classes) <= MOST_CLASSES,
      CVY_E_FORMAT, "%sclasses: expected a whole number from 1 to %d", where, MOST_CLASSES);
  f->classes = (int)json_integer_value(classes);
  CVY_REQUIRE(read_ints(json_object_get(o, "input"), (int *const[]){&f->channels, &f->height, &f->width}, 3),
              CVY_E_FORMAT, "%sinput: expected a list of three whole numbers: channels, height, width", where);
  CVY_REQUIRE(!model || json_is_string(model), CVY_E_FORMAT, "%smodel: expected a text", where);
  CVY_REQUIRE(!graph || (json_string_length(graph) == 16 && cvy_parse_uint(json_string_value(graph), 16, &f->graph)),
              CVY_E_FORMAT, "%sgraph: expected a number of 16 hexadecimal digits", where);
  CVY_REQUIRE(!gray || json_is_boolean(gray), CVY_E_FORMAT, "%sgray is neither true nor false", where);
  f->gray = json_is_true(gray);
  CVY_REQUIRE(!png16 || (json_is_string(png16) && strcmp(json_string_value(png16), "scale") == 0), CVY_E_FORMAT,
              "%spng16 is not \"scale\"", where);
  f->png16_scale = png16 != NULL;
  CVY_REQUIRE(!exif || (json_is_string(exif) && strcmp(json_string_value(exif), "rotate") == 0), CVY_E_FORMAT,
              "%sexif is not \"rotate\"", where);
  f->exif_rotate = exif != NULL;
  CVY_REQUIRE(!size || read_ints(size, (int *const[]){&f->size_h, &f->size_w}, 2), CVY_E_FORMAT,
              "%ssize: expected a list of two whole numbers", where);
  if (mean || deviation) {
    f->n_channels = f->channels;
    CVY_REQUIRE(f->channels <= CVY_INPUT_CHANNELS_MOST && read_reals(mean, f->mean, f->channels) &&
                    read_reals(deviation, f->deviation, f->channels),
                CVY_E_FORMAT, "%smean and deviation: expected lists of %d numbers, one per channel (at most %d)", where,
                f->channels, CVY_INPUT_CHANNELS_MOST);
  }
  CVY_TRY(read_names(path, model, json_object_get(o, "class_names"), b));
  CVY_TRY(check(where, CVY_E_FORMAT, f));
fail:
  return status;
}

cvy_status cvy_model_info_parse(const char *path, const char *text, cvy_model_info **out) {
  cvy_status status = CVY_OK;
  json_t *object = NULL;
  cvy_model_info *info = NULL;
  cvy_text where = {0};
  *out = NULL;
  cvy_text_add(&where, "%s: the model's metadata ('" CVY_MODEL_INFO_KEY "' in the header) is wrong: ", path);
  const size_t bytes = strlen(text);
  const size_t values = cvy_json_count_values(text, bytes);
  CVY_REQUIRE(bytes <= CVY_MODEL_INFO_BYTES && values <= MOST_CLASSES + MORE_VALUES, CVY_E_FORMAT,
              "%s%zu bytes with up to %zu values, expected at most %d bytes and %d values", cvy_text_get(&where), bytes,
              values, CVY_MODEL_INFO_BYTES, MOST_CLASSES + MORE_VALUES);
  CVY_TRY(cvy_json_read(text, JSON_REJECT_DUPLICATES, &object));
  CVY_REQUIRE(json_is_object(object), CVY_E_FORMAT, "%sno JSON object", cvy_text_get(&where));
  info_block *const block = cvy_calloc(1, sizeof *block);
  CVY_REQUIRE(block && !where.failed, CVY_E_MEMORY, "no memory for the metadata of %s", path);
  info = &block->info;
  CVY_TRY(read_object(path, cvy_text_get(&where), object, block));
  *out = info;
  info = NULL;
fail:
  cvy_model_info_free(&info);
  json_decref(object);
  cvy_text_clear(&where);
  return status;
}

cvy_status cvy_model_info_read(const char *path, cvy_model_info **out) {
  cvy_status status = CVY_OK;
  cvy_st_file *file = NULL;
  *out = NULL;
  CVY_TRY(cvy_st_open_header(path, &file));
  const char *const text = cvy_st_metadata(file, CVY_MODEL_INFO_KEY);
  if (text) CVY_TRY(cvy_model_info_parse(path, text, out));
fail:
  cvy_st_close(&file);
  return status;
}
