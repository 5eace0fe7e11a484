/* SPDX-License-Identifier: MIT */
#include "tools/program/view/status_lines.h"

#include <stdio.h>
#include <string.h>

enum { CELL_MOST = 96, GAP = 3, LINE_LEAST = 42 }; /* columns of a device's line without its label */

static int minimum(int a, int b) { return a < b ? a : b; }

/* Columns of the distinguishing part of a label: "0:0/1 pthread-…" → 5. */
static int short_size(const char *label) { return (int)strcspn(label, " "); }

static void idle_text(double idle, char *out, size_t out_bytes) {
  if (idle < 0) snprintf(out, out_bytes, "   ?");
  else snprintf(out, out_bytes, "%3.0f%%", 100 * idle);
}

static void add_line(status_lines *out, int width, const char *text) {
  snprintf(out->text[out->n++], sizeof out->text[0], "%.*s", width, text);
}

/* The label as far as it fits; the numbers in full. */
static void line_each(const progress_device *d, int n, int width, status_lines *out) {
  char tail[64], idle[16], line[STATUS_WIDTH_MOST + CELL_MOST];
  int longest = 0, shortest = 0;
  for (int i = 0; i < n; i++) {
    const int whole = (int)strlen(d[i].label), brief = short_size(d[i].label);
    if (whole > longest) longest = whole;
    if (brief > shortest) shortest = brief;
  }
  for (int i = 0; i < n; i++) {
    idle_text(d[i].idle, idle, sizeof idle);
    const int tail_size =
        snprintf(tail, sizeof tail, " %6d images %8.0f img/s  idle %s", d[i].share, d[i].images_per_second, idle);
    const int room = width - tail_size - 2;
    const int size = room >= longest ? longest : room > shortest ? room : shortest;
    snprintf(line, sizeof line, "  %-*.*s%s", size, size, d[i].label, tail);
    add_line(out, width, line);
  }
}

static int make_cell(const progress_device *d, int label_size, char *out, size_t out_bytes) {
  char idle[16];
  const int size = minimum(short_size(d->label), label_size);
  idle_text(d->idle, idle, sizeof idle);
  return snprintf(out, out_bytes, "%-*.*s %4d im %6.0f/s idle %s", label_size, size, d->label, d->share,
                  d->images_per_second, idle);
}

static void add_rest(const progress_device *d, int n, int width, status_lines *out) {
  char text[STATUS_WIDTH_MOST + 1];
  double low = 2, high = -1, rate = 0;
  long images = 0;
  for (int i = 0; i < n; i++) {
    rate += d[i].images_per_second;
    images += d[i].share;
    if (d[i].idle < 0) continue;
    if (d[i].idle < low) low = d[i].idle;
    if (d[i].idle > high) high = d[i].idle;
  }
  if (high < 0) snprintf(text, sizeof text, "  and %d more: %ld im %.0f/s", n, images, rate);
  else
    snprintf(text, sizeof text, "  and %d more: %ld im %.0f/s idle %.0f-%.0f%%", n, images, rate, 100 * low,
             100 * high);
  add_line(out, width, text);
}

void status_lines_make(const progress_device *d, int n, int width, int lines, status_lines *out) {
  char cell[CELL_MOST], line[STATUS_WIDTH_MOST + CELL_MOST];
  int label_size = 0;
  out->n = 0;
  width = minimum(width, STATUS_WIDTH_MOST);
  lines = minimum(lines, STATUS_LINES_MOST);
  if (n < 1 || width < 1 || lines < 1) return;
  for (int i = 0; i < n; i++)
    if (short_size(d[i].label) > label_size) label_size = minimum(short_size(d[i].label), 16);
  if (n <= lines && width >= LINE_LEAST + label_size) {
    line_each(d, n, width, out);
    return;
  }
  const int cell_size = make_cell(&d[0], label_size, cell, sizeof cell);
  const int fit = (width - 2 + GAP) / (cell_size + GAP), columns = n <= lines || fit < 1 ? 1 : fit;
  const int shown = n <= lines * columns ? n : (lines - 1) * columns;
  for (int i = 0; i < shown; i += columns) {
    int used = snprintf(line, sizeof line, "  ");
    for (int k = i; k < minimum(i + columns, shown); k++) {
      make_cell(&d[k], label_size, cell, sizeof cell);
      used += snprintf(line + used, sizeof line - (size_t)used, "%s%s", k > i ? "   " : "", cell);
      if (used >= (int)sizeof line) break;
    }
    add_line(out, width, line);
  }
  if (shown < n) add_rest(d + shown, n - shown, width, out);
}
