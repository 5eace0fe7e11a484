/* SPDX-License-Identifier: MIT
 * Sockets as the TCP link uses them: they never block, and do not pass to other programs. Any thread. */
#ifndef CVY_LINK_TCP_SOCKET_H
#define CVY_LINK_TCP_SOCKET_H

#include <netdb.h>
#include <sys/socket.h>

#include "src/link/tcp_nodes.h"

enum { CVY_ADDRESS_TEXT = 80 };

/* Addresses of a node's host; freeaddrinfo. CVY_E_ARGUMENT: the system knows no such host, or none of this kind.
 * CVY_E_IO: it cannot be found out now. */
cvy_status cvy_tcp_resolve(const cvy_tcp_node *node, struct addrinfo **out);
bool cvy_tcp_is_loopback(const struct addrinfo *address);
void cvy_tcp_address_text(const struct sockaddr *address, socklen_t size, char out[CVY_ADDRESS_TEXT]);

/* -1 with errno. */
int cvy_tcp_bind(const struct addrinfo *address);
/* Begins to connect; -1 with errno. When the socket can be written to, cvy_tcp_connected says how that ended. */
int cvy_tcp_dial(const struct addrinfo *address);
/* 0, or an errno: also when the system connected the socket with itself, as it may if the port is one that it gives to
 * dialling sockets. */
int cvy_tcp_connected(int fd);
/* -1 with errno; the address it comes from in `from`. */
int cvy_tcp_accept(int listener, char from[CVY_ADDRESS_TEXT]);
/* Small frames go at once; the system gives the connection up when bytes stay unacknowledged for so long. */
void cvy_tcp_tune(int fd, double give_up_seconds);
/* The system gives a silent connection up after half a minute. */
void cvy_tcp_keep_alive(int fd);

#endif
