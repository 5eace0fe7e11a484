/* SPDX-License-Identifier: MIT
 * Rates of a device, by which SIMT-shaped kernels are planned (conv2d_simt_plan.h). */
#ifndef CVY_OPS_RATES_H
#define CVY_OPS_RATES_H

#include "src/cl/opened_device.h"

/* The rates of the device. A plan decides the order of sums, so the same device gives the same rates in every run. */
cvy_device_rates cvy_rates_of(cvy_device *device);

#endif
