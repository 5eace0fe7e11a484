/* SPDX-License-Identifier: MIT
 * A link of TCP connections, one between any two nodes. doc/fleet.md says what it sends and what its key protects. */
#ifndef CVY_LINK_TCP_H
#define CVY_LINK_TCP_H

#include "convoy/stop.h"
#include "src/link/link.h"

typedef struct cvy_link_tcp_params {
  const char *nodes; /* of all, as tcp_nodes.h reads them: "pc1,pc2:7071,[fd00::2]" */
  int rank, port;    /* of this node; of nodes without one of their own */
  const void *key;   /* key_bytes bytes (tcp_key.h reads a file); NULL: any program that knows the protocol can join */
  size_t key_bytes;
  double wait_seconds;   /* for the other nodes; 0: 600 */
  double silent_seconds; /* a node of which nothing has come for so long is lost; 0: 10 */
  double hello_seconds;  /* a peer that has not proved itself after so long is refused; 0: 5 */
  uint64_t most_bytes;   /* of a message of UP and DOWN, the same on all nodes; 0: 1 TiB */
  const cvy_stop *stop;  /* ends the wait; NULL: none */
} cvy_link_tcp_params;

/* Waits until all nodes are there; logs which ones it waits for, and whom it refuses. CVY_E_ARGUMENT: nodes or rank are
 * wrong. CVY_E_UNSUPPORTED: a key, and this build has no libsodium. CVY_E_IO: the port cannot be had, or the nodes did
 * not come in time. CVY_E_INTERRUPTED: `stop`. CVY_E_MEMORY. */
cvy_status cvy_link_tcp_open(const cvy_link_tcp_params *params, cvy_link **out);

#endif
