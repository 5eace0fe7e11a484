/* SPDX-License-Identifier: MIT
 * The speeds of all devices of a fleet, measured by each node: one cvy_pace for all devices, the same on all nodes. The
 * head decides where all nodes must agree. All functions but the last are collective, as
 * those of nodes.h for the opening. */
#ifndef CVY_TEAM_FLEET_PACE_H
#define CVY_TEAM_FLEET_PACE_H

#include "src/share/pace.h"
#include "src/team/inside.h"
#include "src/fleet/link_rate.h"

/* Measures the links (rates: one of each, size of the fleet - 1) in CVY_FLEET_LINK_S seconds or a few times that. Then
 * all nodes go on at the same time. */
cvy_status cvy_fleet_pace_links(cvy_team *team, cvy_link_rate *rates);
#define CVY_FLEET_LINK_S 0.02
/* own: of this node's devices. all: gets the measurements of all nodes, the exchange with the costs of the chain.
 * CVY_E_IO: a node was lost · CVY_E_FORMAT: a node has sent numbers that no node sends. */
cvy_status cvy_fleet_pace_gather(cvy_team *team, const cvy_link_rate *rates, const cvy_pace *own, cvy_pace *all);
/* The head's numbers[0..n) on all nodes. */
cvy_status cvy_fleet_pace_spread(cvy_team *team, int *numbers, int n);

/* The chain's cost for the devices of node r, by the bytes of a step's sums on each link, and of its last bucket's.
 * whole_s: the slowest link needs so long for a step, beside the transfers between device and host. way_s: the last
 * bucket's way, piece behind piece (chain.h), from node r to the last one and back, which nothing hides. Pure. */
typedef struct cvy_chain_cost {
  double whole_s, way_s;
} cvy_chain_cost;
cvy_chain_cost cvy_fleet_pace_chain(const cvy_link_rate *rates, int n_nodes, int r, double bytes, double last_bytes);

#endif
