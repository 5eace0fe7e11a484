/* SPDX-License-Identifier: MIT
 * The devices of another node as it describes them (noted_devices.h has those of this one). Pure. */
#ifndef CVY_FLEET_DESCRIBED_DEVICES_H
#define CVY_FLEET_DESCRIBED_DEVICES_H

#include "convoy/status.h"

struct json_t;

/* list: the node's description. *text: the same n devices with what is known here alone, their label, units and driver,
 * and without control characters (cvy_free); NULL: it is no such list. CVY_E_MEMORY. */
cvy_status cvy_described_devices(const struct json_t *list, int n, char **text);

#endif
