/* SPDX-License-Identifier: MIT
 * A value per sample and channel, s (N,1,1,C), that is added to or multiplied with all positions of its sample, x
 * (N,H,W,C): the shift or the factor of squeeze-and-excite.
 *   add:  y = x + s, with `relu` max(x + s, 0)       dx = dy (not here)      ds (+)= sum of dy over the positions
 *   mul:  y = x * s                                  dx (+)= dy * s          ds (+)= sum of dy * x over the positions
 * (the ReLU's own gradient is eltwise's). Sums go over the positions of one sample in an order that its size alone
 * decides. All have the same pitch; padding stays zero. In place: y may be x, dx may be dy. Pending on return. */
#ifndef CVY_OPS_BROADCAST_H
#define CVY_OPS_BROADCAST_H

#include "src/cl/launch.h"
#include "src/ops/shape.h"

typedef struct cvy_broadcast_params {
  int n_max;
  cvy_shape x; /* pitch: a multiple of 16 */
  bool mul, relu;
} cvy_broadcast_params;

typedef struct cvy_broadcast cvy_broadcast;
/* CVY_E_ARGUMENT: sizes below 1, a pitch that does not fit, 2^31 floats or more, `relu` with mul. */
cvy_status cvy_broadcast_create(cvy_device *device, const cvy_broadcast_params *params, cvy_broadcast **out);
void cvy_broadcast_destroy(cvy_broadcast **op);
cvy_status cvy_broadcast_forward(cvy_broadcast *op, cvy_queue *queue, int n, cvy_buffer *x, cvy_buffer *s,
                                 cvy_buffer *y);
/* mul alone. */
cvy_status cvy_broadcast_backward_data(cvy_broadcast *op, cvy_queue *queue, int n, cvy_buffer *dy, cvy_buffer *s,
                                       cvy_buffer *dx, bool accumulate);
/* x: forward's; add: not read, may be NULL. */
cvy_status cvy_broadcast_backward_sum(cvy_broadcast *op, cvy_queue *queue, int n, cvy_buffer *dy, cvy_buffer *x,
                                      cvy_buffer *ds, bool accumulate);

#endif
