/* SPDX-License-Identifier: MIT
 * The middle of measured values, and how far they spread. Pure. */
#ifndef CVY_BASE_QUANTILE_H
#define CVY_BASE_QUANTILE_H
/* Puts n >= 1 values, none of them NaN, in ascending order and returns where the part q (0 to 1) of the way from the
 * first to the last is: 0.5 is the median, of an even number the mean of the middle two; between two others
 * linearly. */
double cvy_quantile(double *values, int n, double q);
#endif
