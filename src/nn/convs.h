/* SPDX-License-Identifier: MIT
 * The convolutions of a network, linear layers among them, as a device with n samples sees them: what there is to tune.
 * Pure. */
#ifndef CVY_NN_CONVS_H
#define CVY_NN_CONVS_H

#include "src/nn/plan.h"
#include "src/ops/conv2d.h"

/* What a unit (conv2d or linear) of a plan for n samples is as a convolution, algorithms open. */
cvy_conv2d_params cvy_unit_conv(const cvy_net *net, const cvy_unit *unit, int n, bool inference);

/* All of a net, in its order, but those in a convpool where fuse_pools (plan.h): that has one way only; params[i].layer
 * is borrowed from the net. *params: cvy_free. What cvy_plan_create says. */
cvy_status cvy_net_convs(const cvy_net *net, int n, bool inference, bool fuse_pools, cvy_conv2d_params **params,
                         int *count);

#endif
