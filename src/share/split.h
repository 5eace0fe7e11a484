/* SPDX-License-Identifier: MIT
 * Divides a batch into the devices' shares. Pure functions of their arguments: no device, no state, any thread.
 *
 * A batch is a list of samples; device 0 gets the first shares[0] of them, device 1 the next, and so on. Full batch of
 * `batch` samples:
 *   even     batch / devices each, the first batch % devices one more
 *   weights  floor of the exact quota; the samples left over go to the largest remainders, ties to the lower index;
 *            weight 0 gets nothing
 *   shares   as given; they must sum to `batch`
 * A short batch (n < batch) is divided in the same proportion: even again, or by largest remainder with the full
 * batch's shares as weights.
 *
 * group G > 1 (batch normalisation by groups of G consecutive samples): the same rules distribute the n / G full groups
 * instead of samples. The remainder n % G is one smaller group, the last of the batch, so it goes to the last device
 * that has full groups or to one behind it: to the one whose samples / weight (with the remainder) is least, ties to
 * the lower index. Every share but that one is a multiple of G. */
#ifndef CVY_SHARE_SPLIT_H
#define CVY_SHARE_SPLIT_H

#include <stdint.h>

#include "src/base/failure.h"

typedef enum cvy_split_rule { CVY_RULE_EVEN = 0, CVY_RULE_WEIGHTS, CVY_RULE_SHARES } cvy_split_rule;

typedef struct cvy_split_params {
  int batch;     /* samples of a full batch, >= 1 */
  int n_devices; /* >= 1 */
  cvy_split_rule rule;
  const double *values; /* n_devices weights or shares; NULL with CVY_RULE_EVEN; borrowed */
  int group;            /* 0 or 1: single samples */
  double *scratch;      /* 3 x n_devices; then the function allocates nothing; NULL: it does */
} cvy_split_params;

/* Fills shares[n_devices] for a batch of n samples, 0 <= n <= batch; they sum to n and may be 0. CVY_E_ARGUMENT (the
 * message names the device, the value and the accepted values): sizes out of range, weights negative or all 0, shares
 * that are not whole numbers, do not sum to the batch, or do not respect the groups. */
cvy_status cvy_split_shares(const cvy_split_params *params, int n, int *shares);
/* An upper bound of a device's share of any batch of at most n samples. `full`: its share of the full batch; if that is
 * 0, so are all others. */
static inline int64_t cvy_split_bound(const cvy_split_params *params, int n, int full) {
  return (int64_t)n * full / params->batch + 3 * (params->group > 1 ? params->group : 1);
}

#endif
