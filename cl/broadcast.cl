/* SPDX-License-Identifier: MIT
 * Combines s (n,c), a value per sample and channel, with x (n,h,w,c) at all positions of the sample [ops/broadcast.h]:
 *   mul      y = x * s                 mul_add  y += x * s
 *   add      y = x + s                 add_relu y = max(x + s, 0)
 *   sum      s (+)= sum of x over the positions          sum_product  of x * z
 *
 *   VEC      floats per vector; vecs = pitch / VEC
 *   C_LANES  sums on SIMT devices: neighbouring vectors of channels per work-group, a power of two that divides vecs
 * y may be x's buffer: not `restrict`; every element is read before the same element is written, by the same work-item.
 * Order of sums. CPU: runs of RUN positions, then the runs one after the other. SIMT: LOCAL / C_LANES work-items take every
 * LOCAL / C_LANES-th position, then a tree.
 * Geometry. CPU: a work-group loops over pieces (sample, part of the positions), for sums (sample, 4 vectors). SIMT: one
 * work-item per vector of y; for sums a work-group per sample and C_LANES vectors. */
#include "broadcast_args.clh"
#include "fastdiv.clh"
#include "vector.clh"

#ifndef C_LANES
#define C_LANES 1
#endif
#if C_LANES < 1 || C_LANES > LOCAL || (C_LANES & (C_LANES - 1)) != 0
#error "C_LANES must be a power of two and at most LOCAL"
#endif
#define RUN 64

/* ---- y from x and s ---- */

#if CVY_CPU
/* Loops over the vectors of x: `at` is the vector's index in x, `of` its index in s, `v` its place among the
 * channels. */
#define FOR_EACH(at, of, v)                                                                                        \
  for (ulong piece = CVY_GROUP; piece < (ulong)g.count * g.parts; piece += CVY_GROUPS)                             \
    for (size_t sample = piece / g.parts, part = piece % g.parts, row = part * g.positions / g.parts,              \
                last = (part + 1) * g.positions / g.parts;                                                         \
         row < last; row++)                                                                                        \
      for (size_t v = 0, at = (sample * g.positions + row) * g.vecs, of = sample * g.vecs; v < (size_t)g.vecs; v++, at++, of++)
#else
#define FOR_EACH(at, of, v)                                                                        \
  const int at = get_global_id(0), row = fast_div(at, g.by_vecs), v = at - row * g.vecs;           \
  const int of = fast_div(row, g.by_positions) * g.vecs + v;                                       \
  if (at < g.count)
#endif

CVY_KERNEL broadcast_mul(global const floatv *x, global const floatv *restrict s, global floatv *y,
                         const cvy_broadcast_geometry g) {
  FOR_EACH(at, of, v) y[at] = x[at] * s[of];
}

CVY_KERNEL broadcast_mul_add(global const floatv *x, global const floatv *restrict s, global floatv *y,
                             const cvy_broadcast_geometry g) {
  FOR_EACH(at, of, v) y[at] += x[at] * s[of];
}

CVY_KERNEL broadcast_add(global const floatv *x, global const floatv *restrict s, global floatv *y,
                         const cvy_broadcast_geometry g) {
  FOR_EACH(at, of, v) y[at] = x[at] + s[of];
}

CVY_KERNEL broadcast_add_relu(global const floatv *x, global const floatv *restrict s, global floatv *y,
                              const cvy_broadcast_geometry g) {
  FOR_EACH(at, of, v) y[at] = cvy_relu(x[at] + s[of]);
}

/* ---- s from x and z ---- */

#if CVY_CPU

/* z NULL: sums x alone. `count` is a constant after inlining. */
static inline __attribute__((always_inline)) void sum_block(global const floatv *x, global const floatv *z,
                                                            global floatv *s, const cvy_broadcast_geometry g,
                                                            const int accumulate, const int count) {
  floatv total[4];
  for (int k = 0; k < count; k++) total[k] = accumulate ? s[k] : (floatv)(0.0f);
  for (int run = 0; run < g.positions; run += RUN) {
    const int last = min(run + RUN, g.positions);
    floatv sum[4];
    for (int k = 0; k < count; k++) sum[k] = 0.0f;
    for (int row = run; row < last; row++)
      for (int k = 0; k < count; k++) {
        const size_t at = (size_t)row * g.vecs + k;
        sum[k] += z ? x[at] * z[at] : x[at];
      }
    for (int k = 0; k < count; k++) total[k] += sum[k];
  }
  for (int k = 0; k < count; k++) s[k] = total[k];
}

static inline __attribute__((always_inline)) void sum_all(global const floatv *x, global const floatv *z, global floatv *s,
                                                          const cvy_broadcast_geometry g, const int accumulate) {
  const int blocks = (g.vecs + 3) / 4;
  for (ulong piece = CVY_GROUP; piece < (ulong)g.count * blocks; piece += CVY_GROUPS) {
    const size_t sample = piece / blocks, first = piece % blocks * 4, at = sample * g.positions * g.vecs + first;
    global floatv *const to = s + sample * g.vecs + first;
    if (first + 4 <= (size_t)g.vecs) {
      sum_block(x + at, z ? z + at : z, to, g, accumulate, 4);
    } else {
      for (int k = 0; k < g.vecs - (int)first; k++) sum_block(x + at + k, z ? z + at + k : z, to + k, g, accumulate, 1);
    }
  }
}

CVY_KERNEL broadcast_sum(global const floatv *restrict x, global floatv *restrict s, const cvy_broadcast_geometry g,
                         const int accumulate) {
  sum_all(x, 0, s, g, accumulate);
}

CVY_KERNEL broadcast_sum_product(global const floatv *restrict x, global const floatv *restrict z,
                                 global floatv *restrict s, const cvy_broadcast_geometry g, const int accumulate) {
  sum_all(x, z, s, g, accumulate);
}

#else

/* count: vectors of s. */
#define SUM(TERM)                                                                               \
  local floatv scratch[LOCAL];                                                                  \
  const int chunks = g.vecs / C_LANES, item = get_local_id(0), t = item / C_LANES;              \
  const int group = get_group_id(0), sample = group / chunks;                                   \
  const int c = (group - sample * chunks) * C_LANES + item % C_LANES;                           \
  const int rows = sample * g.vecs < g.count ? g.positions : 0;                                 \
  const size_t first = (size_t)sample * g.positions * g.vecs + c;                               \
  floatv sum = 0.0f;                                                                            \
  for (int row = t; row < rows; row += LOCAL / C_LANES) {                                       \
    const size_t at = first + (size_t)row * g.vecs;                                             \
    sum += TERM;                                                                                \
  }                                                                                             \
  scratch[item] = sum;                                                                          \
  barrier(CLK_LOCAL_MEM_FENCE);                                                                 \
  for (int reach = LOCAL / 2; reach >= C_LANES; reach /= 2) {                                   \
    if (item < reach) scratch[item] += scratch[item + reach];                                   \
    barrier(CLK_LOCAL_MEM_FENCE);                                                               \
  }                                                                                             \
  if (t == 0 && rows > 0) {                                                                     \
    const int to = sample * g.vecs + c;                                                         \
    s[to] = accumulate ? s[to] + scratch[item] : scratch[item];                                 \
  }

CVY_KERNEL broadcast_sum(global const floatv *restrict x, global floatv *restrict s, const cvy_broadcast_geometry g,
                         const int accumulate) {
  SUM(x[at])
}

CVY_KERNEL broadcast_sum_product(global const floatv *restrict x, global const floatv *restrict z,
                                 global floatv *restrict s, const cvy_broadcast_geometry g, const int accumulate) {
  SUM(x[at] * z[at])
}

#endif
