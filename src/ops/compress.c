/* SPDX-License-Identifier: MIT */
#include "src/ops/compress.h"

#include "src/ops/operation.h"
#include "src/ops/stream.h"

struct cvy_compress {
  cvy_operation base;
  cvy_kernel *kernel;
};

cvy_status cvy_compress_create(cvy_device *device, cvy_compress **out) {
  cvy_status status = CVY_OK;
  cvy_compress *const op = *out = cvy_operation_new(device, "compress", sizeof *op);
  if (!op) return CVY_E_MEMORY;
  CVY_TRY(cvy_operation_kernel(op, "compress", "compress", NULL, 0, &op->kernel));
fail:
  if (status != CVY_OK) cvy_compress_destroy(out);
  return status;
}

void cvy_compress_destroy(cvy_compress **op) {
  cvy_operation_end(*op);
  *op = NULL;
}

cvy_status cvy_compress_run(cvy_compress *op, cvy_queue *queue, size_t n_elems, cvy_buffer *g, cvy_buffer *residual,
                            cvy_buffer *packed) {
  cvy_status status = CVY_OK;
  cvy_stream plan;
  CVY_TRY(cvy_stream_plan(op->base.device, "compress", n_elems, &plan));
  CVY_TRY(cvy_check_buffer("compress", "g", g, n_elems * sizeof(float)));
  CVY_TRY(cvy_check_buffer("compress", "residual", residual, n_elems * sizeof(float)));
  CVY_TRY(cvy_check_buffer("compress", "packed", packed, n_elems * sizeof(uint16_t)));
  CVY_TRY(CVY_LAUNCH(queue, op->kernel, plan.grid, CVY_BUF(g), CVY_BUF(residual), CVY_BUF(packed), CVY_UINT(plan.n_vec),
                     CVY_UINT(plan.chunk)));
fail:
  return status;
}
