/* SPDX-License-Identifier: MIT
 * Launches of cl/conv2d/conv2d_direct.cl (SIMT).
 * Workspace: results of each part of the depth, else with statistics those of strips; backward_weights: partial dw of
 * each part of the positions, then the partial sums of dy. */
#include "src/cl/dry_run.h"
#include "src/ops/conv2d/conv2d_direct.h"
#include "src/ops/conv2d/conv2d_simt_plan.h"
#include "src/ops/divider.h"
#include "src/ops/conv2d/math.h"

enum { CLEAR_FLOATS = 32 }; /* as in the kernel */

typedef struct simt_state {
  cvy_conv_job job; /* strides widened in backward_data */
  cvy_simt_machine machine;
  cvy_simt_direct plan;
  cvy_kernel *main, *sum, *finish, *stats;
  int sums_at; /* of db, in the workspace */
} simt_state;

static cvy_conv_expected expected(const void *state) {
  const cvy_simt_direct *const plan = &((const simt_state *)state)->plan;
  return (cvy_conv_expected){plan->max_parts, plan->seconds, plan->whole_s};
}

static cvy_status size_workspace(simt_state *st) {
  const cvy_conv_job *const job = &st->job;
  const cvy_simt_direct *const plan = &st->plan;
  const int64_t positions = (int64_t)job->params.n_max * job->y.h * job->y.w;
  int64_t floats = (int64_t)plan->part_floats * plan->max_parts;
  if (job->weights) {
    int sums;
    (void)cvy_simt_sum_rows(positions, CVY_SIMT_DIRECT_SUMS, &sums);
    st->sums_at = (int)floats;
    floats += (int64_t)sums * job->y.pitch;
  } else if (job->stats && !plan->part_floats)
    floats = (positions / CVY_SIMT_STRIP + 1 + job->params.n_max) * 3 * job->y.pitch;
  return cvy_conv_claim(&st->job, floats);
}

static cvy_status create(void *state, const int *tile) {
  cvy_status status = CVY_OK;
  simt_state *const st = state;
  cvy_conv_job *const job = &st->job;
  st->machine = cvy_simt_machine_of(job->base.device, job->params.math);
  CVY_TRY(cvy_simt_plan_direct(&st->machine, &job->params, &job->y, job->pass, tile, &st->plan));
  job->params = st->plan.p;
  CVY_TRY(size_workspace(st));
  const int math = cvy_math_define(job->base.device, job->params.math);
  const cvy_define defines[] = {{"PASS", (long)job->pass},
                                {"TILE_M", st->plan.tile.m},
                                {"TILE_N", st->plan.tile.n},
                                {"TILE_K", st->plan.tile.k},
                                {"PROLOGUE", cvy_conv_prologue_define(job)},
                                {"VEC", job->in.c % 4 == 0 && job->in.pitch % 4 == 0 ? 4 : 1},
                                {"VEC_OUT", job->out.pitch % 4 == 0 ? 4 : 1},
                                {"MATH", math}};
  const int n = (int)(sizeof defines / sizeof *defines) - (math == 0);
  CVY_TRY(cvy_conv_kernel(job, job->weights ? "conv2d_simt_backward_weights" : "conv2d_simt_forward", defines, n,
                          &st->main));
  static const cvy_define sums[] = {{"PASS", 3}};
  if (job->weights) CVY_TRY(cvy_conv_kernel(job, "conv2d_simt_finish", sums, 1, &st->finish));
  else if (st->plan.part_floats) CVY_TRY(cvy_conv_kernel(job, "conv2d_simt_sum", sums, 1, &st->sum));
  else if (job->stats) CVY_TRY(cvy_conv_kernel(job, "conv2d_simt_merge_stats", sums, 1, &st->stats));
fail:
  return status;
}

static cvy_conv_simt_call describe(const simt_state *st, const cvy_conv_call *call, const cvy_conv_gather *g) {
  return (cvy_conv_simt_call){.positions = call->n * g->grid_h * g->grid_w,
                              .n_depth = g->taps_h * g->taps_w * g->in.c,
                              .filter_s = st->job.params.s,
                              .w_c = st->job.params.x.c,
                              .w_pitch = st->job.y.pitch,
                              .part_length = st->plan.part_depth,
                              .part_floats = st->plan.part_floats,
                              .flags = st->job.params.prologue,
                              .has_bias = call->bias && !st->sum,
                              .accumulate = call->accumulate && !st->sum,
                              .has_stats = st->stats != NULL,
                              .by_grid = cvy_divider_make(g->grid_h * g->grid_w),
                              .by_row = cvy_divider_make(g->grid_w),
                              .by_c = cvy_divider_make(g->in.c),
                              .by_taps = cvy_divider_make(g->taps_w > 0 ? g->taps_w : 1),
                              .by_group = cvy_divider_make(call->group_size)};
}

/* Adds up the parts of the results. */
static cvy_status run_sum(simt_state *st, cvy_queue *queue, const cvy_conv_call *call) {
  const cvy_shape out = st->job.out;
  const bool stats = call->stats != NULL;
  const cvy_conv_sum c = {.out = out,
                          .filter = CVY_CONV_WINDOW(&st->job.params),
                          .turned = st->job.data,
                          .in_c = st->job.y.c,
                          .part_length = st->plan.part_depth,
                          .parts = st->plan.max_parts,
                          .part_floats = st->plan.part_floats,
                          .positions = call->n * out.h * out.w,
                          .span = stats ? out.h * out.w : CVY_SIMT_SUM_SPAN,
                          .has_bias = call->bias != NULL,
                          .accumulate = call->accumulate,
                          .has_stats = stats};
  const int64_t groups = (int64_t)cvy_ceil_div(c.positions, c.span) * cvy_ceil_div(out.pitch, (int)CVY_SIMT_SUM_LANES);
  return CVY_LAUNCH(queue, st->sum, cvy_conv_grid(groups, 256), CVY_BUF(call->workspace), CVY_BUF(call->bias),
                    CVY_BUF(call->out), CVY_BUF(call->stats), CVY_STRUCT(c));
}

static cvy_status run_forward(simt_state *st, cvy_queue *queue, const cvy_conv_call *call,
                              const cvy_launch_work *works) {
  cvy_status status = CVY_OK;
  const cvy_conv_gather g = cvy_conv_gather_forward(&st->job.params, &st->job.y);
  const cvy_conv_simt_call c = describe(st, call, &g);
  cvy_launch_expect(queue, &works[0]);
  CVY_TRY(CVY_LAUNCH(
      queue, st->main, cvy_conv_grid(cvy_simt_groups(&st->plan, call->n, 0), cvy_gemm_items(st->plan.tile)),
      CVY_BUF(call->x), CVY_BUF(call->affine), CVY_BUF(call->residual), CVY_BUF(call->w), CVY_BUF(call->bias),
      CVY_BUF(call->y), CVY_BUF(st->stats || st->sum ? call->workspace : NULL), CVY_STRUCT(g), CVY_STRUCT(c)));
  cvy_launch_expect(queue, &works[1]);
  if (st->sum) CVY_TRY(run_sum(st, queue, call));
  else if (st->stats)
    CVY_TRY(CVY_LAUNCH(queue, st->stats, cvy_conv_grid(cvy_ceil_div(call->n * st->job.y.pitch, 64), 64),
                       CVY_BUF(call->workspace), CVY_BUF(call->stats), CVY_INT(call->n),
                       CVY_INT(st->job.y.h * st->job.y.w), CVY_INT(st->job.y.pitch), CVY_DIVIDER(st->job.y.pitch)));
fail:
  return status;
}

/* Work-groups that clear the pixels of dx that no tap reaches; 0 if every pixel is reached. */
static int64_t clearing_groups(const simt_state *st, const cvy_conv_call *call) {
  const cvy_conv2d_params *const p = &st->job.params;
  bool empty = false;
  for (int h = 0; h < p->stride_h && h < p->x.h; h++)
    empty = empty || cvy_conv_line_of(p->x.h, p->r, p->stride_h, p->pad_h, h).taps == 0;
  for (int w = 0; w < p->stride_w && w < p->x.w; w++)
    empty = empty || cvy_conv_line_of(p->x.w, p->s, p->stride_w, p->pad_w, w).taps == 0;
  const int64_t floats = (int64_t)call->n * p->x.h * p->x.w * p->x.pitch,
                of_group = (int64_t)cvy_gemm_items(st->plan.tile) * CLEAR_FLOATS;
  return empty && !call->accumulate && !st->sum ? (floats + of_group - 1) / of_group : 0;
}

static cvy_status run_data(simt_state *st, cvy_queue *queue, const cvy_conv_call *call, const cvy_launch_work *works) {
  cvy_status status = CVY_OK;
  const cvy_conv2d_params *const p = &st->job.params;
  const cvy_conv_gather one = cvy_conv_gather_phase(p, &st->job.y, 0, 0);
  const cvy_conv_simt_call c = describe(st, call, &one);
  const int grid_h = cvy_ceil_div(p->x.h, p->stride_h), grid_w = cvy_ceil_div(p->x.w, p->stride_w),
            taps_w = cvy_ceil_div(p->s, p->stride_w);
  cvy_conv_back g = {.in = st->job.y,
                     .out = p->x,
                     .filter = CVY_CONV_WINDOW(p),
                     .images = call->n,
                     .by_h = cvy_divider_make(grid_h),
                     .by_h_less = cvy_divider_make(grid_h > 1 ? grid_h - 1 : 1),
                     .by_w = cvy_divider_make(grid_w),
                     .by_w_less = cvy_divider_make(grid_w > 1 ? grid_w - 1 : 1),
                     .by_taps = cvy_divider_make(taps_w),
                     .by_taps_less = cvy_divider_make(taps_w > 1 ? taps_w - 1 : 1)};
  const int pieces = p->x.pitch % 4 == 0 ? p->x.pitch / 4 : p->x.pitch;
  const int phases = cvy_simt_phases(&st->plan, &g.phases_w);
  int launched = 0;
  for (g.first = 0; g.first < phases; g.first += g.count) {
    g.count = cvy_conv_smaller(CVY_SIMT_PHASES, phases - g.first);
    int64_t groups = g.first + g.count == phases ? clearing_groups(st, call) : 0;
    for (int phase = g.first; phase < g.first + g.count; phase++) groups += cvy_simt_groups(&st->plan, call->n, phase);
    if (groups == 0) continue;
    if (launched < CVY_SIMT_LAUNCHES) cvy_launch_expect(queue, &works[launched++]);
    CVY_TRY(CVY_LAUNCH(queue, st->main, cvy_conv_grid(groups, cvy_gemm_items(st->plan.tile)), CVY_BUF(call->dy),
                       CVY_BUF(NULL), CVY_BUF(NULL), CVY_BUF(call->w), CVY_BUF(NULL), CVY_BUF(call->dx),
                       CVY_BUF(st->sum ? call->workspace : NULL), CVY_STRUCT(g), CVY_STRUCT(c), CVY_DIVIDER(pieces),
                       CVY_DIVIDER(p->x.w), CVY_DIVIDER(p->x.h), CVY_DIVIDER(p->stride_h), CVY_DIVIDER(p->stride_w)));
  }
  if (launched < CVY_SIMT_LAUNCHES) cvy_launch_expect(queue, &works[launched]);
  if (st->sum) CVY_TRY(run_sum(st, queue, call));
fail:
  return status;
}

cvy_status cvy_simt_run_finish(cvy_kernel *finish, cvy_queue *queue, const cvy_conv_call *call, int n_dw, int parts,
                               int sums_at, int n_db, int sums) {
  const int lanes = cvy_simt_finish_lanes(sums > parts ? sums : parts);
  return CVY_LAUNCH(queue, finish, cvy_conv_grid(cvy_ceil_div(n_dw + n_db, 256 / lanes), 256), CVY_BUF(call->workspace),
                    CVY_BUF(call->dw), CVY_BUF(call->db), CVY_INT(n_dw), CVY_INT(parts), CVY_INT(sums_at),
                    CVY_INT(n_db), CVY_INT(sums), CVY_INT(lanes), CVY_INT(call->accumulate));
}

static cvy_status run_weights(simt_state *st, cvy_queue *queue, const cvy_conv_call *call,
                              const cvy_launch_work *works) {
  cvy_status status = CVY_OK;
  const cvy_conv_gather g = cvy_conv_gather_forward(&st->job.params, &st->job.y);
  cvy_conv_simt_call c = describe(st, call, &g);
  int parts, sums;
  const int per_part = cvy_simt_part_positions(&st->plan, call->n, &parts),
            sum_rows = cvy_simt_sum_rows(c.positions, CVY_SIMT_DIRECT_SUMS, &sums),
            n_dw = parts > 1 ? st->plan.part_floats : 0;
  if (!call->db) sums = 0;
  const int sum_groups = sums * cvy_ceil_div(g.out.pitch, 64);
  const int64_t groups = cvy_simt_groups(&st->plan, call->n, 0) + sum_groups;
  c.part_length = per_part, c.part_floats = n_dw;
  c.accumulate = parts == 1 && call->accumulate;
  cvy_launch_expect(queue, &works[0]);
  CVY_TRY(CVY_LAUNCH(queue, st->main, cvy_conv_grid(groups, cvy_gemm_items(st->plan.tile)), CVY_BUF(call->x),
                     CVY_BUF(call->affine), CVY_BUF(call->residual), CVY_BUF(call->dy),
                     CVY_BUF(parts > 1 ? call->workspace : call->dw), CVY_BUF(call->db ? call->workspace : NULL),
                     CVY_STRUCT(g), CVY_STRUCT(c), CVY_INT(sum_groups), CVY_INT(sum_rows), CVY_INT(st->sums_at)));
  cvy_launch_expect(queue, &works[1]);
  if (n_dw > 0 || call->db)
    CVY_TRY(cvy_simt_run_finish(st->finish, queue, call, n_dw, parts, st->sums_at, call->db ? g.out.pitch : 0, sums));
fail:
  return status;
}

static cvy_status run(void *state, cvy_queue *queue, const cvy_conv_call *call) {
  simt_state *const st = state;
  cvy_launch_work works[CVY_SIMT_LAUNCHES] = {0};
  if (cvy_device_is_dry_run(cvy_queue_device(queue)))
    (void)cvy_simt_direct_works(&st->machine, &st->plan, call->n, call->db != NULL, works);
  switch (st->job.pass) {
    case CVY_CONV_FORWARD: return run_forward(st, queue, call, works);
    case CVY_CONV_BACKWARD_DATA: return run_data(st, queue, call, works);
    default: return run_weights(st, queue, call, works);
  }
}

const cvy_conv_algorithm cvy_conv_direct_simt = {.name = "direct_simt",
                                                 .algo = CVY_CONV_DIRECT,
                                                 .file = "conv2d_direct",
                                                 .state_bytes = sizeof(simt_state),
                                                 .uneven = true,
                                                 .error_bound = 1e-5,
                                                 .tf32_error_bound = CVY_TF32_ERROR_BOUND,
                                                 .tiles = cvy_gemm_tiles,
                                                 .n_tiles = CVY_GEMM_TILES,
                                                 .tile_fits = cvy_gemm_fits,
                                                 .create = create,
                                                 .expected = expected,
                                                 .run = run};
