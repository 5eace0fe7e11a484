/* SPDX-License-Identifier: MIT
 * The file of --plot: training loss and accuracies by epoch, in the style of the book. */
#ifndef CVY_TOOLS_PROGRAM_VIEW_PLOT_SVG_H
#define CVY_TOOLS_PROGRAM_VIEW_PLOT_SVG_H

#include <stdbool.h>

typedef struct plot_point {
  int epoch;
  double train_loss, train_acc, val_acc, test_acc;
} plot_point; /* epoch from 1; an accuracy < 0: none */
/* Written aside and renamed. `title` is any text; epochs: right end of the axis. False, with the reason printed. */
bool plot_svg_write(const char *path, const char *title, const plot_point *points, int n, int epochs);

#endif
