/* SPDX-License-Identifier: MIT
 * Dropout against the reference, and what its numbers must and must not depend on. */
#include <math.h>

#include "src/ref/cases.h"
#include "src/ref/ref.h"
#include "tests/support/check.h"

CHECK_TEST(shapes) {
  static const int shapes[][4] = {{1, 1, 1, 16}, {5, 3, 2, 20}, {2, 7, 7, 48}, {33, 1, 1, 130}, {3, 1, 1, 4096}};
  for (int i = 0; i < (int)(sizeof shapes / sizeof *shapes); i++)
    for (int way = 0; way < 3; way++) {
      if (getenv("CVY_TEST_OCLGRIND") && shapes[i][3] > 128) continue; /* a thousand times slower there */
      dropout_case c = {.base.n = shapes[i][0],
                        .p = {.n_max = shapes[i][0] + i % 2,
                              .x = {shapes[i][1], shapes[i][2], shapes[i][3], cvy_pitch_of(shapes[i][3])},
                              .p = way == 0   ? 0.5f
                                   : way == 1 ? 0.2f
                                              : 0,
                              .layer = 3 * i,
                              .seed = way == 1 ? UINT64_C(0x123456789abcdef0) : 7},
                        .epoch = way,
                        .accumulate = way == 2,
                        .in_place = way == 1};
      case_rng r = check_rng_make(d, 10 * i + way);
      if (!check_case(d, "n=%d %dx%dx%d p=%g", c.base.n, c.p.x.c, c.p.x.h, c.p.x.w, (double)c.p.p)) continue;
      case_dropout(&c, &r);
      check_op(d, &c.base);
    }
}

/* The reference drops from a sample of 1x1x64 ones; kept: what it leaves. */
static void draw(check_device *d, const cvy_dropout_params *p, int sample, int epoch, double kept[64]) {
  double ones[64];
  for (int i = 0; i < 64; i++) ones[i] = 1;
  ref_dropout(p, 1, &sample, epoch, ones, kept);
}

CHECK_TEST(numbers) {
  const cvy_dropout_params p = {.n_max = 1, .x = {1, 1, 64, 64}, .p = 0.25f, .layer = 4, .seed = 9};
  double base[64], other[64];
  draw(d, &p, 17, 2, base);
  for (int what = 0; what < 6; what++) {
    cvy_dropout_params q = p;
    if (what == 1) q.seed++;
    if (what == 2) q.layer++;
    if (what == 3) q.n_max = 100; /* how many there are at once must not matter */
    draw(d, &q, what == 4 ? 18 : 17, what == 5 ? 3 : 2, other);
    const bool same = memcmp(base, other, sizeof base) == 0;
    if (same != (what == 0 || what == 3))
      check_fail(d, "change %d: the draw is %s", what, same ? "the same" : "another");
  }
  int dropped = 0;
  for (int sample = 0; sample < 400; sample++) {
    draw(d, &p, sample, 0, other);
    for (int i = 0; i < 64; i++) {
      dropped += other[i] == 0;
      if (other[i] != 0 && fabs(other[i] - 4.0 / 3) > 1e-12) check_fail(d, "a value is scaled to %g", other[i]);
    }
  }
  if (abs(dropped - 6400) > 280)
    check_fail(d, "%d of 25600 are dropped, 6400 are expected", dropped); /* four deviations */
}

CHECK_TEST(arguments) {
  cvy_dropout *op = NULL;
  const cvy_dropout_params good = {.n_max = 2, .x = {1, 1, 3, 16}, .p = 0.5f};
  cvy_dropout_params bad[6] = {good, good, good, good, good, good};
  static const char *const texts[] = {"p 1", "p -0.1", "p nan", "0 samples", "pitch 8", "layer -1"};
  bad[0].p = 1, bad[1].p = -0.1f, bad[2].p = NAN, bad[3].n_max = 0, bad[4].x.pitch = 8, bad[5].layer = -1;
  for (int i = 0; i < 6; i++) {
    check_fails(cvy_dropout_create(d->cl, &bad[i], &op), CVY_E_ARGUMENT, texts[i]);
    assert_null(op);
  }
  check_ok(cvy_dropout_create(d->cl, &good, &op));
  float zeros[32] = {0};
  const int numbers[2] = {0, 1};
  cvy_buffer *const x = check_inout(d, "x", zeros, 2, 16, 16)->cl,
                    *const s = check_input_bytes(d, "samples", numbers, sizeof numbers)->cl;
  check_fails(cvy_dropout_run(op, d->queue, 3, s, 0, x, x, false), CVY_E_ARGUMENT, "3 samples");
  check_fails(cvy_dropout_run(op, d->queue, 2, NULL, 0, x, x, false), CVY_E_ARGUMENT, "samples is NULL");
  check_fails(cvy_dropout_run(op, d->queue, 2, s, 0, x, NULL, false), CVY_E_ARGUMENT, "y is NULL");
  check_ok(cvy_dropout_run(op, d->queue, 2, s, 0, x, x, false));
  check_case_end(d);
  cvy_dropout_destroy(&op);
  cvy_dropout_destroy(&op); /* NULL is fine */
}

int main(int argc, char **argv) { return check_run(argc, argv, CHECK_DEVICES | CHECK_BOTH_SHAPES); }
