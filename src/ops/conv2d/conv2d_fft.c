/* SPDX-License-Identifier: MIT
 * Convolution by Fourier transforms, for large filters with stride 1. With X, W, DY the transforms of planes of f(x),
 * w, dy that are filled up with zeros:
 *   forward           Y(n,k)  = sum over c of X(n,c) conj(W(c,k))
 *   backward_data     DX(n,c) = sum over k of DY(n,k) W(c,k)
 *   backward_weights  DW(c,k) = sum over n of X(n,c) conj(DY(n,k))
 * Each is out(i,j) = sum over l of a(i,l) b(l,j) at every frequency. Transforms are circular: the planes have enough
 * rows that values which wrap around meet zeros only. Outputs whose whole filter lies in the padding, which needs
 * padding beyond r-1, do not depend on the image: with pad = min(pad_h, r-1), outputs p - (pad_h - pad) from 0 to
 * H + 2 pad - r are the others, and H + pad rows are enough (or R, if that is more), columns alike. Then y's output p
 * lies in row p - pad of its plane, dx's row h in row h + pad, dw's tap r in row r - pad.
 *
 * Workspace: real planes, the spectra of a, b and out, clFFT's scratch. i, j and l are cut into parts so that all of it
 * stays within tile[0] MiB (64 by default), or is one plane of each. Counts of planes are rounded up so that few plans
 * are made; the planes behind those in use are zero. */
#include "src/cl/fft.h"
#include "src/cl/dry_run.h"
#include "src/ops/conv2d/conv2d_algorithm.h"
#include "src/ops/divider.h"
#include "src/ops/stream.h"

enum { DEFAULT_MIB = 64, LEAST_FILTER = 5, MOST_AREA = 1 << 22, SIZES_TRIED = 4 };

typedef struct fft_state {
  cvy_conv_job job;
  int rows, width, pad_h, pad_w;            /* of a plane; padding of outputs that depend on the image */
  int n_i, n_j, n_l, of_i, of_j, of_l;      /* sizes of the sum (n_max samples), and of their parts */
  size_t b_at, out_at, temp_at, spectra_at; /* bytes in the workspace: real planes, a at spectra_at, b, out, scratch */
  cvy_kernel *load_a, *load_b, *multiply, *store;
} fft_state;

static int larger(int a, int b) { return a > b ? a : b; }

/* Rows (columns) that the planes must have. */
static int least_length(int size, int filter, int pad) {
  return larger(size + cvy_conv_smaller(pad, filter - 1), filter);
}

static const char *can(const cvy_conv_job *job) {
  const cvy_conv2d_params *const p = &job->params;
  if (p->r < LEAST_FILTER || p->s < LEAST_FILTER) return "only filters of 5x5 and more";
  if ((int64_t)cvy_fft_rows(least_length(p->x.h, p->r, p->pad_h)) *
          cvy_fft_width(least_length(p->x.w, p->s, p->pad_w)) >
      MOST_AREA)
    return "only images of up to 2^22 pixels";
  return cvy_device_is_dry_run(job->base.device) || !cvy_fft_probe(NULL, 0) ? "clFFT is not installed" : NULL;
}

/* Lengths for the shape: the smallest ones that clFFT can do on this device. */
static bool choose_lengths(const cvy_conv_job *job, int *rows, int *width, const char **why) {
  const cvy_conv2d_params *const p = &job->params;
  *width = cvy_fft_width(least_length(p->x.w, p->s, p->pad_w));
  for (int i = 0; i < SIZES_TRIED; i++) {
    *rows = cvy_fft_rows(least_length(p->x.h, p->r, p->pad_h));
    for (int j = 0; j < SIZES_TRIED; j++) {
      if (cvy_fft_works(job->base.device, *rows, *width, why)) return true;
      *rows = cvy_fft_rows(*rows + 1);
    }
    *width = cvy_fft_width(*width + 1);
  }
  return false;
}

static bool works(const cvy_conv_job *job, const char **why) {
  int rows, width;
  return choose_lengths(job, &rows, &width, why);
}

/* CPUs: measured on PoCL against direct_cpu, 64 samples of LeNet's 5x5 layer take 5 to 9 times as long, 16 of 28x28x64
 * by 7x7 3 to 9 times: clFFT's kernels are shaped for GPUs. Elsewhere an estimate: operations relative to the direct
 * count, at a quarter of its rate, since memory bounds them; above 1, so that it never makes this algorithm the
 * default. The tuner finds where it wins. */
static double cost(const cvy_conv_job *job) {
  const cvy_conv2d_params *const p = &job->params;
  if (cvy_device_get_info(job->base.device)->kind == CVY_DEVICE_CPU) return 6.0;
  const double n = p->n_max, c = p->x.c, k = p->k, rows = least_length(p->x.h, p->r, p->pad_h),
               width = least_length(p->x.w, p->s, p->pad_w), area = rows * width;
  double logarithm = 1;
  for (double left = area; left > 2; left /= 2) logarithm++;
  const double transforms = 2.5 * area * logarithm * (n * c + n * k + c * k), products = 4.0 * area * n * c * k;
  const double direct = 2.0 * n * job->y.h * job->y.w * p->r * p->s * c * k, ratio = (transforms + products) / direct;
  return 4.0 * ratio > 1.2 ? 4.0 * ratio : 1.2;
}

/* Planes of the plan for `planes`: four counts between one power of two and the next. */
static int round_planes(int planes) {
  int step = 1;
  while (8 * step <= planes) step *= 2;
  return (planes + step - 1) / step * step;
}

static int most_planes(const fft_state *st) {
  return round_planes(larger(st->of_i * st->of_l, larger(st->of_l * st->of_j, st->of_i * st->of_j)));
}

static size_t real_bytes(const fft_state *st, int planes) {
  return cvy_round_up((size_t)planes * (size_t)st->rows * (size_t)st->width * sizeof(float), CVY_SLICE_ALIGN);
}

static size_t spectrum_bytes(const fft_state *st, int planes) {
  return cvy_round_up((size_t)planes * cvy_fft_spectrum(st->rows, st->width) * 2 * sizeof(float), CVY_SLICE_ALIGN);
}

/* Lays out the workspace; returns its bytes without the scratch. */
static size_t lay_out(fft_state *st) {
  st->spectra_at = real_bytes(st, most_planes(st));
  st->b_at = st->spectra_at + spectrum_bytes(st, round_planes(st->of_i * st->of_l));
  st->out_at = st->b_at + spectrum_bytes(st, round_planes(st->of_l * st->of_j));
  st->temp_at = st->out_at + spectrum_bytes(st, round_planes(st->of_i * st->of_j));
  return st->temp_at;
}

static cvy_status plan_memory(fft_state *st, int mib) {
  cvy_status status = CVY_OK;
  const cvy_fft_plan *plan = NULL;
  const cvy_conv_job *const job = &st->job;
  const int n = job->params.n_max, c = job->params.x.c, k = job->params.k;
  const bool weights = job->weights, data = job->data;
  st->n_i = weights ? c : n, st->n_j = data ? c : k, st->n_l = weights ? n : data ? k : c;
  st->of_i = st->n_i, st->of_j = st->n_j, st->of_l = st->n_l;
  /* clFFT's scratch is as large as the spectra it makes: it counts as one more */
  const size_t most = (size_t)(mib ? mib : DEFAULT_MIB) << 20;
  int *const samples = weights ? &st->of_l : &st->of_i;
  for (;;) {
    const int64_t planes = larger(larger(st->of_i, st->of_l), st->of_j);
    const bool countable = planes * planes <= 1 << 24;
    if (countable && lay_out(st) + spectrum_bytes(st, most_planes(st)) <= most) break;
    int *const longest = st->of_i >= st->of_j && st->of_i >= st->of_l ? &st->of_i
                         : st->of_j >= st->of_l                       ? &st->of_j
                                                                      : &st->of_l;
    int *const cut = *samples > 4 ? samples : longest;
    if (*cut == 1) break;
    *cut = (*cut + 1) / 2;
  }
  lay_out(st);
  size_t temp_bytes = 0;
  const int counts[] = {st->of_i * st->of_l, st->of_l * st->of_j, st->of_i * st->of_j};
  for (int i = 0; i < 3; i++) { /* made now rather than in a step */
    CVY_TRY(cvy_fft_plan_get(st->job.base.device, st->rows, st->width, round_planes(counts[i]), &plan));
    if (cvy_fft_temp_bytes(plan) > temp_bytes) temp_bytes = cvy_fft_temp_bytes(plan);
  }
  st->job.workspace_bytes = st->temp_at + temp_bytes;
fail:
  return status;
}

static cvy_status create(void *state, const int *tile) {
  cvy_status status = CVY_OK;
  const char *why = "";
  fft_state *const st = state;
  cvy_conv_job *const job = &st->job;
  const cvy_conv2d_params *const p = &job->params;
  job->plain = true;
  st->pad_h = cvy_conv_smaller(p->pad_h, p->r - 1), st->pad_w = cvy_conv_smaller(p->pad_w, p->s - 1);
  CVY_REQUIRE(choose_lengths(job, &st->rows, &st->width, &why), CVY_E_UNSUPPORTED, "%s: convolution: %s",
              cvy_device_label(job->base.device), why);
  const char *const b = job->weights ? "conv2d_fft_load" : "conv2d_fft_load_filter",
                    *out = job->weights ? "conv2d_fft_store_filter" : "conv2d_fft_store";
  CVY_TRY(cvy_conv_kernel(job, "conv2d_fft_load", NULL, 0, &st->load_a));
  CVY_TRY(cvy_conv_kernel(job, b, NULL, 0, &st->load_b));
  CVY_TRY(cvy_conv_kernel(job, "conv2d_fft_multiply", NULL, 0, &st->multiply));
  CVY_TRY(cvy_conv_kernel(job, out, NULL, 0, &st->store));
  CVY_TRY(plan_memory(st, tile[0]));
fail:
  return status;
}

/* ---- one call ---- */

/* Parts of the workspace, and the ranges from which the spectra of a and b were made last. */
typedef struct buffers {
  cvy_buffer *real, *a, *b, *out, *temp;
} buffers;
typedef struct range {
  int begin, count;
} range;

static range part_of(int size, int part, int begin) { return (range){begin, cvy_conv_smaller(part, size - begin)}; }

/* real → spectrum, or back, of `planes` planes, filled up with zeros to the plan's count. */
static cvy_status transform(fft_state *st, cvy_queue *queue, const buffers *b, int planes, cvy_buffer *spectrum,
                            bool forward) {
  cvy_status status = CVY_OK;
  const cvy_fft_plan *plan = NULL;
  const int planned = round_planes(planes);
  const size_t plane = forward ? (size_t)st->rows * (size_t)st->width * sizeof(float)
                               : cvy_fft_spectrum(st->rows, st->width) * 2 * sizeof(float);
  CVY_TRY(cvy_fft_plan_get(st->job.base.device, st->rows, st->width, planned, &plan));
  if (planned > planes)
    CVY_TRY(cvy_buffer_fill(queue, forward ? b->real : spectrum, (size_t)planes * plane,
                            (size_t)(planned - planes) * plane, 0));
  if (forward) CVY_TRY(cvy_fft_forward(queue, plan, b->real, spectrum, b->temp));
  else CVY_TRY(cvy_fft_backward(queue, plan, spectrum, b->real, b->temp));
fail:
  return status;
}

/* Loads planes (image, channel): of x after its prologue, or of the outputs of dy that depend on the image. */
static cvy_status load_image(fft_state *st, cvy_queue *queue, cvy_kernel *kernel, const cvy_conv_call *call,
                             const buffers *b, bool is_x, range images, range channels) {
  const cvy_conv2d_params *const p = &st->job.params;
  const cvy_shape *const shape = is_x ? &p->x : &st->job.y;
  const int used_h = is_x ? p->x.h : p->x.h + 2 * st->pad_h - p->r + 1,
            used_w = is_x ? p->x.w : p->x.w + 2 * st->pad_w - p->s + 1, crop_h = is_x ? 0 : p->pad_h - st->pad_h,
            crop_w = is_x ? 0 : p->pad_w - st->pad_w;
  const int64_t n = (int64_t)images.count * channels.count * st->rows * st->width;
  const cvy_spread s = cvy_spread_over(st->job.base.device, n);
  return CVY_LAUNCH(queue, kernel, s.grid, CVY_BUF(is_x ? call->x : call->dy), CVY_BUF(is_x ? call->affine : NULL),
                    CVY_BUF(is_x ? call->residual : NULL), CVY_BUF(b->real), CVY_INT((int)n), CVY_INT(s.chunk),
                    CVY_INT(images.begin), CVY_INT(channels.begin), CVY_INT(channels.count), CVY_INT(st->rows),
                    CVY_INT(st->width), CVY_INT(shape->h), CVY_INT(shape->w), CVY_INT(shape->pitch), CVY_INT(used_h),
                    CVY_INT(used_w), CVY_INT(crop_h), CVY_INT(crop_w), CVY_DIVIDER(st->width),
                    CVY_DIVIDER(channels.count), CVY_DIVIDER(st->rows), CVY_DIVIDER(call->group_size),
                    CVY_INT(is_x ? p->prologue : 0));
}

static cvy_status load_filter(fft_state *st, cvy_queue *queue, const cvy_conv_call *call, const buffers *b, range c,
                              range k) {
  const cvy_conv2d_params *const p = &st->job.params;
  const int64_t n = (int64_t)c.count * k.count * st->rows * st->width;
  const cvy_spread s = cvy_spread_over(st->job.base.device, n);
  return CVY_LAUNCH(queue, st->load_b, s.grid, CVY_BUF(call->w), CVY_BUF(b->real), CVY_INT((int)n), CVY_INT(s.chunk),
                    CVY_INT(c.begin), CVY_INT(k.begin), CVY_INT(k.count), CVY_INT(st->rows), CVY_INT(st->width),
                    CVY_INT(p->r), CVY_INT(p->s), CVY_INT(p->x.c), CVY_INT(st->job.y.pitch), CVY_DIVIDER(st->width),
                    CVY_DIVIDER(k.count), CVY_DIVIDER(st->rows));
}

/* Spectra of a(i,l), or of b(l,j). */
static cvy_status make_a(fft_state *st, cvy_queue *queue, const cvy_conv_call *call, const buffers *b, range i,
                         range l) {
  cvy_status status = CVY_OK;
  const bool weights = st->job.weights;
  CVY_TRY(load_image(st, queue, st->load_a, call, b, !st->job.data, weights ? l : i, weights ? i : l));
  CVY_TRY(transform(st, queue, b, i.count * l.count, b->a, true));
fail:
  return status;
}

static cvy_status make_b(fft_state *st, cvy_queue *queue, const cvy_conv_call *call, const buffers *b, range l,
                         range j) {
  cvy_status status = CVY_OK;
  if (st->job.weights) CVY_TRY(load_image(st, queue, st->load_b, call, b, false, l, j));
  else CVY_TRY(load_filter(st, queue, call, b, st->job.data ? j : l, st->job.data ? l : j));
  CVY_TRY(transform(st, queue, b, l.count * j.count, b->b, true));
fail:
  return status;
}

static cvy_status multiply(fft_state *st, cvy_queue *queue, const buffers *b, range i, range j, range l) {
  const cvy_capabilities *const capabilities = cvy_device_get_capabilities(st->job.base.device);
  const bool weights = st->job.weights, data = st->job.data;
  const int vec = capabilities->cpu_shaped ? 8 : 1, tile_i = capabilities->cpu_shaped ? 2 : 4, tile_j = 4;
  const int points = (int)cvy_fft_spectrum(st->rows, st->width) / vec;
  const int64_t tasks = (int64_t)cvy_ceil_div(i.count, tile_i) * cvy_ceil_div(j.count, tile_j) * points;
  cvy_grid grid = {.global = {cvy_round_up((size_t)tasks, CVY_STREAM_LOCAL)}, .local = {CVY_STREAM_LOCAL}};
  if (capabilities->cpu_shaped)
    grid = (cvy_grid){.global = {cvy_cpu_groups(capabilities, (size_t)tasks)}, .local = {1}};
  return CVY_LAUNCH(queue, st->multiply, grid, CVY_BUF(b->a), CVY_BUF(b->b), CVY_BUF(b->out), CVY_INT(i.count),
                    CVY_INT(j.count), CVY_INT(l.count), CVY_INT(weights ? 1 : l.count), CVY_INT(weights ? i.count : 1),
                    CVY_INT(data ? 1 : j.count), CVY_INT(data ? l.count : 1), CVY_INT(points), CVY_INT((int)tasks),
                    CVY_INT(!data), CVY_INT(l.begin > 0));
}

static cvy_status store_image(fft_state *st, cvy_queue *queue, const cvy_conv_call *call, const buffers *b,
                              range images, range channels) {
  const cvy_conv2d_params *const p = &st->job.params;
  const bool forward = st->job.pass == CVY_CONV_FORWARD;
  const cvy_shape *const shape = forward ? &st->job.y : &p->x;
  const int end = channels.begin + channels.count, stored = (end == shape->c ? shape->pitch : end) - channels.begin;
  const int skip_h = forward ? p->pad_h - st->pad_h : 0, skip_w = forward ? p->pad_w - st->pad_w : 0;
  const int shift_h = forward ? (st->rows - st->pad_h) % st->rows : st->pad_h,
            shift_w = forward ? (st->width - st->pad_w) % st->width : st->pad_w;
  const int valid_h = forward ? p->x.h + 2 * st->pad_h - p->r + 1 : p->x.h,
            valid_w = forward ? p->x.w + 2 * st->pad_w - p->s + 1 : p->x.w;
  const int64_t n = (int64_t)images.count * shape->h * shape->w * stored;
  const cvy_spread s = cvy_spread_over(st->job.base.device, n);
  return CVY_LAUNCH(queue, st->store, s.grid, CVY_BUF(b->real), CVY_BUF(call->bias),
                    CVY_BUF(forward ? call->y : call->dx), CVY_INT((int)n), CVY_INT(s.chunk), CVY_INT(images.begin),
                    CVY_INT(channels.begin), CVY_INT(end), CVY_INT(stored), CVY_INT(st->rows), CVY_INT(st->width),
                    CVY_INT(shape->h), CVY_INT(shape->w), CVY_INT(shape->pitch), CVY_INT(skip_h), CVY_INT(skip_w),
                    CVY_INT(shift_h), CVY_INT(shift_w), CVY_INT(valid_h), CVY_INT(valid_w), CVY_DIVIDER(stored),
                    CVY_DIVIDER(shape->w), CVY_DIVIDER(shape->h), CVY_INT(call->bias != NULL),
                    CVY_INT(call->accumulate));
}

static cvy_status store_filter(fft_state *st, cvy_queue *queue, const cvy_conv_call *call, const buffers *b, range c,
                               range k) {
  const cvy_conv2d_params *const p = &st->job.params;
  const int end = k.begin + k.count, stored = (end == p->k ? st->job.y.pitch : end) - k.begin;
  const int64_t n = (int64_t)p->r * p->s * c.count * stored;
  const cvy_spread s = cvy_spread_over(st->job.base.device, n);
  return CVY_LAUNCH(queue, st->store, s.grid, CVY_BUF(b->real), CVY_BUF(call->dw), CVY_INT((int)n), CVY_INT(s.chunk),
                    CVY_INT(c.begin), CVY_INT(c.count), CVY_INT(k.begin), CVY_INT(end), CVY_INT(stored),
                    CVY_INT(st->rows), CVY_INT(st->width), CVY_INT(p->s), CVY_INT(p->x.c), CVY_INT(st->job.y.pitch),
                    CVY_INT((st->rows - st->pad_h) % st->rows), CVY_INT((st->width - st->pad_w) % st->width),
                    CVY_DIVIDER(stored), CVY_DIVIDER(c.count), CVY_DIVIDER(p->s), CVY_INT(call->accumulate));
}

/* All parts of the sum; the spectra of b stay while i goes on, where l is whole. */
static cvy_status run_parts(fft_state *st, cvy_queue *queue, const cvy_conv_call *call, const buffers *b) {
  cvy_status status = CVY_OK;
  const bool weights = st->job.weights;
  const int n_i = weights ? st->n_i : call->n, n_l = weights ? call->n : st->n_l;
  int a_i = -1, a_l = -1, b_l = -1, b_j = -1;
  for (int j0 = 0; j0 < st->n_j; j0 += st->of_j)
    for (int i0 = 0; i0 < n_i; i0 += st->of_i) {
      const range i = part_of(n_i, st->of_i, i0), j = part_of(st->n_j, st->of_j, j0);
      for (int l0 = 0; l0 < n_l; l0 += st->of_l) {
        const range l = part_of(n_l, st->of_l, l0);
        if (a_i != i0 || a_l != l0) CVY_TRY(make_a(st, queue, call, b, i, l));
        if (b_l != l0 || b_j != j0) CVY_TRY(make_b(st, queue, call, b, l, j));
        a_i = i0, a_l = l0, b_l = l0, b_j = j0;
        CVY_TRY(multiply(st, queue, b, i, j, l));
      }
      CVY_TRY(transform(st, queue, b, i.count * j.count, b->out, false));
      if (weights) CVY_TRY(store_filter(st, queue, call, b, i, j));
      else CVY_TRY(store_image(st, queue, call, b, i, j));
    }
fail:
  return status;
}

static cvy_status run(void *state, cvy_queue *queue, const cvy_conv_call *call) {
  cvy_status status = CVY_OK;
  fft_state *const st = state;
  buffers b = {0};
  cvy_buffer *const ws = call->workspace;
  const size_t end = cvy_buffer_size(ws);
  CVY_TRY(cvy_buffer_slice(ws, 0, st->spectra_at, &b.real));
  CVY_TRY(cvy_buffer_slice(ws, st->spectra_at, st->b_at - st->spectra_at, &b.a));
  CVY_TRY(cvy_buffer_slice(ws, st->b_at, st->out_at - st->b_at, &b.b));
  CVY_TRY(cvy_buffer_slice(ws, st->out_at, st->temp_at - st->out_at, &b.out));
  if (end > st->temp_at) CVY_TRY(cvy_buffer_slice(ws, st->temp_at, end - st->temp_at, &b.temp));
  CVY_TRY(run_parts(st, queue, call, &b));
fail: /* the driver retains buffers that its queue still uses */
  cvy_buffer_destroy(&b.real);
  cvy_buffer_destroy(&b.a);
  cvy_buffer_destroy(&b.b);
  cvy_buffer_destroy(&b.out);
  cvy_buffer_destroy(&b.temp);
  return status;
}

/* MiB of the workspace. */
static const int tiles[][CVY_CONV_TILES] = {{1}, {16}};

const cvy_conv_algorithm cvy_conv_fft = {.name = "fft",
                                         .algo = CVY_CONV_FFT,
                                         .file = "conv2d_fft",
                                         .state_bytes = sizeof(fft_state),
                                         .most_stride = 1,
                                         .error_bound = 1e-5,
                                         .tiles = tiles,
                                         .n_tiles = 2,
                                         .can = can,
                                         .cost = cost,
                                         .works = works,
                                         .create = create,
                                         .run = run};
