/* SPDX-License-Identifier: MIT
 * Softmax cross-entropy of logits against class labels, with the batch's loss and hits reduced on the device.
 *   l_n = log(sum_c exp(x[n,c] - m_n)) + m_n - x[n,label_n],  m_n = max_c x[n,c]
 *   result.loss_sum (+)= sum_n l_n (fixed order);  result.correct (+)= #{n: label_n is the first largest logit (a row
 *   with a NaN never counts)}
 *   dx[n,c] = (softmax(x)[n,c] - [c == label_n]) * scale,   scale = 1/B with B the whole batch of the team; padding
 *   gets 0.
 * Label smoothing s (PyTorch's CrossEntropyLoss): the target is (1-s)*[c == label_n] + s/C instead of [c == label_n];
 *   l_n = log(sum_c exp(x[n,c] - m_n)) + (1-s)*(m_n - x[n,label_n]) + s/C * sum_c (m_n - x[n,c])
 * x, dx: (N, pitch) · labels: N int32 in 0..C-1 (checked when the data set is read) · result: one cvy_xent_result on
 * the device. */
#ifndef CVY_OPS_SOFTMAX_XENT_H
#define CVY_OPS_SOFTMAX_XENT_H

#include <math.h>

#include "src/cl/launch.h"
#include "src/ops/shape.h"

/* loss_residual: the rounding error of loss_sum. The same struct is in cl/softmax_xent.cl. */
typedef struct cvy_xent_result {
  float loss_sum, loss_residual;
  int32_t correct;
} cvy_xent_result;

/* The sum of the losses to a double's digits: each sample's loss counts with all its digits, however many there are. */
static inline double cvy_xent_loss(const cvy_xent_result *result) {
  return isfinite(result->loss_sum) ? (double)result->loss_sum + (double)result->loss_residual
                                    : (double)result->loss_sum;
}

typedef struct cvy_softmax_xent cvy_softmax_xent;
cvy_status cvy_softmax_xent_create(cvy_device *device, int n_max, int c, int pitch, cvy_softmax_xent **out);
void cvy_softmax_xent_destroy(cvy_softmax_xent **op);
size_t cvy_softmax_xent_workspace_bytes(const cvy_softmax_xent *op);
/* smoothing: from 0 to 1; 0: none. dx NULL: no gradient (evaluation). dx may be x. Pending on return. */
cvy_status cvy_softmax_xent_run(cvy_softmax_xent *op, cvy_queue *queue, int n, cvy_buffer *x, cvy_buffer *labels,
                                float scale, float smoothing, cvy_buffer *dx, cvy_buffer *result, bool accumulate,
                                cvy_buffer *workspace);

#endif
