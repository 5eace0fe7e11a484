/* SPDX-License-Identifier: MIT
 * Convolution with groups and dilation (src/ops/conv2d/conv2d.h) by its formula, for every shape, pitch and device:
 * each result is summed separately, in the order of rows, columns and channels of the filter.
 *   first(k) = k / group_k * group_c
 *   y[m,i,j,k]         = bias[k] + sum_{r,s,c} f(x)[m, i*stride + r*dilation - pad, …, first(k) + c] * w[r,s,c,k]
 *   dx[m,h,w,first + c] = sum_{r,s,k of the group} dy[m,i,j,k] * w[r,s,c,k]  where i*stride + r*dilation - pad = h
 *   dw[r,s,c,k]        = sum_{m,i,j} f(x)[…, first(k) + c] * dy[m,i,j,k], in `parts` of the positions, which
 *                        conv2d_grouped_sum adds up in order
 *
 * Geometry: a work-item takes every num_items-th result (CPU: a work-group of one work-item takes a range of
 * results). */
#define VEC 1
#include "vector.clh"
#include "conv2d_args.clh"
#include "conv2d/conv2d_flags.clh"

#if CVY_CPU
#define EACH_RESULT(i, n)                                                                                    \
  for (int i = (int)((long)(n) * (long)CVY_GROUP / (long)CVY_GROUPS),                                        \
           cvy_end = (int)((long)(n) * (long)(CVY_GROUP + 1) / (long)CVY_GROUPS);                            \
       i < cvy_end; i++)
#else
#define EACH_RESULT(i, n) for (uint i = get_global_id(0); i < (uint)(n); i += get_global_size(0))
#endif

/* The value of x at `at`, which is channel c, through the load prologue; affine: that of the sample's group. */
static inline float loaded(global const float *x, global const float *affine, global const float *residual, int at, int c,
                           int pitch, int flags) {
  float v = x[at];
  if (flags & FLAG_SCALE) v = fma(v - affine[c], affine[pitch + c], affine[2 * pitch + c]);
  if (flags & FLAG_RESIDUAL) v += residual[at];
  if (flags & FLAG_RELU) v = v < 0.0f ? 0.0f : v;
  return v;
}

CVY_KERNEL conv2d_grouped_forward(global const float *restrict x, global const float *restrict affine,
                                  global const float *restrict residual, global const float *restrict w,
                                  global const float *restrict bias, global float *restrict y,
                                  const cvy_conv_grouped_call call) {
  const int pitch = call.out.pitch;
  EACH_RESULT(i, call.n * call.out.h * call.out.w * pitch) {
    const int k = (int)i % pitch, col = (int)i / pitch % call.out.w, row = (int)i / pitch / call.out.w % call.out.h,
              image = (int)i / pitch / call.out.w / call.out.h;
    const int first = k / call.group_k * call.group_c;
    global const float *const own = affine + image / call.group_size * 3 * call.in.pitch;
    float sum = 0.0f;
    for (int r = 0; r < call.filter.r && k < call.out.c; r++) {
      const int h = row * call.filter.stride_h + r * call.dilation_h - call.filter.pad_h;
      if (h < 0 || h >= call.in.h) continue;
      for (int s = 0; s < call.filter.s; s++) {
        const int v = col * call.filter.stride_w + s * call.dilation_w - call.filter.pad_w;
        if (v < 0 || v >= call.in.w) continue;
        const int at = ((image * call.in.h + h) * call.in.w + v) * call.in.pitch + first;
        global const float *const u = w + (r * call.filter.s + s) * call.group_c * pitch + k;
        for (int c = 0; c < call.group_c; c++)
          sum = fma(loaded(x, own, residual, at + c, first + c, call.in.pitch, call.flags), u[c * pitch], sum);
      }
    }
    y[i] = call.flags & FLAG_BIAS ? sum + bias[k] : sum;
  }
}

CVY_KERNEL conv2d_grouped_backward_data(global const float *restrict dy, global const float *restrict w,
                                        global float *restrict dx, const cvy_conv_grouped_call call) {
  const int pitch = call.in.pitch;
  EACH_RESULT(i, call.n * call.in.h * call.in.w * pitch) {
    const int c = (int)i % pitch, v = (int)i / pitch % call.in.w, h = (int)i / pitch / call.in.w % call.in.h,
              image = (int)i / pitch / call.in.w / call.in.h;
    const int group = c / call.group_c;
    float sum = 0.0f;
    for (int r = 0; r < call.filter.r && c < call.in.c; r++) {
      const int top = h + call.filter.pad_h - r * call.dilation_h, row = top / call.filter.stride_h;
      if (top < 0 || row * call.filter.stride_h != top || row >= call.out.h) continue;
      for (int s = 0; s < call.filter.s; s++) {
        const int left = v + call.filter.pad_w - s * call.dilation_w, col = left / call.filter.stride_w;
        if (left < 0 || col * call.filter.stride_w != left || col >= call.out.w) continue;
        global const float *const d = dy + ((image * call.out.h + row) * call.out.w + col) * call.out.pitch +
                                      group * call.group_k;
        global const float *const u =
            w + ((r * call.filter.s + s) * call.group_c + c - group * call.group_c) * call.out.pitch + group * call.group_k;
        for (int k = 0; k < call.group_k; k++) sum = fma(d[k], u[k], sum);
      }
    }
    dx[i] = call.flags & FLAG_ACCUMULATE ? dx[i] + sum : sum;
  }
}

/* to: dw if there is one part, else the parts one after the other. */
CVY_KERNEL conv2d_grouped_backward_weights(global const float *restrict x, global const float *restrict affine,
                                           global const float *restrict residual, global const float *restrict dy,
                                           global float *restrict to, const cvy_conv_grouped_call call) {
  const int pitch = call.out.pitch, size = call.filter.r * call.filter.s * call.group_c * pitch,
            positions = call.n * call.out.h * call.out.w;
  EACH_RESULT(i, size * call.parts) {
    const int part = (int)i / size, e = (int)i % size / pitch, k = (int)i % pitch;
    const int c = k / call.group_k * call.group_c + e % call.group_c, s = e / call.group_c % call.filter.s,
              r = e / call.group_c / call.filter.s;
    const int begin = (int)((long)positions * part / call.parts), end = (int)((long)positions * (part + 1) / call.parts);
    float sum = 0.0f;
    for (int at = begin; at < end && k < call.out.c; at++) {
      const int col = at % call.out.w, row = at / call.out.w % call.out.h, image = at / call.out.w / call.out.h;
      const int h = row * call.filter.stride_h + r * call.dilation_h - call.filter.pad_h,
                v = col * call.filter.stride_w + s * call.dilation_w - call.filter.pad_w;
      if (h < 0 || h >= call.in.h || v < 0 || v >= call.in.w) continue;
      sum = fma(loaded(x, affine + image / call.group_size * 3 * call.in.pitch, residual,
                       ((image * call.in.h + h) * call.in.w + v) * call.in.pitch + c, c, call.in.pitch, call.flags),
                dy[at * pitch + k], sum);
    }
    to[i] = call.flags & FLAG_ACCUMULATE ? to[i] + sum : sum;
  }
}

/* out[i] (+)= sum over parts, in order, of from[part*n + i], i < n. */
CVY_KERNEL conv2d_grouped_sum(global const float *restrict from, global float *restrict out, int n, int parts,
                              int accumulate) {
  EACH_RESULT(i, n) {
    float sum = 0.0f;
    for (int part = 0; part < parts; part++) sum += from[(size_t)part * (size_t)n + i];
    out[i] = accumulate ? out[i] + sum : sum;
  }
}
