/* SPDX-License-Identifier: MIT
 * Tables: columns are data, a row is a cell for each of them. The same row as text for people and as a JSON object. */
#ifndef CVY_TOOLS_PROGRAM_VIEW_TEXT_TABLE_H
#define CVY_TOOLS_PROGRAM_VIEW_TEXT_TABLE_H

#include <jansson.h>
#include <stdbool.h>

typedef enum column_kind {
  COLUMN_TEXT,
  COLUMN_INT,
  COLUMN_REAL,
  COLUMN_SIGNED, /* "+1.5" */
  COLUMN_POWER   /* "1.5e-07" */
} column_kind;

typedef struct table_column {
  const char *heading; /* NULL: the column is not printed */
  const char *key;     /* NULL: it is not in JSON */
  int width;           /* < 0: to the left, and a longer text is cut */
  column_kind kind;
  int decimals;
  double scale;       /* the printed number is so many times the one in JSON; 0: 1 */
  const char *behind; /* each printed number ("%"), or NULL */
  const char *unit;   /* in a line under the headings, or NULL */
  const char *above;  /* a heading over several columns, of which this is the last; or NULL */
  bool no_zero;       /* blank in place of 0 */
} table_column;

/* The columns' first fields; KIND: TEXT, INT, REAL, SIGNED, POWER. */
#define COLUMN(HEADING, KEY, WIDTH, KIND, DECIMALS) \
  .heading = (HEADING), .key = (KEY), .width = (WIDTH), .kind = COLUMN_##KIND, .decimals = (DECIMALS)

typedef struct table_cell {
  const char *text; /* in a column of numbers: printed in place of one, null in JSON */
  double number;    /* one that is not finite: the same with a blank */
} table_cell;
#define CELL_TEXT(TEXT) ((table_cell){.text = (TEXT)})
#define CELL(NUMBER) ((table_cell){.number = (double)(NUMBER)})
#define CELL_NONE CELL_TEXT("")

enum { TABLE_COLUMNS = 16 };
typedef struct text_table {
  const table_column *columns;
  int n;      /* at most TABLE_COLUMNS */
  int indent; /* blanks in front of each line */
} text_table;
#define TEXT_TABLE(COLUMNS, INDENT) ((text_table){(COLUMNS), sizeof(COLUMNS) / sizeof *(COLUMNS), (INDENT)})

/* The headings, on stdout: those above, the columns' own, the units; a line each, where there are any. */
void text_table_head(const text_table *table);
/* A line on stdout; texts are made plain (src/base/text.h). cells: n of them. */
void text_table_row(const text_table *table, const table_cell *cells);
/* An object of the columns that have a key. */
json_t *text_table_json(const text_table *table, const table_cell *cells);

#endif
