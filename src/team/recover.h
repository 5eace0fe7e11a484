/* SPDX-License-Identifier: MIT
 * Going on without devices that failed. With the team halted, the exchange thread takes them out, empties the others'
 * queues, gives every device the newest complete generation of the state, and begins the steps under way anew with
 * shares for those that are left. The ledger applies a step only as a whole, so no step is applied twice or half. */
#ifndef CVY_TEAM_RECOVER_H
#define CVY_TEAM_RECOVER_H

#include "src/team/events.h"
#include "src/team/ledger.h"
#include "src/team/mail.h"
#include "src/team/ring.h"

typedef struct cvy_recovery cvy_recovery;

typedef struct cvy_recovery_params {
  cvy_roster *roster;
  cvy_ring *ring;
  cvy_shares *shares;
  cvy_ledger *ledger;
  cvy_events *events;    /* of lost devices */
  cvy_mail *const *mail; /* one per device, NULL in a team of one; borrowed */
  int most_samples;      /* of a step */
  bool fault_stops;      /* a device that fails ends the run */
  bool packed;           /* gradients cross as bfloat16: residuals are dropped */
} cvy_recovery_params;

/* CVY_E_MEMORY. */
cvy_status cvy_recovery_create(const cvy_recovery_params *params, cvy_recovery **out);
void cvy_recovery_destroy(cvy_recovery **recovery);
/* [exchange thread] With the team halted: takes out devices that failed and begins the steps under way anew, or ends
 * the run. */
void cvy_recover(cvy_recovery *recovery);
/* [worker task; arg: the recovery] Removes the steps under way from the device: drains its queues as far as it still
 * can, and releases the events that wait for it, also on a failure. */
cvy_status cvy_recovery_clear_device(void *device, void *task);

#endif
