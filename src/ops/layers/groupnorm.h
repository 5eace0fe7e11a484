/* SPDX-License-Identifier: MIT
 * Normalisation of one sample over groups of its channels and all of its positions, with a factor and a summand per
 * channel (Wu & He 2018, "Group Normalization"; of one channel each: Ulyanov et al. 2016, "Instance Normalization"; of
 * one position and all channels: Ba et al. 2016, "Layer Normalization", in the form of ConvNeXt).
 *
 *   group g of sample n: channels [g*C/G, (g+1)*C/G) of all H*W positions, m = H*W*C/G values
 *   mean[n,g], var[n,g] (biased, /m) of x over the group;  invstd = 1/sqrt(var + eps);  xhat = (x - mean)*invstd
 *   y = xhat*gamma[c] + beta[c]
 * backward, with dm = dy*gamma[c]:
 *   dbeta[c] = sum over samples and positions of dy;  dgamma[c] = sum of dy*xhat
 *   dx = invstd*(dm - mean_g(dm) - xhat*mean_g(dm*xhat))
 * Statistics come in two passes: a mean, then the mean of what is left, `rest`, and the squares of that. x - mean is
 * exact where the mean is much larger than the deviation, and `rest` holds the digits of the mean below a float's, so
 * no digits are lost there.
 * By position: each position is a sample of its own; a layer over the channels of each pixel has n = N*H*W and
 * h = w = 1.
 * x, y, dx, dy: (n,h,w,c) of one pitch, a multiple of 16; zeros behind C, in y and dx too. gamma, beta, dgamma, dbeta:
 * (pitch), zeros behind C; beta and dbeta may be NULL.
 * saved: cvy_groupnorm_saved_bytes; the caller passes forward's to backward. Nothing else looks into it. */
#ifndef CVY_OPS_LAYERS_GROUPNORM_H
#define CVY_OPS_LAYERS_GROUPNORM_H

#include "src/cl/launch.h"
#include "src/ops/shape.h"

typedef struct cvy_groupnorm_params {
  int n_max;
  cvy_shape x;
  int groups;     /* divides the channels; 1 if h = w = 1 */
  float eps;      /* > 0 */
  bool inference; /* forward alone */
} cvy_groupnorm_params;

typedef struct cvy_groupnorm cvy_groupnorm;
/* CVY_E_ARGUMENT: shapes, groups, eps. */
cvy_status cvy_groupnorm_create(cvy_device *device, const cvy_groupnorm_params *params, cvy_groupnorm **out);
void cvy_groupnorm_destroy(cvy_groupnorm **op);
size_t cvy_groupnorm_workspace_bytes(const cvy_groupnorm *op);
/* Of n samples. Pure. */
size_t cvy_groupnorm_saved_bytes(const cvy_groupnorm_params *params, int n);

/* y may be x's buffer if there is no backward. Pending on return. */
cvy_status cvy_groupnorm_forward(cvy_groupnorm *op, cvy_queue *queue, int n, cvy_buffer *x, cvy_buffer *gamma,
                                 cvy_buffer *beta, cvy_buffer *y, cvy_buffer *saved, cvy_buffer *workspace);
/* dgamma NULL: neither dgamma nor dbeta is wanted; dx NULL: it is not wanted. dx may be dy's buffer. accumulate_dx,
 * accumulate: dx, or dgamma and dbeta, are added to. Pending on return. */
typedef struct cvy_groupnorm_backward_args {
  int n;
  cvy_buffer *x, *dy, *gamma, *saved;
  cvy_buffer *dx;
  bool accumulate_dx;
  cvy_buffer *dgamma, *dbeta;
  bool accumulate;
  cvy_buffer *workspace;
} cvy_groupnorm_backward_args;
cvy_status cvy_groupnorm_backward(cvy_groupnorm *op, cvy_queue *queue, const cvy_groupnorm_backward_args *args);

#endif
