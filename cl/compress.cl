/* SPDX-License-Identifier: MIT
 * Gradients for a slow link (ops/compress.h): x = g + residual is sent as bfloat16, and the rounding error is the
 * residual of the next step:
 *   packed = the upper half of x's bits, rounded to nearest, ties to even;  residual = x - packed, exact (0 if packed is
 *   not finite). A NaN stays a NaN.
 *
 * n: vectors of VEC floats. Geometry: vector.clh. */
#include "vector.clh"

#if VEC == 16
typedef uint16 uintv;
typedef ushort16 ushortv;
#define CVY_TO_USHORT convert_ushort16
#define CVY_AS_UINT as_uint16
#define CVY_AS_FLOAT as_float16
#elif VEC == 4
typedef uint4 uintv;
typedef ushort4 ushortv;
#define CVY_TO_USHORT convert_ushort4
#define CVY_AS_UINT as_uint4
#define CVY_AS_FLOAT as_float4
#else
#error "gradients are compressed by whole vectors: VEC must be 4 or 16"
#endif

CVY_KERNEL compress(global const floatv *restrict g, global floatv *restrict residual, global ushortv *restrict packed,
                    const uint n, const uint chunk) {
#pragma OPENCL FP_CONTRACT OFF
  CVY_FOR_EACH_VECTOR(i, n, chunk) {
    const floatv x = g[i] + residual[i];
    const uintv bits = CVY_AS_UINT(x), magnitude = bits & 0x7fffffffu;
    const uintv rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    const uintv sent = magnitude > 0x7f800000u ? (bits >> 16) | 0x40u : rounded;
    packed[i] = CVY_TO_USHORT(sent);
    residual[i] = (sent & 0x7f80u) != 0x7f80u ? x - CVY_AS_FLOAT(sent << 16) : (floatv)(0.0f);
  }
}
