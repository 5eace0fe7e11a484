/* SPDX-License-Identifier: MIT */
#include "src/link/tcp_socket.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "src/base/failure.h"

cvy_status cvy_tcp_resolve(const cvy_tcp_node *node, struct addrinfo **out) {
  cvy_status status = CVY_OK;
  const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
  char port[16];
  snprintf(port, sizeof port, "%d", node->port);
  const int error = getaddrinfo(node->host, port, &hints, out);
  if (error == 0) return CVY_OK;
  *out = NULL;
  CVY_REQUIRE(error != EAI_NONAME && error != EAI_FAMILY, CVY_E_ARGUMENT,
              "--nodes %s: this machine knows no host of that name", node->name);
  CVY_FAIL(CVY_E_IO, "--nodes %s: the address cannot be found: %s", node->name,
           error == EAI_SYSTEM ? strerror(errno) : gai_strerror(error));
fail:
  return status;
}

bool cvy_tcp_is_loopback(const struct addrinfo *address) {
  if (address->ai_family == AF_INET) {
    struct sockaddr_in in;
    memcpy(&in, address->ai_addr, sizeof in);
    return ntohl(in.sin_addr.s_addr) >> 24 == 127;
  }
  struct sockaddr_in6 in6;
  memcpy(&in6, address->ai_addr, sizeof in6);
  return IN6_IS_ADDR_LOOPBACK(&in6.sin6_addr);
}

void cvy_tcp_address_text(const struct sockaddr *address, socklen_t size, char out[CVY_ADDRESS_TEXT]) {
  char host[64], port[16];
  if (getnameinfo(address, size, host, sizeof host, port, sizeof port, NI_NUMERICHOST | NI_NUMERICSERV) != 0)
    snprintf(out, CVY_ADDRESS_TEXT, "an unknown address");
  else snprintf(out, CVY_ADDRESS_TEXT, strchr(host, ':') ? "[%s]:%s" : "%s:%s", host, port);
}

static int make(int family) { return socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP); }

/* Closes it and keeps errno. */
static int give_up(int fd) {
  const int error = errno;
  close(fd);
  errno = error;
  return -1;
}

int cvy_tcp_bind(const struct addrinfo *address) {
  const int fd = make(address->ai_family), on = 1;
  if (fd < 0) return -1;
  (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on); /* a run that has just ended does not bar the port */
  if (address->ai_family == AF_INET6) (void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
  return bind(fd, address->ai_addr, address->ai_addrlen) == 0 ? fd : give_up(fd);
}

int cvy_tcp_dial(const struct addrinfo *address) {
  const int fd = make(address->ai_family);
  if (fd < 0) return -1;
  return connect(fd, address->ai_addr, address->ai_addrlen) == 0 || errno == EINPROGRESS ? fd : give_up(fd);
}

int cvy_tcp_connected(int fd) {
  struct sockaddr_storage here = {0}, there = {0};
  socklen_t n_here = sizeof here, n_there = sizeof there, n = sizeof(int);
  int error = 0;
  if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &n) != 0) return errno;
  if (error != 0) return error;
  if (getsockname(fd, (struct sockaddr *)&here, &n_here) != 0 ||
      getpeername(fd, (struct sockaddr *)&there, &n_there) != 0)
    return errno;
  return n_here == n_there && memcmp(&here, &there, n_here) == 0 ? ECONNREFUSED : 0;
}

int cvy_tcp_accept(int listener, char from[CVY_ADDRESS_TEXT]) {
  struct sockaddr_storage address;
  socklen_t n = sizeof address;
  const int fd = accept4(listener, (struct sockaddr *)&address, &n, SOCK_NONBLOCK | SOCK_CLOEXEC);
  if (fd >= 0) cvy_tcp_address_text((struct sockaddr *)&address, n, from);
  return fd;
}

/* Bytes of a socket that the system has not sent yet, about: it would take several MiB, and on a slow link what comes
 * later (another stream's piece, credit for the other direction, a sign of life) would wait behind them for as long as
 * a third of a second. Not fewer: the I/O thread may come to fill it up again some milliseconds late, where all cores
 * compute. */
enum { UNSENT_MOST = 1 << 20 };

void cvy_tcp_tune(int fd, double give_up_seconds) {
  const int on = 1;
  const unsigned ms = (unsigned)(1e3 * give_up_seconds);
  const int unsent = UNSENT_MOST;
  (void)setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &unsent, sizeof unsent);
  (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  (void)setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &ms, sizeof ms);
}

void cvy_tcp_keep_alive(int fd) {
  const int on = 1, idle_s = 10, between_s = 5, probes = 4;
  (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
  (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &between_s, sizeof between_s);
  (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
}
