/* SPDX-License-Identifier: MIT
 * Recovery from failed devices. With the team halted, the exchange thread removes them, drains the others' queues,
 * sends every device the newest complete generation of the state, and restarts the steps under way with shares for the
 * remaining devices. The ledger applies a step only as a whole, so no step is applied twice or in part. Steps that only
 * a lost lone device has are repeated first (journal.h).
 *
 * In a fleet all nodes do this when one of them loses a device, or is lost itself; before they continue, or end
 * together, they agree on the remaining nodes, and whether the oldest step under way is committed (chain.h). */
#ifndef CVY_EXCHANGE_RECOVER_H
#define CVY_EXCHANGE_RECOVER_H

#include "src/exchange/exchange.h"

typedef struct cvy_recovery cvy_recovery;
/* Of these members it uses roster, ring, shares, fleet, ledger, events, mail, most_samples, fault_stops and packed. All
 * are borrowed for its life, and so is the chain of a fleet (else NULL). CVY_E_MEMORY. */
cvy_status cvy_recovery_create(const cvy_exchange_params *params, cvy_chain *chain, cvy_recovery **out);
void cvy_recovery_destroy(cvy_recovery **recovery);
/* The nodes of a fleet have agreed to commit the oldest step under way, which was aborted here. */
typedef cvy_status cvy_count_fn(void *user, const cvy_chain_sums *total);
/* [exchange thread] With the team halted: removes failed devices and restarts the steps under way, or ends the run. */
void cvy_recover(cvy_recovery *recovery, cvy_count_fn *count, void *user);
/* [worker task; arg: the recovery] Removes the steps under way from the device: drains its queues as far as it still
 * can, and releases the events that wait for it, also on a failure. */
cvy_status cvy_recovery_clear_device(void *device, void *task);

#endif
