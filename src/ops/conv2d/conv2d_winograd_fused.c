/* SPDX-License-Identifier: MIT
 * Launches of cl/winograd/conv2d_winograd_fused.cl and conv2d_winograd4_fused.cl: F(2x2,3x3) and F(4x4,3x3) with
 * stride 1 on SIMT devices, in one kernel behind the transform of the filters. backward_data is forward of dy with
 * turned filters and padding 2 - pad.
 *
 * Workspace, in floats: filters points*C'*K' (C' in steps of 4, K' in blocks of 32) | slots of statistics. */
#include "src/cl/dry_run.h"
#include "src/ops/conv2d/conv2d_simt_plan.h"
#include "src/ops/divider.h"
#include "src/ops/conv2d/math.h"

#include "cl/conv2d_fused_args.clh"

enum {
  FILTER_ITEMS = 256, /* of a work-group that transforms filters */
  BAND = 8            /* blocks of tiles that take the same block of filters one after the other */
};

/* A kernel: of a work-group, and per tile, the pixels that it loads: about half of the halo is another tile's. */
typedef struct fused_kernel {
  int tiles, items, local_bytes, pixels;
} fused_kernel;
static const fused_kernel two = {CVY_FUSED2_TILES, 256, 17 << 10, 6}, four = {CVY_FUSED4_TILES, 384, 37 << 10, 20},
                          few = {CVY_FUSED4_FEW_TILES, 192, 28 << 10, 20};

/* The tuner's candidates: {blocks of tiles in a band, tiles of a block}. With bands of 1, neighbours share pixels and
 * read other filters; with many, they share filters, and a small cache may lose the pixels before the next block of
 * filters reads them. Large blocks read the filters half as often as small ones, of which a compute unit holds two. */
static const int tiles_of2[][CVY_CONV_TILES] = {{1}, {64}};
static const int tiles_of4[][CVY_CONV_TILES] = {
    {1, CVY_FUSED4_TILES}, {64, CVY_FUSED4_TILES}, {8, CVY_FUSED4_FEW_TILES}, {64, CVY_FUSED4_FEW_TILES}};

typedef struct fused_works {
  cvy_launch_work filter, multiply, merge;
} fused_works;

typedef struct fused_state {
  cvy_conv_job job;
  cvy_simt_machine machine;
  const fused_kernel *kernel;
  int per_image;            /* tiles */
  cvy_conv_fused_call call; /* members that are the same in all calls */
  cvy_kernel *filter, *multiply, *merge;
} fused_state;

static bool fits(const cvy_capabilities *capabilities, const fused_kernel *k) {
  return capabilities->local_bytes >= (size_t)k->local_bytes && capabilities->max_work_group >= (size_t)k->items;
}

static bool fits_tile(cvy_device *device, const int *tile) {
  return fits(cvy_device_get_capabilities(device), tile[1] == CVY_FUSED4_TILES ? &four : &few);
}

static const char *can2(const cvy_conv_job *job) {
  return fits(job->base.capabilities, &two) ? NULL
                                            : "work-groups of 256 with 17 KiB of local memory do not fit the device";
}

/* On Intel's GPUs an item has 128 registers; its 96 sums, and pixels and filters of the next step, take more. */
static const char *can4(const cvy_conv_job *job) {
  if (job->base.capabilities->sub_group) return "its sums do not fit the registers of Intel's GPUs";
  return fits(job->base.capabilities, &few) ? NULL
                                            : "work-groups of 192 with 28 KiB of local memory do not fit the device";
}

static int out_of(const cvy_conv_job *job) { return job->algorithm->tile_out; }
static int points_of(const cvy_conv_job *job) { return (out_of(job) + 2) * (out_of(job) + 2); }
/* The kernel of a tile, or the default: large blocks where they fit. */
static const fused_kernel *kernel_of(const cvy_conv_job *job, const int *tile) {
  if (out_of(job) == 2) return &two;
  if (tile && tile[1]) return tile[1] == CVY_FUSED4_TILES ? &four : &few;
  return fits(job->base.capabilities, &four) ? &four : &few;
}

static int64_t blocks_of(int64_t n, int per_block) { return (n + per_block - 1) / per_block; }
static double bytes_of(const cvy_shape *s, int n) { return 4.0 * n * s->h * s->w * s->pitch; }

/* The launches of n samples. Sums are counted as tiles of 128x128, of which a compute unit holds two: a block of F(2)'s
 * tiles is one, a small one of F(4)'s a little more, a large one two of these on the same unit. Pixels and filters
 * come from memory once if the cache holds the pixels of a band, or all filters; else again for each block of filters,
 * or for each band. All groups read theirs, with pixels of halos, from the cache. */
static fused_works works_for(const cvy_simt_machine *m, const cvy_conv_job *job, const fused_kernel *kernel, int band,
                             int n) {
  const cvy_shape *const in = &job->in, *const out = &job->out;
  const cvy_simt_constants *const k = &m->constants;
  const int side = out_of(job), points = points_of(job);
  const double part = k->products[side == 2 ? CVY_PRODUCTS_FUSED2 : CVY_PRODUCTS_FUSED4][job->pass] *
                      (job->prologue ? k->fused_prologue : 1),
               HALO = 1.25;
  const double half_cache = (double)m->capabilities->cache_bytes / 2;
  const int64_t tiles = (int64_t)n * cvy_ceil_div(out->h, side) * cvy_ceil_div(out->w, side),
                blocks = blocks_of(tiles, kernel->tiles), filters = blocks_of(out->pitch, CVY_FUSED_FILTERS);
  const int depth = cvy_ceil_div(in->c, CVY_FUSED_CHANNELS) * CVY_FUSED_CHANNELS;
  const double groups = (double)(blocks * filters), u_block = 4.0 * points * CVY_FUSED_FILTERS * depth,
               band_pixels = 4.0 * side * side * kernel->tiles * band * depth;
  const double fma = groups * points * kernel->tiles * CVY_FUSED_FILTERS * depth,
               w = 4.0 * 9 * job->params.x.c * job->y.pitch, u = u_block * (double)filters;
  const double memory = bytes_of(in, n) * HALO * (band_pixels <= half_cache ? 1 : (double)filters) +
                        u * (u <= half_cache ? 1 : (double)blocks_of(blocks, band)) + bytes_of(out, n),
               cached = groups * (u_block + 4.0 * kernel->pixels * kernel->tiles * depth) * k->cache_time;
  const int64_t units = m->capabilities->compute_units,
                counted = kernel == &four ? 2 * blocks_of(blocks * filters, (int)units) * units : blocks * filters;
  const double counted_fma = kernel == &four ? fma / 2 * (double)counted / groups : fma;
  fused_works works = {.filter = cvy_simt_moves(m, w + u)};
  works.multiply = cvy_simt_products(m, part, (cvy_gemm_tile){128, 128, 8}, 1, counted, counted_fma, depth,
                                     memory > cached ? memory : cached);
  works.multiply.fma = fma, works.multiply.bytes = memory;
  if (kernel == &four) works.multiply.resident = 1;
  if (job->stats)
    works.merge = cvy_simt_moves(m, 4.0 * (CVY_FUSED_STATS * (double)(blocks + n) + 2.0 * n) * out->pitch);
  return works;
}

static double seconds_of(const fused_works *w) { return w->filter.seconds + w->multiply.seconds + w->merge.seconds; }

/* Expected time beside direct's. CPUs run work-items one after the other between two barriers and keep the sums of each
 * in memory meanwhile: ON_CPU is measured for F(2) (PoCL 3.1, 28x28x64 and 14x14x128). F(4) has more barriers and half
 * again as many sums: a CPU never takes it unasked. No card has run F(4) yet: it is to win by a tenth. */
static double cost(const cvy_conv_job *job) {
  const cvy_simt_machine machine = cvy_simt_machine_asked(job);
  const fused_works works = works_for(&machine, job, kernel_of(job, NULL), BAND, job->params.n_max);
  const double ON_CPU = 3, NOT_MEASURED = 1.1, direct = cvy_simt_direct_seconds(&machine, job),
               relative = direct > 0 ? seconds_of(&works) / direct : 2;
  const bool on_cpu = cvy_device_get_info(job->base.device)->kind == CVY_DEVICE_CPU, is_four = out_of(job) == 4;
  if (on_cpu && is_four) return ON_CPU * (relative > 1 ? relative : 1);
  return relative * (on_cpu ? ON_CPU : is_four ? NOT_MEASURED : 1);
}

static cvy_conv_expected expected(const void *state) {
  const fused_state *const st = state;
  const fused_works works = works_for(&st->machine, &st->job, st->kernel, st->call.band, st->job.params.n_max);
  return (cvy_conv_expected){1, seconds_of(&works), seconds_of(&works)};
}

static cvy_status create(void *state, const int *tile) {
  cvy_status status = CVY_OK;
  fused_state *const st = state;
  cvy_conv_job *const job = &st->job;
  const cvy_conv2d_params *const p = &job->params;
  cvy_conv_fused_call *const c = &st->call;
  const int side = out_of(job);
  st->kernel = kernel_of(job, tile);
  CVY_REQUIRE(fits(job->base.capabilities, st->kernel), CVY_E_ARGUMENT,
              "convolution: blocks of %d tiles want work-groups of %d and %d bytes of local memory; the device has %zu "
              "and %zu",
              st->kernel->tiles, st->kernel->items, st->kernel->local_bytes, job->base.capabilities->max_work_group,
              job->base.capabilities->local_bytes);
  st->machine = cvy_simt_machine_of(job->base.device, p->math);
  c->in = job->in, c->out = job->out;
  c->tiles_w = cvy_ceil_div(c->out.w, side), st->per_image = cvy_ceil_div(c->out.h, side) * c->tiles_w;
  c->filter_blocks = cvy_ceil_div(c->out.pitch, CVY_FUSED_FILTERS);
  c->steps = cvy_ceil_div(c->in.c, CVY_FUSED_CHANNELS);
  c->band = tile[0] ? tile[0] : BAND;
  c->pad_h = job->data ? 2 - p->pad_h : p->pad_h, c->pad_w = job->data ? 2 - p->pad_w : p->pad_w;
  c->flags = job->prologue, c->has_stats = job->stats;
  c->by_image = cvy_divider_make(st->per_image), c->by_row = cvy_divider_make(c->tiles_w);
  const int64_t u_floats =
                    (int64_t)points_of(job) * c->steps * CVY_FUSED_CHANNELS * c->filter_blocks * CVY_FUSED_FILTERS,
                tile_blocks = blocks_of((int64_t)p->n_max * st->per_image, st->kernel->tiles),
                slots = job->stats ? (tile_blocks + p->n_max) * CVY_FUSED_STATS * c->out.pitch : 0;
  CVY_TRY(cvy_conv_claim(job, u_floats + slots));
  c->stats_at = (int)u_floats;
  /* F(4)'s pixels are loaded in pairs of channels if all of them are in pairs. */
  const cvy_define defines[] = {{"PROLOGUE", cvy_conv_prologue_define(job)},
                                {"TILES", st->kernel->tiles},
                                {"VEC", c->in.c % 2 == 0 && c->in.pitch % 2 == 0 ? 2 : 1}};
  const int n_defines = side == 2 ? 1 : 3;
  CVY_TRY(cvy_conv_kernel(job, "winograd_fused_filter", defines, n_defines, &st->filter));
  CVY_TRY(cvy_conv_kernel(job, "winograd_fused_multiply", defines, n_defines, &st->multiply));
  if (job->stats) CVY_TRY(cvy_conv_kernel(job, "winograd_fused_merge", defines, n_defines, &st->merge));
fail:
  return status;
}

static cvy_status run(void *state, cvy_queue *queue, const cvy_conv_call *call) {
  cvy_status status = CVY_OK;
  fused_state *const st = state;
  const cvy_conv_job *const job = &st->job;
  cvy_conv_fused_call c = st->call;
  const int rows = c.steps * CVY_FUSED_CHANNELS, columns = c.filter_blocks * CVY_FUSED_FILTERS;
  c.tiles = call->n * st->per_image, c.tile_blocks = cvy_ceil_div(c.tiles, st->kernel->tiles);
  c.has_bias = call->bias != NULL, c.accumulate = call->accumulate;
  c.by_group = cvy_divider_make(call->group_size);
  fused_works works = {0}; /* wanted by devices of a dry run */
  if (cvy_device_is_dry_run(cvy_queue_device(queue))) works = works_for(&st->machine, job, st->kernel, c.band, call->n);
  cvy_launch_expect(queue, &works.filter);
  CVY_TRY(CVY_LAUNCH(queue, st->filter, cvy_conv_grid(blocks_of((int64_t)rows * columns, FILTER_ITEMS), FILTER_ITEMS),
                     CVY_BUF(call->w), CVY_BUF(call->workspace), CVY_INT(rows), CVY_INT(columns),
                     CVY_INT(job->params.x.c), CVY_INT(job->params.k), CVY_INT(job->y.pitch), CVY_INT(job->data),
                     CVY_DIVIDER(columns)));
  cvy_launch_expect(queue, &works.multiply);
  CVY_TRY(CVY_LAUNCH(queue, st->multiply, cvy_conv_grid((int64_t)c.tile_blocks * c.filter_blocks, st->kernel->items),
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

/* Products stay float32 with CVY_MATH_TF32. Bounds are those of winograd2_simt and winograd4_simt. */
#define WINOGRAD_FUSED                                                                                   \
  .state_bytes = sizeof(fused_state), .simt_shaped = true, .filter = 3, .most_stride = 1, .most_pad = 2, \
  .no_weights = true, .cost = cost, .create = create, .expected = expected, .run = run
const cvy_conv_algorithm cvy_conv_winograd2_fused = {.name = "winograd2_fused",
                                                     .algo = CVY_CONV_WINOGRAD2_FUSED,
                                                     .file = "conv2d_winograd_fused",
                                                     .tile_out = 2,
                                                     .error_bound = 1.8e-6,
                                                     .tiles = tiles_of2,
                                                     .n_tiles = sizeof tiles_of2 / sizeof *tiles_of2,
                                                     .can = can2,
                                                     WINOGRAD_FUSED};
const cvy_conv_algorithm cvy_conv_winograd4_fused = {.name = "winograd4_fused",
                                                     .algo = CVY_CONV_WINOGRAD4_FUSED,
                                                     .file = "conv2d_winograd4_fused",
                                                     .tile_out = 4,
                                                     .error_bound = 5.5e-6,
                                                     .tiles = tiles_of4,
                                                     .n_tiles = sizeof tiles_of4 / sizeof *tiles_of4,
                                                     .tile_fits = fits_tile,
                                                     .can = can4,
                                                     WINOGRAD_FUSED};
