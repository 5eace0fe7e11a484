/* SPDX-License-Identifier: MIT
 * Layers of a network as cases of the selftest: each different shape once, forward and backward.
 * Bounds: rounding errors of sums are a few eps times the sum of the terms' absolute values, which the reference gives
 * (`mag`); blocked sums of this length stay well under the factors. */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "src/nn/graph.h"
#include "src/ops/conv2d.h"
#include "src/ops/linear.h"
#include "src/ref/cases.h"
#include "src/ref/ref.h"
#include "tools/selftest.h"

enum { SAMPLES = 2, PROLOGUE_GROUP = 1, SUM_FACTOR = 8 };

static size_t dense_of(const cvy_shape *s) { return (size_t)s->h * (size_t)s->w * (size_t)s->c; }
static size_t rows_of(const cvy_shape *s, int n) { return (size_t)n * (size_t)s->h * (size_t)s->w; }

/* ---- convolution ---- */

/* Mean over positions and squared deviations of the reference's y for each sample and channel, with the bounds that
 * follow from those of y. */
static void stats_of(const cvy_shape *s, const double *y, const double *y_bound, double *stats, double *bound) {
  const int positions = s->h * s->w;
  for (int n = 0; n < SAMPLES; n++) {
    for (int c = 0; c < s->c; c++) {
      const double *const first = y + (size_t)n * dense_of(s) + c;
      const double *const first_bound = y_bound + (size_t)n * dense_of(s) + c;
      double mean = 0, mag = 0, error = 0, m2 = 0, m2_error = 0;
      for (int i = 0; i < positions; i++) {
        mean += first[i * s->c] / positions;
        mag += fabs(first[i * s->c]) / positions;
        error = fmax(error, first_bound[i * s->c]);
      }
      const double mean_error = error + SUM_FACTOR * FLT_EPSILON * mag;
      for (int i = 0; i < positions; i++) {
        const double d = first[i * s->c] - mean, d_error = first_bound[i * s->c] + mean_error;
        m2 += d * d;
        m2_error += 2 * fabs(d) * d_error + d_error * d_error + SUM_FACTOR * FLT_EPSILON * d * d;
      }
      const size_t at = (size_t)(2 * n) * (size_t)s->c + (size_t)c;
      stats[at] = mean;
      bound[at] = mean_error;
      stats[at + (size_t)s->c] = m2;
      bound[at + (size_t)s->c] = m2_error + FLT_MIN;
    }
  }
}

typedef struct conv_case {
  cvy_conv2d_params p;
  cvy_shape y;
  size_t nx, ny, nw; /* values, dense */
  const float *x, *w, *bias, *dy, *affine, *residual, *dw0;
  double *want_y, *bound_y, *want_dx, *bound_dx, *want_dw, *bound_dw, *want_db, *bound_db;
} conv_case;

static void conv_truth(selftest *t, conv_case *c) {
  const cvy_conv2d_params *const p = &c->p;
  double *x = selftest_widen(t, c->x, c->nx, false), *x_mag = selftest_widen(t, c->x, c->nx, true);
  const double *const w = selftest_widen(t, c->w, c->nw, false), *const dy = selftest_widen(t, c->dy, c->ny, false);
  const double *const bias = c->bias ? selftest_widen(t, c->bias, (size_t)p->k, false) : NULL;
  if (p->prologue) {
    const size_t channels = (size_t)p->x.c, image = dense_of(&p->x);
    const double *const affine = selftest_widen(t, c->affine, SAMPLES * 3 * channels, false);
    const double *const residual = c->residual ? selftest_widen(t, c->residual, c->nx, false) : NULL;
    double *const f = selftest_doubles(t, c->nx);
    ref_conv2d_prologue(p, SAMPLES, PROLOGUE_GROUP, x, affine, residual, f);
    for (size_t i = 0; i < c->nx; i++) {
      const double *const a = affine + i / image / PROLOGUE_GROUP * 3 * channels + i % channels;
      x_mag[i] = fabs((x[i] - a[0]) * a[channels]) + fabs(a[2 * channels]) + (residual ? fabs(residual[i]) : 0);
    }
    x = f;
  }
  /* |terms| of the sums: with a prologue the rounding of f(x) itself counts, so the sums run over |f|'s terms. */
  double *const w_mag = selftest_widen(t, c->w, c->nw, true), *const dy_mag = selftest_widen(t, c->dy, c->ny, true);
  c->want_y = selftest_doubles(t, c->ny);
  c->bound_y = selftest_doubles(t, c->ny);
  ref_conv2d_forward(p, SAMPLES, x, w, bias, c->want_y, p->prologue ? NULL : c->bound_y);
  if (p->prologue) ref_conv2d_forward(p, SAMPLES, x_mag, w_mag, bias, c->bound_y, NULL);
  for (size_t i = 0; i < c->ny; i++) c->bound_y[i] = fabs(c->bound_y[i]);
  selftest_bounds(c->bound_y, c->ny, SUM_FACTOR);
  if (!p->no_backward_data) {
    c->want_dx = selftest_doubles(t, c->nx);
    c->bound_dx = selftest_doubles(t, c->nx);
    ref_conv2d_backward_data(p, SAMPLES, dy, w, c->want_dx, c->bound_dx);
    selftest_bounds(c->bound_dx, c->nx, SUM_FACTOR);
  }
  c->want_dw = selftest_doubles(t, c->nw);
  c->bound_dw = selftest_doubles(t, c->nw);
  ref_conv2d_backward_weights(p, SAMPLES, x, dy, c->want_dw, p->prologue ? NULL : c->bound_dw);
  if (p->prologue) ref_conv2d_backward_weights(p, SAMPLES, x_mag, dy_mag, c->bound_dw, NULL);
  for (size_t i = 0; i < c->nw; i++) {
    c->want_dw[i] += (double)c->dw0[i];
    c->bound_dw[i] += fabs((double)c->dw0[i]);
  }
  selftest_bounds(c->bound_dw, c->nw, SUM_FACTOR);
  c->want_db = selftest_doubles(t, (size_t)p->k);
  c->bound_db = selftest_doubles(t, (size_t)p->k);
  ref_reduce_columns(rows_of(&c->y, SAMPLES), p->k, dy, c->want_db, c->bound_db);
  selftest_bounds(c->bound_db, (size_t)p->k, SUM_FACTOR);
}

/* Transforms (Winograd, FFT) mix the pixels of a sample: there the largest bound of a sample, `samples` equal parts of
 * n values, is that of all its values, times what the transforms' sums add. */
static const double *bounds_for(selftest *t, cvy_conv_algo algo, const double *bound, size_t samples, size_t n) {
  const double factor = algo == CVY_CONV_WINOGRAD4 ? 8 : algo == CVY_CONV_WINOGRAD2 || algo == CVY_CONV_FFT ? 4 : 0;
  if (factor == 0) return bound;
  double *const out = selftest_doubles(t, n);
  for (size_t s = 0, each = n / samples; s < samples; s++) {
    double largest = 0;
    for (size_t i = 0; i < each; i++) largest = fmax(largest, bound[s * each + i]);
    for (size_t i = 0; i < each; i++) out[s * each + i] = factor * largest;
  }
  return out;
}

static void conv_on_device(selftest *t, const conv_case *c) {
  const cvy_conv2d_params *const p = &c->p;
  const size_t xp = (size_t)p->x.pitch, yp = (size_t)p->y_pitch, k = (size_t)p->k, xc = (size_t)p->x.c,
               taps = (size_t)p->r * (size_t)p->s * xc;
  const size_t x_rows = rows_of(&p->x, SAMPLES), y_rows = rows_of(&c->y, SAMPLES);
  cvy_conv2d *op = NULL;
  SELFTEST_RUN(t, cvy_conv2d_create(t->cl, p, &op));
  cvy_conv_algo algo[CVY_CONV_PASSES] = {CVY_CONV_DIRECT, CVY_CONV_DIRECT, CVY_CONV_DIRECT};
  for (int pass = 0; op && pass < CVY_CONV_PASSES; pass++) algo[pass] = cvy_conv2d_chosen(op, (cvy_conv_pass)pass).algo;
  const double *const bound_y = bounds_for(t, algo[CVY_CONV_FORWARD], c->bound_y, SAMPLES, c->ny);
  cvy_buffer *const x = selftest_input(t, c->x, x_rows, xc, xp), *const w = selftest_input(t, c->w, taps, k, yp);
  cvy_buffer *const bias = c->bias ? selftest_input(t, c->bias, 1, k, yp) : NULL;
  cvy_buffer *const dy = selftest_input(t, c->dy, y_rows, k, yp);
  cvy_buffer *const y = selftest_output(t, y_rows, k, yp);
  cvy_buffer *const stats = p->stats ? selftest_output(t, (size_t)SAMPLES * 2, k, yp) : NULL;
  cvy_buffer *const dw = selftest_input(t, c->dw0, taps, k, yp);
  cvy_buffer *const db = c->bias ? selftest_input(t, selftest_floats(t, k), 1, k, yp) : NULL;
  cvy_conv2d_prologue prologue = {0};
  if (p->prologue) {
    prologue.affine = selftest_input(t, c->affine, (size_t)SAMPLES * 3, xc, xp);
    prologue.residual = c->residual ? selftest_input(t, c->residual, x_rows, xc, xp) : NULL;
    prologue.group_size = PROLOGUE_GROUP;
  }
  const cvy_conv2d_prologue *const pro = p->prologue ? &prologue : NULL;
  cvy_buffer *const workspace = op ? selftest_workspace(t, cvy_conv2d_workspace_bytes(op)) : NULL;
  SELFTEST_RUN(t, cvy_conv2d_forward(op, t->queue, SAMPLES, x, pro, w, bias, y, stats, workspace));
  selftest_compare(t, "y", y, y_rows, k, yp, c->want_y, bound_y);
  if (stats) {
    double *const want = selftest_doubles(t, (size_t)SAMPLES * 2 * k), *const bound =
                                                                           selftest_doubles(t, (size_t)SAMPLES * 2 * k);
    stats_of(&c->y, c->want_y, bound_y, want, bound);
    selftest_compare(t, "stats", stats, (size_t)SAMPLES * 2, k, yp, want, bound);
  }
  if (!p->no_backward_data) {
    cvy_buffer *const dx = selftest_output(t, x_rows, xc, xp);
    SELFTEST_RUN(t, cvy_conv2d_backward_data(op, t->queue, SAMPLES, dy, w, dx, false, workspace));
    selftest_compare(t, "dx", dx, x_rows, xc, xp, c->want_dx,
                     bounds_for(t, algo[CVY_CONV_BACKWARD_DATA], c->bound_dx, SAMPLES, c->nx));
  }
  /* adds to the values of the first run, as micro-batches do */
  SELFTEST_RUN(t, cvy_conv2d_backward_weights(op, t->queue, SAMPLES, x, pro, dy, dw, db, true, workspace));
  selftest_compare(t, "dw", dw, taps, k, yp, c->want_dw,
                   bounds_for(t, algo[CVY_CONV_BACKWARD_WEIGHTS], c->bound_dw, 1, c->nw));
  if (db) selftest_compare(t, "db", db, 1, k, yp, c->want_db, c->bound_db);
  cvy_conv2d_destroy(&op);
}

static void conv_run(selftest *t, const char *model, const cvy_conv2d_params *p) {
  conv_case c = {.p = *p};
  if (cvy_conv2d_output_shape(p, &c.y) != CVY_OK) return;
  c.nx = (size_t)SAMPLES * dense_of(&p->x);
  c.ny = (size_t)SAMPLES * dense_of(&c.y);
  c.nw = (size_t)p->r * (size_t)p->s * (size_t)p->x.c * (size_t)p->k;
  selftest_case_begin(t, "conv2d", "%s %dx%dx%d, %d filters %dx%d stride %d pad %d%s%s", model, p->x.h, p->x.w, p->x.c,
                      p->k, p->r, p->s, p->stride_h, p->pad_h, p->stats ? ", stats" : "",
                      p->prologue & CVY_CONV_RESIDUAL ? ", scale, residual, relu in front"
                      : p->prologue                   ? ", batchnorm, relu in front"
                                                      : "");
  c.x = selftest_random(t, c.nx, -1, 1);
  c.w = selftest_random(t, c.nw, -0.5, 0.5);
  c.bias = p->bias ? selftest_random(t, (size_t)p->k, -1, 1) : NULL;
  c.dy = selftest_random(t, c.ny, -1, 1);
  c.dw0 = selftest_random(t, c.nw, -1, 1);
  if (p->prologue) {
    c.affine = selftest_random(t, (size_t)SAMPLES * 3 * (size_t)p->x.c, 0.5, 2);
    c.residual = p->prologue & CVY_CONV_RESIDUAL ? selftest_random(t, c.nx, -1, 1) : NULL;
  }
  conv_truth(t, &c);
  while (selftest_next_device(t)) {
    c.p.algos.n = 0;
    conv_on_device(t, &c); /* as training takes it */
    c.p.algos = (cvy_conv_algo_list){1, {CVY_CONV_DIRECT}};
    conv_on_device(t, &c); /* the kernels that a tuner measures others against */
  }
  selftest_case_end(t);
}

/* ---- linear: the convolution with a filter as large as the image ---- */

static void linear_run(selftest *t, const char *model, const cvy_layer *layer, const cvy_shape *x_shape) {
  const cvy_linear_params p = {
      .n_max = SAMPLES, .x = *x_shape, .k = layer->shape.c, .y_pitch = layer->shape.pitch, .bias = layer->bias};
  const cvy_conv2d_params as_conv = {.n_max = SAMPLES,
                                     .x = p.x,
                                     .k = p.k,
                                     .y_pitch = p.y_pitch,
                                     .r = p.x.h,
                                     .s = p.x.w,
                                     .stride_h = 1,
                                     .stride_w = 1,
                                     .bias = p.bias};
  conv_case c = {.p = as_conv, .y = {.h = 1, .w = 1, .c = p.k, .pitch = p.y_pitch}};
  c.nx = (size_t)SAMPLES * dense_of(&p.x);
  c.ny = (size_t)SAMPLES * (size_t)p.k;
  c.nw = dense_of(&p.x) * (size_t)p.k;
  selftest_case_begin(t, "linear", "%s %dx%dx%d to %d", model, p.x.h, p.x.w, p.x.c, p.k);
  c.x = selftest_random(t, c.nx, -1, 1);
  c.w = selftest_random(t, c.nw, -0.5, 0.5);
  c.bias = p.bias ? selftest_random(t, (size_t)p.k, -1, 1) : NULL;
  c.dy = selftest_random(t, c.ny, -1, 1);
  c.dw0 = selftest_random(t, c.nw, -1, 1);
  conv_truth(t, &c);
  while (selftest_next_device(t)) {
    const size_t x_rows = rows_of(&p.x, SAMPLES), xc = (size_t)p.x.c, xp = (size_t)p.x.pitch, k = (size_t)p.k,
                 yp = (size_t)p.y_pitch;
    cvy_linear *op = NULL;
    SELFTEST_RUN(t, cvy_linear_create(t->cl, &p, &op));
    cvy_buffer *const x = selftest_input(t, c.x, x_rows, xc, xp);
    cvy_buffer *const w = selftest_input(t, c.w, dense_of(&p.x), k, yp);
    cvy_buffer *const bias = c.bias ? selftest_input(t, c.bias, 1, k, yp) : NULL;
    cvy_buffer *const dy = selftest_input(t, c.dy, SAMPLES, k, yp);
    cvy_buffer *const y = selftest_output(t, SAMPLES, k, yp), *const dx = selftest_output(t, x_rows, xc, xp);
    cvy_buffer *const dw = selftest_input(t, c.dw0, dense_of(&p.x), k, yp);
    cvy_buffer *const db = c.bias ? selftest_input(t, selftest_floats(t, k), 1, k, yp) : NULL;
    cvy_buffer *const workspace = op ? selftest_workspace(t, cvy_linear_workspace_bytes(op)) : NULL;
    SELFTEST_RUN(t, cvy_linear_forward(op, t->queue, SAMPLES, x, w, bias, y, workspace));
    selftest_compare(t, "y", y, SAMPLES, k, yp, c.want_y, c.bound_y);
    SELFTEST_RUN(t, cvy_linear_backward_data(op, t->queue, SAMPLES, dy, w, dx, false, workspace));
    selftest_compare(t, "dx", dx, x_rows, xc, xp, c.want_dx, c.bound_dx);
    SELFTEST_RUN(t, cvy_linear_backward_weights(op, t->queue, SAMPLES, x, dy, dw, db, true, workspace));
    selftest_compare(t, "dw", dw, dense_of(&p.x), k, yp, c.want_dw, c.bound_dw);
    if (db) selftest_compare(t, "db", db, 1, k, yp, c.want_db, c.bound_db);
    cvy_linear_destroy(&op);
  }
  selftest_case_end(t);
}

/* ---- batch normalisation ---- */

static void norm_run(selftest *t, const char *model, const cvy_layer *layer, bool relu, bool residual, bool deferred) {
  const bool groups = residual || deferred; /* of 2 and 1 samples, as ghost:2 */
  case_rng r = case_rng_make(1, 0);
  batchnorm_case c = {
      .base.n = 3,
      .p = {.n_max = 3, .x = layer->shape, .eps = layer->eps, .relu = relu, .residual = residual, .deferred = deferred},
      .group_size = groups ? 2 : 0,
      .batch = 3};
  case_batchnorm(&c, &r);
  selftest_op(t, &c.base, "%s %dx%dx%d%s%s%s, %s", model, c.p.x.h, c.p.x.w, c.p.x.c, residual ? ", add" : "",
              relu ? ", relu" : "", deferred ? ", deferred" : "", groups ? "groups of 2" : "one group");
}

/* ---- pooling ---- */

static void pool_run(selftest *t, const char *model, const cvy_pool2d_params *p) {
  case_rng r = case_rng_make(1, 0);
  pool2d_case c = {.base.n = p->n_max, .p = *p, .fill = CASE_FILL_NORMAL};
  case_pool2d(&c, &r);
  selftest_op(t, &c.base, "%s %s", model, case_pool2d_text(&c));
}

/* ---- the layers ---- */

static bool same_layer(const cvy_net *net, const cvy_layer *a, const cvy_layer *b) {
  const cvy_shape *const xa = &net->layers[a->input[0]].shape, *const xb = &net->layers[b->input[0]].shape;
  return a->kind == b->kind && memcmp(xa, xb, sizeof *xa) == 0 && memcmp(&a->shape, &b->shape, sizeof a->shape) == 0 &&
         memcmp(a->kernel, b->kernel, sizeof a->kernel) == 0 && memcmp(a->stride, b->stride, sizeof a->stride) == 0 &&
         memcmp(a->pad, b->pad, sizeof a->pad) == 0 && a->bias == b->bias;
}

static bool feeds_norm(const cvy_net *net, int layer) {
  for (int i = layer + 1; i < net->n_layers; i++) {
    if (net->layers[i].kind == CVY_LAYER_BATCHNORM && net->layers[i].input[0] == layer) return true;
  }
  return false;
}

static void layer_run(selftest *t, const char *model, const cvy_net *net, int i) {
  const cvy_layer *const l = &net->layers[i];
  const cvy_shape *const x = &net->layers[l->input[0]].shape;
  const bool first = net->layers[l->input[0]].kind == CVY_LAYER_INPUT;
  switch (l->kind) {
    case CVY_LAYER_CONV2D: {
      cvy_conv2d_params p = {.n_max = SAMPLES,
                             .x = *x,
                             .k = l->shape.c,
                             .y_pitch = l->shape.pitch,
                             .r = l->kernel[0],
                             .s = l->kernel[1],
                             .stride_h = l->stride[0],
                             .stride_w = l->stride[1],
                             .pad_h = l->pad[0],
                             .pad_w = l->pad[1],
                             .bias = l->bias,
                             .stats = feeds_norm(net, i),
                             .no_backward_data = first};
      conv_run(t, model, &p);
      if (p.r == 3 && p.x.c == p.k) { /* with a deferred batchnorm in front of it, as training has them */
        p.prologue = CVY_CONV_SCALE | CVY_CONV_RELU;
        conv_run(t, model, &p);
      }
      if (p.r == 3 && p.x.c == p.k && p.x.h <= 7) { /* one with everything in front of it */
        p.prologue = CVY_CONV_SCALE | CVY_CONV_RELU | CVY_CONV_RESIDUAL;
        conv_run(t, model, &p);
      }
      break;
    }
    case CVY_LAYER_BATCHNORM:
      norm_run(t, model, l, false, false, false);
      norm_run(t, model, l, true, false, false);
      norm_run(t, model, l, true, true, false);
      norm_run(t, model, l, true, false, true);
      break;
    case CVY_LAYER_MAXPOOL:
    case CVY_LAYER_AVGPOOL: {
      cvy_pool2d_params p = {.n_max = 3,
                             .kind = l->kind == CVY_LAYER_MAXPOOL ? CVY_POOL_MAX : CVY_POOL_AVG,
                             .x = *x,
                             .r = l->kernel[0],
                             .s = l->kernel[1],
                             .stride_h = l->stride[0],
                             .stride_w = l->stride[1],
                             .pad_h = l->pad[0],
                             .pad_w = l->pad[1]};
      pool_run(t, model, &p);
      p.relu = l->kind == CVY_LAYER_AVGPOOL;
      if (p.relu) pool_run(t, model, &p);
      p.relu = false;
      p.kind = CVY_POOL_MAX; /* not in these networks */
      if (l->kind == CVY_LAYER_AVGPOOL) pool_run(t, model, &p);
      break;
    }
    case CVY_LAYER_LINEAR: linear_run(t, model, l, x); break;
    case CVY_LAYER_INPUT:
    case CVY_LAYER_RELU:
    case CVY_LAYER_ADD:
    case CVY_LAYER_SOFTMAX: break; /* selftest_other_operations */
  }
}

void selftest_layers(selftest *t, const char *model, const cvy_net *net) {
  for (int i = 0; i < net->n_layers; i++) {
    bool seen = false;
    if (net->layers[i].kind == CVY_LAYER_INPUT) continue;
    for (int j = 0; j < i && !seen; j++)
      seen = net->layers[j].kind != CVY_LAYER_INPUT && same_layer(net, &net->layers[i], &net->layers[j]);
    if (!seen) layer_run(t, model, net, i);
  }
}
