/* SPDX-License-Identifier: MIT
 * Pictures of another size (ops/layers/resample.h):
 *   forward   y  = sum of weights times x, one pixel or two by two
 *   backward  dx = sum of weights times dy over the outputs that read the pixel
 *
 *   LINEAR  [0] 1: between two pixels in each direction; 0: the pixel in front
 * Geometry. CPU: a work-group loops over rows of what it writes. SIMT: a work-item per vector of it. */
#include "fastdiv.clh"
#include "resample_args.clh"
#include "vector.clh"

#ifndef LINEAR
#define LINEAR 0
#endif

/* The pixels that an output reads, and the second one's weight. */
typedef struct taps {
  int at, next;
  float weight;
} taps;
static inline taps taps_of(const cvy_resample_line line, const int p) {
  const int place = max(p * line.step + line.first, 0), at = place / line.whole;
  taps t;
  t.at = min(at, line.in - 1);
  t.next = min(at + 1, line.in - 1);
  t.weight = LINEAR && at < line.in - 1 ? (float)(place - at * line.whole) / (float)line.whole : 0.0f;
  return t;
}

/* a / b rounded up, for b > 0 and any a. */
static inline int up(const int a, const int b) { return a > 0 ? (a + b - 1) / b : -(-a / b); }

/* The outputs that may read pixel i: from .x to in front of .y. */
static inline int2 readers_of(const cvy_resample_line line, const int i) {
  const int before = LINEAR ? i - 1 : i; /* the first place that reads it is behind this one's, or there */
  const int from = up(before * line.whole + LINEAR - line.first, line.step), to = up((i + 1) * line.whole - line.first, line.step);
  return (int2)(i == 0 ? 0 : max(from, 0), i == line.in - 1 ? line.out : min(to, line.out));
}

static inline float weight_at(const taps t, const int i) {
  return (t.at == i ? 1.0f - t.weight : 0.0f) + (t.next == i && t.next != t.at ? t.weight : 0.0f);
}

#if CVY_CPU
#define FOR_EACH(height, width, sample, i, j, v, to)                                                                  \
  for (ulong line = CVY_GROUP; line < (ulong)g.n * (height); line += CVY_GROUPS)                                      \
    for (int sample = line / (height), i = line % (height), j = 0; j < (width); j++)                                  \
      for (size_t v = 0, to = (line * (width) + j) * g.vecs; v < (size_t)g.vecs; v++, to++)
#else
#define FOR_EACH(height, width, sample, i, j, v, to)                                                                  \
  const int to = get_global_id(0), pixel = fast_div(to, g.by_vecs), v = to - pixel * g.vecs;                          \
  const int line = fast_div(pixel, g.by_columns), j = pixel - line * (width);                                         \
  const int sample = fast_div(line, g.by_rows), i = line - sample * (height);                                         \
  if (sample < g.n)
#endif

CVY_KERNEL resample_forward(global const floatv *restrict x, global floatv *restrict y, const cvy_resample_geometry g) {
  FOR_EACH(g.rows.out, g.columns.out, sample, i, j, v, to) {
    const taps row = taps_of(g.rows, i), column = taps_of(g.columns, j);
    global const floatv *const of = x + (size_t)sample * g.rows.in * g.columns.in * g.vecs + v;
    global const floatv *const above = of + (size_t)row.at * g.columns.in * g.vecs;
#if LINEAR
    global const floatv *const below = of + (size_t)row.next * g.columns.in * g.vecs;
    const size_t left = (size_t)column.at * g.vecs, right = (size_t)column.next * g.vecs;
    const floatv first = above[left] * (1.0f - column.weight) + above[right] * column.weight;
    const floatv second = below[left] * (1.0f - column.weight) + below[right] * column.weight;
    y[to] = first * (1.0f - row.weight) + second * row.weight;
#else
    y[to] = above[(size_t)column.at * g.vecs];
#endif
  }
}

CVY_KERNEL resample_backward(global const floatv *restrict dy, global floatv *restrict dx, const int accumulate,
                             const cvy_resample_geometry g) {
  FOR_EACH(g.rows.in, g.columns.in, sample, i, j, v, to) {
    const int2 rows = readers_of(g.rows, i), columns = readers_of(g.columns, j);
    global const floatv *const of = dy + (size_t)sample * g.rows.out * g.columns.out * g.vecs + v;
    floatv sum = 0.0f;
    for (int p = rows.x; p < rows.y; p++) {
      const float down = weight_at(taps_of(g.rows, p), i);
      for (int q = columns.x; q < columns.y; q++)
        sum += of[((size_t)p * g.columns.out + q) * g.vecs] * (down * weight_at(taps_of(g.columns, q), j));
    }
    dx[to] = accumulate ? dx[to] + sum : sum;
  }
}
