/* SPDX-License-Identifier: MIT
 * A standing: a node's message to the others in a meeting (membership.h), as it crosses, and the rules that a right one
 * keeps. The one place where control messages of other nodes are looked at; a sender that breaks a rule is refused
 * (cvy_link_refuse). Pure.
 *
 *   magic    CVY_STANDING_MAGIC.
 *   view     The nodes with which the sender wants to go on: nodes of the fleet, and the sender is one of them.
 *   ended    Nodes that the sender knows to have ended: of the fleet, neither the sender nor the receiver, which both
 *            run. (Of the others the receiver believes it where its own link has lost the node, too: see membership.h.)
 *   round    That the sender wants to begin: it is not the first one, and not more than CVY_STANDING_ROUNDS ahead of
 *            the receiver's. Rounds of two nodes of one view differ by the losses of a few meetings, and no node goes
 *            on alone; the last CVY_STANDING_ROUNDS numbers are never reached, so that no round wraps.
 *   stops    One of the three words below.
 *   devices  Which devices of the sender work: none behind those that it has.
 *   done     Operations that count on the sender, the one that is committed included. An operation counts on all nodes
 *            or on none, and no node begins the next one before all have the commit, so that of two nodes that are
 *            in each other's view both have what the other counts, or the next one. The receiver knows that for sure
 *            in a meeting, with no operation under way: cvy_standing_done_fits is asked there.
 *
 * A sender that is not in the receiver's view, or has it not in its own, may have gone on: all of this holds for it,
 * too, but for `done` and the window of rounds. */
#ifndef CVY_FLEET_STANDING_H
#define CVY_FLEET_STANDING_H

#include "src/fleet/nodes.h"

enum { CVY_STANDING_MAGIC = 0x43564131, CVY_STANDING_ROUNDS = 256 };
/* Why the run ends, or does not. */
enum { CVY_STANDING_GOES_ON, CVY_STANDING_HAS_LOST, CVY_STANDING_WAS_ASKED };

/* 104 bytes, integers of the machine. */
typedef struct cvy_standing_message {
  uint32_t magic, round;
  uint64_t view;  /* bit r: node r */
  uint64_t ended; /* the same */
  int64_t done;
  uint8_t stops;
  uint8_t devices[CVY_FLEET_DEVICES / 8]; /* bit i % 8 of byte i / 8: device i of the sender works */
  uint8_t unused[7];
} cvy_standing_message;

/* The receiver's own knowledge. */
typedef struct cvy_standing_expected {
  int size, self, from; /* nodes of the fleet, ranks of the receiver and of the sender */
  uint64_t view;        /* the receiver's */
  uint32_t round;       /* the receiver's */
  int devices;          /* of the sender */
} cvy_standing_expected;

/* NULL: a node may say so. Else why not: "sent a standing …", for cvy_link_refuse. */
const char *cvy_standing_wrong(const cvy_standing_message *message, const cvy_standing_expected *expected);
/* counted: operations that count on this node, without one that is committed. */
bool cvy_standing_done_fits(int64_t done, int64_t counted);

#endif
