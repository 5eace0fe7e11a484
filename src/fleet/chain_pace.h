/* SPDX-License-Identifier: MIT
 * How long operations of a chain take here, and so how long other nodes are waited for (patience.h). For the thread
 * that begins operations, one at a time. */
#ifndef CVY_FLEET_CHAIN_PACE_H
#define CVY_FLEET_CHAIN_PACE_H

#include "src/fleet/nodes.h"

typedef struct cvy_chain_pace {
  uint64_t ended_ns; /* the newest operation; 0: none has yet */
  uint64_t began_ns; /* the step under way */
  double usual_s;    /* of a step, lately */
  int steps;         /* since the shares changed: the first ones compile kernels */
} cvy_chain_pace;

/* A step begins or has ended. timeout_s: of a device (watch.h); 0: waits have no limit. */
void cvy_chain_pace_begin(cvy_chain_pace *pace, cvy_fleet *fleet, double timeout_s);
void cvy_chain_pace_end(cvy_chain_pace *pace);
/* An operation of the callers begins: the other nodes may be slower at the work that this one's caller has done since
 * the operation before. */
void cvy_chain_pace_operation(cvy_chain_pace *pace, cvy_fleet *fleet, double timeout_s);

#endif
