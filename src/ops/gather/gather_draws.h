/* SPDX-License-Identifier: MIT
 * Settings of augmentation as kernels take them. */
#ifndef CVY_OPS_GATHER_GATHER_DRAWS_H
#define CVY_OPS_GATHER_GATHER_DRAWS_H

#include "cl/gather_args.clh"
#include "convoy/input.h"

/* For settings that cvy_input_check has found right. Pure. */
cvy_gather_augment cvy_gather_augment_of(const cvy_input_params *params, int h, int w);

#endif
