/* SPDX-License-Identifier: MIT
 * Winograd convolution F(2x2, 3x3) on SIMT devices in one kernel (Winograd 1980; Lavin and Gray 2016), after Yan, Wang and
 * Chu, "Optimizing Batched Winograd Convolution on GPUs" (PPoPP 2020): transformed pixels and products stay in local memory
 * and registers, so that a card with a small cache moves no more than x, w and y.
 *   forward, backward-data:  Y = At [ sum_c (G g Gt) . (Bt d B) ] A       d: 4x4 pixels, 2 apart; Y: 2x2
 * Points of interpolation 0, 1, -1, infinity.
 *
 * F(4x4, 3x3) shares winograd_fused.clh with this file: the filters, the order of tiles and groups, the end of a group.
 *
 * A work-group of 256 makes 32 tiles x 32 filters, in steps of 4 channels. A step in local memory: v[c][point][tile] and
 * u[c][point][filter]. Sixteen items multiply the matrices of one point, 8 tiles x 8 filters each: 64 multiply-adds for four
 * 16-byte loads. Meanwhile, the pixels and filters of the next step are loaded into registers: the first 128 items
 * read 4x4 pixels each (one tile and channel), the others four quads of u. Yan uses 64 filters. With 32, the sums
 * take 64 registers of each item instead of 128, and two work-groups fit a compute unit.
 * Inverse transform: four strips of 8 tiles go through local memory; each item then transforms one tile and filter of
 * each strip. Item i has filter i % 32 and tiles i / 32 * 4 + strip.
 *
 * Parameters (defaults in brackets):
 *   PROLOGUE [0]  1: there is a load prologue; `flags` says which: 1 mean, scale and shift, 2 ReLU, 3 both; 2: with a
 *                 residual, `flags` alike */
#include "common.clh"
#include "conv2d/conv2d_flags.clh"

#ifndef PROLOGUE
#define PROLOGUE 0
#endif
#if PROLOGUE < 0 || PROLOGUE > 2
#error "PROLOGUE is to be 0, 1 or 2"
#endif

#define TILE_OUT 2
#define TAPS 3
#define TILES 32 /* CVY_FUSED2_TILES */
#define ITEMS 256
#include "winograd/winograd_fused.clh"

#define LOADERS 128                  /* items that read pixels */
#define V_PITCH (POINTS * TILES + 8) /* distance of channels: 8 more, so that a warp's stores use all banks */
#define U_AT (CHANNELS * V_PITCH)
#define LOCAL_FLOATS (U_AT + U_FLOATS)
#define STRIP 8 /* tiles of a strip of results: 16 points of a strip fit the memory of a step */

/* How many registers a compiler may use: see GEMM_KERNEL in gemm_core.clh. */
#if defined(CVY_REGISTER_LIMIT)
#define FUSED_KERNEL kernel void
#elif defined(__GFX10__) || defined(__GFX11__) || defined(__GFX12__)
#define FUSED_KERNEL kernel __attribute__((reqd_work_group_size(256, 1, 1), amdgpu_waves_per_eu(8))) void
#elif defined(CVY_SUB_GROUP)
#define FUSED_KERNEL kernel __attribute__((reqd_work_group_size(256, 1, 1), intel_reqd_sub_group_size(CVY_SUB_GROUP))) void
#else
#define FUSED_KERNEL kernel __attribute__((reqd_work_group_size(256, 1, 1))) void
#endif

/* A strip of results: the item's two rows of it go to local memory; the item then reads all points of one tile and
 * filter, and transforms them: outputs (0,0), (0,1), (1,0), (1,1). All items must call it together. */
static inline float4 transform_back(local float *m, int item, float4 upper0, float4 upper1, float4 lower0, float4 lower1) {
  local float *const to = m + (item / 16 * STRIP + item % 16 / 4 * 2) * FILTERS + item % 4 * 4;
  *(local float4 *)to = upper0, *(local float4 *)(to + FILTERS / 2) = upper1;
  *(local float4 *)(to + FILTERS) = lower0, *(local float4 *)(to + FILTERS + FILTERS / 2) = lower1;
  barrier(CLK_LOCAL_MEM_FENCE);
  local const float *const from = m + item;
#define POINT(p) from[(p) * STRIP * FILTERS]
#define POINT_ROW(i) (float4)(POINT(4 * (i)), POINT(4 * (i) + 1), POINT(4 * (i) + 2), POINT(4 * (i) + 3))
  const float4 m0 = POINT_ROW(0), m1 = POINT_ROW(1), m2 = POINT_ROW(2), m3 = POINT_ROW(3);
  barrier(CLK_LOCAL_MEM_FENCE);
  const float4 above = m0 + m1 + m2, below = m1 - m2 - m3;
  return (float4)(above.x + above.y + above.z, above.y - above.z - above.w, below.x + below.y + below.z,
                  below.y - below.z - below.w);
}

/* x, through the load prologue, * u → out, as described at the head of this file. */
FUSED_KERNEL winograd_fused_multiply(global const float *restrict x, global const float *restrict affine,
                                     global const float *restrict residual, global const float *restrict u,
                                     global const float *restrict bias, global float *restrict out,
                                     global float *restrict slots, const cvy_conv_fused_call call) {
  local float tiles[LOCAL_FLOATS] __attribute__((aligned(16)));
#if PROLOGUE
  local int affine_at[LOADERS]; /* each item keeps its own here: a register would be one too many */
#endif
  const int item = get_local_id(0);
  const blocks of = blocks_of(get_group_id(0), call);
  const int t0 = of.tile * TILES;

  /* Items that read pixels: the tile, the channel of a step, and a mask of its 16 pixels, a bit for each that
   * exists. */
  const bool reads_pixels = item < LOADERS;
  const int channel = item % CHANNELS, row_pitch = call.in.w * call.in.pitch;
  int inside = 0, from;
  if (reads_pixels) {
    const place p = place_of(t0 + item / CHANNELS, call);
    const int row = p.row - call.pad_h, col = p.col - call.pad_w;
    int cols = 0;
#pragma unroll
    for (int i = 0; i < 4; i++) cols |= col + i >= 0 && col + i < call.in.w ? 1 << i : 0;
#pragma unroll
    for (int i = 0; i < 4; i++) inside |= row + i >= 0 && row + i < call.in.h ? cols << (4 * i) : 0;
    if (p.rows == 0) inside = 0;
    from = (p.image * call.in.h + row) * row_pitch + col * call.in.pitch + channel - CHANNELS;
#if PROLOGUE
    affine_at[item] = fast_div(p.image, call.by_group) * 3 * call.in.pitch + channel;
#endif
  } else {
    from = of.filter * call.steps * U_FLOATS + (item - LOADERS) * 4 - U_FLOATS;
  }
  local float *const to = tiles + (reads_pixels ? channel * V_PITCH + item / CHANNELS : U_AT + (item - LOADERS) * 4);
  /* The item's tiles: 8 neighbours. Its filters: quads, half a block apart. */
  local const float *const a_from = tiles + item / 16 * TILES + item % 16 / 4 * 8,
                           *const b_from = tiles + U_AT + item / 16 * FILTERS + item % 4 * 4;

  /* Each loop over the sums is written out: Intel's compiler keeps an array in memory otherwise. */
#define FIRST_ROWS(DO) DO(0, a.x) DO(1, a.y) DO(2, a.z) DO(3, a.w)
#define LAST_ROWS(DO) DO(4, a.x) DO(5, a.y) DO(6, a.z) DO(7, a.w)
#define NEW_ROW(i, a) float4 acc##i##0 = (float4)(0.0f), acc##i##1 = (float4)(0.0f);
#define ADD_ROW(i, a) acc##i##0 += (a) * b0, acc##i##1 += (a) * b1;
#define MULTIPLY(c)                                                                                         \
  {                                                                                                         \
    local const float *const from_a = a_from + (c) * V_PITCH, *const from_b = b_from + (c) * U_PITCH;     \
    const float4 b0 = *(local const float4 *)from_b, b1 = *(local const float4 *)(from_b + FILTERS / 2);  \
    float4 a = *(local const float4 *)from_a;                                                               \
    FIRST_ROWS(ADD_ROW)                                                                                     \
    a = *(local const float4 *)(from_a + 4);                                                                \
    LAST_ROWS(ADD_ROW)                                                                                      \
  }
  FIRST_ROWS(NEW_ROW)
  LAST_ROWS(NEW_ROW)

#pragma unroll 1
  for (int step = -1; step < call.steps; step++) {
    float4 s0 = (float4)(0.0f), s1 = s0, s2 = s0, s3 = s0; /* rows of pixels; quads of u */
    from += reads_pixels ? CHANNELS : U_FLOATS;
    if (reads_pixels) {
      const int live = (step + 1) * CHANNELS + channel < call.in.c ? inside : 0;
#define PIXEL(i, j) (live & 1 << (4 * (i) + (j)) ? x[from + (i) * row_pitch + (j) * call.in.pitch] : 0.0f)
#define PIXEL_ROW(i) (float4)(PIXEL(i, 0), PIXEL(i, 1), PIXEL(i, 2), PIXEL(i, 3))
      s0 = PIXEL_ROW(0), s1 = PIXEL_ROW(1), s2 = PIXEL_ROW(2), s3 = PIXEL_ROW(3);
    } else if (step + 1 < call.steps) {
      global const float4 *const quads = (global const float4 *)(u + from);
      s0 = quads[0], s1 = quads[LOADERS], s2 = quads[2 * LOADERS], s3 = quads[3 * LOADERS];
    }
    if (step >= 0) {
#pragma unroll 1
      for (int c = 0; c < CHANNELS; c += 2) {
        MULTIPLY(c)
        MULTIPLY(c + 1)
      }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    if (reads_pixels) {
#if PROLOGUE
      const int live = (step + 1) * CHANNELS + channel < call.in.c ? inside : 0;
      float mean = 0.0f, scale = 1.0f, shift = 0.0f;
      if (call.flags & FLAG_SCALE && live) {
        global const float *const of_channel = affine + affine_at[item] + (step + 1) * CHANNELS;
        mean = of_channel[0], scale = of_channel[call.in.pitch], shift = of_channel[2 * call.in.pitch];
      }
#if PROLOGUE == 2
#define RESIDUAL(i, j) (live & 1 << (4 * (i) + (j)) ? residual[from + (i) * row_pitch + (j) * call.in.pitch] : 0.0f)
#define ADD_RESIDUAL(i, v) \
  if (call.flags & FLAG_RESIDUAL) v += (float4)(RESIDUAL(i, 0), RESIDUAL(i, 1), RESIDUAL(i, 2), RESIDUAL(i, 3));
#else
#define ADD_RESIDUAL(i, v)
#endif
#define KEEP(i, j, v) v = live & 1 << (4 * (i) + (j)) ? v : 0.0f
#define READY(i, v)                                                                                 \
  if (call.flags & FLAG_SCALE) v = fma(v - mean, (float4)(scale), (float4)(shift));                 \
  ADD_RESIDUAL(i, v)                                                                                \
  if (call.flags & FLAG_RELU) v = v < 0.0f ? (float4)(0.0f) : v;                                    \
  KEEP(i, 0, v.x), KEEP(i, 1, v.y), KEEP(i, 2, v.z), KEEP(i, 3, v.w);
      READY(0, s0)
      READY(1, s1)
      READY(2, s2)
      READY(3, s3)
#endif
      const float4 d0 = s0 - s2, d1 = s1 + s2, d2 = s2 - s1, d3 = s1 - s3;
#define STORE_ROW(i, v)                                                                              \
  to[4 * (i) * TILES] = v.x - v.z, to[(4 * (i) + 1) * TILES] = v.y + v.z, to[(4 * (i) + 2) * TILES] = v.z - v.y, \
                    to[(4 * (i) + 3) * TILES] = v.y - v.w
      STORE_ROW(0, d0);
      STORE_ROW(1, d1);
      STORE_ROW(2, d2);
      STORE_ROW(3, d3);
    } else {
      local float4 *const quads = (local float4 *)to;
      quads[0] = s0, quads[LOADERS] = s1, quads[2 * LOADERS] = s2, quads[3 * LOADERS] = s3;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
  }

  const int filter = item % FILTERS, o = of.filter * FILTERS + filter, tile = item / FILTERS * 4;
  const float b = call.has_bias && o < call.out.pitch ? bias[o] : 0.0f;
#define MAKE_TILE(s, upper0, upper1, lower0, lower1) \
  const float4 y##s = store_tile(out, place_of(t0 + tile + s, call), o, call, transform_back(tiles, item, upper0, upper1, lower0, lower1) + b);
  MAKE_TILE(0, acc00, acc01, acc40, acc41)
  MAKE_TILE(1, acc10, acc11, acc50, acc51)
  MAKE_TILE(2, acc20, acc21, acc60, acc61)
  MAKE_TILE(3, acc30, acc31, acc70, acc71)
  if (call.has_stats) store_statistics(tiles, slots, item, of, call, y0, y1, y2, y3);
}
