/* SPDX-License-Identifier: MIT */
#include "tools/program/view/chart_svg.h"

#include <math.h>

#include "src/base/text.h"
#include "tools/program/view/axis.h"

enum { WIDTH = 640, HEIGHT = 250, LEFT = 52, RIGHT = 628, TOP = 10, BOTTOM = 214 };

static double x_of(const axis *a, double v) { return LEFT + axis_part(a, v) * (RIGHT - LEFT); }
static double y_of(const axis *a, double v) { return BOTTOM - axis_part(a, v) * (BOTTOM - TOP); }

void chart_put_text(FILE *out, const char *text) {
  char one[CVY_PLAIN_MOST];
  for (size_t n; (n = cvy_plain_next(text, "\n", one)) > 0; text += n) {
    const char *const entity = *one == '<'    ? "&lt;"
                               : *one == '>'  ? "&gt;"
                               : *one == '&'  ? "&amp;"
                               : *one == '"'  ? "&quot;"
                               : *one == '\'' ? "&#39;"
                                              : one;
    fputs(entity, out);
  }
}

static bool find_ends(const chart *c, axis *x, axis *y) {
  double x_lo = INFINITY, x_hi = -INFINITY, y_lo = INFINITY, y_hi = -INFINITY;
  for (int s = 0; s < c->n; s++) {
    for (int i = 0; i < c->series[s].n; i++) {
      const double v = c->series[s].y[i], at = c->series[s].x[i];
      if (!isfinite(v) || !isfinite(at)) continue;
      x_lo = fmin(x_lo, at);
      x_hi = fmax(x_hi, at);
      y_lo = fmin(y_lo, v);
      y_hi = fmax(y_hi, v);
    }
  }
  if (!isfinite(y_lo)) return false;
  *y = axis_make(y_lo, y_hi, 5);
  if (c->to_one) {
    y->lo = fmax(y->lo, 0);
    y->hi = fmin(y->hi, 1);
  }
  const axis ticks = axis_make(x_lo, x_hi, 8);
  *x = (axis){.lo = x_lo,
              .hi = x_hi > x_lo       ? x_hi
                    : x_lo + 1 > x_lo ? x_lo + 1
                                      : ticks.hi,
              .tick = fmax(ticks.tick, 1)};
  return true;
}

static void put_grid(FILE *out, const axis *x, const axis *y, const char *x_name) {
  for (int i = 0; i < axis_ticks(y); i++) {
    const double t = axis_tick(y, i);
    fprintf(out,
            "<path class=\"grid\" d=\"M%d %.1fH%d\"/><text class=\"tick\" x=\"%d\" y=\"%.1f\" text-anchor=\"end\">",
            LEFT, y_of(y, t), RIGHT, LEFT - 6, y_of(y, t) + 4);
    axis_put(out, y, t);
    fputs("</text>\n", out);
  }
  for (int i = 0; i < axis_ticks(x); i++) {
    const double t = axis_tick(x, i);
    fprintf(out,
            "<path class=\"grid\" d=\"M%.1f %dV%d\"/><text class=\"tick\" x=\"%.1f\" y=\"%d\" "
            "text-anchor=\"middle\">",
            x_of(x, t), TOP, BOTTOM, x_of(x, t), BOTTOM + 16);
    axis_put(out, x, t);
    fputs("</text>\n", out);
  }
  fprintf(out, "<text class=\"tick\" x=\"%d\" y=\"%d\" text-anchor=\"middle\">%s</text>\n", (LEFT + RIGHT) / 2,
          BOTTOM + 32, x_name);
}

static void put_line(FILE *out, const axis *x, const axis *y, const chart_series *s) {
  bool open = false;
  fprintf(out, "<path class=\"line c%d %s\" d=\"", s->colour % CHART_COLOURS, s->line);
  for (int i = 0; i < s->n; i++) {
    if (!isfinite(s->y[i])) {
      open = false;
      continue;
    }
    fprintf(out, "%c%.1f %.1f", open ? 'L' : 'M', x_of(x, s->x[i]), y_of(y, s->y[i]));
    open = true;
  }
  fputs("\"/>\n", out);
  for (int i = 0; i < s->n && s->dots; i++) {
    if (!isfinite(s->y[i])) continue;
    fprintf(out, "<circle class=\"c%d\" cx=\"%.1f\" cy=\"%.1f\" r=\"3\"><title>", s->colour % CHART_COLOURS,
            x_of(x, s->x[i]), y_of(y, s->y[i]));
    chart_put_text(out, s->name);
    fprintf(out, " %.0f: %.4f</title></circle>\n", s->x[i], s->y[i]);
  }
}

void chart_put(FILE *out, const chart *c) {
  axis x, y;
  if (!find_ends(c, &x, &y)) return;
  fputs("<figure><figcaption>", out);
  chart_put_text(out, c->title);
  fprintf(out, "</figcaption>\n<svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"", WIDTH, HEIGHT);
  chart_put_text(out, c->title);
  fputs("\">\n", out);
  put_grid(out, &x, &y, c->x_name);
  for (int s = 0; s < c->n; s++) put_line(out, &x, &y, &c->series[s]);
  fputs("</svg>\n<p class=\"legend\">", out);
  for (int s = 0; s < c->n; s++) {
    bool any = false;
    for (int i = 0; i < c->series[s].n; i++) any |= isfinite(c->series[s].y[i]);
    if (!any) continue;
    fprintf(out, "<span><svg viewBox=\"0 0 28 8\"><path class=\"line c%d %s\" d=\"M0 4H28\"/></svg> ",
            c->series[s].colour % CHART_COLOURS, c->series[s].line);
    chart_put_text(out, c->series[s].name);
    fputs("</span> ", out);
  }
  fputs("</p></figure>\n", out);
}
