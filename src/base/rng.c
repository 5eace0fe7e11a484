/* SPDX-License-Identifier: MIT
 * Key: the seed. Counter: index (64 bits), purpose, stream. */
#include "src/base/rng.h"

#include <Random123/philox.h>
#include <math.h>

void cvy_rng_block(const cvy_rng *rng, uint64_t index, uint32_t out[4]) {
  const philox4x32_ctr_t counter = {{(uint32_t)index, (uint32_t)(index >> 32), rng->purpose, rng->stream}};
  const philox4x32_key_t key = {{(uint32_t)rng->seed, (uint32_t)(rng->seed >> 32)}};
  const philox4x32_ctr_t words = philox4x32(counter, key);
  for (int i = 0; i < 4; i++) out[i] = words.v[i];
}

uint32_t cvy_rng_u32(const cvy_rng *rng, uint64_t index) {
  uint32_t words[4];
  cvy_rng_block(rng, index / 4, words);
  return words[index % 4];
}

float cvy_rng_uniform(const cvy_rng *rng, uint64_t index) { return (float)(cvy_rng_u32(rng, index) >> 8) * 0x1p-24f; }

float cvy_rng_normal(const cvy_rng *rng, uint64_t index) {
  uint32_t words[4];
  cvy_rng_block(rng, index, words);
  /* 53 bits each; the first in (0,1] because of its logarithm */
  const double u = ((double)(((uint64_t)words[0] << 21) | (words[1] >> 11)) + 1.0) * 0x1p-53;
  const double v = (double)(((uint64_t)words[2] << 21) | (words[3] >> 11)) * 0x1p-53;
  return (float)(sqrt(-2.0 * log(u)) * cos(6.283185307179586476925286766559 * v));
}

uint32_t cvy_rng_below(const cvy_rng *rng, uint64_t index, uint32_t n) {
  uint32_t words[4];
  cvy_rng_block(rng, index, words);
  const uint64_t wide = ((uint64_t)words[1] << 32) | words[0];
  /* high half of the 96-bit product wide * n */
  return (uint32_t)(((wide >> 32) * n + (((wide & 0xffffffffu) * n) >> 32)) >> 32);
}
