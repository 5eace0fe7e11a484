/* SPDX-License-Identifier: MIT
 * Messages of the nodes of a fleet before training. All of these functions are collective: every node calls them in the
 * same order, and the loss of a node ends the opening.
 *
 * A node sends up its piece and those of the nodes before it, and gets all pieces back from the next node. A node that
 * sends back a changed piece is lost. Every length has a limit, and memory is allocated as bytes arrive. Texts are
 * unchanged; control characters are replaced (base/text.h) when they are printed.
 *
 * CVY_E_IO: a node was lost, or refused for what it has sent (logged). CVY_E_MEMORY. */
#ifndef CVY_FLEET_NODE_MESSAGES_H
#define CVY_FLEET_NODE_MESSAGES_H

#include "src/fleet/nodes.h"

struct json_t;

/* Each node fills in its own piece of `data`, [own_at, own_at + own_bytes), before the call; after it all nodes have
 * all pieces, in the order of their indices. */
cvy_status cvy_fleet_gather(cvy_fleet *fleet, void *data, size_t bytes, size_t own_at, size_t own_bytes);
/* The head's bytes for all nodes, at most so many: on the head *data and *bytes are given; on the others *data becomes
 * the caller's (cvy_free), NULL with no bytes. */
cvy_status cvy_fleet_spread(cvy_fleet *fleet, void **data, size_t *bytes, size_t most);
/* own: a JSON array. *out: one array with the entries of all nodes, by rank (cvy_free). */
cvy_status cvy_fleet_gather_list(cvy_fleet *fleet, const char *own, char **out);
/* The text of node r as JSON, json_decref; a node whose text is none, or would take much memory, is refused. */
cvy_status cvy_fleet_read_json(cvy_fleet *fleet, int r, const char *text, struct json_t **out);

#endif
