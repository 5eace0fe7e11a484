/* SPDX-License-Identifier: MIT
 * Activations. Bounds in eps: exp has an error of at most 4 ulp. If its argument v is off by k roundings, the
 * logistic function or the bell curve has a relative error of k |v|. Both fall faster than |v| grows, so 8 times the
 * size of the terms or factors covers the error. Softplus and swish of a*x: the same of that argument. GELU's own
 * approximation adds 1 eps of |x|. Near a corner, the values on both sides are equal up to that bound. A device may
 * flush a factor of x below float32's normal numbers to 0. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "src/ref/cases.h"
#include "src/ref/ref.h"

enum { X, Y, KEPT, DY, DX };

static cvy_status create(op_case *base, cvy_device *device, size_t *workspace_bytes) {
  (void)workspace_bytes;
  return cvy_activation_create(device, &((activation_case *)base)->p, (cvy_activation **)&base->op);
}
static void destroy(op_case *base) { cvy_activation_destroy((cvy_activation **)&base->op); }
static cvy_status forward(op_case *base, cvy_queue *queue, cvy_buffer *const *b) {
  return cvy_activation_forward(base->op, queue, base->n, b[X], b[Y]);
}
static cvy_status backward(op_case *base, cvy_queue *queue, cvy_buffer *const *b) {
  return cvy_activation_backward(base->op, queue, base->n, b[KEPT], b[DY], b[DX],
                                 ((activation_case *)base)->accumulate);
}
static const case_calls calls = {"activation",
                                 create,
                                 destroy,
                                 {{"forward", CASE_BIT(X), CASE_BIT(Y), forward, NULL},
                                  {"backward", CASE_BIT(KEPT) | CASE_BIT(DY), CASE_BIT(DX), backward, NULL}}};

double case_activation_y_size(const cvy_activation_params *p, double x, double y) {
  switch (p->kind) {
    case CVY_ACTIVATION_HARD_SIGMOID: return fmin(fabs((double)p->a * x) + fabs((double)p->b), 1e3);
    case CVY_ACTIVATION_HARD_SWISH: return fabs(x) * fmin(fabs(x) / 6 + 0.5, 2);
    case CVY_ACTIVATION_GELU: return fmin(fabs(y) + fabs(x) * exp(-x * x / 4), 1e3 + fabs(y));
    case CVY_ACTIVATION_GELU_TANH: return fabs(y) * (1 + fmin(fabs(x * x * x), 100));
    case CVY_ACTIVATION_CELU: return x > 0 ? 0 : fabs(y) * (1 + fmin(fabs(x / (double)p->a), 8));
    case CVY_ACTIVATION_ELU: return fabs(y) * 2;
    case CVY_ACTIVATION_SOFTPLUS:
    case CVY_ACTIVATION_SWISH: return fabs(y) * (1 + fmin(fabs((double)p->a * x), 100) / 4);
    default: return fabs(y);
  }
}
double case_activation_slope_size(const cvy_activation_params *p, double kept) {
  switch (p->kind) {
    case CVY_ACTIVATION_RELU:
    case CVY_ACTIVATION_CLIP: return 0;
    case CVY_ACTIVATION_HARD_SWISH: return fmin(fabs(kept), 4) + 0.5;
    case CVY_ACTIVATION_LEAKY_RELU:
    case CVY_ACTIVATION_HARD_SIGMOID: return fabs((double)p->a) + 1;
    case CVY_ACTIVATION_SIGMOID:
    case CVY_ACTIVATION_TANH: return 1;
    case CVY_ACTIVATION_ELU: return fabs((double)p->a) + fabs((double)p->b);
    case CVY_ACTIVATION_SWISH: return 2 + fabs((double)p->a * kept);
    default: return 2;
  }
}

void case_activation(activation_case *c, case_rng *r) {
  op_case *const base = &c->base;
  const cvy_activation_params *const p = &c->p;
  const size_t rows = (size_t)base->n, n = rows * (size_t)p->c;
  const float special[] = {0.0f, -0.0f, NAN, INFINITY, -INFINITY, 3.0f, -3.0f, 1e-30f, 88.0f, -88.0f, p->a, p->b};
  base->calls = &calls;
  float *const x = case_in(base, X, "x", rows, p->c, p->pitch),
               *const kept = case_in(base, KEPT, "kept", rows, p->c, p->pitch),
               *const dy = case_in(base, DY, "dy", rows, p->c, p->pitch), *const old = case_floats(&base->memory, n);
  case_fill(r, x, n, CASE_FILL_ANY);
  case_fill(r, dy, n, CASE_FILL_ANY);
  case_fill(r, old, n, CASE_FILL_INTEGERS);
  double *const kept64 = case_values(base, X), *const dy64 = case_values(base, DY);
  for (size_t i = 0; i < n; i++) kept64[i] = fmod(kept64[i], 9.0);
  if (!cvy_activation_keeps_x(p)) ref_activation(p, n, kept64, kept64);
  for (size_t i = 0; i < n; i++) kept64[i] = (double)(kept[i] = (float)kept64[i]);
  for (int i = 0; i < 24; i++) x[case_int(r, 0, (int)n - 1)] = special[i % 12];
  case_tensor *const y = case_out(base, Y, "y", rows, p->c, p->pitch), *const dx = case_sum_out(
                                                                           base, DX, "dx", rows, p->c, p->pitch,
                                                                           c->accumulate ? old : NULL);
  y->lies_in = c->y_in_x ? 1 + X : 0;
  dx->lies_in = c->dx_in_dy ? 1 + DY : 0;
  if (c->y_in_x) base->tensors[X].role = CASE_INOUT;
  if (c->dx_in_dy) base->tensors[DY].role = CASE_INOUT;
  const double *const x64 = case_values(base, X);
  ref_activation(p, n, x64, y->want);
  ref_activation_backward(p, n, kept64, dy64, dx->want);
  for (size_t i = 0; i < n; i++) {
    const double flushed = fmin(fabs(x64[i]), 1e3) * (double)(FLT_MIN / FLT_EPSILON);
    y->bound[i] = isfinite(y->want[i]) ? case_activation_y_size(p, x64[i], y->want[i]) + flushed : 0;
    dx->bound[i] = fabs(dy64[i]) * case_activation_slope_size(p, kept64[i]);
  }
  case_add_old(dx);
  case_bound(y, 8);
  case_bound(dx, 8);
}
