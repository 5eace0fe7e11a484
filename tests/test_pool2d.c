/* SPDX-License-Identifier: MIT
 * Pooling against the reference. Max copies: bit for bit. A sum of m terms with its scale is off by at most (m + 3)/2
 * eps times the sum of their absolute values. */
#include <float.h>
#include <math.h>
#include <stdio.h>

#include "src/ops/pool2d.h"
#include "src/ref/ref.h"
#include "tests/check.h"

static size_t elems(const cvy_shape *s, int n) { return (size_t)n * (size_t)s->h * (size_t)s->w * (size_t)s->c; }

static double *absolute(check_device *d, const float *x, size_t n) {
  double *const out = check_doubles(d, n);
  for (size_t i = 0; i < n; i++) out[i] = fabs((double)x[i]);
  return out;
}

/* Bit for bit, any NaN equal to any NaN. */
static void same(check_device *d, const char *what, const float *got, const double *want, int rows, int cols) {
  const size_t n = (size_t)rows * (size_t)cols;
  float *const a = check_floats(d, n), *const b = check_floats(d, n);
  for (size_t i = 0; i < n; i++) {
    a[i] = isnan(got[i]) && isnan(want[i]) ? 7.0f : got[i];
    b[i] = isnan(want[i]) ? 7.0f : (float)want[i];
  }
  check_same(d, what, a, b, (size_t)rows, cols);
}

typedef struct extras {
  bool nans, accumulate;
  check_fill_kind fill;
} extras;

static void run_case(check_device *d, check_rng *r, const cvy_pool2d_params *p, int n, const extras *e) {
  cvy_shape y;
  cvy_pool2d *op = NULL;
  check_ok(cvy_pool2d_output_shape(p, &y));
  check_ok(cvy_pool2d_create(d->cl, p, &op));
  const bool max = p->kind == CVY_POOL_MAX;
  const int in_rows = n * p->x.h * p->x.w, out_rows = n * y.h * y.w, c = p->x.c, pitch = p->x.pitch;
  const size_t in_size = elems(&p->x, n), out_size = elems(&y, n);
  float *const x = check_floats(d, in_size), *const dy = check_floats(d, out_size),
               *const old = check_floats(d, in_size);
  check_fill(r, x, in_size, e->fill);
  check_fill(r, dy, out_size, e->fill == CHECK_FILL_INTEGERS ? CHECK_FILL_INTEGERS : CHECK_FILL_ANY);
  check_fill(r, old, in_size, CHECK_FILL_INTEGERS);
  if (e->nans)
    for (size_t i = 0; i < 1 + in_size / 20; i++)
      x[(size_t)check_int(r, 0, (int)in_size - 1)] = i % 3 ? NAN : -INFINITY;
  double *const x_ref = check_to_doubles(d, x, in_size), *const dy_ref = check_to_doubles(d, dy, out_size);
  double *const y_ref = check_doubles(d, out_size), *const dx_ref = check_doubles(d, in_size);
  if (p->relu) ref_relu(in_size, x_ref, x_ref);
  ref_pool2d_forward(p, n, x_ref, y_ref);
  ref_pool2d_backward(p, n, x_ref, dy_ref, dx_ref);
  if (p->relu) ref_relu_backward(in_size, x_ref, dx_ref, dx_ref);

  check_buffer *const bx = check_input(d, "x", x, in_rows, c, pitch), *const by =
                                                                          check_output(d, "y", out_rows, c, pitch);
  check_ok(cvy_pool2d_forward(op, d->queue, n, bx->cl, by->cl));
  const float *const got = check_download(by);
  if (max) {
    same(d, "y", got, y_ref, out_rows, c);
  } else {
    double *const mag = check_doubles(d, out_size);
    ref_pool2d_forward(p, n, absolute(d, x, in_size), mag);
    check_close_mag(d, "y", got, y_ref, mag, 0.5 * (p->r * p->s + 3), (size_t)out_rows, c);
  }
  check_buffer *const again = check_output(d, "again", out_rows, c, pitch);
  check_ok(cvy_pool2d_forward(op, d->queue, n, bx->cl, again->cl));
  same(d, "y again", check_download(again), check_to_doubles(d, got, out_size), out_rows, c);

  check_buffer *const bdy = check_input(d, "dy", dy, out_rows, c, pitch);
  check_buffer *const bdx =
      e->accumulate ? check_inout(d, "dx", old, in_rows, c, pitch) : check_output(d, "dx", in_rows, c, pitch);
  check_ok(cvy_pool2d_backward(op, d->queue, n, max || p->relu ? bx->cl : NULL, max ? by->cl : NULL, bdy->cl, bdx->cl,
                               e->accumulate));
  double *const mag = check_doubles(d, in_size);
  ref_pool2d_backward(p, n, x_ref, absolute(d, dy, out_size), mag);
  for (size_t i = 0; e->accumulate && i < in_size; i++) {
    dx_ref[i] += old[i];
    mag[i] += fabs((double)old[i]);
  }
  const int windows = ((p->r - 1) / p->stride_h + 1) * ((p->s - 1) / p->stride_w + 1);
  check_close_mag(d, "dx", check_download(bdx), dx_ref, mag, 0.5 * (windows + 4), (size_t)in_rows, c);
  if (max && e->fill == CHECK_FILL_INTEGERS) same(d, "dx", check_download(bdx), dx_ref, in_rows, c);
  check_case_end(d);
  cvy_pool2d_destroy(&op);
}

static const char *describe(const cvy_pool2d_params *p, int n) {
  static char text[200];
  snprintf(text, sizeof text, "%s%s n=%d h=%d w=%d c=%d pitch=%d r=%d s=%d stride=%d,%d pad=%d,%d",
           p->relu ? "relu, " : "", p->kind == CVY_POOL_MAX ? "max" : "avg", n, p->x.h, p->x.w, p->x.c, p->x.pitch,
           p->r, p->s, p->stride_h, p->stride_w, p->pad_h, p->pad_w);
  return text;
}

static void test_shapes(check_device *d) {
  const int n_cases = getenv("CVY_TEST_FULL") ? 150 : getenv("CVY_TEST_OCLGRIND") ? 12 : 36;
  for (int i = 0; i < n_cases; i++) {
    check_rng r = check_rng_make(d, i);
    const int c = check_edge(&r, 16, 70);
    const int pitch = i % 6 == 0 && c <= 7 ? c : c <= 4 && i % 2 ? cvy_input_pitch_of(c) : cvy_pitch_of(c);
    const int n = check_int(&r, 1, 3);
    cvy_pool2d_params p = {.n_max = n + check_int(&r, 0, 2),
                           .kind = i % 2 ? CVY_POOL_AVG : CVY_POOL_MAX,
                           .relu = i % 4 == 1,
                           .r = check_int(&r, 1, i % 8 == 7 ? 9 : 4),
                           .s = check_int(&r, 1, i % 8 == 7 ? 9 : 4),
                           .stride_h = check_int(&r, 1, 4),
                           .stride_w = check_int(&r, 1, 4)};
    p.pad_h = i % 3 ? 0 : check_int(&r, 0, p.r - 1);
    p.pad_w = i % 3 ? 0 : check_int(&r, 0, p.s - 1);
    p.x = (cvy_shape){.h = check_int(&r, p.r > 2 * p.pad_h ? p.r - 2 * p.pad_h : 1, 14),
                      .w = check_int(&r, p.s > 2 * p.pad_w ? p.s - 2 * p.pad_w : 1, 14),
                      .c = c,
                      .pitch = pitch};
    const extras e = {.nans = p.kind == CVY_POOL_MAX && i % 5 == 2,
                      .accumulate = i % 4 == 3,
                      .fill = i % 4 < 2 ? CHECK_FILL_INTEGERS : CHECK_FILL_ANY};
    if (check_case(d, "%s number=%d", describe(&p, n), i)) run_case(d, &r, &p, n, &e);
  }
}

/* What the networks use, and windows that a whole work-group shares. */
static void test_fixed(check_device *d) {
  static const cvy_pool2d_params cases[] = {
      {.kind = CVY_POOL_AVG, .x = {4, 4, 512, 512}, .r = 4, .s = 4, .stride_h = 1, .stride_w = 1},
      {.kind = CVY_POOL_AVG, .x = {26, 26, 20, 32}, .r = 2, .s = 2, .stride_h = 2, .stride_w = 2},
      {.kind = CVY_POOL_AVG, .x = {9, 9, 50, 64}, .r = 2, .s = 2, .stride_h = 2, .stride_w = 2},
      {.kind = CVY_POOL_AVG, .x = {31, 29, 48, 48}, .r = 31, .s = 29, .stride_h = 1, .stride_w = 1},
      {.kind = CVY_POOL_MAX, .x = {31, 29, 5, 16}, .r = 31, .s = 29, .stride_h = 1, .stride_w = 1},
      {.kind = CVY_POOL_MAX,
       .x = {15, 15, 16, 16},
       .r = 6,
       .s = 7,
       .stride_h = 3,
       .stride_w = 2,
       .pad_h = 3,
       .pad_w = 3},
      {.kind = CVY_POOL_AVG,
       .x = {15, 15, 64, 64},
       .r = 6,
       .s = 7,
       .stride_h = 3,
       .stride_w = 2,
       .pad_h = 3,
       .pad_w = 3},
      {.kind = CVY_POOL_MAX,
       .x = {15, 14, 64, 64},
       .r = 3,
       .s = 3,
       .stride_h = 2,
       .stride_w = 2,
       .pad_h = 1,
       .pad_w = 1},
      {.kind = CVY_POOL_AVG,
       .x = {12, 11, 20, 32},
       .r = 9,
       .s = 10,
       .stride_h = 2,
       .stride_w = 1,
       .pad_h = 4,
       .pad_w = 5},
      {.kind = CVY_POOL_MAX,
       .x = {12, 11, 20, 32},
       .r = 9,
       .s = 3,
       .stride_h = 2,
       .stride_w = 3,
       .pad_h = 8,
       .pad_w = 2},
      {.kind = CVY_POOL_AVG, .x = {1, 1, 16, 16}, .r = 1, .s = 1, .stride_h = 1, .stride_w = 1},
      {.kind = CVY_POOL_AVG, .x = {7, 7, 3, 4}, .r = 7, .s = 7, .stride_h = 1, .stride_w = 1},
      {.kind = CVY_POOL_MAX, .x = {6, 6, 1, 1}, .r = 6, .s = 6, .stride_h = 1, .stride_w = 1},
      {.kind = CVY_POOL_MAX,
       .x = {11, 11, 16, 16},
       .r = 2,
       .s = 2,
       .stride_h = 4,
       .stride_w = 3}, /* gaps between windows */
  };
  for (int i = 0; i < (int)(sizeof cases / sizeof *cases); i++)
    for (int fill = 0; fill < 2; fill++) {
      check_rng r = check_rng_make(d, 500 + i);
      cvy_pool2d_params p = cases[i];
      const int n = i < 3 ? 5 : 2;
      if (getenv("CVY_TEST_OCLGRIND") && elems(&p.x, n) > 10000) continue; /* a thousand times slower there */
      p.n_max = n;
      const extras e = {.fill = fill ? CHECK_FILL_OUTLIERS : CHECK_FILL_INTEGERS, .accumulate = fill == 1};
      if (check_case(d, "%s fill=%d", describe(&p, n), fill)) run_case(d, &r, &p, n, &e);
    }
}

/* The tie rule by hand: 2x2 windows of stride 1 over rows 1 1 0 / 1 1 1 / NaN 0 1. */
static void test_ties(check_device *d) {
  const float x[9] = {1, 1, 0, 1, 1, 1, NAN, 0, 1}, dy[4] = {1, 2, 4, 8};
  const float want_y[4] = {1, 1, NAN, 1}, want_dx[9] = {1, 2, 0, 0, 8, 0, 4, 0, 0};
  const cvy_pool2d_params p = {
      .n_max = 1, .kind = CVY_POOL_MAX, .x = {3, 3, 1, 16}, .r = 2, .s = 2, .stride_h = 1, .stride_w = 1};
  cvy_pool2d *op = NULL;
  if (!check_case(d, "ties")) return;
  check_ok(cvy_pool2d_create(d->cl, &p, &op));
  check_buffer *const bx = check_input(d, "x", x, 9, 1, 16), *const by = check_output(d, "y", 4, 1, 16);
  check_buffer *const bdy = check_input(d, "dy", dy, 4, 1, 16), *const bdx = check_output(d, "dx", 9, 1, 16);
  check_ok(cvy_pool2d_forward(op, d->queue, 1, bx->cl, by->cl));
  same(d, "y", check_download(by), check_to_doubles(d, want_y, 4), 4, 1);
  check_ok(cvy_pool2d_backward(op, d->queue, 1, bx->cl, by->cl, bdy->cl, bdx->cl, false));
  same(d, "dx", check_download(bdx), check_to_doubles(d, want_dx, 9), 9, 1);
  check_case_end(d);
  cvy_pool2d_destroy(&op);
}

/* The reference's gradients by central differences of sum dy*y; the values of x are 0.01 apart at least, further than
 * the step. */
static void test_reference(check_device *d) {
  enum { H = 7, W = 6, C = 2, SIZE = H * W * C };
  for (int kind = 0; kind < 2; kind++) {
    const cvy_pool2d_params p = {.n_max = 1,
                                 .kind = (cvy_pool_kind)kind,
                                 .x = {H, W, C, 16},
                                 .r = 3,
                                 .s = 2,
                                 .stride_h = 2,
                                 .stride_w = 1,
                                 .pad_h = 1};
    cvy_shape y_shape;
    check_ok(cvy_pool2d_output_shape(&p, &y_shape));
    const size_t out = elems(&y_shape, 1);
    double *const y = check_doubles(d, out), *const dy = check_doubles(d, out), x[SIZE], dx[SIZE];
    for (int i = 0; i < SIZE; i++) x[i] = 0.01 * (i * 37 % SIZE) - 0.3;
    for (size_t i = 0; i < out; i++) dy[i] = 0.1 + (double)(i * 13 % 17);
    ref_pool2d_backward(&p, 1, x, dy, dx);
    for (int i = 0; i < SIZE; i++) {
      double sums[2] = {0, 0};
      for (int side = 0; side < 2; side++) {
        const double old = x[i];
        x[i] += side ? 1e-3 : -1e-3;
        ref_pool2d_forward(&p, 1, x, y);
        x[i] = old;
        for (size_t j = 0; j < out; j++) sums[side] += dy[j] * y[j];
      }
      const double slope = (sums[1] - sums[0]) / 2e-3;
      if (!(fabs(slope - dx[i]) <= 1e-9))
        check_fail(d, "kind %d: gradient %d is %.12g, the difference quotient %.12g", kind, i, dx[i], slope);
    }
    check_case_end(d);
  }
}

static void test_arguments(check_device *d) {
  const cvy_pool2d_params good = {
      .n_max = 2, .kind = CVY_POOL_MAX, .x = {4, 4, 3, 16}, .r = 2, .s = 2, .stride_h = 2, .stride_w = 2};
  static const struct {
    size_t offset;
    int value;
    const char *text;
  } bad[] = {
      {offsetof(cvy_pool2d_params, n_max), 0, "n_max 0"},
      {offsetof(cvy_pool2d_params, n_max), 1 << 24, "2^31"},
      {offsetof(cvy_pool2d_params, kind), 7, "kind 7"},
      {offsetof(cvy_pool2d_params, x.h), 0, "0x4x3"},
      {offsetof(cvy_pool2d_params, x.pitch), 2, "pitch 2"},
      {offsetof(cvy_pool2d_params, r), 0, "filter 0x2"},
      {offsetof(cvy_pool2d_params, stride_w), 0, "strides 2 and 0"},
      {offsetof(cvy_pool2d_params, pad_h), 2, "padding 2"},
      {offsetof(cvy_pool2d_params, pad_w), -1, "padding 0 and -1"},
      {offsetof(cvy_pool2d_params, s), 5, "larger than the image"},
  };
  cvy_pool2d *op = NULL;
  cvy_shape y;
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    cvy_pool2d_params p = good;
    memcpy((char *)&p + bad[i].offset, &bad[i].value, sizeof bad[i].value);
    check_fails(cvy_pool2d_output_shape(&p, &y), CVY_E_ARGUMENT, bad[i].text);
    check_fails(cvy_pool2d_create(d->cl, &p, &op), CVY_E_ARGUMENT, bad[i].text);
    assert_null(op);
  }
  check_ok(cvy_pool2d_create(d->cl, &good, &op));
  float zeros[2 * 16 * 16] = {0};
  check_buffer *const x = check_input(d, "x", zeros, 32, 16, 16), *const by = check_output(d, "y", 8, 16, 16);
  check_fails(cvy_pool2d_forward(op, d->queue, 0, x->cl, by->cl), CVY_E_ARGUMENT, "0 samples");
  check_fails(cvy_pool2d_forward(op, d->queue, 3, x->cl, by->cl), CVY_E_ARGUMENT, "from 1 to 2");
  check_fails(cvy_pool2d_forward(op, d->queue, 2, by->cl, by->cl), CVY_E_ARGUMENT, "x has 512 bytes");
  check_fails(cvy_pool2d_backward(op, d->queue, 2, NULL, by->cl, by->cl, x->cl, false), CVY_E_ARGUMENT, "x is NULL");
  check_fails(cvy_pool2d_backward(op, d->queue, 2, x->cl, NULL, by->cl, x->cl, false), CVY_E_ARGUMENT, "y is NULL");
  check_fails(cvy_pool2d_backward(op, d->queue, 2, x->cl, by->cl, NULL, x->cl, false), CVY_E_ARGUMENT, "dy is NULL");
  check_fails(cvy_pool2d_backward(op, d->queue, 2, x->cl, by->cl, by->cl, by->cl, false), CVY_E_ARGUMENT,
              "dx has 512 bytes");
  check_case_end(d);
  cvy_pool2d_destroy(&op);
}

int main(int argc, char **argv) {
  static const check_test tests[] = {{"shapes", test_shapes},
                                     {"fixed", test_fixed},
                                     {"ties", test_ties},
                                     {"reference", test_reference},
                                     {"arguments", test_arguments}};
  return check_main(argc, argv, tests, sizeof tests / sizeof *tests, CHECK_DEVICES | CHECK_BOTH_SHAPES);
}
