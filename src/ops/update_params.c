/* SPDX-License-Identifier: MIT */
#include "src/ops/update_params.h"

#include <math.h>

int cvy_update_moments(const cvy_update_params *p) {
  return p->kind != CVY_OPTIMIZER_SGD ? 2 : p->momentum != 0 ? 1 : 0;
}

const char *cvy_update_moment_name(cvy_optimizer_kind kind, int moment) {
  return kind == CVY_OPTIMIZER_SGD ? "momentum/" : moment == 0 ? "adam_m/" : "adam_v/";
}

cvy_update_numbers cvy_update_prepare(const cvy_update_params *p, float lr_factor, bool decays) {
  const double lr = (double)p->lr * (double)lr_factor, decay = decays ? (double)p->weight_decay : 0;
  cvy_update_numbers u = {
      .minus_rate = -(float)lr, .decay = (float)decay, .keep = 1, .momentum = p->momentum, .nesterov = p->nesterov};
  if (p->kind == CVY_OPTIMIZER_SGD) return u;
  const double beta1 = (double)p->betas[0], beta2 = (double)p->betas[1], t = (double)p->number;
  u.minus_rate = (float)(-lr / (1 - pow(beta1, t)));
  u.first = (float)(1 - beta1);
  u.second_keep = p->betas[1];
  u.second = (float)(1 - beta2);
  u.widen = (float)(1 / sqrt(1 - pow(beta2, t)));
  u.eps = p->eps;
  if (p->kind == CVY_OPTIMIZER_ADAMW) {
    u.decay = 0;
    u.keep = (float)(1 - lr * decay);
  }
  return u;
}
