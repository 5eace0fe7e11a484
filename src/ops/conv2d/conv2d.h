/* SPDX-License-Identifier: MIT
 * Two-dimensional convolution (cross-correlation, as in deep learning), one object per layer instance.
 *
 *   y[n,p,q,k] = bias[k] + sum_{r,s,c} f(x)[n, p*stride_h + r*dilation_h - pad_h, q*stride_w + s*dilation_w - pad_w,
 *                                           first(k) + c] * w[r,s,c,k]
 *   (0 outside the image)
 *   c < C/groups; first(k) = k / (K/groups) * (C/groups): filter k sees the channels of its group alone. groups == C is
 *   a depthwise convolution.
 *   f = load prologue: v = x; if SCALE: v = fma(v - mean[g,c], scale[g,c], shift[g,c]); if RESIDUAL: v += residual; if
 *       RELU: v = max(v,0). Padding stays 0: the prologue changes pixels of the image only. It is one subtraction and
 *       one fma, so that batchnorm's backward finds the same ReLU mask. g = n / group_size (the last group may be
 *       smaller).
 *   P = (H + 2*pad_h + pad_more_h - (R-1)*dilation_h - 1)/stride_h + 1 (floor), Q alike.
 *   x: (N,H,W,C) pitch x_pitch · w: (R,S,C/groups,y_pitch) · bias: (y_pitch), zeros behind K · y: (N,P,Q,K) pitch
 *   y_pitch; channels K..pitch-1 come out 0.
 * Store epilogue (optional): stats[n,0,k] = mean over the P*Q positions of y[n,:,:,k]; stats[n,1,k] = sum of squared
 *   deviations from that mean (M2): (N,2,y_pitch) floats, which batchnorm combines later (Chan et al. 1979). Kernels of
 *   both families compute them without E[x²]-E[x]².
 * backward_data:    dx[n,h,w,first(k)+c] (+)= sum dy[n,p,q,k] * w[r,s,c,k] over p*stride_h + r*dilation_h - pad_h
 *                   == h, … ; gradient with respect to f(x).
 * backward_weights: dw[r,s,c,k] (+)= sum_{n,p,q} f(x)[…,first(k)+c] * dy[n,p,q,k];
 * backward_bias:    db[k] (+)= sum_{n,p,q} dy[n,p,q,k].
 *
 * Create chooses how each pass is computed: the algorithm (cvy_conv_algo) from `algos`, `choice`, or the shipped order
 * of preference; kernels for CPU-shaped or for SIMT devices from the device's facts. conv2d.c has the table of
 * algorithms, conv2d_algorithm.h defines one. DIRECT takes every shape, the others check theirs; kernels of its own do
 * groups and dilation. Order of every sum is
 * fixed by shape, n_max, n, the device's facts and its rates (rates.h): same inputs, same bits. */
#ifndef CVY_OPS_CONV2D_CONV2D_H
#define CVY_OPS_CONV2D_CONV2D_H

#include "src/cl/launch.h"
#include "src/ops/shape.h"

enum { CVY_CONV_SCALE = 1, CVY_CONV_RELU = 2, CVY_CONV_RESIDUAL = 4 }; /* prologue flags */
typedef enum cvy_conv_pass {
  CVY_CONV_FORWARD,
  CVY_CONV_BACKWARD_DATA,
  CVY_CONV_BACKWARD_WEIGHTS,
  CVY_CONV_PASSES
} cvy_conv_pass;

typedef enum cvy_conv_algo {
  CVY_CONV_AUTO = 0,
  CVY_CONV_DIRECT,          /* implicit GEMM over (r,s,c) */
  CVY_CONV_WINOGRAD2,       /* F(2x2,3x3) */
  CVY_CONV_WINOGRAD2_FUSED, /* the same in one kernel, forward and backward_data on SIMT devices */
  CVY_CONV_WINOGRAD4,       /* F(4x4,3x3); backward_weights F(3x3,4x4) */
  CVY_CONV_GEMM,            /* im2col and CLBlast */
  CVY_CONV_FFT,             /* clFFT */
  CVY_CONV_ALGOS
} cvy_conv_algo;

/* An algorithm for one pass and its tile parameters (meaning and candidates: see the algorithm's row; 0: its
 * default). */
enum { CVY_CONV_TILES = 4 };
typedef struct cvy_conv_choice {
  cvy_conv_algo algo;
  int tile[CVY_CONV_TILES];
} cvy_conv_choice;

/* Algorithms that a user allows, the first that can do a pass takes it; n == 0: auto. */
typedef struct cvy_conv_algo_list {
  int n;
  cvy_conv_algo algo[CVY_CONV_ALGOS];
} cvy_conv_algo_list;
/* "auto" or names with commas: "winograd4,direct". CVY_E_ARGUMENT names the wrong word and the right ones. */
cvy_status cvy_conv_algos_parse(const char *text, cvy_conv_algo_list *out);
/* The same without a message: NULL, or the reason why not (static). */
const char *cvy_conv_algos_read(const char *text, cvy_conv_algo_list *out);
const char *cvy_conv_algo_name(cvy_conv_algo algo); /* "winograd4"; static */
const char *cvy_conv_pass_name(cvy_conv_pass pass); /* "forward", "backward_data", "backward_weights" */

/* "winograd4:14,2": algorithm and tiles, zeros at the end left out. `out` of CVY_CONV_CHOICE_BYTES is enough. */
enum { CVY_CONV_CHOICE_BYTES = 64 };
const char *cvy_conv_choice_text(const cvy_conv_choice *choice, char *out, size_t out_bytes);
bool cvy_conv_choice_parse(const char *text, cvy_conv_choice *out);
bool cvy_conv_choice_same(const cvy_conv_choice *a, const cvy_conv_choice *b);

typedef struct cvy_conv2d_params {
  int n_max;                                  /* largest batch of one call, >= 1 */
  cvy_shape x;                                /* h, w, c, pitch of the input */
  int k, y_pitch;                             /* filters and their pitch (y, w, bias, dy) */
  int r, s, stride_h, stride_w, pad_h, pad_w; /* filter and strides >= 1; pads >= 0; pad < filter is not required */
  int groups;                                 /* divides x.c and k; 0: 1 */
  int dilation_h, dilation_w;                 /* from one tap to the next; 0: 1 */
  int pad_more_h, pad_more_w;                 /* rows below and columns right beyond the pads; not less than -pad */
  bool bias;
  int prologue;             /* CVY_CONV_* flags */
  bool stats;               /* forward writes stats */
  bool no_backward_data;    /* first layer: dx is not wanted */
  bool inference;           /* no backward at all */
  cvy_conv_algo_list algos; /* n == 0: auto; else only these (CVY_E_UNSUPPORTED if none can do a pass) */
  /* From autotune or a checkpoint; taken if it is possible and allowed. AUTO: first of algos, shipped default. */
  cvy_conv_choice choice[CVY_CONV_PASSES];
  /* TF32: kernels that have it use it if the device can (math.h); all others compute in float32. */
  cvy_math math;
  const char *layer; /* its name, for messages of create; NULL: none */
} cvy_conv2d_params;

static inline int cvy_conv_groups(const cvy_conv2d_params *p) { return p->groups ? p->groups : 1; }
static inline int cvy_conv_dilation_h(const cvy_conv2d_params *p) { return p->dilation_h ? p->dilation_h : 1; }
static inline int cvy_conv_dilation_w(const cvy_conv2d_params *p) { return p->dilation_w ? p->dilation_w : 1; }
/* Channels that a filter sees: rows of a tap of w. */
static inline int cvy_conv_group_c(const cvy_conv2d_params *p) { return p->x.c / cvy_conv_groups(p); }

/* Output shape {P,Q,K,y_pitch}; CVY_E_ARGUMENT with the reason if there is none (filter larger than the padded image,
 * sizes < 1, 32-bit overflow). */
cvy_status cvy_conv2d_output_shape(const cvy_conv2d_params *params, cvy_shape *y);

typedef struct cvy_conv2d cvy_conv2d;
/* Compiles the kernels of all passes. */
cvy_status cvy_conv2d_create(cvy_device *device, const cvy_conv2d_params *params, cvy_conv2d **out);
void cvy_conv2d_destroy(cvy_conv2d **op);
/* Scratch that each call needs (packed weights, staging, partial sums), bytes; may be 0. Between calls it may be
 * overwritten. */
size_t cvy_conv2d_workspace_bytes(const cvy_conv2d *op);
/* Name of the kernels that do a pass, "winograd4_cpu"; "" for a pass that never runs. */
const char *cvy_conv2d_algorithm_name(const cvy_conv2d *op, cvy_conv_pass pass);
/* A pass's algorithm and tiles; AUTO for a pass that never runs. As params.choice it gives the same bits again. */
cvy_conv_choice cvy_conv2d_chosen(const cvy_conv2d *op, cvy_conv_pass pass);
/* Stated bound of a pass' error, relative L2 of the whole result against exact arithmetic on the same inputs. */
double cvy_conv2d_error_bound(const cvy_conv2d *op, cvy_conv_pass pass);
/* The shipped default, which a layer takes with auto and no choice. CVY_BAD_DEFAULTS=1 in the environment makes it the
 * worst instead, for tests of the tuner. */
cvy_status cvy_conv2d_default(cvy_device *device, const cvy_conv2d_params *params, cvy_conv_pass pass,
                              cvy_conv_choice *out);
/* Expected time of a pass by this algorithm, relative to direct's, and how many tiles it has, the default among them;
 * 0: it cannot do it. Compiles and tries nothing. */
double cvy_conv2d_expected(cvy_device *device, const cvy_conv2d_params *params, cvy_conv_pass pass, cvy_conv_algo algo,
                           int *n_tiles);
/* Every choice of params.algos that can do this pass of this shape on this device, best guess first: the tuner's
 * candidates. `out` has room for `room`; returns how many there are. May take seconds, since it tries libraries. */
int cvy_conv2d_candidates(cvy_device *device, const cvy_conv2d_params *params, cvy_conv_pass pass, cvy_conv_choice *out,
                          int room);
/* The plan of a pass of n_max samples: into how many parts its sums are cut, and expected seconds, also if they were
 * whole. Zeros where nothing is planned (CPU-shaped kernels, libraries). */
typedef struct cvy_conv_expected {
  int parts;
  double seconds, whole_s;
} cvy_conv_expected;
cvy_conv_expected cvy_conv2d_expected_of(const cvy_conv2d *op, cvy_conv_pass pass);
const cvy_conv2d_params *cvy_conv2d_params_of(const cvy_conv2d *op); /* borrowed */
double cvy_conv2d_flops(const cvy_conv2d_params *params, int n);     /* multiply-adds * 2 of one pass, direct count */

typedef struct cvy_conv2d_prologue {
  cvy_buffer *affine;   /* (G, 3, x_pitch): mean, scale, shift; or NULL */
  cvy_buffer *residual; /* like x, or NULL */
  int group_size;       /* samples per group of affine; 0 = all */
} cvy_conv2d_prologue;

/* All: n in 1..n_max; pending on return; buffers borrowed until the queue has run. `bias`, `stats`, `prologue` as
 * created (else NULL).
 * `accumulate`: adds to the output instead of overwriting it. */
cvy_status cvy_conv2d_forward(cvy_conv2d *op, cvy_queue *queue, int n, cvy_buffer *x,
                              const cvy_conv2d_prologue *prologue, cvy_buffer *w, cvy_buffer *bias, cvy_buffer *y,
                              cvy_buffer *stats, cvy_buffer *workspace);
cvy_status cvy_conv2d_backward_data(cvy_conv2d *op, cvy_queue *queue, int n, cvy_buffer *dy, cvy_buffer *w,
                                    cvy_buffer *dx, bool accumulate, cvy_buffer *workspace);
/* db NULL: no bias gradient. */
cvy_status cvy_conv2d_backward_weights(cvy_conv2d *op, cvy_queue *queue, int n, cvy_buffer *x,
                                       const cvy_conv2d_prologue *prologue, cvy_buffer *dy, cvy_buffer *dw,
                                       cvy_buffer *db, bool accumulate, cvy_buffer *workspace);

#endif
