/* SPDX-License-Identifier: MIT
 * The packages of this system that bring OpenCL drivers: a table by release, without calls of the package manager. */
#ifndef CVY_CL_DEVICES_PACKAGES_H
#define CVY_CL_DEVICES_PACKAGES_H

typedef enum cvy_driver {
  CVY_DRIVER_CPU,
  CVY_DRIVER_NVIDIA,
  CVY_DRIVER_AMD,
  CVY_DRIVER_INTEL,
  CVY_N_DRIVERS
} cvy_driver;

typedef struct cvy_packages {
  char system[96];                   /* "Debian GNU/Linux 12 (bookworm)", or "this system" */
  const char *install;               /* "apt install ", "" where the packages' names are not known */
  const char *driver[CVY_N_DRIVERS]; /* "pocl-opencl-icd"; static */
} cvy_packages;

/* By etc/os-release under `root` ("" but in tests). */
void cvy_packages_of(const char *root, cvy_packages *out);

#endif
