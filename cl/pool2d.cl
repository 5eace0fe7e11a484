/* SPDX-License-Identifier: MIT
 * Max and average pooling (ops/pool2d.h):
 *   max: y[n,p,q,c] = largest x[n, p*stride_h + r - pad_h, q*stride_w + s - pad_w, c] over r < R, s < S inside the
 *        image (ZERO_PAD: or 0 for a position in the padding); NaN if one is there
 *   avg: y = sum * scale, scale = 1/(R*S), or sum / divisor of the window (COUNTED)
 *   backward: dx[n,h,w,c] (+)= sum over the windows (p,q) around (h,w), p outer, q inner, of
 *     max: dy[p,q] if x[h,w] is the window's y and nothing in front of it in row-major order is, with ZERO_PAD no
 *          padding either (the first NaN where y is NaN)
 *     avg: dy[p,q] * scale
 *
 *   KIND     0 max, 1 average
 *   RELU [0] 1: of max(x, 0), average only; the gradient passes where x > 0
 *   COUNTED [0] 1: average whose divisors are counted for each window (padding left out, or windows beyond it), else all
 *            have the same scale
 *   ZERO_PAD [0] 1: maximum, there is padding and it counts as zeros
 *   VEC      floats per vector; vecs = pitch / VEC (1 … 128)
 *   C_LANES  wide kernel: neighbouring vectors of channels per work-group, a power of two that divides vecs
 * x, dx: (n,h,w,pitch) · y, dy: (n,p,q,pitch). Filter, strides and padding are arguments: that needs few programs and
 * costs nothing, since memory bandwidth limits the kernels. pad < filter: no window lies wholly in padding.
 *
 * Geometry. CPU: a work-group loops over pieces (sample, row, part of the channels), the forward in blocks of 4
 * vectors, so that it reads 256 bytes in a row; the maximum's backward over (sample, part of the channels). SIMT: one
 * work-item per output vector. For large windows pool2d_forward_wide: a work-group takes C_LANES vectors of one
 * output, LOCAL / C_LANES work-items share the window, then a tree adds their results. Divisions by runtime sizes are
 * multiplications (fastdiv.clh). */
#include "fastdiv.clh"
#include "pool2d_args.clh"
#include "vector.clh"

#ifndef KIND
#define KIND 0
#endif
#ifndef C_LANES
#define C_LANES 4
#endif
#ifndef RELU
#define RELU 0
#endif

#ifndef COUNTED
#define COUNTED 0
#endif
#ifndef ZERO_PAD
#define ZERO_PAD 0
#endif

#if KIND != 0 && KIND != 1
#error "KIND must be 0 (max) or 1 (average)"
#endif
#if C_LANES < 1 || C_LANES > LOCAL || (C_LANES & (C_LANES - 1)) != 0
#error "C_LANES must be a power of two and at most LOCAL"
#endif

#if KIND == 0
#if ZERO_PAD
#define NEUTRAL(rows, cols) (has_padding(rows, cols, pool) ? 0.0f : -INFINITY)
#else
#define NEUTRAL(rows, cols) (-INFINITY)
#endif
#define SCALED(v, row, col) (v)
#else
#define NEUTRAL(rows, cols) 0.0f
#if COUNTED
#define SCALED(v, row, col) ((v) / divisor(row, col, pool))
#else
#define SCALED(v, row, col) ((v) * pool.scale)
#endif
#endif
#if COUNTED && KIND == 0
#error "COUNTED is for averages"
#endif
#if ZERO_PAD && KIND != 0
#error "ZERO_PAD is for maxima"
#endif

#if RELU
#if KIND == 0
#error "RELU is for averages"
#endif
#define PIXEL(v) cvy_relu(v)
#define PASSES(g, x) ((x) > 0.0f ? (g) : (floatv)(0.0f))
#else
#define PIXEL(v) (v)
#define PASSES(g, x) (g)
#endif

#if VEC == 1
#define ANY(condition) (condition)
#else
#define ANY(condition) any(condition)
#endif

/* The sum, or the larger value, where NaN counts as larger than all numbers. */
static inline floatv merge(const floatv a, const floatv b) {
#if KIND == 0
  return !(b <= a) && a == a ? b : a;
#else
  return a + b;
#endif
}

/* Rows (columns) of a window that lie in the image: the first one, and the end. */
static inline int2 inside(const int output, const int stride, const int pad, const int filter, const int size) {
  const int first = output * stride - pad;
  return (int2)(max(first, 0), min(first + filter, size));
}

#if ZERO_PAD
/* True if the window with these rows and columns in the image reaches into the padding. */
static inline bool has_padding(const int2 rows, const int2 cols, const cvy_pool_geometry pool) {
  return (rows.y - rows.x) * (cols.y - cols.x) < pool.r * pool.s;
}
/* In row-major order padding lies in front of all pixels of the window (row, col). */
static inline bool is_padded_before(const int row, const int col, const cvy_pool_geometry pool) {
  return row * pool.stride_h < pool.pad_h || col * pool.stride_w < pool.pad_w;
}
/* Padding lies behind each of the window's rows. */
static inline bool is_padded_behind(const int col, const cvy_pool_geometry pool) {
  return col * pool.stride_w - pool.pad_w + pool.s > pool.w;
}
#endif

#if COUNTED
/* Number of rows (columns) of a window that count. */
static inline int counted(const int output, const int stride, const int pad, const int filter, const int before, const int count) {
  const int first = output * stride - pad;
  return min(first + filter, count) - max(first, -before);
}
static inline float divisor(const int row, const int col, const cvy_pool_geometry pool) {
  return (float)counted(row, pool.stride_h, pool.pad_h, pool.r, pool.before_h, pool.count_h) *
         (float)counted(col, pool.stride_w, pool.pad_w, pool.s, pool.before_w, pool.count_w);
}
#endif

#if !CVY_CPU || KIND != 0

/* Windows that contain row (column) `i`: the first one, and the end. */
static inline int2 around(const int i, const int stride, const cvy_divider by_stride, const int pad, const int filter,
                          const int outputs) {
  const int from = i + pad - filter + 1;
  return (int2)(from <= 0 ? 0 : fast_div(from + stride - 1, by_stride), min(fast_div(i + pad, by_stride) + 1, outputs));
}

/* Gradient of the pixel (row, col) for one vector of channels, from windows rows x cols; x, y, dy point to this
 * vector of the sample's first position. */
static inline floatv gather_windows(global const floatv *x, global const floatv *y, global const floatv *dy,
                                    const int row, const int col, const int2 rows, const int2 cols,
                                    const cvy_pool_geometry pool) {
  floatv sum = 0.0f;
#if KIND == 0
  const floatv here = x[(row * pool.w + col) * pool.vecs];
#endif
#pragma unroll 1 /* most pixels are in one window */
  for (int i = rows.x; i < rows.y; i++)
#pragma unroll 1
    for (int j = cols.x; j < cols.y; j++) {
      const floatv g = dy[(i * pool.q + j) * pool.vecs];
#if KIND == 0
      const floatv top = y[(i * pool.q + j) * pool.vecs];
      if (!ANY(here == top || (here != here && top != top))) continue;
      const int2 window_rows = inside(i, pool.stride_h, pool.pad_h, pool.r, pool.h),
                 window_cols = inside(j, pool.stride_w, pool.pad_w, pool.s, pool.w);
      floatv part = here == top || (here != here && top != top) ? g : (floatv)(0.0f);
#if ZERO_PAD
      if (is_padded_before(i, j, pool) || (row > window_rows.x && is_padded_behind(j, pool)))
        part = top == 0.0f ? (floatv)(0.0f) : part;
#endif
      for (int a = window_rows.x; a <= row; a++)
        for (int b = window_cols.x; b < (a == row ? col : window_cols.y); b++) {
          const floatv before = x[(a * pool.w + b) * pool.vecs];
          part = before == top || (before != before && top != top) ? (floatv)(0.0f) : part;
        }
      sum += part;
#else
      sum += SCALED(g, i, j);
#endif
    }
  return PASSES(sum, x[(row * pool.w + col) * pool.vecs]);
}

#endif

/* The window's value in the vector at `pixels`, the image's first pixel. */
CVY_ALWAYS_INLINE floatv pool_vector(global const floatv *pixels, const int2 rows, const int2 cols, const cvy_pool_geometry pool) {
  floatv result = NEUTRAL(rows, cols);
  for (int a = rows.x; a < rows.y; a++)
    for (int b = cols.x; b < cols.y; b++) result = merge(result, PIXEL(pixels[(a * pool.w + b) * pool.vecs]));
  return result;
}

#if CVY_CPU

#define N_BLOCK 4

/* N_BLOCK neighbouring vectors: each step of a window reads the whole block. */
CVY_ALWAYS_INLINE void pool_block(global const floatv *pixels, global floatv *out, const int2 rows, const int2 cols,
                                  const cvy_pool_geometry pool, const int row, const int col) {
  floatv result[N_BLOCK];
#pragma unroll
  for (int k = 0; k < N_BLOCK; k++) result[k] = NEUTRAL(rows, cols);
  for (int a = rows.x; a < rows.y; a++)
    for (int b = cols.x; b < cols.y; b++)
#pragma unroll
      for (int k = 0; k < N_BLOCK; k++) result[k] = merge(result[k], PIXEL(pixels[(a * pool.w + b) * pool.vecs + k]));
#pragma unroll
  for (int k = 0; k < N_BLOCK; k++) out[k] = SCALED(result[k], row, col);
}

/* The channels of a piece: vectors .x to .y - 1; all pieces except the last have whole blocks. */
static inline int2 channels_of(const cvy_pool_geometry pool, const int part) {
  const int blocks = pool.vecs / N_BLOCK;
  return (int2)(blocks * part / pool.parts * N_BLOCK,
                part + 1 == pool.parts ? pool.vecs : blocks * (part + 1) / pool.parts * N_BLOCK);
}

CVY_KERNEL pool2d_forward(global const floatv *restrict x, global floatv *restrict y, const cvy_pool_geometry pool) {
  const ulong pieces = (ulong)pool.count * pool.p * pool.parts;
  for (ulong piece = CVY_GROUP; piece < pieces; piece += CVY_GROUPS) {
    const int part = (int)(piece % pool.parts), sample = (int)(piece / pool.parts / pool.p),
              row = (int)(piece / pool.parts % pool.p);
    const int2 channels = channels_of(pool, part);
    const int2 rows = inside(row, pool.stride_h, pool.pad_h, pool.r, pool.h);
    global const floatv *const image = x + (size_t)sample * pool.h * pool.w * pool.vecs;
    for (int col = 0; col < pool.q; col++) {
      const int2 cols = inside(col, pool.stride_w, pool.pad_w, pool.s, pool.w);
      global floatv *const out = y + (((size_t)sample * pool.p + row) * pool.q + col) * pool.vecs;
      int c = channels.x;
      for (; c + N_BLOCK <= channels.y; c += N_BLOCK) pool_block(image + c, out + c, rows, cols, pool, row, col);
      for (; c < channels.y; c++) out[c] = SCALED(pool_vector(image + c, rows, cols, pool), row, col);
    }
  }
}

#if KIND == 0

/* Adds the gradient of the window (row, col) to the first pixel, in row-major order, that is its maximum; each lane
 * separately. */
CVY_ALWAYS_INLINE void scatter_window(global const floatv *x, global floatv *dx, const floatv top, const floatv g,
                                      const int2 rows, const int2 cols, const cvy_pool_geometry pool, const int row,
                                      const int col) {
  const intv no_number = top != top;
  intv open = -1;
#if ZERO_PAD
  const intv zero = top == 0.0f;
  if (is_padded_before(row, col, pool)) open &= ~zero;
#endif
  for (int a = rows.x; a < rows.y; a++) {
    for (int b = cols.x; b < cols.y; b++) {
      const int at = (a * pool.w + b) * pool.vecs;
      const floatv here = x[at];
      const intv hit = open & ((here == top) | ((here != here) & no_number));
      dx[at] += hit ? g : (floatv)(0.0f);
      open &= ~hit;
    }
#if ZERO_PAD
    if (is_padded_behind(col, pool)) open &= ~zero;
#endif
  }
}

/* Scatters, because a work-group has all windows of its channels: a gather would read each window once for every
 * pixel in it, and the pixels in front of that one, too. */
CVY_KERNEL pool2d_backward(global const floatv *restrict x, global const floatv *restrict y,
                           global const floatv *restrict dy, global floatv *restrict dx, const cvy_pool_geometry pool,
                           const int accumulate) {
  const ulong pieces = (ulong)pool.count * pool.parts;
  for (ulong piece = CVY_GROUP; piece < pieces; piece += CVY_GROUPS) {
    const int sample = (int)(piece / pool.parts), pixels = pool.h * pool.w;
    const int2 channels = channels_of(pool, (int)(piece % pool.parts));
    const size_t in = (size_t)sample * pixels * pool.vecs, out = (size_t)sample * pool.p * pool.q * pool.vecs;
    if (!accumulate)
      for (int i = 0; i < pixels; i++)
        for (int c = channels.x; c < channels.y; c++) dx[in + i * pool.vecs + c] = 0.0f;
    for (int row = 0; row < pool.p; row++) {
      const int2 rows = inside(row, pool.stride_h, pool.pad_h, pool.r, pool.h);
      for (int col = 0; col < pool.q; col++) {
        const int2 cols = inside(col, pool.stride_w, pool.pad_w, pool.s, pool.w);
        const size_t at = out + (row * pool.q + col) * pool.vecs;
        for (int c = channels.x; c < channels.y; c++)
          scatter_window(x + in + c, dx + in + c, y[at + c], dy[at + c], rows, cols, pool, row, col);
      }
    }
  }
}

#else

CVY_KERNEL pool2d_backward(global const floatv *restrict x, global const floatv *restrict y,
                           global const floatv *restrict dy, global floatv *restrict dx, const cvy_pool_geometry pool,
                           const int accumulate) {
  const ulong pieces = (ulong)pool.count * pool.h;
  for (ulong piece = CVY_GROUP; piece < pieces; piece += CVY_GROUPS) {
    const int sample = (int)(piece / pool.h), row = (int)(piece % pool.h);
    const size_t in = (size_t)sample * pool.h * pool.w * pool.vecs, out = (size_t)sample * pool.p * pool.q * pool.vecs;
    const int2 rows = around(row, pool.stride_h, pool.by_stride_h, pool.pad_h, pool.r, pool.p);
    for (int col = 0; col < pool.w; col++) {
      const int2 cols = around(col, pool.stride_w, pool.by_stride_w, pool.pad_w, pool.s, pool.q);
      for (int c = 0; c < pool.vecs; c++) {
        global floatv *const to = dx + in + (row * pool.w + col) * pool.vecs + c;
        const floatv g = gather_windows(x + in + c, y + out + c, dy + out + c, row, col, rows, cols, pool);
        *to = accumulate ? *to + g : g;
      }
    }
  }
}

#endif

#else

CVY_KERNEL pool2d_forward(global const floatv *restrict x, global floatv *restrict y, const cvy_pool_geometry pool) {
  const int i = get_global_id(0);
  if (i < pool.count) {
    const int at = fast_div(i, pool.by_vecs), line = fast_div(at, pool.by_cols);
    const int sample = fast_div(line, pool.by_rows);
    const int2 rows = inside(line - sample * pool.p, pool.stride_h, pool.pad_h, pool.r, pool.h),
               cols = inside(at - line * pool.q, pool.stride_w, pool.pad_w, pool.s, pool.w);
    global const floatv *const image = x + (size_t)sample * pool.h * pool.w * pool.vecs + (i - at * pool.vecs);
    y[i] = SCALED(pool_vector(image, rows, cols, pool), line - sample * pool.p, at - line * pool.q);
  }
}

/* Work-groups: channels fastest, then outputs of a sample, then samples. Work-item row t takes window positions
 * t, t + LOCAL/C_LANES, …; then a tree over t. */
CVY_KERNEL pool2d_forward_wide(global const floatv *restrict x, global floatv *restrict y,
                               const cvy_pool_geometry pool) {
  local floatv scratch[LOCAL];
  const int chunks = pool.vecs / C_LANES, item = get_local_id(0), t = item / C_LANES;
  const int group = get_group_id(0), at = group / chunks; /* 32 bits: a 64-bit division is a long subroutine */
  const int c = (group - at * chunks) * C_LANES + item % C_LANES, sample = at / (pool.p * pool.q);
  const int2 rows = inside(at / pool.q % pool.p, pool.stride_h, pool.pad_h, pool.r, pool.h),
             cols = inside(at % pool.q, pool.stride_w, pool.pad_w, pool.s, pool.w);
  const int width = cols.y - cols.x, positions = at * pool.vecs < pool.count ? (rows.y - rows.x) * width : 0;
  global const floatv *const image = x + ((size_t)sample * pool.h * pool.w + rows.x * pool.w + cols.x) * pool.vecs + c;
  floatv result = NEUTRAL(rows, cols);
  for (int i = t; i < positions; i += LOCAL / C_LANES)
    result = merge(result, PIXEL(image[(i / width * pool.w + i % width) * pool.vecs]));
  scratch[item] = result;
  barrier(CLK_LOCAL_MEM_FENCE);
  for (int reach = LOCAL / 2; reach >= C_LANES; reach /= 2) {
    if (item < reach) scratch[item] = merge(scratch[item], scratch[item + reach]);
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  if (t == 0 && positions > 0) y[(size_t)at * pool.vecs + c] = SCALED(scratch[item], at / pool.q % pool.p, at % pool.q);
}

CVY_KERNEL pool2d_backward(global const floatv *restrict x, global const floatv *restrict y,
                           global const floatv *restrict dy, global floatv *restrict dx, const cvy_pool_geometry pool,
                           const int accumulate) {
  const int i = get_global_id(0);
  if (i < pool.count) {
    const int at = fast_div(i, pool.by_vecs), line = fast_div(at, pool.by_cols);
    const int sample = fast_div(line, pool.by_rows), row = line - sample * pool.h, col = at - line * pool.w;
    const int c = i - at * pool.vecs;
    const size_t in = (size_t)sample * pool.h * pool.w * pool.vecs + c,
                 out = (size_t)sample * pool.p * pool.q * pool.vecs + c;
    const int2 rows = around(row, pool.stride_h, pool.by_stride_h, pool.pad_h, pool.r, pool.p);
    const int2 cols = around(col, pool.stride_w, pool.by_stride_w, pool.pad_w, pool.s, pool.q);
    const floatv g = gather_windows(x + in, y + out, dy + out, row, col, rows, cols, pool);
    dx[i] = accumulate ? dx[i] + g : g;
  }
}

#endif
