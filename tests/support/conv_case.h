/* SPDX-License-Identifier: MIT
 * One convolution layer, all its passes, against src/ref: shared by the tests of the algorithms. */
#ifndef CVY_TESTS_SUPPORT_CONV_CASE_H
#define CVY_TESTS_SUPPORT_CONV_CASE_H

#include "src/ref/cases.h"
#include "tests/support/check.h"

typedef struct conv_case {
  cvy_conv2d_params p;
  int n, group_size;
  bool accumulate;
  case_fill_kind fill;
} conv_case;

/* Draws all of a case but its shape (x.h, x.w, x.c, k, filter, stride, padding, n), which is set before: pitches, spare
 * room, what comes in front of the layer and behind it, values. */
void conv_case_vary(case_rng *r, conv_case *c);

/* Forward (with prologue and statistics as in p), backward_weights, and backward_data unless p says not, twice with the
 * same bits, against the reference: each result within the bounds of the algorithm that p.algos or p.choice made it
 * take. Which one that was: conv_case_took, after the run. */
void conv_case_run(check_device *d, case_rng *r, const conv_case *c);
/* Names of the kernels that did each pass of the last case, "" for a pass that was not asked for. */
const char *conv_case_took(cvy_conv_pass pass);

/* Fails where the reference's backward passes are not the derivatives of its forward pass, at places of x and w that r
 * draws. The loss sum(y * t) is bilinear, so central differences are exact but for rounding. x, w and t are dense;
 * changed places get their values back. */
void conv_case_differences(check_device *d, case_rng *r, const cvy_conv2d_params *p, int n, double *x, double *w,
                           const double *t);

/* A 3x3 layer for one sample, without padding; its pitches are its channels. */
cvy_conv2d_params conv_dense_3x3(int h, int w, int c, int k, int stride);
/* A square 3x3 layer with stride 1, bias and statistics. */
cvy_conv2d_params conv_square_3x3(int n_max, int size, int c, int k, int pad);
/* A 3x3 layer, small enough to try every way of its passes. */
extern const cvy_conv2d_params conv_small;
/* A case of a 3x3 layer but for its channels and filters: up to n samples, padding up to 2, up to `most` rows and
 * columns. */
conv_case conv_padded_case(case_rng *r, int n, int most);
/* A 3x3 layer behind a prologue with these flags; its groups of samples end in a smaller one. */
conv_case conv_prologue_case(int flags, int stride);

/* Under oclgrind, which is a thousand times slower: fewer and smaller. */
bool conv_in_oclgrind(void);
/* Multiply-adds of a pass. */
double conv_case_work(const cvy_conv2d_params *p, int n);

#endif
