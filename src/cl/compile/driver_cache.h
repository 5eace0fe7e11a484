/* SPDX-License-Identifier: MIT
 * The folder in which a driver keeps the kernels that it has compiled. A driver that cannot write there may fail to
 * compile, or end the process, without a word on why. */
#ifndef CVY_CL_COMPILE_DRIVER_CACHE_H
#define CVY_CL_COMPILE_DRIVER_CACHE_H

#include "convoy/device.h"

/* Gives PoCL a cache folder in /tmp where it cannot make its own (services, containers, users without a home): without
 * one it offers no device at all. PoCL reads POCL_CACHE_DIR once, when its platform is first listed. Once. */
void cvy_driver_cache_prepare(void);

/* An error line, behind the one of a kernel that does not compile: the folder of the device's driver, where it is
 * missing, cannot be written, is nearly full or, for PoCL, on a file system that is mounted noexec, or, with `always`,
 * also where nothing is wrong with it. Drivers whose folder is not known: none. Any thread. */
void cvy_driver_cache_explain(const cvy_device_info *device, bool always);

#endif
