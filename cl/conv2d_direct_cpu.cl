/* SPDX-License-Identifier: MIT
 * Direct convolution on CPU-shaped devices: the formulas of src/ops/conv2d.h with float16 vectors and register tiles.
 *
 * Forward and backward-data are one "gather convolution" (src/ops/conv2d_direct.h, cvy_conv_gather):
 *   out[m, row0 + i*row_step, col0 + j*col_step, o] = bias[o] + sum_{a,b,c} f(in)[m, i*step_h + first_h + a, j*step_w + first_w + b, c] * u[a,b,c,o]
 * with u = w (forward), or the turned filter of one phase of dx (backward-data with strides > 1 has stride_h*stride_w phases).
 *
 * Geometry: one work-item per work-group, as many groups as keep all cores busy; each has a slice of the workspace and walks over a
 * contiguous range of tasks. A strip is some images, or some rows (columns) of one; its zero-padded input, with the load prologue applied, is
 * copied to the slice with dense channels, so that for a filter row `a` the (b,c) products of a position run over contiguous memory.
 * A task is a strip and a block of 32 output channels. Register tile: 14 positions x 32 channels, 28 accumulators; positions are arbitrary (a table
 * of offsets), so that strides, narrow images and tiles that cross rows or images cost nothing.
 * Backward-weights: a task is a block of input channels, a group of blocks of 32 output channels and a part of the strips; per strip the
 * gradient is packed to (positions, 32), tiles of 12 products (b,c) x 32 channels are summed over the strip's positions in registers and added to
 * the task's dw in the slice. Parts are summed in order by conv2d_cpu_reduce.
 * Weights are packed before each call to (blocks of 32 output channels, a, b, c, 32); the last block has 16 if the pitch is an odd multiple of 16.
 *
 * Reads past the end of a strip's pixels (at most 15 floats) land in the slack behind it and meet results that are not stored. */
#include "common.clh"

#define GROUP_OF_ONE __attribute__((reqd_work_group_size(1, 1, 1)))

/* Flags of the `flags` arguments, the same in src/ops/conv2d_direct_cpu.c. The first three are CVY_CONV_*. */
#define FLAG_SCALE 1
#define FLAG_RELU 2
#define FLAG_RESIDUAL 4
#define FLAG_BIAS 8
#define FLAG_STATS 16
#define FLAG_ACCUMULATE 32

#define ROWS_4(M) M(0) M(1) M(2) M(3)
#define ROWS_7(M) ROWS_4(M) M(4) M(5) M(6)
#define ROWS_12(M) ROWS_7(M) M(7) M(8) M(9) M(10) M(11)
#define ROWS_14(M) ROWS_12(M) M(12) M(13)

/* ---- strips ---- */

/* Where a strip lies: rows x cols outputs from (i0,j0), and what of the input they see. With a step larger than the filter only
 * the pixels under the filter are kept: `use` pixels per output instead of `step`. */
typedef struct {
  int step_h, step_w, taps_h, taps_w, first_h, first_w;
  int i0, j0, rows, cols;
  int use_h, use_w, strip_h, strip_w;
} strip_place;

static strip_place place_strip(int step_h, int step_w, int taps_h, int taps_w, int first_h, int first_w, int i0, int j0, int rows, int cols) {
  strip_place p;
  p.step_h = step_h, p.step_w = step_w, p.taps_h = taps_h, p.taps_w = taps_w, p.first_h = first_h, p.first_w = first_w;
  p.i0 = i0, p.j0 = j0, p.rows = rows, p.cols = cols;
  p.use_h = min(step_h, taps_h), p.use_w = min(step_w, taps_w);
  p.strip_h = (rows - 1) * p.use_h + taps_h, p.strip_w = (cols - 1) * p.use_w + taps_w;
  return p;
}

static void fill_zero(global float *restrict to, int n) {
  for (int i = 0; i < n; i += 16) vstore16((float16)(0.0f), 0, to + i);
}

/* One image of a strip: channels c0..c0+channels-1 of its pixels, dense. Written strictly upwards, in whole vectors: what a vector writes
 * too much is overwritten by the next pixel. x, residual: the image; scale, shift: its group. */
static void load_strip(global float *restrict to, global const float *restrict x, global const float *restrict residual, global const float *restrict scale,
                       global const float *restrict shift, int in_h, int in_w, int pitch, int c0, int channels, int flags, strip_place p) {
  const bool whole_vectors = pitch % 16 == 0;
  const bool plain = (flags & (FLAG_SCALE | FLAG_RELU | FLAG_RESIDUAL)) == 0;
  const bool dense = plain && channels == pitch && p.step_w <= p.taps_w;
  for (int t = 0; t < p.strip_h; t++) {
    const int h = p.first_h + (p.step_h <= p.taps_h ? p.i0 * p.step_h + t : (p.i0 + t / p.taps_h) * p.step_h + t % p.taps_h);
    if (h < 0 || h >= in_h) {
      fill_zero(to, p.strip_w * channels);
      to += p.strip_w * channels;
      continue;
    }
    if (dense) {
      const int w0 = p.first_w + p.j0 * p.step_w;
      const int left = clamp(-w0, 0, p.strip_w), right = clamp(in_w - w0, left, p.strip_w);
      global const float *restrict from = x + (h * in_w + w0 + left) * pitch;
      const int n = (right - left) * channels;
      fill_zero(to, left * channels);
      to += left * channels;
      int i = 0;
      for (; i + 16 <= n; i += 16) vstore16(vload16(0, from + i), 0, to + i);
      for (; i < n; i++) to[i] = from[i];
      to += n;
      fill_zero(to, (p.strip_w - right) * channels);
      to += (p.strip_w - right) * channels;
      continue;
    }
    for (int u = 0; u < p.strip_w; u++, to += channels) {
      const int w = p.first_w + (p.step_w <= p.taps_w ? p.j0 * p.step_w + u : (p.j0 + u / p.taps_w) * p.step_w + u % p.taps_w);
      if (w < 0 || w >= in_w) {
        fill_zero(to, channels);
        continue;
      }
      const int at = (h * in_w + w) * pitch + c0;
      if (whole_vectors) {
        for (int c = 0; c < channels; c += 16) {
          float16 v = vload16(0, x + at + c);
          if (flags & FLAG_SCALE) v = v * vload16(0, scale + c0 + c) + vload16(0, shift + c0 + c);
          if (flags & FLAG_RESIDUAL) v += vload16(0, residual + at + c);
          if (flags & FLAG_RELU) v = select(v, (float16)(0.0f), v < 0.0f);
          vstore16(v, 0, to + c);
        }
      } else {
        for (int c = 0; c < channels; c++) {
          float v = x[at + c];
          if (flags & FLAG_SCALE) v = v * scale[c0 + c] + shift[c0 + c];
          if (flags & FLAG_RESIDUAL) v += residual[at + c];
          if (flags & FLAG_RELU) v = v < 0.0f ? 0.0f : v;
          to[c] = v;
        }
      }
    }
  }
}

/* Offsets of a strip's positions in its copy and in the output (from its first image), images outermost; one tile more than there are
 * positions, repeating the last. */
static void fill_tables(global int *restrict in_at, global int *restrict out_at, int images, int channels, strip_place p, int out_h, int out_w,
                        int out_pitch, int row0, int row_step, int col0, int col_step) {
  int n = 0;
  for (int m = 0; m < images; m++)
    for (int i = 0; i < p.rows; i++)
      for (int j = 0; j < p.cols; j++, n++) {
        in_at[n] = ((m * p.strip_h + i * p.use_h) * p.strip_w + j * p.use_w) * channels;
        out_at[n] = ((m * out_h + row0 + (p.i0 + i) * row_step) * out_w + col0 + (p.j0 + j) * col_step) * out_pitch;
      }
  for (int i = 0; i < 14; i++) in_at[n + i] = in_at[n - 1], out_at[n + i] = out_at[n - 1];
}

/* ---- register tiles of the gather convolution ---- */

#define ACC_32(i) float16 s##i = bias0, t##i = bias1;
#define ACC_16(i) float16 s##i = bias0;
#define POINTER(i) global const float *restrict p##i = row + in_at[i];
#define FMA_32(i) { const float16 v = (float16)(p##i[e]); s##i = v * u0 + s##i; t##i = v * u1 + t##i; }
#define FMA_16(i) { const float16 v = (float16)(p##i[e]); s##i = v * u0 + s##i; }
#define STORE_32(i)                                                    \
  if (i < valid) {                                                     \
    global float *restrict o = out + out_at[i];                        \
    if (accumulate) s##i += vload16(0, o), t##i += vload16(1, o);      \
    vstore16(s##i, 0, o), vstore16(t##i, 1, o);                        \
  }
#define STORE_16(i)                                     \
  if (i < valid) {                                      \
    global float *restrict o = out + out_at[i];         \
    if (accumulate) s##i += vload16(0, o);              \
    vstore16(s##i, 0, o);                               \
  }

#define TILE_ARGS                                                                                                                       \
  global const float *restrict strip, global const int *restrict in_at, global const float *restrict u, int taps_h, int run, int row_floats, \
      global const float *restrict bias, global float *restrict out, global const int *restrict out_at, int valid, bool accumulate

#define DEFINE_TILE_32(name, ROWS)                                          \
  static void name(TILE_ARGS) {                                             \
    const float16 bias0 = bias ? vload16(0, bias) : (float16)(0.0f);        \
    const float16 bias1 = bias ? vload16(1, bias) : (float16)(0.0f);        \
    ROWS(ACC_32)                                                            \
    for (int a = 0; a < taps_h; a++) {                                      \
      global const float *restrict row = strip + a * row_floats;            \
      ROWS(POINTER)                                                         \
      for (int e = 0; e < run; e++, u += 32) {                              \
        const float16 u0 = vload16(0, u), u1 = vload16(1, u);               \
        ROWS(FMA_32)                                                        \
      }                                                                     \
    }                                                                       \
    ROWS(STORE_32)                                                          \
  }
#define DEFINE_TILE_16(name, ROWS)                                          \
  static void name(TILE_ARGS) {                                             \
    const float16 bias0 = bias ? vload16(0, bias) : (float16)(0.0f);        \
    ROWS(ACC_16)                                                            \
    for (int a = 0; a < taps_h; a++) {                                      \
      global const float *restrict row = strip + a * row_floats;            \
      ROWS(POINTER)                                                         \
      for (int e = 0; e < run; e++, u += 16) {                              \
        const float16 u0 = vload16(0, u);                                   \
        ROWS(FMA_16)                                                        \
      }                                                                     \
    }                                                                       \
    ROWS(STORE_16)                                                          \
  }
DEFINE_TILE_32(tile_14x32, ROWS_14)
DEFINE_TILE_32(tile_7x32, ROWS_7)
DEFINE_TILE_16(tile_14x16, ROWS_14)
DEFINE_TILE_16(tile_7x16, ROWS_7)

/* ---- statistics of the output ---- */

/* Mean and sum of squared deviations of 16 channels over `n` positions: two passes over memory that is still in the cache, sums of 32
 * positions first, then of those, so that long sums of like terms lose nothing. */
static void column_stats(global const float *restrict y, global const int *restrict at, int n, global float *restrict mean_at,
                         global float *restrict m2_at) {
  float16 sum = (float16)(0.0f), m2 = (float16)(0.0f);
  for (int begin = 0; begin < n; begin += 32) {
    float16 part = (float16)(0.0f);
    for (int i = begin; i < min(begin + 32, n); i++) part += vload16(0, y + at[i]);
    sum += part;
  }
  const float16 mean = sum / (float)n;
  for (int begin = 0; begin < n; begin += 32) {
    float16 part = (float16)(0.0f);
    for (int i = begin; i < min(begin + 32, n); i++) {
      const float16 d = vload16(0, y + at[i]) - mean;
      part += d * d;
    }
    m2 += part;
  }
  vstore16(mean, 0, mean_at);
  vstore16(m2, 0, m2_at);
}

/* ---- kernels ---- */

/* Gather convolution. u: packed at u_at of the workspace; slices of slice_floats from slices_at; statistics of strips go to stats
 * (one strip per image) or to the workspace at stats_at, (N*strips_per_image, 2, out_pitch). Strips: `images` images, or strip_rows x strip_cols of one. */
kernel CVY_CPU_KERNEL GROUP_OF_ONE void conv2d_cpu_forward(
    global const float *restrict x, global const float *restrict scale, global const float *restrict shift, global const float *restrict residual,
    global const float *restrict bias, global float *restrict y, global float *restrict stats, global float *restrict workspace, int n, int in_h, int in_w,
    int in_c, int in_pitch, int step_h, int step_w, int taps_h, int taps_w, int first_h, int first_w, int grid_h, int grid_w, int out_h, int out_w,
    int out_pitch, int row0, int row_step, int col0, int col_step, int images, int strip_rows, int strip_cols, int table_size, int u_at, int stats_at,
    int slices_at, int slice_floats, int group_size, int flags) {
  global float *restrict slice = workspace + slices_at + (size_t)get_group_id(0) * (size_t)slice_floats;
  global int *restrict in_at = (global int *)slice, *restrict out_at = in_at + table_size;
  global float *restrict strip = slice + 2 * table_size;
  const int blocks = (out_pitch + 31) / 32;
  const int strips_h = (grid_h + strip_rows - 1) / strip_rows, strips_w = (grid_w + strip_cols - 1) / strip_cols;
  const int per_image = strips_h * strips_w;
  const int n_strips = (n + images - 1) / images * per_image;
  const int run = taps_w * in_c;
  const long n_tasks = (long)n_strips * blocks;
  const int task_begin = (int)(n_tasks * (long)get_group_id(0) / (long)get_num_groups(0));
  const int task_end = (int)(n_tasks * (long)(get_group_id(0) + 1) / (long)get_num_groups(0));

  int loaded = -1, tabled_images = 0, tabled_at = -1;
  for (int task = task_begin; task < task_end; task++) {
    const int at = task / blocks, block = task % blocks;
    const int image0 = at / per_image * images, part = at % per_image;
    const int count = min(images, n - image0);
    const int i0 = part / strips_w * strip_rows, j0 = part % strips_w * strip_cols;
    const strip_place p = place_strip(step_h, step_w, taps_h, taps_w, first_h, first_w, i0, j0, min(strip_rows, grid_h - i0), min(strip_cols, grid_w - j0));
    const int positions = p.rows * p.cols;
    if (at != loaded) {
      loaded = at;
      if (part != tabled_at || count > tabled_images) {
        fill_tables(in_at, out_at, count, in_c, p, out_h, out_w, out_pitch, row0, row_step, col0, col_step);
        tabled_at = part, tabled_images = count;
      }
      for (int m = 0; m < count && taps_h > 0 && taps_w > 0; m++) {
        const int g = (image0 + m) / group_size * in_pitch, image_at = (image0 + m) * in_h * in_w * in_pitch;
        load_strip(strip + m * p.strip_h * p.strip_w * in_c, x + image_at, residual + image_at, scale + g, shift + g, in_h, in_w, in_pitch, 0, in_c,
                   flags, p);
      }
    }
    const int row_floats = p.strip_w * in_c, total = count * positions;
    global const float *restrict u = workspace + u_at + (size_t)block * 32 * (size_t)(taps_h * run);
    global const float *restrict b = flags & FLAG_BIAS ? bias + block * 32 : 0;
    global float *restrict out = y + image0 * out_h * out_w * out_pitch + block * 32;
    const bool accumulate = (flags & FLAG_ACCUMULATE) != 0, wide = out_pitch - block * 32 >= 32;
    for (int t = 0; t < total; t += 14) {
      const int valid = total - t;
      if (wide) {
        if (valid > 7) tile_14x32(strip, in_at + t, u, taps_h, run, row_floats, b, out, out_at + t, valid, accumulate);
        else tile_7x32(strip, in_at + t, u, taps_h, run, row_floats, b, out, out_at + t, valid, accumulate);
      } else {
        if (valid > 7) tile_14x16(strip, in_at + t, u, taps_h, run, row_floats, b, out, out_at + t, valid, accumulate);
        else tile_7x16(strip, in_at + t, u, taps_h, run, row_floats, b, out, out_at + t, valid, accumulate);
      }
    }
    if (flags & FLAG_STATS) {
      global float *restrict target = per_image == 1 ? stats : workspace + stats_at;
      for (int m = 0; m < count; m++) {
        global float *restrict to = target + (size_t)((image0 + m) * per_image + part) * 2 * (size_t)out_pitch + block * 32;
        for (int v = 0; v < (wide ? 32 : 16); v += 16)
          column_stats(out + v, out_at + m * positions, positions, to + v, to + out_pitch + v);
      }
    }
  }
}

/* Mean and M2 of the strips of an image → of the image, strips in order (Chan et al. 1979). Group = image. */
kernel CVY_CPU_KERNEL GROUP_OF_ONE void conv2d_cpu_merge_stats(global const float *restrict workspace, global float *restrict stats, int stats_at, int grid_h,
                                                               int grid_w, int out_pitch, int strip_rows, int strip_cols) {
  const int image = get_group_id(0);
  const int strips_h = (grid_h + strip_rows - 1) / strip_rows, strips_w = (grid_w + strip_cols - 1) / strip_cols;
  global const float *restrict from = workspace + stats_at + (size_t)image * (size_t)(strips_h * strips_w * 2 * out_pitch);
  global float *restrict to = stats + (size_t)image * 2 * (size_t)out_pitch;
  for (int v = 0; v < out_pitch; v += 16) {
    float16 mean = (float16)(0.0f), m2 = (float16)(0.0f);
    float count = 0.0f;
    for (int part = 0; part < strips_h * strips_w; part++) {
      const int rows = min(strip_rows, grid_h - part / strips_w * strip_rows), cols = min(strip_cols, grid_w - part % strips_w * strip_cols);
      const float here = (float)(rows * cols), sum = count + here;
      const float16 d = vload16(0, from + part * 2 * out_pitch + v) - mean;
      mean += d * (here / sum);
      m2 += vload16(0, from + (part * 2 + 1) * out_pitch + v) + d * d * (count * here / sum);
      count = sum;
    }
    vstore16(mean, 0, to + v);
    vstore16(m2, 0, to + out_pitch + v);
  }
}

/* (rows, pitch) → blocks of 32 columns (rows, 32), the last of 16 if pitch is an odd multiple of 16. Group: every num_groups-th stretch of rows. */
kernel CVY_CPU_KERNEL GROUP_OF_ONE void conv2d_cpu_pack(global const float *restrict w, global float *restrict workspace, int rows, int pitch, int u_at) {
  const int begin = (int)((long)rows * (long)get_group_id(0) / (long)get_num_groups(0));
  const int end = (int)((long)rows * (long)(get_group_id(0) + 1) / (long)get_num_groups(0));
  for (int block = 0; block * 32 < pitch; block++) {
    const int width = min(32, pitch - block * 32);
    global const float *restrict from = w + (size_t)begin * (size_t)pitch + block * 32;
    global float *restrict to = workspace + u_at + (size_t)block * 32 * (size_t)rows + (size_t)begin * (size_t)width;
    for (int i = begin; i < end; i++, from += pitch, to += width)
      for (int v = 0; v < width; v += 16) vstore16(vload16(0, from + v), 0, to + v);
  }
}

/* Turned filter of one phase: u[c block][a,b,k][32] = w[tap_r + a*tap_r_step, tap_s + b*tap_s_step, c, k], zero for c >= C. Group = (c block, a, b). */
kernel CVY_CPU_KERNEL GROUP_OF_ONE void conv2d_cpu_pack_turned(global const float *restrict w, global float *restrict workspace, int s, int c, int k,
                                                               int w_pitch, int out_pitch, int taps_h, int taps_w, int tap_r, int tap_r_step,
                                                               int tap_s, int tap_s_step, int u_at) {
  const int taps = taps_h * taps_w, block = get_group_id(0) / taps, tap = get_group_id(0) % taps;
  const int r = tap_r + tap / taps_w * tap_r_step, q = tap_s + tap % taps_w * tap_s_step;
  const int width = min(32, out_pitch - block * 32), valid = clamp(c - block * 32, 0, width);
  global const float *restrict from = w + ((size_t)(r * s + q) * (size_t)c + block * 32) * (size_t)w_pitch;
  global float *restrict to = workspace + u_at + (size_t)block * 32 * (size_t)(taps * k) + (size_t)tap * (size_t)(k * width);
  for (int i = 0; i < k; i++, to += width) {
    for (int j = 0; j < valid; j++) to[j] = from[(size_t)j * (size_t)w_pitch + i];
    for (int j = valid; j < width; j++) to[j] = 0.0f;
  }
}

/* ---- backward-weights ---- */

#define WACC_32(i) float16 s##i = (float16)(0.0f), t##i = (float16)(0.0f);
#define WACC_16(i) float16 s##i = (float16)(0.0f);
#define WFMA_32(i) { const float16 v = (float16)(px[i]); s##i = v * d0 + s##i; t##i = v * d1 + t##i; }
#define WFMA_16(i) { const float16 v = (float16)(px[i]); s##i = v * d0 + s##i; }
#define WADD_32(i)                                             \
  vstore16(vload16(2 * i, dw) + s##i, 2 * i, dw);              \
  vstore16(vload16(2 * i + 1, dw) + t##i, 2 * i + 1, dw);
#define WADD_16(i) vstore16(vload16(i, dw) + s##i, i, dw);
#define WTILE_ARGS \
  global const float *restrict x, global const int *restrict in_at, global const float *restrict panel, int positions, global float *restrict dw

#define DEFINE_WTILE_32(name, ROWS)                                         \
  static void name(WTILE_ARGS) {                                            \
    ROWS(WACC_32)                                                           \
    for (int i = 0; i < positions; i++, panel += 32) {                      \
      global const float *restrict px = x + in_at[i];                       \
      const float16 d0 = vload16(0, panel), d1 = vload16(1, panel);         \
      ROWS(WFMA_32)                                                         \
    }                                                                       \
    ROWS(WADD_32)                                                           \
  }
#define DEFINE_WTILE_16(name, ROWS)                                         \
  static void name(WTILE_ARGS) {                                            \
    ROWS(WACC_16)                                                           \
    for (int i = 0; i < positions; i++, panel += 16) {                      \
      global const float *restrict px = x + in_at[i];                       \
      const float16 d0 = vload16(0, panel);                                 \
      ROWS(WFMA_16)                                                         \
    }                                                                       \
    ROWS(WADD_16)                                                           \
  }
DEFINE_WTILE_32(wtile_12x32, ROWS_12)
DEFINE_WTILE_32(wtile_4x32, ROWS_4)
DEFINE_WTILE_16(wtile_12x16, ROWS_12)
DEFINE_WTILE_16(wtile_4x16, ROWS_4)

/* Gradient of 32 (16) channels at the strip's positions → (positions, 32); their sums are added to `sums` (NULL: not wanted). */
static void pack_panel(global float *restrict panel, global const float *restrict dy, global const int *restrict out_at, int n, int width,
                       global float *restrict sums) {
  float16 s0 = (float16)(0.0f), s1 = (float16)(0.0f);
  for (int i = 0; i < n; i++, panel += width) {
    global const float *restrict from = dy + out_at[i];
    const float16 v = vload16(0, from);
    vstore16(v, 0, panel), s0 += v;
    if (width == 32) {
      const float16 w = vload16(1, from);
      vstore16(w, 1, panel), s1 += w;
    }
  }
  if (!sums) return;
  vstore16(vload16(0, sums) + s0, 0, sums);
  if (width == 32) vstore16(vload16(1, sums) + s1, 1, sums);
}

/* dw of part `split` of the strips goes to dw + split*part_floats (and db likewise), added if FLAG_ACCUMULATE. FLAG_BIAS: db is wanted.
 * Slice: two tables, the strip (strip_floats), the panel, dw of the task's blocks (a, products rounded up to 4, 32), sums of dy. */
kernel CVY_CPU_KERNEL GROUP_OF_ONE void conv2d_cpu_backward_weights(
    global const float *restrict x, global const float *restrict scale, global const float *restrict shift, global const float *restrict residual,
    global const float *restrict dy, global float *restrict dw, global float *restrict db, global float *restrict workspace, int n, int in_h, int in_w,
    int in_c, int in_pitch, int step_h, int step_w, int taps_h, int taps_w, int first_h, int first_w, int grid_h, int grid_w, int out_pitch, int images,
    int strip_rows, int strip_cols, int table_size, int strip_floats, int block_c, int group_k, int splits, int part_floats, int db_at, int slices_at,
    int slice_floats, int group_size, int flags) {
  global float *restrict slice = workspace + slices_at + (size_t)get_group_id(0) * (size_t)slice_floats;
  global int *restrict in_at = (global int *)slice, *restrict out_at = in_at + table_size;
  global float *restrict strip = slice + 2 * table_size;
  global float *restrict panel = strip + strip_floats;
  global float *restrict sums = panel + table_size * 32;
  global float *restrict own = sums + group_k * 32;
  const int blocks = (out_pitch + 31) / 32, groups_k = (blocks + group_k - 1) / group_k, groups_c = (in_c + block_c - 1) / block_c;
  const int strips_h = (grid_h + strip_rows - 1) / strip_rows, strips_w = (grid_w + strip_cols - 1) / strip_cols;
  const int per_image = strips_h * strips_w;
  const int n_strips = (n + images - 1) / images * per_image;
  const int n_tasks = groups_c * groups_k * splits;
  const int task_begin = (int)((long)n_tasks * (long)get_group_id(0) / (long)get_num_groups(0));
  const int task_end = (int)((long)n_tasks * (long)(get_group_id(0) + 1) / (long)get_num_groups(0));

  for (int task = task_begin; task < task_end; task++) {
    const int split = task % splits, group = task / splits;
    const int c0 = group / groups_k * block_c, channels = min(block_c, in_c - c0);
    const int block0 = group % groups_k * group_k, n_blocks = min(group_k, blocks - block0);
    const int run = taps_w * channels, padded = (run + 3) / 4 * 4;
    const bool want_sums = (flags & FLAG_BIAS) != 0 && c0 == 0;
    fill_zero(sums, n_blocks * 32);
    fill_zero(own, n_blocks * taps_h * padded * 32);
    const int strip_begin = (int)((long)n_strips * split / splits), strip_end = (int)((long)n_strips * (split + 1) / splits);
    int tabled_images = 0, tabled_at = -1;
    for (int at = strip_begin; at < strip_end; at++) {
      const int image0 = at / per_image * images, part = at % per_image;
      const int count = min(images, n - image0);
      const int i0 = part / strips_w * strip_rows, j0 = part % strips_w * strip_cols;
      const strip_place p = place_strip(step_h, step_w, taps_h, taps_w, first_h, first_w, i0, j0, min(strip_rows, grid_h - i0), min(strip_cols, grid_w - j0));
      if (part != tabled_at || count > tabled_images) {
        fill_tables(in_at, out_at, count, channels, p, grid_h, grid_w, out_pitch, 0, 1, 0, 1);
        tabled_at = part, tabled_images = count;
      }
      for (int m = 0; m < count; m++) {
        const int g = (image0 + m) / group_size * in_pitch, image_at = (image0 + m) * in_h * in_w * in_pitch;
        load_strip(strip + m * p.strip_h * p.strip_w * channels, x + image_at, residual + image_at, scale + g, shift + g, in_h, in_w, in_pitch, c0,
                   channels, flags, p);
      }
      const int positions = count * p.rows * p.cols, row_floats = p.strip_w * channels;
      for (int b = 0; b < n_blocks; b++) {
        const int k0 = (block0 + b) * 32;
        const bool wide = out_pitch - k0 >= 32;
        pack_panel(panel, dy + image0 * grid_h * grid_w * out_pitch + k0, out_at, positions, wide ? 32 : 16, want_sums ? sums + b * 32 : 0);
        for (int a = 0; a < taps_h; a++) {
          global float *restrict to = own + (b * taps_h + a) * padded * 32;
          global const float *restrict from = strip + a * row_floats;
          int e = 0;
          if (wide) {
            for (; e + 12 <= padded; e += 12) wtile_12x32(from + e, in_at, panel, positions, to + e * 32);
            for (; e < padded; e += 4) wtile_4x32(from + e, in_at, panel, positions, to + e * 32);
          } else {
            for (; e + 12 <= padded; e += 12) wtile_12x16(from + e, in_at, panel, positions, to + e * 16);
            for (; e < padded; e += 4) wtile_4x16(from + e, in_at, panel, positions, to + e * 16);
          }
        }
      }
    }
    for (int b = 0; b < n_blocks; b++) {
      const int k0 = (block0 + b) * 32, width = min(32, out_pitch - k0);
      for (int tap = 0; tap < taps_h * taps_w; tap++) {
        global const float *restrict from = own + ((b * taps_h + tap / taps_w) * padded) * 32 + tap % taps_w * channels * width;
        global float *restrict to = dw + (size_t)split * (size_t)part_floats + (size_t)(tap * in_c + c0) * (size_t)out_pitch + k0;
        for (int c = 0; c < channels; c++, from += width, to += out_pitch)
          for (int v = 0; v < width; v += 16)
            vstore16(flags & FLAG_ACCUMULATE ? vload16(0, to + v) + vload16(0, from + v) : vload16(0, from + v), 0, to + v);
      }
      if (want_sums)
        for (int v = 0; v < width; v += 16) {
          global float *restrict to = db + (size_t)split * (size_t)part_floats + db_at + k0 + v;
          const float16 sum = vload16(0, sums + b * 32 + v);
          vstore16(flags & FLAG_ACCUMULATE ? vload16(0, to) + sum : sum, 0, to);
        }
    }
  }
}

/* out[i] (+)= sum over parts, in order, of workspace[part*part_floats + from + i], i < n, a multiple of 16. */
kernel CVY_CPU_KERNEL GROUP_OF_ONE void conv2d_cpu_reduce(global const float *restrict workspace, global float *restrict out, int n, int parts, int part_floats,
                                                          int from, int accumulate) {
  const int vectors = n / 16;
  const int begin = (int)((long)vectors * (long)get_group_id(0) / (long)get_num_groups(0));
  const int end = (int)((long)vectors * (long)(get_group_id(0) + 1) / (long)get_num_groups(0));
  for (int i = begin; i < end; i++) {
    float16 sum = (float16)(0.0f);
    for (int part = 0; part < parts; part++) sum += vload16(i, workspace + (size_t)part * (size_t)part_floats + from);
    vstore16(accumulate ? vload16(i, out) + sum : sum, i, out);
  }
}
