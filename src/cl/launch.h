/* SPDX-License-Identifier: MIT
 * Kernels: source file + name + defines → kernel object; arguments and geometry → one checked launch.
 *
 * Sources are the files of cl/, embedded (tools/generate/embed_cl.py) or read from the folder $CVY_CL_DIR. Programs are
 * shared per device by (file, sorted defines); kernel objects are the caller's: one per layer instance. Binary cache:
 * cache.h.
 * Every program gets -cl-std=CL1.2 and the defines CVY_CPU (0/1), for CPU-shaped devices CVY_VECTOR_FLOATS and, where
 * the compiler has it, CVY_MIN_VECTOR_WIDTH and CVY_PREFETCH. $CVY_BUILD_OPTIONS adds options, such as NVIDIA's
 * -cl-nv-verbose. */
#ifndef CVY_CL_LAUNCH_H
#define CVY_CL_LAUNCH_H

#include "convoy/profile.h"
#include "src/cl/buffer.h"
#include "src/cl/command_times.h"
#include "src/cl/kernel_args.h"

/* `file` without ".cl", e.g. "conv2d_direct". CVY_E_BUILD logs the compiler's log, the options and the device. */
cvy_status cvy_kernel_create(cvy_device *device, const char *file, const char *name, const cvy_define *defines,
                             int n_defines, cvy_kernel **out);
void cvy_kernel_destroy(cvy_kernel **kernel);
/* Builds a kernel that is only noted (ahead.h); nothing if it is built. */
cvy_status cvy_kernel_make(cvy_kernel *kernel);

/* Rows of work-groups on CPU-shaped devices. Groups of one work-item are launched as a row (global[0] of them, nothing
 * in the other dimensions), which is laid along z: kernels number them by CVY_GROUP and CVY_GROUPS (cl/common.clh).
 * Reason: PoCL (3.1; reported of 5.0) caches machine code for the whole process. A command takes an entry by kernel,
 * work-group size and a width of at least its own, but releases one by kernel and size alone. Devices that run a kernel
 * with rows of several lengths (batches, shares, sub-devices) release the wrong entry, until an assertion ends the
 * process ("found->ref_count > 0"). The width is the larger of x and y: along z all are 1 wide, and there is one entry.
 * Below a width of 65535 the code also assumes that a group's number in every dimension is less, hence the limit.
 * Kernels of libraries (CLBlast, clFFT) are launched by these and may still meet the assertion. */
enum { CVY_MOST_GROUPS = 65535 };

/* Unused dimensions 0 or 1; local[0] 0: the driver chooses. */
typedef struct cvy_grid {
  size_t global[3], local[3];
} cvy_grid;

/* Sets the arguments that changed since the last launch of this kernel object, structs always, and enqueues it. n_args
 * must be the kernel's. Global sizes must be multiples of local ones; zero global size launches nothing. *event (may be
 * NULL) is the caller's. Pending on return. */
cvy_status cvy_launch(cvy_queue *queue, cvy_kernel *kernel, cvy_grid grid, const cvy_arg *args, int n_args,
                      cvy_event **event);

/* The planned cost of a launch. */
typedef struct cvy_launch_work {
  double seconds, fma, bytes; /* multiply-adds; bytes of memory read and written */
  double compute_s, moved; /* of products at the whole rate; bytes by which the time is planned, cached ones in part */
  int resident;            /* work-groups that a compute unit holds at once, 0: not counted */
} cvy_launch_work;

#define CVY_LAUNCH(queue, kernel, grid, ...)                            \
  cvy_launch((queue), (kernel), (grid), (const cvy_arg[]){__VA_ARGS__}, \
             (int)(sizeof((cvy_arg[]){__VA_ARGS__}) / sizeof(cvy_arg)), NULL)

#endif
