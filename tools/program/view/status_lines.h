/* SPDX-License-Identifier: MIT
 * The state of a team's devices in few lines of a terminal. Pure. */
#ifndef CVY_TOOLS_PROGRAM_VIEW_STATUS_LINES_H
#define CVY_TOOLS_PROGRAM_VIEW_STATUS_LINES_H

#include "tools/program/view/progress.h"

enum { STATUS_LINES_MOST = 16, STATUS_WIDTH_MOST = 200 };
typedef struct status_lines {
  int n;
  char text[STATUS_LINES_MOST][STATUS_WIDTH_MOST + 1];
} status_lines;

/* At most `lines` lines of at most `width` columns for n devices: a line for each if there is room; else several on a
 * line, only with their numbers; else the first ones and the sum of the others. */
void status_lines_make(const progress_device *devices, int n, int width, int lines, status_lines *out);

#endif
