/* SPDX-License-Identifier: MIT
 * Compares the nodes of a fleet before the first step: program, network, data, settings, and initial weights. */
#ifndef CVY_RUN_FLEET_SETTINGS_CHECK_H
#define CVY_RUN_FLEET_SETTINGS_CHECK_H

#include "convoy/train.h"

/* Collective; without a fleet it does nothing. position: where the run begins. CVY_E_MISMATCH: every difference is
 * logged with its node · CVY_E_IO: a node was lost · CVY_E_MEMORY. */
cvy_status cvy_fleet_settings_check(cvy_team *team, const cvy_train_params *params, const cvy_run_position *position);

/* *yes on all nodes if it is on one of them. Collective; without a fleet it does nothing. CVY_E_IO · CVY_E_MEMORY. */
cvy_status cvy_fleet_settings_any(cvy_fleet *fleet, bool *yes);

/* The same for any JSON objects of all nodes. */
struct json_t;
cvy_status cvy_fleet_settings_compare(cvy_fleet *fleet, const struct json_t *own);

#endif
