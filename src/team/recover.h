/* SPDX-License-Identifier: MIT
 * Going on without devices that failed. With the team halted, the exchange thread takes them out, empties the others'
 * queues, gives every device the newest complete generation of the state, and begins the steps under way anew with
 * shares for those that are left. The ledger applies a step only as a whole, so no step is applied twice or half. */
#ifndef CVY_TEAM_RECOVER_H
#define CVY_TEAM_RECOVER_H

#include "src/team/exchange.h"

typedef struct cvy_recovery cvy_recovery;
/* Of these members it uses roster, ring, shares, ledger, events, mail, most_samples, fault_stops and packed. All are
 * borrowed for its life. CVY_E_MEMORY. */
cvy_status cvy_recovery_create(const cvy_exchange_params *params, cvy_recovery **out);
void cvy_recovery_destroy(cvy_recovery **recovery);
/* [exchange thread] With the team halted: takes out devices that failed and begins the steps under way anew, or ends
 * the run. */
void cvy_recover(cvy_recovery *recovery);
/* [worker task; arg: the recovery] Removes the steps under way from the device: drains its queues as far as it still
 * can, and releases the events that wait for it, also on a failure. */
cvy_status cvy_recovery_clear_device(void *device, void *task);

#endif
