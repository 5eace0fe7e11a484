/* SPDX-License-Identifier: MIT
 * Activations other than ReLU and their gradients (ops/activation.h), y = f(x), dx (+)= dy * f'(kept).
 *
 *   KIND        see activation_value.clh
 *   MASKED  [0] 1: f(0) is not 0 and rows have padding, which gets zeros
 * n: vectors of VEC floats. A row has `columns` floats in use. x and y, dy and dx may be one buffer: not `restrict`; every
 * element is read before the same element is written, by the same work-item.
 * Geometry: vector.clh. */
#include "fastdiv.clh"
#include "vector.clh"

#ifndef KIND
#define KIND 2
#endif
#ifndef MASKED
#define MASKED 0
#endif

#if VEC == 1
#error "activations walk over whole vectors: VEC must be 4 or 16"
#elif VEC == 4
typedef int4 lanes;
#define LANE_NUMBERS (int4)(0, 1, 2, 3)
#else
typedef int16 lanes;
#define LANE_NUMBERS (int16)(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)
#endif

#include "activation_value.clh"

CVY_KERNEL activation_forward(global const floatv *x, global floatv *y, const uint n, const uint chunk, const float a,
                              const float b, const int columns, const int vecs, const cvy_divider by_vecs) {
  CVY_FOR_EACH_VECTOR(i, n, chunk) {
    floatv value = activation_of(x[i], a, b);
#if MASKED
    const int first = ((int)i - fast_div((int)i, by_vecs) * vecs) * VEC;
    value = first + LANE_NUMBERS < columns ? value : (floatv)(0.0f);
#endif
    y[i] = value;
  }
}

CVY_KERNEL activation_backward(global const floatv *restrict kept, global const floatv *dy, global floatv *dx,
                               const uint n, const uint chunk, const float a, const float b) {
  CVY_FOR_EACH_VECTOR(i, n, chunk) dx[i] = activation_gradient(kept[i], dy[i], a, b);
}

CVY_KERNEL activation_backward_add(global const floatv *restrict kept, global const floatv *dy, global floatv *dx,
                                   const uint n, const uint chunk, const float a, const float b) {
  CVY_FOR_EACH_VECTOR(i, n, chunk) dx[i] += activation_gradient(kept[i], dy[i], a, b);
}
