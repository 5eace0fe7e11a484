/* SPDX-License-Identifier: MIT
 * The data set on one device: resident as bytes, or streamed in two blocks when it does not fit. Part of replica.h,
 * own file. */
#ifndef CVY_TRAIN_REPLICA_DATA_H
#define CVY_TRAIN_REPLICA_DATA_H

#include "src/train/replica.h"

/* [worker] Makes the batch of samples[0..n), n <= micro_batch: input and labels of the instance. Pending on return;
 * `samples` must stay until the
 * compute queue has run. Streamed: copies the bytes to a block first, which may wait for the pass before the last. */
cvy_status cvy_replica_load_samples(cvy_replica *replica, bool test, const int32_t *samples, int n);
/* [worker] Forgets the data set. */
void cvy_replica_data_release(cvy_replica *replica);

#endif
