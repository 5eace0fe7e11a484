/* SPDX-License-Identifier: MIT
 * The MPI link over an MPI that the test plays: what the others send, and when a request ends, is said step by step, so
 * that what a real MPI does once in a thousand runs happens each time. test_mpi.py has the real ones.
 *
 * Outline: the played MPI · what the other nodes do · this node · the tests. */
#include "tests/support/check.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "src/base/clock.h"
#include "src/link/mpi_inside.h"
#include "src/link/mpi_link.h"

enum { NODES = 3, WISHES = 512, MAILS = 64, LIMIT_S = 20 };

/* ---- the played MPI ---- */

typedef struct wish { /* a request that the link has begun */
  void *token;
  bool sends, ended;
  int node, tag, bytes, cancels;
  void *data;
} wish;
typedef struct mail { /* on its way to this node */
  bool taken;
  int from, tag, bytes;
  unsigned char *data;
} mail;

static struct {
  pthread_mutex_t lock;
  int size, n_wishes, n_mails;
  wish wishes[WISHES];
  mail mails[MAILS];
  bool hangs[NODES], ended[NODES]; /* sends to it never end; its process is gone */
  bool slow_cancels;               /* cancelled receives stay, and may still take what comes */
  bool cancelled_twice;
  int finished; /* 1: with all here, 2: alone */
  cvy_mpi_done done[WISHES];
} mpi = {.lock = PTHREAD_MUTEX_INITIALIZER};

static bool start(cvy_mpi_info *info) {
  *info = (cvy_mpi_info){.rank = 0, .size = mpi.size, .survives = true, .library = "the test's MPI"};
  for (int i = 0; i < mpi.size; i++) snprintf(info->hosts[i], sizeof info->hosts[i], "pc%d", i);
  return true;
}

static bool begin(const wish *w) {
  pthread_mutex_lock(&mpi.lock);
  const bool room = mpi.n_wishes < WISHES;
  if (room) mpi.wishes[mpi.n_wishes++] = *w;
  pthread_mutex_unlock(&mpi.lock);
  return room;
}
static bool begin_send(const void *data, int bytes, int to, int tag, void *token) {
  return begin(
      &(wish){.token = token, .sends = true, .node = to, .tag = tag, .bytes = bytes, .data = (void *)(uintptr_t)data});
}
static bool begin_receive(void *data, int bytes, int from, int tag, void *token) {
  return begin(&(wish){.token = token, .node = from, .tag = tag, .bytes = bytes, .data = data});
}

static void cancel(void *token) {
  pthread_mutex_lock(&mpi.lock);
  for (int i = 0; i < mpi.n_wishes; i++)
    if (mpi.wishes[i].token == token && !mpi.wishes[i].ended && mpi.wishes[i].cancels++ > 0) mpi.cancelled_twice = true;
  pthread_mutex_unlock(&mpi.lock);
}

static mail *mail_for(const wish *w) {
  for (int i = 0; i < mpi.n_mails; i++)
    if (!mpi.mails[i].taken && mpi.mails[i].from == w->node && mpi.mails[i].tag == w->tag) return &mpi.mails[i];
  return NULL;
}

/* False: it goes on. */
static bool ends(wish *w, cvy_mpi_done *done) {
  *done = (cvy_mpi_done){.token = w->token, .outcome = CVY_MPI_DONE, .bytes = w->bytes};
  mail *const m = w->sends ? NULL : mail_for(w);
  if (m) {
    if (m->bytes > w->bytes) done->outcome = CVY_MPI_LARGE;
    else memcpy(w->data, m->data, (size_t)m->bytes);
    done->bytes = m->bytes;
    m->taken = true;
    return true;
  }
  if (mpi.ended[w->node]) done->outcome = CVY_MPI_LOST;
  else if (w->cancels && !mpi.slow_cancels) done->outcome = CVY_MPI_CANCELLED;
  else return w->sends && !mpi.hangs[w->node];
  return true;
}

static int progress(const cvy_mpi_done **done) {
  int n = 0;
  pthread_mutex_lock(&mpi.lock);
  for (int i = 0; i < mpi.n_wishes; i++)
    if (!mpi.wishes[i].ended && ends(&mpi.wishes[i], &mpi.done[n])) mpi.wishes[i].ended = true, n++;
  pthread_mutex_unlock(&mpi.lock);
  *done = mpi.done;
  return n;
}

static const char *why(void) { return "the test wants it so"; }
static void finish(bool all_here) { mpi.finished = all_here ? 1 : 2; }
static const cvy_mpi_calls calls = {
    CVY_MPI_VERSION, start, begin_send, begin_receive, cancel, progress, why, finish,
};

static void set(bool *flag, bool value) {
  pthread_mutex_lock(&mpi.lock);
  *flag = value;
  pthread_mutex_unlock(&mpi.lock);
}

/* Waits until so many receives of this tag are under way. */
static void await_receives(check_device *d, int from, int tag, int wanted) {
  const uint64_t begun = cvy_clock_ns();
  for (int n = -1; n != wanted; usleep(200)) {
    n = 0;
    pthread_mutex_lock(&mpi.lock);
    for (int i = 0; i < mpi.n_wishes; i++) {
      const wish *const w = &mpi.wishes[i];
      n += !w->sends && !w->ended && w->node == from && w->tag == tag;
    }
    pthread_mutex_unlock(&mpi.lock);
    if (n != wanted && cvy_clock_seconds_since(begun) > LIMIT_S)
      check_fail(d, "%d receives of tag %d are under way, wanted %d", n, tag, wanted);
  }
}

/* ---- what the other nodes do ---- */

static void deliver(int from, int tag, const void *data, int bytes) {
  pthread_mutex_lock(&mpi.lock);
  mail *const m = &mpi.mails[mpi.n_mails++];
  *m = (mail){.from = from, .tag = tag, .bytes = bytes, .data = malloc((size_t)bytes + 1)};
  if (bytes) memcpy(m->data, data, (size_t)bytes);
  pthread_mutex_unlock(&mpi.lock);
}

/* The head of a message, with its first bytes. */
static void deliver_head(int from, uint32_t round, uint32_t number, const unsigned char *data, size_t bytes) {
  unsigned char head[CVY_MPI_HEAD_BYTES];
  const cvy_mpi_head fields = {.round = round, .number = number, .bytes = bytes};
  const size_t room = sizeof head - sizeof fields, first = bytes < room ? bytes : room;
  memcpy(head, &fields, sizeof fields);
  memcpy(head + sizeof fields, data, first);
  deliver(from, CVY_LINK_UP, head, (int)(sizeof fields + first));
}

/* Piece k of its rest. */
static void deliver_piece(int from, uint32_t number, const unsigned char *data, int k) {
  const size_t first = CVY_MPI_HEAD_BYTES - sizeof(cvy_mpi_head);
  deliver(from, CVY_MPI_PIECE_TAG(CVY_LINK_UP, number), data + first + (size_t)k * CVY_MPI_PIECE_BYTES,
          CVY_MPI_PIECE_BYTES);
}
static void deliver_empty(int from, uint32_t number) { deliver(from, CVY_MPI_PIECE_TAG(CVY_LINK_UP, number), NULL, 0); }

/* It has sent so many messages of UP in its life. */
static void say_bye(int from, uint32_t sent) {
  unsigned char words[1 + 2 * sizeof sent] = {CVY_MPI_KIND_BYE};
  memcpy(words + 1, &sent, sizeof sent);
  deliver(from, CVY_LINK_CONTROL, words, sizeof words);
}

/* ---- this node ---- */

static cvy_link *open_link(check_device *d, int size) {
  cvy_link *link = NULL;
  alarm(2 * LIMIT_S); /* a link that waits for ever ends the process */
  for (int i = 0; i < mpi.n_mails; i++) free(mpi.mails[i].data);
  memset(&mpi, 0, sizeof mpi);
  pthread_mutex_init(&mpi.lock, NULL);
  mpi.size = size;
  check_ok(cvy_mpi_link_create(&calls, &(cvy_started){CVY_STARTED_OPENMPI, 0, size, "the test"}, LIMIT_S, &link));
  if (!link) check_fail(d, "no link");
  return link;
}

typedef struct receive {
  pthread_t thread;
  cvy_link *link;
  void *data;
  size_t bytes;
  cvy_status status;
  bool over; /* under mpi.lock */
} receive;

static void *run_receive(void *arg) {
  receive *const r = arg;
  r->status = cvy_link_receive(r->link, 1, CVY_LINK_UP, r->data, r->bytes);
  set(&r->over, true);
  return NULL;
}
static void begin_waiting(receive *r, cvy_link *link, void *data, size_t bytes) {
  *r = (receive){.link = link, .data = data, .bytes = bytes};
  assert_int_equal(pthread_create(&r->thread, NULL, run_receive, r), 0);
}
/* True if the thread comes back within so many seconds. */
static bool is_over(receive *r, double seconds) {
  const uint64_t begun = cvy_clock_ns();
  for (bool over = false;; usleep(1000)) {
    pthread_mutex_lock(&mpi.lock);
    over = r->over;
    pthread_mutex_unlock(&mpi.lock);
    if (over || cvy_clock_seconds_since(begun) > seconds) return over;
  }
}
static void expect_answer(check_device *d, receive *r, cvy_status wanted) {
  if (!is_over(r, LIMIT_S)) check_fail(d, "a receive is not answered within %d s", LIMIT_S);
  pthread_join(r->thread, NULL);
  assert_int_equal(r->status, wanted);
}

/* A message of a head and so many pieces. */
static unsigned char *make_message(check_device *d, int pieces, int seed, size_t *bytes) {
  *bytes = CVY_MPI_HEAD_BYTES - sizeof(cvy_mpi_head) + (size_t)pieces * CVY_MPI_PIECE_BYTES;
  unsigned char *const data = check_own(d, cvy_alloc_unset(*bytes, 1), cvy_free);
  for (size_t i = 0; i < *bytes; i++) data[i] = (unsigned char)(i * 7 + i / 509 + (size_t)seed * 101);
  return data;
}

/* ---- the tests ---- */

/* A message of the next round comes while a thread still waits in this one: it is kept for the next. */
CHECK_TEST(newer_round) {
  cvy_link *link = open_link(d, 2);
  unsigned char got[4] = {0};
  receive r;
  begin_waiting(&r, link, got, sizeof got);
  deliver_head(1, 1, 0, (const unsigned char *)"next", 4);
  assert_false(is_over(&r, 0.05));
  cvy_link_interrupt(link);
  expect_answer(d, &r, CVY_E_INTERRUPTED);
  cvy_link_renew(link, 1);
  check_ok(cvy_link_receive(link, 1, CVY_LINK_UP, got, sizeof got));
  assert_memory_equal(got, "next", 4);
  say_bye(1, 1);
  cvy_link_close(&link);
  assert_int_equal(mpi.finished, 1);
}

/* Node 1 sends the head of a message alone: a receive of its bytes begins, and MPI is slow to cancel. */
static cvy_link *begin_message(check_device *d, receive *r, const unsigned char *message, unsigned char *got,
                               size_t bytes, int pieces) {
  cvy_link *const link = open_link(d, 2);
  set(&mpi.slow_cancels, true);
  begin_waiting(r, link, got, bytes);
  deliver_head(1, 0, 0, message, bytes);
  await_receives(d, 1, CVY_MPI_PIECE_TAG(CVY_LINK_UP, 0), pieces);
  return link;
}

/* The sender breaks a message off, and MPI is slow to cancel the receives of its rest: none of them takes a piece of
 * the next message. */
CHECK_TEST(left_over_receives) {
  size_t bytes;
  unsigned char *const first = make_message(d, 3, 1, &bytes), *const next = make_message(d, 3, 2, &bytes);
  unsigned char *const got = make_message(d, 3, 3, &bytes);
  receive r;
  cvy_link *link = begin_message(d, &r, first, got, bytes, 3);
  deliver_piece(1, 0, first, 0);
  deliver_empty(1, 0);
  await_receives(d, 1, CVY_MPI_PIECE_TAG(CVY_LINK_UP, 0), 1);
  cvy_link_interrupt(link);
  expect_answer(d, &r, CVY_E_INTERRUPTED);
  cvy_link_renew(link, 1);
  begin_waiting(&r, link, got, bytes);
  deliver_head(1, 1, 1, next, bytes);
  for (int k = 0; k < 3; k++) deliver_piece(1, 1, next, k);
  assert_false(is_over(&r, 0.05));
  set(&mpi.slow_cancels, false);
  expect_answer(d, &r, CVY_OK);
  assert_memory_equal(got, next, bytes);
  say_bye(1, 2);
  cvy_link_close(&link);
}

/* A receive is cancelled once, also where a second empty piece comes, as no node sends it: Open MPI 4.1 would take
 * another receive out of its list. */
CHECK_TEST(cancelled_once) {
  size_t bytes;
  unsigned char *const data = make_message(d, 4, 1, &bytes), *const got = make_message(d, 4, 2, &bytes);
  receive r;
  cvy_link *link = begin_message(d, &r, data, got, bytes, 4);
  deliver_empty(1, 0);
  await_receives(d, 1, CVY_MPI_PIECE_TAG(CVY_LINK_UP, 0), 3);
  deliver_empty(1, 0);
  await_receives(d, 1, CVY_MPI_PIECE_TAG(CVY_LINK_UP, 0), 2);
  cvy_link_interrupt(link);
  expect_answer(d, &r, CVY_E_INTERRUPTED);
  set(&mpi.slow_cancels, false);
  say_bye(1, 1);
  cvy_link_close(&link);
  assert_false(mpi.cancelled_twice);
}

/* A goodbye overtakes what its sender has sent before: that is still waited for. */
CHECK_TEST(goodbye_overtakes) {
  cvy_link *link = open_link(d, 2);
  unsigned char got[4] = {0};
  receive r;
  int from = -1;
  begin_waiting(&r, link, got, sizeof got);
  say_bye(1, 1);
  assert_int_equal(cvy_link_poll(link, LIMIT_S, &from), CVY_LINK_LEFT);
  assert_false(is_over(&r, 0.05));
  deliver_head(1, 0, 0, (const unsigned char *)"last", 4);
  expect_answer(d, &r, CVY_OK);
  assert_memory_equal(got, "last", 4);
  assert_int_equal(cvy_link_receive(link, 1, CVY_LINK_UP, got, sizeof got), CVY_E_INTERRUPTED);
  cvy_link_close(&link);
  assert_int_equal(mpi.finished, 1);
}

/* Does not come back: the memory of requests that MPI may still use is not freed. */
static _Noreturn void end_beside_silent(check_device *d) {
  cvy_link *link = open_link(d, 2);
  int from = -1;
  set(&mpi.hangs[1], true);
  cvy_link_refuse(link, 1, "does nothing");
  const bool silent = cvy_link_poll(link, LIMIT_S, &from) == CVY_LINK_SILENT;
  cvy_link_close(&link);
  _exit(silent && mpi.finished == 2 ? 0 : 1);
}

/* A node that hangs is not waited for at the end, and MPI's own end, which waits for all, is left out. */
CHECK_TEST(silent_at_the_end) {
  int status = 0;
  const pid_t child = fork();
  if (child == 0) end_beside_silent(d);
  alarm(3 * LIMIT_S);
  assert_true(child > 0 && waitpid(child, &status, 0) == child);
  assert_int_equal(status, 0);
}

/* A round begins while no thread has been told of a loss yet: the loss ends it. */
CHECK_TEST(untold_loss) {
  cvy_link *link = open_link(d, 3);
  const char byte = 'x';
  receive r;
  unsigned char got[1];
  int from = -1;
  begin_waiting(&r, link, got, sizeof got);
  await_receives(d, 1, CVY_LINK_UP, 1);
  set(&mpi.ended[1], true);
  expect_answer(d, &r, CVY_E_INTERRUPTED);
  cvy_link_renew(link, 1);
  assert_int_equal(cvy_link_send(link, 2, CVY_LINK_UP, &byte, 1), CVY_E_INTERRUPTED);
  assert_int_equal(cvy_link_poll(link, LIMIT_S, &from), CVY_LINK_ENDED);
  assert_int_equal(from, 1);
  cvy_link_renew(link, 2);
  check_ok(cvy_link_send(link, 2, CVY_LINK_UP, &byte, 1));
  say_bye(2, 0);
  cvy_link_close(&link);
  assert_int_equal(mpi.finished, 2);
}

int main(int argc, char **argv) { return check_run(argc, argv, CHECK_HOST); }
