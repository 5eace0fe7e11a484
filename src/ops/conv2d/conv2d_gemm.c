/* SPDX-License-Identifier: MIT
 * Convolution as matrix products of CLBlast. Rows m = (image, p, q), depth e = (r, s, c):
 *   forward           y (m,k) = columns (m,e) * w (e,k); then bias, then statistics
 *   backward_data     columns (m,e) = dy (m,k) * w^T (k,e); then each pixel gathers its columns
 *   backward_weights  dw (e,k) (+)= columns^T (e,m) * dy (m,k)
 * k runs over the pitch of y, whose padding is zero in w and dy. Filters of one pixel, and filters as large as the
 * image (linear layers), have their columns in x itself, unless a load prologue changes them on the way.
 *
 * Workspace: columns of a chunk of samples, then CLBlast's copies of the three matrices with whole tiles. A chunk's
 * largest matrix has at most tile[0] MiB (64 by default), or is one sample's: at most three times that, and the tiles'
 * edges, and a copy of w. */
#include "src/cl/blas.h"
#include "src/cl/dry_run.h"
#include "src/ops/conv2d/conv2d_algorithm.h"
#include "src/ops/divider.h"
#include "src/ops/stream.h"

enum { DEFAULT_MIB = 64 };

typedef struct gemm_state {
  cvy_conv_job job;
  bool in_place;               /* the columns lie in x (in dx) */
  int depth, positions, chunk; /* per sample: columns' length, rows; samples per product */
  int vec, y_vec;
  size_t temp_at, temp_bytes; /* in the workspace */
  cvy_kernel *columns, *image, *bias, *clear;
} gemm_state;

/* The columns are x's own memory: one pixel each, or the whole dense image. */
static bool are_columns_there(const cvy_conv2d_params *p, const cvy_shape *y) {
  if (p->pad_h || p->pad_w) return false;
  if (p->r == 1 && p->s == 1 && p->stride_h == 1 && p->stride_w == 1) return true;
  return y->h == 1 && y->w == 1 && p->r == p->x.h && p->s == p->x.w && p->x.pitch == p->x.c;
}

static const char *can(const cvy_conv_job *job) {
  const cvy_conv2d_params *const p = &job->params;
  if (cvy_device_is_dry_run(job->base.device) || !cvy_blas_probe(NULL, 0)) return "CLBlast is not installed";
  const int64_t columns = (int64_t)job->y.h * job->y.w * ((int64_t)p->r * p->s * p->x.c);
  return columns > INT32_MAX ? "the columns of one sample do not fit 32-bit indices" : NULL;
}

/* Pass by pass another kind of product: dw has columns^T, dx has w^T. */
static bool works(const cvy_conv_job *job, const char **why) {
  return cvy_blas_works(job->base.device, job->weights, job->data, why);
}

/* CPUs: measured on PoCL against direct_cpu, 13 to 38 times as long: CLBlast's kernels are shaped for GPUs. Elsewhere
 * an estimate: a tuned SGEMM is not faster than an implicit one, and the columns cost a pass over R*S times the input.
 * Never the default; the tuner finds where this algorithm wins. */
static double cost(const cvy_conv_job *job) {
  if (cvy_device_get_info(job->base.device)->kind == CVY_DEVICE_CPU) return 20.0;
  return are_columns_there(&job->params, &job->y) && !job->params.prologue ? 1.2 : 1.5;
}

static cvy_status create_kernel(gemm_state *st, const char *name, int vec, cvy_kernel **kernel) {
  const cvy_define defines[] = {{"VEC", vec}};
  return cvy_conv_kernel(&st->job, name, defines, 1, kernel);
}

static cvy_status plan_memory(gemm_state *st, int mib) {
  cvy_status status = CVY_OK;
  const cvy_conv_job *const job = &st->job;
  const int64_t widest = st->depth > job->y.pitch ? st->depth : job->y.pitch,
                fitting = (int64_t)(mib ? mib : DEFAULT_MIB) * (1 << 20) / 4 / (widest * st->positions);
  st->chunk = fitting < 1 ? 1 : cvy_conv_smaller(fitting, job->params.n_max);
  const size_t rows = (size_t)st->chunk * (size_t)st->positions, depth = (size_t)st->depth, k = (size_t)job->params.k,
               pitch = (size_t)job->y.pitch;
  cvy_queue *const queue = cvy_device_compute_queue(job->base.device);
  if (job->data) CVY_TRY(cvy_blas_sgemm_temp_bytes(queue, rows, depth, k, false, true, &st->temp_bytes));
  else if (job->weights) CVY_TRY(cvy_blas_sgemm_temp_bytes(queue, depth, pitch, rows, true, false, &st->temp_bytes));
  else CVY_TRY(cvy_blas_sgemm_temp_bytes(queue, rows, pitch, depth, false, false, &st->temp_bytes));
  st->temp_at = st->in_place ? 0 : cvy_round_up(rows * depth * sizeof(float), CVY_SLICE_ALIGN);
  st->job.workspace_bytes = st->temp_at + st->temp_bytes;
fail:
  return status;
}

static cvy_status create(void *state, const int *tile) {
  cvy_status status = CVY_OK;
  gemm_state *const st = state;
  const cvy_conv_job *const job = &st->job;
  const cvy_conv2d_params *const p = &job->params;
  st->job.plain = true;
  st->in_place = are_columns_there(p, &job->y) && !job->prologue;
  st->depth = p->r * p->s * p->x.c, st->positions = job->y.h * job->y.w;
  st->y_vec = cvy_stream_vec(job->base.device, job->y.pitch);
  st->vec = cvy_stream_vec(job->base.device, p->x.pitch);
  while (p->x.c % st->vec != 0) st->vec = st->vec == 16 ? 4 : 1;
  if (!st->in_place && !job->data) CVY_TRY(create_kernel(st, "conv2d_gemm_columns", st->vec, &st->columns));
  if (!st->in_place && job->data) CVY_TRY(create_kernel(st, "conv2d_gemm_image", st->vec, &st->image));
  if (st->in_place && job->data && p->x.pitch > p->x.c)
    CVY_TRY(create_kernel(st, "conv2d_gemm_clear", st->vec, &st->clear));
  if (job->pass == CVY_CONV_FORWARD && p->bias) CVY_TRY(create_kernel(st, "conv2d_gemm_bias", st->y_vec, &st->bias));
  CVY_TRY(plan_memory(st, tile[0]));
fail:
  return status;
}

/* Columns of `images` samples from image0 on → the workspace. */
static cvy_status make_columns(gemm_state *st, cvy_queue *queue, const cvy_conv_call *call, int image0, int images) {
  const cvy_conv2d_params *const p = &st->job.params;
  const int c_vecs = p->x.c / st->vec, row_vecs = st->depth / st->vec;
  const int64_t n = (int64_t)images * st->positions * row_vecs;
  const cvy_spread s = cvy_spread_over(st->job.base.device, n);
  return CVY_LAUNCH(queue, st->columns, s.grid, CVY_BUF(call->x), CVY_BUF(call->affine), CVY_BUF(call->residual),
                    CVY_BUF(call->workspace), CVY_INT((int)n), CVY_INT(s.chunk), CVY_INT(image0), CVY_INT(p->x.h),
                    CVY_INT(p->x.w), CVY_INT(c_vecs), CVY_INT(p->x.pitch / st->vec), CVY_INT(p->s),
                    CVY_INT(p->stride_h), CVY_INT(p->stride_w), CVY_INT(p->pad_h), CVY_INT(p->pad_w),
                    CVY_INT(st->job.y.h), CVY_INT(st->job.y.w), CVY_INT(row_vecs), CVY_DIVIDER(row_vecs),
                    CVY_DIVIDER(st->positions), CVY_DIVIDER(st->job.y.w), CVY_DIVIDER(c_vecs), CVY_DIVIDER(p->s),
                    CVY_DIVIDER(call->group_size), CVY_INT(p->prologue));
}

/* The columns of `images` samples → their pixels of dx. */
static cvy_status gather_image(gemm_state *st, cvy_queue *queue, const cvy_conv_call *call, int image0, int images) {
  const cvy_conv2d_params *const p = &st->job.params;
  const int pitch_vecs = p->x.pitch / st->vec, pixels = p->x.h * p->x.w;
  const int n = images * pixels * pitch_vecs;
  const cvy_spread s = cvy_spread_over(st->job.base.device, n);
  return CVY_LAUNCH(queue, st->image, s.grid, CVY_BUF(call->workspace), CVY_BUF(call->dx), CVY_INT(n), CVY_INT(s.chunk),
                    CVY_INT(image0 * pixels * pitch_vecs), CVY_INT(p->x.h), CVY_INT(p->x.w), CVY_INT(p->x.c / st->vec),
                    CVY_INT(pitch_vecs), CVY_INT(p->r), CVY_INT(p->s), CVY_INT(p->stride_h), CVY_INT(p->stride_w),
                    CVY_INT(p->pad_h), CVY_INT(p->pad_w), CVY_INT(st->job.y.h), CVY_INT(st->job.y.w),
                    CVY_DIVIDER(pitch_vecs), CVY_DIVIDER(pixels), CVY_DIVIDER(p->x.w), CVY_DIVIDER(p->stride_h),
                    CVY_DIVIDER(p->stride_w), CVY_INT(call->accumulate));
}

/* Channels from C to the pitch of dx, which the product leaves alone. */
static cvy_status clear_padding(gemm_state *st, cvy_queue *queue, const cvy_conv_call *call) {
  const cvy_shape *const x = &st->job.params.x;
  const int gap = x->pitch - x->c, n = call->n * x->h * x->w * gap;
  const cvy_spread s = cvy_spread_over(st->job.base.device, n);
  return CVY_LAUNCH(queue, st->clear, s.grid, CVY_BUF(call->dx), CVY_INT(n), CVY_INT(s.chunk), CVY_INT(x->c),
                    CVY_INT(x->pitch), CVY_DIVIDER(gap));
}

/* The product of samples image0 … image0 + images - 1. */
static cvy_status multiply(gemm_state *st, cvy_queue *queue, const cvy_conv_call *call, int image0, int images,
                           cvy_buffer *temp) {
  const cvy_conv_job *const job = &st->job;
  const cvy_conv2d_params *const p = &job->params;
  const size_t rows = (size_t)images * (size_t)st->positions, depth = (size_t)st->depth, k = (size_t)p->k,
               pitch = (size_t)job->y.pitch;
  cvy_blas_matrix columns = {.buffer = call->workspace, .row_pitch = depth, .transposed = job->weights};
  if (st->in_place) {
    columns.buffer = job->data ? call->dx : call->x, columns.offset = (size_t)image0 * cvy_shape_elems(&p->x);
    if (p->r == 1 && p->s == 1) columns.row_pitch = (size_t)p->x.pitch;
  }
  const cvy_blas_matrix y = {.buffer = job->pass == CVY_CONV_FORWARD ? call->y : call->dy,
                             .offset = (size_t)image0 * cvy_shape_elems(&job->y),
                             .row_pitch = pitch},
                        w = {.buffer = job->weights ? call->dw : call->w, .row_pitch = pitch, .transposed = job->data};
  if (job->data) return cvy_blas_sgemm(queue, rows, depth, k, &y, &w, &columns, st->in_place && call->accumulate, temp);
  if (job->weights)
    return cvy_blas_sgemm(queue, depth, pitch, rows, &columns, &y, &w, call->accumulate || image0 > 0, temp);
  return cvy_blas_sgemm(queue, rows, pitch, depth, &columns, &w, &y, false, temp);
}

static cvy_status run(void *state, cvy_queue *queue, const cvy_conv_call *call) {
  cvy_status status = CVY_OK;
  gemm_state *const st = state;
  cvy_buffer *temp = NULL;
  if (st->temp_bytes) CVY_TRY(cvy_buffer_slice(call->workspace, st->temp_at, st->temp_bytes, &temp));
  for (int image0 = 0; image0 < call->n; image0 += st->chunk) {
    const int images = cvy_conv_smaller(call->n - image0, st->chunk);
    if (st->columns) CVY_TRY(make_columns(st, queue, call, image0, images));
    CVY_TRY(multiply(st, queue, call, image0, images, temp));
    if (st->image) CVY_TRY(gather_image(st, queue, call, image0, images));
  }
  if (st->clear && !call->accumulate) CVY_TRY(clear_padding(st, queue, call));
  if (st->bias) {
    const int pitch_vecs = st->job.y.pitch / st->y_vec, n = call->n * st->positions * pitch_vecs;
    const cvy_spread s = cvy_spread_over(st->job.base.device, n);
    CVY_TRY(CVY_LAUNCH(queue, st->bias, s.grid, CVY_BUF(call->y), CVY_BUF(call->bias), CVY_INT(n), CVY_INT(s.chunk),
                       CVY_INT(pitch_vecs), CVY_DIVIDER(pitch_vecs)));
  }
fail:
  cvy_buffer_destroy(&temp); /* the driver retains buffers that its queue still uses */
  return status;
}

/* MiB of the largest matrix of a chunk: less stays in a cache, more fills a large device. */
static const int tiles[][CVY_CONV_TILES] = {{1}, {16}};

const cvy_conv_algorithm cvy_conv_gemm = {.name = "gemm",
                                          .algo = CVY_CONV_GEMM,
                                          .file = "conv2d_gemm",
                                          .state_bytes = sizeof(gemm_state),
                                          .error_bound = 1e-5,
                                          .tiles = tiles,
                                          .n_tiles = 2,
                                          .can = can,
                                          .cost = cost,
                                          .works = works,
                                          .create = create,
                                          .run = run};
