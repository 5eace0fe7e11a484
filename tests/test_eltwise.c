/* SPDX-License-Identifier: MIT
 * Elementwise operations: every result is one exactly rounded operation, so all comparisons are bit for bit. */
#include <math.h>

#include "src/ops/eltwise.h"
#include "src/ref/ref.h"
#include "tests/check.h"

enum { MAX_ELEMS = 40000 };

static const int sizes[] = {16, 32, 48, 16 * 255, 16 * 256, 16 * 257, 16 * 1021, 16 * 2048, MAX_ELEMS};
enum { N_SIZES = sizeof sizes / sizeof *sizes };

/* x with zeros of both signs, NaN and infinities sprinkled in. */
static float *values(check_device *d, case_rng *r, int n, bool specials) {
  const float special[] = {0.0f, -0.0f, NAN, INFINITY, -INFINITY, 1e-30f, -1e-30f};
  float *const x = check_floats(d, (size_t)n);
  case_fill(r, x, (size_t)n, CASE_FILL_ANY);
  for (int i = 0; specials && i < 16; i++) x[case_int(r, 0, n - 1)] = special[i % 7];
  return x;
}

/* Bit for bit, NaN equal to NaN. */
static void same(check_device *d, const char *what, const float *got, const double *want, int n) {
  float *const expected = check_floats(d, (size_t)n), *const seen = check_floats(d, (size_t)n);
  for (int i = 0; i < n; i++) {
    expected[i] = isnan(want[i]) ? 7.0f : (float)want[i];
    seen[i] = isnan(got[i]) && isnan(want[i]) ? 7.0f : got[i];
  }
  check_same(d, what, seen, expected, 1, n);
}

static void test_relu(check_device *d) {
  cvy_eltwise *op = NULL;
  check_ok(cvy_eltwise_create(d->cl, &op));
  for (int i = 0; i < 2 * N_SIZES; i++) {
    case_rng r = check_rng_make(d, i);
    const int n = sizes[i / 2];
    const bool in_place = i % 2;
    if (!check_case(d, "relu n=%d in_place=%d", n, in_place)) continue;
    const float *const x = values(d, &r, n, true);
    double *const want = check_doubles(d, (size_t)n);
    ref_relu((size_t)n, check_to_doubles(d, x, (size_t)n), want);
    check_buffer *const bx = in_place ? check_inout(d, "x", x, 1, n, n) : check_input(d, "x", x, 1, n, n);
    check_buffer *const by = in_place ? bx : check_output(d, "y", 1, n, n);
    check_ok(cvy_eltwise_relu(op, d->queue, (size_t)n, bx->cl, by->cl));
    const float *const y = check_download(by);
    same(d, "y", y, want, n);
    for (int j = 0; j < n; j++)
      if (y[j] == 0.0f && signbit(y[j])) check_fail(d, "y[%d] is -0, must be 0", j);
    check_case_end(d);
  }
  cvy_eltwise_destroy(&op);
}

static void test_relu_backward(check_device *d) {
  cvy_eltwise *op = NULL;
  check_ok(cvy_eltwise_create(d->cl, &op));
  for (int i = 0; i < 3 * N_SIZES; i++) {
    case_rng r = check_rng_make(d, i);
    const int n = sizes[i / 3];
    const bool in_place = i % 3 == 1, accumulate = i % 3 == 2;
    if (!check_case(d, "relu_backward n=%d in_place=%d accumulate=%d", n, in_place, accumulate)) continue;
    const float *const y = values(d, &r, n, true), *const dy = values(d, &r, n, false),
                       *const old = values(d, &r, n, false);
    double *const want = check_doubles(d, (size_t)n);
    ref_relu_backward((size_t)n, check_to_doubles(d, y, (size_t)n), check_to_doubles(d, dy, (size_t)n), want);
    check_buffer *const by = check_input(d, "y", y, 1, n, n);
    check_buffer *const bdy = in_place ? check_inout(d, "dy", dy, 1, n, n) : check_input(d, "dy", dy, 1, n, n);
    check_buffer *const bdx = in_place     ? bdy
                              : accumulate ? check_inout(d, "dx", old, 1, n, n)
                                           : check_output(d, "dx", 1, n, n);
    for (int j = 0; accumulate && j < n; j++) want[j] = old[j] + (float)want[j];
    check_ok(cvy_eltwise_relu_backward(op, d->queue, (size_t)n, by->cl, bdy->cl, bdx->cl, accumulate));
    same(d, "dx", check_download(bdx), want, n);
    check_case_end(d);
  }
  cvy_eltwise_destroy(&op);
}

static void test_add(check_device *d) {
  cvy_eltwise *op = NULL;
  check_ok(cvy_eltwise_create(d->cl, &op));
  for (int i = 0; i < 6 * N_SIZES; i++) {
    case_rng r = check_rng_make(d, i);
    const int n = sizes[i / 6], place = i % 3; /* 0: y apart, 1: y is a, 2: y is b */
    const bool relu = i % 6 >= 3;
    if (!check_case(d, "add n=%d relu=%d place=%d", n, relu, place)) continue;
    const float *const a = values(d, &r, n, true), *const b = values(d, &r, n, true);
    double *const want = check_doubles(d, (size_t)n);
    for (int j = 0; j < n; j++) want[j] = a[j] + b[j]; /* in float: one rounding */
    if (relu) ref_relu((size_t)n, want, want);
    check_buffer *const ba = place == 1 ? check_inout(d, "a", a, 1, n, n) : check_input(d, "a", a, 1, n, n);
    check_buffer *const bb = place == 2 ? check_inout(d, "b", b, 1, n, n) : check_input(d, "b", b, 1, n, n);
    check_buffer *const by = place == 1 ? ba : place == 2 ? bb : check_output(d, "y", 1, n, n);
    check_ok(cvy_eltwise_add(op, d->queue, (size_t)n, ba->cl, bb->cl, by->cl, relu));
    same(d, "y", check_download(by), want, n);
    check_case_end(d);
  }
  cvy_eltwise_destroy(&op);
}

static void test_accumulate(check_device *d) {
  cvy_eltwise *op = NULL;
  check_ok(cvy_eltwise_create(d->cl, &op));
  for (int i = 0; i < N_SIZES; i++) {
    case_rng r = check_rng_make(d, i);
    const int n = sizes[i];
    if (!check_case(d, "accumulate n=%d", n)) continue;
    const float *const x = values(d, &r, n, false), *const y = values(d, &r, n, false);
    double *const want = check_doubles(d, (size_t)n);
    for (int j = 0; j < n; j++) want[j] = y[j] + x[j];
    check_buffer *const bx = check_input(d, "x", x, 1, n, n), *const by = check_inout(d, "y", y, 1, n, n);
    check_ok(cvy_eltwise_accumulate(op, d->queue, (size_t)n, bx->cl, by->cl));
    same(d, "y", check_download(by), want, n);
    check_case_end(d);
  }
  cvy_eltwise_destroy(&op);
}

static void test_arguments(check_device *d) {
  cvy_eltwise *op = NULL;
  check_ok(cvy_eltwise_create(d->cl, &op));
  float zeros[64] = {0};
  check_buffer *const x = check_input(d, "x", zeros, 1, 64, 64), *const y = check_inout(d, "y", zeros, 1, 64, 64);
  check_fails(cvy_eltwise_relu(op, d->queue, 0, x->cl, y->cl), CVY_E_ARGUMENT, "0 elements");
  check_fails(cvy_eltwise_relu(op, d->queue, 40, x->cl, y->cl), CVY_E_ARGUMENT, "40 elements");
  check_fails(cvy_eltwise_relu(op, d->queue, 80, x->cl, y->cl), CVY_E_ARGUMENT, "256 bytes, needs at least 320");
  check_fails(cvy_eltwise_relu(op, d->queue, 64, x->cl, NULL), CVY_E_ARGUMENT, "y is NULL");
  check_fails(cvy_eltwise_accumulate(op, d->queue, 64, NULL, y->cl), CVY_E_ARGUMENT, "x is NULL");
  check_fails(cvy_eltwise_add(op, d->queue, 64, x->cl, NULL, y->cl, true), CVY_E_ARGUMENT, "b is NULL");
  check_fails(cvy_eltwise_relu_backward(op, d->queue, (size_t)1 << 34, x->cl, x->cl, y->cl, false), CVY_E_ARGUMENT,
              "elements");
  check_ok(cvy_eltwise_relu(op, d->queue, 64, x->cl, y->cl));
  check_case_end(d);
  cvy_eltwise_destroy(&op);
  cvy_eltwise_destroy(&op); /* NULL is fine */
}

int main(int argc, char **argv) {
  static const check_test tests[] = {{"relu", test_relu},
                                     {"relu_backward", test_relu_backward},
                                     {"add", test_add},
                                     {"accumulate", test_accumulate},
                                     {"arguments", test_arguments}};
  return check_main(argc, argv, tests, sizeof tests / sizeof *tests, CHECK_DEVICES | CHECK_BOTH_SHAPES);
}
