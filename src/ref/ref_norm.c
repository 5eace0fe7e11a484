/* SPDX-License-Identifier: MIT
 * The Euclidean norm in double. */
#include <math.h>

#include "src/ref/ref.h"

double ref_norm(size_t n, const double *x) {
  double squares = 0;
  for (size_t i = 0; i < n; i++) squares += x[i] * x[i];
  return sqrt(squares);
}
