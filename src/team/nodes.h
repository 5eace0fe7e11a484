/* SPDX-License-Identifier: MIT
 * A fleet: the nodes that train one network together, one process on each machine, in a chain by rank. A node's
 * neighbours are the nearest nodes that are there; the head is the first of them. The order of all devices is node by
 * node, and in each node the team's.
 *
 * The link carries messages (link/link.h); the fleet knows who is there and who has which devices. The functions of
 * "opening" are collective: every node calls them in the same order, and a node that is lost meanwhile ends the
 * opening. Nodes are lost without the end of the others once a team trains (chain.h). */
#ifndef CVY_TEAM_NODES_H
#define CVY_TEAM_NODES_H

#include "convoy/fleet.h"
#include "src/base/failure.h"
#include "src/link/link.h"

enum { CVY_FLEET_DEVICES = 512 }; /* of one node, at most */

/* Takes the link over, also on failure. CVY_E_MEMORY. */
cvy_status cvy_fleet_create(cvy_link *link, cvy_fleet **out);

cvy_link *cvy_fleet_link(const cvy_fleet *fleet);
/* Ranks of the neighbours; -1: there is none. */
int cvy_fleet_previous(const cvy_fleet *fleet);
int cvy_fleet_next(const cvy_fleet *fleet);
/* Bit r: node r is there. [exchange thread] set: while no other thread uses the link. */
uint64_t cvy_fleet_view(const cvy_fleet *fleet);
/* Node r in a view. */
static inline uint64_t cvy_view_bit(int r) { return (uint64_t)1 << r; }
void cvy_fleet_set_view(cvy_fleet *fleet, uint64_t view);
/* The link's present round. [exchange thread] renew: begins a later one (link.h). */
uint32_t cvy_fleet_round(const cvy_fleet *fleet);
void cvy_fleet_renew(cvy_fleet *fleet, uint32_t round);

/* ---- opening ---- */

/* The status for the caller of a send or receive that has failed: CVY_E_IO, with the node named in the log, if it was
 * lost. */
cvy_status cvy_fleet_explain(const cvy_fleet *fleet, int with, cvy_status status);
/* Each node fills in its own piece of `data`, [own_at, own_at + own_bytes), before the call; after it all nodes have
 * all pieces, in the order of their places. CVY_E_IO: a node was lost (logged). */
cvy_status cvy_fleet_gather(cvy_fleet *fleet, void *data, size_t bytes, size_t own_at, size_t own_bytes);
/* The head's bytes for all nodes: on the head *data and *bytes are given; on the others *data becomes the caller's
 * (cvy_free), NULL with no bytes. */
cvy_status cvy_fleet_spread(cvy_fleet *fleet, void **data, size_t *bytes);
/* All nodes' texts, by rank; free them with cvy_fleet_free_texts. */
cvy_status cvy_fleet_gather_texts(cvy_fleet *fleet, const char *own, char ***out);
void cvy_fleet_free_texts(const cvy_fleet *fleet, char ***texts);
/* own: a JSON array. *out: one array with the entries of all nodes, by rank (cvy_free). */
cvy_status cvy_fleet_gather_list(cvy_fleet *fleet, const char *own, char **out);
/* Tells all nodes how many devices this one has, and describes them (noted_devices.h). */
cvy_status cvy_fleet_gather_devices(cvy_fleet *fleet, int own, const char *noted);

/* ---- devices, once they are gathered ---- */

int cvy_fleet_devices_of(const cvy_fleet *fleet, int r); /* of node r */
int cvy_fleet_first_of(const cvy_fleet *fleet, int r);   /* place of its first device in the order of all */

#endif
