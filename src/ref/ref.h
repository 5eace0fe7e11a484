/* SPDX-License-Identifier: MIT
 * The truth: plain loops in double, written from the formulas of the ops' headers and from nothing else. Dense tensors
 * (no pitch): x (N,H,W,C), w (R,S,C,K). Used by tests and `convoy selftest`. Each function also computes `mag`, where
 * not NULL: the sum of the absolute values of the terms of each output element, from which a rounding bound follows
 * (|error| <= a few eps * mag). Any thread; no allocation unless said. */
#ifndef CVY_REF_H
#define CVY_REF_H

#include "convoy/input.h"
#include "src/ops/activation.h"
#include "src/ops/batchnorm.h"
#include "src/ops/broadcast.h"
#include "src/ops/conv2d/conv2d.h"
#include "src/ops/layers/dropout.h"
#include "src/ops/layers/groupnorm.h"
#include "src/ops/pool2d.h"
#include "src/ops/layers/resample.h"
#include "src/ops/update.h"

void ref_conv2d_forward(const cvy_conv2d_params *p, int n, const double *x, const double *w, const double *bias,
                        double *y, double *mag);
void ref_conv2d_backward_data(const cvy_conv2d_params *p, int n, const double *dy, const double *w, double *dx,
                              double *mag);
void ref_conv2d_backward_weights(const cvy_conv2d_params *p, int n, const double *x, const double *dy, double *dw,
                                 double *mag);
/* f(x) of the load prologue; affine: (G,3,C). */
void ref_conv2d_prologue(const cvy_conv2d_params *p, int n, int group_size, const double *x, const double *affine,
                         const double *residual, double *out);
/* rows x c → c sums: bias gradients. */
void ref_reduce_columns(size_t rows, int c, const double *x, double *out, double *mag);

/* saved: (G,2,C) mean, invstd; s: (2,C). residual, s may be NULL. */
void ref_batchnorm_forward(const cvy_batchnorm_params *p, int n, int group_size, int batch, const double *x,
                           const double *residual, const double *gamma, const double *beta, double *y, double *saved,
                           double *s);
void ref_batchnorm_inference(const cvy_batchnorm_params *p, int n, const double *x, const double *residual,
                             const double *gamma, const double *beta, const double *running, double *y);
/* slope: N*H*W*C, the factor by which the activation passes the gradient (so that a device's own mask can be used).
 * NULL: the factor of ReLU, y > 0, from y. */
void ref_batchnorm_backward(const cvy_batchnorm_params *p, int n, int group_size, const double *x, const double *y,
                            const double *slope, const double *dy, const double *gamma, double *dx, double *dresidual,
                            double *dgamma, double *dbeta);
/* Backward where mean and deviation are constants: running, (2,C). */
void ref_batchnorm_backward_fixed(const cvy_batchnorm_params *p, int n, const double *x, const double *y,
                                  const double *dy, const double *gamma, const double *running, double *dx,
                                  double *dresidual, double *dgamma, double *dbeta);

/* saved: (n,G,2) mean, invstd, may be NULL; beta may be NULL. */
void ref_groupnorm(const cvy_groupnorm_params *p, int n, const double *x, const double *gamma, const double *beta,
                   double *y, double *saved);
/* mag of dgamma, dbeta: (2,C), may be NULL. */
void ref_groupnorm_backward(const cvy_groupnorm_params *p, int n, const double *x, const double *dy,
                            const double *gamma, double *dx, double *dgamma, double *dbeta, double *mag);

void ref_pool2d_forward(const cvy_pool2d_params *p, int n, const double *x, double *y);
void ref_pool2d_backward(const cvy_pool2d_params *p, int n, const double *x, const double *dy, double *dx);
/* mag: of y, of dx; may be NULL. */
void ref_resample(const cvy_resample_params *p, int n, const double *x, double *y, double *mag);
void ref_resample_backward(const cvy_resample_params *p, int n, const double *dy, double *dx, double *mag);
void ref_relu(size_t n, const double *x, double *y);
void ref_relu_backward(size_t n, const double *y, const double *dy, double *dx);
/* n values; `kept`: x, or y where cvy_activation_keeps_x returns false. c and pitch are not used. */
void ref_activation(const cvy_activation_params *p, size_t n, const double *x, double *y);
void ref_activation_backward(const cvy_activation_params *p, size_t n, const double *kept, const double *dy,
                             double *dx);
/* mag: of ds, may be NULL. The gradient of the ReLU is not included. */
void ref_broadcast(const cvy_broadcast_params *p, int n, const double *x, const double *s, double *y);
void ref_broadcast_backward(const cvy_broadcast_params *p, int n, const double *x, const double *s, const double *dy,
                            double *dx, double *ds, double *mag);
void ref_dropout(const cvy_dropout_params *p, int n, const int *samples, int epoch, const double *x, double *y);
void ref_softmax(int rows, int c, const double *x, double *y);
void ref_softmax_backward(int rows, int c, const double *y, const double *dy, double *dx);
/* dx may be NULL. */
void ref_softmax_xent(int rows, int c, const double *x, const int *labels, double scale, double smoothing, double *dx,
                      double *loss_sum, int *correct);
/* moments: CVY_MOMENTS. */
void ref_update(const cvy_update_params *p, size_t n, double *w, const double *g, double *const *moments);
double ref_norm(size_t n, const double *x);
/* Implements the contract of ops/compress.h; a sum is rounded to float. */
void ref_compress(size_t n, const double *g, double *residual, double *packed);
/* samples NULL: no augmentation. Allocates two pictures. */
void ref_gather(int n, int h, int w, int c, const cvy_input_params *input, int epoch, const unsigned char *images,
                const unsigned short *labels, const int *index, const int *samples, double *x, int *labels_out);

#endif
