/* SPDX-License-Identifier: MIT
 * Activations but ReLU, which is in ops/eltwise.h: y = f(x), f as in convoy/activations.h, and
 *   backward: dx (+)= dy * f'(x).
 * At a corner the gradient is PyTorch's: leaky ReLU a at 0; clip and hard sigmoid 0 at both ends of the slope; hard
 * swish 0 at -3 and 1 at 3. f' follows from `kept`: x where cvy_activation_keeps_x says so, else y.
 * x, y, dy, dx: `rows` rows of c channels, `pitch` floats apart. Padding channels of y become zeros, also where f(0) is
 * something else; those of dx are zeros where dy's are. NaN stays NaN.
 * In place: y may be x, dx may be dy. All pending on return. */
#ifndef CVY_OPS_ACTIVATION_H
#define CVY_OPS_ACTIVATION_H

#include "convoy/activations.h"
#include "src/cl/launch.h"
#include "src/ops/shape.h"

typedef struct cvy_activation_params {
  cvy_activation_kind kind;
  float a, b;
  int c, pitch; /* pitch: a multiple of 16 */
} cvy_activation_params;

/* Backward needs x: places with the same y have different slopes. Pure. */
bool cvy_activation_keeps_x(const cvy_activation_params *params);
/* f(0) is not 0. Pure. */
bool cvy_activation_moves_zero(const cvy_activation_params *params);
/* "clip", "hard_swish": static; NULL: no such kind. */
const char *cvy_activation_name(cvy_activation_kind kind);
/* CVY_E_ARGUMENT: a kind that is not one of these or ReLU, a parameter that is not finite, a clip with a > b. */
cvy_status cvy_activation_check(const cvy_activation_params *params);

typedef struct cvy_activation cvy_activation;
/* As cvy_activation_check, not for ReLU; and a pitch that is too small or no multiple of 16. */
cvy_status cvy_activation_create(cvy_device *device, const cvy_activation_params *params, cvy_activation **out);
void cvy_activation_destroy(cvy_activation **op);
/* rows * pitch < 2^31. */
cvy_status cvy_activation_forward(cvy_activation *op, cvy_queue *queue, int rows, cvy_buffer *x, cvy_buffer *y);
cvy_status cvy_activation_backward(cvy_activation *op, cvy_queue *queue, int rows, cvy_buffer *kept, cvy_buffer *dy,
                                   cvy_buffer *dx, bool accumulate);

#endif
