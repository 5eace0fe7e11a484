/* SPDX-License-Identifier: MIT
 * Dropout: the product with 1/(1-p), which is rounded to float, has an error of at most 1 eps; accumulation adds 1
 * eps. */
#include <math.h>

#include "src/ref/cases.h"
#include "src/ref/ref.h"

enum { X, Y, SAMPLES };

static cvy_status create(op_case *base, cvy_device *device, size_t *workspace_bytes) {
  (void)workspace_bytes;
  return cvy_dropout_create(device, &((dropout_case *)base)->p, (cvy_dropout **)&base->op);
}
static void destroy(op_case *base) { cvy_dropout_destroy((cvy_dropout **)&base->op); }
static cvy_status run(op_case *base, cvy_queue *queue, cvy_buffer *const *b) {
  const dropout_case *const c = (const dropout_case *)base;
  return cvy_dropout_run(base->op, queue, base->n, b[SAMPLES], c->epoch, b[X], b[Y], c->accumulate);
}
static void exact_zeros(op_case *base) {
  const float *const y = base->tensors[Y].got;
  const double *const want = base->tensors[Y].want;
  for (size_t i = 0; !((dropout_case *)base)->accumulate && i < case_size(&base->tensors[Y]); i++)
    if (want[i] == 0 && y[i] != 0) case_wrong(base, "y[%zu] is %g, must be dropped", i, (double)y[i]);
}
static const case_calls calls = {
    "dropout", create, destroy, {{"forward", CASE_BIT(X) | CASE_BIT(SAMPLES), CASE_BIT(Y), run, exact_zeros}}};

void case_dropout(dropout_case *c, case_rng *r) {
  op_case *const base = &c->base;
  const cvy_dropout_params *const p = &c->p;
  const size_t rows = (size_t)base->n * (size_t)(p->x.h * p->x.w), n = rows * (size_t)p->x.c;
  base->calls = &calls;
  float *const x = case_in(base, X, "x", rows, p->x.c, p->x.pitch), *const old = case_floats(&base->memory, n);
  int32_t *const samples = case_in_bytes(base, SAMPLES, "samples", (size_t)base->n, sizeof *samples);
  for (int i = 0; i < base->n; i++) samples[i] = c->samples ? c->samples[i] : case_int(r, 0, 1 << 30);
  case_fill(r, x, n, CASE_FILL_ANY);
  case_fill(r, old, n, CASE_FILL_INTEGERS);
  case_tensor *const y = case_sum_out(base, Y, "y", rows, p->x.c, p->x.pitch, c->accumulate ? old : NULL);
  if (c->in_place) {
    y->lies_in = 1 + X;
    base->tensors[X].role = CASE_INOUT;
  }
  ref_dropout(p, base->n, samples, c->epoch, case_values(base, X), y->want);
  for (size_t i = 0; i < n; i++) y->bound[i] = fabs(y->want[i]);
  case_add_old(y);
  case_bound(y, 2);
}
