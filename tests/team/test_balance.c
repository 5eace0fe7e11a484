/* SPDX-License-Identifier: MIT
 * Balance against its definition: known cases, brute force on small ones, properties on teams of up to 64 devices. */
#include "tests/support/check.h"

#include <math.h>

#include "src/share/balance.h"
#include "src/share/split.h"

enum { MOST = 64, POINTS = 5 };

typedef struct team {
  cvy_balance_point points[MOST][POINTS];
  cvy_balance_device devices[MOST];
  cvy_balance_params p;
} team;

static void expect(check_device *d, const cvy_balance_params *p, const int *want) {
  int got[MOST];
  check_ok(cvy_balance_find(p, got, NULL));
  for (int i = 0; i < p->n_devices; i++)
    if (got[i] != want[i]) check_fail(d, "share %d is %d, not %d", i, got[i], want[i]);
}

#define DEVICE(points_, ...)                                                                          \
  (cvy_balance_device) {                                                                              \
    .points = points_, .n_points = (int)(sizeof(points_) / sizeof *(points_)), .cap = -1, __VA_ARGS__ \
  }

static void near(double got, double want) {
  if (!(fabs(got - want) <= 1e-12 * fabs(want))) fail_msg("%.15g, not %.15g", got, want);
}

CHECK_TEST(time) {
  const cvy_balance_point line[] = {{10, 2}, {30, 4}}, bent[] = {{10, 2}, {20, 2}, {40, 6}, {50, 5}}, one[] = {{8, 4}},
                          steep[] = {{10, 1}, {20, 3}};
  cvy_balance_device c = DEVICE(line);
  near(cvy_balance_time(&c, 0), 0);
  near(cvy_balance_time(&c, 1), 1.1); /* fixed cost 1, 0.1 each */
  near(cvy_balance_time(&c, 20), 3);
  near(cvy_balance_time(&c, 130), 14);
  c = DEVICE(bent);
  near(cvy_balance_time(&c, 5), 2); /* flat: all fixed cost */
  near(cvy_balance_time(&c, 25), 3);
  near(cvy_balance_time(&c, 45), 6);                 /* never falling */
  near(cvy_balance_time(&c, 60), 6 + 10 * 4 / 50.0); /* and never free */
  c = DEVICE(one);
  near(cvy_balance_time(&c, 2), 1);
  near(cvy_balance_time(&c, 16), 8);
  c = DEVICE(steep);
  near(cvy_balance_time(&c, 5), 0.5); /* the fixed cost is not below 0 */
  c = DEVICE(line, .multiple = 8);
  near(cvy_balance_time(&c, 25), 4.2); /* as 32 */
  near(cvy_balance_time(&c, 32), 4.2);
  near(cvy_balance_time(&c, 33), 5);
  c = DEVICE(line, .factor = 3, .tail_s = 0.5, .exchange_s = 1);
  near(cvy_balance_compute_time(&c, 10), 6);
  near(cvy_balance_time(&c, 10), 6.5); /* the rest of the exchange is hidden */
  c.exchange_s = 7;
  near(cvy_balance_time(&c, 10), 10);
  cvy_balance_device stale = c; /* all of the exchange beside the next step, which has no tail */
  stale.stale = true;
  near(cvy_balance_time(&stale, 10), 7);
  stale.exchange_s = 5;
  near(cvy_balance_time(&stale, 10), 6);
  near(cvy_balance_time(&stale, 0), 0);
  const cvy_balance_device two[] = {c, DEVICE(line)};
  const cvy_balance_params p = {.batch = 30, .n_devices = 2, .devices = two, .part_s = 0.25};
  near(cvy_balance_step_time(&p, (const int[]){10, 20}), 10.5);
  near(cvy_balance_step_time(&p, (const int[]){0, 30}), 4.25);
}

/* A device with the whole batch exchanges nothing, which may be worth more than another one's help. */
CHECK_TEST(lone) {
  const cvy_balance_point fast[] = {{100, 1}}, slow[] = {{100, 9}}, same[] = {{100, 1}};
  cvy_balance_device two[] = {DEVICE(fast, .exchange_s = 0.8, .tail_s = 0.2),
                              DEVICE(slow, .exchange_s = 0.8, .tail_s = 0.2)};
  cvy_balance_params p = {.batch = 100, .n_devices = 2, .devices = two};
  cvy_balance_why why[2];
  int shares[2];
  expect(d, &p, (const int[]){90, 10});
  near(cvy_balance_step_time(&p, (const int[]){100, 0}), 1.3);
  p.may_be_lone = true;
  near(cvy_balance_step_time(&p, (const int[]){100, 0}), 1);
  near(cvy_balance_step_time(&p, (const int[]){90, 10}), 1.25);
  expect(d, &p, (const int[]){100, 0});
  check_ok(cvy_balance_find(&p, shares, why));
  assert_int_equal(why[1], CVY_BALANCE_NO_GAIN);
  two[0].cap = 99; /* it has no memory for the whole batch */
  expect(d, &p, (const int[]){90, 10});
  two[0].cap = -1;
  two[1] =
      DEVICE(same, .exchange_s = 0.8, .tail_s = 0.2); /* half the time and the exchange is less than the whole time … */
  two[0].exchange_s = two[1].exchange_s = 0.3;
  expect(d, &p, (const int[]){50, 50});
  two[0].tail_s = two[1].tail_s = 0.6; /* … or not; of equal devices the first one */
  expect(d, &p, (const int[]){100, 0});
}

CHECK_TEST(known) {
  const cvy_balance_point fast[] = {{100, 1}}, slow[] = {{100, 3}}, start[] = {{1, 5}, {2, 5.01}};
  cvy_balance_device a[3] = {DEVICE(fast), DEVICE(slow), DEVICE(fast)};
  cvy_balance_params p = {.batch = 512, .n_devices = 2, .devices = a};
  expect(d, &p, (const int[]){384, 128});
  a[1] = DEVICE(fast);
  expect(d, &p, (const int[]){256, 256});
  p.batch = 5;
  expect(d, &p, (const int[]){3, 2});
  p.batch = 512;
  a[1] = DEVICE(fast, .factor = 3); /* slower since it was measured */
  expect(d, &p, (const int[]){384, 128});
  a[0].cap = 300;
  expect(d, &p, (const int[]){300, 212});
  a[0].cap = 0;
  expect(d, &p, (const int[]){0, 512});
  /* a fixed cost that is longer than the whole step of the others */
  a[0] = DEVICE(fast);
  a[1] = DEVICE(start);
  p.batch = 256;
  expect(d, &p, (const int[]){256, 0});
  /* a price for each part */
  a[1] = DEVICE(fast), p.n_devices = 3, p.batch = 300, p.part_s = 0.9;
  expect(d, &p, (const int[]){150, 150, 0});
  p.part_s = 0.4;
  expect(d, &p, (const int[]){100, 100, 100});
  /* a slow link costs a share of its device, unless the exchange has the whole step's time */
  a[0] = DEVICE(fast), a[1] = DEVICE(fast, .exchange_s = 1.5);
  p = (cvy_balance_params){.batch = 300, .n_devices = 2, .devices = a};
  expect(d, &p, (const int[]){200, 100});
  a[1].stale = true;
  expect(d, &p, (const int[]){150, 150});
  /* groups: the remainder ends with the last device at work */
  a[1] = DEVICE(fast), p.n_devices = 2, p.part_s = 0, p.group = 32, p.batch = 500;
  expect(d, &p, (const int[]){256, 244});
  a[1] = DEVICE(fast, .factor = 1000);
  expect(d, &p, (const int[]){500, 0});
  a[1] = DEVICE(fast), a[0] = DEVICE(fast, .factor = 1000);
  expect(d, &p, (const int[]){0, 500});
  p.batch = 20;
  expect(d, &p, (const int[]){0, 20});
  /* tiles: shares are whole ones where they can be */
  a[0] = DEVICE(fast, .multiple = 32), a[1] = DEVICE(slow, .multiple = 32), p.group = 0, p.batch = 512;
  expect(d, &p, (const int[]){384, 128});
  p.batch = 500;
  expect(d, &p, (const int[]){372, 128});
  /* what is too much is taken from who is done last, also where its time does not fall at once */
  const cvy_balance_point flat[] = {{100, 1}, {200, 1}}, lower[] = {{100, 0.8}, {200, 0.9}};
  a[0] = DEVICE(flat), a[1] = DEVICE(lower), p.batch = 350;
  expect(d, &p, (const int[]){51, 299});
  /* shares that are too small for statistics */
  a[0] = DEVICE(fast), a[1] = DEVICE(fast, .factor = 60), p.batch = 256, p.least = 8;
  expect(d, &p, (const int[]){256, 0});
  p.least = 0;
  expect(d, &p, (const int[]){252, 4});
  p.batch = 10, p.least = 8, a[1].factor = 1;
  expect(d, &p, (const int[]){10, 0});
  p.batch = 3;
  expect(d, &p, (const int[]){3, 0});
}

/* Everything small enough to try all shares. */
static bool allowed(const cvy_balance_params *p, const int *shares) {
  const int unit = p->group > 1 ? p->group : 1, rest = p->batch % unit,
            least = p->least < p->batch ? p->least : p->batch;
  int last = -1;
  for (int i = 0; i < p->n_devices; i++)
    if (shares[i] > 0) last = i;
  for (int i = 0; i < p->n_devices; i++) {
    if (p->devices[i].cap >= 0 && shares[i] > p->devices[i].cap) return false;
    if (shares[i] == 0 || (i == last && rest > 0 && shares[i] % unit == rest)) continue;
    if (shares[i] % unit != 0 || shares[i] < least) return false;
  }
  return true;
}

static double try_all(const cvy_balance_params *p, int *shares, int device, int left) {
  double best = INFINITY;
  if (device == p->n_devices - 1) {
    shares[device] = left;
    return allowed(p, shares) ? cvy_balance_step_time(p, shares) : INFINITY;
  }
  for (shares[device] = 0; shares[device] <= left; shares[device]++)
    best = fmin(best, try_all(p, shares, device + 1, left - shares[device]));
  return best;
}

static void make_team(case_rng *r, team *t, int devices, int batch, int ratio) {
  t->p = (cvy_balance_params){.batch = batch, .n_devices = devices, .devices = t->devices};
  for (int i = 0; i < devices; i++) {
    const int points = case_int(r, 1, POINTS);
    const double rate = case_int(r, 1, ratio), fixed = CASE_ONE_OF(r, 0, 0, 1, 5, 40) * rate;
    for (int k = 0, n = 0; k < points; k++) {
      n += case_int(r, 1, batch / 2 + 1);
      /* 10 % of noise: curves that bend and fall */
      t->points[i][k] = (cvy_balance_point){n, (fixed + rate * n) * (1 + 1e-3 * case_int(r, -100, 100))};
    }
    t->devices[i] = (cvy_balance_device){.points = t->points[i],
                                         .n_points = points,
                                         .factor = CASE_ONE_OF(r, 0, 1, 1, 3, 10),
                                         .cap = CASE_ONE_OF(r, -1, -1, -1, -1, 0, 1) * case_int(r, 1, batch),
                                         .multiple = CASE_ONE_OF(r, 0, 1, 2, 4, 32)};
    if (case_int(r, 0, 1)) {
      t->devices[i].exchange_s = case_int(r, 0, batch);
      t->devices[i].tail_s = t->devices[i].exchange_s / 4;
      t->devices[i].stale = case_int(r, 0, 3) == 0;
    }
  }
  if (case_int(r, 0, 1)) t->p.part_s = case_int(r, 0, 5);
  t->p.group = CASE_ONE_OF(r, 0, 0, 1, 2, 3, 4);
  t->p.least = t->p.group > 1 ? 0 : CASE_ONE_OF(r, 0, 1, 2, 4);
}

CHECK_TEST(brute_force) {
  static team t;
  case_rng r = check_rng_make(d, 1);
  int fitted = 0;
  for (int round = 0; round < 3000; round++) {
    const int devices = case_int(&r, 1, 4), batch = case_int(&r, 1, devices > 3 ? 10 : 16);
    int shares[MOST], all[MOST];
    make_team(&r, &t, devices, batch, 12);
    if (!check_case(d, "brute force round=%d devices=%d batch=%d group=%d least=%d", round, devices, batch, t.p.group,
                    t.p.least))
      continue;
    const double best = try_all(&t.p, all, 0, batch);
    bool fits;
    check_ok(cvy_balance_fits(&t.p, &fits));
    assert_int_equal(fits, isfinite(best));
    if (!isfinite(best)) {
      check_fails(cvy_balance_find(&t.p, shares, NULL), CVY_E_DEVICE_MEMORY, "does not fit");
      continue;
    }
    fitted++;
    check_ok(cvy_balance_find(&t.p, shares, NULL));
    if (!allowed(&t.p, shares)) check_fail(d, "shares that break the rules");
    const double got = cvy_balance_step_time(&t.p, shares);
    if (!(got <= best * (1 + 1e-9))) check_fail(d, "%.9g s, %.9g is possible", got, best);
    check_case_end(d);
  }
  assert_true(fitted > 1000);
}

/* 1 to 64 devices, speeds up to a million to one. */
CHECK_TEST(properties) {
  static team t;
  case_rng r = check_rng_make(d, 2);
  for (int round = 0; round < 600; round++) {
    const int devices = case_int(&r, 1, MOST), batch = case_edge(&r, 256, 4096);
    int shares[MOST], even[MOST], again[MOST];
    cvy_balance_why why[MOST];
    make_team(&r, &t, devices, batch, CASE_ONE_OF(&r, 1, 3, 100, 1000000));
    if (case_int(&r, 0, 1)) t.p.group = CASE_ONE_OF(&r, 8, 32, 100), t.p.least = 0;
    if (!check_case(d, "properties round=%d devices=%d batch=%d group=%d least=%d", round, devices, batch, t.p.group,
                    t.p.least))
      continue;
    const cvy_status status = cvy_balance_find(&t.p, shares, why);
    if (status == CVY_E_DEVICE_MEMORY) {
      t.devices[0].cap = -1; /* room for everything */
      check_ok(cvy_balance_find(&t.p, shares, why));
    } else {
      check_ok(status);
    }
    int sum = 0;
    for (int i = 0; i < devices; i++) {
      char text[200] = "";
      sum += shares[i];
      assert_true((why[i] == CVY_BALANCE_WORKS) == (shares[i] > 0));
      cvy_balance_explain(&t.p, shares, why, i, text, sizeof text);
      assert_true(strlen(text) > 10 && strlen(text) < 190);
    }
    assert_int_equal(sum, batch);
    if (!allowed(&t.p, shares)) check_fail(d, "shares that break the rules");
    const double step = cvy_balance_step_time(&t.p, shares);
    check_ok(
        cvy_split_shares(&(cvy_split_params){.batch = batch, .n_devices = devices, .group = t.p.group}, batch, even));
    if (allowed(&t.p, even) && !(step <= cvy_balance_step_time(&t.p, even) * (1 + 1e-9)))
      check_fail(d, "%.9g s, the even split takes %.9g", step, cvy_balance_step_time(&t.p, even));
    check_ok(cvy_balance_find(&t.p, again, NULL));
    assert_memory_equal(shares, again, (size_t)devices * sizeof *again);
    /* a share that the split itself accepts */
    double values[MOST];
    for (int i = 0; i < devices; i++) values[i] = shares[i];
    check_ok(cvy_split_shares(
        &(cvy_split_params){
            .batch = batch, .n_devices = devices, .rule = CVY_RULE_SHARES, .values = values, .group = t.p.group},
        batch, again));
    check_case_end(d);
  }
}

/* A device that becomes faster never makes the step longer, and gets no smaller share where nothing is rounded. */
CHECK_TEST(monotone) {
  static team t;
  case_rng r = check_rng_make(d, 3);
  for (int round = 0; round < 200; round++) {
    const int devices = case_int(&r, 2, 8), which = case_int(&r, 0, devices - 1);
    int before[MOST], after[MOST];
    make_team(&r, &t, devices, 512, 10);
    for (int i = 0; i < devices; i++) t.devices[i].cap = -1;
    if (!check_case(d, "monotone round=%d devices=%d", round, devices)) continue;
    check_ok(cvy_balance_find(&t.p, before, NULL));
    const double slow = cvy_balance_step_time(&t.p, before);
    t.devices[which].factor = (t.devices[which].factor > 0 ? t.devices[which].factor : 1) * 0.4;
    check_ok(cvy_balance_find(&t.p, after, NULL));
    if (!(cvy_balance_step_time(&t.p, after) <= slow * (1 + 1e-9))) check_fail(d, "a faster device made it slower");
    check_case_end(d);
  }
}

CHECK_TEST(reasons) {
  const cvy_balance_point fast[] = {{100, 1}}, late[] = {{1, 5}, {100, 5.5}};
  cvy_balance_device a[3] = {DEVICE(fast), DEVICE(late), DEVICE(fast)};
  a[2].cap = 0;
  const cvy_balance_params p = {.batch = 256, .least = 8, .n_devices = 3, .devices = a};
  int shares[3];
  cvy_balance_why why[3];
  char text[200];
  check_ok(cvy_balance_find(&p, shares, why));
  assert_int_equal(why[0], CVY_BALANCE_WORKS);
  assert_int_equal(why[1], CVY_BALANCE_TOO_SLOW);
  cvy_balance_explain(&p, shares, why, 1, text, sizeof text);
  assert_string_equal(text, "even 8 images would take it 5.04 s; without it a step takes 2.56 s");
  assert_int_equal(why[2], CVY_BALANCE_NO_MEMORY);
  cvy_balance_explain(&p, shares, why, 2, text, sizeof text);
  assert_string_equal(text, "its memory has room for 0 images; the smallest share is 8");
  a[1] = DEVICE(fast, .factor = 10), a[2] = DEVICE(fast);
  check_ok(cvy_balance_find(&(cvy_balance_params){.batch = 12, .least = 6, .n_devices = 3, .devices = a}, shares, why));
  assert_int_equal(why[1], CVY_BALANCE_TOO_SLOW);
  a[1].factor = 1;
  check_ok(cvy_balance_find(&(cvy_balance_params){.batch = 12, .least = 6, .n_devices = 3, .devices = a}, shares, why));
  assert_int_equal(shares[0], 6);
  assert_int_equal(why[2], CVY_BALANCE_NO_GAIN);
  /* differing by more than a tenth */
  a[1].factor = 1.09;
  assert_false(cvy_balance_differ(&p, 100, 0.1));
  a[1].factor = 1.11;
  assert_true(cvy_balance_differ(&p, 100, 0.1));
  a[1].cap = 50;
  assert_false(cvy_balance_differ(&p, 100, 0.1));
}

CHECK_TEST(refusals) {
  const cvy_balance_point good[] = {{1, 1}}, zero[] = {{1, 0}}, twice[] = {{2, 1}, {2, 2}}, none[] = {{1, NAN}};
  cvy_balance_device a = DEVICE(good);
  int out[1];
  const cvy_balance_params p = {.batch = 4, .n_devices = 1, .devices = &a};
  check_ok(cvy_balance_find(&p, out, NULL));
  assert_int_equal(out[0], 4);
  a.cap = 3;
  check_fails(cvy_balance_find(&p, out, NULL), CVY_E_DEVICE_MEMORY, "batch of 4 samples");
  bool fits;
  check_fails(cvy_balance_fits(&(cvy_balance_params){.n_devices = 1, .devices = &a}, &fits), CVY_E_ARGUMENT, "batch 0");
  a = DEVICE(zero);
  check_fails(cvy_balance_find(&p, out, NULL), CVY_E_ARGUMENT, "device 0: 1 samples in 0 s");
  a = DEVICE(twice);
  check_fails(cvy_balance_find(&p, out, NULL), CVY_E_ARGUMENT, "expected ascending samples");
  a = DEVICE(none);
  check_fails(cvy_balance_find(&p, out, NULL), CVY_E_ARGUMENT, "nan s");
  a = DEVICE(good, .factor = -1);
  check_fails(cvy_balance_find(&p, out, NULL), CVY_E_ARGUMENT, "factor -1");
  a.n_points = 0;
  check_fails(cvy_balance_find(&p, out, NULL), CVY_E_ARGUMENT, "device 0 has no measurement");
  check_fails(cvy_balance_find(&(cvy_balance_params){.n_devices = 1, .devices = &a}, out, NULL), CVY_E_ARGUMENT,
              "batch 0");
}

int main(int argc, char **argv) { return check_run(argc, argv, CHECK_HOST); }
