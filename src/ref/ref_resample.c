/* SPDX-License-Identifier: MIT
 * Pictures of another size in double, from the formulas of ops/layers/resample.h: each output adds its share to the
 * pixels that it reads. */
#include <math.h>

#include "src/ref/ref.h"

/* Where output p lies, the pixel in front of it, and the weight of the one behind. */
static int front(cvy_resample_kind kind, int in, int out, int p, double *weight) {
  double s = (double)((int64_t)p * in) / out;
  if (kind == CVY_RESAMPLE_LINEAR) s = fmax((p + 0.5) * in / out - 0.5, 0);
  if (kind == CVY_RESAMPLE_LINEAR_CORNERS) s = out > 1 ? (double)((int64_t)p * (in - 1)) / (out - 1) : 0;
  const int i = (int)floor(s);
  *weight = kind == CVY_RESAMPLE_NEAREST || i >= in - 1 ? 0 : s - i;
  return i < in - 1 ? i : in - 1;
}

/* to NULL: forward, y from x; else x += of y. mag: of what is written. */
static void walk(const cvy_resample_params *p, int n, const double *x, double *y, double *dx, const double *dy,
                 double *mag) {
  const size_t c = (size_t)p->x.c;
  for (int s = 0; s < n; s++)
    for (int i = 0; i < p->out_h; i++)
      for (int j = 0; j < p->out_w; j++) {
        double down, right;
        const int row = front(p->kind, p->x.h, p->out_h, i, &down),
                  column = front(p->kind, p->x.w, p->out_w, j, &right);
        const size_t to = (((size_t)s * (size_t)p->out_h + (size_t)i) * (size_t)p->out_w + (size_t)j) * c;
        for (int k = 0; k < 4; k++) {
          const double weight = (k & 2 ? down : 1 - down) * (k & 1 ? right : 1 - right);
          if (weight == 0) continue;
          const size_t from =
              (((size_t)s * (size_t)p->x.h + (size_t)(row + (k >> 1))) * (size_t)p->x.w + (size_t)(column + (k & 1))) *
              c;
          for (size_t ch = 0; ch < c; ch++) {
            if (dx) dx[from + ch] += weight * dy[to + ch];
            else y[to + ch] += weight * x[from + ch];
            if (mag) mag[(dx ? from : to) + ch] += fabs(weight * (dx ? dy[to + ch] : x[from + ch]));
          }
        }
      }
}

void ref_resample(const cvy_resample_params *p, int n, const double *x, double *y, double *mag) {
  const size_t size = (size_t)n * (size_t)p->out_h * (size_t)p->out_w * (size_t)p->x.c;
  for (size_t i = 0; i < size; i++) y[i] = 0;
  for (size_t i = 0; mag && i < size; i++) mag[i] = 0;
  walk(p, n, x, y, NULL, NULL, mag);
}

void ref_resample_backward(const cvy_resample_params *p, int n, const double *dy, double *dx, double *mag) {
  const size_t size = (size_t)n * (size_t)p->x.h * (size_t)p->x.w * (size_t)p->x.c;
  for (size_t i = 0; i < size; i++) dx[i] = 0;
  for (size_t i = 0; mag && i < size; i++) mag[i] = 0;
  walk(p, n, NULL, NULL, dx, dy, mag);
}
