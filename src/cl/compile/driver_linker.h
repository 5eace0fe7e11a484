/* SPDX-License-Identifier: MIT
 * The linker of a driver. PoCL's compiler for CPUs starts the program ld; where PATH has none, PoCL ends the
 * process. */
#ifndef CVY_CL_COMPILE_DRIVER_LINKER_H
#define CVY_CL_COMPILE_DRIVER_LINKER_H

#include "convoy/device.h"

/* An error line, behind the one of a kernel that does not compile, if the device's driver needs a linker that no folder
 * of PATH has. Any thread. */
void cvy_driver_linker_explain(const cvy_device_info *device);

#endif
