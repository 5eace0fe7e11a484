/* SPDX-License-Identifier: MIT
 * The update on a lone device (shares.h), without an exchange. [worker] */
#ifndef CVY_REPLICA_DEVICE_UPDATE_H
#define CVY_REPLICA_DEVICE_UPDATE_H

#include "src/nn/instance.h"
#include "src/ops/norm.h"
#include "src/ops/update.h"

typedef struct cvy_device_update cvy_device_update;

/* Of the instance's weights and running values; device, instance and layout are borrowed. clip_norm, grad_norm: as
 * cvy_team_params. CVY_E_BUILD, CVY_E_MEMORY. */
cvy_status cvy_device_update_create(cvy_device *device, cvy_instance *instance, const cvy_layout *layout,
                                    float clip_norm, bool grad_norm, cvy_device_update **out);
void cvy_device_update_destroy(cvy_device_update **update);
/* Enqueues the update of the bucket's weights from its gradients, which are complete behind the compute queue; buckets
 * come in order. With clip_norm: all updates behind the last bucket. */
cvy_status cvy_device_update_bucket(cvy_device_update *update, int bucket, const cvy_update_params *params);
/* The same for all running values, from the sums of the last forward pass. */
cvy_status cvy_device_update_running(cvy_device_update *update);
/* A cvy_norm_result, of the gradient behind whose last bucket the compute queue is; NULL: not computed. Borrowed. */
cvy_buffer *cvy_device_update_norm(const cvy_device_update *update);

#endif
