/* SPDX-License-Identifier: MIT
 * A batch of training samples from the bytes of a data set, augmented (ops/gather/gather.h, augment.clh):
 *   draws[n] = the values drawn for sample number samples[n]
 *   x[n,h,w,c] = value (gather_value.clh) of byte (h,w,c) of images[index[n]] after crop or resized crop, flip and
 *                jitter; 0 where it is cut out, and for c >= C
 *
 *   CHANNELS  C, 1 …          PITCH  floats per position, >= CHANNELS
 *   RESIZED   0: crop, 1: resized crop      JITTER  0, 1 (C is 1 or 3)      NORMALIZE: gather_value.clh
 * block: rows per piece of work.
 * Geometry: gather_draw: a work-group per sample, which sums the luma whose mean contrast pulls to.
 * gather_augmented: CPU: a work-group loops over pieces (sample, block of rows); SIMT: one work-item per position. */
#include "augment.clh"
#include "gather_value.clh"

#ifndef CHANNELS
#define CHANNELS 1
#endif
#ifndef PITCH
#define PITCH CHANNELS
#endif
#ifndef RESIZED
#define RESIZED 0
#endif
#ifndef JITTER
#define JITTER 0
#endif
#if CHANNELS < 1 || PITCH < CHANNELS
#error "PITCH must be at least CHANNELS, and CHANNELS at least 1"
#endif
#if JITTER && CHANNELS != 1 && CHANNELS != 3
#error "JITTER is for images of 1 or 3 channels"
#endif

#if RESIZED
#define BYTE cvy_resized
#else
#define BYTE cvy_cropped
#endif

static inline cvy_pixel pixel_of(global const uchar *image, const cvy_gather_augment a, const cvy_gather_draw d, const int row,
                                 const int col) {
  cvy_pixel p;
  p.r = BYTE(image, a, d, CHANNELS, row, col, 0);
#if CHANNELS == 3
  p.g = BYTE(image, a, d, CHANNELS, row, col, 1);
  p.b = BYTE(image, a, d, CHANNELS, row, col, 2);
#else
  p.g = p.b = p.r;
#endif
  return p;
}

/* The mean of the luma, rounded. */
static inline int gray_of(const ulong sum, const cvy_gather_augment a) {
  const ulong twice = 2 * (ulong)(a.h * a.w);
  return (int)((2 * sum + twice / 2) / twice);
}

#if CVY_CPU

CVY_KERNEL gather_draw(global const uchar *restrict images, global const int *restrict index, global const int *restrict samples,
                       global cvy_gather_draw *restrict draws, const uint n, const cvy_gather_augment a, const uint epoch) {
  for (uint sample = CVY_GROUP; sample < n; sample += CVY_GROUPS) {
    cvy_gather_draw d = cvy_draw_sample(a, (uint)samples[sample], epoch);
#if JITTER
    if (a.contrast) {
      global const uchar *const image = images + (ulong)index[sample] * (uint)(a.h * a.w) * CHANNELS;
      ulong sum = 0;
      for (int row = 0; row < a.h; row++)
        for (int col = 0; col < a.w; col++) sum += (uint)cvy_luma(cvy_jittered(pixel_of(image, a, d, row, col), d, 1));
      d.gray = gray_of(sum, a);
    }
#endif
    draws[sample] = d;
  }
}

CVY_KERNEL gather_augmented(global const uchar *restrict images, global const ushort *restrict labels, global const int *restrict index,
                            global const cvy_gather_draw *restrict draws, global const float4 *restrict normalise,
                            global float *restrict x, global int *restrict labels_out, const uint n, const cvy_gather_augment a,
                            const uint block) {
  const uint blocks = ((uint)a.h + block - 1) / block;
  const ulong pieces = (ulong)n * blocks;
  for (ulong piece = CVY_GROUP; piece < pieces; piece += CVY_GROUPS) {
    const uint sample = (uint)(piece / blocks), first = (uint)(piece % blocks) * block;
    const ulong number = (ulong)index[sample];
    const cvy_gather_draw d = draws[sample];
    global const uchar *const image = images + number * (uint)(a.h * a.w) * CHANNELS;
    if (first == 0) labels_out[sample] = labels[number];
    for (int row = (int)first, end_row = min((int)(first + block), a.h); row < end_row; row++) {
      global float *const to = x + ((size_t)sample * (uint)a.h + (uint)row) * (uint)a.w * PITCH;
#if !JITTER && !RESIZED
      /* columns [begin, end) of the row lie in the image; the other columns are zero */
      const int from_row = d.top + row, inside = from_row >= 0 && from_row < a.h;
      const int shift = d.flip ? -d.left : d.left, begin = inside ? clamp(-shift, 0, a.w) : a.w;
      const int end = inside ? clamp(a.w - shift, begin, a.w) : a.w, start = from_row * a.w + d.left + (d.flip ? a.w - 1 : 0);
      for (int c = 0; c < CHANNELS; c++) {
        const float none = CVY_VALUE_OF(float, 0.0f, normalise[c]);
        for (int col = 0; col < begin; col++) to[col * PITCH + c] = none;
        for (int col = end; col < a.w; col++) to[col * PITCH + c] = none;
        if (d.flip)
          for (int col = begin; col < end; col++)
            to[col * PITCH + c] = CVY_VALUE_OF(float, (float)image[(start - col) * CHANNELS + c], normalise[c]);
        else
          for (int col = begin; col < end; col++)
            to[col * PITCH + c] = CVY_VALUE_OF(float, (float)image[(start + col) * CHANNELS + c], normalise[c]);
      }
#else
      for (int col = 0; col < a.w; col++) {
#if JITTER
        const cvy_pixel p = cvy_jittered(pixel_of(image, a, d, row, col), d, 0);
        to[col * PITCH] = CVY_VALUE_OF(float, (float)p.r, normalise[0]);
#if CHANNELS == 3
        to[col * PITCH + 1] = CVY_VALUE_OF(float, (float)p.g, normalise[1]);
        to[col * PITCH + 2] = CVY_VALUE_OF(float, (float)p.b, normalise[2]);
#endif
#else
        for (int c = 0; c < CHANNELS; c++)
          to[col * PITCH + c] = CVY_VALUE_OF(float, (float)BYTE(image, a, d, CHANNELS, row, col, c), normalise[c]);
#endif
      }
#endif
#if PITCH > CHANNELS
      for (int col = 0; col < a.w; col++)
        for (int c = CHANNELS; c < PITCH; c++) to[col * PITCH + c] = 0.0f;
#endif
      if (row >= d.cut_top && row < d.cut_bottom)
        for (int i = max(d.cut_left, 0) * PITCH; i < min(d.cut_right, a.w) * PITCH; i++) to[i] = 0.0f;
    }
  }
}

#else

CVY_KERNEL gather_draw(global const uchar *restrict images, global const int *restrict index, global const int *restrict samples,
                       global cvy_gather_draw *restrict draws, const uint n, const cvy_gather_augment a, const uint epoch) {
  const uint sample = CVY_GROUP, item = get_local_id(0);
  cvy_gather_draw d = cvy_draw_sample(a, (uint)samples[sample], epoch);
#if JITTER
  local uint sums[LOCAL];
  if (a.contrast) {
    global const uchar *const image = images + (ulong)index[sample] * (uint)(a.h * a.w) * CHANNELS;
    uint sum = 0;
    for (int at = (int)item; at < a.h * a.w; at += LOCAL) {
      const int row = fast_div(at, a.by_w);
      sum += (uint)cvy_luma(cvy_jittered(pixel_of(image, a, d, row, at - row * a.w), d, 1));
    }
    sums[item] = sum;
    for (uint half_way = LOCAL / 2; half_way > 0; half_way /= 2) {
      barrier(CLK_LOCAL_MEM_FENCE);
      if (item < half_way) sums[item] += sums[item + half_way];
    }
    if (item == 0) d.gray = gray_of(sums[0], a);
  }
#endif
  if (item == 0) draws[sample] = d;
}

CVY_KERNEL gather_augmented(global const uchar *restrict images, global const ushort *restrict labels, global const int *restrict index,
                            global const cvy_gather_draw *restrict draws, global const float4 *restrict normalise,
                            global float *restrict x, global int *restrict labels_out, const uint n, const cvy_gather_augment a,
                            const cvy_divider by_positions) {
  const uint i = get_global_id(0), sample = (uint)fast_div((int)i, by_positions);
  if (sample >= n) return;
  const int position = (int)(i - sample * (uint)(a.h * a.w)), row = fast_div(position, a.by_w), col = position - row * a.w;
  const cvy_gather_draw d = draws[sample];
  const ulong number = (ulong)index[sample];
  global const uchar *const image = images + number * (uint)(a.h * a.w) * CHANNELS;
  global float *const to = x + (size_t)i * PITCH;
  const int cut = row >= d.cut_top && row < d.cut_bottom && col >= d.cut_left && col < d.cut_right;
  if (position == 0) labels_out[sample] = labels[number];
#if JITTER
  const cvy_pixel p = cvy_jittered(pixel_of(image, a, d, row, col), d, 0);
  to[0] = cut ? 0.0f : CVY_VALUE_OF(float, (float)p.r, normalise[0]);
#if CHANNELS == 3
  to[1] = cut ? 0.0f : CVY_VALUE_OF(float, (float)p.g, normalise[1]);
  to[2] = cut ? 0.0f : CVY_VALUE_OF(float, (float)p.b, normalise[2]);
#endif
#else
  for (int c = 0; c < CHANNELS; c++)
    to[c] = cut ? 0.0f : CVY_VALUE_OF(float, (float)BYTE(image, a, d, CHANNELS, row, col, c), normalise[c]);
#endif
  for (int c = CHANNELS; c < PITCH; c++) to[c] = 0.0f;
}

#endif
