/* SPDX-License-Identifier: MIT
 * What the links of a fleet add to the exchange of its devices. */
#include "tests/support/check.h"

#include <math.h>

#include "src/team/fleet_pace.h"

static bool near(double a, double b) { return fabs(a - b) <= 1e-12 * fabs(b); }

/* Three nodes: the first link is the slow one, the second one is slow downwards. */
CHECK_TEST(chain) {
  const cvy_link_rate rates[] = {{.latency_s = 1e-4, .both_up = 1e8, .both_down = 1e8},
                                 {.latency_s = 1e-5, .both_up = 1e9, .both_down = 5e8}};
  const double bytes = 4e7, last = 1e6;
  (void)d;
  double before = INFINITY;
  for (int r = 0; r < 3; r++) {
    const cvy_chain_cost cost = cvy_fleet_pace_chain(rates, 3, r, bytes, last);
    assert_true(near(cost.whole_s, 0.4)); /* the slowest link, for all nodes */
    assert_true(cost.way_s < before);
    before = cost.way_s;
  }
  assert_true(before == 0); /* the last node waits for no other one */
  assert_true(near(cvy_fleet_pace_chain(rates, 3, 1, bytes, last).way_s, 1e-3 + 2e-3 + 2e-5));
  assert_true(near(cvy_fleet_pace_chain(rates, 3, 0, bytes, last).way_s, 1e-3 + 2e-3 + 2e-5 + 2e-2 + 2e-4));
  /* of three pieces two follow the first one, as fast as the slowest link takes them */
  const double piece = (double)(1 << 20);
  assert_true(near(cvy_fleet_pace_chain(rates, 3, 1, bytes, 3 * piece).way_s, piece / 1e9 + 3 * piece / 5e8 + 2e-5));
  const cvy_link_rate fast_up = {.both_up = 1e9, .both_down = 1e7};
  assert_true(near(cvy_fleet_pace_chain(&fast_up, 2, 0, bytes, last).whole_s, 4));
}

int main(int argc, char **argv) { return check_run(argc, argv, CHECK_HOST); }
