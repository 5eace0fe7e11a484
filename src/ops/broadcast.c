/* SPDX-License-Identifier: MIT */
#include "src/ops/broadcast.h"

#include "cl/broadcast_args.clh"
#include "src/ops/divider.h"
#include "src/ops/operation.h"
#include "src/ops/stream.h"

struct cvy_broadcast {
  cvy_operation base;
  cvy_broadcast_params params;
  int vec, c_lanes;
  cvy_kernel *forward, *backward, *backward_add, *sum;
};

cvy_status cvy_broadcast_create(cvy_device *device, const cvy_broadcast_params *params, cvy_broadcast **out) {
  cvy_status status = CVY_OK;
  cvy_broadcast *const op = *out = cvy_operation_new(device, "broadcast", sizeof *op);
  if (!op) return CVY_E_MEMORY;
  const cvy_broadcast_params *const p = params;
  CVY_REQUIRE(
      p->n_max >= 1 && p->x.h >= 1 && p->x.w >= 1 && p->x.c >= 1 && p->x.pitch >= p->x.c && p->x.pitch % 16 == 0,
      CVY_E_ARGUMENT,
      "broadcast: %d samples of %dx%dx%d with pitch %d: must be at least 1, and the pitch a multiple of 16 and "
      "at least the channels",
      p->n_max, p->x.h, p->x.w, p->x.c, p->x.pitch);
  CVY_REQUIRE(cvy_fits_int32(&p->x, p->n_max), CVY_E_ARGUMENT,
              "broadcast: %d samples of %dx%d with pitch %d are more than 2^31-1 floats", p->n_max, p->x.h, p->x.w,
              p->x.pitch);
  CVY_REQUIRE(!p->mul || !p->relu, CVY_E_ARGUMENT, "broadcast: a ReLU behind is for sums only");
  const bool cpu = op->base.capabilities->cpu_shaped;
  op->params = *p, op->vec = cvy_stream_vec(device, p->x.pitch);
  op->c_lanes = cpu ? 1 : cvy_stream_lanes(p->x.pitch / op->vec, 8);
  const cvy_define defines[] = {{"C_LANES", op->c_lanes}};
  const char *const forward = p->mul ? "broadcast_mul" : p->relu ? "broadcast_add_relu" : "broadcast_add";
  CVY_TRY(cvy_operation_kernel(op, "broadcast", forward, defines, 1, &op->forward));
  if (p->mul) {
    CVY_TRY(cvy_operation_kernel(op, "broadcast", "broadcast_mul", defines, 1, &op->backward));
    CVY_TRY(cvy_operation_kernel(op, "broadcast", "broadcast_mul_add", defines, 1, &op->backward_add));
  }
  CVY_TRY(
      cvy_operation_kernel(op, "broadcast", p->mul ? "broadcast_sum_product" : "broadcast_sum", defines, 1, &op->sum));
fail:
  if (status != CVY_OK) cvy_broadcast_destroy(out);
  return status;
}

void cvy_broadcast_destroy(cvy_broadcast **op) {
  cvy_operation_end(*op);
  *op = NULL;
}

/* One buffer of an operation, and its name in messages; of one position per sample, or of all. */
typedef struct operand {
  const char *name;
  cvy_buffer *buffer;
  bool single;
} operand;

static cvy_status check(const cvy_broadcast *op, int n, const operand *operands, int n_operands) {
  cvy_status status = CVY_OK;
  const cvy_broadcast_params *const p = &op->params;
  CVY_REQUIRE(n >= 1 && n <= p->n_max, CVY_E_ARGUMENT, "broadcast: %d samples, must be from 1 to %d", n, p->n_max);
  for (int i = 0; i < n_operands; i++) {
    const size_t floats = (size_t)n * (operands[i].single ? (size_t)p->x.pitch : cvy_shape_elems(&p->x));
    CVY_TRY(cvy_check_buffer("broadcast", operands[i].name, operands[i].buffer, floats * sizeof(float)));
  }
fail:
  return status;
}

static cvy_broadcast_geometry geometry_of(const cvy_broadcast *op, int count) {
  const int positions = op->params.x.h * op->params.x.w, vecs = op->params.x.pitch / op->vec;
  return (cvy_broadcast_geometry){.count = count,
                                  .parts = 1,
                                  .positions = positions,
                                  .vecs = vecs,
                                  .by_positions = cvy_divider_make(positions),
                                  .by_vecs = cvy_divider_make(vecs)};
}

/* y from x and s, by one of the kernels that walk over all of y. */
static cvy_status apply(cvy_broadcast *op, cvy_queue *queue, cvy_kernel *kernel, int n, cvy_buffer *x, cvy_buffer *s,
                        cvy_buffer *y) {
  cvy_status status = CVY_OK;
  const cvy_capabilities *const capabilities = op->base.capabilities;
  const size_t total = (size_t)n * cvy_shape_elems(&op->params.x) / (size_t)op->vec;
  cvy_broadcast_geometry g = geometry_of(op, capabilities->cpu_shaped ? n : (int)total);
  const size_t groups = cvy_cpu_groups(capabilities, total / CVY_STREAM_MIN_CHUNK + 1), parts = groups / (size_t)n;
  if (capabilities->cpu_shaped) g.parts = parts<1 ? 1 : parts>(size_t) g.positions ? g.positions : (int)parts;
  cvy_grid grid = cvy_stream_grid(capabilities, (size_t)n * (size_t)g.parts, total);
  if (capabilities->cpu_shaped && grid.global[0] > groups) grid.global[0] = groups;
  CVY_TRY(CVY_LAUNCH(queue, kernel, grid, CVY_BUF(x), CVY_BUF(s), CVY_BUF(y), CVY_STRUCT(g)));
fail:
  return status;
}

cvy_status cvy_broadcast_forward(cvy_broadcast *op, cvy_queue *queue, int n, cvy_buffer *x, cvy_buffer *s,
                                 cvy_buffer *y) {
  cvy_status status = CVY_OK;
  CVY_TRY(check(op, n, (const operand[]){{"x", x, false}, {"s", s, true}, {"y", y, false}}, 3));
  CVY_TRY(apply(op, queue, op->forward, n, x, s, y));
fail:
  return status;
}

cvy_status cvy_broadcast_backward_data(cvy_broadcast *op, cvy_queue *queue, int n, cvy_buffer *dy, cvy_buffer *s,
                                       cvy_buffer *dx, bool accumulate) {
  cvy_status status = CVY_OK;
  CVY_REQUIRE(op->params.mul, CVY_E_ARGUMENT, "broadcast: a sum passes its gradient on as it is");
  CVY_TRY(check(op, n, (const operand[]){{"dy", dy, false}, {"s", s, true}, {"dx", dx, false}}, 3));
  CVY_TRY(apply(op, queue, accumulate ? op->backward_add : op->backward, n, dy, s, dx));
fail:
  return status;
}

cvy_status cvy_broadcast_backward_sum(cvy_broadcast *op, cvy_queue *queue, int n, cvy_buffer *dy, cvy_buffer *x,
                                      cvy_buffer *ds, bool accumulate) {
  cvy_status status = CVY_OK;
  const cvy_capabilities *const capabilities = op->base.capabilities;
  CVY_TRY(
      check(op, n, (const operand[]){{"dy", dy, false}, {"ds", ds, true}, {"x", x, false}}, op->params.mul ? 3 : 2));
  const int vecs = op->params.x.pitch / op->vec;
  const cvy_broadcast_geometry g = geometry_of(op, capabilities->cpu_shaped ? n : n * vecs);
  const cvy_grid grid = cvy_stream_grid(capabilities, (size_t)n * (size_t)cvy_ceil_div(vecs, 4),
                                        (size_t)n * (size_t)(vecs / op->c_lanes) * CVY_STREAM_LOCAL);
  if (op->params.mul)
    CVY_TRY(CVY_LAUNCH(queue, op->sum, grid, CVY_BUF(dy), CVY_BUF(x), CVY_BUF(ds), CVY_STRUCT(g), CVY_INT(accumulate)));
  else CVY_TRY(CVY_LAUNCH(queue, op->sum, grid, CVY_BUF(dy), CVY_BUF(ds), CVY_STRUCT(g), CVY_INT(accumulate)));
fail:
  return status;
}
