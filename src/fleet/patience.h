/* SPDX-License-Identifier: MIT
 * Time limits of waits for other nodes of the fleet. A node that sends signs of life (link.h) may still not do its
 * part. Each waiting thread registers its wait here. A thread of the fleet watches the waits, logs the nodes of a long
 * wait in the opening, and refuses them (cvy_link_refuse) when the limit has passed, which ends the wait.
 *
 * In a chain a node that does nothing keeps all others waiting. Its neighbours must detect that first: a node waits
 * longer by a quarter of the limit for each node behind the one that it waits for. */
#ifndef CVY_FLEET_PATIENCE_H
#define CVY_FLEET_PATIENCE_H

#include "src/link/link.h"

typedef struct cvy_patience cvy_patience;

/* Waits that may be under way at the same time. */
typedef enum cvy_wait_kind {
  CVY_WAIT_TAKE_UP, /* for a message */
  CVY_WAIT_TAKE_DOWN,
  CVY_WAIT_GIVE_UP, /* for room for one */
  CVY_WAIT_GIVE_DOWN,
  CVY_WAIT_MEETING, /* for standings (membership.h) */
  CVY_WAITS
} cvy_wait_kind;

/* The first limit, in seconds, is that of the opening. CVY_E_MEMORY. */
cvy_status cvy_patience_create(cvy_link *link, double limit_s, cvy_patience **out);
void cvy_patience_destroy(cvy_patience **patience);

/* The other functions do nothing where `patience` is NULL. Any thread. */

/* The opening is over: waits that begin from now on have this limit (0: none), and are not named. */
void cvy_patience_set(cvy_patience *patience, double limit_s);
/* A wait for the nodes whose bits are set begins. One of this kind that is under way goes on if it was for all of them,
 * too; else it begins anew. */
void cvy_patience_begin(cvy_patience *patience, cvy_wait_kind kind, uint64_t nodes);
void cvy_patience_end(cvy_patience *patience, cvy_wait_kind kind);

#endif
