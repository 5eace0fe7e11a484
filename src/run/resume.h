/* SPDX-License-Identifier: MIT
 * Resuming from a checkpoint on the team that wrote it, or on another one.
 *
 * On the same devices with the same shares the run has the same algorithms and the same bits. Else results are equal
 * within rounding, if the split of a batch has no other effect: batch statistics over groups (ghost) or over the whole
 * batch (sync), or no batchnorm. If each share has its own statistics (device), other devices may use the same shares.
 *
 * Rounding depends on the algorithms. On another team a device uses the checkpoint's algorithms for the device of the
 * same label, or else for the first one of the same name (a label without its place: "0:0/1 NAME" is "NAME"), if they
 * work with its share. A device of another name chooses as in a new run.
 *
 * A device with another number of compute units, or another version of its driver, is another device: blocks, and with
 * them the order of sums, follow from the one, code from the other. Older checkpoints do not note them.
 *
 * Pure: no device is used. */
#ifndef CVY_RUN_RESUME_H
#define CVY_RUN_RESUME_H

#include "src/run/checkpoint.h"
#include "src/team/inside.h"

/* Checks that the checkpoint's run can resume with this team. *same: with its own devices and shares. CVY_E_MISMATCH,
 * with advice: another batch size, or other shares with their own statistics. */
cvy_status cvy_resume_check(const cvy_team *team, const cvy_checkpoint_data *c, bool *same);
/* Logs the old and the new team and shares, and the devices that choose new algorithms. */
void cvy_resume_tell(const cvy_team *team, const cvy_checkpoint_data *c);
/* Settings that may differ (cvy_settings_compare). */
const char *const *cvy_resume_may_differ(const cvy_team *team);

#endif
