/* SPDX-License-Identifier: MIT
 * A network's predictions for a set, for the page of a run: confusion matrix, precision and recall of each class, and
 * the pictures whose classes get the lowest probabilities. */
#ifndef CVY_TOOLS_PROGRAM_VIEW_PREDICTIONS_HTML_H
#define CVY_TOOLS_PROGRAM_VIEW_PREDICTIONS_HTML_H

#include "tools/program/view/class_table.h"

/* Its style rules, a part of the page's. */
extern const char predictions_style[];
/* A <section> of HTML. `set`: "test" or "validation"; epoch: after which, from 0; images of h x w x c. free(). NULL:
 * out of memory. */
char *predictions_html(const class_predictions *answers, const char *set, int epoch, int h, int w, int c);

#endif
