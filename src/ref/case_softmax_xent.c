/* SPDX-License-Identifier: MIT
 * Cross-entropy. Error of a row's loss, in eps: exp and log have errors of at most 4 ulp (OpenCL 1.2, table 7.2), x -
 * max is rounded once, and d(log sum)/dx_j is p_j. So |loss error| <= eps * (16 + sum_j p_j |x_j - max| + 4 |log sum|
 * + |max - x_label|), the relative error of p_j <= eps * (16 + |x_j - max| + sum_j p_j |x_j - max|). */
#include <float.h>
#include <math.h>
#include <string.h>

#include "src/base/text.h"
#include "src/ref/cases.h"
#include "src/ref/ref.h"

enum { X, LABELS, DX, RESULT };

static cvy_status create(op_case *base, cvy_device *device, size_t *workspace_bytes) {
  cvy_status status = CVY_OK;
  const xent_case *const c = (const xent_case *)base;
  cvy_softmax_xent **const op = (cvy_softmax_xent **)&base->op;
  CVY_TRY(cvy_softmax_xent_create(device, c->n_max, c->c, c->pitch, op));
  *workspace_bytes = cvy_softmax_xent_workspace_bytes(*op);
fail:
  return status;
}
static void destroy(op_case *base) { cvy_softmax_xent_destroy((cvy_softmax_xent **)&base->op); }

static cvy_status run(op_case *base, cvy_queue *queue, cvy_buffer *const *b, bool accumulate) {
  const xent_case *const c = (const xent_case *)base;
  return cvy_softmax_xent_run(base->op, queue, base->n, b[X], b[LABELS], c->scale, c->smoothing, b[DX], b[RESULT],
                              accumulate, b[CASE_WORKSPACE]);
}
static cvy_status once(op_case *base, cvy_queue *queue, cvy_buffer *const *b) { return run(base, queue, b, false); }
static cvy_status twice(op_case *base, cvy_queue *queue, cvy_buffer *const *b) {
  const cvy_status status = run(base, queue, b, false);
  return status == CVY_OK ? run(base, queue, b, true) : status;
}

static void check_result(op_case *base, int times) {
  xent_case *const c = (xent_case *)base;
  const cvy_xent_result *const got = base->tensors[RESULT].got;
  const double loss = (double)got->loss_sum, want = times * c->loss;
  if (!(fabs(loss - want) <= times * c->loss_bound) && !(isnan(want) && isnan(loss)))
    case_wrong(base, "loss is %.9g, must be %.9g; bound %.3g", cvy_unsigned_nan(loss), want, times * c->loss_bound);
  if (got->correct != times * c->correct)
    case_wrong(base, "correct is %d, must be %d", got->correct, times * c->correct);
  if (times == 1) c->got_loss = got->loss_sum;
  else if (got->loss_sum != 2 * c->got_loss && !isnan(want))
    case_wrong(base, "loss is %.9g, and added to itself %.9g", (double)c->got_loss, loss);
}
static void after_once(op_case *base) { check_result(base, 1); }
static void after_twice(op_case *base) { check_result(base, 2); }

static const case_calls calls = {
    "softmax_xent",
    create,
    destroy,
    {{"loss, gradient", CASE_BIT(X) | CASE_BIT(LABELS), CASE_BIT(DX) | CASE_BIT(RESULT), once, after_once},
     {"accumulate", CASE_BIT(X) | CASE_BIT(LABELS), CASE_BIT(DX) | CASE_BIT(RESULT), twice, after_twice}}};

static void bounds(xent_case *c, const double *x, const int *labels, double *dx_bound) {
  const double smoothing = (double)c->smoothing;
  double losses = 0;
  c->loss_bound = 0;
  for (int i = 0; i < c->base.n; i++) {
    const double *const row = x + (size_t)i * (size_t)c->c;
    double top = row[0], sum = 0, moved = 0;
    for (int j = 1; j < c->c; j++) top = fmax(top, row[j]);
    for (int j = 0; j < c->c; j++) sum += exp(row[j] - top);
    for (int j = 0; j < c->c; j++)
      if (exp(row[j] - top) > 0) moved += exp(row[j] - top) / sum * (top - row[j]);
    double gap = (1 - smoothing) * (top - row[labels[i]]);
    for (int j = 0; smoothing != 0 && j < c->c; j++) gap += smoothing / c->c * (top - row[j]);
    losses += log(sum) + gap;
    c->loss_bound += (double)FLT_EPSILON * (16 + moved + 4 * log(sum) + (smoothing != 0 ? 8 + c->c / 16 : 1) * gap);
    for (int j = 0; dx_bound && j < c->c; j++) {
      const double p = exp(row[j] - top) / sum,
                   terms =
                       (p > 0 ? p * (16 + (top - row[j]) + moved) : 0) + 2 * (fabs(p - (j == labels[i])) + smoothing),
                   bound =
                       fabs((double)c->scale) * ((double)FLT_EPSILON * terms + 2 * (double)FLT_MIN) + (double)FLT_MIN;
      dx_bound[(size_t)i * (size_t)c->c + (size_t)j] = bound >= 0 ? bound : 1e-6; /* if NaN, so is the result */
    }
  }
  c->loss_bound += (double)FLT_EPSILON * (8 + c->base.n / 16) * losses; /* 16 or more running sums */
}

void case_softmax_xent(xent_case *c, case_rng *r) {
  op_case *const base = &c->base;
  const size_t n = (size_t)base->n, size = n * (size_t)c->c;
  base->calls = &calls;
  float *const x = case_in(base, X, "x", n, c->c, c->pitch);
  int *const labels = case_in_bytes(base, LABELS, "labels", n, sizeof *labels);
  if (c->x) memcpy(x, c->x, size * sizeof *x);
  else case_fill(r, x, size, CASE_FILL_ANY);
  for (size_t i = 0; i < n; i++) labels[i] = c->labels ? c->labels[i] : case_int(r, 0, c->c - 1);
  case_tensor *const dx = c->dx == CASE_DX_NONE ? NULL : case_out(base, DX, "dx", n, c->c, c->pitch);
  case_out(base, RESULT, "result", 1, (int)sizeof(cvy_xent_result), 0)->shared = true;
  if (c->dx == CASE_DX_IN_X) {
    dx->lies_in = 1 + X, base->tensors[X].role = CASE_INOUT;
    base->left_out |= CASE_BIT(1); /* the first call overwrites the logits */
  }
  const double *const x64 = case_values(base, X);
  ref_softmax_xent(base->n, c->c, x64, labels, (double)c->scale, (double)c->smoothing, dx ? dx->want : NULL, &c->loss,
                   &c->correct);
  bounds(c, x64, labels, dx ? dx->bound : NULL);
}
