/* SPDX-License-Identifier: MIT
 * Inside of conv2d: the interface between conv2d.c and an algorithm. Not for other folders. */
#ifndef CVY_OPS_CONV2D_CONV2D_ALGORITHM_H
#define CVY_OPS_CONV2D_CONV2D_ALGORITHM_H

#include "src/cl/launch.h"
#include "src/ops/conv2d/conv2d_params.h"

/* The smaller of two numbers, which fits an int. */
static inline int cvy_conv_smaller(int64_t a, int64_t b) { return (int)(a < b ? a : b); }

/* Buffers of one call, checked by conv2d.c; those that a pass does not have are NULL. */
typedef struct cvy_conv_call {
  int n, group_size; /* group_size >= 1 */
  bool accumulate;
  cvy_buffer *x, *affine, *residual; /* forward, backward_weights */
  cvy_buffer *w, *bias, *y, *stats;  /* w also backward_data */
  cvy_buffer *dy, *dx, *dw, *db;
  cvy_buffer *workspace;
} cvy_conv_call;

/* One row of conv2d.c's table: kernels that do some passes of some shapes. State is per layer and pass. */
typedef struct cvy_conv_algorithm {
  const char *name; /* "winograd4_cpu" */
  cvy_conv_algo algo;
  bool cpu_shaped; /* kernels for CPU-shaped devices only; false: runs on every device */
  double
      error_bound; /* relative L2 of a result, on adversarial inputs too (large means, cancelling channels, outliers) */
  double tf32_error_bound; /* the same with CVY_MATH_TF32; 0: its products are float32 all the same */
  /* Tile parameters: values the tuner tries beside the default, which is all zeros; each list says what its numbers
   * are. */
  const int (*tiles)[CVY_CONV_TILES];
  int n_tiles;
  bool (*tile_fits)(cvy_device *device, const int *tile); /* one of them: local memory, work-group; NULL: all do */
  /* True if it can do the shape on the device. `why` (may be NULL) gets a short reason if not: "only 3x3 filters". */
  bool (*can)(cvy_device *device, const cvy_conv2d_params *params, const cvy_shape *y, cvy_conv_pass pass,
              const char **why);
  /* Expected time relative to direct's kernels of the same kind: the shipped default is the least (the first of
   * equals). NULL: 1. Called only if `can`. */
  double (*cost)(cvy_device *device, const cvy_conv2d_params *params, const cvy_shape *y, cvy_conv_pass pass);
  /* True if its results are right on this device; NULL: always. An algorithm that calls a library tries it, which may
   * take seconds, and stores the answer with the device. Called last, for an algorithm that would be taken or listed as
   * a candidate; `why` as in `can`. */
  bool (*works)(cvy_device *device, const cvy_conv2d_params *params, const cvy_shape *y, cvy_conv_pass pass,
                const char **why);
  /* Compiles; *workspace_bytes is enough for every n <= n_max. `tile`: one of `tiles` or the default, or
   * CVY_E_ARGUMENT. CVY_E_ARGUMENT too if the workspace cannot be indexed with 32 bits. */
  cvy_status (*create)(cvy_device *device, const cvy_conv2d_params *params, const cvy_shape *y, cvy_conv_pass pass,
                       const int *tile, void **state, size_t *workspace_bytes);
  void (*destroy)(void *state);                     /* NULL is fine */
  cvy_conv_expected (*expected)(const void *state); /* NULL: nothing is planned */
  cvy_status (*run)(void *state, cvy_queue *queue, const cvy_conv_call *call);
} cvy_conv_algorithm;

/* True without groups and dilation, and with the same padding on all sides unless `more`: `why` as in `can`. */
bool cvy_conv_is_plain(const cvy_conv2d_params *params, bool more, const char **why);

/* conv2d_depthwise.c: one filter for each channel; small groups on CPU-shaped devices */
extern const cvy_conv_algorithm cvy_conv_depthwise, cvy_conv_groups_cpu;
/* conv2d_grouped.c: any groups, dilation and padding, on every device */
extern const cvy_conv_algorithm cvy_conv_grouped;
/* conv2d_direct.c, conv2d_direct_cpu.c */
extern const cvy_conv_algorithm cvy_conv_direct_cpu, cvy_conv_direct_simt;
/* conv2d_columns_cpu.c: direct's backward_data where it beats direct_cpu */
extern const cvy_conv_algorithm cvy_conv_columns_cpu;
/* conv2d_panels_cpu.c: direct's forward and backward_data with channels enough */
extern const cvy_conv_algorithm cvy_conv_panels_cpu;
/* conv2d_gemm.c, conv2d_fft.c */
extern const cvy_conv_algorithm cvy_conv_gemm, cvy_conv_fft;
/* conv2d_winograd_cpu.c: forward and backward_data */
extern const cvy_conv_algorithm cvy_conv_winograd4_cpu, cvy_conv_winograd2_cpu;
/* conv2d_winograd_simt.c */
extern const cvy_conv_algorithm cvy_conv_winograd2_simt, cvy_conv_winograd4_simt;
/* conv2d_winograd_fused.c: forward and backward_data */
extern const cvy_conv_algorithm cvy_conv_winograd2_fused;
/* conv2d_winograd_weights_cpu.c */
extern const cvy_conv_algorithm cvy_conv_winograd2_weights_cpu, cvy_conv_winograd4_weights_cpu;

#endif
