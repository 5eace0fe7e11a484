/* SPDX-License-Identifier: MIT
 * Declarations only for the files of a replica. */
#ifndef CVY_REPLICA_REPLICA_PARTS_H
#define CVY_REPLICA_REPLICA_PARTS_H

#include "src/replica/device_update.h"
#include "src/replica/step_inputs.h"
#include "src/replica/replica.h"
#include "src/replica/replica_batch.h"
#include "src/replica/replica_data.h"
#include "src/replica/residual.h"
#include "src/replica/staging.h"

/* The number of the device's set of weights that holds this generation: with staleness the exchange writes one set
 * while the device computes with the other. */
static inline int cvy_replica_set_of(const cvy_replica *replica, long generation) {
  return replica->setup.staleness ? (int)(generation & 1) : 0;
}
/* [worker] r->batch, which the first batch of the caller makes. */
cvy_status cvy_replica_need_batch(cvy_replica *replica);
/* Rows of the table (member.h), in replica_step.c. */
cvy_status cvy_replica_step(void *replica, cvy_step *step);
cvy_status cvy_replica_drain(void *replica);
cvy_status cvy_replica_await(void *replica, cvy_event *event, uint64_t *ended_ns);
float *cvy_replica_stage(void *replica, int parcel, long step);
cvy_status cvy_replica_upload(void *replica, int parcel, long step, const float *from, void *mapped, cvy_upload *out);

#endif
