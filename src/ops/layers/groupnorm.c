/* SPDX-License-Identifier: MIT */
#include "src/ops/layers/groupnorm.h"

#include "cl/groupnorm_args.clh"
#include "src/ops/divider.h"
#include "src/ops/operation.h"
#include "src/ops/stream.h"

/* LANES: work-items per row or group (cl/row.clh). PART_ROWS: of a part of the sums over rows by themselves. */
enum { LANES = 16, BLOCK = 4, PART_ROWS = 256, MOST_PARTS = 128 };

struct cvy_groupnorm {
  cvy_operation base;
  cvy_groupnorm_params params;
  bool by_row;
  int vec, vecs, c_lanes;
  /* by_row: forward, backward; else moments, merge, apply, merge_sums, backward. Both: sums, total. */
  cvy_kernel *forward, *moments, *merge, *apply, *backward, *merge_sums, *sums, *total;
};

static bool is_by_row(const cvy_groupnorm_params *p) { return p->x.h == 1 && p->x.w == 1 && p->groups == 1; }

static cvy_status make_kernels(cvy_groupnorm *op) {
  cvy_status status = CVY_OK;
  const cvy_define defines[] = {{"BY_ROW", op->by_row}, {"C_LANES", op->c_lanes}};
  const bool trains = !op->params.inference;
  const struct {
    const char *name;
    bool wanted;
    cvy_kernel **kernel;
  } all[] = {{"groupnorm_rows_forward", op->by_row, &op->forward},
             {"groupnorm_moments", !op->by_row, &op->moments},
             {"groupnorm_merge", !op->by_row, &op->merge},
             {"groupnorm_apply", !op->by_row, &op->apply},
             {"groupnorm_sums", trains, &op->sums},
             {"groupnorm_total", trains, &op->total},
             {"groupnorm_merge_sums", trains && !op->by_row, &op->merge_sums},
             {op->by_row ? "groupnorm_rows_backward" : "groupnorm_backward", trains, &op->backward}};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++)
    if (all[i].wanted) CVY_TRY(cvy_operation_kernel(op, "groupnorm", all[i].name, defines, 2, all[i].kernel));
fail:
  return status;
}

cvy_status cvy_groupnorm_create(cvy_device *device, const cvy_groupnorm_params *params, cvy_groupnorm **out) {
  cvy_status status = CVY_OK;
  cvy_groupnorm *const op = *out = cvy_operation_new(device, "groupnorm", sizeof *op);
  if (!op) return CVY_E_MEMORY;
  const cvy_groupnorm_params *const p = params;
  CVY_REQUIRE(
      p->n_max >= 1 && p->x.h >= 1 && p->x.w >= 1 && p->x.c >= 1 && p->x.pitch >= p->x.c && p->x.pitch % 16 == 0,
      CVY_E_ARGUMENT,
      "groupnorm: %d samples of %dx%dx%d with pitch %d: must be at least 1, and the pitch a multiple of 16 and "
      "at least the channels",
      p->n_max, p->x.h, p->x.w, p->x.c, p->x.pitch);
  CVY_REQUIRE(cvy_fits_int32(&p->x, p->n_max), CVY_E_ARGUMENT,
              "groupnorm: %d samples of %dx%d with pitch %d are more than 2^31-1 floats", p->n_max, p->x.h, p->x.w,
              p->x.pitch);
  CVY_REQUIRE(p->groups >= 1 && p->x.c % p->groups == 0 && p->eps > 0, CVY_E_ARGUMENT,
              "groupnorm: %d groups of %d channels, eps %g: groups must divide the channels, and eps be above 0",
              p->groups, p->x.c, (double)p->eps);
  op->params = *p;
  op->by_row = is_by_row(p);
  op->vec = cvy_stream_vec(device, p->x.pitch);
  op->vecs = p->x.pitch / op->vec;
  op->c_lanes = op->base.capabilities->cpu_shaped ? 1 : cvy_stream_lanes(op->vecs, 8);
  CVY_TRY(make_kernels(op));
fail:
  if (status != CVY_OK) cvy_groupnorm_destroy(out);
  return status;
}

void cvy_groupnorm_destroy(cvy_groupnorm **op) {
  cvy_operation_end(*op);
  *op = NULL;
}

size_t cvy_groupnorm_saved_bytes(const cvy_groupnorm_params *p, int n) {
  return 3 * (size_t)n * (is_by_row(p) ? 1 : (size_t)p->x.pitch) * sizeof(float);
}

/* Of the sums over n samples, each a row: parts of which a CPU keeps its cores busy, or of PART_ROWS rows and more. */
static int parts_of(const cvy_groupnorm *op, int n) {
  if (!op->by_row) return n;
  const int most = op->base.capabilities->cpu_shaped
                       ? (int)cvy_cpu_groups(op->base.capabilities, (size_t)cvy_ceil_div(n, PART_ROWS))
                       : cvy_ceil_div(n, PART_ROWS);
  return most < MOST_PARTS ? most : MOST_PARTS;
}

/* Forward: moments. Backward: sums and, of groups, means behind them. */
size_t cvy_groupnorm_workspace_bytes(const cvy_groupnorm *op) {
  const size_t n = (size_t)op->params.n_max, pitch = (size_t)op->params.x.pitch;
  if (op->by_row) return op->params.inference ? 0 : 2 * (size_t)MOST_PARTS * pitch * sizeof(float);
  return (op->params.inference ? 3 : 4) * n * pitch * sizeof(float);
}

static cvy_groupnorm_geometry geometry_of(const cvy_groupnorm *op, int n) {
  const cvy_groupnorm_params *const p = &op->params;
  const int positions = p->x.h * p->x.w;
  return (cvy_groupnorm_geometry){.n = n,
                                  .positions = positions,
                                  .vecs = op->vecs,
                                  .c = p->x.c,
                                  .groups = p->groups,
                                  .each = p->x.c / p->groups,
                                  .parts = 1,
                                  .eps = p->eps,
                                  .by_positions = cvy_divider_make(positions),
                                  .by_vecs = cvy_divider_make(op->vecs)};
}

/* One buffer, and how many floats it must hold. */
typedef struct operand {
  const char *name;
  cvy_buffer *buffer;
  size_t floats;
} operand;

static cvy_status check(const cvy_groupnorm *op, int n, const operand *operands, int n_operands) {
  cvy_status status = CVY_OK;
  CVY_REQUIRE(n >= 1 && n <= op->params.n_max, CVY_E_ARGUMENT, "groupnorm: %d samples, must be from 1 to %d", n,
              op->params.n_max);
  for (int i = 0; i < n_operands; i++)
    if (operands[i].floats)
      CVY_TRY(cvy_check_buffer("groupnorm", operands[i].name, operands[i].buffer, operands[i].floats * sizeof(float)));
fail:
  return status;
}

/* Grids: LANES work-items for each of `rows`; a work-group for each of `count` and some vectors; each vector of x. */
static cvy_grid rows_grid(const cvy_groupnorm *op, size_t rows) {
  return cvy_stream_grid(op->base.capabilities, rows, rows * LANES);
}
static cvy_grid columns_grid(const cvy_groupnorm *op, size_t count) {
  return cvy_stream_grid(op->base.capabilities, count * (size_t)cvy_ceil_div(op->vecs, BLOCK),
                         count * (size_t)(op->vecs / op->c_lanes) * CVY_STREAM_LOCAL);
}
static cvy_grid vectors_grid(const cvy_groupnorm *op, cvy_groupnorm_geometry *g) {
  const cvy_capabilities *const capabilities = op->base.capabilities;
  const size_t total = (size_t)g->n * (size_t)g->positions * (size_t)g->vecs;
  const size_t groups = cvy_cpu_groups(capabilities, total / CVY_STREAM_MIN_CHUNK + 1), parts = groups / (size_t)g->n;
  if (capabilities->cpu_shaped) g->parts = parts<1 ? 1 : parts>(size_t) g->positions ? g->positions : (int)parts;
  return cvy_stream_grid(capabilities, (size_t)g->n * (size_t)g->parts, total);
}

cvy_status cvy_groupnorm_forward(cvy_groupnorm *op, cvy_queue *queue, int n, cvy_buffer *x, cvy_buffer *gamma,
                                 cvy_buffer *beta, cvy_buffer *y, cvy_buffer *saved, cvy_buffer *workspace) {
  cvy_status status = CVY_OK;
  const cvy_groupnorm_params *const p = &op->params;
  const size_t pitch = (size_t)p->x.pitch, all = (size_t)n * cvy_shape_elems(&p->x);
  CVY_TRY(check(op, n,
                (const operand[]){{"x", x, all},
                                  {"gamma", gamma, pitch},
                                  {"beta", beta, beta ? pitch : 0},
                                  {"y", y, all},
                                  {"saved", saved, cvy_groupnorm_saved_bytes(p, n) / sizeof(float)},
                                  {"workspace", workspace, op->by_row ? 0 : 3 * (size_t)n * pitch}},
                6));
  cvy_groupnorm_geometry g = geometry_of(op, n);
  cvy_buffer *const shift = beta ? beta : gamma; /* a kernel's buffer is never missing */
  if (op->by_row) {
    CVY_TRY(CVY_LAUNCH(queue, op->forward, rows_grid(op, (size_t)n), CVY_BUF(x), CVY_BUF(gamma), CVY_BUF(shift),
                       CVY_INT(beta != NULL), CVY_BUF(y), CVY_BUF(saved), CVY_STRUCT(g)));
    return CVY_OK;
  }
  CVY_TRY(CVY_LAUNCH(queue, op->moments, columns_grid(op, (size_t)n), CVY_BUF(x), CVY_BUF(workspace), CVY_STRUCT(g)));
  CVY_TRY(CVY_LAUNCH(queue, op->merge, rows_grid(op, (size_t)n * (size_t)p->groups), CVY_BUF(workspace), CVY_BUF(saved),
                     CVY_STRUCT(g)));
  const cvy_grid grid = vectors_grid(op, &g);
  CVY_TRY(CVY_LAUNCH(queue, op->apply, grid, CVY_BUF(x), CVY_BUF(gamma), CVY_BUF(shift), CVY_INT(beta != NULL),
                     CVY_BUF(saved), CVY_BUF(y), CVY_STRUCT(g)));
fail:
  return status;
}

/* The workspace gets the sums over parts of the rows, of which dgamma and dbeta are the totals. */
static cvy_status backward_parameters(cvy_groupnorm *op, cvy_queue *queue, const cvy_groupnorm_backward_args *a) {
  cvy_status status = CVY_OK;
  cvy_groupnorm_geometry g = geometry_of(op, a->n);
  g.parts = parts_of(op, a->n);
  CVY_TRY(CVY_LAUNCH(queue, op->sums, columns_grid(op, (size_t)g.parts), CVY_BUF(a->x), CVY_BUF(a->dy),
                     CVY_BUF(a->saved), CVY_BUF(a->workspace), CVY_STRUCT(g)));
  if (!a->dgamma) return CVY_OK;
  const cvy_grid grid = op->base.capabilities->cpu_shaped ? (cvy_grid){.global = {(size_t)g.vecs}, .local = {1}}
                                                          : cvy_stream_grid(op->base.capabilities, 1, (size_t)g.vecs);
  CVY_TRY(CVY_LAUNCH(queue, op->total, grid, CVY_BUF(a->workspace), CVY_BUF(a->dgamma),
                     CVY_BUF(a->dbeta ? a->dbeta : a->workspace), CVY_INT(a->dbeta != NULL), CVY_INT(a->accumulate),
                     CVY_STRUCT(g)));
fail:
  return status;
}

cvy_status cvy_groupnorm_backward(cvy_groupnorm *op, cvy_queue *queue, const cvy_groupnorm_backward_args *a) {
  cvy_status status = CVY_OK;
  const cvy_groupnorm_params *const p = &op->params;
  const size_t pitch = (size_t)p->x.pitch, all = (size_t)a->n * cvy_shape_elems(&p->x);
  CVY_REQUIRE(!p->inference, CVY_E_ARGUMENT, "groupnorm: made for inference, which has no backward");
  CVY_TRY(check(op, a->n,
                (const operand[]){{"x", a->x, all},
                                  {"dy", a->dy, all},
                                  {"gamma", a->gamma, pitch},
                                  {"saved", a->saved, cvy_groupnorm_saved_bytes(p, a->n) / sizeof(float)},
                                  {"dx", a->dx, a->dx ? all : 0},
                                  {"dgamma", a->dgamma, a->dgamma ? pitch : 0},
                                  {"dbeta", a->dbeta, a->dbeta ? pitch : 0},
                                  {"workspace", a->workspace, cvy_groupnorm_workspace_bytes(op) / sizeof(float)}},
                8));
  cvy_groupnorm_geometry g = geometry_of(op, a->n);
  if (a->dgamma || (a->dx && !op->by_row)) CVY_TRY(backward_parameters(op, queue, a));
  if (!a->dx) return CVY_OK;
  if (op->by_row) {
    CVY_TRY(CVY_LAUNCH(queue, op->backward, rows_grid(op, (size_t)a->n), CVY_BUF(a->x), CVY_BUF(a->dy),
                       CVY_BUF(a->gamma), CVY_BUF(a->saved), CVY_BUF(a->dx), CVY_INT(a->accumulate_dx), CVY_STRUCT(g)));
    return CVY_OK;
  }
  const size_t means = 2 * (size_t)a->n * pitch;
  CVY_TRY(CVY_LAUNCH(queue, op->merge_sums, rows_grid(op, (size_t)a->n * (size_t)p->groups), CVY_BUF(a->workspace),
                     CVY_UINT((uint32_t)means), CVY_BUF(a->gamma), CVY_STRUCT(g)));
  const cvy_grid grid = vectors_grid(op, &g);
  CVY_TRY(CVY_LAUNCH(queue, op->backward, grid, CVY_BUF(a->x), CVY_BUF(a->dy), CVY_BUF(a->gamma), CVY_BUF(a->saved),
                     CVY_BUF(a->workspace), CVY_UINT((uint32_t)(means / (size_t)op->vec)), CVY_BUF(a->dx),
                     CVY_INT(a->accumulate_dx), CVY_STRUCT(g)));
fail:
  return status;
}
