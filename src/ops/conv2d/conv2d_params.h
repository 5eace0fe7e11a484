/* SPDX-License-Identifier: MIT
 * What a convolution is, and by what algorithm: the types of conv2d.h's contract, and the words for them, for users,
 * logs and checkpoints. */
#ifndef CVY_OPS_CONV2D_CONV2D_PARAMS_H
#define CVY_OPS_CONV2D_CONV2D_PARAMS_H

#include "convoy/device.h"
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
  CVY_CONV_WINOGRAD4_FUSED, /* F(4x4,3x3) in one kernel, as WINOGRAD2_FUSED */
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
  /* From autotune or a checkpoint; taken if it fits the device and is allowed. AUTO: first of algos, default. */
  cvy_conv_choice choice[CVY_CONV_PASSES];
  /* TF32: kernels that have it use it if the device can (math.h); all others compute in float32. */
  cvy_math math;
  const char *layer; /* its name, for messages of create; NULL: none */
} cvy_conv2d_params;

static inline int cvy_conv_groups(const cvy_conv2d_params *p) { return p->groups ? p->groups : 1; }
static inline int cvy_conv_dilation_h(const cvy_conv2d_params *p) { return p->dilation_h ? p->dilation_h : 1; }
static inline int cvy_conv_dilation_w(const cvy_conv2d_params *p) { return p->dilation_w ? p->dilation_w : 1; }
static inline bool cvy_conv_is_grouped(const cvy_conv2d_params *p) { /* or dilated */
  return cvy_conv_groups(p) > 1 || cvy_conv_dilation_h(p) > 1 || cvy_conv_dilation_w(p) > 1;
}
/* Channels that a filter sees: rows of a tap of w. */
static inline int cvy_conv_group_c(const cvy_conv2d_params *p) { return p->x.c / cvy_conv_groups(p); }

/* The plan of a pass of n_max samples: into how many parts its sums are cut, and expected seconds, also if they were
 * whole. Zeros where nothing is planned (CPU-shaped kernels, libraries). */
typedef struct cvy_conv_expected {
  int parts;
  double seconds, whole_s;
} cvy_conv_expected;

#endif
