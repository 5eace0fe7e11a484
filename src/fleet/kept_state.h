/* SPDX-License-Identifier: MIT
 * Copies the state of a lone device (shares.h) to the host of its node and, in a fleet, to all nodes. The ledger then
 * has it, and earlier steps need not be repeated if the device is lost. [caller] */
#ifndef CVY_FLEET_KEPT_STATE_H
#define CVY_FLEET_KEPT_STATE_H

#include "src/fleet/chain.h"

typedef struct cvy_keep_params {
  cvy_roster *roster;
  cvy_ring *ring;
  cvy_shares *shares;
  cvy_ledger *ledger;
  cvy_fleet *fleet; /* NULL: the team is alone */
  cvy_chain *chain; /* of the fleet */
} cvy_keep_params;

/* Waits for the steps under way, and reads the lone device, if there is one that has moved on. When it is lost
 * meanwhile, the others first repeat its steps. In a fleet every node calls it between the same two steps, and it is
 * done on all remaining nodes or on none. Fails with the team's status. */
cvy_status cvy_keep_state(const cvy_keep_params *keep);

#endif
