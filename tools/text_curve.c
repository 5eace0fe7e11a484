/* SPDX-License-Identifier: MIT */
#include "tools/text_curve.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const double flattest = 0.02; /* the least that a curve's field spans */

/* The numbers at the lowest and the highest row. False: there is nothing to draw. */
static bool find_range(const text_curve_spec *s, double *lo, double *hi) {
  *lo = INFINITY;
  *hi = -INFINITY;
  for (int i = 0; i < s->n; i++) {
    if (!isfinite(s->y[i])) return false;
    *lo = fmin(*lo, s->y[i]);
    *hi = fmax(*hi, s->y[i]);
  }
  if (s->n < 2) return false;
  if (*hi - *lo < flattest) { /* a flat curve runs through the middle */
    *hi = fmin((*lo + *hi) / 2 + flattest / 2, s->highest);
    *lo = *hi - flattest;
  }
  return true;
}

bool text_curve_make(const text_curve_spec *s, text_curve *out) {
  char cell[TEXT_CURVE_ROWS_MOST][TEXT_CURVE_COLUMNS_MOST + 1], first[24], last[24];
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
      snprintf(line, sizeof *out->text, "%5.*f |%.*s", hi < 100 ? 2 : 0, row ? lo : hi, s->columns, cell[row]);
    else snprintf(line, sizeof *out->text, "      |%.*s", s->columns, cell[row]);
  }
  snprintf(out->text[out->n++], sizeof *out->text, "      +%.*s", s->columns,
           "------------------------------------------------------------");
  snprintf(first, sizeof first, "%ld", s->x[0]);
  const int size = snprintf(last, sizeof last, "%ld", s->x[s->n - 1]);
  snprintf(out->text[out->n++], sizeof *out->text, "       %-*s%s %s", s->columns - size, first, last, s->x_name);
  return true;
}
