/* SPDX-License-Identifier: MIT */
#include "src/ops/softmax_xent.h"

#include <math.h>

#include "src/ops/stream.h"

enum { LANES = 16 }; /* work-items per row (cl/row.clh) */

/* The workspace holds a cvy_xent_result for each sample. */
struct cvy_softmax_xent {
  cvy_device *device;
  int n_max, c, pitch;
  cvy_kernel *rows, *finish;
};

cvy_status cvy_softmax_xent_create(cvy_device *device, int n_max, int c, int pitch, cvy_softmax_xent **out) {
  cvy_status status = CVY_OK;
  cvy_softmax_xent *op = NULL;
  *out = NULL;
  const cvy_shape row = {1, 1, c, pitch};
  CVY_REQUIRE(c >= 1 && pitch >= c, CVY_E_ARGUMENT,
              "cross-entropy: %d classes with pitch %d: must be at least 1, and the pitch at least as large", c, pitch);
  CVY_REQUIRE(n_max >= 1 && n_max <= INT32_MAX / LANES && cvy_fits_int32(&row, n_max), CVY_E_ARGUMENT,
              "cross-entropy: %d samples with pitch %d: must be at least 1 and fewer than 2^31 floats", n_max, pitch);
  op = cvy_calloc(1, sizeof *op);
  CVY_REQUIRE(op, CVY_E_MEMORY, "cross-entropy: no memory for the operation");
  *op = (cvy_softmax_xent){.device = device, .n_max = n_max, .c = c, .pitch = pitch};
  CVY_TRY(cvy_kernel_create(device, "softmax_xent", "softmax_xent_rows", NULL, 0, &op->rows));
  CVY_TRY(cvy_kernel_create(device, "softmax_xent", "softmax_xent_finish", NULL, 0, &op->finish));
  *out = op;
  return CVY_OK;
fail:
  cvy_softmax_xent_destroy(&op);
  return status;
}

void cvy_softmax_xent_destroy(cvy_softmax_xent **op) {
  if (!*op) return;
  cvy_kernel_destroy(&(*op)->rows);
  cvy_kernel_destroy(&(*op)->finish);
  cvy_free(*op);
  *op = NULL;
}

size_t cvy_softmax_xent_workspace_bytes(const cvy_softmax_xent *op) {
  return (size_t)op->n_max * sizeof(cvy_xent_result);
}

cvy_status cvy_softmax_xent_run(cvy_softmax_xent *op, cvy_queue *queue, int n, cvy_buffer *x, cvy_buffer *labels,
                                float scale, float smoothing, cvy_buffer *dx, cvy_buffer *result, bool accumulate,
                                cvy_buffer *workspace) {
  cvy_status status = CVY_OK;
  const cvy_capabilities *const capabilities = cvy_device_get_capabilities(op->device);
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
  const size_t local = capabilities->cpu_shaped ? 1 : CVY_STREAM_LOCAL;
  const size_t global = capabilities->cpu_shaped ? cvy_cpu_groups(capabilities, (size_t)n)
                                                 : cvy_round_up((size_t)n * LANES, CVY_STREAM_LOCAL);
  CVY_TRY(CVY_LAUNCH(queue, op->rows, ((cvy_grid){.global = {global}, .local = {local}}), CVY_BUF(x), CVY_BUF(labels),
                     CVY_BUF(dx ? dx : x), CVY_BUF(workspace), CVY_INT(n), CVY_INT(op->c), CVY_INT(op->pitch),
                     CVY_FLOAT(scale), CVY_FLOAT(1.0f - smoothing), CVY_FLOAT(smoothing / (float)op->c),
                     CVY_INT(dx != NULL)));
  CVY_TRY(CVY_LAUNCH(queue, op->finish, ((cvy_grid){.global = {local}, .local = {local}}), CVY_BUF(workspace),
                     CVY_BUF(result), CVY_INT(n), CVY_INT(accumulate)));
fail:
  return status;
}
