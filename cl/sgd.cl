/* SPDX-License-Identifier: MIT
 * The update of stochastic gradient descent, and batch normalisation's running values (ops/sgd.h). Every multiply-add
 * is one fma and nothing else is contracted, so that the host gets the same bits with fmaf:
 *   d = weight_decay != 0 ? fma(weight_decay, w, g) : g
 *   momentum: v = fma(momentum, v, d);  d = nesterov ? fma(momentum, v, d) : v
 *   w = fma(-lr, d, w)                             r = fma(momentum, s, keep*r)  with keep = 1 - momentum
 *
 * n: vectors of VEC floats. Geometry: vector.clh. */
#include "vector.clh"

#if VEC == 1
#error "the update walks over whole vectors: VEC must be 4 or 16"
#endif

CVY_KERNEL sgd_update(global floatv *restrict w, global const floatv *restrict g, const float minus_lr,
                      const float weight_decay, const uint n, const uint chunk) {
#pragma OPENCL FP_CONTRACT OFF
  const floatv rate = (floatv)(minus_lr), decay = (floatv)(weight_decay);
  CVY_FOR_EACH_VECTOR(i, n, chunk) {
    const floatv weight = w[i];
    const floatv d = weight_decay != 0.0f ? fma(decay, weight, g[i]) : g[i];
    w[i] = fma(rate, d, weight);
  }
}

CVY_KERNEL sgd_update_momentum(global floatv *restrict w, global const floatv *restrict g, global floatv *restrict v,
                               const float minus_lr, const float weight_decay, const float momentum,
                               const int nesterov, const uint n, const uint chunk) {
#pragma OPENCL FP_CONTRACT OFF
  const floatv rate = (floatv)(minus_lr), decay = (floatv)(weight_decay), keep = (floatv)(momentum);
  CVY_FOR_EACH_VECTOR(i, n, chunk) {
    const floatv weight = w[i];
    const floatv d = weight_decay != 0.0f ? fma(decay, weight, g[i]) : g[i];
    const floatv velocity = fma(keep, v[i], d);
    v[i] = velocity;
    w[i] = fma(rate, nesterov ? fma(keep, velocity, d) : velocity, weight);
  }
}

CVY_KERNEL sgd_running(global floatv *restrict running, global const floatv *restrict s, const float momentum,
                       const float keep, const uint n, const uint chunk) {
#pragma OPENCL FP_CONTRACT OFF
  CVY_FOR_EACH_VECTOR(i, n, chunk) {
    const floatv kept = keep * running[i];
    running[i] = fma((floatv)(momentum), s[i], kept);
  }
}
