/* SPDX-License-Identifier: MIT
 * Images of the caller (convoy/batch.h) in the network's layout, on the host. */
#ifndef CVY_OPS_GATHER_GATHER_BATCH_H
#define CVY_OPS_GATHER_GATHER_BATCH_H

#include "convoy/batch.h"
#include "src/ops/shape.h"

/* CVY_E_ARGUMENT: no images, unknown layout, strides or images that are not aligned · CVY_E_MISMATCH: another size than
 * x's. Pure. */
cvy_status cvy_gather_batch_check(const cvy_batch *batch, const cvy_shape *x);
/* out (n,H,W) pitch x.pitch: images first to first + n - 1 of a batch that was checked, padding 0. Pure. */
void cvy_gather_batch(const cvy_batch *batch, const cvy_shape *x, int first, int n, float *out);

#endif
