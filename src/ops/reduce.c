/* SPDX-License-Identifier: MIT */
#include "src/ops/reduce.h"

#include "src/ops/operation.h"
#include "src/ops/stream.h"

enum {
  CPU_BLOCK_BYTES =
      131072, /* of a block of rows: its columns are gone through 256 bytes at a time, so it should stay in the cache */
  SIMT_GROUPS_PER_UNIT = 8,
  MAX_PARTIAL_SUMS = 1024,
  MIN_SUM_CHUNK = 16384 /* floats that are worth a work-group of their own */
};

struct cvy_reduce {
  cvy_operation base;
  cvy_kernel *columns, *columns_scalar, *sum, *parts;
  cvy_buffer *partial_sums; /* of reduce_sum: MAX_PARTIAL_SUMS floats */
};

cvy_status cvy_reduce_create(cvy_device *device, cvy_reduce **out) {
  cvy_status status = CVY_OK;
  cvy_reduce *const op = *out = cvy_operation_new(device, "reduce", sizeof *op);
  if (!op) return CVY_E_MEMORY;
  const cvy_define scalar[] = {{"VEC", 1}};
  CVY_TRY(cvy_operation_kernel(op, "reduce", "reduce_columns", NULL, 0, &op->columns));
  CVY_TRY(cvy_operation_kernel(op, "reduce", "reduce_columns", scalar, 1, &op->columns_scalar));
  CVY_TRY(cvy_operation_kernel(op, "reduce", "reduce_sum", NULL, 0, &op->sum));
  CVY_TRY(cvy_operation_kernel(op, "reduce", "reduce_parts", NULL, 0, &op->parts));
  CVY_TRY(cvy_operation_buffer(op, MAX_PARTIAL_SUMS * sizeof(float), &op->partial_sums));
fail:
  if (status != CVY_OK) cvy_reduce_destroy(out);
  return status;
}

void cvy_reduce_destroy(cvy_reduce **op) {
  cvy_operation_end(*op);
  *op = NULL;
}

static size_t ceil_div(size_t a, size_t b) { return (a + b - 1) / b; }

/* How a matrix is cut: vectors per row, those that a work-group takes, rows per block. Fewer rows may be cut into more
 * blocks: most_blocks is the most for any number of rows up to this one. */
typedef struct cut {
  size_t vecs, lanes, block, n_blocks, most_blocks;
  bool scalar;
} cut;

static size_t smaller(size_t a, size_t b) { return a < b ? a : b; }
static size_t larger(size_t a, size_t b) { return a > b ? a : b; }

static cut cut_matrix(const cvy_reduce *op, size_t rows, int pitch) {
  const cvy_capabilities *const capabilities = op->base.capabilities;
  const int vec = pitch % (capabilities->cpu_shaped ? 16 : 4) == 0 ? (capabilities->cpu_shaped ? 16 : 4) : 1;
  cut c = {.vecs = (size_t)(pitch / vec), .scalar = vec == 1};
  if (capabilities->cpu_shaped) {
    const size_t cached = CPU_BLOCK_BYTES / sizeof(float) / (size_t)pitch;
    const size_t aim = (size_t)CVY_STREAM_GROUPS_PER_UNIT * (size_t)capabilities->compute_units;
    c.lanes = c.vecs;
    c.block = larger(smaller(cached, ceil_div(rows, aim)), 16);
    c.most_blocks = larger(ceil_div(rows, larger(cached, 16)), smaller(aim, ceil_div(rows, 16)));
  } else {
    c.lanes = (size_t)cvy_stream_lanes((int)c.vecs, 16);
    const size_t height = CVY_STREAM_LOCAL / c.lanes, chunks = c.vecs / c.lanes;
    const size_t aim = (size_t)SIMT_GROUPS_PER_UNIT * (size_t)capabilities->compute_units;
    c.block = larger(cvy_round_up(ceil_div(rows * chunks, aim), height), 2 * height);
    c.most_blocks = smaller(ceil_div(aim, chunks), ceil_div(rows, 2 * height));
  }
  c.n_blocks = ceil_div(rows, c.block);
  c.most_blocks = larger(c.most_blocks, c.n_blocks);
  return c;
}

size_t cvy_reduce_columns_workspace_bytes(const cvy_reduce *op, size_t rows, int pitch) {
  return rows == 0 || pitch < 1 ? 0 : cut_matrix(op, rows, pitch).most_blocks * (size_t)pitch * sizeof(float);
}

/* One run of reduce_columns: rows in n_blocks blocks, `lanes` vectors a work-group. */
static cvy_status launch_columns(cvy_reduce *op, cvy_queue *queue, const cut *c, size_t rows, size_t block,
                                 size_t n_blocks, size_t lanes, cvy_buffer *x, cvy_buffer *out, bool accumulate) {
  const cvy_capabilities *const capabilities = op->base.capabilities;
  const size_t pieces = n_blocks * ceil_div(c->vecs, lanes);
  return CVY_LAUNCH(queue, c->scalar ? op->columns_scalar : op->columns,
                    cvy_stream_grid(capabilities, pieces, pieces * CVY_STREAM_LOCAL), CVY_BUF(x), CVY_BUF(out),
                    CVY_UINT((uint32_t)rows), CVY_UINT((uint32_t)c->vecs), CVY_UINT((uint32_t)block),
                    CVY_UINT((uint32_t)n_blocks), CVY_UINT((uint32_t)lanes), CVY_INT(accumulate));
}

cvy_status cvy_reduce_columns(cvy_reduce *op, cvy_queue *queue, size_t rows, int pitch, cvy_buffer *x, cvy_buffer *out,
                              bool accumulate, cvy_buffer *workspace) {
  cvy_status status = CVY_OK;
  size_t elems;
  CVY_REQUIRE(pitch >= 1 && rows >= 1 && cvy_mul_size(rows, (size_t)pitch, &elems) && elems <= INT32_MAX,
              CVY_E_ARGUMENT, "reduce: %zu rows with pitch %d: must be at least 1 and at most 2^31-1 floats", rows,
              pitch);
  CVY_TRY(cvy_check_buffer("reduce", "x", x, elems * sizeof(float)));
  CVY_TRY(cvy_check_buffer("reduce", "out", out, (size_t)pitch * sizeof(float)));
  CVY_TRY(cvy_check_buffer("reduce", "workspace", workspace, cvy_reduce_columns_workspace_bytes(op, rows, pitch)));
  const cut c = cut_matrix(op, rows, pitch);
  if (c.n_blocks == 1) {
    CVY_TRY(launch_columns(op, queue, &c, rows, c.block, 1, c.lanes, x, out, accumulate));
  } else {
    const bool cpu = op->base.capabilities->cpu_shaped;
    const size_t few = cpu ? 4 : c.lanes < 2 ? c.lanes : 2; /* many blocks, few channels: narrow work-groups */
    CVY_TRY(launch_columns(op, queue, &c, rows, c.block, c.n_blocks, c.lanes, x, workspace, false));
    CVY_TRY(launch_columns(op, queue, &c, c.n_blocks, c.n_blocks, 1, few, workspace, out, accumulate));
  }
fail:
  return status;
}

cvy_status cvy_reduce_sum(cvy_reduce *op, cvy_queue *queue, size_t n, cvy_buffer *x, cvy_buffer *out, bool accumulate) {
  cvy_status status = CVY_OK;
  const cvy_capabilities *const capabilities = op->base.capabilities;
  const size_t units = (size_t)capabilities->compute_units, local = capabilities->cpu_shaped ? 1 : CVY_STREAM_LOCAL;
  CVY_REQUIRE(n >= 1 && n <= INT32_MAX, CVY_E_ARGUMENT, "reduce: %zu elements, must be from 1 to 2^31-1", n);
  CVY_TRY(cvy_check_buffer("reduce", "x", x, n * sizeof(float)));
  CVY_TRY(cvy_check_buffer("reduce", "out", out, sizeof(float)));
  size_t groups =
      capabilities->cpu_shaped ? cvy_cpu_groups(capabilities, ceil_div(n, MIN_SUM_CHUNK)) : ceil_div(n, MIN_SUM_CHUNK);
  if (groups > SIMT_GROUPS_PER_UNIT * units) groups = SIMT_GROUPS_PER_UNIT * units;
  if (groups > MAX_PARTIAL_SUMS) groups = MAX_PARTIAL_SUMS;
  const size_t chunk = cvy_round_up(ceil_div(n, groups), 64);
  groups = ceil_div(n, chunk);
  const bool once = groups == 1;
  CVY_TRY(CVY_LAUNCH(queue, op->sum, ((cvy_grid){.global = {groups * local}, .local = {local}}), CVY_BUF(x),
                     CVY_BUF(once ? out : op->partial_sums), CVY_UINT((uint32_t)n), CVY_UINT((uint32_t)chunk),
                     CVY_INT(once && accumulate)));
  if (!once)
    CVY_TRY(CVY_LAUNCH(queue, op->sum, cvy_stream_grid(capabilities, 1, 1), CVY_BUF(op->partial_sums), CVY_BUF(out),
                       CVY_UINT((uint32_t)groups), CVY_UINT((uint32_t)groups), CVY_INT(accumulate)));
fail:
  return status;
}

cvy_status cvy_reduce_parts(cvy_reduce *op, cvy_queue *queue, size_t n, int n_parts, cvy_buffer *x, cvy_buffer *out,
                            bool accumulate) {
  cvy_status status = CVY_OK;
  const cvy_capabilities *const capabilities = op->base.capabilities;
  size_t elems;
  CVY_REQUIRE(n >= 1 && n <= INT32_MAX && n_parts >= 1 && cvy_mul_size(n, (size_t)n_parts, &elems) &&
                  elems <= SIZE_MAX / sizeof(float),
              CVY_E_ARGUMENT, "reduce: %d parts of %zu elements: must be at least 1 each, and at most 2^31-1 elements",
              n_parts, n);
  CVY_TRY(cvy_check_buffer("reduce", "x", x, elems * sizeof(float)));
  CVY_TRY(cvy_check_buffer("reduce", "out", out, n * sizeof(float)));
  cvy_grid grid = cvy_stream_grid(capabilities, n, n);
  size_t chunk = 1;
  if (capabilities->cpu_shaped) {
    const size_t groups = cvy_cpu_groups(capabilities, ceil_div(n, 1024));
    chunk = cvy_round_up(ceil_div(n, groups), 16);
    grid = (cvy_grid){.global = {ceil_div(n, chunk)}, .local = {1}};
  }
  CVY_TRY(CVY_LAUNCH(queue, op->parts, grid, CVY_BUF(x), CVY_BUF(out), CVY_UINT((uint32_t)n),
                     CVY_UINT((uint32_t)n_parts), CVY_UINT((uint32_t)chunk), CVY_INT(accumulate)));
fail:
  return status;
}
