/* SPDX-License-Identifier: MIT
 * Multiplier and shift that replace a division by `d` in kernels: cl/fastdiv.clh. Pure. */
#ifndef CVY_OPS_DIVIDER_H
#define CVY_OPS_DIVIDER_H

#include <stdint.h>

#include "cl/args.clh"

/* For 1 <= d < 2^31: n / d == (mulhi(n, multiplier) + n) >> shift for all 0 <= n < 2^31. */
static inline cvy_divider cvy_divider_make(int d) {
  uint32_t shift = 0;
  while ((UINT32_C(1) << shift) < (uint32_t)d) shift++;
  const uint64_t span = (UINT64_C(1) << shift) - (uint64_t)d;
  return (cvy_divider){.multiplier = (uint32_t)((span << 32) / (uint64_t)d + 1), .shift = shift};
}

/* A kernel argument. */
#define CVY_DIVIDER(d) CVY_STRUCT(((const cvy_divider[]){cvy_divider_make(d)})[0])

#endif
