/* SPDX-License-Identifier: MIT
 * A fleet: several machines train one network. On each of them one process, a node, opens its own devices and makes its
 * own team (team.h) with the same settings and data; cvy_team_params.fleet makes them one. The order of all devices is
 * node by node; sums are made in that order, so that a fleet has the bits of one team with all the devices. */
#ifndef CONVOY_FLEET_H
#define CONVOY_FLEET_H

#include <stdbool.h>

#include "convoy/status.h"
#include "convoy/stop.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct cvy_fleet cvy_fleet;

/* Nodes that find each other by TCP. */
typedef struct cvy_fleet_params {
  /* The addresses of all nodes in their order, with commas: host names or numbers, each may have a port of its own
   * ("pc1,pc2:7071,[fd00::2]"). */
  const char *nodes;
  int node;              /* this one's rank */
  int port;              /* of nodes without one of their own */
  const char *key_file;  /* only programs that have the same bytes can join; NULL: any that knows the protocol */
  double wait_seconds;   /* for the others, and then for each of their words before the first step; 0: 600 */
  double silent_seconds; /* a node that does not answer for so long is lost; 0: 10 */
  const cvy_stop *stop;  /* ends the wait; NULL: none */
} cvy_fleet_params;
/* Waits until all nodes are there. CVY_E_ARGUMENT: nodes, rank or key file · CVY_E_UNSUPPORTED: a key, and this build
 * has no libsodium · CVY_E_IO: no port, or not all nodes came · CVY_E_INTERRUPTED: stop · CVY_E_MEMORY. */
cvy_status cvy_fleet_meet(const cvy_fleet_params *params, cvy_fleet **out);
/* The processes that an MPI launcher (mpirun, srun) started together with this one. *out NULL with CVY_OK: it was
 * started alone. Once in the life of a process. wait_seconds: for the others; 0: 600. CVY_E_UNSUPPORTED: the plug-in
 * for that MPI is not there (the message says which packages to install) · CVY_E_MISMATCH: another MPI than the
 * launcher's · CVY_E_IO: not all came; MPI still waits for them in a thread of its own, so this process is to end ·
 * CVY_E_ARGUMENT: the environment is wrong · CVY_E_MEMORY. */
cvy_status cvy_fleet_meet_started(double wait_seconds, cvy_fleet **out);

/* How many processes an MPI launcher has started, this one included; 1: alone, or the environment is wrong. */
int cvy_fleet_started(void);

/* True for a fleet whose nodes have found each other by TCP, if a call has failed (CVY_E_IO) before the first step of a
 * team since another node was lost, or was refused: it has sent what no node sends, or is about to do something else
 * than node 0. The caller may close the fleet and wait for the right nodes. fleet NULL: false. */
bool cvy_fleet_may_meet_again(const cvy_fleet *fleet);

/* Tells the other nodes that this one leaves, and frees the fleet. Its team must be destroyed before. */
void cvy_fleet_close(cvy_fleet **fleet);

/* Nodes have ranks 0 to size - 1 and names, which stay theirs when others are lost. The name is borrowed. */
int cvy_fleet_rank(const cvy_fleet *fleet);
int cvy_fleet_size(const cvy_fleet *fleet);
const char *cvy_fleet_name(const cvy_fleet *fleet, int rank);
/* The devices of a node, once teams were made: a JSON array with an object for each, {"label":…, "units": compute
 * units, "driver": version}; borrowed until the next team is made. */
const char *cvy_fleet_devices_json(const cvy_fleet *fleet, int rank);
/* How many devices all nodes have; 0 before teams were made. */
int cvy_fleet_devices(const cvy_fleet *fleet);
/* The place of this node's first device in the order of all; 0 before teams were made. */
int cvy_fleet_first_device(const cvy_fleet *fleet);
/* Node `rank` is still there. */
bool cvy_fleet_has(const cvy_fleet *fleet, int rank);
/* All nodes call it: their texts, by rank, to be freed with cvy_fleet_free_texts. CVY_E_IO: a node was lost (logged) ·
 * CVY_E_MISMATCH: too long · CVY_E_MEMORY. */
cvy_status cvy_fleet_gather_texts(cvy_fleet *fleet, const char *own, char ***out);
void cvy_fleet_free_texts(const cvy_fleet *fleet, char ***texts);
/* This node is the first one that is there: it alone prints, logs and saves. The answer may change from false to true
 * when nodes are lost. */
bool cvy_fleet_is_head(const cvy_fleet *fleet);
/* This process prints and writes files: it is alone (`fleet` is NULL), or the head. */
bool cvy_fleet_writes(const cvy_fleet *fleet);

#ifdef __cplusplus
}
#endif
#endif
