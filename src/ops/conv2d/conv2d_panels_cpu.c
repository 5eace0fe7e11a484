/* SPDX-License-Identifier: MIT
 * Strips of cl/conv2d/conv2d_panels_cpu.cl: direct's forward and backward_data for inputs with enough channels. */
#include "src/ops/conv2d/conv2d_strip_cpu.h"

enum {
  TILE = CVY_STRIP_TILE,
  LEAST_CHANNELS = 16, /* of the input: with less a panel is mostly empty */
  PANEL_FLOATS =
      132096, /* wanted size of a strip's panels: with its block of weights they stay in a second-level cache */
  STRIP_POSITIONS = 448, /* bound of a strip's positions: their results lie in the cache too */
  TABLES = 4             /* numbers of a position */
};

static const char *can(const cvy_conv_job *job) {
  return job->in.c < LEAST_CHANNELS ? "direct's other kernels are faster" : NULL;
}

/* Measured against direct_cpu; a gradient of few channels fills no blocks of output. */
static double cost(const cvy_conv_job *job) {
  const cvy_conv2d_params *const p = &job->params;
  const bool strided = p->stride_h * p->stride_w > 1;
  return !strided || (job->data && p->x.c < LEAST_CHANNELS) ? 0.9 : 0.75;
}

/* The same in the kernel. */
static int tile_rows(int rest) { return rest > 8 ? 14 : rest > 4 ? 8 : 4; }

/* Floats of a strip's panels if no tap lies in the padding. */
static int64_t panel_floats(const cvy_conv_gather *g, const cvy_conv_strip *s) {
  const int64_t tiles = cvy_ceil_div(s->images * s->rows * s->cols, TILE);
  return tiles * TILE * g->taps_h * g->taps_w * cvy_ceil_div(g->in.c, 16) * 16;
}

/* Multiply-adds of a strip's tiles per image, in units of a channel of input and a block of output, with the time for
 * other work: weights come to the second-level cache once per strip. */
static double strip_work(const cvy_conv_gather *g, const cvy_conv_strip *s, int row0, int col0) {
  const int rows = cvy_conv_smaller(s->rows, g->grid_h - row0), cols = cvy_conv_smaller(s->cols, g->grid_w - col0),
            total = s->images * rows * cols;
  double work = 3.0 * g->taps_h * g->taps_w;
  for (int t = 0; t < total; t += TILE) {
    const int first = t / s->images, last = (cvy_conv_smaller(t + TILE, total) - 1) / s->images;
    int taps = 0;
    for (int a = 0; a < g->taps_h; a++)
      for (int b = 0; b < g->taps_w; b++) {
        bool any = false;
        for (int p = first; p <= last && !any; p++) {
          const int h = (row0 + p / cols) * g->step_h + g->first_h + a,
                    w = (col0 + p % cols) * g->step_w + g->first_w + b;
          any = h >= 0 && h < g->in.h && w >= 0 && w < g->in.w;
        }
        taps += any;
      }
    /* short tiles wait for weights; results are stored and read again */
    work += taps * (tile_rows(total - t) + 2.0) + 4.0 * TILE * 16 / g->in.c;
  }
  return work / s->images;
}

static double work_of(const cvy_conv_gather *g, const cvy_conv_strip *s) {
  double work = 0;
  for (int row = 0; row < g->grid_h; row += s->rows)
    for (int col = 0; col < g->grid_w; col += s->cols) work += strip_work(g, s, row, col);
  return work;
}

static bool strip_fits(const cvy_conv_gather *g, const cvy_conv_strip *s) {
  return panel_floats(g, s) <= PANEL_FLOATS && (int64_t)s->images * s->rows * s->cols <= STRIP_POSITIONS;
}

/* As many positions of so many images as fit, at least a tile's worth. */
static cvy_conv_strip strip_of(const cvy_conv_gather *g, int images) {
  cvy_conv_strip s = {.images = images, .rows = g->grid_h, .cols = g->grid_w};
  while (s.rows > 1 && !strip_fits(g, &s)) s.rows--;
  s.rows = cvy_conv_even_part(g->grid_h, s.rows);
  while (s.rows == 1 && s.cols > 1 && images * s.cols > TILE && !strip_fits(g, &s)) s.cols--;
  s.cols = cvy_conv_even_part(g->grid_w, s.cols);
  return s;
}

/* The strip for large batches: positions of one image, of so many that their borders are met together, or of more that
 * share the weights. */
static cvy_conv_strip plan_strip(const cvy_conv_gather *g, int n_max) {
  cvy_conv_strip best = strip_of(g, 1);
  double least = work_of(g, &best);
  for (int images = 2; images <= n_max && images <= STRIP_POSITIONS; images += images < TILE ? 1 : images) {
    const cvy_conv_strip s = strip_of(g, images);
    const double work = work_of(g, &s);
    if (!strip_fits(g, &s) && images > TILE) break;
    if (work < least * 0.97) best = s, least = work;
  }
  return best;
}

/* A slice: tables and taps of the tiles, panels, results. */
static cvy_status create(void *state, const int *tile) {
  cvy_conv_strips *const st = state;
  (void)tile;
  cvy_conv_strips_begin(st);
  const cvy_conv_gather *const g = &st->gather;
  const int n_max = st->job.params.n_max;
  /* Statistics are merged from those of an image's parts: the parts are the same whatever n_max is, so that a batch in
   * pieces (other shares, passes) gets the same bits. */
  st->strip = plan_strip(g, st->job.stats ? STRIP_POSITIONS : n_max);
  st->strip.images = cvy_conv_smaller(st->strip.images, n_max);
  const int64_t positions = (int64_t)st->strip.images * st->strip.rows * st->strip.cols;
  st->table_size = (int)cvy_conv_round_up(positions, TILE);
  const int64_t taps = (int64_t)g->taps_h * g->taps_w, floats = st->table_size;
  const int64_t panels_at = cvy_conv_round_up(TABLES * floats + floats / TILE * (1 + taps), 16),
                results_at = panels_at + floats * taps * cvy_conv_round_up(g->in.c, 16);
  return cvy_conv_strips_create(st, "conv2d_cpu_panels", results_at, results_at + floats * CVY_STRIP_BLOCK);
}

const cvy_conv_algorithm cvy_conv_panels_cpu = {.name = "panels_cpu",
                                                .algo = CVY_CONV_DIRECT,
                                                .file = "conv2d_panels_cpu",
                                                .state_bytes = sizeof(cvy_conv_strips),
                                                .uneven = true,
                                                .whole_pitch = true,
                                                .no_weights = true,
                                                .cpu_shaped = true,
                                                .error_bound = 1e-5,
                                                .can = can,
                                                .cost = cost,
                                                .create = create,
                                                .run = cvy_conv_strips_run};
