/* SPDX-License-Identifier: MIT
 * Going on with a checkpoint on the team that made it, or on another one.
 *
 * The same devices with the same shares: the same algorithms, the same bits. Otherwise the run goes on within rounding,
 * where it makes no difference how a batch is split: batch statistics over groups (ghost) or over the whole batch (sync),
 * or no batchnorm at all. Where each share has its own statistics (device), other devices may take over the same shares.
 *
 * Algorithms, which decide about rounding: on another team, a device takes what the checkpoint notes for the device of
 * the same label, or else for the first one of the same name (a label without its place: "0:0/1 NAME" is "NAME"), as far
 * as it can with its share; a device of another name chooses as in a new run.
 *
 * A device with another number of compute units, or another version of its driver, is another device: blocks, and with them
 * the order of sums, follow from the one, code from the other. Older checkpoints do not note them.
 *
 * Pure: no device is used. */
#ifndef CVY_TRAIN_RESUME_H
#define CVY_TRAIN_RESUME_H

#include "src/train/checkpoint.h"
#include "src/train/team.h"

/* JSON array of objects with the devices' "label", compute "units" and "driver" (cvy_free). CVY_E_MEMORY. */
cvy_status cvy_resume_devices(const cvy_devices *devices, char **text);
/* rows[i]: which of the checkpoint's devices device i takes its algorithms from, -1 none. */
void cvy_resume_rows(const char *checkpoint_devices, const cvy_devices *devices, int *rows);
/* The same devices in the same order, with the units and drivers that are noted. */
bool cvy_resume_same_devices(const cvy_devices *devices, const char *checkpoint_devices);
/* Units and driver of each are noted. */
bool cvy_resume_knows_make(const char *checkpoint_devices);

/* Before there are replicas: *free_split if the newest checkpoint in dir is of other devices, and how a batch is split
 * makes no difference: shares may be chosen as in a new run. CVY_E_IO, CVY_E_MEMORY. */
cvy_status cvy_resume_is_free(const cvy_team *team, const char *dir, bool *free_split);
/* Whether the checkpoint's run may go on here. *same: on its own devices and shares. CVY_E_MISMATCH, with what would be
 * right: another batch size, or other shares where each has statistics of its own. */
cvy_status cvy_resume_check(const cvy_team *team, const cvy_checkpoint *c, bool *same);
/* Says in a log line on what other team the run goes on, and which devices choose algorithms anew. */
void cvy_resume_tell(const cvy_team *team, const cvy_checkpoint *c);
/* Settings that may differ (cvy_settings_compare). */
const char *const *cvy_resume_may_differ(const cvy_team *team);

#endif
