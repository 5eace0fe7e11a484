/* SPDX-License-Identifier: MIT
 * Batch normalisation of 1x1 images needs two samples in every group of every pass. A run with a group of one sample is
 * refused before its first step, not at the end of an epoch. */
#ifndef CVY_RUN_STATISTICS_CHECK_H
#define CVY_RUN_STATISTICS_CHECK_H

#include "convoy/team.h"

/* n: samples of a batch that the run will reach; 0: of none. CVY_E_ARGUMENT: a group of that batch has one sample, by
 * the team's present shares. CVY_E_MEMORY. */
cvy_status cvy_check_statistics(const cvy_team *team, int n);

#endif
