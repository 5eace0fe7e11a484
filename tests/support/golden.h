/* SPDX-License-Identifier: MIT
 * Known answers of whole training steps (tests/data/golden.json, made by make_golden.py, whose text states every
 * formula used here): weights by formula, real images, and how 32 projections of a tensor bound the error of all of it.
 * Functions are static: this file is included by the tests that need it. They stop the test (check_fail) on failure. */
#ifndef CVY_TESTS_SUPPORT_GOLDEN_H
#define CVY_TESTS_SUPPORT_GOLDEN_H

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <zlib.h>

#include "src/nn/layout.h"
#include "tests/support/check.h"

#define GOLDEN_IMAGES "/usr/share/datasets/fashion-mnist"
enum { GOLDEN_PIXELS = 28 * 28, GOLDEN_PROJECTIONS = 32 };

/* ---- the file ---- */

/* The whole file; json_decref when done. */
static inline json_t *golden_open(check_device *d) {
  char path[512];
  const char *const folder = getenv("CVY_TEST_DATA");
  json_error_t error;
  snprintf(path, sizeof path, "%s/golden.json", folder ? folder : "tests/data");
  json_t *const root = json_load_file(path, 0, &error);
  if (!root) check_fail(d, "%s: %s", path, error.text);
  return root;
}

static inline const json_t *golden_case(check_device *d, const json_t *root, const char *name) {
  size_t i;
  json_t *one;
  json_array_foreach(root, i, one) if (!strcmp(json_string_value(json_object_get(one, "name")), name)) return one;
  check_fail(d, "golden.json has no case %s", name);
}

static inline double golden_number(const json_t *object, const char *key) {
  return json_number_value(json_object_get(object, key));
}
static inline double golden_item(const json_t *array, size_t i) { return json_number_value(json_array_get(array, i)); }

/* ---- weights ---- */

static uint64_t golden_splitmix64(uint64_t x) {
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
  x = (x ^ x >> 27) * 0x94D049BB133111EBu;
  return x ^ x >> 31;
}

/* Fills the flat vectors; names and shapes must be those of the case. */
static void golden_weights(check_device *d, const json_t *one, const cvy_layout *layout, float *w, float *running) {
  const json_t *const params = json_object_get(one, "params");
  assert_int_equal(json_array_size(params), layout->n_params);
  memset(w, 0, layout->n_floats * sizeof *w);
  for (int t = 0; t < layout->n_params; t++) {
    const cvy_param *const p = &layout->params[t];
    const json_t *const named = json_array_get(params, (size_t)t), *const dims = json_array_get(named, 1);
    if (strcmp(json_string_value(json_array_get(named, 0)), p->name) || (int)json_array_size(dims) != p->rank)
      check_fail(d, "parameter %d is %s of rank %d, not %s", t, p->name, p->rank,
                 json_string_value(json_array_get(named, 0)));
    for (int k = 0; k < p->rank; k++) assert_int_equal(json_integer_value(json_array_get(dims, (size_t)k)), p->dims[k]);
    float *const dense = cvy_calloc(p->elems, sizeof *dense);
    const bool weight = p->kind == CVY_PARAM_CONV_WEIGHT || p->kind == CVY_PARAM_LINEAR_WEIGHT;
    const double bound = weight ? sqrt(6 / (double)(p->elems / (size_t)p->k)) : 0.1;
    for (size_t i = 0; i < p->elems; i++) {
      const double u = 2 * ((double)(golden_splitmix64(((uint64_t)t << 32) + i) >> 11) * 0x1p-53) - 1;
      dense[i] = (float)(p->kind == CVY_PARAM_BN_WEIGHT ? 1 + bound * u : bound * u);
    }
    cvy_param_to_flat(p, dense, w);
    cvy_free(dense);
  }
  memset(running, 0, layout->n_running_floats * sizeof *running);
  for (int i = 0; i < layout->n_running; i++)
    for (int c = 0; c < layout->running[i].c; c++)
      running[layout->running[i].offset + (size_t)(layout->running[i].pitch + c)] = 1;
}

/* ---- data ---- */

/* A file of Fashion-MNIST, packed or plain, in $CONVOY_DATA or in the folder of Debian's package; false if neither has
 * it. */
static inline bool golden_find(const char *name, char *path, size_t bytes) {
  const char *const folders[] = {getenv("CONVOY_DATA"), GOLDEN_IMAGES};
  for (size_t i = 0; i < sizeof folders / sizeof *folders; i++)
    for (int packed = 1; packed >= 0; packed--) {
      if (!folders[i] || !*folders[i]) continue;
      snprintf(path, bytes, "%s/%s%s", folders[i], name, packed ? ".gz" : "");
      FILE *const f = fopen(path, "rb");
      if (f) fclose(f);
      if (f) return true;
    }
  return false;
}

/* False: the files that the tests read are not all there, and the missing one is named. */
static inline bool golden_data_there(void) {
  static const char *const names[] = {"train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte"};
  char path[4096];
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (!golden_find(names[i], path, sizeof path)) {
      const char *const folder = getenv("CONVOY_DATA");
      fprintf(stderr,
              "no Fashion-MNIST: %s[.gz] is neither in $CONVOY_DATA (%s) nor in " GOLDEN_IMAGES
              ": name a folder that has it in CONVOY_DATA, or install the package dataset-fashion-mnist\n",
              names[i], folder && *folder ? folder : "not set");
      return false;
    }
  return true;
}

static inline void golden_read(check_device *d, const char *name, long skip, size_t bytes, unsigned char *out) {
  char path[4096];
  const bool found = golden_find(name, path, sizeof path);
  const gzFile f = found ? gzopen(path, "rb") : NULL;
  const bool good = f && gzseek(f, skip, SEEK_SET) == skip && gzread(f, out, (unsigned)bytes) == (int)bytes;
  if (f) gzclose(f);
  if (!good) check_fail(d, "%s: %zu bytes at %ld cannot be read", found ? path : name, bytes, skip);
}

/* n images from `first` on as dense floats, and (training only) their labels. labels may be NULL. */
static inline void golden_samples(check_device *d, bool train, int first, int n, float *x, int32_t *labels) {
  unsigned char *const bytes = cvy_calloc((size_t)n, GOLDEN_PIXELS);
  golden_read(d, train ? "train-images-idx3-ubyte" : "t10k-images-idx3-ubyte", 16 + (long)first * GOLDEN_PIXELS,
              (size_t)n * GOLDEN_PIXELS, bytes);
  for (size_t i = 0; i < (size_t)n * GOLDEN_PIXELS; i++) x[i] = (float)bytes[i] / 255.0f;
  if (labels) {
    golden_read(d, "train-labels-idx1-ubyte", 8 + first, (size_t)n, bytes);
    for (int i = 0; i < n; i++) labels[i] = bytes[i];
  }
  cvy_free(bytes);
}

/* ---- comparing ---- */

/* Bit k of sign word i: set means -1 in projection k. Made once, kept by the caller (cvy_free). */
static uint32_t *golden_signs(size_t n) {
  uint32_t *const signs = cvy_calloc(n, sizeof *signs);
  for (size_t i = 0; i < n; i++)
    for (uint64_t k = 0; k < GOLDEN_PROJECTIONS; k++)
      signs[i] |= (uint32_t)(golden_splitmix64(((1000 + k) << 32) + i) & 1) << k;
  return signs;
}

/* Estimate of ||dense - digest|| (l2) from the projections. */
static double golden_distance(const json_t *digest, const float *dense, size_t n, const uint32_t *signs) {
  enum { TOGETHER = 4 };
  _Static_assert(GOLDEN_PROJECTIONS % TOGETHER == 0, "signs are looked up four at a time");
  double sums[GOLDEN_PROJECTIONS] = {0}, factors[1 << TOGETHER][TOGETHER];
  for (int bits = 0; bits < 1 << TOGETHER; bits++)
    for (int k = 0; k < TOGETHER; k++) factors[bits][k] = bits >> k & 1 ? -1 : 1;
  /* a table instead of a condition: the signs are random, and a processor would guess half of them wrong */
  for (size_t i = 0; i < n; i++)
    for (int k = 0; k < GOLDEN_PROJECTIONS; k += TOGETHER) {
      const double *const factor = factors[signs[i] >> k & ((1 << TOGETHER) - 1)], value = (double)dense[i];
      for (int j = 0; j < TOGETHER; j++) sums[k + j] += factor[j] * value;
    }
  double squares = 0;
  for (int k = 0; k < GOLDEN_PROJECTIONS; k++) {
    const double difference = sums[k] - golden_item(json_object_get(digest, "projections"), (size_t)k);
    squares += difference * difference;
  }
  return sqrt(squares / GOLDEN_PROJECTIONS);
}

/* The tensor's error relative to `scale` (0: the tensor's own l2 norm) must be at most `bound`, by its projections, its
 * norm and its four values; not finite is wrong. Returns the estimate. */
static double golden_check(check_device *d, const char *what, const char *name, const json_t *digest,
                           const float *dense, size_t n, const uint32_t *signs, double scale, double bound) {
  const double l2 = golden_number(digest, "l2"), norm = scale > 0 ? scale : l2;
  const double error = golden_distance(digest, dense, n, signs) / norm;
  double squares = 0;
  for (size_t i = 0; i < n; i++) squares += (double)dense[i] * (double)dense[i];
  if (!(error <= bound))
    check_fail(d, "%s of %s: relative error %.3g, at most %.3g is right", what, name, error, bound);
  if (!(fabs(sqrt(squares) - l2) <= bound * norm))
    check_fail(d, "%s of %s: norm %.9g, not %.9g", what, name, sqrt(squares), l2);
  for (size_t k = 0; k < 4; k++) {
    const size_t at = (size_t)golden_item(json_object_get(digest, "at"), k);
    const double want = golden_item(json_object_get(digest, "values"), k);
    if (!(fabs((double)dense[at] - want) <= bound * norm))
      check_fail(d, "%s of %s: element %zu is %.9g, not %.9g", what, name, at, (double)dense[at], want);
  }
  return error;
}

#endif
