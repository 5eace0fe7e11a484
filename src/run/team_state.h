/* SPDX-License-Identifier: MIT
 * A team's state and its checkpoints (convoy/train.h). */
#ifndef CVY_RUN_TEAM_STATE_H
#define CVY_RUN_TEAM_STATE_H

#include "convoy/train.h"

/* Writes the ledger's state as the checkpoint of `at`; the team is at rest. Otherwise as cvy_checkpoint_save.
 * residuals: cvy_team_get_residuals; NULL: none. */
cvy_status cvy_state_write(cvy_team *team, const char *dir, int keep, const char *settings, const cvy_run_position *at,
                           float **residuals);

#endif
