/* SPDX-License-Identifier: MIT */
#include "tools/program/view/axis.h"

#include <math.h>

/* A range spans at least this fraction of its largest value, so that adding a tick to that value changes it. */
static const double least_part = 1e-9;

static double held(double value) { return fmax(-AXIS_MOST, fmin(AXIS_MOST, value)); }

axis axis_make(double lo, double hi, int most) {
  lo = held(lo);
  hi = held(hi);
  const double least = least_part * fmax(1, fmax(fabs(lo), fabs(hi)));
  if (!(hi - lo > least)) {
    const double half = fmax(0.05 * fmax(fabs(lo), fabs(hi)), 0.01);
    lo -= half;
    hi += half;
  }
  const double raw = (hi - lo) / most, power = pow(10, floor(log10(raw))), of = raw / power;
  const double tick = power * (of <= 1 ? 1 : of <= 2 ? 2 : of <= 5 ? 5 : 10);
  return (axis){.lo = floor(lo / tick + 1e-9) * tick, .hi = ceil(hi / tick - 1e-9) * tick, .tick = tick};
}

int axis_ticks(const axis *a) { return (int)(floor(a->hi / a->tick + 1e-9) - ceil(a->lo / a->tick - 1e-9)) + 1; }

double axis_tick(const axis *a, int i) { return (ceil(a->lo / a->tick - 1e-9) + i) * a->tick; }

double axis_part(const axis *a, double value) { return (held(value) - a->lo) / (a->hi - a->lo); }

void axis_put(FILE *out, const axis *a, double value) {
  const int digits = a->tick >= 1 ? 0 : (int)ceil(-log10(a->tick) - 1e-9);
  const double shown = fabs(value) < a->tick / 2 ? 0 : value;
  if (fabs(value) >= 1e9) fprintf(out, "%.4g", shown);
  else if (digits > 6) fprintf(out, "%.2g", shown);
  else fprintf(out, "%.*f", digits, shown);
}
