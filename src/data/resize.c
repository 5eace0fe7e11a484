/* SPDX-License-Identifier: MIT */
#include "src/data/resize.h"

#include <math.h>
#include <string.h>

#include "src/base/mem.h"

enum { FRACTION_BITS = 32 - 8 - 2, HALF = 1 << (FRACTION_BITS - 1) };

/* ---- geometry ---- */

/* Python's round(extra / 2.0): halves go to the even number. */
static int64_t half_of(int64_t extra) {
  const int64_t down = extra / 2;
  return extra % 2 == 0 ? down : down + down % 2;
}

cvy_fit cvy_fit_of(const cvy_data_params *params, int in_h, int in_w) {
  cvy_fit fit = {.resized_h = in_h, .resized_w = in_w, .h = in_h, .w = in_w};
  if (params->size_h > 0) {
    fit.h = params->size_h;
    fit.w = params->size_w;
    fit.resized_h = fit.h;
    fit.resized_w = fit.w;
  } else if (params->size_h < 0) {
    const int64_t n = params->size_w, shorter = in_w <= in_h ? in_w : in_h, longer = in_w <= in_h ? in_h : in_w,
                  long_side = (int64_t)((double)(n * longer) / (double)shorter);
    fit.resized_h = in_w <= in_h ? long_side : n;
    fit.resized_w = in_w <= in_h ? n : long_side;
    fit.h = fit.w = (int)n;
    fit.top = half_of(fit.resized_h - n);
    fit.left = half_of(fit.resized_w - n);
  }
  return fit;
}

/* ---- weights ---- */

/* Room for n elements, whose content may be lost. */
static bool make_room(void **p, size_t *room, size_t n, size_t each) {
  if (n <= *room) return true;
  cvy_free(*p);
  *room = 0;
  *p = cvy_alloc_unset(n, each);
  if (!*p) return false;
  *room = n;
  return true;
}

static double triangle(double x) {
  if (x < 0) x = -x;
  return x < 1 ? 1 - x : 0;
}

/* For each of the outputs first..first + n - 1 of a line of `in` values that becomes `out` long: the first value that
 * counts and how many (bounds), and their weights, *width apart. */
static bool weigh(cvy_resizer *r, int axis, int in, int64_t out, int64_t first, int n, int *width) {
  const double scale = (double)in / (double)out, stretch = scale < 1 ? 1 : scale, support = 1.0 * stretch,
               inverse = 1.0 / stretch;
  const int most = (int)ceil(support) * 2 + 1;
  void *weights = r->weights[axis], *bounds = r->bounds[axis];
  size_t elems;
  const bool there = cvy_mul_size((size_t)n, (size_t)most, &elems) &&
                     make_room(&weights, &r->weights_room[axis], elems, sizeof *r->weights[0]) &&
                     make_room(&bounds, &r->bounds_room[axis], 2 * (size_t)n, sizeof *r->bounds[0]);
  r->weights[axis] = weights;
  r->bounds[axis] = bounds;
  if (!there) return false;
  for (int i = 0; i < n; i++) {
    int32_t *const k = r->weights[axis] + (size_t)i * (size_t)most;
    const double center = ((double)(first + i) + 0.5) * scale;
    int from = (int)(center - support + 0.5), to = (int)(center + support + 0.5);
    if (from < 0) from = 0;
    if (to > in) to = in;
    double sum = 0;
    for (int x = from; x < to; x++) sum += triangle((x - center + 0.5) * inverse);
    for (int x = from; x < to; x++) {
      double weight = triangle((x - center + 0.5) * inverse);
      if (sum != 0) weight /= sum;
      k[x - from] = (int32_t)(0.5 + weight * (1 << FRACTION_BITS));
    }
    r->bounds[axis][2 * i] = from;
    r->bounds[axis][2 * i + 1] = to - from;
  }
  *width = most;
  return true;
}

static uint8_t byte_of(int32_t sum) {
  const int32_t v = sum >> FRACTION_BITS;
  return (uint8_t)(v < 0 ? 0 : v > 255 ? 255 : v);
}

/* ---- the two passes ---- */

/* The row `in` begins with its value number `skipped`. */
static void resize_row(const cvy_resizer *r, const uint8_t *in, int skipped, int c, int n, int width, uint8_t *out) {
  for (int i = 0; i < n; i++) {
    const int32_t *const k = r->weights[1] + (size_t)i * (size_t)width;
    const int from = r->bounds[1][2 * i] - skipped, count = r->bounds[1][2 * i + 1];
    const uint8_t *const at = in + (size_t)from * (size_t)c;
    uint8_t *const to = out + (size_t)i * (size_t)c;
    if (c == 3) {
      int32_t red = HALF, green = HALF, blue = HALF;
      for (int x = 0; x < count; x++) {
        red += at[3 * x] * k[x];
        green += at[3 * x + 1] * k[x];
        blue += at[3 * x + 2] * k[x];
      }
      to[0] = byte_of(red);
      to[1] = byte_of(green);
      to[2] = byte_of(blue);
      continue;
    }
    for (int ch = 0; ch < c; ch++) {
      int32_t sum = HALF;
      for (int x = 0; x < count; x++) sum += at[(size_t)x * (size_t)c + (size_t)ch] * k[x];
      to[ch] = byte_of(sum);
    }
  }
}

/* One row of n bytes from `count` rows, which begin `pitch` bytes apart. */
static void mix_rows(const uint8_t *in, size_t pitch, size_t n, const int32_t *k, int count, int32_t *sums,
                     uint8_t *out) {
  for (size_t i = 0; i < n; i++) sums[i] = HALF;
  for (int y = 0; y < count; y++) {
    const uint8_t *const row = in + (size_t)y * pitch;
    const int32_t weight = k[y];
    for (size_t i = 0; i < n; i++) sums[i] += row[i] * weight;
  }
  for (size_t i = 0; i < n; i++) out[i] = byte_of(sums[i]);
}

void cvy_resizer_clear(cvy_resizer *r) {
  for (int axis = 0; axis < 2; axis++) {
    cvy_free(r->weights[axis]);
    cvy_free(r->bounds[axis]);
  }
  cvy_free(r->sums);
  cvy_free(r->rows);
  *r = (cvy_resizer){0};
}

/* Facts for both passes over one image. */
typedef struct passes {
  cvy_resizer *r;
  int c, width[2];         /* width: weights of an output, along columns and rows; 0: this direction stays */
  size_t pitch, out_pitch; /* bytes of a row */
  int first[2], count[2];  /* the rows and columns of the input that matter */
} passes;

/* The rows and columns of the input, of `in` along an axis, that the kept part of the result is made of. */
static bool look_at_axis(passes *p, int axis, int in, int64_t resized, int64_t begin, int n) {
  p->first[axis] = (int)begin;
  p->count[axis] = n;
  if (resized == in) return true;
  if (!weigh(p->r, axis, in, resized, begin, n, &p->width[axis])) return false;
  const int *const bounds = p->r->bounds[axis], *const last = bounds + 2 * (n - 1);
  p->first[axis] = bounds[0];
  p->count[axis] = last[0] + last[1] - bounds[0];
  return true;
}

static bool take_scratch(cvy_resizer *r, size_t rows_bytes, size_t n_sums) {
  void *rows = r->rows, *sums = r->sums;
  const bool there =
      make_room(&rows, &r->rows_room, rows_bytes, 1) && make_room(&sums, &r->sums_room, n_sums, sizeof *r->sums);
  r->rows = rows;
  r->sums = sums;
  return there;
}

/* n rows, cut out or resized along the row. `in` begins with row 0 and column `skipped`. */
static void along_rows(const passes *p, const uint8_t *in, size_t pitch, int skipped, int n, int w, uint8_t *out) {
  for (int y = 0; y < n; y++) {
    const uint8_t *const from = in + (size_t)y * pitch;
    uint8_t *const to = out + (size_t)y * p->out_pitch;
    if (p->width[1]) resize_row(p->r, from, skipped, p->c, w, p->width[1], to);
    else memcpy(to, from + (size_t)(p->first[1] - skipped) * (size_t)p->c, p->out_pitch);
  }
}

/* h rows of n bytes; `in` begins with row p->first[0]. */
static void along_columns(const passes *p, const uint8_t *in, size_t pitch, size_t n, int h, uint8_t *out) {
  for (int y = 0; y < h; y++) {
    const int *const bounds = p->r->bounds[0] + 2 * y;
    mix_rows(in + (size_t)(bounds[0] - p->first[0]) * pitch, pitch, n,
             p->r->weights[0] + (size_t)y * (size_t)p->width[0], bounds[1], p->r->sums, out + (size_t)y * n);
  }
}

bool cvy_resize(cvy_resizer *r, const uint8_t *in, int in_h, int in_w, int c, const cvy_fit *fit, uint8_t *out) {
  passes p = {.r = r, .c = c, .pitch = (size_t)in_w * (size_t)c, .out_pitch = (size_t)fit->w * (size_t)c};
  if (!look_at_axis(&p, 0, in_h, fit->resized_h, fit->top, fit->h) ||
      !look_at_axis(&p, 1, in_w, fit->resized_w, fit->left, fit->w))
    return false;
  const uint8_t *const used = in + (size_t)p.first[0] * p.pitch;
  const int64_t less_h = in_h - fit->resized_h, less_w = in_w - fit->resized_w;
  if (!p.width[0]) {
    along_rows(&p, used, p.pitch, 0, fit->h, fit->w, out);
  } else if (less_h > 0 && less_h > 2 * less_w) { /* as newer Pillow: columns first where that is less work */
    const size_t n = (size_t)p.count[1] * (size_t)c;
    if (!take_scratch(r, (size_t)fit->h * n, n)) return false;
    along_columns(&p, used + (size_t)p.first[1] * (size_t)c, p.pitch, n, fit->h, r->rows);
    along_rows(&p, r->rows, n, p.first[1], fit->h, fit->w, out);
  } else {
    if (!take_scratch(r, (size_t)p.count[0] * p.out_pitch, p.out_pitch)) return false;
    along_rows(&p, used, p.pitch, 0, p.count[0], fit->w, r->rows);
    along_columns(&p, r->rows, p.out_pitch, p.out_pitch, fit->h, out);
  }
  return true;
}
