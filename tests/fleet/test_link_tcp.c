/* SPDX-License-Identifier: MIT
 * The TCP link: what any link must do, and nodes that end, leave or are silent. test_link_meet.c has peers that are no
 * nodes. CVY_TEST_FULL=1 runs ten times as many rounds and nodes that end. */
#include "tests/support/check.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "src/base/clock.h"
#include "src/link/tcp_inside.h"
#include "tests/fleet/link_cases.h"
#include "tests/fleet/tcp_fleet.h"

static int times(int n) {
  const char *const full = getenv("CVY_TEST_FULL");
  return full && strcmp(full, "1") == 0 ? 10 * n : n;
}

static tcp_fleet *open_fleet(check_device *d, int n, double silent_seconds) {
  tcp_fleet *const f = check_own(d, cvy_calloc(1, sizeof *f), cvy_free);
  tcp_fleet_name(f, n);
  for (int i = 0; i < n; i++) f->items[i].params.silent_seconds = silent_seconds;
  if (!tcp_fleet_open(f)) check_fail(d, "a fleet of %d nodes cannot be opened", n);
  return f;
}

/* ---- what any link must do ---- */

typedef struct cases {
  uint64_t seed;
  int rounds;
} cases;

static void *run_cases(void *arg) {
  tcp_node *const node = arg;
  const cases *const c = node->more;
  link_cases(node->link, c->seed, c->rounds);
  cvy_link_close(&node->link);
  return NULL;
}

CHECK_TEST(cases) {
  static const int sizes[] = {1, 2, 3, 5}, rounds[] = {1, 200, 100, 40};
  for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
    tcp_fleet *const f = open_fleet(d, sizes[k], 0);
    cases c = {check_seed() + k, times(rounds[k])};
    for (int i = 0; i < f->n; i++) f->items[i].more = &c;
    tcp_fleet_run(f, run_cases);
  }
}

/* Node 0 of `f` is lost to its node 1, once, whatever else it has sent, and node 1 to it. */
static void expect_refused(tcp_fleet *f) {
  cvy_link *const a = f->items[0].link, *const b = f->items[1].link;
  char byte = 0;
  int from = -1;
  assert_int_equal(cvy_link_poll(b, 10, &from), CVY_LINK_SILENT);
  assert_int_equal(from, 0);
  assert_int_equal(cvy_link_poll(b, 0, &from), CVY_LINK_NOTHING);
  assert_int_equal(cvy_link_receive(b, 0, CVY_LINK_CONTROL, &byte, 1), CVY_E_INTERRUPTED);
  assert_int_equal(cvy_link_send(b, 0, CVY_LINK_DOWN, &byte, 1), CVY_E_INTERRUPTED);
  assert_int_equal(cvy_link_poll(a, 10, &from), CVY_LINK_SILENT);
  tcp_fleet_close(f);
}

/* Of data and of control messages: two come, and the second one is no news. */
CHECK_TEST(wrong_size) {
  char bytes[200] = "abc";
  int from = -1;
  tcp_fleet *f = open_fleet(d, 2, 0);
  check_ok(cvy_link_send(f->items[0].link, 1, CVY_LINK_UP, bytes, 100));
  check_fails(cvy_link_receive(f->items[1].link, 0, CVY_LINK_UP, bytes, 99), CVY_E_INTERRUPTED,
              "sent a message of 100 bytes where this node expects 99");
  expect_refused(f);
  f = open_fleet(d, 2, 0);
  for (int i = 0; i < 2; i++) check_ok(cvy_link_send(f->items[0].link, 1, CVY_LINK_CONTROL, bytes, 8));
  assert_int_equal(cvy_link_poll(f->items[1].link, 10, &from), CVY_LINK_MESSAGE);
  check_fails(cvy_link_receive(f->items[1].link, 0, CVY_LINK_CONTROL, bytes, 9), CVY_E_INTERRUPTED,
              "sent a message of 8 bytes where this node expects 9");
  expect_refused(f);
}

CHECK_TEST(refused) {
  tcp_fleet *const f = open_fleet(d, 2, 0);
  char byte = 0;
  check_ok(cvy_link_send(f->items[0].link, 1, CVY_LINK_CONTROL, &byte, 1));
  usleep(50000); /* it is there, and is no news any more */
  cvy_link_refuse(f->items[1].link, 0, "does what no node does");
  cvy_link_refuse(f->items[1].link, 0, "does it again");
  expect_refused(f);
}

/* ---- a node that leaves in order ---- */

/* The others learn it, behind what it has sent, and go on with each other. */
CHECK_TEST(left) {
  tcp_fleet *const f = open_fleet(d, 3, 0);
  cvy_link *const a = f->items[0].link, *const b = f->items[1].link;
  uint8_t bytes[3000];
  int from = -1;
  const link_message m = {check_seed(), 2, 0, CVY_LINK_UP, 0, 0};
  link_message_fill(&m, bytes, sizeof bytes);
  check_ok(cvy_link_send(f->items[2].link, 0, CVY_LINK_UP, bytes, sizeof bytes));
  check_ok(cvy_link_send(f->items[2].link, 1, CVY_LINK_CONTROL, bytes, 10));
  cvy_link_close(&f->items[2].link);
  assert_int_equal(cvy_link_poll(a, 10, &from), CVY_LINK_LEFT);
  assert_int_equal(from, 2);
  assert_int_equal(cvy_link_poll(a, 0, &from), CVY_LINK_NOTHING); /* once */
  memset(bytes, 0, sizeof bytes);
  check_ok(cvy_link_receive(a, 2, CVY_LINK_UP, bytes, sizeof bytes)); /* sent before */
  link_message_check(&m, bytes, sizeof bytes);
  assert_int_equal(cvy_link_receive(a, 2, CVY_LINK_UP, bytes, 1), CVY_E_INTERRUPTED);
  assert_int_equal(cvy_link_send(a, 2, CVY_LINK_DOWN, bytes, 1), CVY_E_INTERRUPTED);
  assert_int_equal(cvy_link_send(a, 2, CVY_LINK_CONTROL, bytes, 1), CVY_E_INTERRUPTED);
  check_ok(cvy_link_send(a, 1, CVY_LINK_UP, bytes, 1)); /* in the same round */
  check_ok(cvy_link_receive(b, 0, CVY_LINK_UP, bytes, 1));
  assert_int_equal(cvy_link_poll(b, 10, &from), CVY_LINK_MESSAGE); /* what it said comes before */
  assert_int_equal(from, 2);
  check_ok(cvy_link_receive(b, 2, CVY_LINK_CONTROL, bytes, 10));
  assert_int_equal(cvy_link_poll(b, 10, &from), CVY_LINK_LEFT);
  assert_int_equal(cvy_link_receive(b, 2, CVY_LINK_CONTROL, bytes, 10), CVY_E_INTERRUPTED);
  assert_int_equal(cvy_link_poll(a, 0, &from), CVY_LINK_NOTHING);
  tcp_fleet_close(f);
}

/* A thread that waits for a message, or for room to send one, when the node leaves. */
typedef struct waiting {
  cvy_link *link;
  uint8_t *large;
  cvy_status status;
} waiting;

static void *receive_nothing(void *arg) {
  waiting *const w = arg;
  uint8_t byte;
  w->status = cvy_link_receive(w->link, 1, CVY_LINK_UP, &byte, 1);
  return NULL;
}

static void *send_unwanted(void *arg) {
  waiting *const w = arg;
  w->status = cvy_link_send(w->link, 1, CVY_LINK_DOWN, w->large, 64 << 20);
  return NULL;
}

CHECK_TEST(left_waiting) {
  tcp_fleet *const f = open_fleet(d, 2, 0);
  waiting receives = {.link = f->items[0].link}, sends = {.link = f->items[0].link, .large = calloc(1, 64 << 20)};
  pthread_t threads[2];
  assert_non_null(sends.large);
  assert_int_equal(pthread_create(&threads[0], NULL, receive_nothing, &receives), 0);
  assert_int_equal(pthread_create(&threads[1], NULL, send_unwanted, &sends), 0);
  usleep(50000); /* they wait */
  cvy_link_close(&f->items[1].link);
  for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
  assert_int_equal(receives.status, CVY_E_INTERRUPTED);
  assert_int_equal(sends.status, CVY_E_INTERRUPTED);
  free(sends.large);
  tcp_fleet_close(f);
}

/* A loss that poll has not named yet ends the next round, too. */
CHECK_TEST(lost_meanwhile) {
  tcp_fleet *const f = open_fleet(d, 3, 0);
  cvy_link *const a = f->items[0].link;
  char byte = 0;
  int from = -1;
  cvy_tcp *const ends = (cvy_tcp *)f->items[2].link;
  cvy_mutex_lock(&ends->lock);            /* its I/O thread closes the socket then */
  shutdown(ends->peers[0].fd, SHUT_RDWR); /* as the system does when a process has ended */
  cvy_mutex_unlock(&ends->lock);
  assert_int_equal(cvy_link_receive(a, 2, CVY_LINK_UP, &byte, 1), CVY_E_INTERRUPTED);
  cvy_link_renew(a, 1);
  assert_int_equal(cvy_link_send(a, 1, CVY_LINK_UP, &byte, 1), CVY_E_INTERRUPTED);
  assert_int_equal(cvy_link_poll(a, 0, &from), CVY_LINK_ENDED);
  cvy_link_renew(a, 2);
  check_ok(cvy_link_send(a, 1, CVY_LINK_UP, &byte, 1));
  tcp_fleet_close(f);
}

/* A message that lies there when its sender closes the link arrives, also a long one. */
static void *send_and_close(void *arg) {
  tcp_node *const node = arg;
  node->status = cvy_link_send(node->link, 0, CVY_LINK_UP, node->more, 12000000);
  cvy_link_close(&node->link);
  return NULL;
}

CHECK_TEST(close_delivers) {
  tcp_fleet *const f = open_fleet(d, 2, 0);
  const link_message m = {check_seed(), 1, 0, CVY_LINK_UP, 0, 0};
  uint8_t *const bytes = (uint8_t *)check_floats(d, 3000000);
  uint8_t *const sent = (uint8_t *)check_floats(d, 3000000);
  link_message_fill(&m, sent, 12000000);
  f->items[1].more = sent;
  check_ok(cvy_thread_start(&f->items[1].thread, "node", send_and_close, &f->items[1]));
  usleep(50000);
  check_ok(cvy_link_receive(f->items[0].link, 1, CVY_LINK_UP, bytes, 12000000));
  link_message_check(&m, bytes, 12000000);
  cvy_thread_join(f->items[1].thread);
  check_ok(f->items[1].status);
  tcp_fleet_close(f);
}

CHECK_TEST(waiting_costs_nothing) {
  tcp_fleet *const f = open_fleet(d, 3, 0);
  struct rusage before, after;
  int from;
  getrusage(RUSAGE_SELF, &before);
  assert_int_equal(cvy_link_poll(f->items[0].link, 1.2, &from), CVY_LINK_NOTHING);
  getrusage(RUSAGE_SELF, &after);
  const double cpu_s =
      (double)(after.ru_utime.tv_sec + after.ru_stime.tv_sec - before.ru_utime.tv_sec - before.ru_stime.tv_sec) +
      1e-6 *
          (double)(after.ru_utime.tv_usec + after.ru_stime.tv_usec - before.ru_utime.tv_usec - before.ru_stime.tv_usec);
  if (!(cpu_s < 0.1)) check_fail(d, "three nodes that wait use %g s of a processor in 1.2 s", cpu_s);
  tcp_fleet_close(f);
}

/* ---- nodes that end ---- */

/* A thread that sends, and one that receives, until the round is over. */
typedef struct flow {
  cvy_link *link;
  int other;
  bool sends;
  cvy_status status;
  cvy_thread thread;
} flow;

static void *run_flow(void *arg) {
  flow *const f = arg;
  static const size_t bytes = 200000;
  uint8_t *const data = cvy_calloc(bytes, 1);
  do
    f->status = f->sends ? cvy_link_send(f->link, f->other, CVY_LINK_UP, data, bytes)
                         : cvy_link_receive(f->link, f->other, CVY_LINK_UP, data, bytes);
  while (f->status == CVY_OK);
  cvy_free(data);
  return NULL;
}

/* Traffic with all other nodes, until one of them is lost, which must be `victim` in the way that is `wanted`; that
 * ends all sends and receives. Then, in the next round, a message to each of the others. The victim loses all
 * others. */
static void live_through(cvy_link *link, int victim, cvy_link_news wanted) {
  flow flows[8];
  int n = 0, from = -1;
  for (int r = 0; r < link->size; r++)
    for (int sends = 0; sends < 2 && r != link->rank; sends++)
      flows[n++] = (flow){.link = link, .other = r, .sends = sends};
  for (int i = 0; i < n; i++)
    LINK_CHECK(link, cvy_thread_start(&flows[i].thread, "flow", run_flow, &flows[i]) == CVY_OK, "no thread");
  for (int left = link->rank == victim ? link->size - 1 : 1; left > 0; left--) {
    const cvy_link_news news = cvy_link_poll(link, 20, &from);
    LINK_CHECK(link, news == wanted && (link->rank == victim || from == victim),
               "news %d of node %d, not %d of node %d", news, from, wanted, victim);
  }
  for (int i = 0; i < n; i++) {
    cvy_thread_join(flows[i].thread);
    LINK_CHECK(link, flows[i].status == CVY_E_INTERRUPTED, "flow %d: %s", i, cvy_status_name(flows[i].status));
  }
  cvy_link_renew(link, 1);
  if (link->rank == victim) return;
  for (int r = 0; r < link->size; r++) {
    uint8_t bytes[1000];
    const link_message m = {7, link->rank, r, CVY_LINK_UP, 1, 0}, back = {7, r, link->rank, CVY_LINK_UP, 1, 0};
    if (r == link->rank || r == victim) continue;
    link_message_fill(&m, bytes, sizeof bytes);
    LINK_CHECK(link, cvy_link_send(link, r, CVY_LINK_UP, bytes, sizeof bytes) == CVY_OK, "to node %d", r);
    LINK_CHECK(link, cvy_link_receive(link, r, CVY_LINK_UP, bytes, sizeof bytes) == CVY_OK, "from node %d", r);
    link_message_check(&back, bytes, sizeof bytes);
  }
  LINK_CHECK(link, cvy_link_send(link, victim, CVY_LINK_UP, &n, 1) == CVY_E_INTERRUPTED, "to the lost node");
  LINK_CHECK(link, cvy_link_receive(link, victim, CVY_LINK_CONTROL, &n, 1) == CVY_E_INTERRUPTED, "from the lost node");
  LINK_CHECK(link, cvy_link_poll(link, 0, &from) == CVY_LINK_NOTHING, "more news, of node %d", from);
}

/* A process for a node. It writes a byte into `say` when it is open, and one when it has lost the victim (the victim:
 * all others); then it waits for one from `go`. */
static pid_t start_node(const tcp_fleet *f, int rank, int victim, cvy_link_news wanted, int say, int go) {
  const pid_t child = fork();
  assert_true(child >= 0);
  if (child > 0) return child;
  char byte = 0;
  cvy_link *link = NULL;
  alarm(30);
  cvy_log_set(NULL, NULL, CVY_LOG_ERROR);
  if (cvy_link_tcp_open(&f->items[rank].params, &link) != CVY_OK || write(say, "o", 1) != 1) _exit(3);
  live_through(link, victim, wanted);
  if (write(say, "l", 1) != 1 || read(go, &byte, 1) != 1) _exit(4);
  cvy_link_close(&link);
  _exit(0);
}

static void wait_for_bytes(check_device *d, int fd, int n) {
  char bytes[8];
  for (int got = 0; got < n;) {
    const ssize_t some = read(fd, bytes, (size_t)(n - got));
    if (some <= 0) check_fail(d, "a node has ended before it should");
    got += (int)some;
  }
}

static void expect_exit(check_device *d, pid_t child, int rank, int signal_wanted) {
  int status = 0;
  assert_int_equal(waitpid(child, &status, 0), child);
  const bool right = signal_wanted ? WIFSIGNALED(status) && WTERMSIG(status) == signal_wanted
                                   : WIFEXITED(status) && WEXITSTATUS(status) == 0;
  if (!right) check_fail(d, "node %d ends with status 0x%x", rank, (unsigned)status);
}

typedef struct crew {
  tcp_fleet *f;
  pid_t children[8];
  int say, go;
} crew;

/* victim_seconds: after so long the victim itself takes others for silent. */
static crew start_crew(check_device *d, int n, double silent_seconds, double victim_seconds, int victim,
                       cvy_link_news wanted) {
  int say[2], go[2];
  crew c = {.f = check_own(d, cvy_calloc(1, sizeof(tcp_fleet)), cvy_free)};
  tcp_fleet_name(c.f, n);
  assert_int_equal(pipe(say), 0);
  assert_int_equal(pipe(go), 0);
  for (int k = 0; k < n; k++) {
    c.f->items[k].params.silent_seconds = k == victim ? victim_seconds : silent_seconds;
    c.children[k] = start_node(c.f, k, victim, wanted, say[1], go[0]);
  }
  close(say[1]);
  close(go[0]);
  c.say = say[0], c.go = go[1];
  wait_for_bytes(d, c.say, n);
  return c;
}

static void end_crew(check_device *d, crew *c, int killed) {
  assert_int_equal(write(c->go, "gggggggg", (size_t)c->f->n), c->f->n);
  for (int k = 0; k < c->f->n; k++) expect_exit(d, c->children[k], k, k == killed ? SIGKILL : 0);
  close(c->say);
  close(c->go);
}

CHECK_TEST(ended) {
  case_rng r = check_rng_make(d, 1);
  for (int i = 0; i < times(12); i++) {
    const int n = case_int(&r, 2, 4), victim = case_int(&r, 0, n - 1), after_us = case_int(&r, 0, 30000);
    if (!check_case(d, "ended n=%d victim=%d after=%d", n, victim, after_us)) continue;
    crew c = start_crew(d, n, 0, 0, victim, CVY_LINK_ENDED);
    usleep((useconds_t)after_us);
    kill(c.children[victim], SIGKILL);
    wait_for_bytes(d, c.say, n - 1);
    end_crew(d, &c, victim);
    check_case_end(d);
  }
}

/* A node that is stopped is silent; when it goes on, the others tell it that they have gone on without it: of itself it
 * would find out long after its poll has come back. */
CHECK_TEST(silent) {
  crew c = start_crew(d, 3, 2, 60, 1, CVY_LINK_SILENT);
  usleep(20000);
  kill(c.children[1], SIGSTOP);
  wait_for_bytes(d, c.say, 2);
  kill(c.children[1], SIGCONT);
  wait_for_bytes(d, c.say, 1);
  end_crew(d, &c, -1);
}

int main(int argc, char **argv) { return check_run(argc, argv, CHECK_HOST); }
