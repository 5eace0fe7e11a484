/* SPDX-License-Identifier: MIT
 * A fleet: several machines train one network. On each machine one process, a node, opens its own devices and creates
 * its own team (team.h) with the same settings and data. cvy_team_params.fleet joins the teams. Devices are ordered
 * node by node, and sums are made in that order, so that a fleet computes the same bits as one team with all the
 * devices. */
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
  /* The addresses of all nodes in order of rank, separated by commas: host names or IP addresses, each with an optional
   * port ("pc1,pc2:7071,[fd00::2]"). */
  const char *nodes;
  int node;              /* rank of this node */
  int port;              /* of nodes whose address has none */
  const char *key_file;  /* only programs that have the same key can join; NULL: any program that speaks the protocol */
  double wait_seconds;   /* limit for meeting, and for each message before the first step; 0: 600 */
  double silent_seconds; /* a node that does not answer within this time is lost; 0: 10 */
  const cvy_stop *stop;  /* ends the wait; NULL: none */
} cvy_fleet_params;
/* Waits until all nodes are connected. CVY_E_ARGUMENT: wrong nodes, rank or key file · CVY_E_UNSUPPORTED: a key, but
 * this build has no libsodium · CVY_E_IO: the port cannot be used, or not all nodes connected · CVY_E_INTERRUPTED: stop
 * · CVY_E_MEMORY. */
cvy_status cvy_fleet_meet(const cvy_fleet_params *params, cvy_fleet **out);
/* The processes that an MPI launcher (mpirun, srun) started together with this one. *out NULL with CVY_OK: it was
 * started alone. Call it at most once in a process. wait_seconds: limit for meeting; 0: 600. CVY_E_UNSUPPORTED: the
 * plug-in for that MPI is not installed (the message names the packages) · CVY_E_MISMATCH: the launcher belongs to
 * another MPI · CVY_E_IO: not all processes connected; MPI still waits for them in a thread of its own, so this process
 * must end · CVY_E_ARGUMENT: wrong environment · CVY_E_MEMORY. */
cvy_status cvy_fleet_meet_started(double wait_seconds, cvy_fleet **out);
/* True if cvy_fleet_meet_started has failed and left a thread inside MPI. The process must then end by _exit: exit()
 * would take away what that thread still uses. From any thread. */
bool cvy_fleet_abandoned(void);

/* Number of processes that an MPI launcher has started, this one included; 1: alone, or the environment is wrong. */
int cvy_fleet_started(void);

/* True if a call on a fleet over TCP has failed (CVY_E_IO) before the first step of a team because another node was
 * lost or refused. A node is refused if it violates the protocol or runs another command than node 0. The caller may
 * close the fleet and meet again. fleet NULL: false. */
bool cvy_fleet_may_meet_again(const cvy_fleet *fleet);

/* Notifies the other nodes that this one leaves, and frees the fleet. Destroy its team first. */
void cvy_fleet_close(cvy_fleet **fleet);

/* Nodes have ranks 0 to size - 1 and names, which do not change when other nodes are lost. The name is borrowed. */
int cvy_fleet_rank(const cvy_fleet *fleet);
int cvy_fleet_size(const cvy_fleet *fleet);
const char *cvy_fleet_name(const cvy_fleet *fleet, int rank);
/* The devices of a node, once teams are created: a JSON array with an object for each, {"label":…, "units": compute
 * units, "driver": version}; borrowed until the next team is created. */
const char *cvy_fleet_devices_json(const cvy_fleet *fleet, int rank);
/* Number of devices of all nodes; 0 before teams are created. */
int cvy_fleet_devices(const cvy_fleet *fleet);
/* Index of this node's first device among all devices; 0 before teams are created. */
int cvy_fleet_first_device(const cvy_fleet *fleet);
/* Node `rank` is not lost. */
bool cvy_fleet_has(const cvy_fleet *fleet, int rank);
/* Collective: all nodes call it. Returns the nodes' texts by rank; free them with cvy_fleet_free_texts. CVY_E_IO: a
 * node was lost (logged) · CVY_E_MISMATCH: a text is too long · CVY_E_MEMORY. */
cvy_status cvy_fleet_gather_texts(cvy_fleet *fleet, const char *own, char ***out);
void cvy_fleet_free_texts(const cvy_fleet *fleet, char ***texts);
/* This node is the head: the lowest rank that is not lost. Only the head prints, logs and saves. The result may change
 * from false to true when nodes are lost. */
bool cvy_fleet_is_head(const cvy_fleet *fleet);
/* This process prints and writes files: it is alone (`fleet` is NULL), or the head. */
bool cvy_fleet_writes(const cvy_fleet *fleet);

#ifdef __cplusplus
}
#endif
#endif
