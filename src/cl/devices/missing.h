/* SPDX-License-Identifier: MIT
 * Reasons for missing devices: drivers whose library is missing, cards that no platform offers, and device files that
 * this user may not open. */
#ifndef CVY_CL_DEVICES_MISSING_H
#define CVY_CL_DEVICES_MISSING_H

#include "convoy/device.h"

/* cvy_device_missing_drivers and cvy_device_advice of the system under `root` ("" but in tests). */
bool cvy_missing_in(const char *root, const cvy_device_list *list, char *out, size_t out_bytes);
void cvy_advice_in(const char *root, char *out, size_t out_bytes);

#endif
