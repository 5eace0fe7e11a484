/* SPDX-License-Identifier: MIT
 * Pictures of another size against the reference in double, and known values. */
#include <math.h>

#include "src/ref/cases.h"
#include "src/ref/ref.h"
#include "tests/support/check.h"

CHECK_TEST(shapes) {
  for (int i = 0; i < (getenv("CVY_TEST_OCLGRIND") ? 9 : 60); i++) {
    case_rng r = check_rng_make(d, i);
    resample_case c = case_resample_random(&r, i);
    if (!check_case(d, "kind=%d n=%d %dx%dx%d to %dx%d accumulate=%d", (int)c.p.kind, c.base.n, c.p.x.c, c.p.x.h,
                    c.p.x.w, c.p.out_h, c.p.out_w, c.accumulate))
      continue;
    case_resample(&c, &r);
    check_op(d, &c.base);
  }
}

/* One row, as torch.nn.functional.interpolate has it. */
CHECK_TEST(known) {
  static const struct {
    cvy_resample_kind kind;
    int in, out;
    double y[8];
  } rows[] = {{CVY_RESAMPLE_NEAREST, 2, 4, {1, 1, 2, 2}},
              {CVY_RESAMPLE_NEAREST, 3, 5, {1, 1, 2, 2, 3}},
              {CVY_RESAMPLE_NEAREST, 4, 2, {1, 3}},
              {CVY_RESAMPLE_LINEAR, 2, 4, {1, 1.25, 1.75, 2}},
              {CVY_RESAMPLE_LINEAR, 4, 2, {1.5, 3.5}},
              {CVY_RESAMPLE_LINEAR, 1, 3, {1, 1, 1}},
              {CVY_RESAMPLE_LINEAR_CORNERS, 2, 4, {1, 4.0 / 3, 5.0 / 3, 2}},
              {CVY_RESAMPLE_LINEAR_CORNERS, 3, 5, {1, 1.5, 2, 2.5, 3}},
              {CVY_RESAMPLE_LINEAR_CORNERS, 3, 1, {1}}};
  const double x[4] = {1, 2, 3, 4};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    const cvy_resample_params p = {
        .n_max = 1, .x = {1, rows[i].in, 1, 16}, .out_h = 1, .out_w = rows[i].out, .kind = rows[i].kind};
    double y[8];
    ref_resample(&p, 1, x, y, NULL);
    for (int k = 0; k < rows[i].out; k++)
      if (!(fabs(y[k] - rows[i].y[k]) <= 1e-12))
        check_fail(d, "row %zu: output %d is %.12g, expected %.12g", i, k, y[k], rows[i].y[k]);
  }
}

/* backward is the transpose of forward: sum dy*y = sum dx*x. */
CHECK_TEST(reference) {
  enum { H = 3, W = 5, C = 2, OUT_H = 7, OUT_W = 4, IN = H * W * C, OUT = OUT_H * OUT_W * C };
  for (int kind = 0; kind < 3; kind++) {
    const cvy_resample_params p = {
        .n_max = 1, .x = {H, W, C, 16}, .out_h = OUT_H, .out_w = OUT_W, .kind = (cvy_resample_kind)kind};
    double x[IN], y[OUT], dy[OUT], dx[IN], a = 0, b = 0;
    for (int i = 0; i < IN; i++) x[i] = sin(i);
    for (int i = 0; i < OUT; i++) dy[i] = cos(3 * i);
    ref_resample(&p, 1, x, y, NULL);
    ref_resample_backward(&p, 1, dy, dx, NULL);
    for (int i = 0; i < OUT; i++) a += dy[i] * y[i];
    for (int i = 0; i < IN; i++) b += dx[i] * x[i];
    if (!(fabs(a - b) <= 1e-12)) check_fail(d, "kind %d: %.12g and %.12g", kind, a, b);
  }
}

CHECK_TEST(arguments) {
  cvy_resample *op = NULL;
  const cvy_resample_params good = {.n_max = 2, .x = {2, 2, 4, 16}, .out_h = 4, .out_w = 4};
  cvy_resample_params bad[5] = {good, good, good, good, good};
  static const char *const texts[] = {"0 samples", "pitch 8", "2x2 pixels to 0x4", "no kind 3", "2^31"};
  bad[0].n_max = 0, bad[1].x.pitch = 8, bad[2].out_h = 0, bad[3].kind = (cvy_resample_kind)3, bad[4].n_max = 1 << 25;
  for (int i = 0; i < 5; i++) {
    check_fails(cvy_resample_create(d->cl, &bad[i], &op), CVY_E_ARGUMENT, texts[i]);
    assert_null(op);
  }
  check_ok(cvy_resample_create(d->cl, &good, &op));
  float zeros[32 * 16] = {0};
  cvy_buffer *const x = check_inout(d, "x", zeros, 8, 16, 16)->cl, *const y =
                                                                       check_inout(d, "y", zeros, 32, 16, 16)->cl;
  check_fails(cvy_resample_forward(op, d->queue, 3, x, y), CVY_E_ARGUMENT, "3 samples");
  check_fails(cvy_resample_forward(op, d->queue, 2, x, x), CVY_E_ARGUMENT, "y has 512 bytes, needs at least 2048");
  check_fails(cvy_resample_backward(op, d->queue, 2, y, NULL, false), CVY_E_ARGUMENT, "dx is NULL");
  check_case_end(d);
  cvy_resample_destroy(&op);
  cvy_resample_destroy(&op); /* NULL is fine */
}

int main(int argc, char **argv) { return check_run(argc, argv, CHECK_DEVICES | CHECK_BOTH_SHAPES); }
