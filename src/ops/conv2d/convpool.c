/* SPDX-License-Identifier: MIT
 * Launches of cl/conv2d/convpool_direct_cpu.cl and cl/winograd/convpool_winograd_cpu.cl. In the workspace: transformed
 * weights (winograd's forward and data), then a slice per work-group. */
#include "src/ops/conv2d/convpool.h"

#include <stdlib.h>
#include <string.h>

#include "src/base/env.h"
#include "src/ops/conv2d/conv2d_algorithm.h"
#include "src/ops/conv2d/conv2d_cpu.h"
#include "src/ops/operation.h"
#include "src/ops/stream.h"

enum { FLAG_BIAS = 1, FLAG_MASK = 2, FLAG_ACCUMULATE = 4 }; /* the same in cl/conv2d/convpool.clh */
enum {
  TILES = 16,
  GAP = 16,
  POINTS = 36, /* the same in cl/winograd/convpool_winograd_cpu.cl */
  FEW_CHANNELS = 4,
  TAPS_MAX = 128,     /* direct: products of a position; more would be faster as a matrix product */
  WEIGHTS_MAX = 16384 /* winograd: C * y_pitch, so that its 36 matrices lie in a second-level cache */
};

struct cvy_convpool {
  cvy_operation base;
  cvy_convpool_params params;
  cvy_shape y;
  bool winograd;
  int max_groups;
  cvy_kernel *forward, *gradient, *finish, *data; /* NULL for passes that never run */
  cvy_kernel *weights, *weights_turned;           /* winograd */
  int weight_floats, turned_floats;               /* transformed weights of forward and of data */
  int forward_slice, gradient_slice;              /* floats; data has forward's */
  int gradient_at, offset_at, own_at;             /* in the gradient's slice, see the kernels; winograd: own_at alone */
  size_t workspace_bytes;
};

static bool is_winograd(const cvy_convpool_params *p) { return p->x.c > FEW_CHANNELS || !p->no_backward_data; }

cvy_shape cvy_convpool_output_shape(const cvy_convpool_params *p) {
  return (cvy_shape){.h = (p->x.h + 2 * p->pad_h - p->r + 1) / 2,
                     .w = (p->x.w + 2 * p->pad_w - p->s + 1) / 2,
                     .c = p->k,
                     .pitch = p->y_pitch};
}

bool cvy_convpool_fits(const cvy_convpool_params *p) {
  if (p->n_max < 1 || p->x.h < 1 || p->x.w < 1 || p->x.c < 1 || p->x.pitch < p->x.c || p->k < 1 || p->y_pitch < p->k ||
      p->y_pitch % 16 != 0 || p->r < 1 || p->s < 1 || p->pad_h < 0 || p->pad_w < 0 || p->pad_h >= p->r ||
      p->pad_w >= p->s)
    return false;
  if (p->x.h + 2 * p->pad_h < p->r + 1 || p->x.w + 2 * p->pad_w < p->s + 1) return false; /* no window */
  if (!is_winograd(p)) {
    if ((int64_t)p->r * p->s * p->x.c > TAPS_MAX) return false;
  } else if (p->r != 5 || p->s != 5 || p->x.pitch % 16 != 0 || (int64_t)p->x.pitch * p->y_pitch > WEIGHTS_MAX) {
    return false;
  }
  const cvy_shape y = cvy_convpool_output_shape(p);
  return cvy_fits_int32(&p->x, p->n_max) && cvy_fits_int32(&y, p->n_max);
}

bool cvy_convpool_wanted(cvy_device *device, const cvy_conv_algo_list *algos) {
  return algos->n == 0 && !cvy_env_on(CVY_ENV_BAD_DEFAULTS) && cvy_device_get_capabilities(device)->cpu_shaped;
}

size_t cvy_convpool_mask_bytes(const cvy_convpool_params *p, int n) {
  const cvy_shape y = cvy_convpool_output_shape(p);
  return (size_t)n * cvy_shape_elems(&y);
}

/* ---- create ---- */

/* Most work-groups of a pass over this many tasks of one sample. */
static int groups_for(const cvy_convpool *op, int64_t tasks) { return cvy_conv_smaller(tasks, op->max_groups); }
static cvy_grid grid_for(const cvy_convpool *op, int64_t tasks) { return cvy_conv_tasks(tasks, op->max_groups); }

static void plan_direct(cvy_convpool *op) {
  const cvy_convpool_params *const p = &op->params;
  const int taps = p->r * p->s * p->x.c;
  const int strip = (int)cvy_conv_round_up((int64_t)(p->r + 1) * (2 * op->y.w + p->s - 1) * p->x.c + 16, 16);
  op->forward_slice = op->gradient_at = strip;
  op->offset_at = strip + 4 * op->y.w * 32;
  op->own_at = op->offset_at + (int)cvy_conv_round_up(taps, 16);
  op->gradient_slice = op->own_at + (taps + 1) * p->y_pitch;
}

static void plan_winograd(cvy_convpool *op) {
  const cvy_convpool_params *const p = &op->params;
  const int rows = (p->x.c + 3) / 4 * 4;
  op->weight_floats = POINTS * (p->x.c * p->y_pitch + GAP);
  op->turned_floats = p->inference || p->no_backward_data ? 0 : POINTS * (p->k * p->x.pitch + GAP);
  op->forward_slice = op->own_at = p->x.pitch + POINTS * (TILES * (p->x.pitch + p->y_pitch) + 2 * GAP);
  op->gradient_slice = op->own_at + POINTS * (rows * p->y_pitch + GAP) + p->y_pitch;
}

/* Sizes for n_max; smaller batches need no more. */
static cvy_status plan(cvy_convpool *op) {
  cvy_status status = CVY_OK;
  if (op->winograd) plan_winograd(op);
  else plan_direct(op);
  const int64_t before = op->weight_floats > op->turned_floats ? op->weight_floats : op->turned_floats;
  const int64_t forward = before + (int64_t)op->forward_slice * op->max_groups,
                gradient = op->params.inference ? 0 : (int64_t)op->gradient_slice * op->max_groups,
                total = forward > gradient ? forward : gradient;
  CVY_REQUIRE(total <= INT32_MAX, CVY_E_ARGUMENT, "convpool: %lld floats of workspace do not fit 32-bit indices",
              (long long)total);
  op->workspace_bytes = (size_t)total * sizeof(float);
fail:
  return status;
}

static cvy_status make_kernels(cvy_convpool *op) {
  cvy_status status = CVY_OK;
  const bool w = op->winograd, backward = !op->params.inference;
  const char *const file = w ? "convpool_winograd_cpu" : "convpool_direct_cpu";
#define MAKE(kernel, name) CVY_TRY(cvy_operation_kernel(op, file, name, NULL, 0, &op->kernel))
  MAKE(forward, w ? "convpool_winograd_forward" : "convpool_direct_forward");
  if (w) MAKE(weights, "convpool_winograd_weights");
  if (backward) MAKE(gradient, w ? "convpool_winograd_gradient" : "convpool_direct_gradient");
  if (backward) MAKE(finish, w ? "convpool_winograd_finish" : "convpool_direct_finish");
  if (op->turned_floats) MAKE(weights_turned, "convpool_winograd_weights_turned");
  if (op->turned_floats) MAKE(data, "convpool_winograd_data");
#undef MAKE
fail:
  return status;
}

cvy_status cvy_convpool_create(cvy_device *device, const cvy_convpool_params *params, cvy_convpool **out) {
  cvy_status status = CVY_OK;
  cvy_convpool *const op = *out = cvy_operation_new(device, "convpool", sizeof *op);
  if (!op) return CVY_E_MEMORY;
  const cvy_convpool_params *const p = params;
  CVY_REQUIRE(cvy_convpool_fits(p), CVY_E_ARGUMENT,
              "convpool: %d samples of %dx%dx%d (pitch %d), %d filters %dx%d (pitch %d), padding %dx%d%s: not a "
              "shape that is done in one (cvy_convpool_fits)",
              p->n_max, p->x.h, p->x.w, p->x.c, p->x.pitch, p->k, p->r, p->s, p->y_pitch, p->pad_h, p->pad_w,
              p->no_backward_data ? "" : ", with the gradient of its input");
  CVY_REQUIRE(op->base.capabilities->cpu_shaped, CVY_E_UNSUPPORTED, "convpool: %s has no kernels for it",
              cvy_device_label(device));
  op->params = *p, op->y = cvy_convpool_output_shape(p), op->winograd = is_winograd(p);
  op->max_groups = cvy_conv_most_groups(op->base.capabilities->compute_units);
  CVY_TRY(plan(op));
  CVY_TRY(make_kernels(op));
fail:
  if (status != CVY_OK) cvy_convpool_destroy(out);
  return status;
}

void cvy_convpool_destroy(cvy_convpool **op) {
  cvy_operation_end(*op);
  *op = NULL;
}

const char *cvy_convpool_algorithm_name(const cvy_convpool *op) { return op->winograd ? "winograd" : "direct"; }
size_t cvy_convpool_workspace_bytes(const cvy_convpool *op) { return op->workspace_bytes; }

/* ---- calls ---- */

static size_t bytes_of(const cvy_shape *shape, int n) { return (size_t)n * cvy_shape_elems(shape) * sizeof(float); }
static size_t weight_bytes(const cvy_convpool_params *p) {
  return (size_t)p->r * (size_t)p->s * (size_t)p->x.c * (size_t)p->y_pitch * sizeof(float);
}

/* Samples, the workspace, and a bias where there is one. */
static cvy_status check_call(const cvy_convpool *op, int n, const cvy_buffer *workspace) {
  cvy_status status = CVY_OK;
  CVY_REQUIRE(n >= 1 && n <= op->params.n_max, CVY_E_ARGUMENT, "convpool: %d samples, must be from 1 to %d", n,
              op->params.n_max);
  CVY_TRY(cvy_check_buffer("convpool", "workspace", workspace, op->workspace_bytes));
fail:
  return status;
}

/* Rows of windows (direct) or blocks of tiles. */
static int64_t tasks_of(const cvy_convpool *op, int n) {
  const int64_t rows = (int64_t)n * op->y.h;
  return op->winograd ? (rows * op->y.w + TILES - 1) / TILES : rows;
}

/* Samples and sizes, as arguments of kernels. */
#define SHAPE_ARGS(op, n)                                                                      \
  CVY_INT(n), CVY_INT((op)->params.x.h), CVY_INT((op)->params.x.w), CVY_INT((op)->params.x.c), \
      CVY_INT((op)->params.x.pitch), CVY_INT((op)->y.h), CVY_INT((op)->y.w), CVY_INT((op)->params.y_pitch)

cvy_status cvy_convpool_forward(cvy_convpool *op, cvy_queue *queue, int n, cvy_buffer *x, cvy_buffer *w,
                                cvy_buffer *bias, cvy_buffer *y, cvy_buffer *mask, cvy_buffer *workspace) {
  cvy_status status = CVY_OK;
  const cvy_convpool_params *const p = &op->params;
  CVY_TRY(check_call(op, n, workspace));
  CVY_TRY(cvy_check_buffer("convpool", "x", x, bytes_of(&p->x, n)));
  CVY_TRY(cvy_check_buffer("convpool", "w", w, weight_bytes(p)));
  CVY_TRY(cvy_check_buffer("convpool", "y", y, bytes_of(&op->y, n)));
  CVY_REQUIRE(p->bias == (bias != NULL), CVY_E_ARGUMENT, "convpool: the layer was created %s a bias, the call is %s",
              p->bias ? "with" : "without", bias ? "with" : "without");
  if (bias) CVY_TRY(cvy_check_buffer("convpool", "bias", bias, (size_t)p->y_pitch * sizeof(float)));
  if (mask) CVY_TRY(cvy_check_buffer("convpool", "mask", mask, cvy_convpool_mask_bytes(p, n)));
  const int flags = (bias ? FLAG_BIAS : 0) | (mask ? FLAG_MASK : 0);
  const cvy_grid grid = grid_for(op, tasks_of(op, n));
  if (op->winograd) {
    CVY_TRY(CVY_LAUNCH(queue, op->weights, grid_for(op, p->x.c), CVY_BUF(w), CVY_BUF(workspace), CVY_INT(p->x.c),
                       CVY_INT(p->y_pitch)));
    CVY_TRY(CVY_LAUNCH(queue, op->forward, grid, CVY_BUF(x), CVY_BUF(bias), CVY_BUF(y), CVY_BUF(mask),
                       CVY_BUF(workspace), SHAPE_ARGS(op, n), CVY_INT(p->pad_h), CVY_INT(p->pad_w),
                       CVY_INT(op->weight_floats), CVY_INT(op->forward_slice), CVY_INT(flags)));
  } else {
    CVY_TRY(CVY_LAUNCH(queue, op->forward, grid, CVY_BUF(x), CVY_BUF(w), CVY_BUF(bias), CVY_BUF(y), CVY_BUF(mask),
                       CVY_BUF(workspace), SHAPE_ARGS(op, n), CVY_INT(p->r), CVY_INT(p->s), CVY_INT(p->pad_h),
                       CVY_INT(p->pad_w), CVY_INT(op->forward_slice), CVY_INT(flags)));
  }
fail:
  return status;
}

cvy_status cvy_convpool_backward_data(cvy_convpool *op, cvy_queue *queue, int n, cvy_buffer *dy, cvy_buffer *mask,
                                      cvy_buffer *w, cvy_buffer *dx, bool accumulate, cvy_buffer *workspace) {
  cvy_status status = CVY_OK;
  const cvy_convpool_params *const p = &op->params;
  CVY_REQUIRE(op->data, CVY_E_ARGUMENT, "convpool: the layer was created without backward_data");
  CVY_TRY(check_call(op, n, workspace));
  CVY_TRY(cvy_check_buffer("convpool", "dy", dy, bytes_of(&op->y, n)));
  CVY_TRY(cvy_check_buffer("convpool", "mask", mask, cvy_convpool_mask_bytes(p, n)));
  CVY_TRY(cvy_check_buffer("convpool", "w", w, weight_bytes(p)));
  CVY_TRY(cvy_check_buffer("convpool", "dx", dx, bytes_of(&p->x, n)));
  CVY_TRY(CVY_LAUNCH(queue, op->weights_turned, grid_for(op, (int64_t)cvy_ceil_div(p->k, 16) * (p->x.pitch / 16)),
                     CVY_BUF(w), CVY_BUF(workspace), CVY_INT(p->x.c), CVY_INT(p->x.pitch), CVY_INT(p->k),
                     CVY_INT(p->y_pitch)));
  CVY_TRY(CVY_LAUNCH(queue, op->data, grid_for(op, n), CVY_BUF(dy), CVY_BUF(mask), CVY_BUF(dx), CVY_BUF(workspace),
                     CVY_INT(n), CVY_INT(p->x.h), CVY_INT(p->x.w), CVY_INT(p->x.pitch), CVY_INT(op->y.h),
                     CVY_INT(op->y.w), CVY_INT(p->k), CVY_INT(p->y_pitch), CVY_INT(p->pad_h), CVY_INT(p->pad_w),
                     CVY_INT(op->turned_floats), CVY_INT(op->forward_slice),
                     CVY_INT(accumulate ? FLAG_ACCUMULATE : 0)));
fail:
  return status;
}

cvy_status cvy_convpool_backward_weights(cvy_convpool *op, cvy_queue *queue, int n, cvy_buffer *x, cvy_buffer *dy,
                                         cvy_buffer *mask, cvy_buffer *dw, cvy_buffer *db, bool accumulate,
                                         cvy_buffer *workspace) {
  cvy_status status = CVY_OK;
  const cvy_convpool_params *const p = &op->params;
  CVY_REQUIRE(op->gradient, CVY_E_ARGUMENT, "convpool: the layer was created without backward_weights");
  CVY_TRY(check_call(op, n, workspace));
  CVY_TRY(cvy_check_buffer("convpool", "x", x, bytes_of(&p->x, n)));
  CVY_TRY(cvy_check_buffer("convpool", "dy", dy, bytes_of(&op->y, n)));
  CVY_TRY(cvy_check_buffer("convpool", "mask", mask, cvy_convpool_mask_bytes(p, n)));
  CVY_TRY(cvy_check_buffer("convpool", "dw", dw, weight_bytes(p)));
  if (db) CVY_TRY(cvy_check_buffer("convpool", "db", db, (size_t)p->y_pitch * sizeof(float)));
  const int bias = db ? FLAG_BIAS : 0, flags = bias | (accumulate ? FLAG_ACCUMULATE : 0);
  const int parts = groups_for(op, tasks_of(op, n)), taps = p->r * p->s * p->x.c;
  const cvy_grid grid = cvy_conv_grid(parts, 1);
  if (op->winograd)
    CVY_TRY(CVY_LAUNCH(queue, op->gradient, grid, CVY_BUF(x), CVY_BUF(dy), CVY_BUF(mask), CVY_BUF(workspace),
                       SHAPE_ARGS(op, n), CVY_INT(p->pad_h), CVY_INT(p->pad_w), CVY_INT(0), CVY_INT(op->gradient_slice),
                       CVY_INT(op->own_at), CVY_INT(bias)));
  else
    CVY_TRY(CVY_LAUNCH(queue, op->gradient, grid, CVY_BUF(x), CVY_BUF(dy), CVY_BUF(mask), CVY_BUF(workspace),
                       SHAPE_ARGS(op, n), CVY_INT(p->r), CVY_INT(p->s), CVY_INT(p->pad_h), CVY_INT(p->pad_w),
                       CVY_INT(op->gradient_slice), CVY_INT(op->gradient_at), CVY_INT(op->offset_at),
                       CVY_INT(op->own_at), CVY_INT(bias)));
  CVY_TRY(CVY_LAUNCH(queue, op->finish, grid_for(op, op->winograd ? p->x.c : taps), CVY_BUF(workspace), CVY_BUF(dw),
                     CVY_BUF(db), CVY_INT(op->winograd ? p->x.c : taps), CVY_INT(p->y_pitch), CVY_INT(parts),
                     CVY_INT(op->own_at), CVY_INT(op->gradient_slice), CVY_INT(flags)));
fail:
  return status;
}
