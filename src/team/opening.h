/* SPDX-License-Identifier: MIT
 * Settings with which each device of a team is opened: the algorithms of its layers and their source (the caller, a
 * checkpoint, tuning, or the shipped defaults). */
#ifndef CVY_TEAM_OPENING_H
#define CVY_TEAM_OPENING_H

#include "convoy/team.h"
#include "src/cl/devices/devices.h"
#include "src/replica/replica.h"

typedef struct cvy_opening cvy_opening;

/* Everything is borrowed for the opening's life, but params->conv_algo and params->resume, which are read now.
 * CVY_E_ARGUMENT: conv_algo, in words. CVY_E_MEMORY. */
cvy_status cvy_opening_create(const cvy_devices *devices, const cvy_net *net, const cvy_team_params *params,
                              cvy_opening **out);
void cvy_opening_destroy(cvy_opening **opening);
/* The devices of the run: of all nodes of a fleet, as they are described; without one, the team's own. */
const cvy_devices *cvy_opening_everyone(const cvy_opening *opening);
/* The team's timeline records the times of commands. */
bool cvy_opening_keeps_times(const cvy_team_params *params);
/* How device i is opened. Borrowed pointers live as long as the opening. */
cvy_replica_params cvy_opening_params(const cvy_opening *opening, int i);
/* --tune quick: measures the missing entries, one device after the other: devices that share cores or memory must not
 * be measured at once, and a device reads the entries that another of its kind has just found. share_max: one per
 * device. */
void cvy_opening_tune(cvy_opening *opening, cvy_roster *roster, const int *share_max);
/* How the last task of opening ended on each device, tuning among them; one per device. */
cvy_status *cvy_opening_faults(cvy_opening *opening);
/* Devices of this node, or of another one, have failed and may be left out: the team must be opened again. */
void cvy_opening_set_again(cvy_opening *opening);
bool cvy_opening_is_again(const cvy_opening *opening);
/* With all devices open: notes the algorithms that the layers of everyone took, and logs once per process that tuning
 * could find faster ones. In a fleet every node calls it. */
cvy_status cvy_opening_note(cvy_opening *opening, const cvy_replica *replicas);
/* The algorithms that the layers took, as JSON (nn/choices.h). Borrowed. */
const char *cvy_opening_choices(const cvy_opening *opening);

#endif
