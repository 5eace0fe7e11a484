/* SPDX-License-Identifier: MIT
 * Direct convolution on SIMT devices: implicit matrix products on the core of gemm_core.clh. They accept any shape
 * and any pitch. With MATH 1 and 2, those of whole quads (VEC and VEC_OUT 4) are on matrix_core.clh: conv2d_gather_stages.clh,
 * conv2d_weights_stages.clh.
 *
 * conv2d_simt_forward: gather convolution of src/ops/conv2d/conv2d_direct.h; forward, and each phase of backward-data.
 *   Rows = output positions m = (image, i, j), columns = output channels, depth e = (a, b, c): taps and input channels.
 *   out[m, o] = bias[o] + sum_e in[pixel(m, a, b), c] * u[e, o];  u[e, o] = w[e, o], or turned w[tap(a, b), o, c]
 *   The depth may be cut into parts, which conv2d_simt_sum adds up in order. A launch has several phases, one after
 *   the other; the last work-groups, behind those of all phases, clear the pixels of dx that no tap reaches.
 *   Forward can also compute statistics of each strip of 32 rows, in one pass; conv2d_simt_merge_stats merges them.
 * conv2d_simt_backward_weights: rows = e, columns = k, depth = positions; each work-group takes a part of the
 *   positions, parts are summed by conv2d_simt_finish. Work-groups in front of these sum columns of dy for db.
 *   dw[e, k] = sum_m in[pixel(m, a, b), c] * dy[m, k]
 *
 * Geometry: a work-group makes TILE_M x TILE_N results with TILE_M/8 * TILE_N/8 work-items.
 * Group number = column tile + column tiles * (row tile + row tiles * part).
 *
 * Parameters (defaults in brackets):
 *   PASS [0]      which kernels: 0 forward, 1 backward-data (the filter is read turned), 2 backward-weights,
 *                 3 statistics and reductions, which use no other parameter
 *   TILE_M, TILE_N, TILE_K, MATH   tiles and arithmetic, see gemm_core.clh
 *   PROLOGUE [0]  1: there is a load prologue; `flags` says which: 1 mean, scale and shift, 2 ReLU, 3 both; 2: with a residual,
 *                 `flags` alike (a kernel without it needs fewer registers)
 *   VEC [1]       4: channels and pitch of the input are multiples of 4 (with PASS 1 also the pitch of w)
 *   VEC_OUT [1]   4: the pitch of the output channels (of w, y, dy, or of dx) is a multiple of 4 */
#include "common.clh"
#include "conv2d_args.clh"
#include "fastdiv.clh"
#if defined(VEC) && VEC == 4 && defined(VEC_OUT) && VEC_OUT == 4
#define GEMM_STAGED 1
#define MATRIX_A_DOWN (PASS < 2)
#define MATRIX_B_DOWN (PASS == 1)
#define MATRIX_A_ROUNDED (PROLOGUE > 0)
#endif
#if !defined(VEC) || VEC == 1
#define FRAGMENT_K 4 /* TF32: the registers that single floats need leave too few for 8 */
#elif !defined(PASS) || PASS < 2
#define GEMM_A_DOWN
#endif
#include "gemm_core.clh"

/* Pointers are restrict in kernels only: in an inlined function, restrict parameters become declarations that
 * oclgrind does not support. */
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
#define STRIP GEMM_STRIP_ROWS /* rows that share statistics: their results fit the local memory of every tile */

#if (VEC != 1 && VEC != 4) || (VEC_OUT != 1 && VEC_OUT != 4)
#error "VEC and VEC_OUT are to be 1 or 4"
#endif
#if PASS < 0 || PASS > 3
#error "PASS is to be 0, 1, 2 or 3"
#endif
#if TURNED && PROLOGUE
#error "the gradient has no load prologue"
#endif
#define KEPT (TURNED ? 12 : 0) /* numbers stored behind the two steps */
#if GEMM_MATRIX
#define TILES_FLOATS MATRIX_FLOATS
#else
#define TILES_FLOATS (GEMM_STRIP_FLOATS > 2 * GEMM_STEP + KEPT ? GEMM_STRIP_FLOATS : 2 * GEMM_STEP + KEPT)
#endif

#if PASS < 3

/* How a tile is filled: each item loads LOADS pieces of V floats, pieces q = item + l * ITEMS.
 *   down:   the source is contiguous along the depth: piece q = result q % width, depth q / width * V
 *   across: the source is contiguous along the results: piece q = results q % (width/V) * V, depth q / (width/V) */
#define PIECES(width, vec) (TILE_K * (width) / (vec))
#define LOADS(width, vec) ((PIECES(width, vec) + ITEMS - 1) / ITEMS)
#define HAS_PIECE(q, width, vec) (PIECES(width, vec) % ITEMS == 0 || (q) < PIECES(width, vec))
#define DOWN_K(q, width) ((q) / (width) * VEC)
#define DOWN_I(q, width) ((q) % (width))
#if VEC == 4
#define A_DOWN_K(q) gemm_down_k(q, TILE_M)
#define A_DOWN_I(q) gemm_down_i(q, TILE_M)
#else
#define A_DOWN_K(q) DOWN_K(q, TILE_M)
#define A_DOWN_I(q) DOWN_I(q, TILE_M)
#endif

#if VEC == 4
typedef float4 in_vec;
#define LOAD_IN(p) (*(global const float4 *)(p)) /* rows are whole quads: aligned, one load */
#define STORE_DOWN gemm_store_down
#else
typedef float in_vec;
#define LOAD_IN(p) (*(p))
#define STORE_DOWN gemm_store_one
#endif
#if VEC_OUT == 4
typedef float4 out_vec;
#define LOAD_OUT(p) (*(global const float4 *)(p))
#define STORE_OUT(p, v) (*(global float4 *)(p) = (float4)(v))
#define STORE_ACROSS gemm_store_across
#else
typedef float out_vec;
#define LOAD_OUT(p) (*(p))
#define STORE_OUT(p, v) (*(p) = (v))
#define STORE_ACROSS gemm_store_one
#endif
#define ACROSS_K(q, width, vec) ((q) / ((width) / (vec)))
#define ACROSS_I(q, width, vec) ((q) % ((width) / (vec)) * (vec))

#define CLEAR_FLOATS 32 /* floats of dx per item of a work-group that clears */
#define NOWHERE (-0x40000000) /* a row outside every image; the sum of two is outside, too */

/* VEC values of pixel (row, col) of an image on their way from memory to a tile. They are read before a step is
 * multiplied, and pass the load prologue after it, so that no work-item waits for memory in between. */
typedef struct {
  in_vec x;
#if PROLOGUE == 2
  in_vec residual;
#endif
#if PROLOGUE
  int affine_at; /* -1: outside of the image */
#endif
} pixel;

/* image_at: the image's first float; affine_at: its group's. */
static pixel read_pixel(cvy_shape in, global const float *x, global const float *residual, int image_at,
                        int affine_at, int row, int col, int c) {
  pixel p;
  p.x = (in_vec)(0.0f);
#if PROLOGUE == 2
  p.residual = (in_vec)(0.0f);
#endif
#if PROLOGUE
  p.affine_at = -1;
#endif
  if (row >= 0 && row < in.h && col >= 0 && col < in.w) {
    const int at = image_at + (row * in.w + col) * in.pitch + c;
    p.x = LOAD_IN(x + at);
#if PROLOGUE == 2
    p.residual = LOAD_IN(residual + at);
#endif
#if PROLOGUE
    p.affine_at = affine_at + c;
#endif
  }
  return p;
}

static in_vec finish_pixel(pixel p, global const float *affine, int pitch, int flags) {
#if PROLOGUE
  if (p.affine_at >= 0) {
    global const float *const from = affine + p.affine_at;
    if (flags & 1) p.x = fma(p.x - LOAD_IN(from), LOAD_IN(from + pitch), LOAD_IN(from + 2 * pitch));
#if PROLOGUE == 2
    p.x += p.residual;
#endif
    if (flags & 2) p.x = p.x < 0.0f ? (in_vec)(0.0f) : p.x;
  }
#endif
  return p.x;
}

#if GEMM_MATRIX
/* Where channel c of a pixel lies; *there is false, and the result 0, where there is no such pixel. */
static int source_of(cvy_shape in, int image, int row, int col, int c, bool *there) {
  *there = col >= 0 && col < in.w && row >= 0 && row < in.h;
  return *there ? ((image * in.h + row) * in.w + col) * in.pitch + c : 0;
}

#if PROLOGUE
/* Takes a chunk in local memory through the load prologue; `at` is where it was copied from. */
static void finish_chunk(local float *chunk, int at, global const float *affine, global const float *residual,
                         int affine_at, int pitch, int flags) {
  pixel p;
  p.x = *(local const float4 *)chunk;
  p.affine_at = affine_at;
#if PROLOGUE == 2
  p.residual = LOAD_IN(residual + at);
#endif
  matrix_store(chunk, finish_pixel(p, affine, pitch, flags));
}
#endif
#endif

/* 4 columns from `n` on; columns beyond `pitch` are not stored. */
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

/* Stores a run of an item's results likewise. */
static void store_run(global float *to, int n, int pitch, gemm_run v, int accumulate) {
#if !GEMM_TF32 || GEMM_STAGED
  store_row(to, n, pitch, v, accumulate);
#elif VEC_OUT == 4
  global float2 *const pair = (global float2 *)(to + n);
  if (n < pitch) *pair = accumulate ? *pair + v : v;
#else
  if (n < pitch) to[n] = accumulate ? to[n] + v.x : v.x;
  if (n + 1 < pitch) to[n + 1] = accumulate ? to[n + 1] + v.y : v.y;
#endif
}

/* Row m of the results: its image and its position in the grid. */
typedef struct {
  int image, i, j;
} place;
#if TURNED /* by_h: grid_h, by_w: grid_w */
static place place_of(int m, int grid_h, int grid_w, cvy_divider by_h, cvy_divider by_w) {
  const int line = fast_div(m, by_w);
  place at;
  at.image = fast_div(line, by_h), at.i = line - at.image * grid_h, at.j = m - line * grid_w;
  return at;
}
#else
static place place_of(int m, int grid_h, int grid_w, cvy_divider by_grid, cvy_divider by_row) {
  place at;
  at.image = fast_div(m, by_grid);
  const int rest = m - at.image * (grid_h * grid_w);
  at.i = fast_div(rest, by_row), at.j = rest - at.i * grid_w;
  return at;
}
#endif

#if PASS < 2
#define A_LOADS LOADS(TILE_M, VEC)
#if TURNED
#define B_VEC VEC
typedef in_vec b_vec;
#else
#define B_VEC VEC_OUT
typedef out_vec b_vec;
#endif
#define B_LOADS LOADS(TILE_N, B_VEC)

/* The bias of a run of columns. */
static gemm_run bias_of(global const float *p, int n, int pitch) {
#if GEMM_TF32 && !GEMM_STAGED
  return (float2)(n < pitch ? p[n] : 0.0f, n + 1 < pitch ? p[n + 1] : 0.0f);
#else
  return (float4)(n < pitch ? p[n] : 0.0f, n + 1 < pitch ? p[n + 1] : 0.0f, n + 2 < pitch ? p[n + 2] : 0.0f,
                  n + 3 < pitch ? p[n + 3] : 0.0f);
#endif
}

#if TURNED
/* True if no tap reaches this row or column of dx: `least` of cvy_conv_line_of lies behind the filter. */
static inline bool is_unreached(int at, int pad, int stride, int filter, cvy_divider by_stride) {
  return at + pad - fast_div(at + pad, by_stride) * stride >= filter;
}
#endif

static inline void add_bias(float4 *acc, float4 bias) { acc[0] += bias, acc[8] += bias; }

/* `stats` (may be null) receives three numbers for the rows of each strip that belong to one image: a value near the
 * mean, the sum of squared deviations from the mean, and the mean minus that value. They lie at ((strip + image) * 3
 * + {0, 1, 2}) * out_pitch + o. Strip and image grow together, so that each pair has its own place. */
#define SHARERS (ITEMS / TILE_N) /* items that share a column of a strip */
#if TURNED
#define GEOMETRY cvy_conv_back
/* Dividers of dx, for pixels that are cleared: pieces of VEC_OUT floats of a pixel, columns, rows; and the strides. */
#define CLEARING \
  , const cvy_divider by_pieces, const cvy_divider by_cols, const cvy_divider by_rows, const cvy_divider by_stride_h, const cvy_divider by_stride_w
#else
#define GEOMETRY cvy_conv_gather
#define CLEARING
#endif
GEMM_KERNEL conv2d_simt_forward(global const float *restrict x, global const float *restrict affine,
                                global const float *restrict residual, global const float *restrict w,
                                global const float *restrict bias, global float *restrict out,
                                global float *restrict stats, const GEOMETRY g, const cvy_conv_simt_call call CLEARING) {
#if GEMM_MATRIX
  local float tiles[TILES_FLOATS] __attribute__((aligned(128)));
#else
  local float tiles[TILES_FLOATS] __attribute__((aligned(16)));
#endif
  const int item = get_local_id(0);
  const int tiles_n = (g.out.pitch + TILE_N - 1) / TILE_N;
  int group = get_group_id(0);
#if TURNED
  /* finds the phase of this work-group; work-groups beyond all phases clear dx, and have no positions */
  cvy_conv_line line_h, line_w;
  int row0, col0, positions, n_depth, clears = 0;
  for (int phase = g.first;; phase++) {
    row0 = phase / g.phases_w, col0 = phase - row0 * g.phases_w;
    line_h = cvy_conv_line_of(g.out.h, g.filter.r, g.filter.stride_h, g.filter.pad_h, row0);
    line_w = cvy_conv_line_of(g.out.w, g.filter.s, g.filter.stride_w, g.filter.pad_w, col0);
    positions = g.images * line_h.grid * line_w.grid, n_depth = line_h.taps * line_w.taps * g.in.c;
    const int groups = (positions + TILE_M - 1) / TILE_M * tiles_n * ((n_depth + call.part_length - 1) / call.part_length);
    if (group < groups) break;
    group -= groups;
    if (phase + 1 == g.first + g.count) {
      clears = 1, positions = 0, n_depth = 0;
      break;
    }
  }
  int grid_h = line_h.grid, grid_w = line_w.grid;
  const int taps_w = line_w.taps, first_h = line_h.first, first_w = line_w.first;
  const int step_h = 1, step_w = 1, row_step = g.filter.stride_h, col_step = g.filter.stride_w;
  const cvy_divider by_taps = taps_w * g.filter.stride_w >= g.filter.s ? g.by_taps : g.by_taps_less;
#define PLACE_OF(m)                                                                               \
  place_of(m, grid_h, grid_w, grid_h * g.filter.stride_h >= g.out.h ? g.by_h : g.by_h_less,       \
           grid_w * g.filter.stride_w >= g.out.w ? g.by_w : g.by_w_less)
#else
  const int row0 = g.row0, col0 = g.col0, positions = call.positions, n_depth = call.n_depth;
  const int grid_h = g.grid_h, grid_w = g.grid_w, taps_w = g.taps_w, first_h = g.first_h, first_w = g.first_w;
  const int step_h = g.step_h, step_w = g.step_w, row_step = g.row_step, col_step = g.col_step;
  const cvy_divider by_taps = call.by_taps;
#define PLACE_OF(m) place_of(m, grid_h, grid_w, call.by_grid, call.by_row)
#endif
  const int tiles_m = max((positions + TILE_M - 1) / TILE_M, 1);
  int part = group / tiles_n / tiles_m, m0 = group / tiles_n % tiles_m * TILE_M, n0 = group % tiles_n * TILE_N;
#if TURNED && GEMM_MATRIX
  /* a register of each of the first items keeps a place of the results while products need the others' */
  const int keeps = item == 0 ? positions : item == 1 ? grid_h : item == 2 ? grid_w : item == 3 ? row0 : item == 4 ? col0 : item == 5 ? clears
                    : item == 6 ? group : item == 7 ? part : item == 8 ? m0 : n0;
#elif TURNED
  /* local memory keeps the places of the results while products need the registers */
  local int *const kept = (local int *)(tiles + 2 * GEMM_STEP);
  if (item == 0) {
    kept[0] = positions, kept[1] = grid_h, kept[2] = grid_w, kept[3] = row0, kept[4] = col0;
    kept[5] = clears, kept[6] = group, kept[7] = part, kept[8] = m0, kept[9] = n0;
  }
#endif
  const int begin = part * call.part_length, end = min(n_depth, begin + call.part_length);

#if GEMM_MATRIX
  float4 acc[16] = {(float4)(0.0f)};
#include "conv2d/conv2d_gather_stages.clh"
#else
  /* The row whose input this item reads: its image, and the pixel under tap (0,0). A row that does not exist lies
   * outside every image. */
  int image_at, affine_at, row_at, col_at;
  {
    const int m = m0 + A_DOWN_I(item);
    const place at = PLACE_OF(m);
    image_at = at.image * g.in.h * g.in.w * g.in.pitch;
    affine_at = fast_div(at.image, call.by_group) * 3 * g.in.pitch;
    row_at = m < positions ? at.i * step_h + first_h : NOWHERE;
    col_at = at.j * step_w + first_w;
  }
  float4 acc[16] = {(float4)(0.0f)};

  int stage = GEMM_STEP;
  for (int e0 = begin - TILE_K; e0 < end; e0 += TILE_K) {
    /* read step e0 + TILE_K, multiply step e0 */
    pixel a_next[A_LOADS];
    b_vec b_next[B_LOADS];
    stage = GEMM_STEP - stage;
#pragma unroll
    for (int l = 0; l < A_LOADS; l++) {
      const int e = e0 + TILE_K + A_DOWN_K(item + l * ITEMS), tap = fast_div(e, call.by_c),
                a = fast_div(tap, by_taps);
      a_next[l] = read_pixel(g.in, x, residual, image_at, affine_at, e < end ? row_at + a : NOWHERE,
                             col_at + tap - a * taps_w, e - tap * g.in.c);
    }
#pragma unroll
    for (int l = 0; l < B_LOADS; l++) {
      const int q = item + l * ITEMS;
#if TURNED
      const int depth = e0 + TILE_K + DOWN_K(q, TILE_N), tap = fast_div(depth, call.by_c), ta = fast_div(tap, by_taps);
      const int r = line_h.tap - ta * row_step, s = line_w.tap - (tap - ta * taps_w) * col_step;
      const int o = n0 + DOWN_I(q, TILE_N);
      b_next[l] = depth < end && o < call.w_c && HAS_PIECE(q, TILE_N, VEC)
                      ? LOAD_IN(w + ((r * call.filter_s + s) * call.w_c + o) * call.w_pitch + depth - tap * g.in.c)
                      : (in_vec)(0.0f);
#else
      const int row = e0 + TILE_K + ACROSS_K(q, TILE_N, VEC_OUT), o = n0 + ACROSS_I(q, TILE_N, VEC_OUT);
      b_next[l] = row < end && o < call.w_pitch && HAS_PIECE(q, TILE_N, VEC_OUT)
                      ? LOAD_OUT(w + (row * call.w_pitch + o)) /* by pointer + int + int: two registers too many on sm_90 */
                      : (out_vec)(0.0f);
#endif
    }
    if (e0 >= begin) gemm_multiply(tiles + stage, item, acc);
    local float *const a_tile = tiles + GEMM_STEP - stage, *const b_tile = a_tile + GEMM_A;
#pragma unroll
    for (int l = 0; l < A_LOADS; l++) {
      const int q = item + l * ITEMS;
      STORE_DOWN(a_tile, GEMM_PITCH_M, A_DOWN_K(q), A_DOWN_I(q),
                 finish_pixel(a_next[l], affine, g.in.pitch, call.flags));
    }
#pragma unroll
    for (int l = 0; l < B_LOADS; l++) {
      const int q = item + l * ITEMS;
      if (!HAS_PIECE(q, TILE_N, B_VEC)) continue;
#if TURNED
      STORE_DOWN(b_tile, GEMM_PITCH_N, DOWN_K(q, TILE_N), DOWN_I(q, TILE_N), b_next[l]);
#else
      STORE_ACROSS(b_tile, GEMM_PITCH_N, ACROSS_K(q, TILE_N, VEC_OUT), ACROSS_I(q, TILE_N, VEC_OUT), b_next[l]);
#endif
    }
    barrier(CLK_LOCAL_MEM_FENCE);
  }
#endif

#if PASS == 0
  if (call.has_bias) {
#if GEMM_MATRIX
    gemm_add_columns(acc, bias_of(bias, n0 + gemm_column(item, 0), g.out.pitch),
                     bias_of(bias, n0 + gemm_column(item, 1), g.out.pitch));
#define ADD_BIAS(i)
#elif MATH == 0 /* even runs share their columns, odd runs too */
    const gemm_run b0 = bias_of(bias, n0 + gemm_column(item, 0), g.out.pitch),
                   b1 = bias_of(bias, n0 + gemm_column(item, 1), g.out.pitch);
#define ADD_BIAS(i) acc[2 * (i)] += b0, acc[2 * (i) + 1] += b1;
#elif MATH >= 3 /* runs i and 8 + i share their columns */
#define ADD_BIAS(i) add_bias(acc + (i), bias_of(bias, n0 + gemm_column(item, i), g.out.pitch));
#else /* fragments i and 8 + i share their columns */
#define ADD_BIAS(i) add_bias(acc + (i), bias_of(bias, n0 + gemm_column(item, 2 * (i)), g.out.pitch).xyxy);
#endif
    GEMM_EACH_8(ADD_BIAS)
  }
#endif
#if TURNED && GEMM_MATRIX
  local int *const kept = (local int *)tiles;
  if (item < 10) kept[item] = keeps;
#endif
#if TURNED
  barrier(CLK_LOCAL_MEM_FENCE); /* a work-group that clears may have had no step */
  positions = kept[0], grid_h = kept[1], grid_w = kept[2], row0 = kept[3], col0 = kept[4];
  clears = kept[5], group = kept[6], part = kept[7], m0 = kept[8], n0 = kept[9];
  barrier(CLK_LOCAL_MEM_FENCE); /* strips overwrite `kept` */
#endif
  /* The results pass through local memory strip by strip: whole rows are stored contiguously, and the items of a
   * column compute its statistics. */
  global float *const to = call.part_floats ? stats + part * call.part_floats : out;
#if GEMM_MATRIX
  MATRIX_UNROLL
#else
#pragma unroll
#endif
  for (int s = 0; s < TILE_M / STRIP; s++) {
    const int at = m0 + s * STRIP, rows = min(STRIP, positions - at);
    gemm_store_strip(tiles, item, s, acc);
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int q = item; q < rows * (TILE_N / 4); q += ITEMS) {
      const place p = PLACE_OF(at + q / (TILE_N / 4));
      store_row(to + ((p.image * g.out.h + row0 + p.i * row_step) * g.out.w + col0 + p.j * col_step) * g.out.pitch,
                n0 + q % (TILE_N / 4) * 4, g.out.pitch,
                *(local const float4 *)(tiles + q / (TILE_N / 4) * GEMM_PITCH_N + q % (TILE_N / 4) * 4), call.accumulate);
    }
#if PASS == 0
    for (int i = 0, last; i < rows && call.has_stats; i = last) {
      const int image = fast_div(at + i, call.by_grid), column = item % TILE_N, o = n0 + column;
      last = min(rows, (image + 1) * (grid_h * grid_w) - at);
      /* the mean of four rows lies nearer to the mean than a single row: less cancellation in the sum of squares */
      const int apart = (last - i) / 4;
      local const float *const from = tiles + i * GEMM_PITCH_N + column;
      const float near = 0.25f * (from[0] + from[apart * GEMM_PITCH_N] + from[2 * apart * GEMM_PITCH_N] + from[3 * apart * GEMM_PITCH_N]);
      float sum = 0.0f, square = 0.0f;
      for (int j = i + item / TILE_N; j < last; j += SHARERS) {
        const float d = tiles[j * GEMM_PITCH_N + column] - near;
        sum += d, square = fma(d, d, square);
      }
#if SHARERS == 2 /* with two rows or more, the second item passes its sums through two rows that both have read */
      local float *const passed = tiles + i * GEMM_PITCH_N + column;
      barrier(CLK_LOCAL_MEM_FENCE);
      if (item >= TILE_N && last - i > 1) passed[0] = sum, passed[GEMM_PITCH_N] = square;
      barrier(CLK_LOCAL_MEM_FENCE);
      if (item < TILE_N && last - i > 1) sum += passed[0], square += passed[GEMM_PITCH_N];
#endif
      if (item < TILE_N && o < g.out.pitch) {
        global float *const strip = stats + (at / STRIP + image) * 3 * g.out.pitch + o;
        const float rest = sum / (float)(last - i);
        strip[0] = near, strip[g.out.pitch] = fmax(fma(-sum, rest, square), 0.0f), strip[2 * g.out.pitch] = rest;
      }
    }
#endif
    barrier(CLK_LOCAL_MEM_FENCE);
  }
#if TURNED
  if (clears) {
    const int all = g.images * g.out.h * g.out.w * (g.out.pitch / VEC_OUT), first = group * (ITEMS * CLEAR_FLOATS / VEC_OUT);
    for (int q = first + item; q < min(all, first + ITEMS * CLEAR_FLOATS / VEC_OUT); q += ITEMS) {
      const int at_pixel = fast_div(q, by_pieces), line = fast_div(at_pixel, by_cols), col = at_pixel - line * g.out.w,
                row = line - fast_div(line, by_rows) * g.out.h;
      if (is_unreached(row, g.filter.pad_h, g.filter.stride_h, g.filter.r, by_stride_h) ||
          is_unreached(col, g.filter.pad_w, g.filter.stride_w, g.filter.s, by_stride_w))
        STORE_OUT(out + q * VEC_OUT, 0.0f);
    }
  }
#endif
}

#endif

#if PASS == 2
#define WA_LOADS LOADS(TILE_M, VEC)
#define WB_LOADS LOADS(TILE_N, VEC_OUT)
#if VEC == 4
#define STORE_ACROSS_IN gemm_store_across
#else
#define STORE_ACROSS_IN gemm_store_one
#endif

/* Four columns of a row, those behind `pitch` as zeros. */
static float4 read_row(global const float *row, int n, int pitch) {
#if VEC_OUT == 4
  return *(global const float4 *)(row + n);
#else
  return (float4)(row[n], n + 1 < pitch ? row[n + 1] : 0.0f, n + 2 < pitch ? row[n + 2] : 0.0f,
                  n + 3 < pitch ? row[n + 3] : 0.0f);
#endif
}

#define SUM_LANES (ITEMS / 16) /* items that share four columns of dy */

/* Part p has the positions p*part_length … (part_length: a multiple of TILE_K), and its sums go to dw +
 * p*part_floats. The first sum_groups work-groups sum 64 columns of dy over sum_rows rows each → sums + sums_at +
 * piece*pitch + column: item i takes every SUM_LANES-th row of the columns i % 16 * 4 …. They read one row after the
 * other, so they are in front: the others run beside them. */
GEMM_KERNEL conv2d_simt_backward_weights(global const float *restrict x, global const float *restrict affine,
                                         global const float *restrict residual, global const float *restrict dy,
                                         global float *dw, global float *sums, const cvy_conv_gather g,
                                         const cvy_conv_simt_call call, int sum_groups, int sum_rows, int sums_at) {
#if GEMM_MATRIX
  local float tiles[MATRIX_FLOATS] __attribute__((aligned(128)));
#else
  local float tiles[2 * GEMM_STEP] __attribute__((aligned(16)));
#endif
  const int item = get_local_id(0);
  const int tiles_n = (g.out.pitch + TILE_N - 1) / TILE_N, tiles_m = (call.n_depth + TILE_M - 1) / TILE_M;
  const int number = get_group_id(0), sums_db = number < sum_groups, group = max(number - sum_groups, 0);
  const int part = group / (tiles_n * tiles_m), e0 = group / tiles_n % tiles_m * TILE_M, n0 = group % tiles_n * TILE_N;
  const int begin = sums_db ? call.positions : part * call.part_length, end = min(call.positions, begin + call.part_length);

#if GEMM_MATRIX
  float4 acc[16] = {(float4)(0.0f)};
#include "conv2d/conv2d_weights_stages.clh"
#else
  /* The tap that this item reads. All its pieces have the same tap and channels. */
  const int e = e0 + ACROSS_I(item, TILE_M, VEC), tap = fast_div(e, call.by_c), a = fast_div(tap, call.by_taps);
  const int c = e - tap * g.in.c, row_at = e < call.n_depth ? g.first_h + a : NOWHERE, col_at = g.first_w + tap - a * g.taps_w;
  float4 acc[16] = {(float4)(0.0f)};

  int stage = GEMM_STEP;
  for (int p0 = begin - TILE_K; p0 < end; p0 += TILE_K) {
    pixel a_next[WA_LOADS];
    out_vec b_next[WB_LOADS];
    stage = GEMM_STEP - stage;
#pragma unroll
    for (int l = 0; l < WA_LOADS; l++) {
      const int m = p0 + TILE_K + ACROSS_K(item + l * ITEMS, TILE_M, VEC);
      const int image = fast_div(m, call.by_grid), rest = m - image * (g.grid_h * g.grid_w), i = fast_div(rest, call.by_row),
                j = rest - i * g.grid_w;
      a_next[l] = read_pixel(g.in, x, residual, image * g.in.h * g.in.w * g.in.pitch,
                             fast_div(image, call.by_group) * 3 * g.in.pitch,
                             (m < end ? i * g.step_h : NOWHERE) + row_at, j * g.step_w + col_at, c);
    }
#pragma unroll
    for (int l = 0; l < WB_LOADS; l++) {
      const int q = item + l * ITEMS, m = p0 + TILE_K + ACROSS_K(q, TILE_N, VEC_OUT),
                k = n0 + ACROSS_I(q, TILE_N, VEC_OUT);
      b_next[l] = m < end && k < g.out.pitch && HAS_PIECE(q, TILE_N, VEC_OUT)
                      ? LOAD_OUT(dy + m * g.out.pitch + k)
                      : (out_vec)(0.0f);
    }
    if (p0 >= begin) gemm_multiply(tiles + stage, item, acc);
    local float *const a_tile = tiles + GEMM_STEP - stage, *const b_tile = a_tile + GEMM_A;
#pragma unroll
    for (int l = 0; l < WA_LOADS; l++) {
      const int q = item + l * ITEMS;
      STORE_ACROSS_IN(a_tile, GEMM_PITCH_M, ACROSS_K(q, TILE_M, VEC), ACROSS_I(q, TILE_M, VEC),
                      finish_pixel(a_next[l], affine, g.in.pitch, call.flags));
    }
#pragma unroll
    for (int l = 0; l < WB_LOADS; l++) {
      const int q = item + l * ITEMS;
      if (HAS_PIECE(q, TILE_N, VEC_OUT))
        STORE_ACROSS(b_tile, GEMM_PITCH_N, ACROSS_K(q, TILE_N, VEC_OUT), ACROSS_I(q, TILE_N, VEC_OUT), b_next[l]);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
  }
#endif
  global float *const to = dw + part * call.part_floats;
#define STORE(i) \
  if (e0 + gemm_row(item, i) < call.n_depth && !sums_db) \
    store_run(to + (e0 + gemm_row(item, i)) * g.out.pitch, n0 + gemm_column(item, i), g.out.pitch, gemm_get(acc, i), call.accumulate);
  GEMM_EACH_RUN(STORE)
#undef STORE
  const int blocks = (g.out.pitch + 63) / 64, piece = number / blocks, column = number % blocks * 64 + item % 16 * 4;
  float4 sum = 0.0f;
  if (sums_db && column < g.out.pitch) {
    const int last = min(call.positions, (piece + 1) * sum_rows), row = g.out.pitch;
    int m = piece * sum_rows + item / 16;
    for (; m + 3 * SUM_LANES < last; m += 4 * SUM_LANES) { /* four rows on their way at a time */
      const float4 v0 = read_row(dy + m * row, column, row), v1 = read_row(dy + (m + SUM_LANES) * row, column, row),
                   v2 = read_row(dy + (m + 2 * SUM_LANES) * row, column, row),
                   v3 = read_row(dy + (m + 3 * SUM_LANES) * row, column, row);
      sum += v0, sum += v1, sum += v2, sum += v3;
    }
    for (; m < last; m += SUM_LANES) sum += read_row(dy + m * row, column, row);
  }
  local float4 *const lanes = (local float4 *)tiles;
  lanes[item] = sum;
  barrier(CLK_LOCAL_MEM_FENCE);
  if (sums_db && item < 16 && column < g.out.pitch) {
    for (int lane = 1; lane < SUM_LANES; lane++) sum += lanes[lane * 16 + item];
    store_row(sums + sums_at + piece * g.out.pitch, column, g.out.pitch, sum, 0);
  }
}
#endif

#endif /* PASS < 3 */

#if PASS == 3
/* dw, db (+)= sums over their parts: of from + part*n + i, i < n (n 0: dw is complete already), and of from + sums_at +
 * piece*n_db + i, i < n_db. A work-group takes 256 / lanes values, lanes (a power of two) items each: lane l adds up
 * the parts l, l + lanes, … in order, and the lanes' sums are added by halves. */
kernel __attribute__((reqd_work_group_size(256, 1, 1))) void conv2d_simt_finish(global const float *restrict parts,
                                                                                global float *restrict dw,
                                                                                global float *restrict db, int n,
                                                                                int n_parts, int sums_at, int n_db,
                                                                                int n_sums, int lanes, int accumulate) {
  local float others[256];
  const int item = get_local_id(0), values = 256 / lanes, lane = item / values;
  const int id = (int)get_group_id(0) * values + item % values, of_dw = id < n, i = of_dw ? id : id - n;
  const int step = of_dw ? n : n_db, count = of_dw ? n_parts : i < n_db ? n_sums : 0;
  global const float *const from = (of_dw ? parts : parts + sums_at) + i;
  float sum = 0.0f;
  int part = lane;
  for (; part + 3 * lanes < count; part += 4 * lanes) { /* four on their way at a time */
    const float v0 = from[(size_t)part * (size_t)step], v1 = from[(size_t)(part + lanes) * (size_t)step],
                v2 = from[(size_t)(part + 2 * lanes) * (size_t)step], v3 = from[(size_t)(part + 3 * lanes) * (size_t)step];
    sum += v0, sum += v1, sum += v2, sum += v3;
  }
  for (; part < count; part += lanes) sum += from[(size_t)part * (size_t)step];
  others[item] = sum;
  barrier(CLK_LOCAL_MEM_FENCE);
  for (int reach = lanes / 2; reach >= 1; reach /= 2) {
    if (lane < reach) others[item] += others[item + reach * values];
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  if (lane == 0 && (of_dw || i < n_db)) {
    global float *const to = of_dw ? dw : db;
    to[i] = accumulate ? to[i] + others[item] : others[item];
  }
}

/* Adds up the parts of the depth (conv2d_simt_forward), in order, and the bias → out; also computes the statistics
 * of an image if `span` is its number of positions. A work-group takes LANES channels of `span` positions: 256 /
 * LANES items side by side over them. Statistics as in bn_stats: each item sums differences from its first value,
 * then pairs of items are merged (Chan, Golub, LeVeque 1979). */
#define LANES 16
kernel __attribute__((reqd_work_group_size(256, 1, 1))) void conv2d_simt_sum(global const float *restrict from,
                                                                             global const float *restrict bias,
                                                                             global float *restrict out,
                                                                             global float *restrict stats,
                                                                             const cvy_conv_sum call) {
  local float counts[256], means[256], squares[256], firsts[LANES];
  const int item = get_local_id(0), blocks = (call.out.pitch + LANES - 1) / LANES;
  const int group = get_group_id(0), o = group % blocks * LANES + item % LANES, there = o < call.out.pitch;
  const int begin = group / blocks * call.span, end = min(call.positions, begin + call.span);
  const float b = call.has_bias && there ? bias[o] : 0.0f;
  float count = 0.0f, own = 0.0f, sum = 0.0f, square = 0.0f;
  for (int i = begin + item / LANES; i < end && there; i += 256 / LANES) {
    const int at = i * call.out.pitch + o;
    int parts = call.parts;
    if (call.turned) {
      const int col = i % call.out.w, row = i / call.out.w % call.out.h;
      parts = cvy_conv_line_of(call.out.h, call.filter.r, call.filter.stride_h, call.filter.pad_h,
                               row % call.filter.stride_h).taps *
              cvy_conv_line_of(call.out.w, call.filter.s, call.filter.stride_w, call.filter.pad_w,
                               col % call.filter.stride_w).taps;
      parts = (parts * call.in_c + call.part_length - 1) / call.part_length;
    }
    float value = 0.0f;
    for (int part = 0; part < parts; part++) value += from[(size_t)part * (size_t)call.part_floats + at];
    value += b;
    out[at] = call.accumulate ? out[at] + value : value;
    if (count == 0.0f) own = value;
    const float d = value - own;
    sum += d, square = fma(d, d, square), count += 1.0f;
  }
  if (item < LANES) firsts[item] = own; /* of the first position, which always exists */
  barrier(CLK_LOCAL_MEM_FENCE);
  counts[item] = count;
  means[item] = count > 0.0f ? (own - firsts[item % LANES]) + sum / count : 0.0f;
  squares[item] = count > 0.0f ? fma(-sum, sum / count, square) : 0.0f;
  barrier(CLK_LOCAL_MEM_FENCE);
  for (int reach = 128; reach >= LANES; reach /= 2) {
    if (item < reach && counts[item + reach] > 0.0f) { /* rows fill from the front: no empty row before a full one */
      const float total = counts[item] + counts[item + reach], share = counts[item + reach] / total,
                  d = means[item + reach] - means[item];
      means[item] += d * share;
      squares[item] += squares[item + reach] + d * d * (counts[item] * share);
      counts[item] = total;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  if (call.has_stats && item < LANES && there) {
    global float *const to = stats + (size_t)(group / blocks) * 2 * (size_t)call.out.pitch + o;
    to[0] = firsts[item] + means[item], to[call.out.pitch] = fmax(squares[item], 0.0f);
  }
}

/* Statistics of strips (conv2d_simt_forward) → stats[image,0,k] = mean, stats[image,1,k] = sum of squared deviations of
 * the image's `positions` rows. An item per image and k takes the image's strips in order (Chan, Golub, LeVeque 1979). */
kernel __attribute__((reqd_work_group_size(64, 1, 1))) void conv2d_simt_merge_stats(global const float *restrict from,
                                                                                    global float *restrict stats,
                                                                                    int images, int positions,
                                                                                    int pitch,
                                                                                    cvy_divider by_pitch) {
  const int id = get_global_id(0), image = fast_div(id, by_pitch), k = id - image * pitch;
  if (image < images) {
    const int begin = image * positions, end = begin + positions;
    /* Means are relative to the first strip's mean: if means are large against the deviations, their rounding would
     * show. */
    const float base = from[(size_t)(begin / STRIP + image) * 3 * (size_t)pitch + k];
    float mean = 0.0f, m2 = 0.0f;
    for (int strip = begin / STRIP; strip * STRIP < end; strip++) {
      const int first = max(begin, strip * STRIP), last = min(end, strip * STRIP + STRIP);
      global const float *const part = from + (size_t)(strip + image) * 3 * (size_t)pitch + k;
      const float share = (float)(last - first) / (float)(last - begin), d = part[0] - base + part[2 * pitch] - mean;
      m2 += part[pitch] + d * d * share * (float)(first - begin);
      mean += d * share;
    }
    stats[(size_t)image * 2 * (size_t)pitch + k] = base + mean;
    stats[((size_t)image * 2 + 1) * (size_t)pitch + k] = m2;
  }
}
#endif
