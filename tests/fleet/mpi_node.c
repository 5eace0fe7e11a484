/* SPDX-License-Identifier: MIT
 * One node of a fleet that mpirun started: mpi_node CASE…; tests/fleet/test_mpi.py starts it. Every node runs the same
 * cases in the same order. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "convoy/log.h"
#include "src/base/clock.h"
#include "src/base/mem.h"
#include "src/link/mpi_open.h"
#include "tests/fleet/link_cases.h"

static cvy_link *node;
static bool had_silent; /* then MPI may still use the link's memory, which is not freed */

#define CHECK(cond)                                                                               \
  do {                                                                                            \
    if (!(cond)) {                                                                                \
      fprintf(stderr, "node %d: %s:%d: %s\n", node ? node->rank : -1, __FILE__, __LINE__, #cond); \
      _Exit(1);                                                                                   \
    }                                                                                             \
  } while (0)

/* Byte i of message number n from one node in one stream. */
static unsigned char byte_of(int from, int stream, int n, size_t i) {
  return (unsigned char)(i * 31 + (i >> 9) * 7 + (size_t)(from * 101 + stream * 57 + n * 13));
}

static unsigned char *message(int from, int stream, int n, size_t bytes) {
  unsigned char *const m = malloc(bytes + 1);
  CHECK(m);
  for (size_t i = 0; i < bytes; i++) m[i] = byte_of(from, stream, n, i);
  return m;
}

static void send_one(int to, cvy_stream stream, int n, size_t bytes) {
  unsigned char *const m = message(node->rank, (int)stream, n, bytes);
  CHECK(cvy_link_send(node, to, stream, m, bytes) == CVY_OK);
  memset(m, 0xee, bytes); /* the caller's again */
  free(m);
}

static void receive_one(int from, cvy_stream stream, int n, size_t bytes) {
  unsigned char *const m = malloc(bytes + 1), *const want = message(from, (int)stream, n, bytes);
  CHECK(m);
  m[bytes] = 0xa5;
  CHECK(cvy_link_receive(node, from, stream, m, bytes) == CVY_OK);
  CHECK(memcmp(m, want, bytes) == 0 && m[bytes] == 0xa5);
  free(m), free(want);
}

static int after(void) { return (node->rank + 1) % node->size; }
static int before(void) { return (node->rank + node->size - 1) % node->size; }

/* Returns when all nodes have called it as often. */
static void meet(void) {
  static uint32_t word = 5000;
  link_meet(node, word++);
}

/* ---- cases ---- */

static const size_t sizes[] = {0, 1, 7, 4096, 16368, 16369, 16384, 65536, 524288, 540656, 540657, 4194304, 9000001, 3};
enum { SIZES = sizeof sizes / sizeof *sizes };

static void *send_ring(void *arg) {
  for (int n = 0; n < SIZES; n++) send_one(after(), *(const cvy_stream *)arg, n, sizes[n]);
  return NULL;
}
static void *send_back(void *arg) {
  for (int n = 0; n < SIZES; n++) send_one(before(), *(const cvy_stream *)arg, n, sizes[n]);
  return NULL;
}
static void *receive_back(void *arg) {
  for (int n = 0; n < SIZES; n++) receive_one(after(), *(const cvy_stream *)arg, n, sizes[n]);
  return NULL;
}

/* Messages of all sizes, UP to the next node and DOWN to the one before, all at once. */
static void case_order(void) {
  static const cvy_stream up = CVY_LINK_UP, down = CVY_LINK_DOWN;
  pthread_t threads[3];
  CHECK(!pthread_create(&threads[0], NULL, send_ring, (void *)&up));
  CHECK(!pthread_create(&threads[1], NULL, send_back, (void *)&down));
  CHECK(!pthread_create(&threads[2], NULL, receive_back, (void *)&down));
  for (int n = 0; n < SIZES; n++) receive_one(before(), CVY_LINK_UP, n, sizes[n]);
  for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
  meet();
}

/* News of one node, whatever the others do. */
static cvy_link_news news_of(int node_wanted, double seconds) {
  int from = -1;
  cvy_link_news news;
  do news = cvy_link_poll(node, seconds, &from);
  while (news != CVY_LINK_NOTHING && from != node_wanted);
  return news;
}

/* The last node sends node 0 a message of a wrong size, data or control: each is lost to the other, once. */
static void refuse_last(cvy_stream stream, size_t bytes) {
  char data[64];
  const int last = node->size - 1, other = last - node->rank;
  if (node->rank == last) send_one(0, stream, 1, bytes);
  if (node->rank == 0) {
    if (stream == CVY_LINK_CONTROL) CHECK(news_of(last, 10) == CVY_LINK_MESSAGE);
    CHECK(cvy_link_receive(node, last, stream, data, 64) == CVY_E_INTERRUPTED);
  }
  if (node->rank == 0 || node->rank == last) {
    CHECK(news_of(other, 10) == CVY_LINK_SILENT);
    CHECK(news_of(other, 0) == CVY_LINK_NOTHING);
    had_silent = true;
  }
  if (node->rank == last) sleep(2); /* it ends without MPI's end, which may end the job: node 0 has printed by then */
}

static void case_mismatch(void) { refuse_last(CVY_LINK_UP, 300000); }
static void case_mismatch_control(void) { refuse_last(CVY_LINK_CONTROL, 40); }

static void *interrupt_soon(void *arg) {
  (void)arg;
  usleep(100000);
  cvy_link_interrupt(node);
  return NULL;
}

/* The receiver of a long message ends the round within it, and the sender later. */
static void *interrupt_at_once(void *arg) {
  (void)arg;
  usleep(4000);
  cvy_link_interrupt(node);
  return NULL;
}
static void case_midway(void) {
  enum { LARGE = 1 << 27 };
  unsigned char *const large = node->rank < 2 ? calloc(1, LARGE) : NULL;
  pthread_t thread;
  meet();
  CHECK(!pthread_create(&thread, NULL, node->rank == 0 ? interrupt_soon : interrupt_at_once, NULL));
  if (node->rank == 0) {
    const cvy_status sent = cvy_link_send(node, 1, CVY_LINK_UP, large, LARGE);
    CHECK(sent == CVY_E_INTERRUPTED || sent == CVY_OK); /* node 1 drops what it does not want */
  }
  if (node->rank == 1) {
    const cvy_status received = cvy_link_receive(node, 0, CVY_LINK_UP, large, LARGE);
    CHECK(received == CVY_E_INTERRUPTED || received == CVY_OK); /* OK: other programs had the cores for so long */
  }
  pthread_join(thread, NULL);
  if (large) memset(large, 1, LARGE);
  meet();
  cvy_link_renew(node, 1000);
  if (node->rank == 0) send_one(1, CVY_LINK_UP, 3, 5 << 20);
  if (node->rank == 1) {
    receive_one(0, CVY_LINK_UP, 3, 5 << 20);
    for (size_t i = 0; i < LARGE; i++) CHECK(large[i] == 1); /* nothing comes into it any more */
  }
  free(large);
  meet();
}

/* Node 1 leaves: what it sent before still comes, then the others learn it. */
static void case_leave(void) {
  char byte = 0;
  int from = -1;
  if (node->rank == 1) { /* when all are here: none may still wait for another one of the case before */
    for (int others = node->size - 1; others > 0; others--) {
      CHECK(cvy_link_poll(node, 10, &from) == CVY_LINK_MESSAGE);
      receive_one(from, CVY_LINK_CONTROL, 3, 3);
    }
    send_one(0, CVY_LINK_UP, 1, 900000);
    send_one(0, CVY_LINK_CONTROL, 2, 3);
    return;
  }
  send_one(1, CVY_LINK_CONTROL, 3, 3);
  if (node->rank == 0) {
    CHECK(cvy_link_poll(node, 10, &from) == CVY_LINK_MESSAGE && from == 1);
    receive_one(1, CVY_LINK_CONTROL, 2, 3);
  }
  do CHECK(cvy_link_poll(node, 10, &from) == CVY_LINK_LEFT); /* of the others, too, if they are done before */
  while (from != 1);
  CHECK(cvy_link_poll(node, 0.1, &from) == CVY_LINK_NOTHING || from != 1);
  if (node->rank == 0) receive_one(1, CVY_LINK_UP, 1, 900000);
  CHECK(cvy_link_receive(node, 1, CVY_LINK_UP, &byte, 1) == CVY_E_INTERRUPTED);
  CHECK(cvy_link_send(node, 1, CVY_LINK_CONTROL, &byte, 1) == CVY_E_INTERRUPTED);
}

/* The process of node 1 is killed while the others wait for it and send to it. */
static void *send_until_lost(void *arg) {
  unsigned char *const large = calloc(1, 16 << 20);
  (void)arg;
  CHECK(cvy_link_send(node, 1, CVY_LINK_DOWN, large, 16 << 20) == CVY_E_INTERRUPTED);
  free(large);
  return NULL;
}
static void case_killed(void) {
  char byte = 0;
  int from = -1;
  pthread_t thread;
  CHECK(node->size > 2);
  meet();
  if (node->rank == 1) {
    usleep(200000);
    raise(SIGKILL);
  }
  const uint64_t start = cvy_clock_ns();
  CHECK(!pthread_create(&thread, NULL, send_until_lost, NULL));
  CHECK(cvy_link_receive(node, 1, CVY_LINK_UP, &byte, 1) == CVY_E_INTERRUPTED);
  pthread_join(thread, NULL);
  printf("node %d: lost node 1 %.2f s after it was well\n", node->rank, cvy_clock_seconds_since(start));
  CHECK(cvy_link_poll(node, 10, &from) == CVY_LINK_ENDED && from == 1);
  CHECK(cvy_link_send(node, 1, CVY_LINK_CONTROL, &byte, 1) == CVY_E_INTERRUPTED);
  CHECK(cvy_link_receive(node, 1, CVY_LINK_CONTROL, &byte, 1) == CVY_E_INTERRUPTED);
  cvy_link_renew(node, 5000);
  for (int i = 0; i < node->size; i++)
    if (i != 1 && i != node->rank) send_one(i, CVY_LINK_UP, 1, 1 << 20);
  for (int i = 0; i < node->size; i++)
    if (i != 1 && i != node->rank) receive_one(i, CVY_LINK_UP, 1, 1 << 20);
  CHECK(cvy_link_send(node, 1, CVY_LINK_UP, &byte, 1) == CVY_E_INTERRUPTED);
}

/* This process stops, and goes on after so many seconds. */
static void stop_for(unsigned seconds) {
  const pid_t self = getpid(), child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    sleep(seconds);
    kill(self, SIGCONT);
    _exit(0);
  }
  usleep(300000); /* until the MPI thread has sent what the others wait for */
  raise(SIGSTOP);
}

/* All stop together, as when a job is suspended: none is lost. */
static void case_suspended(void) {
  meet();
  stop_for(12);
  for (int n = 0; n < 3; n++) {
    usleep(700000); /* until pings and judgements of all have come */
    meet();
  }
}

/* Node 1 hangs: the others, which only wait, lose it and no other one. It goes on later, and learns it. */
static void case_silent(void) {
  char byte = 0;
  int from = -1;
  meet();
  const uint64_t start = cvy_clock_ns();
  had_silent = true;
  if (node->rank == 1) {
    stop_for(16);
    const uint64_t awake = cvy_clock_ns();
    for (int others = node->size - 1; others > 0; others--) CHECK(cvy_link_poll(node, 4, &from) == CVY_LINK_SILENT);
    CHECK(cvy_clock_seconds_since(awake) < 4);
    CHECK(cvy_link_send(node, 0, CVY_LINK_UP, &byte, 1) == CVY_E_INTERRUPTED);
  } else {
    CHECK(cvy_link_receive(node, 1, CVY_LINK_UP, &byte, 1) == CVY_E_INTERRUPTED);
    const double seconds = cvy_clock_seconds_since(start);
    CHECK(seconds > 8 && seconds < 14);
    CHECK(cvy_link_poll(node, 1, &from) == CVY_LINK_SILENT && from == 1);
    CHECK(cvy_link_send(node, 1, CVY_LINK_CONTROL, &byte, 1) == CVY_E_INTERRUPTED);
    CHECK(cvy_link_poll(node, 10, &from) == CVY_LINK_NOTHING);
    cvy_link_renew(node, 6000);
    for (int i = 0; i < node->size; i++)
      if (i != 1 && i != node->rank) send_one(i, CVY_LINK_UP, 1, 1 << 20);
    for (int i = 0; i < node->size; i++)
      if (i != 1 && i != node->rank) receive_one(i, CVY_LINK_UP, 1, 1 << 20);
  }
  printf("node %d is done\n", node->rank);
}

/* The process of node 1 ends in the middle of things, the others wait for it: the launcher ends the job. */
static void case_exit(void) {
  char byte = 0;
  meet();
  if (node->rank == 1) _exit(7);
  (void)cvy_link_receive(node, 1, CVY_LINK_UP, &byte, 1);
  sleep(60);
}
static void case_crash(void) {
  char byte = 0;
  meet();
  if (node->rank == 1) raise(SIGKILL);
  (void)cvy_link_receive(node, 1, CVY_LINK_UP, &byte, 1);
  sleep(60);
}

static void case_any(void) { link_cases(node, (uint64_t)node->size, 25); }

/* ---- figures ---- */

static double cpu_seconds(void) {
  struct rusage u;
  getrusage(RUSAGE_SELF, &u);
  return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) + 1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

/* Node 0 answers after `pause` each time; the others wait in receive. */
static void measure_wait(void) {
  static const double pauses[] = {0.02, 0.2, 3};
  char byte = 0;
  int from;
  for (int k = 0; k < 3; k++) {
    const int turns = (int)(3 / pauses[k]);
    meet();
    const double cpu = cpu_seconds();
    const uint64_t start = cvy_clock_ns();
    for (int turn = 0; turn < turns; turn++) {
      if (node->rank == 0) {
        usleep((useconds_t)(1e6 * pauses[k]));
        for (int i = 1; i < node->size; i++) send_one(i, CVY_LINK_UP, 0, 1);
      } else {
        CHECK(cvy_link_receive(node, 0, CVY_LINK_UP, &byte, 1) == CVY_OK);
      }
    }
    const double seconds = cvy_clock_seconds_since(start);
    printf("node %d: %s, a byte every %.0f ms: %.1f ms of a processor per second\n", node->rank,
           node->rank ? "in receive" : "idle", 1e3 * pauses[k], 1e3 * (cpu_seconds() - cpu) / seconds);
  }
  meet();
  const double cpu = cpu_seconds();
  const uint64_t start = cvy_clock_ns();
  while (cvy_clock_seconds_since(start) < 3) (void)cvy_link_poll(node, 0.1, &from);
  printf("node %d: in poll: %.1f ms of a processor per second\n", node->rank,
         1e3 * (cpu_seconds() - cpu) / cvy_clock_seconds_since(start));
  meet();
}

enum { BLOCK = 4 << 20, BLOCKS = 100, TURNS = 500 };
static void *send_blocks(void *arg) {
  unsigned char *const block = calloc(1, BLOCK);
  for (int i = 0; i < BLOCKS; i++) CHECK(cvy_link_send(node, *(int *)arg, CVY_LINK_UP, block, BLOCK) == CVY_OK);
  free(block);
  return NULL;
}
static void measure_speed(void) {
  unsigned char *const block = calloc(1, BLOCK);
  pthread_t thread;
  int other = 1 - node->rank;
  if (node->rank < 2) {
    for (int both = 1; both >= 0; both--) {
      const double cpu = cpu_seconds();
      const uint64_t start = cvy_clock_ns();
      if (both || node->rank == 0) CHECK(!pthread_create(&thread, NULL, send_blocks, &other));
      if (both || node->rank == 1)
        for (int i = 0; i < BLOCKS; i++) CHECK(cvy_link_receive(node, other, CVY_LINK_UP, block, BLOCK) == CVY_OK);
      if (both || node->rank == 0) pthread_join(thread, NULL);
      const double seconds = cvy_clock_seconds_since(start);
      printf("node %d: %d blocks of 4 MiB %s: %.2f GB/s each way, %.0f %% of a processor\n", node->rank, BLOCKS,
             both ? "both ways" : "one way", 1e-9 * BLOCK * BLOCKS / seconds, 100 * (cpu_seconds() - cpu) / seconds);
    }
    for (int pause = 0; pause < 2; pause++) {
      double sum = 0;
      const int turns = pause ? 40 : TURNS;
      for (int i = 0; i < turns; i++) {
        if (pause && node->rank == 0) usleep(20000); /* the other has been waiting for long */
        const uint64_t start = cvy_clock_ns();
        if (node->rank == 0) CHECK(cvy_link_send(node, 1, CVY_LINK_DOWN, block, 64) == CVY_OK);
        CHECK(cvy_link_receive(node, other, CVY_LINK_DOWN, block, 64) == CVY_OK);
        if (node->rank == 1) CHECK(cvy_link_send(node, 0, CVY_LINK_DOWN, block, 64) == CVY_OK);
        sum += cvy_clock_seconds_since(start);
      }
      if (node->rank == 0)
        printf("64 bytes%s: %.1f us one way\n", pause ? " after 20 ms of silence" : "", 1e6 * sum / turns / 2);
    }
  }
  free(block);
  meet();
}

static void print_log(void *user, cvy_log_level level, const char *text) {
  (void)user, (void)level;
  fprintf(stderr, "node %d: %s\n", node ? node->rank : -1, text);
}

int main(int argc, char **argv) {
  static const struct {
    const char *name;
    void (*run)(void);
  } cases[] = {{"any", case_any},
               {"order", case_order},
               {"mismatch", case_mismatch},
               {"mismatch_control", case_mismatch_control},
               {"midway", case_midway},
               {"leave", case_leave},
               {"killed", case_killed},
               {"exit", case_exit},
               {"crash", case_crash},
               {"silent", case_silent},
               {"suspended", case_suspended},
               {"wait", measure_wait},
               {"speed", measure_speed}};
  cvy_started started;
  cvy_log_set(print_log, NULL, CVY_LOG_WARNING);
  if (cvy_started_find(&started) != CVY_OK || started.starter == CVY_STARTED_ALONE) return 3;
  if (cvy_link_mpi_open(&started, 15, &node) != CVY_OK) return 4;
  CHECK(node->rank == started.rank && node->size == started.size);
  for (int i = 1; i < argc; i++)
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++)
      if (strcmp(argv[i], cases[k].name) == 0) {
        const uint64_t start = cvy_clock_ns();
        cases[k].run();
        if (node->rank == 0)
          printf("%s: %s: good, %.2f s\n", node->kind, argv[i], cvy_clock_seconds_since(start)), fflush(stdout);
      }
  fflush(stdout);
  cvy_link_close(&node);
  return had_silent || cvy_live_count(CVY_LIVE_MEMORY) == 0 ? 0 : 5;
}
