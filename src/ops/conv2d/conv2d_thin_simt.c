/* SPDX-License-Identifier: MIT
 * Launches of cl/conv2d/conv2d_thin.cl: the gradient of filters with few products in each result, on SIMT devices. In
 * the workspace: parts of dw | parts of db. */
#include "src/cl/dry_run.h"
#include "src/ops/conv2d/conv2d_direct.h"
#include "src/ops/conv2d/conv2d_simt_plan.h"
#include "src/ops/divider.h"

/* As in the kernel. */
enum { ITEMS = 256, COLUMNS = 64, MOST_SUMS = 16, MOST_BLOCKS = 4 };
enum {
  MOST_CHANNELS = 4,
  GROUPS_PER_UNIT = 2 /* by their registers */
};
/* Multiply-adds beside the device's rate: 50 to 58 % of all instructions of the loop, in machine code for sm_90, times
 * 0.8 for what waits. Not measured. */
static const double rate_part = 0.43;

typedef struct thin_plan {
  int blocks, sums, row_blocks, step, parts;
} thin_plan;

typedef struct thin_state {
  cvy_conv_job job;
  cvy_simt_machine machine;
  thin_plan plan;
  cvy_kernel *main, *finish;
} thin_state;

static int depth_of(const cvy_conv_job *job) { return job->params.r * job->params.s * job->params.x.c; }

static const char *can(const cvy_conv_job *job) {
  if (job->params.x.c > MOST_CHANNELS) return "only up to 4 channels";
  return job->prologue ? "only without a load prologue" : NULL;
}

static thin_plan plan_of(const cvy_conv_job *job) {
  static const int sums[] = {9, 14, MOST_SUMS};
  const int depth = depth_of(job), row_blocks = cvy_ceil_div(depth, MOST_BLOCKS * MOST_SUMS),
            rows = cvy_ceil_div(depth, row_blocks);
  thin_plan plan = {.blocks = rows <= MOST_SUMS       ? 1
                              : rows <= 2 * MOST_SUMS ? 2
                                                      : MOST_BLOCKS,
                    .row_blocks = row_blocks};
  int i = 0;
  while (sums[i] * plan.blocks < rows) i++;
  plan.sums = sums[i];
  plan.step = 4 * (ITEMS / (COLUMNS / 4) / plan.blocks);
  const int64_t positions = (int64_t)job->params.n_max * job->y.h * job->y.w,
                most = (positions + plan.step - 1) / plan.step;
  const int wanted =
      GROUPS_PER_UNIT * job->base.capabilities->compute_units / (row_blocks * cvy_ceil_div(job->y.pitch, COLUMNS));
  plan.parts = cvy_conv_smaller(most, wanted > 1 ? wanted : 1);
  return plan;
}

/* Positions of a part for n samples, and the number of parts. */
static int part_positions(const cvy_conv_job *job, const thin_plan *plan, int n, int *parts) {
  const int64_t positions = (int64_t)n * job->y.h * job->y.w, even = (positions + plan->parts - 1) / plan->parts;
  const int per_part = (int)((even + plan->step - 1) / plan->step) * plan->step;
  *parts = (int)((positions + per_part - 1) / per_part);
  return per_part;
}

static int groups_of(const cvy_conv_job *job, const thin_plan *plan, int parts) {
  return parts * plan->row_blocks * cvy_ceil_div(job->y.pitch, COLUMNS);
}

/* The two launches for n samples. */
static void works_of(const cvy_simt_machine *m, const cvy_conv_job *job, const thin_plan *plan, int n, bool db,
                     cvy_launch_work works[2]) {
  int parts;
  const int per_part = part_positions(job, plan, n, &parts), units = job->base.capabilities->compute_units;
  const double dw = 4.0 * (depth_of(job) + db) * job->y.pitch, x = 4.0 * n * (double)cvy_shape_elems(&job->params.x),
               dy = 4.0 * n * (double)cvy_shape_elems(&job->y);
  const double bytes = (x + dy) * plan->row_blocks + dw * parts,
               part = (double)COLUMNS * plan->blocks * plan->sums * per_part;
  /* the busiest unit's groups; one alone on its unit waits more */
  const double compute_s =
                   cvy_ceil_div(groups_of(job, plan, parts), units) * part * units / m->rates.fma_per_s / rate_part,
               move_s = bytes / m->rates.bytes_per_s;
  works[0] = (cvy_launch_work){.fma = part * groups_of(job, plan, parts),
                               .bytes = bytes,
                               .moved = bytes,
                               .resident = GROUPS_PER_UNIT,
                               .seconds = m->rates.launch_s + (compute_s > move_s ? compute_s : move_s)};
  works[1] = cvy_simt_moves(m, dw * (parts + 1));
}

static double seconds_of(const cvy_simt_machine *m, const cvy_conv_job *job, const thin_plan *plan) {
  cvy_launch_work works[2];
  works_of(m, job, plan, job->params.n_max, job->params.bias, works);
  return works[0].seconds + works[1].seconds;
}

static double cost(const cvy_conv_job *job) {
  const cvy_simt_machine machine = cvy_simt_machine_asked(job);
  const thin_plan plan = plan_of(job);
  const double direct = cvy_simt_direct_seconds(&machine, job);
  return direct > 0 ? seconds_of(&machine, job, &plan) / direct : 2;
}

static cvy_conv_expected expected(const void *state) {
  const thin_state *const st = state;
  thin_plan whole = st->plan;
  whole.parts = 1;
  return (cvy_conv_expected){st->plan.parts, seconds_of(&st->machine, &st->job, &st->plan),
                             seconds_of(&st->machine, &st->job, &whole)};
}

static cvy_status create(void *state, const int *tile) {
  cvy_status status = CVY_OK;
  thin_state *const st = state;
  cvy_conv_job *const job = &st->job;
  (void)tile;
  st->machine = cvy_simt_machine_of(job->base.device, job->params.math);
  st->plan = plan_of(job);
  const cvy_define defines[] = {
      {"BLOCKS", st->plan.blocks}, {"SUMS", st->plan.sums}, {"VEC_OUT", job->y.pitch % 4 == 0 ? 4 : 1}};
  static const cvy_define sums[] = {{"PASS", 3}};
  CVY_TRY(cvy_conv_claim(job, ((int64_t)depth_of(job) + 1) * job->y.pitch * st->plan.parts));
  CVY_TRY(cvy_conv_kernel(job, "conv2d_thin_weights", defines, 3, &st->main));
  CVY_TRY(cvy_operation_kernel(job, "conv2d_direct", "conv2d_simt_finish", sums, 1, &st->finish));
fail:
  return status;
}

static cvy_status run(void *state, cvy_queue *queue, const cvy_conv_call *call) {
  cvy_status status = CVY_OK;
  thin_state *const st = state;
  const cvy_conv_job *const job = &st->job;
  const cvy_conv_gather g = cvy_conv_gather_forward(&job->params, &job->y);
  cvy_launch_work works[2] = {0};
  int parts;
  const int per_part = part_positions(job, &st->plan, call->n, &parts), n_dw = depth_of(job) * job->y.pitch,
            n_db = call->db ? job->y.pitch : 0;
  const cvy_conv_simt_call c = {.positions = call->n * g.grid_h * g.grid_w,
                                .n_depth = depth_of(job),
                                .part_length = per_part,
                                .part_floats = n_dw,
                                .by_grid = cvy_divider_make(g.grid_h * g.grid_w),
                                .by_row = cvy_divider_make(g.grid_w),
                                .by_c = cvy_divider_make(g.in.c),
                                .by_taps = cvy_divider_make(g.taps_w)};
  if (cvy_device_is_dry_run(cvy_queue_device(queue)))
    works_of(&st->machine, job, &st->plan, call->n, call->db != NULL, works);
  cvy_launch_expect(queue, &works[0]);
  CVY_TRY(CVY_LAUNCH(queue, st->main, cvy_conv_grid(groups_of(job, &st->plan, parts), ITEMS), CVY_BUF(call->x),
                     CVY_BUF(call->dy), CVY_BUF(call->workspace), CVY_STRUCT(g), CVY_STRUCT(c),
                     CVY_INT(st->plan.row_blocks), CVY_INT(n_dw * parts), CVY_INT(n_db > 0)));
  cvy_launch_expect(queue, &works[1]);
  CVY_TRY(cvy_simt_run_finish(st->finish, queue, call, n_dw, parts, n_dw * parts, n_db, n_db ? parts : 0));
fail:
  return status;
}

const cvy_conv_algorithm cvy_conv_thin_simt = {.name = "thin_simt",
                                               .algo = CVY_CONV_DIRECT,
                                               .file = "conv2d_thin",
                                               .state_bytes = sizeof(thin_state),
                                               .simt_shaped = true,
                                               .uneven = true,
                                               .no_forward = true,
                                               .no_data = true,
                                               .error_bound = 1e-5,
                                               .can = can,
                                               .cost = cost,
                                               .create = create,
                                               .expected = expected,
                                               .run = run};
