/* SPDX-License-Identifier: MIT
 * One connection on its way through the handshake (tcp_hello.h). One thread. */
#ifndef CVY_LINK_TCP_SHAKE_H
#define CVY_LINK_TCP_SHAKE_H

#include "src/link/tcp_hello.h"
#include "src/link/tcp_meet.h"
#include "src/link/tcp_socket.h"

typedef struct cvy_shake {
  int fd; /* -1: none */
  bool dials;
  int rank; /* of the other node; -1: it has not said which it is */
  enum { CVY_SHAKE_CONNECT, CVY_SHAKE_HELLO, CVY_SHAKE_PROOF } stage;
  uint64_t deadline_ns;
  size_t n_in; /* of what is read in this stage */
  uint8_t in[CVY_HELLO_BYTES];
  uint8_t hellos[2][CVY_HELLO_BYTES]; /* of the dialer and of the listener */
  cvy_hello own;
  char address[CVY_ADDRESS_TEXT], why[160];
} cvy_shake;

typedef enum cvy_shake_result {
  CVY_SHAKE_WAITS,
  CVY_SHAKE_DONE,
  CVY_SHAKE_GONE, /* no connection, or no more */
  CVY_SHAKE_LATE,
  CVY_SHAKE_WRONG /* with the reason */
} cvy_shake_result;

/* rank: of the node that was dialled, or -1: the connection has come. The socket is the handshake's from now on. */
void cvy_shake_begin(cvy_shake *s, int fd, int rank, const char *address, uint64_t deadline_ns);
/* Closes the socket, if there is one. */
void cvy_shake_end(cvy_shake *s);
short cvy_shake_events(const cvy_shake *s);
/* The socket is ready for these events. *why lives as long as the handshake. */
cvy_shake_result cvy_shake_go_on(cvy_shake *s, const cvy_tcp_meet_params *params, const char **why);

#endif
