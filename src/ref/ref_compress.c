/* SPDX-License-Identifier: MIT
 * bfloat16 by its definition: of the two neighbours of x with 8 bits of precision the nearer one, of two equally near
 * ones the even one. */
#include <math.h>

#include "src/ref/ref.h"

/* x is a float. A bfloat16 has 8 significant bits, and no finer steps than 2^-133. */
static double nearest(double x) {
  int exponent;
  if (!isfinite(x) || x == 0) return x;
  (void)frexp(x, &exponent);
  const double step = ldexp(1.0, exponent - 8 > -133 ? exponent - 8 : -133);
  const double at = fabs(x) / step, below = floor(at), past = at - below;
  const double steps = past > 0.5 || (past == 0.5 && fmod(below, 2) != 0) ? below + 1 : below;
  const double near = steps * step;
  return copysign(near >= ldexp(1.0, 128) ? INFINITY : near, x);
}

void ref_compress(size_t n, const double *g, double *residual, double *packed) {
  for (size_t i = 0; i < n; i++) {
    const double x = (float)g[i] + (float)residual[i]; /* as wide as the device's sum */
    packed[i] = nearest(x);
    residual[i] = isfinite(packed[i]) ? x - packed[i] : 0;
  }
}
