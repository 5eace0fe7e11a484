/* SPDX-License-Identifier: MIT
 * The kernels around clFFT's transforms (ops/conv2d/conv2d_fft.c): tensors → real planes, sums of products of spectra, real
 * planes → tensors.
 *
 * A plane has `rows` x `width` floats, dense, zero outside the stored values; a spectrum has `points` complex numbers
 * (re, im), a multiple of 8, of which those after the last frequency are unused.
 *   conv2d_fft_load         planes[image - first, c - c0][h, w] = f(x)[image, h + crop_h, w + crop_w, c] where that is
 *                           inside the image; f: load prologue of ops/conv2d/conv2d.h
 *   conv2d_fft_load_filter  planes[c - c0, k - k0][r, s] = w[r, s, c, k]
 *   conv2d_fft_multiply     out[i, j] (+)= sum over l, ascending, of a[i, l] * b[l, j], or its conjugate: b_conjugate
 *   conv2d_fft_store        y[image, h, w, c] (+)= planes[image - first, c - c0][place(h), place(w)] + bias[c];
 *                           place(h) = (h - skip_h + shift_h) mod rows, and 0 unless 0 <= h - skip_h < valid_h
 *   conv2d_fft_store_filter dw[r, s, c, k] (+)= planes[c - c0, k - k0][(r + shift_h) mod rows, (s + shift_w) mod width]
 * The padding channels are stored as 0 together with the last channels; accumulation leaves them unchanged.
 *
 * Geometry. Loads and stores: one float after the other, neighbours in a row of a plane (loads) or in the channels of a
 * pixel (stores); CPU: `chunk` of them per work-group. multiply: a tile of TILE_I x TILE_J results at a frequency
 * (SIMT, one work-item) or at eight (CPU, one float16); tiles beyond the edge repeat the last row or column. */
#define VEC 1
#include "conv2d/conv2d_flags.clh"
#include "fastdiv.clh"
#include "vector.clh"

/* n = images * rows * channels * width, `width` fastest, then channels. */
CVY_KERNEL conv2d_fft_load(global const float *restrict x, global const float *restrict affine,
                           global const float *restrict residual, global float *restrict planes, const int n,
                           const int chunk, const int first, const int c0, const int channels, const int rows,
                           const int width, const int in_h, const int in_w, const int pitch, const int used_h,
                           const int used_w, const int crop_h, const int crop_w, const cvy_divider by_width,
                           const cvy_divider by_c, const cvy_divider by_rows, const cvy_divider by_group,
                           const int flags) {
  CVY_FOR_EACH_VECTOR(i, n, chunk) {
    const int line = fast_div((int)i, by_width), w = (int)i - line * width;
    const int pixel_row = fast_div(line, by_c), c = line - pixel_row * channels;
    const int image = fast_div(pixel_row, by_rows), h = pixel_row - image * rows;
    float v = 0.0f;
    if (h < used_h && w < used_w) {
      const int sample = first + image, at = ((sample * in_h + h + crop_h) * in_w + w + crop_w) * pitch + c0 + c;
      v = x[at];
      if (flags & FLAG_SCALE) {
        const int channel = fast_div(sample, by_group) * 3 * pitch + c0 + c;
        v = fma(v - affine[channel], affine[channel + pitch], affine[channel + 2 * pitch]);
      }
      if (flags & FLAG_RESIDUAL) v += residual[at];
      if (flags & FLAG_RELU) v = v < 0.0f ? 0.0f : v;
    }
    planes[((image * channels + c) * rows + h) * width + w] = v;
  }
}

/* n = channels * rows * filters * width, `width` fastest, then filters. */
CVY_KERNEL conv2d_fft_load_filter(global const float *restrict weights, global float *restrict planes, const int n,
                                  const int chunk, const int c0, const int k0, const int filters, const int rows,
                                  const int width, const int filter_r, const int filter_s, const int in_c,
                                  const int pitch, const cvy_divider by_width, const cvy_divider by_k,
                                  const cvy_divider by_rows) {
  CVY_FOR_EACH_VECTOR(i, n, chunk) {
    const int line = fast_div((int)i, by_width), s = (int)i - line * width;
    const int tap_row = fast_div(line, by_k), k = line - tap_row * filters;
    const int c = fast_div(tap_row, by_rows), r = tap_row - c * rows;
    const bool inside = r < filter_r && s < filter_s;
    planes[((c * filters + k) * rows + r) * width + s] =
        inside ? weights[((r * filter_s + s) * in_c + c0 + c) * pitch + k0 + k] : 0.0f;
  }
}

#if CVY_CPU

#define TILE_I 2
#define TILE_J 4
#define REAL_PARTS s0022446688aaccee
#define IMAGINARY_PARTS s1133557799bbddff
#define SWAPPED s1032547698badcfe

/* Each result has two running sums, of re(a)*b and im(a)*b, so that their parts are shuffled once, at the end.
 * points_vecs = points / 8; a task is a tile at eight frequencies. a_i … b_j: distance in planes from one index to
 * the next. */
CVY_KERNEL conv2d_fft_multiply(global const float16 *restrict a, global const float16 *restrict b,
                               global float16 *restrict out, const int n_i, const int n_j, const int n_l, const int a_i,
                               const int a_l, const int b_l, const int b_j, const int points_vecs, const int tasks,
                               const int b_conjugate, const int accumulate) {
  const float16 minus_re = (float16)(-1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1), minus_im = -minus_re;
  const int tiles_j = (n_j + TILE_J - 1) / TILE_J, share = (tasks + (int)CVY_GROUPS - 1) / (int)CVY_GROUPS;
  const int begin = (int)CVY_GROUP * share, end = min(tasks, begin + share);
  for (int task = begin; task < end; task++) {
    const int tile = task / points_vecs, f = task - tile * points_vecs;
    const int i0 = tile / tiles_j * TILE_I, j0 = tile % tiles_j * TILE_J;
    global const float16 *from_a[TILE_I], *from_b[TILE_J];
    float16 by_re[TILE_I][TILE_J], by_im[TILE_I][TILE_J];
#pragma unroll
    for (int i = 0; i < TILE_I; i++) from_a[i] = a + (size_t)(min(i0 + i, n_i - 1) * a_i) * (size_t)points_vecs + f;
#pragma unroll
    for (int j = 0; j < TILE_J; j++) from_b[j] = b + (size_t)(min(j0 + j, n_j - 1) * b_j) * (size_t)points_vecs + f;
#pragma unroll
    for (int i = 0; i < TILE_I; i++)
#pragma unroll
      for (int j = 0; j < TILE_J; j++) by_re[i][j] = by_im[i][j] = (float16)(0.0f);
    for (int l = 0; l < n_l; l++) {
      const size_t at_a = (size_t)(l * a_l) * (size_t)points_vecs, at_b = (size_t)(l * b_l) * (size_t)points_vecs;
      float16 right[TILE_J];
#pragma unroll
      for (int j = 0; j < TILE_J; j++) right[j] = from_b[j][at_b];
#pragma unroll
      for (int i = 0; i < TILE_I; i++) {
        const float16 left = from_a[i][at_a], re = left.REAL_PARTS, im = left.IMAGINARY_PARTS;
#pragma unroll
        for (int j = 0; j < TILE_J; j++) by_re[i][j] += re * right[j], by_im[i][j] += im * right[j];
      }
    }
#pragma unroll
    for (int i = 0; i < TILE_I; i++)
#pragma unroll
      for (int j = 0; j < TILE_J; j++) {
        const float16 v = b_conjugate ? by_im[i][j].SWAPPED + by_re[i][j] * minus_im
                                      : by_re[i][j] + by_im[i][j].SWAPPED * minus_re;
        if (i0 + i < n_i && j0 + j < n_j) {
          global float16 *const to = out + (size_t)((i0 + i) * n_j + j0 + j) * (size_t)points_vecs + f;
          *to = accumulate ? *to + v : v;
        }
      }
  }
}

#else

#define TILE_I 4
#define TILE_J 4

/* A task is a tile at one frequency. */
CVY_KERNEL conv2d_fft_multiply(global const float2 *restrict a, global const float2 *restrict b,
                               global float2 *restrict out, const int n_i, const int n_j, const int n_l, const int a_i,
                               const int a_l, const int b_l, const int b_j, const int points, const int tasks,
                               const int b_conjugate, const int accumulate) {
  const float sign = b_conjugate ? -1.0f : 1.0f;
  const int task = get_global_id(0), tiles_j = (n_j + TILE_J - 1) / TILE_J;
  const int tile = task / points, f = task - tile * points;
  const int i0 = tile / tiles_j * TILE_I, j0 = tile % tiles_j * TILE_J;
  if (task < tasks) {
    size_t from_a[TILE_I], from_b[TILE_J];
    float2 sum[TILE_I][TILE_J];
#pragma unroll
    for (int i = 0; i < TILE_I; i++) from_a[i] = (size_t)(min(i0 + i, n_i - 1) * a_i) * (size_t)points + (size_t)f;
#pragma unroll
    for (int j = 0; j < TILE_J; j++) from_b[j] = (size_t)(min(j0 + j, n_j - 1) * b_j) * (size_t)points + (size_t)f;
#pragma unroll
    for (int i = 0; i < TILE_I; i++)
#pragma unroll
      for (int j = 0; j < TILE_J; j++) sum[i][j] = (float2)(0.0f);
    for (int l = 0; l < n_l; l++) {
      const size_t at_a = (size_t)(l * a_l) * (size_t)points, at_b = (size_t)(l * b_l) * (size_t)points;
      float2 right[TILE_J];
#pragma unroll
      for (int j = 0; j < TILE_J; j++) right[j] = b[from_b[j] + at_b] * (float2)(1.0f, sign);
#pragma unroll
      for (int i = 0; i < TILE_I; i++) {
        const float2 left = a[from_a[i] + at_a];
#pragma unroll
        for (int j = 0; j < TILE_J; j++) {
          sum[i][j].x += left.x * right[j].x - left.y * right[j].y;
          sum[i][j].y += left.x * right[j].y + left.y * right[j].x;
        }
      }
    }
#pragma unroll
    for (int i = 0; i < TILE_I; i++)
#pragma unroll
      for (int j = 0; j < TILE_J; j++)
        if (i0 + i < n_i && j0 + j < n_j) {
          global float2 *const to = out + (size_t)((i0 + i) * n_j + j0 + j) * (size_t)points + (size_t)f;
          *to = accumulate ? *to + sum[i][j] : sum[i][j];
        }
  }
}

#endif

/* n = images * out_h * out_w * stored, channels fastest: `stored` channels from c0 on; those from c1 on are padding. */
CVY_KERNEL conv2d_fft_store(global const float *restrict planes, global const float *restrict bias,
                            global float *restrict y, const int n, const int chunk, const int first, const int c0,
                            const int c1, const int stored, const int rows, const int width, const int out_h,
                            const int out_w, const int pitch, const int skip_h, const int skip_w, const int shift_h,
                            const int shift_w, const int valid_h, const int valid_w, const cvy_divider by_stored,
                            const cvy_divider by_w, const cvy_divider by_h, const int has_bias, const int accumulate) {
  CVY_FOR_EACH_VECTOR(i, n, chunk) {
    const int pixel = fast_div((int)i, by_stored), c = (int)i - pixel * stored;
    const int line = fast_div(pixel, by_w), w = pixel - line * out_w, image = fast_div(line, by_h),
              h = line - image * out_h;
    float v = 0.0f;
    if (c0 + c < c1) {
      const int row = h - skip_h, col = w - skip_w;
      if (row >= 0 && row < valid_h && col >= 0 && col < valid_w) {
        const int r = row + shift_h, s = col + shift_w, channels = c1 - c0;
        v = planes[((image * channels + c) * rows + (r < rows ? r : r - rows)) * width + (s < width ? s : s - width)];
      }
      if (has_bias) v += bias[c0 + c];
    }
    global float *const to = y + (size_t)(((first + image) * out_h + h) * out_w + w) * (size_t)pitch + c0 + c;
    *to = accumulate ? *to + v : v;
  }
}

/* n = filter_r * filter_s * channels * stored, filters fastest, then channels. */
CVY_KERNEL conv2d_fft_store_filter(global const float *restrict planes, global float *restrict dw, const int n,
                                   const int chunk, const int c0, const int channels, const int k0, const int k1,
                                   const int stored, const int rows, const int width, const int filter_s,
                                   const int in_c, const int pitch, const int shift_h, const int shift_w,
                                   const cvy_divider by_stored, const cvy_divider by_c, const cvy_divider by_s,
                                   const int accumulate) {
  CVY_FOR_EACH_VECTOR(i, n, chunk) {
    const int row = fast_div((int)i, by_stored), k = (int)i - row * stored;
    const int tap = fast_div(row, by_c), c = row - tap * channels, r = fast_div(tap, by_s), s = tap - r * filter_s;
    const int at_r = r + shift_h, at_s = s + shift_w;
    float v = 0.0f;
    if (k0 + k < k1)
      v = planes[((c * (k1 - k0) + k) * rows + (at_r < rows ? at_r : at_r - rows)) * width +
                 (at_s < width ? at_s : at_s - width)];
    global float *const to = dw + (size_t)(tap * in_c + c0 + c) * (size_t)pitch + k0 + k;
    *to = accumulate ? *to + v : v;
  }
}
