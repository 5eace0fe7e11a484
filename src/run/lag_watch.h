/* SPDX-License-Identifier: MIT
 * Detects evaluation that lags behind training because of running values: after s steps a batch normalisation of
 * momentum m still has (1 - m)^s of its initial ones. */
#ifndef CVY_RUN_LAG_WATCH_H
#define CVY_RUN_LAG_WATCH_H

#include <stdbool.h>

#include "src/nn/layout.h"

/* The largest fraction of initial running values that is left after this many steps; 0: training changes none. */
double cvy_lag_left(const cvy_layout *layout, long steps);
/* Warns once, when accuracies of an epoch (negative: not measured) differ much and the fraction is large. *said: it
 * did. */
void cvy_lag_warn(const cvy_layout *layout, long steps, double train_acc, double eval_acc, bool *said);

#endif
