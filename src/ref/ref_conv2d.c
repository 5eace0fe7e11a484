/* SPDX-License-Identifier: MIT
 * Convolution by its definition: one loop over (output position, filter tap, channel, filter) that all three passes
 * share, because they are the partial derivatives of one trilinear sum. */
#include <math.h>
#include <string.h>

#include "src/ref/ref.h"

typedef struct range {
  int p, q;
} range;

static int dilation_of(int given) { return given ? given : 1; }

/* Channels and filters of a group. */
static range group_size(const cvy_conv2d_params *p) {
  const int groups = p->groups ? p->groups : 1;
  return (range){p->x.c / groups, p->k / groups};
}

static range output_size(const cvy_conv2d_params *p) {
  const int h = p->x.h + 2 * p->pad_h + p->pad_more_h, w = p->x.w + 2 * p->pad_w + p->pad_more_w,
            reach_h = (p->r - 1) * dilation_of(p->dilation_h), reach_w = (p->s - 1) * dilation_of(p->dilation_w);
  return (range){(h - reach_h - 1) / p->stride_h + 1, (w - reach_w - 1) / p->stride_w + 1};
}

static size_t x_at(const cvy_conv2d_params *p, int n, int h, int w, int c) {
  return (((size_t)n * p->x.h + h) * p->x.w + w) * p->x.c + c;
}
static size_t y_at(const cvy_conv2d_params *p, range out, int n, int i, int j, int k) {
  return (((size_t)n * out.p + i) * out.q + j) * p->k + k;
}
static size_t w_at(const cvy_conv2d_params *p, int r, int s, int c, int k) {
  return (((size_t)r * p->s + s) * group_size(p).p + c) * p->k + k;
}

static void add(double *sum, double *mag, size_t at, double term) {
  sum[at] += term;
  if (mag) mag[at] += fabs(term);
}

/* For each pixel under each filter tap: row and column of the input, or -1 outside the image. */
static int input_index(int out, int stride, int tap, int dilation, int pad, int length) {
  const int i = out * stride + tap * dilation - pad;
  return i >= 0 && i < length ? i : -1;
}

typedef enum wanted { WANT_Y, WANT_DX, WANT_DW } wanted;

static void accumulate(const cvy_conv2d_params *p, int n, wanted want, const double *x, const double *w,
                       const double *y, double *out, double *mag) {
  const range size = output_size(p), group = group_size(p);
  for (int m = 0; m < n; m++)
    for (int i = 0; i < size.p; i++)
      for (int j = 0; j < size.q; j++)
        for (int r = 0; r < p->r; r++)
          for (int s = 0; s < p->s; s++) {
            const int h = input_index(i, p->stride_h, r, dilation_of(p->dilation_h), p->pad_h, p->x.h),
                      v = input_index(j, p->stride_w, s, dilation_of(p->dilation_w), p->pad_w, p->x.w);
            if (h < 0 || v < 0) continue;
            for (int c = 0; c < group.p; c++)
              for (int k = 0; k < p->k; k++) {
                const size_t ix = x_at(p, m, h, v, k / group.q * group.p + c), iy = y_at(p, size, m, i, j, k),
                             iw = w_at(p, r, s, c, k);
                switch (want) {
                  case WANT_Y: add(out, mag, iy, x[ix] * w[iw]); break;
                  case WANT_DX: add(out, mag, ix, y[iy] * w[iw]); break;
                  case WANT_DW: add(out, mag, iw, x[ix] * y[iy]); break;
                }
              }
          }
}

static void clear(double *out, double *mag, size_t n) {
  memset(out, 0, n * sizeof *out);
  if (mag) memset(mag, 0, n * sizeof *mag);
}

void ref_conv2d_forward(const cvy_conv2d_params *p, int n, const double *x, const double *w, const double *bias,
                        double *y, double *mag) {
  const range size = output_size(p);
  const size_t total = (size_t)n * size.p * size.q * p->k;
  clear(y, mag, total);
  if (bias)
    for (size_t i = 0; i < total; i++) add(y, mag, i, bias[i % (size_t)p->k]);
  accumulate(p, n, WANT_Y, x, w, NULL, y, mag);
}

void ref_conv2d_backward_data(const cvy_conv2d_params *p, int n, const double *dy, const double *w, double *dx,
                              double *mag) {
  clear(dx, mag, (size_t)n * p->x.h * p->x.w * p->x.c);
  accumulate(p, n, WANT_DX, NULL, w, dy, dx, mag);
}

void ref_conv2d_backward_weights(const cvy_conv2d_params *p, int n, const double *x, const double *dy, double *dw,
                                 double *mag) {
  clear(dw, mag, (size_t)p->r * p->s * group_size(p).p * p->k);
  accumulate(p, n, WANT_DW, x, NULL, dy, dw, mag);
}

void ref_conv2d_prologue(const cvy_conv2d_params *p, int n, int group_size, const double *x, const double *affine,
                         const double *residual, double *out) {
  const size_t image = (size_t)p->x.h * p->x.w * p->x.c;
  for (int m = 0; m < n; m++) {
    const size_t group = group_size > 0 ? (size_t)(m / group_size) : 0;
    for (size_t i = 0; i < image; i++) {
      const size_t at = (size_t)m * image + i, c = (size_t)p->x.c, channel = group * 3 * c + i % c;
      double v = x[at];
      if (p->prologue & CVY_CONV_SCALE) v = (v - affine[channel]) * affine[channel + c] + affine[channel + 2 * c];
      if (p->prologue & CVY_CONV_RESIDUAL) v += residual[at];
      if (p->prologue & CVY_CONV_RELU) v = v > 0 ? v : 0;
      out[at] = v;
    }
  }
}
