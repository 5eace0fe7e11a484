/* SPDX-License-Identifier: MIT
 * Parameters of an update of the weights, on a device (update.h) or on the host (protocol/host_update.h), and what an
 * optimiser keeps from step to step. Pure. */
#ifndef CVY_OPS_UPDATE_PARAMS_H
#define CVY_OPS_UPDATE_PARAMS_H

#include <stdbool.h>

#include "cl/update_args.clh"
#include "convoy/optimizer.h"

/* Vectors that an optimiser keeps beside the weights, at most. */
enum { CVY_MOMENTS = 2 };

typedef struct cvy_update_params {
  cvy_optimizer_kind kind;
  float lr, weight_decay;
  float momentum; /* SGD */
  bool nesterov;
  float betas[2], eps; /* Adam, AdamW */
  long number;         /* of this update, from 1 (Adam, AdamW: the averages' weight grows with it) */
} cvy_update_params;

/* How many vectors the optimiser keeps: SGD with momentum 1, Adam and AdamW 2, else 0; and what their tensors' names
 * begin with in checkpoints: "momentum/", "adam_m/", "adam_v/". */
int cvy_update_moments(const cvy_update_params *params);
const char *cvy_update_moment_name(cvy_optimizer_kind kind, int moment);

/* The numbers of one update for parameters whose rate is lr_factor times lr, and that do or do not decay. Computed in
 * double and rounded once. */
cvy_update_numbers cvy_update_prepare(const cvy_update_params *params, float lr_factor, bool decays);

#endif
