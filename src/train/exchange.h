/* SPDX-License-Identifier: MIT
 * The exchange thread: finishes steps in order. Team of several: per unit (bucket, BN sums) takes the replicas' parts
 * as they arrive, adds them in device order, updates the state's next generation, gives the result back to every
 * replica; then the step's results. Team of one: the device has done the update; only the results are awaited. */
#ifndef CVY_TRAIN_EXCHANGE_H
#define CVY_TRAIN_EXCHANGE_H

#include "src/train/replica.h"

typedef struct cvy_exchange {
  cvy_replica *replicas;            /* borrowed, n of them */
  int n;
  cvy_state *state;
  cvy_pool *pool;
  const float **parts;              /* n pointers, scratch */
  const uint16_t **packed;          /* the same; NULL: gradients cross as floats, not as bfloat16 */
  bool no_sync;                     /* only results are awaited, as in a team of one (cvy_team_params) */
  struct cvy_timeline *timeline;    /* NULL: times are not kept */
  uint64_t exchanged_ns;            /* when the last unit of the step was given back; 0: none was */
} cvy_exchange;

/* [exchange thread] Finishes one step: on return its results are on the host and, in a team of several, the
 * state's next generation is whole and every upload for the next step is enqueued; cvy_state_advance makes it the truth.
 * *loss: mean over the batch; *correct: hits. */
cvy_status cvy_exchange_finish_step(cvy_exchange *exchange, cvy_step *step, double *loss, int *correct);

#endif
