/* SPDX-License-Identifier: MIT
 * Sums with a fixed order (ops/reduce.h):
 *   reduce_columns  out[b,c] (+)= sum of x[i,c] over the rows i of block b; run twice: over blocks, then over the
 *                   blocks' sums as one block
 *   reduce_sum      out[b] (+)= sum of x[b*chunk … (b+1)*chunk); run twice alike
 *   reduce_parts    out[j] (+)= sum_p x[p*n + j], p in order
 *
 *   VEC  floats per vector of reduce_columns: 16 or 4, 1 where the pitch is not a multiple of it. vecs = pitch / VEC
 *
 * Geometry. CPU: a work-group loops over blocks, and in a block over 4 vectors of columns at a time, rows in order.
 * SIMT: a work-group takes `lanes` (a power of two that divides vecs) vectors of one block; LOCAL / lanes work-items
 * share its rows, then a tree adds their sums. */
#include "vector.clh"

#define N_BLOCK 4

#if CVY_CPU

CVY_ALWAYS_INLINE void sum_block(global const floatv *x, global floatv *out, const uint begin,
                             const uint end, const uint vecs, const uint c, const int accumulate, const int count) {
  floatv sum[N_BLOCK];
#pragma unroll
  for (int k = 0; k < count; k++) sum[k] = 0.0f;
  for (uint i = begin; i < end; i++)
#pragma unroll
    for (int k = 0; k < count; k++) sum[k] += x[(size_t)i * vecs + c + k];
#pragma unroll
  for (int k = 0; k < count; k++) out[c + k] = accumulate ? out[c + k] + sum[k] : sum[k];
}

/* A piece is a block and a part of its columns, `groups` of N_BLOCK vectors; the second run has only one block. */
CVY_KERNEL reduce_columns(global const floatv *restrict x, global floatv *restrict out, const uint rows,
                          const uint vecs, const uint block, const uint n_blocks, const uint lanes,
                          const int accumulate) {
  const uint parts = (vecs + lanes - 1) / lanes;
  for (ulong piece = CVY_GROUP; piece < (ulong)n_blocks * parts; piece += CVY_GROUPS) {
    const uint b = (uint)(piece / parts), first = (uint)(piece % parts) * lanes, last = min(first + lanes, vecs);
    const uint begin = b * block, end = min(begin + block, rows);
    global floatv *const to = out + (size_t)b * vecs;
    uint c = first;
    for (; c + N_BLOCK <= last; c += N_BLOCK) sum_block(x, to, begin, end, vecs, c, accumulate, N_BLOCK);
    for (; c < last; c++) sum_block(x, to, begin, end, vecs, c, accumulate, 1);
  }
}

CVY_KERNEL reduce_sum(global const float *restrict x, global float *restrict out, const uint n, const uint chunk,
                      const int accumulate) {
  const uint begin = CVY_GROUP * chunk, end = begin + min(chunk, n - begin);
  float16 sum[N_BLOCK] = {0.0f, 0.0f, 0.0f, 0.0f};
  uint i = begin;
  for (; i + 16 * N_BLOCK <= end; i += 16 * N_BLOCK)
#pragma unroll
    for (int k = 0; k < N_BLOCK; k++) sum[k] += vload16(k, x + i);
  float rest = 0.0f;
  for (; i < end; i++) rest += x[i];
  const float16 a = (sum[0] + sum[1]) + (sum[2] + sum[3]);
  const float8 b = a.lo + a.hi;
  const float4 c = b.lo + b.hi;
  const float total = ((c.x + c.y) + (c.z + c.w)) + rest;
  out[CVY_GROUP] = accumulate ? out[CVY_GROUP] + total : total;
}

CVY_KERNEL reduce_parts(global const float *restrict x, global float *restrict out, const uint n, const uint n_parts,
                        const uint chunk, const int accumulate) {
  const uint begin = CVY_GROUP * chunk, end = begin + min(chunk, n - begin);
  uint j = begin;
  for (; j + 16 <= end; j += 16) {
    float16 sum = 0.0f;
    for (uint p = 0; p < n_parts; p++) sum += vload16(0, x + (size_t)p * n + j);
    vstore16(accumulate ? vload16(0, out + j) + sum : sum, 0, out + j);
  }
  for (; j < end; j++) {
    float sum = 0.0f;
    for (uint p = 0; p < n_parts; p++) sum += x[(size_t)p * n + j];
    out[j] = accumulate ? out[j] + sum : sum;
  }
}

#else

CVY_KERNEL reduce_columns(global const floatv *restrict x, global floatv *restrict out, const uint rows,
                          const uint vecs, const uint block, const uint n_blocks, const uint lanes,
                          const int accumulate) {
  local floatv scratch[LOCAL];
  const uint item = get_local_id(0), chunks = vecs / lanes;
  const uint group = get_group_id(0), b = group / chunks; /* 32 bits: a 64-bit division is a long subroutine */
  const uint c = (group - b * chunks) * lanes + item % lanes;
  const uint begin = b * block, end = min(begin + block, rows);
  floatv sum = 0.0f;
  for (uint i = begin + item / lanes; i < end; i += LOCAL / lanes) sum += x[(size_t)i * vecs + c];
  scratch[item] = sum;
  barrier(CLK_LOCAL_MEM_FENCE);
  for (uint reach = LOCAL / 2; reach >= lanes; reach /= 2) {
    if (item < reach) scratch[item] += scratch[item + reach];
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  if (item < lanes && b < n_blocks) {
    global floatv *const to = out + (size_t)b * vecs + c;
    *to = accumulate ? *to + scratch[item] : scratch[item];
  }
}

CVY_KERNEL reduce_sum(global const float *restrict x, global float *restrict out, const uint n, const uint chunk,
                      const int accumulate) {
  local float scratch[LOCAL];
  const uint item = get_local_id(0), begin = get_group_id(0) * chunk, end = begin + min(chunk, n - begin);
  float sum = 0.0f;
  for (uint i = begin + item; i < end; i += LOCAL) sum += x[i];
  scratch[item] = sum;
  barrier(CLK_LOCAL_MEM_FENCE);
  for (uint reach = LOCAL / 2; reach >= 1; reach /= 2) {
    if (item < reach) scratch[item] += scratch[item + reach];
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  if (item == 0) out[get_group_id(0)] = accumulate ? out[get_group_id(0)] + scratch[0] : scratch[0];
}

CVY_KERNEL reduce_parts(global const float *restrict x, global float *restrict out, const uint n, const uint n_parts,
                        const uint chunk, const int accumulate) {
  for (size_t j = get_global_id(0); j < n; j += get_global_size(0)) {
    float sum = 0.0f;
    for (uint p = 0; p < n_parts; p++) sum += x[(size_t)p * n + j];
    out[j] = accumulate ? out[j] + sum : sum;
  }
}

#endif
