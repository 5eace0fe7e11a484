/* SPDX-License-Identifier: MIT */
#include "src/base/quantile.h"

#include <stdlib.h>

static int ascending(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

double cvy_quantile(double *values, int n, double q) {
  qsort(values, (size_t)n, sizeof *values, ascending);
  const double at = q * (n - 1);
  const int below = (int)at;
  const double part = at - below;
  return part > 0 ? values[below] * (1 - part) + values[below + 1] * part : values[below];
}
