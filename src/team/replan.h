/* SPDX-License-Identifier: MIT
 * Other shares, and devices planned anew for them; while a fleet trains, new_shares.h changes them. `pace` (NULL:
 * shares follow no speeds) notes devices whose memory is short. [caller] */
#ifndef CVY_TEAM_REPLAN_H
#define CVY_TEAM_REPLAN_H

#include "src/share/pace.h"
#include "src/team/inside.h"

/* Before there are steps: divides the batch by shares[] and plans the devices for them; layers may take other
 * algorithms. */
cvy_status cvy_replan_first(cvy_team *team, const cvy_pace *pace, const int *shares);
/* Makes shares[] (of a full batch; 0 is allowed) those of the next step. Waits for steps under way; devices whose share
 * may become larger or smaller than planned are planned anew. If memory is short on a device, the old shares stay, the
 * device's cap is lowered, and *done is false. *done is also false if a device with a share is lost. A device without
 * memory for the old shares is lost. */
cvy_status cvy_replan(cvy_team *team, cvy_pace *pace, const int *shares, bool *done);
#endif
