/* SPDX-License-Identifier: MIT
 * A batch of activations on one device of a team: fp32, (N,H,W,C), dense on the host side of every function. When the
 * device is lost, so is the batch. Destroy a tensor before its team. */
#ifndef CONVOY_TENSOR_H
#define CONVOY_TENSOR_H

#include <stddef.h>

#include "convoy/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cvy_tensor cvy_tensor;
void cvy_tensor_destroy(cvy_tensor **tensor);
/* Sizes; `device` is the position in the team. Any of them may be NULL. */
void cvy_tensor_shape(const cvy_tensor *tensor, int *n, int *h, int *w, int *c, int *device);
/* Copies all n*h*w*c values to `out` (n_floats must be exactly that). Waits. CVY_E_DEVICE: the device and the batch are
 * lost, in this call (as in a step) or earlier. */
cvy_status cvy_tensor_read(const cvy_tensor *tensor, float *out, size_t n_floats);

#ifdef __cplusplus
}
#endif
#endif
