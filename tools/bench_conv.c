/* SPDX-License-Identifier: MIT
 * Convolutions, and linear layers as such: every pass by every algorithm that can do it. */
#include <stdio.h>
#include <string.h>

#include "src/base/mem.h"
#include "src/ref/ref.h"
#include "tools/bench_ops.h"

enum { WAYS_MAX = 256 };

static const bench_fill x_fill = {1, 1, 0}, w_fill = {2, 0.5, 0}, bias_fill = {3, 1, 0}, dy_fill = {4, 1, 0},
                        residual_fill = {5, 1, 0}, affine_fill = {6, 0.5, 1};

typedef struct conv_run {
  bench_device *device;
  cvy_conv2d_params p;
  cvy_shape y;
  cvy_conv_pass pass;
  int n;
  cvy_conv2d *op; /* of the algorithm that is measured */
  cvy_buffer *x, *w, *bias, *out, *db, *dy, *stats, *workspace, *affine, *residual;
  /* truth of the pass: forward and backward_data of the first and the last image, backward_weights of two images */
  double *want[2];
} conv_run;

static size_t dense_of(const cvy_shape *s) { return (size_t)s->h * (size_t)s->w * (size_t)s->c; }
static size_t pixels_of(const cvy_shape *s) { return (size_t)s->h * (size_t)s->w; }
static size_t taps_of(const cvy_conv2d_params *p) { return (size_t)p->r * (size_t)p->s * (size_t)p->x.c; }

static cvy_status run_conv(void *user) {
  const conv_run *const c = user;
  const cvy_conv2d_prologue prologue = {.affine = c->affine, .residual = c->residual};
  const cvy_conv2d_prologue *const pro = c->p.prologue ? &prologue : NULL;
  cvy_queue *const queue = c->device->queue;
  switch (c->pass) {
    case CVY_CONV_FORWARD:
      return cvy_conv2d_forward(c->op, queue, c->n, c->x, pro, c->w, c->bias, c->out, c->stats, c->workspace);
    case CVY_CONV_BACKWARD_DATA:
      return cvy_conv2d_backward_data(c->op, queue, c->n, c->dy, c->w, c->out, false, c->workspace);
    default:
      return cvy_conv2d_backward_weights(c->op, queue, c->n, c->x, pro, c->dy, c->out, c->db, false, c->workspace);
  }
}

/* ---- truth ---- */

/* f(x) of `rows` images from `first` on. */
static double *prologue_of(const conv_run *c, size_t first, size_t n) {
  const cvy_conv2d_params *const p = &c->p;
  const size_t elems = n * dense_of(&p->x);
  double *const x = bench_doubles(&x_fill, first * pixels_of(&p->x), n * pixels_of(&p->x), (size_t)p->x.c);
  if (!p->prologue) return x;
  double *const affine = bench_doubles(&affine_fill, 0, 3, (size_t)p->x.c);
  double *const residual =
      bench_doubles(&residual_fill, first * pixels_of(&p->x), n * pixels_of(&p->x), (size_t)p->x.c);
  double *const out = cvy_calloc(elems, sizeof *out);
  if (x && affine && residual && out) ref_conv2d_prologue(p, (int)n, (int)n, x, affine, residual, out);
  cvy_free(x);
  cvy_free(affine);
  cvy_free(residual);
  return out;
}

/* Of forward and backward_data: the first and the last one. */
static int images_checked(const conv_run *c) { return c->pass == CVY_CONV_BACKWARD_WEIGHTS ? 0 : c->n > 1 ? 2 : 1; }

static cvy_status make_truth(conv_run *c) {
  cvy_status status = CVY_OK;
  const cvy_conv2d_params *const p = &c->p;
  const size_t k = (size_t)p->k, last = (size_t)c->n - 1;
  double *const w = bench_doubles(&w_fill, 0, taps_of(p), k), *const bias = bench_doubles(&bias_fill, 0, 1, k);
  double *x = NULL, *dy = NULL;
  CVY_REQUIRE(w && bias, CVY_E_MEMORY, "no memory for the truth of a convolution");
  if (c->pass == CVY_CONV_BACKWARD_WEIGHTS) {
    const int n = c->n < 2 ? c->n : 2;
    x = prologue_of(c, 0, (size_t)n);
    dy = bench_doubles(&dy_fill, 0, (size_t)n * pixels_of(&c->y), k);
    c->want[0] = cvy_calloc(taps_of(p) * k, sizeof(double));
    CVY_REQUIRE(x && dy && c->want[0], CVY_E_MEMORY, "no memory for the truth of a convolution");
    ref_conv2d_backward_weights(p, n, x, dy, c->want[0], NULL);
  }
  for (int i = 0; i < images_checked(c); i++) {
    const size_t image = i ? last : 0;
    const bool forward = c->pass == CVY_CONV_FORWARD;
    double *const in =
        forward ? prologue_of(c, image, 1) : bench_doubles(&dy_fill, image * pixels_of(&c->y), pixels_of(&c->y), k);
    c->want[i] = cvy_calloc(dense_of(forward ? &c->y : &p->x), sizeof(double));
    if (in && c->want[i] && forward) ref_conv2d_forward(p, 1, in, w, p->bias ? bias : NULL, c->want[i], NULL);
    if (in && c->want[i] && !forward) ref_conv2d_backward_data(p, 1, in, w, c->want[i], NULL);
    const bool made = in && c->want[i];
    cvy_free(in);
    CVY_REQUIRE(made, CVY_E_MEMORY, "no memory for the truth of a convolution");
  }
fail:
  cvy_free(w);
  cvy_free(bias);
  cvy_free(x);
  cvy_free(dy);
  return status;
}

/* forward and backward_data leave their result of all images; backward_weights runs again on two. */
static cvy_status error_conv(void *user, double *error) {
  conv_run *const c = user;
  cvy_status status = CVY_OK;
  bench_error_sum sum = {0};
  if (!c->want[0]) CVY_TRY(make_truth(c));
  if (c->pass == CVY_CONV_BACKWARD_WEIGHTS) {
    const int n = c->n;
    c->n = n < 2 ? n : 2;
    status = run_conv(c);
    c->n = n;
    CVY_TRY(status);
    CVY_TRY(
        bench_error_add(c->device, c->out, 0, taps_of(&c->p), (size_t)c->p.k, (size_t)c->p.y_pitch, c->want[0], &sum));
  }
  for (int i = 0; i < images_checked(c); i++) {
    const cvy_shape *const s = c->pass == CVY_CONV_FORWARD ? &c->y : &c->p.x;
    const size_t first = i ? (size_t)(c->n - 1) * pixels_of(s) : 0;
    CVY_TRY(bench_error_add(c->device, c->out, first, pixels_of(s), (size_t)s->c, (size_t)s->pitch, c->want[i], &sum));
  }
  *error = bench_error_of(&sum);
fail:
  return status;
}

/* ---- a pass ---- */

static void conv_close(conv_run *c) {
  cvy_buffer **const buffers[] = {&c->x,  &c->w,     &c->bias,      &c->out,    &c->db,
                                  &c->dy, &c->stats, &c->workspace, &c->affine, &c->residual};
  cvy_conv2d_destroy(&c->op);
  for (size_t i = 0; i < sizeof buffers / sizeof buffers[0]; i++) cvy_buffer_destroy(buffers[i]);
  for (int i = 0; i < 2; i++) {
    cvy_free(c->want[i]);
    c->want[i] = NULL;
  }
}

/* The buffers that the pass reads and writes. */
static cvy_status conv_open(conv_run *c) {
  cvy_status status = CVY_OK;
  bench_device *const d = c->device;
  const cvy_conv2d_params *const p = &c->p;
  const size_t n = (size_t)c->n, k = (size_t)p->k, yp = (size_t)p->y_pitch, xc = (size_t)p->x.c,
               xp = (size_t)p->x.pitch;
  const size_t x_rows = n * pixels_of(&p->x), y_rows = n * pixels_of(&c->y), taps = taps_of(p);
  const bool forward = c->pass == CVY_CONV_FORWARD, weights = c->pass == CVY_CONV_BACKWARD_WEIGHTS;
  if (forward || weights) CVY_TRY(bench_buffer_filled(d, &x_fill, x_rows, xc, xp, &c->x));
  if (!weights) CVY_TRY(bench_buffer_filled(d, &w_fill, taps, k, yp, &c->w));
  if (!forward) CVY_TRY(bench_buffer_filled(d, &dy_fill, y_rows, k, yp, &c->dy));
  if (forward && p->bias) CVY_TRY(bench_buffer_filled(d, &bias_fill, 1, k, yp, &c->bias));
  if (forward && p->stats) CVY_TRY(bench_buffer_zero(d, n * 2 * yp * sizeof(float), &c->stats));
  if (weights && p->bias) CVY_TRY(bench_buffer_zero(d, yp * sizeof(float), &c->db));
  if ((forward || weights) && p->prologue & CVY_CONV_SCALE)
    CVY_TRY(bench_buffer_filled(d, &affine_fill, 3, xc, xp, &c->affine));
  if ((forward || weights) && p->prologue & CVY_CONV_RESIDUAL)
    CVY_TRY(bench_buffer_filled(d, &residual_fill, x_rows, xc, xp, &c->residual));
  const size_t floats = forward ? y_rows * yp : weights ? taps * yp : x_rows * xp;
  CVY_TRY(bench_buffer_zero(d, floats * sizeof(float), &c->out));
fail:
  return status;
}

/* Compiles the pass with this choice (AUTO: the shipped default), and other passes only where it must. */
static cvy_status make_op(conv_run *c, const cvy_conv_choice *choice, cvy_conv2d **out) {
  cvy_conv2d_params p = c->p;
  p.inference = c->pass == CVY_CONV_FORWARD;
  p.no_backward_data = c->pass != CVY_CONV_BACKWARD_DATA;
  p.algos.n = 0;
  p.choice[c->pass] = *choice;
  return cvy_conv2d_create(c->device->cl, &p, out);
}

static bool same_choice(const cvy_conv_choice *a, const cvy_conv_choice *b) {
  return a->algo == b->algo && memcmp(a->tile, b->tile, sizeof a->tile) == 0;
}

/* The choices to measure; *chosen: auto's, which comes first if it is wanted at all. */
static cvy_status ways_of(conv_run *c, const bench_conv_options *options, cvy_conv_choice *ways, int *n,
                          cvy_conv_choice *chosen, bool *tuned) {
  cvy_status status = CVY_OK;
  cvy_conv2d *op = NULL;
  cvy_conv_choice all[WAYS_MAX];
  const cvy_tune_entry *const entry = options->tuned ? cvy_tune_table_find(options->tuned, &c->p, c->pass) : NULL;
  const cvy_conv_choice found = entry ? entry->choice : (cvy_conv_choice){0};
  CVY_TRY(make_op(c, &found, &op));
  *chosen = cvy_conv2d_chosen(op, c->pass);
  *tuned = found.algo != CVY_CONV_AUTO && same_choice(chosen, &found);
  *n = 0;
  bool wanted = options->algos.n == 0;
  for (int i = 0; i < options->algos.n; i++) wanted = wanted || options->algos.algo[i] == chosen->algo;
  if (wanted) ways[(*n)++] = *chosen;
  if (options->only_auto) goto fail; /* done */
  cvy_conv2d_params p = c->p;
  p.algos = options->algos;
  int n_all = cvy_conv2d_candidates(c->device->cl, &p, c->pass, all, WAYS_MAX);
  if (n_all > WAYS_MAX) n_all = WAYS_MAX;
  for (int i = 0; i < n_all && *n < WAYS_MAX; i++) {
    const bool first = i == 0 || all[i].algo != all[i - 1].algo; /* an algorithm's default tile */
    if (!same_choice(&all[i], chosen) && (first || options->all_tiles)) ways[(*n)++] = all[i];
  }
fail:
  cvy_conv2d_destroy(&op);
  return status;
}

static cvy_status measure_way(bench_rows *rows, conv_run *c, const bench_case *what, const cvy_conv_choice *choice,
                              bool chosen, bool tuned) {
  cvy_status status = make_op(c, choice, &c->op);
  if (status == CVY_E_UNSUPPORTED || status == CVY_E_DEVICE_MEMORY || status == CVY_E_ARGUMENT) {
    bench_row_impossible(rows, what, cvy_conv_algo_name(choice->algo), program_last_error());
    return CVY_OK;
  }
  CVY_TRY(status);
  cvy_buffer_destroy(&c->workspace);
  CVY_TRY(bench_buffer_zero(c->device, cvy_conv2d_workspace_bytes(c->op), &c->workspace));
  const bench_way way = {.algorithm = cvy_conv2d_algorithm_name(c->op, c->pass),
                         .tile = choice->tile,
                         .chosen = chosen,
                         .tuned = chosen && tuned,
                         .error_bound = cvy_conv2d_error_bound(c->op, c->pass)};
  CVY_TRY(bench_row(rows, c->device, what, &way, run_conv, error_conv, c));
fail:
  cvy_conv2d_destroy(&c->op);
  return status;
}

static void fill_case(const conv_run *c, bench_case *out) {
  const cvy_conv2d_params *const p = &c->p;
  const double n = c->n, x = n * (double)dense_of(&p->x), y = n * (double)dense_of(&c->y),
               w = (double)taps_of(p) * p->k;
  const double residual = p->prologue & CVY_CONV_RESIDUAL ? x : 0;
  const bool forward = c->pass == CVY_CONV_FORWARD, weights = c->pass == CVY_CONV_BACKWARD_WEIGHTS;
  out->pass = cvy_conv_pass_name(c->pass);
  out->flops = cvy_conv2d_flops(p, c->n);
  out->read_bytes = 4 * (forward ? x + residual + w : weights ? x + residual + y : y + w);
  out->write_bytes = 4 * (forward ? y : weights ? w : x);
}

void bench_conv_shape_text(const cvy_conv2d_params *p, char *out, size_t out_bytes) {
  int used = snprintf(out, out_bytes, "n%dh%dw%dc%dk%dr%d", p->n_max, p->x.h, p->x.w, p->x.c, p->k, p->r);
  if (p->s != p->r) used += snprintf(out + used, out_bytes - (size_t)used, "x%d", p->s);
  used += snprintf(out + used, out_bytes - (size_t)used, "s%d", p->stride_h);
  if (p->stride_w != p->stride_h) used += snprintf(out + used, out_bytes - (size_t)used, "x%d", p->stride_w);
  used += snprintf(out + used, out_bytes - (size_t)used, "p%d", p->pad_h);
  if (p->pad_w != p->pad_h) used += snprintf(out + used, out_bytes - (size_t)used, "x%d", p->pad_w);
  if (p->prologue) snprintf(out + used, out_bytes - (size_t)used, "f%d", p->prologue);
}

cvy_status bench_conv(bench_rows *rows, bench_device *device, const char *operation, const cvy_conv2d_params *params,
                      int count, const bench_conv_options *options) {
  cvy_status status = CVY_OK;
  bench_case what = {.operation = operation, .count = count};
  conv_run c = {.device = device, .p = *params, .n = params->n_max};
  c.p.math = options->math;
  CVY_TRY(cvy_conv2d_output_shape(params, &c.y));
  bench_conv_shape_text(params, what.shape, sizeof what.shape);
  for (int pass = 0; pass < CVY_CONV_PASSES; pass++) {
    cvy_conv_choice ways[WAYS_MAX], chosen;
    int n = 0;
    bool tuned = false;
    if (options->pass != CVY_CONV_PASSES && options->pass != pass) continue;
    if (pass == CVY_CONV_BACKWARD_DATA && params->no_backward_data) continue;
    c.pass = (cvy_conv_pass)pass;
    fill_case(&c, &what);
    CVY_TRY(ways_of(&c, options, ways, &n, &chosen, &tuned));
    if (n > 0) CVY_TRY(conv_open(&c));
    for (int i = 0; i < n; i++) CVY_TRY(measure_way(rows, &c, &what, &ways[i], same_choice(&ways[i], &chosen), tuned));
    conv_close(&c);
  }
fail:
  conv_close(&c);
  return status;
}
