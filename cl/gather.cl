/* SPDX-License-Identifier: MIT
 * A batch from the bytes of a data set (ops/gather.h):
 *   x[n,h,w,c] = images[index[n],h,w,c] / 255, correctly rounded, 0 for c >= C;   labels_out[n] = labels[index[n]]
 *
 * b/255 = b*HIGH + b*LOW with HIGH + LOW = 1/255 to 48 bits: the errors of b*LOW and of LOW itself are too small to
 * change the one rounding of fma(b, HIGH, b*LOW), since no b/255 lies that near to the middle of two floats. (OpenCL's
 * own division may be off by 2.5 ulp.)
 *
 *   CHANNELS  C, 1 …          PITCH  floats per position, >= CHANNELS (1, 4, 16, …)
 * positions: H*W; block: positions per piece of work.
 * Geometry: CPU: a work-group loops over pieces (sample, block of positions); SIMT: one work-item per float. */
#include "fastdiv.clh"
#include "vector.clh"

#ifndef CHANNELS
#define CHANNELS 1
#endif
#ifndef PITCH
#define PITCH CHANNELS
#endif
#if CHANNELS < 1 || PITCH < CHANNELS
#error "PITCH must be at least CHANNELS, and CHANNELS at least 1"
#endif

#define HIGH 0x1.010102p-8f
#define LOW -0x1.fdfdfep-33f

#if CVY_CPU

CVY_KERNEL gather_forward(global const uchar *restrict images, global const ushort *restrict labels,
                          global const int *restrict index, global float *restrict x, global int *restrict labels_out,
                          const uint n, const uint positions, const uint block) {
  const uint blocks = (positions + block - 1) / block;
  const ulong pieces = (ulong)n * blocks;
  for (ulong piece = CVY_GROUP; piece < pieces; piece += CVY_GROUPS) {
    const uint sample = (uint)(piece / blocks), first = (uint)(piece % blocks) * block;
    const uint count = min(block, positions - first);
    const ulong image = (ulong)index[sample];
    global const uchar *const from = images + (image * positions + first) * CHANNELS;
    global float *const to = x + ((size_t)sample * positions + first) * PITCH;
    if (first == 0) labels_out[sample] = labels[image];
#if PITCH == CHANNELS
    const uint total = count * CHANNELS;
    uint i = 0;
    for (; i + 16 <= total; i += 16) {
      const float16 b = convert_float16(vload16(0, from + i));
      vstore16(fma(b, (float16)(HIGH), b * LOW), 0, to + i);
    }
    for (; i < total; i++) to[i] = fma((float)from[i], HIGH, (float)from[i] * LOW);
#else
    for (uint i = 0; i < count; i++) {
      for (uint c = 0; c < CHANNELS; c++) {
        const float b = (float)from[i * CHANNELS + c];
        to[i * PITCH + c] = fma(b, HIGH, b * LOW);
      }
      for (uint c = CHANNELS; c < PITCH; c++) to[i * PITCH + c] = 0.0f;
    }
#endif
  }
}

#else

CVY_KERNEL gather_forward(global const uchar *restrict images, global const ushort *restrict labels,
                          global const int *restrict index, global float *restrict x, global int *restrict labels_out,
                          const uint n, const uint positions, const cvy_divider by_positions) {
  const uint i = get_global_id(0), c = i % PITCH, at = i / PITCH, sample = (uint)fast_div((int)at, by_positions);
  if (sample < n) {
    const uint position = at - sample * positions;
    const ulong image = (ulong)index[sample];
    const float b = c < CHANNELS ? (float)images[(image * positions + position) * CHANNELS + c] : 0.0f;
    x[i] = fma(b, HIGH, b * LOW);
    if (position == 0 && c == 0) labels_out[sample] = labels[image];
  }
}

#endif
