/* SPDX-License-Identifier: MIT
 * Activations other than ReLU and their gradients (ops/activation.h), y = f(x), dx (+)= dy * f'(kept).
 *
 *   KIND        cvy_activation_kind of convoy/activations.h: 1 leaky ReLU, 2 clip, 3 sigmoid, 4 tanh, 5 hard sigmoid,
 *               6 hard swish, 7 SiLU, 8 GELU, 9 GELU by tanh
 *   MASKED  [0] 1: f(0) is not 0 and rows have padding, which gets zeros
 * n: vectors of VEC floats. A row has `columns` floats in use. x and y, dy and dx may be one buffer: not `restrict`; every
 * element is read before the same element is written, by the same work-item.
 * exp and one division are all that the smooth ones need:
 *   sigmoid   by e = exp(-|x|) in (0,1]: neither it nor 1 - it loses digits
 *   tanh      below 0.625 x + x^3 P(x^2), relative error 7e-9; above 1 - 2/(exp(2x) + 1)
 *   GELU      erfc(z) = t P(t) exp(-z^2), t = 1/(1 + 0.4 z), absolute error 3e-8 (least squares, weights after Lawson)
 * Geometry: vector.clh. */
#include "fastdiv.clh"
#include "vector.clh"

#ifndef KIND
#define KIND 2
#endif
#ifndef MASKED
#define MASKED 0
#endif

#if KIND < 1 || KIND > 9
#error "KIND must be 1 to 9"
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

#define ZERO ((floatv)(0.0f))
#define ONE ((floatv)(1.0f))

/* ---- pieces ---- */

/* Both in [0,1], and their sum is 1: the logistic function at x and at -x. */
typedef struct logistic {
  floatv at, against;
} logistic;
static inline logistic logistic_of(const floatv x) {
  const floatv e = exp(x < 0.0f ? x : -x), near = ONE / (ONE + e), far = e * near;
  logistic l;
  l.at = x < 0.0f ? far : near;
  l.against = x < 0.0f ? near : far;
  return l;
}

/* The normal distribution: probability of a value below x, and e^(-x^2/2). */
static inline floatv normal_below(const floatv x, const floatv bell) {
  const floatv z = (x < 0.0f ? -x : x) * 0.70710678f, t = ONE / (ONE + 0.4f * z);
  floatv p = -0.20025678f;
  p = p * t + 0.70913756f;
  p = p * t - 0.37089258f;
  p = p * t + 0.46826217f;
  p = p * t + 0.16182822f;
  p = p * t + 0.23192138f;
  const floatv tail = 0.5f * bell * t * p;
  return x < 0.0f ? tail : ONE - tail;
}
#define BELL(x) exp(-0.5f * (x) * (x))

/* Twice the argument of the tanh in GELU, and its slope. */
#define GELU_SLOPE 1.59576912f /* 2 sqrt(2/pi) */
#define GELU_CUBE 0.044715f
#define GELU_ARGUMENT(x) (GELU_SLOPE * (x) * (ONE + GELU_CUBE * (x) * (x)))

/* ---- f and f' ---- */

static inline floatv activate(const floatv x, const float a, const float b) {
#if KIND == 1
  return x > 0.0f ? x : a * x;
#elif KIND == 2
  return x < a ? (floatv)(a) : x > b ? (floatv)(b) : x;
#elif KIND == 3
  return logistic_of(x).at;
#elif KIND == 4
  const floatv square = x * x, size = x < 0.0f ? -x : x;
  floatv p = -0.0055151274f;
  p = p * square + 0.020469392f;
  p = p * square - 0.053688016f;
  p = p * square + 0.13330831f;
  p = p * square - 0.3333326f;
  const floatv large = ONE - 2.0f / (exp(2.0f * size) + ONE);
  return size < 0.625f ? x + x * square * p : x < 0.0f ? -large : large;
#elif KIND == 5
  const floatv line = a * x + b;
  return line < 0.0f ? ZERO : line > 1.0f ? ONE : line;
#elif KIND == 6
  const floatv line = x * (1.0f / 6.0f) + 0.5f;
  return x * (line < 0.0f ? ZERO : line > 1.0f ? ONE : line);
#elif KIND == 7
  return x * logistic_of(x).at;
#elif KIND == 8
  return x * normal_below(x, BELL(x));
#else
  return x * logistic_of(GELU_ARGUMENT(x)).at;
#endif
}

static inline floatv gradient(const floatv kept, const floatv dy, const float a, const float b) {
#if KIND == 1
  return kept > 0.0f ? dy : a * dy; /* kept is x, or y: with a >= 0 they have the same sign */
#elif KIND == 2
  return kept <= a || kept >= b ? ZERO : dy;
#elif KIND == 3
  return dy * (kept * (ONE - kept));
#elif KIND == 4
  return dy * ((ONE - kept) * (ONE + kept));
#elif KIND == 5
  return kept <= 0.0f || kept >= 1.0f ? ZERO : a * dy;
#elif KIND == 6
  return kept <= -3.0f ? ZERO : kept >= 3.0f ? dy : dy * (kept * (1.0f / 3.0f) + 0.5f);
#elif KIND == 7
  const logistic l = logistic_of(kept);
  return dy * (l.at * (ONE + kept * l.against));
#elif KIND == 8
  const floatv bell = BELL(kept);
  return dy * (normal_below(kept, bell) + 0.39894228f * kept * bell);
#else
  const logistic l = logistic_of(GELU_ARGUMENT(kept));
  return dy * (l.at * (ONE + kept * l.against * GELU_SLOPE * (ONE + 3.0f * GELU_CUBE * kept * kept)));
#endif
}

/* ---- kernels ---- */

CVY_KERNEL activation_forward(global const floatv *x, global floatv *y, const uint n, const uint chunk, const float a,
                              const float b, const int columns, const int vecs, const cvy_divider by_vecs) {
  CVY_FOR_EACH_VECTOR(i, n, chunk) {
    floatv value = activate(x[i], a, b);
#if MASKED
    const int first = ((int)i - fast_div((int)i, by_vecs) * vecs) * VEC;
    value = first + LANE_NUMBERS < columns ? value : ZERO;
#endif
    y[i] = value;
  }
}

CVY_KERNEL activation_backward(global const floatv *restrict kept, global const floatv *dy, global floatv *dx,
                               const uint n, const uint chunk, const float a, const float b) {
  CVY_FOR_EACH_VECTOR(i, n, chunk) dx[i] = gradient(kept[i], dy[i], a, b);
}

CVY_KERNEL activation_backward_add(global const floatv *restrict kept, global const floatv *dy, global floatv *dx,
                                   const uint n, const uint chunk, const float a, const float b) {
  CVY_FOR_EACH_VECTOR(i, n, chunk) dx[i] += gradient(kept[i], dy[i], a, b);
}
