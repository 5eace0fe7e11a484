/* SPDX-License-Identifier: MIT
 * Shapes and the alphabet used everywhere, in C and in cl/:
 *   N batch · H W height, width · C channels · K filters (output channels) · R S filter rows, columns · P Q output
 *   rows, columns
 *   G groups of batch normalisation · gradient of x is dx.
 * Activations are NHWC fp32 with a channel pitch >= C: element (n,h,w,c) is at ((n*H + h)*W + w)*pitch + c. Channels
 * C..pitch-1 are zero on the device, always: every kernel that writes a tensor writes zeros there (or leaves them, if
 * it only adds zeros).
 * Filters are (R,S,C,Kpitch): RSCK with K padded by zeros to the pitch of the output. */
#ifndef CVY_OPS_SHAPE_H
#define CVY_OPS_SHAPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cl/args.clh"
#include "src/base/mem.h"
#include "src/base/failure.h"

/* Storage type of elements. Kernels compute in F32; the others are reserved and refused. */
typedef enum cvy_dtype { CVY_F32 = 0, CVY_BF16, CVY_F16 } cvy_dtype;

/* Pitch of activations and of the last dimension of parameters: whole float16 vectors. */
static inline int cvy_pitch_of(int channels) { return (channels + 15) / 16 * 16; }
/* Pitch of a network's input (written by gather, never differentiated): 1, 4, or as above: 1 and 3 channels stay
 * small. */
static inline int cvy_input_pitch_of(int channels) {
  return channels == 1 ? 1 : channels <= 4 ? 4 : cvy_pitch_of(channels);
}

/* Floats in one sample. */
static inline size_t cvy_shape_elems(const cvy_shape *s) { return (size_t)s->h * (size_t)s->w * (size_t)s->pitch; }
/* True if n samples can be indexed with 32-bit signed integers in kernels. */
static inline bool cvy_fits_int32(const cvy_shape *s, int n) {
  size_t total;
  return cvy_mul_size(cvy_shape_elems(s), (size_t)n, &total) && total <= (size_t)INT32_MAX;
}

#endif
