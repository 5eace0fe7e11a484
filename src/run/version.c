/* SPDX-License-Identifier: MIT */
#include "convoy/convoy.h"

_Static_assert(CVY_API_VERSION_MAJOR == CVY_VERSION_MAJOR && CVY_API_VERSION_MINOR == CVY_VERSION_MINOR &&
                   CVY_API_VERSION_PATCH == CVY_VERSION_PATCH,
               "CVY_API_VERSION of include/convoy/convoy.h has other numbers than the version in meson.build");

const char *cvy_version(void) { return CVY_VERSION; }
int cvy_api_version(void) { return CVY_API_VERSION; }
