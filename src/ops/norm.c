/* SPDX-License-Identifier: MIT */
#include "src/ops/norm.h"

#include <math.h>

#include "src/ops/operation.h"
#include "src/ops/stream.h"

enum { LANES = 16 }; /* work-items of a block (cl/norm.cl) */

struct cvy_norm {
  cvy_operation base;
  size_t n_blocks;
  cvy_kernel *squares, *combine, *finish;
  cvy_buffer *pairs, *result; /* cvy_norm_sum: of blocks, then of each level above them */
};

static size_t above(size_t n) { return (n + CVY_NORM_BLOCK - 1) / CVY_NORM_BLOCK; }

/* Sums of all levels. */
static size_t count_sums(size_t n_floats) {
  size_t total = 0, n = n_floats / CVY_NORM_BLOCK;
  for (; n > 1; n = above(n)) total += n;
  return total + 1;
}

size_t cvy_norm_bytes(size_t n_floats) { return count_sums(n_floats) * sizeof(cvy_norm_sum) + sizeof(cvy_norm_result); }

cvy_status cvy_norm_create(cvy_device *device, size_t n_floats, cvy_norm **out) {
  cvy_status status = CVY_OK;
  cvy_norm *const op = *out = cvy_operation_new(device, "norm", sizeof *op);
  if (!op) return CVY_E_MEMORY;
  cvy_queue *const queue = cvy_device_compute_queue(device);
  CVY_REQUIRE(n_floats > 0 && n_floats % CVY_NORM_BLOCK == 0 && n_floats / CVY_NORM_BLOCK < INT32_MAX / LANES,
              CVY_E_ARGUMENT, "norm: of %zu values, must be a multiple of %d, and fewer than 2^34", n_floats,
              CVY_NORM_BLOCK);
  op->n_blocks = n_floats / CVY_NORM_BLOCK;
  const size_t bytes = count_sums(n_floats) * sizeof(cvy_norm_sum);
  CVY_TRY(cvy_operation_kernel(op, "norm", "norm_squares", NULL, 0, &op->squares));
  CVY_TRY(cvy_operation_kernel(op, "norm", "norm_combine", NULL, 0, &op->combine));
  CVY_TRY(cvy_operation_kernel(op, "norm", "norm_finish", NULL, 0, &op->finish));
  CVY_TRY(cvy_operation_buffer(op, bytes, &op->pairs));
  CVY_TRY(cvy_operation_buffer(op, sizeof(cvy_norm_result), &op->result));
  CVY_TRY(cvy_buffer_fill(queue, op->pairs, 0, bytes, 0));
  CVY_TRY(cvy_buffer_fill(queue, op->result, 0, sizeof(cvy_norm_result), 0));
fail:
  if (status != CVY_OK) cvy_norm_destroy(out);
  return status;
}

void cvy_norm_destroy(cvy_norm **op) {
  cvy_operation_end(*op);
  *op = NULL;
}

/* Work-groups over n blocks; *chunk: blocks of a group on a CPU. */
static cvy_grid grid_of(const cvy_norm *op, size_t n, uint32_t *chunk) {
  const cvy_capabilities *const capabilities = op->base.capabilities;
  *chunk = 1;
  if (!capabilities->cpu_shaped) return cvy_stream_grid(capabilities, n, n * LANES);
  const size_t groups = cvy_cpu_groups(capabilities, (n + CVY_STREAM_MIN_CHUNK / 8 - 1) / (CVY_STREAM_MIN_CHUNK / 8));
  *chunk = (uint32_t)((n + groups - 1) / groups);
  return (cvy_grid){.global = {(n + *chunk - 1) / *chunk}, .local = {1}};
}

cvy_status cvy_norm_add(cvy_norm *op, cvy_queue *queue, size_t offset, size_t n, cvy_buffer *x) {
  cvy_status status = CVY_OK;
  const size_t first = offset / CVY_NORM_BLOCK, blocks = n / CVY_NORM_BLOCK;
  uint32_t chunk;
  CVY_REQUIRE(offset % CVY_NORM_BLOCK == 0 && n % CVY_NORM_BLOCK == 0 && blocks > 0 && first + blocks <= op->n_blocks,
              CVY_E_ARGUMENT, "norm: values %zu to %zu of %zu, must be multiples of %d", offset, offset + n,
              op->n_blocks * CVY_NORM_BLOCK, CVY_NORM_BLOCK);
  CVY_TRY(cvy_check_buffer("norm", "x", x, n * sizeof(float)));
  const cvy_grid grid = grid_of(op, blocks, &chunk);
  CVY_TRY(CVY_LAUNCH(queue, op->squares, grid, CVY_BUF(x), CVY_BUF(op->pairs), CVY_UINT((uint32_t)first),
                     CVY_UINT((uint32_t)blocks), CVY_UINT(chunk)));
fail:
  return status;
}

cvy_status cvy_norm_finish(cvy_norm *op, cvy_queue *queue, float clip, cvy_buffer *result) {
  cvy_status status = CVY_OK;
  const cvy_capabilities *const capabilities = op->base.capabilities;
  size_t from = 0;
  CVY_REQUIRE(clip >= 0 && isfinite(clip), CVY_E_ARGUMENT, "norm: clip %g must be 0 or more", (double)clip);
  if (result) CVY_TRY(cvy_check_buffer("norm", "result", result, sizeof(cvy_norm_result)));
  for (size_t n = op->n_blocks; n > 1; n = above(n)) {
    uint32_t chunk;
    const cvy_grid grid = grid_of(op, above(n), &chunk);
    CVY_TRY(CVY_LAUNCH(queue, op->combine, grid, CVY_BUF(op->pairs), CVY_UINT((uint32_t)from), CVY_UINT((uint32_t)n),
                       CVY_UINT((uint32_t)(from + n)), CVY_UINT((uint32_t)above(n)), CVY_UINT(chunk)));
    from += n;
  }
  CVY_TRY(CVY_LAUNCH(queue, op->finish, cvy_stream_grid(capabilities, 1, 1), CVY_BUF(op->pairs),
                     CVY_UINT((uint32_t)from), CVY_FLOAT(clip), CVY_BUF(result ? result : op->result)));
fail:
  return status;
}

cvy_buffer *cvy_norm_result_of(const cvy_norm *op) { return op->result; }
