/* SPDX-License-Identifier: MIT
 * Detects evaluation that lags behind training because running values have not arrived: after s steps a batch
 * normalisation of momentum m still has (1 - m)^s of its first ones. */
#ifndef CVY_RUN_LAG_WATCH_H
#define CVY_RUN_LAG_WATCH_H

#include <stdbool.h>

#include "src/nn/layout.h"

/* The largest part of first running values that is left after so many steps; 0: training changes none. */
double cvy_lag_left(const cvy_layout *layout, long steps);
/* Warns once, when accuracies of an epoch (negative: not measured) lie far apart and much is left. *said: it did. */
void cvy_lag_warn(const cvy_layout *layout, long steps, double train_acc, double eval_acc, bool *said);

#endif
