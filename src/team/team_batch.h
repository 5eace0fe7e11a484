/* SPDX-License-Identifier: MIT */
#ifndef CVY_TEAM_TEAM_BATCH_H
#define CVY_TEAM_TEAM_BATCH_H

#include "src/team/inside.h"

/* The rules of a batch for this team (convoy/team.h), except those of the number of images. */
cvy_status cvy_team_check_batch(const cvy_team *team, const cvy_batch *batch);

#endif
