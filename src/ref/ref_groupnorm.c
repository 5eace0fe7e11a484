/* SPDX-License-Identifier: MIT
 * Normalisation over groups of channels in double, straight from the formulas of ops/layers/groupnorm.h: one group of
 * one sample at a time, in two passes. */
#include <math.h>

#include "src/ref/ref.h"

/* Value i of group g of sample s, of which positions * each are. */
static size_t place(const cvy_groupnorm_params *p, int s, int g, size_t i) {
  const size_t each = (size_t)(p->x.c / p->groups), positions = (size_t)p->x.h * (size_t)p->x.w;
  return ((size_t)s * positions + i / each) * (size_t)p->x.c + (size_t)g * each + i % each;
}

static size_t count(const cvy_groupnorm_params *p) {
  return (size_t)p->x.h * (size_t)p->x.w * (size_t)(p->x.c / p->groups);
}

static void moments(const cvy_groupnorm_params *p, int s, int g, const double *x, double *mean, double *invstd) {
  const size_t m = count(p);
  double sum = 0, squares = 0;
  for (size_t i = 0; i < m; i++) sum += x[place(p, s, g, i)];
  *mean = sum / (double)m;
  for (size_t i = 0; i < m; i++) squares += pow(x[place(p, s, g, i)] - *mean, 2);
  *invstd = 1 / sqrt(squares / (double)m + (double)p->eps);
}

void ref_groupnorm(const cvy_groupnorm_params *p, int n, const double *x, const double *gamma, const double *beta,
                   double *y, double *saved) {
  for (int s = 0; s < n; s++)
    for (int g = 0; g < p->groups; g++) {
      double mean, invstd;
      moments(p, s, g, x, &mean, &invstd);
      for (size_t i = 0; i < count(p); i++) {
        const size_t at = place(p, s, g, i), c = at % (size_t)p->x.c;
        y[at] = (x[at] - mean) * invstd * gamma[c] + (beta ? beta[c] : 0);
      }
      if (!saved) continue;
      saved[2 * (s * p->groups + g)] = mean;
      saved[2 * (s * p->groups + g) + 1] = invstd;
    }
}

void ref_groupnorm_backward(const cvy_groupnorm_params *p, int n, const double *x, const double *dy,
                            const double *gamma, double *dx, double *dgamma, double *dbeta, double *mag) {
  const size_t channels = (size_t)p->x.c, m = count(p);
  for (size_t c = 0; c < channels; c++) dgamma[c] = dbeta[c] = 0;
  for (size_t c = 0; mag && c < 2 * channels; c++) mag[c] = 0;
  for (int s = 0; s < n; s++)
    for (int g = 0; g < p->groups; g++) {
      double mean, invstd, sum = 0, along = 0;
      moments(p, s, g, x, &mean, &invstd);
      for (size_t i = 0; i < m; i++) {
        const size_t at = place(p, s, g, i), c = at % channels;
        const double xhat = (x[at] - mean) * invstd;
        sum += dy[at] * gamma[c];
        along += dy[at] * gamma[c] * xhat;
        dgamma[c] += dy[at] * xhat;
        dbeta[c] += dy[at];
        if (mag) mag[c] += fabs(dy[at] * xhat), mag[channels + c] += fabs(dy[at]);
      }
      for (size_t i = 0; i < m; i++) {
        const size_t at = place(p, s, g, i), c = at % channels;
        const double xhat = (x[at] - mean) * invstd;
        dx[at] = invstd * (dy[at] * gamma[c] - sum / (double)m - xhat * (along / (double)m));
      }
    }
}
