/* SPDX-License-Identifier: MIT
 * The TCP link: what any link must do, and nodes that end, are silent, or are none. */
#include "tests/check.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "src/base/clock.h"
#include "src/base/sync.h"
#include "src/link/tcp.h"
#include "tests/link_cases.h"

/* ---- fleets in this process ---- */

typedef struct node {
  cvy_link_tcp_params params;
  cvy_link *link;
  cvy_status status;
  cvy_thread thread;
  uint64_t seed;
  int rounds;
} node;

typedef struct fleet {
  int n;
  char nodes[CVY_NODES_MOST * 24];
  node items[CVY_NODES_MOST];
} fleet;

/* A port that is free now, below those that the system gives to sockets that dial. */
static int free_port(void) {
  static unsigned next;
  if (!next) next = (unsigned)getpid() * 2654435761u;
  for (;;) {
    const int port = 12000 + (int)((next += 40503) >> 8) % 20000;
    const struct sockaddr_in at = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    const bool is_free = bind(fd, (const struct sockaddr *)&at, sizeof at) == 0;
    close(fd);
    if (is_free) return port;
  }
}

static void name_nodes(fleet *f, int n) {
  size_t size = 0;
  *f = (fleet){.n = n};
  for (int i = 0; i < n; i++) {
    size += (size_t)snprintf(f->nodes + size, sizeof f->nodes - size, "%s127.0.0.1:%d", i ? "," : "", free_port());
    f->items[i].params = (cvy_link_tcp_params){.nodes = f->nodes, .rank = i, .wait_seconds = 20};
  }
}

static void *open_node(void *arg) {
  node *const at = arg;
  at->status = cvy_link_tcp_open(&at->params, &at->link);
  return NULL;
}

static void *run_cases(void *arg) {
  node *const at = arg;
  link_cases(at->link, at->seed, at->rounds);
  cvy_link_close(&at->link);
  return NULL;
}

static void on_all(fleet *f, void *(*fn)(void *)) {
  for (int i = 0; i < f->n; i++) check_ok(cvy_thread_start(&f->items[i].thread, "node", fn, &f->items[i]));
  for (int i = 0; i < f->n; i++) cvy_thread_join(f->items[i].thread);
}

static void open_fleet(fleet *f) {
  on_all(f, open_node);
  for (int i = 0; i < f->n; i++) check_ok(f->items[i].status);
}

/* ---- what any link must do ---- */

CHECK_TEST(cases) {
  static const int sizes[] = {1, 2, 3, 5}, rounds[] = {1, 400, 300, 100};
  for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
    fleet *const f = check_own(d, cvy_calloc(1, sizeof *f), cvy_free);
    name_nodes(f, sizes[k]);
    open_fleet(f);
    for (int i = 0; i < f->n; i++) f->items[i].seed = check_seed() + k, f->items[i].rounds = rounds[k];
    const uint64_t begun_ns = cvy_clock_ns();
    on_all(f, run_cases);
    printf("%d nodes, %d rounds: %.2f s\n", sizes[k], rounds[k], cvy_clock_seconds_since(begun_ns));
  }
}

int main(int argc, char **argv) { return check_run(argc, argv, CHECK_HOST); }
