/* SPDX-License-Identifier: MIT
 * Launches of cl/winograd/conv2d_winograd_fused.cl: F(2x2,3x3) with stride 1 on SIMT devices, in one kernel behind the
 * transform of the filters. backward_data is forward of dy with turned filters and padding 2 - pad.
 *
 * Workspace, in floats: filters 16*C'*K' (C' in steps of 4, K' in blocks of 32) | slots of statistics. */
#include "src/cl/dry_run.h"
#include "src/ops/conv2d/conv2d_simt_plan.h"
#include "src/ops/divider.h"
#include "src/ops/conv2d/math.h"

#include "cl/conv2d_fused_args.clh"

enum {
  ITEMS = 256,
  LOCAL_BYTES = 17 << 10, /* of a work-group */
  BAND = 8                /* blocks of tiles that take the same block of filters one after the other */
};

/* The tuner's candidates: {blocks of tiles in a band}. With 1, neighbours share pixels and read other filters; with
 * many, they share filters, and a small cache may lose the pixels before the next block of filters reads them. */
static const int bands[][CVY_CONV_TILES] = {{1}, {64}};
enum { N_BANDS = sizeof bands / sizeof *bands };

typedef struct fused_works {
  cvy_launch_work filter, multiply, merge;
} fused_works;

typedef struct fused_state {
  cvy_conv_job job;
  cvy_simt_machine machine;
  int per_image;            /* tiles */
  cvy_conv_fused_call call; /* members that are the same in all calls */
  cvy_kernel *filter, *multiply, *merge;
} fused_state;

static const char *can(const cvy_conv_job *job) {
  return job->base.capabilities->local_bytes < LOCAL_BYTES || job->base.capabilities->max_work_group < ITEMS
             ? "work-groups of 256 with 17 KiB of local memory do not fit the device"
             : NULL;
}

static int64_t blocks_of(int64_t n, int per_block) { return (n + per_block - 1) / per_block; }
static double bytes_of(const cvy_shape *s, int n) { return 4.0 * n * s->h * s->w * s->pitch; }

/* The launches of n samples. A step makes as many products as one of a tile of 128x128. Pixels and filters come
 * from memory once if the cache holds the pixels of a band, or all filters; else again for each block of filters, or
 * for each band. All groups read theirs, with pixels of halos, from the cache. */
static fused_works works_for(const cvy_simt_machine *m, const cvy_conv_job *job, int band, int n) {
  const cvy_shape *const in = &job->in, *const out = &job->out;
  const cvy_simt_constants *const k = &m->constants;
  const double part = k->products[CVY_PRODUCTS_FUSED][job->pass] * (job->prologue ? k->fused_prologue : 1), HALO = 1.25,
               BLOCK_PIXELS = CVY_FUSED_TILES * 6.0;
  const double half_cache = (double)m->capabilities->cache_bytes / 2;
  const int64_t tiles = (int64_t)n * cvy_ceil_div(out->h, 2) * cvy_ceil_div(out->w, 2),
                blocks = blocks_of(tiles, CVY_FUSED_TILES), filters = blocks_of(out->pitch, CVY_FUSED_FILTERS);
  const int depth = cvy_ceil_div(in->c, CVY_FUSED_CHANNELS) * CVY_FUSED_CHANNELS;
  const double groups = (double)(blocks * filters), u_block = 4.0 * CVY_FUSED_POINTS * CVY_FUSED_FILTERS * depth,
               band_pixels = 4.0 * 4 * CVY_FUSED_TILES * band * depth;
  const double fma = groups * CVY_FUSED_POINTS * CVY_FUSED_TILES * CVY_FUSED_FILTERS * depth,
               w = 4.0 * 9 * job->params.x.c * job->y.pitch, u = u_block * (double)filters;
  const double memory = bytes_of(in, n) * HALO * (band_pixels <= half_cache ? 1 : (double)filters) +
                        u * (u <= half_cache ? 1 : (double)blocks_of(blocks, band)) + bytes_of(out, n),
               cached = groups * (u_block + 4 * BLOCK_PIXELS * depth) * k->cache_time;
  fused_works works = {.filter = cvy_simt_moves(m, w + u)};
  works.multiply = cvy_simt_products(m, part, (cvy_gemm_tile){128, 128, 8}, 1, blocks * filters, fma, depth,
                                     memory > cached ? memory : cached);
  works.multiply.fma = fma, works.multiply.bytes = memory;
  if (job->stats)
    works.merge = cvy_simt_moves(m, 4.0 * (CVY_FUSED_STATS * (double)(blocks + n) + 2.0 * n) * out->pitch);
  return works;
}

static double seconds_of(const fused_works *w) { return w->filter.seconds + w->multiply.seconds + w->merge.seconds; }

/* Expected time beside direct's. CPUs run work-items one after the other between two barriers and keep the sums of each
 * in memory meanwhile: ON_CPU is measured (PoCL 3.1, 28x28x64 and 14x14x128). */
static double cost(const cvy_conv_job *job) {
  const cvy_simt_machine machine = cvy_simt_machine_asked(job);
  const fused_works works = works_for(&machine, job, BAND, job->params.n_max);
  const double ON_CPU = 3, slower = cvy_device_get_info(job->base.device)->kind == CVY_DEVICE_CPU ? ON_CPU : 1,
               direct = cvy_simt_direct_seconds(&machine, job);
  return direct > 0 ? slower * seconds_of(&works) / direct : 2;
}

static cvy_conv_expected expected(const void *state) {
  const fused_state *const st = state;
  const fused_works works = works_for(&st->machine, &st->job, st->call.band, st->job.params.n_max);
  return (cvy_conv_expected){1, seconds_of(&works), seconds_of(&works)};
}

static cvy_status create(void *state, const int *tile) {
  cvy_status status = CVY_OK;
  fused_state *const st = state;
  cvy_conv_job *const job = &st->job;
  const cvy_conv2d_params *const p = &job->params;
  cvy_conv_fused_call *const c = &st->call;
  st->machine = cvy_simt_machine_of(job->base.device, p->math);
  c->in = job->in, c->out = job->out;
  c->tiles_w = cvy_ceil_div(c->out.w, 2), st->per_image = cvy_ceil_div(c->out.h, 2) * c->tiles_w;
  c->filter_blocks = cvy_ceil_div(c->out.pitch, CVY_FUSED_FILTERS);
  c->steps = cvy_ceil_div(c->in.c, CVY_FUSED_CHANNELS);
  c->band = tile[0] ? tile[0] : BAND;
  c->pad_h = job->data ? 2 - p->pad_h : p->pad_h, c->pad_w = job->data ? 2 - p->pad_w : p->pad_w;
  c->flags = job->prologue, c->has_stats = job->stats;
  c->by_image = cvy_divider_make(st->per_image), c->by_row = cvy_divider_make(c->tiles_w);
  const int64_t u_floats =
                    (int64_t)CVY_FUSED_POINTS * c->steps * CVY_FUSED_CHANNELS * c->filter_blocks * CVY_FUSED_FILTERS,
                tile_blocks = blocks_of((int64_t)p->n_max * st->per_image, CVY_FUSED_TILES),
                slots = job->stats ? (tile_blocks + p->n_max) * CVY_FUSED_STATS * c->out.pitch : 0;
  CVY_TRY(cvy_conv_claim(job, u_floats + slots));
  c->stats_at = (int)u_floats;
  const cvy_define prologue[] = {{"PROLOGUE", cvy_conv_prologue_define(job)}};
  CVY_TRY(cvy_conv_kernel(job, "winograd_fused_filter", prologue, 1, &st->filter));
  CVY_TRY(cvy_conv_kernel(job, "winograd_fused_multiply", prologue, 1, &st->multiply));
  if (job->stats) CVY_TRY(cvy_conv_kernel(job, "winograd_fused_merge", prologue, 1, &st->merge));
fail:
  return status;
}

static cvy_status run(void *state, cvy_queue *queue, const cvy_conv_call *call) {
  cvy_status status = CVY_OK;
  fused_state *const st = state;
  const cvy_conv_job *const job = &st->job;
  cvy_conv_fused_call c = st->call;
  const int rows = c.steps * CVY_FUSED_CHANNELS, columns = c.filter_blocks * CVY_FUSED_FILTERS;
  c.tiles = call->n * st->per_image, c.tile_blocks = cvy_ceil_div(c.tiles, CVY_FUSED_TILES);
  c.has_bias = call->bias != NULL, c.accumulate = call->accumulate;
  c.by_group = cvy_divider_make(call->group_size);
  fused_works works = {0}; /* wanted by devices of a dry run */
  if (cvy_device_is_dry_run(cvy_queue_device(queue))) works = works_for(&st->machine, job, c.band, call->n);
  cvy_launch_expect(queue, &works.filter);
  CVY_TRY(CVY_LAUNCH(queue, st->filter, cvy_conv_grid(((int64_t)rows * columns + ITEMS - 1) / ITEMS, ITEMS),
                     CVY_BUF(call->w), CVY_BUF(call->workspace), CVY_INT(rows), CVY_INT(columns),
                     CVY_INT(job->params.x.c), CVY_INT(job->params.k), CVY_INT(job->y.pitch), CVY_INT(job->data),
                     CVY_DIVIDER(columns)));
  cvy_launch_expect(queue, &works.multiply);
  CVY_TRY(CVY_LAUNCH(queue, st->multiply, cvy_conv_grid((int64_t)c.tile_blocks * c.filter_blocks, ITEMS),
                     CVY_BUF(call->in), CVY_BUF(call->affine), CVY_BUF(call->residual), CVY_BUF(call->workspace),
                     CVY_BUF(call->bias), CVY_BUF(call->out), CVY_BUF(call->workspace), CVY_STRUCT(c)));
  if (!c.has_stats) return CVY_OK;
  cvy_launch_expect(queue, &works.merge);
  CVY_TRY(CVY_LAUNCH(queue, st->merge, cvy_conv_grid(cvy_ceil_div(call->n * c.out.pitch, 64), 64),
                     CVY_BUF(call->workspace), CVY_BUF(call->stats), CVY_INT(c.stats_at), CVY_INT(call->n),
                     CVY_INT(st->per_image), CVY_INT(c.out.pitch), CVY_DIVIDER(c.out.pitch)));
fail:
  return status;
}

/* Products stay float32 with CVY_MATH_TF32. The bound is that of winograd2_simt. */
const cvy_conv_algorithm cvy_conv_winograd2_fused = {.name = "winograd2_fused",
                                                     .algo = CVY_CONV_WINOGRAD2_FUSED,
                                                     .file = "conv2d_winograd_fused",
                                                     .state_bytes = sizeof(fused_state),
                                                     .simt_shaped = true,
                                                     .filter = 3,
                                                     .most_stride = 1,
                                                     .most_pad = 2,
                                                     .no_weights = true,
                                                     .tile_out = 2,
                                                     .error_bound = 1.8e-6,
                                                     .tiles = bands,
                                                     .n_tiles = N_BANDS,
                                                     .can = can,
                                                     .cost = cost,
                                                     .create = create,
                                                     .expected = expected,
                                                     .run = run};
