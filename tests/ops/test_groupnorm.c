/* SPDX-License-Identifier: MIT
 * Normalisation over groups of channels against the reference in double, and the reference against differences. */
#include <math.h>

#include "src/ref/cases.h"
#include "src/ref/ref.h"
#include "tests/support/check.h"

CHECK_TEST(shapes) {
  for (int i = 0; i < (getenv("CVY_TEST_FULL") ? 200 : getenv("CVY_TEST_OCLGRIND") ? 12 : 60); i++) {
    case_rng r = check_rng_make(d, i);
    groupnorm_case c = case_groupnorm_random(&r, i);
    if (!check_case(d, "groupnorm n=%d %dx%dx%d groups=%d fill=%d%s%s%s%s%s", c.base.n, c.p.x.c, c.p.x.h, c.p.x.w,
                    c.p.groups, (int)c.fill, c.no_beta ? " no beta" : "", c.accumulate ? " accumulate" : "",
                    c.accumulate_dx ? " accumulate dx" : "", c.no_dx ? " no dx" : "",
                    c.no_parameters ? " no parameters" : ""))
      continue;
    case_groupnorm(&c, &r);
    check_op(d, &c.base);
  }
}

/* Shapes of networks, with more positions, rows and channels than the random ones have. */
CHECK_TEST(large) {
  static const struct {
    int n, c, h, w, groups;
  } shapes[] = {
      {2, 64, 56, 56, 32}, {3, 320, 14, 14, 1}, {2, 48, 40, 40, 48}, {3136, 96, 1, 1, 1}, {130, 1030, 1, 1, 1}};
  if (getenv("CVY_TEST_OCLGRIND")) return;
  for (int i = 0; i < (int)(sizeof shapes / sizeof *shapes); i++) {
    groupnorm_case c = {.base.n = shapes[i].n,
                        .p = {.n_max = shapes[i].n,
                              .x = {shapes[i].h, shapes[i].w, shapes[i].c, cvy_pitch_of(shapes[i].c)},
                              .groups = shapes[i].groups,
                              .eps = 1e-6f},
                        .fill = i % 2 ? CASE_FILL_NORMAL : CASE_FILL_OFFSET};
    case_rng r = check_rng_make(d, 1000 + i);
    if (!check_case(d, "large n=%d %dx%dx%d groups=%d", c.base.n, c.p.x.c, c.p.x.h, c.p.x.w, c.p.groups)) continue;
    case_groupnorm(&c, &r);
    check_op(d, &c.base);
  }
}

/* Equal values have no deviation: y is beta, and nothing is lost to the square root of a negative number. */
CHECK_TEST(constant) {
  enum { C = 20, ROWS = 9 };
  for (int k = 0; k < 2; k++) {
    const bool by_row = k == 1;
    const cvy_groupnorm_params p = {.n_max = by_row ? ROWS : 1,
                                    .x = {by_row ? 1 : 3, by_row ? 1 : 3, C, 32},
                                    .groups = by_row ? 1 : 4,
                                    .eps = 1e-5f};
    float x[ROWS * C], gamma[C], beta[C];
    cvy_groupnorm *op;
    if (!check_case(d, "constant by_row=%d", by_row)) continue;
    for (int i = 0; i < ROWS * C; i++) x[i] = 1000.1f;
    for (int i = 0; i < C; i++) gamma[i] = 1, beta[i] = 0.25f * (float)i;
    check_ok(cvy_groupnorm_create(d->cl, &p, &op));
    check_buffer *const tx = check_input(d, "x", x, ROWS, C, 32), *const tg = check_input(d, "gamma", gamma, 1, C, 32),
                        *const tb = check_input(d, "beta", beta, 1, C, 32),
                        *const ty = check_output(d, "y", ROWS, C, 32);
    check_buffer *const saved = check_scratch(d, "saved", cvy_groupnorm_saved_bytes(&p, p.n_max)),
                        *const room = check_scratch(d, "workspace", cvy_groupnorm_workspace_bytes(op));
    check_ok(cvy_groupnorm_forward(op, d->queue, p.n_max, tx->cl, tg->cl, tb->cl, ty->cl, saved->cl, room->cl));
    const float *const y = check_download(ty);
    for (int i = 0; i < ROWS * C; i++)
      if (!(fabsf(y[i] - beta[i % C]) <= 1e-4f))
        check_fail(d, "y[%d] is %g, beta %g", i, (double)y[i], (double)beta[i % C]);
    cvy_groupnorm_destroy(&op);
    check_case_end(d);
  }
}

/* The reference's gradients by central differences of sum dy*y. */
CHECK_TEST(reference) {
  enum { H = 2, W = 3, C = 4, N = 2, SIZE = N * H * W * C };
  static const int groups[] = {1, 2, 4};
  const double h = 1e-5;
  for (int k = 0; k < 3; k++) {
    const cvy_groupnorm_params p = {.n_max = N, .x = {H, W, C, 16}, .groups = groups[k], .eps = 1e-3f};
    double values[SIZE + 2 * C], dy[SIZE], y[SIZE], got[SIZE + 2 * C];
    for (int i = 0; i < SIZE; i++)
      values[i] = 0.1 * (i * 7 % SIZE) - 1 + 0.03 * (i % 5), dy[i] = 0.05 * (i * 5 % SIZE) - 0.4;
    for (int i = 0; i < C; i++) values[SIZE + i] = 0.7 + 0.3 * i, values[SIZE + C + i] = 0.2 * i - 0.1;
    ref_groupnorm_backward(&p, N, values, dy, values + SIZE, got, got + SIZE, got + SIZE + C, NULL);
    for (int i = 0; i < SIZE + 2 * C; i++) {
      double sums[2] = {0, 0};
      for (int side = 0; side < 2; side++) {
        const double old = values[i];
        values[i] += side ? h : -h;
        ref_groupnorm(&p, N, values, values + SIZE, values + SIZE + C, y, NULL);
        values[i] = old;
        for (int j = 0; j < SIZE; j++) sums[side] += dy[j] * y[j];
      }
      const double slope = (sums[1] - sums[0]) / (2 * h);
      if (!(fabs(slope - got[i]) <= 1e-8))
        check_fail(d, "groups %d, gradient %d is %.12g, the difference quotient %.12g", groups[k], i, got[i], slope);
    }
  }
}

CHECK_TEST(arguments) {
  cvy_groupnorm *op = NULL;
  const cvy_groupnorm_params good = {.n_max = 2, .x = {2, 2, 4, 16}, .groups = 2, .eps = 1e-5f};
  cvy_groupnorm_params bad[6] = {good, good, good, good, good, good};
  static const char *const texts[] = {"0 samples", "pitch 8", "2^31", "0 groups", "3 groups of 4 channels", "eps 0"};
  bad[0].n_max = 0, bad[1].x.pitch = 8, bad[2].n_max = 1 << 26, bad[3].groups = 0, bad[4].groups = 3, bad[5].eps = 0;
  for (int i = 0; i < 6; i++) {
    check_fails(cvy_groupnorm_create(d->cl, &bad[i], &op), CVY_E_ARGUMENT, texts[i]);
    assert_null(op);
  }
  check_ok(cvy_groupnorm_create(d->cl, &good, &op));
  float zeros[8 * 16] = {0};
  cvy_buffer *const x = check_inout(d, "x", zeros, 8, 16, 16)->cl, *const s = check_inout(d, "s", zeros, 1, 16, 16)->cl;
  check_fails(cvy_groupnorm_forward(op, d->queue, 3, x, s, s, x, x, x), CVY_E_ARGUMENT, "3 samples");
  check_fails(cvy_groupnorm_forward(op, d->queue, 2, s, s, s, x, x, x), CVY_E_ARGUMENT, "x has 64 bytes");
  check_fails(cvy_groupnorm_forward(op, d->queue, 2, x, NULL, s, x, x, x), CVY_E_ARGUMENT, "gamma is NULL");
  check_fails(cvy_groupnorm_forward(op, d->queue, 2, x, s, NULL, x, NULL, x), CVY_E_ARGUMENT, "saved is NULL");
  check_fails(cvy_groupnorm_backward(op, d->queue,
                                     &(cvy_groupnorm_backward_args){.n = 2, .x = x, .dy = x, .gamma = s, .saved = x}),
              CVY_E_ARGUMENT, "workspace is NULL");
  check_case_end(d);
  cvy_groupnorm_destroy(&op);
  cvy_groupnorm_destroy(&op); /* NULL is fine */
  const cvy_groupnorm_params inference = {.n_max = 2, .x = {2, 2, 4, 16}, .groups = 2, .eps = 1e-5f, .inference = true};
  check_ok(cvy_groupnorm_create(d->cl, &inference, &op));
  check_fails(cvy_groupnorm_backward(op, d->queue, &(cvy_groupnorm_backward_args){.n = 2}), CVY_E_ARGUMENT,
              "inference");
  cvy_groupnorm_destroy(&op);
}

int main(int argc, char **argv) { return check_run(argc, argv, CHECK_DEVICES | CHECK_BOTH_SHAPES); }
