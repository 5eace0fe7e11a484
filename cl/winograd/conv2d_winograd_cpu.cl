/* SPDX-License-Identifier: MIT
 * Winograd convolution of 3x3 filters on CPU-shaped devices: F(m x m, 3x3) with stride 1 (winograd.clh has the formula), and
 * phases with stride 2 (winograd_strided.clh). Forward, and backward-data with the turned filter.
 *   out[n,p,q,o] (+)= bias[o] + sum_{r,s<3, c} f(in)[n, STRIDE*p + first_h + r, STRIDE*q + first_w + s, c] * w'[r,s,c,o]
 * with w' = w, first = -pad (forward), or, with stride 1, w'[r,s,k,c] = w[2-r,2-s,c,k], first = pad - 2 (backward-data).
 * With BACK, that of stride 2, the first pixel of tile i's line of dy is m*i + first, first = ceil(pad/2) - 1.
 *
 * A tile has OUT_SIDE x OUT_SIDE outputs, and PLANES products for each pair of channels, which use U_PLANES kinds of
 * weights.
 * The last tiles of an image may have fewer outputs and products (winograd_edge_cpu.clh).
 *
 * Tiles are numbered over rows of tiles, then images; a block is `block_tiles` of them in a row. A task
 * is a block and 32 output channels (fastest). Each work-group has one work-item, which walks over a contiguous range
 * of tasks with its own slice of the workspace:
 *   zeros  one pixel of the padding
 *   v      PLANES x (blocks of 16 input channels, rows, 16): the block's tiles transformed, with the load prologue
 *          applied; reused while the task's block is the same
 *   m      PLANES x (rows, 32): products of v and u
 * The rows are the block's tiles, then a few rows of zeros that complete the last register tile. Register tile: 14
 * rows x 32 channels, or parts of that. Then m is transformed back, the bias is added, the outputs are stored, and
 * the statistics of each tile are merged into those of its image's part in this block (Chan et al. 1979);
 * conv2d_winograd_cpu_merge_stats merges the parts.
 * Transformed weights lie in front of the workspace: blocks of 32 output channels (the last of 16 if the pitch is an
 * odd multiple of 16) of U_PLANES x (C rows of the block's width, and PANEL_GAP floats so that the points do not map
 * to one set of a cache). With FLAG_LATE all tiles are one block,
 * and a group transforms LATE_CHANNELS input channels of a block of weights just before it uses them, to its own
 * place, which stays in its cache: with few tiles, writing all weights to memory would cost more than it saves.
 *
 *   TILE_OUT   m: 4 or 2, with stride 2: 4
 *   STRIDE     1 or 2
 *   BACK       1: backward-data with stride 2
 *   NARROW     1: the pitch of the output is an odd multiple of 16 */
#include "conv2d_args.clh"
#include "conv2d/conv2d_flags.clh"
#include "moments_cpu.clh"
#include "register_tile.clh"

#ifndef NARROW
#define NARROW 1
#endif
#ifndef STRIDE
#define STRIDE 1
#endif
#ifndef BACK
#define BACK 0
#endif
#if STRIDE != 1 && STRIDE != 2 || BACK && STRIDE != 2
#error "STRIDE must be 1 or 2, and 2 with BACK"
#endif

#define WINOGRAD_VECTOR float16
#if STRIDE == 2
#define TAPS 2
#endif
#include "winograd/winograd.clh"
#if STRIDE == 2
#include "winograd/winograd_strided.clh"
#endif
#include "winograd/winograd_edge_cpu.clh"
#if BACK
#define IN_SIDE TILE_IN
#define IN_STEP TILE_OUT /* pixels from the first pixel of a tile to that of the next tile */
#define OUT_SIDE (2 * TILE_OUT)
#define INPUT_LINE(d, line, odd, of) strided_gradient_line(d, line, odd, of)
#define OUTPUT_LINE(m, out, odd, of) strided_pixel_line(m, out, odd, of)
#elif STRIDE == 2
#define IN_SIDE (2 * TILE_OUT + 1)
#define IN_STEP (2 * TILE_OUT)
#define OUT_SIDE TILE_OUT
#define INPUT_LINE(d, line, odd, of) strided_input_line(d, line, of)
#define OUTPUT_LINE(m, out, odd, of) strided_output_line(m, out, of)
#else
#define IN_STEP TILE_OUT
#define OUT_SIDE TILE_OUT
#define INPUT_LINE(d, line, odd, of) tile_input_line(d, line, of)
#define OUTPUT_LINE(m, out, odd, of) tile_output_line(m, out, of)
#endif
#include "winograd/winograd_tile_cpu.clh"

#define PIXELS (IN_SIDE * IN_SIDE)
#define PLANES (SIDE * SIDE)
#define U_PLANES (WEIGHT_SIDE * WEIGHT_SIDE)

#define PANEL_GAP 32 /* src/ops/conv2d/conv2d_winograd_cpu.c has the same value */

/* Rows that a block of so many tiles has: the same in src/ops/conv2d/conv2d_winograd_cpu.c. */
static int padded_rows(int tiles) {
  const int rest = tiles % 14;
  return tiles - rest + (rest <= 12 ? (rest + 3) / 4 * 4 : 14);
}

/* ---- weights ---- */

CVY_ALWAYS_INLINE int panel_floats(int c) { return U_PLANES * (c * 32 + PANEL_GAP); }

/* Transforms one input channel of a block of output channels of the weights (3,3,C,pitch) to its row u of a panel. */
static void transform_row(global const float *w, global float *u, int point_floats, int c, int pitch, int block, int channel) {
  const int width = min(32, pitch - block * 32);
  for (int v = 0; v < width; v += 16) {
    float16 g[9];
#pragma unroll
    for (int tap = 0; tap < 9; tap++) g[tap] = vload16(0, w + (size_t)(tap * c + channel) * (size_t)pitch + block * 32 + v);
    transform_weights(g, u + v, point_floats);
  }
}

/* The turned filter of backward-data: weights (3,3,C,k_pitch) with the channels exchanged, K input channels and C
 * output channels (pitch c_pitch, zeros behind C). Transforms 16 channels k of a block of 32 c to their rows, from u
 * on, of a panel. */
static void transform_turned(global const float *w, global float *u, int point_floats, int c, int c_pitch, int k, int k_pitch,
                             int block, int part) {
  const int k0 = part * 16, width = min(32, c_pitch - block * 32), some = min(16, k - k0);
  for (int v = 0; v < width; v += 16) {
    float turned[9 * 16 * 16]; /* tap, k, c */
    const int c0 = block * 32 + v;
    for (int tap = 0; tap < 9; tap++)
      for (int j = 0; j < 16; j++) {
        float line[16];
        vstore16(c0 + j < c ? vload16(0, w + (size_t)((8 - tap) * c + c0 + j) * (size_t)k_pitch + k0) : (float16)(0.0f), 0, line);
#pragma unroll
        for (int i = 0; i < 16; i++) turned[(tap * 16 + i) * 16 + j] = line[i];
      }
    for (int i = 0; i < some; i++) {
      float16 g[9];
#pragma unroll
      for (int tap = 0; tap < 9; tap++) g[tap] = vload16(tap * 16 + i, turned);
      transform_weights(g, u + i * width + v, point_floats);
    }
  }
}

/* Transforms weights to the workspace. Each work-group takes a range of (block of output channels, input channel). */
kernel CVY_CPU_KERNEL GROUP_OF_ONE void conv2d_winograd_cpu_weights(global const float *restrict w,
                                                                    global float *restrict workspace, int c,
                                                                    int pitch) {
  const int blocks = (pitch + 31) / 32;
  const int begin = (int)((long)blocks * c * (long)CVY_GROUP / (long)CVY_GROUPS);
  const int end = (int)((long)blocks * c * (long)(CVY_GROUP + 1) / (long)CVY_GROUPS);
  for (int at = begin; at < end; at++) {
    const int block = at / c, channel = at % c, width = min(32, pitch - block * 32);
    transform_row(w, workspace + (size_t)block * (size_t)panel_floats(c) + channel * width, c * width + PANEL_GAP, c, pitch,
                  block, channel);
  }
}

/* Transforms turned weights likewise. Each work-group takes a range of (block of 32 c, 16 k). */
kernel CVY_CPU_KERNEL GROUP_OF_ONE void conv2d_winograd_cpu_weights_turned(global const float *restrict w,
                                                                           global float *restrict workspace, int c,
                                                                           int c_pitch, int k, int k_pitch) {
  const int blocks = (c_pitch + 31) / 32, parts = (k + 15) / 16;
  const int begin = (int)((long)blocks * parts * (long)CVY_GROUP / (long)CVY_GROUPS);
  const int end = (int)((long)blocks * parts * (long)(CVY_GROUP + 1) / (long)CVY_GROUPS);
  for (int at = begin; at < end; at++) {
    const int block = at / parts, part = at % parts, width = min(32, c_pitch - block * 32);
    transform_turned(w, workspace + (size_t)block * (size_t)panel_floats(k) + part * 16 * width, k * width + PANEL_GAP, c,
                     c_pitch, k, k_pitch, block, part);
  }
}

/* Transforms input channels begin..end-1 (begin: a multiple of 16) of a block of output channels to a panel of these
 * channels alone. */
static void transform_late(global const float *w, global float *u, cvy_conv_winograd_call call, int block, int begin, int end) {
  const int c = call.in.c, width = min(32, call.out.pitch - block * 32), point_floats = (end - begin) * width + PANEL_GAP;
  if (call.flags & FLAG_TURNED)
    for (int k = begin; k < end; k += 16, u += 16 * width)
      transform_turned(w, u, point_floats, call.out.c, call.out.pitch, c, call.in.pitch, block, k / 16);
  else
    for (int k = begin; k < end; k++, u += width) transform_row(w, u, point_floats, c, call.out.pitch, block, k);
}

/* ---- blocks of tiles ---- */

/* A tile: row h, column w of an image's tiles. */
typedef struct {
  int image, h, w;
} tile_place;

/* A block: its number, its first tile, its number of tiles, the rows of its matrices, and the distance of two planes
 * of v and of m in floats. */
typedef struct {
  int number;
  tile_place first;
  int tiles, rows, v_point, m_point;
} tile_block;

CVY_ALWAYS_INLINE int tiles_in(int length) { return (length + OUT_SIDE - 1) / OUT_SIDE; }

CVY_ALWAYS_INLINE tile_block block_of(cvy_conv_winograd_call call, int number) {
  const int tiles_w = tiles_in(call.out.w), per_image = tiles_in(call.out.h) * tiles_w, at = number * call.block_tiles;
  const int tiles = min(call.block_tiles, call.n * per_image - at), rows = padded_rows(tiles);
  const tile_block b = {number, {at / per_image, at % per_image / tiles_w, at % tiles_w}, tiles, rows,
                        (call.in.c + 15) / 16 * rows * 16 + 16, rows * 32 + 32};
  return b;
}

/* Goes to the next tile; true if that belongs to another image. */
CVY_ALWAYS_INLINE bool next_tile(tile_place *at, cvy_shape out) {
  if (++at->w < tiles_in(out.w)) return false;
  at->w = 0;
  if (++at->h < tiles_in(out.h)) return false;
  at->h = 0, at->image++;
  return true;
}

CVY_ALWAYS_INLINE bool is_last_h(tile_place at, cvy_shape out) { return at.h == tiles_in(out.h) - 1; }
CVY_ALWAYS_INLINE bool is_last_w(tile_place at, cvy_shape out) { return at.w == tiles_in(out.w) - 1; }

static tile_rows rows_of(tile_block b, cvy_shape out) {
  tile_rows rows = {{{0, 0}, {0, 0}}};
  tile_place tile = b.first;
  for (int t = 0; t < b.tiles; t++, next_tile(&tile, out)) next_rows(&rows, is_last_h(tile, out), is_last_w(tile, out));
  return rows;
}

/* Number of outputs of a tile's lines. */
CVY_ALWAYS_INLINE int edge_h(tile_place at, cvy_conv_winograd_call call) {
  return is_last_h(at, call.out) ? call.edges.of_h : TILE_OUT;
}
CVY_ALWAYS_INLINE int edge_w(tile_place at, cvy_conv_winograd_call call) {
  return is_last_w(at, call.out) ? call.edges.of_w : TILE_OUT;
}

/* ---- input ---- */

/* Reads 16 channels from c on of a tile's pixels, through the load prologue, to `to`, PIXELS x 16. affine: that of
 * the tile's group; residual has the layout of x. The loop is not unrolled: so many pixels with their conditions
 * take long to compile. */
CVY_ALWAYS_INLINE void prologue(global float *to, global const float *const *pixel, int c, global const float *zeros,
                                global const float *x, global const float *residual, global const float *affine,
                                int pitch, int flags) {
  const bool has_affine = (flags & FLAG_SCALE) != 0;
  const float16 mean = has_affine ? CVY_LOAD16(affine + c) : (float16)(0.0f),
                scale = has_affine ? CVY_LOAD16(affine + pitch + c) : (float16)(1.0f),
                shift = has_affine ? CVY_LOAD16(affine + 2 * pitch + c) : (float16)(0.0f),
                least = flags & FLAG_RELU ? (float16)(0.0f) : (float16)(-INFINITY);
#pragma unroll 1
  for (int i = 0; i < PIXELS; i++, to += 16) {
    float16 value = (float16)(0.0f);
    if (pixel[i] != zeros) {
      value = fma(CVY_LOAD16(pixel[i] + c) - mean, scale, shift);
      if (flags & FLAG_RESIDUAL) value += CVY_LOAD16(residual + (pixel[i] - x) + c);
      value = select(value, least, value < least);
    }
    CVY_STORE16(value, to);
  }
}

/* Transforms 16 channels from c on of these pixels to v; row: the beginning of the tile's row in each plane. Loops
 * over lines that are not unrolled compile faster. */
static void transform_lines(global const float *const *pixel, int c, global float *v, const int *row, cvy_conv_winograd_call call,
                            tile_place at) {
  const int of_h = edge_h(at, call), of_w = edge_w(at, call), cut_h = is_last_h(at, call.out) ? call.edges.cut_h : 0;
  float16 lines[SIDE * IN_SIDE], line[SIDE];
#pragma unroll 1
  for (int j = 0; j < IN_SIDE; j++) {
    float16 d[IN_SIDE];
#pragma unroll
    for (int i = 0; i < IN_SIDE; i++) d[i] = CVY_LOAD16(pixel[i * IN_SIDE + j] + c);
    INPUT_LINE(d, line, call.odd_h, of_h);
#pragma unroll
    for (int i = 0; i < SIDE; i++) lines[i * IN_SIDE + j] = line[i];
  }
#pragma unroll 1
  for (int i = 0; i < SIDE; i++) {
    if (cut_h >> i & 1) continue;
    INPUT_LINE(lines + i * IN_SIDE, line, call.odd_w, of_w);
#pragma unroll
    for (int j = 0; j < SIDE; j++) CVY_STORE16(line[j], v + row[i * SIDE + j]);
  }
}

CVY_ALWAYS_INLINE void transform_tile(global const float *const *pixel, int c, global float *v, const int *row,
                                      cvy_conv_winograd_call call, tile_place at) {
#if STRIDE == 1
  if (edge_h(at, call) == TILE_OUT && edge_w(at, call) == TILE_OUT) {
    float16 d[POINTS];
#pragma unroll
    for (int i = 0; i < POINTS; i++) d[i] = CVY_LOAD16(pixel[i] + c);
#pragma unroll
    for (int j = 0; j < TILE_IN; j++) winograd_input_line(d + j, TILE_IN);
#pragma unroll
    for (int i = 0; i < TILE_IN; i++) {
      winograd_input_line(d + i * TILE_IN, 1);
#pragma unroll
      for (int j = 0; j < TILE_IN; j++) CVY_STORE16(d[i * TILE_IN + j], v + row[i * TILE_IN + j]);
    }
    return;
  }
#endif
  transform_lines(pixel, c, v, row, call, at);
}

/* Transforms a block's tiles to v, followed by rows of zeros. pixels: room for PIXELS x 16 floats. */
CVY_ALWAYS_INLINE void load_block(global float *v, global float *pixels, global const float *zeros, global const float *x,
                                  global const float *residual, global const float *affine,
                                  cvy_conv_winograd_call call, tile_block b) {
  const cvy_shape in = call.in;
  const bool plain = (call.flags & (FLAG_SCALE | FLAG_RELU | FLAG_RESIDUAL)) == 0;
  tile_place tile = b.first;
  tile_rows rows = {{{0, 0}, {0, 0}}};
  for (int t = 0; t < b.tiles; t++, next_tile(&tile, call.out)) {
    const int h0 = tile.h * IN_STEP + call.first_h, w0 = tile.w * IN_STEP + call.first_w,
              at = tile.image * (in.h * in.w * in.pitch);
    global const float *group = plain ? affine : affine + tile.image / call.group_size * 3 * in.pitch;
    global const float *from[PIXELS], *made[PIXELS];
    find_pixels(from, x + at, zeros, h0, w0, in.h, in.w, in.pitch);
    for (int i = 0; !plain && i < PIXELS; i++) made[i] = pixels + i * 16;
    int row[PLANES];
    for (int i = 0; i < PLANES; i++) row[i] = i * b.v_point + row_of(&rows, call.edges, i / SIDE, i % SIDE) * 16;
    for (int c = 0; c < in.c; c += 16) {
      if (!plain) prologue(pixels, from, c, zeros, x, residual, group, in.pitch, call.flags);
      transform_tile(plain ? from : made, plain ? c : 0, v + c * b.rows, row, call, tile);
    }
    next_rows(&rows, is_last_h(tile, call.out), is_last_w(tile, call.out));
  }
  for (int point = 0; point < PLANES; point++)
    for (int c = 0; c < (in.c + 15) / 16; c++)
      for (int t = row_of(&rows, call.edges, point / SIDE, point % SIDE); t < b.rows; t++)
        CVY_STORE16((float16)(0.0f), v + point * b.v_point + (c * b.rows + t) * 16);
}

/* Fetches the next block's input while the present block is multiplied: floats begin..end-1 of x, up to the end of
 * x. */
static void prefetch_pixels(global const float *x, long begin, long end, long x_floats) {
  for (long i = begin; i < min(end, x_floats); i += 16) CVY_FETCH(x + i);
}

/* Fetches the old outputs of a tile, `width` channels from y on, to which the tile's outputs are added. */
static void prefetch_outputs(global const float *y, tile_place tile, cvy_shape out, int width) {
  const int h = tile.h * OUT_SIDE, w = tile.w * OUT_SIDE, rows = min(OUT_SIDE, out.h - h), cols = min(OUT_SIDE, out.w - w);
  global const float *row = y + tile.image * (out.h * out.w * out.pitch) + (h * out.w + w) * out.pitch;
  for (int i = 0; i < rows; i++, row += out.w * out.pitch)
    for (int j = 0; j < cols; j++)
      for (int k = 0; k < width; k += 16) CVY_FETCH(row + j * out.pitch + k);
}

/* ---- products ---- */

#define CHAIN 64          /* channels, a multiple of 16 */
#define LATE_CHANNELS 128 /* channels of weights transformed at once, a multiple of CHAIN */

#if CVY_WIDE_REGISTERS
#define ROWS 14
#define WIDTH 32
#include "winograd/winograd_product_tmpl.clh"
#define ROWS 4
#define WIDTH 32
#include "winograd/winograd_product_tmpl.clh"
#if NARROW
#define ROWS 14
#define WIDTH 16
#include "winograd/winograd_product_tmpl.clh"
#define ROWS 4
#define WIDTH 16
#include "winograd/winograd_product_tmpl.clh"
#endif
#else
#define ROWS 6
#define WIDTH 16
#include "winograd/winograd_product_tmpl.clh"
#define ROWS 4
#define WIDTH 16
#include "winograd/winograd_product_tmpl.clh"
#endif

/* So many rows of one plane, channels begin..end-1. */
static void multiply(global const float *v, int block_floats, int rows, global const float *u, int begin, int end, int width,
                     global float *m) {
#if CVY_WIDE_REGISTERS
  int row = 0;
#if NARROW
  if (width == 16) {
    for (; row + 14 <= rows; row += 14) product_14x16(v + row * 16, block_floats, u, 16, begin, end, m + row * 32);
    for (; row < rows; row += 4) product_4x16(v + row * 16, block_floats, u, 16, begin, end, m + row * 32);
    return;
  }
#endif
  for (; row + 14 <= rows; row += 14) product_14x32(v + row * 16, block_floats, u, 32, begin, end, m + row * 32);
  for (; row < rows; row += 4) product_4x32(v + row * 16, block_floats, u, 32, begin, end, m + row * 32);
#else
  for (int k = 0; k < width; k += 16)
    for (int row = 0, some; row < rows; row += some) {
      global const float *from = v + row * 16;
      global float *to = m + row * 32 + k;
      some = part_rows(rows - row);
      if (some == 6) product_6x16(from, block_floats, u + k, width, begin, end, to);
      else product_4x16(from, block_floats, u + k, width, begin, end, to);
    }
#endif
}

/* m (+)= v u of all planes, for input channels begin..end-1 and `width` output channels from k0 on. Meanwhile it
 * fetches the next block's input into the cache, and the old outputs if sums are added to them.
 * Blocks lie in memory in the order of their tiles, except for the rows below a tile. */
CVY_ALWAYS_INLINE void multiply_block(global float *m, global const float *v, global const float *u, global const float *x,
                                      global const float *residual, global const float *y, cvy_conv_winograd_call call, tile_block b,
                                      int k0, int width, int begin, int end) {
  const cvy_shape in = call.in;
  const int olds = call.flags & FLAG_ACCUMULATE && begin == 0 ? b.tiles : 0;
  tile_place old = b.first;
  const int blocks_k = (call.out.pitch + 31) / 32, u_point = (end - begin) * width + PANEL_GAP;
  const long in_floats = in.h * in.w * in.pitch, x_floats = call.n * in_floats,
             pixels = call.block_tiles * in_floats / (tiles_in(call.out.h) * tiles_in(call.out.w));
  const int some = (int)(pixels / (blocks_k * PLANES) + 15) / 16 * 16;
  const tile_rows rows = rows_of(b, call.out);
  long ahead = pixels * (b.number + 1) + pixels * (k0 / 32) / blocks_k + 2 * in.w * in.pitch;
  for (int point = 0; point < PLANES; point++, ahead += some) {
    const int i = point / SIDE, j = point % SIDE, kind = min(i, WEIGHT_SIDE - 1) * WEIGHT_SIDE + min(j, WEIGHT_SIDE - 1);
    prefetch_pixels(x, ahead, ahead + some, x_floats);
    if (call.flags & FLAG_RESIDUAL) prefetch_pixels(residual, ahead, ahead + some, x_floats);
    for (int t = (olds * point + PLANES - 1) / PLANES; t * PLANES < olds * (point + 1); t++, next_tile(&old, call.out))
      prefetch_outputs(y + k0, old, call.out, width);
    multiply(v + (size_t)point * (size_t)b.v_point + begin * b.rows, b.rows * 16, padded_rows(row_of(&rows, call.edges, i, j)),
             u + kind * u_point, begin, end, width, m + point * b.m_point);
  }
}

/* ---- output ---- */

enum { ALL = OUT_SIDE * OUT_SIDE };

/* Transforms 16 channels of a tile's products, in its rows of m, to its outputs. */
static void transform_product_lines(global const float *m, int point_floats, const tile_rows *tile, cvy_conv_winograd_call call,
                                    tile_place at, float16 *values) {
  const int of_h = edge_h(at, call), of_w = edge_w(at, call), cut_h = is_last_h(at, call.out) ? call.edges.cut_h : 0;
  float16 lines[SIDE * OUT_SIDE], d[SIDE], out[OUT_SIDE];
#pragma unroll 1
  for (int i = 0; i < SIDE; i++) {
    if (cut_h >> i & 1) continue;
#pragma unroll
    for (int j = 0; j < SIDE; j++)
      d[j] = CVY_LOAD16(m + (i * SIDE + j) * point_floats + row_of(tile, call.edges, i, j) * 32);
    OUTPUT_LINE(d, lines + i * OUT_SIDE, call.odd_w, of_w);
  }
#pragma unroll 1
  for (int j = 0; j < OUT_SIDE; j++) {
#pragma unroll
    for (int i = 0; i < SIDE; i++) d[i] = lines[i * OUT_SIDE + j];
    OUTPUT_LINE(d, out, call.odd_h, of_h);
#pragma unroll
    for (int i = 0; i < OUT_SIDE; i++) values[i * OUT_SIDE + j] = out[i];
  }
}

CVY_ALWAYS_INLINE void transform_products(global const float *m, int point_floats, const tile_rows *tile,
                                          cvy_conv_winograd_call call, tile_place at, float16 *values) {
#if STRIDE == 1
  if (edge_h(at, call) == TILE_OUT && edge_w(at, call) == TILE_OUT) {
    float16 d[PLANES];
#pragma unroll
    for (int i = 0; i < PLANES; i++) d[i] = CVY_LOAD16(m + i * point_floats + row_of(tile, call.edges, i / SIDE, i % SIDE) * 32);
#pragma unroll
    for (int j = 0; j < SIDE; j++) winograd_output_line(d + j, SIDE);
#pragma unroll
    for (int i = 0; i < OUT_SIDE; i++) {
      winograd_output_line(d + i * SIDE, 1);
#pragma unroll
      for (int j = 0; j < OUT_SIDE; j++) values[i * OUT_SIDE + j] = d[i * SIDE + j];
    }
    return;
  }
#endif
  transform_product_lines(m, point_floats, tile, call, at, values);
}

/* Stores 16 channels of a tile, of which rows x cols outputs lie in the image, to y, row_floats and pitch apart, and
 * merges their statistics into `stats` if FLAG_STATS. */
static void store_tile(global const float *m, int point_floats, const tile_rows *tile, tile_place at,
                       cvy_conv_winograd_call call, float16 bias, global float *y, int row_floats, int pitch, int rows, int cols, moments *stats) {
  const int flags = call.flags;
  float16 values[ALL];
  transform_products(m, point_floats, tile, call, at, values);
#pragma unroll
  for (int i = 0; i < ALL; i++) values[i] += bias;
  if (rows == OUT_SIDE && cols == OUT_SIDE) {
    if (flags & FLAG_ACCUMULATE) {
#pragma unroll
      for (int i = 0; i < ALL; i++) values[i] += CVY_LOAD16(y + i / OUT_SIDE * row_floats + i % OUT_SIDE * pitch);
    }
    if (flags & FLAG_STREAM) {
#pragma unroll
      for (int i = 0; i < ALL; i++) CVY_STREAM(values[i], y + i / OUT_SIDE * row_floats + i % OUT_SIDE * pitch);
    } else {
#pragma unroll
      for (int i = 0; i < ALL; i++) CVY_STORE16(values[i], y + i / OUT_SIDE * row_floats + i % OUT_SIDE * pitch);
    }
    if (flags & FLAG_STATS) count_values(values, ALL, stats);
    return;
  }
  float16 inside[ALL]; /* at the border; loops that are not unrolled compile faster */
  int count = 0;
#pragma unroll
  for (int i = 0; i < ALL; i++) inside[i] = values[i];
#pragma unroll 1
  for (int i = 0; i < rows; i++)
#pragma unroll 1
    for (int j = 0; j < cols; j++) {
      global float *to = y + i * row_floats + j * pitch;
      float16 value = inside[i * OUT_SIDE + j];
      if (flags & FLAG_ACCUMULATE) value += CVY_LOAD16(to);
      if (flags & FLAG_STREAM) CVY_STREAM(value, to);
      else CVY_STORE16(value, to);
      inside[count++] = value;
    }
  if (flags & FLAG_STATS) count_values(inside, count, stats);
}

/* Writes the statistics of an image's tiles in a block: to the layer's own statistics if parts == 1, else to (N,
 * parts, {sum, pivot, mean, M2}, out.pitch) in the workspace. Part: the block's number, counted from the first block
 * that holds a tile of the image. */
CVY_ALWAYS_INLINE void store_moments(moments part, cvy_conv_winograd_call call, int block, int image, int k,
                                     global float *stats, global float *workspace) {
  const size_t pitch = call.out.pitch;
  if (call.parts == 1) {
    global float *s = stats + (size_t)image * 2 * pitch + k;
    vstore16(part.sum / part.count, 0, s);
    vstore16(part.m2, 0, s + pitch);
  } else {
    const int per_image = tiles_in(call.out.h) * tiles_in(call.out.w), which = block - image * per_image / call.block_tiles;
    global float *s = workspace + call.stats_at + (size_t)(image * call.parts + which) * 4 * pitch + k;
    vstore16(part.sum, 0, s);
    vstore16(part.pivot, 0, s + pitch);
    vstore16(part.mean, 0, s + 2 * pitch);
    vstore16(part.m2, 0, s + 3 * pitch);
  }
}

/* Transforms a block's tiles, 16 output channels from k on, → y and the statistics. m: those channels of its
 * products. */
CVY_ALWAYS_INLINE void store_block(global const float *m, float16 bias, global float *y, global float *stats,
                                   global float *workspace, cvy_conv_winograd_call call, tile_block b, int k) {
  const cvy_shape out = call.out;
  moments part = NO_MOMENTS;
  tile_place tile = b.first;
  tile_rows in_m = {{{0, 0}, {0, 0}}};
  for (int t = 0; t < b.tiles; t++) {
    const int h = tile.h * OUT_SIDE, w = tile.w * OUT_SIDE, image = tile.image;
    global float *to = y + image * (out.h * out.w * out.pitch) + (h * out.w + w) * out.pitch + k;
    const int rows = min(OUT_SIDE, out.h - h), cols = min(OUT_SIDE, out.w - w), row_floats = out.w * out.pitch;
    store_tile(m, b.m_point, &in_m, tile, call, bias, to, row_floats, out.pitch, rows, cols, &part);
    next_rows(&in_m, is_last_h(tile, out), is_last_w(tile, out));
    const bool another = next_tile(&tile, out);
    if ((another || t == b.tiles - 1) && (call.flags & FLAG_STATS)) {
      store_moments(part, call, b.number, image, k, stats, workspace);
      part.count = 0.0f, part.sum = part.mean = part.m2 = (float16)(0.0f);
    }
  }
}

/* ---- kernels ---- */

kernel CVY_CPU_KERNEL GROUP_OF_ONE void conv2d_winograd_cpu_gather(
    global const float *restrict x, global const float *restrict affine, global const float *restrict residual,
    global const float *restrict bias, global const float *restrict w, global float *restrict y,
    global float *restrict stats, global float *restrict workspace, const cvy_conv_winograd_call call) {
  const int blocks16 = (call.in.c + 15) / 16, blocks_k = (call.out.pitch + 31) / 32;
  global float *zeros = workspace + call.slices_at + (size_t)CVY_GROUP * (size_t)call.slice_floats;
  global float *v = zeros + blocks16 * 16;
  global float *m = v + (size_t)PLANES * (size_t)(blocks16 * padded_rows(call.block_tiles) * 16 + 16);
  const int n_tiles = call.n * tiles_in(call.out.h) * tiles_in(call.out.w);
  const long n_tasks = (long)((n_tiles + call.block_tiles - 1) / call.block_tiles) * blocks_k;
  const long task_begin = n_tasks * (long)CVY_GROUP / (long)CVY_GROUPS;
  const long task_end = n_tasks * (long)(CVY_GROUP + 1) / (long)CVY_GROUPS;
  int loaded = -1;

  for (int i = 0; i < blocks16; i++) CVY_STORE16((float16)(0.0f), zeros + i * 16);
  for (long task = task_begin; task < task_end; task++) {
    const tile_block b = block_of(call, (int)(task / blocks_k));
    const int k0 = (int)(task % blocks_k) * 32, width = min(32, call.out.pitch - k0);
    if (b.number != loaded) load_block(v, m, zeros, x, residual, affine, call, b);
    loaded = b.number;
    const bool late = (call.flags & FLAG_LATE) != 0;
    global float *u = workspace + (size_t)(late ? (int)CVY_GROUP : k0 / 32) * (size_t)panel_floats(call.in.c);
    const int some = late ? LATE_CHANNELS : call.in.c;
    for (int c = 0; c < call.in.c; c += some) {
      const int end = min(call.in.c, c + some);
      if (late) transform_late(w, u, call, k0 / 32, c, end);
      multiply_block(m, v, u, x, residual, y, call, b, k0, width, c, end);
    }
    for (int k = 0; k < width; k += 16)
      store_block(m + k, call.flags & FLAG_BIAS ? CVY_LOAD16(bias + k0 + k) : (float16)(0.0f), y, stats, workspace, call,
                  b, k0 + k);
  }
}

/* Merges the parts of each image's statistics, in order → stats. Each work-group takes every num_groups-th of n
 * images. */
kernel CVY_CPU_KERNEL GROUP_OF_ONE void conv2d_winograd_cpu_merge_stats(global const float *restrict workspace,
                                                                        global float *restrict stats,
                                                                        const cvy_conv_winograd_call call) {
  const int tiles_h = tiles_in(call.out.h), tiles_w = tiles_in(call.out.w);
  for (int image = (int)CVY_GROUP; image < call.n; image += (int)CVY_GROUPS) {
    const int begin = image * tiles_h * tiles_w, end = begin + tiles_h * tiles_w;
    const int first = begin / call.block_tiles, last = (end - 1) / call.block_tiles;
    global const float *from = workspace + call.stats_at + (size_t)(image * call.parts) * (size_t)(4 * call.out.pitch);
    global float *to = stats + (size_t)image * (size_t)(2 * call.out.pitch);
    for (int k = 0; k < call.out.pitch; k += 16) {
      moments all = NO_MOMENTS;
      all.pivot = vload16(0, from + call.out.pitch + k);
      for (int block = first; block <= last; block++) {
        global const float *s = from + (block - first) * 4 * call.out.pitch + k;
        int count = 0;
        for (int t = max(begin, block * call.block_tiles); t < min(end, (block + 1) * call.block_tiles); t++)
          count += min(OUT_SIDE, call.out.h - (t - begin) / tiles_w * OUT_SIDE) *
                   min(OUT_SIDE, call.out.w - (t - begin) % tiles_w * OUT_SIDE);
        all.sum += vload16(0, s);
        merge_moments(&all, (float)count, vload16(0, s + call.out.pitch) - all.pivot + vload16(0, s + 2 * call.out.pitch),
                      vload16(0, s + 3 * call.out.pitch));
      }
      vstore16(all.sum / all.count, 0, to + k);
      vstore16(all.m2, 0, to + call.out.pitch + k);
    }
  }
}
