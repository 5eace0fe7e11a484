/* SPDX-License-Identifier: MIT
 * Strips, and the launches of gather convolutions over them: weights are packed, tasks are a strip, a phase and a block
 * of output channels, and statistics of an image's strips are merged. */
#include "src/ops/conv2d/conv2d_strip_cpu.h"

/* ---- geometry ---- */

void cvy_conv_strips_begin(cvy_conv_strips *st, cvy_device *device, const cvy_conv2d_params *params, const cvy_shape *y,
                           cvy_conv_pass pass) {
  const int compute_units = cvy_device_get_capabilities(device)->compute_units;
  *st = (cvy_conv_strips){.params = *params,
                          .y = *y,
                          .pass = pass,
                          .compute_units = compute_units,
                          .max_groups = cvy_conv_most_groups(compute_units),
                          .phases_h = 1,
                          .phases_w = 1};
  cvy_conv2d_params *const p = &st->params;
  if (pass != CVY_CONV_BACKWARD_DATA) {
    st->gather = cvy_conv_gather_forward(p, y);
    return;
  }
  /* the phase with most taps and the largest grid, each by itself */
  cvy_conv_widen_strides(p, y);
  st->gather = cvy_conv_gather_phase(p, y, 0, 0);
  st->gather.taps_h = cvy_ceil_div(p->r, p->stride_h), st->gather.taps_w = cvy_ceil_div(p->s, p->stride_w);
  st->phases_h = cvy_conv_smaller(p->stride_h, p->x.h), st->phases_w = cvy_conv_smaller(p->stride_w, p->x.w);
}

int cvy_conv_strips_per_image(const cvy_conv_gather *g, const cvy_conv_strip *s) {
  return cvy_ceil_div(g->grid_h, s->rows) * cvy_ceil_div(g->grid_w, s->cols);
}

int64_t cvy_conv_strips_count(const cvy_conv_gather *g, const cvy_conv_strip *s, int n) {
  return (int64_t)cvy_ceil_div(n, s->images) * cvy_conv_strips_per_image(g, s);
}

cvy_conv_strip cvy_conv_strips_for(const cvy_conv_strips *st, int n, int tasks_per_strip, bool cut_images) {
  const cvy_conv_gather *const g = &st->gather;
  const int64_t wanted = 4 * (int64_t)st->compute_units;
  cvy_conv_strip s = st->strip;
  while (s.images > 1 && cvy_conv_strips_count(g, &s, n) * tasks_per_strip < wanted) s.images = (s.images + 1) / 2;
  while (cut_images && s.images == 1 && s.rows > 1 && (s.rows / 2) * s.cols >= 2 * CVY_STRIP_TILE &&
         cvy_conv_strips_count(g, &s, n) * tasks_per_strip < wanted)
    s.rows = (s.rows + 1) / 2;
  return s;
}

/* ---- workspace and kernels ---- */

cvy_status cvy_conv_strips_place(cvy_conv_strips *st, int64_t before, int64_t slice_floats, size_t *workspace_bytes) {
  cvy_status status = CVY_OK;
  const int64_t slices_at = cvy_conv_round_up(before, 16), slice = cvy_conv_round_up(slice_floats, 16),
                total = slices_at + slice * st->max_groups;
  CVY_REQUIRE(slice < INT32_MAX && total <= INT32_MAX, CVY_E_ARGUMENT,
              "convolution: %lld floats of workspace do not fit 32-bit indices", (long long)total);
  st->slices_at = (int)slices_at, st->slice_floats = (int)slice;
  *workspace_bytes = (size_t)total * sizeof(float);
fail:
  return status;
}

int cvy_conv_narrow(int pitch, cvy_define *define) {
  *define = (cvy_define){"NARROW", pitch == 16 ? 2 : 1};
  return pitch % 32 != 0;
}

cvy_status cvy_conv_strips_create(cvy_conv_strips *st, cvy_device *device, const char *file, const char *kernel,
                                  int64_t results_at, int64_t slice_floats, size_t *workspace_bytes) {
  cvy_status status = CVY_OK;
  static const char *const shared = "conv2d_direct_cpu";
  const cvy_conv2d_params *const p = &st->params;
  const cvy_conv_gather *const g = &st->gather;
  const bool forward = st->pass == CVY_CONV_FORWARD, stats = forward && p->stats;
  const int parts = cvy_conv_strips_per_image(g, &st->strip);
  const int64_t weights = (int64_t)p->r * p->s * g->in.c * g->out.pitch,
                merged = stats && parts > 1 ? (int64_t)p->n_max * parts * 3 * g->out.pitch : 0;
  CVY_TRY(cvy_conv_strips_place(st, weights + merged, slice_floats, workspace_bytes));
  st->stats_at = (int)weights, st->results_at = (int)results_at;
  cvy_define narrow;
  const int n_defines = cvy_conv_narrow(g->out.pitch, &narrow);
  CVY_TRY(cvy_kernel_create(device, file, kernel, &narrow, n_defines, &st->main));
  CVY_TRY(
      cvy_kernel_create(device, shared, forward ? "conv2d_cpu_pack" : "conv2d_cpu_pack_turned", NULL, 0, &st->pack));
  if (stats) CVY_TRY(cvy_kernel_create(device, shared, "conv2d_cpu_merge_stats", NULL, 0, &st->merge));
fail:
  return status;
}

void cvy_conv_strips_clear(cvy_conv_strips *st) {
  cvy_kernel_destroy(&st->main);
  cvy_kernel_destroy(&st->pack);
  cvy_kernel_destroy(&st->merge);
}

/* ---- calls ---- */

cvy_conv_strip_call cvy_conv_strips_describe(const cvy_conv_strips *st, const cvy_conv_call *call,
                                             const cvy_conv_strip *s, int flags) {
  const cvy_conv2d_params *const p = &st->params;
  return (cvy_conv_strip_call){.in = st->gather.in,
                               .out = st->gather.out,
                               .filter = {p->r, p->s, p->stride_h, p->stride_w, p->pad_h, p->pad_w},
                               .strip = *s,
                               .n = call->n,
                               .turned = st->pass == CVY_CONV_BACKWARD_DATA,
                               .phases_h = st->phases_h,
                               .phases_w = st->phases_w,
                               .table_size = st->table_size,
                               .results_at = st->results_at,
                               .stats_at = st->stats_at,
                               .slices_at = st->slices_at,
                               .slice_floats = st->slice_floats,
                               .group_size = call->group_size,
                               .flags = flags};
}

static cvy_status pack_weights(cvy_conv_strips *st, cvy_queue *queue, const cvy_conv_call *call,
                               const cvy_conv_strip_call *c) {
  const int taps = c->filter.r * c->filter.s, rows = taps * c->in.c;
  if (st->pass == CVY_CONV_FORWARD)
    return CVY_LAUNCH(queue, st->pack, cvy_conv_groups_of_one(cvy_conv_smaller(cvy_ceil_div(rows, 64), st->max_groups)),
                      CVY_BUF(call->w), CVY_BUF(call->workspace), CVY_INT(rows), CVY_INT(c->out.pitch));
  const int64_t blocks = cvy_ceil_div(c->out.pitch, CVY_STRIP_BLOCK);
  return CVY_LAUNCH(queue, st->pack, cvy_conv_groups_of_one(cvy_conv_smaller(blocks * taps, st->max_groups)),
                    CVY_BUF(call->w), CVY_BUF(call->workspace), CVY_STRUCT(*c));
}

cvy_status cvy_conv_strips_run(cvy_conv_strips *st, cvy_queue *queue, const cvy_conv_call *call) {
  cvy_status status = CVY_OK;
  const cvy_conv2d_params *const p = &st->params;
  const cvy_conv_gather *const g = &st->gather;
  const cvy_shape *const out = &g->out;
  const bool forward = st->pass == CVY_CONV_FORWARD, stats = forward && p->stats;
  const int blocks = cvy_ceil_div(out->pitch, CVY_STRIP_BLOCK), tasks_per_strip = blocks * st->phases_h * st->phases_w;
  const cvy_conv_strip s = cvy_conv_strips_for(st, call->n, tasks_per_strip, !stats);
  const int64_t tasks = cvy_conv_strips_count(g, &s, call->n) * tasks_per_strip;
  const int flags = (forward ? p->prologue : 0) | (call->bias ? CVY_CPU_BIAS : 0) | (stats ? CVY_CPU_STATS : 0) |
                    (call->accumulate ? CVY_CPU_ACCUMULATE : 0) | cvy_conv_stream_flag(call->n, out, call->accumulate);
  const cvy_conv_strip_call c = cvy_conv_strips_describe(st, call, &s, flags);
  CVY_TRY(pack_weights(st, queue, call, &c));
  CVY_TRY(CVY_LAUNCH(queue, st->main, cvy_conv_groups_of_one(cvy_conv_smaller(tasks, st->max_groups)),
                     CVY_BUF(forward ? call->x : call->dy), CVY_BUF(call->affine), CVY_BUF(call->residual),
                     CVY_BUF(call->bias), CVY_BUF(forward ? call->y : call->dx), CVY_BUF(call->stats),
                     CVY_BUF(call->workspace), CVY_STRUCT(c)));
  if (stats && cvy_conv_strips_per_image(g, &s) > 1)
    CVY_TRY(CVY_LAUNCH(queue, st->merge, cvy_conv_groups_of_one(cvy_conv_smaller(call->n, st->max_groups)),
                       CVY_BUF(call->workspace), CVY_BUF(call->stats), CVY_STRUCT(c)));
fail:
  return status;
}
