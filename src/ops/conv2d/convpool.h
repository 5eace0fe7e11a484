/* SPDX-License-Identifier: MIT
 * Convolution, ReLU and 2x2 average pool as one operation, for CPU-shaped devices: the values between them are never
 * stored.
 *
 *   a[n,h,w,k] = bias[k] + sum_{r,s,c} x[n, h + r - pad_h, w + s - pad_w, c] * w[r,s,c,k]   (0 outside the image)
 *   y[n,p,q,k] = (max(a[n,2p,2q,k],0) + max(a[n,2p,2q+1,k],0) + max(a[n,2p+1,2q,k],0) + max(a[n,2p+1,2q+1,k],0)) / 4
 *   P = floor(H' / 2), Q = floor(W' / 2) with H', W' the sizes of a: a last row or column without a partner is dropped
 *   and never computed.
 *   x: (N,H,W,C) pitch x.pitch · w: (R,S,C,y_pitch) · bias: (y_pitch), zeros behind K · y, dy: (N,P,Q,K) pitch y_pitch;
 *   channels K..pitch-1 come out 0.
 * mask: (N,P,Q,y_pitch) bytes that a training forward writes and the backward passes read: bit 2*i + j is set if
 *   a[n,2p+i,2q+j,k] > 0. The gradient passes there, as through eltwise's ReLU.
 * backward_weights, backward_data: gradients of w and bias, and of x, as in conv2d.h.
 *
 * Two algorithms, by shape: `direct` if the input has few channels and needs no gradient (the first layer of a
 * network), else Winograd F(2x2,5x5) for 5x5 filters: a tile is a pooling window. Relative L2 error of a result against
 * exact arithmetic: 7e-7 and 2.7e-6. Order of every sum is fixed by shape, n and the device's number of compute units:
 * same inputs, same bits. */
#ifndef CVY_OPS_CONV2D_CONVPOOL_H
#define CVY_OPS_CONV2D_CONVPOOL_H

#include "src/ops/conv2d/conv2d.h"

typedef struct cvy_convpool_params {
  int n_max; /* largest batch of one call, >= 1 */
  cvy_shape x;
  int k, y_pitch;         /* filters and their pitch (y, w, bias, dy): a multiple of 16 */
  int r, s, pad_h, pad_w; /* stride 1 */
  bool bias;
  bool no_backward_data; /* first layer: dx is not wanted */
  bool inference;        /* no backward at all, no mask */
} cvy_convpool_params;

/* True if networks whose convolutions may take `algos` use it on this device: CPU-shaped ones with auto; given
 * algorithms are conv2d's. False with CVY_BAD_DEFAULTS=1 (conv2d.h). */
bool cvy_convpool_wanted(cvy_device *device, const cvy_conv_algo_list *algos);
/* True for shapes that it can do, and faster than three operations can. Pure. */
bool cvy_convpool_fits(const cvy_convpool_params *params);
/* {P,Q,K,y_pitch}; of shapes that fit. */
cvy_shape cvy_convpool_output_shape(const cvy_convpool_params *params);
/* Bytes of the mask of n samples. */
size_t cvy_convpool_mask_bytes(const cvy_convpool_params *params, int n);

typedef struct cvy_convpool cvy_convpool;
/* CVY_E_ARGUMENT for shapes that do not fit; CVY_E_UNSUPPORTED on devices that are not CPU-shaped. */
cvy_status cvy_convpool_create(cvy_device *device, const cvy_convpool_params *params, cvy_convpool **out);
void cvy_convpool_destroy(cvy_convpool **op);
/* "direct" or "winograd"; static. */
const char *cvy_convpool_algorithm_name(const cvy_convpool *op);
/* Scratch that each call needs, bytes. Between calls it may be overwritten. */
size_t cvy_convpool_workspace_bytes(const cvy_convpool *op);

/* All: n in 1..n_max; pending on return; buffers borrowed until the queue has run. `bias` as created, else NULL.
 * mask NULL: none is written. */
cvy_status cvy_convpool_forward(cvy_convpool *op, cvy_queue *queue, int n, cvy_buffer *x, cvy_buffer *w,
                                cvy_buffer *bias, cvy_buffer *y, cvy_buffer *mask, cvy_buffer *workspace);
/* dx (+)= */
cvy_status cvy_convpool_backward_data(cvy_convpool *op, cvy_queue *queue, int n, cvy_buffer *dy, cvy_buffer *mask,
                                      cvy_buffer *w, cvy_buffer *dx, bool accumulate, cvy_buffer *workspace);
/* dw (+)=, db (+)=; db NULL: no bias gradient. */
cvy_status cvy_convpool_backward_weights(cvy_convpool *op, cvy_queue *queue, int n, cvy_buffer *x, cvy_buffer *dy,
                                         cvy_buffer *mask, cvy_buffer *dw, cvy_buffer *db, bool accumulate,
                                         cvy_buffer *workspace);

#endif
