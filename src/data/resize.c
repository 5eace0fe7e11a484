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

static void resize_row(const cvy_resizer *r, const uint8_t *in, int c, int n, int width, uint8_t *out) {
  for (int i = 0; i < n; i++) {
    const int32_t *const k = r->weights[1] + (size_t)i * (size_t)width;
    const int from = r->bounds[1][2 * i], count = r->bounds[1][2 * i + 1];
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

/* One row of the result from `count` rows of n bytes each. */
static void mix_rows(const uint8_t *in, size_t n, const int32_t *k, int count, int32_t *sums, uint8_t *out) {
  for (size_t i = 0; i < n; i++) sums[i] = HALF;
  for (int y = 0; y < count; y++) {
    const uint8_t *const row = in + (size_t)y * n;
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

bool cvy_resize(cvy_resizer *r, const uint8_t *in, int in_h, int in_w, int c, const cvy_fit *fit, uint8_t *out) {
  const bool along = fit->resized_w != in_w, down = fit->resized_h != in_h;
  const size_t row = (size_t)in_w * (size_t)c, out_row = (size_t)fit->w * (size_t)c;
  int width[2] = {0, 0}, first = (int)fit->top, count = fit->h;
  if (along && !weigh(r, 1, in_w, fit->resized_w, fit->left, fit->w, &width[1])) return false;
  if (down) {
    if (!weigh(r, 0, in_h, fit->resized_h, fit->top, fit->h, &width[0])) return false;
    const int *const last = r->bounds[0] + 2 * (fit->h - 1);
    first = r->bounds[0][0];
    count = last[0] + last[1] - first;
  }
  void *rows = r->rows, *sums = r->sums;
  const bool there = !down || (make_room(&rows, &r->rows_room, (size_t)count * out_row, 1) &&
                               make_room(&sums, &r->sums_room, out_row, sizeof *r->sums));
  r->rows = rows;
  r->sums = sums;
  if (!there) return false;
  uint8_t *const wide = down ? r->rows : out; /* rows first.. of the input, as wide as the result */
  for (int y = 0; y < count; y++) {
    const uint8_t *const from = in + (size_t)(first + y) * row;
    uint8_t *const to = wide + (size_t)y * out_row;
    if (along) resize_row(r, from, c, fit->w, width[1], to);
    else memcpy(to, from + (size_t)fit->left * (size_t)c, out_row);
  }
  for (int y = 0; down && y < fit->h; y++) {
    const int *const bounds = r->bounds[0] + 2 * y;
    mix_rows(wide + (size_t)(bounds[0] - first) * out_row, out_row, r->weights[0] + (size_t)y * (size_t)width[0],
             bounds[1], r->sums, out + (size_t)y * out_row);
  }
  return true;
}
