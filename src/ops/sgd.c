/* SPDX-License-Identifier: MIT */
#include "src/ops/sgd.h"

#include <math.h>

#include "src/ops/stream.h"

struct cvy_sgd {
  cvy_device *device;
  cvy_kernel *update, *update_momentum, *running;
};

cvy_status cvy_sgd_create(cvy_device *device, cvy_sgd **out) {
  cvy_status status = CVY_OK;
  cvy_sgd *op = NULL;
  *out = NULL;
  op = cvy_calloc(1, sizeof *op);
  CVY_REQUIRE(op, CVY_E_MEMORY, "sgd: no memory for the operation");
  op->device = device;
  CVY_TRY(cvy_kernel_create(device, "sgd", "sgd_update", NULL, 0, &op->update));
  CVY_TRY(cvy_kernel_create(device, "sgd", "sgd_update_momentum", NULL, 0, &op->update_momentum));
  CVY_TRY(cvy_kernel_create(device, "sgd", "sgd_running", NULL, 0, &op->running));
  *out = op;
  return CVY_OK;
fail:
  cvy_sgd_destroy(&op);
  return status;
}

void cvy_sgd_destroy(cvy_sgd **op) {
  if (!*op) return;
  cvy_kernel_destroy(&(*op)->update);
  cvy_kernel_destroy(&(*op)->update_momentum);
  cvy_kernel_destroy(&(*op)->running);
  cvy_free(*op);
  *op = NULL;
}

cvy_status cvy_sgd_update(cvy_sgd *op, cvy_queue *queue, const cvy_sgd_params *params, size_t n_elems, cvy_buffer *w,
                          cvy_buffer *g, cvy_buffer *v) {
  cvy_status status = CVY_OK;
  const size_t size_bytes = n_elems * sizeof(float);
  cvy_stream plan;
  CVY_REQUIRE(isfinite(params->lr) && isfinite(params->momentum) && isfinite(params->weight_decay), CVY_E_ARGUMENT,
              "sgd: lr %g, momentum %g, weight decay %g must be finite", (double)params->lr, (double)params->momentum,
              (double)params->weight_decay);
  CVY_REQUIRE(!params->nesterov || params->momentum > 0, CVY_E_ARGUMENT, "sgd: Nesterov needs a momentum > 0, not %g",
              (double)params->momentum);
  CVY_TRY(cvy_stream_plan(op->device, "sgd", n_elems, &plan));
  CVY_TRY(cvy_check_buffer("sgd", "w", w, size_bytes));
  CVY_TRY(cvy_check_buffer("sgd", "g", g, size_bytes));
  if (params->momentum == 0) {
    CVY_TRY(CVY_LAUNCH(queue, op->update, plan.grid, CVY_BUF(w), CVY_BUF(g), CVY_FLOAT(-params->lr),
                       CVY_FLOAT(params->weight_decay), CVY_UINT(plan.n_vec), CVY_UINT(plan.chunk)));
  } else {
    CVY_TRY(cvy_check_buffer("sgd", "v", v, size_bytes));
    CVY_TRY(CVY_LAUNCH(queue, op->update_momentum, plan.grid, CVY_BUF(w), CVY_BUF(g), CVY_BUF(v),
                       CVY_FLOAT(-params->lr), CVY_FLOAT(params->weight_decay), CVY_FLOAT(params->momentum),
                       CVY_INT(params->nesterov), CVY_UINT(plan.n_vec), CVY_UINT(plan.chunk)));
  }
fail:
  return status;
}

cvy_status cvy_sgd_running(cvy_sgd *op, cvy_queue *queue, float momentum, size_t n_elems, cvy_buffer *running,
                           cvy_buffer *s) {
  cvy_status status = CVY_OK;
  cvy_stream plan;
  CVY_REQUIRE(momentum >= 0 && momentum <= 1, CVY_E_ARGUMENT, "running values: momentum %g must be in [0,1]",
              (double)momentum);
  CVY_TRY(cvy_stream_plan(op->device, "running values", n_elems, &plan));
  CVY_TRY(cvy_check_buffer("running values", "running", running, n_elems * sizeof(float)));
  CVY_TRY(cvy_check_buffer("running values", "s", s, n_elems * sizeof(float)));
  CVY_TRY(CVY_LAUNCH(queue, op->running, plan.grid, CVY_BUF(running), CVY_BUF(s), CVY_FLOAT(momentum),
                     CVY_FLOAT(1.0f - momentum), CVY_UINT(plan.n_vec), CVY_UINT(plan.chunk)));
fail:
  return status;
}
