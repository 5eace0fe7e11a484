/* SPDX-License-Identifier: MIT
 * Convolution, ReLU and average pool in one, against the references of the three. A value near 0 may fall on either
 * side of the ReLU in float32: the device's mask must agree with the reference where that is sure, and the gradients
 * are compared on the device's mask.
 * Bounds: direct sums are off by a few eps times the sum of the terms' absolute values; Winograd's transforms mix the
 * pixels of a tile and the taps, so there the largest of those sums in the tensor counts, with a factor for the
 * transforms' own. The bias is no term: added to the finished sum, it costs one rounding, however large it is. */
#include <float.h>
#include <math.h>
#include <stdio.h>

#include "src/ops/convpool.h"
#include "src/ref/ref.h"
#include "tests/check.h"

enum { DIRECT_FACTOR = 8, WINOGRAD_FACTOR = 48 };

typedef struct extras {
  bool accumulate, no_mask;
  case_fill_kind fill;
} extras;

static size_t elems(const cvy_shape *s, int n) { return (size_t)n * (size_t)s->h * (size_t)s->w * (size_t)s->c; }

static const char *describe(const cvy_convpool_params *p, int n) {
  static char text[200];
  snprintf(text, sizeof text, "n=%d h=%d w=%d c=%d pitch=%d k=%d r=%d s=%d pad=%d,%d%s%s%s", n, p->x.h, p->x.w, p->x.c,
           p->x.pitch, p->k, p->r, p->s, p->pad_h, p->pad_w, p->bias ? "" : " no bias",
           p->no_backward_data ? " no dx" : "", p->inference ? " inference" : "");
  return text;
}

/* |got - want| within what `mag` allows, and within the stated relative error. */
static void compare(check_device *d, const cvy_convpool *op, const char *what, const float *got, const double *want,
                    double *mag, size_t n, int cols, bool offset) {
  const bool winograd = !strcmp(cvy_convpool_algorithm_name(op), "winograd");
  double largest = 0;
  for (size_t i = 0; winograd && i < n; i++) largest = fmax(largest, mag[i]);
  for (size_t i = 0; winograd && i < n; i++) mag[i] = largest;
  check_close_mag(d, what, got, want, mag, winograd ? WINOGRAD_FACTOR : DIRECT_FACTOR, n / (size_t)cols, cols);
  if (!offset) check_relative_l2(d, what, got, want, n, 1e-5);
}

/* The conv2d that is in it. */
static cvy_conv2d_params conv_of(const cvy_convpool_params *p) {
  return (cvy_conv2d_params){.n_max = p->n_max,
                             .x = p->x,
                             .k = p->k,
                             .y_pitch = p->y_pitch,
                             .r = p->r,
                             .s = p->s,
                             .stride_h = 1,
                             .stride_w = 1,
                             .pad_h = p->pad_h,
                             .pad_w = p->pad_w,
                             .bias = p->bias};
}

/* The device's mask as the gradient of the convolution's output: da from dy. Bits behind K must be clear; a set bit
 * means a > 0, a clear one a <= 0, unless a is within its bound of 0. */
static void unpool(check_device *d, const cvy_convpool_params *p, int n, const unsigned char *mask, const double *a,
                   const double *a_bound, const cvy_shape *conv, const double *dy, double *da) {
  const cvy_shape y = cvy_convpool_output_shape(p);
  for (int row = 0; row < n * y.h * y.w; row++) {
    const int image = row / (y.h * y.w), i = row / y.w % y.h, j = row % y.w;
    for (int k = 0; k < y.pitch; k++) {
      const unsigned bits = mask[(size_t)row * (size_t)y.pitch + (size_t)k];
      if (k >= p->k ? bits != 0 : bits > 15) check_fail(d, "mask of row %d, channel %d is 0x%x", row, k, bits);
      for (int b = 0; b < 4 && k < p->k; b++) {
        const size_t at =
            (((size_t)image * (size_t)conv->h + (size_t)(2 * i + b / 2)) * (size_t)conv->w + (size_t)(2 * j + b % 2)) *
                (size_t)p->k +
            (size_t)k;
        const bool passes = bits >> b & 1;
        if (fabs(a[at]) > a_bound[at] && passes != (a[at] > 0))
          check_fail(d, "bit %d of row %d, channel %d is %d, the value %g", b, row, k, passes, a[at]);
        da[at] = passes ? dy[(size_t)row * (size_t)p->k + (size_t)k] / 4 : 0;
      }
    }
  }
}

static void run_case(check_device *d, case_rng *r, const cvy_convpool_params *p, int n, const extras *e) {
  const cvy_conv2d_params conv = conv_of(p);
  const cvy_pool2d_params pool = {.n_max = n, .kind = CVY_POOL_AVG, .r = 2, .s = 2, .stride_h = 2, .stride_w = 2};
  cvy_pool2d_params half = pool;
  cvy_shape a_shape, y_shape = cvy_convpool_output_shape(p), pooled;
  cvy_convpool *op = NULL;
  assert_true(cvy_convpool_fits(p));
  if (!d->cpu_shaped) {
    check_fails(cvy_convpool_create(d->cl, p, &op), CVY_E_UNSUPPORTED, "no kernels");
    return;
  }
  check_ok(cvy_convpool_create(d->cl, p, &op));
  check_ok(cvy_conv2d_output_shape(&conv, &a_shape));
  half.x = a_shape;
  check_ok(cvy_pool2d_output_shape(&half, &pooled));
  assert_memory_equal(&pooled, &y_shape, sizeof pooled);
  const int c = p->x.c, k = p->k, taps = p->r * p->s * c, x_rows = n * p->x.h * p->x.w,
            y_rows = n * y_shape.h * y_shape.w;
  const size_t nx = elems(&p->x, n), na = elems(&a_shape, n), ny = elems(&y_shape, n), nw = (size_t)taps * (size_t)k;
  float *const x = check_floats(d, nx), *const w = check_floats(d, nw), *const bias = check_floats(d, (size_t)k),
               *const dy = check_floats(d, ny), *const old = check_floats(d, nx + nw + (size_t)k);
  case_fill(r, x, nx, e->fill);
  case_fill(r, w, nw, CASE_FILL_NORMAL);
  case_fill(r, bias, (size_t)k, e->fill);
  const bool far = case_int(r, 0, 2) == 0;
  for (int i = 0; far && i < k; i++) bias[i] *= 1e4f;
  case_fill(r, dy, ny, CASE_FILL_NORMAL);
  case_fill(r, old, nx + nw + (size_t)k, CASE_FILL_INTEGERS);

  /* forward */
  double *const x_ref = check_to_doubles(d, x, nx), *const w_ref = check_to_doubles(d, w, nw);
  double *const a = check_doubles(d, na), *const a_mag = check_doubles(d, na), *const relu = check_doubles(d, na);
  double *const y_ref = check_doubles(d, ny), *const y_mag = check_doubles(d, ny);
  ref_conv2d_forward(&conv, n, x_ref, w_ref, NULL, a, a_mag);
  for (size_t i = 0; p->bias && i < na; i++) a[i] += (double)bias[i % (size_t)k];
  ref_relu(na, a, relu);
  ref_pool2d_forward(&half, n, relu, y_ref);
  ref_pool2d_forward(&half, n, a_mag, y_mag);
  const bool winograd = !strcmp(cvy_convpool_algorithm_name(op), "winograd");
  for (size_t i = 0; i < ny; i++) /* that of each of the four, and of two sums of them */
    y_mag[i] += 1.5 * y_ref[i] / (winograd ? WINOGRAD_FACTOR : DIRECT_FACTOR);
  check_buffer *const bx = check_input(d, "x", x, x_rows, c, p->x.pitch), *const bw = check_input(d, "w", w, taps, k,
                                                                                                  p->y_pitch);
  check_buffer *const bb = p->bias ? check_input(d, "bias", bias, 1, k, p->y_pitch) : NULL;
  check_buffer *const by = check_output(d, "y", y_rows, k, p->y_pitch);
  const size_t mask_bytes = cvy_convpool_mask_bytes(p, n);
  check_buffer *const bm = check_scratch(d, "mask", mask_bytes);
  check_buffer *const workspace = check_scratch(d, "workspace", cvy_convpool_workspace_bytes(op));
  const bool with_mask = !p->inference && !e->no_mask;
  check_ok(cvy_convpool_forward(op, d->queue, n, bx->cl, bw->cl, bb ? bb->cl : NULL, by->cl, with_mask ? bm->cl : NULL,
                                workspace->cl));
  const float *const y = check_download(by);
  compare(d, op, "y", y, y_ref, y_mag, ny, k, false);
  check_buffer *const again = check_output(d, "again", y_rows, k, p->y_pitch);
  check_ok(cvy_convpool_forward(op, d->queue, n, bx->cl, bw->cl, bb ? bb->cl : NULL, again->cl, NULL, workspace->cl));
  check_same(d, "y again", check_download(again), y, (size_t)y_rows, k);
  unsigned char *const mask = (unsigned char *)check_floats(d, mask_bytes / 4 + 1);
  check_download_bytes(bm, mask, mask_bytes);
  if (!with_mask) {
    for (size_t i = 0; i < mask_bytes; i++) assert_int_equal(mask[i], 0xff);
    goto done;
  }

  /* backward */
  double *const dy_ref = check_to_doubles(d, dy, ny), *const da = check_doubles(d, na),
                *const a_bound = check_doubles(d, na);
  double largest = 0;
  for (size_t i = 0; i < na; i++) largest = fmax(largest, a_mag[i]);
  for (size_t i = 0; i < na; i++) a_bound[i] = WINOGRAD_FACTOR * (double)FLT_EPSILON * largest;
  unpool(d, p, n, mask, a, a_bound, &a_shape, dy_ref, da);
  double *const want_dx = check_doubles(d, nx), *const dx_mag = check_doubles(d, nx),
                *const want_dw = check_doubles(d, nw), *const dw_mag = check_doubles(d, nw),
                *const want_db = check_doubles(d, (size_t)k), *const db_mag = check_doubles(d, (size_t)k);
  ref_conv2d_backward_weights(&conv, n, x_ref, da, want_dw, dw_mag);
  ref_reduce_columns(na / (size_t)k, k, da, want_db, db_mag);
  ref_conv2d_backward_data(&conv, n, da, w_ref, want_dx, dx_mag);
  for (size_t i = 0; e->accumulate && i < nx; i++) want_dx[i] += old[i], dx_mag[i] += fabs((double)old[i]);
  for (size_t i = 0; e->accumulate && i < nw; i++) want_dw[i] += old[nx + i], dw_mag[i] += fabs((double)old[nx + i]);
  for (size_t i = 0; e->accumulate && i < (size_t)k; i++)
    want_db[i] += old[nx + nw + i], db_mag[i] += fabs((double)old[nx + nw + i]);
  check_buffer *const bdy = check_input(d, "dy", dy, y_rows, k, p->y_pitch);
#define TARGET(name, from, rows, cols, pitch) \
  (e->accumulate ? check_inout(d, name, from, rows, cols, pitch) : check_output(d, name, rows, cols, pitch))
  check_buffer *const bdw = TARGET("dw", old + nx, taps, k, p->y_pitch);
  check_buffer *const bdb = p->bias ? TARGET("db", old + nx + nw, 1, k, p->y_pitch) : NULL;
  check_ok(cvy_convpool_backward_weights(op, d->queue, n, bx->cl, bdy->cl, bm->cl, bdw->cl, bdb ? bdb->cl : NULL,
                                         e->accumulate, workspace->cl));
  compare(d, op, "dw", check_download(bdw), want_dw, dw_mag, nw, k, e->accumulate);
  if (bdb) check_close_mag(d, "db", check_download(bdb), want_db, db_mag, DIRECT_FACTOR, 1, k);
  if (!p->no_backward_data) {
    check_buffer *const bdx = TARGET("dx", old, x_rows, c, p->x.pitch);
    check_ok(
        cvy_convpool_backward_data(op, d->queue, n, bdy->cl, bm->cl, bw->cl, bdx->cl, e->accumulate, workspace->cl));
    compare(d, op, "dx", check_download(bdx), want_dx, dx_mag, nx, c, e->accumulate);
  }
#undef TARGET
done:
  check_case_end(d);
  cvy_convpool_destroy(&op);
}

/* Many channels, 5x5. */
static void test_winograd(check_device *d) {
  const int n_cases = getenv("CVY_TEST_FULL") ? 80 : getenv("CVY_TEST_OCLGRIND") ? 4 : 20;
  for (int i = 0; i < n_cases; i++) {
    case_rng r = check_rng_make(d, i);
    const int n = case_int(&r, 1, 4), c = case_edge(&r, 16, getenv("CVY_TEST_OCLGRIND") ? 20 : 50);
    const int k = case_edge(&r, 16, getenv("CVY_TEST_OCLGRIND") ? 20 : 100);
    cvy_convpool_params p = {.n_max = n + case_int(&r, 0, 2),
                             .k = k,
                             .y_pitch = cvy_pitch_of(k),
                             .r = 5,
                             .s = 5,
                             .pad_h = i % 3 ? 0 : case_int(&r, 0, 4),
                             .pad_w = i % 3 ? 0 : case_int(&r, 0, 4),
                             .bias = i % 4 != 1};
    p.x = (cvy_shape){
        .h = case_int(&r, 6 - p.pad_h, 15), .w = case_int(&r, 6 - p.pad_w, 15), .c = c, .pitch = cvy_pitch_of(c)};
    p.no_backward_data = i % 5 == 4 && c > 4;
    const extras e = {
        .accumulate = i % 4 == 3, .no_mask = i % 7 == 6, .fill = i % 2 ? CASE_FILL_NORMAL : CASE_FILL_ANY};
    if (check_case(d, "winograd %s number=%d", describe(&p, n), i)) run_case(d, &r, &p, n, &e);
  }
}

/* The first layer: few channels, any filter. */
static void test_direct(check_device *d) {
  const int n_cases = getenv("CVY_TEST_FULL") ? 80 : getenv("CVY_TEST_OCLGRIND") ? 5 : 24;
  for (int i = 0; i < n_cases; i++) {
    case_rng r = check_rng_make(d, 300 + i);
    const int n = case_int(&r, 1, 4), c = case_int(&r, 1, 4), k = case_edge(&r, 16, 70);
    cvy_convpool_params p = {.n_max = n + case_int(&r, 0, 2),
                             .k = k,
                             .y_pitch = cvy_pitch_of(k),
                             .r = case_int(&r, 1, 5),
                             .s = case_int(&r, 1, 5),
                             .bias = i % 4 != 1,
                             .no_backward_data = true};
    p.pad_h = i % 3 ? 0 : case_int(&r, 0, p.r - 1), p.pad_w = i % 3 ? 0 : case_int(&r, 0, p.s - 1);
    const int least_h = p.r + 1 - 2 * p.pad_h, least_w = p.s + 1 - 2 * p.pad_w;
    p.x = (cvy_shape){.h = case_int(&r, least_h > 1 ? least_h : 1, 17),
                      .w = case_int(&r, least_w > 1 ? least_w : 1, 17),
                      .c = c,
                      .pitch = i % 2 ? cvy_input_pitch_of(c) : cvy_pitch_of(c)};
    const extras e = {
        .accumulate = i % 4 == 3, .no_mask = i % 7 == 6, .fill = i % 2 ? CASE_FILL_NORMAL : CASE_FILL_ANY};
    if (check_case(d, "direct %s number=%d", describe(&p, n), i)) run_case(d, &r, &p, n, &e);
  }
}

/* What the networks use, more tiles than there are work-groups, and the largest shapes. */
static void test_fixed(check_device *d) {
  static const cvy_convpool_params cases[] = {
      {.x = {28, 28, 1, 1}, .k = 20, .r = 3, .s = 3, .bias = true, .no_backward_data = true},
      {.x = {13, 13, 20, 32}, .k = 50, .r = 5, .s = 5, .bias = true},
      {.x = {32, 32, 3, 4}, .k = 20, .r = 3, .s = 3, .bias = true, .no_backward_data = true},
      {.x = {15, 15, 20, 32}, .k = 50, .r = 5, .s = 5, .bias = true},
      {.x = {28, 28, 1, 1}, .k = 6, .r = 5, .s = 5, .pad_h = 2, .pad_w = 2, .bias = true, .no_backward_data = true},
      {.x = {6, 6, 6, 16}, .k = 16, .r = 5, .s = 5, .bias = true, .inference = true},
      {.x = {9, 8, 128, 128}, .k = 113, .r = 5, .s = 5},
  };
  for (int i = 0; i < (int)(sizeof cases / sizeof *cases); i++) {
    case_rng r = check_rng_make(d, 500 + i);
    cvy_convpool_params p = cases[i];
    const int n = i < 2 ? 9 : 2;
    if (getenv("CVY_TEST_OCLGRIND") && i != 5) continue;
    p.n_max = n, p.y_pitch = cvy_pitch_of(p.k);
    const extras e = {.fill = i % 2 ? CASE_FILL_OUTLIERS : CASE_FILL_OFFSET};
    if (check_case(d, "%s", describe(&p, n))) run_case(d, &r, &p, n, &e);
  }
}

/* Which shapes are done: pure. */
static void test_fits(check_device *d) {
  const cvy_convpool_params
      good = {.n_max = 2, .x = {13, 13, 20, 32}, .k = 50, .y_pitch = 64, .r = 5, .s = 5},
      first = {.n_max = 2, .x = {28, 28, 1, 1}, .k = 20, .y_pitch = 32, .r = 3, .s = 3, .no_backward_data = true};
  static const struct {
    bool of_first;
    size_t offset;
    int value;
  } bad[] = {
      {false, offsetof(cvy_convpool_params, n_max), 0},    {false, offsetof(cvy_convpool_params, n_max), 1 << 20},
      {false, offsetof(cvy_convpool_params, x.h), 5},      {false, offsetof(cvy_convpool_params, x.w), 5},
      {false, offsetof(cvy_convpool_params, x.pitch), 20}, {false, offsetof(cvy_convpool_params, x.pitch), 272},
      {false, offsetof(cvy_convpool_params, y_pitch), 50}, {false, offsetof(cvy_convpool_params, y_pitch), 48},
      {false, offsetof(cvy_convpool_params, r), 3},        {false, offsetof(cvy_convpool_params, s), 4},
      {false, offsetof(cvy_convpool_params, pad_h), 5},    {false, offsetof(cvy_convpool_params, pad_w), -1},
      {false, offsetof(cvy_convpool_params, k), 0},        {true, offsetof(cvy_convpool_params, r), 129},
      {true, offsetof(cvy_convpool_params, x.c), 5},       {true, offsetof(cvy_convpool_params, no_backward_data), 0},
  };
  cvy_convpool *op = NULL;
  assert_true(cvy_convpool_fits(&good) && cvy_convpool_fits(&first));
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    cvy_convpool_params p = bad[i].of_first ? first : good;
    if (bad[i].offset == offsetof(cvy_convpool_params, no_backward_data)) p.no_backward_data = false;
    else memcpy((char *)&p + bad[i].offset, &bad[i].value, sizeof bad[i].value);
    if (cvy_convpool_fits(&p)) check_fail(d, "%s pitch %d: fits, must not", describe(&p, p.n_max), p.y_pitch);
    check_fails(cvy_convpool_create(d->cl, &p, &op), CVY_E_ARGUMENT, "not a shape");
    assert_null(op);
  }
  check_case_end(d);
}

static void test_arguments(check_device *d) {
  const cvy_convpool_params p = {.n_max = 2, .x = {6, 6, 8, 16}, .k = 16, .y_pitch = 16, .r = 5, .s = 5, .bias = true};
  cvy_convpool_params first = p;
  cvy_convpool *op = NULL;
  if (!d->cpu_shaped) return;
  float zeros[25 * 8 * 16] = {0};
  check_ok(cvy_convpool_create(d->cl, &p, &op));
  check_buffer *const x = check_input(d, "x", zeros, 72, 16, 16), *const w = check_input(d, "w", zeros, 200, 16, 16);
  check_buffer *const b = check_input(d, "b", zeros, 1, 16, 16), *const y = check_output(d, "y", 2, 16, 16);
  check_buffer *const mask = check_scratch(d, "mask", 32), *const space = check_scratch(
                                                               d, "workspace", cvy_convpool_workspace_bytes(op));
#define FORWARD(n, x, w, b, y, m, s) cvy_convpool_forward(op, d->queue, n, x, w, b, y, m, s)
  check_fails(FORWARD(0, x->cl, w->cl, b->cl, y->cl, NULL, space->cl), CVY_E_ARGUMENT, "0 samples");
  check_fails(FORWARD(3, x->cl, w->cl, b->cl, y->cl, NULL, space->cl), CVY_E_ARGUMENT, "from 1 to 2");
  check_fails(FORWARD(2, b->cl, w->cl, b->cl, y->cl, NULL, space->cl), CVY_E_ARGUMENT, "x has 64 bytes");
  check_fails(FORWARD(2, x->cl, b->cl, b->cl, y->cl, NULL, space->cl), CVY_E_ARGUMENT, "w has 64 bytes");
  check_fails(FORWARD(2, x->cl, w->cl, NULL, y->cl, NULL, space->cl), CVY_E_ARGUMENT,
              "with a bias, the call is without");
  check_fails(FORWARD(2, x->cl, w->cl, b->cl, b->cl, NULL, space->cl), CVY_E_ARGUMENT, "y has 64 bytes");
  check_fails(FORWARD(2, x->cl, w->cl, b->cl, y->cl, NULL, NULL), CVY_E_ARGUMENT, "workspace is NULL");
  check_fails(cvy_convpool_backward_data(op, d->queue, 2, y->cl, NULL, w->cl, x->cl, false, space->cl), CVY_E_ARGUMENT,
              "mask is NULL");
  check_fails(cvy_convpool_backward_data(op, d->queue, 2, y->cl, mask->cl, w->cl, y->cl, false, space->cl),
              CVY_E_ARGUMENT, "dx has 128 bytes");
  check_fails(cvy_convpool_backward_weights(op, d->queue, 2, x->cl, NULL, mask->cl, w->cl, b->cl, false, space->cl),
              CVY_E_ARGUMENT, "dy is NULL");
  check_fails(cvy_convpool_backward_weights(op, d->queue, 2, x->cl, y->cl, mask->cl, x->cl, b->cl, false, space->cl),
              CVY_E_ARGUMENT, "dw has");
#undef FORWARD
  cvy_convpool_destroy(&op);
  first.no_backward_data = true, first.inference = true;
  check_ok(cvy_convpool_create(d->cl, &first, &op));
  check_fails(cvy_convpool_backward_data(op, d->queue, 2, y->cl, mask->cl, w->cl, x->cl, false, space->cl),
              CVY_E_ARGUMENT, "without backward_data");
  check_fails(cvy_convpool_backward_weights(op, d->queue, 2, x->cl, y->cl, mask->cl, w->cl, NULL, false, space->cl),
              CVY_E_ARGUMENT, "without backward_weights");
  check_case_end(d);
  cvy_convpool_destroy(&op);
}

int main(int argc, char **argv) {
  static const check_test tests[] = {{"winograd", test_winograd},
                                     {"direct", test_direct},
                                     {"fixed", test_fixed},
                                     {"fits", test_fits},
                                     {"arguments", test_arguments}};
  return check_main(argc, argv, tests, sizeof tests / sizeof *tests, CHECK_DEVICES | CHECK_BOTH_SHAPES);
}
