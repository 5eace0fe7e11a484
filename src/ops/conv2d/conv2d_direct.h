/* SPDX-License-Identifier: MIT
 * Inside of conv2d: the geometry of the direct algorithms, forward and backward_data as gathers. Not for other
 * folders. */
#ifndef CVY_OPS_CONV2D_CONV2D_DIRECT_H
#define CVY_OPS_CONV2D_CONV2D_DIRECT_H

#include "cl/conv2d_args.clh"
#include "src/ops/conv2d/conv2d_params.h"

cvy_conv_gather cvy_conv_gather_forward(const cvy_conv2d_params *params, const cvy_shape *y);
/* dx at rows h = phase_h mod stride_h and columns w = phase_w mod stride_w: a gather with step 1 over dy with every
 * stride-th tap, turned. 0 <= phase_h < min(stride_h, H), phase_w alike. */
cvy_conv_gather cvy_conv_gather_phase(const cvy_conv2d_params *params, const cvy_shape *y, int phase_h, int phase_w);

/* If the output is one row (column), the stride has no effect: makes it the filter's size, so that each phase of
 * backward_data has one tap instead of a whole filter in the padding (linear layers). */
void cvy_conv_widen_strides(cvy_conv2d_params *params, const cvy_shape *y);

#endif
