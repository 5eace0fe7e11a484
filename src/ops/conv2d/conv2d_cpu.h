/* SPDX-License-Identifier: MIT
 * Inside of conv2d: shared by the CPU-shaped algorithms. Their kernels run work-groups of one work-item, as many as
 * keep all cores busy; each has a slice of the workspace and walks over its range of tasks. Not for other folders. */
#ifndef CVY_OPS_CONV2D_CONV2D_CPU_H
#define CVY_OPS_CONV2D_CONV2D_CPU_H

#include "src/ops/shape.h"

/* Flags of the kernels beside CVY_CONV_SCALE, _RELU and _RESIDUAL, the same in cl/conv2d/conv2d_flags.clh. */
enum {
  CVY_CPU_BIAS = 8,
  CVY_CPU_STATS = 16,
  CVY_CPU_ACCUMULATE = 32,
  CVY_CPU_STREAM = 64,
  CVY_CPU_LATE = 128,
  CVY_CPU_TURNED = 256
};

/* CVY_CPU_STREAM for results so large that few of them are still in a cache when the next kernel reads them: they are
 * stored past the caches, which saves reading each line before it is written. Results that are added to old ones are
 * read anyway. */
static inline int cvy_conv_stream_flag(int n, const cvy_shape *out, bool accumulate) {
  enum { LARGE_BYTES = 16 << 20 };
  return !accumulate && (double)n * (double)cvy_shape_elems(out) * sizeof(float) >= LARGE_BYTES ? CVY_CPU_STREAM : 0;
}

static inline int64_t cvy_conv_round_up(int64_t n, int unit) { return (n + unit - 1) / unit * unit; }

/* Largest part of `length` that is no larger, made even over the parts. */
static inline int cvy_conv_even_part(int length, int largest) {
  return cvy_ceil_div(length, cvy_ceil_div(length, largest));
}

/* The most work-groups, each with a slice: with few cores several per core, so that one core that other programs use
 * does not delay the end. */
static inline int cvy_conv_most_groups(int compute_units) {
  return compute_units * (compute_units <= 8 ? 4 : compute_units <= 32 ? 2 : 1);
}

/* The last of the tiles of one dimension in Winograd's kernels with stride 1, as in cl/winograd/winograd.clh: its
 * outputs, and, bit by bit, which products it does without. */
typedef struct cvy_conv_edge {
  int of, cut;
} cvy_conv_edge;
static inline cvy_conv_edge cvy_conv_edge_of(int tile_out, int out) {
  static const cvy_conv_edge edges[] = {{2, 0x18}, {2, 0x18}, {3, 0x10}, {4, 0}};
  return tile_out == 4 ? edges[(out - 1) % 4] : (cvy_conv_edge){tile_out, 0};
}

/* Products of one dimension of all tiles of an image with these kernels. */
static inline int cvy_conv_line_products(int tile_out, int out) {
  int n = cvy_ceil_div(out, tile_out) * (tile_out + 2);
  for (int cut = cvy_conv_edge_of(tile_out, out).cut; cut; cut &= cut - 1) n--;
  return n;
}

#endif
