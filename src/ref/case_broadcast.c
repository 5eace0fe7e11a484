/* SPDX-License-Identifier: MIT
 * Operations between a value per sample and channel and all positions. y and dx have one rounding, two if they
 * accumulate. A sum of m terms has an error of at most min(m, 64 + m/64) + 2 eps of the sum of their absolute values,
 * in either order. */
#include <math.h>

#include "src/ref/cases.h"
#include "src/ref/ref.h"

enum { X, S, Y, DY, DX, DS };

static cvy_status create(op_case *base, cvy_device *device, size_t *workspace_bytes) {
  (void)workspace_bytes;
  return cvy_broadcast_create(device, &((broadcast_case *)base)->p, (cvy_broadcast **)&base->op);
}
static void destroy(op_case *base) { cvy_broadcast_destroy((cvy_broadcast **)&base->op); }
static cvy_status forward(op_case *base, cvy_queue *queue, cvy_buffer *const *b) {
  return cvy_broadcast_forward(base->op, queue, base->n, b[X], b[S], b[Y]);
}
static cvy_status backward_sum(op_case *base, cvy_queue *queue, cvy_buffer *const *b) {
  const broadcast_case *const c = (const broadcast_case *)base;
  return cvy_broadcast_backward_sum(base->op, queue, base->n, b[DY], c->p.mul ? b[X] : NULL, b[DS], c->accumulate);
}
static cvy_status backward_data(op_case *base, cvy_queue *queue, cvy_buffer *const *b) {
  return cvy_broadcast_backward_data(base->op, queue, base->n, b[DY], b[S], b[DX],
                                     ((broadcast_case *)base)->accumulate);
}
/* backward_sum comes before backward_data, because dx may lie in dy. */
static const case_calls calls = {"broadcast",
                                 create,
                                 destroy,
                                 {{"backward_sum", CASE_BIT(DY) | CASE_BIT(X), CASE_BIT(DS), backward_sum, NULL},
                                  {"backward_data", CASE_BIT(DY) | CASE_BIT(S), CASE_BIT(DX), backward_data, NULL},
                                  {"forward", CASE_BIT(X) | CASE_BIT(S), CASE_BIT(Y), forward, NULL}}};

void case_broadcast(broadcast_case *c, case_rng *r) {
  op_case *const base = &c->base;
  const cvy_broadcast_params *const p = &c->p;
  const int positions = p->x.h * p->x.w, channels = p->x.c, pitch = p->x.pitch;
  const size_t samples = (size_t)base->n, rows = samples * (size_t)positions, n = rows * (size_t)channels,
               n_sums = samples * (size_t)channels;
  base->calls = &calls;
  base->left_out = p->mul ? 0 : CASE_BIT(1);
  float *const x = case_in(base, X, "x", rows, channels, pitch),
               *const s = case_in(base, S, "s", samples, channels, pitch),
               *const dy = case_in(base, DY, "dy", rows, channels, pitch), *const old = case_floats(&base->memory, n);
  case_fill(r, x, n, CASE_FILL_ANY);
  case_fill(r, s, n_sums, CASE_FILL_ANY);
  case_fill(r, dy, n, CASE_FILL_ANY);
  case_fill(r, old, n, CASE_FILL_INTEGERS);
  case_tensor *const ty = case_out(base, Y, "y", rows, channels, pitch),
                     *const dx = case_sum_out(base, DX, "dx", rows, channels, pitch, c->accumulate ? old : NULL),
                     *const ds = case_sum_out(base, DS, "ds", samples, channels, pitch, c->accumulate ? old : NULL);
  if (c->in_place) {
    ty->lies_in = 1 + X;
    base->tensors[X].role = CASE_INOUT;
    if (!c->accumulate) {
      dx->lies_in = 1 + DY;
      base->tensors[DY].role = CASE_INOUT;
    }
  }
  const double *const x64 = case_values(base, X), *const s64 = case_values(base, S),
                      *const dy64 = case_values(base, DY);
  ref_broadcast(p, base->n, x64, s64, ty->want);
  ref_broadcast_backward(p, base->n, x64, s64, dy64, dx->want, ds->want, ds->bound);
  for (size_t i = 0; i < n; i++) {
    const size_t at = i / ((size_t)positions * (size_t)channels) * (size_t)channels + i % (size_t)channels;
    ty->bound[i] = p->mul ? fabs(ty->want[i]) : fabs(x64[i]) + fabs(s64[at]);
    dx->bound[i] = fabs(dx->want[i]);
  }
  case_add_old(dx);
  case_add_old(ds);
  case_bound(ty, 1);
  case_bound(dx, 2);
  case_bound(ds, (positions < 66 ? positions : 64 + positions / 64) + 3);
}
