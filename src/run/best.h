/* SPDX-License-Identifier: MIT
 * The best epoch of a run so far, and when no better one is waited for. Pure. */
#ifndef CVY_RUN_BEST_H
#define CVY_RUN_BEST_H

#include "convoy/train.h"

/* Takes the accuracy of the full epoch that ended last; at->epoch counts it already. True if it is better than all
 * before; the first of equal ones stays the best, and NaN is never better. */
bool cvy_best_judge(cvy_run_position *at, double accuracy);
/* The full epochs since the best one are `patience` or more (0: never). */
bool cvy_best_is_past(const cvy_run_position *at, int patience);

#endif
