/* SPDX-License-Identifier: MIT
 * From what a driver says of a device to the facts by which kernels are chosen. No OpenCL call is in here: a test gives
 * the answers of drivers that are not there. */
#ifndef CVY_CL_DEVICES_CAPABILITIES_H
#define CVY_CL_DEVICES_CAPABILITIES_H

#include "src/cl/opened_device.h"

/* A driver's answers that are not in cvy_device_info. Zeros: it does not know the question. */
typedef struct cvy_driver_answers {
  int units;          /* compute units of this (sub-)device */
  int nv_capability;  /* CL_DEVICE_COMPUTE_CAPABILITY_MAJOR_NV */
  int amd_simds;      /* CL_DEVICE_SIMD_PER_COMPUTE_UNIT_AMD */
  int least_subgroup; /* of CL_DEVICE_SUB_GROUP_SIZES_INTEL */
} cvy_driver_answers;

/* Fills *out. CVY_FORCE_SHAPE, CVY_FORCE_MATRIX and CVY_FORCE_STAGING take part. CVY_E_ARGUMENT: one of them is none of
 * its words; CVY_E_UNSUPPORTED: the device has no kernels of that shape. `label` is for messages. */
cvy_status cvy_capabilities_find(const cvy_device_info *info, const cvy_driver_answers *answers, const char *label,
                                 cvy_capabilities *out);

#endif
