/* SPDX-License-Identifier: MIT
 * The cases of each operation [case.h]. The fields of a struct select the call and its shapes; case_<op>(c, r) adds
 * tensors, values drawn from r, and the truth; case_end(&c->base) frees them. The caller sets base.n, the number of
 * samples, beforehand. case_<op>.c explains the bounds. */
#ifndef CVY_REF_CASES_H
#define CVY_REF_CASES_H

#include "src/ops/activation.h"
#include "src/ops/norm.h"
#include "src/ops/batchnorm.h"
#include "src/ops/broadcast.h"
#include "src/ops/channels.h"
#include "src/ops/compress.h"
#include "src/ops/conv2d/conv2d.h"
#include "src/ops/conv2d/convpool.h"
#include "src/ops/layers/dropout.h"
#include "src/ops/eltwise.h"
#include "src/ops/gather/gather.h"
#include "src/ops/layers/groupnorm.h"
#include "src/ops/pool2d.h"
#include "src/ops/reduce.h"
#include "src/ops/layers/resample.h"
#include "src/ops/update.h"
#include "src/ops/layers/softmax.h"
#include "src/ops/softmax_xent.h"
#include "src/ref/case.h"

/* n samples of `each` floats. */
typedef enum eltwise_kind { CASE_RELU, CASE_RELU_BACKWARD, CASE_ADD, CASE_ACCUMULATE, CASE_MUL } eltwise_kind;
typedef struct eltwise_case {
  op_case base;
  eltwise_kind kind;
  int each, place;       /* place: 0: y has its own buffer, 1: y lies in the first input's, 2: in the second's */
  bool relu, accumulate; /* relu: of add; accumulate: of relu_backward and mul */
} eltwise_case;
void case_eltwise(eltwise_case *c, case_rng *r);

/* n rows of p.c channels: forward, then backward with separate values. */
typedef struct activation_case {
  op_case base;
  cvy_activation_params p;
  bool y_in_x, dx_in_dy, accumulate;
} activation_case;
void case_activation(activation_case *c, case_rng *r);
/* |y error| and |f' error| are at most small multiples of these sizes times FLT_EPSILON. */
double case_activation_y_size(const cvy_activation_params *p, double x, double y);
double case_activation_slope_size(const cvy_activation_params *p, double kept);

/* n rows of `call`; the case sets its buffers. */
typedef struct channels_case {
  op_case base;
  cvy_channels_call call;
} channels_case;
void case_channels(channels_case *c, case_rng *r);

/* in_place: y lies in x, and dx in dy unless they accumulate. */
typedef struct broadcast_case {
  op_case base;
  cvy_broadcast_params p;
  bool accumulate, in_place;
} broadcast_case;
void case_broadcast(broadcast_case *c, case_rng *r);

typedef struct dropout_case {
  op_case base;
  cvy_dropout_params p;
  int epoch;
  bool accumulate, in_place;
  const int *samples; /* NULL: drawn */
} dropout_case;
void case_dropout(dropout_case *c, case_rng *r);

typedef enum case_dx_place { CASE_DX_APART, CASE_DX_IN_Y, CASE_DX_IN_DY, CASE_DX_IN_X, CASE_DX_NONE } case_dx_place;
typedef struct softmax_case {
  op_case base; /* n: rows */
  int c, pitch;
  bool y_in_x;
  case_dx_place dx_in;
  const float *x; /* NULL: drawn */
} softmax_case;
void case_softmax(softmax_case *c, case_rng *r);

typedef struct xent_case {
  op_case base; /* n: rows */
  int n_max, c, pitch;
  float scale, smoothing;
  case_dx_place dx;
  const float *x; /* x, labels NULL: drawn */
  const int *labels;
  /* made */
  double loss, loss_bound;
  int correct;
  float got_loss;
} xent_case;
void case_softmax_xent(xent_case *c, case_rng *r);

typedef struct gather_case {
  op_case base;
  int m; /* images to choose from */
  cvy_shape shape;
  bool every_value;
  cvy_input_params input;
  bool augmented; /* samples have the numbers from `number` on, in `epoch` */
  int number, epoch;
  int *want_labels; /* made */
} gather_case;
void case_gather(gather_case *c, case_rng *r);

/* Forward, then backward with separate values; p.inference: the first only. */
typedef struct groupnorm_case {
  op_case base;
  cvy_groupnorm_params p;
  bool no_beta, accumulate, accumulate_dx, dx_in_dy;
  bool no_dx, no_parameters; /* backward without one of them */
  case_fill_kind fill;       /* of x; OFFSET: deviations 1 and 1e-2 around 1000 */
} groupnorm_case;
void case_groupnorm(groupnorm_case *c, case_rng *r);
groupnorm_case case_groupnorm_random(case_rng *r, int number);

typedef struct norm_case {
  op_case base; /* n: blocks of CVY_NORM_BLOCK values */
  float clip;   /* 0: none */
  double norm;  /* made */
} norm_case;
void case_norm(norm_case *c, case_rng *r);

typedef struct compress_case {
  op_case base;              /* n: values */
  const float *g, *residual; /* NULL: drawn; zeros */
  /* made */
  double *want, *want_residual;
  const uint16_t *sent; /* written by the run, valid until case_end */
  const float *residual_left;
} compress_case;
void case_compress(compress_case *c, case_rng *r);
float case_widen(uint16_t packed);

/* n times `each` values, `steps` updates from p.number on. running: updates running values, with p.momentum. */
typedef struct update_case {
  op_case base;
  cvy_update_params p;
  int each, steps;
  bool running;
  double *w_ref, *w_bound; /* made */
} update_case;
void case_update(update_case *c, case_rng *r);
/* Adam's update of one element, in the float operations that ops/update.h promises; results too close to 0 become 0. */
void case_update_adam(const cvy_update_numbers *u, float g, float *w, float *m, float *v);
float case_update_normal(float x);

/* COLUMNS: rows of c values, `pitch` apart. SUM: `rows` values, c = pitch = 1. PARTS: `rows` parts of c = pitch. */
typedef enum reduce_kind { CASE_REDUCE_COLUMNS, CASE_REDUCE_SUM, CASE_REDUCE_PARTS } reduce_kind;
typedef struct reduce_case {
  op_case base;
  reduce_kind kind;
  int rows, c, pitch;
  bool accumulate;
  case_fill_kind fill;
} reduce_case;
void case_reduce(reduce_case *c, case_rng *r);

/* Forward, then backward with separate values. */
typedef struct resample_case {
  op_case base;
  cvy_resample_params p;
  bool accumulate;
} resample_case;
void case_resample(resample_case *c, case_rng *r);
resample_case case_resample_random(case_rng *r, int number);

typedef struct pool2d_case {
  op_case base;
  cvy_pool2d_params p;
  bool nans, accumulate;
  case_fill_kind fill;
} pool2d_case;
void case_pool2d(pool2d_case *c, case_rng *r);
pool2d_case case_pool2d_random(case_rng *r, int number);
const char *case_pool2d_text(const pool2d_case *c); /* static */

/* Inference (with in_place alone), forward and backward; p.inference: the first only. */
enum { CASE_NORM_SUM_ERROR = 24 };
typedef struct batchnorm_case {
  op_case base;
  cvy_batchnorm_params p;
  int group_size, batch;
  bool stats; /* statistics per image are given */
  bool accumulate, accumulate_dresidual, y_in_x;
  int place; /* backward: 0 all apart, 1 dx is dy, 2 dresidual is dy */
  case_fill_kind fill;
  const float *x; /* NULL: drawn */
  /* made */
  size_t size, image, groups; /* values: all, of an image */
  int size_of_group;
  double *gamma, *beta, *y, *y_bound;
} batchnorm_case;
void case_batchnorm(batchnorm_case *c, case_rng *r);
batchnorm_case case_batchnorm_random(case_rng *r, int number);
/* Activations that cvy_batchnorm_takes accepts, in turn. */
cvy_activation_params case_activation_behind_norm(int number);
/* Number of samples that is enough for a check: 2, or more if images are small, because a gradient through
 * statistics of fewer than 8 values is mostly rounding error. */
int case_batchnorm_few(const cvy_shape *x);
/* Computes y as the readers of a deferred y do; affine: (groups,3,C). */
float *case_batchnorm_apply(batchnorm_case *c, const float *affine);

/* Passes are cvy_conv_pass. linear: runs through ops/linear.h; then p.r and p.s are the image's size. p's algos,
 * choice and math may change between runs. */
typedef struct conv2d_case {
  op_case base;
  cvy_conv2d_params p;
  int group_size; /* samples per group of the prologue */
  bool accumulate, linear;
  case_fill_kind fill;
  char took[CVY_CONV_PASSES][32]; /* names of the kernels that computed each pass in the last run */
  /* made */
  cvy_shape y;
  const double *w, *dy;
  double *fx_terms, *terms[CVY_CONV_PASSES], *large[CVY_CONV_PASSES], *db_terms; /* sums of magnitudes */
} conv2d_case;
void case_conv2d(conv2d_case *c, case_rng *r);
const char *case_conv2d_text(const conv2d_case *c); /* static */
/* Square filters with the usual pitch of y. */
cvy_conv2d_params case_conv2d_params(int n, cvy_shape x, int k, int filter, int stride, int pad);

/* Passes are cvy_conv_pass, then forward without a mask. */
typedef struct convpool_case {
  op_case base;
  cvy_convpool_params p;
  bool accumulate, no_mask; /* no_mask: only forward */
  case_fill_kind fill;
  /* made */
  cvy_conv2d_params conv; /* the convolution in it */
  cvy_shape a, y;         /* output of the convolution; of the pool */
  const double *x, *w, *dy;
  double *want_a, *da, *y_terms, a_bound;
  const float *first_y;
} convpool_case;
void case_convpool(convpool_case *c, case_rng *r);
const char *case_convpool_text(const convpool_case *c); /* static */

#endif
