/* SPDX-License-Identifier: MIT */
#include "src/ops/layers/softmax.h"

#include "src/ops/operation.h"
#include "src/ops/stream.h"

enum { LANES = 16 }; /* work-items per row (cl/row.clh) */

struct cvy_softmax {
  cvy_operation base;
  int c, pitch;
  cvy_kernel *forward, *backward;
};

cvy_status cvy_softmax_create(cvy_device *device, int c, int pitch, cvy_softmax **out) {
  cvy_status status = CVY_OK;
  cvy_softmax *const op = *out = cvy_operation_new(device, "softmax", sizeof *op);
  if (!op) return CVY_E_MEMORY;
  CVY_REQUIRE(c >= 1 && pitch >= c, CVY_E_ARGUMENT,
              "softmax: %d channels with pitch %d: must be at least 1, and the pitch at least as large", c, pitch);
  op->c = c, op->pitch = pitch;
  CVY_TRY(cvy_operation_kernel(op, "softmax", "softmax_forward", NULL, 0, &op->forward));
  CVY_TRY(cvy_operation_kernel(op, "softmax", "softmax_backward", NULL, 0, &op->backward));
fail:
  if (status != CVY_OK) cvy_softmax_destroy(out);
  return status;
}

void cvy_softmax_destroy(cvy_softmax **op) {
  cvy_operation_end(*op);
  *op = NULL;
}

/* Checks, and the geometry: a row per work-item on CPUs, per LANES work-items else. */
static cvy_status prepare(const cvy_softmax *op, int rows, cvy_buffer *const buffers[3], const char *const names[3],
                          cvy_grid *grid) {
  cvy_status status = CVY_OK;
  const cvy_shape row = {1, 1, op->c, op->pitch};
  CVY_REQUIRE(rows >= 1 && rows <= INT32_MAX / LANES && cvy_fits_int32(&row, rows), CVY_E_ARGUMENT,
              "softmax: %d rows with pitch %d: must be at least 1 and fewer than 2^31 floats", rows, op->pitch);
  for (int i = 0; i < 3; i++)
    if (names[i])
      CVY_TRY(cvy_check_buffer("softmax", names[i], buffers[i], (size_t)rows * (size_t)op->pitch * sizeof(float)));
  *grid = cvy_stream_grid(op->base.capabilities, (size_t)rows, (size_t)rows * LANES);
fail:
  return status;
}

cvy_status cvy_softmax_forward(cvy_softmax *op, cvy_queue *queue, int rows, cvy_buffer *x, cvy_buffer *y) {
  cvy_status status = CVY_OK;
  cvy_grid grid;
  CVY_TRY(prepare(op, rows, (cvy_buffer *const[]){x, y, NULL}, (const char *const[]){"x", "y", NULL}, &grid));
  CVY_TRY(
      CVY_LAUNCH(queue, op->forward, grid, CVY_BUF(x), CVY_BUF(y), CVY_INT(rows), CVY_INT(op->c), CVY_INT(op->pitch)));
fail:
  return status;
}

cvy_status cvy_softmax_backward(cvy_softmax *op, cvy_queue *queue, int rows, cvy_buffer *y, cvy_buffer *dy,
                                cvy_buffer *dx) {
  cvy_status status = CVY_OK;
  cvy_grid grid;
  CVY_TRY(prepare(op, rows, (cvy_buffer *const[]){y, dy, dx}, (const char *const[]){"y", "dy", "dx"}, &grid));
  CVY_TRY(CVY_LAUNCH(queue, op->backward, grid, CVY_BUF(y), CVY_BUF(dy), CVY_BUF(dx), CVY_INT(rows), CVY_INT(op->c),
                     CVY_INT(op->pitch)));
fail:
  return status;
}
