/* SPDX-License-Identifier: MIT
 * Batch normalisation per channel over groups of samples, with what usually follows it in one pass: residual add, and
 * an activation.
 *
 *   group g holds samples [g*group_size, min(n,(g+1)*group_size)); m_g = samples in it * H*W
 *   mean[g,c], var[g,c] (biased, /m_g) of x over the group;  invstd = 1/sqrt(var + eps)
 *   y = act( (x - mean)*invstd*gamma + beta  [+ residual] ),  act: ReLU if `relu`, else `activation`, else nothing
 *   (Ioffe & Szegedy 2015, algorithm 1; statistics by per-image (mean, M2) pairs merged in sample order, Chan et al.
 *   1979: no E[x²]-E[x]².)
 * Running values (PyTorch's convention): new = (1-momentum)*old + momentum*S with S[0,c] = sum_g w_g*mean[g,c],
 *   S[1,c] = sum_g w_g*var[g,c]*m_g/(m_g-1), w_g = samples in the group / samples of the whole batch (all devices,
 *   all micro-batches).
 *   forward_training writes (or adds to) S; the owner of the running values applies it (update.h: cvy_update_running).
 * backward, dm = dy * act'(its argument):
 *   dbeta = sum_n,g dm;  dgamma = sum dm*xhat;  xhat = (x-mean)*invstd
 *   dx = gamma*invstd*(dm - mean_g(dm) - xhat*mean_g(dm*xhat));   dresidual = dm
 * Deferred: y is never made. Instead forward writes each group's affine, (3,pitch) floats: the mean, scale =
 *   gamma*invstd and shift = beta - low*scale, low the mean's digits below a float's (0 with `parts` below). An
 *   operation that needs y reads x and computes act(fma(x - mean, scale, shift)), as conv2d's load prologue does;
 *   backward finds where ReLU passes with the same operations. If the mean is much larger than the deviation, x - mean
 *   is exact: no digits are lost.
 * x, y, dx, dy, residual: (N,H,W,C), one pitch. gamma, beta, dgamma, dbeta: (pitch), zeros behind C.
 * saved: (G,2,pitch) = mean, invstd of each group, G = ceil(n/group_size); the caller passes forward's to backward.
 * S: (2,pitch). */
#ifndef CVY_OPS_BATCHNORM_H
#define CVY_OPS_BATCHNORM_H

#include "src/cl/launch.h"
#include "src/ops/activation.h"
#include "src/ops/shape.h"

typedef struct cvy_batchnorm_params {
  int n_max;
  cvy_shape x;
  float eps; /* > 0 */
  bool relu, residual;
  cvy_activation_params activation; /* of the kind ReLU, as zeros are: none but `relu`. Else see cvy_batchnorm_takes;
                                       c and pitch are not looked at */
  bool deferred;                    /* y is never made; not with residual, nor with an activation */
  bool inference;                   /* only forward_inference is used */
} cvy_batchnorm_params;

/* Several devices have a part of the batch each, and all need the statistics of the whole. A call then has one group,
 * this device's n samples. It enqueues the commands that write its part of the statistics, (2,pitch) floats, at
 * read_bytes of `values`, and calls `combine`, which enqueues on `queue` the commands that write the whole batch's at
 * write_bytes. Parts are those of all devices whose n is not 0.
 *   forward:  mean and biased variance of the part → of the whole batch
 *   backward: the part's terms of mean(dm) and mean(dm*xhat)*invstd over the whole batch → their sums over the parts
 * dgamma, dbeta and S stay those of the part (w = n / batch): their sums over the parts are the batch's. */
typedef enum cvy_batchnorm_pass { CVY_BATCHNORM_FORWARD, CVY_BATCHNORM_BACKWARD } cvy_batchnorm_pass;
typedef struct cvy_batchnorm_parts {
  int batch; /* samples of all parts */
  cvy_status (*combine)(void *user, cvy_batchnorm_pass pass, cvy_queue *queue, cvy_buffer *values, size_t read_bytes,
                        size_t write_bytes, size_t n_floats);
  void *user;
} cvy_batchnorm_parts;

/* Whether the operation can apply the activation: not ReLU, which is `relu`, and f(0) = 0. With a residual there is
 * none. Pure. */
bool cvy_batchnorm_takes(const cvy_activation_params *activation);

typedef struct cvy_batchnorm cvy_batchnorm;
cvy_status cvy_batchnorm_create(cvy_device *device, const cvy_batchnorm_params *params, cvy_batchnorm **out);
void cvy_batchnorm_destroy(cvy_batchnorm **op);
size_t cvy_batchnorm_workspace_bytes(const cvy_batchnorm *op);
/* Bytes of `saved` for the smallest group size that will be used (>= 1). */
size_t cvy_batchnorm_saved_bytes(const cvy_batchnorm_params *params, int group_size);

/* stats: per-image (mean, M2) as conv2d's epilogue writes them, (N,2,pitch), or NULL: computed here (in the workspace).
 * group_size 0 = one group of all n. `batch` = samples of the whole batch (for w_g). accumulate: adds to S, else
 * overwrites it.
 * CVY_E_ARGUMENT if a group would have one value per channel (m_g = 1). Pending on return. y may be x's buffer only
 * without backward; NULL if deferred. parts: NULL, or see above: then group_size is 0, accumulate false, the whole
 * batch needs two values per channel, and `batch` is that of parts. affine: (G,3,pitch), zeros behind C; the caller
 * passes forward's to backward; wanted if deferred, else NULL. */
typedef struct cvy_batchnorm_forward_args {
  int n, group_size, batch;
  cvy_buffer *x, *stats, *residual, *gamma, *beta;
  cvy_buffer *y, *affine, *saved, *s;
  bool accumulate;
  cvy_buffer *workspace;
  const cvy_batchnorm_parts *parts;
} cvy_batchnorm_forward_args;
cvy_status cvy_batchnorm_forward_training(cvy_batchnorm *op, cvy_queue *queue, const cvy_batchnorm_forward_args *args);
/* y = act((x - running[0,c]) / sqrt(running[1,c] + eps) * gamma + beta [+ residual]); running: (2,pitch). Deferred:
 * affine of one group. saved, of one group: for a backward pass with `frozen`; NULL: there will be none. */
cvy_status cvy_batchnorm_forward_inference(cvy_batchnorm *op, cvy_queue *queue, int n, cvy_buffer *x,
                                           cvy_buffer *residual, cvy_buffer *gamma, cvy_buffer *beta,
                                           cvy_buffer *running, cvy_buffer *y, cvy_buffer *affine, cvy_buffer *saved,
                                           cvy_buffer *workspace);
/* After forward_training, or forward_inference with `saved`, of the same values: writes y once more, the same bits.
 * Statistics and S stay as they are; parts need no combining. Not deferred. group_size: forward_training's, else 0.
 * Pending on return. */
cvy_status cvy_batchnorm_forward_again(cvy_batchnorm *op, cvy_queue *queue, int n, int group_size, cvy_buffer *x,
                                       cvy_buffer *residual, cvy_buffer *gamma, cvy_buffer *beta, cvy_buffer *saved,
                                       cvy_buffer *y);
/* y is forward's output, where ReLU lies behind a residual: its sign says where ReLU passes; else NULL is enough. beta:
 * forward's; unused without an activation, behind a residual and if deferred: NULL is enough. dresidual: gets dm, may
 * be dy's own buffer (in place), NULL if !residual. accumulate_dresidual: adds instead (then not in place). dx may be
 * dy's buffer if dresidual is not. dgamma, dbeta (+)= when accumulate. frozen: behind forward_inference; mean and
 * deviation are constants, dx = gamma*invstd*dm, parts are not used, and dgamma and dbeta may both be NULL: not
 * wanted. */
typedef struct cvy_batchnorm_backward_args {
  int n, group_size;
  cvy_buffer *x, *y, *affine, *dy, *gamma, *beta, *saved;
  cvy_buffer *dx, *dresidual;
  bool accumulate_dresidual;
  cvy_buffer *dgamma, *dbeta;
  bool accumulate;
  cvy_buffer *workspace;
  const cvy_batchnorm_parts *parts;
  bool frozen;
} cvy_batchnorm_backward_args;
cvy_status cvy_batchnorm_backward(cvy_batchnorm *op, cvy_queue *queue, const cvy_batchnorm_backward_args *args);

#endif
