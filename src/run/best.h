/* SPDX-License-Identifier: MIT
 * The best epoch of a run so far, and the end of patience. Pure. */
#ifndef CVY_RUN_BEST_H
#define CVY_RUN_BEST_H

#include "convoy/train.h"

/* Adds the accuracy of the last full epoch; at->epoch already counts it. True if it is better than all
 * before; the first of equal ones stays the best, and NaN is never better. */
bool cvy_best_judge(cvy_run_position *at, double accuracy);
/* The full epochs since the best one are `patience` or more (0: never). */
bool cvy_best_is_past(const cvy_run_position *at, int patience);

#endif
