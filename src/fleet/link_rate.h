/* SPDX-License-Identifier: MIT
 * Measures the rates of a fleet's links for messages of UP and DOWN as in steps (chain.h). The links are measured one
 * after the other, from node 0 on. No team may use the fleet meanwhile.
 *
 *   latency   a small message goes up and comes back: half of the middle time
 *   rates     messages of CVY_LINK_RATE_PIECE bytes in a row, as seen by the node that takes them, from the end of the
 *             first to the end of the last: neither the latency nor the start of a connection counts */
#ifndef CVY_FLEET_LINK_RATE_H
#define CVY_FLEET_LINK_RATE_H

#include "src/fleet/nodes.h"

#define CVY_LINK_RATE_PIECE (1 << 20)

/* Of the link between a node and the next one. Rates in bytes per second. */
typedef struct cvy_link_rate {
  double latency_s;          /* of a small message, one way */
  double up, down;           /* to the next node, from it; nothing else is on the way */
  double both_up, both_down; /* the same while both are at work */
} cvy_link_rate;

/* Collective. Each of the three measurements of a link takes two to four times `seconds`; of a link that carries many
 * pieces in that time, a tenth of it. rates[r] becomes that of the link from node r to the next one, on all nodes
 * alike; size of the fleet - 1 of them. All nodes must be there. CVY_E_IO: a node was lost (logged) · CVY_E_MEMORY. */
cvy_status cvy_link_rates(cvy_fleet *fleet, double seconds, cvy_link_rate *rates);

#endif
