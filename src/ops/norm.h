/* SPDX-License-Identifier: MIT
 * The Euclidean norm of a gradient on a device, and the factor that makes it no longer than a limit
 * (torch.nn.utils.clip_grad_norm_): scale = min(1, clip / (norm + 1e-6)).
 * Squares are summed with a double's digits, in an order that neither buckets nor the shape of kernels change, so that
 * protocol/grad_norm.h has the same bits on the host: blocks of 128 values of the flat vector, then 128 blocks, and so
 * on; cl/norm.cl has the order inside one. Values below 2^-50 count as 0. */
#ifndef CVY_OPS_NORM_H
#define CVY_OPS_NORM_H

#include "src/cl/launch.h"
#include "src/ops/norm_sum.h"

typedef struct cvy_norm cvy_norm;
/* Of vectors of n_floats, a multiple of 128. CVY_E_BUILD, CVY_E_MEMORY, CVY_E_DEVICE_MEMORY. */
cvy_status cvy_norm_create(cvy_device *device, size_t n_floats, cvy_norm **out);
void cvy_norm_destroy(cvy_norm **op);
/* Bytes of a device's memory for vectors of n_floats. */
size_t cvy_norm_bytes(size_t n_floats);
/* Floats [offset, offset + n) of the vector are the first n of `x`; both multiples of 128. Pending on return. */
cvy_status cvy_norm_add(cvy_norm *op, cvy_queue *queue, size_t offset, size_t n, cvy_buffer *x);
/* When all of the vector was added: writes a cvy_norm_result to `result`, NULL: to the operation's own. clip 0: the
 * scale is 1. Pending on return. */
cvy_status cvy_norm_finish(cvy_norm *op, cvy_queue *queue, float clip, cvy_buffer *result);
/* The operation's own result; its first float is the scale. Borrowed. */
cvy_buffer *cvy_norm_result_of(const cvy_norm *op);
#endif
