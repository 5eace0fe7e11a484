/* SPDX-License-Identifier: MIT
 * How the other files of src/cl tell a device on paper what they would have enqueued. */
#ifndef CVY_CL_DRY_RUN_NOTES_H
#define CVY_CL_DRY_RUN_NOTES_H

#include "src/cl/opencl.h"

/* A launch (grid, args), or a fill or copy of `bytes` (grid NULL). */
cvy_status cvy_dry_run_note(cvy_device *device, const char *file, const char *name, const cvy_grid *grid,
                            const cvy_arg *args, int n_args, size_t bytes);
void cvy_dry_run_scope(cvy_device *device, int scope);
/* NULL is fine. */
void cvy_dry_run_destroy(cvy_device *device);

#endif
