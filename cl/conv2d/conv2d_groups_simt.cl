/* SPDX-License-Identifier: MIT
 * Convolutions with groups or dilation on SIMT devices (src/ops/conv2d/conv2d.h): depthwise ones, and groups of multiples of four
 * channels and filters. Each loaded number takes part in few products, so loads bound these kernels. Each item keeps
 * the numbers that its products share in registers, and no product waits for a barrier.
 *   first(k) = k / group_k * group_c
 *   y[m,i,j,k]          = bias[k] + sum_{a,b,c} f(x)[m, i*stride + a*dilation - pad, …, first(k) + c] * w[a,b,c,k]
 *   dx[m,h,v,first + c] = sum_{a,b,k of the group} dy[m,i,j,k] * w[a,b,c,k]   where i*stride + a*dilation - pad = h, …
 *   dw[a,b,c,k]         = sum_{m,i,j} f(x)[…, first(k) + c] * dy[m,i,j,k], in `parts` of y's rows, which conv2d_grouped_sum adds up
 *
 * conv2d_groups_simt (forward, and backward_data with TURNED): an item makes TILE results of a row, of VEC channels. For each row of
 * the filter and four channels of the group it reads the pixels under the tile once, and each weight once. With a
 * stride, a tile of the gradient has every SPREAD-th column, so that all its columns read the same taps. Neighbouring
 * items take neighbouring channels, then neighbouring rows, which share pixels in the first-level cache. Order of a
 * sum: channels in fours, rows and columns of the filter, channels.
 * conv2d_groups_simt_weights: an item takes VEC filters, and with GROUP 4 four channels and one row of the filter. It goes along rows
 * of y, and the pixels under the filter move through its registers: two loads for TAPS_S * 16 products. SIDES items
 * share the rows of a part; their sums are added in local memory, in the items' order.
 *
 *   GROUP [1]             1: depthwise; 4: groups of multiples of four
 *   VEC [4]               floats of a vector; 1 only with GROUP 1
 *   TURNED [0]            1: backward_data
 *   TILE [4]              results of an item
 *   TAPS_S [3]            columns of the filter; with WINDOW 0 only for backward_weights
 *   STEP [1]              columns from one result to the next: of x, or with TURNED of dx (SPREAD above)
 *   WINDOW [1]            1: dilation_w is 1, and registers hold the pixels under a tile; 0: each tap reads its own
 *   ROWS [1]              filter rows that an item of backward_weights takes: 1, or with GROUP 1 all rows
 *   LANES [32]            vectors of filters of a work-group of backward_weights
 *   PROLOGUE [0]          1: there is a load prologue; `flags` says which: 1 mean, scale and shift, 2 ReLU, 3 both; 2: with a residual,
 *                         `flags` alike */
#include "vector.clh"
#include "conv2d_args.clh"
#include "conv2d/conv2d_flags.clh"
#include "fastdiv.clh"

#ifndef GROUP
#define GROUP 1
#endif
#ifndef TURNED
#define TURNED 0
#endif
#ifndef TILE
#define TILE 4
#endif
#ifndef TAPS_S
#define TAPS_S 3
#endif
#ifndef STEP
#define STEP 1
#endif
#ifndef WINDOW
#define WINDOW 1
#endif
#ifndef ROWS
#define ROWS 1
#endif
#ifndef LANES
#define LANES 32
#endif
#ifndef PROLOGUE
#define PROLOGUE 0
#endif
#if (GROUP != 1 && GROUP != 4) || (GROUP == 4 && VEC != 4)
#error "GROUP is to be 1, or 4 with VEC 4"
#endif
#if LANES < 1 || LANES > LOCAL || (LANES & (LANES - 1)) != 0
#error "LANES is to be a power of two up to LOCAL"
#endif

/* Where the host limits registers, a kernel that declares its work-group size would ignore the limit
 * (gemm_core.clh). */
#ifdef CVY_REGISTER_LIMIT
#define GROUPS_KERNEL kernel void
#else
#define GROUPS_KERNEL CVY_KERNEL
#endif

/* VEC channels of a pixel through the load prologue; zeros outside the image. affine: the sample's, of these
 * channels. */
static inline floatv read_pixel(global const float *x, global const float *residual, global const float *affine, int at, int there,
                                int pitch, int flags) {
  floatv v = (floatv)(0.0f);
  if (there) {
    v = *(global const floatv *)(x + at);
#if PROLOGUE
    if (flags & FLAG_SCALE)
      v = fma(v - *(global const floatv *)affine, *(global const floatv *)(affine + pitch), *(global const floatv *)(affine + 2 * pitch));
#if PROLOGUE == 2
    v += *(global const floatv *)(residual + at);
#endif
    if (flags & FLAG_RELU) v = v < 0.0f ? (floatv)(0.0f) : v;
#endif
  }
  return v;
}

#if TURNED
#define MOST_TAPS ((TAPS_S + STEP - 1) / STEP) /* of a column of dx */
#define PIXELS (TILE + MOST_TAPS - 1)
#define PIXEL_OF(tap, t) (MOST_TAPS - 1 - (tap) + (t))
#else
#define MOST_TAPS TAPS_S
#define PIXELS ((TILE - 1) * STEP + TAPS_S)
#define PIXEL_OF(tap, t) ((t) * STEP + (tap))
#endif

/* sum += the products of one pixel and the weights of one tap, which lie at w; pitch: distance of two channels of
 * the group. */
static inline floatv add_products(floatv sum, floatv v, const floatv *w) {
#if GROUP == 1
  return fma(v, w[0], sum);
#elif TURNED
  sum.x = fma(v.w, w[0].w, fma(v.z, w[0].z, fma(v.y, w[0].y, fma(v.x, w[0].x, sum.x))));
  sum.y = fma(v.w, w[1].w, fma(v.z, w[1].z, fma(v.y, w[1].y, fma(v.x, w[1].x, sum.y))));
  sum.z = fma(v.w, w[2].w, fma(v.z, w[2].z, fma(v.y, w[2].y, fma(v.x, w[2].x, sum.z))));
  sum.w = fma(v.w, w[3].w, fma(v.z, w[3].z, fma(v.y, w[3].y, fma(v.x, w[3].x, sum.w))));
  return sum;
#else
  return fma((floatv)(v.w), w[3], fma((floatv)(v.z), w[2], fma((floatv)(v.y), w[1], fma((floatv)(v.x), w[0], sum))));
#endif
}

/* from: x, or dy if TURNED; to: y, or dx. */
GROUPS_KERNEL conv2d_groups_simt(global const float *restrict from, global const float *restrict affine,
                              global const float *restrict residual, global const float *restrict w,
                              global const float *restrict bias, global float *restrict to, const cvy_conv_groups_call call) {
#if TURNED
  const int from_h = call.out.h, from_w = call.out.w, from_pitch = call.out.pitch, depth = call.group_k;
  const int to_h = call.in.h, to_w = call.in.w, to_c = call.in.c, to_pitch = call.in.pitch, width = call.group_c;
#else
  const int from_h = call.in.h, from_w = call.in.w, from_pitch = call.in.pitch, depth = call.group_c;
  const int to_h = call.out.h, to_w = call.out.w, to_c = call.out.c, to_pitch = call.out.pitch, width = call.group_k;
#endif
  for (uint id = get_global_id(0); id < (uint)call.results; id += get_global_size(0)) {
    const int place = fast_div((int)id, call.by_vecs), c = ((int)id - place * (to_pitch / VEC)) * VEC;
    const int strip = fast_div(place, call.by_rows), i = place - strip * to_h;
    const int image = fast_div(strip, call.by_tiles);
#if TURNED && WINDOW
    const int tiles = (to_w + STEP * TILE - 1) / (STEP * TILE) * STEP, tile = strip - image * tiles;
    const int phase = tile % STEP, j0 = phase + tile / STEP * (STEP * TILE);
    const int first_tap = (phase + call.filter.pad_w) % STEP;
    const int left = (j0 + call.filter.pad_w - first_tap) / STEP - (MOST_TAPS - 1); /* column of dy under pixel 0 */
#else
    const int tiles = (to_w + TILE - 1) / TILE, j0 = (strip - image * tiles) * TILE, first_tap = 0;
    const int left = j0 * STEP - call.filter.pad_w;
#endif
#if GROUP == 1
    const int within = 0, first = c;
#else
    const int group = fast_div(c, call.by_width), within = c - group * width, first = group * depth;
#endif
    const int image_at = image * from_h * from_w * from_pitch + first;
    global const float *const own = affine + fast_div(image, call.by_group) * 3 * from_pitch + first;
    floatv sum[TILE];
#pragma unroll
    for (int t = 0; t < TILE; t++) sum[t] = (floatv)(0.0f);
    for (int e = 0; e < depth && c < to_c; e += GROUP) {
      for (int a = 0; a < call.filter.r; a++) {
#if TURNED
        const int top = i + call.filter.pad_h - a * call.dilation_h, row = top / call.filter.stride_h;
        if (top < 0 || row * call.filter.stride_h != top || row >= from_h) continue;
        global const float *const u = w + (a * call.filter.s * call.group_c + within) * call.out.pitch + first + e;
#else
        const int row = i * call.filter.stride_h + a * call.dilation_h - call.filter.pad_h;
        if (row < 0 || row >= from_h) continue;
        global const float *const u = w + (a * call.filter.s * call.group_c + e) * call.out.pitch + c;
#endif
        const int row_at = image_at + row * from_w * from_pitch + e;
#define READ_PIXEL(col, there) \
  read_pixel(from, residual, own + e, row_at + (col) * from_pitch, (there) && (col) >= 0 && (col) < from_w, from_pitch, call.flags)
#define READ_WEIGHTS(b)                                                          \
  floatv weights[GROUP];                                                         \
  _Pragma("unroll") for (int g = 0; g < GROUP; g++)                              \
    weights[g] = *(global const floatv *)(u + ((b) * call.group_c + g) * call.out.pitch);
#if WINDOW
        floatv pixel[PIXELS];
#pragma unroll
        for (int p = 0; p < PIXELS; p++) pixel[p] = READ_PIXEL(left + p, 1);
#pragma unroll
        for (int tap = 0; tap < MOST_TAPS; tap++) {
          const int b = first_tap + tap * (TURNED ? STEP : 1);
          if (MOST_TAPS * STEP != TAPS_S && TURNED && b >= TAPS_S) continue;
          READ_WEIGHTS(b)
#pragma unroll
          for (int t = 0; t < TILE; t++) sum[t] = add_products(sum[t], pixel[PIXEL_OF(tap, t)], weights);
        }
#else
        for (int b = 0; b < call.filter.s; b++) {
          READ_WEIGHTS(b)
#pragma unroll
          for (int t = 0; t < TILE; t++) {
#if TURNED
            const int across = j0 + t + call.filter.pad_w - b * call.dilation_w, col = across / call.filter.stride_w;
            const int there = across >= 0 && col * call.filter.stride_w == across;
#else
            const int col = (j0 + t) * call.filter.stride_w + b * call.dilation_w - call.filter.pad_w, there = 1;
#endif
            sum[t] = add_products(sum[t], READ_PIXEL(col, there), weights);
          }
        }
#endif
      }
    }
    const floatv more = call.flags & FLAG_BIAS ? *(global const floatv *)(bias + c) : (floatv)(0.0f);
#pragma unroll
    for (int t = 0; t < TILE; t++) {
      const int j = j0 + t * (TURNED && WINDOW ? STEP : 1);
      if (j >= to_w) continue;
      global floatv *const result = (global floatv *)(to + ((image * to_h + i) * to_w + j) * to_pitch + c);
      *result = call.flags & FLAG_ACCUMULATE ? *result + sum[t] : sum[t] + more;
    }
  }
}

#define SIDES (LOCAL / LANES)
#define KEPT (WINDOW && TAPS_S > STEP ? TAPS_S - STEP : 0) /* pixels of a row that the next position reads again */

/* Part p of dw goes to dw + p * taps * group_c * pitch. Group number = first row of the filter (in ROWS) + … * (channels in fours + …
 * * (block of LANES vectors of filters + … * part)). */
GROUPS_KERNEL conv2d_groups_simt_weights(global const float *restrict x, global const float *restrict affine,
                                      global const float *restrict residual, global const float *restrict dy,
                                      global float *restrict dw, const cvy_conv_groups_call call) {
  local floatv sums[LOCAL];
  const int item = get_local_id(0), side = item / LANES;
  const int row_steps = (call.filter.r + ROWS - 1) / ROWS, depths = call.group_c / GROUP,
            blocks = (call.out.pitch / VEC + LANES - 1) / LANES;
  int number = get_group_id(0);
  const int a0 = number % row_steps * ROWS;
  number /= row_steps;
  const int e = number % depths * GROUP;
  number /= depths;
  const int k = (number % blocks * LANES + item % LANES) * VEC, part = number / blocks;
  const int there = k < call.out.c;
#if GROUP == 1
  const int c = k;
#else
  const int c = fast_div(k, call.by_width) * call.group_c + e;
#endif
  floatv sum[ROWS * TAPS_S * GROUP];
#pragma unroll
  for (int t = 0; t < ROWS * TAPS_S * GROUP; t++) sum[t] = (floatv)(0.0f);
  const int begin = part * call.part_lines, end = min(begin + call.part_lines, call.n * call.out.h);
  for (int line = begin + side; line < end && there; line += SIDES) {
    const int image = fast_div(line, call.by_rows), i = line - image * call.out.h;
    global const float *const own = affine + fast_div(image, call.by_group) * 3 * call.in.pitch + c;
    int row_at[ROWS], row_there[ROWS];
#pragma unroll
    for (int a = 0; a < ROWS; a++) {
      const int row = i * call.filter.stride_h + (a0 + a) * call.dilation_h - call.filter.pad_h;
      row_there[a] = row >= 0 && row < call.in.h;
      row_at[a] = (image * call.in.h + row) * call.in.w * call.in.pitch + c;
    }
    floatv pixel[ROWS][TAPS_S];
#define READ_UNDER(a, col) \
  read_pixel(x, residual, own, row_at[a] + (col) * call.in.pitch, row_there[a] && (col) >= 0 && (col) < call.in.w, call.in.pitch, call.flags)
#if KEPT
#pragma unroll
    for (int a = 0; a < ROWS; a++)
#pragma unroll
      for (int b = 0; b < KEPT; b++) pixel[a][b + STEP] = READ_UNDER(a, b - call.filter.pad_w);
#endif
    for (int j = 0; j < call.out.w; j++) {
      const floatv d = *(global const floatv *)(dy + (line * call.out.w + j) * call.out.pitch + k);
#pragma unroll
      for (int a = 0; a < ROWS; a++) {
#pragma unroll
        for (int b = 0; b < TAPS_S; b++)
          pixel[a][b] = b < KEPT ? pixel[a][(b + STEP) % TAPS_S]
                                 : READ_UNDER(a, j * call.filter.stride_w + b * call.dilation_w - call.filter.pad_w);
#pragma unroll
        for (int b = 0; b < TAPS_S; b++) {
#if GROUP == 1
          sum[a * TAPS_S + b] = fma(pixel[a][b], d, sum[a * TAPS_S + b]);
#else
          const int at = (a * TAPS_S + b) * 4;
          const float4 v = pixel[a][b];
          sum[at] = fma((floatv)(v.x), d, sum[at]), sum[at + 1] = fma((floatv)(v.y), d, sum[at + 1]);
          sum[at + 2] = fma((floatv)(v.z), d, sum[at + 2]), sum[at + 3] = fma((floatv)(v.w), d, sum[at + 3]);
#endif
        }
      }
    }
  }
#pragma unroll
  for (int t = 0; t < ROWS * TAPS_S * GROUP; t++) {
    const int tap = a0 * TAPS_S + t / GROUP;
    sums[item] = sum[t];
    barrier(CLK_LOCAL_MEM_FENCE);
    if (side == 0 && k < call.out.pitch && tap < call.filter.r * TAPS_S) {
      floatv total = sums[item];
      for (int s = 1; s < SIDES; s++) total += sums[s * LANES + item];
      global floatv *const result =
          (global floatv *)(dw + ((part * call.filter.r * TAPS_S + tap) * call.group_c + e + t % GROUP) * call.out.pitch + k);
      *result = call.flags & FLAG_ACCUMULATE ? *result + total : total;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
  }
}
