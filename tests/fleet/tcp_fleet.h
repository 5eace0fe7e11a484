/* SPDX-License-Identifier: MIT
 * Fleets on this machine's loopback, for tests of the TCP link. */
#ifndef CVY_TESTS_FLEET_TCP_FLEET_H
#define CVY_TESTS_FLEET_TCP_FLEET_H

#include "src/base/sync.h"
#include "src/link/tcp.h"

typedef struct tcp_node {
  cvy_link_tcp_params params;
  cvy_link *link;
  cvy_status status;
  cvy_thread thread;
  void *more; /* of the test */
} tcp_node;

typedef struct tcp_fleet {
  int n;
  int ports[8];
  char nodes[8 * 24]; /* as --nodes has it */
  tcp_node items[8];
} tcp_fleet;

/* A port that is free now, below those that the system gives to sockets that dial. */
int tcp_free_port(void);
/* Fills in params, with ports that are free now. */
void tcp_fleet_name(tcp_fleet *f, int n);
/* Runs it for all nodes, each in a thread of its own, and waits for all of them. */
void tcp_fleet_run(tcp_fleet *f, void *(*fn)(void *node));
/* Opens the links of all nodes; returns false if one cannot be opened. */
bool tcp_fleet_open(tcp_fleet *f);
void tcp_fleet_close(tcp_fleet *f); /* links that are open, one after the other */
void *tcp_node_open(void *node);    /* of one node */

#endif
