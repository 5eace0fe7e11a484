/* SPDX-License-Identifier: MIT
 * The kernels around CLBlast's matrix products (ops/conv2d/conv2d_gemm.c).
 *
 *   conv2d_gemm_columns  columns[m, (r,s,c)] = f(x)[image(m), p(m)*stride_h + r - pad_h, q(m)*stride_w + s - pad_w, c],
 *                        0 outside the image; f: load prologue of ops/conv2d/conv2d.h; m = (image, p, q)
 *   conv2d_gemm_image    dx[n,h,w,c] (+)= sum over the taps r, s for which p*stride_h + r - pad_h == h and
 *                        q*stride_w + s - pad_w == w of columns[(n,p,q), (r,s,c)], r outer, s inner, ascending
 *   conv2d_gemm_bias     y[row, k] += bias[k]
 *   conv2d_gemm_clear    x[row, c] = 0 for the channels between C and the pitch
 *
 * Columns are dense: R*S*C floats a row.
 *
 *   VEC  floats per vector (vector.clh): 16 (CPU), 4, 1; C, and the pitch of x (of y for the bias), are multiples of it.
 *        clear takes single floats. Counts named …_vecs are in vectors.
 *
 * Geometry: one vector of the result after the other (CVY_FOR_EACH_VECTOR); CPU: `chunk` of them per work-group. */
#include "conv2d/conv2d_flags.clh"
#include "fastdiv.clh"
#include "vector.clh"

CVY_KERNEL conv2d_gemm_columns(global const floatv *restrict x, global const floatv *restrict affine,
                               global const floatv *restrict residual, global floatv *restrict columns, const int n,
                               const int chunk, const int image0, const int in_h, const int in_w, const int c_vecs,
                               const int pitch_vecs, const int filter_s, const int stride_h, const int stride_w,
                               const int pad_h, const int pad_w, const int out_h, const int out_w, const int row_vecs,
                               const cvy_divider by_row, const cvy_divider by_image, const cvy_divider by_line,
                               const cvy_divider by_c, const cvy_divider by_s, const cvy_divider by_group,
                               const int flags) {
  CVY_FOR_EACH_VECTOR(i, n, chunk) {
    const int m = fast_div((int)i, by_row), e = (int)i - m * row_vecs;
    const int image = fast_div(m, by_image), at = m - image * (out_h * out_w), p = fast_div(at, by_line),
              q = at - p * out_w;
    const int tap = fast_div(e, by_c), c = e - tap * c_vecs, r = fast_div(tap, by_s), s = tap - r * filter_s;
    const int row = p * stride_h + r - pad_h, col = q * stride_w + s - pad_w;
    floatv v = 0.0f;
    if (row >= 0 && row < in_h && col >= 0 && col < in_w) {
      const int sample = image0 + image, pixel = ((sample * in_h + row) * in_w + col) * pitch_vecs + c;
      v = x[pixel];
      if (flags & FLAG_SCALE) {
        const int channel = fast_div(sample, by_group) * 3 * pitch_vecs + c;
        v = fma(v - affine[channel], affine[channel + pitch_vecs], affine[channel + 2 * pitch_vecs]);
      }
      if (flags & FLAG_RESIDUAL) v += residual[pixel];
      if (flags & FLAG_RELU) v = v < 0.0f ? (floatv)(0.0f) : v;
    }
    columns[i] = v;
  }
}

/* The outputs along one dimension whose filter covers pixel i: {the tap of the first one, that output, the number of
 * outputs}. From each output to the next, the tap is `stride` larger and the output one smaller. */
static inline int3 taps_of(const int i, const int stride, const cvy_divider by_stride, const int pad, const int filter,
                           const int outputs) {
  const int last = fast_div(i + pad, by_stride), least = i + pad - last * stride;
  const int first_t = max(0, last - (outputs - 1)); /* outputs beyond the last one do not exist */
  const int end_t = least < filter ? min(last, fast_div(filter - 1 - least, by_stride)) + 1 : 0;
  return (int3)(least + first_t * stride, last - first_t, end_t - first_t);
}

CVY_KERNEL conv2d_gemm_image(global const floatv *restrict columns, global floatv *restrict dx, const int n,
                             const int chunk, const int first, const int in_h, const int in_w, const int c_vecs,
                             const int pitch_vecs, const int filter_r, const int filter_s, const int stride_h,
                             const int stride_w, const int pad_h, const int pad_w, const int out_h, const int out_w,
                             const cvy_divider by_pitch, const cvy_divider by_image, const cvy_divider by_line,
                             const cvy_divider by_h, const cvy_divider by_w, const int accumulate) {
  CVY_FOR_EACH_VECTOR(i, n, chunk) {
    const int pixel = fast_div((int)i, by_pitch), c = (int)i - pixel * pitch_vecs;
    const int image = fast_div(pixel, by_image), at = pixel - image * (in_h * in_w), row = fast_div(at, by_line),
              col = at - row * in_w;
    floatv sum = 0.0f;
    if (c < c_vecs) {
      const int3 rows = taps_of(row, stride_h, by_h, pad_h, filter_r, out_h),
                 cols = taps_of(col, stride_w, by_w, pad_w, filter_s, out_w);
      for (int a = 0; a < rows.z; a++)
        for (int b = 0; b < cols.z; b++) {
          const int position = (image * out_h + rows.y - a) * out_w + cols.y - b,
                    tap = (rows.x + a * stride_h) * filter_s + cols.x + b * stride_w;
          sum += columns[(position * (filter_r * filter_s) + tap) * c_vecs + c];
        }
    }
    const size_t to = (size_t)first + i;
    dx[to] = accumulate ? dx[to] + sum : sum;
  }
}

CVY_KERNEL conv2d_gemm_bias(global floatv *restrict y, global const floatv *restrict bias, const int n, const int chunk,
                            const int pitch_vecs, const cvy_divider by_pitch) {
  CVY_FOR_EACH_VECTOR(i, n, chunk) y[i] += bias[(int)i - fast_div((int)i, by_pitch) * pitch_vecs];
}

/* n = rows * (pitch - c). */
CVY_KERNEL conv2d_gemm_clear(global float *restrict x, const int n, const int chunk, const int c, const int pitch,
                             const cvy_divider by_gap) {
  CVY_FOR_EACH_VECTOR(i, n, chunk) {
    const int row = fast_div((int)i, by_gap);
    x[(size_t)row * (size_t)pitch + (size_t)(c + (int)i - row * (pitch - c))] = 0.0f;
  }
}
