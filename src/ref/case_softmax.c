/* SPDX-License-Identifier: MIT
 * Softmax. exp has an error of at most 4 ulp and its argument is rounded once, so in eps
 *   |y error|  <= y * (16 + |x_j - max| + sum_i y_i |x_i - max|)
 *   |dx error| <= y * (|dy| + 2*sum |dy*y|) * (C/16 + 6) */
#include <float.h>
#include <math.h>
#include <string.h>

#include "src/ref/cases.h"
#include "src/ref/ref.h"

enum { X, Y, GIVEN_Y, DY, DX };

static cvy_status create(op_case *base, cvy_device *device, size_t *workspace_bytes) {
  (void)workspace_bytes;
  return cvy_softmax_create(device, base->tensors[X].cols, base->tensors[X].pitch, (cvy_softmax **)&base->op);
}
static void destroy(op_case *base) { cvy_softmax_destroy((cvy_softmax **)&base->op); }
static cvy_status forward(op_case *base, cvy_queue *queue, cvy_buffer *const *b) {
  return cvy_softmax_forward(base->op, queue, base->n, b[X], b[Y]);
}
static cvy_status backward(op_case *base, cvy_queue *queue, cvy_buffer *const *b) {
  return cvy_softmax_backward(base->op, queue, base->n, b[GIVEN_Y], b[DY], b[DX]);
}
static const case_calls calls = {"softmax",
                                 create,
                                 destroy,
                                 {{"forward", CASE_BIT(X), CASE_BIT(Y), forward, NULL},
                                  {"backward", CASE_BIT(GIVEN_Y) | CASE_BIT(DY), CASE_BIT(DX), backward, NULL}}};

void case_softmax(softmax_case *c, case_rng *r) {
  op_case *const base = &c->base;
  const int rows = base->n, n = c->c, pitch = c->pitch;
  const size_t size = (size_t)rows * (size_t)n;
  base->calls = &calls;
  float *const x = case_in(base, X, "x", (size_t)rows, n, pitch),
               *const y = case_in(base, GIVEN_Y, "given y", (size_t)rows, n, pitch),
               *const dy = case_in(base, DY, "dy", (size_t)rows, n, pitch);
  if (c->x) memcpy(x, c->x, size * sizeof *x);
  else case_fill(r, x, size, CASE_FILL_ANY);
  case_fill(r, dy, size, CASE_FILL_ANY);
  case_tensor *const ty = case_out(base, Y, "y", (size_t)rows, n, pitch), *const tdx = case_out(base, DX, "dx",
                                                                                                (size_t)rows, n, pitch);
  ty->lies_in = c->y_in_x ? 1 + X : 0;
  tdx->lies_in = c->dx_in == CASE_DX_IN_Y ? 1 + GIVEN_Y : c->dx_in == CASE_DX_IN_DY ? 1 + DY : 0;
  if (ty->lies_in) base->tensors[X].role = CASE_INOUT;
  if (tdx->lies_in) base->tensors[tdx->lies_in - 1].role = CASE_INOUT;
  const double *const x64 = case_values(base, X), *const dy64 = case_values(base, DY);
  ref_softmax(rows, n, x64, ty->want);
  for (size_t i = 0; i < size; i++) y[i] = (float)ty->want[i];
  const double *const y64 = case_values(base, GIVEN_Y);
  ref_softmax_backward(rows, n, y64, dy64, tdx->want);
  for (size_t row = 0; row < size; row += (size_t)n) {
    double top = -INFINITY, moved = 0, mag = 0;
    for (size_t i = row; i < row + (size_t)n; i++) top = fmax(top, x64[i]);
    for (size_t i = row; i < row + (size_t)n; i++) {
      moved += ty->want[i] > 0 ? ty->want[i] * (top - x64[i]) : 0;
      mag += fabs(dy64[i]) * y64[i];
    }
    for (size_t i = row; i < row + (size_t)n; i++) {
      ty->bound[i] = ty->want[i] > 0 ? ty->want[i] * (16 + (top - x64[i]) + moved) : 0;
      tdx->bound[i] = (n / 16 + 6) * y64[i] * (fabs(dy64[i]) + 2 * mag);
    }
  }
  case_bound(ty, 1);
  case_bound(tdx, 1);
}
