/* SPDX-License-Identifier: MIT
 * The rules for standings of other nodes (src/fleet/standing.h): right ones are let through, and each rule has a
 * message that breaks it alone. */
#include "tests/support/check.h"

#include <string.h>

#include "src/fleet/standing.h"

/* Node 1 of three, in round 7, hears node 2, which has 10 devices. */
static const cvy_standing_expected expected = {.size = 3, .self = 1, .from = 2, .view = 7, .round = 7, .devices = 10};

static cvy_standing_message right(void) {
  cvy_standing_message m = {.magic = CVY_STANDING_MAGIC, .round = 8, .view = 7, .done = 3};
  m.devices[0] = 0xff, m.devices[1] = 3;
  return m;
}

static void expect(cvy_standing_message m, const char *why) {
  const char *const got = cvy_standing_wrong(&m, &expected);
  if (!why) {
    assert_null(got);
    return;
  }
  assert_non_null(got);
  assert_non_null(strstr(got, why));
}

CHECK_TEST(right_ones) {
  (void)d;
  cvy_standing_message m = right();
  expect(m, NULL);
  m.ended = 1, m.view = 6; /* node 0 has ended */
  expect(m, NULL);
  m.view = 4, m.round = 1000000; /* it has gone on alone, and for long */
  expect(m, NULL);
  m = right();
  m.round = 1; /* an old one */
  expect(m, NULL);
  m.round = expected.round + CVY_STANDING_ROUNDS;
  expect(m, NULL);
  for (m.stops = 0; m.stops <= CVY_STANDING_WAS_ASKED; m.stops++) expect(m, NULL);
  m = right();
  memset(m.devices, 0, sizeof m.devices);
  expect(m, NULL);
}

CHECK_TEST(wrong_ones) {
  (void)d;
  cvy_standing_message m = right();
  m.magic++;
  expect(m, "not a standing");
  m = right(), m.view = 15;
  expect(m, "nodes that the fleet does not have");
  m = right(), m.ended = 8;
  expect(m, "nodes that the fleet does not have");
  m = right(), m.view = 3;
  expect(m, "in which it is not itself");
  m = right(), m.ended = 2;
  expect(m, "this node has, which runs");
  m = right(), m.ended = 4;
  expect(m, "it has ended itself");
  m = right(), m.round = 0;
  expect(m, "of a round that no node is in");
  m = right(), m.round = UINT32_MAX - CVY_STANDING_ROUNDS + 1;
  expect(m, "of a round that no node is in");
  m = right(), m.round = expected.round + CVY_STANDING_ROUNDS + 1;
  expect(m, "far ahead");
  m = right(), m.stops = CVY_STANDING_WAS_ASKED + 1;
  expect(m, "unknown reason");
  m = right(), m.devices[1] = 7; /* the eleventh */
  expect(m, "devices that it does not have");
  m = right(), m.devices[CVY_FLEET_DEVICES / 8 - 1] = 0x80;
  expect(m, "devices that it does not have");
}

/* Of 64 nodes each has a bit. */
CHECK_TEST(many_nodes) {
  (void)d;
  const cvy_standing_expected all = {
      .size = 64, .self = 0, .from = 63, .view = ~(uint64_t)0, .round = 1, .devices = 512};
  cvy_standing_message m = {.magic = CVY_STANDING_MAGIC, .round = 2, .view = ~(uint64_t)0};
  memset(m.devices, 0xff, sizeof m.devices);
  assert_null(cvy_standing_wrong(&m, &all));
}

CHECK_TEST(done) {
  (void)d;
  assert_true(cvy_standing_done_fits(5, 5) && cvy_standing_done_fits(6, 5));
  assert_true(!cvy_standing_done_fits(4, 5) && !cvy_standing_done_fits(7, 5) && !cvy_standing_done_fits(-1, 5));
  assert_true(!cvy_standing_done_fits(INT64_MAX, 0) && !cvy_standing_done_fits(INT64_MIN, 0));
}

int main(int argc, char **argv) { return check_run(argc, argv, CHECK_HOST); }
