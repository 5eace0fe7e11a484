/* SPDX-License-Identifier: MIT
 * The Euclidean norm of a gradient, and the factor that limits the norm to `clip` (ops/norm.h):
 *   norm_squares:  partials[first + b] = sum of x*x over floats [128*b, 128*b + 128) of x, for n blocks b
 *   norm_combine:  pairs[to + b] = sum of pairs [from + 128*b, from + 128*b + 128), those from n on count as 0
 *   norm_finish:   out = {scale, sum}: scale = min(1, clip / (sqrt(sum) + 1e-6)); 1 where clip is 0
 * A sum is a float and the sum of its rounding errors; together they have the digits of a double. fma gives the errors
 * of products, and Knuth's algorithm (TAOCP 4.2.2, theorem B) those of additions. 16 running sums take every 16th
 * value, and are then added in pairs: 8 apart, 4, 2, 1; so the host (protocol/grad_norm.c) has the same bits. |x| below
 * 2^-50 counts as 0, and its product's error is left out below 2^-40: then nothing here is a denormal.
 *
 * CPU: a work-item takes a block, float16 vectors. SIMT: 16 work-items take a block and combine their sums in local
 * memory. */
#include "exact.clh"

#define LANES 16
#define ROUNDS 8   /* of LANES values in a block */

/* CVY_REAL: float, or the vector of a CPU-shaped kernel. */
#if CVY_CPU
typedef float16 real;
typedef int16 mask;
#define AS_REAL as_float16
#define AS_MASK as_int16
#else
typedef float real;
typedef int mask;
#define AS_REAL as_float
#define AS_MASK as_int
#endif

typedef struct total { real sum, lost; } total;
typedef float2 pair;   /* sum, lost */

static inline total plus(const total a, const real sum, const real lost) {
#pragma OPENCL FP_CONTRACT OFF
  const real s = a.sum + sum, taken = s - a.sum;
  const real error = (a.sum - (s - taken)) + (sum - taken);
  return (total){s, a.lost + (error + lost)};
}

static inline total plus_square(const total a, const real value) {
#pragma OPENCL FP_CONTRACT OFF
  const real size = AS_REAL(AS_MASK(value) & 0x7fffffff);
  const real x = size < 0x1p-50f ? (real)(0.0f) : value;
  const real square = x * x;
  return plus(a, square, size < 0x1p-40f ? (real)(0.0f) : fma(x, x, -square));
}

static inline pair added(const pair a, const pair b) {
#pragma OPENCL FP_CONTRACT OFF
  const float s = a.x + b.x, taken = s - a.x;
  const float error = (a.x - (s - taken)) + (b.x - taken);
  return (pair)(s, a.y + (error + b.y));
}

#if CVY_CPU

/* Lane i += lane i + 8, + 4, + 2, + 1. */
static inline pair join(const total t) {
  float sums[LANES], lost[LANES];
  vstore16(t.sum, 0, sums);
  vstore16(t.lost, 0, lost);
  for (int reach = LANES / 2; reach > 0; reach /= 2)
    for (int i = 0; i < reach; i++) {
      const pair p = added((pair)(sums[i], lost[i]), (pair)(sums[i + reach], lost[i + reach]));
      sums[i] = p.x;
      lost[i] = p.y;
    }
  return (pair)(sums[0], lost[0]);
}

CVY_KERNEL norm_squares(global const float *restrict x, global pair *restrict partials, const uint first, const uint n,
                        const uint chunk) {
  CVY_FOR_EACH_VECTOR(b, n, chunk) {
    total t = {0.0f, 0.0f};
    for (int k = 0; k < ROUNDS; k++) t = plus_square(t, CVY_LOAD16(x + (b * ROUNDS + k) * LANES));
    partials[first + b] = join(t);
  }
}

CVY_KERNEL norm_combine(global pair *pairs, const uint from, const uint n, const uint to, const uint n_to, const uint chunk) {
  CVY_FOR_EACH_VECTOR(b, n_to, chunk) {
    total t = {0.0f, 0.0f};
    for (int k = 0; k < ROUNDS; k++) {
      float sums[LANES], lost[LANES];
      for (int i = 0; i < LANES; i++) {
        const uint at = (uint)(b * ROUNDS + k) * LANES + i;
        const pair p = at < n ? pairs[from + at] : (pair)(0.0f);
        sums[i] = p.x;
        lost[i] = p.y;
      }
      t = plus(t, vload16(0, sums), vload16(0, lost));
    }
    pairs[to + b] = join(t);
  }
}

#else

/* All work-items of the work-group must call it. */
static inline pair join(const total t, const int lane, local pair *scratch) {
  local pair *const mine = scratch + get_local_id(0);
  *mine = (pair)(t.sum, t.lost);
  barrier(CLK_LOCAL_MEM_FENCE);
  for (int reach = LANES / 2; reach > 0; reach /= 2) {
    if (lane < reach) *mine = added(mine[0], mine[reach]);
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  return mine[-lane];
}

CVY_KERNEL norm_squares(global const float *restrict x, global pair *restrict partials, const uint first, const uint n,
                        const uint chunk) {
  local pair scratch[LOCAL];
  const int lane = get_local_id(0) % LANES;
  const uint b = get_global_id(0) / LANES;
  total t = {0.0f, 0.0f};
  for (int k = 0; k < ROUNDS && b < n; k++) t = plus_square(t, x[((size_t)b * ROUNDS + k) * LANES + lane]);
  const pair sum = join(t, lane, scratch);
  if (lane == 0 && b < n) partials[first + b] = sum;
}

CVY_KERNEL norm_combine(global pair *pairs, const uint from, const uint n, const uint to, const uint n_to, const uint chunk) {
  local pair scratch[LOCAL];
  const int lane = get_local_id(0) % LANES;
  const uint b = get_global_id(0) / LANES;
  total t = {0.0f, 0.0f};
  for (int k = 0; k < ROUNDS && b < n_to; k++) {
    const uint at = (b * ROUNDS + k) * LANES + lane;
    const pair p = at < n ? pairs[from + at] : (pair)(0.0f);
    t = plus(t, p.x, p.y);
  }
  const pair sum = join(t, lane, scratch);
  if (lane == 0 && b < n_to) pairs[to + b] = sum;
}

#endif

CVY_KERNEL norm_finish(global const pair *restrict pairs, const uint at, const float clip, global float *restrict out) {
#pragma OPENCL FP_CONTRACT OFF
  if (get_global_id(0) == 0) {
    const pair sum = pairs[at];
    const floatv length = cvy_exact_sqrt((floatv)(sum.x)) + 1e-6f, ratio = cvy_exact_div((floatv)(clip), length);
    out[0] = clip == 0.0f || ratio.s0 >= 1.0f ? 1.0f : ratio.s0;
    out[1] = sum.x;
    out[2] = sum.y;
  }
}
