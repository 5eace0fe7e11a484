/* SPDX-License-Identifier: MIT
 * Stochastic gradient descent in double: PyTorch's formulas as ops/sgd.h gives them. */
#include "src/ref/ref.h"

void ref_sgd(const cvy_sgd_params *p, size_t n, double *w, const double *g, double *v) {
  for (size_t i = 0; i < n; i++) {
    double d = g[i] + (double)p->weight_decay * w[i];
    if (p->momentum != 0) {
      v[i] = (double)p->momentum * v[i] + d;
      d = p->nesterov ? d + (double)p->momentum * v[i] : v[i];
    }
    w[i] -= (double)p->lr * d;
  }
}
