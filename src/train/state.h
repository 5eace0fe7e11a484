/* SPDX-License-Identifier: MIT
 * The master copy of what training changes, on the host: weights, momentum, BN running values, each a flat vector
 * (nn/layout.h) in two generations. The update of step t reads generation t and writes t+1 piece by piece; t+1 becomes
 * the truth when all pieces are done. So a step can be redone, and a snapshot is never half of one. */
#ifndef CVY_TRAIN_STATE_H
#define CVY_TRAIN_STATE_H

#include <stdint.h>

#include "src/base/thread.h"
#include "src/nn/layout.h"
#include "src/ops/sgd.h"

typedef struct cvy_state {
  const cvy_layout *layout;         /* borrowed */
  bool has_momentum;
  float *w[2], *v[2], *running[2];  /* v NULL without momentum; generation g at index g & 1 */
  float *before;                    /* generation - 1 of w, whole also while an update is under way; NULL unless asked for */
  long generation;                  /* the truth: number of updates applied */
} cvy_state;

cvy_status cvy_state_create(const cvy_layout *layout, bool momentum, cvy_state **out);
void cvy_state_destroy(cvy_state **state);
/* The truth's arrays. */
float *cvy_state_w(const cvy_state *state);
/* From now on the weights of the generation before the truth are kept, too (zeros at first): for stale training. */
cvy_status cvy_state_keep_before(cvy_state *state);
float *cvy_state_v(const cvy_state *state);
float *cvy_state_running(const cvy_state *state);

/* reduce → update for floats [offset, offset + size) of the flat vector: g = parts[0] + parts[1] + … (in this order),
 * then SGD (ops/sgd.h: same formulas, same roundings as the device's) from generation to generation + 1. parts[i]
 * points to the piece's first float; n_parts >= 1.
 * Elementwise: pool and cuts do not change a bit. */
void cvy_state_update(cvy_state *state, cvy_pool *pool, const cvy_sgd_params *sgd, size_t offset, size_t size,
                      const float *const *parts, int n_parts);
/* The same from parts of bfloat16 (ops/compress.h), each widened to float before it is added. */
void cvy_state_update_packed(cvy_state *state, cvy_pool *pool, const cvy_sgd_params *sgd, size_t offset, size_t size,
                             const uint16_t *const *parts, int n_parts);
/* The same for the running values of BN from the sums S (ops/batchnorm.h), the whole vector. */
void cvy_state_update_running(cvy_state *state, const float *const *parts, int n_parts);
/* generation + 1 is complete and becomes the truth. */
void cvy_state_advance(cvy_state *state);

#endif
