/* SPDX-License-Identifier: MIT
 * A fleet: the nodes that train one network together, one process on each machine, in a chain by rank. A node's
 * neighbours are the nearest nodes that are not lost; the head is the first of them. The order of all devices is node
 * by node, and in each node the team's.
 *
 * The link carries messages (link/link.h); the fleet has the list of nodes and their devices. In the opening, until a
 * team trains, the nodes exchange their settings (node_messages.h), and the loss of one of them ends the opening for
 * all. Once a team trains, the loss of a node does not end the others (chain.h). */
#ifndef CVY_FLEET_NODES_H
#define CVY_FLEET_NODES_H

#include "convoy/fleet.h"
#include "src/base/failure.h"
#include "src/link/link.h"
#include "src/fleet/patience.h"

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

/* Waits for other nodes have a limit from now on, that of the opening (patience.h). CVY_E_MEMORY. */
cvy_status cvy_fleet_be_patient(cvy_fleet *fleet, double limit_s);
cvy_patience *cvy_fleet_patience(const cvy_fleet *fleet); /* NULL: there are no limits */
/* cvy_link_receive and cvy_link_send of UP and DOWN, with the limit. */
cvy_status cvy_fleet_take(cvy_fleet *fleet, int from, cvy_stream stream, void *data, size_t bytes);
cvy_status cvy_fleet_give(cvy_fleet *fleet, int to, cvy_stream stream, const void *data, size_t bytes);
/* The status for the caller of a send or receive that has failed: CVY_E_IO, with the node named in the log, if it was
 * lost. */
cvy_status cvy_fleet_explain(cvy_fleet *fleet, int with, cvy_status status);
/* Node r has violated the protocol, with a reason as for cvy_link_refuse: it is lost. CVY_E_IO; CVY_E_MISMATCH for this
 * node itself. */
cvy_status cvy_fleet_refuse(cvy_fleet *fleet, int r, const char *format, ...) CVY_PRINTF(3, 4);
/* These nodes are about to do something else than the head, which is logged: they are refused, and this one waits for
 * right ones (cvy_fleet_may_meet_again, CVY_E_IO). CVY_E_MISMATCH: this node is one of them, or the nodes cannot meet
 * again. CVY_OK: there are none. */
cvy_status cvy_fleet_refuse_others(cvy_fleet *fleet, uint64_t nodes);
void cvy_fleet_set_meets_again(cvy_fleet *fleet);
/* The opening fails since a node was lost. */
void cvy_fleet_note_loss(cvy_fleet *fleet);
/* There was no step yet, and the nodes can meet again. */
bool cvy_fleet_is_opening(const cvy_fleet *fleet);
/* The nodes do a step next. */
void cvy_fleet_end_opening(cvy_fleet *fleet);
/* Sends the number and the descriptions of this node's devices to all nodes (noted_devices.h; "[]": no node describes
 * them).
 * Collective, as all of node_messages.h. */
cvy_status cvy_fleet_gather_devices(cvy_fleet *fleet, int own, const char *noted);
/* Node r has said that it leaves devices out. If it does not have fewer in the next cvy_fleet_gather_devices, it is
 * refused there: nodes open their teams anew only as often as there are devices. */
void cvy_fleet_expect_fewer(cvy_fleet *fleet, int r);

/* ---- devices, once they are gathered ---- */

int cvy_fleet_devices_of(const cvy_fleet *fleet, int r); /* of node r */
int cvy_fleet_first_of(const cvy_fleet *fleet, int r);   /* place of its first device in the order of all */

#endif
