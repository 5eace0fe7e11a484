/* SPDX-License-Identifier: MIT
 * Launches of cl/conv2d/conv2d_grouped.cl: groups and dilation, for every shape on every device. In the workspace, of
 * backward_weights: its parts. */
#include "cl/conv2d_args.clh"
#include "src/ops/conv2d/conv2d_algorithm.h"
#include "src/ops/conv2d/conv2d_cpu.h"

enum {
  FILL = 2048,              /* work-items that fill a compute unit there */
  PART_POSITIONS = 64,      /* a part of backward_weights has so many positions and more, … */
  PART_FLOATS_MAX = 4 << 20 /* … and all parts together no more than this */
};

typedef struct grouped_state {
  cvy_conv_job job;
  cvy_conv_grouped_call call; /* n, group_size, flags and parts are a call's */
  cvy_kernel *main;
} grouped_state;

static const char *can(const cvy_conv_job *job) {
  return cvy_conv_is_grouped(&job->params) ? NULL : "direct's other kernels are faster";
}

/* Parts of backward_weights for n samples: enough to fill the device. */
static int parts_of(const void *state, int n) {
  const grouped_state *const st = state;
  const bool cpu = st->job.base.capabilities->cpu_shaped;
  const int64_t size = st->job.part_floats, positions = (int64_t)n * st->call.out.h * st->call.out.w,
                wanted = (int64_t)st->job.base.capabilities->compute_units * (cpu ? 4 : FILL) / (cpu ? 1 : size) + 1;
  int64_t parts = positions / PART_POSITIONS < wanted ? positions / PART_POSITIONS : wanted;
  if (parts * size > PART_FLOATS_MAX) parts = PART_FLOATS_MAX / size;
  return parts < 1 ? 1 : (int)parts;
}

static cvy_status create(void *state, const int *tile) {
  cvy_status status = CVY_OK;
  static const char *const names[CVY_CONV_PASSES] = {"conv2d_grouped_forward", "conv2d_grouped_backward_data",
                                                     "conv2d_grouped_backward_weights"};
  (void)tile;
  grouped_state *const st = state;
  cvy_conv_job *const job = &st->job;
  const cvy_conv2d_params *const p = &job->params;
  st->call = (cvy_conv_grouped_call){.in = p->x,
                                     .out = job->y,
                                     .filter = CVY_CONV_WINDOW(p),
                                     .dilation_h = cvy_conv_dilation_h(p),
                                     .dilation_w = cvy_conv_dilation_w(p),
                                     .group_c = cvy_conv_group_c(p),
                                     .group_k = p->k / cvy_conv_groups(p)};
  job->plain = true;
  CVY_TRY(cvy_conv_set_part(job, (int64_t)p->r * p->s * cvy_conv_group_c(p) * job->y.pitch));
  if (job->weights) job->max_parts = parts_of(st, p->n_max);
  if (job->max_parts > 1) CVY_TRY(cvy_conv_claim(job, (int64_t)job->max_parts * job->part_floats));
  CVY_TRY(cvy_conv_kernel(job, names[job->pass], NULL, 0, &st->main));
fail:
  return status;
}

static cvy_status run(void *state, cvy_queue *queue, const cvy_conv_call *call) {
  grouped_state *const st = state;
  const cvy_conv_job *const job = &st->job;
  cvy_conv_grouped_call c = st->call;
  c.n = call->n, c.group_size = call->group_size, c.parts = call->parts, c.flags = call->flags;
  const int64_t results =
      job->weights ? (int64_t)job->part_floats * c.parts : (int64_t)c.n * (int64_t)cvy_shape_elems(&job->out);
  const cvy_grid grid = cvy_conv_results_grid(job, results);
  if (job->data)
    return CVY_LAUNCH(queue, st->main, grid, CVY_BUF(call->dy), CVY_BUF(call->w), CVY_BUF(call->dx), CVY_STRUCT(c));
  if (job->weights)
    return CVY_LAUNCH(queue, st->main, grid, CVY_BUF(call->x), CVY_BUF(call->affine), CVY_BUF(call->residual),
                      CVY_BUF(call->dy), CVY_BUF(call->out), CVY_STRUCT(c));
  return CVY_LAUNCH(queue, st->main, grid, CVY_BUF(call->x), CVY_BUF(call->affine), CVY_BUF(call->residual),
                    CVY_BUF(call->w), CVY_BUF(call->bias), CVY_BUF(call->y), CVY_STRUCT(c));
}

const cvy_conv_algorithm cvy_conv_grouped = {.name = "grouped",
                                             .algo = CVY_CONV_DIRECT,
                                             .file = "conv2d_grouped",
                                             .state_bytes = sizeof(grouped_state),
                                             .groups = true,
                                             .uneven = true,
                                             .error_bound = 1e-5,
                                             .can = can,
                                             .create = create,
                                             .parts = parts_of,
                                             .run = run};
