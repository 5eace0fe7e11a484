/* SPDX-License-Identifier: MIT
 * Batches of the caller (convoy/batch.h) on a device. Two blocks of a pass's images and labels, filled in turns: the
 * upload queue fills one while the device computes with the other. [worker] */
#ifndef CVY_REPLICA_REPLICA_BATCH_H
#define CVY_REPLICA_REPLICA_BATCH_H

#include "convoy/batch.h"
#include "src/nn/instance.h"
#include "src/replica/step_inputs.h"

typedef struct cvy_replica_batch cvy_replica_batch;

/* Device, instance and notes of the replica, and the shape of its network's input: borrowed. CVY_E_DEVICE_MEMORY,
 * CVY_E_MEMORY. */
cvy_status cvy_replica_batch_create(cvy_device *device, cvy_instance *instance, cvy_step_inputs *notes,
                                    const cvy_shape *input, cvy_replica_batch **out);
void cvy_replica_batch_destroy(cvy_replica_batch **batch);
/* Enqueues the instance's input and labels: n images, at most its micro-batch, and their labels. The upload reads both
 * until the pass has begun. numbers: of the samples, if the instance drops values. May wait for an older pass. */
cvy_status cvy_replica_batch_load(cvy_replica_batch *batch, const float *images, const int32_t *labels,
                                  const int32_t *numbers, int n);
/* The same for images first to first + n - 1 of the caller's memory, which is copied; without labels: zeros. */
cvy_status cvy_replica_batch_copy(cvy_replica_batch *batch, const cvy_batch *from, int first, int n);
/* The sample numbers that were loaded last, on the device; NULL: the instance drops nothing. Borrowed until the next
 * pass. */
cvy_buffer *cvy_replica_batch_numbers(const cvy_replica_batch *batch);
/* Device memory in use, bytes. */
size_t cvy_replica_batch_bytes(const cvy_replica_batch *batch);

#endif
