/* SPDX-License-Identifier: MIT
 * The state between the ledger and the devices, for a team at rest. All functions wait for steps under way. [caller],
 * unless said otherwise */
#ifndef CVY_TEAM_PUBLISH_H
#define CVY_TEAM_PUBLISH_H

#include "src/team/inside.h"

/* Copies the ledger's current generation to every device, as the start of step number `step`. */
cvy_status cvy_team_publish(cvy_team *team, long step);
/* Brings the ledger up to date: reads a lone device (kept_state.h). In a fleet every node calls it between the same two
 * steps. */
cvy_status cvy_team_sync(cvy_team *team);
/* The same where any device is about to compute: cvy_team_settle gives idle ones the ledger's weights. A team of one
 * has no idle device. */
cvy_status cvy_team_sync_for_all(cvy_team *team);
/* [worker] With no step under way: brings the device to the state from which the next step would start. */
cvy_status cvy_team_settle(cvy_team *team, cvy_replica *replica);
/* Calls device i. *there is false if the call fails, which takes the device out, or if it was lost before. */
cvy_status cvy_team_call(cvy_team *team, int i, cvy_task_fn fn, void *arg, bool *there);

/* Where gradients cross as bfloat16: the residuals, a flat vector per device that is there (NULL for lost ones), in a
 * fleet of all nodes' devices; every node calls it then, and the head alone gets them. *out NULL: they cross as floats,
 * or a device failed meanwhile, and the others have dropped theirs. */
cvy_status cvy_team_get_residuals(cvy_team *team, float ***out);
void cvy_team_free_residuals(const cvy_team *team, float ***residuals);
/* The opposite; NULL, for one or for all: zeros. */
cvy_status cvy_team_put_residuals(cvy_team *team, float *const *residuals);

#endif
