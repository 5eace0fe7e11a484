/* SPDX-License-Identifier: MIT
 * The update on a lone device (shares.h): nothing crosses. [worker] */
#ifndef CVY_REPLICA_DEVICE_UPDATE_H
#define CVY_REPLICA_DEVICE_UPDATE_H

#include "src/nn/instance.h"
#include "src/ops/norm.h"
#include "src/ops/update.h"

typedef struct cvy_lone_update cvy_lone_update;

/* Of the instance's weights and running values; device, instance and layout are borrowed. clip_norm, grad_norm: as
 * cvy_team_params. CVY_E_BUILD, CVY_E_MEMORY. */
cvy_status cvy_lone_update_create(cvy_device *device, cvy_instance *instance, const cvy_layout *layout, float clip_norm,
                                  bool grad_norm, cvy_lone_update **out);
void cvy_lone_update_destroy(cvy_lone_update **update);
/* Enqueues the update of the bucket's weights from its gradients, which are complete behind the compute queue; buckets
 * come in order. With clip_norm: all updates behind the last bucket. */
cvy_status cvy_lone_update_bucket(cvy_lone_update *update, int bucket, const cvy_update_params *params);
/* The same for all running values, from the sums of the last forward pass. */
cvy_status cvy_lone_update_running(cvy_lone_update *update);
/* A cvy_norm_result, of the gradient behind whose last bucket the compute queue is; NULL: not computed. Borrowed. */
cvy_buffer *cvy_lone_update_norm(const cvy_lone_update *update);

#endif
