/* SPDX-License-Identifier: MIT
 * Fully connected layer on a whole sample:  y[n,k] = bias[k] + sum_{h,w,c} x[n,h,w,c] * w[h,w,c,k]
 * x: (N,H,W,C) pitch x.pitch · w: (H,W,C,y_pitch), that is (in,out) with in = (h,w,c) row-major · y: (N,1,1,K) pitch
 * y_pitch. It is the convolution whose filter is the whole image, and runs as that; PyTorch's (c,h,w) order of
 * flattened inputs is a matter of reading and writing files (nn/weights.h). Same rules for n, accumulate, workspace and
 * pending work as conv2d.h. */
#ifndef CVY_OPS_LINEAR_H
#define CVY_OPS_LINEAR_H

#include "src/ops/conv2d/conv2d.h"

typedef struct cvy_linear_params {
  int n_max;
  cvy_shape x;
  int k, y_pitch;
  bool bias, no_backward_data, inference;
  cvy_conv_algo_list algos; /* as in conv2d.h */
  cvy_conv_choice choice[CVY_CONV_PASSES];
  cvy_math math; /* as in conv2d.h */
  const char *layer;
} cvy_linear_params;

typedef struct cvy_linear cvy_linear;
cvy_status cvy_linear_create(cvy_device *device, const cvy_linear_params *params, cvy_linear **out);
void cvy_linear_destroy(cvy_linear **op);
size_t cvy_linear_workspace_bytes(const cvy_linear *op);
const cvy_conv2d *cvy_linear_conv(const cvy_linear *op); /* the convolution that it is; borrowed */
cvy_conv_choice cvy_linear_chosen(const cvy_linear *op, cvy_conv_pass pass);
cvy_status cvy_linear_forward(cvy_linear *op, cvy_queue *queue, int n, cvy_buffer *x, cvy_buffer *w, cvy_buffer *bias,
                              cvy_buffer *y, cvy_buffer *workspace);
cvy_status cvy_linear_backward_data(cvy_linear *op, cvy_queue *queue, int n, cvy_buffer *dy, cvy_buffer *w,
                                    cvy_buffer *dx, bool accumulate, cvy_buffer *workspace);
cvy_status cvy_linear_backward_weights(cvy_linear *op, cvy_queue *queue, int n, cvy_buffer *x, cvy_buffer *dy,
                                       cvy_buffer *dw, cvy_buffer *db, bool accumulate, cvy_buffer *workspace);

#endif
