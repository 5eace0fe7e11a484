/* SPDX-License-Identifier: MIT */
#include "src/ops/conv2d/conv2d_library.h"

#include "src/ops/conv2d/conv2d_cpu.h"

cvy_status cvy_conv_rest_create(cvy_device *device, const cvy_conv2d_params *params, cvy_conv_pass pass,
                                cvy_conv_rest *rest) {
  cvy_status status = CVY_OK;
  *rest = (cvy_conv_rest){0};
  if (pass == CVY_CONV_FORWARD && params->stats)
    CVY_TRY(cvy_kernel_create(device, "conv2d_stats", "conv2d_stats", NULL, 0, &rest->stats));
  if (pass == CVY_CONV_BACKWARD_WEIGHTS) CVY_TRY(cvy_reduce_create(device, &rest->reduce));
fail:
  return status;
}

void cvy_conv_rest_destroy(cvy_conv_rest *rest) {
  cvy_kernel_destroy(&rest->stats);
  cvy_reduce_destroy(&rest->reduce);
}

static size_t rows_of(const cvy_shape *y, int n) { return (size_t)n * (size_t)(y->h * y->w); }

size_t cvy_conv_rest_workspace_bytes(const cvy_conv_rest *rest, const cvy_conv2d_params *params, const cvy_shape *y) {
  return rest->reduce ? cvy_reduce_columns_workspace_bytes(rest->reduce, rows_of(y, params->n_max), y->pitch) : 0;
}

static cvy_grid stats_grid(cvy_device *device, int n, int pitch) {
  const cvy_capabilities *const capabilities = cvy_device_get_capabilities(device);
  const int64_t tasks = (int64_t)n * cvy_ceil_div(pitch, 32);
  if (capabilities->cpu_shaped)
    return cvy_conv_groups_of_one(cvy_conv_smaller(tasks, cvy_conv_most_groups(capabilities->compute_units)));
  return (cvy_grid){.global = {(size_t)tasks * 256}, .local = {256}};
}

cvy_status cvy_conv_rest_run(const cvy_conv_rest *rest, cvy_queue *queue, const cvy_conv_call *call,
                             const cvy_shape *y) {
  cvy_status status = CVY_OK;
  if (rest->stats)
    CVY_TRY(CVY_LAUNCH(queue, rest->stats, stats_grid(cvy_queue_device(queue), call->n, y->pitch), CVY_BUF(call->y),
                       CVY_BUF(call->stats), CVY_INT(call->n), CVY_INT(y->h * y->w), CVY_INT(y->pitch)));
  if (call->db)
    CVY_TRY(cvy_reduce_columns(rest->reduce, queue, rows_of(y, call->n), y->pitch, call->dy, call->db, call->accumulate,
                               call->workspace));
fail:
  return status;
}
