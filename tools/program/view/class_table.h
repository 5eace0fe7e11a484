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
/* Columns of a terminal that the text needs, made plain (src/base/text.h). */
int class_width(const char *text);
/* The text, made plain, in exactly `columns` of a terminal: cut in front (with "...") if `tail`, else behind; blanks
 * behind it. */
void class_cell(FILE *out, const char *text, int columns, bool tail);
/* A field of a CSV file (RFC 4180), made plain: it has no line's end, and stands in quotes if it has a comma or a
 * quote. One that begins with = + - or @, which spreadsheets take for a formula, is in quotes and begins with '. */
void csv_field(FILE *out, const char *text);

/* An evaluation's answers. */
typedef struct class_predictions {
  const cvy_samples *samples;
  const float *probabilities;
  int classes;
  const char *const *names; /* NULL: numbers */
} class_predictions;
/* Of each class; free(). NULL: out of memory. */
cvy_class_result *class_results(const class_predictions *a);
/* The classes that have samples or are an answer, *all of them: in order if they are at most `most`, else the `most`
 * worst by F1, worst first. order has room for all classes. Returns how many are in it. */
int class_order(const cvy_class_result *results, int classes, int most, int *order, int *all);
/* For people, 80 columns: the matrix of up to so many classes as fit, and precision, recall and F1 of each class, of
 * many classes the worst ones. False: out of memory. */
bool confusion_print(const class_predictions *a, FILE *out);
/* The matrix as CSV, with names in the first line and column; free(). NULL: out of memory. */
char *confusion_csv(const class_predictions *a);
/* {"classes":[{"class":…,"samples":…,"precision":…,"recall":…,"f1":…},…],"confusion":[[…],…]}; the matrix is left out
 * where there are more than 1000 classes. NULL: out of memory. */
json_t *confusion_json(const class_predictions *a);

#endif
