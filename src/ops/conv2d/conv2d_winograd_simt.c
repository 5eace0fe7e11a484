/* SPDX-License-Identifier: MIT
 * Launches of cl/winograd/conv2d_winograd_simt.cl: F(2x2,3x3) and F(4x4,3x3) with stride 1 on SIMT devices.
 * backward_data is forward of dy with turned filters and padding 2 - pad.
 *
 * Samples go in chunks. Workspace, in floats, with a = m + 2 and t tiles per sample:
 *   forward, backward_data: filters a*a*C'*K' | input matrices a*a*chunk*t*C' | products a*a*chunk*t*K'
 *   backward_weights:       products of each part of the tiles a*a*C'*K' | input matrices | gradients' matrices
 * (C', K': channels and pitch in whole quads; sums of dy for the gradient of the bias lie behind everything; products
 * of parts of the depth lie one behind the other.) conv2d_simt_plan.h chooses the samples of a chunk and the parts. */
#include "src/cl/dry_run.h"
#include "src/ops/conv2d/conv2d_simt_plan.h"
#include "src/ops/divider.h"
#include "src/ops/conv2d/math.h"

#include "cl/conv2d_winograd_args.clh"

enum { OUTPUT_GROUPS = 4 }; /* of the output transform on a compute unit */

typedef struct winograd_state {
  cvy_conv_job job;
  int pad_h, pad_w;
  int tiles_h, tiles_w, per_image; /* tiles of the output; backward_weights: of dy */
  int part_floats;                 /* of a part of backward_weights' products */
  int input_at, out_at, sums_at;   /* in the workspace */
  cvy_simt_machine machine;
  cvy_simt_winograd plan;
  cvy_kernel *factors, *multiply;
  cvy_kernel *output; /* of forward and backward_data */
  cvy_kernel *dw;     /* of backward_weights */
} winograd_state;

/* Expected time beside direct's, of the shipped defaults. F(4x4)'s multiply-adds stay float32 with TF32. */
static double cost(const cvy_conv_job *job) {
  static const int shipped[CVY_CONV_TILES] = {0};
  const cvy_simt_machine machine = cvy_simt_machine_asked(job);
  const double direct = cvy_simt_direct_seconds(&machine, job);
  cvy_simt_winograd plan;
  if (direct <= 0 || cvy_simt_plan_winograd(&machine, &job->params, &job->y, job->pass, job->algorithm->tile_out,
                                            shipped, &plan) != CVY_OK)
    return 2;
  return plan.seconds / direct;
}

static cvy_conv_expected expected(const void *state) {
  const cvy_simt_winograd *const plan = &((const winograd_state *)state)->plan;
  return (cvy_conv_expected){plan->max_parts, plan->seconds, plan->whole_s};
}

/* Sets the places in the workspace. */
static cvy_status size_workspace(winograd_state *st) {
  const cvy_simt_winograd *const plan = &st->plan;
  const cvy_conv_job *const job = &st->job;
  const int64_t u_floats = (int64_t)plan->matrices * plan->in_pitch * plan->out_pitch,
                tiles = (int64_t)plan->matrices * plan->chunk * st->per_image, v_floats = tiles * plan->in_pitch,
                d_floats = tiles * plan->out_pitch;
  const int64_t first = job->weights ? plan->max_parts * u_floats : u_floats;
  int64_t rest = v_floats + d_floats * (job->weights ? 1 : plan->max_parts);
  int sums = 0;
  if (job->weights)
    (void)cvy_simt_sum_rows((int64_t)job->params.n_max * job->out.h * job->out.w, CVY_SIMT_WINOGRAD_SUMS, &sums);
  st->sums_at = (int)(first + rest);
  rest += (int64_t)sums * job->out.pitch;
  st->part_floats = (int)u_floats;
  st->input_at = (int)first, st->out_at = (int)(first + v_floats);
  return cvy_conv_claim(&st->job, first + rest);
}

static cvy_status create(void *state, const int *tile) {
  cvy_status status = CVY_OK;
  winograd_state *const st = state;
  cvy_conv_job *const job = &st->job;
  const cvy_conv2d_params *const p = &job->params;
  const int m = job->algorithm->tile_out;
  st->machine = cvy_simt_machine_of(job->base.device, p->math);
  st->pad_h = job->data ? 2 - p->pad_h : p->pad_h, st->pad_w = job->data ? 2 - p->pad_w : p->pad_w;
  st->tiles_h = cvy_ceil_div(job->out.h, m), st->tiles_w = cvy_ceil_div(job->out.w, m);
  st->per_image = st->tiles_h * st->tiles_w;
  CVY_TRY(cvy_simt_plan_winograd(&st->machine, p, &job->y, job->pass, m, tile, &st->plan));
  CVY_TRY(size_workspace(st));
  const int math = cvy_math_define(job->base.device, m == 2 ? p->math : CVY_MATH_FP32);
  const cvy_define transforms[] = {{"STAGE", 0}, {"TILE", m}, {"MATH", math}};
  const int n_transforms = m == 2 && p->math == CVY_MATH_TF32 ? 3 : 2; /* they round for TF32 */
  const cvy_define products[] = {{"STAGE", job->weights ? 2 : 1},
                                 {"TILE_M", st->plan.tile.m},
                                 {"TILE_N", st->plan.tile.n},
                                 {"TILE_K", st->plan.tile.k},
                                 {"MATH", math}};
  CVY_TRY(cvy_conv_kernel(job, "winograd_simt_multiply", products, math ? 5 : 4, &st->multiply));
  if (job->weights) {
    CVY_TRY(cvy_conv_kernel(job, "winograd_simt_factors", transforms, n_transforms, &st->factors));
    CVY_TRY(cvy_conv_kernel(job, "winograd_simt_dw", transforms, n_transforms, &st->dw));
  } else {
    CVY_TRY(cvy_conv_kernel(job, "winograd_simt_gather_factors", transforms, n_transforms, &st->factors));
    CVY_TRY(cvy_conv_kernel(job, "winograd_simt_output", transforms, n_transforms, &st->output));
  }
fail:
  return status;
}

static cvy_grid items_of(int64_t items) { return cvy_conv_grid((items + 255) / 256, 256); }

/* Channels of a work-group of the output transform. Few of them leave each item few tiles; 16 are whole lines of most
 * caches. An image with few tiles gives more channels, so that no item is without a tile. */
static int output_lanes(const winograd_state *st) {
  int lanes = 16;
  while (lanes < 256 && 256 / lanes > st->per_image) lanes *= 2;
  while (lanes > 1 && lanes / 2 >= st->job.out.pitch) lanes /= 2;
  return lanes;
}

/* Work-groups that share the tiles of an image where `groups` alone would leave compute units idle. Statistics of an
 * image are made by one group. */
static int output_pieces(const winograd_state *st, int lanes, int groups) {
  const int wanted = cvy_ceil_div(OUTPUT_GROUPS * st->machine.capabilities->compute_units, groups),
            rounds = cvy_ceil_div(st->per_image, 256 / lanes);
  return st->job.stats ? 1 : cvy_conv_smaller(wanted, rounds);
}

static cvy_winograd_tiles tiles_of(const winograd_state *st, int first, int n) {
  return (cvy_winograd_tiles){.first = first,
                              .n = n,
                              .per_row = st->tiles_w,
                              .per_image = st->per_image,
                              .by_image = cvy_divider_make(st->per_image),
                              .by_row = cvy_divider_make(st->tiles_w)};
}

static cvy_winograd_pixels pixels_of(const winograd_state *st, const cvy_conv_call *call, int first, int tiles) {
  return (cvy_winograd_pixels){.tiles = tiles_of(st, first, tiles),
                               .in = st->job.in,
                               .at = st->input_at,
                               .pitch = st->plan.in_pitch,
                               .pad_h = st->pad_h,
                               .pad_w = st->pad_w,
                               .flags = st->job.prologue,
                               .by_pitch = cvy_divider_make(st->plan.in_pitch),
                               .by_group = cvy_divider_make(call->group_size)};
}

/* Both factors of backward_weights for `tiles` tiles from sample `first` on. Columns of dy are summed once, in
 * front of the first chunk's tiles. */
static cvy_status run_factors(winograd_state *st, cvy_queue *queue, const cvy_conv_call *call, int first, int tiles) {
  const cvy_shape *const dy = &st->job.out;
  const int positions = call->n * dy->h * dy->w, pitch = st->plan.out_pitch;
  int sums;
  const int sum_rows = cvy_simt_sum_rows(positions, CVY_SIMT_WINOGRAD_SUMS, &sums);
  const cvy_winograd_pixels pixels = pixels_of(st, call, first, tiles);
  const cvy_winograd_gradients gradients = {
      .tiles = pixels.tiles,
      .out = *dy,
      .at = st->out_at,
      .pitch = pitch,
      .positions = positions,
      .sum_groups = call->db && first == 0 ? sums * cvy_ceil_div(dy->pitch, 64) : 0,
      .sum_rows = sum_rows,
      .sums_at = st->sums_at,
      .by_pitch = cvy_divider_make(pitch)};
  const int64_t inputs = ((int64_t)tiles * pixels.pitch + 255) / 256, outputs = ((int64_t)tiles * pitch + 255) / 256;
  return CVY_LAUNCH(queue, st->factors, cvy_conv_grid(gradients.sum_groups + inputs + outputs, 256), CVY_BUF(call->in),
                    CVY_BUF(call->affine), CVY_BUF(call->residual), CVY_BUF(call->dy), CVY_BUF(call->workspace),
                    CVY_STRUCT(pixels), CVY_STRUCT(gradients));
}

/* Both factors of forward or backward_data for `tiles` tiles from sample `first` on; the filters' with the first. */
static cvy_status run_gather_factors(winograd_state *st, cvy_queue *queue, const cvy_conv_call *call, int first,
                                     int tiles) {
  const cvy_conv_job *const job = &st->job;
  const cvy_winograd_pixels pixels = pixels_of(st, call, first, tiles);
  const cvy_winograd_filters filters = {.rows = st->plan.in_pitch,
                                        .pitch = st->plan.out_pitch,
                                        .channels = job->params.x.c,
                                        .filters = job->params.k,
                                        .w_pitch = job->y.pitch,
                                        .turned = job->data,
                                        .by_pitch = cvy_divider_make(st->plan.out_pitch)};
  const int64_t inputs = ((int64_t)tiles * pixels.pitch + 255) / 256,
                behind = first == 0 ? ((int64_t)filters.rows * filters.pitch + 255) / 256 : 0;
  return CVY_LAUNCH(queue, st->factors, cvy_conv_grid(inputs + behind, 256), CVY_BUF(call->in), CVY_BUF(call->affine),
                    CVY_BUF(call->residual), CVY_BUF(call->w), CVY_BUF(call->workspace), CVY_STRUCT(pixels),
                    CVY_STRUCT(filters));
}

/* The launches of a chunk from sample `first` on, for a device of a dry run. */
static cvy_simt_winograd_works works_of(const winograd_state *st, cvy_queue *queue, int first, int samples) {
  if (!cvy_device_is_dry_run(cvy_queue_device(queue))) return (cvy_simt_winograd_works){0};
  return cvy_simt_winograd_works_of(&st->machine, &st->job.params, &st->job.y, st->job.pass, &st->plan, samples,
                                    first == 0);
}

static cvy_status run_gather(winograd_state *st, cvy_queue *queue, const cvy_conv_call *call) {
  cvy_status status = CVY_OK;
  const cvy_conv_job *const job = &st->job;
  const cvy_shape *const out = &job->out;
  const int rows = st->plan.in_pitch, columns = st->plan.out_pitch, matrices = st->plan.matrices;
  const int lanes = output_lanes(st), blocks = cvy_ceil_div(out->pitch, lanes);
  for (int first = 0; first < call->n; first += st->plan.chunk) {
    const int samples = cvy_conv_smaller(st->plan.chunk, call->n - first), tiles = samples * st->per_image;
    const int64_t groups = (int64_t)cvy_ceil_div(tiles, st->plan.tile.m) * cvy_ceil_div(columns, st->plan.tile.n) *
                           matrices * st->plan.max_parts;
    const int m_floats = matrices * tiles * columns;
    const cvy_simt_winograd_works works = works_of(st, queue, first, samples);
    cvy_launch_expect(queue, &works.factors);
    CVY_TRY(run_gather_factors(st, queue, call, first, tiles));
    cvy_launch_expect(queue, &works.products);
    CVY_TRY(CVY_LAUNCH(
        queue, st->multiply, cvy_conv_grid(groups, cvy_gemm_items(st->plan.tile)), CVY_BUF(call->workspace),
        CVY_BUF(call->workspace), CVY_BUF(call->workspace), CVY_INT(st->input_at), CVY_INT(0), CVY_INT(st->out_at),
        CVY_INT(tiles), CVY_INT(rows), CVY_INT(columns), CVY_INT(rows), CVY_INT(tiles * rows), CVY_INT(rows * columns),
        CVY_INT(tiles * columns), CVY_INT(matrices), CVY_INT(st->plan.part_depth), CVY_INT(m_floats), CVY_INT(0)));
    cvy_launch_expect(queue, &works.output);
    const int pieces = output_pieces(st, lanes, samples * blocks);
    CVY_TRY(CVY_LAUNCH(queue, st->output, cvy_conv_grid((int64_t)samples * pieces * blocks, 256),
                       CVY_BUF(call->workspace), CVY_BUF(call->bias), CVY_BUF(call->out), CVY_BUF(call->stats),
                       CVY_INT(st->out_at), CVY_INT(first), CVY_INT(tiles), CVY_INT(st->tiles_h), CVY_INT(st->tiles_w),
                       CVY_INT(columns), CVY_INT(out->h), CVY_INT(out->w), CVY_INT(out->pitch), CVY_INT(lanes),
                       CVY_INT(pieces), CVY_DIVIDER(st->tiles_w), CVY_INT(call->bias != NULL),
                       CVY_INT(call->accumulate), CVY_INT(job->stats), CVY_INT(st->plan.max_parts), CVY_INT(m_floats)));
  }
fail:
  return status;
}

static cvy_status run_weights(winograd_state *st, cvy_queue *queue, const cvy_conv_call *call) {
  cvy_status status = CVY_OK;
  const cvy_shape *const x = &st->job.in, *const dy = &st->job.out;
  const int columns = st->plan.out_pitch, rows = st->plan.in_pitch, matrices = st->plan.matrices;
  /* Parts are cut for the first chunk; a smaller last one leaves its last parts as they are. */
  const int most_tiles = cvy_conv_smaller(st->plan.chunk, call->n) * st->per_image;
  int all_parts, sums;
  (void)cvy_simt_sum_rows((int64_t)call->n * dy->h * dy->w, CVY_SIMT_WINOGRAD_SUMS, &sums);
  const int per_part = cvy_simt_part_tiles(&st->plan, most_tiles, &all_parts);
  const cvy_launch_work dw = works_of(st, queue, 0, st->plan.chunk).dw;
  for (int first = 0; first < call->n; first += st->plan.chunk) {
    const int tiles = cvy_conv_smaller(st->plan.chunk, call->n - first) * st->per_image,
              parts = cvy_ceil_div(tiles, per_part);
    const int64_t groups =
        (int64_t)cvy_ceil_div(rows, st->plan.tile.m) * cvy_ceil_div(columns, st->plan.tile.n) * matrices * parts;
    const cvy_simt_winograd_works works = works_of(st, queue, first, tiles / st->per_image);
    cvy_launch_expect(queue, &works.factors);
    CVY_TRY(run_factors(st, queue, call, first, tiles));
    cvy_launch_expect(queue, &works.products);
    CVY_TRY(CVY_LAUNCH(
        queue, st->multiply, cvy_conv_grid(groups, cvy_gemm_items(st->plan.tile)), CVY_BUF(call->workspace),
        CVY_BUF(call->workspace), CVY_BUF(call->workspace), CVY_INT(st->input_at), CVY_INT(st->out_at), CVY_INT(0),
        CVY_INT(rows), CVY_INT(tiles), CVY_INT(columns), CVY_INT(rows), CVY_INT(tiles * rows), CVY_INT(tiles * columns),
        CVY_INT(rows * columns), CVY_INT(matrices), CVY_INT(per_part), CVY_INT(st->part_floats), CVY_INT(first > 0)));
  }
  cvy_launch_expect(queue, &dw);
  const int n_db = call->db ? dy->pitch : 0;
  CVY_TRY(CVY_LAUNCH(queue, st->dw, items_of((int64_t)x->c * dy->pitch + n_db), CVY_BUF(call->workspace),
                     CVY_BUF(call->dw), CVY_INT(all_parts), CVY_INT(st->part_floats), CVY_INT(rows), CVY_INT(columns),
                     CVY_INT(x->c), CVY_INT(dy->pitch), CVY_DIVIDER(dy->pitch), CVY_INT(call->accumulate),
                     CVY_BUF(call->db), CVY_INT(st->sums_at), CVY_INT(n_db), CVY_INT(sums)));
fail:
  return status;
}

static cvy_status run(void *state, cvy_queue *queue, const cvy_conv_call *call) {
  winograd_state *const st = state;
  return st->job.weights ? run_weights(st, queue, call) : run_gather(st, queue, call);
}

/* {m, n, k, samples}: the products' tiles, with as many samples at once as the planner thinks best, as the cache holds,
 * and all that memory allows. */
#define TILES_OF(samples) \
  {128, 128, 8, samples}, {128, 64, 4, samples}, { 64, 64, 4, samples }
enum { WINOGRAD_TILES = 3 * CVY_GEMM_TILES };
static const int winograd_tiles[WINOGRAD_TILES][CVY_CONV_TILES] = {
    TILES_OF(CVY_SIMT_CHUNK_PLANNED), TILES_OF(CVY_SIMT_CHUNK_CACHED), TILES_OF(CVY_SIMT_CHUNK_WHOLE)};

/* F(4x4)'s products stay float32 with CVY_MATH_TF32: its transforms would make 3e-3 of their rounding (by simulation),
 * more than the stated bound. Tiles are those of the products. The bounds are stated with room, not measured:
 * transforms multiply rounding errors by the sums of rows of Bt, G and At. src/ref/case_conv2d.c has the bounds by
 * which tests check each element. */
#define WINOGRAD_SIMT                                                                                        \
  .file = "conv2d_winograd_simt", .state_bytes = sizeof(winograd_state), .tiles = winograd_tiles,            \
  .n_tiles = WINOGRAD_TILES, .tile_fits = cvy_gemm_fits, .simt_shaped = true, .filter = 3, .most_stride = 1, \
  .most_pad = 2, .cost = cost, .create = create, .expected = expected, .run = run
const cvy_conv_algorithm cvy_conv_winograd2_simt = {.name = "winograd2_simt",
                                                    .algo = CVY_CONV_WINOGRAD2,
                                                    .error_bound = 1.8e-6,
                                                    .tf32_error_bound = CVY_TF32_ERROR_BOUND,
                                                    .tile_out = 2,
                                                    WINOGRAD_SIMT};
const cvy_conv_algorithm cvy_conv_winograd4_simt = {
    .name = "winograd4_simt", .algo = CVY_CONV_WINOGRAD4, .error_bound = 5.5e-6, .tile_out = 4, WINOGRAD_SIMT};
