/* SPDX-License-Identifier: MIT
 * Backward-data on CPU-shaped devices as a matrix product and a sum, for cases in which that is less work than a
 * gather over dx: strides (a gather has stride_h*stride_w phases of few taps), and input channels that do not fill
 * vectors.
 *   column[m,p,q, (r,s,c)] = sum_k dy[m,p,q,k] * w[r,s,c,k]
 *   dx[m,h,w,c] = sum_{r,s: p*stride_h - pad_h + r = h, q*stride_w - pad_w + s = w} column[m,p,q, (r,s,c)]
 *
 * Geometry: one work-item per work-group, as many groups as keep all cores busy; each walks over a contiguous range of
 * tasks. A task is a block of input channels of some images. Its columns lie in the group's slice of the workspace, in
 * a ring of rows: chunk_rows rows of dy are multiplied at a time, with register tiles of 14 positions x 32 products, and
 * the rows of dx that are then complete are summed. All lanes are used, and no work is done for the padding.
 * Weights are packed before each call to (blocks of input channels, blocks of 32 products (r,s,c), k, 32); the last
 * block of products has 16 if that is enough.
 *
 * Reads past the end of a column (at most 31 floats) land in the next one or in the slack behind the ring; their values
 * are not used. */
#include "conv2d_args.clh"
#include "conv2d/conv2d_flags.clh"
#define NARROW 1
#include "conv2d/conv2d_tile_cpu.clh"

/* Width of the block of products that begins at `at`: 32, or 16 at the end. */
static int block_width(int at, int products) { return products - at > 16 ? 32 : 16; }

/* Packs u of all blocks of products, counted over blocks of channels, from w[r,s,c,k] with w_pitch. In the last
 * block, products that do not exist are zero. Each work-group packs every num_groups-th block of products. */
kernel CVY_CPU_KERNEL GROUP_OF_ONE void conv2d_cpu_columns_pack(global const float *restrict w,
                                                                global float *restrict workspace,
                                                                const cvy_conv_columns_call call) {
  const int taps = call.filter.r * call.filter.s;
  const int per_block = (taps * call.block_c + 31) / 32, n_tasks = (call.out.c + call.block_c - 1) / call.block_c * per_block;
  const size_t block_floats = (size_t)((taps * call.block_c + 15) / 16 * 16) * (size_t)call.in.c;
  for (int task = (int)CVY_GROUP; task < n_tasks; task += (int)CVY_GROUPS) {
    const int block = task / per_block, c0 = block * call.block_c, channels = min(call.block_c, call.out.c - c0);
    const int products = taps * channels, at = task % per_block * 32;
    if (at >= products) continue;
    const int width = block_width(at, products);
    global float *to = workspace + (size_t)block * block_floats + (size_t)at * (size_t)call.in.c;
    for (int j = 0; j < width; j++) {
      const int product = at + j;
      const bool live = product < products;
      const size_t row = live ? (size_t)(product / channels) * (size_t)call.out.c + (size_t)(c0 + product % channels) : 0;
      global const float *from = w + row * (size_t)call.in.pitch;
      for (int i = 0; i < call.in.c; i++) to[i * width + j] = live ? from[i] : 0.0f;
    }
  }
}

/* The terms of one row or column of dx: filter rows `first`, first + stride, … below `end`, through outputs `out`,
 * out - 1, …. Rows and columns at the border of the image have fewer terms. */
typedef struct {
  int first, end, out;
} tap_range;

static tap_range taps_at(int at, int filter, int stride, int pad, int length) {
  const int least = (at + pad) % stride, out = (at + pad) / stride;
  const int skip = max(0, out - (length - 1));
  const tap_range t = {least + skip * stride, min(filter, least + (out + 1) * stride), out - skip};
  return t;
}

/* One row of dx, `channels` channels of it and zeros up to `written`, from the columns of one image. ring: row p of it
 * lies at p mod ring_rows. */
static void sum_row(global float *dx, global const float *ring, cvy_conv_columns_call call, int channels, int written,
                    tap_range th) {
  const bool accumulate = (call.flags & FLAG_ACCUMULATE) != 0;
  const size_t row_floats = (size_t)(call.in.w * call.column);
  const int16 lane = (int16)(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  for (int w = 0; w < call.out.w; w++, dx += call.out.pitch) {
    const tap_range tw = taps_at(w, call.filter.s, call.filter.stride_w, call.filter.pad_w, call.in.w);
    for (int c = 0; c < written; c += 32) {
      const bool wide = written - c > 16;
      float16 sum0 = (float16)(0.0f), sum1 = (float16)(0.0f);
      for (int r = th.first, p = th.out; r < th.end && c < channels; r += call.filter.stride_h, p--) {
        global const float *row = ring + (size_t)(p % call.ring_rows) * row_floats + r * call.filter.s * channels + c;
        for (int s = tw.first, q = tw.out; s < tw.end; s += call.filter.stride_w, q--) {
          global const float *from = row + q * call.column + s * channels;
          sum0 += vload16(0, from);
          if (wide) sum1 += vload16(1, from);
        }
      }
      sum0 = select((float16)(0.0f), sum0, lane + c < channels);
      if (accumulate) sum0 += vload16(0, dx + c);
      vstore16(sum0, 0, dx + c);
      if (wide) {
        sum1 = select((float16)(0.0f), sum1, lane + (c + 16) < channels);
        if (accumulate) sum1 += vload16(1, dx + c);
        vstore16(sum1, 1, dx + c);
      }
    }
  }
}

/* Offsets of `n` positions in dy and in the ring, then one more tile of offsets, which repeat the last position. */
static void fill_offsets(global int *in_at, global int *out_at, int n, int pitch, int column) {
  for (int i = 0; i < n + 14; i++) {
    in_at[i] = min(i, n - 1) * pitch;
    out_at[i] = min(i, n - 1) * column;
  }
}

/* The workspace holds the packed weights, then slices of slice_floats from slices_at on. A slice is two tables of
 * table_size entries and the ring. Tasks: `images` images (more than one only if chunk_rows is in.h), blocks of
 * channels (fastest). */
kernel CVY_CPU_KERNEL GROUP_OF_ONE void
conv2d_cpu_columns(global const float *restrict dy, global float *restrict dx, global float *restrict workspace,
                   const cvy_conv_columns_call call) {
  global float *slice = workspace + call.slices_at + (size_t)CVY_GROUP * (size_t)call.slice_floats;
  global int *in_at = (global int *)slice, *out_at = in_at + call.table_size;
  global float *ring = slice + 2 * call.table_size;
  const int blocks = (call.out.c + call.block_c - 1) / call.block_c, taps = call.filter.r * call.filter.s,
            row_floats = call.in.w * call.column;
  const size_t block_floats = (size_t)((taps * call.block_c + 15) / 16 * 16) * (size_t)call.in.c;
  const long n_tasks = (long)((call.n + call.images - 1) / call.images) * blocks;
  const long task_begin = n_tasks * (long)CVY_GROUP / (long)CVY_GROUPS;
  const long task_end = n_tasks * (long)(CVY_GROUP + 1) / (long)CVY_GROUPS;
  const size_t dy_floats = (size_t)call.n * (size_t)(call.in.h * call.in.w) * (size_t)call.in.pitch;
  int tabled = 0;
  for (long task = task_begin; task < task_end; task++) {
    const int block = (int)(task % blocks), image0 = (int)(task / blocks) * call.images,
              count = min(call.images, call.n - image0);
    const int c0 = block * call.block_c, channels = min(call.block_c, call.out.c - c0), products = taps * channels;
    const int written = block == blocks - 1 ? call.out.pitch - c0 : channels;
    int h = 0; /* rows of dx before it are complete */
    for (int p0 = 0; p0 < call.in.h; p0 += call.chunk_rows) {
      const int rows = min(call.chunk_rows, call.in.h - p0), positions = count * rows * call.in.w;
      global const float *from = dy + ((size_t)image0 * (size_t)call.in.h + (size_t)p0) * (size_t)(call.in.w * call.in.pitch);
      global float *to = ring + (size_t)(p0 % call.ring_rows) * (size_t)row_floats;
      if (positions != tabled) fill_offsets(in_at, out_at, positions, call.in.pitch, call.column);
      tabled = positions;
      /* meanwhile fetches the next part of dy into the cache, some lines with each tile */
      global const float *ahead = from + (size_t)positions * (size_t)call.in.pitch, *const limit = dy + dy_floats;
      const int tiles = (products + 31) / 32 * ((positions + 13) / 14);
      const int share = block == blocks - 1 ? (positions * call.in.pitch / 16 + tiles - 1) / tiles * 16 : 0;
      for (int j = 0; j < products; j += 32) {
        global const float *u = workspace + (size_t)block * block_floats + (size_t)j * (size_t)call.in.c;
        const int width = block_width(j, products);
        for (int t = 0; t < positions; t += 14) {
          const int valid = positions - t;
          global const float *const end = ahead + min((long)share, (long)(limit - ahead));
          for (; ahead < end; ahead += 16) CVY_FETCH(ahead);
          multiply_tile(width, from, in_at + t, u, 0, 1, call.in.c, 0, 0, 0, to + j, out_at + t, valid, false);
        }
      }
      const int below = (p0 + rows) * call.filter.stride_h - call.filter.pad_h,
                complete = p0 + rows < call.in.h ? min(call.out.h, below) : call.out.h;
      for (; h < complete; h++) {
        const tap_range th = taps_at(h, call.filter.r, call.filter.stride_h, call.filter.pad_h, call.in.h);
        for (int m = 0; m < count; m++)
          sum_row(dx + ((size_t)(image0 + m) * (size_t)call.out.h + (size_t)h) * (size_t)(call.out.w * call.out.pitch) + c0,
                  ring + (size_t)m * (size_t)call.in.h * (size_t)row_floats, call, channels, written, th);
      }
    }
  }
}
