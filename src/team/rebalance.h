/* SPDX-License-Identifier: MIT
 * Shares that follow the devices' speeds: the first ones by measurement (calibrate.h), later ones between steps when
 * other shares would make a step shorter (share/pace.h). [caller] */
#ifndef CVY_TEAM_REBALANCE_H
#define CVY_TEAM_REBALANCE_H

#include "src/share/pace.h"
#include "src/team/inside.h"

typedef struct cvy_rebalance cvy_rebalance;

/* Speeds decide about the shares, or may. */
bool cvy_rebalance_wanted(const cvy_team_params *params);
/* Before there is a team: takes over the shares of the run that goes on, into `split` and values[devices], if they
 * belong to these devices; any_split_will_do: other devices are measured. params->split UNLIKE becomes the run's own
 * split. */
cvy_status cvy_rebalance_resume(cvy_team_params *params, const cvy_devices *devices, bool any_split_will_do,
                                cvy_split_params *split, double *values);
/* With opened devices, before there are steps: measures if the split asks for it, chooses the first shares and plans
 * the devices for them. *out NULL: shares follow no speeds, and params.split says so. */
cvy_status cvy_rebalance_start(cvy_team *team, cvy_rebalance **out);
void cvy_rebalance_destroy(cvy_rebalance **rebalance);
/* Before the step that will use this slot begins: learns from the finished step that used it before, and changes the
 * shares of the next step if that pays. */
cvy_status cvy_rebalance_step(cvy_rebalance *rebalance, cvy_step *step);
/* Borrowed. */
cvy_pace *cvy_rebalance_pace(cvy_rebalance *rebalance);

#endif
