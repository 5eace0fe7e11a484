/* SPDX-License-Identifier: MIT
 * The operations of cl/norm.cl, in the same order. */
#include "src/protocol/grad_norm.h"

#include <math.h>

#include "src/base/clones.h"
#include "src/base/mem.h"

enum { LANES = 16 };

struct cvy_grad_norm {
  size_t n_blocks;
  cvy_norm_sum *sums; /* of blocks; levels above them are written over them */
};

cvy_status cvy_grad_norm_create(size_t n_floats, cvy_grad_norm **out) {
  cvy_status status = CVY_OK;
  cvy_grad_norm *n = cvy_calloc(1, sizeof *n);
  *out = NULL;
  CVY_REQUIRE(n, CVY_E_MEMORY, "out of host memory");
  n->n_blocks = n_floats / CVY_NORM_BLOCK;
  n->sums = cvy_calloc(n->n_blocks, sizeof *n->sums);
  CVY_REQUIRE(n->sums, CVY_E_MEMORY, "out of host memory for the norm of the gradient");
  *out = n;
  return CVY_OK;
fail:
  cvy_grad_norm_destroy(&n);
  return status;
}

void cvy_grad_norm_destroy(cvy_grad_norm **norm) {
  if (!*norm) return;
  cvy_free((*norm)->sums);
  cvy_free(*norm);
  *norm = NULL;
}

static inline void plus(float *sum, float *lost, float value, float its_lost) {
  const float s = *sum + value, taken = s - *sum;
  const float error = (*sum - (s - taken)) + (value - taken);
  *sum = s;
  *lost = *lost + (error + its_lost);
}

static cvy_norm_sum join(float *sum, float *lost) {
  for (int reach = LANES / 2; reach > 0; reach /= 2)
    for (int i = 0; i < reach; i++) plus(&sum[i], &lost[i], sum[i + reach], lost[i + reach]);
  return (cvy_norm_sum){sum[0], lost[0]};
}

typedef struct adding {
  cvy_norm_sum *to;
  const float *x;
} adding;

CVY_CLONES static void add_block(const float *restrict x, float *restrict sum, float *restrict lost) {
  for (int k = 0; k < CVY_NORM_BLOCK; k += LANES)
    for (int i = 0; i < LANES; i++) {
      const float size = fabsf(x[k + i]), value = size < 0x1p-50f ? 0.0f : x[k + i], square = value * value;
      const float its_lost = size < 0x1p-40f ? 0.0f : fmaf(value, value, -square);
      plus(&sum[i], &lost[i], square, its_lost);
    }
}

static void add_blocks(void *arg, size_t begin, size_t end) {
  const adding *const a = arg;
  for (size_t b = begin; b < end; b++) {
    float sum[LANES] = {0}, lost[LANES] = {0};
    add_block(a->x + b * CVY_NORM_BLOCK, sum, lost);
    a->to[b] = join(sum, lost);
  }
}

void cvy_grad_norm_add(cvy_grad_norm *norm, cvy_pool *pool, size_t offset, size_t n, const float *x) {
  CVY_ASSERT(offset % CVY_NORM_BLOCK == 0 && n % CVY_NORM_BLOCK == 0 &&
             (offset + n) / CVY_NORM_BLOCK <= norm->n_blocks);
  adding a = {.to = norm->sums + offset / CVY_NORM_BLOCK, .x = x};
  cvy_pool_run(pool, n / CVY_NORM_BLOCK, 256, add_blocks, &a);
}

cvy_norm_result cvy_grad_norm_finish(cvy_grad_norm *norm, float clip) {
  size_t n = norm->n_blocks;
  while (n > 1) {
    const size_t above = (n + CVY_NORM_BLOCK - 1) / CVY_NORM_BLOCK;
    for (size_t b = 0; b < above; b++) {
      float sum[LANES] = {0}, lost[LANES] = {0};
      for (size_t k = b * CVY_NORM_BLOCK; k < (b + 1) * CVY_NORM_BLOCK && k < n; k++)
        plus(&sum[k % LANES], &lost[k % LANES], norm->sums[k].sum, norm->sums[k].lost);
      norm->sums[b] = join(sum, lost);
    }
    n = above;
  }
  const cvy_norm_sum squares = norm->sums[0];
  const float ratio = clip / (sqrtf(squares.sum) + 1e-6f);
  return (cvy_norm_result){.scale = clip == 0 || ratio >= 1 ? 1 : ratio, .squares = squares};
}
