/* SPDX-License-Identifier: MIT
 * Gradient of the filters of a convolution with few products in each result, as of a network's first layer, on SIMT
 * devices. Tiles of 64 rows (conv2d_direct.cl) would leave most rows of 9 or 27 empty.
 *   dw[e, k] = sum_m x[pixel(m, a, b), c] * dy[m, k],  e = (a, b, c) < n_depth;  db[k] = sum_m dy[m, k]
 *
 * Geometry: a work-group of 256 items takes 64 columns k, BLOCKS * SUMS rows e and a part of the positions m, in steps
 * of STEP = 4 * LANES. An item has 4 columns, SUMS rows and, in each step, 4 neighbours m: 4 loads of dy, SUMS quads of
 * x from local memory, 16 * SUMS multiply-adds. Items bring x into local memory, each for one position of a step and every
 * (256 / STEP)-th row. The LANES items of a row and its columns are added up in order at the end.
 * Group number = column block + column blocks * (row block + row blocks * part).
 * Results: part p of dw at parts + p * call.part_floats, its db at parts + sums_at + p * pitch, for conv2d_simt_finish.
 *
 * Parameters (defaults in brackets):
 *   BLOCKS [1]    1, 2 or 4 blocks of SUMS rows
 *   SUMS [9]      9, 14 or 16
 *   VEC_OUT [1]   4: the pitch of dy is a multiple of 4 */
#include "common.clh"
#include "conv2d_args.clh"
#include "fastdiv.clh"

#ifndef BLOCKS
#define BLOCKS 1
#endif
#ifndef SUMS
#define SUMS 9
#endif
#ifndef VEC_OUT
#define VEC_OUT 1
#endif
#if BLOCKS != 1 && BLOCKS != 2 && BLOCKS != 4
#error "BLOCKS is to be 1, 2 or 4"
#endif

#define ITEMS 256
#define QUADS 16                                       /* of columns of a work-group */
#define LANES (ITEMS / QUADS / BLOCKS)
#define STEP (4 * LANES)
#define ROWS (BLOCKS * SUMS)
#define ABREAST (ITEMS / STEP)                         /* rows that items bring at a time */
#define NOWHERE (-0x40000000)

#ifdef CVY_SUB_GROUP
#define THIN_KERNEL kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1), intel_reqd_sub_group_size(CVY_SUB_GROUP))) void
#else
#define THIN_KERNEL kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1))) void
#endif

/* DO(0) … DO(SUMS - 1): an array stays in registers of all compilers only if its indices are constants. */
#define EACH_9(DO) DO(0) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7) DO(8)
#define EACH_14(DO) EACH_9(DO) DO(9) DO(10) DO(11) DO(12) DO(13)
#define EACH_16(DO) EACH_14(DO) DO(14) DO(15)
/* Of LOADS rows that an item brings in a step: (ROWS + ABREAST - 1) / ABREAST. */
#if SUMS == 9
#define EACH_SUM EACH_9
#define LOADS 3
#define EACH_LOAD(DO) DO(0) DO(1) DO(2)
#elif SUMS == 14
#define EACH_SUM EACH_14
#elif SUMS == 16
#define EACH_SUM EACH_16
#else
#error "SUMS is to be 9, 14 or 16"
#endif
#if SUMS > 9
#define LOADS 4
#define EACH_LOAD(DO) DO(0) DO(1) DO(2) DO(3)
#endif

/* Four columns of position m, zeros where there are none. */
static inline float4 read_dy(global const float *dy, int m, int end, int k, int pitch) {
  float4 v = 0.0f;
  if (m < end && k < pitch) {
    global const float *const at = dy + m * pitch + k;
#if VEC_OUT == 4
    v = *(global const float4 *)at;
#else
    v.x = at[0];
    if (k + 1 < pitch) v.y = at[1];
    if (k + 2 < pitch) v.z = at[2];
    if (k + 3 < pitch) v.w = at[3];
#endif
  }
  return v;
}

static inline void store_columns(global float *to, int k, int pitch, float4 v) {
#if VEC_OUT == 4
  *(global float4 *)(to + k) = v;
#else
  to[k] = v.x;
  if (k + 1 < pitch) to[k + 1] = v.y;
  if (k + 2 < pitch) to[k + 2] = v.z;
  if (k + 3 < pitch) to[k + 3] = v.w;
#endif
}

/* Row (a, b, c) of dw, as a place relative to the pixel under tap (0, 0). */
typedef struct tap { int row, col, c; } tap;
static inline tap tap_of(int e, const cvy_conv_gather g, const cvy_conv_simt_call call) {
  const int at = fast_div(e, call.by_c), a = fast_div(at, call.by_taps);
  return (tap){e < call.n_depth ? g.first_h + a : NOWHERE, g.first_w + at - a * g.taps_w, e - at * g.in.c};
}

/* Channel c of a pixel of an image; zeros outside. */
static inline float read_x(global const float *image, int row, int col, int c, cvy_shape in) {
  return row >= 0 && row < in.h && col >= 0 && col < in.w ? image[(row * in.w + col) * in.pitch + c] : 0.0f;
}

THIN_KERNEL conv2d_thin_weights(global const float *restrict x, global const float *restrict dy,
                                global float *restrict parts, const cvy_conv_gather g, const cvy_conv_simt_call call,
                                int row_blocks, int sums_at, int has_db) {
  local float4 shared[ITEMS]; /* a step of x, (ROWS, STEP) floats; sums of items */
  local float *const tile = (local float *)shared;
  const int item = get_local_id(0), group = get_group_id(0), pitch = g.out.pitch, column_blocks = (pitch + 63) / 64;
  const int k = group % column_blocks * 64 + item % QUADS * 4, place = group / column_blocks,
            e0 = place % row_blocks * ROWS, part = place / row_blocks;
  const int block = item / QUADS / LANES, lane = item / QUADS % LANES;
  const int begin = part * call.part_length, end = min(call.positions, begin + call.part_length);
  tap taps[LOADS];
#define FIND(l) taps[l] = tap_of(e0 + item / STEP + (l) * ABREAST, g, call);
  EACH_LOAD(FIND)
#undef FIND

  float4 acc[SUMS], sum = 0.0f;
#define CLEAR(i) acc[i] = 0.0f;
  EACH_SUM(CLEAR)
#undef CLEAR
  for (int m0 = begin; m0 < end; m0 += STEP) {
    const int m = m0 + item % STEP, image = fast_div(m, call.by_grid), rest = m - image * (g.grid_h * g.grid_w),
              i = fast_div(rest, call.by_row), row = m < end ? i * g.step_h : NOWHERE, col = (rest - i * g.grid_w) * g.step_w;
    global const float *const pixels = x + image * g.in.h * g.in.w * g.in.pitch;
    float values[LOADS];
#define BRING(l) values[l] = read_x(pixels, row + taps[l].row, col + taps[l].col, taps[l].c, g.in);
    EACH_LOAD(BRING)
#undef BRING
    const int own = m0 + 4 * lane;
    const float4 d0 = read_dy(dy, own, end, k, pitch), d1 = read_dy(dy, own + 1, end, k, pitch),
                 d2 = read_dy(dy, own + 2, end, k, pitch), d3 = read_dy(dy, own + 3, end, k, pitch);
    barrier(CLK_LOCAL_MEM_FENCE); /* the step before is multiplied */
#define PUT(l) \
  if (ROWS % ABREAST == 0 || item / STEP + (l) * ABREAST < ROWS) tile[item + (l) * ITEMS] = values[l];
    EACH_LOAD(PUT)
#undef PUT
    barrier(CLK_LOCAL_MEM_FENCE);
    local const float4 *const from = shared + block * SUMS * LANES + lane;
#define MULTIPLY(i)                                \
  {                                                \
    const float4 v = from[(i) * LANES];            \
    acc[i] = fma((float4)(v.x), d0, acc[i]);       \
    acc[i] = fma((float4)(v.y), d1, acc[i]);       \
    acc[i] = fma((float4)(v.z), d2, acc[i]);       \
    acc[i] = fma((float4)(v.w), d3, acc[i]);       \
  }
    EACH_SUM(MULTIPLY)
#undef MULTIPLY
    sum += d0, sum += d1, sum += d2, sum += d3;
  }

  global float *const to = parts + part * call.part_floats;
  /* Sums of an item's LANES, one row after the other; `is` says whether there is such a row. */
#define ADD_LANES(value, is, where)                                          \
  {                                                                          \
    barrier(CLK_LOCAL_MEM_FENCE);                                            \
    shared[item] = value;                                                    \
    barrier(CLK_LOCAL_MEM_FENCE);                                            \
    if (lane == 0 && (is) && k < pitch) {                                    \
      float4 total = value;                                                  \
      for (int l = 1; l < LANES; l++) total += shared[item + l * QUADS];     \
      store_columns(where, k, pitch, total);                                 \
    }                                                                        \
  }
#define STORE(i) ADD_LANES(acc[i], e0 + block * SUMS + (i) < call.n_depth, to + (e0 + block * SUMS + (i)) * pitch)
  EACH_SUM(STORE)
#undef STORE
  ADD_LANES(sum, has_db && e0 + block == 0, parts + sums_at + part * pitch)
}
