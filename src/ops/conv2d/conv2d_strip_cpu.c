/* SPDX-License-Identifier: MIT
 * Strips, and the launches of gather convolutions over them: weights are packed, tasks are a strip, a phase and a block
 * of output channels, and statistics of an image's strips are merged. */
#include "src/ops/conv2d/conv2d_strip_cpu.h"

/* ---- geometry ---- */

void cvy_conv_strips_begin(cvy_conv_strips *st) {
  cvy_conv2d_params *const p = &st->job.params;
  const cvy_shape *const y = &st->job.y;
  st->phases_h = st->phases_w = 1;
  if (!st->job.data) {
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
  const int64_t wanted = 4 * (int64_t)st->job.base.capabilities->compute_units;
  cvy_conv_strip s = st->strip;
  while (s.images > 1 && cvy_conv_strips_count(g, &s, n) * tasks_per_strip < wanted) s.images = (s.images + 1) / 2;
  while (cut_images && s.images == 1 && s.rows > 1 && (s.rows / 2) * s.cols >= 2 * CVY_STRIP_TILE &&
         cvy_conv_strips_count(g, &s, n) * tasks_per_strip < wanted)
    s.rows = (s.rows + 1) / 2;
  return s;
}

/* ---- workspace and kernels ---- */

cvy_status cvy_conv_strips_place(cvy_conv_strips *st, int64_t before, int64_t slice_floats) {
  const int64_t slices_at = cvy_conv_round_up(before, 16), slice = cvy_conv_round_up(slice_floats, 16);
  st->slices_at = (int)slices_at, st->slice_floats = (int)slice;
  return cvy_conv_claim(&st->job, slices_at + slice * st->job.max_groups);
}

int cvy_conv_narrow(int pitch, cvy_define *define) {
  *define = (cvy_define){"NARROW", pitch == 16 ? 2 : 1};
  return pitch % 32 != 0;
}

cvy_status cvy_conv_strips_create(cvy_conv_strips *st, const char *kernel, int64_t results_at, int64_t slice_floats) {
  cvy_status status = CVY_OK;
  static const char *const shared = "conv2d_direct_cpu";
  cvy_conv_job *const job = &st->job;
  const cvy_conv_gather *const g = &st->gather;
  const int parts = cvy_conv_strips_per_image(g, &st->strip);
  const int64_t weights = (int64_t)job->params.r * job->params.s * g->in.c * g->out.pitch,
                merged = job->stats && parts > 1 ? (int64_t)job->params.n_max * parts * 3 * g->out.pitch : 0;
  CVY_TRY(cvy_conv_strips_place(st, weights + merged, slice_floats));
  st->stats_at = (int)weights, st->results_at = (int)results_at;
  cvy_define narrow;
  const int n_defines = cvy_conv_narrow(g->out.pitch, &narrow);
  CVY_TRY(cvy_conv_kernel(job, kernel, &narrow, n_defines, &st->main));
  CVY_TRY(
      cvy_operation_kernel(job, shared, job->data ? "conv2d_cpu_pack_turned" : "conv2d_cpu_pack", NULL, 0, &st->pack));
  if (job->stats) CVY_TRY(cvy_operation_kernel(job, shared, "conv2d_cpu_merge_stats", NULL, 0, &st->merge));
fail:
  return status;
}

/* ---- calls ---- */

cvy_conv_strip_call cvy_conv_strips_describe(const cvy_conv_strips *st, const cvy_conv_call *call,
                                             const cvy_conv_strip *s) {
  return (cvy_conv_strip_call){.in = st->gather.in,
                               .out = st->gather.out,
                               .filter = CVY_CONV_WINDOW(&st->job.params),
                               .strip = *s,
                               .n = call->n,
                               .turned = st->job.data,
                               .phases_h = st->phases_h,
                               .phases_w = st->phases_w,
                               .table_size = st->table_size,
                               .results_at = st->results_at,
                               .stats_at = st->stats_at,
                               .slices_at = st->slices_at,
                               .slice_floats = st->slice_floats,
                               .group_size = call->group_size,
                               .flags = call->flags};
}

static cvy_status pack_weights(cvy_conv_strips *st, cvy_queue *queue, const cvy_conv_call *call,
                               const cvy_conv_strip_call *c) {
  const int taps = c->filter.r * c->filter.s, rows = taps * c->in.c, max_groups = st->job.max_groups;
  if (!st->job.data)
    return CVY_LAUNCH(queue, st->pack, cvy_conv_tasks(cvy_ceil_div(rows, 64), max_groups), CVY_BUF(call->w),
                      CVY_BUF(call->workspace), CVY_INT(rows), CVY_INT(c->out.pitch));
  const int64_t blocks = cvy_ceil_div(c->out.pitch, CVY_STRIP_BLOCK);
  return CVY_LAUNCH(queue, st->pack, cvy_conv_tasks(blocks * taps, max_groups), CVY_BUF(call->w),
                    CVY_BUF(call->workspace), CVY_STRUCT(*c));
}

cvy_status cvy_conv_strips_run(void *state, cvy_queue *queue, const cvy_conv_call *call) {
  cvy_status status = CVY_OK;
  cvy_conv_strips *const st = state;
  const cvy_conv_gather *const g = &st->gather;
  const int max_groups = st->job.max_groups, blocks = cvy_ceil_div(g->out.pitch, CVY_STRIP_BLOCK),
            tasks_per_strip = blocks * st->phases_h * st->phases_w;
  const cvy_conv_strip s = cvy_conv_strips_for(st, call->n, tasks_per_strip, !st->merge);
  const int64_t tasks = cvy_conv_strips_count(g, &s, call->n) * tasks_per_strip;
  const cvy_conv_strip_call c = cvy_conv_strips_describe(st, call, &s);
  CVY_TRY(pack_weights(st, queue, call, &c));
  CVY_TRY(CVY_LAUNCH(queue, st->main, cvy_conv_tasks(tasks, max_groups), CVY_BUF(call->in), CVY_BUF(call->affine),
                     CVY_BUF(call->residual), CVY_BUF(call->bias), CVY_BUF(call->out), CVY_BUF(call->stats),
                     CVY_BUF(call->workspace), CVY_STRUCT(c)));
  if (st->merge && cvy_conv_strips_per_image(g, &s) > 1)
    CVY_TRY(CVY_LAUNCH(queue, st->merge, cvy_conv_tasks(call->n, max_groups), CVY_BUF(call->workspace),
                       CVY_BUF(call->stats), CVY_STRUCT(c)));
fail:
  return status;
}
