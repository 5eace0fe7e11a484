/* SPDX-License-Identifier: MIT
 * How the nodes of a fleet meet: every node listens on the address that its own name has, dials all nodes of lower rank
 * again and again until they are there, and goes through the handshake (tcp_hello.h) with each other one. A peer that
 * sends nonsense, too little or nothing is refused with its address in a warning; it holds up nothing. When all are
 * there, each notifies all others (START), so that no node begins while another one still waits for a third. */
#ifndef CVY_LINK_TCP_MEET_H
#define CVY_LINK_TCP_MEET_H

#include "convoy/stop.h"
#include "src/link/tcp_nodes.h"

typedef struct cvy_tcp_meet_params {
  const cvy_tcp_nodes *nodes;
  int rank;
  const uint8_t *key; /* n_key bytes; 0: none */
  size_t n_key;
  double wait_seconds, hello_seconds; /* for all; for each handshake */
  const cvy_stop *stop;               /* NULL: none */
} cvy_tcp_meet_params;

/* sockets[rank] of each other node; the caller closes them. Errors: cvy_link_tcp_open. */
cvy_status cvy_tcp_meet(const cvy_tcp_meet_params *params, int sockets[CVY_NODES_MOST]);

#endif
