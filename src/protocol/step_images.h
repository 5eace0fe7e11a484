/* SPDX-License-Identifier: MIT
 * Memory of a step for a batch of the caller (convoy/batch.h): it has the batch until the step is finished, so that the
 * step can be repeated. A thread that hangs in a driver may read it later: it is freed with the team only, and a team
 * with such threads is leaked. */
#ifndef CVY_PROTOCOL_STEP_IMAGES_H
#define CVY_PROTOCOL_STEP_IMAGES_H

#include <stdint.h>

#include "src/base/failure.h"

typedef struct cvy_step_images {
  float *x;        /* (N,H,W) with the pitch of the network's input; NULL: there is no memory yet */
  int32_t *labels; /* N */
} cvy_step_images;

/* Room for n images of `image_floats`. CVY_E_MEMORY, with the bytes; *images is unchanged then. */
cvy_status cvy_step_images_make(cvy_step_images *images, size_t image_floats, int n);
void cvy_step_images_free(cvy_step_images *images);

#endif
