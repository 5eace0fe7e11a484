/* SPDX-License-Identifier: MIT
 * The norm of a gradient, whose squares are summed with the precision of a double, and the factor that limits it. */
#include <math.h>

#include "src/ref/cases.h"
#include "src/ref/ref.h"

enum { X, RESULT };

static cvy_status create(op_case *base, cvy_device *device, size_t *workspace_bytes) {
  (void)workspace_bytes;
  return cvy_norm_create(device, (size_t)base->n * CVY_NORM_BLOCK, (cvy_norm **)&base->op);
}
static void destroy(op_case *base) { cvy_norm_destroy((cvy_norm **)&base->op); }

static cvy_status run(op_case *base, cvy_queue *queue, cvy_buffer *const *b) {
  cvy_status status = CVY_OK;
  CVY_TRY(cvy_norm_add(base->op, queue, 0, (size_t)base->n * CVY_NORM_BLOCK, b[X]));
  CVY_TRY(cvy_norm_finish(base->op, queue, ((const norm_case *)base)->clip, b[RESULT]));
fail:
  return status;
}

static void after(op_case *base) {
  const norm_case *const c = (const norm_case *)base;
  const cvy_norm_result *const got = base->tensors[RESULT].got;
  const double norm = cvy_norm_length(&got->squares);
  const double scale = c->clip == 0 ? 1 : fmin(1, (double)c->clip / (c->norm + 1e-6));
  if (!(fabs(norm - c->norm) <= 1e-12 * c->norm)) case_wrong(base, "the norm is %.15g, must be %.15g", norm, c->norm);
  if (!(fabs((double)got->scale - scale) <= 3e-7))
    case_wrong(base, "the scale is %.9g, must be %.9g", (double)got->scale, scale);
}

static const case_calls calls = {"norm", create, destroy, {{"norm", CASE_BIT(X), CASE_BIT(RESULT), run, after}}};

void case_norm(norm_case *c, case_rng *r) {
  op_case *const base = &c->base;
  const size_t n = (size_t)base->n * CVY_NORM_BLOCK;
  base->calls = &calls;
  case_fill(r, case_in(base, X, "x", (size_t)base->n, CVY_NORM_BLOCK, CVY_NORM_BLOCK), n, CASE_FILL_ANY);
  case_out(base, RESULT, "result", 1, (int)sizeof(cvy_norm_result), 0)->shared = true;
  c->norm = ref_norm(n, case_values(base, X));
}
