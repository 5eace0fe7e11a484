/* SPDX-License-Identifier: MIT
 * Dropout, straight from ops/layers/dropout.h. */
#include "src/base/rng.h"
#include "src/ref/ref.h"

void ref_dropout(const cvy_dropout_params *p, int n, const int *samples, int epoch, const double *x, double *y) {
  const cvy_rng rng = {p->seed, CVY_RNG_DROPOUT | (uint32_t)p->layer << 8, (uint32_t)epoch};
  size_t i = 0;
  for (int s = 0; s < n; s++)
    for (int at = 0; at < p->x.h * p->x.w; at++)
      for (int c = 0; c < p->x.c; c++, i++) {
        const uint64_t place = (uint64_t)at * (uint64_t)p->x.pitch + (uint64_t)c;
        uint32_t words[4];
        cvy_rng_block(&rng, place / 4 << 32 | (uint32_t)samples[s], words);
        y[i] = words[place % 4] >= cvy_dropout_threshold(p->p) ? x[i] / (1 - (double)p->p) : 0;
      }
}
