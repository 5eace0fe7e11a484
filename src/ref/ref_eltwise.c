/* SPDX-License-Identifier: MIT
 * Elementwise operations in double. */
#include <math.h>

#include "src/ref/ref.h"

void ref_relu(size_t n, const double *x, double *y) {
  for (size_t i = 0; i < n; i++) y[i] = x[i] > 0 || isnan(x[i]) ? x[i] : 0;
}

void ref_relu_backward(size_t n, const double *y, const double *dy, double *dx) {
  for (size_t i = 0; i < n; i++) dx[i] = y[i] > 0 ? dy[i] : 0;
}
