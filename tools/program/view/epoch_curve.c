/* SPDX-License-Identifier: MIT */
#include "tools/program/view/epoch_curve.h"

#include <stdlib.h>

#include "tools/program/log/json_log.h"
#include "tools/program/messages.h"
#include "tools/program/view/progress.h"

bool epoch_curve_open(int epochs, const char *plot, const char *log, char *title, epoch_curve *out) {
  *out = (epoch_curve){.plot = plot, .log = log, .title = title, .epochs = epochs};
  out->points = calloc((size_t)epochs, sizeof *out->points);
  return title && out->points;
}

void epoch_curve_close(epoch_curve *c) {
  free(c->title);
  free(c->points);
  *c = (epoch_curve){0};
}

/* Points of the epochs before `before` (from 0), from the log of the earlier parts of this run. */
static void read_points(epoch_curve *c, int before) {
  c->n = 0;
  if (before > c->epochs) return; /* of a longer run */
  if (!c->log || !json_log_epochs(c->log, before, c->points)) return;
  for (int i = 0; i < before; i++) {
    if (c->points[i].epoch > 0) c->points[c->n++] = c->points[i];
  }
}

void epoch_curve_resume(epoch_curve *c, int epoch) {
  if (epoch == 0) return;
  read_points(c, epoch);
  if (!c->plot) return;
  const int first = c->n > 0 ? c->points[0].epoch : epoch + 1;
  if (first > 1) {
    program_warn("--plot %s: the curve begins with epoch %d, %s", c->plot, first,
                 c->log ? "the log lacks earlier ones" : "earlier ones need --log");
  } else if (c->n < epoch) {
    program_warn("--plot %s: %d of the first %d epochs are not in the log and are left out", c->plot, epoch - c->n,
                 epoch);
  }
}

static void draw(epoch_curve *c) { c->failed = !plot_svg_write(c->plot, c->title, c->points, c->n, c->epochs); }

void epoch_curve_finished(epoch_curve *c, int epochs_done) {
  if (!c->plot) return;
  if (epochs_done > 0 && epochs_done <= c->epochs) read_points(c, epochs_done);
  if (c->n > 0 && c->n == epochs_done) draw(c);
  else
    program_warn("--plot %s: not drawn: the run is already finished, and %s", c->plot,
                 c->log ? "the log lacks some of its epochs" : "its epochs need --log");
}

void epoch_curve_add(epoch_curve *c, const cvy_epoch_result *e, bool writes) {
  if (c->n < c->epochs) {
    c->points[c->n++] = (plot_point){.epoch = e->epoch + 1,
                                     .train_loss = e->train_loss,
                                     .train_acc = e->train_acc,
                                     .val_acc = e->val_acc,
                                     .test_acc = e->test_acc};
  }
  if (c->plot && !c->failed && writes) draw(c);
}

/* Shows the validation accuracy, or without one the test accuracy. */
static void pass(const epoch_curve *c, void (*to)(const char *title, const long *x, const double *y, int n)) {
  long *const x = calloc((size_t)c->n + 1, sizeof *x);
  double *const y = calloc((size_t)c->n + 1, sizeof *y);
  bool val = false;
  int n = 0;
  for (int i = 0; i < c->n; i++) val |= c->points[i].val_acc >= 0;
  for (int i = 0; x && y && i < c->n; i++) {
    const double acc = val ? c->points[i].val_acc : c->points[i].test_acc;
    if (acc < 0) continue;
    x[n] = c->points[i].epoch;
    y[n++] = acc;
  }
  to(val ? "val acc" : "test acc", x, y, n);
  free(x);
  free(y);
}

void epoch_curve_show(const epoch_curve *c) { pass(c, progress_curve_show); }
void epoch_curve_print(const epoch_curve *c) { pass(c, progress_curve); }
