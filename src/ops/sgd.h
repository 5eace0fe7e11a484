/* SPDX-License-Identifier: MIT
 * Stochastic gradient descent with PyTorch's formulas (torch.optim.SGD, dampening 0), elementwise over a run of
 * parameters:
 *   d = g + weight_decay*w;   momentum != 0:  v = momentum*v + d (v starts at 0),  d = nesterov ? d + momentum*v : v;
 *     w -= lr*d
 * Each multiply-add is one fma: d = fma(weight_decay,w,g); v = fma(momentum,v,d); d = fma(momentum,v,d); w =
 * fma(-lr,d,w); so that the host's update (team/ledger.c, the same formulas with fmaf) gives the same bits. Where a
 * factor is zero the line is skipped.
 * Running values of batch normalisation:  r = fma(momentum, S, (1-momentum)*r)   with 1-momentum computed in float on
 * the host.
 * n_elems a multiple of 16 (padding: zeros stay zeros). Pending on return. */
#ifndef CVY_OPS_SGD_H
#define CVY_OPS_SGD_H

#include "src/cl/launch.h"
#include "src/ops/sgd_params.h"
#include "src/ops/shape.h"

typedef struct cvy_sgd cvy_sgd;
cvy_status cvy_sgd_create(cvy_device *device, cvy_sgd **out);
void cvy_sgd_destroy(cvy_sgd **op);
/* v: momentum buffer, NULL if momentum is 0. */
cvy_status cvy_sgd_update(cvy_sgd *op, cvy_queue *queue, const cvy_sgd_params *params, size_t n_elems, cvy_buffer *w,
                          cvy_buffer *g, cvy_buffer *v);
cvy_status cvy_sgd_running(cvy_sgd *op, cvy_queue *queue, float momentum, size_t n_elems, cvy_buffer *running,
                           cvy_buffer *s);

#endif
