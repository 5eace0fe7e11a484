/* SPDX-License-Identifier: MIT
 * The list of a fleet's nodes as users write it: "pc1,pc2:7071,[fd00::2]:7072,10.0.0.4". A node is a host's name or
 * address, and a port where it has one of its own; an IPv6 address stands in brackets. Pure. */
#ifndef CVY_LINK_TCP_NODES_H
#define CVY_LINK_TCP_NODES_H

#include "src/link/link.h"

enum { CVY_NODE_HOST = 256 };

typedef struct cvy_tcp_node {
  char name[CVY_NODE_HOST + 8]; /* as it was written, for messages */
  char host[CVY_NODE_HOST];
  int port;
} cvy_tcp_node;

typedef struct cvy_tcp_nodes {
  int n;
  cvy_tcp_node items[CVY_NODES_MOST];
} cvy_tcp_nodes;

/* port: of nodes without one of their own; 0: each must have one. CVY_E_ARGUMENT with the reason: also for two nodes of
 * one host and port, and for more than CVY_NODES_MOST. */
cvy_status cvy_tcp_nodes_read(const char *text, int port, cvy_tcp_nodes *out);

#endif
