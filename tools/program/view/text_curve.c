/* SPDX-License-Identifier: MIT */
#include "tools/program/view/text_curve.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Least span of a curve's field: absolute, and as a fraction of its values. */
static const double flattest = 0.02, flattest_part = 1e-6;

/* The numbers at the lowest and the highest row. False: nothing to draw. */
static bool find_range(const text_curve_spec *s, double *lo, double *hi) {
  *lo = INFINITY;
  *hi = -INFINITY;
  for (int i = 0; i < s->n; i++) {
    if (!isfinite(s->y[i])) return false;
    *lo = fmin(*lo, s->y[i]);
    *hi = fmax(*hi, s->y[i]);
  }
  if (s->n < 2) return false;
  const double least = fmax(flattest, flattest_part * fmax(fabs(*lo), fabs(*hi)));
  if (*hi / 2 - *lo / 2 < least / 2) { /* a flat curve runs through the middle */
    *hi = fmin(*lo / 2 + *hi / 2 + least / 2, s->highest);
    *lo = *hi - least;
  }
  return isfinite(*hi - *lo);
}

/* In five columns. */
static const char *number(double value, double largest, char room[16]) {
  if (fabs(value) >= 99999.5) snprintf(room, 16, "%5.0e", value);
  else snprintf(room, 16, "%5.*f", largest < 100 ? 2 : 0, value);
  return room;
}

bool text_curve_make(const text_curve_spec *s, text_curve *out) {
  char cell[TEXT_CURVE_ROWS_MOST][TEXT_CURVE_COLUMNS_MOST + 1], first[24], last[24], room[16];
  double lo, hi;
  out->n = 0;
  if (!find_range(s, &lo, &hi)) return false;
  const long span = s->x[s->n - 1] - s->x[0] > 0 ? s->x[s->n - 1] - s->x[0] : 1;
  for (int row = 0; row < s->rows; row++) {
    memset(cell[row], ' ', (size_t)s->columns);
    cell[row][s->columns] = '\0';
  }
  for (int i = 0; i < s->n; i++) {
    const int column = (int)lround((double)(s->x[i] - s->x[0]) / (double)span * (s->columns - 1));
    cell[s->rows - 1 - (int)lround((s->y[i] - lo) / (hi - lo) * (s->rows - 1))][column] = '*';
  }
  snprintf(out->text[out->n++], sizeof *out->text, "%s", s->title);
  for (int row = 0; row < s->rows; row++) {
    for (int end = s->columns; end > 0 && cell[row][end - 1] == ' '; end--) cell[row][end - 1] = '\0';
    char *const line = out->text[out->n++];
    if (row == 0 || row == s->rows - 1)
      snprintf(line, sizeof *out->text, "%s |%.*s", number(row ? lo : hi, fmax(fabs(lo), fabs(hi)), room), s->columns,
               cell[row]);
    else snprintf(line, sizeof *out->text, "      |%.*s", s->columns, cell[row]);
  }
  snprintf(out->text[out->n++], sizeof *out->text, "      +%.*s", s->columns,
           "------------------------------------------------------------");
  snprintf(first, sizeof first, "%ld", s->x[0]);
  const int size = snprintf(last, sizeof last, "%ld", s->x[s->n - 1]);
  snprintf(out->text[out->n++], sizeof *out->text, "       %-*s%s %s", s->columns - size, first, last, s->x_name);
  return true;
}
