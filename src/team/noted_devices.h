/* SPDX-License-Identifier: MIT
 * The devices of a team in a checkpoint, and the mapping from those of another team.
 *
 * A device uses the checkpoint's entry for the device of the same label, or else for the first one of the same name (a
 * label without its place: "0:0/1 NAME" is "NAME"). A device with another number of compute units, or another version
 * of its driver, counts as another device, since the last bits may differ: compute units determine blocks and so the
 * order of sums, the driver determines code. Older checkpoints lack both. Pure. */
#ifndef CVY_TEAM_NOTED_DEVICES_H
#define CVY_TEAM_NOTED_DEVICES_H

#include "src/cl/devices/devices.h"

/* JSON array of objects with the devices' "label", compute "units" and "driver" (cvy_free). CVY_E_MEMORY. */
cvy_status cvy_noted_text(const cvy_devices *devices, char **text);
/* The devices that texts[0..n) note, in this order, as a selection that describes them and cannot be opened
 * (cvy_noted_devices_destroy). CVY_E_FORMAT, CVY_E_MEMORY. */
cvy_status cvy_noted_devices(const char *const *texts, int n, cvy_devices **out);
void cvy_noted_devices_destroy(cvy_devices **devices);
/* rows[i]: which of the noted devices device i takes its algorithms from, -1 none. CVY_E_MEMORY. */
cvy_status cvy_noted_rows(const char *noted, const cvy_devices *devices, int *rows);
/* *same: devices of the same names in the same order, with the units and drivers that are noted, whatever their places:
 * replicas on one device go on as nodes of a fleet. CVY_E_MEMORY. */
cvy_status cvy_noted_same(const char *noted, const cvy_devices *devices, bool *same);
/* All devices have the same name, driver and number of compute units. */
bool cvy_noted_alike(const cvy_devices *devices);
/* Units and driver of each are noted. */
bool cvy_noted_makes(const char *noted);
/* JSON array entry → its label; NULL: none. Whether device i has the units and the driver that are noted. */
struct json_t;
const char *cvy_noted_label(const struct json_t *device);
bool cvy_noted_same_make(const struct json_t *device, const cvy_devices *devices, int i);

#endif
