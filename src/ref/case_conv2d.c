/* SPDX-License-Identifier: MIT
 * Convolution, and linear layers, which are convolutions with a filter as large as the image.
 *
 * Rounding errors of a sum of `terms` products grow like a random walk: u*sqrt(terms/3)*mag if all products have one
 * sign, plus a few for the prologue and the accumulation; FLT_EPSILON is 2u. The bias is not a term: it is added to
 * the finished sum and costs one rounding of the result, however large it is. Small integers give exact results.
 *
 * Transforms mix the pixels of a tile (of a whole image) and the taps of a filter: a large pixel leaves its error in
 * its neighbours, multiplied by taps that it does not meet in the exact result. The bound of each element is then the
 * largest bound in its sample, computed with the largest pixel and the largest tap of each channel everywhere. */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "src/ops/linear.h"
#include "src/ops/conv2d/math.h"
#include "src/ref/cases.h"
#include "src/ref/ref.h"

enum { X, W, DY, BIAS, RESIDUAL, AFFINE, Y, STATS, DX, DW, DB };

/* TF32 rounds each factor by at most 2^-11: together 2^-10 of each term, plus the product of both errors. */
#define TF32_FACTOR ((0x1p-10 + 0x1p-22) / (double)FLT_EPSILON)

static double bound_factor(double terms) { return 4.0 + 0.5 * sqrt(terms); }

/* The rounding errors of an algorithm relative to those of a plain sum of products; 0: the algorithm is a plain sum. */
static double spread_of(cvy_conv_algo algo) {
  switch (algo) {
    case CVY_CONV_WINOGRAD2:
    case CVY_CONV_WINOGRAD2_FUSED: return 1.0;
    case CVY_CONV_WINOGRAD4:
    case CVY_CONV_WINOGRAD4_FUSED: return 2.0;
    case CVY_CONV_FFT: return 8.0;
    default: return 0.0;
  }
}

/* ---- bounds by the algorithm that the device takes ---- */

/* x: (outer, middle, inner). Each element is replaced by the largest magnitude over the middle dimension. */
static double *largest_of(case_memory *m, const double *x, size_t outer, size_t middle, size_t inner) {
  double *const out = case_doubles(m, outer * middle * inner), *const most = case_doubles(m, outer * inner);
  for (size_t i = 0; i < outer * middle * inner; i++) {
    double *const at = &most[i / (middle * inner) * inner + i % inner];
    *at = fmax(*at, fabs(x[i]));
  }
  for (size_t i = 0; i < outer * middle * inner; i++) out[i] = most[i / (middle * inner) * inner + i % inner];
  return out;
}

/* Sums of the terms of the pass, computed with the largest pixels and taps everywhere; computed once. */
static const double *large_terms(conv2d_case *c, cvy_conv_pass pass) {
  case_memory *const m = &c->base.memory;
  const cvy_conv2d_params *const p = &c->p;
  const int n = c->base.n;
  if (c->large[pass]) return c->large[pass];
  const size_t samples = (size_t)n, k = (size_t)p->k, channels = (size_t)p->x.c;
  const double *const x = largest_of(m, c->fx_terms, samples, (size_t)(p->x.h * p->x.w), channels),
                      *const w = largest_of(m, c->w, 1, (size_t)(p->r * p->s), (size_t)cvy_conv_group_c(p) * k),
                      *const dy = largest_of(m, c->dy, samples, (size_t)(c->y.h * c->y.w), k);
  const int to = pass == CVY_CONV_FORWARD ? Y : pass == CVY_CONV_BACKWARD_DATA ? DX : DW;
  double *const out = c->large[pass] = case_doubles(m, case_size(&c->base.tensors[to]));
  if (to == Y) ref_conv2d_forward(p, n, x, w, NULL, out, NULL);
  else if (to == DX) ref_conv2d_backward_data(p, n, dy, w, out, NULL);
  else ref_conv2d_backward_weights(p, n, x, dy, out, NULL);
  return out;
}

/* terms: the sum of the terms' magnitudes, for each element; n_terms: their number; transforms mix the elements of
 * one of `samples` parts. */
static void bounds_of(conv2d_case *c, int at, const double *terms, double n_terms, cvy_conv_algo algo, bool tf32,
                      size_t samples) {
  case_tensor *const t = &c->base.tensors[at];
  const size_t size = case_size(t), each = size / samples;
  const double spread = spread_of(algo), times = bound_factor(n_terms) + (tf32 ? TF32_FACTOR : 0.0);
  for (size_t i = 0; i < size; i++) t->bound[i] = terms[i] + (t->data ? fabs((double)((float *)t->data)[i]) : 0);
  for (size_t first = 0; spread > 0 && first < size; first += each) {
    double largest = 0;
    for (size_t i = first; i < first + each; i++) largest = fmax(largest, t->bound[i]);
    for (size_t i = first; i < first + each; i++) t->bound[i] = spread * largest;
  }
  for (size_t i = 0; i < size; i++) t->bound[i] += 0.5 * fabs(t->want[i]) / times;
  case_bound(t, c->fill == CASE_FILL_INTEGERS && spread == 0 ? 0.0 : times);
}

static void bounds_of_pass(conv2d_case *c, cvy_conv_pass pass, cvy_conv_algo algo, bool tf32) {
  const cvy_conv2d_params *const p = &c->p;
  const double taps = (double)p->r * p->s, positions = (double)c->base.n * c->y.h * c->y.w;
  const double *const terms = spread_of(algo) > 0 ? large_terms(c, pass) : c->terms[pass];
  if (pass == CVY_CONV_FORWARD) bounds_of(c, Y, terms, taps * cvy_conv_group_c(p), algo, tf32, (size_t)c->base.n);
  if (pass == CVY_CONV_BACKWARD_DATA)
    bounds_of(c, DX, terms, taps * p->k / cvy_conv_groups(p), algo, tf32, (size_t)c->base.n);
  if (pass != CVY_CONV_BACKWARD_WEIGHTS) return;
  bounds_of(c, DW, terms, positions, algo, tf32, 1);
  if (p->bias) bounds_of(c, DB, c->db_terms, positions, CVY_CONV_DIRECT, false, 1);
}

/* ---- calls ---- */

static cvy_status create_linear(conv2d_case *c, cvy_device *device, size_t *workspace_bytes) {
  cvy_status status = CVY_OK;
  const cvy_conv2d_params *const p = &c->p;
  const cvy_linear_params params = {.n_max = p->n_max,
                                    .x = p->x,
                                    .k = p->k,
                                    .y_pitch = p->y_pitch,
                                    .bias = p->bias,
                                    .no_backward_data = p->no_backward_data,
                                    .algos = p->algos};
  CVY_TRY(cvy_linear_create(device, &params, (cvy_linear **)&c->base.op));
  *workspace_bytes = cvy_linear_workspace_bytes(c->base.op);
fail:
  return status;
}

static cvy_status create(op_case *base, cvy_device *device, size_t *workspace_bytes) {
  cvy_status status = CVY_OK;
  conv2d_case *const c = (conv2d_case *)base;
  if (c->linear) CVY_TRY(create_linear(c, device, workspace_bytes));
  else {
    CVY_TRY(cvy_conv2d_create(device, &c->p, (cvy_conv2d **)&base->op));
    *workspace_bytes = cvy_conv2d_workspace_bytes(base->op);
  }
  for (int i = 0; i < CVY_CONV_PASSES; i++) {
    const cvy_conv_pass pass = (cvy_conv_pass)i;
    if (base->left_out & CASE_BIT(pass)) continue;
    const cvy_conv_algo algo = (c->linear ? cvy_linear_chosen(base->op, pass) : cvy_conv2d_chosen(base->op, pass)).algo;
    base->slices = base->slices || algo == CVY_CONV_GEMM || algo == CVY_CONV_FFT;
    if (!c->linear) {
      snprintf(c->took[pass], sizeof c->took[pass], "%s", cvy_conv2d_algorithm_name(base->op, pass));
      base->algorithm = c->took[pass], base->l2_bound = cvy_conv2d_error_bound(base->op, pass);
    }
    bounds_of_pass(c, pass, algo, !c->linear && cvy_conv2d_error_bound(base->op, pass) == CVY_TF32_ERROR_BOUND);
  }
fail:
  return status;
}

static void destroy(op_case *base) {
  if (((conv2d_case *)base)->linear) cvy_linear_destroy((cvy_linear **)&base->op);
  else cvy_conv2d_destroy((cvy_conv2d **)&base->op);
}

static cvy_status forward(op_case *base, cvy_queue *queue, cvy_buffer *const *b) {
  const conv2d_case *const c = (const conv2d_case *)base;
  const cvy_conv2d_prologue prologue = {b[AFFINE], b[RESIDUAL], c->group_size};
  if (c->linear) return cvy_linear_forward(base->op, queue, base->n, b[X], b[W], b[BIAS], b[Y], b[CASE_WORKSPACE]);
  return cvy_conv2d_forward(base->op, queue, base->n, b[X], c->p.prologue ? &prologue : NULL, b[W], b[BIAS], b[Y],
                            b[STATS], b[CASE_WORKSPACE]);
}
static cvy_status backward_data(op_case *base, cvy_queue *queue, cvy_buffer *const *b) {
  const conv2d_case *const c = (const conv2d_case *)base;
  return (
      c->linear
          ? cvy_linear_backward_data(base->op, queue, base->n, b[DY], b[W], b[DX], c->accumulate, b[CASE_WORKSPACE])
          : cvy_conv2d_backward_data(base->op, queue, base->n, b[DY], b[W], b[DX], c->accumulate, b[CASE_WORKSPACE]));
}
static cvy_status backward_weights(op_case *base, cvy_queue *queue, cvy_buffer *const *b) {
  const conv2d_case *const c = (const conv2d_case *)base;
  const cvy_conv2d_prologue prologue = {b[AFFINE], b[RESIDUAL], c->group_size};
  if (c->linear)
    return cvy_linear_backward_weights(base->op, queue, base->n, b[X], b[DY], b[DW], b[DB], c->accumulate,
                                       b[CASE_WORKSPACE]);
  return cvy_conv2d_backward_weights(base->op, queue, base->n, b[X], c->p.prologue ? &prologue : NULL, b[DY], b[DW],
                                     b[DB], c->accumulate, b[CASE_WORKSPACE]);
}

/* Compares statistics with those of the device's own y. The mean has the error of a sum. M2 around a mean that is
 * off by e is larger by positions*e*e. Sums of a few values that repeat, such as small integers, are rounded in the
 * same direction many times: the errors of M2's terms then accumulate. */
static void stats_of_y(op_case *base) {
  const conv2d_case *const c = (const conv2d_case *)base;
  case_tensor *const stats = &base->tensors[STATS];
  const size_t k = (size_t)c->p.k;
  const int positions = c->y.h * c->y.w;
  const float *const got = base->tensors[Y].got;
  for (size_t at = 0; stats->role != CASE_NONE && at < (size_t)base->n * k; at++) {
    const float *const y = got + at / k * (size_t)positions * k + at % k;
    double sum = 0, mag = 0, m2 = 0;
    for (int i = 0; i < positions; i++) sum += (double)y[(size_t)i * k], mag += fabs((double)y[(size_t)i * k]);
    const double mean = sum / positions, factor = (double)FLT_EPSILON * bound_factor(positions),
                 off = factor * mag / positions + (double)FLT_MIN;
    const double alike = c->fill == CASE_FILL_INTEGERS ? FLT_EPSILON * positions / 16.0 : 0;
    for (int i = 0; i < positions; i++) m2 += pow((double)y[(size_t)i * k] - mean, 2);
    const size_t to = at / k * 2 * k + at % k;
    stats->want[to] = mean, stats->bound[to] = off;
    stats->want[to + k] = m2,
                     stats->bound[to + k] = fmax(factor, alike) * m2 + 2 * positions * off * off + (double)FLT_MIN;
  }
}

#define BIT(at) CASE_BIT(at)
#define PASSES                                                                                                       \
  {                                                                                                                  \
    [CVY_CONV_FORWARD] = {"forward", BIT(X) | BIT(W) | BIT(BIAS) | BIT(AFFINE) | BIT(RESIDUAL), BIT(Y) | BIT(STATS), \
                          forward, stats_of_y},                                                                      \
    [CVY_CONV_BACKWARD_DATA] = {"backward_data", BIT(DY) | BIT(W), BIT(DX), backward_data, NULL},                    \
    [CVY_CONV_BACKWARD_WEIGHTS] = {                                                                                  \
      "backward_weights",                                                                                            \
      BIT(X) | BIT(DY) | BIT(AFFINE) | BIT(RESIDUAL),                                                                \
      BIT(DW) | BIT(DB),                                                                                             \
      backward_weights,                                                                                              \
      NULL                                                                                                           \
    }                                                                                                                \
  }
static const case_calls conv2d = {"conv2d", create, destroy, PASSES}, linear = {"linear", create, destroy, PASSES};

/* ---- data and truth ---- */

static float *filled(conv2d_case *c, case_rng *r, size_t n) {
  float *const x = case_floats(&c->base.memory, n);
  case_fill(r, x, n, c->fill);
  return x;
}
static float *input(conv2d_case *c, case_rng *r, int at, const char *name, size_t rows, int cols, int pitch) {
  float *const x = case_in(&c->base, at, name, rows, cols, pitch);
  case_fill(r, x, rows * (size_t)cols, c->fill);
  return x;
}

static void truth(conv2d_case *c, int groups) {
  op_case *const base = &c->base;
  case_memory *const m = &base->memory;
  const cvy_conv2d_params *const p = &c->p;
  const int n = base->n;
  const size_t x_size = case_size(&base->tensors[X]), y_size = case_size(&base->tensors[DY]),
               w_size = case_size(&base->tensors[W]), channels = (size_t)p->x.c;
  const bool scale = p->prologue & CVY_CONV_SCALE, residual = p->prologue & CVY_CONV_RESIDUAL;
  const double *const x = case_values(base, X), *const affine = scale ? case_values(base, AFFINE) : NULL,
                      *const added = residual ? case_values(base, RESIDUAL) : NULL,
                      *const bias = p->bias ? case_values(base, BIAS) : NULL;
  double *const fx = case_doubles(m, x_size);
  c->w = case_values(base, W), c->dy = case_values(base, DY);
  c->terms[CVY_CONV_FORWARD] = case_doubles(m, y_size), c->terms[CVY_CONV_BACKWARD_DATA] = case_doubles(m, x_size);
  c->terms[CVY_CONV_BACKWARD_WEIGHTS] = case_doubles(m, w_size), c->db_terms = case_doubles(m, (size_t)p->k);
  ref_conv2d_prologue(p, n, c->group_size, x, affine, added, fx);
  c->fx_terms = case_magnitudes(m, scale || residual ? x : fx, x_size);
  for (size_t i = 0; i < x_size; i++) { /* x - mean is one term: the mean may be much larger than the difference */
    const size_t group = c->group_size ? i / (x_size / (size_t)n) / (size_t)c->group_size : 0;
    const double *const a = affine ? affine + (group < (size_t)groups ? group : 0) * 3 * channels + i % channels : NULL;
    if (a) c->fx_terms[i] = fabs((x[i] - a[0]) * a[channels]) + fabs(a[2 * channels]);
    if (residual) c->fx_terms[i] += fabs(added[i]);
  }
  double *const y = base->tensors[Y].want, *const dw = base->tensors[DW].want;
  ref_conv2d_forward(p, n, fx, c->w, NULL, y, c->terms[CVY_CONV_FORWARD]);
  for (size_t i = 0; bias && i < y_size; i++) y[i] += bias[i % (size_t)p->k];
  ref_conv2d_backward_weights(p, n, fx, c->dy, dw, c->terms[CVY_CONV_BACKWARD_WEIGHTS]);
  if (scale || residual) {
    ref_conv2d_forward(p, n, c->fx_terms, case_magnitudes(m, c->w, w_size), NULL, c->terms[CVY_CONV_FORWARD], NULL);
    ref_conv2d_backward_weights(p, n, c->fx_terms, case_magnitudes(m, c->dy, y_size),
                                c->terms[CVY_CONV_BACKWARD_WEIGHTS], NULL);
  }
  if (!p->no_backward_data)
    ref_conv2d_backward_data(p, n, c->dy, c->w, base->tensors[DX].want, c->terms[CVY_CONV_BACKWARD_DATA]);
  if (p->bias) ref_reduce_columns(y_size / (size_t)p->k, p->k, c->dy, base->tensors[DB].want, c->db_terms);
}

void case_conv2d(conv2d_case *c, case_rng *r) {
  op_case *const base = &c->base;
  const cvy_conv2d_params *const p = &c->p;
  if (cvy_conv2d_output_shape(p, &c->y) != CVY_OK) return;
  const int n = base->n, channels = p->x.c, k = p->k, groups = c->group_size ? cvy_ceil_div(n, c->group_size) : 1;
  const size_t x_rows = (size_t)n * (size_t)(p->x.h * p->x.w), y_rows = (size_t)n * (size_t)(c->y.h * c->y.w),
               w_rows = (size_t)(p->r * p->s * cvy_conv_group_c(p)), x_size = x_rows * (size_t)channels,
               w_size = w_rows * (size_t)k;
  base->calls = c->linear ? &linear : &conv2d;
  input(c, r, X, "x", x_rows, channels, p->x.pitch);
  input(c, r, W, "w", w_rows, k, p->y_pitch);
  input(c, r, DY, "dy", y_rows, k, p->y_pitch);
  float *const bias = input(c, r, BIAS, "bias", 1, k, p->y_pitch);
  const bool far = case_int(r, 0, 2) == 0;
  for (int i = 0; far && i < k; i++) bias[i] *= 1e4f;
  input(c, r, RESIDUAL, "residual", x_rows, channels, p->x.pitch);
  input(c, r, AFFINE, "affine", (size_t)groups * 3, channels, p->x.pitch);
  const float *const old_x = filled(c, r, x_size), *const old_w = filled(c, r, w_size),
                     *const old_b = filled(c, r, (size_t)k);
  if (!p->bias) base->tensors[BIAS].role = CASE_NONE;
  if (!(p->prologue & CVY_CONV_RESIDUAL)) base->tensors[RESIDUAL].role = CASE_NONE;
  if (!(p->prologue & CVY_CONV_SCALE)) base->tensors[AFFINE].role = CASE_NONE;
  case_out(base, Y, "y", y_rows, k, p->y_pitch);
  if (p->stats) case_out(base, STATS, "stats", (size_t)n * 2, k, p->y_pitch);
  case_sum_out(base, DX, "dx", x_rows, channels, p->x.pitch, c->accumulate ? old_x : NULL);
  case_sum_out(base, DW, "dw", w_rows, k, p->y_pitch, c->accumulate ? old_w : NULL);
  if (p->bias) case_sum_out(base, DB, "db", 1, k, p->y_pitch, c->accumulate ? old_b : NULL);
  if (p->no_backward_data) base->left_out |= CASE_BIT(CVY_CONV_BACKWARD_DATA);
  truth(c, groups);
  static const int shared[] = {W, BIAS, AFFINE, DW, DB}, sums[] = {DX, DW, DB};
  for (size_t i = 0; i < sizeof shared / sizeof *shared; i++) base->tensors[shared[i]].shared = true;
  for (size_t i = 0; i < sizeof sums / sizeof *sums; i++) {
    case_tensor *const t = &base->tensors[sums[i]];
    for (size_t j = 0; t->data && j < case_size(t); j++) t->want[j] += (double)((float *)t->data)[j];
  }
}

const char *case_conv2d_text(const conv2d_case *c) {
  static char text[300];
  const cvy_conv2d_params *const p = &c->p;
  snprintf(text, sizeof text,
           "n=%d/%d x=%dx%dx%d/%d k=%d/%d f=%dx%d s=%dx%d p=%dx%d pro=%d g=%d bias=%d stats=%d dx=%d acc=%d fill=%d",
           c->base.n, p->n_max, p->x.h, p->x.w, p->x.c, p->x.pitch, p->k, p->y_pitch, p->r, p->s, p->stride_h,
           p->stride_w, p->pad_h, p->pad_w, p->prologue, c->group_size, p->bias, p->stats, !p->no_backward_data,
           c->accumulate, (int)c->fill);
  const size_t used = strlen(text);
  if (p->groups > 1 || p->dilation_h > 1 || p->dilation_w > 1 || p->pad_more_h || p->pad_more_w)
    snprintf(text + used, sizeof text - used, " groups=%d d=%dx%d more=%dx%d", cvy_conv_groups(p),
             cvy_conv_dilation_h(p), cvy_conv_dilation_w(p), p->pad_more_h, p->pad_more_w);
  return text;
}

cvy_conv2d_params case_conv2d_params(int n, cvy_shape x, int k, int filter, int stride, int pad) {
  return (cvy_conv2d_params){.n_max = n,
                             .x = x,
                             .k = k,
                             .y_pitch = cvy_pitch_of(k),
                             .r = filter,
                             .s = filter,
                             .stride_h = stride,
                             .stride_w = stride,
                             .pad_h = pad,
                             .pad_w = pad};
}
