/* SPDX-License-Identifier: MIT */
#include "src/share/split.h"

#include <math.h>
#include <stdlib.h>

#include "src/base/mem.h"

/* Remainders that differ by less than this are a tie, since doubles do not represent decimal fractions exactly. (A
 * quota just below its whole number has the largest remainder and is rounded up.) */
static const double TIE = 1e-9;

static int largest_first(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x < y) - (x > y);
}

/* counts[] = `total` things by largest remainder. weights NULL: all equal. The sum of the weights is finite and > 0.
 * scratch: 2 x n_devices. */
static void largest_remainder(int total, const double *weights, int n_devices, double *scratch, int *counts) {
  if (!weights) {
    for (int i = 0; i < n_devices; i++) counts[i] = total / n_devices + (i < total % n_devices);
    return;
  }
  double *const remainders = scratch, *const sorted = scratch + n_devices;
  double sum = 0;
  int left = total, n_sorted = 0;
  for (int i = 0; i < n_devices; i++) sum += weights[i];
  for (int i = 0; i < n_devices; i++) {
    counts[i] = (int)floor(total * (weights[i] / sum));
    left -= counts[i];
    remainders[i] = total * (weights[i] / sum) - counts[i];
    if (weights[i] > 0) sorted[n_sorted++] = remainders[i];
  }
  /* The quotas sum to `total` up to rounding, so the floors sum to at most that, and fewer things are left than there
   * are devices with a weight. */
  CVY_ASSERT(left >= 0 && left <= n_sorted);
  if (left == 0) return;
  qsort(sorted, (size_t)n_sorted, sizeof *sorted, largest_first);
  const double last = sorted[left - 1]; /* the least that gets one more, or a tie with it */
  for (int tie = 0; tie < 2; tie++)
    for (int i = 0; i < n_devices && left > 0; i++) {
      const bool above = remainders[i] > last + TIE, near = !above && remainders[i] >= last - TIE;
      if (!(weights[i] > 0) || !(tie ? near : above)) continue;
      counts[i]++;
      left--;
    }
}

/* Distributes n samples in whole groups; the remainder is one smaller group at the end (split.h). scratch: as above. */
static void deal(int n, int group, const double *weights, int n_devices, double *scratch, int *shares) {
  const int rest = n % group;
  largest_remainder(n / group, weights, n_devices, scratch, shares);
  int taker = -1;
  for (int i = 0; i < n_devices; i++) {
    shares[i] *= group;
    if (shares[i] > 0) taker = i;
  }
  if (rest == 0) return;
  double best_time = taker < 0 ? 0 : (shares[taker] + rest) / (weights ? weights[taker] : 1.0);
  for (int i = taker + 1; i < n_devices; i++) {
    const double weight = weights ? weights[i] : 1.0, time = rest / weight;
    if (weight > 0 && (taker < 0 || time < best_time)) {
      taker = i;
      best_time = time;
    }
  }
  shares[taker] += rest;
}

/* Weights: finite, >= 0, with a positive finite sum. Shares: whole numbers that sum to the batch and respect the
 * groups. */
static cvy_status check_values(const cvy_split_params *p, int group) {
  cvy_status status = CVY_OK;
  const bool shares = p->rule == CVY_RULE_SHARES;
  double sum = 0;
  int last = 0;
  CVY_REQUIRE(p->values, CVY_E_ARGUMENT, "split: %s: expected one value per device", shares ? "shares" : "weights");
  for (int i = 0; i < p->n_devices; i++) {
    const double value = p->values[i];
    CVY_REQUIRE(isfinite(value) && value >= 0, CVY_E_ARGUMENT, "split: the %s of device %d is %g; expected 0 or more",
                shares ? "share" : "weight", i, value);
    CVY_REQUIRE(!shares || (value <= p->batch && value == floor(value)), CVY_E_ARGUMENT,
                "split: the share of device %d is %.10g; expected a whole number from 0 to the batch size %d", i, value,
                p->batch);
    sum += value;
    if (value > 0) last = i;
  }
  CVY_REQUIRE(sum > 0 && isfinite(sum), CVY_E_ARGUMENT,
              "split: the %s of the %d devices sum to %g; expected a finite sum above 0", shares ? "shares" : "weights",
              p->n_devices, sum);
  if (shares) {
    CVY_REQUIRE(sum == p->batch, CVY_E_ARGUMENT, "split: the shares sum to %.10g; expected the batch size %d", sum,
                p->batch);
    for (int i = 0; i < last; i++)
      CVY_REQUIRE((int)p->values[i] % group == 0, CVY_E_ARGUMENT,
                  "split: the share of device %d is %d; with groups of %d samples, expected a multiple of %d (only "
                  "device %d, the last one with samples, may have a remainder)",
                  i, (int)p->values[i], group, group, last);
  }
fail:
  return status;
}

cvy_status cvy_split_shares(const cvy_split_params *p, int n, int *shares) {
  cvy_status status = CVY_OK;
  double *scratch = NULL, *full = NULL;
  CVY_REQUIRE(p->batch >= 1 && p->n_devices >= 1 && p->group >= 0, CVY_E_ARGUMENT,
              "split: batch %d, %d devices, groups of %d; expected positive sizes", p->batch, p->n_devices, p->group);
  CVY_REQUIRE(n >= 0 && n <= p->batch, CVY_E_ARGUMENT, "split: %d samples; expected at most the batch size %d", n,
              p->batch);
  const int group = p->group > 1 ? p->group : 1;
  if (p->rule == CVY_RULE_EVEN) {
    deal(n, group, NULL, p->n_devices, NULL, shares);
    return CVY_OK;
  }
  scratch = p->scratch ? p->scratch : cvy_calloc(3 * (size_t)p->n_devices, sizeof *scratch);
  CVY_REQUIRE(scratch, CVY_E_MEMORY, "no memory for the shares of %d devices", p->n_devices);
  switch (p->rule) {
    case CVY_RULE_WEIGHTS:
      CVY_TRY(check_values(p, group));
      deal(p->batch, group, p->values, p->n_devices, scratch, shares);
      break;
    case CVY_RULE_SHARES:
      CVY_TRY(check_values(p, group));
      for (int i = 0; i < p->n_devices; i++) shares[i] = (int)p->values[i];
      break;
    default: CVY_FAIL(CVY_E_ARGUMENT, "split: unknown kind %d", (int)p->rule);
  }
  if (n < p->batch) {
    full = scratch + 2 * (size_t)p->n_devices;
    for (int i = 0; i < p->n_devices; i++) full[i] = shares[i];
    deal(n, group, full, p->n_devices, scratch, shares);
  }
fail:
  if (!p->scratch) cvy_free(scratch);
  return status;
}
