/* SPDX-License-Identifier: MIT
 * Launches of cl/winograd/conv2d_winograd_weights_cpu.cl: blocks of channels, parts of the batch, and the workspace:
 *   partial dw and db of each part of the batch | a slice per work-group
 * Tile parameters: tiles of a strip, input channels of a task, output channels of a task (multiples of 16). */
#include "cl/conv2d_args.clh"
#include "src/ops/conv2d/conv2d_cpu.h"

enum {
  NEAR_FLOATS = 2 << 20,    /* wanted bound of x and dy of a part of the batch: of a third-level cache that is shared */
  PART_FLOATS_MAX = 8 << 20 /* bound of all partial dw together, where it can be kept */
};

typedef struct weights_state {
  cvy_conv2d_params params;
  cvy_shape y;
  int tile_side; /* 2 or 4 */
  int max_groups;
  cvy_kernel *main, *reduce;
  int strip, block_c, block_k;
  int tiles_per_image, blocks, max_splits, part_floats;
  int slices_at, slice_floats;
} weights_state;

static bool can(cvy_device *device, const cvy_conv2d_params *p, const cvy_shape *y, cvy_conv_pass pass,
                const char **why) {
  (void)device;
  const char *reason = NULL;
  if (!cvy_conv_is_plain(p, false, why)) return false;
  if (p->r != 3 || p->s != 3) reason = "only 3x3 filters";
  else if (p->stride_h != 1 || p->stride_w != 1) reason = "only stride 1";
  else if (p->pad_h > 2 || p->pad_w > 2) reason = "only padding 0 to 2";
  else if (p->x.pitch % 16 != 0 || y->pitch % 16 != 0) reason = "CPU kernels want pitches that are multiples of 16";
  else if (pass != CVY_CONV_BACKWARD_WEIGHTS) reason = "these kernels do backward_weights only";
  if (reason && why) *why = reason;
  return !reason;
}

/* Measured against direct_cpu with 16 to 512 channels: time per tile, times the work wasted in tiles at the border and
 * in blocks of 16 input channels, and the time of `back` tiles to transform dw back. A last tile counts by its
 * products. */
static double cost_of(const cvy_conv2d_params *p, const cvy_shape *y, int tile_side, double cost, double back) {
  const double tiles = (double)cvy_conv_line_products(tile_side, y->h) * cvy_conv_line_products(tile_side, y->w) /
                       ((tile_side + 2) * (tile_side + 2));
  const double covered = tiles * tile_side * tile_side / ((double)y->h * y->w);
  return cost * covered * (cvy_pitch_of(p->x.c) / (double)p->x.c) + back / (tiles * p->n_max);
}

static double cost2(cvy_device *device, const cvy_conv2d_params *p, const cvy_shape *y, cvy_conv_pass pass) {
  (void)device, (void)pass;
  return cost_of(p, y, 2, 0.65, 9.0);
}

static double cost4(cvy_device *device, const cvy_conv2d_params *p, const cvy_shape *y, cvy_conv_pass pass) {
  (void)device, (void)pass;
  return cost_of(p, y, 4, 0.43, 4.0);
}

static void destroy(void *state) {
  weights_state *const st = state;
  if (!st) return;
  cvy_kernel_destroy(&st->main);
  cvy_kernel_destroy(&st->reduce);
  cvy_free(st);
}

/* Largest multiple of 16 up to `most` that cuts `length` into even blocks. */
static int even_block(int length, int most) {
  const int parts = cvy_ceil_div(length, most);
  return (cvy_ceil_div(length, parts) + 15) / 16 * 16;
}

/* Parts of the batch: enough tasks for every work-group, evenly. A part's x and dy should stay in a cache while all
 * blocks of channels read them, unless the partial dw would cost as much. No part has a few tiles only: transforming
 * back would cost more than computing. */
static int splits_for(const weights_state *st, int n) {
  const int64_t tiles = (int64_t)n * st->tiles_per_image;
  const int64_t floats = (int64_t)n * (int64_t)(cvy_shape_elems(&st->params.x) + cvy_shape_elems(&st->y));
  int64_t most = tiles / (2 * st->strip);
  if (most > st->max_splits) most = st->max_splits;
  for (int splits = 1;; splits++) {
    const int64_t tasks = (int64_t)st->blocks * splits;
    const bool even = tasks >= 4 * (int64_t)st->max_groups || tasks % st->max_groups == 0;
    const bool near =
        st->blocks == 1 || floats / splits <= NEAR_FLOATS || (int64_t)(splits + 1) * st->part_floats > floats / 4;
    if (splits >= most || (even && near)) return splits;
  }
}

static cvy_status create(cvy_device *device, const cvy_conv2d_params *p, const cvy_shape *y, int tile_side,
                         const int *tile, void **state, size_t *workspace_bytes) {
  cvy_status status = CVY_OK;
  weights_state *const st = cvy_calloc(1, sizeof *st);
  CVY_REQUIRE(st, CVY_E_MEMORY, "convolution: out of memory for %zu bytes", sizeof *st);
  st->params = *p, st->y = *y, st->tile_side = tile_side;
  st->max_groups = cvy_conv_most_groups(cvy_device_get_capabilities(device)->compute_units);
  const bool cut = cvy_conv_edge_of(tile_side, y->h).cut || cvy_conv_edge_of(tile_side, y->w).cut;
  const bool wide = tile_side == 4 && p->x.c > 64;
  st->strip = tile[0] ? tile[0] : wide ? 16 : tile_side == 4 && !cut ? 14 : 32;
  st->block_c = even_block(p->x.c, tile[1] ? tile[1] : wide ? 128 : 64);
  st->block_k = even_block(y->pitch, tile[2] ? tile[2] : 64);
  st->tiles_per_image = cvy_ceil_div(y->h, tile_side) * cvy_ceil_div(y->w, tile_side);
  st->blocks = cvy_ceil_div(p->x.c, st->block_c) * cvy_ceil_div(y->pitch, st->block_k);
  const int64_t places = (int64_t)(tile_side + 2) * (tile_side + 2), part = ((int64_t)9 * p->x.c + 1) * y->pitch;
  const int64_t slice =
      places * ((int64_t)st->block_c * st->block_k + st->strip * (st->block_c + st->block_k) + 48) + st->block_k;
  CVY_REQUIRE(part <= INT32_MAX, CVY_E_ARGUMENT, "convolution: %lld floats of dw do not fit 32-bit indices",
              (long long)part);
  st->part_floats = (int)part;
  st->max_splits = 4 * st->max_groups;
  if (st->max_splits * part > PART_FLOATS_MAX) st->max_splits = (int)(PART_FLOATS_MAX / part + 1);
  st->max_splits = splits_for(st, p->n_max);
  const int64_t slices_at = st->max_splits > 1 ? st->max_splits * part : 0;
  const int64_t total = slices_at + slice * st->max_groups;
  CVY_REQUIRE(total <= INT32_MAX, CVY_E_ARGUMENT, "convolution: %lld floats of workspace do not fit 32-bit indices",
              (long long)total);
  st->slices_at = (int)slices_at, st->slice_floats = (int)slice;
  const cvy_define defines[] = {{"TILE", tile_side}, {"PROLOGUE", p->prologue != 0}};
  CVY_TRY(
      cvy_kernel_create(device, "conv2d_winograd_weights_cpu", "conv2d_winograd_weights_cpu", defines, 2, &st->main));
  CVY_TRY(cvy_conv_sum_parts_create(device, &st->reduce));
  *workspace_bytes = (size_t)total * sizeof(float);
  *state = st;
  return CVY_OK;
fail:
  destroy(st);
  return status;
}

static cvy_status create2(cvy_device *device, const cvy_conv2d_params *p, const cvy_shape *y, cvy_conv_pass pass,
                          const int *tile, void **state, size_t *workspace_bytes) {
  (void)pass;
  return create(device, p, y, 2, tile, state, workspace_bytes);
}

static cvy_status create4(cvy_device *device, const cvy_conv2d_params *p, const cvy_shape *y, cvy_conv_pass pass,
                          const int *tile, void **state, size_t *workspace_bytes) {
  (void)pass;
  return create(device, p, y, 4, tile, state, workspace_bytes);
}

static cvy_status run(void *state, cvy_queue *queue, const cvy_conv_call *call) {
  cvy_status status = CVY_OK;
  weights_state *const st = state;
  const cvy_conv2d_params *const p = &st->params;
  const int splits = cvy_conv_smaller(splits_for(st, call->n), st->max_splits);
  const int db_at = st->part_floats - st->y.pitch;
  const bool parts = splits > 1;
  const cvy_conv_edge h = cvy_conv_edge_of(st->tile_side, st->y.h), w = cvy_conv_edge_of(st->tile_side, st->y.w);
  const cvy_conv_edges edges = {.of_h = h.of, .of_w = w.of, .cut_h = h.cut, .cut_w = w.cut};
  const int flags = p->prologue | (call->db ? CVY_CPU_BIAS : 0) | (call->accumulate && !parts ? CVY_CPU_ACCUMULATE : 0);
  CVY_TRY(CVY_LAUNCH(queue, st->main, cvy_conv_groups_of_one(cvy_conv_smaller(st->blocks * splits, st->max_groups)),
                     CVY_BUF(call->x), CVY_BUF(call->affine), CVY_BUF(call->residual), CVY_BUF(call->dy),
                     CVY_BUF(parts ? call->workspace : call->dw), CVY_BUF(parts ? call->workspace : call->db),
                     CVY_BUF(call->workspace), CVY_INT(call->n), CVY_INT(p->x.h), CVY_INT(p->x.w), CVY_INT(p->x.c),
                     CVY_INT(p->x.pitch), CVY_INT(st->y.h), CVY_INT(st->y.w), CVY_INT(st->y.pitch), CVY_INT(p->pad_h),
                     CVY_INT(p->pad_w), CVY_INT(st->strip), CVY_INT(st->block_c), CVY_INT(st->block_k), CVY_INT(splits),
                     CVY_INT(parts ? st->part_floats : 0), CVY_INT(parts ? db_at : 0), CVY_INT(st->slices_at),
                     CVY_INT(st->slice_floats), CVY_INT(call->group_size), CVY_INT(flags), CVY_STRUCT(edges)));
  if (!parts) return CVY_OK;
  CVY_TRY(cvy_conv_sum_parts(st->reduce, queue, call, splits, st->part_floats, st->y.pitch, st->max_groups));
fail:
  return status;
}

/* For second-level caches of 512 KiB to 2 MiB. */
static const int tiles[][CVY_CONV_TILES] = {{24, 64, 32}, {24, 32, 64}, {32, 32, 32}, {16, 32, 32},
                                            {32, 64, 64}, {64, 64, 32}, {16, 128, 64}};

const cvy_conv_algorithm cvy_conv_winograd2_weights_cpu = {.name = "winograd2_weights_cpu",
                                                           .algo = CVY_CONV_WINOGRAD2,
                                                           .cpu_shaped = true,
                                                           .error_bound = 1.5e-6,
                                                           .tiles = tiles,
                                                           .n_tiles = sizeof tiles / sizeof tiles[0],
                                                           .can = can,
                                                           .cost = cost2,
                                                           .create = create2,
                                                           .destroy = destroy,
                                                           .run = run};

const cvy_conv_algorithm cvy_conv_winograd4_weights_cpu = {.name = "winograd4_weights_cpu",
                                                           .algo = CVY_CONV_WINOGRAD4,
                                                           .cpu_shaped = true,
                                                           .error_bound = 1.5e-6,
                                                           .tiles = tiles,
                                                           .n_tiles = sizeof tiles / sizeof tiles[0],
                                                           .can = can,
                                                           .cost = cost4,
                                                           .create = create4,
                                                           .destroy = destroy,
                                                           .run = run};
