/* SPDX-License-Identifier: MIT */
#include "src/ops/activation.h"

#include <math.h>

#include "src/ops/divider.h"
#include "src/ops/operation.h"
#include "src/ops/stream.h"

struct cvy_activation {
  cvy_operation base;
  cvy_activation_params params;
  cvy_kernel *forward, *backward, *backward_add;
};

const char *cvy_activation_name(cvy_activation_kind kind) {
  static const char *const names[] = {"relu",         "leaky_relu", "clip",     "sigmoid", "tanh",
                                      "hard_sigmoid", "hard_swish", "silu",     "gelu",    "gelu_tanh",
                                      "elu",          "celu",       "softplus", "mish",    "swish"};
  return (unsigned)kind < sizeof names / sizeof *names ? names[kind] : NULL;
}

bool cvy_activation_keeps_x(const cvy_activation_params *p) {
  switch (p->kind) {
    case CVY_ACTIVATION_LEAKY_RELU: return p->a < 0;
    case CVY_ACTIVATION_HARD_SWISH:
    case CVY_ACTIVATION_SILU:
    case CVY_ACTIVATION_GELU:
    case CVY_ACTIVATION_GELU_TANH:
    case CVY_ACTIVATION_SOFTPLUS:
    case CVY_ACTIVATION_MISH:
    case CVY_ACTIVATION_SWISH: return true;
    default: return false;
  }
}

cvy_status cvy_activation_check(const cvy_activation_params *p) {
  cvy_status status = CVY_OK;
  const char *const name = cvy_activation_name(p->kind);
  CVY_REQUIRE(name, CVY_E_ARGUMENT, "activation: there is no kind %d: must be 0 to %d", (int)p->kind,
              (int)CVY_ACTIVATION_SWISH);
  /* clip: an end may be missing, which is an infinity */
  const bool clip = p->kind == CVY_ACTIVATION_CLIP, finite = isfinite(p->a) && isfinite(p->b),
             elu = p->kind == CVY_ACTIVATION_ELU,
             positive = p->kind == CVY_ACTIVATION_CELU || p->kind == CVY_ACTIVATION_SOFTPLUS;
  const bool good = clip ? p->a <= p->b : finite && !(elu && (p->a < 0 || p->b <= 0)) && !(positive && p->a <= 0);
  CVY_REQUIRE(good, CVY_E_ARGUMENT, "%s: parameters %g and %g: %s", name, (double)p->a, (double)p->b,
              clip       ? "the first must not be above the second"
              : elu      ? "must be finite, the first not below 0, the second above"
              : positive ? "the first must be above 0"
                         : "must be finite");
fail:
  return status;
}

bool cvy_activation_moves_zero(const cvy_activation_params *p) {
  switch (p->kind) {
    case CVY_ACTIVATION_SIGMOID:
    case CVY_ACTIVATION_HARD_SIGMOID:
    case CVY_ACTIVATION_SOFTPLUS: return true;
    case CVY_ACTIVATION_CLIP: return p->a > 0 || p->b < 0;
    default: return false;
  }
}

cvy_status cvy_activation_create(cvy_device *device, const cvy_activation_params *params, cvy_activation **out) {
  cvy_status status = CVY_OK;
  cvy_activation *const op = *out = cvy_operation_new(device, "activation", sizeof *op);
  if (!op) return CVY_E_MEMORY;
  const cvy_activation_params *const p = params;
  CVY_TRY(cvy_activation_check(p));
  CVY_REQUIRE(p->kind != CVY_ACTIVATION_RELU, CVY_E_ARGUMENT, "activation: relu is an operation of eltwise");
  CVY_REQUIRE(p->c >= 1 && p->pitch >= p->c && p->pitch % 16 == 0, CVY_E_ARGUMENT,
              "%s: %d channels with pitch %d: must be at least 1, and the pitch a multiple of 16 and at least as large",
              cvy_activation_name(p->kind), p->c, p->pitch);
  op->params = *p;
  const cvy_define defines[] = {{"KIND", (int)p->kind}, {"MASKED", p->c < p->pitch && cvy_activation_moves_zero(p)}};
  CVY_TRY(cvy_operation_kernel(op, "activation", "activation_forward", defines, 2, &op->forward));
  CVY_TRY(cvy_operation_kernel(op, "activation", "activation_backward", defines, 2, &op->backward));
  CVY_TRY(cvy_operation_kernel(op, "activation", "activation_backward_add", defines, 2, &op->backward_add));
fail:
  if (status != CVY_OK) cvy_activation_destroy(out);
  return status;
}

void cvy_activation_destroy(cvy_activation **op) {
  cvy_operation_end(*op);
  *op = NULL;
}

/* Checks the rows and their buffers, named x y or kept dy dx. */
static cvy_status prepare(const cvy_activation *op, int rows, cvy_buffer *const *buffers, const char *const *names,
                          int n_buffers, cvy_stream *plan) {
  cvy_status status = CVY_OK;
  const char *const name = cvy_activation_name(op->params.kind);
  const cvy_shape row = {1, 1, op->params.c, op->params.pitch};
  CVY_REQUIRE(rows >= 1 && cvy_fits_int32(&row, rows), CVY_E_ARGUMENT,
              "%s: %d rows with pitch %d: must be at least 1 and fewer than 2^31 floats", name, rows, row.pitch);
  const size_t n_elems = (size_t)rows * (size_t)row.pitch;
  for (int i = 0; i < n_buffers; i++) CVY_TRY(cvy_check_buffer(name, names[i], buffers[i], n_elems * sizeof(float)));
  CVY_TRY(cvy_stream_plan(op->base.device, name, n_elems, plan));
fail:
  return status;
}

cvy_status cvy_activation_forward(cvy_activation *op, cvy_queue *queue, int rows, cvy_buffer *x, cvy_buffer *y) {
  cvy_status status = CVY_OK;
  const cvy_activation_params *const p = &op->params;
  cvy_stream plan;
  CVY_TRY(prepare(op, rows, (cvy_buffer *const[]){x, y}, (const char *const[]){"x", "y"}, 2, &plan));
  const int vecs = p->pitch / (op->base.capabilities->cpu_shaped ? 16 : 4);
  CVY_TRY(CVY_LAUNCH(queue, op->forward, plan.grid, CVY_BUF(x), CVY_BUF(y), CVY_UINT(plan.n_vec), CVY_UINT(plan.chunk),
                     CVY_FLOAT(p->a), CVY_FLOAT(p->b), CVY_INT(p->c), CVY_INT(vecs), CVY_DIVIDER(vecs)));
fail:
  return status;
}

cvy_status cvy_activation_backward(cvy_activation *op, cvy_queue *queue, int rows, cvy_buffer *kept, cvy_buffer *dy,
                                   cvy_buffer *dx, bool accumulate) {
  cvy_status status = CVY_OK;
  cvy_stream plan;
  CVY_TRY(prepare(op, rows, (cvy_buffer *const[]){kept, dy, dx}, (const char *const[]){"kept", "dy", "dx"}, 3, &plan));
  CVY_TRY(CVY_LAUNCH(queue, accumulate ? op->backward_add : op->backward, plan.grid, CVY_BUF(kept), CVY_BUF(dy),
                     CVY_BUF(dx), CVY_UINT(plan.n_vec), CVY_UINT(plan.chunk), CVY_FLOAT(op->params.a),
                     CVY_FLOAT(op->params.b)));
fail:
  return status;
}
