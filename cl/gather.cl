/* SPDX-License-Identifier: MIT
 * A batch from the bytes of a data set (ops/gather/gather.h):
 *   x[n,h,w,c] = value of images[index[n],h,w,c] (gather_value.clh), 0 for c >= C;   labels_out[n] = labels[index[n]]
 * normalise: four numbers for each channel, for NORMALIZE alone.
 *
 *   CHANNELS  C, 1 …          PITCH  floats per position, >= CHANNELS (1, 4, 16, …)
 * positions: H*W; block: positions per piece of work.
 * Geometry: CPU: a work-group loops over pieces (sample, block of positions); SIMT: one work-item per float. */
#include "fastdiv.clh"
#include "gather_value.clh"

#ifndef CHANNELS
#define CHANNELS 1
#endif
#ifndef PITCH
#define PITCH CHANNELS
#endif
#if CHANNELS < 1 || PITCH < CHANNELS
#error "PITCH must be at least CHANNELS, and CHANNELS at least 1"
#endif

#if CVY_CPU

CVY_KERNEL gather_forward(global const uchar *restrict images, global const ushort *restrict labels,
                          global const int *restrict index, global const float4 *restrict normalise,
                          global float *restrict x, global int *restrict labels_out,
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
#if PITCH == CHANNELS && (CHANNELS == 1 || !NORMALIZE)
    const uint total = count * CHANNELS;
    uint i = 0;
    for (; i + 16 <= total; i += 16) {
      const float16 b = convert_float16(vload16(0, from + i));
      vstore16(CVY_VALUE_OF(float16, b, normalise[0]), 0, to + i);
    }
    for (; i < total; i++) to[i] = CVY_VALUE_OF(float, (float)from[i], normalise[0]);
#else
    for (uint i = 0; i < count; i++) {
      for (uint c = 0; c < CHANNELS; c++) {
        const float b = (float)from[i * CHANNELS + c];
        to[i * PITCH + c] = CVY_VALUE_OF(float, b, normalise[c]);
      }
      for (uint c = CHANNELS; c < PITCH; c++) to[i * PITCH + c] = 0.0f;
    }
#endif
  }
}

#else

CVY_KERNEL gather_forward(global const uchar *restrict images, global const ushort *restrict labels,
                          global const int *restrict index, global const float4 *restrict normalise,
                          global float *restrict x, global int *restrict labels_out,
                          const uint n, const uint positions, const cvy_divider by_positions) {
  const uint i = get_global_id(0), c = i % PITCH, at = i / PITCH, sample = (uint)fast_div((int)at, by_positions);
  if (sample < n) {
    const uint position = at - sample * positions;
    const ulong image = (ulong)index[sample];
    const float b = c < CHANNELS ? (float)images[(image * positions + position) * CHANNELS + c] : 0.0f;
#if NORMALIZE
    x[i] = c < CHANNELS ? CVY_VALUE_OF(float, b, normalise[c]) : 0.0f;
#else
    x[i] = CVY_VALUE_OF(float, b, 0);
#endif
    if (position == 0 && c == 0) labels_out[sample] = labels[image];
  }
}

#endif
