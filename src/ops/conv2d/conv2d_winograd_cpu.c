/* SPDX-License-Identifier: MIT
 * Launches of cl/winograd/conv2d_winograd_cpu.cl: cuts a call into blocks of tiles and lays out the workspace:
 *   transformed weights | statistics of the parts of each image | a slice per work-group */
#include "cl/conv2d_args.clh"
#include "src/ops/conv2d/conv2d_algorithm.h"
#include "src/ops/conv2d/conv2d_cpu.h"

enum {
  ROWS = 14,                    /* tiles of a register tile */
  BLOCK = 32,                   /* output channels of a task */
  PANEL_GAP = 32,               /* as in the kernels */
  BLOCK_TILES = 14,             /* tiles per block, while the transformed weights stay in a second-level cache … */
  NEAR_WEIGHT_FLOATS = 1 << 18, /* … that is, up to so many; twice as many read them half as often … */
  WEIGHT_FLOATS = 4 << 20,      /* … from a third-level cache, up to so many; */
  LARGE_BLOCK_TILES = 56,       /* else as many as pay for reading the weights from memory */
  STRIDED_CHANNELS = 256,       /* of dy, or four times those of x, up to which stride 2 has twice as many tiles */
  LATE_TILES = 56,              /* a call of so few tiles transforms weights where it uses them */
  SLICE_FLOATS_SMALL = 1 << 18  /* slices up to this size: several per core */
};

/* Tile parameters: tiles per block (a multiple of ROWS; by default by shape). */
static const int tiles[][CVY_CONV_TILES] = {{14}, {28}, {56}, {112}};
enum { N_TILES = sizeof tiles / sizeof tiles[0] };

/* With stride 2, as in cl/winograd/winograd_strided.clh: `of` counts outputs of two taps. */
static cvy_conv_edge last_of_strided(bool forward, int pad, int in, int out) {
  enum { TILE_OUT = 4, CLOSED = TILE_OUT + 1 };
  static const int cut_points[] = {0x1f, 0x0e, 0x0a,
                                   0x04, 0,    0x04}; /* of the points 0, 1/2, -1, 2, infinity, by edge */
  const int side = forward ? TILE_OUT : 2 * TILE_OUT, rest = (out - 1) % side + 1, odd = pad % 2;
  cvy_conv_edge last = {0, 0};
  for (int i = 0; i < TILE_OUT; i++) {
    last.of += (forward ? i : 2 * i + odd) < rest;
    if ((forward ? i : 2 * i + !odd) >= rest) last.cut |= 1 << (TILE_OUT + 1 + i);
  }
  if (forward && out == TILE_OUT && pad >= 1 && 2 * TILE_OUT - pad >= in) last.of = CLOSED;
  last.cut |= cut_points[last.of];
  return last;
}

static cvy_conv_edge last_of(int tile_out, int stride, bool forward, int pad, int in, int out) {
  return stride == 1 ? cvy_conv_edge_of(tile_out, out) : last_of_strided(forward, pad, in, out);
}

typedef struct winograd_state {
  cvy_conv_job job;                   /* of the gather convolution: backward_data's input and output are dy and dx */
  int first_h, first_w, odd_h, odd_w; /* as in cvy_conv_winograd_call */
  cvy_conv_edge last_h, last_w;
  int planes, weight_planes, tiles_per_image;
  int block_tiles; /* the largest block */
  int stats_at, slices_at;
  cvy_kernel *main, *weights, *merge;
} winograd_state;

/* As in the kernels. */
static int padded_rows(int n) {
  const int rest = n % ROWS;
  return n - rest + (rest <= 12 ? cvy_ceil_div(rest, 4) * 4 : ROWS);
}

/* Geometry of one dimension, as the kernels have it: outputs and products of a tile, kinds of weights of these. */
typedef struct lines {
  int out, products, weights;
} lines;

static lines lines_of(int tile_out, int stride, bool forward) {
  if (stride == 1) return (lines){tile_out, tile_out + 2, tile_out + 2};
  return (lines){forward ? tile_out : 2 * tile_out, 2 * tile_out + 1, tile_out + 2};
}

static int tiles_of(int length, int tile_out) { return cvy_ceil_div(length, tile_out); }

/* Whether a call of n samples has too few tiles to pay for writing the transformed weights to memory. Its tasks are
 * blocks of output channels alone. */
static bool is_late(const winograd_state *st, int n) {
  return (int64_t)n * st->tiles_per_image <= LATE_TILES &&
         cvy_ceil_div(st->job.out.pitch, BLOCK) >= st->job.base.capabilities->compute_units;
}

/* Tiles per block for n samples: fewer if every compute unit would not get a block. */
static int plan_block(const winograd_state *st, int n) {
  if (is_late(st, n)) return n * st->tiles_per_image > ROWS ? n * st->tiles_per_image : ROWS;
  const int64_t share = ((int64_t)n * st->tiles_per_image + st->job.base.capabilities->compute_units - 1) /
                        st->job.base.capabilities->compute_units;
  if (share >= st->block_tiles) return st->block_tiles;
  return share > ROWS ? (int)share : ROWS;
}

/* Parts of an image in blocks of so many tiles, at most. */
static int parts_of(const winograd_state *st, int block_tiles) {
  return block_tiles % st->tiles_per_image == 0 ? 1 : (st->tiles_per_image - 2 + block_tiles) / block_tiles + 1;
}

static int64_t slice_floats_of(const winograd_state *st, int block_tiles) {
  const int64_t channels = (int64_t)cvy_ceil_div(st->job.in.c, 16) * 16, rows = padded_rows(block_tiles);
  return channels + st->planes * (channels * rows + 16) + st->planes * (rows * BLOCK + BLOCK);
}

/* Floats of transformed weights. */
static int64_t weight_floats_of(const winograd_state *st) {
  const int64_t full = st->job.out.pitch / BLOCK, rest = st->job.out.pitch % BLOCK;
  return st->weight_planes *
         (full * ((int64_t)st->job.in.c * BLOCK + PANEL_GAP) + (rest ? st->job.in.c * rest + PANEL_GAP : 0));
}

/* With stride 2 a tile has so many products that two register tiles of rows pay only with few channels: measured. */
static int largest_block(const winograd_state *st, int tile) {
  if (!tile && st->job.params.stride_h == 2)
    return st->job.in.c * (st->job.data ? 1 : 4) <= STRIDED_CHANNELS ? 2 * BLOCK_TILES : BLOCK_TILES;
  if (tile) return tile;
  const int64_t weights = weight_floats_of(st);
  return weights > WEIGHT_FLOATS ? LARGE_BLOCK_TILES : weights > NEAR_WEIGHT_FLOATS ? 2 * BLOCK_TILES : BLOCK_TILES;
}

static cvy_status create(void *state, const int *tile) {
  cvy_status status = CVY_OK;
  winograd_state *const st = state;
  cvy_conv_job *const job = &st->job;
  const cvy_conv2d_params *const p = &job->params;
  const cvy_shape *const in = &job->in, *const out = &job->out;
  const int stride = p->stride_h, tile_out = job->algorithm->tile_out;
  const bool forward = !job->data;
  const lines l = lines_of(tile_out, stride, forward);
  const cvy_define defines[] = {{"TILE_OUT", tile_out},
                                {"NARROW", out->pitch % BLOCK != 0},
                                {"STRIDE", stride},
                                {"BACK", stride == 2 && !forward}};
  enum { N_DEFINES = sizeof defines / sizeof *defines };
  bool known = tile[0] == 0;
  for (int i = 0; i < N_TILES; i++) known = known || tiles[i][0] == tile[0];
  CVY_REQUIRE(known, CVY_E_ARGUMENT, "convolution: winograd with %d tiles per block; 0, 14, 28, 56 or 112 are known",
              tile[0]);
  if (forward) {
    st->first_h = -p->pad_h, st->first_w = -p->pad_w;
  } else if (stride == 1) {
    st->first_h = p->pad_h - 2, st->first_w = p->pad_w - 2;
  } else {
    st->first_h = (p->pad_h + 1) / 2 - 1, st->first_w = (p->pad_w + 1) / 2 - 1;
    st->odd_h = p->pad_h % 2, st->odd_w = p->pad_w % 2;
  }
  st->last_h = last_of(tile_out, stride, forward, p->pad_h, in->h, out->h);
  st->last_w = last_of(tile_out, stride, forward, p->pad_w, in->w, out->w);
  st->planes = l.products * l.products, st->weight_planes = l.weights * l.weights;
  st->tiles_per_image = tiles_of(out->h, l.out) * tiles_of(out->w, l.out);
  st->block_tiles = largest_block(st, tile[0]);

  int block_tiles = 0;
  for (int n = p->n_max; n >= 1; n--)
    if (plan_block(st, n) > block_tiles) block_tiles = plan_block(st, n);
  const int64_t slice = slice_floats_of(st, block_tiles), weights = weight_floats_of(st);
  /* More groups than cores, so that a core that other programs use does not delay the end. */
  const int units = job->base.capabilities->compute_units;
  job->max_groups = units * (slice > SLICE_FLOATS_SMALL || units > 32 ? 1 : 4);
  int64_t stats = 0;
  if (job->stats) {
    /* Smaller blocks of smaller batches make more parts. */
    for (int n = p->n_max; n >= 1; n--) {
      const int parts = parts_of(st, plan_block(st, n));
      const int64_t floats = parts > 1 ? (int64_t)n * parts * 4 * out->pitch : 0;
      if (floats > stats) stats = floats;
    }
  }
  CVY_TRY(cvy_conv_claim(job, weights + stats + slice * job->max_groups));
  st->stats_at = (int)weights, st->slices_at = (int)(weights + stats);

  CVY_TRY(cvy_conv_kernel(job, "conv2d_winograd_cpu_gather", defines, N_DEFINES, &st->main));
  CVY_TRY(cvy_conv_kernel(job, forward ? "conv2d_winograd_cpu_weights" : "conv2d_winograd_cpu_weights_turned", defines,
                          N_DEFINES, &st->weights));
  if (job->stats) CVY_TRY(cvy_conv_kernel(job, "conv2d_winograd_cpu_merge_stats", defines, N_DEFINES, &st->merge));
fail:
  return status;
}

static cvy_status run(void *state, cvy_queue *queue, const cvy_conv_call *call) {
  cvy_status status = CVY_OK;
  winograd_state *const st = state;
  const cvy_conv_job *const job = &st->job;
  const cvy_shape *const in = &job->in, *const out = &job->out;
  const bool forward = !job->data;
  const int block_tiles = plan_block(st, call->n), parts = parts_of(st, block_tiles);
  const int blocks_k = cvy_ceil_div(out->pitch, BLOCK), most = 4 * job->base.capabilities->compute_units;
  int flags = call->flags;
  if (is_late(st, call->n)) {
    flags |= CVY_CPU_LATE | (forward ? 0 : CVY_CPU_TURNED);
  } else if (forward) {
    const int64_t rows = (int64_t)blocks_k * in->c;
    CVY_TRY(CVY_LAUNCH(queue, st->weights, cvy_conv_tasks((rows + 15) / 16, most), CVY_BUF(call->w),
                       CVY_BUF(call->workspace), CVY_INT(in->c), CVY_INT(out->pitch)));
  } else {
    const int64_t pieces = (int64_t)blocks_k * cvy_ceil_div(in->c, 16);
    CVY_TRY(CVY_LAUNCH(queue, st->weights, cvy_conv_tasks(pieces, most), CVY_BUF(call->w), CVY_BUF(call->workspace),
                       CVY_INT(out->c), CVY_INT(out->pitch), CVY_INT(in->c), CVY_INT(in->pitch)));
  }
  const int64_t tasks = ((int64_t)call->n * st->tiles_per_image + block_tiles - 1) / block_tiles * blocks_k;
  const cvy_conv_winograd_call c = {
      .in = *in,
      .out = *out,
      .n = call->n,
      .first_h = st->first_h,
      .first_w = st->first_w,
      .block_tiles = block_tiles,
      .edges = {.of_h = st->last_h.of, .of_w = st->last_w.of, .cut_h = st->last_h.cut, .cut_w = st->last_w.cut},
      .odd_h = st->odd_h,
      .odd_w = st->odd_w,
      .parts = parts,
      .stats_at = st->stats_at,
      .slices_at = st->slices_at,
      .slice_floats = (int)slice_floats_of(st, block_tiles),
      .group_size = call->group_size,
      .flags = flags};
  CVY_TRY(CVY_LAUNCH(queue, st->main, cvy_conv_tasks(tasks, job->max_groups), CVY_BUF(call->in), CVY_BUF(call->affine),
                     CVY_BUF(call->residual), CVY_BUF(call->bias), CVY_BUF(call->w), CVY_BUF(call->out),
                     CVY_BUF(call->stats), CVY_BUF(call->workspace), CVY_STRUCT(c)));
  if (st->merge && parts > 1)
    CVY_TRY(CVY_LAUNCH(queue, st->merge, cvy_conv_tasks(call->n, job->max_groups), CVY_BUF(call->workspace),
                       CVY_BUF(call->stats), CVY_STRUCT(c)));
fail:
  return status;
}

/* Outputs and taps of one dimension that meet in the image. */
static double valid_taps(int in, int out, int stride, int pad) {
  double n = 0;
  for (int at = -pad; at < out * stride - pad; at += stride)
    for (int r = 0; r < 3; r++) n += at + r >= 0 && at + r < in;
  return n;
}

/* Multiply-adds of one image and one pair of channels that direct's kernels do: with stride 1 those leave out filter
 * rows in the padding, with other strides filter columns, too, and take three quarters of the time. */
static double direct_work(const cvy_conv2d_params *p, const cvy_shape *y, bool forward) {
  const double rows = valid_taps(p->x.h, y->h, p->stride_h, p->pad_h);
  if (p->stride_h == 1) return rows * 3.0 * (forward ? y->w : p->x.w);
  return rows * valid_taps(p->x.w, y->w, p->stride_w, p->pad_w) / 0.75;
}

/* Products of one dimension of all tiles of an image. */
static int products_of(int in, int out, int tile_out, int stride, bool forward, int pad) {
  if (stride == 1) return cvy_conv_line_products(tile_out, out);
  const lines l = lines_of(tile_out, stride, forward);
  int n = tiles_of(out, l.out) * l.products;
  for (int cut = last_of_strided(forward, pad, in, out).cut; cut; cut &= cut - 1) n--;
  return n;
}

/* A model in units of multiply-adds: products at the rate of register tiles, a cost for each transformed element, and
 * once per call a cost for each transformed weight, which is higher if the weights do not stay in a cache. Its
 * constants are fitted to measurements of resnet18's layers at batches 1 to 256. */
static double cost(const cvy_conv_job *job) {
  static const double direct_rate = 0.85, product_rate = 0.9, transform = 30.0;
  const cvy_conv2d_params *const p = &job->params;
  const cvy_shape *const in = &job->in, *const out = &job->out;
  const bool forward = !job->data;
  const int tile_out = job->algorithm->tile_out;
  const lines l = lines_of(tile_out, p->stride_h, forward);
  const double weight_planes = (double)l.weights * l.weights, c = in->c, k = out->pitch;
  const double image_products = (double)products_of(in->h, out->h, tile_out, p->stride_h, forward, p->pad_h) *
                                products_of(in->w, out->w, tile_out, p->stride_w, forward, p->pad_w);
  const double image_tiles = (double)tiles_of(out->h, l.out) * tiles_of(out->w, l.out);
  const double weight = weight_planes * c * k > WEIGHT_FLOATS && image_tiles * p->n_max > LATE_TILES ? 50.0 : 15.0;
  const double padded =
      image_tiles * p->n_max < ROWS ? padded_rows((int)(image_tiles * p->n_max)) / (image_tiles * p->n_max) : 1.0;
  const double work = image_products * (padded * c * k / product_rate + transform * (cvy_pitch_of(in->c) + k)) +
                      weight_planes * weight * c * k / p->n_max;
  const double direct = direct_work(p, &job->y, forward) * c * k / direct_rate;
  return direct > 0 ? work / direct : 2.0;
}
#define WINOGRAD_CPU                                                                                        \
  .file = "conv2d_winograd_cpu", .state_bytes = sizeof(winograd_state), .tiles = tiles, .n_tiles = N_TILES, \
  .cpu_shaped = true, .filter = 3, .whole_pitch = true, .no_weights = true, .cost = cost, .create = create, .run = run
const cvy_conv_algorithm cvy_conv_winograd4_cpu = {.name = "winograd4_cpu",
                                                   .algo = CVY_CONV_WINOGRAD4,
                                                   .error_bound = 2.4e-6,
                                                   .most_stride = 2,
                                                   .tile_out = 4,
                                                   WINOGRAD_CPU};
const cvy_conv_algorithm cvy_conv_winograd2_cpu = {.name = "winograd2_cpu",
                                                   .algo = CVY_CONV_WINOGRAD2,
                                                   .error_bound = 7e-7,
                                                   .most_stride = 1,
                                                   .tile_out = 2,
                                                   WINOGRAD_CPU};
