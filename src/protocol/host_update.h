/* SPDX-License-Identifier: MIT
 * The update on the host: the formulas of ops/update.h for floats in memory, with the bits of the device's. Pure. */
#ifndef CVY_PROTOCOL_HOST_UPDATE_H
#define CVY_PROTOCOL_HOST_UPDATE_H

#include <stddef.h>

#include "src/ops/update_params.h"

/* The old generation is read, the new one written; moments that the optimiser does not have are not accessed. */
typedef struct cvy_host_vectors {
  const float *w_old, *old[CVY_MOMENTS];
  float *w_new, *new[CVY_MOMENTS];
} cvy_host_vectors;

/* n floats; g, the gradient, is overwritten. */
void cvy_host_update(const cvy_update_params *params, const cvy_update_numbers *numbers, float *g,
                     const cvy_host_vectors *vectors, size_t n);

#endif
