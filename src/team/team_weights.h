/* SPDX-License-Identifier: MIT */
#ifndef CVY_TEAM_TEAM_WEIGHTS_H
#define CVY_TEAM_TEAM_WEIGHTS_H

#include "src/team/inside.h"

/* The parameter of this name, whose values the caller has or wants n_floats of. CVY_E_ARGUMENT. */
cvy_status cvy_team_find_param(const cvy_team *team, const char *name, size_t n_floats, const cvy_param **out);

#endif
