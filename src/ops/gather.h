/* SPDX-License-Identifier: MIT
 * Makes a batch from the bytes of a data set:  x[n,h,w,c] = (float)images[index[n],h,w,c] / 255.0f (correctly
 * rounded), padding channels 0;
 * labels_out[n] = labels[index[n]].
 * images: (M,H,W,C) bytes, dense · labels: M uint16 · index: N int32 in 0..M-1 · x: (N,H,W,C) pitch x.pitch ·
 * labels_out: N int32. Pending on return.
 * M*H*W*C may pass 4 GiB: offsets are 64-bit. */
#ifndef CVY_OPS_GATHER_H
#define CVY_OPS_GATHER_H

#include "src/cl/launch.h"
#include "src/ops/shape.h"

typedef struct cvy_gather cvy_gather;
cvy_status cvy_gather_create(cvy_device *device, const cvy_shape *x, cvy_gather **out);
void cvy_gather_destroy(cvy_gather **op);
cvy_status cvy_gather_run(cvy_gather *op, cvy_queue *queue, int n, cvy_buffer *images, cvy_buffer *labels,
                          cvy_buffer *index, cvy_buffer *x, cvy_buffer *labels_out);

#endif
