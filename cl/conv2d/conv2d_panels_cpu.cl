/* SPDX-License-Identifier: MIT
 * Direct convolution of 16 and more channels on CPU-shaped devices: the gather convolution of conv2d_direct_cpu.cl
 * (forward; backward-data with its stride_h*stride_w phases) as products of packed panels.
 *   out[m, row0 + i*row_step, col0 + j*col_step, o] (+)=
 *     bias[o] + sum_{a,b,c} f(in)[m, i*step_h + first_h + a, j*step_w + first_w + b, c] * u[a,b,c,o]
 *
 * A strip is rows x cols positions of some images, numbered with the images fastest, so that the positions of a tile
 * meet the border of the image in the same way; a tile is 14 of them, 8 or 4 at the end. Its panel holds the input of
 * its positions, with the load prologue applied: for each tap that lies in the image for at least one of them, blocks
 * of 16 channels of (rows, 16). Taps in the padding cost nothing, and the innermost loop has one pointer into the
 * panel and one into the weights, whatever the strides are.
 * Geometry: one work-item per work-group, as many groups as keep all cores busy; each has a slice of the workspace and
 * walks over a contiguous range of tasks: a strip, a phase of backward-data and 32 output channels (fastest). Panels
 * are reused while strip and phase stay the same. Meanwhile the kernel fetches the pixels of the next strip into the
 * cache.
 * Weights are packed before each call by conv2d_cpu_pack or conv2d_cpu_pack_turned. */
#include "register_tile.clh"
#include "conv2d/conv2d_strip_cpu.clh"

#ifndef NARROW
/* 1: the pitch of the output is an odd multiple of 16; 2: it is 16, and no block has 32 channels */
#define NARROW 0
#endif

/* ---- products ---- */

#define PRODUCT_ARGS                                                                                                   \
  global const float *panel, int block_floats, global const int *taps, int n_taps, global const float *u, int u_row,   \
      int channels, global const float *bias, global float *results, global float *stream, global const int *out_at,   \
      int valid

#if CVY_WIDE_REGISTERS && NARROW < 2
#define ROWS 14
#define WIDTH 32
#include "conv2d/conv2d_product_tmpl.clh"
#define ROWS 8
#define WIDTH 32
#include "conv2d/conv2d_product_tmpl.clh"
#define ROWS 4
#define WIDTH 32
#include "conv2d/conv2d_product_tmpl.clh"
#endif
#if CVY_WIDE_REGISTERS && NARROW
#define ROWS 14
#define WIDTH 16
#include "conv2d/conv2d_product_tmpl.clh"
#define ROWS 8
#define WIDTH 16
#include "conv2d/conv2d_product_tmpl.clh"
#define ROWS 4
#define WIDTH 16
#include "conv2d/conv2d_product_tmpl.clh"
#endif
#if !CVY_WIDE_REGISTERS
#define ROWS 6
#define WIDTH 16
#include "conv2d/conv2d_product_tmpl.clh"
#define ROWS 4
#define WIDTH 16
#include "conv2d/conv2d_product_tmpl.clh"
#endif

/* A tile of `rows` rows, of which the first `valid` are stored. */
static void multiply(int rows, int width, global const float *panel, global const int *taps, int n_taps,
                     global const float *u, int channels, global const float *bias, global float *results,
                     global float *stream, global const int *out_at, int valid) {
#if CVY_WIDE_REGISTERS
#if NARROW
  if (width == 16) {
    if (rows == 14) product_14x16(panel, 14 * 16, taps, n_taps, u, 16, channels, bias, results, stream, out_at, valid);
    else if (rows == 8) product_8x16(panel, 8 * 16, taps, n_taps, u, 16, channels, bias, results, stream, out_at, valid);
    else product_4x16(panel, 4 * 16, taps, n_taps, u, 16, channels, bias, results, stream, out_at, valid);
    return;
  }
#endif
#if NARROW < 2
  if (rows == 14) product_14x32(panel, 14 * 16, taps, n_taps, u, 32, channels, bias, results, stream, out_at, valid);
  else if (rows == 8) product_8x32(panel, 8 * 16, taps, n_taps, u, 32, channels, bias, results, stream, out_at, valid);
  else product_4x32(panel, 4 * 16, taps, n_taps, u, 32, channels, bias, results, stream, out_at, valid);
#endif
#else
  const int wanted = min(rows, valid);
  for (int k = 0; k < width; k += 16)
    for (int row = 0, some; row < wanted; row += some) {
      global const float *from = panel + row * 16, *plus = bias ? bias + k : 0;
      global float *to = results + row * 32 + k, *past = stream ? stream + k : 0;
      some = part_rows(wanted - row);
      if (some == 6)
        product_6x16(from, rows * 16, taps, n_taps, u + k, width, channels, plus, to, past, out_at + row, wanted - row);
      else
        product_4x16(from, rows * 16, taps, n_taps, u + k, width, channels, plus, to, past, out_at + row, wanted - row);
    }
#endif
}

/* ---- panels ---- */

/* Number of rows of the tile that begins where `rest` positions remain. src/ops/conv2d/conv2d_panels_cpu.c has the
 * same function. */
static int tile_rows(int rest) { return rest > 8 ? 14 : rest > 4 ? 8 : 4; }

/* The positions of a strip, in order: the pixel under the first tap, as far as it lies in the strip's first image,
 * and the offsets of that image in the input and of the position in the output. */
typedef struct {
  global int *h, *w, *image, *out_at;
} position_table;

static void fill_table(position_table t, int images, line_shape lh, line_part ph, line_shape lw, line_part pw,
                       int in_floats, cvy_shape out) {
  int n = 0;
  for (int i = 0; i < ph.count; i++)
    for (int j = 0; j < pw.count; j++)
      for (int m = 0; m < images; m++, n++) {
        t.h[n] = (ph.begin + i) * lh.step + lh.first;
        t.w[n] = (pw.begin + j) * lw.step + lw.first;
        t.image[n] = m * in_floats;
        t.out_at[n] = ((m * out.h + lh.out0 + (ph.begin + i) * lh.out_step) * out.w + lw.out0 +
                       (pw.begin + j) * lw.out_step) *
                      out.pitch;
      }
}

/* x and residual point to the strip's first image, affine to that of the first group. */
typedef struct {
  global const float *x, *residual, *affine;
  int image0, group_size;
  cvy_shape in;
  int flags;
} panel_source;

/* Writes row `to` of one pixel; block_floats: distance of two blocks of channels. */
static void pack_pixel(global float *to, int block_floats, panel_source s, int image_at, int h, int w) {
  if (h < 0 || h >= s.in.h || w < 0 || w >= s.in.w) {
    for (int c = 0; c < s.in.c; c += 16, to += block_floats) CVY_STORE16((float16)(0.0f), to);
    return;
  }
  const int at = image_at + (h * s.in.w + w) * s.in.pitch;
  if ((s.flags & (FLAG_SCALE | FLAG_RELU | FLAG_RESIDUAL)) == 0) {
    for (int c = 0; c < s.in.c; c += 16, to += block_floats) CVY_STORE16(CVY_LOAD16(s.x + at + c), to);
    return;
  }
  const int image = s.image0 + image_at / (s.in.h * s.in.w * s.in.pitch), group = image / s.group_size * 3 * s.in.pitch;
  for (int c = 0; c < s.in.c; c += 16, to += block_floats) {
    float16 v = CVY_LOAD16(s.x + at + c);
    if (s.flags & FLAG_SCALE) v = normalised(v, s.affine + group + c, s.in.pitch);
    if (s.flags & FLAG_RESIDUAL) v += CVY_LOAD16(s.residual + at + c);
    if (s.flags & FLAG_RELU) v = select(v, (float16)(0.0f), v < 0.0f);
    CVY_STORE16(v, to);
  }
}

/* Makes the panel of positions first .. first+valid-1 in `rows` rows (the other rows repeat the last), and writes
 * the numbers of its taps in the packed filter to `taps`. Returns the number of taps. */
static int pack_tile(global float *panel, global int *taps, position_table t, int first, int valid, int rows,
                     panel_source s, int taps_h, int taps_w, int u0, int filter_w) {
  const int blocks = (s.in.c + 15) / 16;
  int n_taps = 0;
  for (int a = 0; a < taps_h; a++)
    for (int b = 0; b < taps_w; b++) {
      bool any = false;
      for (int i = 0; i < valid; i++) {
        const int h = t.h[first + i] + a, w = t.w[first + i] + b;
        any = any || (h >= 0 && h < s.in.h && w >= 0 && w < s.in.w);
      }
      if (!any) continue;
      for (int i = 0; i < rows; i++) {
        const int p = first + min(i, valid - 1);
        pack_pixel(panel + i * 16, rows * 16, s, t.image[p], t.h[p] + a, t.w[p] + b);
      }
      taps[n_taps++] = u0 + a * filter_w + b;
      panel += blocks * rows * 16;
    }
  return n_taps;
}

/* ---- results ---- */

static void store_results(global float *out, global const int *out_at, global const float *results, int n, int width,
                          int flags) {
  for (int i = 0; i < n; i++, results += 32)
    for (int v = 0; v < width; v += 16) {
      global float *o = out + out_at[i] + v;
      const float16 value = CVY_LOAD16(results + v);
      CVY_STORE16(flags & FLAG_ACCUMULATE ? CVY_LOAD16(o) + value : value, o);
    }
}

/* Statistics of `width` channels over n positions, `step` floats apart: two passes over memory that is still in the
 * cache. Positions are first summed in runs of 16, in two independent halves, so that long sums of similar terms
 * lose few digits. part, to, pitch: see store_stats. */
static void strip_stats(global const float *results, int step, int n, int width, bool part, global float *to, int pitch) {
  float16 mean0 = (float16)(0.0f), mean1 = (float16)(0.0f);
  for (int pass = 0; pass < 2; pass++) {
    float16 sum0 = (float16)(0.0f), sum1 = (float16)(0.0f), squares0 = (float16)(0.0f), squares1 = (float16)(0.0f);
    for (int i = 0; i < n; i += 16) {
      const int end = min(n, i + 16);
      float16 a0 = (float16)(0.0f), a1 = (float16)(0.0f), b0 = (float16)(0.0f), b1 = (float16)(0.0f);
      float16 p0 = (float16)(0.0f), p1 = (float16)(0.0f), q0 = (float16)(0.0f), q1 = (float16)(0.0f);
      global const float *from = results + i * step;
      for (int j = i; j < end; j += 2, from += 2 * step) {
        const float16 d0 = CVY_LOAD16(from) - mean0, d1 = CVY_LOAD16(from + 16) - mean1;
        a0 += d0, a1 += d1;
        if (pass) p0 += d0 * d0, p1 += d1 * d1;
        if (j + 1 < end) {
          const float16 e0 = CVY_LOAD16(from + step) - mean0, e1 = CVY_LOAD16(from + step + 16) - mean1;
          b0 += e0, b1 += e1;
          if (pass) q0 += e0 * e0, q1 += e1 * e1;
        }
      }
      sum0 += a0 + b0, sum1 += a1 + b1;
      squares0 += p0 + q0, squares1 += p1 + q1;
    }
    if (pass == 0) {
      mean0 = sum0 / (float)n, mean1 = sum1 / (float)n;
      continue;
    }
    store_stats(mean0, sum0, squares0, (float)n, part, to, pitch);
    if (width == 32) store_stats(mean1, sum1, squares1, (float)n, part, to + 16, pitch);
  }
}

/* turned: backward-data, with phases_h x phases_w phases. u: packed filter, first in the workspace. A slice: table
 * of table_size positions (4 numbers each), taps of each tile (1 + the number of taps of the largest phase), panels,
 * results at results_at. Statistics of strips go to stats (one strip per image) or to the workspace at stats_at,
 * (N*strips_per_image, 3, out_pitch): store_stats. */
kernel CVY_CPU_KERNEL GROUP_OF_ONE void
conv2d_cpu_panels(global const float *restrict x, global const float *restrict affine, global const float *restrict residual,
                  global const float *restrict bias, global float *restrict y, global float *restrict stats,
                  global float *restrict workspace, const cvy_conv_strip_call call) {
  global float *slice = workspace + call.slices_at + (size_t)CVY_GROUP * (size_t)call.slice_floats;
  global int *const table = (global int *)slice;
  const position_table t = {table, table + call.table_size, table + 2 * call.table_size, table + 3 * call.table_size};
  global int *tile_taps = table + 4 * call.table_size;
  const int filter_taps = call.filter.r * call.filter.s;
  const int most_taps = call.turned ? ((call.filter.r + call.filter.stride_h - 1) / call.filter.stride_h) *
                                          ((call.filter.s + call.filter.stride_w - 1) / call.filter.stride_w)
                                    : filter_taps;
  const int panels_at = (4 * call.table_size + call.table_size / 14 * (1 + most_taps) + 15) / 16 * 16;
  global float *panels = slice + panels_at, *results = slice + call.results_at;
  const int panel_floats = 14 * most_taps * ((call.in.c + 15) / 16 * 16);
  const int in_floats = floats_of(call.in), out_floats = floats_of(call.out);
  const int blocks = (call.out.pitch + 31) / 32, phases = call.phases_h * call.phases_w;
  const int strips_h = parts_in(lines_h(call, 0), call.strip.rows), strips_w = parts_in(lines_w(call, 0), call.strip.cols);
  const int per_image = strips_h * strips_w, n_strips = (call.n + call.strip.images - 1) / call.strip.images * per_image;
  const long n_tasks = (long)n_strips * phases * blocks;
  const long task_begin = n_tasks * (long)CVY_GROUP / (long)CVY_GROUPS;
  const long task_end = n_tasks * (long)(CVY_GROUP + 1) / (long)CVY_GROUPS;

  int loaded = -1, walked = -1, tabled_images = 0, tabled_part = -1, tabled_phase = -1;
  const pixel_walk nothing_next = {x, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0};
  pixel_walk next = nothing_next;
  for (long task = task_begin; task < task_end; task++) {
    const int block = (int)(task % blocks), strip_phase = (int)(task / blocks);
    const int phase = strip_phase % phases, at = strip_phase / phases;
    const int image0 = at / per_image * call.strip.images, part = at % per_image,
              count = min(call.strip.images, call.n - image0);
    line_shape lh = lines_h(call, phase / call.phases_w), lw = lines_w(call, phase % call.phases_w);
    const bool nothing = lh.taps == 0 || lw.taps == 0;
    if (nothing && (call.flags & FLAG_ACCUMULATE)) continue;
    const line_part ph = part_of(lh, part / strips_w * call.strip.rows, call.strip.rows),
                    pw = part_of(lw, part % strips_w * call.strip.cols, call.strip.cols);
    if (ph.count <= 0 || pw.count <= 0) continue;
    const int total = count * ph.count * pw.count, tiles = (total + 13) / 14;
    if (strip_phase != loaded) {
      loaded = strip_phase;
      if (part != tabled_part || phase != tabled_phase || count != tabled_images) {
        fill_table(t, count, lh, ph, lw, pw, in_floats, call.out);
        tabled_part = part, tabled_phase = phase, tabled_images = count;
      }
      const panel_source source = {x + image0 * in_floats, residual + image0 * in_floats, affine, image0,
                                   call.group_size, call.in, call.flags};
      for (int tile = 0; tile < tiles; tile++) {
        const int first = tile * 14, rows = tile_rows(total - first);
        global int *taps = tile_taps + tile * (1 + most_taps);
        taps[0] = nothing ? 0
                          : pack_tile(panels + (size_t)tile * (size_t)panel_floats, taps + 1, t, first,
                                      min(14, total - first), rows, source, lh.taps, lw.taps, lh.u0 * call.filter.s + lw.u0,
                                      call.filter.s);
      }
    }
    if (at != walked) {
      walked = at;
      next = nothing_next;
      if (at + 1 < n_strips && (long)(at + 1) * phases * blocks < task_end) {
        const int next_image0 = (at + 1) / per_image * call.strip.images, next_part = (at + 1) % per_image;
        const seen_range h = seen_of(lh, part_of(lh, next_part / strips_w * call.strip.rows, call.strip.rows), call.in.h),
                         w = seen_of(lw, part_of(lw, next_part % strips_w * call.strip.cols, call.strip.cols), call.in.w);
        next = walk_over(x + next_image0 * in_floats, min(call.strip.images, call.n - next_image0), call.in, h, w,
                         call.in.pitch);
      }
    }
    const int fetches = (walk_length(next) + tiles * blocks - 1) / (tiles * blocks);
    const int width = min(32, call.out.pitch - block * 32);
    global const float *u = workspace + (size_t)block * 32 * (size_t)(filter_taps * call.in.c);
    global const float *b = call.flags & FLAG_BIAS ? bias + block * 32 : 0;
    global float *out = y + (size_t)image0 * (size_t)out_floats + block * 32;
    for (int tile = 0; tile < tiles; tile++) {
      global const int *taps = tile_taps + tile * (1 + most_taps);
      fetch_pixels(&next, fetches);
      if (call.flags & FLAG_ACCUMULATE)
        for (int i = tile * 14; i < min(total, tile * 14 + 14); i++)
          for (int v = 0; v < width; v += 16) CVY_FETCH(out + t.out_at[i] + v);
      multiply(tile_rows(total - tile * 14), width, panels + (size_t)tile * (size_t)panel_floats, taps + 1, taps[0], u,
               call.in.c, b, results + tile * (14 * 32), call.flags & FLAG_STREAM ? out : 0, t.out_at + tile * 14,
               total - tile * 14);
    }
    if (call.flags & FLAG_STATS) {
      global float *target = (per_image == 1 ? stats : workspace + call.stats_at) + block * 32;
      const int floats = (per_image == 1 ? 2 : 3) * call.out.pitch;
      for (int m = 0; m < count; m++)
        strip_stats(results + m * 32, count * 32, total / count, width, per_image > 1,
                    target + (size_t)((image0 + m) * per_image + part) * (size_t)floats, call.out.pitch);
    }
    if (!(call.flags & FLAG_STREAM)) store_results(out, t.out_at, results, total, width, call.flags);
  }
}
