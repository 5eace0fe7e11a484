/* SPDX-License-Identifier: MIT
 * A network's kernels, compiled together before the first step needs them. Between begin and end cvy_kernel_create only
 * notes a kernel; one that is destroyed before the end is never built, and one that is launched before it is built
 * then.
 *
 * Drivers compile one program or kernel at a time in each process: PoCL a kernel for a size of work-groups when it is
 * first launched, under locks of the whole process, others a program when it is built. So other processes compile
 * (convoy/compile.h), one per core, and this one finds everything in a cache on the disk (compilers.h); compile_ways.c
 * says for which drivers. Of PoCL's only CPU-shaped kernels are compiled ahead: their work-groups have one work-item
 * (launch.h), which is all that PoCL's cache asks for. */
#ifndef CVY_CL_COMPILE_AHEAD_H
#define CVY_CL_COMPILE_AHEAD_H

#include "src/cl/opened_device.h"

void cvy_ahead_begin(cvy_device *device);
/* Builds the noted kernels; begin must have been called. The errors of cvy_kernel_create.
 * *again (not NULL): a helper's compiler has died or hung at a program of them, and nothing was built. Operations that
 * have other kernels take those when they are created anew; those that have none fail then. It is true once for a
 * program. */
cvy_status cvy_ahead_end(cvy_device *device, bool *again);
/* Forgets that they are only noted, after a failure: they are destroyed, not built. */
void cvy_ahead_cancel(cvy_device *device);
/* In place of the end, for kernels of which some may not compile: the same kernels, created again, are in the caches.
 * The noted ones are destroyed, not built. Ends early once `stop` gives true. Nothing where no helper serves. */
cvy_status cvy_ahead_fill(cvy_device *device, bool (*stop)(void *user), void *user);

#endif
