/* SPDX-License-Identifier: MIT
 * Operations between a value per sample and channel and all positions, in double, from the formulas of
 * ops/broadcast.h. */
#include <math.h>
#include <string.h>

#include "src/ref/ref.h"

/* Index in s of element i of x. */
static size_t place(const cvy_shape *x, size_t i) {
  const size_t c = (size_t)x->c;
  return i / ((size_t)(x->h * x->w) * c) * c + i % c;
}
static size_t size_of(const cvy_shape *x, int n) { return (size_t)n * (size_t)(x->h * x->w) * (size_t)x->c; }

void ref_broadcast(const cvy_broadcast_params *p, int n, const double *x, const double *s, double *y) {
  for (size_t i = 0; i < size_of(&p->x, n); i++) {
    const double other = s[place(&p->x, i)];
    y[i] = p->mul ? x[i] * other : x[i] + other;
    if (p->relu && y[i] <= 0) y[i] = 0;
  }
}

void ref_broadcast_backward(const cvy_broadcast_params *p, int n, const double *x, const double *s, const double *dy,
                            double *dx, double *ds, double *mag) {
  memset(ds, 0, (size_t)n * (size_t)p->x.c * sizeof *ds);
  if (mag) memset(mag, 0, (size_t)n * (size_t)p->x.c * sizeof *mag);
  for (size_t i = 0; i < size_of(&p->x, n); i++) {
    const size_t at = place(&p->x, i);
    const double term = p->mul ? dy[i] * x[i] : dy[i];
    dx[i] = p->mul ? dy[i] * s[at] : dy[i];
    ds[at] += term;
    if (mag) mag[at] += fabs(term);
  }
}
