/* SPDX-License-Identifier: MIT
 * What the epochs of a run gave: for --plot and for the curve on the terminal. A run that goes on reads the epochs of
 * its earlier parts from the log. */
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

/* False when out of memory. `title` is taken over (NULL: there was no memory for it). */
bool epoch_curve_open(int epochs, const char *plot, const char *log, char *title, epoch_curve *out);
void epoch_curve_close(epoch_curve *curve);
/* A run goes on in epoch `epoch` (from 0), before it adds to its log: warns where the figure will lack epochs. */
void epoch_curve_resume(epoch_curve *curve, int epoch);
/* The run was finished already, after so many epochs: draws the figure again if the log has all of it. */
void epoch_curve_finished(epoch_curve *curve, int epochs_done);
/* Adds an epoch; draws the figure anew if this process writes. */
void epoch_curve_add(epoch_curve *curve, const cvy_epoch_result *epoch, bool writes);
/* The curve of the accuracy that the run has each epoch: on the terminal under the bar, or printed at the end. */
void epoch_curve_show(const epoch_curve *curve);
void epoch_curve_print(const epoch_curve *curve);

#endif
