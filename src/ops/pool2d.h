/* SPDX-License-Identifier: MIT
 * Max and average pooling; global average pooling is an average over the whole image.
 *   P = (H + 2*pad_h + pad_more_h - R)/stride_h + 1, rounded down: rows that do not fill a window are dropped. With
 *   ceil_mode rounded up, and one less where the last window would begin at row H + pad_h or behind it, counted from
 *   the first row of padding. Q alike.
 *   max: y = largest x in the window (padding counts as -inf; with zero_pad as zeros); its gradient goes to the first
 *   largest in row-major order (PyTorch's rule), to no pixel if that is a zero of the padding.
 *        A NaN in the window is the result. The backward finds the place again from x and y: nothing else is saved.
 *   avg: y = sum over the window / (R*S), padding counts as zeros (count_include_pad), but what ceil_mode adds beyond
 *   it does not count. exclude_pad: the divisor counts the window's pixels alone. Gradient dy / divisor to every
 *   pixel of the window.
 * With `relu` (average only) the pixels are those of max(x, 0): a ReLU in front that is not made by itself. Its
 * gradient passes where x > 0.
 * x, dx: (N,H,W,C) pitch · y, dy: (N,P,Q,C), the same pitch. pad < filter, pad + pad_more
 * from 0 to filter - 1 (no window lies wholly in padding), no ceil_mode with zero_pad: CVY_E_ARGUMENT else. */
#ifndef CVY_OPS_POOL2D_H
#define CVY_OPS_POOL2D_H

#include "src/cl/launch.h"
#include "src/ops/shape.h"

typedef enum cvy_pool_kind { CVY_POOL_MAX, CVY_POOL_AVG } cvy_pool_kind;
typedef struct cvy_pool2d_params {
  int n_max;
  cvy_pool_kind kind;
  cvy_shape x;
  int r, s, stride_h, stride_w, pad_h, pad_w; /* global average: r = h, s = w, strides 1, pads 0 */
  bool relu;                                  /* average: of max(x, 0) */
  int pad_more_h, pad_more_w;                 /* rows below and columns right beyond pad */
  bool ceil_mode;
  bool exclude_pad; /* average */
  bool zero_pad;    /* maximum: as if the image had been padded with zeros before */
} cvy_pool2d_params;

typedef struct cvy_pool2d cvy_pool2d;
cvy_status cvy_pool2d_output_shape(const cvy_pool2d_params *params, cvy_shape *y);
cvy_status cvy_pool2d_create(cvy_device *device, const cvy_pool2d_params *params, cvy_pool2d **out);
void cvy_pool2d_destroy(cvy_pool2d **op);
cvy_status cvy_pool2d_forward(cvy_pool2d *op, cvy_queue *queue, int n, cvy_buffer *x, cvy_buffer *y);
/* Gathers: each dx element sums its windows in fixed order. x, y: forward's (unused for avg, may be NULL, but for x
 * with relu). accumulate: dx +=. */
cvy_status cvy_pool2d_backward(cvy_pool2d *op, cvy_queue *queue, int n, cvy_buffer *x, cvy_buffer *y, cvy_buffer *dy,
                               cvy_buffer *dx, bool accumulate);

#endif
