/* SPDX-License-Identifier: MIT
 * Sums with a fixed order.
 *   columns: out[c] (+)= sum_{i<rows} x[i*pitch + c] for c < pitch: bias gradients; two stages, partial sums over
 *   fixed row blocks, then those in order.
 *   sum:     out[0] (+)= sum_{i<n} x[i];   parts: out[j] (+)= sum_{p<n_parts} x[p*n + j] (partial results of split
 *   reductions), p in order.
 * Pending on return. */
#ifndef CVY_OPS_REDUCE_H
#define CVY_OPS_REDUCE_H

#include "src/cl/launch.h"
#include "src/ops/shape.h"

typedef struct cvy_reduce cvy_reduce;
cvy_status cvy_reduce_create(cvy_device *device, cvy_reduce **out);
void cvy_reduce_destroy(cvy_reduce **op);
size_t cvy_reduce_columns_workspace_bytes(const cvy_reduce *op, size_t rows, int pitch);
cvy_status cvy_reduce_columns(cvy_reduce *op, cvy_queue *queue, size_t rows, int pitch, cvy_buffer *x, cvy_buffer *out,
                              bool accumulate, cvy_buffer *workspace);
cvy_status cvy_reduce_sum(cvy_reduce *op, cvy_queue *queue, size_t n, cvy_buffer *x, cvy_buffer *out, bool accumulate);
cvy_status cvy_reduce_parts(cvy_reduce *op, cvy_queue *queue, size_t n, int n_parts, cvy_buffer *x, cvy_buffer *out,
                            bool accumulate);

#endif
