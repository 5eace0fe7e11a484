/* SPDX-License-Identifier: MIT
 * Programs at which a helper's compiler died or hung (compilers.h). This process does not compile them: it would die or
 * hang at the same place, and a driver call cannot be stopped. Kept for the life of the process, for all devices with
 * the same driver and name. */
#ifndef CVY_CL_COMPILE_COMPILE_FAULTS_H
#define CVY_CL_COMPILE_COMPILE_FAULTS_H

#include "src/cl/compile/compile_ways.h"

/* Keeps the fault, and for each program a warning. `happened`: "died of signal 6 (Aborted)"; `lines`: the compiler's
 * last ones, or "". */
void cvy_compile_fault_add(const cvy_device *device, const cvy_compile_request *request, const char *happened,
                           const char *lines);
/* Logs the warnings of the device's faults: other kernels are used. Call when all kernels are made: a kernel without an
 * alternative is an error. */
void cvy_compile_faults_warn(const cvy_device *device);
/* CVY_E_BUILD if the program has such a fault: logs device, kernel, fault, the compiler's last lines and possible
 * reasons (driver_cache.h, driver_linker.h). `name` (may be NULL): the wanted kernel. */
cvy_status cvy_compile_fault_check(cvy_device *device, const char *file, const char *name, const char *options);
/* For tests: as in a new process. No other thread uses a device. */
void cvy_compile_faults_forget(void);
/* False: no check fails, in the whole process. */
bool cvy_compile_has_faults(void);
/* How often the check has failed for kernels of this device. A caller that has an alternative kernel uses it if the
 * number has changed. */
unsigned long cvy_compile_refusals(const cvy_device *device);

#endif
