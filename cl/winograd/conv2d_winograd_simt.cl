/* SPDX-License-Identifier: MIT
 * Winograd convolution F(m x m, 3x3) on SIMT devices, m = 2 or 4 (Winograd 1980; Lavin and Gray 2016): transforms to
 * ALPHA*ALPHA matrices, ALPHA = m + 2, products on the core of gemm_core.clh, transforms back.
 *   forward, backward-data:  Y = At [ sum_c (G g Gt) . (Bt d B) ] A       d: ALPHA x ALPHA pixels, m apart; Y: m x m
 *   backward-weights:        dg = Gt [ sum_tiles (Bt d B) . (A dY At) ] G the transpose of the same bilinear form
 * winograd.clh has the matrices.
 *
 * Workspace: matrices (ALPHA*ALPHA, rows, pitch), pitches multiples of 4, zeros where there is no channel. Tile t of a
 * call counts through the images of a chunk, rows and columns of tiles. Transforms: a work-item per tile and channel;
 * neighbouring work-items take neighbouring channels, so that scalar loads of any pitch are coalesced. Every index
 * fits 32 bits.
 *
 * Parameters (defaults in brackets):
 *   STAGE [0]     0 transforms (they use TILE, and MATH if it is TF32: they round the factors of the products), 1
 *                 products of forward and backward-data, 2 of backward-weights
 *   TILE [4]      m
 *   TILE_M, TILE_N, TILE_K, MATH   of the products, see gemm_core.clh */
#include "common.clh"
#include "conv2d/conv2d_flags.clh"
#include "conv2d_winograd_args.clh"
#include "fastdiv.clh"
#ifndef STAGE
#define STAGE 0
#endif
#if STAGE == 1 && !defined(CVY_SUB_GROUP) /* Intel's compiler puts numbers into memory then */
#define GEMM_UNROLL
#endif
#if STAGE == 1
#define GEMM_A_DOWN
#endif
#define GEMM_ROUNDED 1 /* by the transforms */
#include "gemm_core.clh"

#ifndef TILE
#define TILE 4
#endif
#if TILE != 2 && TILE != 4
#error "TILE is to be 2 or 4"
#endif
#if STAGE < 0 || STAGE > 2
#error "STAGE is to be 0, 1 or 2"
#endif
#define ALPHA (TILE + 2)
#define ALPHA2 (ALPHA * ALPHA)

#if STAGE == 0

/* Register limits as in gemm_core.clh: a tile of 36 numbers stays in registers. AMD: if the compiler knows that a
 * higher occupancy gains nothing, winograd_simt_output leaves room for two work-groups on Vega, and gfx11 does not
 * spill. */
#ifdef CVY_SUB_GROUP
#define TRANSFORM_KERNEL kernel __attribute__((reqd_work_group_size(256, 1, 1), intel_reqd_sub_group_size(CVY_SUB_GROUP))) void
#elif defined(__GFX9__)
#define TRANSFORM_KERNEL kernel __attribute__((reqd_work_group_size(256, 1, 1), amdgpu_waves_per_eu(2))) void
#elif defined(__GFX11__)
#define TRANSFORM_KERNEL kernel __attribute__((reqd_work_group_size(256, 1, 1), amdgpu_waves_per_eu(4, 4))) void
#else
#define TRANSFORM_KERNEL kernel __attribute__((reqd_work_group_size(256, 1, 1))) void
#endif

#define TILE_OUT TILE
#include "winograd/winograd.clh"

/* Filters → u[b*rows*pitch + row*pitch + column], id: row * pitch + column. Zeros where c or k does not exist. */
static inline void transform_filters(global const float *restrict w, global float *restrict u, int id,
                                     const cvy_winograd_filters f) {
  const int row = fast_div(id, f.by_pitch), column = id - row * f.pitch;
  if (row < f.rows) {
    const int c = f.turned ? column : row, k = f.turned ? row : column;
    const bool there = c < f.channels && k < f.filters;
    float v[ALPHA2];
#pragma unroll
    for (int i = 0; i < 9; i++)
      v[i / 3 * ALPHA + i % 3] = there ? w[((f.turned ? 8 - i : i) * f.channels + c) * f.w_pitch + k] : 0.0f;
#pragma unroll
    for (int j = 0; j < 3; j++) winograd_weight_line(v + j, ALPHA, v + j, ALPHA);
#pragma unroll
    for (int i = 0; i < ALPHA; i++) winograd_weight_line(v + i * ALPHA, 1, v + i * ALPHA, 1);
#pragma unroll
    for (int i = 0; i < ALPHA2; i++) u[(i * f.rows + row) * f.pitch + column] = gemm_round(v[i]);
  }
}

/* The place of tile t of a chunk: its image, row and column. */
typedef struct place { int image, i, j; } place;
static inline place place_of(int t, cvy_winograd_tiles tiles) {
  const int of_image = fast_div(t, tiles.by_image), rest = t - of_image * tiles.per_image, i = fast_div(rest, tiles.by_row);
  return (place){tiles.first + of_image, i, rest - i * tiles.per_row};
}

/* Pixels of tile t and channel c, through the load prologue → to[p.at + (b*tiles + t)*pitch + c]; id: t * pitch + c. The
 * tile at row i, column j begins at pixel (i*TILE - pad_h, j*TILE - pad_w). */
static inline void transform_pixels(global const float *restrict x, global const float *restrict affine,
                                    global const float *restrict residual, global float *restrict to, int id,
                                    const cvy_winograd_pixels p) {
  const int t = fast_div(id, p.by_pitch), c = id - t * p.pitch, in_pitch = p.in.pitch;
  if (t < p.tiles.n) {
    const place at_tile = place_of(t, p.tiles);
    const int row0 = at_tile.i * TILE - p.pad_h, col0 = at_tile.j * TILE - p.pad_w;
    float mean = 0.0f, scale = 1.0f, shift = 0.0f;
    if ((p.flags & FLAG_SCALE) && c < p.in.c) {
      const int at = fast_div(at_tile.image, p.by_group) * 3 * in_pitch + c;
      mean = affine[at], scale = affine[at + in_pitch], shift = affine[at + 2 * in_pitch];
    }
    float v[ALPHA2];
#pragma unroll
    for (int q = 0; q < ALPHA2; q++) {
      const int row = row0 + q / ALPHA, col = col0 + q % ALPHA;
      float value = 0.0f;
      if (c < p.in.c && row >= 0 && row < p.in.h && col >= 0 && col < p.in.w) {
        const int at = ((at_tile.image * p.in.h + row) * p.in.w + col) * in_pitch + c;
        value = x[at];
        if (p.flags & FLAG_SCALE) value = fma(value - mean, scale, shift);
        if (p.flags & FLAG_RESIDUAL) value += residual[at];
        if (p.flags & FLAG_RELU) value = value < 0.0f ? 0.0f : value;
      }
      v[q] = value;
    }
#pragma unroll
    for (int q = 0; q < ALPHA; q++) winograd_input_line(v + q, ALPHA);
#pragma unroll
    for (int q = 0; q < ALPHA; q++) winograd_input_line(v + q * ALPHA, 1);
#pragma unroll
    for (int q = 0; q < ALPHA2; q++) to[p.at + (q * p.tiles.n + t) * p.pitch + c] = gemm_round(v[q]);
  }
}

/* Gradients of tile t's TILE x TILE outputs and filter k → to[g.at + (b*tiles + t)*pitch + k]; id: t * pitch + k. */
static inline void transform_gradients(global const float *restrict dy, global float *restrict to, int id,
                                       const cvy_winograd_gradients g) {
  const int t = fast_div(id, g.by_pitch), k = id - t * g.pitch, out_pitch = g.out.pitch;
  if (t < g.tiles.n) {
    const place at_tile = place_of(t, g.tiles);
    float v[ALPHA2];
#pragma unroll
    for (int q = 0; q < TILE * TILE; q++) {
      const int row = at_tile.i * TILE + q / TILE, col = at_tile.j * TILE + q % TILE;
      v[q / TILE * ALPHA + q % TILE] = k < out_pitch && row < g.out.h && col < g.out.w
                                           ? dy[((at_tile.image * g.out.h + row) * g.out.w + col) * out_pitch + k]
                                           : 0.0f;
    }
#pragma unroll
    for (int q = 0; q < TILE; q++) winograd_output_line_turned(v + q, ALPHA);
#pragma unroll
    for (int q = 0; q < ALPHA; q++) winograd_output_line_turned(v + q * ALPHA, 1);
#pragma unroll
    for (int q = 0; q < ALPHA2; q++) to[g.at + (q * g.tiles.n + t) * g.pitch + k] = gemm_round(v[q]);
  }
}

/* Both factors of forward and backward-data: the first work-groups make the input's matrices, those behind them the
 * filters'. A launch without the latter finds them in the workspace. */
TRANSFORM_KERNEL winograd_simt_gather_factors(global const float *restrict x, global const float *restrict affine,
                                              global const float *restrict residual, global const float *restrict w,
                                              global float *restrict to, const cvy_winograd_pixels p,
                                              const cvy_winograd_filters f) {
  const int item = get_local_id(0), group = (int)get_group_id(0), inputs = (p.tiles.n * p.pitch + 255) / 256;
  if (group < inputs) transform_pixels(x, affine, residual, to, group * 256 + item, p);
  else transform_filters(w, to, (group - inputs) * 256 + item, f);
}

/* Four columns of a row of dy, those behind `pitch` as zeros. */
static inline float4 read_row(global const float *row, int column, int pitch) {
  if (pitch % 4 == 0) return *(global const float4 *)(row + column);
  return (float4)(row[column], column + 1 < pitch ? row[column + 1] : 0.0f, column + 2 < pitch ? row[column + 2] : 0.0f,
                  column + 3 < pitch ? row[column + 3] : 0.0f);
}

/* Both factors of backward_weights: the first g.sum_groups work-groups sum 64 columns of dy over sum_rows of its
 * `positions` rows each, for db → to[sums_at + piece*out_pitch + column]: item i takes every 16th row of the columns
 * i % 16 * 4 …. They read one row after the other, so they are in front: the others run beside them. Work-groups
 * behind them make the input's matrices, the next ones the gradients'. */
TRANSFORM_KERNEL winograd_simt_factors(global const float *restrict x, global const float *restrict affine,
                                       global const float *restrict residual, global const float *restrict dy,
                                       global float *restrict to, const cvy_winograd_pixels p,
                                       const cvy_winograd_gradients g) {
  local float4 lanes[256];
  const int item = get_local_id(0), number = (int)get_group_id(0), group = number - g.sum_groups,
            inputs = (p.tiles.n * p.pitch + 255) / 256;
  const int out_pitch = g.out.pitch, blocks = (out_pitch + 63) / 64, piece = number / blocks,
            column = number % blocks * 64 + item % 16 * 4;
  float4 sum = 0.0f;
  if (group < 0 && column < out_pitch) {
    const int last = min(g.positions, (piece + 1) * g.sum_rows);
    int m = piece * g.sum_rows + item / 16;
    for (; m + 48 < last; m += 64) { /* four rows on their way at a time */
      const float4 v0 = read_row(dy + m * out_pitch, column, out_pitch),
                   v1 = read_row(dy + (m + 16) * out_pitch, column, out_pitch),
                   v2 = read_row(dy + (m + 32) * out_pitch, column, out_pitch),
                   v3 = read_row(dy + (m + 48) * out_pitch, column, out_pitch);
      sum += v0, sum += v1, sum += v2, sum += v3;
    }
    for (; m < last; m += 16) sum += read_row(dy + m * out_pitch, column, out_pitch);
  }
  lanes[item] = sum;
  barrier(CLK_LOCAL_MEM_FENCE);
  if (group < 0 && item < 16 && column < out_pitch) {
    for (int lane = 1; lane < 16; lane++) sum += lanes[lane * 16 + item];
    global float *const at = to + g.sums_at + piece * out_pitch + column;
    at[0] = sum.x;
    if (column + 1 < out_pitch) at[1] = sum.y;
    if (column + 2 < out_pitch) at[2] = sum.z;
    if (column + 3 < out_pitch) at[3] = sum.w;
  }
  if (group >= inputs) transform_gradients(dy, to, (group - inputs) * 256 + item, g);
  else if (group >= 0) transform_pixels(x, affine, residual, to, group * 256 + item, p);
}

/* Statistics of some values: their number, their mean as a sum of two numbers, and the sum of squared deviations.
 * `near` is the mean or a value near it. If the mean were a single number, its rounding would show in the deviations
 * wherever it is large beside them. */
typedef struct moments {
  float n, near, rest, m2;
} moments;

/* Merges two such sets (Chan, Golub, LeVeque 1979). */
static inline moments merge(moments a, moments b) {
  const float n = a.n + b.n, share = n > 0.0f ? b.n / n : 0.0f, d = b.near - a.near + (b.rest - a.rest);
  return a.n > 0.0f ? (moments){n, a.near, a.rest + d * share, a.m2 + b.m2 + d * d * a.n * share} : b;
}

/* Statistics of the first rows x cols outputs of a tile. */
static inline moments moments_of(const float *v, int rows, int cols) {
  moments tile = {(float)(rows * cols), 0.0f, 0.0f, 0.0f};
#pragma unroll
  for (int p = 0; p < TILE * TILE; p++) tile.near += p / TILE < rows && p % TILE < cols ? v[p / TILE * ALPHA + p % TILE] : 0.0f;
  tile.near /= tile.n;
#pragma unroll
  for (int p = 0; p < TILE * TILE; p++) {
    const float d = p / TILE < rows && p % TILE < cols ? v[p / TILE * ALPHA + p % TILE] - tile.near : 0.0f;
    tile.rest += d, tile.m2 += d * d;
  }
  tile.rest /= tile.n;
  tile.m2 = fmax(tile.m2 - tile.rest * tile.rest * tile.n, 0.0f);
  return tile;
}

/* m[m_at + part*part_floats + (b*tiles + t)*pitch + o], parts added up in order → out, with bias, or added to the
 * old values; and the image's statistics, if requested: then pieces is 1. A work-group takes `lanes` channels (a
 * power of two) of one image: 256/lanes items share the tiles of a channel. Piece i begins with the i-th 256/lanes
 * tiles and continues behind those of all pieces. */
TRANSFORM_KERNEL winograd_simt_output(
    global const float *restrict m, global const float *restrict bias, global float *restrict out,
    global float *restrict stats, int m_at, int first, int tiles, int tiles_h, int tiles_w, int pitch, int out_h,
    int out_w, int out_pitch, int lanes, int pieces, const cvy_divider by_row, int has_bias, int accumulate, int has_stats,
    int n_parts, int part_floats) {
  local moments others[256];
  const int item = get_local_id(0), group = get_group_id(0), blocks = (out_pitch + lanes - 1) / lanes;
  const int rest = group / blocks, image = rest / pieces, piece = rest - image * pieces, o = (group - rest * blocks) * lanes + item % lanes;
  const int per_image = tiles_h * tiles_w, abreast = 256 / lanes;
  moments all = {0.0f, 0.0f, 0.0f, 0.0f};
  if (o < out_pitch) {
    const float b = has_bias ? bias[o] : 0.0f;
    for (int t = piece * abreast + item / lanes; t < per_image; t += pieces * abreast) {
      const int i = fast_div(t, by_row), j = t - i * tiles_w;
      float v[ALPHA2];
#pragma unroll
      for (int p = 0; p < ALPHA2; p++) v[p] = m[m_at + (p * tiles + image * per_image + t) * pitch + o];
      for (int part = 1; part < n_parts; part++) {
#pragma unroll
        for (int p = 0; p < ALPHA2; p++)
          v[p] += m[m_at + part * part_floats + (p * tiles + image * per_image + t) * pitch + o];
      }
#pragma unroll
      for (int p = 0; p < ALPHA; p++) winograd_output_line(v + p, ALPHA);
#pragma unroll
      for (int p = 0; p < TILE; p++) winograd_output_line(v + p * ALPHA, 1);
      const int rows = min(TILE, out_h - i * TILE), cols = min(TILE, out_w - j * TILE);
#pragma unroll
      for (int p = 0; p < TILE * TILE; p++) {
        const int row = p / TILE, col = p % TILE;
        v[row * ALPHA + col] += b;
        if (row < rows && col < cols) {
          const int at = (((first + image) * out_h + i * TILE + row) * out_w + j * TILE + col) * out_pitch + o;
          out[at] = accumulate ? out[at] + v[row * ALPHA + col] : v[row * ALPHA + col];
        }
      }
      if (has_stats) all = merge(all, moments_of(v, rows, cols));
    }
  }
  for (int left = has_stats ? 128 : 0; left >= lanes; left /= 2) { /* the second of two halves passes its results */
    others[item] = all;
    barrier(CLK_LOCAL_MEM_FENCE);
    if (item < left) all = merge(all, others[item + left]);
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  if (has_stats && item < lanes && o < out_pitch) {
    global float *const to = stats + (first + image) * 2 * out_pitch + o;
    to[0] = all.near + all.rest, to[out_pitch] = all.m2;
  }
}

/* dw (+)= Gt [sum over parts, in order, of p[part*part_floats + (b*rows + c)*pitch + k]] G. A work-item takes c and
 * k; the work-items behind these take one of n_db columns each: db (+)= sum of p[sums_at + piece*n_db + column], in
 * order. */
TRANSFORM_KERNEL winograd_simt_dw(
    global const float *restrict parts, global float *restrict dw, int n_parts, int part_floats, int rows, int pitch,
    int channels, int w_pitch, const cvy_divider by_w, int accumulate, global float *restrict db, int sums_at, int n_db,
    int n_sums) {
  const int id = get_global_id(0), c = fast_div(id, by_w), k = id - c * w_pitch;
  if (c < channels) {
    float v[ALPHA2];
#pragma unroll
    for (int p = 0; p < ALPHA2; p++) v[p] = parts[(p * rows + c) * pitch + k];
    for (int part = 1; part < n_parts; part++) { /* all loads of a part on their way at a time */
#pragma unroll
      for (int p = 0; p < ALPHA2; p++) v[p] += parts[part * part_floats + (p * rows + c) * pitch + k];
    }
#pragma unroll
    for (int p = 0; p < ALPHA; p++) winograd_weight_line_turned(v + p, ALPHA, v + p, ALPHA);
#pragma unroll
    for (int p = 0; p < 3; p++) winograd_weight_line_turned(v + p * ALPHA, 1, v + p * ALPHA, 1);
#pragma unroll
    for (int i = 0; i < 9; i++) {
      const int at = (i * channels + c) * w_pitch + k;
      const float value = v[i / 3 * ALPHA + i % 3];
      dw[at] = accumulate ? dw[at] + value : value;
    }
  } else if (id - channels * w_pitch < n_db) {
    const int i = id - channels * w_pitch;
    float sum = 0.0f;
    for (int piece = 0; piece < n_sums; piece++) sum += parts[sums_at + piece * n_db + i];
    db[i] = accumulate ? db[i] + sum : sum;
  }
}

#else

#define PIECES(width) (TILE_K * (width) / 4)
#define LOADS(width) ((PIECES(width) + ITEMS - 1) / ITEMS)
#define HAS_PIECE(q, width) (PIECES(width) % ITEMS == 0 || (q) < PIECES(width))
#define LOAD(p) (*(global const float4 *)(p))

/* Stores a run of results in a row, from a column on, as far as they exist. */
static inline void store_run(global float *to, int row, int column, int rows, int columns, gemm_run v, int accumulate) {
  global gemm_run *const run = (global gemm_run *)(to + row * columns + column);
  if (row < rows && column < columns) *run = accumulate ? *run + v : v;
}

/* c[part][batch] (+)= a[batch] x b[batch] over the depths part*part_depth … of `depth`; b: (depth, columns); a: (rows,
 * a_pitch) with depth along the pitch in STAGE 1, (depth, a_pitch) in STAGE 2. Matrices of a batch lie a_matrix,
 * b_matrix, c_matrix floats apart, parts part_floats. columns, a_pitch, part_depth (STAGE 1: depth) are multiples of 4.
 * Group number = column tile + column tiles * (row tile + row tiles * (batch + batches * part)). a, b and c may be parts
 * of one buffer that do not overlap. */
GEMM_KERNEL winograd_simt_multiply(global const float *a, global const float *b, global float *c, int a_at, int b_at,
                                   int c_at, int rows, int depth, int columns, int a_pitch, int a_matrix, int b_matrix,
                                   int c_matrix, int batches, int part_depth, int part_floats, int accumulate) {
  local float tiles[2 * GEMM_STEP] __attribute__((aligned(16)));
  const int item = get_local_id(0);
  const int tiles_n = (columns + TILE_N - 1) / TILE_N, tiles_m = (rows + TILE_M - 1) / TILE_M;
  const int group = get_group_id(0), rest = group / tiles_n, product = rest / tiles_m;
  const int m0 = rest % tiles_m * TILE_M, n0 = group % tiles_n * TILE_N;
  const int batch = product % batches, part = product / batches;
  const int begin = part * part_depth, end = min(depth, begin + part_depth);
  global const float *const a_from = a + a_at + batch * a_matrix, *const b_from = b + b_at + batch * b_matrix;
  float4 acc[16] = {(float4)(0.0f)};

  int stage = GEMM_STEP;
#pragma unroll 1
  for (int e0 = begin - TILE_K; e0 < end; e0 += TILE_K) {
    float4 a_next[LOADS(TILE_M)], b_next[LOADS(TILE_N)];
    stage = GEMM_STEP - stage;
#pragma unroll
    for (int l = 0; l < LOADS(TILE_M); l++) {
      const int q = item + l * ITEMS;
#if STAGE == 1
      const int e = e0 + TILE_K + gemm_down_k(q, TILE_M), i = m0 + gemm_down_i(q, TILE_M);
      a_next[l] = e < end && i < rows ? LOAD(a_from + i * a_pitch + e) : (float4)(0.0f);
#else
      const int e = e0 + TILE_K + q / (TILE_M / 4), i = m0 + q % (TILE_M / 4) * 4;
      a_next[l] = e < end && i < a_pitch ? LOAD(a_from + e * a_pitch + i) : (float4)(0.0f);
#endif
    }
#pragma unroll
    for (int l = 0; l < LOADS(TILE_N); l++) {
      const int q = item + l * ITEMS, e = e0 + TILE_K + q / (TILE_N / 4), o = n0 + q % (TILE_N / 4) * 4;
      b_next[l] = e < end && o < columns && HAS_PIECE(q, TILE_N) ? LOAD(b_from + e * columns + o) : (float4)(0.0f);
    }
    if (e0 >= begin) gemm_multiply(tiles + stage, item, acc);
    local float *const a_tile = tiles + GEMM_STEP - stage, *const b_tile = a_tile + GEMM_A;
#pragma unroll
    for (int l = 0; l < LOADS(TILE_M); l++) {
      const int q = item + l * ITEMS;
#if STAGE == 1
      gemm_store_down(a_tile, GEMM_PITCH_M, gemm_down_k(q, TILE_M), gemm_down_i(q, TILE_M), a_next[l]);
#else
      gemm_store_across(a_tile, GEMM_PITCH_M, q / (TILE_M / 4), q % (TILE_M / 4) * 4, a_next[l]);
#endif
    }
#pragma unroll
    for (int l = 0; l < LOADS(TILE_N); l++) {
      const int q = item + l * ITEMS;
      if (HAS_PIECE(q, TILE_N)) gemm_store_across(b_tile, GEMM_PITCH_N, q / (TILE_N / 4), q % (TILE_N / 4) * 4, b_next[l]);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  global float *const to = c + c_at + part * part_floats + batch * c_matrix;
#define STORE(i) store_run(to, m0 + gemm_row(item, i), n0 + gemm_column(item, i), rows, columns, gemm_get(acc, i), accumulate);
  GEMM_EACH_RUN(STORE)
#undef STORE
}

#endif
