/* SPDX-License-Identifier: MIT
 * The last unit of a step in a fleet (chain.h): sums over all devices, the times that the nodes have measured, and
 * requests of the nodes' callers. */
#ifndef CVY_PROTOCOL_STEP_SUMS_H
#define CVY_PROTOCOL_STEP_SUMS_H

#include "src/protocol/ring.h"

/* Requests of a node's caller to those of all nodes. They are sent with a step's sums, so that all nodes have them
 * after the same step. */
typedef enum cvy_chain_request {
  CVY_ASKS_STOP, /* the run ends */
  CVY_ASKS_MEET, /* compute new shares (new_shares.h) */
  CVY_ASKS_KEEP, /* copy a lone device's state (kept_state.h) */
  CVY_CHAIN_REQUESTS
} cvy_chain_request;

/* Sums over the devices of the nodes so far. */
typedef struct cvy_chain_sums {
  double loss; /* loss times samples */
  int64_t correct;
  double norm;                      /* of the gradient, if a lone device has it; else 0 */
  int64_t asks[CVY_CHAIN_REQUESTS]; /* how many nodes do */
} cvy_chain_sums;

/* As sent: one piece of memory. */
typedef struct cvy_chain_all {
  cvy_chain_sums *sums;
  cvy_step_time *times; /* followed by those of all devices */
  size_t bytes;
} cvy_chain_all;

/* This node's part. */
typedef struct cvy_chain_own {
  double *losses; /* of its devices with samples, in their order */
  int n_losses;
  int64_t correct;
  double norm; /* of the gradient of a lone device of this node; 0: there is none */
} cvy_chain_own;

/* n_own: this node's devices; n_all: those of all nodes. End both, also after a failure. CVY_E_MEMORY. */
cvy_status cvy_chain_sums_init(cvy_chain_own *own, int n_own, cvy_chain_all *all, int n_all);
void cvy_chain_sums_end(cvy_chain_own *own, cvy_chain_all *all);
/* Adds this node's part; its devices' times, times[0..n), follow those of `first` others. */
void cvy_chain_sums_add(cvy_chain_all *all, const cvy_chain_own *own, const cvy_step_time *times, int first, int n);

#endif
