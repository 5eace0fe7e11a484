/* SPDX-License-Identifier: MIT
 * Counter-based random numbers: Philox4x32-10 of Random123 (Salmon et al., SC11). A number depends only on (seed,
 * purpose, stream, index), not on earlier calls, so results do not depend on the number of devices or threads. Pure;
 * any
 * thread. */
#ifndef CVY_BASE_RNG_H
#define CVY_BASE_RNG_H

#include <stdint.h>

typedef enum cvy_rng_purpose {
  CVY_RNG_INIT = 1,
  CVY_RNG_SHUFFLE = 2,
  CVY_RNG_SYNTHETIC = 3,
  CVY_RNG_TEST = 4,
  CVY_RNG_AUGMENT = 5,
  CVY_RNG_VAL_SPLIT = 6,
  CVY_RNG_DROPOUT = 7 /* and the layer in the bits from the ninth on */
} cvy_rng_purpose;

typedef struct cvy_rng {
  uint64_t seed;
  uint32_t purpose;
  uint32_t stream; /* tensor number, epoch, … */
} cvy_rng;

void cvy_rng_block(const cvy_rng *rng, uint64_t index, uint32_t out[4]); /* four words for counter `index` */
uint32_t cvy_rng_u32(const cvy_rng *rng, uint64_t index);                /* word index%4 of block index/4 */
float cvy_rng_uniform(const cvy_rng *rng, uint64_t index);               /* in [0,1), 24 bits */
/* N(0,1): Box-Muller on block `index`, in double, rounded. */
float cvy_rng_normal(const cvy_rng *rng, uint64_t index);
/* Uniform in [0,n): 64-bit multiply-shift of two words. */
uint32_t cvy_rng_below(const cvy_rng *rng, uint64_t index, uint32_t n);

#endif
