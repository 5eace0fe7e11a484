/* SPDX-License-Identifier: MIT
 * How time divides among uses, and where a device's clock lies: no device is needed. */
#include "tests/support/check.h"

#include "src/times/usage.h"

static void add(cvy_spans *s, uint64_t begin, uint64_t end) { assert_true(cvy_spans_add(s, begin, end)); }

static void clear(cvy_spans uses[CVY_USE_IDLE]) {
  for (int u = 0; u < CVY_USE_IDLE; u++) cvy_spans_clear(&uses[u]);
}

static void expect(cvy_spans uses[CVY_USE_IDLE], uint64_t begin, uint64_t end, const uint64_t want[CVY_USES]) {
  uint64_t ns[CVY_USES] = {0};
  cvy_usage_divide(begin, end, uses, ns);
  for (int u = 0; u < CVY_USES; u++) assert_int_equal(ns[u], want[u]);
}

CHECK_TEST(first_that_applies) {
  cvy_spans uses[CVY_USE_IDLE] = {0};
  expect(uses, 10, 110, (uint64_t[]){0, 0, 0, 100});
  add(&uses[CVY_USE_COMPUTING], 20, 50);
  add(&uses[CVY_USE_EXCHANGING], 40, 70); /* hidden until 50 */
  add(&uses[CVY_USE_WAITING], 0, 90);
  expect(uses, 10, 110, (uint64_t[]){30, 20, 30, 20});
  /* cut at both ends, and nothing at all */
  expect(uses, 45, 60, (uint64_t[]){5, 10, 0, 0});
  expect(uses, 60, 60, (uint64_t[]){0, 0, 0, 0});
  expect(uses, 60, 45, (uint64_t[]){0, 0, 0, 0});
  clear(uses);
}

CHECK_TEST(disorder) {
  cvy_spans uses[CVY_USE_IDLE] = {0};
  cvy_spans *const c = &uses[CVY_USE_COMPUTING];
  add(c, 60, 70);
  add(c, 10, 30);
  add(c, 20, 40);
  add(c, 12, 13);
  add(c, 40, 45); /* touches */
  add(c, 50, 50); /* empty */
  expect(uses, 0, 100, (uint64_t[]){45, 0, 0, 55});
  assert_int_equal(c->n, 2);
  cvy_spans_forget(c, 45);
  assert_int_equal(c->n, 1);
  expect(uses, 0, 100, (uint64_t[]){10, 0, 0, 90});
  cvy_spans_forget(c, 69);
  assert_int_equal(c->n, 1);
  cvy_spans_forget(c, 70);
  assert_int_equal(c->n, 0);
  clear(uses);
}

/* Against counting every nanosecond. */
CHECK_TEST(random) {
  enum { END = 300 };
  for (uint64_t seed = 0; seed < 200; seed++) {
    cvy_spans uses[CVY_USE_IDLE] = {0};
    uint8_t seen[CVY_USE_IDLE][END] = {{0}};
    uint64_t want[CVY_USES] = {0}, got[CVY_USES] = {0}, draw = seed * 7919 + 1;
#define DRAW(n) ((draw = draw * 6364136223846793005u + 1442695040888963407u) >> 33) % (n)
    const int n = (int)(DRAW(40));
    for (int i = 0; i < n; i++) {
      const int use = (int)(DRAW(CVY_USE_IDLE));
      const uint64_t begin = DRAW(END), end = begin + DRAW(END - begin);
      add(&uses[use], begin, end);
      memset(&seen[use][begin], 1, end - begin);
    }
    const uint64_t from = DRAW(END), to = from + DRAW(END - from);
    for (uint64_t t = from; t < to; t++) {
      int use = 0;
      while (use < CVY_USE_IDLE && !seen[use][t]) use++;
      want[use]++;
    }
    /* in two parts, as it is done step by step */
    const uint64_t middle = from + (to > from ? DRAW(to - from) : 0);
    cvy_usage_divide(from, middle, uses, got);
    for (int u = 0; u < CVY_USE_IDLE; u++) cvy_spans_forget(&uses[u], middle);
    cvy_usage_divide(middle, to, uses, got);
    for (int u = 0; u < CVY_USES; u++) assert_int_equal(got[u], want[u]);
    clear(uses);
  }
}

CHECK_TEST(clocks) {
  /* the device's clock is 1000 ahead: enqueued at host 50..60, done at host 90..200 */
  const cvy_clock_bounds queued = cvy_clock_between(1055, 50, 60), done = cvy_clock_between(1100, 55, 105);
  assert_int_equal(queued.low_ns, -1005);
  assert_int_equal(queued.high_ns, -995);
  const cvy_clock_bounds both = cvy_clock_intersect(queued, done);
  assert_int_equal(both.low_ns, -1005);
  assert_int_equal(both.high_ns, -995);
  const cvy_clock_bounds none = cvy_clock_intersect(queued, cvy_clock_between(9999, 50, 60));
  assert_true(none.low_ns > none.high_ns);
}

int main(int argc, char **argv) { return check_run(argc, argv, CHECK_HOST); }
