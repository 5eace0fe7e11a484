/* SPDX-License-Identifier: MIT
 * Dropout: y = x / (1 - p) where a number drawn for the value keeps it, else 0; its gradient the same of dy.
 *   value at `place` of sample number s (place = (h*W + w)*pitch + c) is kept if word place % 4 of
 *   cvy_rng_block({seed, CVY_RNG_DROPOUT | layer << 8, epoch}, place / 4 << 32 | s) is at least p * 2^32
 * so it depends on seed, epoch, layer, the sample's number in the data set and the place, and on nothing else: not on
 * the division of a batch, nor on how often the step is done. Nothing is saved: backward draws again.
 * In place allowed. Pending on return. */
#ifndef CVY_OPS_DROPOUT_H
#define CVY_OPS_DROPOUT_H

#include "src/cl/launch.h"
#include "src/ops/shape.h"

typedef struct cvy_dropout_params {
  int n_max;
  cvy_shape x; /* pitch: a multiple of 16 */
  float p;     /* part that is dropped, [0, 1) */
  int layer;   /* 0 to 2^24 - 1 */
  uint64_t seed;
} cvy_dropout_params;

/* Words below it drop their value. Pure. */
uint32_t cvy_dropout_threshold(float p);

typedef struct cvy_dropout cvy_dropout;
/* CVY_E_ARGUMENT: sizes below 1, p outside of [0, 1), a layer that cannot be counted. */
cvy_status cvy_dropout_create(cvy_device *device, const cvy_dropout_params *params, cvy_dropout **out);
void cvy_dropout_destroy(cvy_dropout **op);
/* y (+)= x with the values that are dropped left out. samples: n int32, the samples' numbers. Forward: x → y; backward:
 * dy → dx. */
cvy_status cvy_dropout_run(cvy_dropout *op, cvy_queue *queue, int n, cvy_buffer *samples, int epoch, cvy_buffer *x,
                           cvy_buffer *y, bool accumulate);

#endif
