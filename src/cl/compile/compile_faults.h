/* SPDX-License-Identifier: MIT
 * Programs on which a helper's compiler died or hung (compilers.h). This process does not compile them: it would die or
 * hang in the same place, and a call of a driver cannot be cut off. Kept for the life of the process, for all devices
 * that have the same driver and the same name. */
#ifndef CVY_CL_COMPILE_COMPILE_FAULTS_H
#define CVY_CL_COMPILE_COMPILE_FAULTS_H

#include "src/cl/compile/compile_ways.h"

/* Keeps the fault, and for each program a warning. `happened`: "died of signal 6 (Aborted)"; `lines`: the last ones
 * that the compiler printed, "" if it printed none. */
void cvy_compile_fault_add(const cvy_device *device, const cvy_compile_request *request, const char *happened,
                           const char *lines);
/* Logs the warnings of faults that this device has met: other kernels are used. Call when all kernels are made; before
 * that they may turn out to have no others, which is an error. */
void cvy_compile_faults_warn(const cvy_device *device);
/* CVY_E_BUILD if the program has such a fault: device, kernel, what happened and the compiler's last lines are logged
 * as an error, with what may be the reason (driver_cache.h, driver_linker.h). `name` (may be NULL): the kernel that is
 * wanted. */
cvy_status cvy_compile_fault_check(cvy_device *device, const char *file, const char *name, const char *options);
/* For tests: as in a new process. No other thread uses a device. */
void cvy_compile_faults_forget(void);
/* False: no check fails, in the whole process. */
bool cvy_compile_has_faults(void);
/* How often the check has failed for kernels of this device. A caller that has another kernel for the same purpose
 * compares it with the number before, and takes that. */
unsigned long cvy_compile_refusals(const cvy_device *device);

#endif
