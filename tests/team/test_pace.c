/* SPDX-License-Identifier: MIT
 * When shares follow speeds: a simulated team whose devices slow down, recover, are noisy. */
#include "tests/support/check.h"

#include <math.h>

#include "src/share/pace.h"

enum { N = 2, BATCH = 512 };

typedef struct sim {
  cvy_pace *pace;
  int shares[N], changes, last_change, step;
  double factor[N], noise, step_s;
  case_rng rng;
} sim;

static double seconds(int n) { return 0.05 + 0.005 * n; }

static sim begin(check_device *d, double factor0, double factor1) {
  sim s = {.factor = {factor0, factor1}, .rng = check_rng_make(d, 1)};
  check_ok(cvy_pace_create(N, BATCH, 0, 8, &s.pace));
  for (int i = 0; i < N; i++) {
    cvy_pace_add_point(s.pace, i, 64, s.factor[i] * seconds(64));
    cvy_pace_add_point(s.pace, i, 8, s.factor[i] * seconds(8));
    cvy_pace_add_point(s.pace, i, 8, 2 * s.factor[i] * seconds(8)); /* the shorter one stays */
  }
  check_ok(cvy_pace_first(s.pace, s.shares));
  return s;
}

/* Steps whose times follow the devices' factors; counts changes. */
static void run(sim *s, int steps) {
  for (int k = 0; k < steps; k++, s->step++) {
    double busy[N], before, after;
    int next[N];
    bool better;
    s->step_s = 0;
    for (int i = 0; i < N; i++) {
      const double late = 1 + s->noise * case_int(&s->rng, -100, 100) / 100.0;
      busy[i] = s->shares[i] > 0 ? s->factor[i] * late * seconds(s->shares[i]) : 0;
      s->step_s = fmax(s->step_s, busy[i]);
    }
    cvy_pace_step(s->pace, s->shares, busy);
    check_ok(cvy_pace_propose(s->pace, s->shares, next, &better, &before, &after));
    if (!better) continue;
    assert_true(after < before * (1 - CVY_PACE_GAIN));
    memcpy(s->shares, next, sizeof next);
    cvy_pace_changed(s->pace, 0.1);
    s->changes++;
    s->last_change = s->step;
  }
}

static double best(const sim *s) { return BATCH * 0.005 / (1 / s->factor[0] + 1 / s->factor[1]); }

CHECK_TEST(first) {
  sim s = begin(d, 1, 3);
  assert_int_equal(s.shares[0] + s.shares[1], BATCH);
  assert_true(s.shares[0] > 360 && s.shares[0] < 400);
  cvy_pace_destroy(&s.pace);
  s = begin(d, 1, 1.01); /* too little to win */
  assert_int_equal(s.shares[0], 256);
  cvy_pace_destroy(&s.pace);
  s = begin(d, 1, 1.2);
  assert_true(s.shares[0] > 270);
  cvy_pace_destroy(&s.pace);
  s = begin(d, 1, 1);
  s.pace->devices[0].cap = 200; /* even does not fit */
  check_ok(cvy_pace_first(s.pace, s.shares));
  assert_int_equal(s.shares[0], 200);
  cvy_pace_destroy(&s.pace);
}

CHECK_TEST(slowdown) {
  sim s = begin(d, 1, 1);
  run(&s, 30);
  assert_int_equal(s.changes, 0);
  s.factor[1] = 3;
  s.last_change = 0;
  run(&s, 20);
  assert_true(s.changes >= 1 && s.last_change - 30 < 20);
  run(&s, 1);
  if (!(s.step_s < 1.1 * (best(&s) + 0.15))) check_fail(d, "20 steps after the slowdown: %g s a step", s.step_s);
  const int changes = s.changes;
  run(&s, 50);
  assert_int_equal(s.changes, changes); /* and it rests */
  assert_true(fabs(cvy_pace_factor(s.pace, 1) - 3) < 1e-9 && fabs(cvy_pace_factor(s.pace, 0) - 1) < 1e-9);
  s.factor[1] = 1; /* as fast as before again */
  run(&s, 20);
  assert_true(s.changes > changes && abs(s.shares[0] - s.shares[1]) < 30);
  cvy_pace_destroy(&s.pace);
}

/* Noise and single slow steps move nothing. */
CHECK_TEST(calm) {
  sim s = begin(d, 1, 2);
  s.noise = 0.04;
  run(&s, 300);
  assert_int_equal(s.changes, 0);
  for (int k = 0; k < 20; k++) {
    s.factor[0] = 8;
    run(&s, 1);
    s.factor[0] = 1;
    run(&s, 6);
  }
  assert_int_equal(s.changes, 0);
  /* nor does what would not pay for the change */
  cvy_pace_changed(s.pace, 1000);
  s.factor[0] = 2;
  run(&s, 40);
  assert_int_equal(s.changes, 0);
  cvy_pace_changed(s.pace, 0.1);
  run(&s, 10);
  assert_true(s.changes > 0);
  cvy_pace_destroy(&s.pace);
}

/* A device that no longer pays for itself is left out; the others do not wait for its window then. */
CHECK_TEST(left_out) {
  sim s = begin(d, 1, 1);
  s.factor[1] = 2000;
  run(&s, 20);
  assert_int_equal(s.shares[1], 0);
  assert_int_equal(s.pace->why[1], CVY_BALANCE_TOO_SLOW);
  const int changes = s.changes;
  s.factor[0] = 3;
  run(&s, 20);
  assert_int_equal(s.changes, changes);
  s.factor[1] = 1; /* found when it is tried again */
  cvy_pace_try(s.pace, 1, 8, seconds(8));
  assert_true(fabs(cvy_pace_factor(s.pace, 1) - 1) < 1e-9);
  run(&s, 20);
  assert_true(s.shares[1] > s.shares[0]);
  cvy_pace_destroy(&s.pace);
}

/* Caps that leave no way to place the batch are none; a device that is lost keeps that it gets nothing. */
CHECK_TEST(caps) {
  sim s = begin(d, 1, 1);
  bool lifted;
  s.pace->devices[0].cap = BATCH - 8, s.pace->devices[1].cap = 8;
  check_ok(cvy_pace_lift_caps(s.pace, &lifted));
  assert_false(lifted);
  check_ok(cvy_pace_first(s.pace, s.shares));
  assert_int_equal(s.shares[1], 8);
  s.pace->devices[0].cap = BATCH - 4, s.pace->devices[1].cap = 5; /* room for one more, but shares are 8 or more */
  check_ok(cvy_pace_lift_caps(s.pace, &lifted));
  assert_true(lifted);
  assert_int_equal(s.pace->devices[0].cap, -1);
  check_ok(cvy_pace_first(s.pace, s.shares));
  assert_int_equal(s.shares[0], BATCH / 2);
  s.pace->devices[0].cap = s.pace->devices[1].cap = 300;
  run(&s, 10);
  cvy_pace_lose(s.pace, 1);
  s.shares[0] = BATCH, s.shares[1] = 0;
  run(&s, 10); /* nothing better, and no failure */
  assert_int_equal(s.changes, 0);
  check_ok(cvy_pace_lift_caps(s.pace, &lifted));
  assert_true(lifted);
  assert_int_equal(s.pace->devices[0].cap, -1);
  assert_int_equal(s.pace->devices[1].cap, 0);
  run(&s, 10);
  assert_int_equal(s.shares[0], BATCH);
  cvy_pace_lose(s.pace, 0); /* nobody is left */
  check_ok(cvy_pace_lift_caps(s.pace, &lifted));
  assert_false(lifted);
  cvy_pace_destroy(&s.pace);
}

int main(int argc, char **argv) { return check_run(argc, argv, CHECK_HOST); }
