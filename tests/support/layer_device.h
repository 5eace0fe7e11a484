/* SPDX-License-Identifier: MIT
 * The part of the test layer (layer.c) that makes single devices slow or fail: what the calls on queues do. */
#ifndef CVY_TESTS_SUPPORT_LAYER_DEVICE_H
#define CVY_TESTS_SUPPORT_LAYER_DEVICE_H

#define CL_TARGET_OPENCL_VERSION 300
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS
#include <CL/cl.h>
#include <CL/cl_layer.h>

/* Replaces the entries of `above` that it needs; `below` is the driver's table. */
void layer_device_init(const cl_icd_dispatch *below, cl_icd_dispatch *above);

#endif
