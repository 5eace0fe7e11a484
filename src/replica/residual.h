/* SPDX-License-Identifier: MIT
 * Gradients as bfloat16: the device packs each bucket (ops/compress.h) and adds the residual, the error of
 * this rounding, to the bucket's next gradient. [worker] */
#ifndef CVY_REPLICA_RESIDUAL_H
#define CVY_REPLICA_RESIDUAL_H

#include "src/cl/buffer.h"
#include "src/nn/layout.h"

typedef struct cvy_residual cvy_residual;

/* Device memory that cvy_residual_create takes. */
size_t cvy_residual_bytes(const cvy_layout *layout);
/* Residuals are zero. `layout` is borrowed. CVY_E_DEVICE_MEMORY, CVY_E_MEMORY, CVY_E_BUILD, CVY_E_DEVICE. */
cvy_status cvy_residual_create(cvy_device *device, const cvy_layout *layout, cvy_residual **out);
void cvy_residual_destroy(cvy_residual **residual);
/* Enqueues the rounding of the bucket's gradient on the device's compute queue. */
cvy_status cvy_residual_pack(cvy_residual *residual, int bucket, cvy_buffer *gradient);
/* The bucket's packed gradient, which is transferred as a whole. */
cvy_buffer *cvy_residual_packed(const cvy_residual *residual, int bucket);
/* Blocking copies of all residuals, a flat vector (nn/layout.h). put NULL: zeros. */
cvy_status cvy_residual_put(cvy_residual *residual, const float *from);
cvy_status cvy_residual_get(cvy_residual *residual, float *to);

#endif
