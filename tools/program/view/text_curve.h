/* SPDX-License-Identifier: MIT
 * A curve in lines of plain text. Pure. */
#ifndef CVY_TOOLS_PROGRAM_VIEW_TEXT_CURVE_H
#define CVY_TOOLS_PROGRAM_VIEW_TEXT_CURVE_H

#include <stdbool.h>

enum { TEXT_CURVE_ROWS_MOST = 8, TEXT_CURVE_COLUMNS_MOST = 60, TEXT_CURVE_MARGIN = 7, TEXT_CURVE_MORE = 3 };

typedef struct text_curve_spec {
  const char *title, *x_name;
  const long *x; /* rising */
  const double *y;
  int n;
  int rows, columns; /* of the field, at most the limits above */
  double highest;    /* upper limit of y: 1 for an accuracy, or INFINITY */
} text_curve_spec;

typedef struct text_curve {
  int n; /* lines: the title, `rows`, the axis and its ends */
  char text[TEXT_CURVE_ROWS_MOST + TEXT_CURVE_MORE][TEXT_CURVE_MARGIN + TEXT_CURVE_COLUMNS_MOST + 32];
} text_curve;

/* Lines without trailing blanks. False, with n 0: fewer than two points, or one is not finite. */
bool text_curve_make(const text_curve_spec *spec, text_curve *out);

#endif
