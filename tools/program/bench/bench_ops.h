/* SPDX-License-Identifier: MIT
 * Internals of `convoy bench conv|ops`: cases (an operation with a shape), rows (a measured algorithm for it), inputs
 * and errors. */
#ifndef CVY_TOOLS_PROGRAM_BENCH_BENCH_OPS_H
#define CVY_TOOLS_PROGRAM_BENCH_BENCH_OPS_H

#include "src/nn/plan.h"
#include "src/ops/conv2d/conv2d.h"
#include "src/ops/tune/tune_table.h"
#include "src/ref/cases.h"
#include "tools/program/bench/bench.h"

typedef struct bench_case {
  const char *operation, *pass;   /* "conv2d", "forward" */
  char shape[80];                 /* "n256h28w28c64k64r3s1p1" */
  int count;                      /* its number in a training step of the network */
  double flops;                   /* of the direct algorithm; 0 for operations that only move memory */
  double read_bytes, write_bytes; /* each input once, each output once, channels without padding */
} bench_case;

/* An algorithm for a case. */
typedef struct bench_way {
  const char *algorithm; /* "winograd4_cpu", "" if there is only one */
  const int *tile;       /* CVY_CONV_TILES numbers, NULL: none */
  bool chosen;           /* `auto` chooses it */
  bool tuned;            /* because `convoy tune` found it */
  double error_bound;    /* error bound of the algorithm, 0: none */
} bench_way;

/* Relative L2 error of the result against src/ref, on a few images. Called after the timing. */
typedef cvy_status (*bench_error_fn)(void *user, double *error);

typedef struct bench_totals {
  double ms, flops;
  int rows;
} bench_totals;

/* Shared by the rows of a command. */
typedef struct bench_rows {
  const char *word, *model; /* model NULL: a single --shape */
  bool print;
  double seconds;
  json_t *rows;        /* of the device under way; borrowed by bench_rows_json */
  json_t *baseline;    /* rows of the old file by their key, NULL: none */
  double max_slowdown; /* 0.05; < 0: not requested */
  int compared, slower, wrong;
  char heading[160];                        /* the one printed last */
  bench_totals totals[CVY_CONV_PASSES + 1]; /* of auto's rows: conv2d and linear by pass, all other operations */
} bench_rows;

/* [bench_rows.c] */
/* Reads an old file of `bench conv|ops --json`; EXIT_DONE, or the exit status, with the reason printed. */
int bench_rows_baseline(bench_rows *rows, const char *path);
/* Measures one algorithm: prints the row, adds it to the JSON, compares it with the baseline. */
cvy_status bench_row(bench_rows *rows, bench_device *device, const bench_case *c, const bench_way *way,
                     bench_run_fn run, bench_error_fn error, void *user);
/* Prints an algorithm that does not support the case, with the reason. */
void bench_row_impossible(bench_rows *rows, const bench_case *c, const char *algorithm, const char *why);
/* Prints and resets the totals of auto's rows on the device. */
void bench_rows_totals(bench_rows *rows, const bench_device *device);

/* [bench_conv.c] All passes and algorithms of a convolution, or of a linear layer as one. */
typedef struct bench_conv_options {
  cvy_conv_algo_list algos; /* n == 0: all, with `only_auto` auto's alone */
  bool only_auto, all_tiles;
  const cvy_tune_table *tuned; /* results of `convoy tune` for auto, as in convoy train; NULL: not used */
  int pass;                    /* cvy_conv_pass, CVY_CONV_PASSES: all */
  cvy_math math;               /* resolved for the device (cvy_math_resolve) */
} bench_conv_options;
cvy_status bench_conv(bench_rows *rows, bench_device *device, const char *operation, const cvy_conv2d_params *params,
                      int count, const bench_conv_options *options);
/* A convolution's text: in --shape's form if possible, else in a longer form. */
void bench_conv_shape_text(const cvy_conv2d_params *params, char *out, size_t out_bytes);
/* [bench_case.c] Passes of a case with few samples, of which n are measured. way: the tile and choice of one of several
 * rows; NULL: the case has one row and ends. */
typedef struct bench_pass {
  int pass;                       /* of the case */
  const char *name;               /* of the row */
  double read_bytes, write_bytes; /* as in bench_case */
  bool in_step;                   /* a training step has it */
  double error_bound;             /* instead of that of the case; 0: that one */
} bench_pass;
cvy_status bench_op(bench_rows *rows, bench_device *device, const bench_case *what, const bench_way *way, op_case *c,
                    int n, const bench_pass *passes, int n_passes);
/* [bench_layers.c] Fused convolution, ReLU and pool. pass: a cvy_conv_pass, CVY_CONV_PASSES: all. */
cvy_status bench_convpool(bench_rows *rows, bench_device *device, const cvy_convpool_params *params, int count,
                          int pass);
/* A unit of the plan other than a convolution. */
cvy_status bench_layer(bench_rows *rows, bench_device *device, const cvy_net *net, const cvy_unit *unit, int n,
                       int count);
/* "conv2d", "batchnorm", …: static. */
const char *bench_unit_operation(const cvy_net *net, const cvy_unit *unit);
/* softmax_xent, update and gather; `only`: one of them, NULL: all. */
cvy_status bench_step_parts(bench_rows *rows, bench_device *device, const cvy_net *net, int n, const char *only);

#endif
