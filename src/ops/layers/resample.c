/* SPDX-License-Identifier: MIT */
#include "src/ops/layers/resample.h"

#include "cl/resample_args.clh"
#include "src/ops/divider.h"
#include "src/ops/operation.h"
#include "src/ops/stream.h"

struct cvy_resample {
  cvy_operation base;
  cvy_resample_params params;
  cvy_kernel *forward, *backward;
};

static bool fits(int in, int out) { return in >= 1 && out >= 1 && 2 * (int64_t)(in + 1) * (out + 1) < INT32_MAX; }

cvy_status cvy_resample_check(const cvy_resample_params *p) {
  cvy_status status = CVY_OK;
  CVY_REQUIRE((int)p->kind >= CVY_RESAMPLE_NEAREST && p->kind <= CVY_RESAMPLE_LINEAR_CORNERS, CVY_E_ARGUMENT,
              "resample: there is no kind %d: must be 0 to %d", (int)p->kind, (int)CVY_RESAMPLE_LINEAR_CORNERS);
  CVY_REQUIRE(fits(p->x.h, p->out_h) && fits(p->x.w, p->out_w), CVY_E_ARGUMENT,
              "resample: %dx%d pixels to %dx%d: must be at least 1, and twice their product below 2^31", p->x.h, p->x.w,
              p->out_h, p->out_w);
fail:
  return status;
}

cvy_status cvy_resample_create(cvy_device *device, const cvy_resample_params *params, cvy_resample **out) {
  cvy_status status = CVY_OK;
  cvy_resample *const op = *out = cvy_operation_new(device, "resample", sizeof *op);
  if (!op) return CVY_E_MEMORY;
  const cvy_resample_params *const p = params;
  CVY_TRY(cvy_resample_check(p));
  const cvy_shape y = {p->out_h, p->out_w, p->x.c, p->x.pitch};
  CVY_REQUIRE(p->n_max >= 1 && p->x.c >= 1 && p->x.pitch >= p->x.c && p->x.pitch % 16 == 0 &&
                  cvy_fits_int32(&p->x, p->n_max) && cvy_fits_int32(&y, p->n_max),
              CVY_E_ARGUMENT,
              "resample: %d samples of %d channels with pitch %d: must be at least 1, the pitch a multiple of 16 and "
              "at least the channels, and fewer than 2^31 floats",
              p->n_max, p->x.c, p->x.pitch);
  op->params = *p;
  const cvy_define define = {"LINEAR", p->kind != CVY_RESAMPLE_NEAREST};
  CVY_TRY(cvy_operation_kernel(op, "resample", "resample_forward", &define, 1, &op->forward));
  CVY_TRY(cvy_operation_kernel(op, "resample", "resample_backward", &define, 1, &op->backward));
fail:
  if (status != CVY_OK) cvy_resample_destroy(out);
  return status;
}

void cvy_resample_destroy(cvy_resample **op) {
  cvy_operation_end(*op);
  *op = NULL;
}

static cvy_resample_line line_of(cvy_resample_kind kind, int in, int out) {
  if (kind == CVY_RESAMPLE_LINEAR) return (cvy_resample_line){in, out, 2 * in, in - out, 2 * out};
  if (kind == CVY_RESAMPLE_LINEAR_CORNERS && in > 1 && out > 1) return (cvy_resample_line){in, out, in - 1, 0, out - 1};
  return (cvy_resample_line){in, out, in, 0, kind == CVY_RESAMPLE_LINEAR_CORNERS ? in * out : out};
}

/* Checks, and the geometry of a pass that writes y, or x if `back`. */
static cvy_status prepare(const cvy_resample *op, int n, cvy_buffer *x, const char *x_name, cvy_buffer *y,
                          const char *y_name, bool back, cvy_resample_geometry *g, cvy_grid *grid) {
  cvy_status status = CVY_OK;
  const cvy_resample_params *const p = &op->params;
  const cvy_shape out = {p->out_h, p->out_w, p->x.c, p->x.pitch}, *const writes = back ? &p->x : &out;
  const int vecs = p->x.pitch / cvy_stream_vec(op->base.device, p->x.pitch);
  CVY_REQUIRE(n >= 1 && n <= p->n_max, CVY_E_ARGUMENT, "resample: %d samples, must be from 1 to %d", n, p->n_max);
  CVY_TRY(cvy_check_buffer("resample", x_name, x, (size_t)n * cvy_shape_elems(&p->x) * sizeof(float)));
  CVY_TRY(cvy_check_buffer("resample", y_name, y, (size_t)n * cvy_shape_elems(&out) * sizeof(float)));
  *g = (cvy_resample_geometry){.n = n,
                               .vecs = vecs,
                               .rows = line_of(p->kind, p->x.h, p->out_h),
                               .columns = line_of(p->kind, p->x.w, p->out_w),
                               .by_vecs = cvy_divider_make(vecs),
                               .by_columns = cvy_divider_make(writes->w),
                               .by_rows = cvy_divider_make(writes->h)};
  const size_t lines = (size_t)n * (size_t)writes->h;
  *grid = cvy_stream_grid(op->base.capabilities, lines, lines * (size_t)writes->w * (size_t)vecs);
fail:
  return status;
}

cvy_status cvy_resample_forward(cvy_resample *op, cvy_queue *queue, int n, cvy_buffer *x, cvy_buffer *y) {
  cvy_status status = CVY_OK;
  cvy_resample_geometry g;
  cvy_grid grid;
  CVY_TRY(prepare(op, n, x, "x", y, "y", false, &g, &grid));
  CVY_TRY(CVY_LAUNCH(queue, op->forward, grid, CVY_BUF(x), CVY_BUF(y), CVY_STRUCT(g)));
fail:
  return status;
}

cvy_status cvy_resample_backward(cvy_resample *op, cvy_queue *queue, int n, cvy_buffer *dy, cvy_buffer *dx,
                                 bool accumulate) {
  cvy_status status = CVY_OK;
  cvy_resample_geometry g;
  cvy_grid grid;
  CVY_TRY(prepare(op, n, dx, "dx", dy, "dy", true, &g, &grid));
  CVY_TRY(CVY_LAUNCH(queue, op->backward, grid, CVY_BUF(dy), CVY_BUF(dx), CVY_INT(accumulate), CVY_STRUCT(g)));
fail:
  return status;
}
