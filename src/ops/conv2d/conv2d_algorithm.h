/* SPDX-License-Identifier: MIT
 * Inside of conv2d: the description that an algorithm (a family of kernels) fills in, and the head and the end that all
 * of them share around their launches. Not for other folders.
 *
 * A family is one file: a state that begins with cvy_conv_job, and a row, cvy_conv_algorithm: the shapes as numbers,
 * and functions that plan and launch. Its name stands in CVY_CONV_ALGORITHMS, its file in meson.build, its kernels in
 * cl/meson.build and tests/data/kernel_variants.txt; no other file knows it (a new word of --conv-algo is another
 * matter: conv2d_params.h). The shared part (conv2d_algorithm.c) allocates and frees the state, owns its kernels,
 * checks the workspace, and for each call picks the buffers that are read and written, sets the flags of prologue and
 * epilogue, adds up parts of dw, and makes statistics and the bias' gradient for kernels that do not. */
#ifndef CVY_OPS_CONV2D_CONV2D_ALGORITHM_H
#define CVY_OPS_CONV2D_CONV2D_ALGORITHM_H

#include "src/ops/conv2d/conv2d_params.h"
#include "src/ops/operation.h"
#include "src/ops/reduce.h"

/* The families in order of preference. direct_simt takes every shape without groups and dilation on every device,
 * grouped those that have some. */
#define CVY_CONV_ALGORITHMS(ROW) \
  ROW(direct_cpu)                \
  ROW(columns_cpu)               \
  ROW(panels_cpu)                \
  ROW(winograd4_cpu)             \
  ROW(winograd2_cpu)             \
  ROW(winograd4_weights_cpu)     \
  ROW(winograd2_weights_cpu)     \
  ROW(direct_simt)               \
  ROW(thin_simt)                 \
  ROW(depthwise)                 \
  ROW(groups_cpu)                \
  ROW(groups_simt)               \
  ROW(grouped)                   \
  ROW(winograd4_simt)            \
  ROW(winograd2_simt)            \
  ROW(winograd2_fused)           \
  ROW(winograd4_fused)           \
  ROW(gemm)                      \
  ROW(fft)

typedef struct cvy_conv_algorithm cvy_conv_algorithm;

/* One pass of a layer on a device. The first member of each algorithm's state. */
typedef struct cvy_conv_job {
  cvy_operation base;
  const cvy_conv_algorithm *algorithm;
  cvy_conv2d_params params; /* `create` may widen the strides of its copy (cvy_conv_widen_strides) */
  cvy_shape y;
  cvy_conv_pass pass;
  bool data, weights; /* which pass it is; neither: forward */
  cvy_shape in, out;  /* images that are read and written: dy and dx in backward_data, x and y in the others */
  int prologue;       /* flags of the load prologue; 0 in backward_data */
  bool stats;         /* forward with statistics */
  /* Set by `create`: */
  int max_groups;  /* of CPU-shaped kernels; comes in as cvy_conv_most_groups says */
  bool plain;      /* the kernels leave statistics of y and the bias' gradient to the function behind the launch */
  int part_floats; /* backward_weights: floats from one part of dw to the next */
  /* backward_weights: the most parts of dw that `parts` may give. Each part has its db of y.pitch floats behind dw if
   * db_in_parts. always_parts: dw is in the workspace also if it is one part. */
  int max_parts;
  bool db_in_parts, always_parts;
  size_t workspace_bytes;
  cvy_kernel *sum, *plain_stats; /* for what is done behind the launch, as the next */
  cvy_reduce *reduce;
} cvy_conv_job;

/* One call: its buffers and flags. */
typedef struct cvy_conv_call {
  /* By the contract (conv2d.h), checked by conv2d.c; buffers that a pass does not have are NULL. */
  int n, group_size; /* group_size >= 1 */
  bool accumulate;
  cvy_buffer *x, *affine, *residual; /* forward, backward_weights */
  cvy_buffer *w, *bias, *y, *stats;  /* w also backward_data */
  cvy_buffer *dy, *dx, *dw, *db;
  cvy_buffer *workspace;
  /* Set by cvy_conv_run in front of the algorithm's launches. */
  int flags;       /* CVY_CONV_* of the prologue and CVY_CPU_* of the epilogue (conv2d_cpu.h) */
  cvy_buffer *in;  /* x; backward_data: dy */
  cvy_buffer *out; /* y, dx, dw; the workspace for dw in parts */
  cvy_buffer *sum; /* backward_weights: db; the workspace if db is in parts */
  int parts;       /* of dw, >= 1; */
  bool in_parts;   /* … in the workspace: they are added up behind the launch */
} cvy_conv_call;

/* A family of kernels that do some passes of some shapes. */
struct cvy_conv_algorithm {
  const char *name; /* "winograd4_cpu" */
  cvy_conv_algo algo;
  const char *file;   /* of its kernels */
  size_t state_bytes; /* of its state: per layer and pass */
  /* Relative L2 of a result, on adversarial inputs too (large means, cancelling channels, outliers). */
  double error_bound;
  double tf32_error_bound; /* the same with CVY_MATH_TF32; 0: its products are float32 all the same */
  /* Tile parameters: values the tuner tries beside the default, which is all zeros; each list says what its numbers
   * are. */
  const int (*tiles)[CVY_CONV_TILES];
  int n_tiles;
  bool (*tile_fits)(cvy_device *device, const int *tile); /* one of them: local memory, work-group; NULL: all do */

  /* Shapes that it can do; 0: any. Without `groups` neither groups nor dilation; without `uneven` the same padding on
   * both sides. */
  bool cpu_shaped, simt_shaped; /* on such devices only */
  bool groups, uneven;
  int filter;      /* side of the filter */
  int most_stride; /* the same in both directions, at most */
  int most_pad;
  bool whole_pitch; /* pitches are multiples of 16 */
  bool no_forward, no_data, no_weights;
  int tile_out; /* Winograd: outputs of a line of a tile */

  /* NULL, or why it cannot do the job all the same: "only padding up to 2". `can` itself may be NULL: it can. */
  const char *(*can)(const cvy_conv_job *job);
  /* Expected time relative to direct's kernels of the same kind: the shipped default is the least (the first of
   * equals). NULL: 1. Called only if it can do the job. */
  double (*cost)(const cvy_conv_job *job);
  /* True if its results are right on this device; NULL: always. An algorithm that calls a library tries it, which may
   * take seconds, and stores the answer with the device. Called last, for an algorithm that would be taken or listed as
   * a candidate; `why` gets the reason. */
  bool (*works)(const cvy_conv_job *job, const char **why);
  /* Plans and compiles, with the functions below; `state` is zeros behind its job. `tile`: one of `tiles` or the
   * default, or CVY_E_ARGUMENT. */
  cvy_status (*create)(void *state, const int *tile);
  cvy_conv_expected (*expected)(const void *state); /* NULL: nothing is planned */
  int (*parts)(const void *state, int n);           /* of dw for n samples; NULL: dw is never in parts */
  cvy_status (*run)(void *state, cvy_queue *queue, const cvy_conv_call *call);
};

#define CVY_CONV_DECLARE(name) extern const cvy_conv_algorithm cvy_conv_##name;
CVY_CONV_ALGORITHMS(CVY_CONV_DECLARE)
#undef CVY_CONV_DECLARE

/* ---- for conv2d.c ---- */

/* The job that is asked about; its algorithm is to be set. */
cvy_conv_job cvy_conv_job_of(cvy_device *device, const cvy_conv2d_params *params, const cvy_shape *y,
                             cvy_conv_pass pass);
/* NULL if the job's algorithm can do it, else a short reason. Not whether it works. */
const char *cvy_conv_cannot(const cvy_conv_job *job);
double cvy_conv_cost(const cvy_conv_job *job);
/* Makes a state, whose workspace_bytes are enough for every n <= n_max. CVY_E_ARGUMENT also if a workspace cannot be
 * indexed with 32 bits. */
cvy_status cvy_conv_create(const cvy_conv_job *job, const int *tile, cvy_conv_job **state);
void cvy_conv_destroy(cvy_conv_job **state);
/* Runs a call: the head that all algorithms share, the launches of this one, and the common end: sums of parts of dw,
 * and for `plain` kernels statistics and the bias' gradient. Pending on return. */
cvy_status cvy_conv_run(cvy_conv_job *state, cvy_queue *queue, cvy_conv_call *call);

/* ---- for an algorithm's create ---- */

/* cvy_operation_kernel of the algorithm's file. */
cvy_status cvy_conv_kernel(cvy_conv_job *job, const char *name, const cvy_define *defines, int n_defines,
                           cvy_kernel **out);
/* Floats from one part of dw to the next. CVY_E_ARGUMENT if they do not fit 32 bits. */
cvy_status cvy_conv_set_part(cvy_conv_job *job, int64_t floats);
/* The workspace has at least so many floats. CVY_E_ARGUMENT if they cannot be indexed with 32 bits. */
cvy_status cvy_conv_claim(cvy_conv_job *job, int64_t floats);
/* Value of -D PROLOGUE for kernels that know a prologue, and one with a residual, at compile time. */
static inline int cvy_conv_prologue_define(const cvy_conv_job *job) {
  return !job->prologue ? 0 : job->prologue & CVY_CONV_RESIDUAL ? 2 : 1;
}

/* ---- small things ---- */

/* The smaller of two numbers, which fits an int. */
static inline int cvy_conv_smaller(int64_t a, int64_t b) { return (int)(a < b ? a : b); }

/* So many work-groups of so many items. */
static inline cvy_grid cvy_conv_grid(int64_t groups, int items) {
  return (cvy_grid){.global = {(size_t)groups * (size_t)items, 1, 1}, .local = {(size_t)items, 1, 1}};
}

/* CPU-shaped kernels: groups of one item, one for each task, but no more than `most`. */
static inline cvy_grid cvy_conv_tasks(int64_t tasks, int most) {
  return cvy_conv_grid(cvy_conv_smaller(tasks, most), 1);
}
/* For kernels whose items walk over results: as many groups as keep all cores of a CPU busy, on SIMT devices an item
 * for each result up to a bound. */
cvy_grid cvy_conv_results_grid(const cvy_conv_job *job, int64_t results);

/* A filter and how it moves, as kernels have it. */
#define CVY_CONV_WINDOW(p) {(p)->r, (p)->s, (p)->stride_h, (p)->stride_w, (p)->pad_h, (p)->pad_w}

#endif
