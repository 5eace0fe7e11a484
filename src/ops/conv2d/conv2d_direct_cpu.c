/* SPDX-License-Identifier: MIT
 * Strips of cl/conv2d/conv2d_direct_cpu.cl, and backward_weights over them, in the workspace:
 *   partial dw and db of each part of the batch | a slice per work-group */
#include "src/ops/conv2d/conv2d_strip_cpu.h"

enum {
  TILE = CVY_STRIP_TILE,
  BLOCK = CVY_STRIP_BLOCK,
  SLACK = 16,           /* floats behind a strip that whole vectors may touch */
  STRIP_FLOATS = 65536, /* wanted size of a strip: with its block of weights it stays in a second-level cache; twice
                           that if it saves work */
  STRIP_POSITIONS = 1024,
  WEIGHTS_STRIP_FLOATS = 32768, /* the same for backward_weights, where dw lies in the cache too */
  WEIGHTS_STRIP_POSITIONS = 256,
  OWN_FLOATS = 98304,       /* wanted size of a task's dw */
  BLOCK_FLOATS = 24576,     /* wanted size of a task's dw of one block of output channels */
  PART_FLOATS_MAX = 8 << 20 /* bound of all partial dw together, where it can be kept */
};

typedef struct cpu_state {
  cvy_conv_strips strips;
  cvy_kernel *reduce; /* backward_weights, as the rest */
  int strip_floats, block_c, group_k, max_splits, part_floats;
} cpu_state;

static bool can(cvy_device *device, const cvy_conv2d_params *params, const cvy_shape *y, cvy_conv_pass pass,
                const char **why) {
  (void)device;
  if (why) *why = "CPU kernels want pitches that are multiples of 16";
  return cvy_conv_is_plain(params, true, why) && y->pitch % 16 == 0 &&
         (pass != CVY_CONV_BACKWARD_DATA || params->x.pitch % 16 == 0);
}

static int64_t strip_floats_of(const cvy_conv_gather *g, int channels, int rows, int cols) {
  const int use_h = g->step_h < g->taps_h ? g->step_h : g->taps_h,
            use_w = g->step_w < g->taps_w ? g->step_w : g->taps_w;
  return ((int64_t)(rows - 1) * use_h + g->taps_h) * ((int64_t)(cols - 1) * use_w + g->taps_w) * channels;
}

/* Multiply-adds of one image (in units of one channel of input and a block of output) in strips of so many images:
 * tiles of 14 and 7 positions, rows outermost, that leave out filter rows in the padding above and below. */
static double work_per_image(const cvy_conv_gather *g, int images) {
  const int per_row = images * g->grid_w, total = per_row * g->grid_h;
  double work = 0;
  for (int t = 0; t < total; t += TILE) {
    const int end = t + TILE < total ? t + TILE : total;
    const int first = t / per_row * g->step_h + g->first_h, last = (end - 1) / per_row * g->step_h + g->first_h;
    const int begin = last < 0 ? -last : 0, stop = g->in.h - first < g->taps_h ? g->in.h - first : g->taps_h;
    if (stop > begin) work += (double)(stop - begin) * (end - t > TILE / 2 ? TILE : TILE / 2);
  }
  return work / images;
}

/* The strip for large batches: as much as `floats` and `positions` allow, but a tile's worth of positions if there are
 * so many. */
static cvy_conv_strip plan_strip(const cvy_conv_gather *g, int channels, int n_max, int floats, int positions) {
  cvy_conv_strip s = {.images = 1, .rows = g->grid_h, .cols = g->grid_w};
  const int64_t image_positions = (int64_t)g->grid_h * g->grid_w,
                image_floats = strip_floats_of(g, channels, g->grid_h, g->grid_w);
  if (image_positions <= positions && (image_floats <= floats || image_positions <= TILE)) {
    int most = 1;
    while (most < n_max && (most + 1) * image_positions <= positions &&
           ((most + 1) * image_floats <= 2 * floats || most * image_positions < TILE))
      most++;
    double best = 0;
    for (int images = 1; images <= most; images++) {
      const double work = work_per_image(g, images) * (images * image_floats <= floats ? 1.0 : 1.03);
      if (images == 1 || work <= best * (images * image_floats <= floats ? 1.0 : 0.999)) best = work, s.images = images;
    }
    return s;
  }
  int rows = g->grid_h, cols = g->grid_w;
  while (rows > 1 && ((int64_t)rows * cols > positions || strip_floats_of(g, channels, rows, cols) > floats)) rows--;
  rows = cvy_conv_even_part(g->grid_h, rows);
  if (rows == 1) {
    while (cols > TILE && (cols > positions || strip_floats_of(g, channels, 1, cols) > floats)) cols--;
    cols = cvy_conv_even_part(g->grid_w, cols);
  }
  s.rows = rows, s.cols = cols;
  return s;
}

static void destroy(void *state) {
  cpu_state *const st = state;
  if (!st) return;
  cvy_conv_strips_clear(&st->strips);
  cvy_kernel_destroy(&st->reduce);
  cvy_free(st);
}

/* Positions of a strip's tables: a tile behind the last repeats it. */
static int table_size_of(const cvy_conv_strip *s) {
  return (int)cvy_conv_round_up((int64_t)s->images * s->rows * s->cols + TILE, 16);
}

/* A slice: two tables, the strip, a table and the results. */
static cvy_status create_gather(cvy_conv_strips *st, cvy_device *device, size_t *workspace_bytes) {
  const cvy_conv_gather *const g = &st->gather;
  const cvy_conv_strip s = st->strip = plan_strip(g, g->in.c, st->params.n_max, STRIP_FLOATS, STRIP_POSITIONS);
  const int64_t table = st->table_size = table_size_of(&s);
  const int64_t strip = strip_floats_of(g, g->in.c, s.rows, s.cols) * s.images + SLACK,
                results_at = cvy_conv_round_up(2 * table + strip, 16);
  return cvy_conv_strips_create(st, device, "conv2d_direct_cpu", "conv2d_cpu_forward", results_at,
                                results_at + (1 + BLOCK) * table, workspace_bytes);
}

/* A slice: two tables, the strip, a panel of gradients, the task's dw and sums. */
static cvy_status create_weights(cpu_state *st, cvy_device *device, size_t *workspace_bytes) {
  cvy_status status = CVY_OK;
  const cvy_conv2d_params *const p = &st->strips.params;
  const cvy_conv_gather *const g = &st->strips.gather;
  const int c = p->x.c, pitch = g->out.pitch, blocks = cvy_ceil_div(pitch, BLOCK);
  int most_c = BLOCK_FLOATS / BLOCK / (g->taps_h * g->taps_w) / 16 * 16;
  if (most_c < 16) most_c = 16;
  /* a small second block would cost a pass over the gradient */
  st->block_c = c <= most_c + most_c / 2 ? c : (int)cvy_conv_round_up(cvy_conv_even_part(c, most_c), 16);
  const int64_t own = (int64_t)g->taps_h * cvy_conv_round_up((int64_t)g->taps_w * st->block_c, 4) * BLOCK;
  st->group_k = cvy_conv_even_part(blocks, cvy_conv_smaller(blocks, OWN_FLOATS > own ? OWN_FLOATS / own : 1));
  const int groups = cvy_ceil_div(c, st->block_c) * cvy_ceil_div(blocks, st->group_k);
  const cvy_conv_strip s = st->strips.strip =
      plan_strip(g, st->block_c, p->n_max, WEIGHTS_STRIP_FLOATS, WEIGHTS_STRIP_POSITIONS);
  const int64_t table = st->strips.table_size = table_size_of(&s);
  const int64_t strip = cvy_conv_round_up(strip_floats_of(g, st->block_c, s.rows, s.cols) * s.images + SLACK, 16);
  const int64_t part = ((int64_t)g->taps_h * g->taps_w * c + 1) * pitch;
  CVY_REQUIRE(part <= INT32_MAX, CVY_E_ARGUMENT, "convolution: %lld floats of dw do not fit 32-bit indices",
              (long long)part);
  st->part_floats = (int)part;
  st->max_splits = cvy_ceil_div(4 * st->strips.compute_units, groups);
  if (st->max_splits * part > PART_FLOATS_MAX)
    st->max_splits = cvy_conv_smaller(st->max_splits, PART_FLOATS_MAX / part + 1);
  CVY_TRY(cvy_conv_strips_place(&st->strips, st->max_splits > 1 ? st->max_splits * part : 0,
                                2 * table + strip + table * BLOCK + st->group_k * (own + BLOCK), workspace_bytes));
  st->strip_floats = (int)strip;
  cvy_define narrow;
  const int n_defines = cvy_conv_narrow(pitch, &narrow);
  CVY_TRY(cvy_kernel_create(device, "conv2d_direct_cpu", "conv2d_cpu_backward_weights", &narrow, n_defines,
                            &st->strips.main));
  CVY_TRY(cvy_conv_sum_parts_create(device, &st->reduce));
fail:
  return status;
}

static cvy_status create(cvy_device *device, const cvy_conv2d_params *params, const cvy_shape *y, cvy_conv_pass pass,
                         const int *tile, void **state, size_t *workspace_bytes) {
  cvy_status status = CVY_OK;
  (void)tile;
  cpu_state *const st = cvy_calloc(1, sizeof *st);
  CVY_REQUIRE(st, CVY_E_MEMORY, "convolution: out of memory for %zu bytes", sizeof *st);
  cvy_conv_strips_begin(&st->strips, device, params, y, pass);
  CVY_TRY(pass == CVY_CONV_BACKWARD_WEIGHTS ? create_weights(st, device, workspace_bytes)
                                            : create_gather(&st->strips, device, workspace_bytes));
  *state = st;
  return CVY_OK;
fail:
  destroy(st);
  return status;
}

cvy_status cvy_conv_sum_parts_create(cvy_device *device, cvy_kernel **kernel) {
  return cvy_kernel_create(device, "conv2d_direct_cpu", "conv2d_cpu_reduce", NULL, 0, kernel);
}

cvy_status cvy_conv_sum_parts(cvy_kernel *kernel, cvy_queue *queue, const cvy_conv_call *call, int parts,
                              int part_floats, int pitch, int most_groups) {
  cvy_status status = CVY_OK;
  const int dw_floats = part_floats - pitch;
  CVY_TRY(CVY_LAUNCH(queue, kernel, cvy_conv_groups_of_one(cvy_conv_smaller(dw_floats / 16, most_groups)),
                     CVY_BUF(call->workspace), CVY_BUF(call->dw), CVY_INT(dw_floats), CVY_INT(parts),
                     CVY_INT(part_floats), CVY_INT(0), CVY_INT(call->accumulate)));
  if (call->db)
    CVY_TRY(CVY_LAUNCH(queue, kernel, cvy_conv_groups_of_one(1), CVY_BUF(call->workspace), CVY_BUF(call->db),
                       CVY_INT(pitch), CVY_INT(parts), CVY_INT(part_floats), CVY_INT(dw_floats),
                       CVY_INT(call->accumulate)));
fail:
  return status;
}

static cvy_status run_weights(cpu_state *st, cvy_queue *queue, const cvy_conv_call *call) {
  cvy_status status = CVY_OK;
  const cvy_conv_strips *const strips = &st->strips;
  const cvy_conv2d_params *const p = &strips->params;
  const cvy_conv_gather *const g = &strips->gather;
  const int pitch = g->out.pitch;
  const int groups = cvy_ceil_div(p->x.c, st->block_c) * cvy_ceil_div(cvy_ceil_div(pitch, BLOCK), st->group_k);
  const cvy_conv_strip s = cvy_conv_strips_for(strips, call->n, groups, true);
  const int splits = cvy_conv_smaller(st->max_splits, cvy_conv_strips_count(g, &s, call->n));
  const bool parts = splits > 1;
  const int flags = p->prologue | (call->db ? CVY_CPU_BIAS : 0) | (call->accumulate && !parts ? CVY_CPU_ACCUMULATE : 0);
  const cvy_conv_strip_call c = cvy_conv_strips_describe(strips, call, &s, flags);
  const cvy_conv_weights_cut cut = {.strip_floats = st->strip_floats,
                                    .block_c = st->block_c,
                                    .group_k = st->group_k,
                                    .splits = splits,
                                    .part_floats = parts ? st->part_floats : 0,
                                    .db_at = parts ? st->part_floats - pitch : 0};
  CVY_TRY(CVY_LAUNCH(queue, strips->main,
                     cvy_conv_groups_of_one(cvy_conv_smaller((int64_t)groups * splits, strips->max_groups)),
                     CVY_BUF(call->x), CVY_BUF(call->affine), CVY_BUF(call->residual), CVY_BUF(call->dy),
                     CVY_BUF(parts ? call->workspace : call->dw), CVY_BUF(parts ? call->workspace : call->db),
                     CVY_BUF(call->workspace), CVY_STRUCT(c), CVY_STRUCT(cut)));
  if (!parts) return CVY_OK;
  CVY_TRY(cvy_conv_sum_parts(st->reduce, queue, call, splits, st->part_floats, pitch, strips->max_groups));
fail:
  return status;
}

static cvy_status run(void *state, cvy_queue *queue, const cvy_conv_call *call) {
  cpu_state *const st = state;
  return st->strips.pass == CVY_CONV_BACKWARD_WEIGHTS ? run_weights(st, queue, call)
                                                      : cvy_conv_strips_run(&st->strips, queue, call);
}

const cvy_conv_algorithm cvy_conv_direct_cpu = {.name = "direct_cpu",
                                                .algo = CVY_CONV_DIRECT,
                                                .cpu_shaped = true,
                                                .error_bound = 1e-5,
                                                .can = can,
                                                .create = create,
                                                .destroy = destroy,
                                                .run = run};
