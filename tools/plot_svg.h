/* SPDX-License-Identifier: MIT
 * The file of --plot: test accuracy by epoch, as the book draws it, and the training loss beside it. */
#ifndef CVY_TOOLS_PLOT_SVG_H
#define CVY_TOOLS_PLOT_SVG_H

#include <stdbool.h>

typedef struct plot_point {
  int epoch;
  double train_loss, test_acc;
} plot_point; /* epoch from 1; test_acc < 0: none */
/* Written aside and renamed. `title` is any text; epochs: right end of the axis. False with the reason said. */
bool plot_svg_write(const char *path, const char *title, const plot_point *points, int n, int epochs);

#endif
