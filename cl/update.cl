/* SPDX-License-Identifier: MIT
 * The update of the weights, and batch normalisation's running values (ops/update.h). Every multiply-add is one fma and nothing
 * else is contracted, so that the host (protocol/host_update.c) gets the same bits:
 *   g = g * scale[0]
 *   update_sgd:       d = decay != 0 ? fma(decay, w, g) : g,  w = fma(-lr, d, w)
 *   update_momentum:  v = fma(momentum, v, d);  d = nesterov ? fma(momentum, v, d) : v
 *   update_adam:      w = w * keep,  d = as above,  m = fma(1-beta1, d - m, m),  v = fma(1-beta2, d*d, beta2*v),
 *                     w = fma(minus_rate, m / fma(sqrt(v), widen, eps), w)
 *                     with 0 for every result below 2^-125, exact division and square root (exact.clh)
 *   update_running:   r = fma(momentum, s, keep*r)  with keep = 1 - momentum
 *
 * Vectors of VEC floats from number `first` on, n of them. Geometry: vector.clh. */
#include "vector.clh"
#include "exact.clh"
#include "update_args.clh"

CVY_KERNEL update_sgd(global floatv *restrict w, global const floatv *restrict g, global const float *restrict scale,
                      const cvy_update_numbers u, const uint first, const uint n, const uint chunk) {
#pragma OPENCL FP_CONTRACT OFF
  const floatv rate = (floatv)(u.minus_rate), decay = (floatv)(u.decay);
  const float by = scale[0];
  const bool decays = u.decay != 0.0f;
  CVY_FOR_EACH_VECTOR(i, n, chunk) {
    const floatv weight = w[first + i], gradient = g[first + i] * by;
    const floatv d = decays ? fma(decay, weight, gradient) : gradient;
    w[first + i] = fma(rate, d, weight);
  }
}

CVY_KERNEL update_momentum(global floatv *restrict w, global const floatv *restrict g, global floatv *restrict v,
                           global const float *restrict scale, const cvy_update_numbers u, const uint first, const uint n,
                           const uint chunk) {
#pragma OPENCL FP_CONTRACT OFF
  const floatv rate = (floatv)(u.minus_rate), decay = (floatv)(u.decay), keep = (floatv)(u.momentum);
  const float by = scale[0];
  const bool decays = u.decay != 0.0f, nesterov = u.nesterov;
  CVY_FOR_EACH_VECTOR(i, n, chunk) {
    const floatv weight = w[first + i], gradient = g[first + i] * by;
    const floatv d = decays ? fma(decay, weight, gradient) : gradient;
    const floatv velocity = fma(keep, v[first + i], d);
    v[first + i] = velocity;
    w[first + i] = fma(rate, nesterov ? fma(keep, velocity, d) : velocity, weight);
  }
}

CVY_KERNEL update_adam(global floatv *restrict w, global const floatv *restrict g, global floatv *restrict m,
                       global floatv *restrict v, global const float *restrict scale, const cvy_update_numbers u,
                       const uint first, const uint n, const uint chunk) {
#pragma OPENCL FP_CONTRACT OFF
  const floatv rate = (floatv)(u.minus_rate), decay = (floatv)(u.decay), eps = (floatv)(u.eps);
  const floatv toward = (floatv)(u.first), second = (floatv)(u.second), widen = (floatv)(u.widen);
  const float by = scale[0], shrink = u.keep, second_keep = u.second_keep;
  const bool decays = u.decay != 0.0f;
  CVY_FOR_EACH_VECTOR(i, n, chunk) {
    const floatv weight = cvy_normal(cvy_normal(w[first + i]) * shrink), gradient = cvy_normal(g[first + i] * by);
    const floatv d = decays ? cvy_normal(fma(decay, weight, gradient)) : gradient;
    const floatv m_old = cvy_normal(m[first + i]), v_old = cvy_normal(v[first + i]);
    const floatv m_new = cvy_normal(fma(toward, cvy_normal(d - m_old), m_old));
    const floatv v_new = cvy_normal(fma(second, cvy_normal(d * d), cvy_normal(v_old * second_keep)));
    const floatv root = cvy_normal(fma(cvy_exact_sqrt(v_new), widen, eps));
    m[first + i] = m_new;
    v[first + i] = v_new;
    w[first + i] = cvy_normal(fma(rate, cvy_exact_div(m_new, root), weight));
  }
}

CVY_KERNEL update_running(global floatv *restrict running, global const floatv *restrict s, const float momentum,
                          const float keep, const uint n, const uint chunk) {
#pragma OPENCL FP_CONTRACT OFF
  CVY_FOR_EACH_VECTOR(i, n, chunk) {
    const floatv kept = keep * running[i];
    running[i] = fma((floatv)(momentum), s[i], kept);
  }
}
