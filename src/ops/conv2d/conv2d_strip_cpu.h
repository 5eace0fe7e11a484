/* SPDX-License-Identifier: MIT
 * Inside of conv2d: how the CPU-shaped kernels of direct convolution cut a call into strips and tasks
 * (cl/conv2d/conv2d_strip_cpu.clh), and forward and backward_data as a gather convolution over them, in the workspace:
 *   packed weights | statistics of strips | a slice per work-group
 * Each algorithm defines its strips and slices. Not for other folders. */
#ifndef CVY_OPS_CONV2D_CONV2D_STRIP_CPU_H
#define CVY_OPS_CONV2D_CONV2D_STRIP_CPU_H

#include "src/ops/conv2d/conv2d_algorithm.h"
#include "src/ops/conv2d/conv2d_cpu.h"
#include "src/ops/conv2d/conv2d_direct.h"

enum {
  CVY_STRIP_TILE = 14, /* positions of a register tile of the gather convolution */
  CVY_STRIP_BLOCK = 32 /* output channels of a task */
};

/* The first member of an algorithm's state, which begins with the job. */
typedef struct cvy_conv_strips {
  cvy_conv_job job;       /* strides widened (cvy_conv_widen_strides) in backward_data */
  cvy_conv_gather gather; /* of backward_data: taps of the phase with most of them, grid of the largest */
  int phases_h, phases_w; /* of backward_data; else 1 */
  cvy_conv_strip strip;   /* for n_max: set by the algorithm */
  int table_size;         /* positions of the tables of a slice: set by the algorithm */
  int results_at, stats_at, slices_at, slice_floats;
  cvy_kernel *main, *pack, *merge;
} cvy_conv_strips;

/* Sets the members that follow from the job. */
void cvy_conv_strips_begin(cvy_conv_strips *st);

/* For kernels whose output has a pitch that is an odd multiple of 16, and a last block of 16 channels: they know tiles
 * of 16 channels, those of pitch 16 no others, since each tile takes long to compile. Returns how many defines there
 * are. */
int cvy_conv_narrow(int pitch, cvy_define *define);

/* Places max_groups slices behind `before` floats. CVY_E_ARGUMENT if indices into them would not fit 32 bits. */
cvy_status cvy_conv_strips_place(cvy_conv_strips *st, int64_t before, int64_t slice_floats);

/* Forward and backward_data, when strip and table_size are set: places weights, statistics and slices of slice_floats
 * whose results begin at results_at, and compiles; `kernel` of the algorithm's file takes the arguments of
 * conv2d_cpu_forward. Codes of cvy_conv_strips_place and cvy_kernel_create. */
cvy_status cvy_conv_strips_create(cvy_conv_strips *st, const char *kernel, int64_t results_at, int64_t slice_floats);
cvy_status cvy_conv_strips_run(void *state, cvy_queue *queue, const cvy_conv_call *call);

/* The argument of a call's kernels. */
cvy_conv_strip_call cvy_conv_strips_describe(const cvy_conv_strips *st, const cvy_conv_call *call,
                                             const cvy_conv_strip *s);

int cvy_conv_strips_per_image(const cvy_conv_gather *g, const cvy_conv_strip *s);
int64_t cvy_conv_strips_count(const cvy_conv_gather *g, const cvy_conv_strip *s, int n);

/* The strip for n samples: smaller than st->strip if every compute unit would not get a few tasks. cut_images is false
 * with statistics, whose parts of an image must not change. */
cvy_conv_strip cvy_conv_strips_for(const cvy_conv_strips *st, int n, int tasks_per_strip, bool cut_images);

#endif
