/* SPDX-License-Identifier: MIT
 * Launches of cl/conv2d_panels_cpu.cl: direct's forward and backward_data where there are channels enough. In the workspace:
 *   packed weights | statistics of strips | a slice per work-group */
#include "src/ops/conv2d_cpu.h"
#include "src/ops/conv2d_direct.h"

enum { FLAG_BIAS = 8, FLAG_STATS = 16, FLAG_ACCUMULATE = 32, FLAG_STREAM = 64 }; /* the first three are CVY_CONV_* */
enum {
  TILE = 14,               /* positions of a register tile */
  BLOCK = 32,              /* output channels of a task */
  LEAST_CHANNELS = 16,     /* of the input: with less a panel is mostly empty */
  PANEL_FLOATS = 132096,   /* wanted size of a strip's panels: with its block of weights they stay in a second-level cache */
  STRIP_POSITIONS = 448,   /* bound of a strip's positions: their results lie in the cache too */
  STREAM_BYTES = 16 << 20, /* results from this size on are stored past the caches */
  TABLES = 4               /* numbers of a position */
};

/* A strip: rows x cols positions of so many images. */
typedef struct strip_plan {
  int images, rows, cols;
} strip_plan;

typedef struct panels_state {
  cvy_conv2d_params params;
  cvy_shape y;
  cvy_conv_pass pass;
  int compute_units, max_groups;
  cvy_kernel *main, *pack, *merge;
  cvy_conv_gather gather; /* of backward_data: the largest phase */
  int phases_h, phases_w;
  strip_plan strip; /* for n_max */
  int table_size, panels_at, results_at, stats_at, slices_at, slice_floats;
} panels_state;

static bool can(cvy_device *device, const cvy_conv2d_params *params, const cvy_shape *y, cvy_conv_pass pass,
                const char **why) {
  (void)device;
  if (why) *why = "direct's other kernels are faster";
  const cvy_shape *const in = pass == CVY_CONV_FORWARD ? &params->x : y;
  return pass != CVY_CONV_BACKWARD_WEIGHTS && params->x.pitch % 16 == 0 && y->pitch % 16 == 0 && in->c >= LEAST_CHANNELS;
}

/* Measured against direct_cpu; a gradient of few channels fills no blocks of output. */
static double cost(cvy_device *device, const cvy_conv2d_params *p, const cvy_shape *y, cvy_conv_pass pass) {
  (void)device, (void)y;
  const bool strided = p->stride_h * p->stride_w > 1;
  return !strided || (pass == CVY_CONV_BACKWARD_DATA && p->x.c < LEAST_CHANNELS) ? 0.9 : 0.75;
}

static int smaller(int a, int b) { return a < b ? a : b; }

static int strips_per_image(const cvy_conv_gather *g, const strip_plan *s) {
  return cvy_ceil_div(g->grid_h, s->rows) * cvy_ceil_div(g->grid_w, s->cols);
}
static int64_t count_strips(const cvy_conv_gather *g, const strip_plan *s, int n) {
  return (int64_t)cvy_ceil_div(n, s->images) * strips_per_image(g, s);
}

/* The same in the kernel. */
static int tile_rows(int rest) { return rest > 8 ? 14 : rest > 4 ? 8 : rest > 2 ? 4 : 2; }

/* Floats of a strip's panels if no tap lies in the padding. */
static int64_t panel_floats(const cvy_conv_gather *g, const strip_plan *s) {
  const int64_t tiles = cvy_ceil_div(s->images * s->rows * s->cols, TILE);
  return tiles * TILE * g->taps_h * g->taps_w * cvy_ceil_div(g->in.c, 16) * 16;
}

/* Multiply-adds of a strip's tiles per image, in units of a channel of input and a block of output, and what else takes
 * as long: weights come to the second-level cache once per strip. */
static double strip_work(const cvy_conv_gather *g, const strip_plan *s, int row0, int col0) {
  const int rows = smaller(s->rows, g->grid_h - row0), cols = smaller(s->cols, g->grid_w - col0),
            total = s->images * rows * cols;
  double work = 3.0 * g->taps_h * g->taps_w;
  for (int t = 0; t < total; t += TILE) {
    const int first = t / s->images, last = (smaller(t + TILE, total) - 1) / s->images;
    int taps = 0;
    for (int a = 0; a < g->taps_h; a++)
      for (int b = 0; b < g->taps_w; b++) {
        bool any = false;
        for (int p = first; p <= last && !any; p++) {
          const int h = (row0 + p / cols) * g->step_h + g->first_h + a, w = (col0 + p % cols) * g->step_w + g->first_w + b;
          any = h >= 0 && h < g->in.h && w >= 0 && w < g->in.w;
        }
        taps += any;
      }
    /* short tiles wait for weights; results are stored and read again */
    work += taps * (tile_rows(total - t) + 2.0) + 4.0 * TILE * 16 / g->in.c;
  }
  return work / s->images;
}

static double work_of(const cvy_conv_gather *g, const strip_plan *s) {
  double work = 0;
  for (int row = 0; row < g->grid_h; row += s->rows)
    for (int col = 0; col < g->grid_w; col += s->cols) work += strip_work(g, s, row, col);
  return work;
}

/* Largest part of `length` that is no larger, made even over the parts. */
static int even_part(int length, int largest) { return cvy_ceil_div(length, cvy_ceil_div(length, largest)); }

static bool strip_fits(const cvy_conv_gather *g, const strip_plan *s) {
  return panel_floats(g, s) <= PANEL_FLOATS && (int64_t)s->images * s->rows * s->cols <= STRIP_POSITIONS;
}

/* As many positions of so many images as fit, but a tile's worth. */
static strip_plan strip_of(const cvy_conv_gather *g, int images) {
  strip_plan s = {.images = images, .rows = g->grid_h, .cols = g->grid_w};
  while (s.rows > 1 && !strip_fits(g, &s)) s.rows--;
  s.rows = even_part(g->grid_h, s.rows);
  while (s.rows == 1 && s.cols > 1 && images * s.cols > TILE && !strip_fits(g, &s)) s.cols--;
  s.cols = even_part(g->grid_w, s.cols);
  return s;
}

/* The strip for large batches: positions of one image, of so many that their borders are met together, or of more that
 * share the weights. */
static strip_plan plan_strip(const cvy_conv_gather *g, int n_max) {
  strip_plan best = strip_of(g, 1);
  double least = work_of(g, &best);
  for (int images = 2; images <= n_max && images <= STRIP_POSITIONS; images += images < TILE ? 1 : images) {
    const strip_plan s = strip_of(g, images);
    const double work = work_of(g, &s);
    if (!strip_fits(g, &s) && images > TILE) break;
    if (work < least * 0.97) best = s, least = work;
  }
  return best;
}

/* The strip for n samples: smaller ones where there would not be a few tasks for every compute unit. Statistics keep the
 * parts of an image. */
static strip_plan plan_call(const panels_state *st, strip_plan s, int n, int tasks_per_strip, bool cut_images) {
  const cvy_conv_gather *const g = &st->gather;
  const int64_t wanted = 4 * (int64_t)st->compute_units;
  while (s.images > 1 && count_strips(g, &s, n) * tasks_per_strip < wanted) s.images = (s.images + 1) / 2;
  while (cut_images && s.images == 1 && s.rows > 1 && (s.rows / 2) * s.cols >= 2 * TILE &&
         count_strips(g, &s, n) * tasks_per_strip < wanted)
    s.rows = (s.rows + 1) / 2;
  return s;
}

static void destroy(void *state) {
  panels_state *const st = state;
  if (!st) return;
  cvy_kernel_destroy(&st->main);
  cvy_kernel_destroy(&st->pack);
  cvy_kernel_destroy(&st->merge);
  cvy_free(st);
}

static int64_t round_up(int64_t n, int unit) { return (n + unit - 1) / unit * unit; }

static cvy_status plan(panels_state *st, size_t *workspace_bytes) {
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
  /* Statistics are merged from those of an image's parts: the parts are the same whatever n_max is, so that a batch in
   * pieces (other shares, passes) gets the same bits. */
  const bool merged = st->pass == CVY_CONV_FORWARD && p->stats;
  st->strip = plan_strip(g, merged ? STRIP_POSITIONS : p->n_max);
  st->strip.images = smaller(st->strip.images, p->n_max);
  const strip_plan s = st->strip;
  const int64_t weights = (int64_t)p->r * p->s * g->in.c * g->out.pitch, positions = (int64_t)s.images * s.rows * s.cols;
  const int parts = strips_per_image(g, &s);
  const int64_t stats = st->pass == CVY_CONV_FORWARD && p->stats && parts > 1 ? (int64_t)p->n_max * parts * 2 * g->out.pitch
                                                                             : 0;
  const int64_t taps = (int64_t)g->taps_h * g->taps_w;
  st->table_size = (int)round_up(positions, TILE);
  const int64_t tables = round_up(TABLES * (int64_t)st->table_size + (int64_t)(st->table_size / TILE) * (1 + taps), 16),
                panels = (int64_t)st->table_size * taps * round_up(g->in.c, 16),
                slice = round_up(tables + panels + (int64_t)st->table_size * BLOCK, 16), before = round_up(weights + stats, 16),
                total = before + slice * st->max_groups;
  CVY_REQUIRE(slice <= INT32_MAX && total <= INT32_MAX, CVY_E_ARGUMENT,
              "convolution: %lld floats of workspace do not fit 32-bit indices", (long long)total);
  st->panels_at = (int)tables, st->results_at = (int)(tables + panels);
  st->stats_at = (int)weights, st->slices_at = (int)before, st->slice_floats = (int)slice;
  *workspace_bytes = (size_t)total * sizeof(float);
fail:
  return status;
}

static cvy_status create(cvy_device *device, const cvy_conv2d_params *params, const cvy_shape *y, cvy_conv_pass pass,
                         const int *tile, void **state, size_t *workspace_bytes) {
  cvy_status status = CVY_OK;
  static const char *const direct = "conv2d_direct_cpu";
  (void)tile;
  panels_state *const st = cvy_calloc(1, sizeof *st);
  CVY_REQUIRE(st, CVY_E_MEMORY, "convolution: out of memory for %zu bytes", sizeof *st);
  st->params = *params, st->y = *y, st->pass = pass;
  st->compute_units = cvy_device_get_facts(device)->compute_units;
  st->max_groups = cvy_conv_most_groups(st->compute_units);
  CVY_TRY(plan(st, workspace_bytes));
  CVY_TRY(cvy_kernel_create(device, "conv2d_panels_cpu", "conv2d_cpu_panels", NULL, 0, &st->main));
  CVY_TRY(cvy_kernel_create(device, direct, pass == CVY_CONV_FORWARD ? "conv2d_cpu_pack" : "conv2d_cpu_pack_turned", NULL, 0,
                            &st->pack));
  if (pass == CVY_CONV_FORWARD && params->stats)
    CVY_TRY(cvy_kernel_create(device, direct, "conv2d_cpu_merge_stats", NULL, 0, &st->merge));
  *state = st;
  return CVY_OK;
fail:
  destroy(st);
  return status;
}

static cvy_status run(void *state, cvy_queue *queue, const cvy_conv_call *call) {
  cvy_status status = CVY_OK;
  panels_state *const st = state;
  const cvy_conv2d_params *const p = &st->params;
  const cvy_conv_gather *const g = &st->gather;
  const bool forward = st->pass == CVY_CONV_FORWARD, stats = forward && p->stats;
  const int blocks = cvy_ceil_div(g->out.pitch, BLOCK), tasks_per_strip = blocks * st->phases_h * st->phases_w;
  const strip_plan s = plan_call(st, st->strip, call->n, tasks_per_strip, !stats);
  const bool large = (double)call->n * g->out.h * g->out.w * g->out.pitch * 4 >= STREAM_BYTES;
  const int flags = (forward ? p->prologue : 0) | (call->bias ? FLAG_BIAS : 0) | (stats ? FLAG_STATS : 0) |
                    (call->accumulate ? FLAG_ACCUMULATE : large ? FLAG_STREAM : 0);
  if (forward) {
    const int rows = p->r * p->s * g->in.c;
    CVY_TRY(CVY_LAUNCH(queue, st->pack, cvy_conv_groups_of_one(cvy_conv_smaller(cvy_ceil_div(rows, 64), st->max_groups)),
                       CVY_BUF(call->w), CVY_BUF(call->workspace), CVY_INT(rows), CVY_INT(g->out.pitch)));
  } else {
    CVY_TRY(CVY_LAUNCH(queue, st->pack, cvy_conv_groups_of_one((int64_t)blocks * p->r * p->s), CVY_BUF(call->w),
                       CVY_BUF(call->workspace), CVY_INT(p->r), CVY_INT(p->s), CVY_INT(p->stride_h), CVY_INT(p->stride_w),
                       CVY_INT(g->out.c), CVY_INT(g->in.c), CVY_INT(g->in.pitch), CVY_INT(g->out.pitch)));
  }
  const int64_t tasks = count_strips(g, &s, call->n) * tasks_per_strip;
  CVY_TRY(CVY_LAUNCH(
      queue, st->main, cvy_conv_groups_of_one(cvy_conv_smaller(tasks, st->max_groups)), CVY_BUF(forward ? call->x : call->dy),
      CVY_BUF(call->scale), CVY_BUF(call->shift), CVY_BUF(call->residual), CVY_BUF(call->bias),
      CVY_BUF(forward ? call->y : call->dx), CVY_BUF(call->stats), CVY_BUF(call->workspace), CVY_INT(call->n),
      CVY_INT(g->in.h), CVY_INT(g->in.w), CVY_INT(g->in.c), CVY_INT(g->in.pitch), CVY_INT(g->out.h), CVY_INT(g->out.w),
      CVY_INT(g->out.pitch), CVY_INT(p->r), CVY_INT(p->s), CVY_INT(p->stride_h), CVY_INT(p->stride_w), CVY_INT(p->pad_h),
      CVY_INT(p->pad_w), CVY_INT(!forward), CVY_INT(st->phases_h), CVY_INT(st->phases_w), CVY_INT(s.images),
      CVY_INT(s.rows), CVY_INT(s.cols), CVY_INT(st->table_size), CVY_INT(st->panels_at), CVY_INT(st->results_at),
      CVY_INT(st->stats_at), CVY_INT(st->slices_at), CVY_INT(st->slice_floats), CVY_INT(call->group_size), CVY_INT(flags)));
  if (stats && strips_per_image(g, &s) > 1)
    CVY_TRY(CVY_LAUNCH(queue, st->merge, cvy_conv_groups_of_one(call->n), CVY_BUF(call->workspace), CVY_BUF(call->stats),
                       CVY_INT(st->stats_at), CVY_INT(g->grid_h), CVY_INT(g->grid_w), CVY_INT(g->out.pitch), CVY_INT(s.rows),
                       CVY_INT(s.cols)));
fail:
  return status;
}

static const int tiles[][CVY_CONV_TILES] = {{0}};

const cvy_conv_algorithm cvy_conv_panels_cpu = {.name = "panels_cpu",
                                                .algo = CVY_CONV_DIRECT,
                                                .cpu_shaped = true,
                                                .error_bound = 1e-5,
                                                .tiles = tiles,
                                                .n_tiles = 1,
                                                .can = can,
                                                .cost = cost,
                                                .create = create,
                                                .destroy = destroy,
                                                .run = run};
