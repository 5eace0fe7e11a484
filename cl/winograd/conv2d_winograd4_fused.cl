/* SPDX-License-Identifier: MIT
 * Winograd convolution F(4x4, 3x3) on SIMT devices in one kernel: transformed pixels and products stay in local memory
 * and registers. Points of interpolation: winograd.clh. F(2x2, 3x3) shares winograd_fused.clh with this file.
 *   forward, backward-data:  Y = At [ sum_c (G g Gt) . (Bt d B) ] A       d: 6x6 pixels, 4 apart; Y: 4x4
 *
 * A work-group of 12 * TILES items makes TILES tiles x 32 filters, in steps of 4 channels. A step in local memory:
 * v[c][point][tile] and u[c][point][filter].
 *   Products: TILES items take one point, 4 tiles x 8 filters each, and the points 12 and 24 behind it: 96 multiply-adds
 *   for nine 16-byte loads. The sums take 96 registers, so that 384 items fit a compute unit with 168 registers each:
 *   one group of 32 tiles, or two of 16, each of which reads all of u again.
 *   Meanwhile, each item loads what it needs in the next step: a column of six pixels of one tile and two channels, and
 *   its share of u.
 *   Transform: the item transforms its column and stores it in v. After a barrier it takes a row of six of the same tile
 *   and channels, and transforms it in place. A warp's items take 16 neighbouring tiles and both pairs of channels: they
 *   store to different banks (V_PITCH).
 * Inverse transform: four strips of TILES / 4 tiles go through local memory; two thirds of the items then transform one
 * tile and filter of each strip.
 *
 * Parameters (defaults in brackets):
 *   TILES [32]     16 or 32
 *   PROLOGUE [0]   1: there is a load prologue; `flags` says which: 1 mean, scale and shift, 2 ReLU, 3 both; 2: with a
 *                  residual, `flags` alike
 *   VEC [2]        2: channels and pitches of the input are even; 1: any */
#include "common.clh"
#include "conv2d/conv2d_flags.clh"

#ifndef TILES
#define TILES 32
#endif
#ifndef PROLOGUE
#define PROLOGUE 0
#endif
#ifndef VEC
#define VEC 2
#endif
#if TILES != 16 && TILES != 32
#error "TILES is to be 16 or 32"
#endif
#if PROLOGUE < 0 || PROLOGUE > 2
#error "PROLOGUE is to be 0, 1 or 2"
#endif
#if VEC != 1 && VEC != 2
#error "VEC is to be 1 or 2"
#endif

#define TILE_OUT 4
#define TAPS 3
#define ITEMS (12 * TILES)
#include "winograd/winograd_fused.clh"

#define V_PITCH (POINTS * TILES + 8) /* distance of channels: those of two pairs lie 16 banks apart */
#define U_AT (CHANNELS * V_PITCH)
#define LOCAL_FLOATS (U_AT + U_FLOATS)
#define STRIP (TILES / 4)              /* tiles of a strip of results */
#define U_QUADS (U_FLOATS / 4 / ITEMS) /* of an item and step; more than three would take too many registers meanwhile: */
#define EARLY_QUADS 3                  /* these are loaded before the products, the others behind */
#define APART 12                       /* from one of an item's three points to the next */

/* How many registers a compiler may use follows from the size of a work-group on NVIDIA's cards: 168 with 384 items. AMD's
 * compiler finds 166 for 192 items on gfx1030: six wavefronts of 32 fit a SIMD unit. */
#define FUSED_KERNEL kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void

/* Two channels; the second one may not exist. */
#if VEC == 2
#define LOAD_PAIR(p, has_second) (*(global const float2 *)(p))
#else
#define LOAD_PAIR(p, has_second) (float2)(*(p), (has_second) ? (p)[1] : 0.0f)
#endif

/* x, through the load prologue, * u → out, as described at the head of this file. */
FUSED_KERNEL winograd_fused_multiply(global const float *restrict x, global const float *restrict affine,
                                     global const float *restrict residual, global const float *restrict u,
                                     global const float *restrict bias, global float *restrict out,
                                     global float *restrict slots, const cvy_conv_fused_call call) {
  local float memory[LOCAL_FLOATS] __attribute__((aligned(16)));
  const int item = get_local_id(0);
  const blocks of = blocks_of(get_group_id(0), call);
  const int t0 = of.tile * TILES;

  /* The item transforms a tile, a pair of channels of a step, column and row `line`. A bit of `inside` for each
   * of the column's pixels that exists. */
  const int pair = item % 2, tile = item / 2 % TILES, line = item / (2 * TILES), row_pitch = call.in.w * call.in.pitch;
  const place p = place_of(t0 + tile, call);
  const int row = p.row - call.pad_h, col = p.col - call.pad_w + line;
  int inside = 0;
#pragma unroll
  for (int i = 0; i < TILE_IN; i++) inside |= row + i >= 0 && row + i < call.in.h ? 1 << i : 0;
  if (p.rows == 0 || col < 0 || col >= call.in.w) inside = 0;
  int from = (p.image * call.in.h + row) * row_pitch + col * call.in.pitch + 2 * pair - CHANNELS;
#if PROLOGUE
  const int affine_at = fast_div(p.image, call.by_group) * 3 * call.in.pitch + 2 * pair;
#endif
  global const float4 *u_from = (global const float4 *)u + (of.filter * call.steps - 1) * (U_FLOATS / 4) + item;
  local float *const column_at = memory + 2 * pair * V_PITCH + line * TILES + tile,
              *const row_at = memory + 2 * pair * V_PITCH + line * TILE_IN * TILES + tile;
  local float4 *const u_to = (local float4 *)(memory + U_AT) + item;
  /* It multiplies a quad of tiles by two quads of filters. */
  local const float *const a_from = memory + item / TILES * TILES + item % TILES / 4 * 4,
                           *const b_from = memory + U_AT + item / TILES * FILTERS + item % 4 * 4;

  float4 acc[3][4][2]; /* points, tiles, quads of filters */
#pragma unroll
  for (int q = 0; q < 3; q++) {
#pragma unroll
    for (int i = 0; i < 4; i++) acc[q][i][0] = acc[q][i][1] = (float4)(0.0f);
  }
#pragma unroll 1
  for (int step = -1; step < call.steps; step++) {
    const int c = (step + 1) * CHANNELS + 2 * pair, live = c < call.in.c ? inside : 0;
    const bool has_second = VEC == 2 || c + 1 < call.in.c;
    float s[2 * TILE_IN];
    float4 quads[EARLY_QUADS];
    from += CHANNELS, u_from += U_FLOATS / 4;
#pragma unroll
    for (int i = 0; i < TILE_IN; i++) {
      const float2 v = live & 1 << i ? LOAD_PAIR(x + from + i * row_pitch, has_second) : (float2)(0.0f);
      s[2 * i] = v.x, s[2 * i + 1] = v.y;
    }
#pragma unroll
    for (int i = 0; i < EARLY_QUADS; i++) quads[i] = step + 1 < call.steps ? u_from[i * ITEMS] : (float4)(0.0f);
    if (step >= 0) {
#pragma unroll
      for (int d = 0; d < CHANNELS; d++) {
#pragma unroll
        for (int q = 0; q < 3; q++) {
          local const float *const from_b = b_from + d * U_PITCH + q * APART * FILTERS;
          const float4 a = *(local const float4 *)(a_from + d * V_PITCH + q * APART * TILES),
                       b0 = *(local const float4 *)from_b, b1 = *(local const float4 *)(from_b + FILTERS / 2);
          acc[q][0][0] += a.x * b0, acc[q][0][1] += a.x * b1, acc[q][1][0] += a.y * b0, acc[q][1][1] += a.y * b1;
          acc[q][2][0] += a.z * b0, acc[q][2][1] += a.z * b1, acc[q][3][0] += a.w * b0, acc[q][3][1] += a.w * b1;
        }
      }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
#pragma unroll
    for (int i = 0; i < EARLY_QUADS; i++) u_to[i * ITEMS] = quads[i];
#pragma unroll
    for (int i = EARLY_QUADS; i < U_QUADS; i++) u_to[i * ITEMS] = step + 1 < call.steps ? u_from[i * ITEMS] : (float4)(0.0f);
#if PROLOGUE
    float2 mean = (float2)(0.0f), scale = (float2)(1.0f), shift = (float2)(0.0f);
    if (call.flags & FLAG_SCALE && live) {
      global const float *const of_pair = affine + affine_at + (step + 1) * CHANNELS;
      mean = LOAD_PAIR(of_pair, has_second), scale = LOAD_PAIR(of_pair + call.in.pitch, has_second);
      shift = LOAD_PAIR(of_pair + 2 * call.in.pitch, has_second);
    }
    const float least = call.flags & FLAG_RELU ? 0.0f : -INFINITY; /* smaller values, but not NaN, become 0 */
#pragma unroll
    for (int i = 0; i < TILE_IN; i++) {
      const bool there = live & 1 << i;
      float2 v = (float2)(s[2 * i], s[2 * i + 1]);
      if (call.flags & FLAG_SCALE) v = fma(v - mean, scale, shift);
#if PROLOGUE == 2
      if (call.flags & FLAG_RESIDUAL && there) v += LOAD_PAIR(residual + from + i * row_pitch, has_second);
#endif
      s[2 * i] = there && !(v.x < least) ? v.x : 0.0f, s[2 * i + 1] = there && has_second && !(v.y < least) ? v.y : 0.0f;
    }
#endif
    winograd_input_line(s, 2);
    winograd_input_line(s + 1, 2);
#pragma unroll
    for (int i = 0; i < TILE_IN; i++)
      column_at[i * TILE_IN * TILES] = s[2 * i], column_at[V_PITCH + i * TILE_IN * TILES] = s[2 * i + 1];
    barrier(CLK_LOCAL_MEM_FENCE);
#pragma unroll
    for (int j = 0; j < TILE_IN; j++) s[2 * j] = row_at[j * TILES], s[2 * j + 1] = row_at[V_PITCH + j * TILES];
    winograd_input_line(s, 2);
    winograd_input_line(s + 1, 2);
#pragma unroll
    for (int j = 0; j < TILE_IN; j++) row_at[j * TILES] = s[2 * j], row_at[V_PITCH + j * TILES] = s[2 * j + 1];
    barrier(CLK_LOCAL_MEM_FENCE);
  }

  /* A strip holds one tile of each quad. Halves of a row of filters change places in every second tile, so that items
   * of neighbouring quads store to different banks. */
  const int filter = item % FILTERS, o = of.filter * FILTERS + filter, quad = item % TILES / 4;
  const bool has_tiles = item < STRIP * FILTERS;
  const float b = call.has_bias && o < call.out.pitch ? bias[o] : 0.0f;
  local float *const strip_to = memory + (item / TILES * STRIP + quad) * FILTERS + item % 4 * 4;
  const int first_half = quad % 2 * (FILTERS / 2);
  local const float *const strip_from = memory + (item ^ item / FILTERS % 2 * (FILTERS / 2));
  outputs y[4];
#pragma unroll
  for (int s = 0; s < 4; s++) {
    float m[POINTS];
#pragma unroll
    for (int q = 0; q < 3; q++) {
      local float *const to = strip_to + q * APART * STRIP * FILTERS;
      *(local float4 *)(to + first_half) = acc[q][s][0];
      *(local float4 *)(to + FILTERS / 2 - first_half) = acc[q][s][1];
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    if (has_tiles) {
#pragma unroll
      for (int i = 0; i < POINTS; i++) m[i] = strip_from[i * STRIP * FILTERS];
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    if (has_tiles) {
#pragma unroll
      for (int j = 0; j < TILE_IN; j++) winograd_output_line(m + j, TILE_IN);
#pragma unroll
      for (int i = 0; i < TILE_OUT; i++) winograd_output_line(m + i * TILE_IN, 1);
      y[s] = (float16)(m[0], m[1], m[2], m[3], m[6], m[7], m[8], m[9], m[12], m[13], m[14], m[15], m[18], m[19], m[20], m[21]);
      y[s] = store_tile(out, place_of(t0 + item / FILTERS * 4 + s, call), o, call, y[s] + b);
    }
  }
  if (call.has_stats) store_statistics(memory, slots, item, of, call, y[0], y[1], y[2], y[3]);
}
