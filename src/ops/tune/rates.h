/* SPDX-License-Identifier: MIT
 * Rates of a device, by which SIMT-shaped kernels are planned (conv2d_simt_plan.h): multiply-adds in registers, a
 * copy's bytes, the time of an empty launch. A plan decides the order of sums, so a device has the same rates in every
 * run: a GPU's are measured once and kept in $XDG_CACHE_HOME/convoy/rates-KEY.txt (or ~/.cache/convoy/…), KEY 16
 * hexadecimal digits, XXH3-64 of the first lines. Lines, each ended by a newline:
 *   convoy-rates 1                                                   format and its version
 *   device: … | platform: … | driver: … | units: …
 *   FMA BYTES LAUNCH                                                 per second, per second, seconds (%.3e)
 * Cards with the same lines share the file, as do all devices of a process that have them: the rates of the first one
 * that is measured. Where they cannot be kept (no folder, CVY_NO_TUNE=1), and on devices that are no GPUs, they follow
 * from the number of compute units. A file that is wrong counts as missing. */
#ifndef CVY_OPS_TUNE_RATES_H
#define CVY_OPS_TUNE_RATES_H

#include "src/cl/opened_device.h"

cvy_device_rates cvy_rates_of(cvy_device *device);

/* The parts of it, for tests. Measures: compiles small kernels and runs them for some milliseconds, on the compute
 * queue. CVY_E_BUILD, CVY_E_DEVICE_MEMORY, CVY_E_DEVICE. */
cvy_status cvy_rates_measure(cvy_device *device, cvy_device_rates *out);
/* From the file at `path`, else measured and written there; in a process a path has the rates that it had first. */
cvy_status cvy_rates_kept(cvy_device *device, const char *path, cvy_device_rates *out);

#endif
