/* SPDX-License-Identifier: MIT
 * Operations that are no convolutions: they move memory, and are measured against its rate. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "src/base/mem.h"
#include "src/ops/batchnorm.h"
#include "src/ops/eltwise.h"
#include "src/ops/gather.h"
#include "src/ops/pool2d.h"
#include "src/ops/sgd.h"
#include "src/ops/softmax.h"
#include "src/ops/softmax_xent.h"
#include "src/ref/ref.h"
#include "tools/bench_ops.h"

enum { FEW = 2, CHECKED = 4096, BUFFERS = 12, ARRAYS = 16 };

/* One operation with its buffers; each operation uses them in its own way. */
typedef struct layer_run {
  bench_device *device;
  int n;        /* images */
  size_t elems; /* of a tensor with its padding */
  cvy_shape x, y;
  cvy_batchnorm_params norm_params;
  cvy_pool2d_params pool_params;
  cvy_sgd_params sgd_params;
  cvy_batchnorm *norm;
  cvy_pool2d *pool;
  cvy_eltwise *eltwise;
  cvy_softmax *softmax;
  cvy_softmax_xent *xent;
  cvy_sgd *sgd;
  cvy_gather *gather;
  bool relu, residual;
  cvy_buffer *buffers[BUFFERS];
  double *arrays[ARRAYS]; /* of the truth */
  int n_arrays;
} layer_run;

static const bench_fill fill_a = {11, 1, 0.25}, fill_b = {12, 1, 0}, fill_c = {13, 1, 0}, gamma_fill = {14, 0.5, 1},
                        beta_fill = {15, 0.5, 0}, running_fill = {16, 0.25, 0.75};

static size_t pixels_of(const cvy_shape *s) { return (size_t)s->h * (size_t)s->w; }

static void layer_close(layer_run *l) {
  cvy_batchnorm_destroy(&l->norm);
  cvy_pool2d_destroy(&l->pool);
  cvy_eltwise_destroy(&l->eltwise);
  cvy_softmax_destroy(&l->softmax);
  cvy_softmax_xent_destroy(&l->xent);
  cvy_sgd_destroy(&l->sgd);
  cvy_gather_destroy(&l->gather);
  for (int i = 0; i < BUFFERS; i++) cvy_buffer_destroy(&l->buffers[i]);
}

/* Owns an array of the truth until layer_row has compared. Never NULL: a few images' worth. */
static double *keep(layer_run *l, double *array) {
  CVY_ASSERT(array != NULL && l->n_arrays < ARRAYS);
  return l->arrays[l->n_arrays++] = array;
}
static double *zeros(layer_run *l, size_t n) { return keep(l, cvy_calloc(n, sizeof(double))); }
static double *truth_in(layer_run *l, const bench_fill *fill, size_t rows, size_t c) {
  return keep(l, bench_doubles(fill, 0, rows, c));
}

static cvy_status filled(layer_run *l, int at, const bench_fill *fill, const cvy_shape *s) {
  return bench_buffer_filled(l->device, fill, (size_t)l->n * pixels_of(s), (size_t)s->c, (size_t)s->pitch,
                             &l->buffers[at]);
}
static cvy_status zeroed(layer_run *l, int at, size_t floats) {
  return bench_buffer_zero(l->device, floats * sizeof(float), &l->buffers[at]);
}
/* The first `n` images of a tensor against the truth. */
static cvy_status compare(layer_run *l, int at, const cvy_shape *s, int n, const double *want, bench_error_sum *sum) {
  return bench_error_add(l->device, l->buffers[at], 0, (size_t)n * pixels_of(s), (size_t)s->c, (size_t)s->pitch, want,
                         sum);
}

/* One pass of the operation. in_step: a training step has it. */
typedef struct layer_pass {
  const char *name;
  double read_bytes, write_bytes;
  bool in_step;
  bench_run_fn run;
  bench_error_fn error;
} layer_pass;

static cvy_status layer_row(bench_rows *rows, layer_run *l, const bench_case *what, const layer_pass *pass) {
  bench_case c = *what;
  c.pass = pass->name, c.read_bytes = pass->read_bytes, c.write_bytes = pass->write_bytes;
  const cvy_status status =
      bench_row(rows, l->device, &c, &(bench_way){.algorithm = "", .chosen = pass->in_step}, pass->run, pass->error, l);
  while (l->n_arrays > 0) cvy_free(l->arrays[--l->n_arrays]);
  return status;
}

/* ---- batch normalisation ---- */

enum { BN_X, BN_RESIDUAL, BN_GAMMA, BN_BETA, BN_Y, BN_SAVED, BN_S, BN_RUNNING, BN_DY, BN_DX, BN_STATS, BN_WORKSPACE };

static cvy_status norm_forward(void *user) {
  layer_run *const l = user;
  cvy_buffer **const b = l->buffers;
  return cvy_batchnorm_forward_training(l->norm, l->device->queue, l->n, 0, l->n, b[BN_X], b[BN_STATS], b[BN_RESIDUAL],
                                        b[BN_GAMMA], b[BN_BETA], b[BN_Y], NULL, b[BN_SAVED], b[BN_S], false,
                                        b[BN_WORKSPACE], NULL);
}
static cvy_status norm_inference(void *user) {
  layer_run *const l = user;
  cvy_buffer **const b = l->buffers;
  return cvy_batchnorm_forward_inference(l->norm, l->device->queue, l->n, b[BN_X], b[BN_RESIDUAL], b[BN_GAMMA],
                                         b[BN_BETA], b[BN_RUNNING], b[BN_Y], NULL, b[BN_WORKSPACE]);
}
/* dgamma and dbeta lie in the buffers of S: (2,pitch) is room for one of them each. */
static cvy_status norm_backward(void *user) {
  layer_run *const l = user;
  cvy_buffer **const b = l->buffers;
  return cvy_batchnorm_backward(l->norm, l->device->queue, l->n, 0, b[BN_X], b[BN_Y], NULL, b[BN_DY], b[BN_GAMMA],
                                b[BN_SAVED], b[BN_DX], l->residual ? b[BN_DY] : NULL, false, b[BN_S], b[BN_RUNNING],
                                false, b[BN_WORKSPACE], NULL);
}

/* (mean, M2) of the first images, as the convolution's epilogue would give them. */
static cvy_status norm_put_stats(layer_run *l, const double *x, int n) {
  cvy_status status = CVY_OK;
  const size_t pitch = (size_t)l->x.pitch, c = (size_t)l->x.c, pixels = pixels_of(&l->x);
  float *const stats = cvy_calloc((size_t)n * 2 * pitch, sizeof *stats);
  CVY_REQUIRE(stats, CVY_E_MEMORY, "no memory for statistics");
  for (size_t i = 0; i < (size_t)n; i++) {
    for (size_t k = 0; k < c; k++) {
      double mean = 0, m2 = 0;
      for (size_t p = 0; p < pixels; p++) mean += x[(i * pixels + p) * c + k] / (double)pixels;
      for (size_t p = 0; p < pixels; p++) {
        const double d = x[(i * pixels + p) * c + k] - mean;
        m2 += d * d;
      }
      stats[2 * i * pitch + k] = (float)mean;
      stats[(2 * i + 1) * pitch + k] = (float)m2;
    }
  }
  CVY_TRY(cvy_buffer_write(l->device->queue, l->buffers[BN_STATS], 0, (size_t)n * 2 * pitch * sizeof *stats, stats,
                           NULL, NULL));
fail:
  cvy_free(stats);
  return status;
}

/* Statistics couple the samples, so this runs the operation again with a few, and backward with forward's own mask. */
static cvy_status norm_error(layer_run *l, const char *pass, double *error) {
  cvy_status status = CVY_OK;
  bench_error_sum sum = {0};
  const int all = l->n, n = l->n < FEW ? l->n : FEW;
  const size_t c = (size_t)l->x.c, rows = (size_t)n * pixels_of(&l->x), elems = rows * c;
  const double *const x = truth_in(l, &fill_a, rows, c), *const gamma = truth_in(l, &gamma_fill, 1, c),
                      *const beta = truth_in(l, &beta_fill, 1, c), *const dy = truth_in(l, &fill_c, rows, c);
  const double *const residual = l->residual ? truth_in(l, &fill_b, rows, c) : NULL;
  double *const y = zeros(l, elems), *const saved = zeros(l, 2 * c), *const dx = zeros(l, elems),
                *const dm = zeros(l, elems), *const dgamma = zeros(l, c), *const dbeta = zeros(l, c);
  l->n = n;
  if (strcmp(pass, "inference") == 0) {
    const double *const running = truth_in(l, &running_fill, 2, c);
    ref_batchnorm_inference(&l->norm_params, n, x, residual, gamma, beta, running, y);
    CVY_TRY(norm_inference(l));
    CVY_TRY(compare(l, BN_Y, &l->x, n, y, &sum));
    goto fail; /* done */
  }
  ref_batchnorm_forward(&l->norm_params, n, n, n, x, residual, gamma, beta, y, saved, NULL);
  if (l->buffers[BN_STATS]) CVY_TRY(norm_put_stats(l, x, n));
  CVY_TRY(norm_forward(l));
  if (strcmp(pass, "forward") == 0) {
    CVY_TRY(compare(l, BN_Y, &l->x, n, y, &sum));
    goto fail; /* done */
  }
  const size_t pitch = (size_t)l->x.pitch;
  float *const got = (float *)zeros(l, rows * pitch);
  unsigned char *const mask = (unsigned char *)zeros(l, elems);
  CVY_TRY(cvy_buffer_read(l->device->queue, l->buffers[BN_Y], 0, rows * pitch * sizeof *got, got, NULL, NULL));
  for (size_t i = 0; i < elems; i++) mask[i] = got[i / c * pitch + i % c] > 0;
  cvy_buffer_destroy(&l->buffers[BN_DY]); /* backward may have put dresidual there */
  CVY_TRY(filled(l, BN_DY, &fill_c, &l->x));
  CVY_TRY(norm_backward(l));
  ref_batchnorm_backward(&l->norm_params, n, n, x, y, l->relu ? mask : NULL, dy, gamma, dx, dm, dgamma, dbeta);
  CVY_TRY(compare(l, BN_DX, &l->x, n, dx, &sum));
fail:
  l->n = all;
  *error = bench_error_of(&sum);
  return status;
}
static cvy_status norm_error_forward(void *user, double *error) { return norm_error(user, "forward", error); }
static cvy_status norm_error_inference(void *user, double *error) { return norm_error(user, "inference", error); }
static cvy_status norm_error_backward(void *user, double *error) { return norm_error(user, "backward", error); }

static cvy_status bench_norm(bench_rows *rows, layer_run *l, const bench_case *what, bool stats) {
  cvy_status status = CVY_OK;
  const size_t pitch = (size_t)l->x.pitch, c = (size_t)l->x.c;
  const double tensor = 4.0 * l->n * (double)pixels_of(&l->x) * l->x.c, more = l->residual ? tensor : 0;
  CVY_TRY(cvy_batchnorm_create(l->device->cl, &l->norm_params, &l->norm));
  CVY_TRY(filled(l, BN_X, &fill_a, &l->x));
  CVY_TRY(filled(l, BN_DY, &fill_c, &l->x));
  if (l->residual) CVY_TRY(filled(l, BN_RESIDUAL, &fill_b, &l->x));
  CVY_TRY(bench_buffer_filled(l->device, &gamma_fill, 1, c, pitch, &l->buffers[BN_GAMMA]));
  CVY_TRY(bench_buffer_filled(l->device, &beta_fill, 1, c, pitch, &l->buffers[BN_BETA]));
  CVY_TRY(bench_buffer_filled(l->device, &running_fill, 2, c, pitch, &l->buffers[BN_RUNNING]));
  CVY_TRY(zeroed(l, BN_Y, l->elems));
  CVY_TRY(zeroed(l, BN_DX, l->elems));
  CVY_TRY(zeroed(l, BN_SAVED, 2 * pitch));
  CVY_TRY(zeroed(l, BN_S, 2 * pitch));
  CVY_TRY(bench_buffer_zero(l->device, cvy_batchnorm_workspace_bytes(l->norm), &l->buffers[BN_WORKSPACE]));
  if (stats) CVY_TRY(zeroed(l, BN_STATS, (size_t)l->n * 2 * pitch));
  /* backward reads y for the ReLU's mask alone */
  const layer_pass passes[] = {
      {"inference", tensor + more, tensor, false, norm_inference, norm_error_inference},
      {"forward", tensor + more, tensor, true, norm_forward, norm_error_forward},
      {"backward", tensor * (l->relu ? 3 : 2), tensor + more, true, norm_backward, norm_error_backward},
  };
  for (int i = 0; i < 3; i++) CVY_TRY(layer_row(rows, l, what, &passes[i]));
fail:
  return status;
}

/* ---- pooling ---- */

enum { X, Y, DY, DX, WORKSPACE, LABELS, RESULT };

static cvy_status pool_forward(void *user) {
  layer_run *const l = user;
  return cvy_pool2d_forward(l->pool, l->device->queue, l->n, l->buffers[X], l->buffers[Y]);
}
static cvy_status pool_backward(void *user) {
  layer_run *const l = user;
  cvy_buffer **const b = l->buffers;
  return cvy_pool2d_backward(l->pool, l->device->queue, l->n, b[X], b[Y], b[DY], b[DX], false);
}
static cvy_status pool_error(layer_run *l, bool backward, double *error) {
  cvy_status status = CVY_OK;
  bench_error_sum sum = {0};
  const int n = l->n < FEW ? l->n : FEW;
  const size_t c = (size_t)l->x.c, x_rows = (size_t)n * pixels_of(&l->x), y_rows = (size_t)n * pixels_of(&l->y);
  double *const x = truth_in(l, &fill_a, x_rows, c);
  const double *const dy = truth_in(l, &fill_c, y_rows, c);
  double *const want = zeros(l, (backward ? x_rows : y_rows) * c);
  if (l->relu) ref_relu(x_rows * c, x, x);
  if (backward) ref_pool2d_backward(&l->pool_params, n, x, dy, want);
  else ref_pool2d_forward(&l->pool_params, n, x, want);
  if (l->relu && backward) ref_relu_backward(x_rows * c, x, want, want);
  CVY_TRY(compare(l, backward ? DX : Y, backward ? &l->x : &l->y, n, want, &sum));
  *error = bench_error_of(&sum);
fail:
  return status;
}
static cvy_status pool_error_forward(void *user, double *error) { return pool_error(user, false, error); }
static cvy_status pool_error_backward(void *user, double *error) { return pool_error(user, true, error); }

static cvy_status bench_pool(bench_rows *rows, layer_run *l, const bench_case *what) {
  cvy_status status = CVY_OK;
  CVY_TRY(cvy_pool2d_output_shape(&l->pool_params, &l->y));
  const double x = 4.0 * l->n * (double)pixels_of(&l->x) * l->x.c, y = 4.0 * l->n * (double)pixels_of(&l->y) * l->y.c;
  const bool max = l->pool_params.kind == CVY_POOL_MAX;
  CVY_TRY(cvy_pool2d_create(l->device->cl, &l->pool_params, &l->pool));
  CVY_TRY(filled(l, X, &fill_a, &l->x));
  CVY_TRY(filled(l, DY, &fill_c, &l->y));
  CVY_TRY(zeroed(l, Y, (size_t)l->n * cvy_shape_elems(&l->y)));
  CVY_TRY(zeroed(l, DX, l->elems));
  const layer_pass passes[] = {
      {"forward", x, y, true, pool_forward, pool_error_forward},
      {"backward",
       max       ? x + 2 * y
       : l->relu ? x + y
                 : y,
       x, true, pool_backward, pool_error_backward},
  };
  for (int i = 0; i < 2; i++) CVY_TRY(layer_row(rows, l, what, &passes[i]));
fail:
  return status;
}

/* ---- relu, add ---- */

static cvy_status relu_forward(void *user) {
  layer_run *const l = user;
  return cvy_eltwise_relu(l->eltwise, l->device->queue, l->elems, l->buffers[X], l->buffers[Y]);
}
static cvy_status relu_backward(void *user) {
  layer_run *const l = user;
  cvy_buffer **const b = l->buffers;
  return cvy_eltwise_relu_backward(l->eltwise, l->device->queue, l->elems, b[Y], b[DY], b[DX], false);
}
static cvy_status add_forward(void *user) {
  layer_run *const l = user;
  cvy_buffer **const b = l->buffers;
  return cvy_eltwise_add(l->eltwise, l->device->queue, l->elems, b[X], b[DY], b[Y], l->relu);
}
static cvy_status add_accumulate(void *user) {
  layer_run *const l = user;
  return cvy_eltwise_accumulate(l->eltwise, l->device->queue, l->elems, l->buffers[X], l->buffers[DX]);
}

static cvy_status eltwise_error(layer_run *l, int pass, double *error) {
  cvy_status status = CVY_OK;
  bench_error_sum sum = {0};
  const size_t c = (size_t)l->x.c, rows = pixels_of(&l->x); /* of one image */
  const double *const x = truth_in(l, &fill_a, rows, c), *const dy = truth_in(l, &fill_c, rows, c);
  double *const y = zeros(l, rows * c), *const want = zeros(l, rows * c);
  ref_relu(rows * c, x, y);
  for (size_t i = 0; i < rows * c; i++) want[i] = pass == 2 ? x[i] + dy[i] : x[i]; /* add, accumulate to 0 */
  if (pass == 0 || (pass == 2 && l->relu)) ref_relu(rows * c, want, want);
  if (pass == 1) ref_relu_backward(rows * c, y, dy, want);
  if (pass == 3) { /* once, to zeros: the timed runs have added up */
    CVY_TRY(cvy_buffer_fill(l->device->queue, l->buffers[DX], 0, cvy_buffer_size(l->buffers[DX]), 0));
    CVY_TRY(add_accumulate(l));
  }
  CVY_TRY(compare(l, pass == 1 || pass == 3 ? DX : Y, &l->x, 1, want, &sum));
  *error = bench_error_of(&sum);
fail:
  return status;
}
static cvy_status relu_error_forward(void *user, double *error) { return eltwise_error(user, 0, error); }
static cvy_status relu_error_backward(void *user, double *error) { return eltwise_error(user, 1, error); }
static cvy_status add_error(void *user, double *error) { return eltwise_error(user, 2, error); }
static cvy_status accumulate_error(void *user, double *error) { return eltwise_error(user, 3, error); }

static cvy_status bench_eltwise(bench_rows *rows, layer_run *l, const bench_case *what, bool add) {
  cvy_status status = CVY_OK;
  const double x = 4.0 * l->n * (double)pixels_of(&l->x) * l->x.c;
  CVY_TRY(cvy_eltwise_create(l->device->cl, &l->eltwise));
  CVY_TRY(filled(l, X, &fill_a, &l->x));
  CVY_TRY(filled(l, DY, &fill_c, &l->x));
  CVY_TRY(zeroed(l, Y, l->elems));
  CVY_TRY(zeroed(l, DX, l->elems));
  const layer_pass relu_passes[] = {{"forward", x, x, true, relu_forward, relu_error_forward},
                                    {"backward", 2 * x, x, true, relu_backward, relu_error_backward}};
  const layer_pass add_passes[] = {{"forward", 2 * x, x, true, add_forward, add_error},
                                   {"accumulate", 2 * x, x, true, add_accumulate, accumulate_error}};
  for (int i = 0; i < 2; i++) CVY_TRY(layer_row(rows, l, what, add ? &add_passes[i] : &relu_passes[i]));
fail:
  return status;
}

/* ---- softmax ---- */

static cvy_status softmax_forward(void *user) {
  layer_run *const l = user;
  return cvy_softmax_forward(l->softmax, l->device->queue, (int)((size_t)l->n * pixels_of(&l->x)), l->buffers[X],
                             l->buffers[Y]);
}
static cvy_status softmax_error(void *user, double *error) {
  layer_run *const l = user;
  cvy_status status = CVY_OK;
  bench_error_sum sum = {0};
  const size_t rows = pixels_of(&l->x), c = (size_t)l->x.c;
  double *const want = zeros(l, rows * c);
  ref_softmax((int)rows, (int)c, truth_in(l, &fill_a, rows, c), want);
  CVY_TRY(compare(l, Y, &l->x, 1, want, &sum));
  *error = bench_error_of(&sum);
fail:
  return status;
}

static cvy_status bench_softmax(bench_rows *rows, layer_run *l, const bench_case *what) {
  cvy_status status = CVY_OK;
  const double x = 4.0 * l->n * (double)pixels_of(&l->x) * l->x.c;
  CVY_TRY(cvy_softmax_create(l->device->cl, l->x.c, l->x.pitch, &l->softmax));
  CVY_TRY(filled(l, X, &fill_a, &l->x));
  CVY_TRY(zeroed(l, Y, l->elems));
  CVY_TRY(layer_row(rows, l, what, &(layer_pass){"forward", x, x, true, softmax_forward, softmax_error}));
fail:
  return status;
}

static cvy_status xent_run(void *user) {
  layer_run *const l = user;
  cvy_buffer **const b = l->buffers;
  return cvy_softmax_xent_run(l->xent, l->device->queue, l->n, b[X], b[LABELS], 1.0f / (float)l->n, b[DX], b[RESULT],
                              false, b[WORKSPACE]);
}
static cvy_status xent_error(void *user, double *error) {
  layer_run *const l = user;
  cvy_status status = CVY_OK;
  bench_error_sum sum = {0};
  const int n = l->n < CHECKED ? l->n : CHECKED, c = l->x.c;
  double *const want = zeros(l, (size_t)n * (size_t)c), loss = 0;
  int correct = 0;
  int *const labels = (int *)zeros(l, (size_t)n);
  for (int i = 0; i < n; i++) labels[i] = i % c;
  ref_softmax_xent(n, c, truth_in(l, &fill_a, (size_t)n, (size_t)c), labels, 1.0 / l->n, want, &loss, &correct);
  CVY_TRY(compare(l, DX, &l->x, n, want, &sum));
  *error = bench_error_of(&sum);
fail:
  return status;
}

static cvy_status bench_xent(bench_rows *rows, layer_run *l, const bench_case *what) {
  cvy_status status = CVY_OK;
  const double x = 4.0 * l->n * l->x.c;
  int32_t *const labels = cvy_calloc((size_t)l->n, sizeof *labels);
  CVY_REQUIRE(labels, CVY_E_MEMORY, "no memory for %d labels", l->n);
  for (int i = 0; i < l->n; i++) labels[i] = i % l->x.c;
  CVY_TRY(cvy_softmax_xent_create(l->device->cl, l->n, l->x.c, l->x.pitch, &l->xent));
  CVY_TRY(filled(l, X, &fill_a, &l->x));
  CVY_TRY(zeroed(l, DX, l->elems));
  CVY_TRY(zeroed(l, RESULT, sizeof(cvy_xent_result) / sizeof(float)));
  CVY_TRY(zeroed(l, LABELS, (size_t)l->n));
  CVY_TRY(cvy_buffer_write(l->device->queue, l->buffers[LABELS], 0, (size_t)l->n * sizeof *labels, labels, NULL, NULL));
  CVY_TRY(bench_buffer_zero(l->device, cvy_softmax_xent_workspace_bytes(l->xent), &l->buffers[WORKSPACE]));
  CVY_TRY(layer_row(rows, l, what, &(layer_pass){"loss, gradient", x + 4.0 * l->n, x, true, xent_run, xent_error}));
fail:
  cvy_free(labels);
  return status;
}

/* ---- sgd: all parameters of the network at once ---- */

static cvy_status sgd_run(void *user) {
  layer_run *const l = user;
  cvy_buffer **const b = l->buffers;
  return cvy_sgd_update(l->sgd, l->device->queue, &l->sgd_params, l->elems, b[X], b[DY],
                        l->sgd_params.momentum != 0 ? b[DX] : NULL);
}
/* Runs once from the start, since the timed runs have moved the weights. */
static cvy_status sgd_error(void *user, double *error) {
  layer_run *const l = user;
  cvy_status status = CVY_OK;
  bench_error_sum sum = {0};
  const size_t n = l->elems < CHECKED ? l->elems : CHECKED;
  double *const w = truth_in(l, &fill_a, n, 1), *const g = truth_in(l, &fill_c, n, 1), *const v = zeros(l, n);
  cvy_buffer_destroy(&l->buffers[X]);
  CVY_TRY(bench_buffer_filled(l->device, &fill_a, l->elems, 1, 1, &l->buffers[X]));
  CVY_TRY(cvy_buffer_fill(l->device->queue, l->buffers[DX], 0, l->elems * sizeof(float), 0));
  CVY_TRY(sgd_run(l));
  ref_sgd(&l->sgd_params, n, w, g, l->sgd_params.momentum != 0 ? v : NULL);
  CVY_TRY(bench_error_add(l->device, l->buffers[X], 0, n, 1, 1, w, &sum));
  *error = bench_error_of(&sum);
fail:
  return status;
}

static cvy_status bench_sgd(bench_rows *rows, layer_run *l, const bench_case *what) {
  cvy_status status = CVY_OK;
  const double x = 4.0 * (double)l->elems;
  CVY_TRY(cvy_sgd_create(l->device->cl, &l->sgd));
  CVY_TRY(bench_buffer_filled(l->device, &fill_a, l->elems, 1, 1, &l->buffers[X]));
  CVY_TRY(bench_buffer_filled(l->device, &fill_c, l->elems, 1, 1, &l->buffers[DY]));
  CVY_TRY(zeroed(l, DX, l->elems));
  l->sgd_params = (cvy_sgd_params){.lr = 0.01f};
  CVY_TRY(layer_row(rows, l, what, &(layer_pass){"update", 2 * x, x, true, sgd_run, sgd_error}));
  l->sgd_params = (cvy_sgd_params){.lr = 0.01f, .momentum = 0.9f};
  CVY_TRY(layer_row(rows, l, what, &(layer_pass){"update, momentum", 3 * x, 2 * x, false, sgd_run, sgd_error}));
fail:
  return status;
}

/* ---- gather: a batch out of a data set of bytes ---- */

enum { GATHER_IMAGES = 4096 };

static cvy_status gather_run(void *user) {
  layer_run *const l = user;
  cvy_buffer **const b = l->buffers;
  return cvy_gather_run(l->gather, l->device->queue, l->n, b[X], b[LABELS], b[WORKSPACE], b[Y], b[RESULT]);
}

static unsigned char byte_at(size_t i) { return (unsigned char)(127.5f + 127.5f * bench_value(21, i)); }
static int32_t index_at(size_t i) { return (int32_t)(i * 2654435761u % GATHER_IMAGES); }

static cvy_status gather_error(void *user, double *error) {
  layer_run *const l = user;
  cvy_status status = CVY_OK;
  bench_error_sum sum = {0};
  const int n = l->n < FEW ? l->n : FEW;
  const size_t image = pixels_of(&l->x) * (size_t)l->x.c;
  double *const want = zeros(l, (size_t)n * image);
  for (size_t i = 0; i < (size_t)n * image; i++)
    want[i] = (double)((float)byte_at((size_t)index_at(i / image) * image + i % image) / 255.0f);
  CVY_TRY(compare(l, Y, &l->x, n, want, &sum));
  *error = bench_error_of(&sum);
fail:
  return status;
}

static cvy_status bench_gather(bench_rows *rows, layer_run *l, const bench_case *what) {
  cvy_status status = CVY_OK;
  const size_t image = pixels_of(&l->x) * (size_t)l->x.c, bytes = GATHER_IMAGES * image;
  unsigned char *const host = cvy_calloc(bytes, 1);
  int32_t *const index = cvy_calloc((size_t)l->n, sizeof *index);
  CVY_REQUIRE(host && index, CVY_E_MEMORY, "no memory for a data set");
  for (size_t i = 0; i < bytes; i++) host[i] = byte_at(i);
  for (size_t i = 0; i < (size_t)l->n; i++) index[i] = index_at(i);
  CVY_TRY(cvy_gather_create(l->device->cl, &l->x, &l->gather));
  CVY_TRY(bench_buffer_zero(l->device, bytes, &l->buffers[X]));
  CVY_TRY(cvy_buffer_write(l->device->queue, l->buffers[X], 0, bytes, host, NULL, NULL));
  CVY_TRY(bench_buffer_zero(l->device, GATHER_IMAGES * sizeof(uint16_t), &l->buffers[LABELS]));
  CVY_TRY(zeroed(l, WORKSPACE, (size_t)l->n));
  CVY_TRY(
      cvy_buffer_write(l->device->queue, l->buffers[WORKSPACE], 0, (size_t)l->n * sizeof *index, index, NULL, NULL));
  CVY_TRY(zeroed(l, Y, l->elems));
  CVY_TRY(zeroed(l, RESULT, (size_t)l->n));
  const double n = l->n, read = n * (double)image + 6 * n, written = 4 * n * (double)image + 4 * n;
  CVY_TRY(layer_row(rows, l, what, &(layer_pass){"forward", read, written, true, gather_run, gather_error}));
fail:
  cvy_free(host);
  cvy_free(index);
  return status;
}

/* ---- units and parts of a step ---- */

static void start(layer_run *l, bench_device *device, const cvy_shape *x, int n) {
  memset(l, 0, sizeof *l);
  l->device = device;
  l->n = n;
  l->x = *x;
  l->elems = (size_t)n * cvy_shape_elems(x);
}

cvy_status bench_layer(bench_rows *rows, bench_device *device, const cvy_net *net, const cvy_unit *unit, int n,
                       int count) {
  static layer_run l;
  cvy_status status = CVY_OK;
  const cvy_layer *const layer = &net->layers[unit->layer];
  const cvy_shape *const x = &net->layers[unit->x[0]].shape;
  bench_case what = {.operation = bench_unit_operation(unit), .count = count};
  int used = snprintf(what.shape, sizeof what.shape, "n%dh%dw%dc%d", n, x->h, x->w, x->c);
  start(&l, device, x, n);
  l.relu = unit->relu;
  l.residual = unit->x[1] >= 0;
  switch (unit->kind) {
    case CVY_UNIT_BATCHNORM:
      snprintf(what.shape + used, sizeof what.shape - (size_t)used, "%s%s", l.residual ? "+add" : "",
               l.relu ? "+relu" : "");
      l.norm_params =
          (cvy_batchnorm_params){.n_max = n, .x = *x, .eps = layer->eps, .relu = unit->relu, .residual = l.residual};
      status = bench_norm(rows, &l, &what, unit->stats >= 0);
      break;
    case CVY_UNIT_POOL:
      snprintf(what.shape + used, sizeof what.shape - (size_t)used, "r%ds%dp%d%s%s", layer->kernel[0], layer->stride[0],
               layer->pad[0], layer->kind == CVY_LAYER_MAXPOOL ? "max" : "avg", l.relu ? "+relu" : "");
      l.pool_params = (cvy_pool2d_params){.n_max = n,
                                          .kind = layer->kind == CVY_LAYER_MAXPOOL ? CVY_POOL_MAX : CVY_POOL_AVG,
                                          .x = *x,
                                          .r = layer->kernel[0],
                                          .s = layer->kernel[1],
                                          .stride_h = layer->stride[0],
                                          .stride_w = layer->stride[1],
                                          .pad_h = layer->pad[0],
                                          .pad_w = layer->pad[1],
                                          .relu = unit->relu};
      status = bench_pool(rows, &l, &what);
      break;
    case CVY_UNIT_RELU: status = bench_eltwise(rows, &l, &what, false); break;
    case CVY_UNIT_ADD:
      snprintf(what.shape + used, sizeof what.shape - (size_t)used, "%s", l.relu ? "+relu" : "");
      status = bench_eltwise(rows, &l, &what, true);
      break;
    case CVY_UNIT_SOFTMAX: status = bench_softmax(rows, &l, &what); break;
    case CVY_UNIT_CONVPOOL:
    case CVY_UNIT_CONV2D:
    case CVY_UNIT_LINEAR: break; /* bench_convpool, bench_conv */
  }
  layer_close(&l);
  return status;
}

const char *bench_unit_operation(const cvy_unit *unit) {
  switch (unit->kind) {
    case CVY_UNIT_CONV2D: return "conv2d";
    case CVY_UNIT_BATCHNORM: return "batchnorm";
    case CVY_UNIT_RELU: return "relu";
    case CVY_UNIT_ADD: return "add";
    case CVY_UNIT_POOL: return "pool2d";
    case CVY_UNIT_LINEAR: return "linear";
    case CVY_UNIT_CONVPOOL: return "convpool";
    case CVY_UNIT_SOFTMAX: return "softmax";
  }
  CVY_ASSERT(!"a unit of unknown kind");
}

cvy_status bench_step_parts(bench_rows *rows, bench_device *device, const cvy_net *net, int n, const char *only) {
  static layer_run l;
  cvy_status status = CVY_OK;
  const cvy_shape *const in = &net->layers[0].shape, *const out = &net->layers[net->output].shape;
  const cvy_shape flat = {.h = 1, .w = 1, .c = 1, .pitch = 1};
  const char *const names[] = {"softmax_xent", "sgd", "gather"};
  for (int i = 0; i < 3 && status == CVY_OK; i++) {
    bench_case what = {.operation = names[i], .count = 1};
    if (only && strcmp(only, names[i]) != 0) continue;
    start(&l, device, i == 0 ? out : i == 1 ? &flat : in, n);
    if (i == 1) l.elems = net->layout.n_floats / 16 * 16;
    if (i == 0) snprintf(what.shape, sizeof what.shape, "n%dc%d", n, out->c);
    else if (i == 1) snprintf(what.shape, sizeof what.shape, "%zu", l.elems);
    else snprintf(what.shape, sizeof what.shape, "n%dh%dw%dc%d", n, in->h, in->w, in->c);
    status = i == 0 ? bench_xent(rows, &l, &what) : i == 1 ? bench_sgd(rows, &l, &what) : bench_gather(rows, &l, &what);
    layer_close(&l);
  }
  return status;
}
