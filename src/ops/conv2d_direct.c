/* SPDX-License-Identifier: MIT
 * Geometry of the direct algorithms, and the launches of cl/conv2d_direct.cl (SIMT).
 * Workspace: forward with statistics: those of strips; backward_weights: partial dw of each part of the positions, then
 * the partial sums of dy. */
#include "src/ops/conv2d_direct.h"

#include "src/ops/divider.h"
#include "src/ops/gemm_tile.h"
#include "src/ops/math.h"

cvy_conv_gather cvy_conv_gather_forward(const cvy_conv2d_params *p, const cvy_shape *y) {
  return (cvy_conv_gather){.in = p->x,
                           .out = *y,
                           .taps_h = p->r,
                           .taps_w = p->s,
                           .step_h = p->stride_h,
                           .step_w = p->stride_w,
                           .first_h = -p->pad_h,
                           .first_w = -p->pad_w,
                           .grid_h = y->h,
                           .grid_w = y->w,
                           .row_step = 1,
                           .col_step = 1,
                           .tap_r_step = 1,
                           .tap_s_step = 1};
}

/* One dimension of a phase. dx[i*stride + phase] sees dy[(i*stride + phase + pad - r) / stride] through the taps r =
 * least + t*stride, least = (phase + pad) mod stride, that is dy[i + base - t]; counted upwards in dy, tap a is t =
 * taps-1-a. */
typedef struct phase_line {
  int taps, first, grid, tap, tap_step;
} phase_line;

static phase_line make_phase(int length, int filter, int stride, int pad, int phase) {
  const int least = (phase + pad) % stride, base = (phase + pad - least) / stride;
  const int taps = least < filter ? (filter - least + stride - 1) / stride : 0;
  return (phase_line){.taps = taps,
                      .first = base - (taps - 1),
                      .grid = (length - phase + stride - 1) / stride,
                      .tap = least + (taps - 1) * stride,
                      .tap_step = -stride};
}

cvy_conv_gather cvy_conv_gather_phase(const cvy_conv2d_params *p, const cvy_shape *y, int phase_h, int phase_w) {
  const phase_line h = make_phase(p->x.h, p->r, p->stride_h, p->pad_h, phase_h),
                   w = make_phase(p->x.w, p->s, p->stride_w, p->pad_w, phase_w);
  const bool any = h.taps > 0 && w.taps > 0;
  return (cvy_conv_gather){.in = *y,
                           .out = p->x,
                           .taps_h = any ? h.taps : 0,
                           .taps_w = any ? w.taps : 0,
                           .step_h = 1,
                           .step_w = 1,
                           .first_h = h.first,
                           .first_w = w.first,
                           .grid_h = h.grid,
                           .grid_w = w.grid,
                           .row0 = phase_h,
                           .row_step = p->stride_h,
                           .col0 = phase_w,
                           .col_step = p->stride_w,
                           .tap_r = h.tap,
                           .tap_r_step = h.tap_step,
                           .tap_s = w.tap,
                           .tap_s_step = w.tap_step};
}

void cvy_conv_widen_strides(cvy_conv2d_params *p, const cvy_shape *y) {
  if (y->h == 1 && p->stride_h < p->r) p->stride_h = p->r;
  if (y->w == 1 && p->stride_w < p->s) p->stride_w = p->s;
}

/* ---- SIMT ---- */

enum {
  STRIP = 32,                /* rows that share statistics, as in the kernel */
  COLUMN_ROWS = 256,         /* rows of a partial sum of dy */
  PART_DEPTH = 64,           /* a part of backward_weights is no shorter than these positions */
  PART_FLOATS_MAX = 16 << 20 /* bound of partial dw */
};

typedef struct simt_state {
  cvy_conv2d_params params;
  cvy_shape y;
  cvy_conv_pass pass;
  cvy_gemm_tile tile;
  cvy_kernel *main, *reduce, *reduce_db, *columns, *stats;
  int max_parts, part_floats, db_at;
} simt_state;

static bool can(cvy_device *device, const cvy_conv2d_params *params, const cvy_shape *y, cvy_conv_pass pass,
                const char **why) {
  (void)device, (void)params, (void)y, (void)pass, (void)why;
  return true;
}

static bool tile_fits(cvy_device *device, const int *tile) {
  return cvy_gemm_tile_fits(cvy_device_get_facts(device), (cvy_gemm_tile){tile[0], tile[1], tile[2]});
}

static void destroy(void *state) {
  simt_state *const st = state;
  if (!st) return;
  cvy_kernel_destroy(&st->main);
  cvy_kernel_destroy(&st->reduce);
  cvy_kernel_destroy(&st->reduce_db);
  cvy_kernel_destroy(&st->columns);
  cvy_kernel_destroy(&st->stats);
  cvy_free(st);
}

/* Positions of one part of backward_weights: whole steps of depth. */
static int part_positions(const simt_state *st, int positions) {
  return cvy_ceil_div(cvy_ceil_div(positions, st->max_parts), st->tile.k) * st->tile.k;
}

static cvy_status plan_parts(simt_state *st, const cvy_device_facts *facts, size_t *workspace_bytes) {
  cvy_status status = CVY_OK;
  const cvy_conv2d_params *const p = &st->params;
  const int depth = p->r * p->s * p->x.c, positions = p->n_max * st->y.h * st->y.w;
  const int tiles = cvy_ceil_div(depth, st->tile.m) * cvy_ceil_div(st->y.pitch, st->tile.n);
  st->part_floats = depth * st->y.pitch;
  int64_t parts = 2 * cvy_gemm_slots(facts, st->tile) / tiles; /* enough to fill the device twice */
  const int64_t most_by_depth = cvy_ceil_div(positions, PART_DEPTH),
                most_by_memory = PART_FLOATS_MAX / st->part_floats + 1;
  if (parts < 1) parts = 1;
  if (parts > most_by_depth) parts = most_by_depth;
  if (parts > most_by_memory) parts = most_by_memory;
  st->max_parts = (int)parts;
  const int64_t dw = parts > 1 ? parts * st->part_floats : 0,
                db = (int64_t)cvy_ceil_div(positions, COLUMN_ROWS) * st->y.pitch;
  CVY_REQUIRE(dw + db <= INT32_MAX, CVY_E_ARGUMENT, "convolution: %lld floats of workspace do not fit 32-bit indices",
              (long long)(dw + db));
  st->db_at = (int)dw;
  *workspace_bytes = (size_t)(dw + db) * sizeof(float);
fail:
  return status;
}

static cvy_status create(cvy_device *device, const cvy_conv2d_params *params, const cvy_shape *y, cvy_conv_pass pass,
                         const int *tile, void **state, size_t *workspace_bytes) {
  cvy_status status = CVY_OK;
  static const char *const file = "conv2d_direct";
  const cvy_device_facts *const facts = cvy_device_get_facts(device);
  simt_state *const st = cvy_calloc(1, sizeof *st);
  CVY_REQUIRE(st, CVY_E_MEMORY, "convolution: out of memory for %zu bytes", sizeof *st);
  st->params = *params, st->y = *y, st->pass = pass;
  const bool data = pass == CVY_CONV_BACKWARD_DATA, weights = pass == CVY_CONV_BACKWARD_WEIGHTS;
  const cvy_shape in = data ? *y : params->x, out = data ? params->x : *y;
  *workspace_bytes = 0;
  if (data) cvy_conv_widen_strides(&st->params, y);
  const int64_t phases = data ? (int64_t)st->params.stride_h * st->params.stride_w : 1;
  const int64_t positions = (int64_t)params->n_max * out.h * out.w;
  CVY_TRY(cvy_gemm_tile_of(facts, tile, weights ? (int64_t)params->r * params->s * params->x.c : positions / phases + 1,
                           out.pitch, 1, weights, &st->tile));
  if (weights) CVY_TRY(plan_parts(st, facts, workspace_bytes));
  if (pass == CVY_CONV_FORWARD && params->stats) {
    const int64_t floats = (positions / STRIP + 1 + params->n_max) * 3 * out.pitch;
    CVY_REQUIRE(floats <= INT32_MAX, CVY_E_ARGUMENT, "convolution: %lld floats of workspace do not fit 32-bit indices",
                (long long)floats);
    *workspace_bytes = (size_t)floats * sizeof(float);
  }
  const int math = cvy_math_define(device, params->math);
  const cvy_define defines[] = {{"PASS", (long)pass},
                                {"TILE_M", st->tile.m},
                                {"TILE_N", st->tile.n},
                                {"TILE_K", st->tile.k},
                                {"PROLOGUE", data || !params->prologue              ? 0
                                             : params->prologue & CVY_CONV_RESIDUAL ? 2
                                                                                    : 1},
                                {"VEC", in.c % 4 == 0 && in.pitch % 4 == 0 ? 4 : 1},
                                {"VEC_OUT", out.pitch % 4 == 0 ? 4 : 1},
                                {"MATH", math}};
  const int n = (int)(sizeof defines / sizeof *defines) - (math == 0);
  CVY_TRY(cvy_kernel_create(device, file, weights ? "conv2d_simt_backward_weights" : "conv2d_simt_forward", defines, n,
                            &st->main));
  static const cvy_define sums[] = {{"PASS", 3}};
  if (weights) {
    CVY_TRY(cvy_kernel_create(device, file, "conv2d_simt_reduce", sums, 1, &st->reduce));
    CVY_TRY(cvy_kernel_create(device, file, "conv2d_simt_reduce", sums, 1, &st->reduce_db));
    CVY_TRY(cvy_kernel_create(device, file, "conv2d_simt_columns", sums, 1, &st->columns));
  }
  if (pass == CVY_CONV_FORWARD && params->stats)
    CVY_TRY(cvy_kernel_create(device, file, "conv2d_simt_merge_stats", sums, 1, &st->stats));
  *state = st;
  return CVY_OK;
fail:
  destroy(st);
  return status;
}

static cvy_grid groups_of(size_t groups, int items) {
  return (cvy_grid){.global = {groups * (size_t)items, 1, 1}, .local = {(size_t)items, 1, 1}};
}

static cvy_conv_simt_call describe(const simt_state *st, const cvy_conv_call *call, const cvy_conv_gather *g) {
  return (cvy_conv_simt_call){.positions = call->n * g->grid_h * g->grid_w,
                              .n_depth = g->taps_h * g->taps_w * g->in.c,
                              .filter_s = st->params.s,
                              .w_c = st->params.x.c,
                              .w_pitch = st->y.pitch,
                              .flags = st->params.prologue,
                              .has_bias = call->bias != NULL,
                              .accumulate = call->accumulate,
                              .has_stats = st->stats != NULL,
                              .by_grid = cvy_divider_make(g->grid_h * g->grid_w),
                              .by_row = cvy_divider_make(g->grid_w),
                              .by_c = cvy_divider_make(g->in.c),
                              .by_taps = cvy_divider_make(g->taps_w > 0 ? g->taps_w : 1),
                              .by_group = cvy_divider_make(call->group_size)};
}

static cvy_status run_gather(simt_state *st, cvy_queue *queue, const cvy_conv_call *call, const cvy_conv_gather *g) {
  const bool forward = st->pass == CVY_CONV_FORWARD;
  const cvy_conv_simt_call c = describe(st, call, g);
  const size_t groups = (size_t)cvy_ceil_div(c.positions, st->tile.m) * (size_t)cvy_ceil_div(g->out.pitch, st->tile.n);
  return CVY_LAUNCH(queue, st->main, groups_of(groups, cvy_gemm_items(st->tile)), CVY_BUF(forward ? call->x : call->dy),
                    CVY_BUF(call->affine), CVY_BUF(call->residual), CVY_BUF(call->w), CVY_BUF(call->bias),
                    CVY_BUF(forward ? call->y : call->dx), CVY_BUF(st->stats ? call->workspace : NULL), CVY_STRUCT(*g),
                    CVY_STRUCT(c));
}

static cvy_status run_weights(simt_state *st, cvy_queue *queue, const cvy_conv_call *call) {
  cvy_status status = CVY_OK;
  const cvy_conv_gather g = cvy_conv_gather_forward(&st->params, &st->y);
  cvy_conv_simt_call c = describe(st, call, &g);
  const int positions = c.positions, per_part = part_positions(st, positions),
            parts = cvy_ceil_div(positions, per_part);
  const size_t groups =
      (size_t)parts * (size_t)cvy_ceil_div(c.n_depth, st->tile.m) * (size_t)cvy_ceil_div(g.out.pitch, st->tile.n);
  c.part_positions = per_part, c.part_floats = parts > 1 ? st->part_floats : 0;
  c.accumulate = parts == 1 && call->accumulate;
  CVY_TRY(CVY_LAUNCH(queue, st->main, groups_of(groups, cvy_gemm_items(st->tile)), CVY_BUF(call->x),
                     CVY_BUF(call->affine), CVY_BUF(call->residual), CVY_BUF(call->dy),
                     CVY_BUF(parts > 1 ? call->workspace : call->dw), CVY_STRUCT(g), CVY_STRUCT(c)));
  if (parts > 1)
    CVY_TRY(CVY_LAUNCH(queue, st->reduce, groups_of((size_t)cvy_ceil_div(st->part_floats, 64), 64),
                       CVY_BUF(call->workspace), CVY_BUF(call->dw), CVY_INT(0), CVY_INT(st->part_floats),
                       CVY_INT(parts), CVY_INT(st->part_floats), CVY_INT(call->accumulate)));
  if (!call->db) return CVY_OK;
  const int sums = cvy_ceil_div(positions, COLUMN_ROWS);
  CVY_TRY(CVY_LAUNCH(queue, st->columns, groups_of((size_t)sums * (size_t)cvy_ceil_div(g.out.pitch, 64), 64),
                     CVY_BUF(call->dy), CVY_BUF(call->workspace), CVY_INT(st->db_at), CVY_INT(positions),
                     CVY_INT(g.out.pitch), CVY_INT(COLUMN_ROWS)));
  CVY_TRY(CVY_LAUNCH(queue, st->reduce_db, groups_of((size_t)cvy_ceil_div(g.out.pitch, 64), 64),
                     CVY_BUF(call->workspace), CVY_BUF(call->db), CVY_INT(st->db_at), CVY_INT(g.out.pitch),
                     CVY_INT(sums), CVY_INT(g.out.pitch), CVY_INT(call->accumulate)));
fail:
  return status;
}

static cvy_status run(void *state, cvy_queue *queue, const cvy_conv_call *call) {
  cvy_status status = CVY_OK;
  simt_state *const st = state;
  const cvy_conv2d_params *const p = &st->params;
  if (st->pass == CVY_CONV_BACKWARD_WEIGHTS) return run_weights(st, queue, call);
  if (st->pass == CVY_CONV_FORWARD) {
    const cvy_conv_gather g = cvy_conv_gather_forward(p, &st->y);
    CVY_TRY(run_gather(st, queue, call, &g));
    if (st->stats)
      CVY_TRY(CVY_LAUNCH(queue, st->stats, groups_of((size_t)cvy_ceil_div(call->n * st->y.pitch, 64), 64),
                         CVY_BUF(call->workspace), CVY_BUF(call->stats), CVY_INT(call->n), CVY_INT(st->y.h * st->y.w),
                         CVY_INT(st->y.pitch), CVY_DIVIDER(st->y.pitch)));
    return CVY_OK;
  }
  for (int h = 0; h < p->stride_h && h < p->x.h; h++)
    for (int w = 0; w < p->stride_w && w < p->x.w; w++) {
      const cvy_conv_gather g = cvy_conv_gather_phase(p, &st->y, h, w);
      CVY_TRY(run_gather(st, queue, call, &g));
    }
fail:
  return status;
}

const cvy_conv_algorithm cvy_conv_direct_simt = {.name = "direct_simt",
                                                 .algo = CVY_CONV_DIRECT,
                                                 .error_bound = 1e-5,
                                                 .tf32_error_bound = CVY_TF32_ERROR_BOUND,
                                                 .tiles = cvy_gemm_tiles,
                                                 .n_tiles = CVY_GEMM_TILES,
                                                 .can = can,
                                                 .tile_fits = tile_fits,
                                                 .create = create,
                                                 .destroy = destroy,
                                                 .run = run};
