/* SPDX-License-Identifier: MIT
 * The optimisers in double: PyTorch's formulas as ops/update.h gives them. */
#include <math.h>

#include "src/ref/ref.h"

static void adam(const cvy_update_params *p, size_t n, double *w, const double *g, double *m, double *v) {
  const double beta1 = (double)p->betas[0], beta2 = (double)p->betas[1], t = (double)p->number;
  const double lr = (double)p->lr, decay = (double)p->weight_decay;
  for (size_t i = 0; i < n; i++) {
    double d = g[i];
    if (p->kind == CVY_OPTIMIZER_ADAMW) w[i] *= 1 - lr * decay;
    else d += decay * w[i];
    m[i] = beta1 * m[i] + (1 - beta1) * d;
    v[i] = beta2 * v[i] + (1 - beta2) * d * d;
    const double m_hat = m[i] / (1 - pow(beta1, t)), v_hat = v[i] / (1 - pow(beta2, t));
    w[i] -= lr * m_hat / (sqrt(v_hat) + (double)p->eps);
  }
}

void ref_update(const cvy_update_params *p, size_t n, double *w, const double *g, double *const *moments) {
  if (p->kind != CVY_OPTIMIZER_SGD) {
    adam(p, n, w, g, moments[0], moments[1]);
    return;
  }
  double *const v = moments[0];
  for (size_t i = 0; i < n; i++) {
    double d = g[i] + (double)p->weight_decay * w[i];
    if (p->momentum != 0) {
      v[i] = (double)p->momentum * v[i] + d;
      d = p->nesterov ? d + (double)p->momentum * v[i] : v[i];
    }
    w[i] -= (double)p->lr * d;
  }
}
