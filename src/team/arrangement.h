/* SPDX-License-Identifier: MIT
 * The order of a team's parameters and the size of its buckets, by its settings. */
#ifndef CVY_TEAM_ARRANGEMENT_H
#define CVY_TEAM_ARRANGEMENT_H

#include "src/team/inside.h"

/* [caller] team->layout, with frozen layers and buckets of params.bucket_mib, or of 1 MiB where that is 0. Fails as
 * cvy_layout_arrange. */
cvy_status cvy_team_arrange(cvy_team *team);
/* [caller] With all devices open and nothing planned: where params.bucket_mib is 0 and gradients cross, measures on the
 * devices at once what an exchange costs (exchange_cost.h), and arranges again with buckets of the size that follows.
 * In a fleet every node calls it, and all take the same size. A lone graphics card has buckets of
 * CVY_LAYOUT_LONE_FLOATS. With CVY_NO_TUNE=1 nothing is measured, and buckets stay as they are. */
cvy_status cvy_team_choose_buckets(cvy_team *team);

#endif
