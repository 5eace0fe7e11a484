/* SPDX-License-Identifier: MIT
 * Which training samples become the validation set. */
#include <math.h>

#include "src/base/mem.h"
#include "src/base/rng.h"
#include "src/data/dataset.h"

bool data_hold_out(const uint16_t *labels, int n, int classes, double part, uint64_t seed, uint8_t *held_out) {
  int *const begin = cvy_calloc((size_t)classes + 1, sizeof *begin), *const order =
                                                                         cvy_calloc((size_t)n, sizeof *order);
  const bool there = begin && order;
  for (int i = 0; i < n && there; i++) {
    begin[labels[i] + 1]++;
    held_out[i] = 0;
  }
  for (int k = 0; k < classes && there; k++) begin[k + 1] += begin[k];
  for (int i = 0; i < n && there; i++) order[begin[labels[i]]++] = i; /* begin[k] is the end of class k now */
  for (int k = 0; k < classes && there; k++) {
    const cvy_rng rng = {.seed = seed, .purpose = CVY_RNG_VAL_SPLIT, .stream = (uint32_t)k};
    const int first = k ? begin[k - 1] : 0, of_class = begin[k] - first;
    int wanted = (int)lrint(part * of_class);
    if (wanted >= of_class) wanted = of_class - 1;
    for (int i = 0; i < wanted; i++) { /* Fisher-Yates, as far as it is needed */
      const int j = i + (int)cvy_rng_below(&rng, (uint64_t)i, (uint32_t)(of_class - i));
      const int chosen = order[first + j];
      order[first + j] = order[first + i];
      held_out[chosen] = 1;
    }
  }
  cvy_free(begin);
  cvy_free(order);
  return there;
}
