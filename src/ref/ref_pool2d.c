/* SPDX-License-Identifier: MIT
 * Pooling in double, straight from ops/pool2d.h. */
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "src/ref/ref.h"

typedef struct window {
  int h0, h1, w0, w1;
} window; /* the part of a window inside the image */

static window window_at(const cvy_pool2d_params *p, int row, int col) {
  window at = {row * p->stride_h - p->pad_h, 0, col * p->stride_w - p->pad_w, 0};
  at.h1 = at.h0 + p->r;
  at.w1 = at.w0 + p->s;
  if (at.h0 < 0) at.h0 = 0;
  if (at.w0 < 0) at.w0 = 0;
  if (at.h1 > p->x.h) at.h1 = p->x.h;
  if (at.w1 > p->x.w) at.w1 = p->x.w;
  return at;
}

static int count_of(int size, int filter, int stride, int pad, int more, bool ceil_mode) {
  int n = 0; /* windows that end in the padded image; with ceil_mode also needed ones that begin in it */
  for (int first = -pad;; first += stride, n++) {
    const bool fits = first + filter <= size + pad + more, reaches = first - stride + filter < size + pad + more;
    if (fits) continue;
    if (ceil_mode && reaches && n > 0 && first < size) continue;
    return n;
  }
}
static int rows_of(const cvy_pool2d_params *p) {
  return count_of(p->x.h, p->r, p->stride_h, p->pad_h, p->pad_more_h, p->ceil_mode);
}
static int cols_of(const cvy_pool2d_params *p) {
  return count_of(p->x.w, p->s, p->stride_w, p->pad_w, p->pad_more_w, p->ceil_mode);
}

/* The number of a window's rows (columns) that count in the divisor of an average. */
static int counted(const cvy_pool2d_params *p, int output, int filter, int stride, int pad, int more, int size) {
  int n = 0;
  for (int i = output * stride - pad; i < output * stride - pad + filter; i++)
    n += p->exclude_pad ? i >= 0 && i < size : i < size + pad + more;
  return n;
}
static double divisor(const cvy_pool2d_params *p, int row, int col) {
  return (double)counted(p, row, p->r, p->stride_h, p->pad_h, p->pad_more_h, p->x.h) *
         counted(p, col, p->s, p->stride_w, p->pad_w, p->pad_more_w, p->x.w);
}

/* Dense NHWC index. */
static size_t at(int n, int h, int w, int c, int rows, int cols, int channels) {
  return (((size_t)n * (size_t)rows + (size_t)h) * (size_t)cols + (size_t)w) * (size_t)channels + (size_t)c;
}

static const size_t nowhere = SIZE_MAX; /* in the padding */

/* The window's maximum, and its index in x. Ties: only a larger value replaces the maximum, so the first largest
 * value stays; the first NaN wins. */
static double max_of(const cvy_pool2d_params *p, int row, int col, int n, int c, const double *x, size_t *place) {
  double best = -INFINITY;
  bool any = false;
  for (int h = row * p->stride_h - p->pad_h, a = 0; a < p->r; a++, h++)
    for (int w = col * p->stride_w - p->pad_w, b = 0; b < p->s; b++, w++) {
      const bool inside = h >= 0 && h < p->x.h && w >= 0 && w < p->x.w;
      if (!inside && !p->zero_pad) continue;
      const size_t here = inside ? at(n, h, w, c, p->x.h, p->x.w, p->x.c) : nowhere;
      const double value = inside ? x[here] : 0;
      if (any && (isnan(best) || !(value > best || isnan(value)))) continue;
      any = true, best = value, *place = here;
    }
  return best;
}

void ref_pool2d_forward(const cvy_pool2d_params *p, int n, const double *x, double *y) {
  const int rows = rows_of(p), cols = cols_of(p);
  for (int i = 0; i < n; i++)
    for (int row = 0; row < rows; row++)
      for (int col = 0; col < cols; col++)
        for (int c = 0; c < p->x.c; c++) {
          const window in = window_at(p, row, col);
          double result = 0;
          if (p->kind == CVY_POOL_MAX) {
            size_t place;
            result = max_of(p, row, col, i, c, x, &place);
          } else {
            for (int h = in.h0; h < in.h1; h++)
              for (int w = in.w0; w < in.w1; w++) result += x[at(i, h, w, c, p->x.h, p->x.w, p->x.c)];
            result /= divisor(p, row, col);
          }
          y[at(i, row, col, c, rows, cols, p->x.c)] = result;
        }
}

void ref_pool2d_backward(const cvy_pool2d_params *p, int n, const double *x, const double *dy, double *dx) {
  const int rows = rows_of(p), cols = cols_of(p);
  memset(dx, 0, sizeof(double) * at(n, 0, 0, 0, p->x.h, p->x.w, p->x.c));
  for (int i = 0; i < n; i++)
    for (int row = 0; row < rows; row++)
      for (int col = 0; col < cols; col++)
        for (int c = 0; c < p->x.c; c++) {
          const window in = window_at(p, row, col);
          const double g = dy[at(i, row, col, c, rows, cols, p->x.c)];
          if (p->kind == CVY_POOL_MAX) {
            size_t place = nowhere;
            (void)max_of(p, row, col, i, c, x, &place);
            if (place != nowhere) dx[place] += g;
          } else {
            for (int h = in.h0; h < in.h1; h++)
              for (int w = in.w0; w < in.w1; w++)
                dx[at(i, h, w, c, p->x.h, p->x.w, p->x.c)] += g / divisor(p, row, col);
          }
        }
}
