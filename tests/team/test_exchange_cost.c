/* SPDX-License-Identifier: MIT
 * The size of buckets by what an exchange costs (src/team/exchange_cost.h): the formula, a measurement, a team that
 * takes the size. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "src/team/exchange_cost.h"
#include "src/team/publish.h"
#include "tests/support/team_net.h"

enum { BATCH = 12, STEPS = 4 };

static const double MIB = 1 << 20;

/* The power of two next to the least of bytes / b * bucket_s + b * byte_s. */
CHECK_TEST(sizes) {
  static const struct {
    double bucket_s, s_per_mib, mib, want;
  } cases[] = {{1e-4, 1e-4, 43, 8},  {1e-4, 1e-4, 4, 2},     {1e-4, 1e-3, 43, 2}, {1e-5, 1e-3, 43, 0.5},
               {1e-6, 1e-3, 1, .25}, {1e-2, 1e-4, 4000, 64}, {0, 0, 43, 1},       {1e-4, 1e-4, 0, 1}};
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
    const cvy_exchange_cost cost = {cases[c].bucket_s, cases[c].s_per_mib / MIB};
    const double bytes = cases[c].mib * MIB, got = cvy_exchange_bucket_mib(&cost, bytes);
    if (got != cases[c].want) check_fail(d, "case %zu: buckets of %g MiB, not %g", c, got, cases[c].want);
    if (cost.byte_s == 0 || bytes == 0) continue;
    double best = 0, least_s = INFINITY;
    for (double mib = 0.25; mib <= 64; mib *= 2) {
      const double seconds = cases[c].mib / mib * cost.bucket_s + mib * cases[c].s_per_mib;
      if (seconds < least_s) best = mib, least_s = seconds;
    }
    assert_true(fabs(log2(got / best)) <= 1);
  }
}

CHECK_TEST(teams) {
  (void)d;
  const cvy_exchange_cost costs[] = {{1e-4, 2e-10}, {3e-4, 1e-10}, {1e-4, 0}};
  const cvy_exchange_cost two = cvy_exchange_cost_together(costs, 2), three = cvy_exchange_cost_together(costs, 3);
  assert_true(fabs(two.bucket_s - 4e-4) < 1e-12);
  assert_true(two.byte_s == 2e-10);
  assert_true(three.byte_s == 0 && three.bucket_s == 0); /* one of them was not measured */
}

/* A bucket costs calls and waits; eight MiB take longer than eight KiB. */
CHECK_TEST(measured) {
  cvy_exchange_cost cost;
  check_ok(cvy_exchange_cost_measure(d->cl, &cost));
  assert_true(cost.bucket_s > 1e-7 && cost.bucket_s < 1);
  assert_true(cost.byte_s > 1e-13 && cost.byte_s < 1e-5);
}

/* replicas: 1 or 2 */
static cvy_team *train(check_device *d, int replicas, double bucket_mib, const char *freeze) {
  static const double even[2] = {BATCH / 2, BATCH / 2}, whole[1] = {BATCH};
  const cvy_team_params params = {.batch = BATCH,
                                  .momentum = 0.9f,
                                  .split = CVY_SPLIT_SHARES,
                                  .split_values = replicas == 1 ? whole : even,
                                  .tune = CVY_TUNE_OFF,
                                  .conv_algo = "direct",
                                  .freeze = freeze,
                                  .bucket_mib = bucket_mib};
  cvy_team *const team = check_team(d, check_devices(d, replicas == 1 ? "" : "*2"), net, &params, 3, data);
  int32_t samples[BATCH];
  for (int s = 0; s < STEPS; s++) {
    for (int i = 0; i < BATCH; i++) samples[i] = (s * 17 + i * 7) % SAMPLES;
    check_ok(cvy_team_step(team, samples, BATCH, 0.05f));
  }
  check_ok(cvy_team_sync(team));
  return team;
}

/* A team that chooses the size has the weights of one with 1 MiB, also with frozen layers. For this small network it
 * chooses the smallest size. */
CHECK_TEST(chosen) {
  static const char *const frozen[] = {NULL, "0"};
  char *const before = getenv("CVY_NO_TUNE"), *const kept = before ? strdup(before) : NULL;
  make_net(d);
  for (int f = 0; f < 2; f++) {
    if (!check_case(d, "frozen %d", f)) continue;
    cvy_team *const given = train(d, 2, 1, frozen[f]);
    unsetenv("CVY_NO_TUNE");
    cvy_team *const chosen = train(d, 2, 0, frozen[f]);
    if (kept) setenv("CVY_NO_TUNE", kept, 1);
    assert_ptr_equal(chosen->layout, &chosen->own_layout);
    assert_int_equal(chosen->layout->n_frozen_floats > 0, f);
    assert_int_equal(chosen->layout->n_frozen_floats, given->layout->n_frozen_floats);
    assert_int_equal(chosen->layout->n_floats, given->layout->n_floats);
    if (memcmp(cvy_ledger_w(chosen->ledger), cvy_ledger_w(given->ledger), given->layout->n_floats * sizeof(float)) != 0)
      check_fail(d, "buckets of another size change the weights");
    check_case_end(d);
  }
  free(kept);
  drop_net(d);
}

/* A lone card has large buckets, a lone processor those of 1 MiB, and both the weights that any buckets give. */
CHECK_TEST(lone) {
  char *const before = getenv("CVY_NO_TUNE"), *const kept = before ? strdup(before) : NULL;
  make_net(d);
  for (int simt = 0; simt < 2; simt++) {
    if (!check_case(d, "lone, simt %d", simt)) continue;
    setenv("CVY_FORCE_SHAPE", simt ? "simt" : "cpu", 1);
    cvy_team *const given = train(d, 1, 0.001, NULL);
    unsetenv("CVY_NO_TUNE");
    cvy_team *const chosen = train(d, 1, 0, NULL);
    if (kept) setenv("CVY_NO_TUNE", kept, 1);
    unsetenv("CVY_FORCE_SHAPE");
    if ((chosen->layout == &chosen->own_layout) != simt) check_fail(d, "simt %d: buckets are not as expected", simt);
    assert_true(chosen->layout->n_buckets < given->layout->n_buckets);
    if (memcmp(cvy_ledger_w(chosen->ledger), cvy_ledger_w(given->ledger), given->layout->n_floats * sizeof(float)) != 0)
      check_fail(d, "buckets of another size change the weights");
    check_case_end(d);
  }
  free(kept);
  drop_net(d);
}

int main(int argc, char **argv) { return check_run(argc, argv, CHECK_DEVICES | CHECK_NOT_RUSTICL); }
