/* SPDX-License-Identifier: MIT
 * Names of classes in tables for people, in CSV and in JSON; the confusion matrix of an evaluation. */
#ifndef CVY_TOOLS_PROGRAM_VIEW_CLASS_TABLE_H
#define CVY_TOOLS_PROGRAM_VIEW_CLASS_TABLE_H

#include <jansson.h>
#include <stdio.h>

#include "convoy/convoy.h"

/* The name of class i, or its number written to room. */
const char *class_name(const char *const *names, int i, char room[16]);
/* The name, or the number as a number. */
json_t *class_json(const char *const *names, int i);
/* Columns of a terminal for the text, with control characters replaced (src/base/text.h). */
int class_width(const char *text);
/* The text, with control characters replaced, in exactly `columns` of a terminal: cut at the front (with "...") if
 * `tail`, else at the end, and padded with blanks. */
void class_cell(FILE *out, const char *text, int columns, bool tail);
/* A field of a CSV file (RFC 4180), with control characters and newlines replaced, quoted if it has a comma or a quote.
 * A field that begins with = + - or @, a formula for spreadsheets, is quoted and gets the prefix '. */
void csv_field(FILE *out, const char *text);

/* An evaluation's predictions. */
typedef struct class_predictions {
  const cvy_samples *samples;
  const float *probabilities;
  int classes;
  const char *const *names; /* NULL: numbers */
} class_predictions;
/* Of each class; free(). NULL: out of memory. */
cvy_class_result *class_results(const class_predictions *a);
/* The classes with samples or predictions, *all of them: in order if they are at most `most`, else the `most` worst by
 * F1, worst first. order has room for all classes. Returns their number in order. */
int class_order(const cvy_class_result *results, int classes, int most, int *order, int *all);
/* Text of 80 columns: the matrix, if its classes fit, and precision, recall and F1 of each class, or of the worst ones.
 * False: out of memory. */
bool confusion_print(const class_predictions *a, FILE *out);
/* The matrix as CSV, with names in the first line and column; free(). NULL: out of memory. */
char *confusion_csv(const class_predictions *a);
/* {"classes":[{"class":…,"samples":…,"precision":…,"recall":…,"f1":…},…],"confusion":[[…],…]}; no matrix for more than
 * 1000 classes. NULL: out of memory. */
json_t *confusion_json(const class_predictions *a);

#endif
