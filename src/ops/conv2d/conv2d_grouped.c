/* SPDX-License-Identifier: MIT
 * Launches of cl/conv2d/conv2d_grouped.cl: groups and dilation, for every shape on every device. In the workspace, of
 * backward_weights: its parts. */
#include "cl/conv2d_args.clh"
#include "src/ops/conv2d/conv2d_cpu.h"
#include "src/ops/conv2d/conv2d_library.h"

enum {
  ITEMS = 256,               /* of a work-group on SIMT devices */
  FILL = 2048,               /* work-items that fill a compute unit there */
  PART_POSITIONS = 64,       /* a part of backward_weights has so many positions and more, … */
  PART_FLOATS_MAX = 4 << 20, /* … and all parts together no more than this */
  MOST_GROUPS = 1 << 20
};

typedef struct grouped_state {
  cvy_conv2d_params params;
  cvy_conv_pass pass;
  cvy_conv_grouped_call call; /* n, group_size, flags and parts are a call's */
  bool cpu;
  int compute_units, max_parts;
  cvy_kernel *main, *sum;
  cvy_conv_rest rest;
} grouped_state;

static bool can(cvy_device *device, const cvy_conv2d_params *params, const cvy_shape *y, cvy_conv_pass pass,
                const char **why) {
  (void)device, (void)y, (void)pass;
  if (!cvy_conv_is_plain(params, true, NULL)) return true;
  if (why) *why = "direct's other kernels are faster";
  return false;
}

static void destroy(void *state) {
  grouped_state *const st = state;
  if (!st) return;
  cvy_kernel_destroy(&st->main);
  cvy_kernel_destroy(&st->sum);
  cvy_conv_rest_destroy(&st->rest);
  cvy_free(st);
}

static int64_t weight_floats(const grouped_state *st) {
  return (int64_t)st->params.r * st->params.s * st->call.group_c * st->call.out.pitch;
}

/* Parts of backward_weights for n samples: enough to fill the device. */
static int parts_of(const grouped_state *st, int n) {
  const int64_t size = weight_floats(st), positions = (int64_t)n * st->call.out.h * st->call.out.w,
                wanted = (int64_t)st->compute_units * (st->cpu ? 4 : FILL) / (st->cpu ? 1 : size) + 1;
  int64_t parts = positions / PART_POSITIONS < wanted ? positions / PART_POSITIONS : wanted;
  if (parts * size > PART_FLOATS_MAX) parts = PART_FLOATS_MAX / size;
  return parts < 1 ? 1 : (int)parts;
}

static cvy_status create(cvy_device *device, const cvy_conv2d_params *p, const cvy_shape *y, cvy_conv_pass pass,
                         const int *tile, void **state, size_t *workspace_bytes) {
  cvy_status status = CVY_OK;
  static const char *const names[CVY_CONV_PASSES] = {"conv2d_grouped_forward", "conv2d_grouped_backward_data",
                                                     "conv2d_grouped_backward_weights"};
  static const char *const file = "conv2d_grouped";
  (void)tile;
  grouped_state *const st = cvy_calloc(1, sizeof *st);
  CVY_REQUIRE(st, CVY_E_MEMORY, "convolution: out of memory for %zu bytes", sizeof *st);
  const cvy_capabilities *const capabilities = cvy_device_get_capabilities(device);
  st->params = *p, st->pass = pass;
  st->cpu = capabilities->cpu_shaped, st->compute_units = capabilities->compute_units;
  st->call = (cvy_conv_grouped_call){.in = p->x,
                                     .out = *y,
                                     .filter = {p->r, p->s, p->stride_h, p->stride_w, p->pad_h, p->pad_w},
                                     .dilation_h = cvy_conv_dilation_h(p),
                                     .dilation_w = cvy_conv_dilation_w(p),
                                     .group_c = cvy_conv_group_c(p),
                                     .group_k = p->k / cvy_conv_groups(p)};
  const bool weights = pass == CVY_CONV_BACKWARD_WEIGHTS;
  st->max_parts = weights ? parts_of(st, p->n_max) : 1;
  CVY_TRY(cvy_kernel_create(device, file, names[pass], NULL, 0, &st->main));
  if (st->max_parts > 1) CVY_TRY(cvy_kernel_create(device, file, "conv2d_grouped_sum", NULL, 0, &st->sum));
  CVY_TRY(cvy_conv_rest_create(device, p, pass, &st->rest));
  *workspace_bytes = st->max_parts > 1 ? (size_t)(st->max_parts * weight_floats(st)) * sizeof(float) : 0;
  const size_t rest = cvy_conv_rest_workspace_bytes(&st->rest, p, y);
  if (rest > *workspace_bytes) *workspace_bytes = rest;
  *state = st;
  return CVY_OK;
fail:
  destroy(st);
  return status;
}

static cvy_grid grid_of(const grouped_state *st, int64_t results) {
  if (st->cpu) return cvy_conv_groups_of_one(cvy_conv_smaller(results, cvy_conv_most_groups(st->compute_units)));
  const int64_t groups = cvy_conv_smaller((results + ITEMS - 1) / ITEMS, MOST_GROUPS);
  return (cvy_grid){.global = {(size_t)groups * ITEMS, 1, 1}, .local = {ITEMS, 1, 1}};
}

static cvy_status run(void *state, cvy_queue *queue, const cvy_conv_call *call) {
  cvy_status status = CVY_OK;
  grouped_state *const st = state;
  cvy_conv_grouped_call c = st->call;
  const int64_t size = weight_floats(st);
  c.n = call->n, c.group_size = call->group_size;
  c.parts = st->pass == CVY_CONV_BACKWARD_WEIGHTS ? parts_of(st, call->n) : 1;
  c.flags = (st->pass == CVY_CONV_BACKWARD_DATA ? 0 : st->params.prologue) | (call->bias ? CVY_CPU_BIAS : 0) |
            (call->accumulate && c.parts == 1 ? CVY_CPU_ACCUMULATE : 0);
  switch (st->pass) {
    case CVY_CONV_FORWARD:
      CVY_TRY(CVY_LAUNCH(queue, st->main, grid_of(st, (int64_t)c.n * (int64_t)cvy_shape_elems(&c.out)),
                         CVY_BUF(call->x), CVY_BUF(call->affine), CVY_BUF(call->residual), CVY_BUF(call->w),
                         CVY_BUF(call->bias), CVY_BUF(call->y), CVY_STRUCT(c)));
      break;
    case CVY_CONV_BACKWARD_DATA:
      CVY_TRY(CVY_LAUNCH(queue, st->main, grid_of(st, (int64_t)c.n * (int64_t)cvy_shape_elems(&c.in)),
                         CVY_BUF(call->dy), CVY_BUF(call->w), CVY_BUF(call->dx), CVY_STRUCT(c)));
      break;
    default:
      CVY_TRY(CVY_LAUNCH(queue, st->main, grid_of(st, size * c.parts), CVY_BUF(call->x), CVY_BUF(call->affine),
                         CVY_BUF(call->residual), CVY_BUF(call->dy), CVY_BUF(c.parts > 1 ? call->workspace : call->dw),
                         CVY_STRUCT(c)));
      if (c.parts > 1)
        CVY_TRY(CVY_LAUNCH(queue, st->sum, grid_of(st, size), CVY_BUF(call->workspace), CVY_BUF(call->dw),
                           CVY_INT((int)size), CVY_INT(c.parts), CVY_INT(call->accumulate)));
  }
  CVY_TRY(cvy_conv_rest_run(&st->rest, queue, call, &c.out));
fail:
  return status;
}

const cvy_conv_algorithm cvy_conv_grouped = {.name = "grouped",
                                             .algo = CVY_CONV_DIRECT,
                                             .error_bound = 1e-5,
                                             .can = can,
                                             .create = create,
                                             .destroy = destroy,
                                             .run = run};
