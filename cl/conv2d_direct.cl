/* SPDX-License-Identifier: MIT
 * Direct convolution on SIMT devices: implicit matrix products with local-memory tiles. Any shape, any pitch.
 *
 * conv2d_simt_forward: gather convolution of src/ops/conv2d_direct.h; forward, and each phase of backward-data.
 *   Rows = output positions m = (image, i, j), columns = output channels, depth e = (a, b, c): taps and input channels.
 *   out[m, o] = bias[o] + sum_e in[pixel(m, a, b), c] * u[e, o];  u[e, o] = w[e, o], or turned w[tap(a, b), o, c]
 * conv2d_simt_backward_weights: rows = e, columns = k, depth = positions; each work-group takes a part of the
 *   positions, parts are summed in order by conv2d_simt_reduce.
 *   dw[e, k] = sum_m in[pixel(m, a, b), c] * dy[m, k]
 *
 * Geometry: a work-group makes TILE_M x TILE_N results with TILE_M/8 * TILE_N/4 work-items, 8 x 4 each, depth in steps
 * of TILE_K. The next step's values are read into registers while this step's are multiplied.
 * Group number = column tile + column tiles * (row tile + row tiles * part).
 *
 * Parameters (defaults in brackets):
 *   PASS [0]      which kernels: 0 forward, 1 backward-data (the filter is read turned), 2 backward-weights,
 *                 3 statistics and reductions, which know no other parameter
 *   TILE_M [128]  results of a work-group: 128x64 (256 items), 64x64 (128 items) for backward-weights, 64x32 (64 items)
 *   TILE_N [64]   for few channels
 *   PROLOGUE [0]  1: there is a load prologue; `flags` says which: 1 scale and shift, 2 ReLU, 4 residual, or sums of these
 *   VEC [1]       4: channels and pitch of the input are multiples of 4 (with PASS 1 also the pitch of w)
 *   VEC_OUT [1]   4: the pitch of the output channels (of w, y, dy, or of dx) is a multiple of 4 */
#include "common.clh"
#include "fastdiv.clh"

/* Pointers are restrict in kernels only: inlined into them, restrict parameters become declarations that oclgrind does
 * not know. */
#ifndef TILE_M
#define TILE_M 128
#endif
#ifndef TILE_N
#define TILE_N 64
#endif
#ifndef PASS
#define PASS 0
#endif
#ifndef PROLOGUE
#define PROLOGUE 0
#endif
#ifndef VEC
#define VEC 1
#endif
#ifndef VEC_OUT
#define VEC_OUT 1
#endif
#define TURNED (PASS == 1)
#define TILE_K 16
#define ITEMS_M (TILE_M / 8)
#define ITEMS_N (TILE_N / 4)
#define ITEMS (ITEMS_M * ITEMS_N)
#define PITCH_M (TILE_M + 4) /* of the tiles in local memory */
#define PITCH_N (TILE_N + 4)

#if TILE_M % 32 != 0 || TILE_N % 32 != 0
#error "TILE_M and TILE_N are to be multiples of 32"
#endif
#if ITEMS > 256
#error "TILE_M * TILE_N is to be at most 128 * 64: a work-group of 256 is what every device has"
#endif
#if (VEC != 1 && VEC != 4) || (VEC_OUT != 1 && VEC_OUT != 4)
#error "VEC and VEC_OUT are to be 1 or 4"
#endif
#if PASS < 0 || PASS > 3
#error "PASS is to be 0, 1, 2 or 3"
#endif
#if TURNED && PROLOGUE
#error "the gradient has no load prologue"
#endif

#if PASS < 3

#if VEC == 4
typedef float4 in_vec;
#define LOAD_IN(p) (*(global const float4 *)(p)) /* rows are whole quads: aligned, one load */
#else
typedef float in_vec;
#define LOAD_IN(p) (*(p))
#endif
#if VEC_OUT == 4
typedef float4 out_vec;
#define LOAD_OUT(p) (*(global const float4 *)(p))
#define STORE_TILE(v, p) (*(local float4 *)(p) = (v))
#else
typedef float out_vec;
#define LOAD_OUT(p) (*(p))
#define STORE_TILE(v, p) (*(p) = (v))
#endif

/* The input of a gather: what both kernels know about it. */
typedef struct {
  int in_h, in_w, in_c, in_pitch, taps_w, step_h, step_w, first_h, first_w;
} gather_shape;

/* VEC values of pixel (row, col) of an image, after the load prologue; 0 outside. image_at: the image's first float. */
static in_vec load_pixel(gather_shape g, global const float *x, global const float *scale, global const float *shift,
                         global const float *residual, int flags, int image_at, int scale_at, int row, int col, int c) {
  in_vec v = (in_vec)(0.0f);
  if (row >= 0 && row < g.in_h && col >= 0 && col < g.in_w) {
    const int at = image_at + (row * g.in_w + col) * g.in_pitch + c;
    v = LOAD_IN(x + at);
#if PROLOGUE
    if (flags & 1) v = fma(v, LOAD_IN(scale + scale_at + c), LOAD_IN(shift + scale_at + c));
    if (flags & 4) v += LOAD_IN(residual + at);
    if (flags & 2) v = v < 0.0f ? (in_vec)(0.0f) : v;
#endif
  }
  return v;
}

#if PASS < 2
/* VEC values along the depth → a column of the tile, one row each. */
static void store_down(local float *to, int pitch, in_vec v) {
#if VEC == 4
  to[0] = v.x, to[pitch] = v.y, to[2 * pitch] = v.z, to[3 * pitch] = v.w;
#else
  to[0] = v;
#endif
}
#endif

/* acc[8] += a's 8 rows x b's 4 columns, over TILE_K. */
static void multiply(local const float *a_tile, local const float *b_tile, int item_m, int item_n, float4 acc[8]) {
#pragma unroll
  for (int k = 0; k < TILE_K; k++) {
    const float4 a0 = *(local const float4 *)(a_tile + k * PITCH_M + item_m * 4);
    const float4 a1 = *(local const float4 *)(a_tile + k * PITCH_M + TILE_M / 2 + item_m * 4);
    const float4 b = *(local const float4 *)(b_tile + k * PITCH_N + item_n * 4);
    acc[0] += a0.x * b, acc[1] += a0.y * b, acc[2] += a0.z * b, acc[3] += a0.w * b;
    acc[4] += a1.x * b, acc[5] += a1.y * b, acc[6] += a1.z * b, acc[7] += a1.w * b;
  }
}

/* Row `i` of a work-item's 8: two quads, half a tile apart. */
static int row_of(int item_m, int i) { return (i < 4 ? 0 : TILE_M / 2) + item_m * 4 + i % 4; }

/* 4 columns from `n` on, those below `pitch`. */
static void store_row(global float *to, int n, int pitch, float4 v, int accumulate) {
#if VEC_OUT == 4
  global float4 *const quad = (global float4 *)(to + n);
  if (n < pitch) *quad = accumulate ? *quad + v : v;
#else
  if (n < pitch) to[n] = accumulate ? to[n] + v.x : v.x;
  if (n + 1 < pitch) to[n + 1] = accumulate ? to[n + 1] + v.y : v.y;
  if (n + 2 < pitch) to[n + 2] = accumulate ? to[n + 2] + v.z : v.z;
  if (n + 3 < pitch) to[n + 3] = accumulate ? to[n + 3] + v.w : v.w;
#endif
}

#if PASS < 2
#define IN_LANES (TILE_K / VEC) /* items that read one position's stretch of depth */
#define A_LOADS (TILE_M * IN_LANES / ITEMS)
#if TURNED
#define B_LOADS (TILE_N * IN_LANES / ITEMS)
typedef in_vec b_vec;
#else
#define OUT_LANES (TILE_N / VEC_OUT) /* items that read one row of w */
#define B_LOADS (TILE_K * OUT_LANES / ITEMS)
typedef out_vec b_vec;
#endif

/* n_depth = taps * in_c. filter_s, w_c: columns and input channels of the whole filter (PASS 1). has_bias: else bias is
 * not read. */
kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void conv2d_simt_forward(
    global const float *restrict x, global const float *restrict scale, global const float *restrict shift,
    global const float *restrict residual, global const float *restrict w, global const float *restrict bias,
    global float *restrict out, int positions, int n_depth, int in_h, int in_w, int in_c, int in_pitch, int taps_w,
    int step_h, int step_w, int first_h, int first_w, int grid_h, int grid_w, int out_h, int out_w, int out_pitch,
    int row0, int row_step, int col0, int col_step, int filter_s, int w_c, int w_pitch, int tap_r, int tap_r_step,
    int tap_s, int tap_s_step, uint grid_mul, uint grid_shift, uint row_mul, uint row_shift, uint c_mul, uint c_shift,
    uint taps_mul, uint taps_shift, uint group_mul, uint group_shift, int flags, int has_bias, int accumulate) {
  local float a_tile[TILE_K * PITCH_M] __attribute__((aligned(16)));
  local float b_tile[TILE_K * PITCH_N] __attribute__((aligned(16)));
  const divider by_grid = {grid_mul, grid_shift}, by_row = {row_mul, row_shift}, by_c = {c_mul, c_shift},
                by_taps = {taps_mul, taps_shift};
  const divider by_group = {group_mul, group_shift};
  const gather_shape g = {in_h, in_w, in_c, in_pitch, taps_w, step_h, step_w, first_h, first_w};
  const int item = get_local_id(0), item_m = item / ITEMS_N, item_n = item % ITEMS_N;
  const int tiles_n = (out_pitch + TILE_N - 1) / TILE_N;
  const int m0 = (int)(get_group_id(0) / tiles_n) * TILE_M, n0 = (int)(get_group_id(0) % tiles_n) * TILE_N;
  const int lane = item % IN_LANES * VEC, lane_row = item / IN_LANES;

  /* The rows whose input this item reads: image, and the pixel under tap (0,0). A row that is not there lies outside of
   * every image. */
  int image_at[A_LOADS], scale_at[A_LOADS], row_at[A_LOADS], col_at[A_LOADS];
#pragma unroll
  for (int l = 0; l < A_LOADS; l++) {
    const int m = m0 + lane_row + l * (ITEMS / IN_LANES);
    const int image = fast_div(m, by_grid), rest = m - image * (grid_h * grid_w), i = fast_div(rest, by_row),
              j = rest - i * grid_w;
    image_at[l] = image * in_h * in_w * in_pitch;
    scale_at[l] = fast_div(image, by_group) * in_pitch;
    row_at[l] = m < positions ? i * step_h + first_h : -0x40000000;
    col_at[l] = j * step_w + first_w;
  }
  float4 acc[8];
#pragma unroll
  for (int i = 0; i < 8; i++) acc[i] = (float4)(0.0f);

  for (int e0 = -TILE_K; e0 < n_depth; e0 += TILE_K) {
    /* read step e0 + TILE_K, multiply step e0 */
    in_vec a_next[A_LOADS];
    b_vec b_next[B_LOADS];
    const int e = e0 + TILE_K + lane;
    const int tap = fast_div(e, by_c), c = e - tap * in_c, a = fast_div(tap, by_taps), b = tap - a * taps_w;
#pragma unroll
    for (int l = 0; l < A_LOADS; l++)
      a_next[l] = e < n_depth ? load_pixel(g, x, scale, shift, residual, flags, image_at[l], scale_at[l], row_at[l] + a,
                                           col_at[l] + b, c)
                              : (in_vec)(0.0f);
#if TURNED
    const int tap_at = ((tap_r + a * tap_r_step) * filter_s + tap_s + b * tap_s_step) * w_c;
#pragma unroll
    for (int l = 0; l < B_LOADS; l++) {
      const int o = n0 + lane_row + l * (ITEMS / IN_LANES);
      b_next[l] = e < n_depth && o < w_c ? LOAD_IN(w + (tap_at + o) * w_pitch + c) : (in_vec)(0.0f);
    }
#else
#pragma unroll
    for (int l = 0; l < B_LOADS; l++) {
      const int row = e0 + TILE_K + item / OUT_LANES + l * (ITEMS / OUT_LANES), o = n0 + item % OUT_LANES * VEC_OUT;
      b_next[l] = row < n_depth && o < w_pitch ? LOAD_OUT(w + row * w_pitch + o) : (out_vec)(0.0f);
    }
#endif
    if (e0 >= 0) multiply(a_tile, b_tile, item_m, item_n, acc);
    barrier(CLK_LOCAL_MEM_FENCE);
#pragma unroll
    for (int l = 0; l < A_LOADS; l++)
      store_down(a_tile + lane * PITCH_M + lane_row + l * (ITEMS / IN_LANES), PITCH_M, a_next[l]);
#pragma unroll
    for (int l = 0; l < B_LOADS; l++) {
#if TURNED
      store_down(b_tile + lane * PITCH_N + lane_row + l * (ITEMS / IN_LANES), PITCH_N, b_next[l]);
#else
      STORE_TILE(b_next[l],
                 b_tile + (item / OUT_LANES + l * (ITEMS / OUT_LANES)) * PITCH_N + item % OUT_LANES * VEC_OUT);
#endif
    }
    barrier(CLK_LOCAL_MEM_FENCE);
  }

  const int n = n0 + item_n * 4;
  float4 b4 = (float4)(0.0f);
  if (has_bias) {
    b4.x = n < out_pitch ? bias[n] : 0.0f, b4.y = n + 1 < out_pitch ? bias[n + 1] : 0.0f;
    b4.z = n + 2 < out_pitch ? bias[n + 2] : 0.0f, b4.w = n + 3 < out_pitch ? bias[n + 3] : 0.0f;
  }
#pragma unroll
  for (int l = 0; l < 8; l++) {
    const int m = m0 + row_of(item_m, l);
    const int image = fast_div(m, by_grid), rest = m - image * (grid_h * grid_w), i = fast_div(rest, by_row),
              j = rest - i * grid_w;
    if (m < positions)
      store_row(out + (size_t)((image * out_h + row0 + i * row_step) * out_w + col0 + j * col_step) * (size_t)out_pitch,
                n, out_pitch, acc[l] + b4, accumulate);
  }
}

#endif

#if PASS == 2
#define E_LANES (TILE_M / VEC)
#define WA_LOADS (TILE_K * E_LANES / ITEMS)
#define K_LANES (TILE_N / VEC_OUT)
#define WB_LOADS (TILE_K * K_LANES / ITEMS)

/* Positions of a part: part*part_positions … (a multiple of TILE_K). Parts go to dw + dw_at + part*part_floats. */
kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void conv2d_simt_backward_weights(
    global const float *restrict x, global const float *restrict scale, global const float *restrict shift,
    global const float *restrict residual, global const float *restrict dy, global float *restrict dw, int positions,
    int n_depth, int in_h, int in_w, int in_c, int in_pitch, int taps_w, int step_h, int step_w, int first_h,
    int first_w, int grid_h, int grid_w, int out_pitch, int part_positions, int part_floats, uint grid_mul,
    uint grid_shift, uint row_mul, uint row_shift, uint c_mul, uint c_shift, uint taps_mul, uint taps_shift,
    uint group_mul, uint group_shift, int flags, int accumulate) {
  local float a_tile[TILE_K * PITCH_M] __attribute__((aligned(16)));
  local float b_tile[TILE_K * PITCH_N] __attribute__((aligned(16)));
  const divider by_grid = {grid_mul, grid_shift}, by_row = {row_mul, row_shift}, by_c = {c_mul, c_shift},
                by_taps = {taps_mul, taps_shift};
  const divider by_group = {group_mul, group_shift};
  const gather_shape g = {in_h, in_w, in_c, in_pitch, taps_w, step_h, step_w, first_h, first_w};
  const int item = get_local_id(0), item_m = item / ITEMS_N, item_n = item % ITEMS_N;
  const int tiles_n = (out_pitch + TILE_N - 1) / TILE_N, tiles_m = (n_depth + TILE_M - 1) / TILE_M;
  const int group = get_group_id(0), part = group / (tiles_n * tiles_m);
  const int e0 = group / tiles_n % tiles_m * TILE_M, n0 = group % tiles_n * TILE_N;
  const int begin = part * part_positions, end = min(positions, begin + part_positions);

  const int e = e0 + item % E_LANES * VEC;
  const int tap = fast_div(e, by_c), c = e - tap * in_c, a = fast_div(tap, by_taps), b = tap - a * taps_w;
  const int k = n0 + item % K_LANES * VEC_OUT;
  float4 acc[8];
#pragma unroll
  for (int i = 0; i < 8; i++) acc[i] = (float4)(0.0f);

  for (int p0 = begin - TILE_K; p0 < end; p0 += TILE_K) {
    in_vec a_next[WA_LOADS];
    out_vec b_next[WB_LOADS];
#pragma unroll
    for (int l = 0; l < WA_LOADS; l++) {
      const int m = p0 + TILE_K + item / E_LANES + l * (ITEMS / E_LANES);
      const int image = fast_div(m, by_grid), rest = m - image * (grid_h * grid_w), i = fast_div(rest, by_row),
                j = rest - i * grid_w;
      a_next[l] = m < end && e < n_depth
                      ? load_pixel(g, x, scale, shift, residual, flags, image * in_h * in_w * in_pitch,
                                   fast_div(image, by_group) * in_pitch, i * step_h + first_h + a,
                                   j * step_w + first_w + b, c)
                      : (in_vec)(0.0f);
    }
#pragma unroll
    for (int l = 0; l < WB_LOADS; l++) {
      const int m = p0 + TILE_K + item / K_LANES + l * (ITEMS / K_LANES);
      b_next[l] = m < end && k < out_pitch ? LOAD_OUT(dy + (size_t)m * (size_t)out_pitch + k) : (out_vec)(0.0f);
    }
    if (p0 >= begin) multiply(a_tile, b_tile, item_m, item_n, acc);
    barrier(CLK_LOCAL_MEM_FENCE);
#pragma unroll
    for (int l = 0; l < WA_LOADS; l++) {
      local float *const to = a_tile + (item / E_LANES + l * (ITEMS / E_LANES)) * PITCH_M + item % E_LANES * VEC;
#if VEC == 4
      *(local float4 *)to = a_next[l];
#else
      *to = a_next[l];
#endif
    }
#pragma unroll
    for (int l = 0; l < WB_LOADS; l++)
      STORE_TILE(b_next[l], b_tile + (item / K_LANES + l * (ITEMS / K_LANES)) * PITCH_N + item % K_LANES * VEC_OUT);
    barrier(CLK_LOCAL_MEM_FENCE);
  }
#pragma unroll
  for (int l = 0; l < 8; l++) {
    const int row = e0 + row_of(item_m, l);
    if (row < n_depth)
      store_row(dw + (size_t)part * (size_t)part_floats + (size_t)row * (size_t)out_pitch, n0 + item_n * 4, out_pitch,
                acc[l], accumulate);
  }
}
#endif

#endif /* PASS < 3 */

#if PASS == 3
/* Column sums of (rows, pitch) over parts of part_rows rows → to[to_at + part*pitch + column]. Group (64 items) = 64
 * columns of a part. */
kernel __attribute__((reqd_work_group_size(64, 1, 1))) void conv2d_simt_columns(global const float *restrict from,
                                                                                global float *restrict to, int to_at,
                                                                                int rows, int pitch, int part_rows) {
  const int tiles = (pitch + 63) / 64, part = get_group_id(0) / tiles,
            column = (int)(get_group_id(0) % tiles) * 64 + (int)get_local_id(0);
  const int begin = part * part_rows, end = min(rows, begin + part_rows);
  float sum = 0.0f;
  if (column < pitch) {
    for (int i = begin; i < end; i++) sum += from[(size_t)i * (size_t)pitch + column];
    to[to_at + part * pitch + column] = sum;
  }
}

/* out[i] (+)= sum over parts, in order, of from[from_at + part*part_floats + i], i < n. */
kernel __attribute__((reqd_work_group_size(64, 1, 1))) void conv2d_simt_reduce(global const float *restrict from,
                                                                               global float *restrict out, int from_at,
                                                                               int n, int parts, int part_floats,
                                                                               int accumulate) {
  const int i = get_global_id(0);
  if (i < n) {
    float sum = 0.0f;
    for (int part = 0; part < parts; part++) sum += from[(size_t)from_at + (size_t)part * (size_t)part_floats + i];
    out[i] = accumulate ? out[i] + sum : sum;
  }
}
/* stats[image,0,k] = mean over `positions` of y[image,:,k], stats[image,1,k] = sum of squared deviations. Group (256
 * items) = 32 channels x 8 lanes of an image: lane l takes positions l, l+8, …; lanes are added in order. */
kernel __attribute__((reqd_work_group_size(256, 1, 1))) void
conv2d_simt_stats(global const float *restrict y, global float *restrict stats, int positions, int pitch) {
  local float sums[8 * 32];
  const int tiles = (pitch + 31) / 32, image = get_group_id(0) / tiles;
  const int column = get_local_id(0) % 32, lane = get_local_id(0) / 32,
            k = (int)(get_group_id(0) % tiles) * 32 + column;
  global const float *from = y + (size_t)image * (size_t)positions * (size_t)pitch + min(k, pitch - 1);
  float sum = 0.0f, mean = 0.0f, m2 = 0.0f;
  for (int i = lane; i < positions; i += 8) sum += from[(size_t)i * (size_t)pitch];
  sums[lane * 32 + column] = sum;
  barrier(CLK_LOCAL_MEM_FENCE);
  for (int l = 0; l < 8; l++) mean += sums[l * 32 + column];
  mean /= (float)positions;
  barrier(CLK_LOCAL_MEM_FENCE);
  for (int i = lane; i < positions; i += 8) {
    const float d = from[(size_t)i * (size_t)pitch] - mean;
    m2 += d * d;
  }
  sums[lane * 32 + column] = m2;
  barrier(CLK_LOCAL_MEM_FENCE);
  if (lane == 0 && k < pitch) {
    m2 = 0.0f;
    for (int l = 0; l < 8; l++) m2 += sums[l * 32 + column];
    stats[(size_t)image * 2 * (size_t)pitch + k] = mean;
    stats[((size_t)image * 2 + 1) * (size_t)pitch + k] = m2;
  }
}
#endif
