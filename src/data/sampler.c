/* SPDX-License-Identifier: MIT
 * Fisher-Yates (Durstenfeld): position i, from the last down to 1, swaps with one of 0..i, drawn with index i of (seed,
 * shuffle, epoch). */
#include "convoy/data.h"

#include "src/base/rng.h"

void cvy_sampler_order(uint64_t seed, int epoch, bool no_shuffle, int n, int32_t *order) {
  const cvy_rng rng = {.seed = seed, .purpose = CVY_RNG_SHUFFLE, .stream = (uint32_t)epoch};
  for (int i = 0; i < n; i++) order[i] = i;
  if (no_shuffle) return;
  for (int i = n - 1; i > 0; i--) {
    const uint32_t j = cvy_rng_below(&rng, (uint64_t)i, (uint32_t)i + 1);
    const int32_t other = order[j];
    order[j] = order[i];
    order[i] = other;
  }
}
