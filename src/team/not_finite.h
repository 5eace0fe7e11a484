/* SPDX-License-Identifier: MIT
 * Finds why the loss of an evaluation is not finite. */
#ifndef CVY_TEAM_NOT_FINITE_H
#define CVY_TEAM_NOT_FINITE_H

#include "convoy/team.h"

/* [caller] After an evaluation with such a loss, of these shares and sums per device: warns, naming the tensor of the
 * weights or the first layer that is the reason. */
void cvy_team_explain_loss(cvy_team *team, bool on_train, const int *shares, const double *loss_sums);

#endif
