/* SPDX-License-Identifier: MIT */
#include "tools/program/options/input_options.h"

#include <ctype.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "src/base/text.h"

enum { TEXT_MOST = 256, NUMBERS_MOST = CVY_INPUT_CHANNELS_MOST };

/* The reason for an option's error, until the next one. */
static const char *reason(const char *format, ...) __attribute__((format(printf, 1, 2)));
static const char *reason(const char *format, ...) {
  static char text[2 * TEXT_MOST];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  return text;
}

/* Parses numbers separated by commas in the first `length` characters. Returns their count, 0: not numbers, or too
 * many. */
static int read_numbers(const char *text, size_t length, double *out) {
  int n = 0;
  for (const char *at = text, *const end = text + length;;) {
    char number[40];
    size_t size = 0;
    while (at + size < end && at[size] != ',') size++;
    if (n == NUMBERS_MOST || size >= sizeof number) return 0;
    memcpy(number, at, size);
    number[size] = '\0';
    if (!cvy_parse_float(number, -1e30, 1e30, &out[n])) return 0;
    n++;
    at += size;
    if (at == end) return n;
    at++;
  }
}

/* ---- --normalize ---- */

static const char *const normalize_expected =
    "expected none, dataset, imagenet, or M,.../S,...: the means of all channels and their deviations, such as "
    "0.5/0.25 or "
    "0.49,0.48,0.45/0.25,0.24,0.26";

const char *options_parse_normalize(const char *text, void *target) {
  normalize_option *const o = target;
  double mean[NUMBERS_MOST], deviation[NUMBERS_MOST];
  *o = (normalize_option){.text = text};
  if (strcmp(text, "none") == 0) return NULL;
  if (strcmp(text, "dataset") == 0) {
    o->of_data = true;
    return NULL;
  }
  if (strcmp(text, "imagenet") == 0) {
    o->n_channels = 3;
    memcpy(o->mean, (const float[]){0.485f, 0.456f, 0.406f}, 3 * sizeof *o->mean);
    memcpy(o->deviation, (const float[]){0.229f, 0.224f, 0.225f}, 3 * sizeof *o->mean);
    return NULL;
  }
  const char *const slash = strchr(text, '/');
  if (!slash) return normalize_expected;
  const int n = read_numbers(text, (size_t)(slash - text), mean);
  const int m = read_numbers(slash + 1, strlen(slash + 1), deviation);
  if (n == 0 || m == 0) return normalize_expected;
  if (n != m) return reason("%d means and %d deviations; expected one of each per channel", n, m);
  o->n_channels = n;
  for (int c = 0; c < n; c++) {
    if (fabs(mean[c]) > 1e6 || !(deviation[c] >= 1e-6 && deviation[c] <= 1e6))
      return reason(
          "mean %g and deviation %g of channel %d; expected a mean from -1e6 to 1e6 and a deviation from 1e-6 "
          "to 1e6",
          mean[c], deviation[c], c);
    o->mean[c] = (float)mean[c];
    o->deviation[c] = (float)deviation[c];
  }
  return NULL;
}

/* ---- --augment ---- */

static bool is_int(double x, double least) { return x >= least && x <= 1 << 14 && x == floor(x); }

static const char *take_flip(cvy_augment *a, const char *value, size_t length) {
  a->flip = true;
  return value || length ? "flip takes no number; expected flip" : NULL;
}

static const char *take_crop(cvy_augment *a, const char *value, size_t length) {
  double n[NUMBERS_MOST];
  if (!value || read_numbers(value, length, n) != 1 || !is_int(n[0], 1))
    return "expected crop:N with a whole number N from 1 to 16384: padding in pixels";
  a->crop = (int)n[0];
  return NULL;
}

static const char *take_resized_crop(cvy_augment *a, const char *value, size_t length) {
  double from[NUMBERS_MOST], to[NUMBERS_MOST];
  size_t dash = 1;
  while (dash < length && !(value[dash] == '-' && value[dash - 1] != 'e' && value[dash - 1] != 'E')) dash++;
  if (!value || dash >= length || read_numbers(value, dash, from) != 1 ||
      read_numbers(value + dash + 1, length - dash - 1, to) != 1 || !(from[0] > 0 && from[0] <= to[0] && to[0] <= 1) ||
      from[0] < 1e-6)
    return "expected resized-crop:A-B with fractions A and B of the area, from 1e-6 to 1, A not above B";
  a->resized_crop[0] = (float)from[0];
  a->resized_crop[1] = (float)to[0];
  return NULL;
}

static const char *take_jitter(cvy_augment *a, const char *value, size_t length) {
  double n[NUMBERS_MOST];
  const bool four = value && read_numbers(value, length, n) == 4;
  for (int i = 0; i < 4; i++) {
    if (!four || !(n[i] >= 0 && n[i] <= (i == 3 ? 0.5 : 1)))
      return "expected jitter:B,C,S,H with four numbers: brightness, contrast and saturation from 0 to 1, hue from 0 "
             "to "
             "0.5";
    a->jitter[i] = (float)n[i];
  }
  return n[0] + n[1] + n[2] + n[3] > 0 ? NULL : "jitter with four zeros has no effect; expected a number above 0";
}

static const char *take_cutout(cvy_augment *a, const char *value, size_t length) {
  double n[NUMBERS_MOST];
  if (!value || read_numbers(value, length, n) != 1 || !is_int(n[0], 1))
    return "expected cutout:N with a whole number N from 1 to 16384: the square's side in pixels";
  a->cutout = (int)n[0];
  return NULL;
}

static const struct {
  const char *name;
  const char *(*take)(cvy_augment *a, const char *value, size_t length);
} kinds[] = {{"flip", take_flip},
             {"crop", take_crop},
             {"resized-crop", take_resized_crop},
             {"jitter", take_jitter},
             {"cutout", take_cutout}};
enum { KINDS = sizeof kinds / sizeof kinds[0] };

/* The end of an item: a comma before something else than a number, since jitter's numbers also have commas. */
static size_t item_length(const char *text) {
  size_t n = 0;
  while (text[n] &&
         !(text[n] == ',' && !isdigit((unsigned char)text[n + 1]) && !(text[n + 1] && strchr(".+-", text[n + 1]))))
    n++;
  return n;
}

const char *options_parse_augment(const char *text, void *target) {
  augment_option *const o = target;
  bool given[KINDS] = {false};
  *o = (augment_option){.text = text};
  if (strcmp(text, "none") == 0) return NULL;
  for (const char *at = text;;) {
    const size_t length = item_length(at), name = strcspn(at, ":,") < length ? strcspn(at, ":,") : length;
    size_t kind = 0;
    while (kind < KINDS && (strlen(kinds[kind].name) != name || strncmp(at, kinds[kind].name, name) != 0)) kind++;
    if (kind == KINDS)
      return reason(
          "\"%.*s\"; expected none, or a list of flip, crop:N, resized-crop:A-B, jitter:B,C,S,H and cutout:N, "
          "separated by commas",
          (int)(length < TEXT_MOST ? length : TEXT_MOST), at);
    if (given[kind]) return reason("%s twice; expected it once", kinds[kind].name);
    given[kind] = true;
    const bool has_value = name < length;
    const char *const wrong =
        kinds[kind].take(&o->augment, has_value ? at + name + 1 : NULL, has_value ? length - name - 1 : 0);
    if (wrong) return wrong;
    if (at[length] == '\0') break;
    at += length + 1;
  }
  return o->augment.crop && o->augment.resized_crop[1] > 0 ? "crop and resized-crop exclude each other; expected one "
                                                             "of them"
                                                           : NULL;
}

cvy_input_params input_options_params(const normalize_option *normalize, const augment_option *augment, int64_t seed) {
  cvy_input_params p = {.n_channels = normalize->n_channels, .of_data = normalize->of_data, .seed = (uint64_t)seed};
  memcpy(p.mean, normalize->mean, sizeof p.mean);
  memcpy(p.deviation, normalize->deviation, sizeof p.deviation);
  if (augment) p.augment = augment->augment;
  return p;
}
