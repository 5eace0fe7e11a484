/* SPDX-License-Identifier: MIT
 * 5x5 convolution, ReLU and 2x2 average pool in one (src/ops/conv2d/convpool.h) by Winograd's F(2x2,5x5) (winograd.clh), on
 * CPU-shaped devices: a tile's four outputs are one pooling window, and the values that the pool drops are never made.
 *   V = B' d B,  U = G g G',  M[point] = V[point] U[point],  window = A' M A
 * The gradients are the same sum read in other directions:
 *   dM = A dwindow A',  dV[point] = dM[point] U[point]',  dx += B dV B'      (tiles overlap)
 *                       dU[point] = V[point]' dM[point],  dw = G' dU G
 *
 * Tiles are numbered over columns, rows, images; a block is TILES of them. Each work-group has one work-item, which
 * walks over a contiguous range of tasks with its own slice of the workspace: blocks (forward, weights), images
 * (data, whose tiles are added up in their order). Slice:
 *   zeros  one pixel of the padding (x_pitch floats)
 *   v      POINTS x (TILES rows of x_pitch)
 *   m      POINTS x (TILES rows of y_pitch)
 *   own    weights: dU, POINTS x (C rounded up to 4 rows of y_pitch), and the sums of the windows' gradients (y_pitch)
 * The distance of two points is GAP floats larger than that, so that points do not map to one set of a cache.
 * Transformed weights come first in the workspace: POINTS x (C rows of y_pitch), or turned POINTS x (K rows of
 * x_pitch).
 * Register tiles: 4 or 8 rows x up to 4 vectors (CVY_VECTOR_FLOATS 8: 4 x 1). Rows of v and m behind the block's last
 * tile are multiplied, too: they hold stale values, and their products are not used. */
#define TILE_OUT 2
#define TAPS 5
#include "conv2d/convpool.clh"
#include "winograd/winograd_tile_cpu.clh"

#define TILES 16 /* the same value as in src/ops/conv2d/convpool.c */
#define GAP 16   /* likewise */

/* ---- weights ---- */

/* Transforms weights (5,5,C,pitch) to the workspace. Each work-group takes a range of (input channel, 16 output
 * channels). */
kernel CVY_CPU_KERNEL GROUP_OF_ONE void convpool_winograd_weights(global const float *restrict w,
                                                                  global float *restrict workspace, int c, int pitch) {
  const int parts = pitch / 16;
  const int begin = (int)((long)c * parts * (long)CVY_GROUP / (long)CVY_GROUPS);
  const int end = (int)((long)c * parts * (long)(CVY_GROUP + 1) / (long)CVY_GROUPS);
  for (int at = begin; at < end; at++) {
    float16 g[TAPS * TAPS];
#pragma unroll
    for (int tap = 0; tap < TAPS * TAPS; tap++) g[tap] = vload16(0, w + (tap * c * parts + at) * 16);
    transform_weights(g, workspace + at * 16, c * pitch + GAP);
  }
}

/* Transforms turned weights, (POINTS, K, x_pitch) from (5,5,C,pitch), zeros behind C. Each work-group takes a range
 * of (16 k, 16 c). */
kernel CVY_CPU_KERNEL GROUP_OF_ONE void convpool_winograd_weights_turned(global const float *restrict w,
                                                                         global float *restrict workspace, int c,
                                                                         int x_pitch, int k, int pitch) {
  const int parts = x_pitch / 16, blocks = (k + 15) / 16;
  const int begin = (int)((long)blocks * parts * (long)CVY_GROUP / (long)CVY_GROUPS);
  const int end = (int)((long)blocks * parts * (long)(CVY_GROUP + 1) / (long)CVY_GROUPS);
  for (int at = begin; at < end; at++) {
    const int k0 = at / parts * 16, c0 = at % parts * 16, some = min(16, k - k0);
    float turned[TAPS * TAPS * 16 * 16]; /* tap, k, c */
    for (int tap = 0; tap < TAPS * TAPS; tap++)
      for (int j = 0; j < 16; j++) {
        float line[16];
        vstore16(c0 + j < c ? vload16(0, w + (tap * c + c0 + j) * pitch + k0) : (float16)(0.0f), 0, line);
#pragma unroll
        for (int i = 0; i < 16; i++) turned[(tap * 16 + i) * 16 + j] = line[i];
      }
    for (int i = 0; i < some; i++) {
      float16 g[TAPS * TAPS];
#pragma unroll
      for (int tap = 0; tap < TAPS * TAPS; tap++) g[tap] = vload16(tap * 16 + i, turned);
      transform_weights(g, workspace + (k0 + i) * x_pitch + c0, k * x_pitch + GAP);
    }
  }
}

/* ---- tiles ---- */

/* The place of a tile: the image, and the row and column of the tile's window. */
typedef struct {
  int image, row, col;
} tile_place;

static tile_place place_of(int tile, int pooled_h, int pooled_w) {
  const tile_place at = {tile / (pooled_h * pooled_w), tile / pooled_w % pooled_h, tile % pooled_w};
  return at;
}

/* Writes the windows' gradients of one tile to a row of m, and adds them to `sums` (may be 0). */
static void load_gradient(global float *m, global const float *dy, global const uchar *mask, int pitch,
                          global float *sums) {
  const int point_floats = TILES * pitch + GAP;
  for (int k = 0; k < pitch; k += 16) {
    float16 g[4], d[POINTS];
    load_window(dy + k, mask + k, g);
    if (sums) vstore16(vload16(0, sums + k) + ((g[0] + g[1]) + (g[2] + g[3])), 0, sums + k);
    d[0] = g[0], d[1] = g[1], d[TILE_IN] = g[2], d[TILE_IN + 1] = g[3];
    winograd_output_line_turned(d, TILE_IN);
    winograd_output_line_turned(d + 1, TILE_IN);
#pragma unroll
    for (int i = 0; i < TILE_IN; i++) {
      winograd_output_line_turned(d + i * TILE_IN, 1);
#pragma unroll
      for (int j = 0; j < TILE_IN; j++) vstore16(d[i * TILE_IN + j], 0, m + (i * TILE_IN + j) * point_floats + k);
    }
  }
}

/* ---- products ---- */

#define ROWS_4(M) M(0) M(1) M(2) M(3)
#define ROWS_8(M) ROWS_4(M) M(4) M(5) M(6) M(7)

#define START(sum, i, j) float16 sum##i = add ? vload16(j, to + i * to_row) : (float16)(0.0f);
#define START_1(i) START(s, i, 0)
#define START_2(i) START_1(i) START(t, i, 1)
#define START_3(i) START_2(i) START(u, i, 2)
#define START_4(i) START_3(i) START(v, i, 3)
#define FMA_1(i)                                                                                                       \
  const float16 f##i = (float16)(a[i * a_row]);                                                                        \
  s##i = f##i * b0 + s##i;
#define FMA_2(i) FMA_1(i) t##i = f##i * b1 + t##i;
#define FMA_3(i) FMA_2(i) u##i = f##i * b2 + u##i;
#define FMA_4(i) FMA_3(i) v##i = f##i * b3 + v##i;
#define STORE_1(i) vstore16(s##i, 0, to + i * to_row);
#define STORE_2(i) STORE_1(i) vstore16(t##i, 1, to + i * to_row);
#define STORE_3(i) STORE_2(i) vstore16(u##i, 2, to + i * to_row);
#define STORE_4(i) STORE_3(i) vstore16(v##i, 3, to + i * to_row);
#define LOAD_1 const float16 b0 = vload16(0, b);
#define LOAD_2 LOAD_1 const float16 b1 = vload16(1, b);
#define LOAD_3 LOAD_2 const float16 b2 = vload16(2, b);
#define LOAD_4 LOAD_3 const float16 b3 = vload16(3, b);

/* to[i] (+)= sum over e < count of a[i*a_row + e*a_step] * b[e*b_step + …] for some rows i, 1 to 4 vectors each. */
#define PRODUCT_ARGS                                                                                                   \
  global const float *a, int a_row, int a_step, global const float *b, int b_step, int count, global float *to,        \
      int to_row, bool add
#define DEFINE_PRODUCT(rows, vecs)                                                                                     \
  static void product_##rows##x##vecs(PRODUCT_ARGS) {                                                                  \
    ROWS_##rows(START_##vecs)                                                                                          \
    for (int e = 0; e < count; e++, a += a_step, b += b_step) {                                                        \
      LOAD_##vecs                                                                                                      \
      ROWS_##rows(FMA_##vecs)                                                                                          \
    }                                                                                                                  \
    ROWS_##rows(STORE_##vecs)                                                                                          \
  }
#if CVY_WIDE_REGISTERS
DEFINE_PRODUCT(4, 4)
DEFINE_PRODUCT(4, 3)
DEFINE_PRODUCT(8, 2)
DEFINE_PRODUCT(4, 2)
DEFINE_PRODUCT(8, 1)
#endif
DEFINE_PRODUCT(4, 1)

/* All rows (a multiple of 4) and `pitch` columns. */
static void product(global const float *a, int a_row, int a_step, global const float *b, int b_step, int count,
                    global float *to, int to_row, bool add, int rows, int pitch) {
#define PRODUCT(rows, vecs) product_##rows##x##vecs(a + i * a_row, a_row, a_step, b + k, b_step, count, to + i * to_row + k, to_row, add)
#if CVY_WIDE_REGISTERS
  for (int k = 0; k < pitch;) {
    const int vecs = min((pitch - k) / 16, 4);
    int i = 0;
    if (vecs == 4) {
      for (; i < rows; i += 4) PRODUCT(4, 4);
    } else if (vecs == 3) {
      for (; i < rows; i += 4) PRODUCT(4, 3);
    } else if (vecs == 2) {
      for (; i + 8 <= rows; i += 8) PRODUCT(8, 2);
      for (; i < rows; i += 4) PRODUCT(4, 2);
    } else {
      for (; i + 8 <= rows; i += 8) PRODUCT(8, 1);
      for (; i < rows; i += 4) PRODUCT(4, 1);
    }
    k += vecs * 16;
  }
#else
  for (int k = 0; k < pitch; k += 16)
    for (int i = 0; i < rows; i += 4) PRODUCT(4, 1);
#endif
}

static int up_to_4(int n) { return (n + 3) / 4 * 4; }

/* ---- passes ---- */

/* Tasks: blocks of tiles. */
kernel CVY_CPU_KERNEL GROUP_OF_ONE void
convpool_winograd_forward(global const float *restrict x, global const float *restrict bias, global float *restrict y,
                          global uchar *restrict mask, global float *restrict workspace, int n, int in_h, int in_w,
                          int in_c, int x_pitch, int pooled_h, int pooled_w, int y_pitch, int pad_h, int pad_w,
                          int slices_at, int slice_floats, int flags) {
  global float *zeros = workspace + slices_at + (size_t)CVY_GROUP * (size_t)slice_floats;
  const int v_point = TILES * x_pitch + GAP, m_point = TILES * y_pitch + GAP, u_point = in_c * y_pitch + GAP;
  global float *v = zeros + x_pitch, *m = v + POINTS * v_point;
  const int tiles = n * pooled_h * pooled_w, tasks = (tiles + TILES - 1) / TILES;
  const int begin = (int)((long)tasks * (long)CVY_GROUP / (long)CVY_GROUPS);
  const int end = (int)((long)tasks * (long)(CVY_GROUP + 1) / (long)CVY_GROUPS);
  for (int i = 0; i < x_pitch; i += 16) vstore16((float16)(0.0f), 0, zeros + i);
  for (int task = begin; task < end; task++) {
    const int first = task * TILES, some = min(TILES, tiles - first);
    for (int i = 0; i < some; i++) {
      const tile_place at = place_of(first + i, pooled_h, pooled_w);
      load_tile(v + i * x_pitch, v_point, 16, x + at.image * in_h * in_w * x_pitch, zeros, 2 * at.row - pad_h,
                2 * at.col - pad_w, in_h, in_w, x_pitch, x_pitch);
    }
    for (int point = 0; point < POINTS; point++)
      product(v + point * v_point, x_pitch, 1, workspace + point * u_point, y_pitch, in_c, m + point * m_point, y_pitch,
              false, up_to_4(some), y_pitch);
    for (int i = 0; i < some; i++)
      for (int k = 0; k < y_pitch; k += 16) {
        const float16 b = flags & FLAG_BIAS ? vload16(0, bias + k) : (float16)(0.0f);
        float16 d[POINTS];
#pragma unroll
        for (int j = 0; j < POINTS; j++) d[j] = vload16(0, m + j * m_point + i * y_pitch + k);
#pragma unroll
        for (int j = 0; j < TILE_IN; j++) winograd_output_line(d + j, TILE_IN);
        winograd_output_line(d, 1);
        winograd_output_line(d + TILE_IN, 1);
        const int to = (first + i) * y_pitch + k;
        store_window(d[0] + b, d[1] + b, d[TILE_IN] + b, d[TILE_IN + 1] + b, y + to, flags & FLAG_MASK ? mask + to : 0);
      }
  }
}

/* Tasks: images. u: turned weights. */
kernel CVY_CPU_KERNEL GROUP_OF_ONE void
convpool_winograd_data(global const float *restrict dy, global const uchar *restrict mask, global float *restrict dx,
                       global float *restrict workspace, int n, int in_h, int in_w, int x_pitch, int pooled_h,
                       int pooled_w, int k, int y_pitch, int pad_h, int pad_w, int slices_at, int slice_floats,
                       int flags) {
  const int v_point = TILES * x_pitch + GAP, m_point = TILES * y_pitch + GAP, u_point = k * x_pitch + GAP;
  global float *v = workspace + slices_at + (size_t)CVY_GROUP * (size_t)slice_floats + x_pitch;
  global float *m = v + POINTS * v_point;
  const int per_image = pooled_h * pooled_w, image_floats = in_h * in_w * x_pitch;
  const int begin = (int)((long)n * (long)CVY_GROUP / (long)CVY_GROUPS);
  const int end = (int)((long)n * (long)(CVY_GROUP + 1) / (long)CVY_GROUPS);
  if (!(flags & FLAG_ACCUMULATE))
    for (int i = begin * image_floats; i < end * image_floats; i += 16) vstore16((float16)(0.0f), 0, dx + i);
  for (int first = begin * per_image; first < end * per_image; first += TILES) {
    const int some = min(TILES, end * per_image - first);
    for (int i = 0; i < some; i++)
      load_gradient(m + i * y_pitch, dy + (first + i) * y_pitch, mask + (first + i) * y_pitch, y_pitch, 0);
    for (int point = 0; point < POINTS; point++)
      product(m + point * m_point, y_pitch, 1, workspace + point * u_point, x_pitch, k, v + point * v_point, x_pitch,
              false, up_to_4(some), x_pitch);
    for (int i = 0; i < some; i++) {
      const tile_place at = place_of(first + i, pooled_h, pooled_w);
      const int h0 = 2 * at.row - pad_h, w0 = 2 * at.col - pad_w;
      const bool inside = h0 >= 0 && h0 + TILE_IN <= in_h && w0 >= 0 && w0 + TILE_IN <= in_w;
      global float *image = dx + at.image * image_floats;
      for (int c = 0; c < x_pitch; c += 16) {
        float16 d[POINTS];
#pragma unroll
        for (int j = 0; j < POINTS; j++) d[j] = vload16(0, v + j * v_point + i * x_pitch + c);
#pragma unroll
        for (int j = 0; j < TILE_IN; j++) winograd_input_line_turned(d + j, TILE_IN);
#pragma unroll
        for (int a = 0; a < TILE_IN; a++) {
          winograd_input_line_turned(d + a * TILE_IN, 1);
          const int h = h0 + a;
          global float *to = image + (h * in_w + w0) * x_pitch + c;
          if (inside) {
#pragma unroll
            for (int b = 0; b < TILE_IN; b++)
              vstore16(vload16(0, to + b * x_pitch) + d[a * TILE_IN + b], 0, to + b * x_pitch);
          } else if (h >= 0 && h < in_h) {
#pragma unroll
            for (int b = 0; b < TILE_IN; b++)
              if (w0 + b >= 0 && w0 + b < in_w)
                vstore16(vload16(0, to + b * x_pitch) + d[a * TILE_IN + b], 0, to + b * x_pitch);
          }
        }
      }
    }
  }
}

/* Tasks: blocks of tiles. Writes dU and the sums of dy to each work-group's slice, at own_at. FLAG_BIAS: the sums
 * are computed, too. */
kernel CVY_CPU_KERNEL GROUP_OF_ONE void
convpool_winograd_gradient(global const float *restrict x, global const float *restrict dy,
                           global const uchar *restrict mask, global float *restrict workspace, int n, int in_h,
                           int in_w, int in_c, int x_pitch, int pooled_h, int pooled_w, int y_pitch, int pad_h,
                           int pad_w, int slices_at, int slice_floats, int own_at, int flags) {
  global float *zeros = workspace + slices_at + (size_t)CVY_GROUP * (size_t)slice_floats;
  const int v_point = TILES * x_pitch + GAP, m_point = TILES * y_pitch + GAP, rows = up_to_4(in_c),
            own_point = rows * y_pitch + GAP;
  global float *v = zeros + x_pitch, *m = v + POINTS * v_point, *own = zeros + own_at, *sums = own + POINTS * own_point;
  const int tiles = n * pooled_h * pooled_w, tasks = (tiles + TILES - 1) / TILES;
  const int begin = (int)((long)tasks * (long)CVY_GROUP / (long)CVY_GROUPS);
  const int end = (int)((long)tasks * (long)(CVY_GROUP + 1) / (long)CVY_GROUPS);
  for (int i = 0; i < x_pitch; i += 16) vstore16((float16)(0.0f), 0, zeros + i);
  for (int i = 0; i < y_pitch; i += 16) vstore16((float16)(0.0f), 0, sums + i);
  for (int task = begin; task < end; task++) {
    const int first = task * TILES, some = min(TILES, tiles - first);
    for (int i = 0; i < some; i++) {
      const tile_place at = place_of(first + i, pooled_h, pooled_w);
      const int from = (first + i) * y_pitch;
      load_tile(v + i * x_pitch, v_point, 16, x + at.image * in_h * in_w * x_pitch, zeros, 2 * at.row - pad_h,
                2 * at.col - pad_w, in_h, in_w, x_pitch, x_pitch);
      load_gradient(m + i * y_pitch, dy + from, mask + from, y_pitch, flags & FLAG_BIAS ? sums : 0);
    }
    for (int point = 0; point < POINTS; point++)
      product(v + point * v_point, 1, x_pitch, m + point * m_point, y_pitch, some, own + point * own_point, y_pitch,
              task > begin, rows, y_pitch);
  }
}

/* Adds up dU of `parts` work-groups, slice_floats apart from `own_at` of the workspace on → dw, db. Each work-group
 * takes a range of (input channel, 16 output channels); the sums of dy count as one more channel. */
kernel CVY_CPU_KERNEL GROUP_OF_ONE void convpool_winograd_finish(global const float *restrict workspace,
                                                                 global float *restrict dw, global float *restrict db,
                                                                 int c, int pitch, int parts, int own_at,
                                                                 int slice_floats, int flags) {
  const int vectors = pitch / 16, own_point = up_to_4(c) * pitch + GAP;
  const int all = (c + (flags & FLAG_BIAS ? 1 : 0)) * vectors;
  const int begin = (int)((long)all * (long)CVY_GROUP / (long)CVY_GROUPS);
  const int end = (int)((long)all * (long)(CVY_GROUP + 1) / (long)CVY_GROUPS);
  const bool accumulate = (flags & FLAG_ACCUMULATE) != 0;
  for (int at = begin; at < end; at++) {
    if (at >= c * vectors) {
      const int k = (at - c * vectors) * 16;
      sum_parts(workspace + own_at + POINTS * own_point + k, parts, slice_floats, accumulate, db + k);
      continue;
    }
    global const float *from = workspace + own_at + at * 16;
    float16 u[POINTS], columns[TAPS * TILE_IN], g[TAPS];
#pragma unroll
    for (int point = 0; point < POINTS; point++) u[point] = vload16(0, from + point * own_point);
    for (int part = 1; part < parts; part++) {
      from += slice_floats;
#pragma unroll
      for (int point = 0; point < POINTS; point++) u[point] += vload16(0, from + point * own_point);
    }
#pragma unroll
    for (int j = 0; j < TILE_IN; j++) winograd_weight_line_turned(u + j, TILE_IN, columns + j, TILE_IN);
#pragma unroll
    for (int i = 0; i < TAPS; i++) {
      winograd_weight_line_turned(columns + i * TILE_IN, 1, g, 1);
#pragma unroll
      for (int j = 0; j < TAPS; j++) {
        global float *to = dw + ((i * TAPS + j) * c * vectors + at) * 16;
        vstore16(accumulate ? vload16(0, to) + g[j] : g[j], 0, to);
      }
    }
  }
}
