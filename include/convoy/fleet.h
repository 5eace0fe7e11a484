/* SPDX-License-Identifier: MIT
 * A fleet: several machines train one network. On each of them one process, a node, opens its own devices and makes its
 * own team (team.h) with the same settings and data; cvy_team_params.fleet makes them one. The order of all devices is
 * node by node; sums are made in that order, so that a fleet has the bits of one team with all the devices. */
#ifndef CONVOY_FLEET_H
#define CONVOY_FLEET_H

#include <stdbool.h>

#include "convoy/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cvy_fleet cvy_fleet;

/* Tells the other nodes that this one leaves, and frees the fleet. Its team must be destroyed before. */
void cvy_fleet_close(cvy_fleet **fleet);

/* Nodes have ranks 0 to size - 1 and names, which stay theirs when others are lost. The name is borrowed. */
int cvy_fleet_rank(const cvy_fleet *fleet);
int cvy_fleet_size(const cvy_fleet *fleet);
const char *cvy_fleet_name(const cvy_fleet *fleet, int rank);
/* The link between the nodes, "tcp" or the name of an MPI; borrowed. */
const char *cvy_fleet_kind(const cvy_fleet *fleet);
/* Node `rank` is still there. */
bool cvy_fleet_has(const cvy_fleet *fleet, int rank);
/* This node is the first one that is there: it alone prints, logs and saves. The answer may change from false to true
 * when nodes are lost. */
bool cvy_fleet_is_head(const cvy_fleet *fleet);

#ifdef __cplusplus
}
#endif
#endif
