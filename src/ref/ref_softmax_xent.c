/* SPDX-License-Identifier: MIT
 * Softmax cross-entropy in double. */
#include <math.h>

#include "src/ref/ref.h"

void ref_softmax_xent(int rows, int c, const double *x, const int *labels, double scale, double smoothing, double *dx,
                      double *loss_sum, int *correct) {
  *loss_sum = 0;
  *correct = 0;
  for (int i = 0; i < rows; i++) {
    const double *const row = x + (size_t)i * (size_t)c;
    int first_largest = 0, nans = 0;
    for (int j = 0; j < c; j++) {
      if (isnan(row[j])) nans++;
      if (row[j] > row[first_largest]) first_largest = j;
    }
    const double largest = row[first_largest];
    double sum = 0;
    for (int j = 0; j < c; j++) sum += exp(row[j] - largest);
    *loss_sum += log(sum) + (1 - smoothing) * (largest - row[labels[i]]);
    for (int j = 0; smoothing != 0 && j < c; j++) *loss_sum += smoothing / c * (largest - row[j]);
    *correct += nans == 0 && first_largest == labels[i];
    if (dx)
      for (int j = 0; j < c; j++)
        dx[(size_t)i * (size_t)c + (size_t)j] =
            (exp(row[j] - largest) / sum - (j == labels[i] ? 1 - smoothing : 0) - smoothing / c) * scale;
  }
}
