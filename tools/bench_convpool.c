/* SPDX-License-Identifier: MIT
 * Convolution, ReLU and 2x2 average pool in one (ops/convpool.h): its passes. */
#include <stdio.h>
#include <string.h>

#include "src/base/mem.h"
#include "src/ref/ref.h"
#include "tools/bench_ops.h"

enum { FEW = 2, ARRAYS = 12 };
enum { X, W, BIAS, Y, MASK, DY, DX, DW, DB, WORKSPACE, BUFFERS };

static const bench_fill x_fill = {31, 1, 0}, w_fill = {32, 0.5, 0}, bias_fill = {33, 1, 0}, dy_fill = {34, 1, 0};

typedef struct convpool_run {
  bench_device *device;
  cvy_convpool_params p;
  cvy_conv2d_params conv; /* the convolution in it */
  cvy_pool2d_params pool; /* and the pool */
  cvy_shape a, y;         /* between them, and behind */
  int n, few;             /* images, and of those that are checked */
  cvy_convpool *op;
  cvy_buffer *buffers[BUFFERS];
  double *arrays[ARRAYS]; /* of the truth */
  int n_arrays;
} convpool_run;

static size_t pixels_of(const cvy_shape *s) { return (size_t)s->h * (size_t)s->w; }
static size_t dense_of(const cvy_shape *s) { return pixels_of(s) * (size_t)s->c; }
static size_t taps_of(const cvy_convpool_params *p) { return (size_t)p->r * (size_t)p->s * (size_t)p->x.c; }

static cvy_status run_forward(void *user) {
  convpool_run *const c = user;
  cvy_buffer **const b = c->buffers;
  return cvy_convpool_forward(c->op, c->device->queue, c->n, b[X], b[W], b[BIAS], b[Y], b[MASK], b[WORKSPACE]);
}
static cvy_status run_data(void *user) {
  convpool_run *const c = user;
  cvy_buffer **const b = c->buffers;
  return cvy_convpool_backward_data(c->op, c->device->queue, c->n, b[DY], b[MASK], b[W], b[DX], false, b[WORKSPACE]);
}
static cvy_status run_weights(void *user) {
  convpool_run *const c = user;
  cvy_buffer **const b = c->buffers;
  return cvy_convpool_backward_weights(c->op, c->device->queue, c->n, b[X], b[DY], b[MASK], b[DW], b[DB], false,
                                       b[WORKSPACE]);
}

/* ---- truth: the references of the three ---- */

/* Never NULL: a few images' worth. */
static double *keep(convpool_run *c, double *array) {
  CVY_ASSERT(array != NULL && c->n_arrays < ARRAYS);
  return c->arrays[c->n_arrays++] = array;
}
static double *zeros(convpool_run *c, size_t n) { return keep(c, cvy_calloc(n, sizeof(double))); }

/* The convolution's results. */
static double *convolved(convpool_run *c, const double *x, const double *w) {
  double *const a = zeros(c, (size_t)c->few * dense_of(&c->a));
  const double *const bias = c->p.bias ? keep(c, bench_doubles(&bias_fill, 0, 1, (size_t)c->p.k)) : NULL;
  ref_conv2d_forward(&c->conv, c->few, x, w, bias, a, NULL);
  return a;
}

/* Reads the bits of the device's mask. da (may be NULL) gets the gradient in front of the pool. sum (may be NULL): adds
 * the error of the ReLU's results that wrong bits mean; none near 0, where both bits are right. */
static cvy_status read_mask(convpool_run *c, const double *a, const double *dy, double *da, bench_error_sum *sum) {
  cvy_status status = CVY_OK;
  const size_t k = (size_t)c->p.k, pitch = (size_t)c->p.y_pitch, bytes = cvy_convpool_mask_bytes(&c->p, c->few);
  unsigned char *const mask = cvy_calloc(bytes, 1);
  CVY_REQUIRE(mask, CVY_E_MEMORY, "no memory for a mask");
  CVY_TRY(cvy_buffer_read(c->device->queue, c->buffers[MASK], 0, bytes, mask, NULL, NULL));
  for (size_t i = 0; i < (size_t)c->few * dense_of(&c->y) * 4; i++) {
    const size_t channel = i % k, bit = i / k % 4, row = i / k / 4, pixel = row % pixels_of(&c->y);
    const size_t h = pixel / (size_t)c->y.w * 2 + bit / 2, w = pixel % (size_t)c->y.w * 2 + bit % 2;
    const size_t at = ((row / pixels_of(&c->y) * (size_t)c->a.h + h) * (size_t)c->a.w + w) * k + channel;
    const bool passes = mask[row * pitch + channel] >> bit & 1;
    if (da) da[at] = passes ? dy[row * k + channel] / 4 : 0;
    if (sum && passes != (a[at] > 0)) sum->difference += a[at] * a[at];
  }
fail:
  cvy_free(mask);
  return status;
}

static cvy_status error_forward(void *user, double *error) {
  convpool_run *const c = user;
  cvy_status status = CVY_OK;
  bench_error_sum sum = {0};
  const size_t rows = (size_t)c->few * pixels_of(&c->p.x), k = (size_t)c->p.k;
  const double *const a = convolved(c, keep(c, bench_doubles(&x_fill, 0, rows, (size_t)c->p.x.c)),
                                    keep(c, bench_doubles(&w_fill, 0, taps_of(&c->p), k)));
  double *const relu = zeros(c, (size_t)c->few * dense_of(&c->a)), *const want =
                                                                       zeros(c, (size_t)c->few * dense_of(&c->y));
  ref_relu((size_t)c->few * dense_of(&c->a), a, relu);
  ref_pool2d_forward(&c->pool, c->few, relu, want);
  CVY_TRY(read_mask(c, a, NULL, NULL, &sum));
  CVY_TRY(bench_error_add(c->device, c->buffers[Y], 0, (size_t)c->few * pixels_of(&c->y), k, (size_t)c->p.y_pitch, want,
                          &sum));
  *error = bench_error_of(&sum);
fail:
  return status;
}

/* By the device's own mask, which forward's row checks. */
static cvy_status gradient(convpool_run *c, double **da) {
  const double *const dy = keep(c, bench_doubles(&dy_fill, 0, (size_t)c->few * pixels_of(&c->y), (size_t)c->p.k));
  *da = zeros(c, (size_t)c->few * dense_of(&c->a));
  return read_mask(c, NULL, dy, *da, NULL);
}

static cvy_status error_data(void *user, double *error) {
  convpool_run *const c = user;
  cvy_status status = CVY_OK;
  bench_error_sum sum = {0};
  double *const want = zeros(c, (size_t)c->few * dense_of(&c->p.x)), *da;
  CVY_TRY(gradient(c, &da));
  ref_conv2d_backward_data(&c->conv, c->few, da, keep(c, bench_doubles(&w_fill, 0, taps_of(&c->p), (size_t)c->p.k)),
                           want, NULL);
  CVY_TRY(bench_error_add(c->device, c->buffers[DX], 0, (size_t)c->few * pixels_of(&c->p.x), (size_t)c->p.x.c,
                          (size_t)c->p.x.pitch, want, &sum));
  *error = bench_error_of(&sum);
fail:
  return status;
}

/* The sums run over all images, so this runs the pass again with a few. */
static cvy_status error_weights(void *user, double *error) {
  convpool_run *const c = user;
  cvy_status status = CVY_OK;
  bench_error_sum sum = {0};
  const int all = c->n;
  const size_t k = (size_t)c->p.k, rows = (size_t)c->few * pixels_of(&c->p.x);
  double *const want = zeros(c, taps_of(&c->p) * k), *const want_db = zeros(c, k), *da;
  CVY_TRY(gradient(c, &da));
  ref_conv2d_backward_weights(&c->conv, c->few, keep(c, bench_doubles(&x_fill, 0, rows, (size_t)c->p.x.c)), da, want,
                              NULL);
  ref_reduce_columns((size_t)c->few * pixels_of(&c->a), (int)k, da, want_db, NULL);
  c->n = c->few;
  status = run_weights(c);
  c->n = all;
  CVY_TRY(status);
  CVY_TRY(bench_error_add(c->device, c->buffers[DW], 0, taps_of(&c->p), k, (size_t)c->p.y_pitch, want, &sum));
  if (c->p.bias) CVY_TRY(bench_error_add(c->device, c->buffers[DB], 0, 1, k, (size_t)c->p.y_pitch, want_db, &sum));
  *error = bench_error_of(&sum);
fail:
  return status;
}

/* ---- rows ---- */

static cvy_status convpool_open(convpool_run *c) {
  cvy_status status = CVY_OK;
  bench_device *const d = c->device;
  const cvy_convpool_params *const p = &c->p;
  const size_t n = (size_t)c->n, k = (size_t)p->k, pitch = (size_t)p->y_pitch;
  const size_t x_rows = n * pixels_of(&p->x), y_rows = n * pixels_of(&c->y), taps = taps_of(p);
  CVY_TRY(cvy_convpool_create(d->cl, p, &c->op));
  CVY_TRY(bench_buffer_filled(d, &x_fill, x_rows, (size_t)p->x.c, (size_t)p->x.pitch, &c->buffers[X]));
  CVY_TRY(bench_buffer_filled(d, &w_fill, taps, k, pitch, &c->buffers[W]));
  CVY_TRY(bench_buffer_filled(d, &dy_fill, y_rows, k, pitch, &c->buffers[DY]));
  if (p->bias) CVY_TRY(bench_buffer_filled(d, &bias_fill, 1, k, pitch, &c->buffers[BIAS]));
  if (p->bias) CVY_TRY(bench_buffer_zero(d, pitch * sizeof(float), &c->buffers[DB]));
  CVY_TRY(bench_buffer_zero(d, y_rows * pitch * sizeof(float), &c->buffers[Y]));
  CVY_TRY(bench_buffer_zero(d, cvy_convpool_mask_bytes(p, c->n), &c->buffers[MASK]));
  CVY_TRY(bench_buffer_zero(d, taps * pitch * sizeof(float), &c->buffers[DW]));
  if (!p->no_backward_data) CVY_TRY(bench_buffer_zero(d, x_rows * (size_t)p->x.pitch * sizeof(float), &c->buffers[DX]));
  CVY_TRY(bench_buffer_zero(d, cvy_convpool_workspace_bytes(c->op), &c->buffers[WORKSPACE]));
  CVY_TRY(run_forward(c)); /* the gradients need a mask */
fail:
  return status;
}

static void forget_truth(convpool_run *c) {
  while (c->n_arrays > 0) cvy_free(c->arrays[--c->n_arrays]);
}

cvy_status bench_convpool(bench_rows *rows, bench_device *device, const cvy_convpool_params *params, int count,
                          int pass) {
  cvy_status status = CVY_OK;
  const cvy_convpool_params *const p = params;
  convpool_run c = {.device = device,
                    .p = *p,
                    .y = cvy_convpool_output_shape(p),
                    .n = p->n_max,
                    .few = p->n_max < FEW ? p->n_max : FEW};
  c.conv = (cvy_conv2d_params){.n_max = p->n_max,
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
  CVY_TRY(cvy_conv2d_output_shape(&c.conv, &c.a));
  c.pool = (cvy_pool2d_params){
      .n_max = p->n_max, .kind = CVY_POOL_AVG, .x = c.a, .r = 2, .s = 2, .stride_h = 2, .stride_w = 2};
  CVY_TRY(convpool_open(&c));
  bench_case what = {.operation = "convpool", .count = count, .flops = cvy_conv2d_flops(&c.conv, c.n)};
  bench_conv_shape_text(&c.conv, what.shape, sizeof what.shape);
  const bench_way way = {.algorithm = cvy_convpool_algorithm_name(c.op), .chosen = true};
  /* the mask has a byte for each value behind the pool */
  const double n = c.n, x = 4 * n * (double)dense_of(&p->x), y = 4 * n * (double)dense_of(&c.y), mask = y / 4,
               w = 4 * (double)taps_of(p) * p->k;
  const struct {
    double read, written;
    bench_run_fn run;
    bench_error_fn error;
  } passes[CVY_CONV_PASSES] = {
      [CVY_CONV_FORWARD] = {x + w, y + mask, run_forward, error_forward},
      [CVY_CONV_BACKWARD_DATA] = {y + mask + w, x, run_data, error_data},
      [CVY_CONV_BACKWARD_WEIGHTS] = {x + y + mask, w, run_weights, error_weights},
  };
  for (int i = 0; i < CVY_CONV_PASSES; i++) {
    if ((pass != CVY_CONV_PASSES && pass != i) || (i == CVY_CONV_BACKWARD_DATA && p->no_backward_data)) continue;
    what.pass = cvy_conv_pass_name((cvy_conv_pass)i);
    what.read_bytes = passes[i].read, what.write_bytes = passes[i].written;
    status = bench_row(rows, device, &what, &way, passes[i].run, passes[i].error, &c);
    forget_truth(&c);
    CVY_TRY(status);
  }
fail:
  cvy_convpool_destroy(&c.op);
  for (int i = 0; i < BUFFERS; i++) cvy_buffer_destroy(&c.buffers[i]);
  return status;
}
