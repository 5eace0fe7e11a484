/* SPDX-License-Identifier: MIT
 * Convolutions, and linear layers as convolutions: every pass with every algorithm that supports it. */
#include <stdio.h>
#include <string.h>

#include "tools/program/bench/bench_ops.h"

enum { WAYS_MAX = 256, FEW = 2 };

/* Compiles the pass with this choice (AUTO: the shipped default), and other passes only if needed. */
static cvy_conv2d_params params_of(const cvy_conv2d_params *params, cvy_conv_pass pass, const cvy_conv_choice *choice) {
  cvy_conv2d_params p = *params;
  p.inference = pass == CVY_CONV_FORWARD;
  p.no_backward_data = pass != CVY_CONV_BACKWARD_DATA;
  p.algos.n = 0;
  p.choice[pass] = *choice;
  return p;
}

static bool same_choice(const cvy_conv_choice *a, const cvy_conv_choice *b) {
  return a->algo == b->algo && memcmp(a->tile, b->tile, sizeof a->tile) == 0;
}

/* The choices to measure; *chosen: auto's, the first one if it is measured. */
static cvy_status ways_of(cvy_device *device, const cvy_conv2d_params *params, cvy_conv_pass pass,
                          const bench_conv_options *options, cvy_conv_choice *ways, int *n, cvy_conv_choice *chosen,
                          bool *tuned) {
  cvy_status status = CVY_OK;
  cvy_conv2d *op = NULL;
  cvy_conv_choice all[WAYS_MAX];
  const cvy_tune_entry *const entry = options->tuned ? cvy_tune_table_find(options->tuned, params, pass) : NULL;
  const cvy_conv_choice found = entry ? entry->choice : (cvy_conv_choice){0};
  cvy_conv2d_params p = params_of(params, pass, &found);
  CVY_TRY(cvy_conv2d_create(device, &p, &op));
  *chosen = cvy_conv2d_chosen(op, pass);
  *tuned = found.algo != CVY_CONV_AUTO && same_choice(chosen, &found);
  *n = 0;
  bool wanted = options->algos.n == 0;
  for (int i = 0; i < options->algos.n; i++) wanted = wanted || options->algos.algo[i] == chosen->algo;
  if (wanted) ways[(*n)++] = *chosen;
  if (options->only_auto) goto fail; /* done */
  p = *params;
  p.algos = options->algos;
  int n_all = cvy_conv2d_candidates(device, &p, pass, all, WAYS_MAX);
  if (n_all > WAYS_MAX) n_all = WAYS_MAX;
  for (int i = 0; i < n_all && *n < WAYS_MAX; i++) {
    const bool first = i == 0 || all[i].algo != all[i - 1].algo; /* an algorithm's default tile */
    if (!same_choice(&all[i], chosen) && (first || options->all_tiles)) ways[(*n)++] = all[i];
  }
fail:
  cvy_conv2d_destroy(&op);
  return status;
}

static cvy_status measure_way(bench_rows *rows, bench_device *device, conv2d_case *c, const bench_case *what,
                              const cvy_conv2d_params *params, cvy_conv_pass pass, const cvy_conv_choice *choice,
                              bool chosen, bool tuned) {
  const bench_pass one = {pass, what->pass, what->read_bytes, what->write_bytes, .in_step = chosen};
  const bench_way way = {.tile = choice->tile, .chosen = chosen, .tuned = chosen && tuned};
  c->p = params_of(params, pass, choice);
  const cvy_status status = bench_op(rows, device, what, &way, &c->base, params->n_max, &one, 1);
  const bool made = c->base.algorithm != NULL;
  if (!made && (status == CVY_E_UNSUPPORTED || status == CVY_E_DEVICE_MEMORY || status == CVY_E_ARGUMENT)) {
    bench_row_impossible(rows, what, cvy_conv_algo_name(choice->algo), program_last_error());
    return CVY_OK;
  }
  return status;
}

static void count_bytes(const cvy_conv2d_params *p, const cvy_shape *out, cvy_conv_pass pass, bench_case *what) {
  const double n = p->n_max, x = 4 * n * p->x.h * p->x.w * p->x.c, y = 4 * n * out->h * out->w * out->c,
               w = 4.0 * p->r * p->s * cvy_conv_group_c(p) * p->k, residual = p->prologue & CVY_CONV_RESIDUAL ? x : 0;
  const bool forward = pass == CVY_CONV_FORWARD, weights = pass == CVY_CONV_BACKWARD_WEIGHTS;
  what->pass = cvy_conv_pass_name(pass);
  what->flops = cvy_conv2d_flops(p, p->n_max);
  what->read_bytes = forward ? x + residual + w : weights ? x + residual + y : y + w;
  what->write_bytes = forward ? y : weights ? w : x;
}

void bench_conv_shape_text(const cvy_conv2d_params *p, char *out, size_t out_bytes) {
  int used = snprintf(out, out_bytes, "n%dh%dw%dc%dk%dr%d", p->n_max, p->x.h, p->x.w, p->x.c, p->k, p->r);
  if (p->s != p->r) used += snprintf(out + used, out_bytes - (size_t)used, "x%d", p->s);
  used += snprintf(out + used, out_bytes - (size_t)used, "s%d", p->stride_h);
  if (p->stride_w != p->stride_h) used += snprintf(out + used, out_bytes - (size_t)used, "x%d", p->stride_w);
  used += snprintf(out + used, out_bytes - (size_t)used, "p%d", p->pad_h);
  if (p->pad_w != p->pad_h) used += snprintf(out + used, out_bytes - (size_t)used, "x%d", p->pad_w);
  if (cvy_conv_groups(p) > 1) used += snprintf(out + used, out_bytes - (size_t)used, "g%d", cvy_conv_groups(p));
  if (cvy_conv_dilation_h(p) > 1 || cvy_conv_dilation_w(p) > 1)
    used += snprintf(out + used, out_bytes - (size_t)used, "d%dx%d", cvy_conv_dilation_h(p), cvy_conv_dilation_w(p));
  if (p->pad_more_h || p->pad_more_w)
    used += snprintf(out + used, out_bytes - (size_t)used, "m%dx%d", p->pad_more_h, p->pad_more_w);
  if (p->prologue) snprintf(out + used, out_bytes - (size_t)used, "f%d", p->prologue);
}

cvy_status bench_conv(bench_rows *rows, bench_device *device, const char *operation, const cvy_conv2d_params *params,
                      int count, const bench_conv_options *options) {
  cvy_status status = CVY_OK;
  bench_case what = {.operation = operation, .count = count};
  cvy_conv2d_params p = *params;
  cvy_shape y;
  p.math = options->math;
  CVY_TRY(cvy_conv2d_output_shape(params, &y));
  bench_conv_shape_text(params, what.shape, sizeof what.shape);
  conv2d_case c = {.base.n = p.n_max < FEW ? p.n_max : FEW, .p = p};
  case_rng r = case_rng_make(1, 0);
  case_conv2d(&c, &r);
  for (int i = 0; i < CVY_CONV_PASSES && status == CVY_OK; i++) {
    const cvy_conv_pass pass = (cvy_conv_pass)i;
    cvy_conv_choice ways[WAYS_MAX], chosen;
    int n = 0;
    bool tuned = false;
    if (options->pass != CVY_CONV_PASSES && options->pass != i) continue;
    if (pass == CVY_CONV_BACKWARD_DATA && params->no_backward_data) continue;
    count_bytes(&p, &y, pass, &what);
    c.base.left_out = ~CASE_BIT(pass);
    status = ways_of(device->cl, &p, pass, options, ways, &n, &chosen, &tuned);
    for (int k = 0; k < n && status == CVY_OK; k++)
      status = measure_way(rows, device, &c, &what, &p, pass, &ways[k], same_choice(&ways[k], &chosen), tuned);
  }
  case_end(&c.base);
fail:
  return status;
}
