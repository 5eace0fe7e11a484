/* SPDX-License-Identifier: MIT
 * Activations in double, from the formulas of convoy/activations.h. */
#include <math.h>

#include "src/ref/ref.h"

/* Keeps NaN. */
static double between(double x, double low, double high) { return x < low ? low : x > high ? high : x; }
static double sigmoid(double x) { return 1 / (1 + exp(-x)); }
static double softplus(double x) { return fmax(x, 0) + log1p(exp(-fabs(x))) + (isnan(x) ? x : 0); }
static double gelu_argument(double x) { return sqrt(2 / M_PI) * (x + 0.044715 * x * x * x); }

static double activate(const cvy_activation_params *p, double x) {
  const double a = (double)p->a, b = (double)p->b;
  switch (p->kind) {
    case CVY_ACTIVATION_RELU: return x > 0 || isnan(x) ? x : 0;
    case CVY_ACTIVATION_LEAKY_RELU: return x > 0 ? x : a * x;
    case CVY_ACTIVATION_CLIP: return between(x, a, b);
    case CVY_ACTIVATION_SIGMOID: return sigmoid(x);
    case CVY_ACTIVATION_TANH: return tanh(x);
    case CVY_ACTIVATION_HARD_SIGMOID: return between(a * x + b, 0, 1);
    case CVY_ACTIVATION_HARD_SWISH: return x * between(x / 6 + 0.5, 0, 1);
    case CVY_ACTIVATION_SILU: return x * sigmoid(x);
    case CVY_ACTIVATION_GELU: return x * (0.5 * erfc(-x * M_SQRT1_2));
    case CVY_ACTIVATION_GELU_TANH: return x * sigmoid(2 * gelu_argument(x));
    case CVY_ACTIVATION_ELU: return x > 0 ? b * x : a * expm1(x);
    case CVY_ACTIVATION_CELU: return x > 0 ? x : a * expm1(x / a);
    case CVY_ACTIVATION_SOFTPLUS: return softplus(a * x) / a;
    case CVY_ACTIVATION_MISH: return x * tanh(softplus(x));
    case CVY_ACTIVATION_SWISH: return x * sigmoid(a * x);
  }
  return NAN;
}

/* f'(x); kept is x or y. */
static double slope(const cvy_activation_params *p, double kept) {
  const double x = kept, y = kept, a = (double)p->a, b = (double)p->b;
  switch (p->kind) {
    case CVY_ACTIVATION_RELU: return y > 0;
    case CVY_ACTIVATION_LEAKY_RELU: return kept > 0 ? 1 : a;
    case CVY_ACTIVATION_CLIP: return y > a && y < b;
    case CVY_ACTIVATION_SIGMOID: return y * (1 - y);
    case CVY_ACTIVATION_TANH: return 1 - y * y;
    case CVY_ACTIVATION_HARD_SIGMOID: return y > 0 && y < 1 ? a : 0;
    case CVY_ACTIVATION_HARD_SWISH: return x <= -3 ? 0 : x >= 3 ? 1 : x / 3 + 0.5;
    case CVY_ACTIVATION_SILU: return sigmoid(x) + x * sigmoid(x) * sigmoid(-x);
    case CVY_ACTIVATION_GELU: return 0.5 * erfc(-x * M_SQRT1_2) + x * exp(-x * x / 2) / sqrt(2 * M_PI);
    case CVY_ACTIVATION_GELU_TANH: {
      const double v = 2 * gelu_argument(x), turn = 2 * sqrt(2 / M_PI) * (1 + 3 * 0.044715 * x * x);
      return sigmoid(v) + x * sigmoid(v) * sigmoid(-v) * turn;
    }
    case CVY_ACTIVATION_ELU: return y > 0 ? b : y + a;
    case CVY_ACTIVATION_CELU: return y > 0 ? 1 : y / a + 1;
    case CVY_ACTIVATION_SOFTPLUS: return sigmoid(a * x);
    case CVY_ACTIVATION_MISH: {
      const double t = tanh(softplus(x));
      return t + x * (1 - t * t) * sigmoid(x);
    }
    case CVY_ACTIVATION_SWISH: return sigmoid(a * x) + a * x * sigmoid(a * x) * sigmoid(-a * x);
  }
  return NAN;
}

void ref_activation(const cvy_activation_params *p, size_t n, const double *x, double *y) {
  for (size_t i = 0; i < n; i++) y[i] = activate(p, x[i]);
}

void ref_activation_backward(const cvy_activation_params *p, size_t n, const double *kept, const double *dy,
                             double *dx) {
  for (size_t i = 0; i < n; i++) dx[i] = slope(p, kept[i]) * dy[i];
}
