/* SPDX-License-Identifier: MIT
 * Softmax over the channels of each row, in double. */
#include <math.h>

#include "src/ref/ref.h"

void ref_softmax(int rows, int c, const double *x, double *y) {
  for (int i = 0; i < rows; i++) {
    const double *const row = x + (size_t)i * (size_t)c;
    double *const out = y + (size_t)i * (size_t)c;
    double largest = row[0], sum = 0;
    for (int j = 1; j < c; j++) largest = fmax(largest, row[j]);
    for (int j = 0; j < c; j++) sum += exp(row[j] - largest);
    for (int j = 0; j < c; j++) out[j] = exp(row[j] - largest) / sum;
  }
}

void ref_softmax_backward(int rows, int c, const double *y, const double *dy, double *dx) {
  for (int i = 0; i < rows; i++) {
    const size_t row = (size_t)i * (size_t)c;
    double dot = 0;
    for (int j = 0; j < c; j++) dot += dy[row + (size_t)j] * y[row + (size_t)j];
    for (int j = 0; j < c; j++) dx[row + (size_t)j] = y[row + (size_t)j] * (dy[row + (size_t)j] - dot);
  }
}
