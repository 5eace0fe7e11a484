/* SPDX-License-Identifier: MIT
 * Recomputes running values of batch normalisation with fixed weights: mean and variance over all samples of some
 * training batches, whose passes normalise as training does (groups, shares or whole batches, by the team's mode). Of
 * the groups' means m and biased variances v with n samples each:
 *   mean = sum n*m / sum n,  variance = sum n*(v + m²) / sum n - mean²
 * (Wu and Johnson 2021, "Rethinking 'Batch' in BatchNorm", appendix), in double. How a batch is divided changes the
 * result only through what the layers in front saw.
 *
 * [caller], with no step under way; in a fleet all nodes make the same calls. */
#ifndef CVY_TEAM_PRECISE_BN_H
#define CVY_TEAM_PRECISE_BN_H

#include "src/team/inside.h"

typedef struct cvy_precise_bn cvy_precise_bn;

/* CVY_E_MEMORY. */
cvy_status cvy_precise_bn_create(cvy_team *team, cvy_precise_bn **out);
void cvy_precise_bn_destroy(cvy_precise_bn **precise);
/* Passes over a training batch of n samples, as a step of that epoch has them. When a device is lost, the others repeat
 * the batch. CVY_E_INTERRUPTED: a stop was requested on this node or another one. */
cvy_status cvy_precise_bn_add(cvy_precise_bn *precise, const int32_t *samples, int n, int epoch);
/* The team's running values become those of all batches so far; frozen ones stay. */
cvy_status cvy_precise_bn_finish(cvy_precise_bn *precise);

#endif
