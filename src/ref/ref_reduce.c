/* SPDX-License-Identifier: MIT
 * Column sums in double. */
#include <math.h>

#include "src/ref/ref.h"

void ref_reduce_columns(size_t rows, int c, const double *x, double *out, double *mag) {
  for (int j = 0; j < c; j++) {
    double sum = 0, sum_abs = 0;
    for (size_t i = 0; i < rows; i++) {
      sum += x[i * (size_t)c + (size_t)j];
      sum_abs += fabs(x[i * (size_t)c + (size_t)j]);
    }
    out[j] = sum;
    if (mag) mag[j] = sum_abs;
  }
}
