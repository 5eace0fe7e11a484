/* SPDX-License-Identifier: MIT
 * Launches of cl/conv2d/conv2d_groups_simt.cl: depthwise convolutions and groups of multiples of four channels on SIMT
 * devices. In the workspace, of backward_weights: its parts. */
#include "cl/conv2d_args.clh"
#include "src/ops/conv2d/conv2d_algorithm.h"
#include "src/ops/divider.h"

enum {
  ITEMS = 256,               /* of a work-group */
  FILL_GROUPS = 8,           /* of backward_weights, for each compute unit */
  PART_FLOATS_MAX = 8 << 20, /* bound of all parts of dw */
  MOST_TAPS = 7,             /* columns of a filter whose pixels an item of a gather keeps */
  MOST_SUMS = 36,            /* floats of backward_weights that an item has in registers for each of its vector's, … */
  MOST_COLUMNS = 32,         /* … and so columns of a filter of one channel, … */
  MOST_GROUP_COLUMNS = 5     /* … and of groups */
};

typedef struct groups_state {
  cvy_conv_job job;
  cvy_conv_groups_call call; /* n, group_size, flags, and what follows from n are a call's */
  int group, vec, tiles;     /* GROUP and VEC of the kernels; tiles of a row of results */
  int lanes, rows;           /* LANES and ROWS of backward_weights */
  cvy_kernel *main;
} groups_state;

static bool is_depthwise(const cvy_conv2d_params *p) { return cvy_conv_group_c(p) == 1 && p->k == cvy_conv_groups(p); }

static const char *can(const cvy_conv_job *job) {
  const cvy_conv2d_params *const p = &job->params;
  const int c = cvy_conv_group_c(p), k = p->k / cvy_conv_groups(p);
  const bool depthwise = is_depthwise(p) && p->x.pitch == job->y.pitch,
             quads = c % 4 == 0 && k % 4 == 0 && p->x.pitch % 4 == 0 && job->y.pitch % 4 == 0;
  if (!cvy_conv_is_grouped(p)) return "direct's other kernels are faster";
  if (!depthwise && !quads) return "only one filter for each channel, or groups of multiples of 4";
  return job->weights && p->s > (depthwise ? MOST_COLUMNS : MOST_GROUP_COLUMNS) ? "only filters of up to 32 columns, 5 "
                                                                                  "of groups"
                                                                                : NULL;
}

/* Chosen before grouped, which computes the same value by value. */
static double cost(const cvy_conv_job *job) {
  (void)job;
  return 0.1;
}

/* Vectors side by side in a work-group of backward_weights: those that leave the fewest items idle. */
static int lanes_for(int vecs) {
  int best = 32;
  for (int lanes = 16; lanes >= 4; lanes /= 2)
    if (cvy_ceil_div(vecs, lanes) * lanes < cvy_ceil_div(vecs, best) * best) best = lanes;
  return best;
}

/* Work-groups of a part of backward_weights. */
static int part_groups(const groups_state *st) {
  return cvy_ceil_div(st->call.filter.r, st->rows) * (st->call.group_c / st->group) *
         cvy_ceil_div(st->call.out.pitch / st->vec, st->lanes);
}

/* Parts of backward_weights for n samples, at most: enough to fill the device. */
static int most_parts(const groups_state *st, int n) {
  const int lines = cvy_ceil_div(n * st->call.out.h, ITEMS / st->lanes),
            fill = cvy_ceil_div(st->job.base.capabilities->compute_units * FILL_GROUPS, part_groups(st)),
            parts = lines < fill ? lines : fill;
  const int64_t fit = PART_FLOATS_MAX / st->job.part_floats;
  return fit < 1 ? 1 : cvy_conv_smaller(parts, fit);
}

/* Rows of y of a part: as many for each of the items that share them. */
static int part_lines(const groups_state *st, int n) {
  const int sides = ITEMS / st->lanes;
  return sides * cvy_ceil_div(n * st->call.out.h, sides * most_parts(st, n));
}

static int parts_of(const void *state, int n) {
  const groups_state *const st = state;
  return cvy_ceil_div(n * st->call.out.h, part_lines(st, n));
}

static cvy_status create_gather(groups_state *st) {
  const cvy_conv2d_params *const p = &st->job.params;
  const cvy_shape *const to = &st->job.out;
  const bool data = st->job.data, window = cvy_conv_dilation_w(p) == 1 && p->s <= MOST_TAPS;
  const int step = window ? p->stride_w : 1, columns = data ? cvy_ceil_div(to->w, step) : to->w;
  const int tile = st->group > 1 && ((step > 1 && !data) || p->s > 3) ? 2 : 4;
  st->tiles = cvy_ceil_div(columns, tile) * (data ? step : 1);
  st->call.by_vecs = cvy_divider_make(to->pitch / st->vec), st->call.by_rows = cvy_divider_make(to->h);
  st->call.by_tiles = cvy_divider_make(st->tiles);
  st->call.by_width = cvy_divider_make(data ? st->call.group_c : st->call.group_k);
  const cvy_define defines[] = {{"GROUP", st->group},
                                {"VEC", st->vec},
                                {"TURNED", data},
                                {"TILE", tile},
                                {"TAPS_S", window ? p->s : 1},
                                {"STEP", step},
                                {"WINDOW", window},
                                {"PROLOGUE", cvy_conv_prologue_define(&st->job)}};
  return cvy_conv_kernel(&st->job, "conv2d_groups_simt", defines, sizeof defines / sizeof *defines, &st->main);
}

static cvy_status create_weights(groups_state *st) {
  cvy_status status = CVY_OK;
  cvy_conv_job *const job = &st->job;
  const cvy_conv2d_params *const p = &job->params;
  const bool depthwise = st->group == 1, window = cvy_conv_dilation_w(p) == 1 && p->stride_w < p->s;
  if (depthwise && st->vec * p->s > MOST_SUMS) st->vec = 1;
  st->rows = depthwise && st->vec * p->r * p->s <= MOST_SUMS ? p->r : 1;
  st->lanes = lanes_for(st->call.out.pitch / st->vec);
  st->call.by_rows = cvy_divider_make(st->call.out.h), st->call.by_width = cvy_divider_make(st->call.group_k);
  job->max_parts = most_parts(st, p->n_max);
  if (job->max_parts > 1) CVY_TRY(cvy_conv_claim(job, (int64_t)job->max_parts * job->part_floats));
  const cvy_define defines[] = {
      {"GROUP", st->group}, {"VEC", st->vec},   {"TAPS_S", p->s},     {"STEP", window ? p->stride_w : 1},
      {"WINDOW", window},   {"ROWS", st->rows}, {"LANES", st->lanes}, {"PROLOGUE", cvy_conv_prologue_define(job)}};
  CVY_TRY(cvy_conv_kernel(job, "conv2d_groups_simt_weights", defines, sizeof defines / sizeof *defines, &st->main));
fail:
  return status;
}

static cvy_status create(void *state, const int *tile) {
  cvy_status status = CVY_OK;
  groups_state *const st = state;
  cvy_conv_job *const job = &st->job;
  const cvy_conv2d_params *const p = &job->params;
  (void)tile;
  st->group = is_depthwise(p) ? 1 : 4, st->vec = p->x.pitch % 4 == 0 && job->y.pitch % 4 == 0 ? 4 : 1;
  st->call = (cvy_conv_groups_call){.in = p->x,
                                    .out = job->y,
                                    .filter = CVY_CONV_WINDOW(p),
                                    .dilation_h = cvy_conv_dilation_h(p),
                                    .dilation_w = cvy_conv_dilation_w(p),
                                    .group_c = cvy_conv_group_c(p),
                                    .group_k = p->k / cvy_conv_groups(p)};
  job->plain = true;
  CVY_TRY(cvy_conv_set_part(job, (int64_t)p->r * p->s * cvy_conv_group_c(p) * job->y.pitch));
  CVY_TRY(job->weights ? create_weights(st) : create_gather(st));
fail:
  return status;
}

static cvy_status run(void *state, cvy_queue *queue, const cvy_conv_call *call) {
  groups_state *const st = state;
  const cvy_conv_job *const job = &st->job;
  cvy_conv_groups_call c = st->call;
  c.n = call->n, c.group_size = call->group_size, c.flags = call->flags, c.parts = call->parts;
  c.by_group = cvy_divider_make(call->group_size);
  if (job->weights) {
    c.part_lines = part_lines(st, call->n);
    return CVY_LAUNCH(queue, st->main, cvy_conv_grid((int64_t)c.parts * part_groups(st), ITEMS), CVY_BUF(call->x),
                      CVY_BUF(call->affine), CVY_BUF(call->residual), CVY_BUF(call->dy), CVY_BUF(call->out),
                      CVY_STRUCT(c));
  }
  c.results = call->n * st->tiles * job->out.h * (job->out.pitch / st->vec);
  return CVY_LAUNCH(queue, st->main, cvy_conv_results_grid(job, c.results), CVY_BUF(call->in), CVY_BUF(call->affine),
                    CVY_BUF(call->residual), CVY_BUF(call->w), CVY_BUF(call->bias), CVY_BUF(call->out), CVY_STRUCT(c));
}

const cvy_conv_algorithm cvy_conv_groups_simt = {.name = "groups_simt",
                                                 .algo = CVY_CONV_DIRECT,
                                                 .file = "conv2d_groups_simt",
                                                 .state_bytes = sizeof(groups_state),
                                                 .simt_shaped = true,
                                                 .groups = true,
                                                 .uneven = true,
                                                 .error_bound = 1e-5,
                                                 .can = can,
                                                 .cost = cost,
                                                 .create = create,
                                                 .parts = parts_of,
                                                 .run = run};
