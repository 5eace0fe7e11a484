/* SPDX-License-Identifier: MIT
 * Keeps the state of a lone device (shares.h) on the host: of its own node and, in a fleet, of all nodes. The ledger
 * has it then, and the steps before need not be done again if the device is lost. [caller] */
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

/* Waits for the steps under way, and reads the lone device, if there is one that has moved on. When it is lost at that,
 * others do its steps again first. In a fleet every node calls it between the same two steps, and it is done on all
 * nodes that are left, or on none. Fails with the team's status. */
cvy_status cvy_keep_state(const cvy_keep_params *keep);

#endif
