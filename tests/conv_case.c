/* SPDX-License-Identifier: MIT */
#include "tests/conv_case.h"

#include <float.h>
#include <math.h>
#include <stdio.h>

#include "src/ops/math.h"
#include "src/ref/ref.h"

static char took[CVY_CONV_PASSES][32];
const char *conv_case_took(cvy_conv_pass pass) { return took[pass]; }

bool conv_in_oclgrind(void) { return getenv("CVY_TEST_OCLGRIND") != NULL; }
double conv_case_work(const cvy_conv2d_params *p, int n) { return 0.5 * cvy_conv2d_flops(p, n); }

/* Rounding errors of a sum of `terms` products add up like a random walk: u*sqrt(terms/3)*mag if all have one sign, and
 * a few more for the prologue and the accumulation. The bias is no term: added to the finished sum, it costs one
 * rounding of the result (compare), however large it is. FLT_EPSILON is 2u. */
static double bound_factor(double terms) { return 4.0 + 0.5 * sqrt(terms); }

/* TF32 rounds each factor by at most 2^-11: 2^-10 of the terms, and the product of both. */
#define TF32_FACTOR ((0x1p-10 + 0x1p-22) / FLT_EPSILON)

static bool check_conv_case(check_device *d, const conv_case *c) {
  const cvy_conv2d_params *const p = &c->p;
  return check_case(d,
                    "conv n=%d/%d x=%dx%dx%d/%d k=%d/%d f=%dx%d s=%dx%d p=%dx%d pro=%d g=%d bias=%d stats=%d dx=%d "
                    "acc=%d fill=%d",
                    c->n, p->n_max, p->x.h, p->x.w, p->x.c, p->x.pitch, p->k, p->y_pitch, p->r, p->s, p->stride_h,
                    p->stride_w, p->pad_h, p->pad_w, p->prologue, c->group_size, p->bias, p->stats,
                    !p->no_backward_data, c->accumulate, (int)c->fill);
}

static float *filled(check_device *d, case_rng *r, size_t n, case_fill_kind kind) {
  float *const x = check_floats(d, n);
  case_fill(r, x, n, kind);
  return x;
}

static const double *absolute(check_device *d, const double *x, size_t n) {
  double *const out = check_doubles(d, n);
  for (size_t i = 0; i < n; i++) out[i] = fabs(x[i]);
  return out;
}

/* How the rounding errors of an algorithm compare with those of a plain sum of products. Transforms mix the pixels of
 * a tile (of a whole image) and the taps of a filter: a large one leaves its error in its neighbours, times a tap that
 * it never meets in the exact result. The bound of each element then is that of the largest one of its sample, with the
 * largest pixel and the largest tap of each channel everywhere (largest_of). */
static double spread_of(cvy_conv_algo algo) {
  switch (algo) {
    case CVY_CONV_WINOGRAD2: return 4.0;
    case CVY_CONV_WINOGRAD4: return 32.0;
    case CVY_CONV_FFT: return 8.0;
    default: return 0.0;
  }
}

/* x: (outer, middle, inner): each element's largest magnitude over the middle. */
static double *largest_of(check_device *d, const double *x, size_t outer, size_t middle, size_t inner) {
  double *const out = check_doubles(d, outer * middle * inner);
  for (size_t o = 0; o < outer; o++)
    for (size_t i = 0; i < inner; i++) {
      double largest = 0;
      for (size_t m = 0; m < middle; m++) largest = fmax(largest, fabs(x[(o * middle + m) * inner + i]));
      for (size_t m = 0; m < middle; m++) out[(o * middle + m) * inner + i] = largest;
    }
  return out;
}

static void spread(double *mag, size_t samples, size_t elems, double factor) {
  for (size_t n = 0; n < samples; n++) {
    double largest = 0;
    for (size_t i = 0; i < elems; i++) largest = fmax(largest, mag[n * elems + i]);
    for (size_t i = 0; i < elems; i++) mag[n * elems + i] = factor * largest;
  }
}

/* got must be want (+ before) within the bound of `terms`; exact where everything is a small integer and the products
 * are taken as they are. rows x cols elements, of which `samples` share transforms. */
static void compare(check_device *d, const char *what, const conv_case *c, cvy_conv_algo algo, size_t samples,
                    bool tf32, check_buffer *got, double *want, double *mag, const float *before, double terms,
                    size_t rows, int cols) {
  const double factor = spread_of(algo);
  if (before)
    for (size_t i = 0; i < rows * (size_t)cols; i++) want[i] += before[i], mag[i] += fabs(before[i]);
  if (factor > 0) spread(mag, samples, rows * (size_t)cols / samples, factor);
  const bool exact = c->fill == CASE_FILL_INTEGERS && factor == 0;
  const double times = bound_factor(terms) + (tf32 ? TF32_FACTOR : 0.0);
  for (size_t i = 0; i < rows * (size_t)cols; i++) mag[i] += 0.5 * fabs(want[i]) / times;
  check_close_mag(d, what, check_download(got), want, mag, exact ? 0.0 : times, rows, cols);
}

/* Statistics against those of the device's own y. The mean's error is that of a sum; M2 around a mean that is off by e
 * is larger by positions*e*e. */
static void compare_stats(check_device *d, const conv_case *c, const float *y, check_buffer *stats, int positions) {
  const int k = c->p.k;
  const float *const got = check_download(stats);
  double *const want = check_doubles(d, (size_t)c->n * 2 * k), *const tol = check_doubles(d, (size_t)c->n * 2 * k);
  for (int n = 0; n < c->n; n++)
    for (int j = 0; j < k; j++) {
      double sum = 0, mag = 0, m2 = 0;
      for (int i = 0; i < positions; i++)
        sum += y[((size_t)n * positions + i) * k + j], mag += fabs(y[((size_t)n * positions + i) * k + j]);
      const double mean = sum / positions, factor = FLT_EPSILON * bound_factor(positions),
                   off = factor * mag / positions + FLT_MIN;
      for (int i = 0; i < positions; i++) m2 += pow(y[((size_t)n * positions + i) * k + j] - mean, 2);
      want[(size_t)n * 2 * k + j] = mean, tol[(size_t)n * 2 * k + j] = off;
      want[((size_t)n * 2 + 1) * k + j] = m2, tol[((size_t)n * 2 + 1) * k + j] =
                                                  factor * m2 + 2 * positions * off * off + FLT_MIN;
    }
  check_close(d, "stats", got, want, tol, (size_t)c->n * 2, k);
}

void conv_case_run(check_device *d, case_rng *r, const conv_case *c) {
  if (!check_conv_case(d, c)) return;
  const cvy_conv2d_params *const p = &c->p;
  cvy_shape out = {0};
  check_ok(cvy_conv2d_output_shape(p, &out));
  const int n = c->n, ch = p->x.c, k = p->k, groups = c->group_size ? cvy_ceil_div(n, c->group_size) : 1;
  const int x_rows = n * p->x.h * p->x.w, y_rows = n * out.h * out.w, w_rows = p->r * p->s * ch;
  const size_t x_size = (size_t)x_rows * ch, y_size = (size_t)y_rows * k, w_size = (size_t)w_rows * k;
  const float *const x = filled(d, r, x_size, c->fill), *const w = filled(d, r, w_size, c->fill),
                     *const dy = filled(d, r, y_size, c->fill);
  float *const bias = filled(d, r, (size_t)k, c->fill);
  const bool far = case_int(r, 0, 2) == 0;
  for (int i = 0; far && i < k; i++) bias[i] *= 1e4f;
  const float *const residual = filled(d, r, x_size, c->fill);
  const float *const affine = filled(d, r, (size_t)groups * 3 * ch, c->fill);
  const float *const before_x = filled(d, r, x_size, c->fill), *const before_w = filled(d, r, w_size, c->fill);
  const float *const before_b = filled(d, r, (size_t)k, c->fill);

  check_buffer *const bx = check_input(d, "x", x, x_rows, ch, p->x.pitch), *const bw = check_input(d, "w", w, w_rows, k,
                                                                                                   p->y_pitch);
  check_buffer *const bdy = check_input(d, "dy", dy, y_rows, k, p->y_pitch);
  check_buffer *const bbias = p->bias ? check_input(d, "bias", bias, 1, k, p->y_pitch) : NULL;
  const bool has_scale = (p->prologue & CVY_CONV_SCALE) != 0, has_residual = (p->prologue & CVY_CONV_RESIDUAL) != 0;
  const cvy_conv2d_prologue prologue = {
      .affine = has_scale ? check_input(d, "affine", affine, 3 * groups, ch, p->x.pitch)->cl : NULL,
      .residual = has_residual ? check_input(d, "residual", residual, x_rows, ch, p->x.pitch)->cl : NULL,
      .group_size = c->group_size};
  const cvy_conv2d_prologue *const pro = p->prologue ? &prologue : NULL;

  cvy_conv2d *op = NULL;
  check_ok(cvy_conv2d_create(d->cl, p, &op));
  cvy_conv_algo algo[CVY_CONV_PASSES];
  bool tf32[CVY_CONV_PASSES];
  for (int pass = 0; pass < CVY_CONV_PASSES; pass++) {
    algo[pass] = cvy_conv2d_chosen(op, (cvy_conv_pass)pass).algo;
    tf32[pass] = cvy_conv2d_error_bound(op, (cvy_conv_pass)pass) == CVY_TF32_ERROR_BOUND;
    snprintf(took[pass], sizeof took[pass], "%s", cvy_conv2d_algorithm_name(op, (cvy_conv_pass)pass));
  }
  const size_t bytes = cvy_conv2d_workspace_bytes(op);
  check_buffer *const workspace = bytes ? check_scratch(d, "workspace", bytes) : NULL;
  cvy_buffer *const ws = workspace ? workspace->cl : NULL;

  /* f(x), and the size of its terms */
  double *const fx = check_doubles(d, x_size), *const mag_fx = check_doubles(d, x_size);
  const double *const x64 = check_to_doubles(d, x, x_size), *const w64 = check_to_doubles(d, w, w_size);
  const double *const affine64 = check_to_doubles(d, affine, (size_t)groups * 3 * ch);
  const double *const residual64 = check_to_doubles(d, residual, x_size), *const dy64 = check_to_doubles(d, dy, y_size);
  const double *const bias64 = check_to_doubles(d, bias, (size_t)k);
  ref_conv2d_prologue(p, n, c->group_size, x64, affine64, residual64, fx);
  for (size_t i = 0; i < x_size; i++) { /* x - mean is one term: a mean may be much larger than what it leaves */
    const size_t at =
        (c->group_size ? i / (x_size / (size_t)n) / (size_t)c->group_size : 0) * 3 * (size_t)ch + i % (size_t)ch;
    mag_fx[i] = has_scale
                    ? fabs((x64[i] - affine64[at]) * affine64[at + (size_t)ch]) + fabs(affine64[at + 2 * (size_t)ch])
                    : fabs(x64[i]);
    if (has_residual) mag_fx[i] += fabs(residual64[i]);
  }
  const bool same_mag = !(p->prologue & (CVY_CONV_SCALE | CVY_CONV_RESIDUAL));

  double *const y_want = check_doubles(d, y_size), *const y_mag = check_doubles(d, y_size);
  double *const dx_want = check_doubles(d, x_size), *const dx_mag = check_doubles(d, x_size);
  double *const dw_want = check_doubles(d, w_size), *const dw_mag = check_doubles(d, w_size);
  double *const db_want = check_doubles(d, (size_t)k), *const db_mag = check_doubles(d, (size_t)k);
  ref_conv2d_forward(p, n, fx, w64, NULL, y_want, y_mag);
  for (size_t i = 0; p->bias && i < y_size; i++) y_want[i] += bias64[i % (size_t)k];
  ref_conv2d_backward_weights(p, n, fx, dy64, dw_want, dw_mag);
  if (!same_mag) {
    ref_conv2d_forward(p, n, mag_fx, absolute(d, w64, w_size), NULL, y_mag, NULL);
    ref_conv2d_backward_weights(p, n, mag_fx, absolute(d, dy64, y_size), dw_mag, NULL);
  }
  if (!p->no_backward_data) ref_conv2d_backward_data(p, n, dy64, w64, dx_want, dx_mag);
  const size_t x_pixels = (size_t)(p->x.h * p->x.w), y_pixels = (size_t)(out.h * out.w), taps = (size_t)(p->r * p->s);
  const double *const large_x = largest_of(d, same_mag ? fx : mag_fx, (size_t)n, x_pixels, (size_t)ch),
                      *const large_w = largest_of(d, w64, 1, taps, (size_t)ch * k),
                      *const large_dy = largest_of(d, dy64, (size_t)n, y_pixels, (size_t)k);
  if (spread_of(algo[CVY_CONV_FORWARD]) > 0) ref_conv2d_forward(p, n, large_x, large_w, NULL, y_mag, NULL);
  if (spread_of(algo[CVY_CONV_BACKWARD_WEIGHTS]) > 0)
    ref_conv2d_backward_weights(p, n, large_x, large_dy, dw_mag, NULL);
  if (spread_of(algo[CVY_CONV_BACKWARD_DATA]) > 0) ref_conv2d_backward_data(p, n, large_dy, large_w, dx_mag, NULL);
  ref_reduce_columns((size_t)y_rows, k, dy64, db_want, db_mag);

  const float *first_y = NULL, *first_dx = NULL, *first_dw = NULL, *first_db = NULL, *first_stats = NULL;
  for (int round = 0; round < 2; round++) {
    check_buffer *const by = check_output(d, "y", y_rows, k, p->y_pitch);
    check_buffer *const bstats = p->stats ? check_output(d, "stats", n * 2, k, p->y_pitch) : NULL;
    check_buffer *const bdx = c->accumulate ? check_inout(d, "dx", before_x, x_rows, ch, p->x.pitch)
                                            : check_output(d, "dx", x_rows, ch, p->x.pitch);
    check_buffer *const bdw = c->accumulate ? check_inout(d, "dw", before_w, w_rows, k, p->y_pitch)
                                            : check_output(d, "dw", w_rows, k, p->y_pitch);
    check_buffer *const bdb =
        c->accumulate ? check_inout(d, "db", before_b, 1, k, p->y_pitch) : check_output(d, "db", 1, k, p->y_pitch);
    check_ok(cvy_conv2d_forward(op, d->queue, n, bx->cl, pro, bw->cl, bbias ? bbias->cl : NULL, by->cl,
                                bstats ? bstats->cl : NULL, ws));
    check_ok(cvy_conv2d_backward_weights(op, d->queue, n, bx->cl, pro, bdy->cl, bdw->cl, p->bias ? bdb->cl : NULL,
                                         c->accumulate, ws));
    if (!p->no_backward_data)
      check_ok(cvy_conv2d_backward_data(op, d->queue, n, bdy->cl, bw->cl, bdx->cl, c->accumulate, ws));
    if (round == 0) {
      compare(d, "y", c, algo[CVY_CONV_FORWARD], (size_t)n, tf32[CVY_CONV_FORWARD], by, y_want, y_mag, NULL, w_rows,
              (size_t)y_rows, k);
      if (bstats) compare_stats(d, c, check_download(by), bstats, out.h * out.w);
      compare(d, "dw", c, algo[CVY_CONV_BACKWARD_WEIGHTS], 1, tf32[CVY_CONV_BACKWARD_WEIGHTS], bdw, dw_want, dw_mag,
              c->accumulate ? before_w : NULL, y_rows, (size_t)w_rows, k);
      if (p->bias)
        compare(d, "db", c, CVY_CONV_DIRECT, 1, false, bdb, db_want, db_mag, c->accumulate ? before_b : NULL, y_rows, 1,
                k);
      if (!p->no_backward_data)
        compare(d, "dx", c, algo[CVY_CONV_BACKWARD_DATA], (size_t)n, tf32[CVY_CONV_BACKWARD_DATA], bdx, dx_want, dx_mag,
                c->accumulate ? before_x : NULL, p->r * p->s * k, (size_t)x_rows, ch);
      first_y = check_download(by), first_dw = check_download(bdw);
      if (bstats) first_stats = check_download(bstats);
      if (p->bias) first_db = check_download(bdb);
      if (!p->no_backward_data) first_dx = check_download(bdx);
    } else {
      check_same(d, "y again", check_download(by), first_y, (size_t)y_rows, k);
      check_same(d, "dw again", check_download(bdw), first_dw, (size_t)w_rows, k);
      if (bstats) check_same(d, "stats again", check_download(bstats), first_stats, (size_t)n * 2, k);
      if (p->bias) check_same(d, "db again", check_download(bdb), first_db, 1, k);
      if (!p->no_backward_data) check_same(d, "dx again", check_download(bdx), first_dx, (size_t)x_rows, ch);
    }
  }
  cvy_conv2d_destroy(&op);
  check_case_end(d);
}
