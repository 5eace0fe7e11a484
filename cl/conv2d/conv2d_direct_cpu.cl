/* SPDX-License-Identifier: MIT
 * Direct convolution on CPU-shaped devices: the formulas of src/ops/conv2d/conv2d.h with float16 vectors and register tiles.
 *
 * Forward and backward-data are one gather convolution (src/ops/conv2d/conv2d_direct.h, cvy_conv_gather):
 *   out[m, row0 + i*row_step, col0 + j*col_step, o] =
 *     bias[o] + sum_{a,b,c} f(in)[m, i*step_h + first_h + a, j*step_w + first_w + b, c] * u[a,b,c,o]
 * with u = w (forward), or the turned filter of one phase of dx (backward-data has stride_h*stride_w phases).
 *
 * Geometry: one work-item per work-group, as many groups as keep all cores busy; each has a slice of the workspace and
 * walks over a contiguous range of tasks. A strip is some images, or some rows (columns) of one; its zero-padded input,
 * with the load prologue applied, is copied to the slice with dense channels, so that for a filter row `a` the (b,c)
 * products of a position run over contiguous memory. A task is a strip and a block of 32 output channels.
 * Register tile (conv2d_tile_cpu.clh): 14 positions x 32 channels, 28 accumulators; positions are arbitrary (a table of offsets), so that
 * strides, narrow images and tiles that cross rows or images cost nothing.
 * Backward-weights: a task is a block of input channels, a group of blocks of 32 output channels and a part of the
 * strips. Per strip, the gradient is packed to (positions, 32). Tiles of 12 products (b,c) x 32 channels are summed
 * over the strip's positions in registers and added to the task's dw in the slice. If a filter has three rows of
 * three products, a tile has all nine, and the gradient is read in place. Parts are summed in order by
 * conv2d_cpu_reduce.
 * Weights are packed before each call to (blocks of 32 output channels, a, b, c, 32); the last block has 16 if the
 * pitch is an odd multiple of 16.
 *
 * NARROW 1: kernels support outputs whose pitch is an odd multiple of 16, so that the last block has 16 channels;
 * 2: outputs whose pitch is 16.
 * Reads past the end of a strip's pixels (at most 15 floats) land in the slack behind it and affect only results that
 * are not stored. */
#include "conv2d/conv2d_tile_cpu.clh"
#include "conv2d/conv2d_strip_cpu.clh"

#if CVY_WIDE_REGISTERS && NARROW < 2
#define NEIGHBOURS
#define ROWS 14
#define WIDTH 32
#include "conv2d/conv2d_tile_tmpl.clh"
#endif
#if CVY_WIDE_REGISTERS && NARROW
#define NEIGHBOURS
#define ROWS 14
#define WIDTH 16
#include "conv2d/conv2d_tile_tmpl.clh"
#endif
#if !CVY_WIDE_REGISTERS
#define NEIGHBOURS
#define ROWS 6
#define WIDTH 16
#include "conv2d/conv2d_tile_tmpl.clh"
#define NEIGHBOURS
#define ROWS 4
#define WIDTH 16
#include "conv2d/conv2d_tile_tmpl.clh"
#endif

/* A tile of 14 positions that are a line. */
static void multiply_line(int width, global const float *strip, global const int *in_at, global const float *u, int a_begin,
                          int a_end, int run, int row_floats, int u_row, global const float *bias, global float *out,
                          global const int *out_at, bool accumulate, global float *past, global const int *past_at) {
#if CVY_WIDE_REGISTERS
#if NARROW < 2
  if (width == 32)
    line_14x32(strip, in_at, u, a_begin, a_end, run, row_floats, u_row, 32, bias, out, out_at, 14, accumulate, past, past_at);
#endif
#if NARROW
  if (width == 16)
    line_14x16(strip, in_at, u, a_begin, a_end, run, row_floats, u_row, 16, bias, out, out_at, 14, accumulate, past, past_at);
#endif
#else
  for (int k = 0; k < width; k += 16)
    for (int i = 0, some; i < 14; i += some) {
      global const float *plus = bias ? bias + k : 0;
      global float *beyond = past ? past + k : 0;
      some = part_rows(14 - i);
      if (some == 6)
        line_6x16(strip, in_at + i, u + k, a_begin, a_end, run, row_floats, u_row, width, plus, out + k, out_at + i, 14 - i,
                  accumulate, beyond, past_at + i);
      else
        line_4x16(strip, in_at + i, u + k, a_begin, a_end, run, row_floats, u_row, width, plus, out + k, out_at + i, 14 - i,
                  accumulate, beyond, past_at + i);
    }
#endif
}

/* ---- strips ---- */

static void fill_zero(global float *to, int n) {
  for (int i = 0; i < n; i += 16) vstore16((float16)(0.0f), 0, to + i);
}

/* Copies one image of a strip: channels c0..c0+channels-1 of its pixels, dense. The copy is written in ascending
 * order and in whole vectors: where a vector is too long, the next pixel overwrites its end. x, residual: the image;
 * affine: its group. */
static void load_image(global float *to, global const float *x, global const float *residual, global const float *affine,
                       cvy_conv_strip_call call, int c0, int channels, line_shape lh, line_part ph, line_shape lw,
                       line_part pw) {
  const int in_h = call.in.h, in_w = call.in.w, pitch = call.in.pitch, flags = call.flags;
  const bool whole_vectors = pitch % 16 == 0;
  const bool plain = (flags & (FLAG_SCALE | FLAG_RELU | FLAG_RESIDUAL)) == 0;
  const bool aligned = whole_vectors && channels % 16 == 0; /* here c0 is a multiple of 16 */
  const bool dense = plain && channels == pitch && lw.step <= lw.taps;
  for (int t = 0; t < ph.length; t++) {
    const int h = input_of(lh, ph, t);
    if (h < 0 || h >= in_h) {
      fill_zero(to, pw.length * channels);
      to += pw.length * channels;
      continue;
    }
    if (dense) {
      const int w0 = input_of(lw, pw, 0);
      const int left = clamp(-w0, 0, pw.length), right = clamp(in_w - w0, left, pw.length);
      global const float *from = x + (h * in_w + w0 + left) * pitch;
      const int n = (right - left) * channels;
      fill_zero(to, left * channels);
      to += left * channels;
      int i = 0;
      if (whole_vectors)
        for (; i < n; i += 16) CVY_STORE16(CVY_LOAD16(from + i), to + i);
      for (; i + 16 <= n; i += 16) vstore16(vload16(0, from + i), 0, to + i);
      for (; i < n; i++) to[i] = from[i];
      to += n;
      fill_zero(to, (pw.length - right) * channels);
      to += (pw.length - right) * channels;
      continue;
    }
    for (int u = 0; u < pw.length; u++, to += channels) {
      const int w = input_of(lw, pw, u);
      if (w < 0 || w >= in_w) {
        fill_zero(to, channels);
        continue;
      }
      const int at = (h * in_w + w) * pitch + c0;
      if (plain && aligned) {
        for (int c = 0; c < channels; c += 16) CVY_STORE16(CVY_LOAD16(x + at + c), to + c);
      } else if (whole_vectors) {
        for (int c = 0; c < channels; c += 16) {
          float16 v = vload16(0, x + at + c);
          if (flags & FLAG_SCALE) v = normalised(v, affine + c0 + c, pitch);
          if (flags & FLAG_RESIDUAL) v += vload16(0, residual + at + c);
          if (flags & FLAG_RELU) v = select(v, (float16)(0.0f), v < 0.0f);
          vstore16(v, 0, to + c);
        }
      } else {
        for (int c = 0; c < channels; c++) {
          float v = x[at + c];
          if (flags & FLAG_SCALE)
            v = fma(v - affine[c0 + c], affine[pitch + c0 + c], affine[2 * pitch + c0 + c]);
          if (flags & FLAG_RESIDUAL) v += residual[at + c];
          if (flags & FLAG_RELU) v = v < 0.0f ? 0.0f : v;
          to[c] = v;
        }
      }
    }
  }
}

/* Copies the images of a strip, one after the other. */
static void load_strip(global float *strip, global const float *x, global const float *residual,
                       global const float *affine, cvy_conv_strip_call call, int image0, int images, int c0,
                       int channels, line_shape lh, line_part ph, line_shape lw, line_part pw) {
  for (int m = image0; m < image0 + images; m++, strip += ph.length * pw.length * channels) {
    const int at = m * floats_of(call.in), group = m / call.group_size * 3 * call.in.pitch;
    load_image(strip, x + at, residual + at, affine + group, call, c0, channels, lh, ph, lw, pw);
  }
}

/* Offsets of a strip's positions in its copy and in the output (from its first image). Rows are outermost, then
 * images, so that the positions of a tile span few rows, and filter rows that lie in the padding are left out. The
 * table has one more tile of entries, which repeat the last position. */
static void fill_tables(global int *in_at, global int *out_at, int images, int channels, line_shape lh, line_part ph,
                        line_shape lw, line_part pw, cvy_shape out) {
  int n = 0;
  for (int i = 0; i < ph.count; i++)
    for (int m = 0; m < images; m++)
      for (int j = 0; j < pw.count; j++, n++) {
        in_at[n] = ((m * ph.length + i * ph.use) * pw.length + j * pw.use) * channels;
        out_at[n] = ((m * out.h + lh.out0 + (ph.begin + i) * lh.out_step) * out.w + lw.out0 +
                     (pw.begin + j) * lw.out_step) *
                    out.pitch;
      }
  for (int i = 0; i < 14; i++) in_at[n + i] = in_at[n - 1], out_at[n + i] = out_at[n - 1];
}

/* ---- kernels ---- */

/* Gather convolution; turned: backward-data, with phases_h x phases_w phases. u: packed filter, first in the
 * workspace; slices of slice_floats from slices_at; statistics of strips go to stats (one strip per image) or to the
 * workspace at stats_at, (N*strips_per_image, 3, out_pitch): store_stats. FLAG_STREAM (without FLAG_ACCUMULATE): a task's results
 * are collected in the slice, at results_at behind a table. Strips: `images` images, or strip_rows x strip_cols of
 * one. Tasks: strips, phases, blocks of output channels (fastest). */
kernel CVY_CPU_KERNEL GROUP_OF_ONE void
conv2d_cpu_forward(global const float *restrict x, global const float *restrict affine, global const float *restrict residual,
                   global const float *restrict bias, global float *restrict y, global float *restrict stats,
                   global float *restrict workspace, const cvy_conv_strip_call call) {
  global float *slice = workspace + call.slices_at + (size_t)CVY_GROUP * (size_t)call.slice_floats;
  global int *in_at = (global int *)slice, *out_at = in_at + call.table_size;
  global float *strip = slice + 2 * call.table_size;
  const bool stream = (call.flags & FLAG_STREAM) != 0;
  global int *dense_at = (global int *)(slice + call.results_at);
  global float *results = slice + call.results_at + call.table_size;
  if (stream)
    for (int i = 0; i < call.table_size; i++) dense_at[i] = i * 32;
  const int blocks = (call.out.pitch + 31) / 32, phases = call.phases_h * call.phases_w;
  const int strips_h = parts_in(lines_h(call, 0), call.strip.rows), strips_w = parts_in(lines_w(call, 0), call.strip.cols);
  const int per_image = strips_h * strips_w;
  const long n_tasks = (long)((call.n + call.strip.images - 1) / call.strip.images) * per_image * phases * blocks;
  const long task_begin = n_tasks * (long)CVY_GROUP / (long)CVY_GROUPS;
  const long task_end = n_tasks * (long)(CVY_GROUP + 1) / (long)CVY_GROUPS;

  int loaded = -1, tabled_images = 0, tabled_part = -1, tabled_phase = -1;
  for (long task = task_begin; task < task_end; task++) {
    const int block = (int)(task % blocks), strip_phase = (int)(task / blocks);
    const int phase = strip_phase % phases, at = strip_phase / phases;
    const int image0 = at / per_image * call.strip.images, part = at % per_image;
    const int count = min(call.strip.images, call.n - image0);
    line_shape lh = lines_h(call, phase / call.phases_w), lw = lines_w(call, phase % call.phases_w);
    const bool accumulate = (call.flags & FLAG_ACCUMULATE) != 0, nothing = lh.taps == 0 || lw.taps == 0;
    if (nothing && accumulate) continue;
    if (nothing) lh.taps = lw.taps = 0;
    const line_part ph = part_of(lh, part / strips_w * call.strip.rows, call.strip.rows),
                    pw = part_of(lw, part % strips_w * call.strip.cols, call.strip.cols);
    if (ph.count <= 0 || pw.count <= 0) continue;
    if (strip_phase != loaded) {
      loaded = strip_phase;
      if (part != tabled_part || phase != tabled_phase || count != tabled_images) {
        fill_tables(in_at, out_at, count, call.in.c, lh, ph, lw, pw, call.out);
        tabled_part = part, tabled_phase = phase, tabled_images = count;
      }
      if (!nothing)
        load_strip(strip, x, residual, affine, call, image0, count, 0, call.in.c, lh, ph, lw, pw);
    }
    const int width = min(32, call.out.pitch - block * 32), u_row = call.filter.s * call.in.c * width, run = lw.taps * call.in.c;
    const int row_floats = pw.length * call.in.c, per_row = count * pw.count, total = per_row * ph.count;
    global const float *u = workspace + (size_t)block * 32 * (size_t)(call.filter.r * call.filter.s * call.in.c) +
                            lh.u0 * u_row + lw.u0 * call.in.c * width;
    global const float *b = call.flags & FLAG_BIAS ? bias + block * 32 : 0;
    global float *final = y + image0 * floats_of(call.out) + block * 32;
    global float *out = stream ? results : final;
    global const int *at_out = stream ? dense_at : out_at;
    /* with one channel and step 1, the positions of a tile within one row are neighbours */
    const bool neighbours = call.in.c == 1 && lw.step == 1 && lw.taps > 1 && pw.count % 14 == 0;
    for (int t = 0; t < total; t += 14) {
      const int valid = total - t;
      const int first_row = (ph.begin + t / per_row) * lh.step + lh.first,
                last_row = (ph.begin + (min(t + 14, total) - 1) / per_row) * lh.step + lh.first;
      const int a_begin = max(0, -last_row), a_end = min(lh.taps, call.in.h - first_row);
      if (neighbours)
        multiply_line(width, strip, in_at + t, u, a_begin, a_end, run, row_floats, u_row, b, out, at_out + t, accumulate,
                      stream ? final : 0, out_at + t);
      else
        multiply_tile(width, strip, in_at + t, u, a_begin, a_end, run, row_floats, u_row, b, out, at_out + t, valid, accumulate);
    }
    if (call.flags & FLAG_STATS) {
      global float *target = (per_image == 1 ? stats : workspace + call.stats_at) + block * 32;
      const int floats = (per_image == 1 ? 2 : 3) * call.out.pitch;
      for (int m = 0; m < count; m++)
        column_stats(out, at_out + m * pw.count, ph.count, pw.count, per_row, width, per_image > 1,
                     target + (size_t)((image0 + m) * per_image + part) * (size_t)floats, call.out.pitch);
    }
    if (stream && !neighbours) store_past_caches(final, out_at, results, total, width);
  }
}

/* Merges the statistics of an image's strips, in order, into its mean and M2 (Chan et al. 1979). Means are relative
 * to the first strip's mean: if they are large against the deviations, their rounding would show. Each work-group
 * takes every num_groups-th of n images. */
kernel CVY_CPU_KERNEL GROUP_OF_ONE void conv2d_cpu_merge_stats(global const float *restrict workspace,
                                                               global float *restrict stats,
                                                               const cvy_conv_strip_call call) {
  const int strips_h = parts_in(lines_h(call, 0), call.strip.rows), strips_w = parts_in(lines_w(call, 0), call.strip.cols);
  for (int image = (int)CVY_GROUP; image < call.n; image += (int)CVY_GROUPS) {
    global const float *from = workspace + call.stats_at +
                               (size_t)image * (size_t)(strips_h * strips_w * 3 * call.out.pitch);
    global float *to = stats + (size_t)image * 2 * (size_t)call.out.pitch;
    for (int v = 0; v < call.out.pitch; v += 16) {
      const float16 base = vload16(0, from + v);
      float16 mean = (float16)(0.0f), m2 = (float16)(0.0f);
      float count = 0.0f;
      for (int part = 0; part < strips_h * strips_w; part++) {
        const int rows = min(call.strip.rows, call.out.h - part / strips_w * call.strip.rows),
                  cols = min(call.strip.cols, call.out.w - part % strips_w * call.strip.cols);
        const float here = (float)(rows * cols), sum = count + here;
        global const float *strip = from + part * 3 * call.out.pitch + v;
        const float16 d = vload16(0, strip) - base + vload16(0, strip + 2 * call.out.pitch) - mean;
        mean += d * (here / sum);
        m2 += vload16(0, strip + call.out.pitch) + d * d * (count * here / sum);
        count = sum;
      }
      vstore16(base + mean, 0, to + v);
      vstore16(m2, 0, to + call.out.pitch + v);
    }
  }
}

/* Packs (rows, pitch) into blocks of 32 columns (rows, 32), the last of 16 if pitch is an odd multiple of 16. Each
 * work-group takes every num_groups-th range of rows. */
kernel CVY_CPU_KERNEL GROUP_OF_ONE void conv2d_cpu_pack(global const float *restrict w,
                                                        global float *restrict workspace, int rows, int pitch) {
  const int begin = (int)((long)rows * (long)CVY_GROUP / (long)CVY_GROUPS);
  const int end = (int)((long)rows * (long)(CVY_GROUP + 1) / (long)CVY_GROUPS);
  for (int block = 0; block * 32 < pitch; block++) {
    const int width = min(32, pitch - block * 32);
    global const float *from = w + (size_t)begin * (size_t)pitch + block * 32;
    global float *to = workspace + (size_t)block * 32 * (size_t)rows + (size_t)begin * (size_t)width;
    for (int i = begin; i < end; i++, from += pitch, to += width)
      for (int v = 0; v < width; v += 16) vstore16(vload16(0, from + v), 0, to + v);
  }
}

/* Filter row (column) at place `at` of the turned filter: rows are grouped by their number mod stride, in descending
 * order in each group. */
static int turned_tap(int filter, int stride, int at) {
  int least = 0, taps = (filter + stride - 1) / stride;
  while (at >= taps) {
    at -= taps, least++;
    taps = (filter - least + stride - 1) / stride;
  }
  return least + (taps - 1 - at) * stride;
}

/* u[c block][row][column][k][32] = w[turned_tap(row), turned_tap(column), c, k], zero for c >= C. Each work-group
 * takes every num_groups-th (c block, row, column). */
kernel CVY_CPU_KERNEL GROUP_OF_ONE void conv2d_cpu_pack_turned(global const float *restrict w,
                                                               global float *restrict workspace,
                                                               const cvy_conv_strip_call call) {
  const int taps = call.filter.r * call.filter.s, n_tasks = (call.out.pitch + 31) / 32 * taps;
  for (int task = (int)CVY_GROUP; task < n_tasks; task += (int)CVY_GROUPS) {
    const int block = task / taps, place = task % taps;
    const int tap = turned_tap(call.filter.r, call.filter.stride_h, place / call.filter.s) * call.filter.s +
                    turned_tap(call.filter.s, call.filter.stride_w, place % call.filter.s);
    const int width = min(32, call.out.pitch - block * 32), valid = clamp(call.out.c - block * 32, 0, width);
    global const float *from = w + ((size_t)tap * (size_t)call.out.c + block * 32) * (size_t)call.in.pitch;
    global float *to = workspace + (size_t)block * 32 * (size_t)(taps * call.in.c) +
                       (size_t)place * (size_t)(call.in.c * width);
    for (int i = 0; i < call.in.c; i++, to += width) {
      for (int j = 0; j < valid; j++) to[j] = from[(size_t)j * (size_t)call.in.pitch + i];
      for (int j = valid; j < width; j++) to[j] = 0.0f;
    }
  }
}

/* ---- backward-weights ---- */

#if CVY_WIDE_REGISTERS && NARROW < 2
#define ROWS 12
#define WIDTH 32
#include "conv2d/conv2d_wtile_tmpl.clh"
#define ROWS 4
#define WIDTH 32
#include "conv2d/conv2d_wtile_tmpl.clh"
#endif
#if CVY_WIDE_REGISTERS && NARROW
#define ROWS 12
#define WIDTH 16
#include "conv2d/conv2d_wtile_tmpl.clh"
#define ROWS 4
#define WIDTH 16
#include "conv2d/conv2d_wtile_tmpl.clh"
#endif
#if !CVY_WIDE_REGISTERS
#define ROWS 6
#define WIDTH 16
#include "conv2d/conv2d_wtile_tmpl.clh"
#define ROWS 4
#define WIDTH 16
#include "conv2d/conv2d_wtile_tmpl.clh"
#endif

/* dw of 12 (4) products (b,c) x `width` output channels. */
static void multiply_weights(int products, int width, global const float *x, global const int *in_at,
                             global const float *panel, int positions, global float *dw) {
#if CVY_WIDE_REGISTERS
#if NARROW < 2
  if (width == 32 && products == 12) wtile_12x32(x, in_at, panel, 32, positions, dw);
  else if (width == 32) wtile_4x32(x, in_at, panel, 32, positions, dw);
#endif
#if NARROW
  if (width == 16 && products == 12) wtile_12x16(x, in_at, panel, 16, positions, dw);
  else if (width == 16) wtile_4x16(x, in_at, panel, 16, positions, dw);
#endif
#else
  for (int k = 0; k < width; k += 16)
    if (products == 12) {
      wtile_6x16(x, in_at, panel + k, width, positions, dw + k);
      wtile_6x16(x + 6, in_at, panel + k, width, positions, dw + 6 * width + k);
    } else {
      wtile_4x16(x, in_at, panel + k, width, positions, dw + k);
    }
#endif
}

#if NARROW < 2
/* Adds to dw of three rows of three products (3x3 taps of one channel, 3x1 of three), row a's at dw + a*4*32. dy is
 * read in place, at out_at, and fetched into the cache one chunk ahead; `left` positions are left in the strip. Sums
 * of dy are added to `sums` (NULL: not needed). */
#define STEM_CHUNK 64 /* positions whose dy is still in the first-level cache for the next 32 channels */
#define ROWS 9
#define WIDTH 32
static void wtile_3x3x32(global const float *x, int row_floats, global const int *in_at, global const float *dy,
                         global const int *out_at, int positions, int left, global float *dw, global float *sums) {
  NEW_TILE(sum);
  float16 total[TILE_VECTORS] = {(float16)(0.0f)};
  for (int i = 0; i < positions; i++) {
    global const float *from = dy + out_at[i], *next = dy + out_at[min(i + STEM_CHUNK, left - 1)];
    float16 d[TILE_VECTORS];
    EACH_VECTOR(v) d[v] = CVY_LOAD16(from + v * 16);
    EACH_VECTOR(v) CVY_FETCH(next + v * 16);
    EACH_ROW(e) {
      const float16 pixel = (float16)(x[in_at[i] + e / 3 * row_floats + e % 3]);
      EACH_VECTOR(v) sum[e][v] = pixel * d[v] + sum[e][v];
    }
    EACH_VECTOR(v) total[v] += d[v];
  }
  EACH_ROW(e) {
    global float *to = dw + (e / 3 * 4 + e % 3) * WIDTH;
    EACH_VECTOR(v) vstore16(vload16(v, to) + sum[e][v], v, to);
  }
  if (!sums) return;
  EACH_VECTOR(v) vstore16(vload16(v, sums) + total[v], v, sums);
}
#undef ROWS
#undef WIDTH
#endif

/* Packs the gradient of 32 (16) channels at the strip's positions → (positions, 32), and adds their sums to `sums`
 * (NULL: not needed). */
static void pack_panel(global float *panel, global const float *dy, global const int *out_at, int n, int width,
                       global float *sums) {
  float16 s0 = (float16)(0.0f), s1 = (float16)(0.0f);
  for (int i = 0; i < n; i++, panel += width) {
    global const float *from = dy + out_at[i];
    const float16 v = CVY_LOAD16(from);
    CVY_STORE16(v, panel), s0 += v;
    if (width == 32) {
      const float16 w = CVY_LOAD16(from + 16);
      CVY_STORE16(w, panel + 16), s1 += w;
    }
  }
  if (!sums) return;
  vstore16(vload16(0, sums) + s0, 0, sums);
  if (width == 32) vstore16(vload16(1, sums) + s1, 1, sums);
}

/* Offsets of a strip's positions in the input itself, for 1x1 filters without padding and prologue: these need no
 * copy. */
static void fill_pixels(global int *in_at, int images, line_shape lh, line_part ph, line_shape lw, line_part pw,
                        cvy_shape in) {
  int n = 0;
  for (int i = 0; i < ph.count; i++)
    for (int m = 0; m < images; m++)
      for (int j = 0; j < pw.count; j++, n++)
        in_at[n] = ((m * in.h + (ph.begin + i) * lh.step) * in.w + (pw.begin + j) * lw.step) * in.pitch;
}

/* dw of part `split` of the strips goes to dw + split*part_floats (and db likewise), added if FLAG_ACCUMULATE.
 * FLAG_BIAS: db is computed, too. Slice: two tables, the strip (strip_floats), the panel, dw of the task's blocks
 * (a, products rounded up to 4, 32), sums of dy. */
kernel CVY_CPU_KERNEL GROUP_OF_ONE void conv2d_cpu_backward_weights(
    global const float *restrict x, global const float *restrict affine, global const float *restrict residual,
    global const float *restrict dy, global float *restrict dw, global float *restrict db,
    global float *restrict workspace, const cvy_conv_strip_call call, const cvy_conv_weights_cut cut) {
  global float *slice = workspace + call.slices_at + (size_t)CVY_GROUP * (size_t)call.slice_floats;
  global int *in_at = (global int *)slice, *out_at = in_at + call.table_size;
  global float *strip = slice + 2 * call.table_size;
  global float *panel = strip + cut.strip_floats;
  global float *sums = panel + call.table_size * 32;
  global float *own = sums + cut.group_k * 32;
  const line_shape lh = lines_h(call, 0), lw = lines_w(call, 0);
  const int blocks = (call.out.pitch + 31) / 32, groups_k = (blocks + cut.group_k - 1) / cut.group_k,
            groups_c = (call.in.c + cut.block_c - 1) / cut.block_c;
  const int strips_h = parts_in(lh, call.strip.rows), strips_w = parts_in(lw, call.strip.cols);
  const int per_image = strips_h * strips_w;
  const int n_strips = (call.n + call.strip.images - 1) / call.strip.images * per_image;
  const int n_tasks = groups_c * groups_k * cut.splits; /* groups of blocks fastest: the last one may have less work */
  const int task_begin = (int)((long)n_tasks * (long)CVY_GROUP / (long)CVY_GROUPS);
  const int task_end = (int)((long)n_tasks * (long)(CVY_GROUP + 1) / (long)CVY_GROUPS);

  for (int task = task_begin; task < task_end; task++) {
    const int split = task / (groups_c * groups_k), group = task % (groups_c * groups_k);
    const int c0 = group / groups_k * cut.block_c, channels = min(cut.block_c, call.in.c - c0);
    const int block0 = group % groups_k * cut.group_k, n_blocks = min(cut.group_k, blocks - block0);
    const int run = lw.taps * channels, padded = (run + 3) / 4 * 4;
    const bool want_sums = (call.flags & FLAG_BIAS) != 0 && c0 == 0;
    fill_zero(sums, n_blocks * 32);
    fill_zero(own, n_blocks * lh.taps * padded * 32);
    const int strip_begin = (int)((long)n_strips * split / cut.splits),
              strip_end = (int)((long)n_strips * (split + 1) / cut.splits);
    const bool in_place = lh.taps * lw.taps == 1 && call.filter.pad_h + call.filter.pad_w == 0 &&
                          call.in.pitch % 16 == 0 && (call.flags & (FLAG_SCALE | FLAG_RELU | FLAG_RESIDUAL)) == 0;
#if NARROW < 2
    /* reading dy limits this case: a panel that is filled once and read three times would only add to that */
    const bool stem = lh.taps == 3 && run == 3 && call.out.pitch - block0 * 32 >= n_blocks * 32 && !in_place;
#endif
    const pixel_walk nothing_next = {x, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0};
    int tabled_images = 0, tabled_part = -1;
    for (int at = strip_begin; at < strip_end; at++) {
      const int image0 = at / per_image * call.strip.images, part = at % per_image;
      const int count = min(call.strip.images, call.n - image0);
      const line_part ph = part_of(lh, part / strips_w * call.strip.rows, call.strip.rows),
                      pw = part_of(lw, part % strips_w * call.strip.cols, call.strip.cols);
      if (part != tabled_part || count != tabled_images) {
        fill_tables(in_at, out_at, count, channels, lh, ph, lw, pw, call.out);
        if (in_place) fill_pixels(in_at, count, lh, ph, lw, pw, call.in);
        tabled_part = part, tabled_images = count;
      }
      global const float *from_x = in_place ? x + image0 * floats_of(call.in) + c0 : strip;
      if (!in_place)
        load_strip(strip, x, residual, affine, call, image0, count, c0, channels, lh, ph, lw, pw);
      const int per_row = count * pw.count, positions = per_row * ph.count, row_floats = pw.length * channels;
#if NARROW < 2
      if (stem) {
        global const float *d = dy + image0 * floats_of(call.out) + block0 * 32;
        for (int begin = 0; begin < positions; begin += STEM_CHUNK)
          for (int b = 0; b < n_blocks; b++)
            wtile_3x3x32(strip, row_floats, in_at + begin, d + b * 32, out_at + begin, min(STEM_CHUNK, positions - begin),
                         positions - begin, own + b * lh.taps * padded * 32, want_sums ? sums + b * 32 : 0);
        continue;
      }
#endif
      pixel_walk next_x = nothing_next, next_dy = nothing_next;
      if (at + 1 < strip_end) {
        const int next_image0 = (at + 1) / per_image * call.strip.images, next_part = (at + 1) % per_image;
        const int some = min(call.strip.images, call.n - next_image0);
        const line_part next_h = part_of(lh, next_part / strips_w * call.strip.rows, call.strip.rows),
                        next_w = part_of(lw, next_part % strips_w * call.strip.cols, call.strip.cols);
        const seen_range dy_h = {next_h.begin, next_h.count, 1}, dy_w = {next_w.begin, next_w.count, 1};
        next_x = walk_over(x + next_image0 * floats_of(call.in) + c0, some, call.in, seen_of(lh, next_h, call.in.h),
                           seen_of(lw, next_w, call.in.w), channels);
        next_dy = walk_over(dy + next_image0 * floats_of(call.out) + block0 * 32, some, call.out, dy_h, dy_w,
                            min(call.out.pitch - block0 * 32, n_blocks * 32));
      }
      const int tiles = n_blocks * lh.taps * ((padded + 11) / 12);
      const int fetch_x = (walk_length(next_x) + tiles - 1) / tiles, fetch_dy = (walk_length(next_dy) + tiles - 1) / tiles;
      for (int b = 0; b < n_blocks; b++) {
        const int k0 = (block0 + b) * 32;
        const int width = min(32, call.out.pitch - k0);
        pack_panel(panel, dy + image0 * floats_of(call.out) + k0, out_at, positions, width,
                   want_sums ? sums + b * 32 : 0);
        for (int a = 0; a < lh.taps; a++) {
          /* output rows that read the image through filter row a */
          const int above = -(ph.begin * lh.step + lh.first + a), below = call.in.h + above;
          const int row_begin = above <= 0 ? 0 : min((above + lh.step - 1) / lh.step, ph.count);
          const int row_end = below <= 0 ? 0 : min((below + lh.step - 1) / lh.step, ph.count);
          const int begin = row_begin * per_row, seen = (row_end - row_begin) * per_row;
          global float *to = own + (b * lh.taps + a) * padded * 32;
          global const float *from = from_x + a * row_floats, *d = panel + begin * width;
          if (seen <= 0) continue;
          for (int e = 0, some; e < padded; e += some) {
            some = e + 12 <= padded ? 12 : 4;
            fetch_pixels(&next_x, fetch_x), fetch_pixels(&next_dy, fetch_dy);
            multiply_weights(some, width, from + e, in_at + begin, d, seen, to + e * width);
          }
        }
      }
    }
    for (int b = 0; b < n_blocks; b++) {
      const int k0 = (block0 + b) * 32, width = min(32, call.out.pitch - k0);
      for (int tap = 0; tap < lh.taps * lw.taps; tap++) {
        global const float *from = own + ((b * lh.taps + tap / lw.taps) * padded) * 32 +
                                   tap % lw.taps * channels * width;
        global float *to = dw + (size_t)split * (size_t)cut.part_floats + (size_t)(tap * call.in.c + c0) * (size_t)call.out.pitch + k0;
        for (int c = 0; c < channels; c++, from += width, to += call.out.pitch)
          for (int v = 0; v < width; v += 16)
            vstore16(call.flags & FLAG_ACCUMULATE ? vload16(0, to + v) + vload16(0, from + v) : vload16(0, from + v), 0,
                     to + v);
      }
      if (want_sums)
        for (int v = 0; v < width; v += 16) {
          global float *to = db + (size_t)split * (size_t)cut.part_floats + cut.db_at + k0 + v;
          const float16 sum = vload16(0, sums + b * 32 + v);
          vstore16(call.flags & FLAG_ACCUMULATE ? vload16(0, to) + sum : sum, 0, to);
        }
    }
  }
}

/* out[i] (+)= sum over parts, in order, of workspace[part*part_floats + from + i], i < n, a multiple of 16. */
kernel CVY_CPU_KERNEL GROUP_OF_ONE void conv2d_cpu_reduce(global const float *restrict workspace,
                                                          global float *restrict out, int n, int parts, int part_floats,
                                                          int from, int accumulate) {
  const int vectors = n / 16;
  const int begin = (int)((long)vectors * (long)CVY_GROUP / (long)CVY_GROUPS);
  const int end = (int)((long)vectors * (long)(CVY_GROUP + 1) / (long)CVY_GROUPS);
  for (int i = begin; i < end; i++) {
    float16 sum = (float16)(0.0f);
    for (int part = 0; part < parts; part++) sum += vload16(i, workspace + (size_t)part * (size_t)part_floats + from);
    vstore16(accumulate ? vload16(i, out) + sum : sum, i, out);
  }
}
