/* SPDX-License-Identifier: MIT */
#include "src/run/loss_watch.h"

#include <math.h>
#include <string.h>

#include "src/base/quantile.h"

bool cvy_loss_jumps(cvy_loss_watch *w, double loss) {
  double sorted[CVY_LOSS_STEPS];
  memcpy(sorted, w->losses, sizeof sorted);
  w->median = w->n ? cvy_quantile(sorted, w->n, 0.5) : 0;
  const bool high = !isfinite(loss) || (w->median > 0 && loss > CVY_LOSS_JUMP * w->median), jumps = high && !w->high;
  w->high = high;
  if (high) return jumps;
  w->losses[w->next] = loss;
  w->next = (w->next + 1) % CVY_LOSS_STEPS;
  if (w->n < CVY_LOSS_STEPS) w->n++;
  return false;
}
