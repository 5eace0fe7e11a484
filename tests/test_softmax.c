/* SPDX-License-Identifier: MIT
 * Softmax against the reference in double. exp is good to 4 ulp and its argument rounded once, so in eps
 *   |y error| <= y * (16 + |x_j - max| + sum_i y_i |x_i - max|);   |dx error| <= y * (|dy| + 2*sum |dy*y|) * (C/16 +
 *                                                                  6) */
#include <float.h>
#include <math.h>

#include "src/ops/softmax.h"
#include "src/ref/ref.h"
#include "tests/check.h"

static void test_shapes(check_device *d) {
  static const int pitches[] = {1, 4, 16, 7};
  for (int i = 0; i < (getenv("CVY_TEST_FULL") ? 150 : getenv("CVY_TEST_OCLGRIND") ? 16 : 40); i++) {
    case_rng r = check_rng_make(d, i);
    const int rows = case_edge(&r, 16, 100), c = i % 4 == 3 ? case_edge(&r, 64, 1000) : case_edge(&r, 16, 40);
    const int pitch = (int)cvy_round_up((size_t)c, (size_t)case_pick(&r, pitches, 4));
    const bool in_place = i % 2;
    if (!check_case(d, "softmax rows=%d c=%d pitch=%d in_place=%d", rows, c, pitch, in_place)) continue;
    const size_t size = (size_t)rows * (size_t)c;
    float *const x = check_floats(d, size), *const y = check_floats(d, size), *const dy = check_floats(d, size);
    case_fill(&r, x, size, CASE_FILL_ANY);
    case_fill(&r, dy, size, CASE_FILL_ANY);
    double *const want = check_doubles(d, size), *const tol = check_doubles(d, size),
                  *const x_ref = check_to_doubles(d, x, size);
    ref_softmax(rows, c, x_ref, want);
    for (int row = 0; row < rows; row++) {
      double top = -INFINITY, moved = 0;
      for (int j = 0; j < c; j++) top = fmax(top, x_ref[row * c + j]);
      for (int j = 0; j < c; j++) moved += want[row * c + j] * (top - x_ref[row * c + j]);
      for (int j = 0; j < c; j++)
        tol[row * c + j] = FLT_EPSILON * want[row * c + j] * (16 + top - x_ref[row * c + j] + moved) + 2 * FLT_MIN;
    }
    for (size_t j = 0; j < size; j++) y[j] = (float)want[j];
    cvy_softmax *op = NULL;
    check_ok(cvy_softmax_create(d->cl, c, pitch, &op));
    check_buffer *const bx = in_place ? check_inout(d, "x", x, rows, c, pitch) : check_input(d, "x", x, rows, c, pitch);
    check_buffer *const by = in_place ? bx : check_output(d, "y", rows, c, pitch);
    check_ok(cvy_softmax_forward(op, d->queue, rows, bx->cl, by->cl));
    const float *const got = check_download(by);
    check_close(d, "y", got, want, tol, (size_t)rows, c);
    if (!in_place) {
      check_buffer *const again = check_output(d, "again", rows, c, pitch);
      check_ok(cvy_softmax_forward(op, d->queue, rows, bx->cl, again->cl));
      check_same(d, "y again", check_download(again), got, (size_t)rows, c);
    }
    double *const y_ref = check_to_doubles(d, y, size), *const dy_ref = check_to_doubles(d, dy, size);
    ref_softmax_backward(rows, c, y_ref, dy_ref, want);
    for (int row = 0; row < rows; row++) {
      double mag = 0;
      for (int j = 0; j < c; j++) mag += fabs(dy_ref[row * c + j]) * y_ref[row * c + j];
      for (int j = 0; j < c; j++)
        tol[row * c + j] =
            FLT_EPSILON * (c / 16 + 6) * y_ref[row * c + j] * (fabs(dy_ref[row * c + j]) + 2 * mag) + 2 * FLT_MIN;
    }
    check_buffer *const b_y =
        i % 4 == 1 ? check_inout(d, "y", y, rows, c, pitch) : check_input(d, "y", y, rows, c, pitch);
    check_buffer *const b_dy =
        i % 4 == 3 ? check_inout(d, "dy", dy, rows, c, pitch) : check_input(d, "dy", dy, rows, c, pitch);
    check_buffer *const b_dx = i % 4 == 1 ? b_y : i % 4 == 3 ? b_dy : check_output(d, "dx", rows, c, pitch);
    check_ok(cvy_softmax_backward(op, d->queue, rows, b_y->cl, b_dy->cl, b_dx->cl));
    check_close(d, "dx", check_download(b_dx), want, tol, (size_t)rows, c);
    check_case_end(d);
    cvy_softmax_destroy(&op);
  }
}

/* Logits that exp would not survive; a NaN takes its row, and no other. */
static void test_special(check_device *d) {
  enum { C = 18 };
  float x[5][C];
  double want[5][C], tol[5][C], x_ref[5][C];
  if (!check_case(d, "special")) return;
  for (int j = 0; j < C; j++) {
    x[0][j] = 3e38f;
    x[1][j] = -3e38f;
    x[2][j] = j == 17 ? 1e8f : -1e8f;
    x[3][j] = j == 16 ? NAN : 1.0f;
    x[4][j] = j == 3 ? 2.0f : -INFINITY;
  }
  for (int i = 0; i < 5; i++)
    for (int j = 0; j < C; j++) x_ref[i][j] = x[i][j];
  ref_softmax(5, C, &x_ref[0][0], &want[0][0]);
  for (int i = 0; i < 5; i++)
    for (int j = 0; j < C; j++) tol[i][j] = 1e-6;
  cvy_softmax *op = NULL;
  check_ok(cvy_softmax_create(d->cl, C, 32, &op));
  check_buffer *const bx = check_input(d, "x", &x[0][0], 5, C, 32), *const by = check_output(d, "y", 5, C, 32);
  check_ok(cvy_softmax_forward(op, d->queue, 5, bx->cl, by->cl));
  const float *const y = check_download(by);
  check_close(d, "y", y, &want[0][0], &tol[0][0], 5, C);
  for (int j = 0; j < C; j++)
    if (!isnan(y[3 * C + j])) check_fail(d, "y[3,%d] is %g, must be NaN", j, (double)y[3 * C + j]);
  check_case_end(d);
  cvy_softmax_destroy(&op);
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
