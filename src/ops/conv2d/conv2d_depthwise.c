/* SPDX-License-Identifier: MIT
 * Launches of cl/conv2d/conv2d_depthwise.cl: convolutions with one filter for each channel, and
 * small groups, on CPU-shaped devices. In the workspace: parts of dw and db | a slice per work-group */
#include "cl/conv2d_args.clh"
#include "src/ops/conv2d/conv2d_algorithm.h"
#include "src/ops/conv2d/conv2d_cpu.h"

enum {
  NEAR_FLOATS = 8192,        /* wanted size of a task's rows, which stay in a first-level cache */
  FAR_FLOATS = 32768,        /* the same in a second-level cache */
  SPARE_COLS = 3,            /* results that a tile may make beyond the last */
  OWN_FLOATS = 65536,        /* bound of a group's dw, which each core keeps in its slice */
  PART_FLOATS_MAX = 8 << 20, /* bound of all parts of dw, where it can be kept */
  PART_ROWS = 16             /* a part of backward_weights has so many rows and more */
};

typedef struct depthwise_state {
  cvy_conv_job job;
  cvy_conv_depthwise_call call; /* n, group_size, flags, parts and chunk are a call's */
  bool packed;                  /* the workspace begins with turned weights */
  cvy_kernel *main, *pack;      /* pack: of groups in backward_data */
} depthwise_state;

/* GROUP of the kernels that can do these groups, 0: none. */
static int kind_of(const cvy_conv2d_params *p, const cvy_shape *y) {
  const int c = cvy_conv_group_c(p), k = p->k / cvy_conv_groups(p);
  if (p->x.c == 1 || !cvy_conv_is_grouped(p)) return 0;
  if (c == k && p->x.pitch == y->pitch && (c == 1 || c == 2 || c == 4 || c == 8)) return c;
  return c % 16 == 0 && k % 16 == 0 && p->x.pitch == p->x.c && y->pitch == p->k ? 16 : 0;
}

static const char *can(const cvy_conv_job *job) {
  const cvy_conv2d_params *const p = &job->params;
  if (kind_of(p, &job->y) != 1) return "only one filter for each channel, with the same pitch in front and behind";
  return job->y.pitch % 16 != 0 ? "CPU kernels need pitches that are multiples of 16" : NULL;
}

static const char *can_groups(const cvy_conv_job *job) {
  const cvy_conv2d_params *const p = &job->params;
  const int64_t dw = (int64_t)p->r * p->s * cvy_conv_group_c(p) * (p->k / cvy_conv_groups(p));
  if (kind_of(p, &job->y) <= 1 || job->y.pitch % 16 != 0)
    return "only groups of 2, 4 or 8 channels and filters, or of multiples of 16";
  return job->weights && dw > OWN_FLOATS ? "only groups with up to 65536 weights" : NULL;
}

/* Chosen before grouped, which computes the same value by value; not measured. */
static double cost(const cvy_conv_job *job) {
  (void)job;
  return 0.1;
}

static cvy_conv_depthwise_call geometry_of(const cvy_conv_job *job) {
  const cvy_conv2d_params *const p = &job->params;
  const int dilation_h = cvy_conv_dilation_h(p), dilation_w = cvy_conv_dilation_w(p);
  cvy_conv_depthwise_call g = {.in = job->in,
                               .out = job->out,
                               .r = p->r,
                               .s = p->s,
                               .step_h = p->stride_h,
                               .step_w = p->stride_w,
                               .first_h = -p->pad_h,
                               .first_w = -p->pad_w,
                               .dilation_h = dilation_h,
                               .dilation_w = dilation_w,
                               .spread_h = 1,
                               .spread_w = 1,
                               .group_c = cvy_conv_group_c(p),
                               .group_k = p->k / cvy_conv_groups(p)};
  if (!job->data) return g;
  const int channels = g.group_c;
  g.group_c = g.group_k, g.group_k = channels;
  g.step_h = g.step_w = 1;
  g.first_h = p->pad_h - (p->r - 1) * dilation_h, g.first_w = p->pad_w - (p->s - 1) * dilation_w;
  g.spread_h = p->stride_h, g.spread_w = p->stride_w;
  g.turned = 1;
  return g;
}

static int blocks_of(const depthwise_state *st) { return cvy_ceil_div(st->call.out.pitch, st->call.block); }

/* Parts of backward_weights for n samples. */
static int parts_of(const void *state, int n) {
  const depthwise_state *const st = state;
  const int most = cvy_ceil_div(n * st->call.out.h, PART_ROWS),
            wanted = cvy_ceil_div(st->job.base.capabilities->compute_units * 4, blocks_of(st));
  const int64_t parts = most < wanted ? most : wanted, fit = PART_FLOATS_MAX / st->job.part_floats;
  return fit < 1 ? 1 : cvy_conv_smaller(parts, fit);
}

/* Sizes of a task's ring and slice, for as many channels as fit. */
static cvy_status plan(depthwise_state *st) {
  cvy_conv_job *const job = &st->job;
  cvy_conv_depthwise_call *const g = &st->call;
  const bool weights = job->weights;
  const int64_t rows = (int64_t)(g->r - 1) * g->dilation_h / g->spread_h + 1,
                cols = (int64_t)(g->out.w - 1 + SPARE_COLS) * g->step_w + (int64_t)(g->s - 1) * g->dilation_w + 1,
                ring_rows = rows < g->in.h ? rows : g->in.h, ring = ring_rows * cols;
  /* whole groups; a vector of results may need several of them */
  const int unit = g->group_k > 16 ? g->group_k : 16, unit_c = unit / g->group_k * g->group_c;
  /* the ring, rows fetched ahead and results; products of a few channels take longer than their loads: longer pieces of
   * rows pay */
  const bool few = !weights && g->group_c > 1 && g->group_c < 16;
  int64_t units = (few ? FAR_FLOATS : NEAR_FLOATS) / (ring * unit_c + 3 * (int64_t)g->out.w * unit);
  if (units < 1) units = 1;
  const int all = cvy_ceil_div(g->out.pitch, unit);
  g->block = unit * (units >= all ? all : cvy_conv_even_part(all, (int)units)), g->block_c = g->block / unit * unit_c;
  /* weights: a row of zeros, dw and db; else a row of results and three of statistics */
  const int64_t results = weights ? (int64_t)g->r * g->s * g->group_c + 1 : g->out.w + 3,
                slice = (ring + (weights ? cols : 0)) * g->block_c + results * g->block,
                parts = weights      ? (int64_t)parts_of(st, job->params.n_max) * job->part_floats
                        : st->packed ? (int64_t)g->r * g->s * g->group_c * g->out.pitch
                                     : 0;
  g->ring_rows = (int)ring_rows, g->ring_cols = (int)cols;
  g->slices_at = (int)parts, g->slice_floats = (int)slice;
  return cvy_conv_claim(job, parts + slice * job->max_groups);
}

static cvy_status create(void *state, const int *tile) {
  cvy_status status = CVY_OK;
  depthwise_state *const st = state;
  cvy_conv_job *const job = &st->job;
  const cvy_conv2d_params *const p = &job->params;
  const cvy_define group = {"GROUP", kind_of(p, &job->y)};
  (void)tile;
  st->call = geometry_of(job);
  CVY_TRY(cvy_conv_set_part(job, ((int64_t)p->r * p->s * cvy_conv_group_c(p) + 1) * job->y.pitch)); /* with db */
  job->db_in_parts = job->always_parts = job->weights;
  st->packed = job->data && group.value > 1;
  CVY_TRY(plan(st));
  CVY_TRY(cvy_conv_kernel(job, job->weights ? "conv2d_depthwise_cpu_weights" : "conv2d_depthwise_cpu", &group, 1,
                          &st->main));
  if (st->packed) CVY_TRY(cvy_conv_kernel(job, "conv2d_depthwise_cpu_pack", &group, 1, &st->pack));
fail:
  return status;
}

static cvy_status run(void *state, cvy_queue *queue, const cvy_conv_call *call) {
  cvy_status status = CVY_OK;
  depthwise_state *const st = state;
  const cvy_conv_job *const job = &st->job;
  const int blocks = blocks_of(st);
  cvy_conv_depthwise_call c = st->call;
  c.n = call->n, c.group_size = call->group_size, c.parts = call->parts, c.flags = call->flags;
  if (job->weights)
    return CVY_LAUNCH(queue, st->main, cvy_conv_tasks((int64_t)c.parts * blocks, job->max_groups), CVY_BUF(call->x),
                      CVY_BUF(call->affine), CVY_BUF(call->residual), CVY_BUF(call->dy), CVY_BUF(call->out),
                      CVY_STRUCT(c));
  /* results do not depend on the chunks; statistics want whole images */
  c.chunk = c.out.h;
  while (!call->stats && c.chunk > 2 * c.r &&
         (int64_t)c.n * blocks * cvy_ceil_div(c.out.h, c.chunk) < 4 * (int64_t)job->base.capabilities->compute_units)
    c.chunk = (c.chunk + 1) / 2;
  const int64_t tasks = (int64_t)c.n * blocks * cvy_ceil_div(c.out.h, c.chunk);
  const int rows = c.r * c.s * c.group_c;
  if (st->packed)
    CVY_TRY(CVY_LAUNCH(queue, st->pack, cvy_conv_tasks(rows, job->max_groups), CVY_BUF(call->w),
                       CVY_BUF(call->workspace), CVY_INT(rows), CVY_INT(c.out.c), CVY_INT(c.group_k),
                       CVY_INT(c.group_c), CVY_INT(c.out.pitch), CVY_INT(c.in.pitch)));
  CVY_TRY(CVY_LAUNCH(queue, st->main, cvy_conv_tasks(tasks, job->max_groups), CVY_BUF(call->in), CVY_BUF(call->affine),
                     CVY_BUF(call->residual), CVY_BUF(st->packed ? call->workspace : call->w), CVY_BUF(call->bias),
                     CVY_BUF(call->out), CVY_BUF(call->stats), CVY_BUF(call->workspace), CVY_STRUCT(c)));
fail:
  return status;
}

const cvy_conv_algorithm cvy_conv_depthwise = {.name = "depthwise",
                                               .algo = CVY_CONV_DIRECT,
                                               .file = "conv2d_depthwise",
                                               .state_bytes = sizeof(depthwise_state),
                                               .cpu_shaped = true,
                                               .groups = true,
                                               .uneven = true,
                                               .error_bound = 1e-5,
                                               .can = can,
                                               .cost = cost,
                                               .create = create,
                                               .parts = parts_of,
                                               .run = run};

const cvy_conv_algorithm cvy_conv_groups_cpu = {.name = "groups_cpu",
                                                .algo = CVY_CONV_DIRECT,
                                                .file = "conv2d_depthwise",
                                                .state_bytes = sizeof(depthwise_state),
                                                .groups = true,
                                                .uneven = true,
                                                .cpu_shaped = true,
                                                .error_bound = 1e-5,
                                                .can = can_groups,
                                                .cost = cost,
                                                .create = create,
                                                .parts = parts_of,
                                                .run = run};
