/* SPDX-License-Identifier: MIT
 * Inside of conv2d: how the SIMT-shaped kernels are launched. A plan is chosen by its expected time: for each launch
 * the larger of its multiply-adds at the rate of the compute units that it fills and its bytes at the memory's rate,
 * and the time that a launch costs by itself. So sums are cut into parts, which fill the device, where that is worth
 * the launch that adds the parts up, in their order. Pure but for the device's capabilities and rates: the same plan on
 * the same device, whatever runs beside. Not for other folders. */
#ifndef CVY_OPS_CONV2D_CONV2D_SIMT_PLAN_H
#define CVY_OPS_CONV2D_CONV2D_SIMT_PLAN_H

#include "cl/conv2d_args.clh"
#include "src/ops/conv2d/conv2d_algorithm.h"
#include "src/ops/conv2d/gemm_tile.h"

typedef struct cvy_simt_machine {
  const cvy_capabilities *capabilities;
  cvy_device_rates rates; /* as launches have them */
  cvy_simt_constants constants;
  size_t memory_bytes;
  double tf32_rate, staged_rate; /* products as fast as float32's times this, where they are TF32: cvy_simt_constants */
} cvy_simt_machine;
/* `math` is what cvy_math_resolve gave. */
cvy_simt_machine cvy_simt_machine_of(cvy_device *device, cvy_math math);
/* The machine of a job that is asked about, whose arithmetic is still what the user wants. */
cvy_simt_machine cvy_simt_machine_asked(const cvy_conv_job *job);

/* A launch of products that reach `part` of the FMA rate, `faster` times: groups of a tile, `fma` multiply-adds
 * together, the deepest group `depth` deep. */
cvy_launch_work cvy_simt_products(const cvy_simt_machine *m, double part, cvy_gemm_tile tile, double faster,
                                  int64_t groups, double fma, int depth, double bytes);
/* A launch that only moves bytes. */
cvy_launch_work cvy_simt_moves(const cvy_simt_machine *m, double bytes);

enum {
  CVY_SIMT_PHASES = 16,                /* of backward_data in one launch, at most: a group looks for its own */
  CVY_SIMT_STRIP = 32,                 /* rows that share statistics, as in the kernel */
  CVY_SIMT_SUM_SPAN = 128,             /* positions of a work-group that adds up parts, where it makes no statistics */
  CVY_SIMT_SUM_LANES = 16,             /* channels of such a group */
  CVY_SIMT_PART_FLOATS_MAX = 16 << 20, /* bound of all parts */
  CVY_SIMT_LAUNCHES = 8
};

/* ---- direct ---- */

typedef struct cvy_simt_direct {
  cvy_conv2d_params p; /* strides widened in backward_data */
  cvy_shape y;
  cvy_conv_pass pass;
  cvy_gemm_tile tile;
  int part_depth;  /* forward, backward_data: products of a part; the whole depth: there is one part */
  int max_parts;   /* of any sum; backward_weights: for n_max samples */
  int part_floats; /* from one part's results to the next; 0: results are not cut */
  double seconds, whole_s;
} cvy_simt_direct;

/* The plan for p->n_max samples with this tile, or the best one (all zeros). CVY_E_ARGUMENT: the tile does not fit. */
cvy_status cvy_simt_plan_direct(const cvy_simt_machine *m, const cvy_conv2d_params *p, const cvy_shape *y,
                                cvy_conv_pass pass, const int *tile, cvy_simt_direct *out);
/* Expected seconds of the best plan; 0: there is none. */
double cvy_simt_direct_seconds(const cvy_simt_machine *m, const cvy_conv_job *job);
/* Phases of backward_data, in rows of *phases_w; 1 in other passes. */
int cvy_simt_phases(const cvy_simt_direct *plan, int *phases_w);
/* Work-groups of phase `phase` for n samples (backward_weights and forward: phase 0). */
int64_t cvy_simt_groups(const cvy_simt_direct *plan, int n, int phase);
/* Positions of a part of backward_weights for n samples, and the number of parts. */
int cvy_simt_part_positions(const cvy_simt_direct *plan, int n, int *parts);
/* Rows of a partial sum of dy's `positions` rows for db, and the number of such sums: `most` at most. */
enum { CVY_SIMT_DIRECT_SUMS = 256, CVY_SIMT_WINOGRAD_SUMS = 64 };
int cvy_simt_sum_rows(int64_t positions, int most, int *sums);
/* Items that add up `count` parts of a value together: conv2d_simt_finish. A power of two. */
int cvy_simt_finish_lanes(int count);
/* [conv2d_direct_simt.c] Launches conv2d_simt_finish: dw (n_dw floats, 0: complete already) from `parts` in the
 * workspace, db (n_db floats) from `sums` behind sums_at. */
cvy_status cvy_simt_run_finish(cvy_kernel *finish, cvy_queue *queue, const cvy_conv_call *call, int n_dw, int parts,
                               int sums_at, int n_db, int sums);
/* The launches for n samples in their order; returns how many, of which the first CVY_SIMT_LAUNCHES are in `out`. */
int cvy_simt_direct_works(const cvy_simt_machine *m, const cvy_simt_direct *plan, int n, bool db,
                          cvy_launch_work out[CVY_SIMT_LAUNCHES]);

/* ---- Winograd ---- */

/* The last number of a tile: how many samples share the matrices in memory. */
enum { CVY_SIMT_CHUNK_PLANNED = 0, CVY_SIMT_CHUNK_CACHED = 1, CVY_SIMT_CHUNK_WHOLE = 2 };

typedef struct cvy_simt_winograd {
  cvy_gemm_tile tile;
  int matrices, per_image, in_pitch, out_pitch; /* (m+2)^2; tiles of an image; pitches of the matrices */
  int chunk;                                    /* samples */
  int max_parts;                                /* of the products' depth */
  int part_depth;                               /* forward, backward_data */
  double seconds, whole_s;
} cvy_simt_winograd;

/* F(m x m, 3x3). A plan for p->n_max samples, as above. */
cvy_status cvy_simt_plan_winograd(const cvy_simt_machine *machine, const cvy_conv2d_params *p, const cvy_shape *y,
                                  cvy_conv_pass pass, int m, const int *tile, cvy_simt_winograd *out);
/* Tiles of a part of backward_weights in a chunk of so many tiles, and the number of parts. */
int cvy_simt_part_tiles(const cvy_simt_winograd *plan, int tiles, int *parts);

/* The launches of a chunk of `samples`: both factors (of forward and backward_data the input's matrices, in the call's
 * `first` chunk the filters', too), products, and output (not of backward_weights). And dw, behind all chunks of
 * backward_weights. */
typedef struct cvy_simt_winograd_works {
  cvy_launch_work factors, products, output, dw;
} cvy_simt_winograd_works;
cvy_simt_winograd_works cvy_simt_winograd_works_of(const cvy_simt_machine *machine, const cvy_conv2d_params *p,
                                                   const cvy_shape *y, cvy_conv_pass pass,
                                                   const cvy_simt_winograd *plan, int samples, bool first);

#endif
