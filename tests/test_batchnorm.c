/* SPDX-License-Identifier: MIT
 * Batch normalisation against the reference in double. Where the bounds come from (eps = 2^-23, e = eps/2*|mean| the
 * rounding of a stored mean, D the largest |x - mean| of the channel, K the growth of the rounding errors of the sums,
 * see SUM_ERROR):
 *   mean      <= 2e + K*eps*D                         var (relative) <= K*eps + 2e/sd + (e/sd)²        invstd: half of
 *             that
 *   xhat      <= mean's bound * invstd + |xhat| * invstd's
 *   dbeta     <= K*eps*sum|dm|                        dgamma <= K*eps*sum|dm*xhat| + 2e*invstd*sum|dm|
 * dx follows from its formula. A naive E[x²] - E[x]² is off by eps*mean²/var: a thousand times more than the bound
 * with CASE_FILL_OFFSET. */
#include <float.h>
#include <math.h>

#include "src/ops/batchnorm.h"
#include "src/ref/ref.h"
#include "tests/check.h"

enum { SUM_ERROR = 24 };

typedef struct bn_case {
  cvy_batchnorm_params p;
  int n, group_size, batch;
  bool stats; /* statistics per image are given */
  bool accumulate, accumulate_dresidual;
  int place; /* backward: 0 all apart, 1 dx is dy, 2 dresidual is dy */
  case_fill_kind fill;
} bn_case;

/* Everything in double that a case needs, dense. */
typedef struct bn_truth {
  size_t size, groups;
  int c, size_of_group;
  double *x, *residual, *gamma, *beta, *y, *saved, *s;
  double *mean_tol, *invstd_rel, *deviation; /* (groups, c): bounds of mean and invstd (relative), and D */
} bn_truth;

static size_t per_image(const bn_case *k) { return (size_t)k->p.x.h * (size_t)k->p.x.w; }
static int group_of(const bn_truth *t, const bn_case *k, size_t i) {
  return (int)(i / (size_t)t->c / per_image(k)) / t->size_of_group;
}

static void fill_x(case_rng *r, float *x, size_t n, int c, case_fill_kind kind) {
  case_fill(r, x, n, kind);
  if (kind == CASE_FILL_OFFSET) /* mean 1000, deviation 1e-2 on every second channel */
    for (size_t i = 0; i < n; i++)
      if ((i % (size_t)c) % 2) x[i] = 1000.0f + 1e-2f * (x[i] - 1000.0f);
}

static bn_truth make_truth(check_device *d, const bn_case *k, const float *x, const float *residual, const float *gamma,
                           const float *beta) {
  const int c = k->p.x.c, size = k->group_size == 0 || k->group_size > k->n ? k->n : k->group_size;
  bn_truth t = {.size = (size_t)k->n * per_image(k) * (size_t)c, .c = c, .size_of_group = size};
  t.groups = (size_t)((k->n + size - 1) / size);
  t.x = check_to_doubles(d, x, t.size);
  t.residual = residual ? check_to_doubles(d, residual, t.size) : NULL;
  t.gamma = check_to_doubles(d, gamma, (size_t)c);
  t.beta = check_to_doubles(d, beta, (size_t)c);
  t.y = check_doubles(d, t.size);
  t.saved = check_doubles(d, t.groups * 2 * (size_t)c);
  t.s = check_doubles(d, 2 * (size_t)c);
  ref_batchnorm_forward(&k->p, k->n, k->group_size, k->batch, t.x, t.residual, t.gamma, t.beta, t.y, t.saved, t.s);
  t.mean_tol = check_doubles(d, t.groups * (size_t)c);
  t.invstd_rel = check_doubles(d, t.groups * (size_t)c);
  t.deviation = check_doubles(d, t.groups * (size_t)c);
  for (size_t i = 0; i < t.size; i++) {
    const size_t g = (size_t)group_of(&t, k, i), ch = i % (size_t)c, at = g * (size_t)c + ch;
    t.deviation[at] = fmax(t.deviation[at], fabs(t.x[i] - t.saved[2 * g * (size_t)c + ch]));
  }
  for (size_t g = 0; g < t.groups; g++)
    for (size_t ch = 0; ch < (size_t)c; ch++) {
      const size_t at = g * (size_t)c + ch;
      const double mean = t.saved[2 * g * (size_t)c + ch], invstd = t.saved[(2 * g + 1) * (size_t)c + ch],
                   e = FLT_EPSILON / 2 * fabs(mean);
      t.mean_tol[at] = 2 * e + SUM_ERROR * FLT_EPSILON * t.deviation[at] + FLT_MIN;
      t.invstd_rel[at] = 0.5 * (SUM_ERROR * FLT_EPSILON + 2 * e * invstd + e * e * invstd * invstd) + 4 * FLT_EPSILON;
    }
  return t;
}

/* Bounds of y and of saved and s. */
static void forward_bounds(check_device *d, const bn_truth *t, const bn_case *k, double **y_tol, double **saved_tol,
                           double **s_tol) {
  const size_t c = (size_t)t->c;
  *y_tol = check_doubles(d, t->size);
  *saved_tol = check_doubles(d, t->groups * 2 * c);
  *s_tol = check_doubles(d, 2 * c);
  for (size_t i = 0; i < t->size; i++) {
    const size_t g = (size_t)group_of(t, k, i), ch = i % c, at = g * c + ch;
    const double mean = t->saved[2 * g * c + ch], invstd = t->saved[(2 * g + 1) * c + ch],
                 xhat = (t->x[i] - mean) * invstd;
    const double xhat_tol = t->mean_tol[at] * invstd + fabs(xhat) * (t->invstd_rel[at] + 2 * FLT_EPSILON);
    (*y_tol)[i] =
        fabs(t->gamma[ch]) * xhat_tol + FLT_MIN +
        2 * FLT_EPSILON * (fabs(xhat * t->gamma[ch]) + fabs(t->beta[ch]) + (t->residual ? fabs(t->residual[i]) : 0));
  }
  for (size_t g = 0; g < t->groups; g++) {
    const double samples = (double)(g + 1 < t->groups ? t->size_of_group : k->n - (int)g * t->size_of_group),
                 weight = samples / k->batch;
    const double m = samples * (double)per_image(k);
    for (size_t ch = 0; ch < c; ch++) {
      const size_t at = g * c + ch;
      const double mean = t->saved[2 * g * c + ch], invstd = t->saved[(2 * g + 1) * c + ch],
                   var = 1 / (invstd * invstd);
      (*saved_tol)[2 * g * c + ch] = t->mean_tol[at];
      (*saved_tol)[(2 * g + 1) * c + ch] = invstd * t->invstd_rel[at];
      (*s_tol)[ch] += weight * (t->mean_tol[at] + 4 * FLT_EPSILON * fabs(mean)) + FLT_MIN;
      (*s_tol)[c + ch] += weight * m / (m - 1) * var * (2 * t->invstd_rel[at] + 4 * FLT_EPSILON) + FLT_MIN;
    }
  }
}

/* Per-image (mean, M2), (N,2,C), as a convolution's epilogue gives them. */
static float *image_stats(check_device *d, const bn_truth *t, const bn_case *k) {
  const size_t c = (size_t)t->c, hw = per_image(k);
  float *const stats = check_floats(d, (size_t)k->n * 2 * c);
  for (size_t i = 0; i < (size_t)k->n; i++)
    for (size_t ch = 0; ch < c; ch++) {
      double mean = 0, squares = 0;
      for (size_t j = 0; j < hw; j++) mean += t->x[(i * hw + j) * c + ch] / (double)hw;
      for (size_t j = 0; j < hw; j++) squares += pow(t->x[(i * hw + j) * c + ch] - mean, 2);
      stats[2 * i * c + ch] = (float)mean;
      stats[(2 * i + 1) * c + ch] = (float)squares;
    }
  return stats;
}

/* y as the readers of a deferred one make it. */
static const float *apply(check_device *d, const bn_truth *t, const bn_case *k, const float *x, const float *affine) {
  float *const y = check_floats(d, t->size);
  for (size_t i = 0; i < t->size; i++) {
    const float *const a = affine + (size_t)group_of(t, k, i) * 3 * (size_t)t->c + i % (size_t)t->c;
    y[i] = fmaf(x[i] - a[0], a[t->c], a[2 * t->c]);
    if (k->p.relu && !(y[i] > 0)) y[i] = 0;
  }
  return y;
}

static void forward(check_device *d, cvy_batchnorm *op, const bn_case *k, const bn_truth *t, const float *x,
                    const float *residual, const float *gamma, const float *beta) {
  const int rows = (int)(t->size / (size_t)t->c), c = t->c, pitch = k->p.x.pitch, groups = (int)t->groups;
  double *y_tol, *saved_tol, *s_tol;
  forward_bounds(d, t, k, &y_tol, &saved_tol, &s_tol);
  check_buffer *const bx = check_input(d, "x", x, rows, c, pitch), *const b_gamma =
                                                                       check_input(d, "gamma", gamma, 1, c, pitch);
  check_buffer *const b_beta = check_input(d, "beta", beta, 1, c, pitch);
  check_buffer *const b_residual = residual ? check_input(d, "residual", residual, rows, c, pitch) : NULL;
  check_buffer *const b_stats = k->stats ? check_input(d, "stats", image_stats(d, t, k), 2 * k->n, c, pitch) : NULL;
  check_buffer *const workspace = check_scratch(d, "workspace", cvy_batchnorm_workspace_bytes(op));
  if (cvy_batchnorm_saved_bytes(&k->p, k->group_size) < t->groups * 2 * (size_t)pitch * sizeof(float))
    check_fail(d, "saved_bytes is %zu for %d groups", cvy_batchnorm_saved_bytes(&k->p, k->group_size), groups);
  const float *first = NULL, *first_s = NULL;
  for (int run = 0; run < 2; run++) {
    float *const old = check_floats(d, 2 * (size_t)c);
    for (int j = 0; j < 2 * c; j++) old[j] = (float)(j % 7) - 3.0f;
    check_buffer *const by = k->p.deferred ? NULL : check_output(d, "y", rows, c, pitch);
    check_buffer *const saved = check_output(d, "saved", 2 * groups, c, pitch);
    check_buffer *const affine = k->p.deferred ? check_output(d, "affine", 3 * groups, c, pitch) : NULL;
    check_buffer *const s = k->accumulate ? check_inout(d, "s", old, 2, c, pitch) : check_output(d, "s", 2, c, pitch);
    check_ok(cvy_batchnorm_forward_training(op, d->queue, k->n, k->group_size, k->batch, bx->cl,
                                            b_stats ? b_stats->cl : NULL, b_residual ? b_residual->cl : NULL,
                                            b_gamma->cl, b_beta->cl, by ? by->cl : NULL, affine ? affine->cl : NULL,
                                            saved->cl, s->cl, k->accumulate, workspace->cl, NULL));
    const float *const y = by ? check_download(by) : apply(d, t, k, x, check_download(affine));
    const float *const got_s = check_download(s);
    if (run == 0) {
      double *const want_s = check_doubles(d, 2 * (size_t)c);
      for (int j = 0; j < 2 * c; j++) {
        want_s[j] = t->s[j] + (k->accumulate ? old[j] : 0);
        s_tol[j] += k->accumulate ? FLT_EPSILON * (fabs((double)old[j]) + fabs(want_s[j])) : 0;
      }
      check_close(d, "saved", check_download(saved), t->saved, saved_tol, 2 * t->groups, c);
      check_close(d, "s", got_s, want_s, s_tol, 2, c);
      check_close(d, "y", y, t->y, y_tol, (size_t)rows, c);
      first = y;
      first_s = got_s;
    } else {
      check_same(d, "y again", y, first, (size_t)rows, c);
      check_same(d, "s again", got_s, first_s, 2, c);
    }
  }
}

static void backward(check_device *d, case_rng *r, cvy_batchnorm *op, const bn_case *k, const bn_truth *t,
                     const float *x, const float *gamma) {
  const int rows = (int)(t->size / (size_t)t->c), pitch = k->p.x.pitch, groups = (int)t->groups;
  const size_t c = (size_t)t->c;
  float *const y = check_floats(d, t->size), *const dy = check_floats(d, t->size),
               *const saved = check_floats(d, t->groups * 2 * c);
  float *const old = check_floats(d, t->size), *const old_grad = check_floats(d, c);
  case_fill(r, dy, t->size, k->fill == CASE_FILL_OFFSET ? CASE_FILL_NORMAL : k->fill);
  case_fill(r, old, t->size, CASE_FILL_INTEGERS);
  case_fill(r, old_grad, c, CASE_FILL_INTEGERS);
  unsigned char *const mask = (unsigned char *)check_floats(d, t->size);
  float *const affine = check_floats(d, t->groups * 3 * c);
  for (size_t at = 0; at < t->groups * c; at++) {
    const size_t g = at / c, ch = at % c;
    float *const a = affine + 3 * g * c + ch;
    a[0] = (float)t->saved[2 * g * c + ch];
    a[c] = (float)(t->gamma[ch] * t->saved[(2 * g + 1) * c + ch]);
    a[2 * c] = (float)t->beta[ch];
  }
  const float *const y_deferred = k->p.deferred ? apply(d, t, k, x, affine) : NULL;
  for (size_t i = 0; i < t->size; i++) mask[i] = (y[i] = y_deferred ? y_deferred[i] : (float)t->y[i]) > 0;
  for (size_t i = 0; i < t->groups * 2 * c; i++) saved[i] = (float)t->saved[i];
  double *const dy_ref = check_to_doubles(d, dy, t->size), *const dx = check_doubles(d, t->size),
                *const dm = check_doubles(d, t->size);
  double *const dgamma = check_doubles(d, c), *const dbeta = check_doubles(d, c);
  ref_batchnorm_backward(&k->p, k->n, k->group_size, t->x, t->y, mask, dy_ref, t->gamma, dx, dm, dgamma, dbeta);

  /* bounds: sums of each group first */
  double *const sum_tol = check_doubles(d, t->groups * c), *const along_tol = check_doubles(d, t->groups * c),
                *const counts = check_doubles(d, t->groups);
  double *const sum = check_doubles(d, t->groups * c), *const along = check_doubles(d, t->groups * c),
                *const dx_tol = check_doubles(d, t->size);
  double *const dgamma_tol = check_doubles(d, c), *const dbeta_tol = check_doubles(d, c);
  for (size_t i = 0; i < t->size; i++) {
    const size_t g = (size_t)group_of(t, k, i), ch = i % c, at = g * c + ch;
    const double mean = t->saved[2 * g * c + ch], invstd = t->saved[(2 * g + 1) * c + ch],
                 xhat = (t->x[i] - mean) * invstd;
    sum[at] += dm[i];
    along[at] += dm[i] * xhat;
    sum_tol[at] += SUM_ERROR * FLT_EPSILON * fabs(dm[i]);
    along_tol[at] += SUM_ERROR * FLT_EPSILON * fabs(dm[i] * xhat) + FLT_EPSILON * fabs(mean) * invstd * fabs(dm[i]);
    if (ch == 0) counts[g] += 1;
  }
  for (size_t i = 0; i < t->size; i++) {
    const size_t g = (size_t)group_of(t, k, i), ch = i % c, at = g * c + ch;
    const double mean = t->saved[2 * g * c + ch], invstd = t->saved[(2 * g + 1) * c + ch],
                 xhat = (t->x[i] - mean) * invstd;
    const double a = sum[at] / counts[g], b = along[at] / counts[g];
    dx_tol[i] = fabs(t->gamma[ch]) * invstd *
                    (4 * FLT_EPSILON * (fabs(dm[i]) + fabs(a) + 2 * fabs(xhat * b)) + sum_tol[at] / counts[g] +
                     fabs(xhat) * along_tol[at] / counts[g] + FLT_EPSILON * fabs(mean) * invstd * fabs(b)) +
                FLT_MIN;
  }
  for (size_t at = 0; at < t->groups * c; at++) {
    dbeta_tol[at % c] += sum_tol[at] + FLT_EPSILON * fabs(sum[at]) + FLT_MIN;
    dgamma_tol[at % c] += along_tol[at] + 4 * FLT_EPSILON * fabs(along[at]) + FLT_MIN;
  }
  for (size_t ch = 0; k->accumulate && ch < c; ch++) {
    dgamma[ch] += old_grad[ch];
    dbeta[ch] += old_grad[ch];
    dgamma_tol[ch] += FLT_EPSILON * (fabs((double)old_grad[ch]) + fabs(dgamma[ch]));
    dbeta_tol[ch] += FLT_EPSILON * (fabs((double)old_grad[ch]) + fabs(dbeta[ch]));
  }

  check_buffer *const bx = check_input(d, "x", x, rows, t->c, pitch), *const by =
                                                                          check_input(d, "y", y, rows, t->c, pitch);
  check_buffer *const b_gamma = check_input(d, "gamma", gamma, 1, t->c, pitch);
  check_buffer *const b_saved = check_input(d, "saved", saved, 2 * groups, t->c, pitch);
  check_buffer *const bdy =
      k->place == 0 ? check_input(d, "dy", dy, rows, t->c, pitch) : check_inout(d, "dy", dy, rows, t->c, pitch);
  check_buffer *const bdx = k->place == 1 ? bdy : check_output(d, "dx", rows, t->c, pitch);
  check_buffer *const dresidual = !k->p.residual            ? NULL
                                  : k->place == 2           ? bdy
                                  : k->accumulate_dresidual ? check_inout(d, "dresidual", old, rows, t->c, pitch)
                                                            : check_output(d, "dresidual", rows, t->c, pitch);
  check_buffer *const b_dgamma =
      k->accumulate ? check_inout(d, "dgamma", old_grad, 1, t->c, pitch) : check_output(d, "dgamma", 1, t->c, pitch);
  check_buffer *const b_dbeta =
      k->accumulate ? check_inout(d, "dbeta", old_grad, 1, t->c, pitch) : check_output(d, "dbeta", 1, t->c, pitch);
  check_buffer *const workspace = check_scratch(d, "workspace", cvy_batchnorm_workspace_bytes(op));
  check_buffer *const b_affine = check_input(d, "affine", affine, 3 * groups, t->c, pitch);
  check_ok(cvy_batchnorm_backward(
      op, d->queue, k->n, k->group_size, bx->cl, k->p.relu && !k->p.deferred ? by->cl : NULL,
      k->p.deferred ? b_affine->cl : NULL, bdy->cl, b_gamma->cl, b_saved->cl, bdx->cl, dresidual ? dresidual->cl : NULL,
      k->accumulate_dresidual, b_dgamma->cl, b_dbeta->cl, k->accumulate, workspace->cl, NULL));
  const float *const got = check_download(bdx);
  check_close(d, "dbeta", check_download(b_dbeta), dbeta, dbeta_tol, 1, t->c);
  check_close(d, "dgamma", check_download(b_dgamma), dgamma, dgamma_tol, 1, t->c);
  check_close(d, "dx", got, dx, dx_tol, (size_t)rows, t->c);
  if (dresidual) {
    float *const want = check_floats(d, t->size);
    for (size_t i = 0; i < t->size; i++) want[i] = (k->accumulate_dresidual ? old[i] : 0.0f) + (float)dm[i];
    check_same(d, "dresidual", check_download(dresidual), want, (size_t)rows, t->c);
  }
  /* The gradient of a bias in front is 0 up to rounding (1e-5 of the terms' sum). */
  for (size_t ch = 0; k->fill == CASE_FILL_NORMAL && t->groups == 1 && ch < c; ch++) {
    double total = 0, mag = 0;
    for (size_t i = ch; i < t->size; i += c) {
      total += got[i];
      mag += fabs((double)got[i]);
    }
    if (!(fabs(total) <= 1e-5 * mag + FLT_MIN))
      check_fail(d, "dx of channel %zu sums up to %.3g, terms to %.3g", ch, total, mag);
  }
}

static void run_case(check_device *d, case_rng *r, const bn_case *k) {
  const size_t size = (size_t)k->n * per_image(k) * (size_t)k->p.x.c;
  float *const x = check_floats(d, size), *const residual = k->p.residual ? check_floats(d, size) : NULL;
  float *const gamma = check_floats(d, (size_t)k->p.x.c), *const beta = check_floats(d, (size_t)k->p.x.c);
  fill_x(r, x, size, k->p.x.c, k->fill);
  if (residual) case_fill(r, residual, size, k->fill == CASE_FILL_OFFSET ? CASE_FILL_NORMAL : k->fill);
  case_fill(r, gamma, (size_t)k->p.x.c, CASE_FILL_NORMAL);
  case_fill(r, beta, (size_t)k->p.x.c, CASE_FILL_NORMAL);
  const bn_truth t = make_truth(d, k, x, residual, gamma, beta);
  cvy_batchnorm *op = NULL;
  check_ok(cvy_batchnorm_create(d->cl, &k->p, &op));
  forward(d, op, k, &t, x, residual, gamma, beta);
  backward(d, r, op, k, &t, x, gamma);
  check_case_end(d);
  cvy_batchnorm_destroy(&op);
}

static bool named(check_device *d, const bn_case *k, int number) {
  return check_case(d,
                    "bn number=%d n=%d h=%d w=%d c=%d pitch=%d group=%d batch=%d relu=%d residual=%d deferred=%d "
                    "stats=%d accumulate=%d,%d place=%d fill=%d",
                    number, k->n, k->p.x.h, k->p.x.w, k->p.x.c, k->p.x.pitch, k->group_size, k->batch, k->p.relu,
                    k->p.residual, k->p.deferred, k->stats, k->accumulate, k->accumulate_dresidual, k->place,
                    (int)k->fill);
}

static void test_shapes(check_device *d) {
  for (int i = 0; i < (getenv("CVY_TEST_FULL") ? 240 : getenv("CVY_TEST_OCLGRIND") ? 16 : 64); i++) {
    case_rng r = check_rng_make(d, i);
    const int c = case_edge(&r, 16, 70), n = case_int(&r, 1, 9);
    bn_case k = {.n = n,
                 .batch = n + case_int(&r, 0, 20),
                 .stats = i % 3 == 0,
                 .accumulate = i % 5 == 0,
                 .fill = i % 4 == 0
                             ? CASE_FILL_OFFSET
                             : (case_fill_kind)CASE_ONE_OF(&r, CASE_FILL_NORMAL, CASE_FILL_SMALL, CASE_FILL_LARGE,
                                                           CASE_FILL_CANCEL, CASE_FILL_OUTLIERS, CASE_FILL_INTEGERS)};
    const int pitch = c <= 4 && i % 2 ? cvy_input_pitch_of(c) : i % 11 == 0 ? c : cvy_pitch_of(c);
    k.p = (cvy_batchnorm_params){.n_max = n + case_int(&r, 0, 2),
                                 .x = {case_edge(&r, 4, 17), case_edge(&r, 4, 17), c, pitch},
                                 .eps = 1e-5f,
                                 .relu = case_int(&r, 0, 1),
                                 .residual = case_int(&r, 0, 1)};
    k.p.deferred = !k.p.residual && case_int(&r, 0, 1);
    k.group_size = i % 2 ? 0 : case_int(&r, 1, n + 2);
    const int size = k.group_size == 0 || k.group_size > n ? n : k.group_size, last = n - (n - 1) / size * size;
    if ((size_t)last * per_image(&k) < 2) k.p.x.h = 2;
    k.place = case_int(&r, 0, k.p.residual ? 2 : 1);
    k.accumulate_dresidual = k.p.residual && k.place != 2 && case_int(&r, 0, 1);
    if (named(d, &k, i)) run_case(d, &r, &k);
  }
}

/* The networks' shapes, one large image, many tiny ones. */
static void test_fixed(check_device *d) {
  static const struct {
    int n, h, w, c, pitch, group;
  } cases[] = {
      {3, 28, 28, 64, 64, 0}, {4, 14, 14, 128, 128, 2}, {5, 7, 7, 256, 256, 0},  {6, 4, 4, 512, 512, 4},
      {150, 1, 1, 20, 32, 0}, {64, 1, 1, 64, 64, 2},    {1, 120, 97, 16, 16, 0}, {1, 150, 83, 3, 4, 0},
      {1, 1, 301, 1, 1, 0},   {33, 2, 3, 48, 48, 7},
  };
  for (int i = 0; i < 2 * (int)(sizeof cases / sizeof *cases); i++) {
    case_rng r = check_rng_make(d, 3000 + i);
    const int at = i / 2;
    bn_case k = {.n = cases[at].n,
                 .group_size = cases[at].group,
                 .batch = cases[at].n,
                 .stats = i % 2,
                 .fill = i % 2 ? CASE_FILL_NORMAL : CASE_FILL_OFFSET};
    k.p = (cvy_batchnorm_params){.n_max = k.n,
                                 .x = {cases[at].h, cases[at].w, cases[at].c, cases[at].pitch},
                                 .eps = 1e-5f,
                                 .relu = i % 4 < 2,
                                 .residual = i % 3 == 0};
    k.place = k.p.residual ? 2 : 1;
    if (getenv("CVY_TEST_OCLGRIND") && k.n * k.p.x.h * k.p.x.w * k.p.x.c > 50000)
      continue; /* a thousand times slower there */
    if (named(d, &k, i)) run_case(d, &r, &k);
  }
}

static void test_inference(check_device *d) {
  for (int i = 0; i < 20; i++) {
    case_rng r = check_rng_make(d, 4000 + i);
    const int n = case_int(&r, 1, 9), c = case_edge(&r, 16, 70),
              pitch = c <= 4 && i % 2 ? cvy_input_pitch_of(c) : cvy_pitch_of(c);
    const cvy_batchnorm_params p = {.n_max = n,
                                    .x = {case_edge(&r, 4, 17), case_edge(&r, 4, 17), c, pitch},
                                    .eps = 1e-3f,
                                    .relu = i % 2,
                                    .residual = i % 4 > 1,
                                    .inference = i % 3 != 0};
    const bool in_place = i % 5 == 0;
    if (!check_case(d, "inference number=%d n=%d h=%d w=%d c=%d pitch=%d in_place=%d", i, n, p.x.h, p.x.w, c, pitch,
                    in_place))
      continue;
    const int rows = n * p.x.h * p.x.w;
    const size_t size = (size_t)rows * (size_t)c;
    float *const x = check_floats(d, size), *const residual = check_floats(d, size),
                 *const gamma = check_floats(d, (size_t)c);
    float *const beta = check_floats(d, (size_t)c), *const running = check_floats(d, 2 * (size_t)c);
    case_fill(&r, x, size, CASE_FILL_ANY);
    case_fill(&r, residual, size, CASE_FILL_ANY);
    case_fill(&r, gamma, (size_t)c, CASE_FILL_NORMAL);
    case_fill(&r, beta, (size_t)c, CASE_FILL_NORMAL);
    case_fill(&r, running, 2 * (size_t)c, CASE_FILL_NORMAL);
    for (int j = c; j < 2 * c; j++) running[j] = fabsf(running[j]);
    double *const want = check_doubles(d, size), *const tol = check_doubles(d, size);
    ref_batchnorm_inference(&p, n, check_to_doubles(d, x, size),
                            p.residual ? check_to_doubles(d, residual, size) : NULL,
                            check_to_doubles(d, gamma, (size_t)c), check_to_doubles(d, beta, (size_t)c),
                            check_to_doubles(d, running, 2 * (size_t)c), want);
    for (size_t j = 0; j < size; j++) {
      const size_t ch = j % (size_t)c;
      const double scale = fabs(gamma[ch] / sqrt((double)running[(size_t)c + ch] + 1e-3));
      tol[j] = FLT_EPSILON * (8 * scale * fabs((double)x[j] - running[ch]) + 2 * fabs((double)beta[ch]) +
                              (p.residual ? 2 * fabs((double)residual[j]) : 0)) +
               FLT_MIN;
    }
    cvy_batchnorm *op = NULL;
    check_ok(cvy_batchnorm_create(d->cl, &p, &op));
    check_buffer *const bx = in_place ? check_inout(d, "x", x, rows, c, pitch) : check_input(d, "x", x, rows, c, pitch);
    check_buffer *const by = in_place ? bx : check_output(d, "y", rows, c, pitch);
    check_buffer *const b_residual = check_input(d, "residual", residual, rows, c, pitch), *const b_gamma = check_input(
                                                                                               d, "gamma", gamma, 1, c,
                                                                                               pitch);
    check_buffer *const b_beta = check_input(d, "beta", beta, 1, c, pitch), *const b_running = check_input(
                                                                                d, "running", running, 2, c, pitch);
    check_buffer *const workspace = check_scratch(d, "workspace", cvy_batchnorm_workspace_bytes(op));
    check_ok(cvy_batchnorm_forward_inference(op, d->queue, n, bx->cl, p.residual ? b_residual->cl : NULL, b_gamma->cl,
                                             b_beta->cl, b_running->cl, by->cl, NULL, workspace->cl));
    check_close(d, "y", check_download(by), want, tol, (size_t)rows, c);
    check_case_end(d);
    cvy_batchnorm_destroy(&op);
  }
}

/* Means of 1,000 to 30,000 deviations, from per-image statistics whose means are rounded, to a half of their last
 * digit: 1e-3 of a deviation. The deferred output is better than that: the rounding errors of 64 means cancel out to a
 * third of one at most (three standard deviations of their mean: 3 * 2e/sqrt(12 * 64) = 0.22e), and no other digits are
 * lost. */
static void test_digits(check_device *d) {
  enum { N = 64, HW = 49, C = 16 };
  if (getenv("CVY_TEST_OCLGRIND") || !check_case(d, "digits")) return;
  case_rng r = check_rng_make(d, 6000);
  const bn_case k = {
      .p = {.n_max = N, .x = {7, 7, C, 16}, .eps = 1e-5f, .deferred = true}, .n = N, .batch = N, .stats = true};
  float *const x = check_floats(d, N * HW * C), gamma[C], beta[C];
  case_fill(&r, x, N * HW * C, CASE_FILL_NORMAL);
  case_fill(&r, gamma, C, CASE_FILL_NORMAL);
  case_fill(&r, beta, C, CASE_FILL_NORMAL);
  for (size_t i = 0; i < N * HW * C; i++) x[i] += 1000.0f * powf(1.25f, (float)(i % C));
  const bn_truth t = make_truth(d, &k, x, NULL, gamma, beta);
  double *const tol = check_doubles(d, t.size);
  for (size_t i = 0; i < t.size; i++) {
    const size_t ch = i % C;
    const double scale = fabs(t.gamma[ch]) * t.saved[C + ch], e = FLT_EPSILON / 2 * fabs(t.saved[ch]);
    tol[i] = e / 3 * scale + FLT_EPSILON * (SUM_ERROR * fabs((t.x[i] - t.saved[ch]) * scale) + 4 * fabs(t.beta[ch]));
  }
  cvy_batchnorm *op = NULL;
  check_ok(cvy_batchnorm_create(d->cl, &k.p, &op));
  check_buffer *const affine = check_output(d, "affine", 3, C, 16);
  check_ok(cvy_batchnorm_forward_training(
      op, d->queue, N, 0, N, check_input(d, "x", x, N * HW, C, 16)->cl,
      check_input(d, "stats", image_stats(d, &t, &k), 2 * N, C, 16)->cl, NULL,
      check_input(d, "gamma", gamma, 1, C, 16)->cl, check_input(d, "beta", beta, 1, C, 16)->cl, NULL, affine->cl,
      check_output(d, "saved", 2, C, 16)->cl, check_output(d, "s", 2, C, 16)->cl, false,
      check_scratch(d, "workspace", cvy_batchnorm_workspace_bytes(op))->cl, NULL));
  check_close(d, "y", apply(d, &t, &k, x, check_download(affine)), t.y, tol, N * HW, C);
  check_case_end(d);
  cvy_batchnorm_destroy(&op);
}

/* A constant channel has variance 0: y is beta exactly, whatever the constant. */
static void test_constant(check_device *d) {
  enum { N = 3, H = 5, W = 7, C = 6, SIZE = N * H * W * C };
  const float values[C] = {0.0f, 1e-30f, 0.1f, 1000.1f, -3e4f, 1e30f}, gamma[C] = {1, 2, 3, 4, 5, 6},
              beta[C] = {0.3f, -1, 2, 7, 0, 1e-3f};
  if (!check_case(d, "constant")) return;
  float *const x = check_floats(d, SIZE), *const want = check_floats(d, SIZE);
  for (int i = 0; i < SIZE; i++) {
    x[i] = values[i % C];
    want[i] = beta[i % C];
  }
  const cvy_batchnorm_params p = {.n_max = N, .x = {H, W, C, 16}, .eps = 1e-5f};
  cvy_batchnorm *op = NULL;
  check_ok(cvy_batchnorm_create(d->cl, &p, &op));
  check_buffer *const bx = check_input(d, "x", x, N * H * W, C, 16), *const by = check_output(d, "y", N * H * W, C, 16);
  check_buffer *const b_gamma = check_input(d, "gamma", gamma, 1, C, 16), *const b_beta =
                                                                              check_input(d, "beta", beta, 1, C, 16);
  check_buffer *const saved = check_output(d, "saved", 2, C, 16), *const s = check_output(d, "s", 2, C, 16);
  check_buffer *const workspace = check_scratch(d, "workspace", cvy_batchnorm_workspace_bytes(op));
  check_ok(cvy_batchnorm_forward_training(op, d->queue, N, 0, N, bx->cl, NULL, NULL, b_gamma->cl, b_beta->cl, by->cl,
                                          NULL, saved->cl, s->cl, false, workspace->cl, NULL));
  check_same(d, "y", check_download(by), want, N * H * W, C);
  check_same(d, "mean", check_download(saved), values, 1, C);
  const float *const got = check_download(s);
  for (int c = 0; c < C; c++)
    if (got[C + c] != 0) check_fail(d, "variance of constant channel %d is %g", c, (double)got[C + c]);
  check_case_end(d);
  cvy_batchnorm_destroy(&op);
}

/* The reference's gradients by central differences of sum dy*y, with two groups of 2 and 1 samples; kinks of the ReLU
 * left out. */
static void test_reference(check_device *d) {
  enum { N = 3, H = 2, W = 3, C = 2, SIZE = N * H * W * C, N_ALL = 2 * SIZE + 2 * C };
  const cvy_batchnorm_params p = {.n_max = N, .x = {H, W, C, C}, .eps = 1e-5f, .relu = true, .residual = true};
  const double h = 1e-5;
  case_rng r = check_rng_make(d, 5000);
  float start[N_ALL], dy_float[SIZE];
  double all[N_ALL], dy[SIZE], y[SIZE], up[SIZE], down[SIZE], grad[N_ALL]; /* x, residual, gamma, beta */
  case_fill(&r, start, N_ALL, CASE_FILL_NORMAL);
  case_fill(&r, dy_float, SIZE, CASE_FILL_NORMAL);
  for (int i = 0; i < N_ALL; i++) all[i] = start[i];
  for (int i = 0; i < SIZE; i++) dy[i] = dy_float[i];
  double *const x = all, *const residual = all + SIZE, *const gamma = all + 2 * SIZE, *const beta = gamma + C;
  ref_batchnorm_forward(&p, N, 2, N, x, residual, gamma, beta, y, NULL, NULL);
  ref_batchnorm_backward(&p, N, 2, x, y, NULL, dy, gamma, grad, grad + SIZE, grad + 2 * SIZE, grad + 2 * SIZE + C);
  int n_checked = 0;
  for (int i = 0; i < N_ALL; i++) {
    const double old = all[i];
    double slope = 0;
    bool kink = false;
    all[i] = old + h;
    ref_batchnorm_forward(&p, N, 2, N, x, residual, gamma, beta, up, NULL, NULL);
    all[i] = old - h;
    ref_batchnorm_forward(&p, N, 2, N, x, residual, gamma, beta, down, NULL, NULL);
    all[i] = old;
    for (int j = 0; j < SIZE; j++) {
      kink |= (up[j] > 0) != (down[j] > 0);
      slope += dy[j] * (up[j] - down[j]) / (2 * h);
    }
    if (kink) continue;
    n_checked++;
    if (!(fabs(slope - grad[i]) <= 1e-6 * (1 + fabs(slope))))
      check_fail(d, "gradient %d is %.12g, the difference quotient %.12g", i, grad[i], slope);
  }
  assert_true(n_checked > N_ALL / 2);
}

static void test_arguments(check_device *d) {
  const cvy_batchnorm_params good = {.n_max = 4, .x = {1, 2, 3, 16}, .eps = 1e-5f, .residual = true};
  cvy_batchnorm *op = NULL;
  cvy_batchnorm_params p = good;
  p.n_max = 0;
  check_fails(cvy_batchnorm_create(d->cl, &p, &op), CVY_E_ARGUMENT, "n_max 0");
  p = good, p.x.c = 17;
  check_fails(cvy_batchnorm_create(d->cl, &p, &op), CVY_E_ARGUMENT, "1x2x17 with pitch 16");
  p = good, p.eps = 0;
  check_fails(cvy_batchnorm_create(d->cl, &p, &op), CVY_E_ARGUMENT, "eps 0");
  p = good, p.x.h = 1 << 27;
  check_fails(cvy_batchnorm_create(d->cl, &p, &op), CVY_E_ARGUMENT, "2^31-1");
  assert_null(op);
  check_ok(cvy_batchnorm_create(d->cl, &good, &op));
  float zeros[8 * 16] = {0};
  check_buffer *const x = check_input(d, "x", zeros, 8, 16, 16), *const y = check_output(d, "y", 8, 16, 16),
                      *const z = check_output(d, "z", 8, 16, 16);
  check_buffer *const one = check_input(d, "one", zeros, 1, 16, 16), *const saved = check_output(d, "saved", 2, 16, 16);
  check_buffer *const s = check_output(d, "s", 2, 16, 16), *const tiny = check_scratch(d, "tiny", 4);
  check_buffer *const ws = check_scratch(d, "workspace", cvy_batchnorm_workspace_bytes(op)), *const grad = check_output(
                                                                                                 d, "grad", 1, 16, 16);
  cvy_queue *const q = d->queue;
#define FORWARD(n, group, batch, x_, stats, residual, saved_, ws_)                                                   \
  cvy_batchnorm_forward_training(op, q, n, group, batch, x_, stats, residual, one->cl, one->cl, y->cl, NULL, saved_, \
                                 s->cl, false, ws_, NULL)
  check_fails(FORWARD(0, 0, 4, x->cl, NULL, x->cl, saved->cl, ws->cl), CVY_E_ARGUMENT, "0 samples");
  check_fails(FORWARD(5, 0, 5, x->cl, NULL, x->cl, saved->cl, ws->cl), CVY_E_ARGUMENT, "from 1 to 4");
  check_fails(FORWARD(4, -1, 4, x->cl, NULL, x->cl, saved->cl, ws->cl), CVY_E_ARGUMENT, "group size -1");
  check_fails(FORWARD(4, 0, 3, x->cl, NULL, x->cl, saved->cl, ws->cl), CVY_E_ARGUMENT, "whole batch has 3");
  check_fails(FORWARD(4, 0, 4, tiny->cl, NULL, x->cl, saved->cl, ws->cl), CVY_E_ARGUMENT, "x has 4 bytes");
  check_fails(FORWARD(4, 0, 4, x->cl, tiny->cl, x->cl, saved->cl, ws->cl), CVY_E_ARGUMENT, "stats has 4 bytes");
  check_fails(FORWARD(4, 0, 4, x->cl, NULL, NULL, saved->cl, ws->cl), CVY_E_ARGUMENT, "residual is NULL");
  check_fails(FORWARD(4, 2, 4, x->cl, NULL, x->cl, saved->cl, ws->cl), CVY_E_ARGUMENT,
              "saved has 128 bytes, needs at least 256");
  check_fails(FORWARD(4, 0, 4, x->cl, NULL, x->cl, saved->cl, tiny->cl), CVY_E_ARGUMENT, "workspace has 4 bytes");
  check_ok(FORWARD(4, 0, 4, x->cl, NULL, x->cl, saved->cl, ws->cl));
#define BACKWARD(dx, dresidual, add, dgamma)                                                                    \
  cvy_batchnorm_backward(op, q, 4, 0, x->cl, NULL, NULL, y->cl, one->cl, saved->cl, dx, dresidual, add, dgamma, \
                         grad->cl, false, ws->cl, NULL)
  check_fails(BACKWARD(z->cl, NULL, false, grad->cl), CVY_E_ARGUMENT, "dresidual is NULL");
  check_fails(BACKWARD(z->cl, z->cl, false, grad->cl), CVY_E_ARGUMENT, "must not be dx");
  check_fails(BACKWARD(z->cl, y->cl, true, grad->cl), CVY_E_ARGUMENT, "nor dy");
  check_fails(BACKWARD(z->cl, y->cl, false, tiny->cl), CVY_E_ARGUMENT, "dgamma has 4 bytes");
  check_case_end(d);
  cvy_batchnorm_destroy(&op);

  /* one value per channel */
  p = (cvy_batchnorm_params){.n_max = 5, .x = {1, 1, 3, 16}, .eps = 1e-5f};
  check_ok(cvy_batchnorm_create(d->cl, &p, &op));
  check_buffer *const x1 = check_input(d, "x", zeros, 5, 16, 16), *const one1 = check_input(d, "one", zeros, 1, 16, 16);
  check_buffer *const y1 = check_output(d, "y", 5, 16, 16), *const saved1 = check_output(d, "saved", 10, 16, 16),
                      *const s1 = check_output(d, "s", 2, 16, 16);
  check_buffer *const ws1 = check_scratch(d, "workspace", cvy_batchnorm_workspace_bytes(op));
#define TINY(n, group)                                                                                                 \
  cvy_batchnorm_forward_training(op, q, n, group, n, x1->cl, NULL, NULL, one1->cl, one1->cl, y1->cl, NULL, saved1->cl, \
                                 s1->cl, false, ws1->cl, NULL)
  check_fails(TINY(1, 0), CVY_E_ARGUMENT, "one value per channel");
  check_fails(TINY(4, 1), CVY_E_ARGUMENT, "one value per channel");
  check_fails(TINY(5, 2), CVY_E_ARGUMENT, "last group of 1");
  check_ok(TINY(5, 3));
  check_case_end(d);
  cvy_batchnorm_destroy(&op);

  p.inference = true;
  check_ok(cvy_batchnorm_create(d->cl, &p, &op));
  check_buffer *const any = check_scratch(d, "any", 4096);
  check_fails(cvy_batchnorm_forward_training(op, q, 5, 0, 5, any->cl, NULL, NULL, any->cl, any->cl, any->cl, NULL,
                                             any->cl, any->cl, false, any->cl, NULL),
              CVY_E_ARGUMENT, "created for inference");
  check_case_end(d);
  cvy_batchnorm_destroy(&op);
}

int main(int argc, char **argv) {
  static const check_test tests[] = {{"shapes", test_shapes},       {"fixed", test_fixed},
                                     {"inference", test_inference}, {"digits", test_digits},
                                     {"constant", test_constant},   {"reference", test_reference},
                                     {"arguments", test_arguments}};
  return check_main(argc, argv, tests, sizeof tests / sizeof *tests, CHECK_DEVICES | CHECK_BOTH_SHAPES);
}
