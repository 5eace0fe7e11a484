/* SPDX-License-Identifier: MIT
 * Convolution of few channels, ReLU and 2x2 average pool in one (src/ops/conv2d/convpool.h), on CPU-shaped devices:
 * for the first layer of a network, which has few multiplications, and in which the pool's input would be most of the
 * memory traffic.
 *
 * Geometry: one work-item per work-group, which walks over a contiguous range of tasks with its own slice of the
 * workspace. A task is a row of windows. Its input, zero-padded and with dense channels, is copied to the slice:
 * taps_h + 1 rows of `line` = (2*pooled_w + taps_w - 1) * C floats, so that for a filter row the (column, channel)
 * products of a position run over contiguous memory.
 *   forward   register tile: 3 windows (12 positions) x 2 vectors of output channels (CVY_VECTOR_FLOATS 8: one x 1)
 *   weights   the windows' gradients are made first, (2 rows, 2*pooled_w columns, 32); register tile: 9 taps (r,s,c) x 2
 *             vectors (5 x 1), summed over the row's positions, and added to the group's dw. convpool_direct_finish
 *             adds up the slices' dw.
 * Slice: the copy, and 16 floats beyond it that whole vectors may touch; weights: the gradients, offsets of the taps
 * in the copy, dw (taps rows of y_pitch), sums of the gradients (y_pitch). */
#include "conv2d/convpool.clh"

/* Copies rows h0 … h0+rows-1 of an image, columns w0 … w0+cols-1; positions outside the image are zero. */
static void load_rows(global float *to, global const float *x, int h0, int rows, int w0, int cols, int in_h, int in_w,
                      int c, int pitch) {
  for (int h = h0; h < h0 + rows; h++, to += cols * c) {
    const bool inside = h >= 0 && h < in_h;
    const int left = inside ? clamp(-w0, 0, cols) : cols, right = inside ? clamp(in_w - w0, left, cols) : cols;
    global const float *from = x + (h * in_w + w0) * pitch;
    for (int i = 0; i < left * c; i++) to[i] = 0.0f;
    if (pitch == c) {
      int i = left * c;
      for (; i + 16 <= right * c; i += 16) vstore16(vload16(0, from + i), 0, to + i);
      for (; i < right * c; i++) to[i] = from[i];
    } else {
      for (int w = left; w < right; w++)
        for (int i = 0; i < c; i++) to[w * c + i] = from[w * pitch + i];
    }
    for (int i = right * c; i < cols * c; i++) to[i] = 0.0f;
  }
}

/* Register tiles of 1 or 3 windows x 1 or 2 vectors of output channels. Window i has the positions (row 0, columns
 * 2i and 2i + 1) and (row 1, columns 2i and 2i + 1): sums s (t) of positions 4i … 4i + 3. */
#define WINDOW_COLUMNS(i) global const float *x##i##0 = strip + 2 * i * c, *x##i##1 = strip + (2 * i + 1) * c;
#define FOUR_ZEROS(sum) sum##0 = (float16)(0.0f), sum##1 = sum##0, sum##2 = sum##0, sum##3 = sum##0
#define WINDOW_START_1(i) float16 FOUR_ZEROS(s##i);
#define WINDOW_START_2(i) WINDOW_START_1(i) float16 FOUR_ZEROS(t##i);
#define POSITION_1(i, p, at) const float16 v##i##p = (float16)(at); s##i##p = v##i##p * u0 + s##i##p;
#define POSITION_2(i, p, at) POSITION_1(i, p, at) t##i##p = v##i##p * u1 + t##i##p;
#define WINDOW_FMA_1(i)                                                                                                \
  POSITION_1(i, 0, x##i##0[e]) POSITION_1(i, 1, x##i##1[e]) POSITION_1(i, 2, x##i##0[e + line])                        \
  POSITION_1(i, 3, x##i##1[e + line])
#define WINDOW_FMA_2(i)                                                                                                \
  POSITION_2(i, 0, x##i##0[e]) POSITION_2(i, 1, x##i##1[e]) POSITION_2(i, 2, x##i##0[e + line])                        \
  POSITION_2(i, 3, x##i##1[e + line])
#define FOUR_PLUS(sum, b) sum##0 + b, sum##1 + b, sum##2 + b, sum##3 + b
#define WINDOW_STORE_1(i) store_window(FOUR_PLUS(s##i, b0), y + i * pitch, mask ? mask + i * pitch : 0);
#define WINDOW_STORE_2(i)                                                                                              \
  WINDOW_STORE_1(i)                                                                                                    \
  store_window(FOUR_PLUS(t##i, b1), y + i * pitch + 16, mask ? mask + i * pitch + 16 : 0);
#define WINDOWS_1(M) M(0)
#define WINDOWS_3(M) M(0) M(1) M(2)
#define BIAS_1 const float16 b0 = bias ? vload16(0, bias) : (float16)(0.0f);
#define BIAS_2 BIAS_1 const float16 b1 = bias ? vload16(1, bias) : (float16)(0.0f);
#define WEIGHTS_1 const float16 u0 = vload16(0, w);
#define WEIGHTS_2 WEIGHTS_1 const float16 u1 = vload16(1, w);

/* strip: the first pixel of the first window. */
#define DEFINE_WINDOWS(windows, vecs)                                                                                  \
  static void windows_##windows##x##vecs(global const float *strip, int line, int c, int taps_h, int run,              \
                                         global const float *w, global const float *bias, global float *y,             \
                                         global uchar *mask, int pitch) {                                              \
    WINDOWS_##windows(WINDOW_START_##vecs)                                                                             \
    for (int a = 0; a < taps_h; a++, strip += line) {                                                                  \
      WINDOWS_##windows(WINDOW_COLUMNS)                                                                                \
      for (int e = 0; e < run; e++, w += pitch) {                                                                      \
        WEIGHTS_##vecs WINDOWS_##windows(WINDOW_FMA_##vecs)                                                            \
      }                                                                                                                \
    }                                                                                                                  \
    BIAS_##vecs WINDOWS_##windows(WINDOW_STORE_##vecs)                                                                 \
  }
#if CVY_WIDE_REGISTERS
DEFINE_WINDOWS(3, 2)
DEFINE_WINDOWS(1, 2)
DEFINE_WINDOWS(3, 1)
#endif
DEFINE_WINDOWS(1, 1)

kernel CVY_CPU_KERNEL GROUP_OF_ONE void
convpool_direct_forward(global const float *restrict x, global const float *restrict w, global const float *restrict bias,
                        global float *restrict y, global uchar *restrict mask, global float *restrict workspace, int n,
                        int in_h, int in_w, int in_c, int x_pitch, int pooled_h, int pooled_w, int y_pitch, int taps_h,
                        int taps_w, int pad_h, int pad_w, int slice_floats, int flags) {
  global float *strip = workspace + (size_t)CVY_GROUP * (size_t)slice_floats;
  const int cols = 2 * pooled_w + taps_w - 1, line = cols * in_c, run = taps_w * in_c, tasks = n * pooled_h;
  const int begin = (int)((long)tasks * (long)CVY_GROUP / (long)CVY_GROUPS);
  const int end = (int)((long)tasks * (long)(CVY_GROUP + 1) / (long)CVY_GROUPS);
  for (int task = begin; task < end; task++) {
    load_rows(strip, x + task / pooled_h * in_h * in_w * x_pitch, task % pooled_h * 2 - pad_h, taps_h + 1, -pad_w, cols,
              in_h, in_w, in_c, x_pitch);
    for (int k = 0; k < y_pitch; k += CVY_WIDE_REGISTERS ? 32 : 16) {
      global const float *b = flags & FLAG_BIAS ? bias + k : 0;
      for (int j = 0; j < pooled_w;) {
        global const float *from = strip + 2 * j * in_c;
        const int at = (task * pooled_w + j) * y_pitch + k;
        global uchar *bits = flags & FLAG_MASK ? mask + at : 0;
#if CVY_WIDE_REGISTERS
        const bool wide = y_pitch - k >= 32;
        const int some = pooled_w - j >= 3 ? 3 : 1;
        if (wide && some > 1)
          windows_3x2(from, line, in_c, taps_h, run, w + k, b, y + at, bits, y_pitch);
        else if (wide)
          windows_1x2(from, line, in_c, taps_h, run, w + k, b, y + at, bits, y_pitch);
        else if (some > 1)
          windows_3x1(from, line, in_c, taps_h, run, w + k, b, y + at, bits, y_pitch);
        else
          windows_1x1(from, line, in_c, taps_h, run, w + k, b, y + at, bits, y_pitch);
        j += some;
#else
        windows_1x1(from, line, in_c, taps_h, run, w + k, b, y + at, bits, y_pitch);
        j++;
#endif
      }
    }
  }
}

#define TAPS_1(M) M(0)
#define TAPS_5(M) TAPS_1(M) M(1) M(2) M(3) M(4)
#define TAPS_9(M) TAPS_5(M) M(5) M(6) M(7) M(8)
#define TAP_START_1(i)                                                                                                 \
  global const float *x##i = strip + offset[i];                                                                        \
  float16 s##i = vload16(0, dw + i * pitch);
#define TAP_START_2(i) TAP_START_1(i) float16 t##i = vload16(1, dw + i * pitch);
#define TAP_FMA_1(i) const float16 v##i = (float16)(x##i[at]); s##i = v##i * g0 + s##i;
#define TAP_FMA_2(i) TAP_FMA_1(i) t##i = v##i * g1 + t##i;
#define TAP_STORE_1(i) vstore16(s##i, 0, dw + i * pitch);
#define TAP_STORE_2(i) TAP_STORE_1(i) vstore16(t##i, 1, dw + i * pitch);
#define GRADIENT_1 const float16 g0 = vload16(0, gradient);
#define GRADIENT_2 GRADIENT_1 const float16 g1 = vload16(1, gradient);

/* dw of 1, 5 or 9 taps x 1 or 2 vectors over 2 x cols positions. */
#define TAPS_ARGS                                                                                                      \
  global const float *strip, int line, int c, global const int *offset, global const float *gradient, int cols,        \
      global float *dw, int pitch
#define DEFINE_TAPS(taps, vecs)                                                                                        \
  static void taps_##taps##x##vecs(TAPS_ARGS) {                                                                        \
    TAPS_##taps(TAP_START_##vecs)                                                                                      \
    for (int i = 0; i < 2; i++)                                                                                        \
      for (int q = 0, at = i * line; q < cols; q++, at += c, gradient += 32) {                                         \
        GRADIENT_##vecs TAPS_##taps(TAP_FMA_##vecs)                                                                    \
      }                                                                                                                \
    TAPS_##taps(TAP_STORE_##vecs)                                                                                      \
  }
#if CVY_WIDE_REGISTERS
DEFINE_TAPS(9, 2)
DEFINE_TAPS(5, 2)
DEFINE_TAPS(1, 2)
DEFINE_TAPS(9, 1)
#endif
DEFINE_TAPS(5, 1)
DEFINE_TAPS(1, 1)

/* Places in the slice: gradients, offsets (taps rounded up to 16), dw and sums. FLAG_BIAS: the sums are computed,
 * too. */
kernel CVY_CPU_KERNEL GROUP_OF_ONE void
convpool_direct_gradient(global const float *restrict x, global const float *restrict dy,
                         global const uchar *restrict mask, global float *restrict workspace, int n, int in_h, int in_w,
                         int in_c, int x_pitch, int pooled_h, int pooled_w, int y_pitch, int taps_h, int taps_w,
                         int pad_h, int pad_w, int slice_floats, int gradient_at, int offset_at, int own_at, int flags) {
  global float *strip = workspace + (size_t)CVY_GROUP * (size_t)slice_floats, *gradient = strip + gradient_at;
  global int *offset = (global int *)(strip + offset_at);
  const int taps = taps_h * taps_w * in_c, cols = 2 * pooled_w + taps_w - 1, line = cols * in_c, run = taps_w * in_c;
  global float *own = strip + own_at, *sums = own + taps * y_pitch;
  const int tasks = n * pooled_h;
  const int begin = (int)((long)tasks * (long)CVY_GROUP / (long)CVY_GROUPS);
  const int end = (int)((long)tasks * (long)(CVY_GROUP + 1) / (long)CVY_GROUPS);
  for (int t = 0; t < taps; t++) offset[t] = t / run * line + t % run;
  for (int i = 0; i < (taps + 1) * y_pitch; i += 16) vstore16((float16)(0.0f), 0, own + i);
  for (int task = begin; task < end; task++) {
    load_rows(strip, x + task / pooled_h * in_h * in_w * x_pitch, task % pooled_h * 2 - pad_h, taps_h + 1, -pad_w, cols,
              in_h, in_w, in_c, x_pitch);
    for (int k = 0; k < y_pitch; k += 32) {
      const int vecs = min((y_pitch - k) / 16, 2);
      for (int v = 0; v < vecs; v++) {
        float16 all = vload16(0, sums + k + v * 16);
        for (int j = 0; j < pooled_w; j++) {
          const int from = (task * pooled_w + j) * y_pitch + k + v * 16;
          global float *to = gradient + j * 64 + v * 16;
          float16 g[4];
          load_window(dy + from, mask + from, g);
          vstore16(g[0], 0, to), vstore16(g[1], 0, to + 32);
          vstore16(g[2], 0, to + pooled_w * 64), vstore16(g[3], 0, to + pooled_w * 64 + 32);
          all += (g[0] + g[1]) + (g[2] + g[3]);
        }
        vstore16(all, 0, sums + k + v * 16);
      }
      for (int t = 0; t < taps;) {
        global float *to = own + t * y_pitch + k;
        const int positions = 2 * pooled_w;
#if CVY_WIDE_REGISTERS
        const int some = taps - t >= 9 ? 9 : taps - t >= 5 ? 5 : 1;
        if (vecs == 2 && some == 9) taps_9x2(strip, line, in_c, offset + t, gradient, positions, to, y_pitch);
        else if (vecs == 2 && some == 5) taps_5x2(strip, line, in_c, offset + t, gradient, positions, to, y_pitch);
        else if (vecs == 2) taps_1x2(strip, line, in_c, offset + t, gradient, positions, to, y_pitch);
        else if (some == 9) taps_9x1(strip, line, in_c, offset + t, gradient, positions, to, y_pitch);
        else if (some == 5) taps_5x1(strip, line, in_c, offset + t, gradient, positions, to, y_pitch);
        else taps_1x1(strip, line, in_c, offset + t, gradient, positions, to, y_pitch);
#else
        const int some = taps - t >= 5 ? 5 : 1;
        for (int v = 0; v < vecs * 16; v += 16)
          if (some == 5) taps_5x1(strip, line, in_c, offset + t, gradient + v, positions, to + v, y_pitch);
          else taps_1x1(strip, line, in_c, offset + t, gradient + v, positions, to + v, y_pitch);
#endif
        t += some;
      }
    }
  }
}

/* Adds up the slices of `parts` work-groups → dw, db. Each work-group takes a range of vectors: dw, then the sums. */
kernel CVY_CPU_KERNEL GROUP_OF_ONE void convpool_direct_finish(global const float *restrict workspace,
                                                               global float *restrict dw, global float *restrict db,
                                                               int taps, int pitch, int parts, int own_at,
                                                               int slice_floats, int flags) {
  const int in_dw = taps * pitch / 16, all = in_dw + (flags & FLAG_BIAS ? pitch / 16 : 0);
  const int begin = (int)((long)all * (long)CVY_GROUP / (long)CVY_GROUPS);
  const int end = (int)((long)all * (long)(CVY_GROUP + 1) / (long)CVY_GROUPS);
  for (int i = begin; i < end; i++)
    sum_parts(workspace + own_at + i * 16, parts, slice_floats, (flags & FLAG_ACCUMULATE) != 0,
              i < in_dw ? dw + i * 16 : db + (i - in_dw) * 16);
}
