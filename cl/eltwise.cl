/* SPDX-License-Identifier: MIT
 * Elementwise operations on runs of floats (ops/eltwise.h):
 *   relu        y = max(x,0)            relu_backward  dx = y > 0 ? dy : 0, relu_backward_add dx += …
 *   add         y = a + b               add_relu       y = max(a + b, 0)            accumulate  y += x
 *   mul         y = a * b               mul_add        y += a * b
 *
 * n: vectors of VEC floats. A pointer that may point to another argument's buffer (in place) is not `restrict`: every
 * element is read before the same element is written, and by the same work-item.
 * Geometry: vector.clh; one work-item per vector on SIMT devices, one work-group per `chunk` vectors on CPUs. */
#include "vector.clh"

#if VEC == 1
#error "elementwise kernels walk over whole vectors: VEC must be 4 or 16"
#endif

CVY_KERNEL eltwise_relu(global const floatv *x, global floatv *y, const uint n, const uint chunk) {
  CVY_FOR_EACH_VECTOR(i, n, chunk) y[i] = cvy_relu(x[i]);
}

CVY_KERNEL eltwise_relu_backward(global const floatv *restrict y, global const floatv *dy, global floatv *dx,
                                 const uint n, const uint chunk) {
  CVY_FOR_EACH_VECTOR(i, n, chunk) dx[i] = y[i] > 0.0f ? dy[i] : (floatv)(0.0f);
}

CVY_KERNEL eltwise_relu_backward_add(global const floatv *restrict y, global const floatv *dy, global floatv *dx,
                                     const uint n, const uint chunk) {
  CVY_FOR_EACH_VECTOR(i, n, chunk) dx[i] += y[i] > 0.0f ? dy[i] : (floatv)(0.0f);
}

CVY_KERNEL eltwise_add(global const floatv *a, global const floatv *b, global floatv *y, const uint n,
                       const uint chunk) {
  CVY_FOR_EACH_VECTOR(i, n, chunk) y[i] = a[i] + b[i];
}

CVY_KERNEL eltwise_add_relu(global const floatv *a, global const floatv *b, global floatv *y, const uint n,
                            const uint chunk) {
  CVY_FOR_EACH_VECTOR(i, n, chunk) y[i] = cvy_relu(a[i] + b[i]);
}

CVY_KERNEL eltwise_accumulate(global const floatv *restrict x, global floatv *restrict y, const uint n,
                              const uint chunk) {
  CVY_FOR_EACH_VECTOR(i, n, chunk) y[i] += x[i];
}

CVY_KERNEL eltwise_mul(global const floatv *a, global const floatv *b, global floatv *y, const uint n,
                       const uint chunk) {
  CVY_FOR_EACH_VECTOR(i, n, chunk) y[i] = a[i] * b[i];
}

CVY_KERNEL eltwise_mul_add(global const floatv *a, global const floatv *b, global floatv *y, const uint n,
                           const uint chunk) {
  CVY_FOR_EACH_VECTOR(i, n, chunk) y[i] += a[i] * b[i];
}
