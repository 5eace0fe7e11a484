/* SPDX-License-Identifier: MIT
 * Batch normalisation. Derivation of the bounds (eps = 2^-23, e = eps/2*|mean| the rounding of a stored mean, D the
 * largest |x - mean| of the channel, K the growth of the rounding errors of the sums, CASE_NORM_SUM_ERROR):
 *   mean      <= 2e + K*eps*D                         var (relative) <= K*eps + 2e/sd + (e/sd)²        invstd: half of
 *             that
 *   xhat      <= mean's bound * invstd + |xhat| * invstd's
 *   dbeta     <= K*eps*sum|dm|                        dgamma <= K*eps*sum|dm*xhat| + 2e*invstd*sum|dm|
 * dx follows from its formula. An activation adds its own error (case_activation.c) and multiplies the error of its
 * input by at most its largest slope. dm has the error of the slope, whose argument the kernel computes from given
 * values, as this file does.
 * A naive E[x²] - E[x]² has an error of eps*mean²/var: with CASE_FILL_OFFSET, a thousand times the bound. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "src/ref/cases.h"
#include "src/ref/ref.h"

enum {
  X,
  RESIDUAL,
  GAMMA,
  BETA,
  STATS,
  RUNNING,
  INFERRED,
  INFERRED_AFFINE, /* from the running values: only one group */
  Y,
  SAVED,
  S,
  AFFINE,
  /* backward reads the true values, rounded to float */
  GIVEN_Y,
  GIVEN_SAVED,
  GIVEN_AFFINE,
  DY,
  DX,
  DRESIDUAL,
  DGAMMA,
  DBETA
};
static const double eps = (double)FLT_EPSILON, tiny = (double)FLT_MIN;

/* ---- calls ---- */

static cvy_status create(op_case *base, cvy_device *device, size_t *workspace_bytes) {
  cvy_status status = CVY_OK;
  const batchnorm_case *const c = (const batchnorm_case *)base;
  cvy_batchnorm **const op = (cvy_batchnorm **)&base->op;
  const size_t saved_bytes = cvy_batchnorm_saved_bytes(&c->p, c->group_size);
  if (saved_bytes < c->groups * 2 * (size_t)c->p.x.pitch * sizeof(float))
    case_wrong(base, "saved_bytes is %zu for %zu groups", saved_bytes, c->groups);
  CVY_TRY(cvy_batchnorm_create(device, &c->p, op));
  *workspace_bytes = cvy_batchnorm_workspace_bytes(*op);
fail:
  return status;
}
static void destroy(op_case *base) { cvy_batchnorm_destroy((cvy_batchnorm **)&base->op); }

static cvy_status inference(op_case *base, cvy_queue *queue, cvy_buffer *const *b) {
  return cvy_batchnorm_forward_inference(base->op, queue, base->n, b[X], b[RESIDUAL], b[GAMMA], b[BETA], b[RUNNING],
                                         b[INFERRED], b[INFERRED_AFFINE], NULL, b[CASE_WORKSPACE]);
}
static cvy_status forward(op_case *base, cvy_queue *queue, cvy_buffer *const *b) {
  const batchnorm_case *const c = (const batchnorm_case *)base;
  return cvy_batchnorm_forward_training(base->op, queue,
                                        &(cvy_batchnorm_forward_args){.n = base->n,
                                                                      .group_size = c->group_size,
                                                                      .batch = c->batch < base->n ? base->n : c->batch,
                                                                      .x = b[X],
                                                                      .stats = b[STATS],
                                                                      .residual = b[RESIDUAL],
                                                                      .gamma = b[GAMMA],
                                                                      .beta = b[BETA],
                                                                      .y = b[Y],
                                                                      .affine = b[AFFINE],
                                                                      .saved = b[SAVED],
                                                                      .s = b[S],
                                                                      .accumulate = c->accumulate,
                                                                      .workspace = b[CASE_WORKSPACE]});
}
static cvy_status backward(op_case *base, cvy_queue *queue, cvy_buffer *const *b) {
  const batchnorm_case *const c = (const batchnorm_case *)base;
  return cvy_batchnorm_backward(base->op, queue,
                                &(cvy_batchnorm_backward_args){.n = base->n,
                                                               .group_size = c->group_size,
                                                               .x = b[X],
                                                               .y = b[GIVEN_Y],
                                                               .affine = b[GIVEN_AFFINE],
                                                               .dy = b[DY],
                                                               .gamma = b[GAMMA],
                                                               .beta = b[BETA],
                                                               .saved = b[GIVEN_SAVED],
                                                               .dx = b[DX],
                                                               .dresidual = b[DRESIDUAL],
                                                               .accumulate_dresidual = c->accumulate_dresidual,
                                                               .dgamma = b[DGAMMA],
                                                               .dbeta = b[DBETA],
                                                               .accumulate = c->accumulate,
                                                               .workspace = b[CASE_WORKSPACE]});
}

int case_batchnorm_few(const cvy_shape *x) {
  const int image = x->h * x->w;
  return image >= 8 ? 2 : 16 / image;
}

static int group_of(const batchnorm_case *c, size_t i) { return (int)(i / c->image) / c->size_of_group; }

float *case_batchnorm_apply(batchnorm_case *c, const float *affine) {
  const size_t n = (size_t)c->p.x.c;
  const float *const x = c->base.tensors[X].data;
  float *const y = case_floats(&c->base.memory, c->size);
  for (size_t i = 0; i < c->size; i++) {
    const float *const a = affine + (size_t)group_of(c, i) * 3 * n + i % n;
    y[i] = fmaf(x[i] - a[0], a[n], a[2 * n]);
    if (c->p.relu && !(y[i] > 0)) y[i] = 0;
  }
  return y;
}

/* Computes y as the readers of a deferred y do. */
static void after_forward(op_case *base) {
  batchnorm_case *const c = (batchnorm_case *)base;
  if (!c->p.deferred) return;
  const double error = case_compare("y from affine", case_batchnorm_apply(c, base->tensors[AFFINE].got), c->y,
                                    c->y_bound, c->size / (size_t)c->p.x.c, c->p.x.c, base->why, sizeof base->why);
  if (error > base->worst) base->worst = error, base->worst_of = "y from affine";
}

/* The gradient of a bias before the normalisation is 0 up to rounding (1e-5 of the sum of the terms' magnitudes). */
static void after_backward(op_case *base) {
  const batchnorm_case *const c = (const batchnorm_case *)base;
  const float *const dx = base->tensors[DX].got;
  const size_t n = (size_t)c->p.x.c;
  for (size_t k = 0; c->fill == CASE_FILL_NORMAL && c->groups == 1 && k < n; k++) {
    double total = 0, mag = 0;
    for (size_t i = k; i < c->size; i += n) total += (double)dx[i], mag += fabs((double)dx[i]);
    if (!(fabs(total) <= 1e-5 * mag + tiny))
      case_wrong(base, "dx of channel %zu sums up to %.3g, terms to %.3g", k, total, mag);
  }
}

#define BIT(at) CASE_BIT(at)
static const case_calls calls = {
    "batchnorm",
    create,
    destroy,
    {{"inference", BIT(X) | BIT(RESIDUAL) | BIT(GAMMA) | BIT(BETA) | BIT(RUNNING), BIT(INFERRED) | BIT(INFERRED_AFFINE),
      inference, NULL},
     {"forward", BIT(X) | BIT(RESIDUAL) | BIT(GAMMA) | BIT(BETA) | BIT(STATS),
      BIT(Y) | BIT(SAVED) | BIT(S) | BIT(AFFINE), forward, after_forward},
     {"backward", BIT(X) | BIT(GAMMA) | BIT(BETA) | BIT(GIVEN_Y) | BIT(GIVEN_SAVED) | BIT(GIVEN_AFFINE) | BIT(DY),
      BIT(DX) | BIT(DRESIDUAL) | BIT(DGAMMA) | BIT(DBETA), backward, after_backward}}};

/* ---- truth ---- */

/* Per-image (mean, M2), (N,2,C), as the epilogue of a convolution computes them. */
static void image_stats(batchnorm_case *c, const float *x) {
  const size_t n = (size_t)c->p.x.c, pixels = c->image / n;
  float *const stats = case_in(&c->base, STATS, "stats", (size_t)c->base.n * 2, c->p.x.c, c->p.x.pitch);
  for (size_t i = 0; i < (size_t)c->base.n * n; i++) {
    const float *const first = x + i / n * c->image + i % n;
    double mean = 0, squares = 0;
    for (size_t j = 0; j < pixels; j++) mean += (double)first[j * n] / (double)pixels;
    for (size_t j = 0; j < pixels; j++) squares += pow((double)first[j * n] - mean, 2);
    stats[i / n * 2 * n + i % n] = (float)mean;
    stats[(i / n * 2 + 1) * n + i % n] = (float)squares;
  }
}

static bool has_activation(const batchnorm_case *c) { return c->p.activation.kind != CVY_ACTIVATION_RELU; }

/* The bound of act(z), from the bound of z. */
static double activated_bound(const batchnorm_case *c, double z, double y, double bound) {
  const cvy_activation_params *const act = &c->p.activation;
  if (!has_activation(c)) return bound;
  const double steepest = act->kind == CVY_ACTIVATION_LEAKY_RELU ? fmax(1, fabs((double)act->a)) : 1.5;
  return steepest * bound + 8 * eps * case_activation_y_size(act, z, y);
}

/* Moments from which bounds are made: of an element, or of the first of its group and channel. */
typedef struct moments {
  double mean, invstd, mean_bound, invstd_rel;
} moments;

static moments moments_of(const batchnorm_case *c, const double *deviation, size_t g, size_t k) {
  const size_t n = (size_t)c->p.x.c;
  const double *const saved = c->base.tensors[SAVED].want;
  moments m = {.mean = saved[2 * g * n + k], .invstd = saved[(2 * g + 1) * n + k]};
  const double e = eps / 2 * fabs(m.mean);
  m.mean_bound = 2 * e + CASE_NORM_SUM_ERROR * eps * deviation[g * n + k] + tiny;
  m.invstd_rel = 0.5 * (CASE_NORM_SUM_ERROR * eps + 2 * e * m.invstd + e * e * m.invstd * m.invstd) + 4 * eps;
  return m;
}

static void forward_truth(batchnorm_case *c, const double *x, const double *residual) {
  op_case *const base = &c->base;
  const size_t n = (size_t)c->p.x.c;
  double *const deviation = case_doubles(&base->memory, c->groups * n), *const saved_bound = base->tensors[SAVED].bound,
                *const s_bound = base->tensors[S].bound;
  ref_batchnorm_forward(&c->p, base->n, c->group_size, c->batch, x, residual, c->gamma, c->beta, c->y,
                        base->tensors[SAVED].want, base->tensors[S].want);
  for (size_t i = 0; i < c->size; i++) {
    const size_t g = (size_t)group_of(c, i), at = g * n + i % n;
    deviation[at] = fmax(deviation[at], fabs(x[i] - base->tensors[SAVED].want[2 * g * n + i % n]));
  }
  for (size_t i = 0; i < c->size; i++) {
    const size_t k = i % n;
    const moments m = moments_of(c, deviation, (size_t)group_of(c, i), k);
    const double xhat = (x[i] - m.mean) * m.invstd,
                 xhat_bound = m.mean_bound * m.invstd + fabs(xhat) * (m.invstd_rel + 2 * eps);
    const double bound = fabs(c->gamma[k]) * xhat_bound + tiny +
                         2 * eps * (fabs(xhat * c->gamma[k]) + fabs(c->beta[k]) + (residual ? fabs(residual[i]) : 0));
    c->y_bound[i] = activated_bound(c, xhat * c->gamma[k] + c->beta[k], c->y[i], bound);
  }
  for (size_t at = 0; at < c->groups * n; at++) {
    const size_t g = at / n, k = at % n;
    const int size = c->size_of_group, samples = g + 1 < c->groups ? size : base->n - (int)g * size;
    const double weight = (double)samples / c->batch, values = samples * (double)(c->image / n);
    const moments m = moments_of(c, deviation, g, k);
    saved_bound[2 * g * n + k] = m.mean_bound;
    saved_bound[(2 * g + 1) * n + k] = m.invstd * m.invstd_rel;
    s_bound[k] += weight * (m.mean_bound + 4 * eps * fabs(m.mean)) + tiny;
    s_bound[n + k] += weight * values / (values - 1) * (2 * m.invstd_rel + 4 * eps) / (m.invstd * m.invstd) + tiny;
  }
}

/* The factor by which the activation passes the gradient, and its bound, from the values that the kernel reads. */
typedef struct slopes {
  double *at, *bound;
} slopes;

static slopes make_slopes(batchnorm_case *c, const float *given_saved, const float *given_y,
                          const float *given_affine) {
  op_case *const base = &c->base;
  const cvy_activation_params *const act = &c->p.activation;
  const size_t n = (size_t)c->p.x.c;
  const float *const x = base->tensors[X].data, *const gamma = base->tensors[GAMMA].data,
                     *const beta = base->tensors[BETA].data,
                     *const made = given_affine ? case_batchnorm_apply(c, given_affine) : given_y;
  const slopes s = {case_doubles(&base->memory, c->size), case_doubles(&base->memory, c->size)};
  for (size_t i = 0; i < c->size; i++) {
    const float *const saved = given_saved + (size_t)group_of(c, i) * 2 * n + i % n;
    const float z = made ? made[i] : fmaf((x[i] - saved[0]) * saved[n], gamma[i % n], beta[i % n]);
    double kept = (double)z;
    s.at[i] = 1;
    if (c->p.relu) s.at[i] = z > 0;
    if (!has_activation(c)) continue;
    if (!cvy_activation_keeps_x(act)) ref_activation(act, 1, &kept, &kept);
    ref_activation_backward(act, 1, &kept, &s.at[i], &s.at[i]);
    s.bound[i] = 8 * eps * case_activation_slope_size(act, kept);
  }
  return s;
}

static void backward_truth(batchnorm_case *c, const double *x, const double *dy, slopes slope) {
  op_case *const base = &c->base;
  case_memory *const memory = &base->memory;
  const size_t n = (size_t)c->p.x.c, all = c->groups * n;
  const double *const saved = base->tensors[SAVED].want;
  double *const dx = base->tensors[DX].want, *const dx_bound = base->tensors[DX].bound,
                *const dgamma_bound = base->tensors[DGAMMA].bound, *const dbeta_bound = base->tensors[DBETA].bound,
                *const dm = case_doubles(memory, c->size);
  ref_batchnorm_backward(&c->p, base->n, c->group_size, x, c->y, slope.at, dy, c->gamma, dx, dm,
                         base->tensors[DGAMMA].want, base->tensors[DBETA].want);
  if (c->p.residual) memcpy(base->tensors[DRESIDUAL].want, dm, c->size * sizeof *dm);
  /* first the sums of each group */
  double *const sum = case_doubles(memory, all), *const along = case_doubles(memory, all),
                *const sum_bound = case_doubles(memory, all), *const along_bound = case_doubles(memory, all),
                *const counts = case_doubles(memory, c->groups);
  for (int pass = 0; pass < 2; pass++)
    for (size_t i = 0; i < c->size; i++) {
      const size_t g = (size_t)group_of(c, i), k = i % n, at = g * n + k;
      const double mean = saved[2 * g * n + k], invstd = saved[(2 * g + 1) * n + k], xhat = (x[i] - mean) * invstd,
                   stored = eps * fabs(mean) * invstd, slope_error = slope.bound[i] * fabs(dy[i]);
      if (pass == 0) {
        sum[at] += dm[i];
        along[at] += dm[i] * xhat;
        sum_bound[at] += CASE_NORM_SUM_ERROR * eps * fabs(dm[i]) + slope_error;
        along_bound[at] +=
            CASE_NORM_SUM_ERROR * eps * fabs(dm[i] * xhat) + stored * fabs(dm[i]) + slope_error * fabs(xhat);
        counts[g] += k == 0;
      } else {
        const double a = sum[at] / counts[g], b = along[at] / counts[g],
                     terms = 4 * eps * (fabs(dm[i]) + fabs(a) + 2 * fabs(xhat * b)) + slope_error;
        dx_bound[i] = fabs(c->gamma[k]) * invstd *
                          (terms + (sum_bound[at] + fabs(xhat) * along_bound[at]) / counts[g] + stored * fabs(b)) +
                      tiny;
      }
    }
  for (size_t at = 0; at < all; at++) {
    dbeta_bound[at % n] += sum_bound[at] + eps * fabs(sum[at]) + tiny;
    dgamma_bound[at % n] += along_bound[at] + 4 * eps * fabs(along[at]) + tiny;
  }
}

/* Adds the old values; the bound grows by the rounding errors of the old values and of the sum. */
static void add_old(case_tensor *t) {
  const float *const old = t->data;
  for (size_t i = 0; old && i < case_size(t); i++) {
    t->want[i] += (double)old[i];
    t->bound[i] += eps * (fabs((double)old[i]) + fabs(t->want[i]));
  }
}

static void make_inference(batchnorm_case *c, case_rng *r, const double *x, const double *residual) {
  op_case *const base = &c->base;
  const int channels = c->p.x.c, pitch = c->p.x.pitch;
  const size_t n = (size_t)channels;
  float *const running = case_in(base, RUNNING, "running", 2, channels, pitch);
  case_fill(r, running, 2 * n, CASE_FILL_NORMAL);
  for (size_t k = n; k < 2 * n; k++) running[k] = fabsf(running[k]);
  case_tensor *const y = case_out(base, INFERRED, "y of inference", c->size / n, channels, pitch);
  y->lies_in = c->y_in_x ? 1 + X : 0;
  if (c->y_in_x) base->tensors[X].role = CASE_INOUT;
  ref_batchnorm_inference(&c->p, base->n, x, residual, c->gamma, c->beta, case_values(base, RUNNING), y->want);
  for (size_t i = 0; i < c->size; i++) {
    const size_t k = i % n;
    const double scale = fabs(c->gamma[k] / sqrt((double)running[n + k] + (double)c->p.eps));
    const double along = (x[i] - (double)running[k]) * (c->gamma[k] < 0 ? -scale : scale);
    const double bound = eps * (8 * fabs(along) + 2 * fabs(c->beta[k]) + (residual ? 2 * fabs(residual[i]) : 0)) + tiny;
    y->bound[i] = activated_bound(c, along + c->beta[k], y->want[i], bound);
  }
  if (c->p.deferred) y->role = CASE_NONE;
}

static void make_training(batchnorm_case *c, case_rng *r, const double *x, const double *residual,
                          case_fill_kind fill) {
  op_case *const base = &c->base;
  const int channels = c->p.x.c, pitch = c->p.x.pitch;
  const size_t n = (size_t)channels, rows = c->size / n;
  float *const dy = case_in(base, DY, "dy", rows, channels, pitch), *const old = case_floats(&base->memory, c->size),
               *const old_grad = case_floats(&base->memory, n), *const old_s = case_floats(&base->memory, 2 * n);
  for (size_t j = 0; j < 2 * n; j++) old_s[j] = (float)(j % 7) - 3.0f;
  case_fill(r, dy, c->size, fill);
  case_fill(r, old, c->size, CASE_FILL_INTEGERS);
  case_fill(r, old_grad, n, CASE_FILL_INTEGERS);
  if (c->stats) image_stats(c, base->tensors[X].data);
  case_out(base, SAVED, "saved", 2 * c->groups, channels, pitch);
  case_sum_out(base, S, "s", 2, channels, pitch, c->accumulate ? old_s : NULL);
  case_tensor *const y = case_out(base, Y, "y", rows, channels, pitch);
  c->y = y->want, c->y_bound = y->bound;
  forward_truth(c, x, residual);
  add_old(&base->tensors[S]);

  const double *const saved = base->tensors[SAVED].want;
  float *const given_saved = case_in(base, GIVEN_SAVED, "given saved", 2 * c->groups, channels, pitch);
  for (size_t i = 0; i < 2 * c->groups * n; i++) given_saved[i] = (float)saved[i];
  float *affine = NULL, *given_y = NULL;
  if (c->p.deferred) {
    y->role = CASE_NONE;
    affine = case_in(base, GIVEN_AFFINE, "given affine", 3 * c->groups, channels, pitch);
    for (size_t at = 0; at < c->groups * n; at++) {
      float *const a = affine + at / n * 3 * n + at % n;
      a[0] = (float)saved[at / n * 2 * n + at % n];
      a[n] = (float)(c->gamma[at % n] * saved[(at / n * 2 + 1) * n + at % n]);
      a[2 * n] = (float)c->beta[at % n];
    }
  } else if (c->p.relu && c->p.residual) {
    given_y = case_in(base, GIVEN_Y, "given y", rows, channels, pitch);
    for (size_t i = 0; i < c->size; i++) given_y[i] = (float)y->want[i];
  }
  const slopes slope = make_slopes(c, given_saved, given_y, affine);
  case_out(base, DX, "dx", rows, channels, pitch)->lies_in = c->place == 1 ? 1 + DY : 0;
  if (c->p.residual) {
    case_tensor *const t =
        case_sum_out(base, DRESIDUAL, "dresidual", rows, channels, pitch, c->accumulate_dresidual ? old : NULL);
    t->bound = NULL;
    t->lies_in = c->place == 2 ? 1 + DY : 0;
  }
  if (c->place) base->tensors[DY].role = CASE_INOUT;
  case_sum_out(base, DGAMMA, "dgamma", 1, channels, pitch, c->accumulate ? old_grad : NULL);
  case_sum_out(base, DBETA, "dbeta", 1, channels, pitch, c->accumulate ? old_grad : NULL);
  backward_truth(c, x, case_values(base, DY), slope);
  add_old(&base->tensors[DGAMMA]);
  add_old(&base->tensors[DBETA]);
  for (size_t i = 0; c->p.residual && c->accumulate_dresidual && i < c->size; i++)
    base->tensors[DRESIDUAL].want[i] = (double)(old[i] + (float)base->tensors[DRESIDUAL].want[i]);
}

void case_batchnorm(batchnorm_case *c, case_rng *r) {
  op_case *const base = &c->base;
  const int channels = c->p.x.c, pitch = c->p.x.pitch;
  const size_t n = (size_t)channels, rows = (size_t)base->n * (size_t)(c->p.x.h * c->p.x.w);
  const case_fill_kind fill = c->fill == CASE_FILL_OFFSET ? CASE_FILL_NORMAL : c->fill;
  base->calls = &calls;
  c->size = rows * n, c->image = c->size / (size_t)base->n;
  c->size_of_group = c->group_size == 0 || c->group_size > base->n ? base->n : c->group_size;
  c->groups = (size_t)cvy_ceil_div(base->n, c->size_of_group);
  float *const x = case_in(base, X, "x", rows, channels, pitch),
               *const gamma = case_in(base, GAMMA, "gamma", 1, channels, pitch),
               *const beta = case_in(base, BETA, "beta", 1, channels, pitch);
  if (c->x) memcpy(x, c->x, c->size * sizeof *x);
  else case_fill(r, x, c->size, c->fill);
  for (size_t i = 0; !c->x && c->fill == CASE_FILL_OFFSET && i < c->size; i++) /* mean 1000, deviation 1e-2 */
    if (i % n % 2) x[i] = 1000.0f + 1e-2f * (x[i] - 1000.0f);
  if (c->p.residual) case_fill(r, case_in(base, RESIDUAL, "residual", rows, channels, pitch), c->size, fill);
  case_fill(r, gamma, n, CASE_FILL_NORMAL);
  case_fill(r, beta, n, CASE_FILL_NORMAL);
  c->gamma = case_values(base, GAMMA), c->beta = case_values(base, BETA);
  const double *const x64 = case_values(base, X), *const residual = c->p.residual ? case_values(base, RESIDUAL) : NULL;
  if (c->p.deferred) {
    case_tensor *const affine = case_out(base, AFFINE, "affine", 3 * c->groups, channels, pitch);
    case_tensor *const inferred = case_out(base, INFERRED_AFFINE, "affine", 3, channels, pitch);
    affine->want = affine->bound = inferred->want = inferred->bound = NULL;
  }
  const unsigned training = CASE_BIT(1) | CASE_BIT(2);
  if (c->p.inference) base->left_out |= training;
  if ((base->left_out & training) != training) make_training(c, r, x64, residual, fill);
  if (!(base->left_out & CASE_BIT(0))) make_inference(c, r, x64, residual);
  static const int shared[] = {GAMMA,  BETA,        RUNNING,      INFERRED_AFFINE, SAVED, S,
                               AFFINE, GIVEN_SAVED, GIVEN_AFFINE, DGAMMA,          DBETA};
  for (size_t i = 0; i < sizeof shared / sizeof *shared; i++) base->tensors[shared[i]].shared = true;
}

cvy_activation_params case_activation_behind_norm(int number) {
  static const struct {
    cvy_activation_kind kind;
    float a, b;
  } all[] = {
      {CVY_ACTIVATION_CLIP, 0, 6},          {CVY_ACTIVATION_SILU, 0, 0},     {CVY_ACTIVATION_HARD_SWISH, 0, 0},
      {CVY_ACTIVATION_GELU, 0, 0},          {CVY_ACTIVATION_TANH, 0, 0},     {CVY_ACTIVATION_GELU_TANH, 0, 0},
      {CVY_ACTIVATION_LEAKY_RELU, 0.1f, 0}, {CVY_ACTIVATION_CLIP, -0.5f, 1}, {CVY_ACTIVATION_LEAKY_RELU, -0.25f, 0},
      {CVY_ACTIVATION_ELU, 1, 1},           {CVY_ACTIVATION_CELU, 0.5f, 0},  {CVY_ACTIVATION_MISH, 0, 0},
      {CVY_ACTIVATION_SWISH, 1.702f, 0}};
  const int at = number % (int)(sizeof all / sizeof *all);
  return (cvy_activation_params){.kind = all[at].kind, .a = all[at].a, .b = all[at].b};
}

batchnorm_case case_batchnorm_random(case_rng *r, int number) {
  const int i = number, channels = case_edge(r, 16, 70), n = case_int(r, 1, 9);
  batchnorm_case c = {.base.n = n, .stats = i % 3 == 0, .accumulate = i % 5 == 0};
  c.batch = n + case_int(r, 0, 20);
  c.fill = i % 4 == 0 ? CASE_FILL_OFFSET
                      : (case_fill_kind)CASE_ONE_OF(r, CASE_FILL_NORMAL, CASE_FILL_SMALL, CASE_FILL_LARGE,
                                                    CASE_FILL_CANCEL, CASE_FILL_OUTLIERS, CASE_FILL_INTEGERS);
  c.p.eps = 1e-5f, c.p.n_max = n + case_int(r, 0, 2), c.p.x.c = channels;
  c.p.x.pitch = channels <= 4 && i % 2 ? cvy_input_pitch_of(channels) : i % 11 == 0 ? channels : cvy_pitch_of(channels);
  c.p.x.h = case_edge(r, 4, 17), c.p.x.w = case_edge(r, 4, 17);
  c.p.relu = case_int(r, 0, 1), c.p.residual = case_int(r, 0, 1);
  c.p.deferred = !c.p.residual && case_int(r, 0, 1);
  if (!c.p.residual && !c.p.deferred && i % 4 != 1) {
    c.p.relu = false;
    c.p.activation = case_activation_behind_norm(i / 4);
  }
  c.group_size = i % 2 ? 0 : case_int(r, 1, n + 2);
  const int size = c.group_size == 0 || c.group_size > n ? n : c.group_size, last = n - (n - 1) / size * size;
  if (last * c.p.x.h * c.p.x.w < 2) c.p.x.h = 2;
  c.place = case_int(r, 0, c.p.residual ? 2 : 1);
  c.accumulate_dresidual = c.p.residual && c.place != 2 && case_int(r, 0, 1);
  return c;
}
