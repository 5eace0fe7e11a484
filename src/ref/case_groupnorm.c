/* SPDX-License-Identifier: MIT
 * Normalisation over groups of channels. In eps = 2^-23, with K the growth of rounding errors of sums, D the largest
 * |x - mean| of a group, and e = K*eps*|mean| the error of the first mean:
 *   x - mean - rest <= eps*|x - mean| + K*eps*(D + e)        invstd (relative) <= K/2*eps*(1 + (e*invstd)^2) + 4 eps
 * The first mean's error e is no part of the result: `rest` takes it away, so that a mean of 1000 deviations costs
 * nothing. Backward reads the true statistics, rounded:
 *   xhat <= 5*eps*|xhat|          means of dm and dm*xhat <= (K + 8)*eps times the means of their absolute values */
#include <float.h>
#include <math.h>

#include "src/ref/cases.h"
#include "src/ref/ref.h"

enum { X, GAMMA, BETA, Y, SAVED, GIVEN_SAVED, DY, DX, DGAMMA, DBETA };
enum { K = 32 };
static const double eps = (double)FLT_EPSILON, tiny = (double)FLT_MIN;

static cvy_status create(op_case *base, cvy_device *device, size_t *workspace_bytes) {
  cvy_status status = CVY_OK;
  CVY_TRY(cvy_groupnorm_create(device, &((groupnorm_case *)base)->p, (cvy_groupnorm **)&base->op));
  *workspace_bytes = cvy_groupnorm_workspace_bytes(base->op);
fail:
  return status;
}
static void destroy(op_case *base) { cvy_groupnorm_destroy((cvy_groupnorm **)&base->op); }
static cvy_status forward(op_case *base, cvy_queue *queue, cvy_buffer *const *b) {
  return cvy_groupnorm_forward(base->op, queue, base->n, b[X], b[GAMMA], b[BETA], b[Y], b[SAVED], b[CASE_WORKSPACE]);
}
static cvy_status backward(op_case *base, cvy_queue *queue, cvy_buffer *const *b) {
  const groupnorm_case *const c = (const groupnorm_case *)base;
  return cvy_groupnorm_backward(base->op, queue,
                                &(cvy_groupnorm_backward_args){.n = base->n,
                                                               .x = b[X],
                                                               .dy = b[DY],
                                                               .gamma = b[GAMMA],
                                                               .saved = b[GIVEN_SAVED],
                                                               .dx = b[DX],
                                                               .accumulate_dx = c->accumulate_dx,
                                                               .dgamma = b[DGAMMA],
                                                               .dbeta = b[DBETA],
                                                               .accumulate = c->accumulate,
                                                               .workspace = b[CASE_WORKSPACE]});
}
#define BIT(at) CASE_BIT(at)
static const case_calls calls = {"groupnorm",
                                 create,
                                 destroy,
                                 {{"forward", BIT(X) | BIT(GAMMA) | BIT(BETA), BIT(Y) | BIT(SAVED), forward, NULL},
                                  {"backward", BIT(X) | BIT(GAMMA) | BIT(GIVEN_SAVED) | BIT(DY),
                                   BIT(DX) | BIT(DGAMMA) | BIT(DBETA), backward, NULL}}};

/* The group that value i belongs to, of those of all samples. */
static size_t group_of(const groupnorm_case *c, size_t i) {
  const size_t channels = (size_t)c->p.x.c, image = (size_t)(c->p.x.h * c->p.x.w) * channels;
  return i / image * (size_t)c->p.groups + i % channels / (channels / (size_t)c->p.groups);
}

static void forward_truth(groupnorm_case *c, size_t size, const double *x, double *saved) {
  op_case *const base = &c->base;
  const size_t n = (size_t)c->p.x.c, groups = (size_t)base->n * (size_t)c->p.groups;
  const double *const gamma = case_values(base, GAMMA), *const beta = c->no_beta ? NULL : case_values(base, BETA);
  case_tensor *const y = &base->tensors[Y];
  double *const largest = case_doubles(&base->memory, groups);
  ref_groupnorm(&c->p, base->n, x, gamma, beta, y->want, saved);
  for (size_t i = 0; i < size; i++) {
    const size_t g = group_of(c, i);
    largest[g] = fmax(largest[g], fabs(x[i] - saved[2 * g]));
  }
  for (size_t i = 0; i < size; i++) {
    const size_t g = group_of(c, i), k = i % n;
    const double mean = saved[2 * g], invstd = saved[2 * g + 1], xhat = (x[i] - mean) * invstd,
                 first = K * eps * fabs(mean), relative = K / 2 * eps * (1 + pow(first * invstd, 2)) + 6 * eps,
                 off = eps * fabs(x[i] - mean) + K * eps * (largest[g] + first);
    y->bound[i] = fabs(gamma[k]) * (off * invstd + fabs(xhat) * relative) +
                  2 * eps * (fabs(xhat * gamma[k]) + (beta ? fabs(beta[k]) : 0)) + tiny;
  }
}

static void backward_truth(groupnorm_case *c, size_t size, const double *x, const double *saved) {
  op_case *const base = &c->base;
  case_memory *const memory = &base->memory;
  const size_t n = (size_t)c->p.x.c, groups = (size_t)base->n * (size_t)c->p.groups;
  const double *const gamma = case_values(base, GAMMA), *const dy = case_values(base, DY);
  double *const dx = case_doubles(memory, size), *const dgamma = case_doubles(memory, n),
                *const dbeta = case_doubles(memory, n), *const mag = case_doubles(memory, 2 * n),
                *const plain = case_doubles(memory, groups), *const along = case_doubles(memory, groups);
  const double m = (double)size / (double)groups;
  case_tensor *const tx = &base->tensors[DX], *const tg = &base->tensors[DGAMMA], *const tb = &base->tensors[DBETA];
  ref_groupnorm_backward(&c->p, base->n, x, dy, gamma, dx, dgamma, dbeta, mag);
  for (size_t i = 0; i < size; i++) {
    const size_t g = group_of(c, i);
    const double dm = fabs(dy[i] * gamma[i % n]);
    plain[g] += dm / m;
    along[g] += dm * fabs(x[i] - saved[2 * g]) * saved[2 * g + 1] / m;
  }
  for (size_t i = 0; i < size && !c->no_dx; i++) {
    const size_t g = group_of(c, i);
    const double invstd = saved[2 * g + 1], xhat = fabs(x[i] - saved[2 * g]) * invstd, dm = fabs(dy[i] * gamma[i % n]);
    tx->want[i] = dx[i];
    tx->bound[i] = eps * invstd * (8 * dm + (K + 16) * (plain[g] + xhat * along[g])) + tiny;
  }
  for (size_t k = 0; k < n && !c->no_parameters; k++) {
    tg->want[k] = dgamma[k], tg->bound[k] = (K + 8) * eps * mag[k] + tiny;
    if (!c->no_beta) tb->want[k] = dbeta[k], tb->bound[k] = K * eps * mag[n + k] + tiny;
  }
}

/* Adds the old values, and what their sum's rounding costs. */
static void add_old(case_tensor *t) {
  const float *const old = t->data;
  for (size_t i = 0; t->role == CASE_INOUT && t->want && i < case_size(t); i++) {
    t->want[i] += (double)old[i];
    t->bound[i] += eps * (fabs((double)old[i]) + fabs(t->want[i]));
  }
}

void case_groupnorm(groupnorm_case *c, case_rng *r) {
  op_case *const base = &c->base;
  const int channels = c->p.x.c, pitch = c->p.x.pitch;
  const size_t n = (size_t)channels, rows = (size_t)base->n * (size_t)(c->p.x.h * c->p.x.w), size = rows * n,
               groups = (size_t)base->n * (size_t)c->p.groups;
  const bool by_row = c->p.x.h * c->p.x.w == 1 && c->p.groups == 1;
  base->calls = &calls;
  float *const x = case_in(base, X, "x", rows, channels, pitch), *const gamma =
                                                                     case_in(base, GAMMA, "gamma", 1, channels, pitch);
  case_fill(r, x, size, c->fill);
  for (size_t i = 0; c->fill == CASE_FILL_OFFSET && i < size; i++) /* every second group: deviation 1e-2 */
    if (group_of(c, i) % 2) x[i] = 1000.0f + 1e-2f * (x[i] - 1000.0f);
  case_fill(r, gamma, n, CASE_FILL_NORMAL);
  if (!c->no_beta) case_fill(r, case_in(base, BETA, "beta", 1, channels, pitch), n, CASE_FILL_NORMAL);
  const int saved_rows = by_row ? base->n : 3 * base->n, saved_cols = by_row ? 3 : channels,
            saved_pitch = by_row ? 3 : pitch;
  case_tensor *const kept = case_out(base, SAVED, "saved", (size_t)saved_rows, saved_cols, saved_pitch);
  kept->want = kept->bound = NULL;
  case_out(base, Y, "y", rows, channels, pitch);
  double *const saved = case_doubles(&base->memory, 2 * groups);
  const double *const x64 = case_values(base, X);
  forward_truth(c, size, x64, saved);
  base->tensors[GAMMA].shared = base->tensors[BETA].shared = true;
  if (c->p.inference) {
    base->left_out |= CASE_BIT(1);
    return;
  }
  float *const given = case_in(base, GIVEN_SAVED, "given saved", (size_t)saved_rows, saved_cols, saved_pitch);
  for (size_t i = 0; i < case_size(&base->tensors[GIVEN_SAVED]); i++) {
    const size_t sample = by_row ? i / 3 : i / (3 * n), which = by_row ? i % 3 : i / n % 3,
                 g = sample * (size_t)c->p.groups + (by_row ? 0 : i % n / (n / (size_t)c->p.groups));
    const double mean = saved[2 * g];
    given[i] = (float)(which == 0 ? mean : which == 1 ? mean - (double)(float)mean : saved[2 * g + 1]);
  }
  float *const dy = case_in(base, DY, "dy", rows, channels, pitch), *const old = case_floats(&base->memory, size);
  case_fill(r, dy, size, c->fill == CASE_FILL_OFFSET ? CASE_FILL_NORMAL : c->fill);
  case_fill(r, old, size, CASE_FILL_INTEGERS);
  if (!c->no_dx) case_sum_out(base, DX, "dx", rows, channels, pitch, c->accumulate_dx ? old : NULL);
  if (!c->no_dx && c->dx_in_dy && !c->accumulate_dx) {
    base->tensors[DX].lies_in = 1 + DY;
    base->tensors[DY].role = CASE_INOUT;
  }
  if (!c->no_parameters) {
    case_sum_out(base, DGAMMA, "dgamma", 1, channels, pitch, c->accumulate ? old : NULL);
    if (!c->no_beta) case_sum_out(base, DBETA, "dbeta", 1, channels, pitch, c->accumulate ? old : NULL);
  }
  base->tensors[DGAMMA].shared = base->tensors[DBETA].shared = true;
  backward_truth(c, size, x64, saved);
  add_old(&base->tensors[DX]);
  add_old(&base->tensors[DGAMMA]);
  add_old(&base->tensors[DBETA]);
}

groupnorm_case case_groupnorm_random(case_rng *r, int number) {
  const int i = number, n = case_int(r, 1, 5);
  groupnorm_case c = {.base.n = n, .p = {.n_max = n + i % 2, .eps = 1e-5f}};
  c.fill = i % 4 == 0 ? CASE_FILL_OFFSET
                      : (case_fill_kind)CASE_ONE_OF(r, CASE_FILL_NORMAL, CASE_FILL_SMALL, CASE_FILL_LARGE,
                                                    CASE_FILL_CANCEL, CASE_FILL_OUTLIERS, CASE_FILL_INTEGERS);
  c.p.x.c = case_edge(r, 16, 70), c.p.x.h = case_edge(r, 8, 33), c.p.x.w = case_edge(r, 4, 9);
  c.p.groups = c.p.x.c;
  if (i % 3 == 0) c.p.groups = 1;
  else if (i % 3 == 1)
    for (c.p.groups = case_int(r, 1, c.p.x.c); c.p.x.c % c.p.groups; c.p.groups--) {
    }
  if (i % 6 == 0) c.p.x.h = c.p.x.w = 1, c.base.n = case_edge(r, 256, 700), c.p.n_max = c.base.n + 1;
  c.p.x.pitch = cvy_pitch_of(c.p.x.c);
  c.no_beta = i % 5 == 2, c.accumulate = i % 2, c.accumulate_dx = i % 4 == 3, c.dx_in_dy = i % 3 == 1;
  c.no_dx = i % 13 == 5, c.no_parameters = i % 13 == 9;
  c.p.inference = i % 17 == 8;
  return c;
}
