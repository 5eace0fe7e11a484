/* SPDX-License-Identifier: MIT */
#include "src/run/best.h"

bool cvy_best_judge(cvy_run_position *at, double accuracy) {
  at->judged_epochs = at->epoch;
  if (!(accuracy >= 0) || (at->best_epochs > 0 && !(accuracy > at->best_acc))) return false;
  at->best_epochs = at->epoch;
  at->best_acc = accuracy;
  return true;
}

bool cvy_best_is_past(const cvy_run_position *at, int patience) {
  return patience > 0 && at->best_epochs > 0 && at->judged_epochs - at->best_epochs >= patience;
}
