/* SPDX-License-Identifier: MIT
 * A value per sample and channel that meets all positions, against the reference. */
#include <math.h>

#include "src/ref/cases.h"
#include "src/ref/ref.h"
#include "tests/support/check.h"

CHECK_TEST(shapes) {
  static const int shapes[][4] = {{1, 1, 1, 16},  {3, 7, 7, 40},  {2, 13, 5, 20}, {5, 2, 3, 130},
                                  {1, 57, 31, 3}, {2, 4, 4, 512}, {70, 1, 2, 24}};
  for (int i = 0; i < (int)(sizeof shapes / sizeof *shapes); i++)
    for (int kind = 0; kind < 3; kind++) {
      const bool many = shapes[i][0] * shapes[i][1] * shapes[i][2] * shapes[i][3] > 4000;
      if (getenv("CVY_TEST_OCLGRIND") && many) continue; /* a thousand times slower there */
      broadcast_case c = {.base.n = shapes[i][0],
                          .p = {.n_max = shapes[i][0] + i % 2,
                                .x = {shapes[i][1], shapes[i][2], shapes[i][3], cvy_pitch_of(shapes[i][3])},
                                .mul = kind == 0,
                                .relu = kind == 2},
                          .accumulate = (i + kind) % 2,
                          .in_place = i % 3 == 1};
      case_rng r = check_rng_make(d, 10 * i + kind);
      if (!check_case(d, "%s n=%d %dx%dx%d accumulate=%d",
                      kind == 0   ? "mul"
                      : kind == 1 ? "add"
                                  : "add+relu",
                      c.base.n, c.p.x.c, c.p.x.h, c.p.x.w, c.accumulate))
        continue;
      case_broadcast(&c, &r);
      check_op(d, &c.base);
    }
}

CHECK_TEST(reference) {
  enum { H = 3, W = 2, C = 2, N = 2, SIZE = N * H * W * C, SUMS = N * C };
  for (int mul = 0; mul < 2; mul++) {
    const cvy_broadcast_params p = {.n_max = N, .x = {H, W, C, 16}, .mul = mul};
    double x[SIZE], s[SUMS], y[SIZE], dy[SIZE], dx[SIZE], ds[SUMS];
    for (int i = 0; i < SIZE; i++) x[i] = 0.1 * (i * 7 % SIZE) - 1, dy[i] = 0.05 * (i * 5 % SIZE) - 0.4;
    for (int i = 0; i < SUMS; i++) s[i] = 0.3 * i - 0.5;
    ref_broadcast_backward(&p, N, x, s, dy, dx, ds, NULL);
    for (int i = 0; i < SIZE + SUMS; i++) {
      double *const value = i < SIZE ? &x[i] : &s[i - SIZE], sums[2] = {0, 0};
      for (int side = 0; side < 2; side++) {
        const double old = *value;
        *value += side ? 1e-3 : -1e-3;
        ref_broadcast(&p, N, x, s, y);
        *value = old;
        for (int k = 0; k < SIZE; k++) sums[side] += dy[k] * y[k];
      }
      const double slope = (sums[1] - sums[0]) / 2e-3, got = i < SIZE ? dx[i] : ds[i - SIZE];
      if (!(fabs(slope - got) <= 1e-9)) check_fail(d, "mul %d, value %d: %.12g, not %.12g", mul, i, got, slope);
    }
  }
}

CHECK_TEST(arguments) {
  cvy_broadcast *op = NULL;
  const cvy_broadcast_params good = {.n_max = 2, .x = {2, 2, 3, 16}};
  cvy_broadcast_params bad[5] = {good, good, good, good, good};
  static const char *const texts[] = {"0 samples", "pitch 8", "2x2x17", "2^31", "ReLU"};
  bad[0].n_max = 0, bad[1].x.pitch = 8, bad[2].x.c = 17, bad[3].n_max = 1 << 26, bad[4].mul = bad[4].relu = true;
  bad[2].x = (cvy_shape){2, 2, 17, 16};
  for (int i = 0; i < 5; i++) {
    check_fails(cvy_broadcast_create(d->cl, &bad[i], &op), CVY_E_ARGUMENT, i == 2 ? "17" : texts[i]);
    assert_null(op);
  }
  check_ok(cvy_broadcast_create(d->cl, &good, &op));
  float zeros[8 * 16] = {0};
  cvy_buffer *const x = check_inout(d, "x", zeros, 8, 16, 16)->cl, *const s = check_inout(d, "s", zeros, 2, 16, 16)->cl;
  check_fails(cvy_broadcast_forward(op, d->queue, 3, x, s, x), CVY_E_ARGUMENT, "3 samples");
  check_fails(cvy_broadcast_forward(op, d->queue, 2, s, s, x), CVY_E_ARGUMENT, "x has 128 bytes");
  check_fails(cvy_broadcast_forward(op, d->queue, 2, x, NULL, x), CVY_E_ARGUMENT, "s is NULL");
  check_fails(cvy_broadcast_backward_data(op, d->queue, 2, x, s, x, false), CVY_E_ARGUMENT, "as it is");
  check_fails(cvy_broadcast_backward_sum(op, d->queue, 2, NULL, NULL, s, false), CVY_E_ARGUMENT, "dy is NULL");
  check_ok(cvy_broadcast_backward_sum(op, d->queue, 2, x, NULL, s, false));
  check_case_end(d);
  cvy_broadcast_destroy(&op);
  cvy_broadcast_destroy(&op); /* NULL is fine */
}

int main(int argc, char **argv) { return check_run(argc, argv, CHECK_DEVICES | CHECK_BOTH_SHAPES); }
