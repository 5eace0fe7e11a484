/* SPDX-License-Identifier: MIT
 * Copies `count` channels of each row of x, from x_at on and x_step apart, to channels of y from y_at on and y_step
 * apart; `fill` channels of y behind the last of these become zeros. accumulate: they are added, and nothing is filled.
 * Rows are x_pitch and y_pitch floats apart; any channel may be the first. Concatenation is one copy per input, a
 * shuffle one per group; their gradients are the same copies the other way. x and y are different buffers. Pending on
 * return. */
#ifndef CVY_OPS_CHANNELS_H
#define CVY_OPS_CHANNELS_H

#include "src/cl/launch.h"
#include "src/ops/shape.h"

typedef struct cvy_channels_call {
  int rows, count, fill;
  cvy_buffer *x, *y;
  int x_pitch, x_at, y_pitch, y_at;
  int x_step, y_step; /* 0 means 1 */
  bool accumulate;
} cvy_channels_call;

typedef struct cvy_channels cvy_channels;
cvy_status cvy_channels_create(cvy_device *device, cvy_channels **out);
void cvy_channels_destroy(cvy_channels **op);
/* CVY_E_ARGUMENT: channels outside of a row, buffers that are too small, 2^31 floats or more. */
cvy_status cvy_channels_copy(cvy_channels *op, cvy_queue *queue, const cvy_channels_call *call);

#endif
