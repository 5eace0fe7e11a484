/* SPDX-License-Identifier: MIT
 * The data set on a device: all its bytes, if they fit beside the network; else two blocks of a pass's samples, filled
 * in turns by the host. Per pass only sample numbers travel to a resident data set. [worker] */
#ifndef CVY_REPLICA_REPLICA_DATA_H
#define CVY_REPLICA_REPLICA_DATA_H

#include "convoy/team.h"
#include "src/nn/instance.h"
#include "src/ops/gather/gather.h"
#include "src/replica/step_inputs.h"

enum { CVY_SET_COUNT = 3 };
static inline const cvy_samples *cvy_set_samples(const cvy_data *data, cvy_set set) {
  return set == CVY_SET_TRAIN ? &data->train : set == CVY_SET_VAL ? &data->val : &data->test;
}

typedef struct cvy_replica_data cvy_replica_data;

/* The objects of its replica, borrowed for its life. */
typedef struct cvy_replica_data_target {
  cvy_device *device;
  cvy_instance *instance;
  cvy_gather *gather;
  cvy_step_inputs *notes;
  size_t used_bytes; /* device memory in use without the data set */
} cvy_replica_data_target;

/* Uploads the data set, or prepares streaming if it does not fit. `data` is borrowed. CVY_E_DEVICE_MEMORY,
 * CVY_E_MEMORY, CVY_E_DEVICE. */
cvy_status cvy_replica_data_create(const cvy_replica_data_target *target, const cvy_data *data, cvy_replica_data **out);
void cvy_replica_data_destroy(cvy_replica_data **data);
/* Enqueues the instance's input and labels: samples[0..n) of the set, at most its micro-batch; augmented as in `epoch`,
 * if the gather does that, and not at all if that is negative. */
cvy_status cvy_replica_data_load(cvy_replica_data *data, cvy_set set, const int32_t *samples, int n, int epoch);
/* The numbers of the samples that were loaded last, n int32 on the device; NULL: nothing has drawn from them. Borrowed
 * until the next pass. */
cvy_buffer *cvy_replica_data_numbers(const cvy_replica_data *data);
/* True if the data set does not fit and its samples are sent pass by pass. */
bool cvy_replica_data_is_streamed(const cvy_replica_data *data);
/* Device memory in use, bytes. */
size_t cvy_replica_data_bytes(const cvy_replica_data *data);

#endif
