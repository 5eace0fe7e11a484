/* SPDX-License-Identifier: MIT
 * Copies of channels: any place, any count, and what lies beside them stays. */
#include "src/ref/cases.h"
#include "tests/support/check.h"

static void run_case(check_device *d, int stream, channels_case c) {
  case_rng r = check_rng_make(d, stream);
  const cvy_channels_call *const p = &c.call;
  if (!check_case(d, "rows=%d count=%d fill=%d from=%d/%d by %d to=%d/%d by %d accumulate=%d", c.base.n, p->count,
                  p->fill, p->x_at, p->x_pitch, p->x_step, p->y_at, p->y_pitch, p->y_step, p->accumulate))
    return;
  case_channels(&c, &r);
  check_op(d, &c.base);
}

CHECK_TEST(places) {
  /* aligned · 20 + 24 channels and back · one channel · a whole row · unaligned on both sides · every second channel, a
   * group of a shuffle and its gradient, steps on both sides */
  static const cvy_channels_call calls[] = {
      {.count = 32, .x_pitch = 32, .y_pitch = 96, .y_at = 64, .fill = 0},
      {.count = 20, .x_pitch = 32, .y_pitch = 48, .y_at = 0},
      {.count = 24, .x_pitch = 32, .y_pitch = 48, .y_at = 20, .fill = 4},
      {.count = 20, .x_pitch = 48, .y_pitch = 32, .fill = 12},
      {.count = 24, .x_pitch = 48, .x_at = 20, .y_pitch = 32, .fill = 8},
      {.count = 1, .x_pitch = 16, .y_pitch = 16, .y_at = 15},
      {.count = 3, .x_pitch = 4, .y_pitch = 16, .y_at = 5, .fill = 8},
      {.count = 48, .x_pitch = 48, .y_pitch = 48},
      {.count = 37, .x_pitch = 64, .x_at = 11, .y_pitch = 80, .y_at = 3, .fill = 40},
      {.count = 130, .x_pitch = 256, .x_at = 100, .y_pitch = 144, .fill = 14},
      {.count = 20, .x_pitch = 48, .x_at = 4, .x_step = 2, .y_pitch = 32, .fill = 12},
      {.count = 16, .x_pitch = 32, .x_at = 16, .y_pitch = 32, .y_at = 1, .y_step = 2},
      {.count = 16, .x_pitch = 32, .x_at = 1, .x_step = 2, .y_pitch = 32, .y_at = 16},
      {.count = 9, .x_pitch = 32, .x_at = 3, .x_step = 3, .y_pitch = 48, .y_at = 2, .y_step = 4, .fill = 8}};
  for (int i = 0; i < (int)(sizeof calls / sizeof *calls); i++)
    for (int way = 0; way < 2; way++) {
      channels_case c = {.base.n = i % 3 == 0 ? 1 : i % 3 == 1 ? 77 : 515, .call = calls[i]};
      c.call.accumulate = way == 1;
      if (getenv("CVY_TEST_OCLGRIND") && c.base.n > 100) c.base.n = 9; /* a thousand times slower there */
      run_case(d, i, c);
    }
}

CHECK_TEST(arguments) {
  cvy_channels *op = NULL;
  float zeros[64] = {0};
  check_ok(cvy_channels_create(d->cl, &op));
  cvy_buffer *const x = check_input(d, "x", zeros, 2, 32, 32)->cl, *const y = check_inout(d, "y", zeros, 2, 32, 32)->cl;
  const cvy_channels_call good = {.rows = 2, .count = 16, .x = x, .y = y, .x_pitch = 32, .y_pitch = 32, .y_at = 16};
  check_ok(cvy_channels_copy(op, d->queue, &good));
  cvy_channels_call bad[9];
  for (int i = 0; i < 9; i++) bad[i] = good;
  bad[0].rows = 0, bad[1].count = 0, bad[2].fill = 1, bad[3].x_at = 17, bad[4].y_at = -1, bad[5].rows = 3,
  bad[6].y = NULL, bad[7].x_step = 3, bad[8].y_step = -1;
  for (int i = 0; i < 9; i++)
    check_fails(cvy_channels_copy(op, d->queue, &bad[i]), CVY_E_ARGUMENT,
                i < 5 || i > 6 ? "inside of a row"
                : i == 5       ? "needs"
                               : "y is NULL");
  check_case_end(d);
  cvy_channels_destroy(&op);
  cvy_channels_destroy(&op); /* NULL is fine */
}

int main(int argc, char **argv) { return check_run(argc, argv, CHECK_DEVICES | CHECK_BOTH_SHAPES); }
