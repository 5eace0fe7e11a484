/* SPDX-License-Identifier: MIT
 * Parameters of an update by stochastic gradient descent, on a device (sgd.h) or on the host (team/ledger.h). */
#ifndef CVY_OPS_SGD_PARAMS_H
#define CVY_OPS_SGD_PARAMS_H

#include <stdbool.h>

typedef struct cvy_sgd_params {
  float lr, momentum, weight_decay;
  bool nesterov;
} cvy_sgd_params;

#endif
