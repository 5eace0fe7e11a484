/* SPDX-License-Identifier: MIT
 * A chart of curves as SVG inside a page. The page's style sheet sets the colours: classes c0 to c7, "dash" and "dots"
 * of lines, "grid" and "tick". */
#ifndef CVY_TOOLS_PROGRAM_VIEW_CHART_SVG_H
#define CVY_TOOLS_PROGRAM_VIEW_CHART_SVG_H

#include <stdbool.h>
#include <stdio.h>

enum { CHART_COLOURS = 8, CHART_POINTS = 400 };

/* A point that is not finite leaves a gap in the line. */
typedef struct chart_series {
  const char *name; /* any text */
  int colour;       /* taken modulo CHART_COLOURS */
  const char *line; /* "", "dash" or "dots" */
  bool dots;        /* a dot at each point */
  double *x, *y;    /* owned; x rising */
  int n;
} chart_series;

typedef struct chart {
  const char *title, *x_name;
  bool to_one; /* accuracies: the axis does not go beyond 0 and 1 */
  chart_series *series;
  int n;
} chart;

/* Nothing if no series has a finite point. */
void chart_put(FILE *out, const chart *chart);
/* The text with control characters except newlines replaced (src/base/text.h), escaped for HTML and SVG. */
void chart_put_text(FILE *out, const char *text);

#endif
