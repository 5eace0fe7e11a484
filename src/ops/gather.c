/* SPDX-License-Identifier: MIT */
#include "src/ops/gather.h"

#include "src/ops/divider.h"
#include "src/ops/stream.h"

enum { BLOCK_POSITIONS = 4096 }; /* positions per piece of work on a CPU device */

struct cvy_gather {
  cvy_device *device;
  cvy_shape x;
  cvy_kernel *kernel;
};

cvy_status cvy_gather_create(cvy_device *device, const cvy_shape *x, cvy_gather **out) {
  cvy_status status = CVY_OK;
  cvy_gather *op = NULL;
  *out = NULL;
  CVY_REQUIRE(x->h >= 1 && x->w >= 1 && x->c >= 1 && x->pitch >= x->c, CVY_E_ARGUMENT,
              "gather: image %dx%dx%d with pitch %d: sizes must be at least 1 and the pitch at least the channels",
              x->h, x->w, x->c, x->pitch);
  CVY_REQUIRE(cvy_fits_int32(x, 1), CVY_E_ARGUMENT,
              "gather: one image of %dx%d with pitch %d is more than 2^31-1 floats", x->h, x->w, x->pitch);
  op = cvy_calloc(1, sizeof *op);
  CVY_REQUIRE(op, CVY_E_MEMORY, "gather: no memory for the operation");
  op->device = device;
  op->x = *x;
  const cvy_define defines[] = {{"CHANNELS", x->c}, {"PITCH", x->pitch}};
  CVY_TRY(cvy_kernel_create(device, "gather", "gather_forward", defines, 2, &op->kernel));
  *out = op;
  return CVY_OK;
fail:
  cvy_gather_destroy(&op);
  return status;
}

void cvy_gather_destroy(cvy_gather **op) {
  if (!*op) return;
  cvy_kernel_destroy(&(*op)->kernel);
  cvy_free(*op);
  *op = NULL;
}

cvy_status cvy_gather_run(cvy_gather *op, cvy_queue *queue, int n, cvy_buffer *images, cvy_buffer *labels,
                          cvy_buffer *index, cvy_buffer *x, cvy_buffer *labels_out) {
  cvy_status status = CVY_OK;
  const cvy_device_facts *const facts = cvy_device_get_facts(op->device);
  const size_t positions = (size_t)op->x.h * (size_t)op->x.w,
               blocks = (positions + BLOCK_POSITIONS - 1) / BLOCK_POSITIONS;
  CVY_REQUIRE(n >= 1 && cvy_fits_int32(&op->x, n), CVY_E_ARGUMENT,
              "gather: %d samples of %zu floats: must be at least 1 and fewer than 2^31 floats", n,
              cvy_shape_elems(&op->x));
  CVY_TRY(cvy_check_buffer("gather", "images", images, positions * (size_t)op->x.c));
  CVY_TRY(cvy_check_buffer("gather", "labels", labels, sizeof(uint16_t)));
  CVY_TRY(cvy_check_buffer("gather", "index", index, (size_t)n * sizeof(int32_t)));
  CVY_TRY(cvy_check_buffer("gather", "x", x, (size_t)n * cvy_shape_elems(&op->x) * sizeof(float)));
  CVY_TRY(cvy_check_buffer("gather", "labels_out", labels_out, (size_t)n * sizeof(int32_t)));
  const cvy_grid grid =
      facts->cpu_shaped ? (cvy_grid){.global = {cvy_cpu_groups(facts, (size_t)n * blocks)}, .local = {1}}
                        : (cvy_grid){.global = {cvy_round_up((size_t)n * cvy_shape_elems(&op->x), CVY_STREAM_LOCAL)},
                                     .local = {CVY_STREAM_LOCAL}};
  CVY_TRY(CVY_LAUNCH(queue, op->kernel, grid, CVY_BUF(images), CVY_BUF(labels), CVY_BUF(index), CVY_BUF(x),
                     CVY_BUF(labels_out), CVY_UINT((uint32_t)n), CVY_UINT((uint32_t)positions),
                     facts->cpu_shaped ? CVY_UINT(BLOCK_POSITIONS) : CVY_DIVIDER((int)positions)));
fail:
  return status;
}
