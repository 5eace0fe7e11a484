/* SPDX-License-Identifier: MIT
 * The sum of the devices' gradients on the host: float32, in the order of the devices, so that the bits depend on
 * neither threads nor pieces. The functions have no state; any thread may call them. */
#ifndef CVY_PROTOCOL_GRADIENT_SUM_H
#define CVY_PROTOCOL_GRADIENT_SUM_H

#include <stdbool.h>
#include <stddef.h>

#include "src/base/pool.h"

enum { CVY_SUM_BLOCK = 1024 }; /* floats whose sum fits in the first-level cache between the sum and what reads it */
/* Floats that a thread of a pool takes at a time, at least: about 10 us of work. A bucket of 1 MiB then has work for 32
 * threads. */
enum { CVY_SUM_GRAIN = 8 * CVY_SUM_BLOCK };

/* g[0..n) = parts[0] + parts[1] + …, in this order, each part from its element `at`; n_parts >= 1. packed: parts are
 * bfloat16 (ops/compress.h), each widened to float before it is added. */
void cvy_gradient_sum_block(float *restrict g, const void *const *parts, int n_parts, bool packed, size_t at, size_t n);
/* sum[0..size) = parts[0] + parts[1] + …, in this order; begun: sum + parts[0] + …, which continues such a sum. Many
 * calls on parts of a list thus give the bits of one call on all of it. pool: NULL for the calling thread alone. */
void cvy_gradient_sum(cvy_pool *pool, float *sum, bool begun, size_t size, const void *const *parts, int n_parts,
                      bool packed);

#endif
