/* SPDX-License-Identifier: MIT */
#include "src/protocol/host_update.h"

#include <math.h>

#include "src/base/clones.h"

CVY_CLONES static void decay(float *restrict g, const float *restrict w, float weight_decay, size_t n) {
  for (size_t i = 0; i < n; i++) g[i] = fmaf(weight_decay, w[i], g[i]);
}

CVY_CLONES static void momentum_step(float *restrict g, float *restrict v_new, const float *restrict v_old,
                                     float momentum, bool nesterov, size_t n) {
  for (size_t i = 0; i < n; i++) {
    const float v = fmaf(momentum, v_old[i], g[i]);
    v_new[i] = v;
    g[i] = nesterov ? fmaf(momentum, v, g[i]) : v;
  }
}

CVY_CLONES static void descend(float *restrict w_new, const float *restrict w_old, const float *restrict g,
                               float minus_rate, size_t n) {
  for (size_t i = 0; i < n; i++) w_new[i] = fmaf(minus_rate, g[i], w_old[i]);
}

/* As cvy_normal of cl/exact.clh. */
static inline float normal(float x) { return fabsf(x) < 0x1p-125f ? 0.0f : x; }

CVY_CLONES static void adam_step(const cvy_update_numbers *restrict u, const float *restrict g,
                                 const float *restrict w_old, float *restrict w_new, const float *restrict m_old,
                                 float *restrict m_new, const float *restrict v_old, float *restrict v_new, size_t n) {
  const cvy_update_numbers a = *u;
  for (size_t i = 0; i < n; i++) {
    const float w = normal(normal(w_old[i]) * a.keep), gradient = normal(g[i]);
    const float decayed = normal(fmaf(a.decay, w, gradient)), d = a.decay != 0 ? decayed : gradient;
    const float m_before = normal(m_old[i]), v_before = normal(v_old[i]);
    const float m = normal(fmaf(a.first, normal(d - m_before), m_before));
    const float v = normal(fmaf(a.second, normal(d * d), normal(v_before * a.second_keep)));
    const float root = normal(fmaf(sqrtf(v), a.widen, a.eps));
    m_new[i] = m;
    v_new[i] = v;
    w_new[i] = normal(fmaf(a.minus_rate, normal(m / root), w));
  }
}

void cvy_host_update(const cvy_update_params *params, const cvy_update_numbers *u, float *g, const cvy_host_vectors *v,
                     size_t n) {
  if (params->kind != CVY_OPTIMIZER_SGD) {
    adam_step(u, g, v->w_old, v->w_new, v->old[0], v->new[0], v->old[1], v->new[1], n);
    return;
  }
  if (u->decay != 0) decay(g, v->w_old, u->decay, n);
  if (u->momentum != 0) momentum_step(g, v->new[0], v->old[0], u->momentum, u->nesterov, n);
  descend(v->w_new, v->w_old, g, u->minus_rate, n);
}
