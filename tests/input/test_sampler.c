/* SPDX-License-Identifier: MIT
 * The order of samples: a permutation that depends on seed and epoch alone, and uniform. */
#include "tests/support/check.h"

#include "convoy/train.h"

CHECK_TEST(permutation) {
  enum { MOST = 60000 };
  int32_t *const order = cvy_calloc(MOST, sizeof *order), *const again = cvy_calloc(MOST, sizeof *again);
  bool *const seen = cvy_calloc(MOST, sizeof *seen);
  static const int sizes[] = {0, 1, 2, 3, 10, 257, MOST};
  for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
    for (int epoch = 0; epoch < 3; epoch++) {
      const int n = sizes[s];
      const size_t bytes = (size_t)n * sizeof *order;
      cvy_sampler_order(7, epoch, false, n, order);
      memset(seen, 0, MOST);
      for (int i = 0; i < n; i++) {
        assert_true(order[i] >= 0 && order[i] < n && !seen[order[i]]);
        seen[order[i]] = true;
      }
      cvy_sampler_order(7, epoch, false, n, again);
      assert_memory_equal(order, again, bytes);
      if (n < 10) continue;
      cvy_sampler_order(8, epoch, false, n, again);
      assert_memory_not_equal(order, again, bytes);
      cvy_sampler_order(7, epoch + 1, false, n, again);
      assert_memory_not_equal(order, again, bytes);
      cvy_sampler_order(7, epoch, true, n, again);
      for (int i = 0; i < n; i++) assert_int_equal(again[i], i);
    }
  cvy_free(order);
  cvy_free(again);
  cvy_free(seen);
}

/* The bits are part of the contract: a run resumed with a newer program goes on with the same order. */
CHECK_TEST(known) {
  int32_t order[8];
  static const int32_t want[8] = {5, 6, 2, 3, 0, 1, 7, 4};
  cvy_sampler_order(0, 0, false, 8, order);
  assert_memory_equal(order, want, sizeof want);
}

/* Each of the 24 orders of four equally often: chi-square with 23 degrees of freedom stays below 49.7 with 99.9 %. */
CHECK_TEST(uniform) {
  enum { ROUNDS = 24000 };
  int counts[256] = {0};
  for (int epoch = 0; epoch < ROUNDS; epoch++) {
    int32_t o[4];
    cvy_sampler_order(3, epoch, false, 4, o);
    counts[o[0] << 6 | o[1] << 4 | o[2] << 2 | o[3]]++;
  }
  double chi2 = 0;
  int kinds = 0;
  for (int i = 0; i < 256; i++) {
    if (!counts[i]) continue;
    kinds++;
    chi2 += (counts[i] - ROUNDS / 24.0) * (counts[i] - ROUNDS / 24.0) / (ROUNDS / 24.0);
  }
  assert_int_equal(kinds, 24);
  assert_true(chi2 < 49.7);
}

int main(int argc, char **argv) { return check_run(argc, argv, CHECK_HOST); }
