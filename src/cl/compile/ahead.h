/* SPDX-License-Identifier: MIT
 * A network's kernels, compiled together before the first step needs them. Between begin and end cvy_kernel_create only
 * lists a kernel. One that is destroyed before the end is never built; one that is launched before is built then.
 *
 * Drivers compile one program or kernel at a time in each process: PoCL a kernel for a size of work-groups when it is
 * first launched, under locks of the whole process, others a program when it is built. So other processes compile
 * (convoy/compile.h), one per core, and this one finds everything in a cache on the disk (compilers.h); compile_ways.c
 * lists the drivers. On PoCL only CPU-shaped kernels are compiled ahead: their work-groups have one work-item
 * (launch.h), and PoCL's cache needs no other size. */
#ifndef CVY_CL_COMPILE_AHEAD_H
#define CVY_CL_COMPILE_AHEAD_H

#include "src/cl/opened_device.h"

void cvy_ahead_begin(cvy_device *device);
/* Builds the listed kernels; begin must have been called. The errors of cvy_kernel_create.
 * *again (not NULL): a helper's compiler has died or hung at one of their programs, and nothing was built. Operations
 * that have other kernels use those when they are created again; the others then fail. True once for a program. */
cvy_status cvy_ahead_end(cvy_device *device, bool *again);
/* After a failure: they are destroyed, not built. */
void cvy_ahead_cancel(cvy_device *device);
/* In place of the end, for kernels of which some may not compile: the same kernels, created again, are in the caches.
 * The listed ones are destroyed, not built. Ends early when `stop` returns true. Does nothing without helpers. */
cvy_status cvy_ahead_fill(cvy_device *device, bool (*stop)(void *user), void *user);

#endif
