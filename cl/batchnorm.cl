/* SPDX-License-Identifier: MIT
 * Batch normalisation (ops/batchnorm.h; Ioffe & Szegedy 2015):
 *   bn_stats            a part's (mean, M2): M2 = sum of squared deviations from its mean
 *   bn_finish           parts → group: mean = sum n_j*mean_j / m, M2 = sum M2_j + n_j*(mean_j - mean)² (Chan et al.
 *                       1979), var = M2/m, invstd = 1/sqrt(var + eps); terms w*mean and w*var*m/(m-1) of the running
 *                       values
 *   bn_inference        mean and invstd from the running values
 * If y is deferred (never stored), bn_finish also writes the affine, and bn_inference writes it instead: mean, scale
 * = gamma*invstd and shift = beta - low*scale. y's readers compute fma(x - mean, scale, shift). low: the rounding
 * error of the mean (0 in bn_inference).
 *   bn_apply            y = act((x - mean)*invstd*gamma + beta [+ residual])
 *   bn_backward_sums    a part's sum dm and sum dm*(x - mean), dm = dy * act'; may store dm
 *   bn_backward_finish  parts → group: a = sum dm / m, b = sum dm*(x-mean) * invstd² / m; terms sum dm and
 *                       sum dm*xhat of dbeta and dgamma
 *   bn_backward_apply   dx = gamma*invstd*(dm - a - (x - mean)*b)
 *   bn_backward_finish_apply  both in one launch, on SIMT devices: the same bits, if F_LANES is C_LANES in the first
 *   bn_sum_groups       terms of all groups, in order
 * Sums of x are sums of differences from some x of the same part, sums of means are sums of differences from the first
 * part's mean: a mean much larger than the deviation costs no digits, and a difference from a member of the set is at
 * most sqrt(n) deviations.
 *
 * Positions: x is (rows, pitch) with rows = samples * H*W; a group is group_rows of them in a row (the last one
 * fewer), cut into `parts` parts of `block` positions, wherever images begin or end. So one large image gives as many
 * parts as many small ones. The last parts of the last group may be empty. Per-image statistics of a convolution are
 * parts with block = H*W.
 *   KIND     not defined: act is the identity or ReLU, chosen by an argument; else one of activation_value.clh, with
 *            its a and b
 *   VEC      floats per vector; vecs = pitch / VEC
 *   C_LANES  neighbouring vectors per SIMT work-group, divides vecs
 *   F_LANES  the same in the finish kernels, which loop over many parts and have few channels
 * partial: (groups*parts, 2, pitch) · saved, terms, coef: (groups, 2, pitch) · a buffer may be passed as several of
 * these with offsets. Order of sums: positions of a part, or of one work-item row of it, in order; rows by a tree;
 * parts in order; groups in order.
 *
 * Geometry. CPU: a work-group loops over parts; a part is small enough to stay in the cache for a second pass. SIMT: a
 * work-group takes C_LANES vectors of one part, LOCAL / C_LANES work-items side by side over its positions. */
#include "vector.clh"

#ifndef C_LANES
#define C_LANES 4
#endif
#ifndef F_LANES
#define F_LANES 1
#endif
#if C_LANES < 1 || C_LANES > LOCAL || (C_LANES & (C_LANES - 1)) != 0 || F_LANES < 1 || F_LANES > C_LANES || \
  (F_LANES & (F_LANES - 1)) != 0
#error "C_LANES and F_LANES must be powers of two, F_LANES <= C_LANES <= LOCAL"
#endif

/* Positions [begin, end) of a part. */
typedef struct part_range { uint begin, end; } part_range;

static inline part_range range_of(const uint group, const uint j, const uint block, const uint group_rows,
                                  const uint rows) {
  const uint first = group * group_rows, begin = min(first + j * block, rows);
  return (part_range){begin, max(begin, min(min(begin + block, first + group_rows), rows))};
}

/* Zeroes the padding of vector c: channels from `channels` on. */
static inline floatv live(const floatv v, const uint c, const uint channels) {
#if VEC == 16
  return convert_int16((uint16)(c * 16) + (uint16)(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)) <
             (int16)(channels)
           ? v
           : (floatv)(0.0f);
#elif VEC == 4
  return convert_int4((uint4)(c * 4) + (uint4)(0, 1, 2, 3)) < (int4)(channels) ? v : (floatv)(0.0f);
#else
  return c < channels ? v : 0.0f;
#endif
}

/* The activation and its gradient. The value that decides whether the gradient passes:
 *   PASS_ALL     none: there is no activation, or dm was stored
 *   PASS_Y       y, which is read: ReLU after a residual
 *   PASS_AFFINE  the value that readers of a deferred y compute from d = x - mean, as conv2d's load prologue does
 *   PASS_VALUE   the value that bn_apply computes without a residual */
#define PASS_ALL 0
#define PASS_Y 1
#define PASS_AFFINE 2
#define PASS_VALUE 3

/* Coefficients of a vector of channels. PASS_VALUE: invstd, gamma (in scale), beta (in shift). PASS_AFFINE: scale,
 * shift. */
typedef struct pass_terms { floatv invstd, scale, shift; } pass_terms;

#ifdef KIND
#include "activation_value.clh"
#endif

static inline floatv activate(const floatv v, const int relu, const float act_a, const float act_b) {
#ifdef KIND
  return activation_of(v, act_a, act_b);
#else
  return relu ? cvy_relu(v) : v;
#endif
}

static inline floatv passed(const floatv dy, global const floatv *y, const size_t i, const int pass, const floatv d,
                            const pass_terms t, const float act_a, const float act_b) {
#ifdef KIND
  return pass == PASS_ALL ? dy : activation_gradient_at(fma(d * t.invstd, t.scale, t.shift), dy, act_a, act_b);
#else
  if (pass == PASS_ALL) return dy;
  const floatv value = pass == PASS_Y        ? y[i]
                       : pass == PASS_AFFINE ? fma(d, t.scale, t.shift)
                                             : fma(d * t.invstd, t.scale, t.shift);
  return value > 0.0f ? dy : (floatv)(0.0f);
#endif
}

/* Coefficients of vector c of a group. */
static inline pass_terms terms_of(global const floatv *saved, global const floatv *affine,
                                  global const floatv *gamma, global const floatv *beta, const size_t group,
                                  const uint vecs, const uint c, const int pass) {
  pass_terms t = {0.0f, 0.0f, 0.0f};
  if (pass == PASS_AFFINE) {
    t.scale = affine[(group * 3 + 1) * vecs + c];
    t.shift = affine[(group * 3 + 2) * vecs + c];
  } else if (pass == PASS_VALUE) {
    t.invstd = saved[(group * 2 + 1) * vecs + c];
    t.scale = gamma[c];
    t.shift = beta[c];
  }
  return t;
}

/* Sums of some parts of a group. */
typedef struct group_sums { floatv sum, products; } group_sums;

/* Parts first, first + step, … of a group, in order. Only the last group has parts without positions, at its end. */
static inline group_sums add_parts(global const floatv *partial, const uint group, const uint vecs, const uint c,
                                  const uint rows, const uint group_rows, const uint block, const uint parts,
                                  const uint first, const uint step) {
  global const floatv *const from = partial + (size_t)group * parts * 2 * vecs + c;
  const uint begin = group * group_rows, all = min(begin + group_rows, rows) - begin, used = (all + block - 1) / block;
  group_sums s = {0.0f, 0.0f};
  for (uint j = first; j < used; j += step) {
    s.sum += from[(size_t)j * 2 * vecs];
    s.products += from[((size_t)j * 2 + 1) * vecs];
  }
  return s;
}

/* Gradients of beta and gamma, or a group's terms of them. */
static inline void store_terms(global floatv *dbeta, global floatv *dgamma, const floatv sum, const floatv along,
                               const int accumulate) {
  *dbeta = accumulate ? *dbeta + sum : sum;
  *dgamma = accumulate ? *dgamma + along : along;
}

#if CVY_CPU

#define N_BLOCK 4   /* vectors taken at a time: 256 contiguous bytes, and independent sums */

/* bn_stats of a part for `count` = N_BLOCK or 1 vectors from c on; `count` is a constant after inlining. */
CVY_ALWAYS_INLINE void part_stats(global const floatv *x, global floatv *to, const part_range r,
                              const uint vecs, const uint c, const int count) {
  floatv first[N_BLOCK], sum[N_BLOCK], squares[N_BLOCK];
#pragma unroll
  for (int k = 0; k < count; k++) {
    first[k] = x[(size_t)r.begin * vecs + c + k];
    sum[k] = squares[k] = 0.0f;
  }
  for (uint i = r.begin; i < r.end; i++)
#pragma unroll
    for (int k = 0; k < count; k++) sum[k] += x[(size_t)i * vecs + c + k] - first[k];
#pragma unroll
  for (int k = 0; k < count; k++) sum[k] /= (float)(r.end - r.begin);
  for (uint i = r.begin; i < r.end; i++)
#pragma unroll
    for (int k = 0; k < count; k++) {
      const floatv d = (x[(size_t)i * vecs + c + k] - first[k]) - sum[k];
      squares[k] = fma(d, d, squares[k]);
    }
#pragma unroll
  for (int k = 0; k < count; k++) {
    to[c + k] = first[k] + sum[k];
    to[vecs + c + k] = squares[k];
  }
}

CVY_KERNEL bn_stats(global const floatv *restrict x, global floatv *restrict partial, const uint vecs,
                    const uint rows, const uint group_rows, const uint block, const uint parts, const uint n_groups) {
  for (uint part = CVY_GROUP; part < n_groups * parts; part += CVY_GROUPS) {
    const part_range r = range_of(part / parts, part % parts, block, group_rows, rows);
    global floatv *const to = partial + (size_t)part * 2 * vecs;
    if (r.begin == r.end) continue;
    uint c = 0;
    for (; c + N_BLOCK <= vecs; c += N_BLOCK) part_stats(x, to, r, vecs, c, N_BLOCK);
    for (; c < vecs; c++) part_stats(x, to, r, vecs, c, 1);
  }
}

CVY_ALWAYS_INLINE void part_sums(global const floatv *x, global const floatv *y, global const floatv *dy,
                             global const floatv *saved, global const floatv *affine, global const floatv *gamma,
                             global const floatv *beta, global floatv *dm_out, global floatv *to, const part_range r,
                             const size_t group, const uint vecs, const uint c, const int pass, const int store,
                             const float act_a, const float act_b, const int count) {
  floatv middle[N_BLOCK], sum[N_BLOCK], products[N_BLOCK];
  pass_terms terms[N_BLOCK];
#pragma unroll
  for (int k = 0; k < count; k++) {
    middle[k] = saved[group * 2 * vecs + c + k];
    terms[k] = terms_of(saved, affine, gamma, beta, group, vecs, c + k, pass);
    sum[k] = products[k] = 0.0f;
  }
  for (uint i = r.begin; i < r.end; i++)
#pragma unroll
    for (int k = 0; k < count; k++) {
      const size_t at = (size_t)i * vecs + c + k;
      const floatv v = x[at] - middle[k], dm = passed(dy[at], y, at, pass, v, terms[k], act_a, act_b);
      if (store) dm_out[at] = dm;
      sum[k] += dm;
      products[k] = fma(dm, v, products[k]);
    }
#pragma unroll
  for (int k = 0; k < count; k++) {
    to[c + k] = sum[k];
    to[vecs + c + k] = products[k];
  }
}

CVY_KERNEL bn_backward_sums(global const floatv *restrict x, global const floatv *restrict y, global const floatv *dy,
                            global const floatv *restrict gamma, global const floatv *restrict beta,
                            global const floatv *restrict saved, global const floatv *restrict affine,
                            global floatv *dm_out, global floatv *restrict partial, const uint vecs, const uint rows,
                            const uint group_rows, const uint block, const uint parts, const uint n_groups,
                            const int pass, const int store, const float act_a, const float act_b) {
  for (uint part = CVY_GROUP; part < n_groups * parts; part += CVY_GROUPS) {
    const part_range r = range_of(part / parts, part % parts, block, group_rows, rows);
    const size_t group = part / parts;
    global floatv *const to = partial + (size_t)part * 2 * vecs;
    if (r.begin == r.end) continue;
    uint c = 0;
    for (; c + N_BLOCK <= vecs; c += N_BLOCK)
      part_sums(x, y, dy, saved, affine, gamma, beta, dm_out, to, r, group, vecs, c, pass, store, act_a, act_b, N_BLOCK);
    for (; c < vecs; c++)
      part_sums(x, y, dy, saved, affine, gamma, beta, dm_out, to, r, group, vecs, c, pass, store, act_a, act_b, 1);
  }
}

CVY_KERNEL bn_apply(global const floatv *x, global const floatv *residual, global const floatv *restrict gamma,
                    global const floatv *restrict beta, global const floatv *restrict saved, global floatv *y,
                    const uint vecs, const uint rows, const uint group_rows, const uint block, const uint parts,
                    const uint n_groups, const int relu, const int add, const float act_a, const float act_b) {
  for (uint part = CVY_GROUP; part < n_groups * parts; part += CVY_GROUPS) {
    const part_range r = range_of(part / parts, part % parts, block, group_rows, rows);
    global const floatv *const mean = saved + (size_t)(part / parts) * 2 * vecs, *const invstd = mean + vecs;
    for (uint i = r.begin; i < r.end; i++)
      for (uint c = 0; c < vecs; c++) {
        const size_t at = (size_t)i * vecs + c;
        floatv v = fma((x[at] - mean[c]) * invstd[c], gamma[c], beta[c]);
        if (add) v += residual[at];
        y[at] = activate(v, relu, act_a, act_b);
      }
  }
}

CVY_KERNEL bn_backward_apply(global const floatv *restrict x, global const floatv *restrict y,
                             global const floatv *dy, global const floatv *restrict gamma,
                             global const floatv *restrict beta, global const floatv *restrict saved,
                             global const floatv *restrict affine, global const floatv *restrict coef,
                             global floatv *dx, global floatv *dresidual, const uint vecs, const uint rows,
                             const uint group_rows, const uint block, const uint parts, const uint n_groups,
                             const int pass, const int add, const uint coef_at, const float act_a,
                             const float act_b) {
  for (uint part = CVY_GROUP; part < n_groups * parts; part += CVY_GROUPS) {
    const part_range r = range_of(part / parts, part % parts, block, group_rows, rows);
    const size_t group = part / parts, first = group * 2 * vecs;
    global const floatv *const mean = saved + first, *const invstd = mean + vecs, *const a = coef + coef_at + first,
                               *const b = a + vecs;
    for (uint i = r.begin; i < r.end; i++)
      for (uint c = 0; c < vecs; c++) {
        const size_t at = (size_t)i * vecs + c;
        const pass_terms terms = terms_of(saved, affine, gamma, beta, group, vecs, c, pass);
        const floatv v = x[at] - mean[c], dm = passed(dy[at], y, at, pass, v, terms, act_a, act_b);
        if (add) dresidual[at] += dm;
        dx[at] = gamma[c] * invstd[c] * ((dm - a[c]) - v * b[c]);
      }
  }
}

/* The finish kernels: a work-group loops over vectors of channels of all groups. */
#define FINISH_LOOP(unit) for (uint unit = CVY_GROUP; unit < n_groups * vecs; unit += CVY_GROUPS)
#define FINISH_ROW 0
#define FINISH_ROWS 1
#define FINISH_SCRATCH
#define FINISH_SUM(v) (v)

#else

#define ROWS (LOCAL / C_LANES)

/* Sums v over the work-items of a column; the work-group has LOCAL / lanes rows. Every row gets the result. */
static inline floatv tree_sum(const floatv v, const int lanes, local floatv *scratch) {
  const int item = get_local_id(0);
  scratch[item] = v;
  barrier(CLK_LOCAL_MEM_FENCE);
  for (int reach = LOCAL / 2; reach >= lanes; reach /= 2) {
    if (item < reach) scratch[item] += scratch[item + reach];
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  const floatv sum = scratch[item % lanes];
  barrier(CLK_LOCAL_MEM_FENCE);
  return sum;
}

/* Maps a work-item to vector c of part `part` and to work-item row t. get_group_id has 64 bits, and a 64-bit
 * division is a long subroutine: `place` has 32. */
#define PLACE                                                                                                  \
  const int item = get_local_id(0), t = item / C_LANES;                                                        \
  const uint place = get_group_id(0), chunks = vecs / C_LANES, part = place / chunks, group = part / parts;    \
  const uint c = (place - part * chunks) * C_LANES + item % C_LANES;                                           \
  const part_range r = range_of(group, part - group * parts, block, group_rows, rows)

CVY_KERNEL bn_stats(global const floatv *restrict x, global floatv *restrict partial, const uint vecs,
                    const uint rows, const uint group_rows, const uint block, const uint parts, const uint n_groups) {
  local floatv means[LOCAL], squares[LOCAL];
  local float counts[LOCAL];
  PLACE;
  const floatv first = r.begin < r.end ? x[(size_t)r.begin * vecs + c] : (floatv)(0.0f);
  floatv own = 0.0f, sum = 0.0f, square = 0.0f;
  float count = 0.0f;
  for (uint i = r.begin + t; i < r.end; i += ROWS) {
    const floatv v = x[(size_t)i * vecs + c];
    if (count == 0.0f) own = v;
    const floatv d = v - own;
    sum += d;
    square = fma(d, d, square);
    count += 1.0f;
  }
  counts[item] = count;
  means[item] = count > 0.0f ? (own - first) + sum / count : (floatv)(0.0f);
  squares[item] = count > 0.0f ? fma(-sum, sum / count, square) : (floatv)(0.0f);
  barrier(CLK_LOCAL_MEM_FENCE);
  for (int reach = LOCAL / 2; reach >= C_LANES; reach /= 2) {
    if (item < reach && counts[item + reach] > 0.0f) {   /* rows fill from the front: no empty row before a full one */
      const float total = counts[item] + counts[item + reach], share = counts[item + reach] / total;
      const floatv d = means[item + reach] - means[item];
      means[item] += d * share;
      squares[item] += squares[item + reach] + d * d * (counts[item] * share);
      counts[item] = total;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  if (t == 0 && part < n_groups * parts && r.begin < r.end) {
    global floatv *const to = partial + (size_t)part * 2 * vecs + c;
    to[0] = first + means[item];
    to[vecs] = squares[item] < 0.0f ? (floatv)(0.0f) : squares[item];
  }
}

CVY_KERNEL bn_backward_sums(global const floatv *restrict x, global const floatv *restrict y, global const floatv *dy,
                            global const floatv *restrict gamma, global const floatv *restrict beta,
                            global const floatv *restrict saved, global const floatv *restrict affine,
                            global floatv *dm_out, global floatv *restrict partial, const uint vecs, const uint rows,
                            const uint group_rows, const uint block, const uint parts, const uint n_groups,
                            const int pass, const int store, const float act_a, const float act_b) {
  local floatv scratch[LOCAL];
  PLACE;
  const floatv mean = saved[(size_t)group * 2 * vecs + c];
  const pass_terms terms = terms_of(saved, affine, gamma, beta, group, vecs, c, pass);
  floatv sum = 0.0f, products = 0.0f;
  for (uint i = r.begin + t; i < r.end; i += ROWS) {
    const size_t at = (size_t)i * vecs + c;
    const floatv v = x[at] - mean, dm = passed(dy[at], y, at, pass, v, terms, act_a, act_b);
    if (store) dm_out[at] = dm;
    sum += dm;
    products = fma(dm, v, products);
  }
  sum = tree_sum(sum, C_LANES, scratch);
  products = tree_sum(products, C_LANES, scratch);
  if (t == 0 && part < n_groups * parts && r.begin < r.end) {
    global floatv *const to = partial + (size_t)part * 2 * vecs + c;
    to[0] = sum;
    to[vecs] = products;
  }
}

CVY_KERNEL bn_apply(global const floatv *x, global const floatv *residual, global const floatv *restrict gamma,
                    global const floatv *restrict beta, global const floatv *restrict saved, global floatv *y,
                    const uint vecs, const uint rows, const uint group_rows, const uint block, const uint parts,
                    const uint n_groups, const int relu, const int add, const float act_a, const float act_b) {
  PLACE;
  if (part < n_groups * parts) {
    global const floatv *const from = saved + (size_t)group * 2 * vecs + c;
    const floatv mean = from[0], invstd = from[vecs], scale = gamma[c], shift = beta[c];
    for (uint i = r.begin + t; i < r.end; i += ROWS) {
      const size_t at = (size_t)i * vecs + c;
      floatv v = fma((x[at] - mean) * invstd, scale, shift);
      if (add) v += residual[at];
      y[at] = activate(v, relu, act_a, act_b);
    }
  }
}

CVY_KERNEL bn_backward_apply(global const floatv *restrict x, global const floatv *restrict y,
                             global const floatv *dy, global const floatv *restrict gamma,
                             global const floatv *restrict beta, global const floatv *restrict saved,
                             global const floatv *restrict affine, global const floatv *restrict coef,
                             global floatv *dx, global floatv *dresidual, const uint vecs, const uint rows,
                             const uint group_rows, const uint block, const uint parts, const uint n_groups,
                             const int pass, const int add, const uint coef_at, const float act_a,
                             const float act_b) {
  PLACE;
  if (part < n_groups * parts) {
    const size_t first = (size_t)group * 2 * vecs + c;
    const floatv mean = saved[first], outer = gamma[c] * saved[first + vecs], a = coef[coef_at + first],
                 b = coef[coef_at + first + vecs];
    const pass_terms terms = terms_of(saved, affine, gamma, beta, group, vecs, c, pass);
    for (uint i = r.begin + t; i < r.end; i += ROWS) {
      const size_t at = (size_t)i * vecs + c;
      const floatv v = x[at] - mean, dm = passed(dy[at], y, at, pass, v, terms, act_a, act_b);
      if (add) dresidual[at] += dm;
      dx[at] = outer * ((dm - a) - v * b);
    }
  }
}

/* bn_backward_finish and bn_backward_apply in one: every work-group adds up the parts of its own vectors, in the same
 * order; those of a group's first part write dbeta and dgamma. The coefficients pass through local memory, so that no
 * compiler fuses their last multiplication with dx's subtractions. */
CVY_KERNEL bn_backward_finish_apply(global const floatv *restrict x, global const floatv *restrict y,
                                    global const floatv *dy, global const floatv *restrict gamma,
                                    global const floatv *restrict beta, global const floatv *restrict saved,
                                    global const floatv *restrict affine, global const floatv *partial, global floatv *dx,
                                    global floatv *dresidual, global floatv *dbeta_to, global floatv *dgamma_to,
                                    const uint vecs, const uint rows, const uint group_rows, const uint block,
                                    const uint parts, const uint n_groups, const int pass, const int add,
                                    const float inv_rows, const float inv_rows_last, const uint beta_at,
                                    const uint gamma_at, const int accumulate, const float act_a, const float act_b) {
  local floatv scratch[LOCAL], coef[2 * C_LANES];
  PLACE;
  const size_t first = (size_t)group * 2 * vecs + c;
  const group_sums own = add_parts(partial, group, vecs, c, rows, group_rows, block, parts, t, ROWS);
  const floatv sum = tree_sum(own.sum, C_LANES, scratch), products = tree_sum(own.products, C_LANES, scratch);
  if (t == 0) {
    const float inverse = group + 1 == n_groups ? inv_rows_last : inv_rows;
    const floatv invstd = saved[first + vecs], along = products * invstd;
    coef[item] = sum * inverse;
    coef[C_LANES + item] = along * invstd * inverse;
    if (part == group * parts)
      store_terms(dbeta_to + beta_at + first, dgamma_to + gamma_at + first, sum, along, accumulate);
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  const floatv mean = saved[first], outer = gamma[c] * saved[first + vecs], a = coef[item % C_LANES],
               b = coef[C_LANES + item % C_LANES];
  const pass_terms terms = terms_of(saved, affine, gamma, beta, group, vecs, c, pass);
  for (uint i = r.begin + t; i < r.end; i += ROWS) {
    const size_t at = (size_t)i * vecs + c;
    const floatv v = x[at] - mean, dm = passed(dy[at], y, at, pass, v, terms, act_a, act_b);
    if (add) dresidual[at] += dm;
    dx[at] = outer * ((dm - a) - v * b);
  }
}

/* The finish kernels: a work-group takes F_LANES vectors of a group, LOCAL / F_LANES work-items side by side over the
 * parts; the host starts exactly n_groups * vecs / F_LANES work-groups. */
#define FINISH_LOOP(unit) const uint unit = get_group_id(0) * F_LANES + get_local_id(0) % F_LANES;
#define FINISH_ROW (get_local_id(0) / F_LANES)
#define FINISH_ROWS (LOCAL / F_LANES)
#define FINISH_SCRATCH local floatv scratch[LOCAL];
#define FINISH_SUM(v) tree_sum((v), F_LANES, scratch)

#endif

/* inv_rows, weight (of the mean) and weight_var belong to a full group, *_last to the last group. to: S if there
 * is one group, else terms; the results are added to the old values if `accumulate`. */
CVY_KERNEL bn_finish(global const floatv *partial, global const floatv *restrict gamma,
                     global const floatv *restrict beta, global floatv *restrict saved, global floatv *restrict affine,
                     global floatv *to, const uint vecs, const uint channels, const uint rows, const uint group_rows,
                     const uint block, const uint parts,
                     const uint n_groups, const float eps, const float inv_rows, const float inv_rows_last,
                     const float weight, const float weight_last, const float weight_var, const float weight_var_last,
                     const uint to_at, const int accumulate, const int deferred) {
  FINISH_SCRATCH
  FINISH_LOOP(unit) {
    const uint group = unit / vecs, c = unit % vecs;
    const bool last = group + 1 == n_groups;
    const float inverse = last ? inv_rows_last : inv_rows;
    global const floatv *const from = partial + (size_t)group * parts * 2 * vecs + c;
    const floatv first = from[0];
    floatv sum = 0.0f, squares = 0.0f;
    for (uint j = FINISH_ROW; j < parts; j += FINISH_ROWS) {
      const part_range r = range_of(group, j, block, group_rows, rows);
      if (r.begin < r.end) sum += (from[(size_t)j * 2 * vecs] - first) * (float)(r.end - r.begin);
    }
    const floatv offset = FINISH_SUM(sum) * inverse;
    for (uint j = FINISH_ROW; j < parts; j += FINISH_ROWS) {
      const part_range r = range_of(group, j, block, group_rows, rows);
      if (r.begin < r.end) {
        const floatv d = (from[(size_t)j * 2 * vecs] - first) - offset;
        squares += from[((size_t)j * 2 + 1) * vecs] + d * d * (float)(r.end - r.begin);
      }
    }
    const floatv var = FINISH_SUM(squares) * inverse, mean = first + offset;
    if (FINISH_ROW == 0 && unit < n_groups * vecs) {
      const size_t at = (size_t)group * 2 * vecs + c;
      const floatv invstd = live(1.0f / sqrt(var + eps), c, channels);
      saved[at] = mean;
      saved[at + vecs] = invstd;
      if (deferred) {
        global floatv *const a = affine + (size_t)group * 3 * vecs + c;
        a[0] = mean;
        a[vecs] = gamma[c] * invstd;
        a[2 * vecs] = fma(-(offset - (mean - first)), a[vecs], beta[c]);
      }
      global floatv *const sums = to + to_at + at;
      const floatv s0 = mean * (last ? weight_last : weight), s1 = var * (last ? weight_var_last : weight_var);
      sums[0] = accumulate ? sums[0] + s0 : s0;
      sums[vecs] = accumulate ? sums[vecs] + s1 : s1;
    }
  }
}

/* dbeta_to[beta_at…] and dgamma_to[gamma_at…] receive the gradients if there is one group, else terms. */
CVY_KERNEL bn_backward_finish(global const floatv *partial, global const floatv *restrict saved, global floatv *coef,
                              global floatv *dbeta_to, global floatv *dgamma_to, const uint vecs, const uint rows,
                              const uint group_rows, const uint block, const uint parts, const uint n_groups,
                              const float inv_rows, const float inv_rows_last, const uint coef_at, const uint beta_at,
                              const uint gamma_at, const int accumulate) {
  FINISH_SCRATCH
  FINISH_LOOP(unit) {
    const uint group = unit / vecs, c = unit % vecs;
    const float inverse = group + 1 == n_groups ? inv_rows_last : inv_rows;
    const group_sums own = add_parts(partial, group, vecs, c, rows, group_rows, block, parts, FINISH_ROW, FINISH_ROWS);
    const floatv sum = FINISH_SUM(own.sum), products = FINISH_SUM(own.products);
    if (FINISH_ROW == 0 && unit < n_groups * vecs) {
      const size_t at = (size_t)group * 2 * vecs + c;
      const floatv invstd = saved[at + vecs], along = products * invstd;
      coef[coef_at + at] = sum * inverse;
      coef[coef_at + at + vecs] = along * invstd * inverse;
      store_terms(dbeta_to + beta_at + at, dgamma_to + gamma_at + at, sum, along, accumulate);
    }
  }
}

/* out0[c] (+)= sum_g terms[g,0,c], out1[out1_at + c] (+)= sum_g terms[g,1,c]; one vector per work-item. */
CVY_KERNEL bn_sum_groups(global const floatv *restrict terms, global floatv *out0, global floatv *out1,
                         const uint vecs, const uint n_groups, const uint terms_at, const uint out1_at,
                         const int accumulate) {
  for (uint c = get_global_id(0); c < vecs; c += get_global_size(0)) {
    floatv sum0 = 0.0f, sum1 = 0.0f;
    for (uint g = 0; g < n_groups; g++) {
      sum0 += terms[terms_at + (size_t)g * 2 * vecs + c];
      sum1 += terms[terms_at + ((size_t)g * 2 + 1) * vecs + c];
    }
    out0[c] = accumulate ? out0[c] + sum0 : sum0;
    out1[out1_at + c] = accumulate ? out1[out1_at + c] + sum1 : sum1;
  }
}

/* `deferred`: writes the affine instead of mean and invstd. */
CVY_KERNEL bn_inference(global const floatv *restrict running, global const floatv *restrict gamma,
                        global const floatv *restrict beta, global floatv *restrict saved,
                        global floatv *restrict affine, const uint vecs, const uint channels, const float eps,
                        const int deferred) {
  for (uint c = get_global_id(0); c < vecs; c += get_global_size(0)) {
    const floatv mean = running[c], invstd = live(1.0f / sqrt(running[vecs + c] + eps), c, channels);
    if (deferred) {
      affine[c] = mean;
      affine[vecs + c] = gamma[c] * invstd;
      affine[2 * vecs + c] = beta[c];
    } else {
      saved[c] = mean;
      saved[vecs + c] = invstd;
    }
  }
}
