/* SPDX-License-Identifier: MIT
 * Elementwise operations: every result is one correctly rounded operation, so all must be exact, except a product
 * that is added: it has one rounding or two. */
#include <math.h>

#include "src/ref/cases.h"
#include "src/ref/ref.h"

enum { A, B, Y };

static cvy_status create(op_case *base, cvy_device *device, size_t *workspace_bytes) {
  (void)workspace_bytes;
  return cvy_eltwise_create(device, true, (cvy_eltwise **)&base->op);
}
static void destroy(op_case *base) { cvy_eltwise_destroy((cvy_eltwise **)&base->op); }

static cvy_status run(op_case *base, cvy_queue *queue, cvy_buffer *const *b) {
  const eltwise_case *const c = (const eltwise_case *)base;
  const size_t n = (size_t)base->n * (size_t)c->each;
  switch (c->kind) {
    case CASE_RELU: return cvy_eltwise_relu(base->op, queue, n, b[A], b[Y]);
    case CASE_RELU_BACKWARD: return cvy_eltwise_relu_backward(base->op, queue, n, b[A], b[B], b[Y], c->accumulate);
    case CASE_ADD: return cvy_eltwise_add(base->op, queue, n, b[A], b[B], b[Y], c->relu);
    case CASE_MUL: return cvy_eltwise_mul(base->op, queue, n, b[A], b[B], b[Y], c->accumulate);
    default: return cvy_eltwise_accumulate(base->op, queue, n, b[A], b[Y]);
  }
}

static void no_minus_zero(op_case *base) {
  const float *const y = base->tensors[Y].got;
  for (size_t i = 0; i < case_size(&base->tensors[Y]); i++)
    if (y[i] == 0.0f && signbit(y[i])) case_wrong(base, "y[%zu] is -0, must be 0", i);
}

#define PASS(name, after) .passes = {{name, CASE_BIT(A) | CASE_BIT(B), CASE_BIT(Y), run, after}}
static const case_calls calls[] = {
    [CASE_RELU] = {"relu", create, destroy, PASS("forward", no_minus_zero)},
    [CASE_RELU_BACKWARD] = {"relu", create, destroy, PASS("backward", NULL)},
    [CASE_ADD] = {"add", create, destroy, PASS("forward", NULL)},
    [CASE_ACCUMULATE] = {"add", create, destroy, PASS("accumulate", NULL)},
    [CASE_MUL] = {"mul", create, destroy, PASS("forward", NULL)},
};

/* Random values, with zeros of both signs, NaN and infinities among them. */
static void fill(case_rng *r, float *x, int n, bool specials) {
  const float special[] = {0.0f, -0.0f, NAN, INFINITY, -INFINITY, 1e-30f, -1e-30f};
  case_fill(r, x, (size_t)n, CASE_FILL_ANY);
  for (int i = 0; specials && i < 16; i++) x[case_int(r, 0, n - 1)] = special[i % 7];
}

void case_eltwise(eltwise_case *c, case_rng *r) {
  op_case *const base = &c->base;
  const int n = base->n * c->each;
  const bool two = c->kind == CASE_RELU_BACKWARD || c->kind == CASE_ADD || c->kind == CASE_MUL;
  base->calls = &calls[c->kind];
  float *const a = case_in(base, A, c->kind == CASE_RELU_BACKWARD ? "y" : "x", (size_t)base->n, c->each, c->each),
               *const b = two ? case_in(base, B, "b", (size_t)base->n, c->each, c->each) : NULL,
               *const old = case_floats(&base->memory, (size_t)n);
  fill(r, a, n, c->kind != CASE_ACCUMULATE && !(c->kind == CASE_MUL && c->accumulate));
  if (b) fill(r, b, n, c->kind == CASE_ADD);
  fill(r, old, n, false);
  const bool adds = c->kind == CASE_ACCUMULATE || (c->kind != CASE_ADD && c->accumulate);
  case_tensor *const y = case_sum_out(base, Y, "y", (size_t)base->n, c->each, c->each, adds ? old : NULL);
  double *const bound = y->bound;
  y->bound = NULL;
  y->lies_in = c->place;
  if (c->place) base->tensors[c->place - 1].role = CASE_INOUT;
  double *const a64 = case_values(base, A);
  if (c->kind == CASE_RELU_BACKWARD) ref_relu_backward((size_t)n, a64, case_values(base, B), y->want);
  for (int i = 0; i < n; i++) { /* computed in float: one rounding */
    if (c->kind == CASE_ADD) y->want[i] = (double)(a[i] + b[i]);
    if (c->kind == CASE_MUL) {
      const double product = (double)a[i] * (double)b[i];
      y->want[i] = adds ? (double)old[i] + product : (double)(a[i] * b[i]);
      bound[i] = fabs((double)old[i]) + fabs(product);
    }
    if (c->kind == CASE_ACCUMULATE) y->want[i] = (double)(old[i] + a[i]);
    if (c->kind == CASE_RELU_BACKWARD && adds) y->want[i] = (double)(old[i] + (float)y->want[i]);
  }
  if (c->kind == CASE_RELU) ref_relu((size_t)n, a64, y->want);
  if (c->kind == CASE_ADD && c->relu) ref_relu((size_t)n, y->want, y->want);
  if (c->kind == CASE_MUL && adds) {
    y->bound = bound;
    case_bound(y, 1);
  }
}
