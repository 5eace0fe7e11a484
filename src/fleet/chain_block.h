/* SPDX-License-Identifier: MIT
 * Broadcast of a block of bytes from one node of a fleet to all others. */
#ifndef CVY_FLEET_CHAIN_BLOCK_H
#define CVY_FLEET_CHAIN_BLOCK_H

#include "src/fleet/nodes.h"

typedef struct cvy_chain_block {
  void *data;
  size_t bytes;
} cvy_chain_block;

/* Collective: sends a block of node `from` to all nodes, which pass the same number of bytes. Each neighbour passes it
 * on, in messages of at most `piece` floats (0: CVY_CHAIN_PIECE), away from that node in both directions. Each link
 * carries it once. Fails as cvy_fleet_take. */
cvy_status cvy_chain_block_pass(cvy_fleet *fleet, int from, const cvy_chain_block *block, size_t piece);

#endif
