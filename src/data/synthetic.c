/* SPDX-License-Identifier: MIT
 * Images that need no files: a smooth random picture for each class, and noise. */
#include <limits.h>
#include <string.h>

#include "src/base/mem.h"
#include "src/base/rng.h"
#include "src/base/text.h"
#include "src/data/data_sources.h"

enum { SYNTHETIC_N = 6000, SYNTHETIC_CLASSES = 10, GRID = 5 };

/* Smooth random picture of a class: random bytes on a grid (room for GRID x GRID x c), interpolated. Integers only: the
 * same bytes everywhere. */
static void make_prototype(const dataset *d, int label, uint8_t *grid, uint8_t *out) {
  enum { ONE = 256 };
  const cvy_rng rng = {.seed = d->params.seed, .purpose = CVY_RNG_SYNTHETIC, .stream = 0};
  const int h = d->h, w = d->w, c = d->c;
  const size_t nodes = (size_t)c * GRID * GRID;
  for (size_t i = 0; i < nodes; i++) grid[i] = (uint8_t)(cvy_rng_u32(&rng, (uint64_t)label * nodes + i) >> 24);
  for (int y = 0; y < h && !atomic_load(&d->stop); y++)
    for (int x = 0; x < w; x++) {
      const int64_t gy = h > 1 ? (int64_t)y * (GRID - 1) * ONE / (h - 1) : 0,
                    gx = w > 1 ? (int64_t)x * (GRID - 1) * ONE / (w - 1) : 0;
      const int y0 = (int)(gy / ONE), x0 = (int)(gx / ONE), fy = (int)(gy % ONE), fx = (int)(gx % ONE);
      const int y1 = y0 + 1 < GRID ? y0 + 1 : y0, x1 = x0 + 1 < GRID ? x0 + 1 : x0;
      for (int ch = 0; ch < c; ch++) {
        const uint8_t *const at = grid + (size_t)ch * GRID * GRID;
        const int top = at[y0 * GRID + x0] * (ONE - fx) + at[y0 * GRID + x1] * fx,
                  bottom = at[y1 * GRID + x0] * (ONE - fx) + at[y1 * GRID + x1] * fx;
        out[((size_t)y * (size_t)w + (size_t)x) * (size_t)c + (size_t)ch] =
            (uint8_t)((top * (ONE - fy) + bottom * fy) / (ONE * ONE));
      }
    }
}

/* prototype + noise of deviation 37 (sum of four uniform bytes), clamped to a byte. */
static void make_image(const dataset *d, const cvy_rng *noise, uint64_t sample, const uint8_t *prototype, size_t n,
                       uint8_t *out) {
  const uint64_t blocks = (n + 3) / 4;
  for (size_t i = 0; i < n; i += 4) {
    uint32_t words[4];
    if (i % (1 << 20) == 0 && atomic_load(&d->stop)) return;
    cvy_rng_block(noise, sample * blocks + i / 4, words);
    for (size_t j = 0; j < 4 && i + j < n; j++) {
      const uint32_t v = words[j];
      const int sum = (int)((v & 255) + (v >> 8 & 255) + (v >> 16 & 255) + (v >> 24));
      const int pixel = prototype[i + j] + (sum - 510) / 4;
      out[i + j] = (uint8_t)(pixel < 0 ? 0 : pixel > 255 ? 255 : pixel);
    }
  }
}

/* Streams of (seed, synthetic): 0 prototypes, 1 and 2 labels, 3 and 4 noise of training and test images. */
static const int sets[2] = {CVY_SET_OF_TRAIN, CVY_SET_OF_TEST};

static cvy_status make_labels(dataset *d) {
  cvy_status status = CVY_OK;
  for (uint32_t k = 0; k < 2; k++) {
    const cvy_rng classes = {.seed = d->params.seed, .purpose = CVY_RNG_SYNTHETIC, .stream = 1u + k};
    raw_set *const set = &d->raw[sets[k]];
    set->labels = cvy_calloc((size_t)set->n, sizeof *set->labels);
    CVY_REQUIRE(set->labels, CVY_E_MEMORY, "no memory for %d synthetic labels", set->n);
    for (int i = 0; i < set->n; i++)
      set->labels[i] = (uint16_t)cvy_rng_below(&classes, (uint64_t)i, (uint32_t)d->data.classes);
  }
fail:
  return status;
}

/* Makes a set's images label by label, so that only one prototype is in memory. */
static cvy_status make_images(dataset *d, uint32_t which) {
  cvy_status status = CVY_OK;
  raw_set *const s = &d->raw[sets[which]];
  const int classes = d->data.classes;
  const cvy_rng noise = {.seed = d->params.seed, .purpose = CVY_RNG_SYNTHETIC, .stream = 3u + which};
  const size_t n = (size_t)d->h * (size_t)d->w * (size_t)d->c;
  int *begin = cvy_calloc((size_t)classes + 1, sizeof *begin), *order = cvy_calloc((size_t)s->n, sizeof *order);
  uint8_t *prototype = cvy_alloc_unset(n, 1), *grid = cvy_calloc((size_t)d->c, GRID * GRID);
  s->images = cvy_alloc_unset((size_t)s->n, n);
  CVY_REQUIRE(begin && order && prototype && grid && s->images, CVY_E_MEMORY,
              "no memory for %d synthetic images of %zu bytes", s->n, n);
  for (int i = 0; i < s->n; i++) begin[s->labels[i] + 1]++;
  for (int label = 0; label < classes; label++) begin[label + 1] += begin[label];
  for (int i = 0; i < s->n; i++) order[begin[s->labels[i]]++] = i;
  for (int at = 0; at < s->n && !atomic_load(&d->stop); at++) {
    const int i = order[at];
    if (at == 0 || s->labels[i] != s->labels[order[at - 1]]) make_prototype(d, s->labels[i], grid, prototype);
    make_image(d, &noise, (uint64_t)i, prototype, n, s->images + (size_t)i * n);
  }
fail:
  cvy_free(begin);
  cvy_free(order);
  cvy_free(prototype);
  cvy_free(grid);
  return status;
}

static cvy_status fetch(dataset *d) {
  cvy_status status = CVY_OK;
  for (uint32_t which = 0; which < 2; which++) CVY_TRY(make_images(d, which));
fail:
  return status;
}

/* "1x2x3" → out, each 1..CVY_MAX_SIDE. */
static bool parse_sides(char *text, int64_t out[3]) {
  char *at = text;
  for (int i = 0; i < 3; i++) {
    char *const next = strchr(at, 'x');
    if ((i < 2) != (next != NULL)) return false;
    if (next) *next = 0;
    if (!cvy_parse_int(at, 1, CVY_MAX_SIDE, &out[i])) return false;
    if (next) at = next + 1;
  }
  return true;
}

/* spec: "synthetic[:N[:HxWxC]]" */
static bool is_mine(const char *spec) {
  static const char name[] = "synthetic";
  const size_t n = sizeof name - 1;
  return strncmp(spec, name, n) == 0 && (spec[n] == ':' || !spec[n]);
}

static cvy_status open_images(dataset *d, const char *spec) {
  cvy_status status = CVY_OK;
  int64_t n = SYNTHETIC_N, sides[3] = {28, 28, 1};
  char *copy = cvy_strdup(spec);
  CVY_REQUIRE(copy, CVY_E_MEMORY, "no memory to read '%s'", spec);
  char *const count = strchr(copy, ':'), *const shape = count ? strchr(count + 1, ':') : NULL;
  if (shape) *shape = 0;
  CVY_REQUIRE(!count || cvy_parse_int(count + 1, 1, INT_MAX / 2, &n), CVY_E_ARGUMENT,
              "data '%s': '%s' is not a number of images; right would be synthetic:6000", spec, count + 1);
  CVY_REQUIRE(!shape || parse_sides(shape + 1, sides), CVY_E_ARGUMENT,
              "data '%s': '%s' is not a size HxWxC with 1 to %d each; right would be synthetic:6000:32x32x3", spec,
              strrchr(spec, ':') + 1, CVY_MAX_SIDE);
  CVY_TRY(data_check_classes(d->params.classes));
  d->h = (int)sides[0];
  d->w = (int)sides[1];
  d->c = (int)sides[2];
  d->data.classes = d->params.classes ? d->params.classes : SYNTHETIC_CLASSES;
  d->raw[CVY_SET_OF_TRAIN].n = (int)n;
  d->raw[CVY_SET_OF_TEST].n = (int)(n / 6 + 1);
  CVY_TRY(data_check_memory(d, spec, CVY_E_ARGUMENT));
  CVY_TRY(make_labels(d));
fail:
  cvy_free(copy);
  return status;
}

const data_source data_synthetic = {.is_mine = is_mine, .open = open_images, .fetch = fetch};
