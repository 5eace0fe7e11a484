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
  int strip_floats, block_c, group_k; /* backward_weights */
} cpu_state;

static const char *can(const cvy_conv_job *job) {
  return job->y.pitch % 16 != 0 || (job->data && job->params.x.pitch % 16 != 0) ? "CPU kernels want pitches that are "
                                                                                  "multiples of 16"
                                                                                : NULL;
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

/* Positions of a strip's tables: a tile behind the last repeats it. */
static int table_size_of(const cvy_conv_strip *s) {
  return (int)cvy_conv_round_up((int64_t)s->images * s->rows * s->cols + TILE, 16);
}

/* A slice: two tables, the strip, a table and the results. */
static cvy_status create_gather(cvy_conv_strips *st) {
  const cvy_conv_gather *const g = &st->gather;
  const cvy_conv_strip s = st->strip = plan_strip(g, g->in.c, st->job.params.n_max, STRIP_FLOATS, STRIP_POSITIONS);
  const int64_t table = st->table_size = table_size_of(&s);
  const int64_t strip = strip_floats_of(g, g->in.c, s.rows, s.cols) * s.images + SLACK,
                results_at = cvy_conv_round_up(2 * table + strip, 16);
  return cvy_conv_strips_create(st, "conv2d_cpu_forward", results_at, results_at + (1 + BLOCK) * table);
}

/* Blocks of dw: of channels, and groups of blocks of filters. */
static int blocks_of(const cpu_state *st) {
  return cvy_ceil_div(st->strips.job.params.x.c, st->block_c) *
         cvy_ceil_div(cvy_ceil_div(st->strips.gather.out.pitch, BLOCK), st->group_k);
}

/* A slice: two tables, the strip, a panel of gradients, the task's dw and sums. */
static cvy_status create_weights(cpu_state *st) {
  cvy_status status = CVY_OK;
  cvy_conv_job *const job = &st->strips.job;
  const cvy_conv2d_params *const p = &job->params;
  const cvy_conv_gather *const g = &st->strips.gather;
  const int c = p->x.c, pitch = g->out.pitch, blocks = cvy_ceil_div(pitch, BLOCK);
  int most_c = BLOCK_FLOATS / BLOCK / (g->taps_h * g->taps_w) / 16 * 16;
  if (most_c < 16) most_c = 16;
  /* a small second block would cost a pass over the gradient */
  st->block_c = c <= most_c + most_c / 2 ? c : (int)cvy_conv_round_up(cvy_conv_even_part(c, most_c), 16);
  const int64_t own = (int64_t)g->taps_h * cvy_conv_round_up((int64_t)g->taps_w * st->block_c, 4) * BLOCK;
  st->group_k = cvy_conv_even_part(blocks, cvy_conv_smaller(blocks, OWN_FLOATS > own ? OWN_FLOATS / own : 1));
  const cvy_conv_strip s = st->strips.strip =
      plan_strip(g, st->block_c, p->n_max, WEIGHTS_STRIP_FLOATS, WEIGHTS_STRIP_POSITIONS);
  const int64_t table = st->strips.table_size = table_size_of(&s);
  const int64_t strip = cvy_conv_round_up(strip_floats_of(g, st->block_c, s.rows, s.cols) * s.images + SLACK, 16);
  const int64_t part = ((int64_t)g->taps_h * g->taps_w * c + 1) * pitch;
  CVY_TRY(cvy_conv_set_part(job, part));
  job->db_in_parts = true;
  job->max_parts = cvy_ceil_div(4 * job->base.capabilities->compute_units, blocks_of(st));
  if (job->max_parts * part > PART_FLOATS_MAX)
    job->max_parts = cvy_conv_smaller(job->max_parts, PART_FLOATS_MAX / part + 1);
  CVY_TRY(cvy_conv_strips_place(&st->strips, job->max_parts > 1 ? job->max_parts * part : 0,
                                2 * table + strip + table * BLOCK + st->group_k * (own + BLOCK)));
  st->strip_floats = (int)strip;
  cvy_define narrow;
  const int n_defines = cvy_conv_narrow(pitch, &narrow);
  CVY_TRY(cvy_conv_kernel(job, "conv2d_cpu_backward_weights", &narrow, n_defines, &st->strips.main));
fail:
  return status;
}

static cvy_status create(void *state, const int *tile) {
  cpu_state *const st = state;
  (void)tile;
  cvy_conv_strips_begin(&st->strips);
  return st->strips.job.weights ? create_weights(st) : create_gather(&st->strips);
}

static cvy_conv_strip strip_for(const cpu_state *st, int n) {
  return cvy_conv_strips_for(&st->strips, n, blocks_of(st), true);
}

static int parts_of(const void *state, int n) {
  const cpu_state *const st = state;
  const cvy_conv_strip s = strip_for(st, n);
  return cvy_conv_smaller(st->strips.job.max_parts, cvy_conv_strips_count(&st->strips.gather, &s, n));
}

static cvy_status run(void *state, cvy_queue *queue, const cvy_conv_call *call) {
  cpu_state *const st = state;
  const cvy_conv_job *const job = &st->strips.job;
  if (!job->weights) return cvy_conv_strips_run(&st->strips, queue, call);
  const cvy_conv_strip s = strip_for(st, call->n);
  const cvy_conv_strip_call c = cvy_conv_strips_describe(&st->strips, call, &s);
  const cvy_conv_weights_cut cut = {.strip_floats = st->strip_floats,
                                    .block_c = st->block_c,
                                    .group_k = st->group_k,
                                    .splits = call->parts,
                                    .part_floats = call->in_parts ? job->part_floats : 0,
                                    .db_at = call->in_parts ? job->part_floats - job->y.pitch : 0};
  return CVY_LAUNCH(queue, st->strips.main, cvy_conv_tasks((int64_t)blocks_of(st) * call->parts, job->max_groups),
                    CVY_BUF(call->x), CVY_BUF(call->affine), CVY_BUF(call->residual), CVY_BUF(call->dy),
                    CVY_BUF(call->out), CVY_BUF(call->sum), CVY_BUF(call->workspace), CVY_STRUCT(c), CVY_STRUCT(cut));
}

const cvy_conv_algorithm cvy_conv_direct_cpu = {.name = "direct_cpu",
                                                .algo = CVY_CONV_DIRECT,
                                                .file = "conv2d_direct_cpu",
                                                .state_bytes = sizeof(cpu_state),
                                                .uneven = true,
                                                .cpu_shaped = true,
                                                .error_bound = 1e-5,
                                                .can = can,
                                                .create = create,
                                                .parts = parts_of,
                                                .run = run};
