/* SPDX-License-Identifier: MIT
 * Sums of squares for the norm of a gradient, on a device (norm.h) and on the host (protocol/grad_norm.h). Pure. */
#ifndef CVY_OPS_NORM_SUM_H
#define CVY_OPS_NORM_SUM_H

#include <math.h>
#include <stdbool.h>

enum { CVY_NORM_BLOCK = 128 }; /* values, and sums of a level that make one of the next */

/* As cvy_team_params' clip_norm and grad_norm: the limit, 0: none; computed also without one. */
typedef struct cvy_norm_params {
  float clip;
  bool computed;
} cvy_norm_params;
static inline bool cvy_norm_wanted(const cvy_norm_params *p) { return p->clip > 0 || p->computed; }

/* A sum of squares and what rounding has left of it: together it has a double's digits. */
typedef struct cvy_norm_sum {
  float sum, lost;
} cvy_norm_sum;
/* The factor of the gradient, and its sum of squares. */
typedef struct cvy_norm_result {
  float scale;
  cvy_norm_sum squares;
} cvy_norm_result;

/* The norm itself. */
static inline double cvy_norm_length(const cvy_norm_sum *squares) {
  return sqrt(isfinite(squares->sum) ? (double)squares->sum + (double)squares->lost : (double)squares->sum);
}

#endif
