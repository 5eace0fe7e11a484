/* SPDX-License-Identifier: MIT
 * The nodes that are left of a fleet agree on how to go on after a loss.
 *
 * Each node sends the others what it knows: the round that it wants to begin, who is there, how much it has done, which
 * of its devices work. A node that hears of fewer nodes or of a later round takes that over and sends again. When it
 * has heard the same round and the same nodes from all of them, it has what every other one has or will have: all take
 * the least count of work done.
 *
 * Views only shrink and rounds only grow, so this ends. A node that went on and then hears of a later round takes part
 * again; the earlier agreement has the same outcome then, since no node gets further without all others.
 *
 * A node whose process has ended is gone. One that is silent may be running and hold the same opinion of this one: if
 * there are such, only a part goes on that has more than half of the nodes that were there before, or half of them with
 * the first. Those that have ended count as before, since an other part may have agreed with them until then.
 *
 * Each message is looked at before it counts (standing.h). No node is believed alone: that a third one has ended
 * counts once this node's own link has lost that one, too (where it makes a difference, the meeting waits for that);
 * and a node that goes on without this one is lost to it, no more. But views shrink on the word of one node, since
 * no receiver can distinguish a cut link from a lie: SECURITY.md lists what nodes trust each other with.
 *
 * A node that has left in order (link.h) has no operation under way, and does not halt the team: one that still needs
 * it finds that out when it sends to it or waits for it. In a meeting its last word counts: a node that has heard all
 * others ends the run and leaves, when that was agreed, before they have heard each other. */
#ifndef CVY_FLEET_MEMBERSHIP_H
#define CVY_FLEET_MEMBERSHIP_H

#include "src/fleet/nodes.h"
#include "src/protocol/roster.h"

typedef struct cvy_membership cvy_membership;

/* A node's message to the others, and the result of a meeting. */
typedef struct cvy_standing {
  int64_t counted; /* of this node: operations that are done, without one that is committed */
  int64_t done;    /* operations (chain.h) that are done, the one that is committed included; agreed: the least */
  bool stops;      /* the run ends here, by the node's own settings; agreed: any */
  bool *devices;   /* of this node: which work; agreed: those of the whole fleet, lost nodes have none */
} cvy_standing;

/* All memory is made here. The roster's lock guards what threads share. CVY_E_MEMORY. */
cvy_status cvy_membership_create(cvy_fleet *fleet, cvy_roster *roster, cvy_membership **out);
void cvy_membership_destroy(cvy_membership **membership);

/* [monitor] Takes news from the link, for at most so many seconds, and halts the team when a node is lost or wants
 * another round. */
void cvy_membership_listen(cvy_membership *membership, double seconds);

/* [with the roster's lock] News has come since the last meeting that asks for another one. */
bool cvy_membership_has_news(const cvy_membership *membership);

/* [exchange thread] Agrees with all nodes that are there, changes the fleet's view and begins a new round of the link.
 * own: this node's devices; agreed->devices has room for those of the fleet. CVY_E_DEVICE: this node cannot go on
 * (logged): too few of the others answer, or they have gone on without it. CVY_E_INTERRUPTED: stop was asked for. */
cvy_status cvy_membership_meet(cvy_membership *membership, const cvy_standing *own, cvy_standing *agreed);
/* [exchange thread] Lets the others know that this node was asked to stop and leaves at once: they end the run, too. */
void cvy_membership_leave(cvy_membership *membership, const cvy_standing *own);
/* Ends cvy_membership_meet. Any thread. */
void cvy_membership_stop(cvy_membership *membership);

/* A node is lost with which the team has not agreed to go on without it. */
bool cvy_membership_misses_one(cvy_membership *membership);
/* [exchange thread] The next node that is there no more, of those that no call has returned: *how is ENDED, SILENT or
 * LEFT. -1: none. */
int cvy_membership_next_lost(cvy_membership *membership, cvy_link_news *how);
/* [exchange thread] The first node that wanted the end of the run in the last meeting; -1: none. *asked: since it
 * was asked to stop, else since it has lost a device. */
int cvy_membership_stopper(const cvy_membership *membership, bool *asked);

#endif
