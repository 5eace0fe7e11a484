/* SPDX-License-Identifier: MIT
 * The norm of a gradient on the host, with the bits of ops/norm.h for all divisions into pieces and all pools. */
#ifndef CVY_PROTOCOL_GRAD_NORM_H
#define CVY_PROTOCOL_GRAD_NORM_H

#include "src/base/pool.h"
#include "src/ops/norm_sum.h"

typedef struct cvy_grad_norm cvy_grad_norm;

/* Of vectors of n_floats, a multiple of CVY_NORM_BLOCK. CVY_E_MEMORY. */
cvy_status cvy_grad_norm_create(size_t n_floats, cvy_grad_norm **out);
void cvy_grad_norm_destroy(cvy_grad_norm **norm);
/* Floats [offset, offset + n) of the vector are x[0..n); multiples of CVY_NORM_BLOCK. */
void cvy_grad_norm_add(cvy_grad_norm *norm, cvy_pool *pool, size_t offset, size_t n, const float *x);
/* When all of the vector was added; as cvy_norm_finish. */
cvy_norm_result cvy_grad_norm_finish(cvy_grad_norm *norm, float clip);

#endif
