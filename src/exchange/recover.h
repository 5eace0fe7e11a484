/* SPDX-License-Identifier: MIT
 * Going on without devices that failed. With the team halted, the exchange thread takes them out, empties the others'
 * queues, gives every device the newest complete generation of the state, and begins the steps under way anew with
 * shares for those that are left. The ledger applies a step only as a whole, so no step is applied twice or half. Steps
 * that the ledger lacks because a lone device did them are redone first (journal.h).
 *
 * In a fleet all nodes do this when one of them loses a device, or is lost itself; before they go on, or end together,
 * they agree on who is left, and whether the oldest step under way counts (chain.h). */
#ifndef CVY_EXCHANGE_RECOVER_H
#define CVY_EXCHANGE_RECOVER_H

#include "src/exchange/exchange.h"

typedef struct cvy_recovery cvy_recovery;
/* Of these members it uses roster, ring, shares, fleet, ledger, events, mail, most_samples, fault_stops and packed. All
 * are borrowed for its life, and so is the chain of a fleet (else NULL). CVY_E_MEMORY. */
cvy_status cvy_recovery_create(const cvy_exchange_params *params, cvy_chain *chain, cvy_recovery **out);
void cvy_recovery_destroy(cvy_recovery **recovery);
/* The nodes of a fleet have agreed that the oldest step under way, which broke off here, counts. */
typedef cvy_status cvy_count_fn(void *user, const cvy_chain_sums *total);
/* [exchange thread] With the team halted: takes out devices that failed and begins the steps under way anew, or ends
 * the run. */
void cvy_recover(cvy_recovery *recovery, cvy_count_fn *count, void *user);
/* [worker task; arg: the recovery] Removes the steps under way from the device: drains its queues as far as it still
 * can, and releases the events that wait for it, also on a failure. */
cvy_status cvy_recovery_clear_device(void *device, void *task);

#endif
