/* SPDX-License-Identifier: MIT
 * Launches of cl/winograd/conv2d_winograd_weights_cpu.cl: blocks of channels, parts of the batch, and the workspace:
 *   partial dw and db of each part of the batch | a slice per work-group
 * Tile parameters: tiles of a strip, input channels of a task, output channels of a task (multiples of 16). */
#include "cl/conv2d_args.clh"
#include "src/ops/conv2d/conv2d_algorithm.h"
#include "src/ops/conv2d/conv2d_cpu.h"

enum {
  NEAR_FLOATS = 2 << 20,    /* wanted bound of x and dy of a part of the batch: of a third-level cache that is shared */
  PART_FLOATS_MAX = 8 << 20 /* bound of all partial dw together, where it can be kept */
};

typedef struct weights_state {
  cvy_conv_job job;
  cvy_kernel *main;
  int strip, block_c, block_k;
  int tiles_per_image, blocks;
  int slices_at, slice_floats;
} weights_state;

/* Measured against direct_cpu with 16 to 512 channels: time per tile, times the work wasted in tiles at the border and
 * in blocks of 16 input channels, and the time of `back` tiles to transform dw back. A last tile counts by its
 * products. */
static double cost(const cvy_conv_job *job) {
  const cvy_conv2d_params *const p = &job->params;
  const cvy_shape *const y = &job->y;
  const int side = job->algorithm->tile_out;
  const double per_tile = side == 2 ? 0.65 : 0.43, back = side == 2 ? 9.0 : 4.0;
  const double tiles =
      (double)cvy_conv_line_products(side, y->h) * cvy_conv_line_products(side, y->w) / ((side + 2) * (side + 2));
  const double covered = tiles * side * side / ((double)y->h * y->w);
  return per_tile * covered * (cvy_pitch_of(p->x.c) / (double)p->x.c) + back / (tiles * p->n_max);
}

/* Largest multiple of 16 up to `most` that cuts `length` into even blocks. */
static int even_block(int length, int most) {
  const int parts = cvy_ceil_div(length, most);
  return (cvy_ceil_div(length, parts) + 15) / 16 * 16;
}

/* Parts of the batch: enough tasks for every work-group, evenly. A part's x and dy should stay in a cache while all
 * blocks of channels read them, unless the partial dw would cost as much. No part has a few tiles only: transforming
 * back would cost more than computing. */
static int parts_of(const void *state, int n) {
  const weights_state *const st = state;
  const int64_t tiles = (int64_t)n * st->tiles_per_image, max_groups = st->job.max_groups;
  const int64_t floats = (int64_t)n * (int64_t)(cvy_shape_elems(&st->job.in) + cvy_shape_elems(&st->job.out));
  int64_t most = tiles / (2 * st->strip);
  if (most > st->job.max_parts) most = st->job.max_parts;
  for (int splits = 1;; splits++) {
    const int64_t tasks = (int64_t)st->blocks * splits;
    const bool even = tasks >= 4 * max_groups || tasks % max_groups == 0;
    const bool near =
        st->blocks == 1 || floats / splits <= NEAR_FLOATS || (int64_t)(splits + 1) * st->job.part_floats > floats / 4;
    if (splits >= most || (even && near)) return splits;
  }
}

static cvy_status create(void *state, const int *tile) {
  cvy_status status = CVY_OK;
  weights_state *const st = state;
  cvy_conv_job *const job = &st->job;
  const cvy_conv2d_params *const p = &job->params;
  const cvy_shape *const y = &job->y;
  const int side = job->algorithm->tile_out;
  const bool cut = cvy_conv_edge_of(side, y->h).cut || cvy_conv_edge_of(side, y->w).cut;
  const bool wide = side == 4 && p->x.c > 64;
  st->strip = tile[0] ? tile[0] : wide ? 16 : side == 4 && !cut ? 14 : 32;
  st->block_c = even_block(p->x.c, tile[1] ? tile[1] : wide ? 128 : 64);
  st->block_k = even_block(y->pitch, tile[2] ? tile[2] : 64);
  st->tiles_per_image = cvy_ceil_div(y->h, side) * cvy_ceil_div(y->w, side);
  st->blocks = cvy_ceil_div(p->x.c, st->block_c) * cvy_ceil_div(y->pitch, st->block_k);
  const int64_t places = (int64_t)(side + 2) * (side + 2), part = ((int64_t)9 * p->x.c + 1) * y->pitch;
  const int64_t slice =
      places * ((int64_t)st->block_c * st->block_k + st->strip * (st->block_c + st->block_k) + 48) + st->block_k;
  CVY_TRY(cvy_conv_set_part(job, part));
  job->db_in_parts = true;
  job->max_parts = 4 * job->max_groups;
  if (job->max_parts * part > PART_FLOATS_MAX) job->max_parts = (int)(PART_FLOATS_MAX / part + 1);
  job->max_parts = parts_of(st, p->n_max);
  const int64_t slices_at = job->max_parts > 1 ? job->max_parts * part : 0;
  CVY_TRY(cvy_conv_claim(job, slices_at + slice * job->max_groups));
  st->slices_at = (int)slices_at, st->slice_floats = (int)slice;
  const cvy_define defines[] = {{"TILE", side}, {"PROLOGUE", p->prologue != 0}};
  CVY_TRY(cvy_conv_kernel(job, "conv2d_winograd_weights_cpu", defines, 2, &st->main));
fail:
  return status;
}

static cvy_status run(void *state, cvy_queue *queue, const cvy_conv_call *call) {
  weights_state *const st = state;
  const cvy_conv_job *const job = &st->job;
  const cvy_conv2d_params *const p = &job->params;
  const cvy_shape *const x = &job->in, *const y = &job->out;
  const int part_floats = call->in_parts ? job->part_floats : 0, db_at = call->in_parts ? part_floats - y->pitch : 0;
  const int side = job->algorithm->tile_out;
  const cvy_conv_edge h = cvy_conv_edge_of(side, y->h), w = cvy_conv_edge_of(side, y->w);
  const cvy_conv_edges edges = {.of_h = h.of, .of_w = w.of, .cut_h = h.cut, .cut_w = w.cut};
  return CVY_LAUNCH(queue, st->main, cvy_conv_tasks(st->blocks * call->parts, job->max_groups), CVY_BUF(call->x),
                    CVY_BUF(call->affine), CVY_BUF(call->residual), CVY_BUF(call->dy), CVY_BUF(call->out),
                    CVY_BUF(call->sum), CVY_BUF(call->workspace), CVY_INT(call->n), CVY_INT(x->h), CVY_INT(x->w),
                    CVY_INT(x->c), CVY_INT(x->pitch), CVY_INT(y->h), CVY_INT(y->w), CVY_INT(y->pitch),
                    CVY_INT(p->pad_h), CVY_INT(p->pad_w), CVY_INT(st->strip), CVY_INT(st->block_c),
                    CVY_INT(st->block_k), CVY_INT(call->parts), CVY_INT(part_floats), CVY_INT(db_at),
                    CVY_INT(st->slices_at), CVY_INT(st->slice_floats), CVY_INT(call->group_size), CVY_INT(call->flags),
                    CVY_STRUCT(edges));
}

/* For second-level caches of 512 KiB to 2 MiB. */
static const int tiles[][CVY_CONV_TILES] = {{24, 64, 32}, {24, 32, 64}, {32, 32, 32}, {16, 32, 32},
                                            {32, 64, 64}, {64, 64, 32}, {16, 128, 64}};

#define WEIGHTS_CPU                                                                                                   \
  .file = "conv2d_winograd_weights_cpu", .state_bytes = sizeof(weights_state), .error_bound = 1.5e-6, .tiles = tiles, \
  .n_tiles = sizeof tiles / sizeof tiles[0], .cpu_shaped = true, .filter = 3, .most_stride = 1, .most_pad = 2,        \
  .whole_pitch = true, .no_forward = true, .no_data = true, .cost = cost, .create = create, .parts = parts_of,        \
  .run = run
const cvy_conv_algorithm cvy_conv_winograd2_weights_cpu = {
    .name = "winograd2_weights_cpu", .algo = CVY_CONV_WINOGRAD2, .tile_out = 2, WEIGHTS_CPU};
const cvy_conv_algorithm cvy_conv_winograd4_weights_cpu = {
    .name = "winograd4_weights_cpu", .algo = CVY_CONV_WINOGRAD4, .tile_out = 4, WEIGHTS_CPU};
