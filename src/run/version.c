/* SPDX-License-Identifier: MIT */
#include "convoy/convoy.h"

const char *cvy_version(void) { return CVY_VERSION; }
int cvy_api_version(void) { return CVY_API_VERSION; }
