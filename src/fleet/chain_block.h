/* SPDX-License-Identifier: MIT
 * A block of bytes on its way from one node of a fleet to all others. */
#ifndef CVY_FLEET_CHAIN_BLOCK_H
#define CVY_FLEET_CHAIN_BLOCK_H

#include "src/fleet/nodes.h"

typedef struct cvy_chain_block {
  void *data;
  size_t bytes;
} cvy_chain_block;

/* Takes part in the way of a block of node `from`, which all nodes name with as many bytes: its neighbours get it and
 * pass it on, in messages of at most `piece` floats (0: CVY_CHAIN_PIECE), away from that node in both directions. So
 * each link carries it once. Fails as cvy_fleet_take. */
cvy_status cvy_chain_block_pass(cvy_fleet *fleet, int from, const cvy_chain_block *block, size_t piece);

#endif
