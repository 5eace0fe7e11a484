/* SPDX-License-Identifier: MIT */
#include "tools/program/view/class_table.h"

#include <stdlib.h>
#include <string.h>

#include "src/base/text.h"

enum { COLUMNS = 80, MATRIX_MOST = 13, CLASSES_SHOWN = 20, JSON_MATRIX_MOST = 1000 };

const char *class_name(const char *const *names, int i, char room[16]) {
  if (names) return names[i];
  snprintf(room, 16, "%d", i);
  return room;
}

json_t *class_json(const char *const *names, int i) { return names ? json_string(names[i]) : json_integer(i); }

/* The first byte of a character in UTF-8. */
static bool begins(char c) { return ((unsigned char)c & 0xc0) != 0x80; }

static int width(const char *text) {
  int n = 0;
  for (; *text; text++) n += begins(*text);
  return n;
}

int class_width(const char *text) {
  char one[CVY_PLAIN_MOST];
  int n = 0;
  for (size_t bytes; (bytes = cvy_plain_next(text, "", one)) > 0; text += bytes) n += width(one);
  return n;
}

/* After the first n characters. */
static const char *behind(const char *text, int n) {
  for (; *text; text++)
    if (begins(*text) && n-- == 0) break;
  return text;
}

void class_cell(FILE *out, const char *text, int columns, bool tail) {
  cvy_text whole = {0};
  cvy_text_add_plain(&whole, text, "");
  const char *const plain = cvy_text_get(&whole);
  const int all = width(plain);
  if (all <= columns) fprintf(out, "%s%*s", plain, columns - all, "");
  else if (tail) fprintf(out, "...%s", behind(plain, all - columns + 3));
  else fprintf(out, "%.*s...", (int)(behind(plain, columns - 3) - plain), plain);
  cvy_text_clear(&whole);
}

void csv_field(FILE *out, const char *text) {
  char one[CVY_PLAIN_MOST];
  const bool formula = *text && strchr("=+-@", *text);
  const bool quoted = formula || text[strcspn(text, ",\"")];
  if (quoted) fputs(formula ? "\"'" : "\"", out);
  for (size_t n; (n = cvy_plain_next(text, "", one)) > 0; text += n) fputs(*one == '"' ? "\"\"" : one, out);
  if (quoted) putc('"', out);
}

static int *row_room(const class_predictions *a) { return calloc((size_t)a->classes, sizeof(int)); }

static int row_of(const class_predictions *a, int label, int *row) {
  return cvy_predictions_row(a->samples->labels, a->samples->n, a->probabilities, a->classes, label, row);
}

cvy_class_result *class_results(const class_predictions *a) {
  cvy_class_result *const results = calloc((size_t)a->classes, sizeof *results);
  if (results) cvy_predictions_count(a->samples->labels, a->samples->n, a->probabilities, a->classes, results);
  return results;
}

typedef struct ranked {
  double f1;
  int i;
} ranked;

static int worst_first(const void *x, const void *y) {
  const ranked *const a = x, *const b = y;
  if (a->f1 != b->f1) return a->f1 < b->f1 ? -1 : 1;
  return a->i < b->i ? -1 : 1;
}

int class_order(const cvy_class_result *results, int classes, int most, int *order, int *all) {
  ranked *const ranks = calloc((size_t)classes, sizeof *ranks);
  int n = 0;
  for (int i = 0; ranks && i < classes; i++)
    if (results[i].samples || results[i].predicted) ranks[n++] = (ranked){.f1 = results[i].f1, .i = i};
  *all = n;
  if (n > most) qsort(ranks, (size_t)n, sizeof *ranks, worst_first);
  if (n > most) n = most;
  for (int k = 0; k < n; k++) order[k] = ranks[k].i;
  free(ranks);
  return n;
}

/* ---- text ---- */

static int digits(int n) {
  char text[16];
  return snprintf(text, sizeof text, "%d", n);
}

/* The matrix, if each column has room for its numbers. */
static bool matrix_print(const class_predictions *a, FILE *out) {
  char room[16];
  int most = 0, name = 0;
  int *const row = row_room(a);
  if (!row) return false;
  for (int i = 0; i < a->classes && a->classes <= MATRIX_MOST; i++) {
    row_of(a, i, row);
    for (int j = 0; j < a->classes; j++)
      if (row[j] > most) most = row[j];
    if (width(class_name(a->names, i, room)) > name) name = width(class_name(a->names, i, room));
  }
  const int shortest = name < 12 ? name : 12, cell = digits(most) > 3 ? digits(most) : 3;
  const int wide = (COLUMNS - shortest - 4) / a->classes - 1;
  if (a->classes > MATRIX_MOST || wide < cell) {
    free(row);
    return true;
  }
  /* columns as wide as the names, if they fit */
  const int column = wide > 8 ? 8 : wide;
  const int left = COLUMNS - (column + 1) * a->classes;
  const int names = name < left ? name : left;
  fprintf(out,
          "confusion: rows are classes, columns are predictions\n"
          "%*s",
          names, "");
  for (int j = 0; j < a->classes; j++) {
    const char *const text = class_name(a->names, j, room);
    const int n = width(text) < column ? width(text) : column;
    fprintf(out, " %*s%.*s", column - n, "", (int)(behind(text, n) - text), text);
  }
  putc('\n', out);
  for (int i = 0; i < a->classes; i++) {
    row_of(a, i, row);
    class_cell(out, class_name(a->names, i, room), names, false);
    for (int j = 0; j < a->classes; j++)
      if (row[j]) fprintf(out, " %*d", column, row[j]);
      else fprintf(out, " %*s", column, ".");
    putc('\n', out);
  }
  putc('\n', out);
  free(row);
  return true;
}

static void number_print(FILE *out, double value) {
  if (value < 0) fprintf(out, " %9s", "-");
  else fprintf(out, " %9.3f", value);
}

bool confusion_print(const class_predictions *a, FILE *out) {
  char room[16];
  cvy_class_result *const results = class_results(a);
  int *const order = calloc((size_t)a->classes, sizeof *order), name = 5, all = 0;
  const bool ok = results && order && matrix_print(a, out);
  const int n = ok ? class_order(results, a->classes, CLASSES_SHOWN, order, &all) : 0;
  for (int k = 0; k < n; k++)
    if (width(class_name(a->names, order[k], room)) > name) name = width(class_name(a->names, order[k], room));
  if (name > 40) name = 40;
  if (n < all) fprintf(out, "the %d worst of %d classes, by F1\n", n, all);
  if (ok) fprintf(out, "%-*s %9s %9s %9s %9s\n", name, "class", "samples", "precision", "recall", "F1");
  for (int k = 0; k < n; k++) {
    const cvy_class_result *const r = &results[order[k]];
    class_cell(out, class_name(a->names, order[k], room), name, false);
    fprintf(out, " %9d", r->samples);
    number_print(out, r->precision);
    number_print(out, r->recall);
    number_print(out, r->f1);
    putc('\n', out);
  }
  free(order);
  free(results);
  return ok;
}

/* ---- CSV and JSON ---- */

char *confusion_csv(const class_predictions *a) {
  char room[16], *text = NULL;
  size_t size;
  int *const row = row_room(a);
  FILE *const out = row ? open_memstream(&text, &size) : NULL;
  if (!out) {
    free(row);
    return NULL;
  }
  fputs("class", out);
  for (int j = 0; j < a->classes; j++) {
    putc(',', out);
    csv_field(out, class_name(a->names, j, room));
  }
  putc('\n', out);
  for (int i = 0; i < a->classes; i++) {
    row_of(a, i, row);
    csv_field(out, class_name(a->names, i, room));
    for (int j = 0; j < a->classes; j++) fprintf(out, ",%d", row[j]);
    putc('\n', out);
  }
  free(row);
  const bool failed = ferror(out) != 0;
  if (fclose(out) == 0 && !failed) return text;
  free(text);
  return NULL;
}

static json_t *number_json(double value) { return value < 0 ? json_null() : json_real(value); }

json_t *confusion_json(const class_predictions *a) {
  json_t *const classes = json_array(), *const matrix = a->classes <= JSON_MATRIX_MOST ? json_array() : json_null();
  cvy_class_result *const results = class_results(a);
  int *const row = row_room(a);
  bool ok = results && row;
  for (int i = 0; ok && i < a->classes; i++) {
    const cvy_class_result *const r = &results[i];
    ok = json_array_append_new(
             classes, json_pack("{so si si si so so so}", "class", class_json(a->names, i), "samples", r->samples,
                                "answered", r->predicted, "correct", r->correct, "precision", number_json(r->precision),
                                "recall", number_json(r->recall), "f1", number_json(r->f1))) == 0;
    if (!ok || !json_is_array(matrix)) continue;
    json_t *const numbers = json_array();
    row_of(a, i, row);
    for (int j = 0; j < a->classes; j++) json_array_append_new(numbers, json_integer(row[j]));
    ok = json_array_append_new(matrix, numbers) == 0;
  }
  free(results);
  free(row);
  json_t *const all = json_pack("{so so}", "classes", classes, "confusion", matrix);
  if (ok) return all;
  json_decref(all);
  return NULL;
}
