/* SPDX-License-Identifier: MIT
 * Depthwise convolution (src/ops/conv2d/conv2d.h with groups == C == K) on CPU-shaped devices: channels are
 * independent, so that memory bandwidth limits these kernels.
 *   y[m,i,j,c]  = bias[c] + sum_{a,b} f(x)[m, i*stride + a*dilation - pad, …, c] * w[a,b,c]
 *   dx[m,h,v,c] = sum_{a,b} dy[m,i,j,c] * w[a,b,c]       where i*stride + a*dilation - pad = h, …: the same gather over dy
 *                 with stride - 1 lines of zeros between its lines, through the turned filter (cvy_conv_depthwise_call)
 *   dw[a,b,c]   = sum_{m,i,j} f(x)[…, c] * dy[m,i,j,c], db[c] = sum dy[m,i,j,c], in parts that are added up in order
 *
 * A work-group has one work-item, which walks over tasks. A task is `block` channels of an image, or of `chunk` rows of
 * its results. The rows under the filter lie in a ring in the task's slice, with the load prologue applied and with
 * zeros where the image ends or is spread, so that tiles of 8, 7 or 4 results need no bounds checks. Statistics are
 * computed for a row in two passes, then rows are merged in order (Chan, Golub, LeVeque 1979), all relative to the mean
 * of the first row, which is near the mean.
 * backward_weights: a task is a block of channels and a part of the images; slices hold its dw and db, too. The next
 * rows are fetched during the sums, because memory and arithmetic take about the same time. Tiles are templates: the
 * compiler unrolls loops whose bounds are constants only after inlining too late, and leaves their sums in memory.
 *
 * GROUP > 1: groups of few channels. Up to 8: a vector of 16 results reads the same 16 channels, which are permuted
 * before each product. 16: groups are whole vectors, and each channel is broadcast to a vector. The gradient
 * reads weights that conv2d_depthwise_cpu_pack has turned: u[a,b,k,first + c] = w[a,b,c,first + k].
 *
 *   GROUP [1]         1, 2, 4, 8: channels of a group, of x and of y; 16: multiples of 16, call.group_c and group_k */
#include "common.clh"
#include "conv2d_args.clh"
#include "conv2d/conv2d_flags.clh"

#define PLAIN(flags) (((flags) & (FLAG_SCALE | FLAG_RELU | FLAG_RESIDUAL)) == 0)

/* x through the load prologue; affine and residual point to the same channels. */
CVY_ALWAYS_INLINE float16 prologue(float16 v, global const float *affine, global const float *residual, int pitch, int flags) {
  if (flags & FLAG_SCALE)
    v = fma(v - *(global const float16 *)affine, *(global const float16 *)(affine + pitch),
            *(global const float16 *)(affine + 2 * pitch));
  if (flags & FLAG_RESIDUAL) v += *(global const float16 *)residual;
  if (flags & FLAG_RELU) v = v < 0.0f ? (float16)(0.0f) : v;
  return v;
}

#ifndef GROUP
#define GROUP 1
#endif
#if GROUP != 1 && GROUP != 2 && GROUP != 4 && GROUP != 8 && GROUP != 16
#error "GROUP must be 1, 2, 4, 8 or 16"
#endif

/* Result lane → channel c of that lane's group, from the 16 channels at `from` (GROUP 16: from the group that begins
 * at `from`). GROUP 1: the channels themselves. */
CVY_ALWAYS_INLINE float16 spread(global const float *from, const int c) {
#if GROUP == 1
  return CVY_LOAD16(from);
#elif GROUP == 2
  const float16 v = CVY_LOAD16(from);
  return c == 0 ? v.s0022446688aaccee : v.s1133557799bbddff;
#elif GROUP == 4
  const float16 v = CVY_LOAD16(from);
  return c == 0   ? v.s000044448888cccc
         : c == 1 ? v.s111155559999dddd
         : c == 2 ? v.s22226666aaaaeeee
                  : v.s33337777bbbbffff;
#elif GROUP == 8
  const float16 v = CVY_LOAD16(from);
  return c == 0   ? v.s0000000088888888
         : c == 1 ? v.s1111111199999999
         : c == 2 ? v.s22222222aaaaaaaa
         : c == 3 ? v.s33333333bbbbbbbb
         : c == 4 ? v.s44444444cccccccc
         : c == 5 ? v.s55555555dddddddd
         : c == 6 ? v.s66666666eeeeeeee
                  : v.s77777777ffffffff;
#else
  return (float16)(from[c]);
#endif
}

/* First channel of the group whose results are at c of a task's block. */
static int first_of(cvy_conv_depthwise_call call, int c) {
#if GROUP == 16
  return c / call.group_k * call.group_c;
#else
  return c;
#endif
}

/* First and last row of the image under row i of the results. */
static int2 rows_under(cvy_conv_depthwise_call call, int i) {
  const int top = i * call.step_h + call.first_h, bottom = top + (call.r - 1) * call.dilation_h;
  return (int2)(top <= 0 ? 0 : (top + call.spread_h - 1) / call.spread_h,
                bottom < 0 ? -1 : min(bottom / call.spread_h, call.in.h - 1));
}

/* Row `row` of the image → its place in the ring. x, residual: the image's channels; affine: its group's. */
static void load_row(global float *ring, global const float *x, global const float *affine, global const float *residual,
                     cvy_conv_depthwise_call call, int row, int width) {
  const int begin = call.first_w <= 0 ? 0 : (call.first_w + call.spread_w - 1) / call.spread_w,
            last = call.ring_cols - 1 + call.first_w, end = last < 0 ? 0 : min(call.in.w, last / call.spread_w + 1);
  const bool plain = PLAIN(call.flags);
  global float *to = ring + (row % call.ring_rows * call.ring_cols + begin * call.spread_w - call.first_w) * call.block_c;
  int at = (row * call.in.w + begin) * call.in.pitch;
  const int below = call.in.w * call.in.pitch; /* the row below is next */
  for (int j = begin; j < end; j++, at += call.in.pitch, to += call.spread_w * call.block_c) {
    for (int c = 0; c < width; c += 16) CVY_FETCH_NEAR(x + at + below + c);
    if (plain)
      for (int c = 0; c < width; c += 16) CVY_STORE16(CVY_LOAD16(x + at + c), to + c);
    else
      for (int c = 0; c < width; c += 16)
        CVY_STORE16(prologue(CVY_LOAD16(x + at + c), affine + c, residual + at + c, call.in.pitch, call.flags), to + c);
  }
}

/* Loads the rows under row i of the results that the ring lacks; `next`: the first row that was never loaded. */
static int load_rows(global float *ring, global const float *x, global const float *affine, global const float *residual,
                     cvy_conv_depthwise_call call, int i, int next, int width) {
  const int2 rows = rows_under(call, i);
  for (next = max(next, rows.x); next <= rows.y; next++) load_row(ring, x, affine, residual, call, next, width);
  return next;
}

static void fill_zero(global float *to, int n) {
  for (int i = 0; i < n; i += 16) CVY_STORE16((float16)(0.0f), to + i);
}

/* Filter rows that meet a row of the image in row i of the results: (first tap, end of the taps, distance between
 * taps; place of the first tap's row in the ring, distance between rows in the ring). */
CVY_ALWAYS_INLINE int8 taps_of(cvy_conv_depthwise_call call, int i) {
  const int top = i * call.step_h + call.first_h, behind = call.in.h * call.spread_h;
  int first = 0, step = 1;
  while (first < call.r && (top + first * call.dilation_h < 0 || (top + first * call.dilation_h) % call.spread_h != 0)) first++;
  if (call.spread_h > 1)
    while (step < call.r && step * call.dilation_h % call.spread_h != 0) step++;
  const int left = behind - top, end = left <= 0 ? 0 : min(call.r, (left + call.dilation_h - 1) / call.dilation_h);
  const int row = (top + first * call.dilation_h) / call.spread_h, rows = step * call.dilation_h / call.spread_h;
  return (int8)(first, end, step, row % call.ring_rows, rows % call.ring_rows, 0, 0, 0);
}

/* Number of results in the next tile when `left` results of a row remain. With wide registers: 7 where sevens fill
 * the row, else 8, or 4 at the end; without: 7 or 4. At most 3 results lie beyond the end of the row. */
static int tile_of(int left) {
#if CVY_WIDE_REGISTERS
  return left % 7 == 0 && left % 8 != 0 ? 7 : left > 4 ? 8 : 4;
#else
  return left >= 7 && left != 8 ? 7 : 4;
#endif
}

#define NEIGHBOURS 0
#include "conv2d/conv2d_depthwise_row_tmpl.clh"
#if CVY_WIDE_REGISTERS && GROUP == 1
#define NEIGHBOURS 3
#include "conv2d/conv2d_depthwise_row_tmpl.clh"
#define NEIGHBOURS 5
#include "conv2d/conv2d_depthwise_row_tmpl.clh"
#endif

/* Merges a row of `cols` values into the statistics of 16 channels. `own` holds three vectors, `apart` floats from
 * each other: the mean of the first row; the mean of the `before` values so far, minus the first; the sum of their
 * squared deviations. */
static void add_row_stats(global const float *row, int cols, int block, float before, global float *own, int apart) {
  const float n = (float)cols;
  float16 near = CVY_LOAD16(own), sum = (float16)(0.0f), squares = (float16)(0.0f), rest = (float16)(0.0f);
  if (before == 0.0f) {
    for (int j = 0; j < cols; j++) sum += CVY_LOAD16(row + j * block);
    near = sum / n;
    CVY_STORE16(near, own);
    CVY_STORE16((float16)(0.0f), own + apart), CVY_STORE16((float16)(0.0f), own + 2 * apart);
    sum = (float16)(0.0f);
  }
  for (int j = 0; j < cols; j++) sum += CVY_LOAD16(row + j * block) - near;
  const float16 mean = sum / n;
  for (int j = 0; j < cols; j++) {
    const float16 d = (CVY_LOAD16(row + j * block) - near) - mean;
    squares += d * d, rest += d;
  }
  squares -= rest * (rest / n);
  const float16 d = mean - CVY_LOAD16(own + apart);
  const float total = before + n;
  CVY_STORE16(CVY_LOAD16(own + apart) + d * (n / total), own + apart);
  CVY_STORE16(CVY_LOAD16(own + 2 * apart) + squares + d * d * (before * (n / total)), own + 2 * apart);
}

/* Forward, and backward_data (then `in` is dy). Slice: the ring, a row of results and three rows of statistics. */
kernel CVY_CPU_KERNEL GROUP_OF_ONE void conv2d_depthwise_cpu(global const float *restrict x, global const float *restrict affine,
                                                             global const float *restrict residual,
                                                             global const float *restrict w, global const float *restrict bias,
                                                             global float *restrict y, global float *restrict stats,
                                                             global float *restrict workspace,
                                                             const cvy_conv_depthwise_call call) {
  global float *const ring = workspace + call.slices_at + (size_t)CVY_GROUP * (size_t)call.slice_floats;
  global float *const row_of = ring + call.ring_rows * call.ring_cols * call.block_c,
               *const own = row_of + call.out.w * call.block;
  const bool wants_stats = (call.flags & FLAG_STATS) != 0, neighbours = call.step_w == 1 && call.dilation_w == 1;
  const int blocks = (call.out.pitch + call.block - 1) / call.block, chunks = (call.out.h + call.chunk - 1) / call.chunk;
  const int tasks = call.n * chunks * blocks;
  const int task_begin = (int)((long)tasks * (long)CVY_GROUP / (long)CVY_GROUPS);
  const int task_end = (int)((long)tasks * (long)(CVY_GROUP + 1) / (long)CVY_GROUPS);
  for (int task = task_begin; task < task_end; task++) {
    const int image = task / (chunks * blocks), c0 = task % blocks * call.block, width = min(call.block, call.out.pitch - c0);
    const int in0 = first_of(call, c0), in_width = min(call.block_c, call.in.pitch - in0);
    const int row_begin = task / blocks % chunks * call.chunk, row_end = min(row_begin + call.chunk, call.out.h);
    const int image_at = image * call.in.h * call.in.w * call.in.pitch + in0;
    global const float *const group = affine + image / call.group_size * 3 * call.in.pitch + in0;
    int next = 0;
    fill_zero(ring, call.ring_rows * call.ring_cols * call.block_c);
    for (int i = row_begin; i < row_end; i++) {
      next = load_rows(ring, x + image_at, group, residual + image_at, call, i, next, in_width);
      global float *const out = y + ((size_t)image * call.out.h + i) * (size_t)(call.out.w * call.out.pitch) + c0;
      global float *const to = wants_stats ? row_of : out;
      const int apart = wants_stats ? call.block : call.out.pitch, flags = wants_stats ? 0 : call.flags;
      const int8 taps = taps_of(call, i);
#if CVY_WIDE_REGISTERS && GROUP == 1
      if (neighbours && call.s == 3) gather_row_3(ring, w, bias, call, c0, width, taps, to, apart, flags);
      else if (neighbours && call.s == 5) gather_row_5(ring, w, bias, call, c0, width, taps, to, apart, flags);
      else
#endif
        gather_row_0(ring, w, bias, call, c0, width, taps, to, apart, flags);
      if (!wants_stats) continue;
      for (int c = 0; c < width; c += 16)
        add_row_stats(row_of + c, call.out.w, call.block, (float)(i * call.out.w), own + c, call.block);
      for (int j = 0; j < call.out.w; j++)
        for (int c = 0; c < width; c += 16) {
          const float16 v = CVY_LOAD16(row_of + j * call.block + c);
          if (call.flags & FLAG_STREAM) CVY_STREAM(v, out + j * call.out.pitch + c);
          else CVY_STORE16(v, out + j * call.out.pitch + c);
        }
    }
    for (int c = 0; c < width && wants_stats; c += 16) {
      global float *const to = stats + (size_t)image * 2 * (size_t)call.out.pitch + c0 + c;
      const float16 m2 = CVY_LOAD16(own + 2 * call.block + c);
      CVY_STORE16(CVY_LOAD16(own + c) + CVY_LOAD16(own + call.block + c), to);
      CVY_STORE16(select(m2, (float16)(0.0f), m2 < 0.0f), to + call.out.pitch);
    }
  }
}

/* u[a,b,k,c] = w[a,b,c % channels,c / channels * filters + k]. filters, channels: of a group; u has n rows of
 * `pitch` floats; w_pitch: the pitch of w. Each work-group packs every num_groups-th row. */
kernel CVY_CPU_KERNEL GROUP_OF_ONE void conv2d_depthwise_cpu_pack(global const float *restrict w, global float *restrict u,
                                                                  int n, int all, int channels, int filters, int pitch,
                                                                  int w_pitch) {
  for (int row = (int)CVY_GROUP; row < n; row += (int)CVY_GROUPS)
    for (int c = 0; c < pitch; c++)
      u[row * pitch + c] = c < all ? w[(row / filters * channels + c % channels) * w_pitch + c / channels * filters + row % filters]
                                   : 0.0f;
}

#define TAPS 1
#include "conv2d/conv2d_depthwise_weights_tmpl.clh"
#define TAPS 2
#include "conv2d/conv2d_depthwise_weights_tmpl.clh"
#define TAPS 3
#include "conv2d/conv2d_depthwise_weights_tmpl.clh"
#if CVY_WIDE_REGISTERS && GROUP == 1
#define ROWS 3
#define TAPS 3
#include "conv2d/conv2d_depthwise_window_tmpl.clh"
#define ROWS 2
#define TAPS 5
#include "conv2d/conv2d_depthwise_window_tmpl.clh"
#endif

/* Part p of dw, then of db, goes to workspace + p * (r*s*group_c + 1) * pitch. Slice: the ring, a row of zeros,
 * dw and db of the task. */
kernel CVY_CPU_KERNEL GROUP_OF_ONE void conv2d_depthwise_cpu_weights(global const float *restrict x,
                                                                     global const float *restrict affine,
                                                                     global const float *restrict residual,
                                                                     global const float *restrict dy,
                                                                     global float *restrict workspace,
                                                                     const cvy_conv_depthwise_call call) {
  const int block = call.block, products = call.r * call.s * call.group_c, blocks = (call.out.pitch + block - 1) / block;
  const int line_floats = call.ring_cols * call.block_c, step = call.step_w * call.block_c, dilation = call.dilation_w * call.block_c;
  global float *const ring = workspace + call.slices_at + (size_t)CVY_GROUP * (size_t)call.slice_floats;
  global float *const zeros = ring + call.ring_rows * line_floats, *const own = zeros + line_floats;
  const int tasks = call.parts * blocks;
  const int task_begin = (int)((long)tasks * (long)CVY_GROUP / (long)CVY_GROUPS);
  const int task_end = (int)((long)tasks * (long)(CVY_GROUP + 1) / (long)CVY_GROUPS);
  for (int task = task_begin; task < task_end; task++) {
    const int part = task / blocks, c0 = task % blocks * block, width = min(block, call.out.pitch - c0);
    const int in0 = first_of(call, c0), in_width = min(call.block_c, call.in.pitch - in0);
    const int rows = call.n * call.out.h;
    const int begin = (int)((long)rows * part / call.parts), end = (int)((long)rows * (part + 1) / call.parts);
    int next = 0, image = -1;
    fill_zero(ring, (call.ring_rows + 1) * line_floats);
    fill_zero(own, (products + 1) * block);
    for (int at = begin; at < end; at++) {
      const int i = at % call.out.h;
      if (at / call.out.h != image) image = at / call.out.h, next = 0;
      const int image_at = image * call.in.h * call.in.w * call.in.pitch + in0;
      next = load_rows(ring, x + image_at, affine + image / call.group_size * 3 * call.in.pitch + in0, residual + image_at,
                       call, i, next, in_width);
      global const float *const from = dy + (size_t)at * (size_t)(call.out.w * call.out.pitch) + c0;
      for (int c = 0; c < width; c += 16) {
        float16 sum = (float16)(0.0f);
        for (int j = 0; j < call.out.w; j++) {
          CVY_FETCH_NEAR(from + (call.out.w + j) * call.out.pitch + c); /* the row below is next */
          sum += CVY_LOAD16(from + j * call.out.pitch + c);
        }
        CVY_STORE16(CVY_LOAD16(own + products * block + c) + sum, own + products * block + c);
#if CVY_WIDE_REGISTERS && GROUP == 1
        if (step == block && dilation == block && (call.s == 3 || call.s == 5)) {
          if (call.s == 3) window_3_3(ring + c, zeros + c, from + c, call, i, own + c);
          else window_2_5(ring + c, zeros + c, from + c, call, i, own + c);
          continue;
        }
#endif
        for (int a = 0; a < call.r; a++) {
          const int row = i * call.step_h + call.first_h + a * call.dilation_h;
          if (row < 0 || row >= call.in.h) continue;
          global const float *line = ring + row % call.ring_rows * line_floats + first_of(call, c);
          for (int b = 0, some; b < call.s; b += some, line += some * dilation) {
            some = min(call.s - b, 3);
#if GROUP == 16
            for (int e = 0; e < call.group_c; e++) {
#else
#pragma unroll
            for (int e = 0; e < GROUP; e++) {
#endif
              global float *const to = own + ((a * call.s + b) * call.group_c + e) * block + c;
              const int apart = call.group_c * block;
              if (some == 3) weights_3(e, line, from + c, call, to, apart);
              else if (some == 2) weights_2(e, line, from + c, call, to, apart);
              else weights_1(e, line, from + c, call, to, apart);
            }
          }
        }
      }
    }
    global float *const to = workspace + (size_t)part * (size_t)((products + 1) * call.out.pitch) + c0;
    for (int t = 0; t <= products; t++)
      for (int c = 0; c < width; c += 16) CVY_STORE16(CVY_LOAD16(own + t * block + c), to + t * call.out.pitch + c);
  }
}
