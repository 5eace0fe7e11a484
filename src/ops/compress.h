/* SPDX-License-Identifier: MIT
 * Gradients as bfloat16, half the bytes, with error feedback: the device adds the residual of the rounding to the next
 * gradient, so that it comes late but is not lost. Elementwise, with x = g + residual (one rounding, float):
 *   packed = x rounded to bfloat16 (the upper 16 bits of a float), to nearest, ties to even; too large values become
 *     infinite; NaN becomes a quiet NaN, whose sign and payload are the device's: x86 keeps those of g, NVIDIA sends
 *     7fff
 *   residual = x - packed, which is exact; 0 where packed is not finite
 * The residual starts at zero. n_elems a multiple of 16. packed: n_elems uint16. Pending on return. */
#ifndef CVY_OPS_COMPRESS_H
#define CVY_OPS_COMPRESS_H

#include "src/cl/launch.h"
#include "src/ops/shape.h"

typedef struct cvy_compress cvy_compress;
/* CVY_E_MEMORY, CVY_E_BUILD. */
cvy_status cvy_compress_create(cvy_device *device, cvy_compress **out);
void cvy_compress_destroy(cvy_compress **op);
/* CVY_E_ARGUMENT: a buffer is missing or too small, or n_elems is wrong. */
cvy_status cvy_compress_run(cvy_compress *op, cvy_queue *queue, size_t n_elems, cvy_buffer *g, cvy_buffer *residual,
                            cvy_buffer *packed);

#endif
