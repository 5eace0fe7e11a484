/* SPDX-License-Identifier: MIT
 * Activation functions (cvy_net_activation in net.h). */
#ifndef CONVOY_ACTIVATIONS_H
#define CONVOY_ACTIVATIONS_H

typedef enum cvy_activation_kind {
  CVY_ACTIVATION_RELU = 0,     /* max(x, 0) */
  CVY_ACTIVATION_LEAKY_RELU,   /* x > 0 ? x : a*x */
  CVY_ACTIVATION_CLIP,         /* min(max(x, a), b); ReLU6: 0, 6 */
  CVY_ACTIVATION_SIGMOID,      /* 1 / (1 + exp(-x)) */
  CVY_ACTIVATION_TANH,         /* tanh(x) */
  CVY_ACTIVATION_HARD_SIGMOID, /* min(max(a*x + b, 0), 1); PyTorch's: 1/6, 1/2 */
  CVY_ACTIVATION_HARD_SWISH,   /* x * min(max(x/6 + 1/2, 0), 1) */
  CVY_ACTIVATION_SILU,         /* x * sigmoid(x) */
  CVY_ACTIVATION_GELU,         /* x * (1 + erf(x / sqrt 2)) / 2 */
  CVY_ACTIVATION_GELU_TANH,    /* x * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3))) / 2 */
  CVY_ACTIVATION_ELU,          /* x > 0 ? b*x : a*(exp(x) - 1); ELU: b = 1; SELU: a = 1.7580993, b = 1.0507010 */
  CVY_ACTIVATION_CELU,         /* x > 0 ? x : a*(exp(x/a) - 1) */
  CVY_ACTIVATION_SOFTPLUS,     /* log(1 + exp(a*x)) / a */
  CVY_ACTIVATION_MISH,         /* x * tanh(log(1 + exp(x))) */
  CVY_ACTIVATION_SWISH         /* x * sigmoid(a*x) */
} cvy_activation_kind;

#endif
