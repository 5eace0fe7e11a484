/* SPDX-License-Identifier: MIT
 * The norm of a gradient: near the sum in double, the same bits on the device and on the host, in any pieces. */
#include <math.h>
#include <string.h>

#include "src/ref/cases.h"
#include "src/protocol/grad_norm.h"
#include "tests/support/check.h"

enum { MOST = 128 * 128 * 3 + 128 * 5 };

static cvy_norm_result on_host(const float *x, size_t n, size_t piece, int threads, float clip) {
  cvy_grad_norm *norm;
  cvy_pool *pool;
  check_ok(cvy_grad_norm_create(n, &norm));
  check_ok(cvy_pool_create(threads, &pool));
  for (size_t at = 0; at < n; at += piece) cvy_grad_norm_add(norm, pool, at, n - at < piece ? n - at : piece, x + at);
  const cvy_norm_result result = cvy_grad_norm_finish(norm, clip);
  cvy_pool_destroy(&pool);
  cvy_grad_norm_destroy(&norm);
  return result;
}

static cvy_norm_result on_device(check_device *d, const float *x, size_t n, size_t piece, float clip) {
  cvy_norm *op;
  cvy_norm_result result;
  check_ok(cvy_norm_create(d->cl, n, &op));
  for (size_t at = 0; at < n; at += piece) {
    const size_t floats = n - at < piece ? n - at : piece;
    check_buffer *const part = check_input(d, "x", x + at, 1, (int)floats, (int)floats);
    check_ok(cvy_norm_add(op, d->queue, at, floats, part->cl));
  }
  check_ok(cvy_norm_finish(op, d->queue, clip, NULL));
  check_ok(cvy_buffer_read(d->queue, cvy_norm_result_of(op), 0, sizeof result, &result, NULL, NULL));
  cvy_norm_destroy(&op);
  return result;
}

static bool same(const cvy_norm_result *a, const cvy_norm_result *b) { return memcmp(a, b, sizeof *a) == 0; }

static void test_bits(check_device *d) {
  static const int sizes[] = {128, 256, 128 * 127, 128 * 128, 128 * 129, MOST};
  for (int i = 0; i < 6 * 4; i++) {
    const size_t n = (size_t)sizes[i / 4];
    const int kind = i % 4;
    if (!check_case(d, "norm n=%zu kind=%d", n, kind)) continue;
    case_rng r = check_rng_make(d, i);
    float *const x = check_floats(d, n);
    case_fill(&r, x, n, kind == 0 ? CASE_FILL_NORMAL : kind == 1 ? CASE_FILL_OUTLIERS : CASE_FILL_SMALL);
    for (size_t j = 0; kind == 3 && j < n; j++) x[j] = ldexpf(x[j], -(int)(j % 120)); /* down to denormals */
    double squares = 0;
    for (size_t j = 0; j < n; j++) squares += (double)x[j] * (double)x[j];
    const float clip = i % 3 == 0 ? 0 : 0.3f * (float)sqrt(squares);
    const cvy_norm_result want = on_host(x, n, n, 1, clip), pieces = on_host(x, n, 384, 2, clip),
                          got = on_device(d, x, n, n, clip), parts = on_device(d, x, n, (n / 128 + 2) / 3 * 128, clip);
    const double length = cvy_norm_length(&want.squares);
    if (!(fabs(length - sqrt(squares)) <= 1e-12 * sqrt(squares)))
      check_fail(d, "the norm is %.17g, in double %.17g", length, sqrt(squares));
    const double scale = clip == 0 ? 1 : (double)clip / (sqrt(squares) + 1e-6);
    if (!(fabs((double)want.scale - fmin(1, scale)) <= 3e-7))
      check_fail(d, "the scale is %g, not %g", (double)want.scale, scale);
    if (!same(&want, &pieces)) check_fail(d, "the host has other bits in pieces");
    if (!same(&want, &got))
      check_fail(d, "scale %a, squares %a + %a, on the host %a, %a + %a", (double)got.scale, (double)got.squares.sum,
                 (double)got.squares.lost, (double)want.scale, (double)want.squares.sum, (double)want.squares.lost);
    if (!same(&want, &parts)) check_fail(d, "the device has other bits in pieces");
    check_case_end(d);
  }
}

static void test_cases(check_device *d) {
  static const int blocks[] = {1, 2, 127, 128, 129, 400};
  for (int i = 0; i < 12; i++) {
    if (!check_case(d, "case %d blocks=%d", i, blocks[i / 2])) continue;
    case_rng r = check_rng_make(d, 100 + i);
    norm_case c = {.base.n = blocks[i / 2], .clip = i % 2 ? 0.5f : 0};
    case_norm(&c, &r);
    check_op(d, &c.base);
  }
}

/* A gradient that is short stays as it is; one that is not finite shows. */
static void test_limits(check_device *d) {
  float x[128] = {3.0f, -4.0f};
  if (!check_case(d, "limits")) return;
  cvy_norm_result got = on_device(d, x, 128, 128, 6);
  assert_true(got.scale == 1 && cvy_norm_length(&got.squares) == 5);
  got = on_device(d, x, 128, 128, 2.5f);
  assert_true(fabsf(got.scale - 0.5f) < 1e-6f);
  x[7] = INFINITY;
  got = on_device(d, x, 128, 128, 1);
  assert_true(got.scale == 0 && isinf(cvy_norm_length(&got.squares)));
  x[7] = NAN;
  got = on_device(d, x, 128, 128, 1);
  assert_true(isnan(got.scale) && isnan(cvy_norm_length(&got.squares)));
  check_case_end(d);
}

static void test_arguments(check_device *d) {
  cvy_norm *op = NULL;
  float zeros[256] = {0};
  check_fails(cvy_norm_create(d->cl, 130, &op), CVY_E_ARGUMENT, "of 130 values");
  check_ok(cvy_norm_create(d->cl, 256, &op));
  check_buffer *const x = check_input(d, "x", zeros, 1, 128, 128);
  check_fails(cvy_norm_add(op, d->queue, 128, 256, x->cl), CVY_E_ARGUMENT, "values 128 to 384 of 256");
  check_fails(cvy_norm_add(op, d->queue, 0, 256, x->cl), CVY_E_ARGUMENT, "needs at least 1024");
  check_fails(cvy_norm_finish(op, d->queue, -1, NULL), CVY_E_ARGUMENT, "clip -1");
  check_case_end(d);
  cvy_norm_destroy(&op);
}

int main(int argc, char **argv) {
  static const check_test tests[] = {
      {"bits", test_bits}, {"cases", test_cases}, {"limits", test_limits}, {"arguments", test_arguments}};
  return check_main(argc, argv, tests, sizeof tests / sizeof *tests, CHECK_DEVICES | CHECK_BOTH_SHAPES);
}
