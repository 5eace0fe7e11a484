/* SPDX-License-Identifier: MIT
 * Outline: text · confusion matrix · each class · worst predictions · the section. */
#include "tools/program/view/predictions_html.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tools/program/view/chart_svg.h"
#include "tools/program/view/png_write.h"

enum {
  MATRIX_MOST = 20, /* most classes of a matrix; with more, the most confused pairs are shown */
  PAIRS = 24,
  CLASSES_MOST = 100,
  WORST = 24,
  SIDE_MOST = 256,  /* largest side of a picture in the page; larger pictures are averaged down */
  SMOOTH_FROM = 96, /* from this side on a browser may smooth an enlarged picture */
};

/* Cells are tinted with transparency, so that text keeps its contrast in light and dark mode. */
const char predictions_style[] =
    ".matrix{border-collapse:separate;border-spacing:1px;margin-bottom:1rem}.matrix td,.matrix th{padding:.2rem "
    ".4rem;border:0}.matrix "
    "td.n{min-width:2.4rem}\n"
    ".matrix th.v{vertical-align:bottom;text-align:left}.matrix th.v span{writing-mode:vertical-rl;transform:rotate(180"
    "deg);max-height:9rem;overflow:hidden}\n"
    ".matrix th.r{text-align:right;font-weight:normal;max-width:11rem;overflow-wrap:anywhere}.tall{max-height:28rem;"
    "overflow:auto}\n"
    ".worst{display:grid;grid-template-columns:repeat(auto-fill,minmax(8.5rem,1fr));gap:.9rem}.worst "
    "img{width:100%;max-width:8.5rem;height:auto;display:block;border-radius:4px}.worst "
    ".raw{image-rendering:pixelated}\n"
    ".worst figcaption{font-size:.8rem;overflow-wrap:anywhere;color:var(--ink)}\n";

/* ---- text ---- */

static void put_class(FILE *out, const class_predictions *a, int i) {
  char room[16];
  chart_put_text(out, class_name(a->names, i, room));
}

static void put_part(FILE *out, double value) {
  fputs("<td class=\"n\">", out);
  if (value < 0) fputs("–", out);
  else fprintf(out, "%.3f", value);
}

/* ---- confusion matrix ---- */

/* The prediction for each sample; NULL: out of memory. */
static int *find_answers(const class_predictions *a) {
  int *const found = malloc((size_t)a->samples->n * sizeof *found);
  for (int i = 0; found && i < a->samples->n; i++)
    found[i] = cvy_predicted_class(a->probabilities + (size_t)i * (size_t)a->classes, a->classes);
  return found;
}

static void put_cell(FILE *out, int count, int of, bool right) {
  if (count == 0) {
    fputs("<td class=\"n soft\">·", out);
    return;
  }
  const double part = (double)count / of, tint = right ? 0.1 + 0.5 * part : 0.12 + 0.58 * sqrt(part);
  fprintf(out, "<td class=\"n\" style=\"background:rgba(%s,%.2f)\">%d", right ? "47,126,216" : "217,72,15", tint,
          count);
}

static bool put_matrix(FILE *out, const class_predictions *a, const int *found, const cvy_class_result *results) {
  const int classes = a->classes, columns = classes + 1; /* the last: no prediction */
  int n_none = 0;
  int *const counts = calloc((size_t)classes * (size_t)columns, sizeof *counts);
  if (!counts) return false;
  for (int i = 0; i < a->samples->n; i++) {
    n_none += found[i] < 0;
    counts[a->samples->labels[i] * columns + (found[i] < 0 ? classes : found[i])]++;
  }
  fputs("<div class=\"scroll\"><table class=\"matrix\"><tr><th class=\"soft\">class ↓ prediction →", out);
  for (int j = 0; j < classes + (n_none > 0); j++) {
    fputs("<th class=\"v\"><span>", out);
    if (j < classes) put_class(out, a, j);
    else fputs("none", out);
    fputs("</span>", out);
  }
  fputs("</tr>\n", out);
  for (int i = 0; i < classes; i++) {
    fputs("<tr><th class=\"r\">", out);
    put_class(out, a, i);
    for (int j = 0; j < classes + (n_none > 0); j++) put_cell(out, counts[i * columns + j], results[i].samples, i == j);
    fputs("</tr>\n", out);
  }
  fputs("</table></div>\n", out);
  free(counts);
  return true;
}

typedef struct pair {
  int label, predicted, n;
} pair;

static int by_classes(const void *x, const void *y) {
  const pair *const a = x, *const b = y;
  return a->label != b->label ? a->label - b->label : a->predicted - b->predicted;
}
static int by_count(const void *x, const void *y) {
  const pair *const a = x, *const b = y;
  return a->n != b->n ? b->n - a->n : by_classes(x, y);
}

static bool put_pairs(FILE *out, const class_predictions *a, const int *found, const cvy_class_result *results) {
  pair *const pairs = malloc(((size_t)a->samples->n + 1) * sizeof *pairs);
  int n_wrong = 0, n = 0;
  if (!pairs) return false;
  for (int i = 0; i < a->samples->n; i++)
    if (found[i] >= 0 && found[i] != a->samples->labels[i])
      pairs[n_wrong++] = (pair){a->samples->labels[i], found[i], 1};
  qsort(pairs, (size_t)n_wrong, sizeof *pairs, by_classes);
  for (int i = 0; i < n_wrong; i++)
    if (n > 0 && by_classes(&pairs[n - 1], &pairs[i]) == 0) pairs[n - 1].n++;
    else pairs[n++] = pairs[i];
  qsort(pairs, (size_t)n, sizeof *pairs, by_count);
  fprintf(out,
          "<p>%d pairs of %d classes are confused%s</p>\n<div class=\"scroll\"><table><tr><th>class<th>predicted as<th "
          "class=\"n\">times<th class=\"n\">of the class</tr>\n",
          n, a->classes, n > PAIRS ? "; most often:" : ":");
  for (int i = 0; i < n && i < PAIRS; i++) {
    fputs("<tr><td>", out);
    put_class(out, a, pairs[i].label);
    fputs("<td>", out);
    put_class(out, a, pairs[i].predicted);
    fprintf(out, "<td class=\"n\">%d<td class=\"n\">%.1f %%</tr>\n", pairs[i].n,
            100.0 * pairs[i].n / results[pairs[i].label].samples);
  }
  fputs("</table></div>\n", out);
  free(pairs);
  return true;
}

/* ---- each class ---- */

static bool put_classes(FILE *out, const class_predictions *a, const cvy_class_result *results) {
  int *const order = malloc((size_t)a->classes * sizeof *order), all;
  if (!order) return false;
  const int n = class_order(results, a->classes, CLASSES_MOST, order, &all);
  if (n < all) fprintf(out, "<p>The %d worst of %d classes, by F1:</p>\n", n, all);
  fputs(
      "<div class=\"scroll tall\"><table><tr><th>class<th class=\"n\">images<th class=\"n\">predicted<th "
      "class=\"n\">correct<th class=\"n\">precision<th class=\"n\">recall<th class=\"n\">F1</tr>\n",
      out);
  for (int k = 0; k < n; k++) {
    const cvy_class_result *const r = &results[order[k]];
    fputs("<tr><td>", out);
    put_class(out, a, order[k]);
    fprintf(out, "<td class=\"n\">%d<td class=\"n\">%d<td class=\"n\">%d", r->samples, r->predicted, r->correct);
    put_part(out, r->precision);
    put_part(out, r->recall);
    put_part(out, r->f1);
    fputs("</tr>\n", out);
  }
  fputs("</table></div>\n", out);
  free(order);
  return true;
}

/* ---- worst predictions ---- */

static void put_base64(FILE *out, const uint8_t *bytes, size_t n) {
  static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  for (size_t i = 0; i < n; i += 3) {
    const uint32_t three =
        (uint32_t)bytes[i] << 16 | (i + 1 < n ? (uint32_t)bytes[i + 1] << 8 : 0) | (i + 2 < n ? bytes[i + 2] : 0);
    for (int k = 0; k < 4; k++) putc(i + (size_t)k > n ? '=' : digits[three >> (18 - 6 * k) & 63], out);
  }
}

/* Replaces blocks of `by` x `by` pixels by their mean. */
static void average(const uint8_t *from, int h, int w, int c, int by, uint8_t *to) {
  for (int y = 0; y < h; y += by)
    for (int x = 0; x < w; x += by)
      for (int k = 0; k < c; k++) {
        uint32_t sum = 0, n = 0;
        for (int v = y; v < h && v < y + by; v++)
          for (int u = x; u < w && u < x + by; u++, n++)
            sum += from[((size_t)v * (size_t)w + (size_t)u) * (size_t)c + (size_t)k];
        *to++ = (uint8_t)((sum + n / 2) / n);
      }
}

static bool put_picture(FILE *out, const uint8_t *pixels, int h, int w, int c) {
  const int longer = h > w ? h : w, by = (longer + SIDE_MOST - 1) / SIDE_MOST;
  const int small_h = (h + by - 1) / by, small_w = (w + by - 1) / by;
  char *bytes = NULL;
  size_t size;
  uint8_t *const small = malloc((size_t)small_h * (size_t)small_w * (size_t)c);
  FILE *const file = small ? open_memstream(&bytes, &size) : NULL;
  if (file) average(pixels, h, w, c, by, small);
  bool ok = file && png_write(file, small, small_h, small_w, c);
  if (file) ok = fclose(file) == 0 && ok;
  if (ok) {
    fprintf(out, "<img%s alt=\"\" width=\"%d\" height=\"%d\" src=\"data:image/png;base64,",
            longer < SMOOTH_FROM ? " class=\"raw\"" : "", small_w, small_h);
    put_base64(out, (const uint8_t *)bytes, size);
    fputs("\">", out);
  }
  free(bytes);
  free(small);
  return ok;
}

static bool put_worst(FILE *out, const class_predictions *a, int h, int w, int c) {
  cvy_wrong_prediction worst[WORST];
  const size_t each = (size_t)h * (size_t)w * (size_t)c;
  const int n = cvy_predictions_worst(a->samples->labels, a->samples->n, a->probabilities, a->classes, WORST, worst);
  const bool shown = c == 1 || c == 3;
  bool ok = true;
  if (n == 0) return true;
  fputs("<h3>Worst predictions: lowest probability of the image's class</h3>\n", out);
  if (!shown) fprintf(out, "<p class=\"soft\">Not shown: the images have %d channels, pictures have 1 or 3.</p>\n", c);
  fputs("<div class=\"worst\">\n", out);
  for (int i = 0; i < n && ok; i++) {
    fputs("<figure>", out);
    if (shown) ok = put_picture(out, a->samples->images + (size_t)worst[i].sample * each, h, w, c);
    fputs("<figcaption><b>", out);
    put_class(out, a, worst[i].label);
    if (isfinite(worst[i].of_label)) fprintf(out, "</b> %.2g<br>", (double)worst[i].of_label);
    else fputs("</b><br>", out);
    if (worst[i].predicted < 0) fputs("no prediction", out);
    else {
      fputs("predicted <b>", out);
      put_class(out, a, worst[i].predicted);
      fprintf(out, "</b> %.4f", (double)worst[i].probability);
    }
    fprintf(out, "<br><span class=\"soft\">image %d</span></figcaption></figure>\n", worst[i].sample);
  }
  fputs("</div>\n", out);
  return ok;
}

/* ---- the section ---- */

static bool put_section(FILE *out, const class_predictions *a, const int *found, const cvy_class_result *results) {
  int correct = 0, none = 0;
  for (int i = 0; i < a->classes; i++) correct += results[i].correct;
  for (int i = 0; i < a->samples->n; i++) none += found[i] < 0;
  fprintf(out, "<p>%d of %d are correct (%.4f)", correct, a->samples->n, (double)correct / a->samples->n);
  if (none) fprintf(out, "; %d have no prediction: their outputs are not finite", none);
  fputs(".</p>\n", out);
  const bool ok = a->classes <= MATRIX_MOST ? put_matrix(out, a, found, results) : put_pairs(out, a, found, results);
  return ok && put_classes(out, a, results);
}

char *predictions_html(const class_predictions *a, const char *set, int epoch, int h, int w, int c) {
  char *text = NULL;
  size_t size;
  FILE *const out = open_memstream(&text, &size);
  int *const found = find_answers(a);
  cvy_class_result *const results = class_results(a);
  bool ok = out && found && results;
  if (ok) {
    fprintf(out,
            "<section>\n"
            "<h2>Predictions for %d %s images, epoch %d</h2>\n",
            a->samples->n, set, epoch + 1);
    ok = put_section(out, a, found, results) && put_worst(out, a, h, w, c);
    fputs("</section>\n", out);
  }
  if (out) ok = fclose(out) == 0 && ok;
  free(found);
  free(results);
  if (ok) return text;
  free(text);
  return NULL;
}
