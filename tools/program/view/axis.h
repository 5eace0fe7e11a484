/* SPDX-License-Identifier: MIT
 * An axis of a chart: its ends, its ticks, and the position of a value. Pure. */
#ifndef CVY_TOOLS_PROGRAM_VIEW_AXIS_H
#define CVY_TOOLS_PROGRAM_VIEW_AXIS_H

#include <stdio.h>

/* Values beyond AXIS_MOST are drawn at its ends: differences of all others are finite. */
#define AXIS_MOST 1e300

typedef struct axis {
  double lo, hi, tick; /* lo < hi, and lo + tick differs from lo */
} axis;

/* For finite values from lo to hi: ends and distance of ticks, about `most` steps of 1, 2 or 5 times a power of ten. A
 * range that is negligible beside its values is widened. */
axis axis_make(double lo, double hi, int most);
/* The multiples of `tick` from lo to hi: their number, and multiple i from 0. */
int axis_ticks(const axis *a);
double axis_tick(const axis *a, int i);
/* Position of a value: 0 at lo, 1 at hi. */
double axis_part(const axis *a, double value);
/* The text of a tick. */
void axis_put(FILE *out, const axis *a, double value);

#endif
