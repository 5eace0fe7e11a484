/* SPDX-License-Identifier: MIT */
#include "tests/fleet/tcp_fleet.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

int tcp_free_port(void) {
  static unsigned next;
  /* not a multiple of what is added below: processes started in a row would try the same ports */
  if (!next) next = (unsigned)getpid() * 2246822519u;
  for (;;) {
    const int port = 12000 + (int)(((next += 2654435769u) >> 8) % 20000);
    const struct sockaddr_in at = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    CVY_ASSERT(fd >= 0);
    const bool is_free = bind(fd, (const struct sockaddr *)&at, sizeof at) == 0;
    close(fd);
    if (is_free) return port;
  }
}

void tcp_fleet_name(tcp_fleet *f, int n) {
  size_t size = 0;
  *f = (tcp_fleet){.n = n};
  for (int i = 0; i < n; i++) {
    f->ports[i] = tcp_free_port();
    size += (size_t)snprintf(f->nodes + size, sizeof f->nodes - size, "%s127.0.0.1:%d", i ? "," : "", f->ports[i]);
    f->items[i].params = (cvy_link_tcp_params){.nodes = f->nodes, .rank = i, .wait_seconds = 20};
  }
}

void *tcp_node_open(void *arg) {
  tcp_node *const node = arg;
  node->status = cvy_link_tcp_open(&node->params, &node->link);
  return NULL;
}

void tcp_fleet_run(tcp_fleet *f, void *(*fn)(void *node)) {
  for (int i = 0; i < f->n; i++) CVY_ASSERT(cvy_thread_start(&f->items[i].thread, "node", fn, &f->items[i]) == CVY_OK);
  for (int i = 0; i < f->n; i++) cvy_thread_join(f->items[i].thread);
}

bool tcp_fleet_open(tcp_fleet *f) {
  bool all = true;
  tcp_fleet_run(f, tcp_node_open);
  for (int i = 0; i < f->n; i++) all = all && f->items[i].status == CVY_OK;
  return all;
}

void tcp_fleet_close(tcp_fleet *f) {
  for (int i = 0; i < f->n; i++) cvy_link_close(&f->items[i].link);
}
