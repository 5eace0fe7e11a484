/* SPDX-License-Identifier: MIT
 * Inside of conv2d: the geometry of the direct algorithms. Not for other folders. */
#ifndef CVY_OPS_CONV2D_DIRECT_H
#define CVY_OPS_CONV2D_DIRECT_H

#include "src/ops/conv2d_algorithm.h"

/* Gather convolution: forward is one, and each phase of backward_data is one.
 *   out[m, row0 + i*row_step, col0 + j*col_step, o] = sum_{a < taps_h, b < taps_w, c < in.c} in[m, i*step_h + first_h +
 * a, j*step_w + first_w + b, c] * u[a,b,c,o] for i < grid_h, j < grid_w; u[a,b,.,.] is the filter's tap (tap_r +
 * a*tap_r_step, tap_s + b*tap_s_step). No taps (a filter smaller than the stride): the result is 0. */
typedef struct cvy_conv_gather {
  cvy_shape in, out;
  int taps_h, taps_w, step_h, step_w, first_h, first_w;
  int grid_h, grid_w, row0, row_step, col0, col_step;
  int tap_r, tap_r_step, tap_s, tap_s_step;
} cvy_conv_gather;

cvy_conv_gather cvy_conv_gather_forward(const cvy_conv2d_params *params, const cvy_shape *y);
/* dx at rows h = phase_h mod stride_h and columns w = phase_w mod stride_w: a gather with step 1 over dy with every
 * stride-th tap, turned. 0 <= phase_h < min(stride_h, H), phase_w alike. */
cvy_conv_gather cvy_conv_gather_phase(const cvy_conv2d_params *params, const cvy_shape *y, int phase_h, int phase_w);

/* If the output is one row (column), the stride has no effect: makes it the filter's size, so that each phase of
 * backward_data has one tap instead of a whole filter in the padding (linear layers). */
void cvy_conv_widen_strides(cvy_conv2d_params *params, const cvy_shape *y);

#endif
