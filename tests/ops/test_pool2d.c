/* SPDX-License-Identifier: MIT
 * Pooling against the reference. */
#include <math.h>

#include "src/ref/cases.h"
#include "src/ref/ref.h"
#include "tests/support/check.h"

static size_t elems(const cvy_shape *s, int n) { return (size_t)n * (size_t)s->h * (size_t)s->w * (size_t)s->c; }

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

static void run_case(check_device *d, case_rng *r, pool2d_case *c) {
  case_pool2d(c, r);
  check_op(d, &c->base);
}

static void test_shapes(check_device *d) {
  const int n_cases = getenv("CVY_TEST_FULL") ? 150 : getenv("CVY_TEST_OCLGRIND") ? 12 : 36;
  for (int i = 0; i < n_cases; i++) {
    case_rng r = check_rng_make(d, i);
    pool2d_case c = case_pool2d_random(&r, i);
    if (check_case(d, "%s number=%d", case_pool2d_text(&c), i)) run_case(d, &r, &c);
  }
}

/* What the networks use, and windows that a whole work-group shares. */
static void test_fixed(check_device *d) {
  static const struct {
    cvy_pool_kind kind;
    int h, w, c, pitch, r, s, stride_h, stride_w, pad_h, pad_w;
  } shapes[] = {
      {CVY_POOL_AVG, 4, 4, 512, 512, 4, 4, 1, 1, 0, 0},  {CVY_POOL_AVG, 26, 26, 20, 32, 2, 2, 2, 2, 0, 0},
      {CVY_POOL_AVG, 9, 9, 50, 64, 2, 2, 2, 2, 0, 0},    {CVY_POOL_AVG, 31, 29, 48, 48, 31, 29, 1, 1, 0, 0},
      {CVY_POOL_MAX, 31, 29, 5, 16, 31, 29, 1, 1, 0, 0}, {CVY_POOL_MAX, 15, 15, 16, 16, 6, 7, 3, 2, 3, 3},
      {CVY_POOL_AVG, 15, 15, 64, 64, 6, 7, 3, 2, 3, 3},  {CVY_POOL_MAX, 15, 14, 64, 64, 3, 3, 2, 2, 1, 1},
      {CVY_POOL_AVG, 12, 11, 20, 32, 9, 10, 2, 1, 4, 5}, {CVY_POOL_MAX, 12, 11, 20, 32, 9, 3, 2, 3, 8, 2},
      {CVY_POOL_AVG, 1, 1, 16, 16, 1, 1, 1, 1, 0, 0},    {CVY_POOL_AVG, 7, 7, 3, 4, 7, 7, 1, 1, 0, 0},
      {CVY_POOL_MAX, 6, 6, 1, 1, 6, 6, 1, 1, 0, 0},      {CVY_POOL_MAX, 11, 11, 16, 16, 2, 2, 4, 3, 0, 0}, /* gaps */
  };
  for (int i = 0; i < (int)(sizeof shapes / sizeof *shapes); i++)
    for (int variant = 0; variant < 4; variant++) {
      const int fill = variant % 2;
      case_rng r = check_rng_make(d, 500 + i);
      pool2d_case c = {.base.n = i < 3 ? 5 : 2,
                       .p = {.n_max = i < 3 ? 5 : 2,
                             .kind = shapes[i].kind,
                             .x = {shapes[i].h, shapes[i].w, shapes[i].c, shapes[i].pitch},
                             .r = shapes[i].r,
                             .s = shapes[i].s,
                             .stride_h = shapes[i].stride_h,
                             .stride_w = shapes[i].stride_w,
                             .pad_h = shapes[i].pad_h,
                             .pad_w = shapes[i].pad_w,
                             .zero_pad = variant >= 2},
                       .fill = fill ? CASE_FILL_OUTLIERS : CASE_FILL_INTEGERS,
                       .accumulate = fill == 1};
      if (variant >= 2 && (shapes[i].kind != CVY_POOL_MAX || shapes[i].pad_h == 0)) continue;
      if (getenv("CVY_TEST_OCLGRIND") && elems(&c.p.x, c.base.n) > 10000) continue; /* a thousand times slower there */
      if (check_case(d, "%s fill=%d", case_pool2d_text(&c), fill)) run_case(d, &r, &c);
    }
}

/* A maximum whose results are known: x of h x w, one channel. */
static void by_hand(check_device *d, const char *what, const cvy_pool2d_params *p, const float *x, const float *dy,
                    const float *want_y, const float *want_dx) {
  cvy_pool2d *op = NULL;
  cvy_shape out;
  if (!check_case(d, "%s", what)) return;
  check_ok(cvy_pool2d_output_shape(p, &out));
  const int in_n = p->x.h * p->x.w, out_n = out.h * out.w;
  check_ok(cvy_pool2d_create(d->cl, p, &op));
  check_buffer *const bx = check_input(d, "x", x, (size_t)in_n, 1, 16), *const by =
                                                                            check_output(d, "y", (size_t)out_n, 1, 16);
  check_buffer *const bdy = check_input(d, "dy", dy, (size_t)out_n, 1, 16), *const bdx = check_output(
                                                                                d, "dx", (size_t)in_n, 1, 16);
  check_ok(cvy_pool2d_forward(op, d->queue, 1, bx->cl, by->cl));
  same(d, "y", check_download(by), check_to_doubles(d, want_y, (size_t)out_n), out_n, 1);
  check_ok(cvy_pool2d_backward(op, d->queue, 1, bx->cl, by->cl, bdy->cl, bdx->cl, false));
  same(d, "dx", check_download(bdx), check_to_doubles(d, want_dx, (size_t)in_n), in_n, 1);
  check_case_end(d);
  cvy_pool2d_destroy(&op);
}

/* The tie rule: 2x2 windows of stride 1 over rows 1 1 0 / 1 1 1 / NaN 0 1. */
static void test_ties(check_device *d) {
  const float x[9] = {1, 1, 0, 1, 1, 1, NAN, 0, 1}, dy[4] = {1, 2, 4, 8};
  const float want_y[4] = {1, 1, NAN, 1}, want_dx[9] = {1, 2, 0, 0, 8, 0, 4, 0, 0};
  const cvy_pool2d_params p = {
      .n_max = 1, .kind = CVY_POOL_MAX, .x = {3, 3, 1, 16}, .r = 2, .s = 2, .stride_h = 1, .stride_w = 1};
  by_hand(d, "ties", &p, x, dy, want_y, want_dx);
}

/* Zeros around rows -1 -2 / -3 4 in 2x2 windows of stride 1: a corner sees three zeros, the middle none. Where pixels
 * are zeros, too, padding that comes first takes the gradient: around 0 -1 / 0 0 each pixel has it only of windows
 * whose padding comes behind it. */
static void test_zero_pad(check_device *d) {
  const float dy[9] = {1, 2, 4, 8, 16, 32, 64, 128, 256};
  const float below[4] = {-1, -2, -3, 4}, below_y[9] = {0, 0, 0, 0, 4, 4, 0, 4, 4},
              below_dx[4] = {0, 0, 0, 16 + 32 + 128 + 256};
  const float zeros[4] = {0, -1, 0, 0}, zeros_y[9] = {0}, zeros_dx[4] = {16, 0, 128, 256};
  const cvy_pool2d_params p = {.n_max = 1,
                               .kind = CVY_POOL_MAX,
                               .x = {2, 2, 1, 16},
                               .r = 2,
                               .s = 2,
                               .stride_h = 1,
                               .stride_w = 1,
                               .pad_h = 1,
                               .pad_w = 1,
                               .zero_pad = true};
  by_hand(d, "zeros around negative pixels", &p, below, dy, below_y, below_dx);
  by_hand(d, "zeros around zeros", &p, zeros, dy, zeros_y, zeros_dx);
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
      {offsetof(cvy_pool2d_params, pad_more_h), 2, "with 2 and 0 more"},
      {offsetof(cvy_pool2d_params, pad_more_w), -1, "with 0 and -1 more"},
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
  for (int i = 0; i < 2; i++) {
    cvy_pool2d_params p = good;
    p.zero_pad = true, p.kind = i ? CVY_POOL_MAX : CVY_POOL_AVG, p.ceil_mode = i;
    check_fails(cvy_pool2d_create(d->cl, &p, &op), CVY_E_ARGUMENT, "maxima without ceil_mode");
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
  static const check_test tests[] = {{"shapes", test_shapes},       {"fixed", test_fixed},
                                     {"ties", test_ties},           {"zero_pad", test_zero_pad},
                                     {"reference", test_reference}, {"arguments", test_arguments}};
  return check_main(argc, argv, tests, sizeof tests / sizeof *tests, CHECK_DEVICES | CHECK_BOTH_SHAPES);
}
