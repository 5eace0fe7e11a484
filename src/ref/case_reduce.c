/* SPDX-License-Identifier: MIT
 * Sums of integers must be exact, other sums within 64 eps times the sum of absolute values: 64 is half the longest
 * chain of additions. Parts are only added, in order: the result must be exactly the host's. */
#include <math.h>

#include "src/ref/cases.h"
#include "src/ref/ref.h"

enum { X, OUT };

static cvy_status create(op_case *base, cvy_device *device, size_t *workspace_bytes) {
  cvy_status status = CVY_OK;
  const reduce_case *const c = (const reduce_case *)base;
  cvy_reduce **const op = (cvy_reduce **)&base->op;
  CVY_TRY(cvy_reduce_create(device, op));
  if (c->kind == CASE_REDUCE_COLUMNS)
    *workspace_bytes = cvy_reduce_columns_workspace_bytes(*op, (size_t)c->rows, c->pitch);
fail:
  return status;
}
static void destroy(op_case *base) { cvy_reduce_destroy((cvy_reduce **)&base->op); }

static cvy_status run(op_case *base, cvy_queue *queue, cvy_buffer *const *b) {
  const reduce_case *const c = (const reduce_case *)base;
  const size_t rows = (size_t)c->rows, cols = (size_t)c->c;
  switch (c->kind) {
    case CASE_REDUCE_COLUMNS:
      return cvy_reduce_columns(base->op, queue, rows, c->pitch, b[X], b[OUT], c->accumulate, b[CASE_WORKSPACE]);
    case CASE_REDUCE_SUM: return cvy_reduce_sum(base->op, queue, rows, b[X], b[OUT], c->accumulate);
    default: return cvy_reduce_parts(base->op, queue, cols, c->rows, b[X], b[OUT], c->accumulate);
  }
}
static const case_calls calls = {"reduce", create, destroy, {{"forward", CASE_BIT(X), CASE_BIT(OUT), run, NULL}}};

void case_reduce(reduce_case *c, case_rng *r) {
  op_case *const base = &c->base;
  const bool sum = c->kind == CASE_REDUCE_SUM, in_order = c->kind == CASE_REDUCE_PARTS;
  const size_t size = (size_t)c->rows * (size_t)c->c;
  base->calls = &calls;
  float *const x = case_in(base, X, "x", sum ? 1 : (size_t)c->rows, sum ? c->rows : c->c, sum ? c->rows : c->pitch),
               *const old = case_floats(&base->memory, (size_t)c->c);
  const case_fill_kind kind = case_fill(r, x, size, c->fill);
  case_fill(r, old, (size_t)c->c, in_order ? CASE_FILL_ANY : CASE_FILL_INTEGERS);
  case_tensor *const out = case_sum_out(base, OUT, "out", 1, c->c, c->pitch, c->accumulate ? old : NULL);
  ref_reduce_columns((size_t)c->rows, c->c, case_values(base, X), out->want, out->bound);
  case_add_old(out);
  case_bound(out, kind == CASE_FILL_INTEGERS ? 0 : 64);
  if (!in_order) return;
  out->bound = NULL;
  for (int j = 0; j < c->c; j++) {
    float want = 0;
    for (int p = 0; p < c->rows; p++) want += x[(size_t)p * (size_t)c->c + (size_t)j];
    out->want[j] = (double)(c->accumulate ? old[j] + want : want);
  }
}
