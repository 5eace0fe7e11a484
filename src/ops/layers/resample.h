/* SPDX-License-Identifier: MIT
 * Pictures of another size, row by row and column by column, each channel by itself. Output p of `out` lies at place
 * s of an input of `in` pixels, computed exactly as a fraction:
 *   NEAREST         s = p*in/out                     y = x[floor(s)]
 *   LINEAR          s = (p + 1/2)*in/out - 1/2       y = (1-w)*x[i] + w*x[i+1], i = floor(s), w = s - i; s < 0 is 0,
 *                                                    and behind the last pixel comes the last one
 *   LINEAR_CORNERS  s = p*(in-1)/(out-1)             the same: the outermost pixels stay where they are
 * (ONNX's Resize: asymmetric with floor, half_pixel, align_corners; PyTorch's interpolate.)
 *   backward: dx (+)= sum over outputs of their weights times dy, rows from above, columns from the left.
 * x, dx: (n,h,w,c); y, dy: (n,out_h,out_w,c), of one pitch. Pending on return. */
#ifndef CVY_OPS_LAYERS_RESAMPLE_H
#define CVY_OPS_LAYERS_RESAMPLE_H

#include "convoy/resampling.h"
#include "src/cl/launch.h"
#include "src/ops/shape.h"

typedef struct cvy_resample_params {
  int n_max;
  cvy_shape x; /* pitch: a multiple of 16 */
  int out_h, out_w;
  cvy_resample_kind kind;
} cvy_resample_params;

/* Of the result; CVY_E_ARGUMENT: a kind that is none, or sizes of which 2*in*out is more than 2^31. Pure. */
cvy_status cvy_resample_check(const cvy_resample_params *params);

typedef struct cvy_resample cvy_resample;
/* As cvy_resample_check, and shapes. */
cvy_status cvy_resample_create(cvy_device *device, const cvy_resample_params *params, cvy_resample **out);
void cvy_resample_destroy(cvy_resample **op);
cvy_status cvy_resample_forward(cvy_resample *op, cvy_queue *queue, int n, cvy_buffer *x, cvy_buffer *y);
cvy_status cvy_resample_backward(cvy_resample *op, cvy_queue *queue, int n, cvy_buffer *dy, cvy_buffer *dx,
                                 bool accumulate);

#endif
