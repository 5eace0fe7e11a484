/* SPDX-License-Identifier: MIT
 * Softmax over the channels of each row:  y[n,c] = exp(x[n,c] - max_c x) / sum_c exp(x[n,c] - max_c x), c < C;
 * padding gets 0.
 *   backward: dx[n,c] = y[n,c] * (dy[n,c] - sum_j dy[n,j]*y[n,j]).     x, y, dx, dy: (rows, pitch). In place allowed.
 *   Pending on return. */
#ifndef CVY_OPS_SOFTMAX_H
#define CVY_OPS_SOFTMAX_H

#include "src/cl/launch.h"
#include "src/ops/shape.h"

typedef struct cvy_softmax cvy_softmax;
cvy_status cvy_softmax_create(cvy_device *device, int c, int pitch, cvy_softmax **out);
void cvy_softmax_destroy(cvy_softmax **op);
cvy_status cvy_softmax_forward(cvy_softmax *op, cvy_queue *queue, int rows, cvy_buffer *x, cvy_buffer *y);
cvy_status cvy_softmax_backward(cvy_softmax *op, cvy_queue *queue, int rows, cvy_buffer *y, cvy_buffer *dy,
                                cvy_buffer *dx);

#endif
