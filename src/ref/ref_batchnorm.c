/* SPDX-License-Identifier: MIT
 * Batch normalisation in double, straight from the formulas of ops/batchnorm.h: two passes, one channel of one group
 * at a time. */
#include <math.h>

#include "src/ref/ref.h"

/* Samples [first, last) of group g. */
typedef struct group_range {
  int first, last;
} group_range;

static group_range samples_of(int g, int n, int group_size) {
  const int first = g * group_size, last = first + group_size;
  return (group_range){first, last < n ? last : n};
}

static double activate(const cvy_batchnorm_params *p, double v) {
  if (p->activation.kind == CVY_ACTIVATION_RELU) return p->relu && v <= 0 ? 0 : v;
  ref_activation(&p->activation, 1, &v, &v);
  return v;
}

/* Mean and biased variance of channel c over the group's samples. */
static void moments(const cvy_batchnorm_params *p, group_range r, int c, const double *x, double *mean, double *var) {
  const size_t channels = (size_t)p->x.c, positions = (size_t)p->x.h * (size_t)p->x.w;
  const size_t begin = (size_t)r.first * positions, end = (size_t)r.last * positions;
  double sum = 0, squares = 0;
  for (size_t i = begin; i < end; i++) sum += x[i * channels + (size_t)c];
  *mean = sum / (double)(end - begin);
  for (size_t i = begin; i < end; i++) {
    const double d = x[i * channels + (size_t)c] - *mean;
    squares += d * d;
  }
  *var = squares / (double)(end - begin);
}

void ref_batchnorm_forward(const cvy_batchnorm_params *p, int n, int group_size, int batch, const double *x,
                           const double *residual, const double *gamma, const double *beta, double *y, double *saved,
                           double *s) {
  const int size = group_size > 0 && group_size < n ? group_size : n, channels = p->x.c;
  const size_t positions = (size_t)p->x.h * (size_t)p->x.w;
  if (s)
    for (int c = 0; c < 2 * channels; c++) s[c] = 0;
  for (int g = 0; g * size < n; g++) {
    const group_range r = samples_of(g, n, size);
    const double m = (double)(r.last - r.first) * (double)positions, weight = (double)(r.last - r.first) / batch;
    for (int c = 0; c < channels; c++) {
      double mean, var;
      moments(p, r, c, x, &mean, &var);
      const double invstd = 1 / sqrt(var + (double)p->eps);
      if (saved) {
        saved[(size_t)(2 * g) * (size_t)channels + (size_t)c] = mean;
        saved[(size_t)(2 * g + 1) * (size_t)channels + (size_t)c] = invstd;
      }
      if (s) {
        s[c] += weight * mean;
        s[channels + c] += weight * var * m / (m - 1);
      }
      for (size_t i = (size_t)r.first * positions; i < (size_t)r.last * positions; i++) {
        const size_t at = i * (size_t)channels + (size_t)c;
        y[at] = activate(p, (x[at] - mean) * invstd * gamma[c] + beta[c] + (residual ? residual[at] : 0));
      }
    }
  }
}

void ref_batchnorm_inference(const cvy_batchnorm_params *p, int n, const double *x, const double *residual,
                             const double *gamma, const double *beta, const double *running, double *y) {
  const size_t channels = (size_t)p->x.c, rows = (size_t)n * (size_t)p->x.h * (size_t)p->x.w;
  for (size_t i = 0; i < rows; i++)
    for (size_t c = 0; c < channels; c++) {
      const size_t at = i * channels + c;
      const double xhat = (x[at] - running[c]) / sqrt(running[channels + c] + (double)p->eps);
      y[at] = activate(p, xhat * gamma[c] + beta[c] + (residual ? residual[at] : 0));
    }
}

void ref_batchnorm_backward(const cvy_batchnorm_params *p, int n, int group_size, const double *x, const double *y,
                            const double *slope, const double *dy, const double *gamma, double *dx, double *dresidual,
                            double *dgamma, double *dbeta) {
  const int size = group_size > 0 && group_size < n ? group_size : n, channels = p->x.c;
  const size_t positions = (size_t)p->x.h * (size_t)p->x.w;
  for (int c = 0; c < channels; c++) dgamma[c] = dbeta[c] = 0;
  for (int g = 0; g * size < n; g++) {
    const group_range r = samples_of(g, n, size);
    const size_t begin = (size_t)r.first * positions, end = (size_t)r.last * positions;
    const double m = (double)(end - begin);
    for (int c = 0; c < channels; c++) {
      double mean, var, sum = 0, sum_xhat = 0;
      moments(p, r, c, x, &mean, &var);
      const double invstd = 1 / sqrt(var + (double)p->eps);
      for (int pass = 0; pass < 2; pass++) /* first the sums, then the results that need them */
        for (size_t i = begin; i < end; i++) {
          const size_t at = i * (size_t)channels + (size_t)c;
          const double dm = (slope ? slope[at] : !p->relu || y[at] > 0) * dy[at], xhat = (x[at] - mean) * invstd;
          if (pass == 0) {
            sum += dm;
            sum_xhat += dm * xhat;
          } else {
            if (dresidual) dresidual[at] = dm;
            dx[at] = gamma[c] * invstd * (dm - sum / m - xhat * (sum_xhat / m));
          }
        }
      dbeta[c] += sum;
      dgamma[c] += sum_xhat;
    }
  }
}

void ref_batchnorm_backward_fixed(const cvy_batchnorm_params *p, int n, const double *x, const double *y,
                                  const double *dy, const double *gamma, const double *running, double *dx,
                                  double *dresidual, double *dgamma, double *dbeta) {
  const size_t channels = (size_t)p->x.c, rows = (size_t)n * (size_t)p->x.h * (size_t)p->x.w;
  for (size_t c = 0; c < channels; c++) {
    const double invstd = 1 / sqrt(running[channels + c] + (double)p->eps);
    dgamma[c] = dbeta[c] = 0;
    for (size_t i = 0; i < rows; i++) {
      const size_t at = i * channels + c;
      const double dm = !p->relu || y[at] > 0 ? dy[at] : 0;
      if (dresidual) dresidual[at] = dm;
      dx[at] = gamma[c] * invstd * dm;
      dgamma[c] += dm * (x[at] - running[c]) * invstd;
      dbeta[c] += dm;
    }
  }
}
