/* SPDX-License-Identifier: MIT
 * A hostile node in the simulation of a fleet's protocol: control messages in its name, made up or changed on their
 * way. The node itself is a right one, and learns from the others that they go on without it. What is forged is what a
 * receiver can know to be wrong, or may not believe alone (src/fleet/standing.h, membership.h); a plausible lie about
 * the work that is done is nothing that a fleet withstands. */
#ifndef CVY_TESTS_FLEET_SIM_SIM_FORGE_H
#define CVY_TESTS_FLEET_SIM_SIM_FORGE_H

#include <stdbool.h>
#include <stddef.h>

/* For the schedule that begins, of n nodes with at most so many devices each. */
void sim_forge_begin(int n, int devices);
/* From node `from` to all others, or one of them: a message that no node sends. */
void sim_forge_send(int from, bool all);
/* The next messages of node `from` are changed on their way, each with the chance of one half. views: they may also
 * leave out a third node, which the others then go on without. */
void sim_forge_change(int from, bool views);
/* [sim_wires.on_control] */
void sim_forge_control(int from, int to, void *content, size_t *bytes, bool *forged);
/* Messages that were made or changed in this schedule. */
int sim_forge_count(void);

#endif
