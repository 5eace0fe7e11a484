/* SPDX-License-Identifier: MIT */
#include "tools/program/view/plot_svg.h"

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/text.h"
#include "tools/program/view/axis.h"
#include "tools/program/view/chart_svg.h"
#include "tools/program/messages.h"
#include "tools/program/output_files.h"

enum { WIDTH = 520, HEIGHT = 340, LEFT = 60, RIGHT = 460, TOP = 44, BOTTOM = 290 };
#define ACC_COLOUR "#1f77b4"
#define LOSS_COLOUR "#d62728"

static double x_of(const axis *a, double v) { return LEFT + axis_part(a, v) * (RIGHT - LEFT); }
static double y_of(const axis *a, double v) { return BOTTOM - axis_part(a, v) * (BOTTOM - TOP); }

/* Writes at most about `most` bytes of a text, cut between characters, since labels of large teams are long. */
static void put_text(FILE *out, const char *text, size_t most) {
  cvy_text cut = {0};
  char one[CVY_PLAIN_MOST];
  for (size_t n; (n = cvy_plain_next(text, "", one)) > 0; text += n) {
    if (cut.size >= most) {
      cvy_text_add(&cut, "...");
      break;
    }
    cvy_text_add_bytes(&cut, one, strlen(one));
  }
  chart_put_text(out, cvy_text_get(&cut));
  cvy_text_clear(&cut);
}

/* A curve: its field of a point, and its style. */
typedef struct look {
  size_t offset; /* in plot_point */
  const char *name, *colour, *dash;
} look;
enum { TRAIN_ACC, VAL_ACC, TEST_ACC, TRAIN_LOSS, N_CURVES };
static const look looks[N_CURVES] = {
    [TRAIN_ACC] = {offsetof(plot_point, train_acc), "train acc", "#2ca02c", "2 3"},
    [VAL_ACC] = {offsetof(plot_point, val_acc), "val acc", "#9467bd", NULL},
    [TEST_ACC] = {offsetof(plot_point, test_acc), "test acc", ACC_COLOUR, NULL},
    [TRAIN_LOSS] = {offsetof(plot_point, train_loss), "train loss", LOSS_COLOUR, "6 4"},
};

/* The point's value; NaN: none. */
static double value_of(const plot_point *point, const look *l) {
  double v;
  memcpy(&v, (const char *)point + l->offset, sizeof v);
  return isfinite(v) && v >= 0 ? v : NAN;
}

static bool has_values(const plot_point *points, int n, const look *l) {
  for (int i = 0; i < n; i++)
    if (isfinite(value_of(&points[i], l))) return true;
  return false;
}

static void put_stroke(FILE *out, const look *l) {
  fprintf(out, "stroke=\"%s\" stroke-width=\"2\"", l->colour);
  if (l->dash) fprintf(out, " stroke-dasharray=\"%s\"", l->dash);
}

static void put_curve(FILE *out, const axis *ax, const axis *ay, const plot_point *points, int n, const look *l) {
  fputs("<polyline fill=\"none\" ", out);
  put_stroke(out, l);
  fputs(" points=\"", out);
  for (int i = 0; i < n; i++) {
    const double v = value_of(&points[i], l);
    if (isfinite(v)) fprintf(out, "%.1f,%.1f ", x_of(ax, points[i].epoch), y_of(ay, v));
  }
  fprintf(out, "\"/>\n");
  for (int i = 0; i < n; i++) {
    const double v = value_of(&points[i], l);
    if (!isfinite(v)) continue;
    fprintf(out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"2.5\" fill=\"%s\"><title>epoch %d: %s %.4f</title></circle>\n",
            x_of(ax, points[i].epoch), y_of(ay, v), l->colour, points[i].epoch, l->name, v);
  }
}

/* The numbers of an axis, beside the field. */
static void put_ticks(FILE *out, const axis *ay, bool right, const char *colour) {
  for (int i = 0; i < axis_ticks(ay); i++) {
    const double t = axis_tick(ay, i);
    fprintf(out, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"%s\" fill=\"%s\">", right ? RIGHT + 8 : LEFT - 8,
            y_of(ay, t) + 4, right ? "start" : "end", colour);
    axis_put(out, ay, t);
    fputs("</text>\n", out);
  }
}

static void put_name(FILE *out, int place, const look *l) {
  const int x = LEFT + 100 * place, y = TOP - 14;
  fprintf(out, "<line x1=\"%d\" y1=\"%d\" x2=\"%d\" y2=\"%d\" ", x, y, x + 24, y);
  put_stroke(out, l);
  fprintf(out, "/><text x=\"%d\" y=\"%d\">%s</text>\n", x + 30, y + 4, l->name);
}

/* Widens the range by the values of a curve. */
static void widen(const plot_point *points, int n, const look *l, double *lo, double *hi) {
  for (int i = 0; i < n; i++) {
    const double v = value_of(&points[i], l);
    *lo = fmin(*lo, v); /* fmin and fmax leave NaN out */
    *hi = fmax(*hi, v);
  }
}

bool plot_svg_write(const char *path, const char *title, const plot_point *points, int n, int epochs) {
  double acc_lo = INFINITY, acc_hi = -INFINITY, loss_lo = INFINITY, loss_hi = -INFINITY;
  widen(points, n, &looks[TRAIN_LOSS], &loss_lo, &loss_hi);
  for (int c = 0; c < TRAIN_LOSS; c++) widen(points, n, &looks[c], &acc_lo, &acc_hi);
  const axis ax = {.lo = 1, .hi = epochs > 1 ? epochs : 2, .tick = epochs > 10 ? ceil(epochs / 10.0) : 1};
  const axis acc = axis_make(isfinite(acc_lo) ? acc_lo : 0, isfinite(acc_hi) ? acc_hi : 1, 6);
  const axis loss = axis_make(isfinite(loss_lo) ? loss_lo : 0, isfinite(loss_hi) ? loss_hi : 1, 6);

  char *text = NULL;
  size_t size = 0;
  FILE *const out = open_memstream(&text, &size);
  if (!out) {
    program_say("error: --plot %s: out of memory", path);
    return false;
  }
  fprintf(out,
          "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" "
          "height=\"%d\" viewBox=\"0 0 %d %d\" font-family=\"sans-serif\" font-size=\"12\">\n<title>",
          WIDTH, HEIGHT, WIDTH, HEIGHT);
  put_text(out, title, SIZE_MAX);
  fprintf(out,
          "</title>\n<rect width=\"%d\" height=\"%d\" fill=\"white\"/>\n<text x=\"%d\" y=\"16\" font-size=\"11\" "
          "fill=\"#555\">",
          WIDTH, HEIGHT, LEFT);
  put_text(out, title, 70);
  fprintf(out, "</text>\n");
  for (int i = 0; i < axis_ticks(&ax); i++) {
    const double t = axis_tick(&ax, i);
    fprintf(out,
            "<line x1=\"%.1f\" y1=\"%d\" x2=\"%.1f\" y2=\"%d\" stroke=\"#ddd\"/><text x=\"%.1f\" y=\"%d\" "
            "text-anchor=\"middle\">%.0f</text>\n",
            x_of(&ax, t), TOP, x_of(&ax, t), BOTTOM, x_of(&ax, t), BOTTOM + 16, t);
  }
  for (int i = 0; i < axis_ticks(&acc); i++) {
    const double y = y_of(&acc, axis_tick(&acc, i));
    fprintf(out, "<line x1=\"%d\" y1=\"%.1f\" x2=\"%d\" y2=\"%.1f\" stroke=\"#ddd\"/>\n", LEFT, y, RIGHT, y);
  }
  fprintf(out,
          "<rect x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"none\" stroke=\"black\"/>\n<text x=\"%d\" "
          "y=\"%d\" text-anchor=\"middle\">epoch</text>\n",
          LEFT, TOP, RIGHT - LEFT, BOTTOM - TOP, (LEFT + RIGHT) / 2, BOTTOM + 36);
  put_ticks(out, &acc, false, ACC_COLOUR);
  put_ticks(out, &loss, true, LOSS_COLOUR);
  for (int c = 0, place = 0; c < N_CURVES; c++) {
    if (!has_values(points, n, &looks[c])) continue;
    put_curve(out, &ax, c == TRAIN_LOSS ? &loss : &acc, points, n, &looks[c]);
    put_name(out, place++, &looks[c]);
  }
  fprintf(out, "</svg>\n");
  bool ok = fclose(out) == 0 && text;
  if (!ok) program_say("error: --plot %s: out of memory", path);
  ok = ok && program_write(path, text);
  free(text);
  return ok;
}
