/* SPDX-License-Identifier: MIT
 * The learning rate of each step against its formulas, and what is refused. */
#include <limits.h>
#include <math.h>

#include "convoy/train.h"
#include "tests/support/check.h"

enum { PER_EPOCH = 7, EPOCHS = 6, STEPS = PER_EPOCH * EPOCHS };

static float at(const cvy_lr_schedule *s, long step) { return cvy_lr_at(s, 0.4f, step, PER_EPOCH, STEPS); }

static void expect(check_device *d, const cvy_lr_schedule *s, long step, double want) {
  const float got = at(s, step);
  if (!(fabs((double)got - want) <= 1e-7 * fabs(want)))
    check_fail(d, "schedule %d, step %ld: rate %.9g, not %.9g", (int)s->kind, step, (double)got, want);
}

CHECK_TEST(formulas) {
  const double lr = (double)0.4f, pi = acos(-1);
  for (int epochs = 0; epochs < 2; epochs++) {
    const cvy_lr_schedule constant = {0}, warm = {.warmup = epochs ? 2 : 5, .warmup_epochs = epochs},
                          cosine = {.kind = CVY_LR_COSINE, .warmup = epochs ? 2 : 5, .warmup_epochs = epochs},
                          linear = {.kind = CVY_LR_LINEAR},
                          step_down = {
                              .kind = CVY_LR_STEP, .every = epochs ? 2 : 5, .every_epochs = epochs, .gamma = 0.5f};
    const long w = epochs ? 2 * PER_EPOCH : 5;
    for (long i = 0; i < STEPS; i++) {
      assert_true(at(&constant, i) == 0.4f);
      expect(d, &warm, i, i < w ? lr * (double)(i + 1) / (double)w : lr);
      expect(d, &cosine, i,
             i < w ? lr * (double)(i + 1) / (double)w : lr * (1 + cos(pi * (double)(i - w) / (double)(STEPS - w))) / 2);
      expect(d, &linear, i, lr * (double)(STEPS - i) / STEPS);
      expect(d, &step_down, i, lr * pow(0.5, (double)(i / w)));
      assert_true(at(&cosine, i) > 0 && at(&linear, i) > 0);
    }
    /* the last step of the warm-up has the whole rate, and so has the first of the curve */
    assert_true(at(&warm, w - 1) == 0.4f && at(&cosine, w - 1) == 0.4f && at(&cosine, w) == 0.4f);
  }
  /* far along: a factor below 1 goes to 0 and one above 1 does not hang */
  const cvy_lr_schedule down = {.kind = CVY_LR_STEP, .every = 1, .gamma = 0.1f},
                        up = {.kind = CVY_LR_STEP, .every = 1, .gamma = 1e6f};
  assert_true(cvy_lr_at(&down, 1, 1000000000, 1000, 2000000000) == 0);
  assert_true(isinf(cvy_lr_at(&up, 1, 1000000000, 1000, 2000000000)));
}

CHECK_TEST(refusals) {
  check_ok(cvy_lr_check(&(cvy_lr_schedule){0}, PER_EPOCH, STEPS));
  check_ok(cvy_lr_check(&(cvy_lr_schedule){.warmup = STEPS - 1}, PER_EPOCH, STEPS));
  check_fails(cvy_lr_check(&(cvy_lr_schedule){.warmup = STEPS}, PER_EPOCH, STEPS), CVY_E_ARGUMENT,
              "warm-up of 42 (42 steps)");
  check_fails(cvy_lr_check(&(cvy_lr_schedule){.warmup = EPOCHS, .warmup_epochs = true}, PER_EPOCH, STEPS),
              CVY_E_ARGUMENT, "warm-up of 6e (42 steps)");
  check_fails(cvy_lr_check(&(cvy_lr_schedule){.warmup = 1L << 62, .warmup_epochs = true}, PER_EPOCH, STEPS),
              CVY_E_ARGUMENT, "expected less than the run's 6");
  check_fails(cvy_lr_check(&(cvy_lr_schedule){.warmup = -1}, PER_EPOCH, STEPS), CVY_E_ARGUMENT, "warm-up of -1");
  check_fails(cvy_lr_check(&(cvy_lr_schedule){.kind = CVY_LR_STEP, .every = 0, .gamma = 0.1f}, PER_EPOCH, STEPS),
              CVY_E_ARGUMENT, "every 0");
  check_fails(cvy_lr_check(&(cvy_lr_schedule){.kind = CVY_LR_STEP, .every = 3}, PER_EPOCH, STEPS), CVY_E_ARGUMENT,
              "times 0");
  check_fails(cvy_lr_check(&(cvy_lr_schedule){.kind = (cvy_lr_kind)9}, PER_EPOCH, STEPS), CVY_E_ARGUMENT, "schedule 9");
}

/* However many intervals there were. */
CHECK_TEST(long) {
  const cvy_lr_schedule often = {.kind = CVY_LR_STEP, .every = 1, .gamma = 1.0f};
  expect(d, &often, LONG_MAX, 0.4f);
  const cvy_lr_schedule slow = {.kind = CVY_LR_STEP, .every = 1, .gamma = 0.99999994f};
  double want = 0.4f;
  for (int i = 0; i < 1000003; i++) want *= (double)slow.gamma;
  expect(d, &slow, 1000003, want);
}

int main(int argc, char **argv) { return check_run(argc, argv, CHECK_HOST); }
