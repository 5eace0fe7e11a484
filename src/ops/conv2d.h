/* SPDX-License-Identifier: MIT
 * Two-dimensional convolution (cross-correlation, as in deep learning), one object per layer instance.
 *
 *   y[n,p,q,k] = bias[k] + sum_{r,s,c} f(x)[n, p*stride_h + r - pad_h, q*stride_w + s - pad_w, c] * w[r,s,c,k]
 *   (0 outside the image)
 *   f = load prologue: v = x; if SCALE: v = v*scale[g,c] + shift[g,c]; if RESIDUAL: v += residual; if RELU: v =
 *   max(v,0). Padding stays 0:
 *       the prologue is applied to pixels of the image only. g = n / group_size (the last group may be smaller).
 *   P = (H + 2*pad_h - R)/stride_h + 1 (floor), Q alike.
 *   x: (N,H,W,C) pitch x_pitch · w: (R,S,C,y_pitch) · bias: (y_pitch), zeros behind K · y: (N,P,Q,K) pitch y_pitch;
 *   channels K..pitch-1 come out 0.
 * Store epilogue (optional): stats[n,0,k] = mean over the P*Q positions of y[n,:,:,k]; stats[n,1,k] = sum of squared
 * deviations from that
 *   mean (M2): (N,2,y_pitch) floats, combined later by batchnorm (Chan et al. 1979). Both-kernel families give them
 *   without E[x²]-E[x]².
 * backward_data:    dx[n,h,w,c] (+)= sum dy[n,p,q,k] * w[r,s,c,k] over p*stride_h + r - pad_h == h, … ; gradient with
 * respect to f(x).
 * backward_weights: dw[r,s,c,k] (+)= sum_{n,p,q} f(x)[…,c] * dy[n,p,q,k];   backward_bias: db[k] (+)= sum_{n,p,q}
 * dy[n,p,q,k].
 *
 * Which implementation runs is decided once, at create, from device facts and shape (`conv2d.c`, table of variants):
 * `direct_cpu` (float16
 * vectors, register tiles, one work-item per group; needs pitches that are multiples of 16 where it stores or loads
 * vectors) and
 * `direct_simt` (local-memory tiles, any pitch). The general one takes every shape. More algorithms join the table
 * later.
 * Order of every sum is fixed by shape, n and the device's number of compute units: same inputs, same bits. */
#ifndef CVY_OPS_CONV2D_H
#define CVY_OPS_CONV2D_H

#include "src/cl/launch.h"
#include "src/ops/tensor.h"

enum { CVY_CONV_SCALE = 1, CVY_CONV_RELU = 2, CVY_CONV_RESIDUAL = 4 };   /* prologue flags */
typedef enum cvy_conv_variant { CVY_CONV_AUTO = 0, CVY_CONV_DIRECT_CPU, CVY_CONV_DIRECT_SIMT } cvy_conv_variant;

typedef struct cvy_conv2d_params {
  int n_max;                        /* largest batch of one call, >= 1 */
  cvy_shape x;                      /* h, w, c, pitch of the input */
  int k, y_pitch;                   /* filters and their pitch (y, w, bias, dy) */
  int r, s, stride_h, stride_w, pad_h, pad_w;   /* filter and strides >= 1; pads >= 0; pad < filter is not required */
  bool bias;
  int prologue;                     /* CVY_CONV_* flags */
  bool stats;                       /* forward writes stats */
  bool no_backward_data;            /* first layer: dx is never asked for */
  bool inference;                   /* no backward at all */
  cvy_conv_variant variant;         /* AUTO, or force one (CVY_E_UNSUPPORTED if it cannot do the shape) */
} cvy_conv2d_params;

/* Output shape {P,Q,K,y_pitch}; CVY_E_ARGUMENT with the reason if there is none (filter larger than the padded image,
 * sizes < 1, 32-bit overflow). */
cvy_status cvy_conv2d_output_shape(const cvy_conv2d_params *params, cvy_shape *y);

typedef struct cvy_conv2d cvy_conv2d;
/* Compiles what it will need. */
cvy_status cvy_conv2d_create(cvy_device *device, const cvy_conv2d_params *params, cvy_conv2d **out);
void cvy_conv2d_destroy(cvy_conv2d **op);
/* Scratch that each call needs (packed weights, staging, partial sums), bytes; may be 0. Content is not kept between
 * calls. */
size_t cvy_conv2d_workspace_bytes(const cvy_conv2d *op);
const char *cvy_conv2d_variant_name(const cvy_conv2d *op);
double cvy_conv2d_flops(const cvy_conv2d_params *params, int n);   /* multiply-adds * 2 of one pass, direct count */

typedef struct cvy_conv2d_prologue {
  cvy_buffer *scale, *shift;        /* (G, x_pitch) each, or NULL */
  cvy_buffer *residual;             /* like x, or NULL */
  int group_size;                   /* samples per group of scale/shift; 0 = all */
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
