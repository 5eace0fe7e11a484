/* SPDX-License-Identifier: MIT */
#include "src/fleet/chain_block.h"

#include "src/fleet/chain_units.h"

static cvy_status pass(cvy_fleet *fleet, int from, void *data, size_t bytes) {
  cvy_status status = CVY_OK;
  const int rank = cvy_fleet_rank(fleet), previous = cvy_fleet_previous(fleet), next = cvy_fleet_next(fleet);
  if (rank > from) CVY_TRY(cvy_fleet_take(fleet, previous, CVY_LINK_UP, data, bytes));
  if (rank < from) CVY_TRY(cvy_fleet_take(fleet, next, CVY_LINK_DOWN, data, bytes));
  if (rank >= from && next >= 0) CVY_TRY(cvy_fleet_give(fleet, next, CVY_LINK_UP, data, bytes));
  if (rank <= from && previous >= 0) CVY_TRY(cvy_fleet_give(fleet, previous, CVY_LINK_DOWN, data, bytes));
fail:
  return status;
}

cvy_status cvy_chain_block_pass(cvy_fleet *fleet, int from, const cvy_chain_block *block, size_t piece) {
  cvy_status status = CVY_OK;
  const size_t most = (piece > 0 ? piece : CVY_CHAIN_PIECE) * sizeof(float);
  for (size_t at = 0, bytes; at < block->bytes; at += bytes) {
    bytes = block->bytes - at < most ? block->bytes - at : most;
    CVY_TRY(pass(fleet, from, (char *)block->data + at, bytes));
  }
fail:
  return status;
}
