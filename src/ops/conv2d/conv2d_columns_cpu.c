/* SPDX-License-Identifier: MIT
 * Launches of cl/conv2d/conv2d_columns_cpu.cl: backward_data as a matrix product and a sum. In the workspace:
 *   packed weights | a slice per work-group: two tables, a ring of rows of columns */
#include "cl/conv2d_args.clh"
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
  cvy_conv2d_params params;
  cvy_shape y;
  int compute_units, max_groups;
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
static bool can(cvy_device *device, const cvy_conv2d_params *p, const cvy_shape *y, cvy_conv_pass pass,
                const char **why) {
  (void)device;
  if (why) *why = "direct's other kernels are faster";
  if (!cvy_conv_is_plain(p, true, why) || pass != CVY_CONV_BACKWARD_DATA || p->x.pitch % 16 != 0 ||
      y->pitch % 16 != 0 || y->h * y->w == 1)
    return false;
  return columns_work(p, y) < gather_work(p) * (p->stride_h * p->stride_w > 1 ? 1.5 : 0.9);
}

static double cost(cvy_device *device, const cvy_conv2d_params *p, const cvy_shape *y, cvy_conv_pass pass) {
  (void)device, (void)p, (void)y, (void)pass;
  return 0.8;
}

static void destroy(void *state) {
  columns_state *const st = state;
  if (!st) return;
  cvy_kernel_destroy(&st->main);
  cvy_kernel_destroy(&st->pack);
  cvy_free(st);
}

/* Sizes for n_max. Blocks of channels but the last are multiples of 16; a position's column is an odd multiple of 16,
 * so that those of a tile do not meet in the same sets of a cache. */
static cvy_status plan(columns_state *st, size_t *workspace_bytes) {
  cvy_status status = CVY_OK;
  const cvy_conv2d_params *const p = &st->params;
  const int64_t taps = (int64_t)p->r * p->s;
  st->call.in = st->y, st->call.out = p->x;
  st->call.filter = (cvy_conv_window){p->r, p->s, p->stride_h, p->stride_w, p->pad_h, p->pad_w};
  const int fit = cvy_conv_smaller(PRODUCTS / taps / 32 * 32, 1 << 20), most_c = fit > 32 ? fit : 32;
  st->call.block_c = p->x.c <= most_c ? p->x.c : (int)cvy_conv_round_up(cvy_conv_even_part(p->x.c, most_c), 16);
  st->blocks = cvy_ceil_div(p->x.c, st->call.block_c);
  const int64_t column = cvy_conv_round_up(taps * st->call.block_c, 16) | 16, row = column * st->y.w,
                image = row * st->y.h;
  CVY_REQUIRE(row <= INT32_MAX, CVY_E_ARGUMENT, "convolution: a row of %lld products does not fit 32-bit indices",
              (long long)row);
  st->call.column = (int)column;
  const int positions = st->y.h * st->y.w, halo = (p->r - 1) / p->stride_h;
  st->call.images = 1, st->call.chunk_rows = st->call.ring_rows = st->y.h;
  if (positions <= CHUNK_POSITIONS && image <= CHUNK_FLOATS) {
    while (st->call.images < p->n_max && (st->call.images + 1) * positions <= CHUNK_POSITIONS &&
           (st->call.images + 1) * image <= CHUNK_FLOATS)
      st->call.images++;
  } else {
    int rows = st->y.h;
    while (rows > 1 && rows * row > CHUNK_FLOATS && (rows - 1) * st->y.w >= TILE) rows--;
    st->call.chunk_rows = cvy_conv_even_part(st->y.h, rows);
    if (cvy_ceil_div(halo, st->call.chunk_rows) + 1 < cvy_ceil_div(st->y.h, st->call.chunk_rows))
      st->call.ring_rows = (cvy_ceil_div(halo, st->call.chunk_rows) + 1) * st->call.chunk_rows;
    else st->call.ring_rows = cvy_ceil_div(st->y.h, st->call.chunk_rows) * st->call.chunk_rows;
  }
  st->call.table_size = (int)cvy_conv_round_up((int64_t)st->call.images * st->call.chunk_rows * st->y.w + TILE, 16);
  const int64_t weights = st->blocks * cvy_conv_round_up(taps * st->call.block_c, 16) * p->k,
                slice = cvy_conv_round_up(
                    2 * (int64_t)st->call.table_size + (int64_t)st->call.images * st->call.ring_rows * row + SLACK, 16),
                before = cvy_conv_round_up(weights, 16), total = before + slice * st->max_groups;
  CVY_REQUIRE(slice < INT32_MAX && total <= INT32_MAX, CVY_E_ARGUMENT,
              "convolution: %lld floats of workspace do not fit 32-bit indices", (long long)total);
  st->call.slices_at = (int)before, st->call.slice_floats = (int)slice;
  *workspace_bytes = (size_t)total * sizeof(float);
fail:
  return status;
}

static cvy_status create(cvy_device *device, const cvy_conv2d_params *params, const cvy_shape *y, cvy_conv_pass pass,
                         const int *tile, void **state, size_t *workspace_bytes) {
  cvy_status status = CVY_OK;
  static const char *const file = "conv2d_columns_cpu";
  (void)tile, (void)pass;
  columns_state *const st = cvy_calloc(1, sizeof *st);
  CVY_REQUIRE(st, CVY_E_MEMORY, "convolution: out of memory for %zu bytes", sizeof *st);
  st->params = *params, st->y = *y;
  st->compute_units = cvy_device_get_capabilities(device)->compute_units;
  st->max_groups = cvy_conv_most_groups(st->compute_units);
  CVY_TRY(plan(st, workspace_bytes));
  CVY_TRY(cvy_kernel_create(device, file, "conv2d_cpu_columns", NULL, 0, &st->main));
  CVY_TRY(cvy_kernel_create(device, file, "conv2d_cpu_columns_pack", NULL, 0, &st->pack));
  *state = st;
  return CVY_OK;
fail:
  destroy(st);
  return status;
}

static cvy_status run(void *state, cvy_queue *queue, const cvy_conv_call *call) {
  cvy_status status = CVY_OK;
  columns_state *const st = state;
  cvy_conv_columns_call c = st->call;
  c.n = call->n, c.flags = call->accumulate ? CVY_CPU_ACCUMULATE : 0;
  /* fewer images if every compute unit would not get a few tasks */
  while (c.images > 1 && (int64_t)cvy_ceil_div(c.n, c.images) * st->blocks < 4 * (int64_t)st->compute_units)
    c.images = (c.images + 1) / 2;
  const int64_t packs = (int64_t)st->blocks * cvy_ceil_div(c.filter.r * c.filter.s * c.block_c, 32);
  CVY_TRY(CVY_LAUNCH(queue, st->pack, cvy_conv_groups_of_one(cvy_conv_smaller(packs, st->max_groups)), CVY_BUF(call->w),
                     CVY_BUF(call->workspace), CVY_STRUCT(c)));
  const int64_t tasks = (int64_t)cvy_ceil_div(call->n, c.images) * st->blocks;
  CVY_TRY(CVY_LAUNCH(queue, st->main, cvy_conv_groups_of_one(cvy_conv_smaller(tasks, st->max_groups)),
                     CVY_BUF(call->dy), CVY_BUF(call->dx), CVY_BUF(call->workspace), CVY_STRUCT(c)));
fail:
  return status;
}

const cvy_conv_algorithm cvy_conv_columns_cpu = {.name = "columns_cpu",
                                                 .algo = CVY_CONV_DIRECT,
                                                 .cpu_shaped = true,
                                                 .error_bound = 1e-5,
                                                 .can = can,
                                                 .cost = cost,
                                                 .create = create,
                                                 .destroy = destroy,
                                                 .run = run};
