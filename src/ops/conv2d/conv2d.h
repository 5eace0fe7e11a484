/* SPDX-License-Identifier: MIT
 * Two-dimensional convolution (cross-correlation, as in deep learning), one object per layer instance.
 *
 *   y[n,p,q,k] = bias[k] + sum_{r,s,c} f(x)[n, p*stride_h + r*dilation_h - pad_h, q*stride_w + s*dilation_w - pad_w,
 *                                           first(k) + c] * w[r,s,c,k]
 *   (0 outside the image)
 *   c < C/groups; first(k) = k / (K/groups) * (C/groups): filter k sees the channels of its group alone. groups == C is
 *   a depthwise convolution.
 *   f = load prologue: v = x; if SCALE: v = fma(v - mean[g,c], scale[g,c], shift[g,c]); if RESIDUAL: v += residual; if
 *       RELU: v = max(v,0). Padding stays 0: the prologue changes pixels of the image only. It is one subtraction and
 *       one fma, so that batchnorm's backward finds the same ReLU mask. g = n / group_size (the last group may be
 *       smaller).
 *   P = (H + 2*pad_h + pad_more_h - (R-1)*dilation_h - 1)/stride_h + 1 (floor), Q alike.
 *   x: (N,H,W,C) pitch x_pitch · w: (R,S,C/groups,y_pitch) · bias: (y_pitch), zeros behind K · y: (N,P,Q,K) pitch
 *   y_pitch; channels K..pitch-1 come out 0.
 * Store epilogue (optional): stats[n,0,k] = mean over the P*Q positions of y[n,:,:,k]; stats[n,1,k] = sum of squared
 *   deviations from that mean (M2): (N,2,y_pitch) floats, which batchnorm combines later (Chan et al. 1979). Kernels of
 *   both families compute them without E[x²]-E[x]².
 * backward_data:    dx[n,h,w,first(k)+c] (+)= sum dy[n,p,q,k] * w[r,s,c,k] over p*stride_h + r*dilation_h - pad_h
 *                   == h, … ; gradient with respect to f(x).
 * backward_weights: dw[r,s,c,k] (+)= sum_{n,p,q} f(x)[…,first(k)+c] * dy[n,p,q,k];
 * backward_bias:    db[k] (+)= sum_{n,p,q} dy[n,p,q,k].
 *
 * Create chooses how each pass is computed: the algorithm (cvy_conv_algo) from `algos`, `choice`, or the shipped order
 * of preference; kernels for CPU-shaped or for SIMT devices from the device's capabilities. conv2d_algorithm.h has the
 * list of algorithms and defines one. DIRECT takes every shape, the others check theirs; kernels of its own do groups
 * and dilation. Order of every sum is fixed by shape, n_max, n, the device's capabilities and its rates (rates.h): same
 * inputs, same bits. */
#ifndef CVY_OPS_CONV2D_CONV2D_H
#define CVY_OPS_CONV2D_CONV2D_H

#include "src/cl/buffer.h"
#include "src/ops/conv2d/conv2d_params.h"

/* Output shape {P,Q,K,y_pitch}; CVY_E_ARGUMENT with the reason if there is none (filter larger than the padded image,
 * sizes < 1, 32-bit overflow). */
cvy_status cvy_conv2d_output_shape(const cvy_conv2d_params *params, cvy_shape *y);

typedef struct cvy_conv2d cvy_conv2d;
/* Compiles the kernels of all passes. */
cvy_status cvy_conv2d_create(cvy_device *device, const cvy_conv2d_params *params, cvy_conv2d **out);
void cvy_conv2d_destroy(cvy_conv2d **op);
/* Scratch that each call needs (packed weights, staging, partial sums), bytes; may be 0. Between calls it may be
 * overwritten. */
size_t cvy_conv2d_workspace_bytes(const cvy_conv2d *op);
/* Name of the kernels that do a pass, "winograd4_cpu"; "" for a pass that never runs. */
const char *cvy_conv2d_algorithm_name(const cvy_conv2d *op, cvy_conv_pass pass);
/* A pass's algorithm and tiles; AUTO for a pass that never runs. As params.choice it gives the same bits again. */
cvy_conv_choice cvy_conv2d_chosen(const cvy_conv2d *op, cvy_conv_pass pass);
/* Stated bound of a pass' error, relative L2 of the whole result against exact arithmetic on the same inputs. */
double cvy_conv2d_error_bound(const cvy_conv2d *op, cvy_conv_pass pass);
/* The shipped default, which a layer takes with auto and no choice. CVY_BAD_DEFAULTS=1 in the environment makes it the
 * worst instead, for tests of the tuner. */
cvy_status cvy_conv2d_default(cvy_device *device, const cvy_conv2d_params *params, cvy_conv_pass pass,
                              cvy_conv_choice *out);
/* Expected time of a pass by this algorithm, relative to direct's, and how many tiles it has, the default among them;
 * 0: it cannot do it. Compiles and tries nothing. */
double cvy_conv2d_expected(cvy_device *device, const cvy_conv2d_params *params, cvy_conv_pass pass, cvy_conv_algo algo,
                           int *n_tiles);
/* Every choice of params.algos that can do this pass of this shape on this device, best guess first: the tuner's
 * candidates. `out` has room for `room`; returns how many there are. May take seconds, since it tries libraries. */
int cvy_conv2d_candidates(cvy_device *device, const cvy_conv2d_params *params, cvy_conv_pass pass, cvy_conv_choice *out,
                          int room);
/* The plan of a pass of n_max samples. */
cvy_conv_expected cvy_conv2d_expected_of(const cvy_conv2d *op, cvy_conv_pass pass);
const cvy_conv2d_params *cvy_conv2d_params_of(const cvy_conv2d *op); /* borrowed */
double cvy_conv2d_flops(const cvy_conv2d_params *params, int n);     /* multiply-adds * 2 of one pass, direct count */

typedef struct cvy_conv2d_prologue {
  cvy_buffer *affine;   /* (G, 3, x_pitch): mean, scale, shift; or NULL */
  cvy_buffer *residual; /* like x, or NULL */
  int group_size;       /* samples per group of affine; 0 = all */
} cvy_conv2d_prologue;

/* All: n in 1..n_max; pending on return; buffers borrowed until the queue has run. `bias`, `stats`, `prologue` as
 * created (else NULL).
 * `accumulate`: adds to the output instead of overwriting it. */
cvy_status cvy_conv2d_forward(cvy_conv2d *op, cvy_queue *queue, int n, cvy_buffer *x,
                              const cvy_conv2d_prologue *prologue, cvy_buffer *w, cvy_buffer *bias, cvy_buffer *y,
                              cvy_buffer *stats, cvy_buffer *workspace);
cvy_status cvy_conv2d_backward_data(cvy_conv2d *op, cvy_queue *queue, int n, cvy_buffer *dy, cvy_buffer *w,
                                    cvy_buffer *dx, bool accumulate, cvy_buffer *workspace);
/* db NULL: no bias gradient. */
cvy_status cvy_conv2d_backward_weights(cvy_conv2d *op, cvy_queue *queue, int n, cvy_buffer *x,
                                       const cvy_conv2d_prologue *prologue, cvy_buffer *dy, cvy_buffer *dw,
                                       cvy_buffer *db, bool accumulate, cvy_buffer *workspace);

#endif
