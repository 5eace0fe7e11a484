/* SPDX-License-Identifier: MIT */
#include "src/ops/pool2d.h"

#include "cl/pool2d_args.clh"
#include "src/ops/divider.h"
#include "src/ops/operation.h"
#include "src/ops/stream.h"

enum { WIDE_WINDOW = 32 }; /* positions from which a SIMT work-group shares a window */

struct cvy_pool2d {
  cvy_operation base;
  cvy_pool2d_params params;
  cvy_shape y;
  int vec, c_lanes;
  bool wide; /* forward is pool2d_forward_wide */
  cvy_kernel *forward, *backward;
};

/* Of one dimension; 0: the filter does not fit. */
static int count_windows(int size, int filter, int stride, int pad, int pad_more, bool ceil_mode) {
  const int64_t room = (int64_t)size + 2 * (int64_t)pad + pad_more - filter;
  if (room < 0) return 0;
  int64_t n = (room + (ceil_mode ? stride - 1 : 0)) / stride + 1;
  if (ceil_mode && (n - 1) * stride >= (int64_t)size + pad) n--;
  return n > INT32_MAX ? 0 : (int)n;
}

/* Windows of this average have different divisors. */
static bool counts(const cvy_pool2d_params *p) {
  return p->kind == CVY_POOL_AVG &&
         (p->ceil_mode || (p->exclude_pad && (p->pad_h || p->pad_w || p->pad_more_h || p->pad_more_w)));
}

/* Zeros lie around the image. */
static bool has_zeros(const cvy_pool2d_params *p) {
  return p->zero_pad && (p->pad_h || p->pad_w || p->pad_more_h || p->pad_more_w);
}

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
  CVY_REQUIRE(p->pad_more_h >= -p->pad_h && p->pad_more_w >= -p->pad_w && p->pad_more_h < p->r - p->pad_h &&
                  p->pad_more_w < p->s - p->pad_w,
              CVY_E_ARGUMENT,
              "pool2d: padding %d and %d with %d and %d more behind: together they must be at least 0 and smaller than "
              "the filter %dx%d",
              p->pad_h, p->pad_w, p->pad_more_h, p->pad_more_w, p->r, p->s);
  CVY_REQUIRE(!p->zero_pad || (p->kind == CVY_POOL_MAX && !p->ceil_mode), CVY_E_ARGUMENT,
              "pool2d: zeros as padding are for maxima without ceil_mode");
  *y = (cvy_shape){.h = count_windows(p->x.h, p->r, p->stride_h, p->pad_h, p->pad_more_h, p->ceil_mode),
                   .w = count_windows(p->x.w, p->s, p->stride_w, p->pad_w, p->pad_more_w, p->ceil_mode),
                   .c = p->x.c,
                   .pitch = p->x.pitch};
  CVY_REQUIRE(y->h >= 1 && y->w >= 1, CVY_E_ARGUMENT,
              "pool2d: filter %dx%d is larger than the image %dx%d with padding %d and %d", p->r, p->s, p->x.h, p->x.w,
              p->pad_h, p->pad_w);
  /* with padding the output can be the larger one */
  CVY_REQUIRE(cvy_fits_int32(y, p->n_max), CVY_E_ARGUMENT,
              "pool2d: %d samples of the output %dx%d with pitch %d are more than 2^31-1 floats", p->n_max, y->h, y->w,
              y->pitch);
fail:
  return status;
}

cvy_status cvy_pool2d_create(cvy_device *device, const cvy_pool2d_params *params, cvy_pool2d **out) {
  cvy_status status = CVY_OK;
  cvy_pool2d *const op = *out = cvy_operation_new(device, "pool2d", sizeof *op);
  if (!op) return CVY_E_MEMORY;
  const cvy_pool2d_params *const p = params;
  const bool cpu = op->base.capabilities->cpu_shaped;
  cvy_shape y;
  CVY_TRY(cvy_pool2d_output_shape(p, &y));
  CVY_REQUIRE(!p->relu || p->kind == CVY_POOL_AVG, CVY_E_ARGUMENT, "pool2d: a ReLU in front is for averages only");
  op->params = *p, op->y = y, op->vec = cvy_stream_vec(device, p->x.pitch);
  op->wide = !cpu && (size_t)p->r * (size_t)p->s >= WIDE_WINDOW;
  op->c_lanes = op->wide ? cvy_stream_lanes(p->x.pitch / op->vec, 8) : 1;
  const bool max = p->kind == CVY_POOL_MAX, edges = counts(p) || has_zeros(p);
  const cvy_define defines[] = {
      {"KIND", !max}, {"VEC", op->vec}, {"C_LANES", op->c_lanes}, {"RELU", p->relu}, {max ? "ZERO_PAD" : "COUNTED", 1}};
  const int n_defines = edges ? 5 : 3 + p->relu;
  CVY_TRY(cvy_operation_kernel(op, "pool2d", op->wide ? "pool2d_forward_wide" : "pool2d_forward", defines, n_defines,
                               &op->forward));
  CVY_TRY(cvy_operation_kernel(op, "pool2d", "pool2d_backward", defines, n_defines, &op->backward));
fail:
  if (status != CVY_OK) cvy_pool2d_destroy(out);
  return status;
}

void cvy_pool2d_destroy(cvy_pool2d **op) {
  cvy_operation_end(*op);
  *op = NULL;
}

static size_t bytes_of(const cvy_shape *shape, int n) { return (size_t)n * cvy_shape_elems(shape) * sizeof(float); }

/* Pieces that the channels are cut into, so that `lines` pieces of work with all channels keep every group busy. */
static int parts_of(const cvy_pool2d *op, size_t lines) {
  const size_t wanted = cvy_cpu_groups(op->base.capabilities, SIZE_MAX), vecs = (size_t)(op->params.x.pitch / op->vec);
  const size_t blocks = vecs < 4 ? 1 : vecs / 4, parts = wanted <= lines ? 1 : (wanted + lines - 1) / lines;
  return (int)(parts < blocks ? parts : blocks);
}

/* `count` samples or vectors of `result`, which is y or dx. */
static cvy_pool_geometry geometry_of(const cvy_pool2d *op, size_t count, const cvy_shape *result) {
  const cvy_pool2d_params *const p = &op->params;
  return (cvy_pool_geometry){.count = (int)count,
                             .parts = 1,
                             .vecs = p->x.pitch / op->vec,
                             .h = p->x.h,
                             .w = p->x.w,
                             .p = op->y.h,
                             .q = op->y.w,
                             .r = p->r,
                             .s = p->s,
                             .stride_h = p->stride_h,
                             .stride_w = p->stride_w,
                             .pad_h = p->pad_h,
                             .pad_w = p->pad_w,
                             .count_h = p->exclude_pad ? p->x.h : p->x.h + p->pad_h + p->pad_more_h,
                             .count_w = p->exclude_pad ? p->x.w : p->x.w + p->pad_w + p->pad_more_w,
                             .before_h = p->exclude_pad ? 0 : p->pad_h,
                             .before_w = p->exclude_pad ? 0 : p->pad_w,
                             .scale = (float)(1.0 / ((double)p->r * p->s)),
                             .by_stride_h = cvy_divider_make(p->stride_h),
                             .by_stride_w = cvy_divider_make(p->stride_w),
                             .by_vecs = cvy_divider_make(p->x.pitch / op->vec),
                             .by_cols = cvy_divider_make(result->w),
                             .by_rows = cvy_divider_make(result->h)};
}

cvy_status cvy_pool2d_forward(cvy_pool2d *op, cvy_queue *queue, int n, cvy_buffer *x, cvy_buffer *y) {
  cvy_status status = CVY_OK;
  const cvy_capabilities *const capabilities = op->base.capabilities;
  const cvy_shape *const in = &op->params.x, *const out = &op->y;
  CVY_REQUIRE(n >= 1 && n <= op->params.n_max, CVY_E_ARGUMENT, "pool2d: %d samples, must be from 1 to %d", n,
              op->params.n_max);
  CVY_TRY(cvy_check_buffer("pool2d", "x", x, bytes_of(in, n)));
  CVY_TRY(cvy_check_buffer("pool2d", "y", y, bytes_of(out, n)));
  const size_t total = (size_t)n * cvy_shape_elems(out) / (size_t)op->vec;
  cvy_pool_geometry g = geometry_of(op, capabilities->cpu_shaped ? (size_t)n : total, out);
  /* CPU: rows of outputs, and their channels in parts of 4 vectors if there are fewer rows than work-groups */
  const size_t lines = (size_t)n * (size_t)out->h;
  if (capabilities->cpu_shaped) g.parts = parts_of(op, lines);
  const cvy_grid grid = cvy_stream_grid(capabilities, lines * (size_t)g.parts,
                                        op->wide ? total / (size_t)op->c_lanes * CVY_STREAM_LOCAL : total);
  CVY_TRY(CVY_LAUNCH(queue, op->forward, grid, CVY_BUF(x), CVY_BUF(y), CVY_STRUCT(g)));
fail:
  return status;
}

cvy_status cvy_pool2d_backward(cvy_pool2d *op, cvy_queue *queue, int n, cvy_buffer *x, cvy_buffer *y, cvy_buffer *dy,
                               cvy_buffer *dx, bool accumulate) {
  cvy_status status = CVY_OK;
  const cvy_capabilities *const capabilities = op->base.capabilities;
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
  cvy_pool_geometry g = geometry_of(op, capabilities->cpu_shaped ? (size_t)n : total, in);
  const bool scatters = capabilities->cpu_shaped && op->params.kind == CVY_POOL_MAX;
  if (scatters) g.parts = parts_of(op, (size_t)n);
  const size_t pieces = (size_t)n * (size_t)(scatters ? g.parts : in->h);
  CVY_TRY(CVY_LAUNCH(queue, op->backward, cvy_stream_grid(capabilities, pieces, total), CVY_BUF(x), CVY_BUF(y),
                     CVY_BUF(dy), CVY_BUF(dx), CVY_STRUCT(g), CVY_INT(accumulate)));
fail:
  return status;
}
