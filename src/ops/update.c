/* SPDX-License-Identifier: MIT */
#include "src/ops/update.h"

#include <math.h>

#include "src/ops/operation.h"
#include "src/ops/stream.h"

struct cvy_update {
  cvy_operation base;
  cvy_kernel *sgd, *momentum, *adam, *running;
  cvy_buffer *one; /* the scale of gradients that are not scaled */
};

cvy_status cvy_update_create(cvy_device *device, cvy_update **out) {
  cvy_status status = CVY_OK;
  cvy_update *const op = *out = cvy_operation_new(device, "update", sizeof *op);
  if (!op) return CVY_E_MEMORY;
  const float one = 1;
  CVY_TRY(cvy_operation_kernel(op, "update", "update_sgd", NULL, 0, &op->sgd));
  CVY_TRY(cvy_operation_kernel(op, "update", "update_momentum", NULL, 0, &op->momentum));
  CVY_TRY(cvy_operation_kernel(op, "update", "update_adam", NULL, 0, &op->adam));
  CVY_TRY(cvy_operation_kernel(op, "update", "update_running", NULL, 0, &op->running));
  CVY_TRY(cvy_operation_buffer(op, sizeof one, &op->one));
  CVY_TRY(cvy_buffer_write(cvy_device_compute_queue(device), op->one, 0, sizeof one, &one, NULL, NULL));
fail:
  if (status != CVY_OK) cvy_update_destroy(out);
  return status;
}

void cvy_update_destroy(cvy_update **op) {
  cvy_operation_end(*op);
  *op = NULL;
}

static cvy_status check_params(const cvy_update_params *p) {
  cvy_status status = CVY_OK;
  CVY_REQUIRE(isfinite(p->lr) && isfinite(p->momentum) && isfinite(p->weight_decay), CVY_E_ARGUMENT,
              "update: lr %g, momentum %g, weight decay %g must be finite", (double)p->lr, (double)p->momentum,
              (double)p->weight_decay);
  if (p->kind == CVY_OPTIMIZER_SGD) {
    CVY_REQUIRE(!p->nesterov || p->momentum > 0, CVY_E_ARGUMENT, "update: Nesterov needs a momentum > 0, not %g",
                (double)p->momentum);
    return CVY_OK;
  }
  for (int i = 0; i < 2; i++)
    CVY_REQUIRE(p->betas[i] >= 0 && p->betas[i] < 1, CVY_E_ARGUMENT, "update: beta%d %g, must be from 0 to below 1",
                i + 1, (double)p->betas[i]);
  CVY_REQUIRE(p->eps > 0 && isfinite(p->eps), CVY_E_ARGUMENT, "update: eps %g, must be above 0", (double)p->eps);
  CVY_REQUIRE(p->number >= 1, CVY_E_ARGUMENT, "update: number %ld, the first one is 1", p->number);
fail:
  return status;
}

cvy_status cvy_update_run(cvy_update *op, cvy_queue *queue, const cvy_update_params *params, const cvy_update_args *a) {
  cvy_status status = CVY_OK;
  const size_t size_bytes = (a->first + a->n_elems) * sizeof(float);
  const int n_moments = cvy_update_moments(params);
  static const char *const names[CVY_MOMENTS] = {"the first moment", "the second moment"};
  cvy_buffer *const scale = a->scale ? a->scale : op->one;
  cvy_stream plan;
  CVY_TRY(check_params(params));
  CVY_TRY(cvy_stream_plan(op->base.device, "update", a->n_elems, &plan));
  CVY_REQUIRE(a->first % 16 == 0, CVY_E_ARGUMENT, "update: first element %zu, must be a multiple of 16", a->first);
  CVY_TRY(cvy_check_buffer("update", "w", a->w, size_bytes));
  CVY_TRY(cvy_check_buffer("update", "g", a->g, size_bytes));
  for (int m = 0; m < n_moments; m++) CVY_TRY(cvy_check_buffer("update", names[m], a->moments[m], size_bytes));
  const uint32_t first = (uint32_t)(a->first / (op->base.capabilities->cpu_shaped ? 16 : 4));
  if (n_moments == 0) {
    CVY_TRY(CVY_LAUNCH(queue, op->sgd, plan.grid, CVY_BUF(a->w), CVY_BUF(a->g), CVY_BUF(scale), CVY_STRUCT(a->numbers),
                       CVY_UINT(first), CVY_UINT(plan.n_vec), CVY_UINT(plan.chunk)));
  } else if (n_moments == 1) {
    CVY_TRY(CVY_LAUNCH(queue, op->momentum, plan.grid, CVY_BUF(a->w), CVY_BUF(a->g), CVY_BUF(a->moments[0]),
                       CVY_BUF(scale), CVY_STRUCT(a->numbers), CVY_UINT(first), CVY_UINT(plan.n_vec),
                       CVY_UINT(plan.chunk)));
  } else {
    CVY_TRY(CVY_LAUNCH(queue, op->adam, plan.grid, CVY_BUF(a->w), CVY_BUF(a->g), CVY_BUF(a->moments[0]),
                       CVY_BUF(a->moments[1]), CVY_BUF(scale), CVY_STRUCT(a->numbers), CVY_UINT(first),
                       CVY_UINT(plan.n_vec), CVY_UINT(plan.chunk)));
  }
fail:
  return status;
}

cvy_status cvy_update_running(cvy_update *op, cvy_queue *queue, float momentum, size_t n_elems, cvy_buffer *running,
                              cvy_buffer *s) {
  cvy_status status = CVY_OK;
  cvy_stream plan;
  CVY_REQUIRE(momentum >= 0 && momentum <= 1, CVY_E_ARGUMENT, "running values: momentum %g must be in [0,1]",
              (double)momentum);
  CVY_TRY(cvy_stream_plan(op->base.device, "running values", n_elems, &plan));
  CVY_TRY(cvy_check_buffer("running values", "running", running, n_elems * sizeof(float)));
  CVY_TRY(cvy_check_buffer("running values", "s", s, n_elems * sizeof(float)));
  CVY_TRY(CVY_LAUNCH(queue, op->running, plan.grid, CVY_BUF(running), CVY_BUF(s), CVY_FLOAT(momentum),
                     CVY_FLOAT(1.0f - momentum), CVY_UINT(plan.n_vec), CVY_UINT(plan.chunk)));
fail:
  return status;
}
