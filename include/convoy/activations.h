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
  CVY_ACTIVATION_GELU_TANH     /* x * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3))) / 2 */
} cvy_activation_kind;

#endif
