/* SPDX-License-Identifier: MIT
 * Launches of cl/conv2d_direct_cpu.cl: how a call is cut into strips and tasks, and where things lie in the workspace:
 *   forward, backward_data:  packed weights              | statistics of strips | a slice per work-group
 *   backward_weights:        partial dw and db of each part of the batch        | a slice per work-group */
#include "src/ops/conv2d_cpu.h"
#include "src/ops/conv2d_direct.h"

enum { FLAG_BIAS = 8, FLAG_STATS = 16, FLAG_ACCUMULATE = 32, FLAG_STREAM = 64 }; /* the first three are CVY_CONV_* */
enum {
  TILE = 14,            /* positions of a register tile of the gather convolution */
  BLOCK = 32,           /* output channels of a task */
  SLACK = 16,           /* floats behind a strip that whole vectors may touch */
  STRIP_FLOATS = 65536, /* wanted size of a strip: with its block of weights it stays in a second-level cache; twice
                           that if it saves work */
  STRIP_POSITIONS = 1024,
  STREAM_BYTES = 16 << 20, /* results from this size on are stored past the caches */
  WEIGHTS_STRIP_FLOATS = 32768, /* the same for backward_weights, where dw lies in the cache too */
  WEIGHTS_STRIP_POSITIONS = 256,
  OWN_FLOATS = 98304,       /* wanted size of a task's dw */
  BLOCK_FLOATS = 24576,     /* wanted size of a task's dw of one block of output channels */
  PART_FLOATS_MAX = 8 << 20 /* bound of all partial dw together, where it can be kept */
};

/* A strip: `images` whole images, or rows x cols positions of one. */
typedef struct strip_plan {
  int images, rows, cols;
} strip_plan;

typedef struct cpu_state {
  cvy_conv2d_params params;
  cvy_shape y;
  cvy_conv_pass pass;
  int compute_units, max_groups;
  cvy_kernel *main, *pack, *after; /* after: merge_stats or reduce */
  cvy_conv_gather gather;          /* of backward_data: the largest phase */
  int phases_h, phases_w;
  strip_plan strip; /* for n_max */
  int table_size, strip_floats, slice_floats;
  int results_at; /* forward, backward_data: results that are stored past the caches */
  int stats_at, slices_at;
  int block_c, group_k, max_splits, part_floats; /* backward_weights */
} cpu_state;

static bool can(cvy_device *device, const cvy_conv2d_params *params, const cvy_shape *y, cvy_conv_pass pass,
                const char **why) {
  (void)device;
  if (why) *why = "CPU kernels want pitches that are multiples of 16";
  return y->pitch % 16 == 0 && (pass != CVY_CONV_BACKWARD_DATA || params->x.pitch % 16 == 0);
}

static int64_t strip_floats_of(const cvy_conv_gather *g, int channels, int rows, int cols) {
  const int use_h = g->step_h < g->taps_h ? g->step_h : g->taps_h,
            use_w = g->step_w < g->taps_w ? g->step_w : g->taps_w;
  return ((int64_t)(rows - 1) * use_h + g->taps_h) * ((int64_t)(cols - 1) * use_w + g->taps_w) * channels;
}

static int strips_per_image(const cvy_conv_gather *g, const strip_plan *s) {
  return cvy_ceil_div(g->grid_h, s->rows) * cvy_ceil_div(g->grid_w, s->cols);
}
static int64_t count_strips(const cvy_conv_gather *g, const strip_plan *s, int n) {
  return (int64_t)cvy_ceil_div(n, s->images) * strips_per_image(g, s);
}

/* Largest part of `length` that passes `fits`, made even over the parts. */
static int even_part(int length, int largest) { return cvy_ceil_div(length, cvy_ceil_div(length, largest)); }

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
static strip_plan plan_strip(const cvy_conv_gather *g, int channels, int n_max, int floats, int positions) {
  strip_plan s = {.images = 1, .rows = g->grid_h, .cols = g->grid_w};
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
  rows = even_part(g->grid_h, rows);
  if (rows == 1) {
    while (cols > TILE && (cols > positions || strip_floats_of(g, channels, 1, cols) > floats)) cols--;
    cols = even_part(g->grid_w, cols);
  }
  s.rows = rows, s.cols = cols;
  return s;
}

/* The strip for n samples: smaller ones where there would not be a few tasks for every compute unit. Statistics keep
 * the parts of an image. */
static strip_plan plan_call(const cpu_state *st, const cvy_conv_gather *g, strip_plan s, int n, int tasks_per_strip,
                            bool cut_images) {
  const int64_t wanted = 4 * (int64_t)st->compute_units;
  while (s.images > 1 && count_strips(g, &s, n) * tasks_per_strip < wanted) s.images = (s.images + 1) / 2;
  while (cut_images && s.images == 1 && s.rows > 1 && (s.rows / 2) * s.cols >= 2 * TILE &&
         count_strips(g, &s, n) * tasks_per_strip < wanted)
    s.rows = (s.rows + 1) / 2;
  return s;
}

static void destroy(void *state) {
  cpu_state *const st = state;
  if (!st) return;
  cvy_kernel_destroy(&st->main);
  cvy_kernel_destroy(&st->pack);
  cvy_kernel_destroy(&st->after);
  cvy_free(st);
}

/* Places what create has sized; the sum must fit 32-bit indices. */
static cvy_status finish_workspace(cpu_state *st, int64_t before_slices, size_t *workspace_bytes) {
  cvy_status status = CVY_OK;
  const int64_t before = (before_slices + 15) / 16 * 16, slice = ((int64_t)st->slice_floats + 15) / 16 * 16;
  const int64_t total = before + slice * st->max_groups;
  CVY_REQUIRE(slice < INT32_MAX && total <= INT32_MAX, CVY_E_ARGUMENT,
              "convolution: %lld floats of workspace do not fit 32-bit indices", (long long)total);
  st->slices_at = (int)before, st->slice_floats = (int)slice;
  *workspace_bytes = (size_t)total * sizeof(float);
fail:
  return status;
}

static cvy_status create_gather(cpu_state *st, size_t *workspace_bytes) {
  cvy_status status = CVY_OK;
  cvy_conv2d_params *const p = &st->params;
  st->phases_h = st->phases_w = 1;
  if (st->pass == CVY_CONV_FORWARD) {
    st->gather = cvy_conv_gather_forward(p, &st->y);
  } else {
    /* the phase with most taps and the largest grid, each by itself */
    cvy_conv_widen_strides(p, &st->y);
    st->gather = cvy_conv_gather_phase(p, &st->y, 0, 0);
    st->gather.taps_h = cvy_ceil_div(p->r, p->stride_h), st->gather.taps_w = cvy_ceil_div(p->s, p->stride_w);
    st->phases_h = cvy_conv_smaller(p->stride_h, p->x.h), st->phases_w = cvy_conv_smaller(p->stride_w, p->x.w);
  }
  const cvy_conv_gather *const g = &st->gather;
  const strip_plan s = st->strip = plan_strip(g, g->in.c, p->n_max, STRIP_FLOATS, STRIP_POSITIONS);
  const int64_t u_floats = (int64_t)p->r * p->s * g->in.c * g->out.pitch;
  const int parts = strips_per_image(g, &s);
  const int64_t stats = st->pass == CVY_CONV_FORWARD && p->stats && parts > 1
                            ? (int64_t)p->n_max * parts * 2 * g->out.pitch
                            : 0;
  st->table_size = (s.images * s.rows * s.cols + TILE + 15) / 16 * 16;
  const int64_t results_at =
      (strip_floats_of(g, g->in.c, s.rows, s.cols) * s.images + SLACK + 2 * (int64_t)st->table_size + 15) / 16 * 16;
  const int64_t slice = results_at + (1 + BLOCK) * (int64_t)st->table_size;
  CVY_REQUIRE(u_floats <= INT32_MAX && slice <= INT32_MAX, CVY_E_ARGUMENT,
              "convolution: %lld floats of packed filter and %lld of a strip do not fit 32-bit indices",
              (long long)u_floats, (long long)slice);
  st->slice_floats = (int)slice, st->results_at = (int)results_at;
  st->stats_at = (int)u_floats;
  CVY_TRY(finish_workspace(st, u_floats + stats, workspace_bytes));
fail:
  return status;
}

static cvy_status create_weights(cpu_state *st, size_t *workspace_bytes) {
  cvy_status status = CVY_OK;
  const cvy_conv2d_params *const p = &st->params;
  const cvy_conv_gather g = st->gather = cvy_conv_gather_forward(p, &st->y);
  const int c = p->x.c, blocks = cvy_ceil_div(st->y.pitch, BLOCK);
  int most_c = BLOCK_FLOATS / BLOCK / (g.taps_h * g.taps_w) / 16 * 16;
  if (most_c < 16) most_c = 16;
  /* a small second block would cost a pass over the gradient */
  st->block_c = c <= most_c + most_c / 2 ? c : (even_part(c, most_c) + 15) / 16 * 16;
  const int64_t own = (int64_t)g.taps_h * ((g.taps_w * st->block_c + 3) / 4 * 4) * BLOCK;
  st->group_k = even_part(blocks, cvy_conv_smaller(blocks, OWN_FLOATS > own ? OWN_FLOATS / own : 1));
  const int groups = cvy_ceil_div(c, st->block_c) * cvy_ceil_div(blocks, st->group_k);
  const strip_plan s = st->strip = plan_strip(&g, st->block_c, p->n_max, WEIGHTS_STRIP_FLOATS, WEIGHTS_STRIP_POSITIONS);
  st->table_size = (s.images * s.rows * s.cols + TILE + 15) / 16 * 16;
  const int64_t strip = (strip_floats_of(&g, st->block_c, s.rows, s.cols) * s.images + SLACK + 15) / 16 * 16;
  const int64_t part = ((int64_t)g.taps_h * g.taps_w * c + 1) * st->y.pitch;
  const int64_t slice = 2 * st->table_size + strip + (int64_t)st->table_size * BLOCK + st->group_k * (own + BLOCK);
  CVY_REQUIRE(slice <= INT32_MAX && part <= INT32_MAX, CVY_E_ARGUMENT,
              "convolution: %lld floats of workspace do not fit 32-bit indices", (long long)(slice + part));
  st->strip_floats = (int)strip, st->slice_floats = (int)slice, st->part_floats = (int)part;
  st->max_splits = cvy_ceil_div(4 * st->compute_units, groups);
  if (st->max_splits * part > PART_FLOATS_MAX) st->max_splits = cvy_conv_smaller(st->max_splits, PART_FLOATS_MAX / part + 1);
  CVY_TRY(finish_workspace(st, st->max_splits > 1 ? st->max_splits * part : 0, workspace_bytes));
fail:
  return status;
}

static cvy_status create(cvy_device *device, const cvy_conv2d_params *params, const cvy_shape *y, cvy_conv_pass pass,
                         const int *tile, void **state, size_t *workspace_bytes) {
  cvy_status status = CVY_OK;
  (void)tile;
  static const char *const file = "conv2d_direct_cpu";
  cpu_state *const st = cvy_calloc(1, sizeof *st);
  CVY_REQUIRE(st, CVY_E_MEMORY, "convolution: out of memory for %zu bytes", sizeof *st);
  st->params = *params, st->y = *y, st->pass = pass;
  st->compute_units = cvy_device_get_facts(device)->compute_units;
  st->max_groups = cvy_conv_most_groups(st->compute_units);
  if (pass == CVY_CONV_BACKWARD_WEIGHTS) {
    CVY_TRY(create_weights(st, workspace_bytes));
    CVY_TRY(cvy_kernel_create(device, file, "conv2d_cpu_backward_weights", NULL, 0, &st->main));
    CVY_TRY(cvy_conv_sum_parts_create(device, &st->after));
  } else {
    CVY_TRY(create_gather(st, workspace_bytes));
    CVY_TRY(cvy_kernel_create(device, file, "conv2d_cpu_forward", NULL, 0, &st->main));
    CVY_TRY(cvy_kernel_create(device, file, pass == CVY_CONV_FORWARD ? "conv2d_cpu_pack" : "conv2d_cpu_pack_turned",
                              NULL, 0, &st->pack));
    if (pass == CVY_CONV_FORWARD && params->stats)
      CVY_TRY(cvy_kernel_create(device, file, "conv2d_cpu_merge_stats", NULL, 0, &st->after));
  }
  *state = st;
  return CVY_OK;
fail:
  destroy(st);
  return status;
}

static cvy_status run_gather(cpu_state *st, cvy_queue *queue, const cvy_conv_call *call) {
  cvy_status status = CVY_OK;
  const cvy_conv2d_params *const p = &st->params;
  const cvy_conv_gather *const g = &st->gather;
  const bool forward = st->pass == CVY_CONV_FORWARD, stats = forward && p->stats;
  const int blocks = cvy_ceil_div(g->out.pitch, BLOCK), tasks_per_strip = blocks * st->phases_h * st->phases_w;
  const strip_plan s = plan_call(st, g, st->strip, call->n, tasks_per_strip, !stats);
  const int flags = (forward ? p->prologue : 0) | (call->bias ? FLAG_BIAS : 0) | (stats ? FLAG_STATS : 0) |
                    (call->accumulate ? FLAG_ACCUMULATE
                     : (double)call->n * g->out.h * g->out.w * g->out.pitch * 4 >= STREAM_BYTES ? FLAG_STREAM
                                                                                                : 0);
  if (forward) {
    const int rows = p->r * p->s * g->in.c;
    CVY_TRY(CVY_LAUNCH(queue, st->pack, cvy_conv_groups_of_one(cvy_conv_smaller(cvy_ceil_div(rows, 64), st->max_groups)), CVY_BUF(call->w),
                       CVY_BUF(call->workspace), CVY_INT(rows), CVY_INT(g->out.pitch)));
  } else {
    CVY_TRY(CVY_LAUNCH(queue, st->pack, cvy_conv_groups_of_one((int64_t)blocks * p->r * p->s), CVY_BUF(call->w),
                       CVY_BUF(call->workspace), CVY_INT(p->r), CVY_INT(p->s), CVY_INT(p->stride_h),
                       CVY_INT(p->stride_w), CVY_INT(g->out.c), CVY_INT(g->in.c), CVY_INT(g->in.pitch),
                       CVY_INT(g->out.pitch)));
  }
  const int64_t tasks = count_strips(g, &s, call->n) * tasks_per_strip;
  CVY_TRY(CVY_LAUNCH(
      queue, st->main, cvy_conv_groups_of_one(cvy_conv_smaller(tasks, st->max_groups)), CVY_BUF(forward ? call->x : call->dy),
      CVY_BUF(call->scale), CVY_BUF(call->shift), CVY_BUF(call->residual), CVY_BUF(call->bias),
      CVY_BUF(forward ? call->y : call->dx), CVY_BUF(call->stats), CVY_BUF(call->workspace), CVY_INT(call->n),
      CVY_INT(g->in.h), CVY_INT(g->in.w), CVY_INT(g->in.c), CVY_INT(g->in.pitch), CVY_INT(g->out.h), CVY_INT(g->out.w),
      CVY_INT(g->out.pitch), CVY_INT(p->r), CVY_INT(p->s), CVY_INT(p->stride_h), CVY_INT(p->stride_w),
      CVY_INT(p->pad_h), CVY_INT(p->pad_w), CVY_INT(!forward), CVY_INT(st->phases_h), CVY_INT(st->phases_w),
      CVY_INT(s.images), CVY_INT(s.rows), CVY_INT(s.cols), CVY_INT(st->table_size), CVY_INT(st->results_at), CVY_INT(st->stats_at),
      CVY_INT(st->slices_at), CVY_INT(st->slice_floats), CVY_INT(call->group_size), CVY_INT(flags)));
  if (stats && strips_per_image(g, &s) > 1)
    CVY_TRY(CVY_LAUNCH(queue, st->after, cvy_conv_groups_of_one(call->n), CVY_BUF(call->workspace), CVY_BUF(call->stats),
                       CVY_INT(st->stats_at), CVY_INT(g->grid_h), CVY_INT(g->grid_w), CVY_INT(g->out.pitch),
                       CVY_INT(s.rows), CVY_INT(s.cols)));
fail:
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
  const cvy_conv2d_params *const p = &st->params;
  const cvy_conv_gather *const g = &st->gather;
  const int groups = cvy_ceil_div(p->x.c, st->block_c) * cvy_ceil_div(cvy_ceil_div(st->y.pitch, BLOCK), st->group_k);
  const strip_plan s = plan_call(st, g, st->strip, call->n, groups, true);
  const int splits = cvy_conv_smaller(st->max_splits, count_strips(g, &s, call->n));
  const int db_at = st->part_floats - st->y.pitch;
  const bool parts = splits > 1;
  const int flags = p->prologue | (call->db ? FLAG_BIAS : 0) | (call->accumulate && !parts ? FLAG_ACCUMULATE : 0);
  CVY_TRY(CVY_LAUNCH(
      queue, st->main, cvy_conv_groups_of_one(cvy_conv_smaller((int64_t)groups * splits, st->max_groups)), CVY_BUF(call->x),
      CVY_BUF(call->scale), CVY_BUF(call->shift), CVY_BUF(call->residual), CVY_BUF(call->dy),
      CVY_BUF(parts ? call->workspace : call->dw), CVY_BUF(parts ? call->workspace : call->db),
      CVY_BUF(call->workspace), CVY_INT(call->n), CVY_INT(g->in.h), CVY_INT(g->in.w), CVY_INT(g->in.c),
      CVY_INT(g->in.pitch), CVY_INT(g->grid_h), CVY_INT(g->grid_w), CVY_INT(g->out.pitch), CVY_INT(p->r), CVY_INT(p->s),
      CVY_INT(p->stride_h), CVY_INT(p->stride_w), CVY_INT(p->pad_h), CVY_INT(p->pad_w), CVY_INT(s.images),
      CVY_INT(s.rows), CVY_INT(s.cols), CVY_INT(st->table_size), CVY_INT(st->strip_floats), CVY_INT(st->block_c),
      CVY_INT(st->group_k), CVY_INT(splits), CVY_INT(parts ? st->part_floats : 0), CVY_INT(parts ? db_at : 0),
      CVY_INT(st->slices_at), CVY_INT(st->slice_floats), CVY_INT(call->group_size), CVY_INT(flags)));
  if (!parts) return CVY_OK;
  CVY_TRY(cvy_conv_sum_parts(st->after, queue, call, splits, st->part_floats, st->y.pitch, st->max_groups));
fail:
  return status;
}

static cvy_status run(void *state, cvy_queue *queue, const cvy_conv_call *call) {
  cpu_state *const st = state;
  return st->pass == CVY_CONV_BACKWARD_WEIGHTS ? run_weights(st, queue, call) : run_gather(st, queue, call);
}

static const int tiles[][CVY_CONV_TILES] = {{0}};

const cvy_conv_algorithm cvy_conv_direct_cpu = {.name = "direct_cpu",
                                                .algo = CVY_CONV_DIRECT,
                                                .cpu_shaped = true,
                                                .error_bound = 1e-5,
                                                .tiles = tiles,
                                                .n_tiles = 1,
                                                .can = can,
                                                .create = create,
                                                .destroy = destroy,
                                                .run = run};
