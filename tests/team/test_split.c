/* SPDX-License-Identifier: MIT
 * The split of a batch against its definition, by brute force and by properties. */
#include "tests/support/check.h"

#include <math.h>
#include <time.h>

#include "src/share/split.h"

enum { MOST = 9 };

static int sum_of(const int *x, int n) {
  int sum = 0;
  for (int i = 0; i < n; i++) sum += x[i];
  return sum;
}

static void expect(check_device *d, const cvy_split_params *p, int n, const int *want) {
  int got[MOST];
  for (int i = 0; i < MOST; i++) got[i] = -1;
  check_ok(cvy_split_shares(p, n, got));
  for (int i = 0; i < p->n_devices; i++)
    if (got[i] != want[i]) check_fail(d, "n = %d: share %d is %d, not %d", n, i, got[i], want[i]);
  for (int i = p->n_devices; i < MOST; i++) assert_int_equal(got[i], -1);
}

/* Largest remainder in whole numbers: sorted by remainder, then index. */
static void brute_force(int total, const int *weights, int n, int *counts) {
  long sum = 0;
  for (int i = 0; i < n; i++) sum += weights[i];
  int left = total;
  bool has_more[MOST] = {false};
  for (int i = 0; i < n; i++) left -= counts[i] = (int)((long)total * weights[i] / sum);
  for (; left > 0; left--) {
    int best = -1;
    for (int i = 0; i < n; i++)
      if (!has_more[i] && weights[i] > 0 &&
          (best < 0 || (long)total * weights[i] % sum > (long)total * weights[best] % sum))
        best = i;
    has_more[best] = true;
    counts[best]++;
  }
}

CHECK_TEST(known) {
  const cvy_split_params even = {.batch = 10, .n_devices = 3};
  expect(d, &even, 10, (const int[]){4, 3, 3});
  expect(d, &even, 2, (const int[]){1, 1, 0});
  expect(d, &even, 0, (const int[]){0, 0, 0});
  const double w[] = {3, 1, 0}, tenths[] = {0.1, 0.3, 0.6}, s[] = {7, 0, 3};
  const cvy_split_params weights = {.batch = 10, .n_devices = 3, .rule = CVY_RULE_WEIGHTS, .values = w};
  expect(d, &weights, 10, (const int[]){8, 2, 0}); /* 7.5 and 2.5: a tie, to the lower index */
  expect(d, &weights, 5, (const int[]){4, 1, 0});
  const cvy_split_params exact = {.batch = 10, .n_devices = 3, .rule = CVY_RULE_WEIGHTS, .values = tenths};
  expect(d, &exact, 10, (const int[]){1, 3, 6}); /* although 0.1 + 0.3 + 0.6 is not 1 in binary */
  expect(d, &exact, 5, (const int[]){1, 1, 3});  /* 0.5, 1.5, 3: the tie again */
  const cvy_split_params shares = {.batch = 10, .n_devices = 3, .rule = CVY_RULE_SHARES, .values = s};
  expect(d, &shares, 10, (const int[]){7, 0, 3});
  expect(d, &shares, 3, (const int[]){2, 0, 1});

  /* groups */
  const cvy_split_params groups = {.batch = 512, .n_devices = 5, .group = 4};
  expect(d, &groups, 512, (const int[]){104, 104, 104, 100, 100});
  expect(d, &groups, 96, (const int[]){20, 20, 20, 20, 16});
  expect(d, &groups, 6, (const int[]){4, 2, 0, 0, 0});
  expect(d, &groups, 22, (const int[]){4, 4, 4, 4, 6});
  expect(d, &groups, 3, (const int[]){3, 0, 0, 0, 0});
  const double slow[] = {100, 1};
  const cvy_split_params uneven = {.batch = 10, .n_devices = 2, .rule = CVY_RULE_WEIGHTS, .values = slow, .group = 4};
  expect(d, &uneven, 10, (const int[]){10, 0}); /* the remainder would hold the slow one up */
  const double rest[] = {4, 6, 0};
  const cvy_split_params given = {.batch = 10, .n_devices = 3, .rule = CVY_RULE_SHARES, .values = rest, .group = 4};
  expect(d, &given, 10, (const int[]){4, 6, 0});
}

/* Random devices, batches, groups: sum, proportion, order, groups. */
CHECK_TEST(properties) {
  case_rng r = check_rng_make(d, 1);
  for (int round = 0; round < 4000; round++) {
    const int devices = case_int(&r, 1, MOST), batch = case_edge(&r, 64, 600),
              group = CASE_ONE_OF(&r, 0, 1, 2, 3, 4, 8, 32);
    const int n = case_int(&r, 0, 3) ? case_int(&r, 0, batch) : batch, g = group > 1 ? group : 1;
    int weights[MOST], full[MOST], want[MOST], got[MOST], sum = 0;
    double values[MOST];
    for (int i = 0; i < devices; i++) sum += weights[i] = CASE_ONE_OF(&r, 0, 1, 1, 2, 3, 10, 97);
    if (sum == 0) weights[devices - 1] = 1;
    for (int i = 0; i < devices; i++) values[i] = weights[i] * 0.1;
    cvy_split_params p = {
        .batch = batch, .n_devices = devices, .rule = CVY_RULE_WEIGHTS, .values = values, .group = group};
    const cvy_split_params even = {.batch = batch, .n_devices = devices, .group = group};
    if (!check_case(d, "split round=%d devices=%d batch=%d group=%d n=%d", round, devices, batch, group, n)) continue;

    check_ok(cvy_split_shares(&p, n, got));
    check_ok(cvy_split_shares(&p, batch, full));
    assert_int_equal(sum_of(got, devices), n);
    assert_int_equal(sum_of(full, devices), batch);
    /* groups dealt out by largest remainder; the remainder behind the last device that got some */
    brute_force(n / g, n == batch ? weights : full, devices, want);
    int last = -1;
    for (int i = 0; i < devices; i++)
      if (got[i] > 0) last = i;
    for (int i = 0; i < devices; i++) {
      assert_true(got[i] >= 0 && (weights[i] > 0 || got[i] == 0));
      const int small = i == last ? n % g : 0;
      if (got[i] > cvy_split_bound(&p, n, full[i]) || (full[i] == 0 && got[i] > 0))
        check_fail(d, "share %d is %d, above the bound for %d of a full batch", i, got[i], full[i]);
      if (got[i] - small != want[i] * g) check_fail(d, "share %d is %d, not %d + %d", i, got[i], want[i] * g, small);
    }
    /* even is the same as equal weights */
    for (int i = 0; i < devices; i++) values[i] = 2.5;
    check_ok(cvy_split_shares(&p, batch, want));
    check_ok(cvy_split_shares(&even, batch, got));
    assert_memory_equal(want, got, (size_t)devices * sizeof *got);
    check_ok(cvy_split_shares(&even, n, got));
    assert_int_equal(sum_of(got, devices), n);
    for (int i = 1; g == 1 && i < devices; i++) assert_true(got[i] <= got[i - 1] && got[i] >= got[0] - 1);
    for (int i = 0; i < devices; i++)
      assert_true(got[i] <= cvy_split_bound(&even, n, want[i]) && (want[i] > 0 || got[i] == 0));
    /* full shares given as shares give the same short batch */
    for (int i = 0; i < devices; i++) values[i] = full[i];
    p.rule = CVY_RULE_SHARES;
    check_ok(cvy_split_shares(&p, n, got));
    for (int i = 0; i < devices; i++) values[i] = weights[i];
    p.rule = CVY_RULE_WEIGHTS;
    check_ok(cvy_split_shares(&p, n, want));
    assert_memory_equal(want, got, (size_t)devices * sizeof *got);
    check_case_end(d);
  }
}

CHECK_TEST(refusals) {
  int out[MOST];
  const double bad_sum[] = {100, 100}, fraction[] = {127.5, 128.5}, negative[] = {-1, 257}, zeros[] = {0, 0};
  const double infinite[] = {1, INFINITY}, groups[] = {130, 126}, fits[] = {128, 128};
  cvy_split_params p = {.batch = 256, .n_devices = 2, .rule = CVY_RULE_SHARES, .values = bad_sum};
  check_fails(cvy_split_shares(&p, 256, out), CVY_E_ARGUMENT, "shares sum to 200; expected the batch size 256");
  p.values = fraction;
  check_fails(cvy_split_shares(&p, 256, out), CVY_E_ARGUMENT, "share of device 0 is 127.5");
  p.values = negative;
  check_fails(cvy_split_shares(&p, 256, out), CVY_E_ARGUMENT, "share of device 0 is -1");
  p.values = NULL;
  check_fails(cvy_split_shares(&p, 256, out), CVY_E_ARGUMENT, "one value per device");
  p.values = groups;
  check_ok(cvy_split_shares(&p, 256, out));
  p.group = 4;
  check_fails(cvy_split_shares(&p, 256, out), CVY_E_ARGUMENT, "share of device 0 is 130; with groups of 4");
  p.values = fits;
  check_ok(cvy_split_shares(&p, 256, out));
  check_fails(cvy_split_shares(&p, 257, out), CVY_E_ARGUMENT, "257 samples");
  check_fails(cvy_split_shares(&p, -1, out), CVY_E_ARGUMENT, "-1 samples");
  p.rule = CVY_RULE_WEIGHTS;
  p.values = zeros;
  check_fails(cvy_split_shares(&p, 256, out), CVY_E_ARGUMENT, "sum to 0");
  p.values = infinite;
  check_fails(cvy_split_shares(&p, 256, out), CVY_E_ARGUMENT, "weight of device 1 is inf");
  p.rule = (cvy_split_rule)7;
  check_fails(cvy_split_shares(&p, 256, out), CVY_E_ARGUMENT, "unknown kind 7");
  check_fails(cvy_split_shares(&(cvy_split_params){.batch = 0, .n_devices = 1}, 0, out), CVY_E_ARGUMENT, "batch 0");
  check_fails(cvy_split_shares(&(cvy_split_params){.batch = 1}, 0, out), CVY_E_ARGUMENT, "0 devices");
}

/* CPU time: a team looks at every size of batch that it may meet, 60,000 where that many samples are a batch. */
static double seconds_of_splits(case_rng *r, int devices) {
  enum { SIZES = 1500 };
  static double values[1024];
  static int shares[1024];
  struct timespec begin, end;
  for (int i = 0; i < devices; i++) values[i] = 1 + 1e-6 * case_int(r, 0, 2000000);
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begin);
  for (int n = 60000 - SIZES; n < 60000; n++)
    check_ok(cvy_split_shares(
        &(cvy_split_params){.batch = 60000, .n_devices = devices, .rule = CVY_RULE_WEIGHTS, .values = values}, n,
        shares));
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);
  return (double)(end.tv_sec - begin.tv_sec) + 1e-9 * (double)(end.tv_nsec - begin.tv_nsec);
}

/* Sixteen times the devices take 27 times as long where remainders are sorted, and more than 160 times where each of
 * them is compared with all others. */
CHECK_TEST(many) {
  case_rng r = check_rng_make(d, 2);
  const double few = seconds_of_splits(&r, 64), many = seconds_of_splits(&r, 1024);
  print_message("64 devices: %.4f s, 1024: %.3f s\n", few, many);
  if (!(many <= 70 * few)) check_fail(d, "splits among 1024 devices took %.3f s, among 64 %.4f", many, few);
}

int main(int argc, char **argv) { return check_run(argc, argv, CHECK_HOST); }
