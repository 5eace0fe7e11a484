/* SPDX-License-Identifier: MIT */
#include "src/run/lag_watch.h"

#include <math.h>

#include "src/base/logging.h"

static const double FAR = 0.25, MUCH = 0.05;

double cvy_lag_left(const cvy_layout *layout, long steps) {
  double most = 0;
  for (int i = 0; i < layout->n_running; i++)
    if (!layout->running[i].frozen) most = fmax(most, pow(1 - (double)layout->running[i].momentum, (double)steps));
  return most;
}

void cvy_lag_warn(const cvy_layout *layout, long steps, double train_acc, double eval_acc, bool *said) {
  const double left = cvy_lag_left(layout, steps);
  if (*said || eval_acc < 0 || train_acc - eval_acc <= FAR || left <= MUCH) return;
  *said = true;
  cvy_log_warning(
      "accuracy is %.2f in training and %.2f in evaluation, which uses running values of batch normalisation: after "
      "%ld steps %.0f %% of their initial values are left; --precise-bn 100 recomputes them at the end",
      train_acc, eval_acc, steps, 100 * left);
}
