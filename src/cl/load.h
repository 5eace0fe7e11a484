/* SPDX-License-Identifier: MIT
 * One device at a time loads a kernel's machine code, where the driver does not see to that itself.
 *
 * PoCL loads it when a command with it is first run and keeps it for all devices of the process, an entry for each kernel,
 * work-group size and widest grid. Commands take an entry by all three and give one back by the first two: where devices run
 * a kernel with several grids side by side, counts of users go wrong, and an assertion ends the program ("found->ref_count >
 * 0" in pocl_release_dlhandle_cache: seen in 3.1 in 5 of 8 runs of ResNet-18 on sixteen replicas, and with this still in 2 of
 * 24; reported by others of 5.0). Grids of one width for each kernel would end it. */
#ifndef CVY_CL_LOAD_H
#define CVY_CL_LOAD_H

#include <stdint.h>

#include "src/cl/device.h"

/* In front of the first launch of a kernel object: true if the caller is to run it now, wait until it has run, and call
 * cvy_load_end; false if it has been loaded. Waits while another device loads the same, 10 s at most (a device that hangs
 * there is not for this one to wait for). key: of file, options, kernel and work-group size. Any thread. */
bool cvy_load_begin(cvy_device *device, uint64_t key);
void cvy_load_end(uint64_t key);

#endif
