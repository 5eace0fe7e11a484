/* SPDX-License-Identifier: MIT
 * Host memory for the exchange of gradients and weights. If device and host share memory, gradients are mapped and
 * weights are written from the ledger, without staging. Else both use pinned memory: with other memory NVIDIA's driver
 * would block the exchange thread, and delay the other devices' weights. The update writes new weights there directly
 * (ledger.h). Memory that one context has pinned is ordinary memory for another, so each device has its own.
 *
 * With staleness the exchange thread sends the next weights while the device computes with the current ones: there are
 * two sending areas, by the parity of the step, as there are two sets of weights on the device. */
#ifndef CVY_REPLICA_STAGING_H
#define CVY_REPLICA_STAGING_H

#include "src/cl/buffer.h"
#include "src/nn/layout.h"

typedef struct cvy_staging cvy_staging;

/* staleness: 0 or 1. CVY_E_DEVICE_MEMORY, CVY_E_MEMORY. */
cvy_status cvy_staging_create(cvy_device *device, const cvy_layout *layout, int staleness, cvy_staging **out);
void cvy_staging_destroy(cvy_staging **staging);
/* True if gradients are mapped, without staging. */
bool cvy_staging_maps(const cvy_staging *staging);
/* [worker] Brings the first `bytes` of `from` to the host behind the event `ready` (NULL: at once), as the parcel's
 * gradient. *part: where it will lie when *read has completed; *mapped: it lies in mapped memory. */
cvy_status cvy_staging_fetch(cvy_staging *staging, int parcel, cvy_buffer *from, size_t bytes, cvy_event *ready,
                             void **part, bool *mapped, cvy_event **read);
/* The pinned memory from which the parcel's weights for a step of this parity are uploaded; NULL: gradients are mapped,
 * and weights go up from the ledger. */
float *cvy_staging_target(const cvy_staging *staging, int parcel, int parity);

#endif
