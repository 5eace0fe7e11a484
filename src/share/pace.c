/* SPDX-License-Identifier: MIT */
#include "src/share/pace.h"

#include <string.h>

#include "src/base/mem.h"
#include "src/base/quantile.h"
#include "src/share/split.h"

cvy_status cvy_pace_create(int n_devices, int batch, int group, int least, cvy_pace **out) {
  cvy_status status = CVY_OK;
  cvy_pace *pace = cvy_calloc(1, sizeof *pace);
  *out = NULL;
  CVY_REQUIRE(pace, CVY_E_MEMORY, "out of host memory");
  pace->devices = cvy_calloc((size_t)n_devices, sizeof *pace->devices);
  pace->known = cvy_calloc((size_t)n_devices, sizeof *pace->known);
  pace->why = cvy_calloc((size_t)n_devices, sizeof *pace->why);
  pace->scratch = cvy_calloc(5 * (size_t)n_devices, sizeof *pace->scratch);
  CVY_REQUIRE(pace->devices && pace->known && pace->why && pace->scratch, CVY_E_MEMORY, "out of host memory");
  pace->params = (cvy_balance_params){.batch = batch,
                                      .group = group,
                                      .least = least,
                                      .n_devices = n_devices,
                                      .devices = pace->devices,
                                      .scratch = pace->scratch};
  for (int i = 0; i < n_devices; i++)
    pace->devices[i] = (cvy_balance_device){.points = pace->known[i].points, .cap = -1, .factor = 1};
  *out = pace;
  return CVY_OK;
fail:
  cvy_pace_destroy(&pace);
  return status;
}

void cvy_pace_destroy(cvy_pace **pace) {
  if (!*pace) return;
  cvy_free((*pace)->devices);
  cvy_free((*pace)->known);
  cvy_free((*pace)->why);
  cvy_free((*pace)->scratch);
  cvy_free(*pace);
  *pace = NULL;
}

void cvy_pace_add_point(cvy_pace *pace, int device, int n, double seconds) {
  cvy_pace_device *const d = &pace->known[device];
  int at = 0;
  while (at < d->n_points && d->points[at].n < n) at++;
  if (at < d->n_points && d->points[at].n == n) {
    if (seconds < d->points[at].seconds) d->points[at].seconds = seconds;
    return;
  }
  if (d->n_points == CVY_PACE_POINTS) return;
  memmove(&d->points[at + 1], &d->points[at], (size_t)(d->n_points - at) * sizeof *d->points);
  d->points[at] = (cvy_balance_point){n, seconds};
  pace->devices[device].n_points = ++d->n_points;
}

cvy_status cvy_pace_lift_caps(cvy_pace *pace, bool *lifted) {
  cvy_status status = CVY_OK;
  bool fits;
  *lifted = false;
  CVY_TRY(cvy_balance_fits(&pace->params, &fits));
  for (int i = 0; !fits && i < pace->params.n_devices; i++) {
    if (pace->known[i].lost) continue;
    pace->devices[i].cap = -1;
    *lifted = true;
  }
fail:
  return status;
}

void cvy_pace_lose(cvy_pace *pace, int device) {
  pace->known[device].lost = true;
  pace->devices[device].cap = 0;
}

/* True if the balance could have chosen these shares. */
static bool allowed(const cvy_pace *pace, const int *shares) {
  for (int i = 0; i < pace->params.n_devices; i++) {
    const int cap = pace->devices[i].cap;
    if ((cap >= 0 && shares[i] > cap) || (shares[i] > 0 && shares[i] < pace->params.least)) return false;
  }
  return true;
}

cvy_status cvy_pace_first(cvy_pace *pace, int *shares) {
  cvy_status status = CVY_OK;
  const cvy_balance_params *const p = &pace->params;
  int *const even = cvy_calloc((size_t)p->n_devices, sizeof *even);
  CVY_REQUIRE(even, CVY_E_MEMORY, "out of host memory");
  CVY_TRY(cvy_balance_find(p, shares, pace->why));
  CVY_TRY(cvy_split_shares(&(cvy_split_params){.batch = p->batch, .n_devices = p->n_devices, .group = p->group},
                           p->batch, even));
  if (allowed(pace, even) && cvy_balance_step_time(p, even) <= (1 + CVY_PACE_EVEN) * cvy_balance_step_time(p, shares)) {
    memcpy(shares, even, (size_t)p->n_devices * sizeof *shares);
    for (int i = 0; i < p->n_devices; i++) pace->why[i] = even[i] > 0 ? CVY_BALANCE_WORKS : CVY_BALANCE_NO_GAIN;
  }
fail:
  cvy_free(even);
  return status;
}

/* Measured time / time expected from the calibration. */
static double ratio(const cvy_pace *pace, int device, int n, double seconds) {
  cvy_balance_device calibrated = pace->devices[device];
  calibrated.factor = 1;
  return seconds / cvy_balance_compute_time(&calibrated, n);
}

void cvy_pace_try(cvy_pace *pace, int device, int n, double seconds) {
  pace->devices[device].factor = ratio(pace, device, n, seconds);
}

void cvy_pace_step(cvy_pace *pace, const int *shares, const double *busy_s) {
  for (int i = 0; i < pace->params.n_devices; i++) {
    cvy_pace_device *const d = &pace->known[i];
    if (shares[i] <= 0 || !(busy_s[i] > 0)) continue;
    d->ratios[d->n_ratios++ % CVY_PACE_WINDOW] = ratio(pace, i, shares[i], busy_s[i]);
    if (d->n_ratios < CVY_PACE_WINDOW) continue;
    double sorted[CVY_PACE_WINDOW];
    memcpy(sorted, d->ratios, sizeof sorted);
    pace->devices[i].factor = cvy_quantile(sorted, CVY_PACE_WINDOW, 0.5);
  }
}

cvy_status cvy_pace_propose(cvy_pace *pace, const int *now, int *shares, bool *better, double *before_s,
                            double *after_s) {
  cvy_status status = CVY_OK;
  const cvy_balance_params *const p = &pace->params;
  *better = false;
  for (int i = 0; i < p->n_devices; i++)
    if (now[i] > 0 && pace->known[i].n_ratios < CVY_PACE_WINDOW) return CVY_OK;
  bool fits;
  CVY_TRY(cvy_balance_fits(p, &fits));
  if (!fits) return CVY_OK; /* the batch would need several passes, but statistics of the whole batch need one */
  CVY_TRY(cvy_balance_find(p, shares, pace->why));
  *before_s = cvy_balance_step_time(p, now);
  *after_s = cvy_balance_step_time(p, shares);
  *better = *after_s < (1 - CVY_PACE_GAIN) * *before_s && (*before_s - *after_s) * CVY_PACE_HORIZON > pace->change_s;
fail:
  return status;
}

void cvy_pace_changed(cvy_pace *pace, double cost_s) {
  pace->change_s = cost_s;
  for (int i = 0; i < pace->params.n_devices; i++) pace->known[i].n_ratios = 0;
}

double cvy_pace_factor(const cvy_pace *pace, int device) { return pace->devices[device].factor; }
