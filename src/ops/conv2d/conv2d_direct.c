/* SPDX-License-Identifier: MIT */
#include "src/ops/conv2d/conv2d_direct.h"

cvy_conv_gather cvy_conv_gather_forward(const cvy_conv2d_params *p, const cvy_shape *y) {
  return (cvy_conv_gather){.in = p->x,
                           .out = *y,
                           .taps_h = p->r,
                           .taps_w = p->s,
                           .step_h = p->stride_h,
                           .step_w = p->stride_w,
                           .first_h = -p->pad_h,
                           .first_w = -p->pad_w,
                           .grid_h = y->h,
                           .grid_w = y->w,
                           .row_step = 1,
                           .col_step = 1,
                           .tap_r_step = 1,
                           .tap_s_step = 1};
}

cvy_conv_gather cvy_conv_gather_phase(const cvy_conv2d_params *p, const cvy_shape *y, int phase_h, int phase_w) {
  const cvy_conv_line h = cvy_conv_line_of(p->x.h, p->r, p->stride_h, p->pad_h, phase_h),
                      w = cvy_conv_line_of(p->x.w, p->s, p->stride_w, p->pad_w, phase_w);
  const bool any = h.taps > 0 && w.taps > 0;
  return (cvy_conv_gather){.in = *y,
                           .out = p->x,
                           .taps_h = any ? h.taps : 0,
                           .taps_w = any ? w.taps : 0,
                           .step_h = 1,
                           .step_w = 1,
                           .first_h = h.first,
                           .first_w = w.first,
                           .grid_h = h.grid,
                           .grid_w = w.grid,
                           .row0 = phase_h,
                           .row_step = p->stride_h,
                           .col0 = phase_w,
                           .col_step = p->stride_w,
                           .tap_r = h.tap,
                           .tap_r_step = -p->stride_h,
                           .tap_s = w.tap,
                           .tap_s_step = -p->stride_w};
}

void cvy_conv_widen_strides(cvy_conv2d_params *p, const cvy_shape *y) {
  if (y->h == 1 && p->stride_h < p->r) p->stride_h = p->r;
  if (y->w == 1 && p->stride_w < p->s) p->stride_w = p->s;
}
