/* SPDX-License-Identifier: MIT */
#ifndef CVY_TEAM_TEAM_STEP_H
#define CVY_TEAM_TEAM_STEP_H

#include "src/team/inside.h"

/* Checks a step of n samples and learning rate lr, and fills in the slot of the next step except its samples and
 * images. May wait, and may change shares. image_floats: of an image of the caller's, 0: the step has samples of the
 * data set. */
cvy_status cvy_team_next_step(cvy_team *team, int n, float lr, size_t image_floats, cvy_step **out);

#endif
