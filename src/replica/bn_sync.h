/* SPDX-License-Identifier: MIT
 * Batch normalisation over a whole batch that several devices share (--bn sync): the devices' workers synchronise here,
 * once per batchnorm and direction in a step.
 *
 * Each worker reads its device's part of the statistics (ops/batchnorm.h: cvy_batchnorm_parts), waits for that read,
 * and for the others. The last one to arrive combines the parts: in device order, in double, rounded to float once. All
 * workers then enqueue the result's write to their devices and continue. A worker thus cannot enqueue a step's later
 * layers before its device has done the earlier ones: each synchronisation costs a round trip, and devices wait for the
 * slowest one.
 *
 * A device without samples in the step does not take part. With samples on only one device, cvy_bn_sync_parts gives
 * NULL, and the device uses its own statistics, which are the whole batch's.
 *
 * Memory: two rooms, taken in turns. A worker that enters a room for the second time has waited for a read behind the
 * write of the room's earlier result on its in-order queue, so no thread or driver reads or writes a room's memory
 * when it is used again. One of these belongs to each step under way; it must live until the step's devices are
 * idle. */
#ifndef CVY_REPLICA_BN_SYNC_H
#define CVY_REPLICA_BN_SYNC_H

#include "src/ops/batchnorm.h"
#include "src/protocol/roster.h"

typedef struct cvy_bn_sync cvy_bn_sync;

/* n_floats: of the largest statistics, 2 * pitch. A halt of the roster ends every wait. CVY_E_MEMORY. */
cvy_status cvy_bn_sync_create(cvy_roster *roster, size_t n_floats, cvy_bn_sync **out);
void cvy_bn_sync_destroy(cvy_bn_sync **sync);
/* Before the workers begin a step: each device's samples. No worker may be inside. sync may be NULL. */
void cvy_bn_sync_begin(cvy_bn_sync *sync, const int *shares);
/* Seconds that `device` has waited for others since `begin`, after its own part. Call it when the step is finished. */
double cvy_bn_sync_waited(const cvy_bn_sync *sync, int device);
/* [worker] For the pass of `device`: borrowed until the next begin. NULL: the device uses its own statistics. sync may
 * be NULL.
 * Combining gives CVY_E_INTERRUPTED when the team failed meanwhile. */
const cvy_batchnorm_parts *cvy_bn_sync_parts(const cvy_bn_sync *sync, int device);

/* ---- arithmetic, pure ---- */

/* parts[i]: mean, then biased variance of `pitch` channels over samples[i] > 0 samples; out: the same of all of them.
 * mean = m0 + sum n_i*(m_i - m0) / n, var = sum n_i*(var_i + (m_i - mean)²) / n (Chan et al. 1979): no digits are lost
 * where means are much larger than deviations. */
void cvy_bn_combine_moments(const float *const *parts, const int *samples, int n_parts, size_t pitch, float *out);
/* out[j] = sum over i of parts[i][j]. */
void cvy_bn_combine_sums(const float *const *parts, int n_parts, size_t n, float *out);

#endif
