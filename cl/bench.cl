/* SPDX-License-Identifier: MIT
 * Measures the peak rates of a device, for `convoy bench` (tools/program/bench/bench_peak.c) and for plans
 * (src/ops/tune/rates.c):
 *   bench_fma     `rounds` times CHAINS independent v = v*b + c per work-item: 2*CHAINS*WIDTH*rounds operations each
 *   bench_read    sums of x, one vector per work-item: each work-group adds up `chunk` vectors, its work-items in turns
 *   bench_write   y = value; bench_copy  y = x
 *   bench_none    nothing: the cost of a launch
 *
 *   WIDTH    floats per vector of bench_fma: the device's native width on CPUs, 1 on SIMT devices
 *   CHAINS   sums that do not wait for each other: enough to hide the unit's latency, few enough to stay in registers
 * n: vectors of VEC floats (vector.clh). Geometry: work-groups of 1 (CPU) or LOCAL work-items; any number for bench_fma,
 * n / chunk rounded up for bench_read, CVY_FOR_EACH_VECTOR's for bench_write and bench_copy. out receives WIDTH
 * floats (bench_fma) or VEC floats (bench_read) per work-item, so that the compiler removes nothing. */
#include "vector.clh"

#ifndef WIDTH
#if CVY_CPU
#define WIDTH 16
#else
#define WIDTH 1
#endif
#endif
#ifndef CHAINS
#define CHAINS 12
#endif

#if WIDTH == 16
typedef float16 wide;
#elif WIDTH == 8
typedef float8 wide;
#elif WIDTH == 4
typedef float4 wide;
#elif WIDTH == 1
typedef float wide;
#else
#error "WIDTH must be 1, 4, 8 or 16"
#endif
#if CHAINS != 12
#error "bench_fma is written out for 12 chains"
#endif

CVY_KERNEL bench_fma(global wide *restrict out, const float b, const float c, const int rounds) {
  const size_t item = CVY_GROUP * CVY_ITEMS + get_local_id(0);
  const wide m = (wide)(b), a = (wide)(c), first = (wide)((float)item);
  wide v0 = first, v1 = first + 1.0f, v2 = first + 2.0f, v3 = first + 3.0f, v4 = first + 4.0f, v5 = first + 5.0f;
  wide v6 = first + 6.0f, v7 = first + 7.0f, v8 = first + 8.0f, v9 = first + 9.0f, va = first + 10.0f,
       vb = first + 11.0f;
#if !CVY_CPU
#pragma unroll 8 /* on a GPU, loop counters and branches take issue slots from multiply-adds */
#endif
  for (int i = 0; i < rounds; i++) {
    v0 = v0 * m + a, v1 = v1 * m + a, v2 = v2 * m + a, v3 = v3 * m + a, v4 = v4 * m + a, v5 = v5 * m + a;
    v6 = v6 * m + a, v7 = v7 * m + a, v8 = v8 * m + a, v9 = v9 * m + a, va = va * m + a, vb = vb * m + a;
  }
  out[item] = v0 + v1 + v2 + v3 + v4 + v5 + v6 + v7 + v8 + v9 + va + vb;
}

CVY_KERNEL bench_read(global const floatv *restrict x, global floatv *restrict out, const uint n, const uint chunk) {
  floatv s0 = (floatv)(0.0f), s1 = s0, s2 = s0, s3 = s0;
  const size_t step = CVY_ITEMS, first = CVY_GROUP * (size_t)chunk, end = min(first + (size_t)chunk, (size_t)n);
  size_t i = first + get_local_id(0);
  for (; i + 3 * step < end; i += 4 * step) {
    s0 += x[i];
    s1 += x[i + step];
    s2 += x[i + 2 * step];
    s3 += x[i + 3 * step];
  }
  for (; i < end; i += step) s0 += x[i];
  out[CVY_GROUP * CVY_ITEMS + get_local_id(0)] = s0 + s1 + s2 + s3;
}

CVY_KERNEL bench_write(global floatv *restrict y, const float value, const uint n, const uint chunk) {
  CVY_FOR_EACH_VECTOR(i, n, chunk) y[i] = (floatv)(value);
}

CVY_KERNEL bench_copy(global const floatv *restrict x, global floatv *restrict y, const uint n, const uint chunk) {
  CVY_FOR_EACH_VECTOR(i, n, chunk) y[i] = x[i];
}

CVY_KERNEL bench_none(global float *restrict out) {
  if (get_global_size(0) == 0) out[0] = 0.0f;
}
