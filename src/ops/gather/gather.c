/* SPDX-License-Identifier: MIT */
#include "src/ops/gather/gather.h"

#include "src/ops/divider.h"
#include "src/ops/gather/gather_draws.h"
#include "src/ops/operation.h"
#include "src/ops/stream.h"

enum { BLOCK_POSITIONS = 4096 }; /* positions per piece of work on a CPU device */

struct cvy_gather {
  cvy_operation base;
  cvy_shape x;
  bool normalizes;
  cvy_kernel *plain;
  cvy_kernel *draw, *augmented; /* NULL without augmentation */
  cvy_gather_augment augment;
  cvy_buffer *channels; /* four numbers for each channel (cl/gather_value.clh) */
};

static cvy_status create_augmented(cvy_gather *op, const cvy_input_params *input) {
  cvy_status status = CVY_OK;
  const cvy_augment *const a = &input->augment;
  const bool jitters = a->jitter[0] > 0 || a->jitter[1] > 0 || a->jitter[2] > 0 || a->jitter[3] > 0;
  const cvy_define defines[] = {{"CHANNELS", op->x.c},
                                {"PITCH", op->x.pitch},
                                {"RESIZED", a->resized_crop[1] > 0},
                                {"JITTER", jitters},
                                {"NORMALIZE", op->normalizes}};
  op->augment = cvy_gather_augment_of(input, op->x.h, op->x.w);
  CVY_TRY(cvy_operation_kernel(op, "gather_augment", "gather_draw", defines, 5, &op->draw));
  CVY_TRY(cvy_operation_kernel(op, "gather_augment", "gather_augmented", defines, 5, &op->augmented));
fail:
  return status;
}

cvy_status cvy_gather_create(cvy_device *device, const cvy_shape *x, const cvy_input_params *input, cvy_gather **out) {
  cvy_status status = CVY_OK;
  cvy_gather *const op = *out = cvy_operation_new(device, "gather", sizeof *op);
  if (!op) return CVY_E_MEMORY;
  CVY_REQUIRE(x->h >= 1 && x->w >= 1 && x->c >= 1 && x->pitch >= x->c, CVY_E_ARGUMENT,
              "gather: image %dx%dx%d with pitch %d: sizes must be at least 1 and the pitch at least the channels",
              x->h, x->w, x->c, x->pitch);
  CVY_REQUIRE(cvy_fits_int32(x, 1), CVY_E_ARGUMENT,
              "gather: one image of %dx%d with pitch %d is more than 2^31-1 floats", x->h, x->w, x->pitch);
  if (input) CVY_TRY(cvy_input_check(input, x->h, x->w, x->c));
  op->x = *x;
  op->normalizes = input && (input->n_channels > 0 || input->of_data);
  const cvy_define defines[] = {{"CHANNELS", x->c}, {"PITCH", x->pitch}, {"NORMALIZE", op->normalizes}};
  CVY_TRY(cvy_operation_kernel(op, "gather", "gather_forward", defines, 3, &op->plain));
  if (input && cvy_augment_any(&input->augment)) CVY_TRY(create_augmented(op, input));
  CVY_TRY(cvy_operation_buffer(op, 4 * (size_t)(op->normalizes ? x->c : 1) * sizeof(float), &op->channels));
  if (op->normalizes && input->n_channels > 0)
    CVY_TRY(cvy_gather_normalize(op, cvy_device_compute_queue(device), input));
fail:
  if (status != CVY_OK) cvy_gather_destroy(out);
  return status;
}

void cvy_gather_destroy(cvy_gather **gather) {
  cvy_operation_end(*gather);
  *gather = NULL;
}

cvy_status cvy_gather_normalize(cvy_gather *op, cvy_queue *queue, const cvy_input_params *input) {
  float numbers[4 * CVY_INPUT_CHANNELS_MOST];
  if (!op->normalizes) return CVY_OK;
  for (int c = 0; c < op->x.c; c++) {
    const double slope = 1 / (255 * (double)input->deviation[c]);
    const double offset = -(double)input->mean[c] / (double)input->deviation[c];
    float *const n = &numbers[4 * c];
    n[0] = (float)slope;
    n[1] = (float)(slope - (double)n[0]);
    n[2] = (float)offset;
    n[3] = (float)(offset - (double)n[2]);
  }
  return cvy_buffer_write(queue, op->channels, 0, 4 * (size_t)op->x.c * sizeof *numbers, numbers, NULL, NULL);
}

size_t cvy_gather_workspace(const cvy_gather *op, int n) {
  return op->augmented ? (size_t)n * sizeof(cvy_gather_draw) : 0;
}

static cvy_status run_plain(cvy_gather *op, cvy_queue *queue, const cvy_gather_call *call, size_t positions) {
  cvy_status status = CVY_OK;
  const cvy_capabilities *const capabilities = op->base.capabilities;
  const size_t n = (size_t)call->n, blocks = (positions + BLOCK_POSITIONS - 1) / BLOCK_POSITIONS;
  const cvy_grid grid = cvy_stream_grid(capabilities, n * blocks, n * cvy_shape_elems(&op->x));
  CVY_TRY(CVY_LAUNCH(queue, op->plain, grid, CVY_BUF(call->images), CVY_BUF(call->labels), CVY_BUF(call->index),
                     CVY_BUF(op->channels), CVY_BUF(call->x), CVY_BUF(call->labels_out), CVY_UINT((uint32_t)n),
                     CVY_UINT((uint32_t)positions),
                     capabilities->cpu_shaped ? CVY_UINT(BLOCK_POSITIONS) : CVY_DIVIDER((int)positions)));
fail:
  return status;
}

static cvy_status run_augmented(cvy_gather *op, cvy_queue *queue, const cvy_gather_call *call, size_t positions) {
  cvy_status status = CVY_OK;
  const cvy_capabilities *const capabilities = op->base.capabilities;
  const size_t n = (size_t)call->n;
  const int rows = op->x.w < BLOCK_POSITIONS ? BLOCK_POSITIONS / op->x.w : 1; /* per piece of work on a CPU device */
  const cvy_grid draw = cvy_stream_grid(capabilities, n, n * CVY_STREAM_LOCAL),
                 grid = cvy_stream_grid(capabilities, n * (size_t)cvy_ceil_div(op->x.h, rows), n * positions);
  CVY_TRY(CVY_LAUNCH(queue, op->draw, draw, CVY_BUF(call->images), CVY_BUF(call->index), CVY_BUF(call->samples),
                     CVY_BUF(call->workspace), CVY_UINT((uint32_t)n), CVY_STRUCT(op->augment),
                     CVY_UINT((uint32_t)call->epoch)));
  CVY_TRY(CVY_LAUNCH(queue, op->augmented, grid, CVY_BUF(call->images), CVY_BUF(call->labels), CVY_BUF(call->index),
                     CVY_BUF(call->workspace), CVY_BUF(op->channels), CVY_BUF(call->x), CVY_BUF(call->labels_out),
                     CVY_UINT((uint32_t)n), CVY_STRUCT(op->augment),
                     capabilities->cpu_shaped ? CVY_UINT((uint32_t)rows) : CVY_DIVIDER((int)positions)));
fail:
  return status;
}

cvy_status cvy_gather_run(cvy_gather *op, cvy_queue *queue, const cvy_gather_call *call) {
  cvy_status status = CVY_OK;
  const size_t positions = (size_t)op->x.h * (size_t)op->x.w, n = (size_t)call->n;
  const bool augments = call->samples && op->augmented;
  CVY_REQUIRE(call->n >= 1 && cvy_fits_int32(&op->x, call->n), CVY_E_ARGUMENT,
              "gather: %d samples of %zu floats: must be at least 1 and fewer than 2^31 floats", call->n,
              cvy_shape_elems(&op->x));
  CVY_TRY(cvy_check_buffer("gather", "images", call->images, positions * (size_t)op->x.c));
  CVY_TRY(cvy_check_buffer("gather", "labels", call->labels, sizeof(uint16_t)));
  CVY_TRY(cvy_check_buffer("gather", "index", call->index, n * sizeof(int32_t)));
  CVY_TRY(cvy_check_buffer("gather", "x", call->x, n * cvy_shape_elems(&op->x) * sizeof(float)));
  CVY_TRY(cvy_check_buffer("gather", "labels_out", call->labels_out, n * sizeof(int32_t)));
  if (!augments) return run_plain(op, queue, call, positions);
  CVY_REQUIRE(call->epoch >= 0, CVY_E_ARGUMENT, "gather: epoch %d: must be 0 or more", call->epoch);
  CVY_TRY(cvy_check_buffer("gather", "samples", call->samples, n * sizeof(int32_t)));
  CVY_TRY(cvy_check_buffer("gather", "workspace", call->workspace, cvy_gather_workspace(op, call->n)));
  CVY_TRY(run_augmented(op, queue, call, positions));
fail:
  return status;
}
