/* SPDX-License-Identifier: MIT
 * Kernel file and defines → built program, from the device's list, from the disk, or from the compiler. */
#ifndef CVY_CL_COMPILE_PROGRAM_H
#define CVY_CL_COMPILE_PROGRAM_H

#include "convoy/profile.h"
#include "src/cl/kernel_args.h"
#include "src/cl/opencl.h"

typedef struct cvy_program {
  struct cvy_program *next;
  char *key; /* file and options */
  cl_program cl;
} cvy_program;

/* The compiler's options with these defines, sorted by name. */
cvy_status cvy_program_options(const cvy_device *device, const cvy_define *defines, int n_defines, cvy_text *out);
/* The program of `file`, built or from a cache; borrowed, lives as long as the device. */
cvy_status cvy_program_get(cvy_device *device, const char *file, const char *options, cvy_program **out);
void cvy_programs_destroy(cvy_device *device);

/* Around the time in which a program or a kernel is compiled (build_ns). Any thread. */
void cvy_building_begins(void);
void cvy_building_ends(void);
/* Sets compiled, cached and build_ns. */
void cvy_program_totals(cvy_launch_totals *totals);

#endif
