/* SPDX-License-Identifier: MIT */
#include "src/ops/layers/dropout.h"

#include "cl/dropout_args.clh"
#include "src/base/rng.h"
#include "src/ops/divider.h"
#include "src/ops/operation.h"
#include "src/ops/stream.h"

struct cvy_dropout {
  cvy_operation base;
  cvy_dropout_params params;
  cvy_kernel *apply, *apply_add;
};

uint32_t cvy_dropout_threshold(float p) { return (uint32_t)((double)p * 4294967296.0); }

cvy_status cvy_dropout_create(cvy_device *device, const cvy_dropout_params *params, cvy_dropout **out) {
  cvy_status status = CVY_OK;
  cvy_dropout *const op = *out = cvy_operation_new(device, "dropout", sizeof *op);
  if (!op) return CVY_E_MEMORY;
  const cvy_dropout_params *const p = params;
  CVY_REQUIRE(p->p >= 0 && p->p < 1, CVY_E_ARGUMENT, "dropout: p %g: must be at least 0 and below 1", (double)p->p);
  CVY_REQUIRE(p->n_max >= 1 && p->x.h >= 1 && p->x.w >= 1 && p->x.c >= 1 && p->x.pitch >= p->x.c &&
                  p->x.pitch % 16 == 0 && cvy_fits_int32(&p->x, p->n_max),
              CVY_E_ARGUMENT,
              "dropout: %d samples of %dx%dx%d with pitch %d: must be at least 1 and fewer than 2^31 floats, and the "
              "pitch a multiple of 16 and at least the channels",
              p->n_max, p->x.h, p->x.w, p->x.c, p->x.pitch);
  CVY_REQUIRE(p->layer >= 0 && p->layer < 1 << 24, CVY_E_ARGUMENT, "dropout: layer %d: must be 0 to 2^24 - 1",
              p->layer);
  op->params = *p;
  CVY_TRY(cvy_operation_kernel(op, "dropout", "dropout_apply", NULL, 0, &op->apply));
  CVY_TRY(cvy_operation_kernel(op, "dropout", "dropout_apply_add", NULL, 0, &op->apply_add));
fail:
  if (status != CVY_OK) cvy_dropout_destroy(out);
  return status;
}

void cvy_dropout_destroy(cvy_dropout **op) {
  cvy_operation_end(*op);
  *op = NULL;
}

cvy_status cvy_dropout_run(cvy_dropout *op, cvy_queue *queue, int n, cvy_buffer *samples, int epoch, cvy_buffer *x,
                           cvy_buffer *y, bool accumulate) {
  cvy_status status = CVY_OK;
  const cvy_dropout_params *const p = &op->params;
  cvy_stream plan;
  CVY_REQUIRE(n >= 1 && n <= p->n_max, CVY_E_ARGUMENT, "dropout: %d samples, must be from 1 to %d", n, p->n_max);
  const size_t n_elems = (size_t)n * cvy_shape_elems(&p->x);
  CVY_TRY(cvy_check_buffer("dropout", "x", x, n_elems * sizeof(float)));
  CVY_TRY(cvy_check_buffer("dropout", "y", y, n_elems * sizeof(float)));
  CVY_TRY(cvy_check_buffer("dropout", "samples", samples, (size_t)n * sizeof(int32_t)));
  CVY_TRY(cvy_stream_plan(op->base.device, "dropout", n_elems, &plan));
  const int per_sample = (int)(plan.n_vec / (uint32_t)n);
  const cvy_dropout_numbers numbers = {.seed_low = (uint32_t)p->seed,
                                       .seed_high = (uint32_t)(p->seed >> 32),
                                       .purpose = CVY_RNG_DROPOUT | (uint32_t)p->layer << 8,
                                       .epoch = (uint32_t)epoch,
                                       .threshold = cvy_dropout_threshold(p->p),
                                       .scale = (float)(1 / (1 - (double)p->p))};
  CVY_TRY(CVY_LAUNCH(queue, accumulate ? op->apply_add : op->apply, plan.grid, CVY_BUF(x), CVY_BUF(y), CVY_BUF(samples),
                     CVY_UINT(plan.n_vec), CVY_UINT(plan.chunk), CVY_UINT((uint32_t)per_sample),
                     CVY_DIVIDER(per_sample), CVY_STRUCT(numbers)));
fail:
  return status;
}
