/* SPDX-License-Identifier: MIT
 * Launches of cl/conv2d/conv2d_depthwise.cl: convolutions with one filter for each channel. In the workspace:
 *   parts of dw (and db) | CPU: a slice per work-group */
#include "cl/conv2d_args.clh"
#include "src/ops/conv2d/conv2d_cpu.h"
#include "src/ops/conv2d/conv2d_library.h"

enum {
  ITEMS = 256, /* of a work-group on SIMT devices, … */
  TILE = 4,
  CHANNELS = 32,             /* … results of an item, and channels of a group of backward_weights, as in the kernels */
  MOST_GROUPS = 1 << 20,     /* of forward and backward_data there: each item takes several results, if need be */
  FILL_GROUPS = 8,           /* of backward_weights, for each compute unit */
  MOST_TAPS = 49,            /* of backward_weights there, which keeps a sum of each in registers */
  NEAR_FLOATS = 8192,        /* CPU: wanted size of a task's rows, which stay in a first-level cache */
  FAR_FLOATS = 32768,        /* the same in a second-level cache */
  SPARE_COLS = 3,            /* results that a tile may make beyond the last */
  OWN_FLOATS = 65536,        /* bound of a group's dw, which each core keeps in its slice */
  PART_FLOATS_MAX = 8 << 20, /* bound of all parts of dw, where it can be kept */
  PART_ROWS = 16,            /* a part of backward_weights has so many rows and more */
  STREAM_BYTES = 16 << 20    /* results from this size on are stored past the caches */
};

typedef struct depthwise_state {
  cvy_conv2d_params params;
  cvy_conv_pass pass;
  cvy_conv_depthwise_call call; /* n, group_size, flags, parts and chunk are a call's */
  bool cpu, packed;             /* packed: the workspace begins with turned weights */
  int compute_units, max_groups, vec;
  cvy_kernel *main, *sum, *pack; /* pack: of groups in backward_data */
  cvy_conv_rest rest;            /* SIMT */
} depthwise_state;

/* GROUP of the kernels that can do these groups, 0: none. */
static int kind_of(const cvy_conv2d_params *p, const cvy_shape *y, bool cpu) {
  const int c = cvy_conv_group_c(p), k = p->k / cvy_conv_groups(p);
  if (p->x.c == 1 || cvy_conv_is_plain(p, true, NULL)) return 0;
  if (c == k && p->x.pitch == y->pitch && (c == 1 || (cpu && (c == 2 || c == 4 || c == 8)))) return c;
  return cpu && c % 16 == 0 && k % 16 == 0 && p->x.pitch == p->x.c && y->pitch == p->k ? 16 : 0;
}

static bool can(cvy_device *device, const cvy_conv2d_params *p, const cvy_shape *y, cvy_conv_pass pass,
                const char **why) {
  const char *reason = NULL;
  const bool cpu = cvy_device_get_capabilities(device)->cpu_shaped;
  if (kind_of(p, y, cpu) != 1) reason = "only one filter for each channel, with the same pitch in front and behind";
  else if (cpu && y->pitch % 16 != 0) reason = "CPU kernels want pitches that are multiples of 16";
  else if (!cpu && pass == CVY_CONV_BACKWARD_WEIGHTS && p->r * p->s > MOST_TAPS) reason = "only filters of up to 7x7";
  if (why && reason) *why = reason;
  return !reason;
}

static bool can_groups(cvy_device *device, const cvy_conv2d_params *p, const cvy_shape *y, cvy_conv_pass pass,
                       const char **why) {
  (void)device;
  const char *reason = NULL;
  const int64_t dw = (int64_t)p->r * p->s * cvy_conv_group_c(p) * (p->k / cvy_conv_groups(p));
  if (kind_of(p, y, true) <= 1 || y->pitch % 16 != 0)
    reason = "only groups of 2, 4 or 8 channels and filters, or of multiples of 16";
  else if (pass == CVY_CONV_BACKWARD_WEIGHTS && dw > OWN_FLOATS) reason = "only groups with up to 65536 weights";
  if (why && reason) *why = reason;
  return !reason;
}

/* Chosen before grouped, which computes the same value by value; not measured. */
static double cost(cvy_device *device, const cvy_conv2d_params *p, const cvy_shape *y, cvy_conv_pass pass) {
  (void)device, (void)p, (void)y, (void)pass;
  return 0.1;
}

static void destroy(void *state) {
  depthwise_state *const st = state;
  if (!st) return;
  cvy_kernel_destroy(&st->main);
  cvy_kernel_destroy(&st->sum);
  cvy_kernel_destroy(&st->pack);
  cvy_conv_rest_destroy(&st->rest);
  cvy_free(st);
}

static cvy_conv_depthwise_call geometry_of(const cvy_conv2d_params *p, const cvy_shape *y, cvy_conv_pass pass) {
  const int dilation_h = cvy_conv_dilation_h(p), dilation_w = cvy_conv_dilation_w(p);
  cvy_conv_depthwise_call g = {.in = p->x,
                               .out = *y,
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
  if (pass != CVY_CONV_BACKWARD_DATA) return g;
  const int channels = g.group_c;
  g.in = *y, g.out = p->x, g.group_c = g.group_k, g.group_k = channels;
  g.step_h = g.step_w = 1;
  g.first_h = p->pad_h - (p->r - 1) * dilation_h, g.first_w = p->pad_w - (p->s - 1) * dilation_w;
  g.spread_h = p->stride_h, g.spread_w = p->stride_w;
  g.turned = 1;
  return g;
}

static int64_t part_floats(const depthwise_state *st) { /* CPU: with db */
  return ((int64_t)st->call.r * st->call.s * st->call.group_c + st->cpu) * st->call.out.pitch;
}

static int blocks_of(const depthwise_state *st) {
  return cvy_ceil_div(st->call.out.pitch, st->cpu ? st->call.block : CHANNELS);
}

/* Parts of backward_weights for n samples. */
static int parts_of(const depthwise_state *st, int n) {
  const int most = cvy_ceil_div(n * st->call.out.h, PART_ROWS),
            wanted = cvy_ceil_div(st->compute_units * (st->cpu ? 4 : FILL_GROUPS), blocks_of(st));
  const int64_t parts = most < wanted ? most : wanted, fit = PART_FLOATS_MAX / part_floats(st);
  return fit < 1 ? 1 : cvy_conv_smaller(parts, fit);
}

/* Sizes of a task's ring and slice, for as many channels as fit. */
static cvy_status plan_cpu(depthwise_state *st, size_t *workspace_bytes) {
  cvy_status status = CVY_OK;
  cvy_conv_depthwise_call *const g = &st->call;
  const bool weights = st->pass == CVY_CONV_BACKWARD_WEIGHTS;
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
                parts = weights      ? parts_of(st, st->params.n_max) * part_floats(st)
                        : st->packed ? (int64_t)g->r * g->s * g->group_c * g->out.pitch
                                     : 0,
                total = parts + slice * st->max_groups;
  CVY_REQUIRE(slice < INT32_MAX && total <= INT32_MAX, CVY_E_ARGUMENT,
              "convolution: %lld floats of workspace do not fit 32-bit indices", (long long)total);
  g->ring_rows = (int)ring_rows, g->ring_cols = (int)cols;
  g->slices_at = (int)parts, g->slice_floats = (int)slice;
  *workspace_bytes = (size_t)total * sizeof(float);
fail:
  return status;
}

static cvy_status create(cvy_device *device, const cvy_conv2d_params *p, const cvy_shape *y, cvy_conv_pass pass,
                         const int *tile, void **state, size_t *workspace_bytes) {
  cvy_status status = CVY_OK;
  static const char *const file = "conv2d_depthwise";
  (void)tile;
  depthwise_state *const st = cvy_calloc(1, sizeof *st);
  CVY_REQUIRE(st, CVY_E_MEMORY, "convolution: out of memory for %zu bytes", sizeof *st);
  const cvy_capabilities *const capabilities = cvy_device_get_capabilities(device);
  const bool weights = pass == CVY_CONV_BACKWARD_WEIGHTS;
  st->params = *p, st->pass = pass, st->cpu = capabilities->cpu_shaped;
  st->compute_units = capabilities->compute_units, st->max_groups = cvy_conv_most_groups(capabilities->compute_units);
  st->call = geometry_of(p, y, pass);
  if (st->cpu) {
    const cvy_define group = {"GROUP", kind_of(p, y, true)};
    st->packed = pass == CVY_CONV_BACKWARD_DATA && group.value > 1;
    CVY_TRY(plan_cpu(st, workspace_bytes));
    CVY_TRY(cvy_kernel_create(device, file, weights ? "conv2d_depthwise_cpu_weights" : "conv2d_depthwise_cpu", &group,
                              1, &st->main));
    if (st->packed) CVY_TRY(cvy_kernel_create(device, file, "conv2d_depthwise_cpu_pack", &group, 1, &st->pack));
    if (weights) CVY_TRY(cvy_conv_sum_parts_create(device, &st->sum));
  } else {
    st->vec = !weights && y->pitch % 4 == 0 ? 4 : 1;
    const cvy_define defines[] = {{"VEC", st->vec}, {"TAPS_R", p->r}, {"TAPS_S", p->s}};
    CVY_TRY(cvy_kernel_create(device, file, weights ? "conv2d_depthwise_simt_weights" : "conv2d_depthwise_simt",
                              defines, weights ? 3 : 1, &st->main));
    const int parts = weights ? parts_of(st, p->n_max) : 1;
    if (parts > 1) CVY_TRY(cvy_kernel_create(device, "conv2d_grouped", "conv2d_grouped_sum", NULL, 0, &st->sum));
    CVY_TRY(cvy_conv_rest_create(device, p, pass, &st->rest));
    *workspace_bytes = parts > 1 ? (size_t)(parts * part_floats(st)) * sizeof(float) : 0;
    const size_t rest = cvy_conv_rest_workspace_bytes(&st->rest, p, y);
    if (rest > *workspace_bytes) *workspace_bytes = rest;
  }
  *state = st;
  return CVY_OK;
fail:
  destroy(st);
  return status;
}

static cvy_grid grid_of(int64_t groups) {
  return (cvy_grid){.global = {(size_t)cvy_conv_smaller(groups, MOST_GROUPS) * ITEMS, 1, 1}, .local = {ITEMS, 1, 1}};
}

static cvy_status run_cpu(depthwise_state *st, cvy_queue *queue, const cvy_conv_call *call, cvy_conv_depthwise_call c) {
  cvy_status status = CVY_OK;
  const bool forward = st->pass == CVY_CONV_FORWARD;
  const int blocks = blocks_of(st);
  if (st->pass == CVY_CONV_BACKWARD_WEIGHTS) {
    CVY_TRY(CVY_LAUNCH(queue, st->main,
                       cvy_conv_groups_of_one(cvy_conv_smaller((int64_t)c.parts * blocks, st->max_groups)),
                       CVY_BUF(call->x), CVY_BUF(call->affine), CVY_BUF(call->residual), CVY_BUF(call->dy),
                       CVY_BUF(call->workspace), CVY_STRUCT(c)));
    return cvy_conv_sum_parts(st->sum, queue, call, c.parts, (int)part_floats(st), c.out.pitch, st->max_groups);
  }
  /* results do not depend on the chunks; statistics want whole images */
  c.chunk = c.out.h;
  while (!call->stats && c.chunk > 2 * c.r &&
         (int64_t)c.n * blocks * cvy_ceil_div(c.out.h, c.chunk) < 4 * (int64_t)st->compute_units)
    c.chunk = (c.chunk + 1) / 2;
  const int64_t tasks = (int64_t)c.n * blocks * cvy_ceil_div(c.out.h, c.chunk);
  const bool large = (double)c.n * (double)cvy_shape_elems(&c.out) * sizeof(float) >= STREAM_BYTES;
  const cvy_shape *const in = &c.in, *const out = &c.out;
  if (st->packed)
    CVY_TRY(CVY_LAUNCH(queue, st->pack, cvy_conv_groups_of_one(cvy_conv_smaller(c.r * c.s * c.group_c, st->max_groups)),
                       CVY_BUF(call->w), CVY_BUF(call->workspace), CVY_INT(c.r * c.s * c.group_c), CVY_INT(out->c),
                       CVY_INT(c.group_k), CVY_INT(c.group_c), CVY_INT(out->pitch), CVY_INT(in->pitch)));
  c.flags |= (call->stats ? CVY_CPU_STATS : 0) | (large && !call->accumulate ? CVY_CPU_STREAM : 0);
  CVY_TRY(CVY_LAUNCH(queue, st->main, cvy_conv_groups_of_one(cvy_conv_smaller(tasks, st->max_groups)),
                     CVY_BUF(forward ? call->x : call->dy), CVY_BUF(call->affine), CVY_BUF(call->residual),
                     CVY_BUF(st->packed ? call->workspace : call->w), CVY_BUF(call->bias),
                     CVY_BUF(forward ? call->y : call->dx), CVY_BUF(call->stats), CVY_BUF(call->workspace),
                     CVY_STRUCT(c)));
fail:
  return status;
}

static cvy_status run_simt(depthwise_state *st, cvy_queue *queue, const cvy_conv_call *call,
                           cvy_conv_depthwise_call c) {
  cvy_status status = CVY_OK;
  const bool forward = st->pass == CVY_CONV_FORWARD;
  const int64_t size = part_floats(st);
  if (st->pass == CVY_CONV_BACKWARD_WEIGHTS) {
    CVY_TRY(CVY_LAUNCH(queue, st->main, grid_of((int64_t)c.parts * blocks_of(st)), CVY_BUF(call->x),
                       CVY_BUF(call->affine), CVY_BUF(call->residual), CVY_BUF(call->dy),
                       CVY_BUF(c.parts > 1 ? call->workspace : call->dw), CVY_STRUCT(c)));
    if (c.parts > 1)
      CVY_TRY(CVY_LAUNCH(queue, st->sum, grid_of((size + ITEMS - 1) / ITEMS), CVY_BUF(call->workspace),
                         CVY_BUF(call->dw), CVY_INT((int)size), CVY_INT(c.parts), CVY_INT(call->accumulate)));
  } else {
    const int64_t items = (int64_t)c.n * c.out.h * cvy_ceil_div(c.out.w, (int)TILE) * (c.out.pitch / st->vec);
    CVY_TRY(CVY_LAUNCH(queue, st->main, grid_of((items + ITEMS - 1) / ITEMS), CVY_BUF(forward ? call->x : call->dy),
                       CVY_BUF(call->affine), CVY_BUF(call->residual), CVY_BUF(call->w), CVY_BUF(call->bias),
                       CVY_BUF(forward ? call->y : call->dx), CVY_STRUCT(c)));
  }
  CVY_TRY(cvy_conv_rest_run(&st->rest, queue, call, &c.out));
fail:
  return status;
}

static cvy_status run(void *state, cvy_queue *queue, const cvy_conv_call *call) {
  depthwise_state *const st = state;
  cvy_conv_depthwise_call c = st->call;
  c.n = call->n, c.group_size = call->group_size;
  c.parts = st->pass == CVY_CONV_BACKWARD_WEIGHTS ? parts_of(st, call->n) : 1;
  const bool summed = st->pass == CVY_CONV_BACKWARD_WEIGHTS && (st->cpu || c.parts > 1); /* dw is added to later */
  c.flags = (st->pass == CVY_CONV_BACKWARD_DATA ? 0 : st->params.prologue) | (call->bias ? CVY_CPU_BIAS : 0) |
            (call->accumulate && !summed ? CVY_CPU_ACCUMULATE : 0);
  return st->cpu ? run_cpu(st, queue, call, c) : run_simt(st, queue, call, c);
}

const cvy_conv_algorithm cvy_conv_depthwise = {.name = "depthwise",
                                               .algo = CVY_CONV_DIRECT,
                                               .error_bound = 1e-5,
                                               .can = can,
                                               .cost = cost,
                                               .create = create,
                                               .destroy = destroy,
                                               .run = run};

const cvy_conv_algorithm cvy_conv_groups_cpu = {.name = "groups_cpu",
                                                .algo = CVY_CONV_DIRECT,
                                                .cpu_shaped = true,
                                                .error_bound = 1e-5,
                                                .can = can_groups,
                                                .cost = cost,
                                                .create = create,
                                                .destroy = destroy,
                                                .run = run};
