/* SPDX-License-Identifier: MIT
 * Copies some channels of each row of x to other channels of the same row of y (ops/channels.h):
 *   y[row, y_at + c] (+)= x[row, x_at + c] for c < count, then zeros up to count + fill unless it accumulates
 *
 *   VEC  floats per vector: 4 on SIMT devices where count, fill and all places are multiples of it, else 1. CPUs load and
 *        store vectors of 16 wherever they begin, and handle the remaining floats one by one.
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
    int c = 0;
    if (g.accumulate) {
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
    const size_t to = ((size_t)row * g.y_pitch + g.y_at) / VEC + c;
    const bool copies = c * VEC < g.count;
    const floatv value = copies ? x[((size_t)row * g.x_pitch + g.x_at) / VEC + c] : (floatv)(0.0f);
    if (!g.accumulate) y[to] = value;
    else if (copies) y[to] += value;
  }
}

#endif
