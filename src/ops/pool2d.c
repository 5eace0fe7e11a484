/* SPDX-License-Identifier: MIT */
#include "src/ops/pool2d.h"

#include <string.h>

#include "src/ops/divider.h"
#include "src/ops/stream.h"

enum { WIDE_WINDOW = 32 }; /* positions from which a SIMT work-group shares a window */

struct cvy_pool2d {
  cvy_device *device;
  cvy_pool2d_params params;
  cvy_shape y;
  int vec, c_lanes;
  bool wide; /* forward is pool2d_forward_wide */
  cvy_kernel *forward, *backward;
};

cvy_status cvy_pool2d_output_shape(const cvy_pool2d_params *params, cvy_shape *y) {
  cvy_status status = CVY_OK;
  const cvy_pool2d_params *const p = params;
  CVY_REQUIRE(p->kind == CVY_POOL_MAX || p->kind == CVY_POOL_AVG, CVY_E_ARGUMENT,
              "pool2d: kind %d is neither max nor average", (int)p->kind);
  CVY_REQUIRE(p->n_max >= 1, CVY_E_ARGUMENT, "pool2d: n_max %d, must be at least 1", p->n_max);
  CVY_REQUIRE(p->x.h >= 1 && p->x.w >= 1 && p->x.c >= 1 && p->x.pitch >= p->x.c, CVY_E_ARGUMENT,
              "pool2d: input %dx%dx%d with pitch %d: sizes must be at least 1 and the pitch at least the channels",
              p->x.h, p->x.w, p->x.c, p->x.pitch);
  CVY_REQUIRE(cvy_fits_int32(&p->x, p->n_max), CVY_E_ARGUMENT,
              "pool2d: %d samples of %dx%d with pitch %d are more than 2^31-1 floats", p->n_max, p->x.h, p->x.w,
              p->x.pitch);
  CVY_REQUIRE(p->r >= 1 && p->s >= 1 && p->stride_h >= 1 && p->stride_w >= 1, CVY_E_ARGUMENT,
              "pool2d: filter %dx%d, strides %d and %d: must be at least 1", p->r, p->s, p->stride_h, p->stride_w);
  CVY_REQUIRE(p->pad_h >= 0 && p->pad_w >= 0 && p->pad_h < p->r && p->pad_w < p->s, CVY_E_ARGUMENT,
              "pool2d: padding %d and %d must be at least 0 and smaller than the filter %dx%d", p->pad_h, p->pad_w,
              p->r, p->s);
  CVY_REQUIRE(p->r - p->pad_h <= p->x.h + p->pad_h && p->s - p->pad_w <= p->x.w + p->pad_w, CVY_E_ARGUMENT,
              "pool2d: filter %dx%d is larger than the image %dx%d with padding %d and %d", p->r, p->s, p->x.h, p->x.w,
              p->pad_h, p->pad_w);
  *y = (cvy_shape){.h = (p->x.h + p->pad_h - (p->r - p->pad_h)) / p->stride_h + 1,
                   .w = (p->x.w + p->pad_w - (p->s - p->pad_w)) / p->stride_w + 1,
                   .c = p->x.c,
                   .pitch = p->x.pitch};
  /* with padding the output can be the larger one */
  CVY_REQUIRE(cvy_fits_int32(y, p->n_max), CVY_E_ARGUMENT,
              "pool2d: %d samples of the output %dx%d with pitch %d are more than 2^31-1 floats", p->n_max, y->h, y->w,
              y->pitch);
fail:
  return status;
}

cvy_status cvy_pool2d_create(cvy_device *device, const cvy_pool2d_params *params, cvy_pool2d **out) {
  cvy_status status = CVY_OK;
  cvy_pool2d *op = NULL;
  *out = NULL;
  const cvy_pool2d_params *const p = params;
  const bool cpu = cvy_device_get_facts(device)->cpu_shaped;
  cvy_shape y;
  CVY_TRY(cvy_pool2d_output_shape(p, &y));
  CVY_REQUIRE(!p->relu || p->kind == CVY_POOL_AVG, CVY_E_ARGUMENT, "pool2d: a ReLU in front is for averages only");
  op = cvy_calloc(1, sizeof *op);
  CVY_REQUIRE(op, CVY_E_MEMORY, "pool2d: no memory for the operation");
  *op = (cvy_pool2d){.device = device, .params = *p, .y = y, .vec = cvy_stream_vec(device, p->x.pitch)};
  op->wide = !cpu && (size_t)p->r * (size_t)p->s >= WIDE_WINDOW;
  op->c_lanes = op->wide ? cvy_stream_lanes(p->x.pitch / op->vec, 8) : 1;
  const cvy_define defines[] = {
      {"KIND", p->kind == CVY_POOL_AVG}, {"VEC", op->vec}, {"C_LANES", op->c_lanes}, {"RELU", p->relu}};
  const int n_defines = (int)(sizeof defines / sizeof *defines) - !p->relu;
  CVY_TRY(cvy_kernel_create(device, "pool2d", op->wide ? "pool2d_forward_wide" : "pool2d_forward", defines, n_defines,
                            &op->forward));
  CVY_TRY(cvy_kernel_create(device, "pool2d", "pool2d_backward", defines, n_defines, &op->backward));
  *out = op;
  return CVY_OK;
fail:
  cvy_pool2d_destroy(&op);
  return status;
}

void cvy_pool2d_destroy(cvy_pool2d **op) {
  if (!*op) return;
  cvy_kernel_destroy(&(*op)->forward);
  cvy_kernel_destroy(&(*op)->backward);
  cvy_free(*op);
  *op = NULL;
}

static size_t bytes_of(const cvy_shape *shape, int n) { return (size_t)n * cvy_shape_elems(shape) * sizeof(float); }

/* The arguments that all kernels have behind their buffers; the first one is `count`. */
enum { N_GEOMETRY = 13, MAX_ARGS = 32 };
static void add_geometry(const cvy_pool2d *op, size_t count, cvy_arg *args) {
  const cvy_pool2d_params *const p = &op->params;
  const cvy_arg geometry[N_GEOMETRY] = {CVY_INT((int32_t)count),
                                        CVY_INT(p->x.pitch / op->vec),
                                        CVY_INT(p->x.h),
                                        CVY_INT(p->x.w),
                                        CVY_INT(op->y.h),
                                        CVY_INT(op->y.w),
                                        CVY_INT(p->r),
                                        CVY_INT(p->s),
                                        CVY_INT(p->stride_h),
                                        CVY_INT(p->stride_w),
                                        CVY_INT(p->pad_h),
                                        CVY_INT(p->pad_w),
                                        CVY_FLOAT((float)(1.0 / ((double)p->r * p->s)))};
  memcpy(args, geometry, sizeof geometry);
}

cvy_status cvy_pool2d_forward(cvy_pool2d *op, cvy_queue *queue, int n, cvy_buffer *x, cvy_buffer *y) {
  cvy_status status = CVY_OK;
  const cvy_device_facts *const facts = cvy_device_get_facts(op->device);
  const cvy_shape *const in = &op->params.x, *const out = &op->y;
  CVY_REQUIRE(n >= 1 && n <= op->params.n_max, CVY_E_ARGUMENT, "pool2d: %d samples, must be from 1 to %d", n,
              op->params.n_max);
  CVY_TRY(cvy_check_buffer("pool2d", "x", x, bytes_of(in, n)));
  CVY_TRY(cvy_check_buffer("pool2d", "y", y, bytes_of(out, n)));
  const int vecs = in->pitch / op->vec;
  const size_t total = (size_t)n * cvy_shape_elems(out) / (size_t)op->vec;
  cvy_arg args[MAX_ARGS] = {CVY_BUF(x), CVY_BUF(y)};
  cvy_arg *const last = args + 2 + N_GEOMETRY;
  add_geometry(op, facts->cpu_shaped ? (size_t)n : total, args + 2);
  if (facts->cpu_shaped) {
    /* rows of outputs, and their channels in parts of 4 vectors if there are fewer rows than work-groups */
    const size_t lines = (size_t)n * (size_t)out->h, wanted = cvy_cpu_groups(facts, SIZE_MAX);
    const size_t blocks = vecs < 4 ? 1 : (size_t)vecs / 4, parts = wanted <= lines ? 1 : wanted / lines;
    last[0] = CVY_INT((int32_t)(parts < blocks ? parts : blocks));
    const cvy_grid grid = {.global = {cvy_cpu_groups(facts, lines * (size_t)last[0].value.i)}, .local = {1}};
    CVY_TRY(cvy_launch(queue, op->forward, grid, args, 2 + N_GEOMETRY + 1, NULL));
  } else if (op->wide) {
    const cvy_grid grid = {.global = {total / (size_t)op->c_lanes * CVY_STREAM_LOCAL}, .local = {CVY_STREAM_LOCAL}};
    CVY_TRY(cvy_launch(queue, op->forward, grid, args, 2 + N_GEOMETRY, NULL));
  } else {
    const cvy_arg dividers[] = {CVY_DIVIDER(vecs), CVY_DIVIDER(out->w), CVY_DIVIDER(out->h)};
    const cvy_grid grid = {.global = {cvy_round_up(total, CVY_STREAM_LOCAL)}, .local = {CVY_STREAM_LOCAL}};
    memcpy(last, dividers, sizeof dividers);
    CVY_TRY(cvy_launch(queue, op->forward, grid, args, 2 + N_GEOMETRY + 6, NULL));
  }
fail:
  return status;
}

cvy_status cvy_pool2d_backward(cvy_pool2d *op, cvy_queue *queue, int n, cvy_buffer *x, cvy_buffer *y, cvy_buffer *dy,
                               cvy_buffer *dx, bool accumulate) {
  cvy_status status = CVY_OK;
  const cvy_device_facts *const facts = cvy_device_get_facts(op->device);
  const cvy_shape *const in = &op->params.x, *const out = &op->y;
  CVY_REQUIRE(n >= 1 && n <= op->params.n_max, CVY_E_ARGUMENT, "pool2d: %d samples, must be from 1 to %d", n,
              op->params.n_max);
  CVY_TRY(cvy_check_buffer("pool2d", "dy", dy, bytes_of(out, n)));
  CVY_TRY(cvy_check_buffer("pool2d", "dx", dx, bytes_of(in, n)));
  if (op->params.kind == CVY_POOL_MAX) {
    CVY_TRY(cvy_check_buffer("pool2d", "x", x, bytes_of(in, n)));
    CVY_TRY(cvy_check_buffer("pool2d", "y", y, bytes_of(out, n)));
  } else {
    if (op->params.relu) CVY_TRY(cvy_check_buffer("pool2d", "x", x, bytes_of(in, n)));
    else x = NULL; /* not read */
    y = NULL;
  }
  const size_t total = (size_t)n * cvy_shape_elems(in) / (size_t)op->vec;
  cvy_arg args[MAX_ARGS] = {CVY_BUF(x), CVY_BUF(y), CVY_BUF(dy), CVY_BUF(dx)};
  const cvy_arg more[] = {CVY_DIVIDER(op->params.stride_h),
                          CVY_DIVIDER(op->params.stride_w),
                          CVY_INT(accumulate),
                          CVY_DIVIDER(in->pitch / op->vec),
                          CVY_DIVIDER(in->w),
                          CVY_DIVIDER(in->h)};
  add_geometry(op, facts->cpu_shaped ? (size_t)n : total, args + 4);
  memcpy(args + 4 + N_GEOMETRY, more, sizeof more);
  const cvy_grid grid =
      facts->cpu_shaped ? (cvy_grid){.global = {cvy_cpu_groups(facts, (size_t)n * (size_t)in->h)}, .local = {1}}
                        : (cvy_grid){.global = {cvy_round_up(total, CVY_STREAM_LOCAL)}, .local = {CVY_STREAM_LOCAL}};
  CVY_TRY(cvy_launch(queue, op->backward, grid, args, 4 + N_GEOMETRY + 5 + (facts->cpu_shaped ? 0 : 6), NULL));
fail:
  return status;
}
