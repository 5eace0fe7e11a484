/* SPDX-License-Identifier: MIT
 * First values of a network's parameters (convoy/team.h: cvy_team_init), counter-based: element i (in files' dense
 * order) of parameter number t is drawn with (seed, CVY_RNG_INIT, stream t, index i). */
#ifndef CVY_NN_INIT_H
#define CVY_NN_INIT_H

#include <stdint.h>

#include "convoy/net.h"
#include "src/nn/layout.h"

/* w: layout->n_floats, running: layout->n_running_floats; both are overwritten whole. */
cvy_status cvy_init_weights(const cvy_layout *layout, cvy_init_kind kind, uint64_t seed, float *w, float *running);

#endif
