/* SPDX-License-Identifier: MIT
 * Quantiles of measured values. Pure. */
#ifndef CVY_BASE_QUANTILE_H
#define CVY_BASE_QUANTILE_H
/* Sorts n >= 1 values, none of them NaN, in ascending order and returns their quantile q (0 to 1), interpolated
 * linearly between two values. 0.5 is the median; of an even number of values it is the mean of the middle two. */
double cvy_quantile(double *values, int n, double q);
#endif
