/* SPDX-License-Identifier: MIT
 * The convolutions of a network, linear layers among them, for a device with n samples: the list that tuning works
 * through. Pure. */
#ifndef CVY_NN_CONVS_H
#define CVY_NN_CONVS_H

#include "src/nn/plan.h"
#include "src/ops/conv2d/conv2d.h"

/* The convolution that a unit (conv2d or linear) of a plan for n samples computes; its algorithms are AUTO. */
cvy_conv2d_params cvy_unit_conv(const cvy_net *net, const cvy_unit *unit, int n, bool inference);

/* All convolutions of a net, in its order; with fuse_pools (plan.h) without those in a convpool, which has one
 * algorithm only. params[i].layer is borrowed from the net. *params: cvy_free. Fails as cvy_plan_create. */
cvy_status cvy_net_convs(const cvy_net *net, int n, bool inference, bool fuse_pools, cvy_conv2d_params **params,
                         int *count);

#endif
