/* SPDX-License-Identifier: MIT
 * The update of the weights with PyTorch's formulas, elementwise over a run of parameters:
 *   SGD (torch.optim.SGD, dampening 0):
 *     d = g + weight_decay*w;   momentum != 0:  v = momentum*v + d (v starts at 0),  d = nesterov ? d + momentum*v : v;
 *     w -= lr*d
 *   Adam (torch.optim.Adam), update number t from 1, m and v start at 0:
 *     d = g + weight_decay*w;   m = m + (1-beta1)*(d - m);   v = beta2*v + (1-beta2)*d*d;
 *     w -= lr/(1-beta1^t) * m / (sqrt(v)/sqrt(1-beta2^t) + eps)
 *   AdamW (torch.optim.AdamW): w = w*(1 - lr*weight_decay), then as Adam with d = g.
 * Each multiply-add is one fma, division and square root are correctly rounded, factors of a step are computed once in
 * double (update_params.h): the host's update (protocol/host_update.h) gives the same bits. Adam's results below 2^-125
 * are 0, since devices differ in whether they compute with denormals. Where SGD's factor is zero the line is skipped.
 * Running values of batch normalisation:  r = fma(momentum, S, (1-momentum)*r)   with 1-momentum computed in float on
 * the host.
 * n_elems a multiple of 16 (padding: zeros stay zeros). Pending on return. */
#ifndef CVY_OPS_UPDATE_H
#define CVY_OPS_UPDATE_H

#include "src/cl/launch.h"
#include "src/ops/shape.h"
#include "src/ops/update_params.h"

typedef struct cvy_update cvy_update;
cvy_status cvy_update_create(cvy_device *device, cvy_update **out);
void cvy_update_destroy(cvy_update **op);

/* One bucket, or a part of it. */
typedef struct cvy_update_args {
  cvy_update_numbers numbers; /* of this update for these parameters (cvy_update_prepare) */
  size_t first, n_elems;      /* floats of the buffers; multiples of 16 */
  cvy_buffer *w, *g;
  cvy_buffer *moments[CVY_MOMENTS]; /* NULL where the optimiser keeps none */
  cvy_buffer *scale;                /* one float that multiplies the gradient first; NULL: 1 */
} cvy_update_args;
cvy_status cvy_update_run(cvy_update *op, cvy_queue *queue, const cvy_update_params *params,
                          const cvy_update_args *args);
cvy_status cvy_update_running(cvy_update *op, cvy_queue *queue, float momentum, size_t n_elems, cvy_buffer *running,
                              cvy_buffer *s);

#endif
