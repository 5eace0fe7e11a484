/* SPDX-License-Identifier: MIT
 * Softmax against the reference in double. */
#include <math.h>

#include "src/ref/cases.h"
#include "src/ref/ref.h"
#include "tests/support/check.h"

static void test_shapes(check_device *d) {
  static const int pitches[] = {1, 4, 16, 7};
  for (int i = 0; i < (getenv("CVY_TEST_FULL") ? 150 : getenv("CVY_TEST_OCLGRIND") ? 16 : 40); i++) {
    case_rng r = check_rng_make(d, i);
    softmax_case c = {.base.n = case_edge(&r, 16, 100),
                      .y_in_x = i % 2,
                      .dx_in = i % 4 == 1   ? CASE_DX_IN_Y
                               : i % 4 == 3 ? CASE_DX_IN_DY
                                            : CASE_DX_APART};
    c.c = i % 4 == 3 ? case_edge(&r, 64, 1000) : case_edge(&r, 16, 40);
    c.pitch = (int)cvy_round_up((size_t)c.c, (size_t)case_pick(&r, pitches, 4));
    if (!check_case(d, "softmax rows=%d c=%d pitch=%d in_place=%d", c.base.n, c.c, c.pitch, c.y_in_x)) continue;
    case_softmax(&c, &r);
    check_op(d, &c.base);
  }
}

/* Logits that exp would not survive; a NaN takes its row, and no other. */
static void test_special(check_device *d) {
  enum { C = 18 };
  float x[5][C];
  if (!check_case(d, "special")) return;
  for (int j = 0; j < C; j++) {
    x[0][j] = 3e38f;
    x[1][j] = -3e38f;
    x[2][j] = j == 17 ? 1e8f : -1e8f;
    x[3][j] = j == 16 ? NAN : 1.0f;
    x[4][j] = j == 3 ? 2.0f : -INFINITY;
  }
  case_rng r = check_rng_make(d, 1000);
  softmax_case c = {.base.n = 5, .c = C, .pitch = 32, .x = &x[0][0]};
  case_softmax(&c, &r);
  for (int j = 0; j < 5 * C; j++) assert_int_equal(isnan(case_find(&c.base, "y")->want[j]) != 0, j / C == 3);
  c.base.left_out = CASE_BIT(1);
  check_op(d, &c.base);
}

/* The reference's gradient by central differences of sum dy*y. */
static void test_reference(check_device *d) {
  enum { C = 6 };
  const double h = 1e-5, dy[C] = {0.3, -1.2, 0.7, 2.1, -0.4, 0.9};
  double x[C] = {0.1, 1.3, -0.7, 0.4, 0.0, -1.5}, y[C], dx[C];
  ref_softmax(1, C, x, y);
  ref_softmax_backward(1, C, y, dy, dx);
  for (int i = 0; i < C; i++) {
    double sums[2] = {0, 0};
    for (int side = 0; side < 2; side++) {
      const double old = x[i];
      x[i] += side ? h : -h;
      ref_softmax(1, C, x, y);
      x[i] = old;
      for (int j = 0; j < C; j++) sums[side] += dy[j] * y[j];
    }
    const double slope = (sums[1] - sums[0]) / (2 * h);
    if (!(fabs(slope - dx[i]) <= 1e-9))
      check_fail(d, "gradient %d is %.12g, the difference quotient %.12g", i, dx[i], slope);
  }
}

static void test_arguments(check_device *d) {
  cvy_softmax *op = NULL;
  check_fails(cvy_softmax_create(d->cl, 0, 16, &op), CVY_E_ARGUMENT, "0 channels");
  check_fails(cvy_softmax_create(d->cl, 17, 16, &op), CVY_E_ARGUMENT, "17 channels with pitch 16");
  assert_null(op);
  check_ok(cvy_softmax_create(d->cl, 10, 16, &op));
  float zeros[32] = {0};
  check_buffer *const x = check_input(d, "x", zeros, 2, 16, 16), *const y = check_output(d, "y", 2, 16, 16);
  check_fails(cvy_softmax_forward(op, d->queue, 0, x->cl, y->cl), CVY_E_ARGUMENT, "0 rows");
  check_fails(cvy_softmax_forward(op, d->queue, 3, x->cl, y->cl), CVY_E_ARGUMENT,
              "x has 128 bytes, needs at least 192");
  check_fails(cvy_softmax_forward(op, d->queue, 2, x->cl, NULL), CVY_E_ARGUMENT, "y is NULL");
  check_fails(cvy_softmax_backward(op, d->queue, 2, x->cl, NULL, y->cl), CVY_E_ARGUMENT, "dy is NULL");
  check_fails(cvy_softmax_backward(op, d->queue, 2, x->cl, x->cl, NULL), CVY_E_ARGUMENT, "dx is NULL");
  check_case_end(d);
  cvy_softmax_destroy(&op);
}

int main(int argc, char **argv) {
  static const check_test tests[] = {
      {"shapes", test_shapes}, {"special", test_special}, {"reference", test_reference}, {"arguments", test_arguments}};
  return check_main(argc, argv, tests, sizeof tests / sizeof *tests, CHECK_DEVICES | CHECK_BOTH_SHAPES);
}
