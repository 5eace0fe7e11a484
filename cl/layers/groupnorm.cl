/* SPDX-License-Identifier: MIT
 * Normalisation of a sample over groups of its channels (ops/layers/groupnorm.h):
 *   y  = ((x - mean) - rest) * invstd * gamma + beta                    mean + rest: the mean, in two floats
 *   dx = invstd * (dm - mean(dm) - xhat * mean(dm * xhat)),  dm = dy * gamma,  xhat = ((x - mean) - rest) * invstd
 *
 *   BY_ROW   [0] 1: a sample is one position and one group: a row by itself. saved: (rows,3) mean, rest, invstd
 *            0: saved (n,3,pitch), each channel with its group's
 *   C_LANES  sums on SIMT devices: neighbouring vectors of channels per work-group, a power of two that divides vecs
 * BY_ROW 1: rows_forward · sums, total, rows_backward.
 * BY_ROW 0: moments (mean, rest, sum of squares of each channel of each sample), merge (Chan et al. 1979: of a group), apply ·
 * sums, total, merge_sums, backward.
 * Order of sums. CPU: runs of RUN positions, then the runs one after the other. SIMT: LOCAL / C_LANES work-items take
 * every LOCAL / C_LANES-th position, then a tree. Channels of a group, and rows by themselves: row.clh.
 * Geometry. CPU: a work-group loops over rows, over (sample, 4 vectors), or over (sample, part of its positions).
 * SIMT: LANES work-items for a row or a group, a work-group for a sample and C_LANES vectors, a work-item for a vector.
 * y may be x's buffer and dx dy's: not `restrict`; every element is read before the same element is written, by the same
 * work-item. */
#include "fastdiv.clh"
#include "groupnorm_args.clh"
#include "row.clh"

#ifndef BY_ROW
#define BY_ROW 0
#endif
#ifndef C_LANES
#define C_LANES 1
#endif
#if C_LANES < 1 || C_LANES > LOCAL || (C_LANES & (C_LANES - 1)) != 0
#error "C_LANES must be a power of two and at most LOCAL"
#endif
#define RUN 64

#if BY_ROW

/* ---- rows by themselves ---- */

#if CVY_CPU

CVY_KERNEL groupnorm_rows_forward(global const float *x, global const float *restrict gamma,
                                  global const float *restrict beta, const int has_beta, global float *y,
                                  global float *restrict saved, const cvy_groupnorm_geometry g) {
  const int pitch = g.vecs * VEC, c = g.c;
  for (int r = CVY_GROUP; r < g.n; r += CVY_GROUPS) {
    global const float *const from = x + (size_t)r * pitch;
    global float *const to = y + (size_t)r * pitch;
    float16 sum = 0.0f, left = 0.0f, squares = 0.0f;
    for (int j = 0; j < c; j += LANES) sum += row_load(from, j, c, 0.0f);
    const float mean = row_sum(sum) / c;
    for (int j = 0; j < c; j += LANES) {
      const float16 d = row_load(from, j, c, mean) - mean;
      left += d;
      squares += d * d;
    }
    const float rest = row_sum(left) / c, variance = fmax(row_sum(squares) / c - rest * rest, 0.0f);
    const float invstd = 1.0f / sqrt(variance + g.eps);
    for (int j = 0; j < pitch; j += LANES) {
      const float16 xhat = ((row_load(from, j, c, mean) - mean) - rest) * invstd;
      const float16 shift = has_beta ? CVY_LOAD16(beta + j) : (float16)(0.0f);
      CVY_STORE16(row_columns(j) < c ? xhat * CVY_LOAD16(gamma + j) + shift : (float16)(0.0f), to + j);
    }
    saved[3 * (size_t)r] = mean;
    saved[3 * (size_t)r + 1] = rest;
    saved[3 * (size_t)r + 2] = invstd;
  }
}

CVY_KERNEL groupnorm_rows_backward(global const float *restrict x, global const float *dy,
                                   global const float *restrict gamma, global const float *restrict saved,
                                   global float *dx, const int accumulate, const cvy_groupnorm_geometry g) {
  const int pitch = g.vecs * VEC, c = g.c;
  for (int r = CVY_GROUP; r < g.n; r += CVY_GROUPS) {
    const size_t at = (size_t)r * pitch;
    const float mean = saved[3 * (size_t)r], rest = saved[3 * (size_t)r + 1], invstd = saved[3 * (size_t)r + 2];
    float16 plain = 0.0f, along = 0.0f;
    for (int j = 0; j < c; j += LANES) {
      const float16 dm = row_load(dy + at, j, c, 0.0f) * CVY_LOAD16(gamma + j);
      plain += dm;
      along += dm * (((row_load(x + at, j, c, mean) - mean) - rest) * invstd);
    }
    const float a = row_sum(plain) / c, b = row_sum(along) / c;
    for (int j = 0; j < pitch; j += LANES) {
      const float16 xhat = ((row_load(x + at, j, c, mean) - mean) - rest) * invstd;
      const float16 dm = row_load(dy + at, j, c, 0.0f) * CVY_LOAD16(gamma + j);
      const float16 value = row_columns(j) < c ? invstd * ((dm - a) - xhat * b) : (float16)(0.0f);
      CVY_STORE16(accumulate ? CVY_LOAD16(dx + at + j) + value : value, dx + at + j);
    }
  }
}

#else

CVY_KERNEL groupnorm_rows_forward(global const float *x, global const float *restrict gamma,
                                  global const float *restrict beta, const int has_beta, global float *y,
                                  global float *restrict saved, const cvy_groupnorm_geometry g) {
  local float scratch[LOCAL];
  const int lane = get_local_id(0) % LANES, r = get_global_id(0) / LANES, pitch = g.vecs * VEC;
  const int columns = r < g.n ? g.c : 0;
  global const float *const from = x + (size_t)r * pitch;
  global float *const to = y + (size_t)r * pitch;
  float sum = 0.0f, left = 0.0f, squares = 0.0f;
  for (int j = lane; j < columns; j += LANES) sum += from[j];
  const float mean = row_tree_sum(sum, lane, scratch) / g.c;
  for (int j = lane; j < columns; j += LANES) {
    const float d = from[j] - mean;
    left += d;
    squares += d * d;
  }
  const float rest = row_tree_sum(left, lane, scratch) / g.c;
  const float variance = fmax(row_tree_sum(squares, lane, scratch) / g.c - rest * rest, 0.0f);
  const float invstd = 1.0f / sqrt(variance + g.eps);
  for (int j = lane; r < g.n && j < pitch; j += LANES) {
    const float shift = has_beta ? beta[j] : 0.0f;
    to[j] = j < g.c ? ((from[j] - mean) - rest) * invstd * gamma[j] + shift : 0.0f;
  }
  if (r < g.n && lane < 3) saved[3 * (size_t)r + lane] = lane == 0 ? mean : lane == 1 ? rest : invstd;
}

CVY_KERNEL groupnorm_rows_backward(global const float *restrict x, global const float *dy,
                                   global const float *restrict gamma, global const float *restrict saved,
                                   global float *dx, const int accumulate, const cvy_groupnorm_geometry g) {
  local float scratch[LOCAL];
  const int lane = get_local_id(0) % LANES, r = get_global_id(0) / LANES, pitch = g.vecs * VEC;
  const int columns = r < g.n ? g.c : 0, known = r < g.n ? r : 0;
  const size_t at = (size_t)r * pitch;
  const float mean = saved[3 * (size_t)known], rest = saved[3 * (size_t)known + 1], invstd = saved[3 * (size_t)known + 2];
  float plain = 0.0f, along = 0.0f;
  for (int j = lane; j < columns; j += LANES) {
    const float dm = dy[at + j] * gamma[j];
    plain += dm;
    along += dm * (((x[at + j] - mean) - rest) * invstd);
  }
  const float a = row_tree_sum(plain, lane, scratch) / g.c, b = row_tree_sum(along, lane, scratch) / g.c;
  for (int j = lane; r < g.n && j < pitch; j += LANES) {
    const float dm = dy[at + j] * gamma[j], xhat = ((x[at + j] - mean) - rest) * invstd;
    const float value = j < g.c ? invstd * ((dm - a) - xhat * b) : 0.0f;
    dx[at + j] = accumulate ? dx[at + j] + value : value;
  }
}

#endif

#else

/* ---- moments of channels, and of groups ---- */

#if CVY_CPU

/* `count` vectors of channels of one sample; count is a constant after inlining. */
CVY_ALWAYS_INLINE void moments_of(global const floatv *x, global floatv *out, const cvy_groupnorm_geometry g, const int count) {
  floatv mean[4], total[4], squares[4];
  for (int k = 0; k < count; k++) mean[k] = 0.0f;
  for (int run = 0; run < g.positions; run += RUN) {
    const int last = min(run + RUN, g.positions);
    floatv sum[4];
    for (int k = 0; k < count; k++) sum[k] = 0.0f;
    for (int row = run; row < last; row++)
      for (int k = 0; k < count; k++) sum[k] += x[(size_t)row * g.vecs + k];
    for (int k = 0; k < count; k++) mean[k] += sum[k];
  }
  for (int k = 0; k < count; k++) mean[k] /= (float)g.positions, total[k] = squares[k] = 0.0f;
  for (int run = 0; run < g.positions; run += RUN) {
    const int last = min(run + RUN, g.positions);
    floatv sum[4], square[4];
    for (int k = 0; k < count; k++) sum[k] = square[k] = 0.0f;
    for (int row = run; row < last; row++)
      for (int k = 0; k < count; k++) {
        const floatv d = x[(size_t)row * g.vecs + k] - mean[k];
        sum[k] += d;
        square[k] += d * d;
      }
    for (int k = 0; k < count; k++) total[k] += sum[k], squares[k] += square[k];
  }
  for (int k = 0; k < count; k++) {
    const floatv rest = total[k] / (float)g.positions;
    out[k] = mean[k];
    out[g.vecs + k] = rest;
    out[2 * g.vecs + k] = fmax(squares[k] - rest * rest * (float)g.positions, 0.0f);
  }
}

CVY_KERNEL groupnorm_moments(global const floatv *restrict x, global floatv *restrict moments, const cvy_groupnorm_geometry g) {
  const int blocks = (g.vecs + 3) / 4;
  for (ulong piece = CVY_GROUP; piece < (ulong)g.n * blocks; piece += CVY_GROUPS) {
    const size_t sample = piece / blocks, first = piece % blocks * 4;
    global const floatv *const from = x + sample * g.positions * g.vecs + first;
    global floatv *const to = moments + sample * 3 * g.vecs + first;
    if (first + 4 <= (size_t)g.vecs) moments_of(from, to, g, 4);
    else
      for (int k = 0; k < g.vecs - (int)first; k++) moments_of(from + k, to + k, g, 1);
  }
}

#else

/* Sums of the work-items with the same vector of channels; all work-items must call it. */
static inline floatv tree_sum(const floatv value, local floatv *scratch) {
  const int item = get_local_id(0);
  scratch[item] = value;
  barrier(CLK_LOCAL_MEM_FENCE);
  for (int reach = LOCAL / 2; reach >= C_LANES; reach /= 2) {
    if (item < reach) scratch[item] += scratch[item + reach];
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  const floatv result = scratch[item % C_LANES];
  barrier(CLK_LOCAL_MEM_FENCE);
  return result;
}

CVY_KERNEL groupnorm_moments(global const floatv *restrict x, global floatv *restrict moments, const cvy_groupnorm_geometry g) {
  local floatv scratch[LOCAL];
  const int chunks = g.vecs / C_LANES, item = get_local_id(0), t = item / C_LANES;
  const int group = get_group_id(0), sample = group / chunks;
  const int v = (group - sample * chunks) * C_LANES + item % C_LANES;
  const int rows = sample < g.n ? g.positions : 0;
  const size_t first = (size_t)sample * g.positions * g.vecs + v;
  floatv sum = 0.0f, left = 0.0f, squares = 0.0f;
  for (int row = t; row < rows; row += LOCAL / C_LANES) sum += x[first + (size_t)row * g.vecs];
  const floatv mean = tree_sum(sum, scratch) / (float)g.positions;
  for (int row = t; row < rows; row += LOCAL / C_LANES) {
    const floatv d = x[first + (size_t)row * g.vecs] - mean;
    left += d;
    squares += d * d;
  }
  const floatv rest = tree_sum(left, scratch) / (float)g.positions;
  const floatv square = tree_sum(squares, scratch) - rest * rest * (float)g.positions;
  if (t == 0 && rows > 0) {
    global floatv *const to = moments + (size_t)sample * 3 * g.vecs + v;
    to[0] = mean;
    to[g.vecs] = rest;
    to[2 * g.vecs] = fmax(square, 0.0f);
  }
}

#endif

/* A group of channels of one sample: on CPUs one work-item, else LANES of them. OWN: whether there is such a group. */
#if CVY_CPU
#define FOR_EACH_GROUP for (int r = CVY_GROUP, lane = 0; r < g.n * g.groups; r += CVY_GROUPS)
#define GROUP_LANES 1
#define TOTAL(value) (value)
#define OWN true
#else
#define FOR_EACH_GROUP                                                                         \
  local float scratch[LOCAL];                                                                  \
  const int lane = get_local_id(0) % LANES, r = get_global_id(0) / LANES;
#define GROUP_LANES LANES
#define TOTAL(value) row_tree_sum(value, lane, scratch)
#define OWN (r < g.n * g.groups)
#endif
/* Channels of the group that this work-item takes. */
#define FOR_EACH_CHANNEL(j, each) for (int j = lane; j < (each); j += GROUP_LANES)

/* Writes for each channel of the group, and zeros behind the last channel. */
#define FOR_EACH_PLACE(j) \
  for (int j = lane, end = (group + 1 == g.groups ? pitch - group * g.each : g.each); OWN && j < end; j += GROUP_LANES)

CVY_KERNEL groupnorm_merge(global const float *restrict moments, global float *restrict saved, const cvy_groupnorm_geometry g) {
  const int pitch = g.vecs * VEC;
  FOR_EACH_GROUP {
    const int sample = r / g.groups, group = r - sample * g.groups, each = OWN ? g.each : 0;
    const size_t row = (size_t)sample * 3 * pitch + (size_t)group * g.each;
    global const float *const from = moments + row;
    global float *const to = saved + row;
    float sum = 0.0f, left = 0.0f, squares = 0.0f;
    FOR_EACH_CHANNEL(j, each) sum += from[j];
    const float mean = TOTAL(sum) / g.each;
    FOR_EACH_CHANNEL(j, each) left += (from[j] - mean) + from[pitch + j];
    const float rest = TOTAL(left) / g.each;
    FOR_EACH_CHANNEL(j, each) {
      const float d = ((from[j] - mean) + from[pitch + j]) - rest;
      squares += from[2 * pitch + j] + d * d * g.positions;
    }
    const float invstd = 1.0f / sqrt(TOTAL(squares) / ((float)g.positions * g.each) + g.eps);
    FOR_EACH_PLACE(j) {
      const bool used = j < g.each;
      to[j] = used ? mean : 0.0f;
      to[pitch + j] = used ? rest : 0.0f;
      to[2 * pitch + j] = used ? invstd : 0.0f;
    }
  }
}

/* sums: (n,2,pitch) of dy * xhat, and of dy; means, from `at` on: (n,2,pitch) of dm over the group, and of dm * xhat. */
CVY_KERNEL groupnorm_merge_sums(global float *sums, const uint at, global const float *restrict gamma,
                                const cvy_groupnorm_geometry g) {
  const int pitch = g.vecs * VEC;
  FOR_EACH_GROUP {
    const int sample = r / g.groups, group = r - sample * g.groups, each = OWN ? g.each : 0;
    const size_t row = (size_t)sample * 2 * pitch + (size_t)group * g.each;
    global const float *const from = sums + row, *const factor = gamma + (size_t)group * g.each;
    global float *const to = sums + at + row;
    float plain = 0.0f, along = 0.0f;
    FOR_EACH_CHANNEL(j, each) {
      along += factor[j] * from[j];
      plain += factor[j] * from[pitch + j];
    }
    const float values = (float)g.positions * g.each, a = TOTAL(plain) / values, b = TOTAL(along) / values;
    FOR_EACH_PLACE(j) {
      to[j] = j < g.each ? a : 0.0f;
      to[pitch + j] = j < g.each ? b : 0.0f;
    }
  }
}

/* ---- each value by itself ---- */

/* Loops over the vectors of x: `at` is the vector's index, v its place among the channels, `sample` its sample. */
#if CVY_CPU
#define FOR_EACH(at, sample, v)                                                                                   \
  for (ulong piece = CVY_GROUP; piece < (ulong)g.n * g.parts; piece += CVY_GROUPS)                                \
    for (size_t sample = piece / g.parts, part = piece % g.parts, row = part * g.positions / g.parts,             \
                last = (part + 1) * g.positions / g.parts;                                                        \
         row < last; row++)                                                                                       \
      for (size_t v = 0, at = (sample * g.positions + row) * g.vecs; v < (size_t)g.vecs; v++, at++)
#else
#define FOR_EACH(at, sample, v)                                                                                   \
  const int at = get_global_id(0), row = fast_div(at, g.by_vecs), v = at - row * g.vecs;                          \
  const int sample = fast_div(row, g.by_positions);                                                               \
  if (sample < g.n)
#endif
#define SAVED(which) saved[((size_t)sample * 3 + which) * g.vecs + v]

CVY_KERNEL groupnorm_apply(global const floatv *x, global const floatv *restrict gamma, global const floatv *restrict beta,
                           const int has_beta, global const floatv *restrict saved, global floatv *y,
                           const cvy_groupnorm_geometry g) {
  FOR_EACH(at, sample, v) {
    const floatv xhat = ((x[at] - SAVED(0)) - SAVED(1)) * SAVED(2);
    y[at] = xhat * gamma[v] + (has_beta ? beta[v] : (floatv)(0.0f));
  }
}

CVY_KERNEL groupnorm_backward(global const floatv *restrict x, global const floatv *dy, global const floatv *restrict gamma,
                              global const floatv *restrict saved, global const floatv *restrict sums, const uint means,
                              global floatv *dx, const int accumulate, const cvy_groupnorm_geometry g) {
  FOR_EACH(at, sample, v) {
    global const floatv *const mean = sums + means + (size_t)sample * 2 * g.vecs + v;
    const floatv xhat = ((x[at] - SAVED(0)) - SAVED(1)) * SAVED(2);
    const floatv value = SAVED(2) * ((dy[at] * gamma[v] - mean[0]) - xhat * mean[g.vecs]);
    dx[at] = accumulate ? dx[at] + value : value;
  }
}

#endif

/* ---- sums for dgamma and dbeta: (parts,2,pitch) of dy * xhat, and of dy, each over a part of the rows ---- */

/* BY_ROW 0: a part is a sample. */
#if BY_ROW
#define XHAT(at, row, k) (((x[at] - saved[3 * (size_t)(row)]) - saved[3 * (size_t)(row) + 1]) * saved[3 * (size_t)(row) + 2])
typedef float saved_value;
#else
#define XHAT(at, row, k) (((x[at] - mean[k]) - rest[k]) * invstd[k])
typedef floatv saved_value;
#endif

#if CVY_CPU

CVY_ALWAYS_INLINE void sum_rows(global const floatv *x, global const floatv *dy, global const saved_value *saved,
                                global floatv *out, const size_t begin, const size_t end, const int part, const int v,
                                const cvy_groupnorm_geometry g, const int count) {
  floatv along[4], plain[4];
#if !BY_ROW
  floatv mean[4], rest[4], invstd[4];
  for (int k = 0; k < count; k++) {
    global const floatv *const of = saved + (size_t)part * 3 * g.vecs + v + k;
    mean[k] = of[0], rest[k] = of[g.vecs], invstd[k] = of[2 * g.vecs];
  }
#endif
  for (int k = 0; k < count; k++) along[k] = plain[k] = 0.0f;
  for (size_t run = begin; run < end; run += RUN) {
    const size_t last = min(run + RUN, end);
    floatv product[4], sum[4];
    for (int k = 0; k < count; k++) product[k] = sum[k] = 0.0f;
    for (size_t row = run; row < last; row++)
      for (int k = 0; k < count; k++) {
        const size_t at = row * g.vecs + v + k;
        product[k] += dy[at] * XHAT(at, row, k);
        sum[k] += dy[at];
      }
    for (int k = 0; k < count; k++) along[k] += product[k], plain[k] += sum[k];
  }
  for (int k = 0; k < count; k++) out[k] = along[k], out[g.vecs + k] = plain[k];
}

CVY_KERNEL groupnorm_sums(global const floatv *restrict x, global const floatv *restrict dy,
                          global const saved_value *restrict saved, global floatv *restrict sums,
                          const cvy_groupnorm_geometry g) {
  const int blocks = (g.vecs + 3) / 4;
  const ulong rows = (ulong)g.n * g.positions;
  for (ulong piece = CVY_GROUP; piece < (ulong)g.parts * blocks; piece += CVY_GROUPS) {
    const int part = piece / blocks, v = piece % blocks * 4;
    const size_t begin = part * rows / g.parts, end = (part + 1) * rows / g.parts;
    global floatv *const to = sums + (size_t)part * 2 * g.vecs + v;
    if (v + 4 <= g.vecs) sum_rows(x, dy, saved, to, begin, end, part, v, g, 4);
    else
      for (int k = 0; k < g.vecs - v; k++) sum_rows(x, dy, saved, to + k, begin, end, part, v + k, g, 1);
  }
}

#else

CVY_KERNEL groupnorm_sums(global const floatv *restrict x, global const floatv *restrict dy,
                          global const saved_value *restrict saved, global floatv *restrict sums,
                          const cvy_groupnorm_geometry g) {
  local floatv products[LOCAL], plain[LOCAL];
  const int chunks = g.vecs / C_LANES, item = get_local_id(0), t = item / C_LANES;
  const int group = get_group_id(0), part = group / chunks;
  const int v = (group - part * chunks) * C_LANES + item % C_LANES;
  const ulong rows = (ulong)g.n * g.positions;
  const size_t begin = part < g.parts ? part * rows / g.parts : 0, end = part < g.parts ? (part + 1) * rows / g.parts : 0;
#if !BY_ROW
  floatv mean[1] = {0.0f}, rest[1] = {0.0f}, invstd[1] = {0.0f};
  if (part < g.parts) {
    global const floatv *const of = saved + (size_t)part * 3 * g.vecs + v;
    mean[0] = of[0], rest[0] = of[g.vecs], invstd[0] = of[2 * g.vecs];
  }
#endif
  floatv along = 0.0f, sum = 0.0f;
  for (size_t row = begin + t; row < end; row += LOCAL / C_LANES) {
    const size_t at = row * g.vecs + v;
    along += dy[at] * XHAT(at, row, 0);
    sum += dy[at];
  }
  products[item] = along;
  plain[item] = sum;
  barrier(CLK_LOCAL_MEM_FENCE);
  for (int reach = LOCAL / 2; reach >= C_LANES; reach /= 2) {
    if (item < reach) {
      products[item] += products[item + reach];
      plain[item] += plain[item + reach];
    }
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  if (t == 0 && part < g.parts) {
    global floatv *const to = sums + (size_t)part * 2 * g.vecs + v;
    to[0] = products[item];
    to[g.vecs] = plain[item];
  }
}

#endif

/* The parts, one after the other. */
CVY_KERNEL groupnorm_total(global const floatv *restrict sums, global floatv *restrict dgamma, global floatv *restrict dbeta,
                           const int has_beta, const int accumulate, const cvy_groupnorm_geometry g) {
  CVY_FOR_EACH_VECTOR(v, g.vecs, 1) {
    floatv along = accumulate ? dgamma[v] : (floatv)(0.0f), plain = accumulate && has_beta ? dbeta[v] : (floatv)(0.0f);
    for (int first = 0; first < g.parts; first += RUN) {
      floatv product = 0.0f, sum = 0.0f;
      for (int part = first; part < min(first + RUN, g.parts); part++) {
        product += sums[(size_t)part * 2 * g.vecs + v];
        sum += sums[((size_t)part * 2 + 1) * g.vecs + v];
      }
      along += product;
      plain += sum;
    }
    dgamma[v] = along;
    if (has_beta) dbeta[v] = plain;
  }
}
