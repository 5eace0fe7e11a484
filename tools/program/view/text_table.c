/* SPDX-License-Identifier: MIT */
#include "tools/program/view/text_table.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/program/messages.h"
#include "tools/program/output_files.h"

enum { CELL_BYTES = 256, LINE_BYTES = 2048 };

/* A line under way. `end`: where the column that was put last ends, and `length` may be less: no blanks at a line's
 * end. */
typedef struct line {
  char text[LINE_BYTES];
  int length, end;
} line;

static void put(line *out, const char *text, int at, int most) {
  const int length = (int)strnlen(text, (size_t)most);
  if (length == 0 || at + length >= LINE_BYTES) return;
  if (at > out->length) memset(out->text + out->length, ' ', (size_t)(at - out->length));
  memcpy(out->text + at, text, (size_t)length);
  out->length = at + length;
  out->text[out->length] = '\0';
}

static void put_cell(line *out, const table_column *column, const char *text) {
  const int begin = out->end, width = abs(column->width), length = (int)strlen(text);
  const bool left = column->width < 0;
  put(out, text, begin + (left || length > width ? 0 : width - length), left ? width : LINE_BYTES);
  out->end = begin + (length > width && !left ? length : width) + 1;
}

static void print_line(const line *out) {
  if (out->length > 0) program_print("%s\n", out->text);
}

static const char *number_text(const table_column *column, double value, char *room) {
  const double scaled = value * (column->scale != 0 ? column->scale : 1);
  const char *const behind = column->behind ? column->behind : "";
  const int n = column->decimals;
  if (!isfinite(value) || (column->no_zero && value == 0)) return "";
  if (column->kind == COLUMN_POWER) snprintf(room, CELL_BYTES, "%.*e%s", n, scaled, behind);
  else snprintf(room, CELL_BYTES, column->kind == COLUMN_SIGNED ? "%+.*f%s" : "%.*f%s", n, scaled, behind);
  return room;
}

static const char *heading_of(const table_column *column, int row) {
  const char *const text = row == 0 ? column->above : row == 1 ? column->heading : column->unit;
  return text ? text : "";
}

/* A heading over several columns begins in front of the one that has it. */
static void put_above(line *out, const table_column *column) {
  const int end = out->end + abs(column->width), length = (int)strlen(heading_of(column, 0));
  put(out, heading_of(column, 0), end > length ? end - length : 0, LINE_BYTES);
  out->end = end + 1;
}

void text_table_head(const text_table *table) {
  for (int row = 0; row < 3; row++) {
    line out = {.end = table->indent};
    for (int i = 0; i < table->n; i++) {
      const table_column *const column = &table->columns[i];
      if (!column->heading) continue;
      if (row == 0) put_above(&out, column);
      else put_cell(&out, column, heading_of(column, row));
    }
    print_line(&out);
  }
}

void text_table_row(const text_table *table, const table_cell *cells) {
  line out = {.end = table->indent};
  char room[CELL_BYTES];
  for (int i = 0; i < table->n; i++) {
    const table_column *const column = &table->columns[i];
    if (!column->heading) continue;
    put_cell(&out, column, cells[i].text ? cells[i].text : number_text(column, cells[i].number, room));
  }
  print_line(&out);
}

static json_t *cell_json(const table_column *column, const table_cell *cell) {
  if (column->kind == COLUMN_TEXT) return program_text_json(cell->text);
  if (cell->text || !isfinite(cell->number)) return json_null();
  return column->kind == COLUMN_INT ? json_integer((json_int_t)cell->number) : json_real(cell->number);
}

json_t *text_table_json(const text_table *table, const table_cell *cells) {
  json_t *const out = json_object();
  for (int i = 0; i < table->n; i++)
    if (table->columns[i].key)
      json_object_set_new(out, table->columns[i].key, cell_json(&table->columns[i], &cells[i]));
  return out;
}
