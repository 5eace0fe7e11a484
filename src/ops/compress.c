/* SPDX-License-Identifier: MIT */
#include "src/ops/compress.h"

#include "src/ops/stream.h"

struct cvy_compress {
  cvy_device *device;
  cvy_kernel *kernel;
};

cvy_status cvy_compress_create(cvy_device *device, cvy_compress **out) {
  cvy_status status = CVY_OK;
  cvy_compress *op = NULL;
  *out = NULL;
  op = cvy_calloc(1, sizeof *op);
  CVY_REQUIRE(op, CVY_E_MEMORY, "compress: no memory for the operation");
  op->device = device;
  CVY_TRY(cvy_kernel_create(device, "compress", "compress", NULL, 0, &op->kernel));
  *out = op;
  return CVY_OK;
fail:
  cvy_compress_destroy(&op);
  return status;
}

void cvy_compress_destroy(cvy_compress **op) {
  if (!*op) return;
  cvy_kernel_destroy(&(*op)->kernel);
  cvy_free(*op);
  *op = NULL;
}

cvy_status cvy_compress_run(cvy_compress *op, cvy_queue *queue, size_t n_elems, cvy_buffer *g, cvy_buffer *residual,
                            cvy_buffer *packed) {
  cvy_status status = CVY_OK;
  cvy_stream plan;
  CVY_TRY(cvy_stream_plan(op->device, "compress", n_elems, &plan));
  CVY_TRY(cvy_check_buffer("compress", "g", g, n_elems * sizeof(float)));
  CVY_TRY(cvy_check_buffer("compress", "residual", residual, n_elems * sizeof(float)));
  CVY_TRY(cvy_check_buffer("compress", "packed", packed, n_elems * sizeof(uint16_t)));
  CVY_TRY(CVY_LAUNCH(queue, op->kernel, plan.grid, CVY_BUF(g), CVY_BUF(residual), CVY_BUF(packed), CVY_UINT(plan.n_vec),
                     CVY_UINT(plan.chunk)));
fail:
  return status;
}
