/* SPDX-License-Identifier: MIT
 * Winograd convolution F(2x2, 3x3) on SIMT devices in one kernel (Winograd 1980; Lavin and Gray 2016), after Yan, Wang and
 * Chu, "Optimizing Batched Winograd Convolution on GPUs" (PPoPP 2020): transformed pixels and products stay in local memory
 * and registers, so that a card with a small cache moves no more than x, w and y.
 *   forward, backward-data:  Y = At [ sum_c (G g Gt) . (Bt d B) ] A       d: 4x4 pixels, 2 apart; Y: 2x2
 * Points of interpolation 0, 1, -1, infinity.
 *
 * A work-group of 256 makes 32 tiles x 32 filters, in steps of 4 channels. A step in local memory: v[c][point][tile] and
 * u[c][point][filter]. Sixteen items multiply the matrices of one point, 8 tiles x 8 filters each: 64 multiply-adds for four
 * 16-byte loads. Meanwhile, the pixels and filters of the next step are loaded into registers: the first 128 items
 * read 4x4 pixels each (one tile and channel), the others four quads of u. Yan uses 64 filters. With 32, the sums
 * take 64 registers of each item instead of 128, and two work-groups fit a compute unit.
 * Inverse transform: four strips of 8 tiles go through local memory; each item then transforms one tile and filter of
 * each strip. Item i has filter i % 32 and tiles i / 32 * 4 + strip.
 *
 * Filters are transformed beforehand, u[block of 32 filters][step][c][point][filter], zeros where there is no channel
 * or filter. Tile t of a call counts through samples, rows and columns of tiles. Groups count through `band` blocks
 * of tiles, then blocks of filters, then bands: groups that run at the same time share pixels and filters. Every
 * index fits 32 bits.
 *
 * Statistics: each block of tiles writes a slot (number: block + sample) for each of its samples: the mean, rounded;
 * its residual, the mean of the differences from it; M2; the count. winograd_fused_merge merges the slots.
 *
 * Parameters (defaults in brackets):
 *   PROLOGUE [0]  1: there is a load prologue; `flags` says which: 1 mean, scale and shift, 2 ReLU, 3 both; 2: with a
 *                 residual, `flags` alike */
#include "common.clh"
#include "conv2d/conv2d_flags.clh"
#include "conv2d_fused_args.clh"
#include "fastdiv.clh"

#ifndef PROLOGUE
#define PROLOGUE 0
#endif
#if PROLOGUE < 0 || PROLOGUE > 2
#error "PROLOGUE is to be 0, 1 or 2"
#endif

#define TILES CVY_FUSED_TILES
#define FILTERS CVY_FUSED_FILTERS
#define CHANNELS CVY_FUSED_CHANNELS
#define POINTS CVY_FUSED_POINTS
#define LOADERS 128                  /* items that read pixels */
#define V_PITCH (POINTS * TILES + 8) /* distance of channels: 8 more, so that a warp's stores use all banks */
#define U_PITCH (POINTS * FILTERS)
#define U_FLOATS (CHANNELS * U_PITCH) /* of a step */
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

/* Filters → u, (steps * 4 channels) x (filter_blocks * 32). In backward_data (turned), dy's channels are the
 * filters, and the taps are rotated by half a turn. A work-item takes a channel and a filter. */
kernel __attribute__((reqd_work_group_size(256, 1, 1))) void winograd_fused_filter(
    global const float *restrict w, global float *restrict u, int rows, int columns, int channels, int filters,
    int w_pitch, int turned, const cvy_divider by_columns) {
  const int id = get_global_id(0), row = fast_div(id, by_columns), column = id - row * columns;
  if (row < rows) {
    const int c = turned ? column : row, k = turned ? row : column;
    const bool there = c < channels && k < filters;
    float g[9], t[12];
#pragma unroll
    for (int i = 0; i < 9; i++) g[i] = there ? w[((turned ? 8 - i : i) * channels + c) * w_pitch + k] : 0.0f;
#pragma unroll
    for (int j = 0; j < 3; j++) {
      t[j] = g[j], t[9 + j] = g[6 + j];
      t[3 + j] = 0.5f * (g[j] + g[3 + j] + g[6 + j]), t[6 + j] = 0.5f * (g[j] - g[3 + j] + g[6 + j]);
    }
    global float *const to = u + (column / FILTERS * rows + row) * U_PITCH + column % FILTERS;
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const float a = t[3 * i], b = t[3 * i + 1], d = t[3 * i + 2];
      to[4 * i * FILTERS] = a, to[(4 * i + 3) * FILTERS] = d;
      to[(4 * i + 1) * FILTERS] = 0.5f * (a + b + d), to[(4 * i + 2) * FILTERS] = 0.5f * (a - b + d);
    }
  }
}

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

/* The place of tile t: its sample, its first output, and the number of its rows and columns that exist; both are 0
 * behind the last tile. */
typedef struct place {
  int image, row, col, rows, cols;
} place;
static inline place place_of(int t, cvy_conv_fused_call call) {
  place p;
  p.image = fast_div(t, call.by_image);
  const int per_image = (call.out.h + 1) / 2 * call.tiles_w, rest = t - p.image * per_image, i = fast_div(rest, call.by_row);
  p.row = 2 * i, p.col = 2 * (rest - i * call.tiles_w);
  p.rows = t < call.tiles ? min(2, call.out.h - p.row) : 0, p.cols = t < call.tiles ? min(2, call.out.w - p.col) : 0;
  return p;
}

/* Stores a tile's outputs of channel o, with bias, or added to the old values. Returns them. */
static inline float4 store_tile(global float *out, place p, int o, cvy_conv_fused_call call, float4 v) {
  const int row_pitch = call.out.w * call.out.pitch, at = (p.image * call.out.h + p.row) * row_pitch + p.col * call.out.pitch + o;
  const bool there = o < call.out.pitch;
  if (call.accumulate) {
    if (there && p.rows > 0) v.x += out[at];
    if (there && p.rows > 0 && p.cols > 1) v.y += out[at + call.out.pitch];
    if (there && p.rows > 1) v.z += out[at + row_pitch];
    if (there && p.rows > 1 && p.cols > 1) v.w += out[at + row_pitch + call.out.pitch];
  }
  if (there && p.rows > 0) out[at] = v.x;
  if (there && p.rows > 0 && p.cols > 1) out[at + call.out.pitch] = v.y;
  if (there && p.rows > 1) out[at + row_pitch] = v.z;
  if (there && p.rows > 1 && p.cols > 1) out[at + row_pitch + call.out.pitch] = v.w;
  return v;
}

/* The sum of those of the four values that exist. */
static inline float sum_there(place p, float4 v) {
  const float first = v.x + (p.cols > 1 ? v.y : 0.0f), second = v.z + (p.cols > 1 ? v.w : 0.0f);
  return (p.rows > 0 ? first : 0.0f) + (p.rows > 1 ? second : 0.0f);
}

/* The tiles of a block that belong to one sample. */
typedef struct segment {
  int first, last;
} segment;
static inline segment segment_of(int image, int t0, cvy_conv_fused_call call) {
  const int per_image = (call.out.h + 1) / 2 * call.tiles_w;
  segment s;
  s.first = max(image * per_image - t0, 0), s.last = min(min((image + 1) * per_image, call.tiles) - t0, TILES);
  return s;
}
/* Sum over a segment's tiles, in order, of the values of one filter, or (step 1) of one value per tile. */
static inline float sum_segment(local const float *from, segment s, int step) {
  float sum = 0.0f;
  for (int t = s.first; t < s.last; t++) sum += from[t * step];
  return sum;
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
  const int item = get_local_id(0), group = get_group_id(0);
  const int band = group / (call.band * call.filter_blocks), of_band = group - band * call.band * call.filter_blocks,
            width = min(call.band, call.tile_blocks - band * call.band), filter_block = of_band / width,
            tile_block = band * call.band + of_band - filter_block * width;
  const int t0 = tile_block * TILES;

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
    from = filter_block * call.steps * U_FLOATS + (item - LOADERS) * 4 - U_FLOATS;
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

  const int filter = item % FILTERS, o = filter_block * FILTERS + filter, tile = item / FILTERS * 4;
  const float b = call.has_bias && o < call.out.pitch ? bias[o] : 0.0f;
#define EACH_TILE(DO) DO(0) DO(1) DO(2) DO(3)
#define MAKE_TILE(s, upper0, upper1, lower0, lower1) \
  const float4 y##s = store_tile(out, place_of(t0 + tile + s, call), o, call, transform_back(tiles, item, upper0, upper1, lower0, lower1) + b);
  MAKE_TILE(0, acc00, acc01, acc40, acc41)
  MAKE_TILE(1, acc10, acc11, acc50, acc51)
  MAKE_TILE(2, acc20, acc21, acc60, acc61)
  MAKE_TILE(3, acc30, acc31, acc70, acc71)
  if (call.has_stats) {
    local float *const sums = tiles, *const rests = tiles + TILES * FILTERS, *const squares = tiles + 2 * TILES * FILTERS,
                       *const means = tiles + 3 * TILES * FILTERS, *const counts = tiles + 4 * TILES * FILTERS;
    local float *const mine = tiles + tile * FILTERS + filter;
    const place p0 = place_of(t0 + tile, call), p1 = place_of(t0 + tile + 1, call), p2 = place_of(t0 + tile + 2, call),
                p3 = place_of(t0 + tile + 3, call);
    const segment g0 = segment_of(p0.image, t0, call), g1 = segment_of(p1.image, t0, call),
                  g2 = segment_of(p2.image, t0, call), g3 = segment_of(p3.image, t0, call);
#define SHARE_SUM(s)                             \
  mine[(s) * FILTERS] = sum_there(p##s, y##s); \
  if (filter == 0) counts[tile + (s)] = (float)(p##s.rows * p##s.cols);
    EACH_TILE(SHARE_SUM)
    barrier(CLK_LOCAL_MEM_FENCE);
    /* The item of a sample's first tile divides to get the mean, once, and passes it through memory to the
     * differences and to the slot: NVIDIA's compiler fuses y - sum / count into a multiply-add, whose quotient is
     * not rounded. Behind the last tile, segments are empty: 0 / 0 reaches no output that exists. */
#define SHARE_MEAN(s) \
  if (g##s.first == tile + (s)) means[(tile + (s)) * FILTERS + filter] = sum_segment(sums + filter, g##s, FILTERS) / sum_segment(counts, g##s, 1);
    EACH_TILE(SHARE_MEAN)
    barrier(CLK_LOCAL_MEM_FENCE);
#define SHARE_SQUARES(s)                                                  \
  const float4 d##s = y##s - means[g##s.first * FILTERS + filter];      \
  mine[TILES * FILTERS + (s) * FILTERS] = sum_there(p##s, d##s);        \
  mine[2 * TILES * FILTERS + (s) * FILTERS] = sum_there(p##s, d##s * d##s);
    EACH_TILE(SHARE_SQUARES)
    barrier(CLK_LOCAL_MEM_FENCE);
    /* Eight samples of the block at a time; each has an item for each filter. */
    const int last_image = fast_div(min(t0 + TILES, call.tiles) - 1, call.by_image);
    for (int image = fast_div(t0, call.by_image) + item / FILTERS; image <= last_image; image += 256 / FILTERS) {
      const segment g = segment_of(image, t0, call);
      const float count = sum_segment(counts, g, 1), rest = sum_segment(rests + filter, g, FILTERS) / count;
      const float square = sum_segment(squares + filter, g, FILTERS);
      if (o < call.out.pitch) {
        global float *const to = slots + call.stats_at + (tile_block + image) * CVY_FUSED_STATS * call.out.pitch + o;
        to[0] = means[g.first * FILTERS + filter], to[call.out.pitch] = rest;
        to[2 * call.out.pitch] = square - rest * rest * count, to[3 * call.out.pitch] = count;
      }
    }
  }
}

/* Merges the slots of a sample's blocks of tiles, in order → stats[image,0,k] = mean, stats[image,1,k] = M2 (Chan et
 * al. 1979). A work-item takes a sample and a channel. Means are relative to the first block's mean: if they are
 * large against the deviations, their rounding would show. */
kernel __attribute__((reqd_work_group_size(64, 1, 1))) void winograd_fused_merge(global const float *restrict slots,
                                                                                global float *restrict stats, int stats_at,
                                                                                int images, int per_image, int pitch,
                                                                                const cvy_divider by_pitch) {
  const int id = get_global_id(0), image = fast_div(id, by_pitch), k = id - image * pitch;
  if (image < images) {
    const int first = image * per_image / TILES, last = ((image + 1) * per_image - 1) / TILES;
    int at = stats_at + (first + image) * CVY_FUSED_STATS * pitch + k;
    const float base = slots[at];
    float mean = 0.0f, m2 = 0.0f, count = 0.0f;
    for (int block = first; block <= last; block++, at += CVY_FUSED_STATS * pitch) {
      const float more = slots[at + 3 * pitch], share = more / (count + more), d = slots[at] - base + slots[at + pitch] - mean;
      m2 += slots[at + 2 * pitch] + d * d * share * count;
      mean += d * share;
      count += more;
    }
    stats[image * 2 * pitch + k] = base + mean;
    stats[(image * 2 + 1) * pitch + k] = m2;
  }
}
