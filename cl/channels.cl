/* SPDX-License-Identifier: MIT
 * Copies some channels of each row of x to other channels of the same row of y (ops/channels.h):
 *   y[row, y_at + c*y_step] (+)= x[row, x_at + c*x_step] for c < count, then `fill` zeros behind the last unless it accumulates
 *
 *   VEC  floats per vector: 4 on SIMT devices where both steps are 1 and count, fill and all places are multiples of it, else 1.
 *        CPUs load and store vectors of 16 wherever they begin, and handle the remaining floats, and steps, one by one.
 * Geometry. CPU: a work-group takes `chunk` rows; SIMT: one work-item per vector of the result. */
#include "channels_args.clh"
#include "fastdiv.clh"
#include "vector.clh"

#if CVY_CPU

CVY_KERNEL channels_copy(global const float *restrict x, global float *restrict y, const cvy_channels_geometry g) {
  const int first = (int)CVY_GROUP * g.chunk, last = min(first + g.chunk, g.rows);
  for (int row = first; row < last; row++) {
    global const float *const from = x + (size_t)row * g.x_pitch + g.x_at;
    global float *const to = y + (size_t)row * g.y_pitch + g.y_at;
    const int steps = g.x_step > 1 || g.y_step > 1;
    int c = 0;
    if (steps) {
      for (; c < g.count; c++) {
        const float value = from[c * g.x_step];
        to[c * g.y_step] = g.accumulate ? to[c * g.y_step] + value : value;
      }
      for (int f = 1; f <= g.fill && !g.accumulate; f++) to[(g.count - 1) * g.y_step + f] = 0.0f;
    } else if (g.accumulate) {
      for (; c + 16 <= g.count; c += 16) vstore16(vload16(0, to + c) + vload16(0, from + c), 0, to + c);
      for (; c < g.count; c++) to[c] += from[c];
    } else {
      for (; c + 16 <= g.count; c += 16) vstore16(vload16(0, from + c), 0, to + c);
      for (; c < g.count; c++) to[c] = from[c];
      for (; c < g.count + g.fill; c++) to[c] = 0.0f;
    }
  }
}

#else

CVY_KERNEL channels_copy(global const floatv *restrict x, global floatv *restrict y, const cvy_channels_geometry g) {
  const int i = get_global_id(0), row = fast_div(i, g.by_width), c = i - row * g.width;
  if (row < g.rows) {
    const bool copies = c * VEC < g.count;
#if VEC == 1
    const int from = c * g.x_step, at = copies ? c * g.y_step : (g.count - 1) * g.y_step + 1 + (c - g.count);
#else
    const int from = c, at = c;
#endif
    const size_t to = ((size_t)row * g.y_pitch + g.y_at) / VEC + at;
    const floatv value = copies ? x[((size_t)row * g.x_pitch + g.x_at) / VEC + from] : (floatv)(0.0f);
    if (!g.accumulate) y[to] = value;
    else if (copies) y[to] += value;
  }
}

#endif
