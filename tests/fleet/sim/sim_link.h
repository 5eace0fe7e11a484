/* SPDX-License-Identifier: MIT
 * A link between simulated nodes (src/link/link.h): messages take their time, in order in each stream. A node that dies
 * takes with it what was under way from it, any suffix of each stream; a cut makes nodes silent to each other. Others
 * learn of both later, and of a node that leaves when all has arrived that it has sent. */
#ifndef CVY_TESTS_FLEET_SIM_SIM_LINK_H
#define CVY_TESTS_FLEET_SIM_SIM_LINK_H

#include "tests/fleet/sim/sim_sync.h"
#include "src/link/link.h"

/* How the others learn that a node has died. */
typedef enum sim_death { SIM_DEATH_ENDED, SIM_DEATH_SILENT, SIM_DEATH_MIXED } sim_death;

typedef struct sim_wires {
  bool meets;    /* a send of data waits until it is received */
  double late_s; /* so long may a message take; most come at once */
  /* Called when node `me` learns that `other` is silent. */
  void (*on_silence)(int me, int other);
  /* Called when node `me` refuses `other`, which makes both silent to each other. */
  void (*on_refusal)(int me, int other);
  /* A control message is sent: may change it, and then says so; it has room for SIM_CONTROL_BYTES. NULL: none does. */
  void (*on_control)(int from, int to, void *content, size_t *bytes, bool *forged);
} sim_wires;

enum { SIM_CONTROL_BYTES = 256 };

/* Of n nodes, for the schedule that begins. */
void sim_link_begin(int n, const sim_wires *wires);
/* [node] Its link. */
cvy_link *sim_link_open(void);
/* From any fiber, which gives way next if it is one of the node's. */
void sim_link_kill(int n, sim_death death);
/* Nodes a and b are silent to each other from now on. */
void sim_link_cut(int a, int b);
/* Node n dies when it has sent so many control messages. */
void sim_link_dies_agreeing(int n, int messages, sim_death death);
bool sim_link_is_dead(int n);
/* A control message in the name of node `from`. False: it cannot arrive. */
bool sim_link_inject(int from, int to, const void *data, size_t bytes);

#endif
