/* SPDX-License-Identifier: MIT
 * Inside of conv2d: results that a library's products (gemm, fft) do not give: statistics of y, and the bias'
 * gradient. Not for other folders. */
#ifndef CVY_OPS_CONV2D_CONV2D_LIBRARY_H
#define CVY_OPS_CONV2D_CONV2D_LIBRARY_H

#include "src/ops/conv2d/conv2d_algorithm.h"
#include "src/ops/reduce.h"

typedef struct cvy_conv_rest {
  cvy_kernel *stats;  /* forward with statistics, else NULL */
  cvy_reduce *reduce; /* backward_weights, else NULL */
} cvy_conv_rest;

/* Zeros and CVY_OK for a pass without such results. On failure call cvy_conv_rest_destroy, too. */
cvy_status cvy_conv_rest_create(cvy_device *device, const cvy_conv2d_params *params, cvy_conv_pass pass,
                                cvy_conv_rest *rest);
void cvy_conv_rest_destroy(cvy_conv_rest *rest);
/* Workspace that it needs, from the beginning on: it runs when the library's part has been enqueued. */
size_t cvy_conv_rest_workspace_bytes(const cvy_conv_rest *rest, const cvy_conv2d_params *params, const cvy_shape *y);
/* Pending on return. */
cvy_status cvy_conv_rest_run(const cvy_conv_rest *rest, cvy_queue *queue, const cvy_conv_call *call,
                             const cvy_shape *y);

#endif
