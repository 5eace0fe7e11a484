/* SPDX-License-Identifier: MIT
 * Launches of cl/conv2d/conv2d_columns_cpu.cl: backward_data as a matrix product and a sum. In the workspace:
 *   packed weights | a slice per work-group: two tables, a ring of rows of columns */
#include "cl/conv2d_args.clh"
#include "src/ops/conv2d/conv2d_algorithm.h"
#include "src/ops/conv2d/conv2d_cpu.h"

enum {
  TILE = 14,            /* positions of a register tile */
  SLACK = 32,           /* floats behind the ring that whole vectors may touch */
  CHUNK_FLOATS = 65536, /* wanted size of what is multiplied at a time: it stays in a second-level cache */
  CHUNK_POSITIONS = 256,
  PRODUCTS = 320, /* wanted products (r,s,c) of a position */
  SUM_COST = 8    /* multiply-adds that take as long as storing, loading and adding a product */
};

typedef struct columns_state {
  cvy_conv_job job;
  int blocks;
  cvy_conv_columns_call call; /* n, images and flags are those of n_max */
  cvy_kernel *main, *pack;
} columns_state;

/* Multiply-adds per channel of dy of one image: of the gather over dx, which with stride 1 meets the padding, … */
static double gather_work(const cvy_conv2d_params *p) {
  const double taps = (double)p->r * p->s / ((double)p->stride_h * p->stride_w);
  return (double)p->x.h * p->x.w * taps * (double)cvy_conv_round_up(p->x.c, 16);
}

/* … and of all columns. */
static double columns_work(const cvy_conv2d_params *p, const cvy_shape *y) {
  return (double)y->h * y->w * (double)cvy_conv_round_up((int64_t)p->r * p->s * p->x.c, 16) *
         (1.0 + (double)SUM_COST / p->k);
}

/* True if it is less work than the gather. A filter that fits once is a matrix product already. */
static const char *can(const cvy_conv_job *job) {
  const cvy_conv2d_params *const p = &job->params;
  const double least = gather_work(p) * (p->stride_h * p->stride_w > 1 ? 1.5 : 0.9);
  const bool once = job->y.h * job->y.w == 1;
  return once || columns_work(p, &job->y) >= least ? "direct's other kernels are faster" : NULL;
}

static double cost(const cvy_conv_job *job) {
  (void)job;
  return 0.8;
}

/* Sizes for n_max. Blocks of channels but the last are multiples of 16; a position's column is an odd multiple of 16,
 * so that those of a tile do not meet in the same sets of a cache. */
static cvy_status plan(columns_state *st) {
  cvy_status status = CVY_OK;
  const cvy_conv2d_params *const p = &st->job.params;
  const int64_t taps = (int64_t)p->r * p->s;
  st->call.in = st->job.in, st->call.out = st->job.out;
  st->call.filter = (cvy_conv_window)CVY_CONV_WINDOW(p);
  const int fit = cvy_conv_smaller(PRODUCTS / taps / 32 * 32, 1 << 20), most_c = fit > 32 ? fit : 32;
  st->call.block_c = p->x.c <= most_c ? p->x.c : (int)cvy_conv_round_up(cvy_conv_even_part(p->x.c, most_c), 16);
  st->blocks = cvy_ceil_div(p->x.c, st->call.block_c);
  const int64_t column = cvy_conv_round_up(taps * st->call.block_c, 16) | 16, row = column * st->call.in.w,
                image = row * st->call.in.h;
  CVY_REQUIRE(row <= INT32_MAX, CVY_E_ARGUMENT, "convolution: a row of %lld products does not fit 32-bit indices",
              (long long)row);
  st->call.column = (int)column;
  const int positions = st->call.in.h * st->call.in.w, halo = (p->r - 1) / p->stride_h;
  st->call.images = 1, st->call.chunk_rows = st->call.ring_rows = st->call.in.h;
  if (positions <= CHUNK_POSITIONS && image <= CHUNK_FLOATS) {
    while (st->call.images < p->n_max && (st->call.images + 1) * positions <= CHUNK_POSITIONS &&
           (st->call.images + 1) * image <= CHUNK_FLOATS)
      st->call.images++;
  } else {
    int rows = st->call.in.h;
    while (rows > 1 && rows * row > CHUNK_FLOATS && (rows - 1) * st->call.in.w >= TILE) rows--;
    st->call.chunk_rows = cvy_conv_even_part(st->call.in.h, rows);
    if (cvy_ceil_div(halo, st->call.chunk_rows) + 1 < cvy_ceil_div(st->call.in.h, st->call.chunk_rows))
      st->call.ring_rows = (cvy_ceil_div(halo, st->call.chunk_rows) + 1) * st->call.chunk_rows;
    else st->call.ring_rows = cvy_ceil_div(st->call.in.h, st->call.chunk_rows) * st->call.chunk_rows;
  }
  st->call.table_size =
      (int)cvy_conv_round_up((int64_t)st->call.images * st->call.chunk_rows * st->call.in.w + TILE, 16);
  const int64_t weights = st->blocks * cvy_conv_round_up(taps * st->call.block_c, 16) * p->k,
                slice = cvy_conv_round_up(
                    2 * (int64_t)st->call.table_size + (int64_t)st->call.images * st->call.ring_rows * row + SLACK, 16),
                before = cvy_conv_round_up(weights, 16);
  CVY_TRY(cvy_conv_claim(&st->job, before + slice * st->job.max_groups));
  st->call.slices_at = (int)before, st->call.slice_floats = (int)slice;
fail:
  return status;
}

static cvy_status create(void *state, const int *tile) {
  cvy_status status = CVY_OK;
  columns_state *const st = state;
  (void)tile;
  CVY_TRY(plan(st));
  CVY_TRY(cvy_conv_kernel(&st->job, "conv2d_cpu_columns", NULL, 0, &st->main));
  CVY_TRY(cvy_conv_kernel(&st->job, "conv2d_cpu_columns_pack", NULL, 0, &st->pack));
fail:
  return status;
}

static cvy_status run(void *state, cvy_queue *queue, const cvy_conv_call *call) {
  cvy_status status = CVY_OK;
  columns_state *const st = state;
  const int max_groups = st->job.max_groups;
  cvy_conv_columns_call c = st->call;
  c.n = call->n, c.flags = call->flags;
  /* fewer images if every compute unit would not get a few tasks */
  const int64_t wanted = 4 * (int64_t)st->job.base.capabilities->compute_units;
  while (c.images > 1 && (int64_t)cvy_ceil_div(c.n, c.images) * st->blocks < wanted) c.images = (c.images + 1) / 2;
  const int64_t packs = (int64_t)st->blocks * cvy_ceil_div(c.filter.r * c.filter.s * c.block_c, 32),
                tasks = (int64_t)cvy_ceil_div(call->n, c.images) * st->blocks;
  CVY_TRY(CVY_LAUNCH(queue, st->pack, cvy_conv_tasks(packs, max_groups), CVY_BUF(call->w), CVY_BUF(call->workspace),
                     CVY_STRUCT(c)));
  CVY_TRY(CVY_LAUNCH(queue, st->main, cvy_conv_tasks(tasks, max_groups), CVY_BUF(call->dy), CVY_BUF(call->dx),
                     CVY_BUF(call->workspace), CVY_STRUCT(c)));
fail:
  return status;
}

const cvy_conv_algorithm cvy_conv_columns_cpu = {.name = "columns_cpu",
                                                 .algo = CVY_CONV_DIRECT,
                                                 .file = "conv2d_columns_cpu",
                                                 .state_bytes = sizeof(columns_state),
                                                 .uneven = true,
                                                 .whole_pitch = true,
                                                 .no_forward = true,
                                                 .no_weights = true,
                                                 .cpu_shaped = true,
                                                 .error_bound = 1e-5,
                                                 .can = can,
                                                 .cost = cost,
                                                 .create = create,
                                                 .run = run};
