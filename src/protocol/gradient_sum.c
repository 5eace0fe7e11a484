/* SPDX-License-Identifier: MIT */
#include "src/protocol/gradient_sum.h"

#include <stdint.h>
#include <string.h>

#include "src/base/clones.h"

static inline const float *floats_of(const void *const *parts, int p, size_t at) {
  return (const float *)parts[p] + at;
}
static inline const uint16_t *packed_of(const void *const *parts, int p, size_t at) {
  return (const uint16_t *)parts[p] + at;
}

/* g = parts[0] + parts[1] + …, in this order; each part is one device's gradient. Four parts at a time: g, which stays
 * in the first-level cache, is then read and written a quarter as often, and four streams keep memory busy. */
CVY_CLONES static void sum_parts(float *restrict g, const void *const *parts, int n_parts, size_t at, size_t n) {
  int p = 0;
  if (n_parts >= 4) {
    const float *const a = floats_of(parts, 0, at), *const b = floats_of(parts, 1, at),
                       *const c = floats_of(parts, 2, at), *const d = floats_of(parts, 3, at);
    for (size_t i = 0; i < n; i++) g[i] = ((a[i] + b[i]) + c[i]) + d[i];
    p = 4;
  } else if (n_parts >= 2) {
    const float *const a = floats_of(parts, 0, at), *const b = floats_of(parts, 1, at);
    for (size_t i = 0; i < n; i++) g[i] = a[i] + b[i];
    p = 2;
  } else {
    const float *const a = floats_of(parts, 0, at);
    for (size_t i = 0; i < n; i++) g[i] = a[i];
    p = 1;
  }
  for (; p + 4 <= n_parts; p += 4) {
    const float *const a = floats_of(parts, p, at), *const b = floats_of(parts, p + 1, at);
    const float *const c = floats_of(parts, p + 2, at), *const d = floats_of(parts, p + 3, at);
    for (size_t i = 0; i < n; i++) g[i] = (((g[i] + a[i]) + b[i]) + c[i]) + d[i];
  }
  for (; p < n_parts; p++) {
    const float *const part = floats_of(parts, p, at);
    for (size_t i = 0; i < n; i++) g[i] += part[i];
  }
}

static inline float widened(uint16_t packed) {
  const uint32_t bits = (uint32_t)packed << 16;
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

/* The same for bfloat16, two parts at a time: they are half as long. */
CVY_CLONES static void sum_packed(float *restrict g, const void *const *parts, int n_parts, size_t at, size_t n) {
  const uint16_t *const first = packed_of(parts, 0, at);
  int p = 1;
  if (n_parts >= 2) {
    const uint16_t *const second = packed_of(parts, 1, at);
    for (size_t i = 0; i < n; i++) g[i] = widened(first[i]) + widened(second[i]);
    p = 2;
  } else {
    for (size_t i = 0; i < n; i++) g[i] = widened(first[i]);
  }
  for (; p + 2 <= n_parts; p += 2) {
    const uint16_t *const a = packed_of(parts, p, at), *const b = packed_of(parts, p + 1, at);
    for (size_t i = 0; i < n; i++) g[i] = (g[i] + widened(a[i])) + widened(b[i]);
  }
  if (p < n_parts) {
    const uint16_t *const a = packed_of(parts, p, at);
    for (size_t i = 0; i < n; i++) g[i] += widened(a[i]);
  }
}

void cvy_gradient_sum_block(float *restrict g, const void *const *parts, int n_parts, bool packed, size_t at,
                            size_t n) {
  if (packed) sum_packed(g, parts, n_parts, at, n);
  else sum_parts(g, parts, n_parts, at, n);
}

typedef struct add_args {
  float *sum;
  bool begun;
  const void *const *parts;
  int n_parts;
  bool packed;
} add_args;

static void add_range(void *arg, size_t begin, size_t end) {
  const add_args *const a = arg;
  float g[CVY_SUM_BLOCK];
  for (size_t at = begin; at < end; at += CVY_SUM_BLOCK) {
    const size_t n = end - at < CVY_SUM_BLOCK ? end - at : CVY_SUM_BLOCK;
    float *const sum = a->sum + at;
    for (int p = 0; p < a->n_parts; p++) { /* one part at a time: the sum stays in the first-level cache */
      cvy_gradient_sum_block(g, a->parts + p, 1, a->packed, at, n);
      if (p > 0 || a->begun)
        for (size_t i = 0; i < n; i++) sum[i] += g[i];
      else memcpy(sum, g, n * sizeof *sum);
    }
  }
}

void cvy_gradient_sum(cvy_pool *pool, float *sum, bool begun, size_t size, const void *const *parts, int n_parts,
                      bool packed) {
  add_args args = {.sum = sum, .begun = begun, .parts = parts, .n_parts = n_parts, .packed = packed};
  cvy_pool_run(pool, size, CVY_SUM_GRAIN, add_range, &args);
}
