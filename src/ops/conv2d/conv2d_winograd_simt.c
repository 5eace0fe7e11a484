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

enum { OUTPUT_GROUPS = 4 }; /* of the output transform on a compute unit */

typedef struct winograd_state {
  cvy_conv_pass pass;
  cvy_shape in, out; /* of the input and the output; backward_weights: of x and dy */
  int channels, filters, w_pitch, pad_h, pad_w, prologue;
  bool stats;
  int m, matrices;                 /* m*m outputs per tile; (m+2)^2 */
  int tiles_h, tiles_w, per_image; /* tiles of out */
  int in_pitch, out_pitch;         /* of the matrices: quads */
  int part_floats;                 /* of a part of backward_weights */
  int input_at, out_at, sums_at;   /* in the workspace */
  cvy_conv2d_params params;
  cvy_shape y;
  cvy_simt_machine machine;
  cvy_simt_winograd plan;
  cvy_kernel *filter, *input, *second, *multiply, *dw; /* second: output, or gradient */
} winograd_state;

static int quads(int n) { return (n + 3) / 4 * 4; }

static bool can(cvy_device *device, const cvy_conv2d_params *p, const cvy_shape *y, cvy_conv_pass pass,
                const char **why) {
  const char *reason = NULL;
  if (!cvy_conv_is_plain(p, false, why)) return false;
  (void)y, (void)pass;
  if (cvy_device_get_capabilities(device)->cpu_shaped) reason = "these kernels are for SIMT devices";
  else if (p->r != 3 || p->s != 3) reason = "only 3x3 filters";
  else if (p->stride_h != 1 || p->stride_w != 1) reason = "only stride 1";
  else if (p->pad_h > 2 || p->pad_w > 2) reason = "only padding up to 2";
  if (reason && why) *why = reason;
  return !reason;
}

static bool tile_fits(cvy_device *device, const int *tile) {
  return cvy_gemm_tile_fits(cvy_device_get_capabilities(device), (cvy_gemm_tile){tile[0], tile[1], tile[2]});
}

/* Expected time beside direct's, of the shipped defaults. F(4x4)'s multiply-adds stay float32 with TF32. */
static double cost_of(cvy_device *device, const cvy_conv2d_params *p, const cvy_shape *y, cvy_conv_pass pass, int m) {
  static const int shipped[CVY_CONV_TILES] = {0};
  const cvy_simt_machine machine = cvy_simt_machine_of(device, cvy_math_resolve(device, p->math));
  cvy_simt_direct direct;
  cvy_simt_winograd winograd;
  if (cvy_simt_plan_direct(&machine, p, y, pass, shipped, &direct) != CVY_OK ||
      cvy_simt_plan_winograd(&machine, p, y, pass, m, shipped, &winograd) != CVY_OK)
    return 2;
  return winograd.seconds / direct.seconds;
}
static double cost2(cvy_device *device, const cvy_conv2d_params *p, const cvy_shape *y, cvy_conv_pass pass) {
  return cost_of(device, p, y, pass, 2);
}
static double cost4(cvy_device *device, const cvy_conv2d_params *p, const cvy_shape *y, cvy_conv_pass pass) {
  return cost_of(device, p, y, pass, 4);
}

static void destroy(void *state) {
  winograd_state *const st = state;
  if (!st) return;
  cvy_kernel **const kernels[] = {&st->filter, &st->input, &st->second, &st->multiply, &st->dw};
  for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++) cvy_kernel_destroy(kernels[i]);
  cvy_free(st);
}

static cvy_conv_expected expected(const void *state) {
  const cvy_simt_winograd *const plan = &((const winograd_state *)state)->plan;
  return (cvy_conv_expected){plan->max_parts, plan->seconds, plan->whole_s};
}

/* Sets the places in the workspace. */
static cvy_status size_workspace(winograd_state *st, size_t *workspace_bytes) {
  cvy_status status = CVY_OK;
  const cvy_simt_winograd *const plan = &st->plan;
  const bool weights = st->pass == CVY_CONV_BACKWARD_WEIGHTS;
  const int64_t u_floats = (int64_t)st->matrices * st->in_pitch * st->out_pitch,
                tiles = (int64_t)st->matrices * plan->chunk * st->per_image, v_floats = tiles * st->in_pitch,
                d_floats = tiles * st->out_pitch;
  const int64_t first = weights ? plan->max_parts * u_floats : u_floats;
  int64_t rest = v_floats + d_floats * (weights ? 1 : plan->max_parts);
  int sums = 0;
  if (weights) (void)cvy_simt_sum_rows((int64_t)st->params.n_max * st->out.h * st->out.w, &sums);
  st->sums_at = (int)(first + rest);
  rest += (int64_t)sums * st->out.pitch;
  CVY_REQUIRE(first + rest <= INT32_MAX, CVY_E_ARGUMENT,
              "convolution: %lld floats of workspace do not fit 32-bit indices", (long long)(first + rest));
  st->part_floats = (int)u_floats;
  st->input_at = (int)first, st->out_at = (int)(first + v_floats);
  *workspace_bytes = (size_t)(first + rest) * sizeof(float);
fail:
  return status;
}

static cvy_status create(cvy_device *device, const cvy_conv2d_params *p, const cvy_shape *y, cvy_conv_pass pass,
                         const int *tile, int m, void **state, size_t *workspace_bytes) {
  cvy_status status = CVY_OK;
  static const char *const file = "conv2d_winograd_simt";
  const bool data = pass == CVY_CONV_BACKWARD_DATA, weights = pass == CVY_CONV_BACKWARD_WEIGHTS;
  winograd_state *const st = cvy_calloc(1, sizeof *st);
  CVY_REQUIRE(st, CVY_E_MEMORY, "convolution: out of memory for %zu bytes", sizeof *st);
  st->params = *p, st->y = *y, st->machine = cvy_simt_machine_of(device, p->math);
  st->pass = pass, st->m = m, st->matrices = (m + 2) * (m + 2);
  st->in = data ? *y : p->x, st->out = data ? p->x : *y;
  st->channels = p->x.c, st->filters = p->k, st->w_pitch = y->pitch;
  st->pad_h = data ? 2 - p->pad_h : p->pad_h, st->pad_w = data ? 2 - p->pad_w : p->pad_w;
  st->prologue = data ? 0 : p->prologue, st->stats = pass == CVY_CONV_FORWARD && p->stats;
  st->tiles_h = cvy_ceil_div(st->out.h, m), st->tiles_w = cvy_ceil_div(st->out.w, m);
  st->per_image = st->tiles_h * st->tiles_w;
  st->in_pitch = quads(st->in.c), st->out_pitch = quads(st->out.pitch);
  CVY_TRY(cvy_simt_plan_winograd(&st->machine, p, y, pass, m, tile, &st->plan));
  CVY_TRY(size_workspace(st, workspace_bytes));
  const int math = cvy_math_define(device, m == 2 ? p->math : CVY_MATH_FP32);
  const cvy_define transforms[] = {{"STAGE", 0}, {"TILE", m}, {"MATH", math}};
  const int n_transforms = m == 2 && p->math == CVY_MATH_TF32 ? 3 : 2; /* they round for TF32 */
  const cvy_define products[] = {{"STAGE", weights ? 2 : 1},
                                 {"TILE_M", st->plan.tile.m},
                                 {"TILE_N", st->plan.tile.n},
                                 {"TILE_K", st->plan.tile.k},
                                 {"MATH", math}};
  CVY_TRY(cvy_kernel_create(device, file, "winograd_simt_input", transforms, n_transforms, &st->input));
  CVY_TRY(cvy_kernel_create(device, file, weights ? "winograd_simt_gradient" : "winograd_simt_output", transforms,
                            n_transforms, &st->second));
  CVY_TRY(cvy_kernel_create(device, file, "winograd_simt_multiply", products, math ? 5 : 4, &st->multiply));
  if (weights) {
    CVY_TRY(cvy_kernel_create(device, file, "winograd_simt_dw", transforms, n_transforms, &st->dw));
  } else CVY_TRY(cvy_kernel_create(device, file, "winograd_simt_filter", transforms, n_transforms, &st->filter));
  *state = st;
  return CVY_OK;
fail:
  destroy(st);
  return status;
}
static cvy_status create2(cvy_device *device, const cvy_conv2d_params *p, const cvy_shape *y, cvy_conv_pass pass,
                          const int *tile, void **state, size_t *workspace_bytes) {
  return create(device, p, y, pass, tile, 2, state, workspace_bytes);
}
static cvy_status create4(cvy_device *device, const cvy_conv2d_params *p, const cvy_shape *y, cvy_conv_pass pass,
                          const int *tile, void **state, size_t *workspace_bytes) {
  return create(device, p, y, pass, tile, 4, state, workspace_bytes);
}

static cvy_grid groups_of(int64_t groups, int items) {
  return (cvy_grid){.global = {(size_t)groups * (size_t)items, 1, 1}, .local = {(size_t)items, 1, 1}};
}
static cvy_grid items_of(int64_t items) { return groups_of((items + 255) / 256, 256); }

/* Channels of a work-group of the output transform. Few of them leave each item few tiles; 16 are whole lines of most
 * caches. An image with few tiles gives more channels, so that no item is without a tile. */
static int output_lanes(const winograd_state *st) {
  int lanes = 16;
  while (lanes < 256 && 256 / lanes > st->per_image) lanes *= 2;
  while (lanes > 1 && lanes / 2 >= st->out.pitch) lanes /= 2;
  return lanes;
}

/* Work-groups that share the tiles of an image where `groups` alone would leave compute units idle. Statistics of an
 * image are made by one group. */
static int output_pieces(const winograd_state *st, int lanes, int groups) {
  const int wanted = cvy_ceil_div(OUTPUT_GROUPS * st->machine.capabilities->compute_units, groups),
            rounds = cvy_ceil_div(st->per_image, 256 / lanes);
  return st->stats ? 1 : cvy_conv_smaller(wanted, rounds);
}

/* Pixels of `tiles` tiles from sample `first` on. */
static cvy_status run_input(winograd_state *st, cvy_queue *queue, const cvy_conv_call *call, int first, int tiles) {
  cvy_buffer *const from = st->pass == CVY_CONV_BACKWARD_DATA ? call->dy : call->x;
  return CVY_LAUNCH(queue, st->input, items_of((int64_t)tiles * st->in_pitch), CVY_BUF(from), CVY_BUF(call->affine),
                    CVY_BUF(call->residual), CVY_BUF(call->workspace), CVY_INT(st->input_at), CVY_INT(first),
                    CVY_INT(tiles), CVY_INT(st->tiles_h), CVY_INT(st->tiles_w), CVY_INT(st->in_pitch),
                    CVY_INT(st->in.h), CVY_INT(st->in.w), CVY_INT(st->in.c), CVY_INT(st->in.pitch), CVY_INT(st->pad_h),
                    CVY_INT(st->pad_w), CVY_DIVIDER(st->in_pitch), CVY_DIVIDER(st->per_image), CVY_DIVIDER(st->tiles_w),
                    CVY_DIVIDER(call->group_size), CVY_INT(st->prologue));
}

/* The launches of a chunk, for a device on paper. */
static cvy_simt_winograd_works works_of(const winograd_state *st, cvy_queue *queue, int samples) {
  if (!cvy_device_is_dry_run(cvy_queue_device(queue))) return (cvy_simt_winograd_works){0};
  return cvy_simt_winograd_works_of(&st->machine, &st->params, &st->y, st->pass, &st->plan, samples);
}

static cvy_status run_gather(winograd_state *st, cvy_queue *queue, const cvy_conv_call *call) {
  cvy_status status = CVY_OK;
  const bool turned = st->pass == CVY_CONV_BACKWARD_DATA;
  const int columns = st->out_pitch;
  const int lanes = output_lanes(st), blocks = cvy_ceil_div(st->out.pitch, lanes);
  const cvy_launch_work once = works_of(st, queue, st->plan.chunk).once;
  cvy_launch_expect(queue, &once);
  CVY_TRY(CVY_LAUNCH(queue, st->filter, items_of((int64_t)st->in_pitch * columns), CVY_BUF(call->w),
                     CVY_BUF(call->workspace), CVY_INT(0), CVY_INT(st->in_pitch), CVY_INT(columns),
                     CVY_INT(st->channels), CVY_INT(st->filters), CVY_INT(st->w_pitch), CVY_INT(turned),
                     CVY_DIVIDER(columns)));
  for (int first = 0; first < call->n; first += st->plan.chunk) {
    const int samples = cvy_conv_smaller(st->plan.chunk, call->n - first), tiles = samples * st->per_image;
    const int64_t groups = (int64_t)cvy_ceil_div(tiles, st->plan.tile.m) * cvy_ceil_div(columns, st->plan.tile.n) *
                           st->matrices * st->plan.max_parts;
    const int m_floats = st->matrices * tiles * columns;
    const cvy_simt_winograd_works works = works_of(st, queue, samples);
    cvy_launch_expect(queue, &works.input);
    CVY_TRY(run_input(st, queue, call, first, tiles));
    cvy_launch_expect(queue, &works.products);
    CVY_TRY(CVY_LAUNCH(queue, st->multiply, groups_of(groups, cvy_gemm_items(st->plan.tile)), CVY_BUF(call->workspace),
                       CVY_BUF(call->workspace), CVY_BUF(call->workspace), CVY_INT(st->input_at), CVY_INT(0),
                       CVY_INT(st->out_at), CVY_INT(tiles), CVY_INT(st->in_pitch), CVY_INT(columns),
                       CVY_INT(st->in_pitch), CVY_INT(tiles * st->in_pitch), CVY_INT(st->in_pitch * columns),
                       CVY_INT(tiles * columns), CVY_INT(st->matrices), CVY_INT(st->plan.part_depth), CVY_INT(m_floats),
                       CVY_INT(0)));
    cvy_launch_expect(queue, &works.second);
    const int pieces = output_pieces(st, lanes, samples * blocks);
    CVY_TRY(CVY_LAUNCH(queue, st->second, groups_of((int64_t)samples * pieces * blocks, 256), CVY_BUF(call->workspace),
                       CVY_BUF(call->bias), CVY_BUF(turned ? call->dx : call->y), CVY_BUF(call->stats),
                       CVY_INT(st->out_at), CVY_INT(first), CVY_INT(tiles), CVY_INT(st->tiles_h), CVY_INT(st->tiles_w),
                       CVY_INT(columns), CVY_INT(st->out.h), CVY_INT(st->out.w), CVY_INT(st->out.pitch), CVY_INT(lanes),
                       CVY_INT(pieces), CVY_DIVIDER(st->tiles_w), CVY_INT(call->bias != NULL),
                       CVY_INT(call->accumulate), CVY_INT(st->stats), CVY_INT(st->plan.max_parts), CVY_INT(m_floats)));
  }
fail:
  return status;
}

static cvy_status run_weights(winograd_state *st, cvy_queue *queue, const cvy_conv_call *call) {
  cvy_status status = CVY_OK;
  const int columns = st->out_pitch, rows = st->in_pitch;
  /* Parts are cut for the first chunk; a smaller last one leaves its last parts as they are. */
  const int most_tiles = cvy_conv_smaller(st->plan.chunk, call->n) * st->per_image;
  int all_parts, sums;
  const int sum_rows = cvy_simt_sum_rows((int64_t)call->n * st->out.h * st->out.w, &sums);
  const int per_part = cvy_simt_part_tiles(&st->plan, most_tiles, &all_parts);
  const cvy_launch_work once = works_of(st, queue, st->plan.chunk).once;
  for (int first = 0; first < call->n; first += st->plan.chunk) {
    const int tiles = cvy_conv_smaller(st->plan.chunk, call->n - first) * st->per_image,
              parts = cvy_ceil_div(tiles, per_part);
    const int64_t groups =
        (int64_t)cvy_ceil_div(rows, st->plan.tile.m) * cvy_ceil_div(columns, st->plan.tile.n) * st->matrices * parts;
    const cvy_simt_winograd_works works = works_of(st, queue, tiles / st->per_image);
    cvy_launch_expect(queue, &works.input);
    CVY_TRY(run_input(st, queue, call, first, tiles));
    cvy_launch_expect(queue, &works.second);
    /* columns of dy are summed once, behind the first chunk's tiles */
    const int64_t summing = call->db && first == 0 ? (int64_t)sums * cvy_ceil_div(st->out.pitch, 64) : 0;
    CVY_TRY(CVY_LAUNCH(queue, st->second, groups_of(((int64_t)tiles * columns + 255) / 256 + summing, 256),
                       CVY_BUF(call->dy), CVY_BUF(call->workspace), CVY_INT(st->out_at), CVY_INT(first), CVY_INT(tiles),
                       CVY_INT(st->tiles_h), CVY_INT(st->tiles_w), CVY_INT(columns), CVY_INT(st->out.h),
                       CVY_INT(st->out.w), CVY_INT(st->out.pitch), CVY_DIVIDER(columns), CVY_DIVIDER(st->per_image),
                       CVY_DIVIDER(st->tiles_w), CVY_INT(call->n * st->out.h * st->out.w), CVY_INT(sum_rows),
                       CVY_INT(st->sums_at)));
    cvy_launch_expect(queue, &works.products);
    CVY_TRY(CVY_LAUNCH(queue, st->multiply, groups_of(groups, cvy_gemm_items(st->plan.tile)), CVY_BUF(call->workspace),
                       CVY_BUF(call->workspace), CVY_BUF(call->workspace), CVY_INT(st->input_at), CVY_INT(st->out_at),
                       CVY_INT(0), CVY_INT(rows), CVY_INT(tiles), CVY_INT(columns), CVY_INT(rows),
                       CVY_INT(tiles * rows), CVY_INT(tiles * columns), CVY_INT(rows * columns), CVY_INT(st->matrices),
                       CVY_INT(per_part), CVY_INT(st->part_floats), CVY_INT(first > 0)));
  }
  cvy_launch_expect(queue, &once);
  const int n_db = call->db ? st->out.pitch : 0;
  CVY_TRY(CVY_LAUNCH(queue, st->dw, items_of((int64_t)st->channels * st->w_pitch + n_db), CVY_BUF(call->workspace),
                     CVY_BUF(call->dw), CVY_INT(all_parts), CVY_INT(st->part_floats), CVY_INT(rows), CVY_INT(columns),
                     CVY_INT(st->channels), CVY_INT(st->w_pitch), CVY_DIVIDER(st->w_pitch), CVY_INT(call->accumulate),
                     CVY_BUF(call->db), CVY_INT(st->sums_at), CVY_INT(n_db), CVY_INT(sums)));
fail:
  return status;
}

static cvy_status run(void *state, cvy_queue *queue, const cvy_conv_call *call) {
  winograd_state *const st = state;
  return st->pass == CVY_CONV_BACKWARD_WEIGHTS ? run_weights(st, queue, call) : run_gather(st, queue, call);
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
const cvy_conv_algorithm cvy_conv_winograd2_simt = {.name = "winograd2_simt",
                                                    .algo = CVY_CONV_WINOGRAD2,
                                                    .error_bound = 1.8e-6,
                                                    .tf32_error_bound = CVY_TF32_ERROR_BOUND,
                                                    .tiles = winograd_tiles,
                                                    .n_tiles = WINOGRAD_TILES,
                                                    .tile_fits = tile_fits,
                                                    .can = can,
                                                    .cost = cost2,
                                                    .create = create2,
                                                    .expected = expected,
                                                    .destroy = destroy,
                                                    .run = run};
const cvy_conv_algorithm cvy_conv_winograd4_simt = {.name = "winograd4_simt",
                                                    .algo = CVY_CONV_WINOGRAD4,
                                                    .error_bound = 5.5e-6,
                                                    .tiles = winograd_tiles,
                                                    .n_tiles = WINOGRAD_TILES,
                                                    .tile_fits = tile_fits,
                                                    .can = can,
                                                    .cost = cost4,
                                                    .create = create4,
                                                    .expected = expected,
                                                    .destroy = destroy,
                                                    .run = run};
