/* SPDX-License-Identifier: MIT */
#include "src/ops/softmax_xent.h"

#include <math.h>

#include "src/ops/operation.h"
#include "src/ops/stream.h"

enum { LANES = 16 }; /* work-items per row (cl/row.clh) */

/* The workspace holds a cvy_xent_result for each sample. */
struct cvy_softmax_xent {
  cvy_operation base;
  int n_max, c, pitch;
  cvy_kernel *rows, *finish;
};

cvy_status cvy_softmax_xent_create(cvy_device *device, int n_max, int c, int pitch, cvy_softmax_xent **out) {
  cvy_status status = CVY_OK;
  cvy_softmax_xent *const op = *out = cvy_operation_new(device, "cross-entropy", sizeof *op);
  if (!op) return CVY_E_MEMORY;
  const cvy_shape row = {1, 1, c, pitch};
  CVY_REQUIRE(c >= 1 && pitch >= c, CVY_E_ARGUMENT,
              "cross-entropy: %d classes with pitch %d: must be at least 1, and the pitch at least as large", c, pitch);
  CVY_REQUIRE(n_max >= 1 && n_max <= INT32_MAX / LANES && cvy_fits_int32(&row, n_max), CVY_E_ARGUMENT,
              "cross-entropy: %d samples with pitch %d: must be at least 1 and fewer than 2^31 floats", n_max, pitch);
  op->n_max = n_max, op->c = c, op->pitch = pitch;
  CVY_TRY(cvy_operation_kernel(op, "softmax_xent", "softmax_xent_rows", NULL, 0, &op->rows));
  CVY_TRY(cvy_operation_kernel(op, "softmax_xent", "softmax_xent_finish", NULL, 0, &op->finish));
fail:
  if (status != CVY_OK) cvy_softmax_xent_destroy(out);
  return status;
}

void cvy_softmax_xent_destroy(cvy_softmax_xent **op) {
  cvy_operation_end(*op);
  *op = NULL;
}

size_t cvy_softmax_xent_workspace_bytes(const cvy_softmax_xent *op) {
  return (size_t)op->n_max * sizeof(cvy_xent_result);
}

cvy_status cvy_softmax_xent_run(cvy_softmax_xent *op, cvy_queue *queue, int n, cvy_buffer *x, cvy_buffer *labels,
                                float scale, float smoothing, cvy_buffer *dx, cvy_buffer *result, bool accumulate,
                                cvy_buffer *workspace) {
  cvy_status status = CVY_OK;
  const cvy_capabilities *const capabilities = op->base.capabilities;
  const size_t size_bytes = (size_t)(n > 0 ? n : 0) * (size_t)op->pitch * sizeof(float);
  CVY_REQUIRE(n >= 1 && n <= op->n_max, CVY_E_ARGUMENT, "cross-entropy: %d samples, must be from 1 to %d", n,
              op->n_max);
  CVY_REQUIRE(isfinite(scale), CVY_E_ARGUMENT, "cross-entropy: scale %g must be finite", (double)scale);
  CVY_REQUIRE(smoothing >= 0 && smoothing <= 1, CVY_E_ARGUMENT, "cross-entropy: smoothing %g must be from 0 to 1",
              (double)smoothing);
  CVY_TRY(cvy_check_buffer("cross-entropy", "x", x, size_bytes));
  CVY_TRY(cvy_check_buffer("cross-entropy", "labels", labels, (size_t)n * sizeof(int32_t)));
  if (dx) CVY_TRY(cvy_check_buffer("cross-entropy", "dx", dx, size_bytes));
  CVY_TRY(cvy_check_buffer("cross-entropy", "result", result, sizeof(cvy_xent_result)));
  CVY_TRY(cvy_check_buffer("cross-entropy", "workspace", workspace, cvy_softmax_xent_workspace_bytes(op)));
  CVY_TRY(CVY_LAUNCH(queue, op->rows, cvy_stream_grid(capabilities, (size_t)n, (size_t)n * LANES), CVY_BUF(x),
                     CVY_BUF(labels), CVY_BUF(dx ? dx : x), CVY_BUF(workspace), CVY_INT(n), CVY_INT(op->c),
                     CVY_INT(op->pitch), CVY_FLOAT(scale), CVY_FLOAT(1.0f - smoothing),
                     CVY_FLOAT(smoothing / (float)op->c), CVY_INT(dx != NULL)));
  CVY_TRY(CVY_LAUNCH(queue, op->finish, cvy_stream_grid(capabilities, 1, 1), CVY_BUF(workspace), CVY_BUF(result),
                     CVY_INT(n), CVY_INT(accumulate)));
fail:
  return status;
}
