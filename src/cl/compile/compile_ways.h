/* SPDX-License-Identifier: MIT
 * What a helper compiles (compilers.h), how helpers compile for a driver, and how many there are. */
#ifndef CVY_CL_COMPILE_COMPILE_WAYS_H
#define CVY_CL_COMPILE_COMPILE_WAYS_H

#include "src/cl/opened_device.h"

typedef struct cvy_compile_request {
  const char *file, *name, *options; /* borrowed */
  int program;                       /* requests of one program (file and options) have one number, from 0 */
  int order;                         /* of need, from 0 */
  size_t source_bytes;               /* of the file, with its includes */
} cvy_compile_request;

typedef enum cvy_compile_way {
  CVY_COMPILE_HERE,     /* no helpers */
  CVY_COMPILE_LAUNCHED, /* a helper launches each kernel once: the driver compiles then, into its own cache */
  CVY_COMPILE_BUILT     /* a helper builds each program: Convoy's cache (cache.h) keeps the binary */
} cvy_compile_way;

/* CVY_COMPILE_HERE too where the caches are off, or the process has one core. */
cvy_compile_way cvy_compile_way_of(const cvy_device *device);
/* Helpers for n kernels or programs. */
int cvy_compile_helpers(const cvy_device *device, int n);

enum { CVY_COMPILE_HELPERS_MOST = 16 };

#endif
