/* SPDX-License-Identifier: MIT
 * Results of a run's epochs, for --plot and for the curve on the terminal. A resumed run reads the epochs of its
 * earlier parts from the log. */
#ifndef CVY_TOOLS_PROGRAM_VIEW_EPOCH_CURVE_H
#define CVY_TOOLS_PROGRAM_VIEW_EPOCH_CURVE_H

#include <stdbool.h>

#include "convoy/train.h"
#include "tools/program/view/plot_svg.h"

typedef struct epoch_curve {
  const char *plot, *log; /* files of --plot and --log; NULL: none. Borrowed */
  char *title;            /* of the figure; owned */
  plot_point *points;     /* room for `epochs`; owned */
  int n, epochs;
  bool failed; /* the figure could not be written */
} epoch_curve;

/* False when out of memory. Takes ownership of `title` (NULL: out of memory). */
bool epoch_curve_open(int epochs, const char *plot, const char *log, char *title, epoch_curve *out);
void epoch_curve_close(epoch_curve *curve);
/* A resumed run in epoch `epoch` (from 0), before it appends to its log: warns if the figure lacks epochs. */
void epoch_curve_resume(epoch_curve *curve, int epoch);
/* The run is already finished, after `epochs` epochs: draws the figure again if the log has all of them. */
void epoch_curve_finished(epoch_curve *curve, int epochs_done);
/* Adds an epoch; redraws the figure if this process writes. */
void epoch_curve_add(epoch_curve *curve, const cvy_epoch_result *epoch, bool writes);
/* The curve of the accuracy by epoch: on the terminal under the bar, or printed at the end. */
void epoch_curve_show(const epoch_curve *curve);
void epoch_curve_print(const epoch_curve *curve);

#endif
