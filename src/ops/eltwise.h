/* SPDX-License-Identifier: MIT
 * Elementwise operations on whole buffers of floats (padding included: zeros stay zeros). n_elems must be a multiple
 * of 16.
 *   relu:          y = max(x, 0)  (NaN stays NaN; -0 and 0 give 0)      in place allowed
 *   relu_backward: dx (+)= y > 0 ? dy : 0                               dx may be dy
 *   add:           y = a + b, with `relu` y = max(a + b, 0)             y may be a or b
 *   accumulate:    y += x
 *   mul:           y (+)= a * b                                         y may be a or b
 * All pending on return. */
#ifndef CVY_OPS_ELTWISE_H
#define CVY_OPS_ELTWISE_H

#include "src/cl/launch.h"
#include "src/ops/shape.h"

typedef struct cvy_eltwise cvy_eltwise;
/* products: mul is used; without it its kernels are not compiled. */
cvy_status cvy_eltwise_create(cvy_device *device, bool products, cvy_eltwise **out);
void cvy_eltwise_destroy(cvy_eltwise **op);
cvy_status cvy_eltwise_relu(cvy_eltwise *op, cvy_queue *queue, size_t n_elems, cvy_buffer *x, cvy_buffer *y);
cvy_status cvy_eltwise_relu_backward(cvy_eltwise *op, cvy_queue *queue, size_t n_elems, cvy_buffer *y, cvy_buffer *dy,
                                     cvy_buffer *dx, bool accumulate);
cvy_status cvy_eltwise_add(cvy_eltwise *op, cvy_queue *queue, size_t n_elems, cvy_buffer *a, cvy_buffer *b,
                           cvy_buffer *y, bool relu);
cvy_status cvy_eltwise_accumulate(cvy_eltwise *op, cvy_queue *queue, size_t n_elems, cvy_buffer *x, cvy_buffer *y);
cvy_status cvy_eltwise_mul(cvy_eltwise *op, cvy_queue *queue, size_t n_elems, cvy_buffer *a, cvy_buffer *b,
                           cvy_buffer *y, bool accumulate);

#endif
