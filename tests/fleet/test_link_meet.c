/* SPDX-License-Identifier: MIT
 * How nodes of a TCP link meet: --nodes, the key, and peers that are no nodes. Node 0 of two waits; the peers of the
 * tests are sockets of their own. */
#include "tests/support/check.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "convoy/stop.h"
#include "src/base/clock.h"
#include "src/link/tcp_frame.h"
#include "src/link/tcp_inside.h"
#include "src/link/tcp_key.h"
#include "tests/fleet/link_cases.h"
#include "tests/fleet/tcp_fleet.h"

static const char KEY[] = "a key of thirty-two bytes, or so";

/* ---- a peer made by hand ---- */

static int dial(int port) {
  const struct sockaddr_in at = {
      .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  const uint64_t begun_ns = cvy_clock_ns();
  for (;;) {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    if (connect(fd, (const struct sockaddr *)&at, sizeof at) == 0) {
      const struct timeval patience = {.tv_sec = 10};
      setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
      return fd;
    }
    close(fd);
    assert_true(cvy_clock_seconds_since(begun_ns) < 10);
    usleep(2000);
  }
}

static void say(int fd, const void *bytes, size_t n) { (void)!send(fd, bytes, n, MSG_NOSIGNAL); }

/* False: the other side has closed the connection. */
static bool hear(int fd, void *bytes, size_t n) {
  size_t got = 0;
  while (got < n) {
    const ssize_t some = recv(fd, (char *)bytes + got, n - got, 0);
    if (some <= 0) return false;
    got += (size_t)some;
  }
  return true;
}

/* The other side closes the connection, within the patience of dial. */
static bool is_closed(int fd) {
  char byte[256];
  ssize_t n;
  do n = recv(fd, byte, sizeof byte, 0);
  while (n > 0);
  return n == 0 || errno == ECONNRESET;
}

typedef struct shaken {
  cvy_hello own, other;
  uint8_t hellos[2][CVY_HELLO_BYTES], proof[CVY_PROOF_BYTES], proof_back[CVY_PROOF_BYTES];
  bool done;
} shaken;

static const cvy_hello right_hello = {.version = CVY_HELLO_VERSION, .size = 2, .from = 1, .to = 0};

/* The whole handshake of node 1, with this hello and key. */
static shaken shake(int fd, cvy_hello own, const char *key) {
  shaken s = {.own = own};
  assert_int_equal(cvy_key_random(s.own.nonce, sizeof s.own.nonce), CVY_OK);
  cvy_hello_write(&s.own, s.hellos[0]);
  say(fd, s.hellos[0], CVY_HELLO_BYTES);
  if (!hear(fd, s.hellos[1], CVY_HELLO_BYTES)) return s;
  assert_null(cvy_hello_read(s.hellos[1], CVY_HELLO_BYTES, &s.other));
  cvy_key_prove((const uint8_t *)key, key ? strlen(key) : 0, true, s.hellos[0], s.hellos[1], s.proof);
  say(fd, s.proof, sizeof s.proof);
  s.done = hear(fd, s.proof_back, sizeof s.proof_back);
  return s;
}

/* ---- node 0 waits ---- */

static tcp_fleet *begin_waiting_for(check_device *d, const char *key, double hello_seconds) {
  tcp_fleet *const f = check_own(d, cvy_calloc(1, sizeof *f), cvy_free);
  tcp_fleet_name(f, 2);
  for (int i = 0; i < 2; i++) {
    f->items[i].params.key = key;
    f->items[i].params.key_bytes = key ? strlen(key) : 0;
    f->items[i].params.hello_seconds = hello_seconds;
  }
  check_ok(cvy_thread_start(&f->items[0].thread, "node", tcp_node_open, &f->items[0]));
  return f;
}

static tcp_fleet *begin_waiting(check_device *d, const char *key) { return begin_waiting_for(d, key, 0.3); }

/* The right node comes: both open, whatever came before, and a message goes through. */
static void end_waiting(check_device *d, tcp_fleet *f) {
  char word[5] = "word";
  (void)tcp_node_open(&f->items[1]);
  cvy_thread_join(f->items[0].thread);
  check_ok(f->items[0].status);
  check_ok(f->items[1].status);
  check_ok(cvy_link_send(f->items[1].link, 0, CVY_LINK_DOWN, word, 5));
  memset(word, 0, sizeof word);
  check_ok(cvy_link_receive(f->items[0].link, 1, CVY_LINK_DOWN, word, 5));
  assert_string_equal(word, "word");
  tcp_fleet_close(f);
  check_case_end(d);
}

static void expect_refused(check_device *d, int fd, const char *why) {
  struct sockaddr_in own;
  socklen_t n = sizeof own;
  assert_int_equal(getsockname(fd, (struct sockaddr *)&own, &n), 0);
  if (!is_closed(fd)) check_fail(d, "the connection is not closed: %s", why);
  const char *const line = check_text("refused 127.0.0.1:%d on this node's port: %s", ntohs(own.sin_port), why);
  for (int i = 0; i < 200 && !check_log_contains(line); i++) usleep(5000);
  if (!check_log_contains(line)) check_fail(d, "no '%s' in the log:\n%s", line, check_log_get());
  close(fd);
}

CHECK_TEST(nonsense) {
  case_rng r = check_rng_make(d, 1);
  tcp_fleet *const f = begin_waiting(d, NULL);
  for (int i = 0; i < 8; i++) {
    uint8_t bytes[300];
    const int fd = dial(f->ports[0]);
    for (size_t k = 0; k < sizeof bytes; k++) bytes[k] = (uint8_t)case_int(&r, 0, 255);
    bytes[0] = i % 2 ? 'G' : 1;
    say(fd, bytes, i % 2 ? sizeof bytes : 9);
    expect_refused(d, fd, "it does not speak a fleet's protocol");
  }
  end_waiting(d, f);
}

CHECK_TEST(wrong_hellos) {
  static const struct {
    cvy_hello hello;
    const char *why;
  } rows[] = {
      {{.version = 2, .size = 2, .from = 1, .to = 0}, "it speaks version 2 of the protocol, this node 1"},
      {{.version = 1, .size = 3, .from = 1, .to = 0}, "its --nodes has 3 nodes, here it has 2"},
      {{.version = 1, .size = 2, .from = 1, .to = 1}, "it is node 1 and looks for node 1, this is node 0"},
      {{.version = 1, .size = 2, .from = 0, .to = 0}, "it calls itself node 0, which does not dial this one"},
      {{.version = 1, .size = 2, .from = 2, .to = 0}, "it calls itself node 2, which does not dial this one"},
      {{.version = 1, .size = 2, .from = 65535, .to = 0}, "it calls itself node 65535, which does not dial this one"},
      {{.version = 1, .size = 2, .from = 1, .to = 0, .keyed = true}, "it has a --fleet-key, this node has none"},
  };
  tcp_fleet *const f = begin_waiting(d, NULL);
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    const int fd = dial(f->ports[0]);
    const shaken s = shake(fd, rows[i].hello, NULL);
    assert_false(s.done);
    assert_int_equal(s.other.version, CVY_HELLO_VERSION); /* it is told what it has to do with */
    expect_refused(d, fd, rows[i].why);
  }
  uint8_t bytes[CVY_HELLO_BYTES];
  cvy_hello_write(&right_hello, bytes);
  bytes[20] = 1;
  const int fd = dial(f->ports[0]);
  say(fd, bytes, sizeof bytes);
  expect_refused(d, fd, "its hello is not what it should be");
  end_waiting(d, f);
}

CHECK_TEST(half_a_handshake) {
  tcp_fleet *const f = begin_waiting(d, NULL);
  uint8_t bytes[CVY_HELLO_BYTES];
  cvy_hello_write(&right_hello, bytes);
  for (int n = 0; n < 3; n++) { /* nothing, half a hello, a hello without a proof: silent from then on */
    const int fd = dial(f->ports[0]);
    say(fd, bytes, (size_t)(n * 32));
    expect_refused(d, fd, "it sends nothing, or too little");
  }
  for (int n = 0; n < 3; n++) { /* the same, hung up */
    const int fd = dial(f->ports[0]);
    say(fd, bytes, (size_t)(n * 32));
    shutdown(fd, SHUT_WR);
    expect_refused(d, fd, "it has hung up");
  }
  const int fd = dial(f->ports[0]); /* a byte now and then */
  for (int i = 0; i < 40; i++) {
    say(fd, bytes + i, 1);
    usleep(10000);
  }
  expect_refused(d, fd, "it sends nothing, or too little");
  end_waiting(d, f);
}

/* Silent connections, more than the node keeps: the right one comes through at once. */
CHECK_TEST(flood) {
  int fds[100];
  tcp_fleet *const f = begin_waiting_for(d, NULL, 20);
  for (int i = 0; i < 100; i++) fds[i] = dial(f->ports[0]);
  const uint64_t begun_ns = cvy_clock_ns();
  end_waiting(d, f);
  if (!(cvy_clock_seconds_since(begun_ns) < 3)) check_fail(d, "%g s", cvy_clock_seconds_since(begun_ns));
  assert_true(check_log_contains("more such peers are refused without a message"));
  for (int i = 0; i < 100; i++) close(fds[i]);
}

/* ---- the key ---- */

static bool no_keys(void) {
  cvy_log_attempt_begin();
  const bool none = cvy_key_init() != CVY_OK;
  cvy_log_attempt_end(false);
  return none;
}

CHECK_TEST(key) {
  if (no_keys()) check_skip(d, "built without libsodium");
  tcp_fleet *const f = begin_waiting(d, KEY);
  cvy_hello keyed = right_hello;
  keyed.keyed = true;
  int fd = dial(f->ports[0]);
  assert_false(shake(fd, right_hello, NULL).done);
  expect_refused(d, fd, "it has no --fleet-key");
  fd = dial(f->ports[0]);
  assert_false(shake(fd, keyed, "a key of thirty-two bytes, or more").done);
  expect_refused(d, fd, "its --fleet-key is another one");
  end_waiting(d, f);
}

/* All that a right node has said is no use to one that has heard it; nor is what the listener itself has said. */
CHECK_TEST(replay) {
  if (no_keys()) check_skip(d, "built without libsodium");
  cvy_hello keyed = right_hello;
  keyed.keyed = true;
  tcp_fleet *f = begin_waiting(d, KEY);
  int fd = dial(f->ports[0]);
  const shaken heard = shake(fd, keyed, KEY);
  assert_true(heard.done);
  uint8_t wanted[CVY_PROOF_BYTES];
  cvy_key_prove((const uint8_t *)KEY, strlen(KEY), false, heard.hellos[0], heard.hellos[1], wanted);
  assert_memory_equal(heard.proof_back, wanted, sizeof wanted); /* the listener proves itself, too, in its own way */
  assert_memory_not_equal(heard.proof_back, heard.proof, sizeof wanted);
  close(fd);
  const uint8_t *const proofs[] = {heard.proof, heard.proof_back};
  for (int i = 0; i < 2; i++) {
    uint8_t bytes[CVY_HELLO_BYTES];
    fd = dial(f->ports[0]);
    say(fd, heard.hellos[0], CVY_HELLO_BYTES);
    assert_true(hear(fd, bytes, sizeof bytes));
    assert_memory_not_equal(bytes, heard.hellos[1], sizeof bytes); /* a new nonce */
    say(fd, proofs[i], CVY_PROOF_BYTES);
    expect_refused(d, fd, "its --fleet-key is another one");
  }
  end_waiting(d, f);
}

/* A listener without the key is no node for the one that dials. */
static void *wrong_listener(void *arg) {
  const int *const fds = arg;
  for (int i = 0; i < 2; i++) {
    shaken s;
    uint8_t proof[CVY_PROOF_BYTES];
    const int fd = accept(fds[0], NULL, NULL);
    if (fd < 0 || !hear(fd, s.hellos[0], CVY_HELLO_BYTES)) break;
    s.own = (cvy_hello){.version = CVY_HELLO_VERSION, .size = 2, .from = 0, .to = 1, .keyed = true};
    cvy_hello_write(&s.own, s.hellos[1]);
    say(fd, s.hellos[1], CVY_HELLO_BYTES);
    if (hear(fd, proof, sizeof proof)) say(fd, proof, sizeof proof); /* its own proof comes back */
    (void)is_closed(fd);
    close(fd);
  }
  return NULL;
}

CHECK_TEST(wrong_listener) {
  if (no_keys()) check_skip(d, "built without libsodium");
  tcp_fleet *const f = check_own(d, cvy_calloc(1, sizeof *f), cvy_free);
  tcp_fleet_name(f, 2);
  const struct sockaddr_in at = {
      .sin_family = AF_INET, .sin_port = htons((uint16_t)f->ports[0]), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int on = 1;
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  assert_int_equal(bind(listener, (const struct sockaddr *)&at, sizeof at), 0);
  assert_int_equal(listen(listener, 5), 0);
  cvy_thread thread;
  check_ok(cvy_thread_start(&thread, "wrong", wrong_listener, &listener));
  f->items[1].params.key = KEY, f->items[1].params.key_bytes = strlen(KEY), f->items[1].params.wait_seconds = 1;
  check_fails(cvy_link_tcp_open(&f->items[1].params, &f->items[1].link), CVY_E_IO, "did not all come within 1 s");
  assert_true(check_log_contains("is not the right one: its --fleet-key is another one"));
  shutdown(listener, SHUT_RDWR);
  cvy_thread_join(thread);
  close(listener);
}

CHECK_TEST(key_file) {
  static cvy_fleet_key key;
  if (no_keys()) {
    check_fails(cvy_fleet_key_read(check_path("key"), &key), CVY_E_UNSUPPORTED, "built without libsodium");
    check_skip(d, "built without libsodium");
  }
  check_write(check_path("short"), "fifteen bytes..\n", 16);
  check_fails(cvy_fleet_key_read(check_path("short"), &key), CVY_E_ARGUMENT, "16 to 4096 bytes, this one 15");
  check_fails(cvy_fleet_key_read(check_path("none"), &key), CVY_E_IO, "none");
  check_write(check_path("right"), "sixteen bytes...\r\n", 18);
  check_log_clear();
  check_ok(cvy_fleet_key_read(check_path("right"), &key));
  assert_int_equal(key.n, 16);
  assert_true(check_log_contains("other users of this machine can use it"));
  cvy_fleet_key_forget(&key);
  assert_int_equal(key.n + key.bytes[0], 0);
}

/* ---- a peer that has come in, and then sends what no node sends ---- */

typedef struct raw_frame {
  int kind, stream, flags, rest;
  uint32_t round, bytes, zero;
  uint64_t value;
} raw_frame;

static void say_frame(int fd, raw_frame f, size_t body) {
  static const uint8_t nothing[CVY_FRAME_PIECE];
  uint8_t header[CVY_FRAME_HEADER] = {(uint8_t)f.kind, (uint8_t)f.stream, (uint8_t)f.flags, (uint8_t)f.rest};
  memcpy(header + 4, &f.round, 4);
  memcpy(header + 8, &f.bytes, 4);
  memcpy(header + 12, &f.zero, 4);
  memcpy(header + 16, &f.value, 8);
  say(fd, header, sizeof header);
  if (body) say(fd, nothing, body);
}

CHECK_TEST(wrong_frames) {
  enum { U = CVY_LINK_UP, DATA = CVY_FRAME_DATA, CONTROL = CVY_FRAME_CONTROL, CREDIT = CVY_FRAME_CREDIT };
  static const uint64_t window = CVY_TCP_WINDOW;
  const raw_frame rows[] = {
      {.kind = 0},
      {.kind = 99},
      {.kind = CVY_FRAME_START},
      {.kind = CVY_FRAME_PING, .rest = 1},
      {.kind = CVY_FRAME_PING, .zero = 1},
      {.kind = CVY_FRAME_PING, .bytes = 1},
      {.kind = CVY_FRAME_PING, .stream = 1},
      {.kind = CVY_FRAME_PING, .round = 1},
      {.kind = DATA, .stream = CVY_LINK_CONTROL, .flags = 1, .bytes = 8, .value = 8},
      {.kind = DATA, .stream = U, .flags = 2, .bytes = 8, .value = 8},
      {.kind = DATA, .stream = U, .bytes = 8, .value = 8},                             /* a piece of no message */
      {.kind = DATA, .stream = U, .flags = 1, .bytes = 9, .value = 8},                 /* more than the message */
      {.kind = DATA, .stream = U, .flags = 1, .bytes = 0, .value = 8},                 /* no bytes */
      {.kind = DATA, .stream = U, .flags = 1, .bytes = 1, .value = UINT64_MAX},        /* a huge message */
      {.kind = DATA, .stream = U, .flags = 1, .bytes = UINT32_MAX, .value = 1u << 30}, /* a huge piece */
      {.kind = CONTROL, .bytes = CVY_CONTROL_BYTES + 1},
      {.kind = CREDIT, .stream = U, .value = 2 * window}, /* more than was sent */
      {.kind = CREDIT, .stream = U, .value = window - 1}, /* less than before */
      {.kind = CREDIT, .stream = CVY_LINK_CONTROL, .value = window},
  };
  const int n = sizeof rows / sizeof *rows;
  for (int i = 0; i < n + 3; i++) {
    if (!check_case(d, "frame=%d", i)) continue;
    tcp_fleet *const f = begin_waiting(d, NULL);
    const int fd = dial(f->ports[0]);
    int from = -1;
    assert_true(shake(fd, right_hello, NULL).done);
    say_frame(fd, (raw_frame){.kind = CVY_FRAME_START}, 0);
    cvy_thread_join(f->items[0].thread);
    check_ok(f->items[0].status);
    if (i < n) say_frame(fd, rows[i], 0);
    if (i == n) /* more than the window has room for */
      for (uint64_t left = 2 * window; left > window / 2; left -= CVY_FRAME_PIECE)
        say_frame(fd, (raw_frame){DATA, U, left == 2 * window, 0, 0, CVY_FRAME_PIECE, 0, left}, CVY_FRAME_PIECE);
    if (i == n + 1) /* messages without end that no thread receives */
      for (uint64_t k = 0; k <= window / CVY_INBOX_MESSAGE; k++)
        say_frame(fd, (raw_frame){.kind = DATA, .stream = U, .flags = 1}, 0);
    if (i == n + 2)
      for (uint64_t k = 0; k <= window / CVY_INBOX_MESSAGE; k++) say_frame(fd, (raw_frame){.kind = CONTROL}, 0);
    cvy_link_news news = cvy_link_poll(f->items[0].link, 5, &from);
    for (int k = 0; i == n + 2 && news == CVY_LINK_MESSAGE && k < 3000; k++) {
      usleep(1000);
      if (check_log_contains("too many control messages")) break;
    }
    if (i != n + 2 && (news != CVY_LINK_SILENT || from != 1)) check_fail(d, "news %d of node %d", news, from);
    if (i == n + 2 && !check_log_contains("too many control messages")) check_fail(d, "%s", check_log_get());
    close(fd);
    tcp_fleet_close(f);
    check_case_end(d);
  }
}

typedef struct long_send {
  cvy_thread thread;
  cvy_link *link;
  cvy_stream stream;
  cvy_status status;
} long_send;

enum { LONG_PIECES = 12 };

static void *run_long_send(void *arg) {
  static const uint8_t bytes[LONG_PIECES * CVY_FRAME_PIECE];
  long_send *const s = arg;
  s->status = cvy_link_send(s->link, 1, s->stream, bytes, sizeof bytes);
  return NULL;
}

/* Until both streams to node 1 have a message under way; small buffers of the system keep them from ending. */
static void begin_both(cvy_link *link, int fd, long_send sends[2]) {
  cvy_tcp *const t = (cvy_tcp *)link;
  const int few = 64 * 1024;
  assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &few, sizeof few), 0);
  assert_int_equal(setsockopt(t->peers[1].fd, SOL_SOCKET, SO_SNDBUF, &few, sizeof few), 0);
  for (int s = 0; s < 2; s++) {
    sends[s] = (long_send){.link = link, .stream = s == 0 ? CVY_LINK_UP : CVY_LINK_DOWN};
    check_ok(cvy_thread_start(&sends[s].thread, "send", run_long_send, &sends[s]));
  }
  for (bool both = false; !both; usleep(1000)) {
    cvy_mutex_lock(&t->lock);
    both = t->peers[1].outboxes[CVY_LINK_UP].data && t->peers[1].outboxes[CVY_LINK_DOWN].data;
    cvy_mutex_unlock(&t->lock);
  }
}

/* Two long messages at once go out piece by piece in turn: neither waits for the other's end. */
CHECK_TEST(both_streams) {
  static uint8_t body[CVY_FRAME_PIECE];
  tcp_fleet *const f = begin_waiting(d, NULL);
  const int fd = dial(f->ports[0]);
  long_send sends[2];
  int pieces[2] = {0}, together = 0, in_turn = 0, last = -1;
  assert_true(shake(fd, right_hello, NULL).done);
  say_frame(fd, (raw_frame){.kind = CVY_FRAME_START}, 0);
  cvy_thread_join(f->items[0].thread);
  check_ok(f->items[0].status);
  begin_both(f->items[0].link, fd, sends);
  while (pieces[0] + pieces[1] < 2 * LONG_PIECES) {
    uint8_t header[CVY_FRAME_HEADER];
    cvy_frame frame = {0};
    if (!hear(fd, header, sizeof header)) check_fail(d, "node 0 says no more: %s", check_log_get());
    assert_null(cvy_frame_read(header, UINT64_MAX, &frame));
    if (!hear(fd, body, frame.bytes)) check_fail(d, "node 0 says no more: %s", check_log_get());
    if (frame.kind != CVY_FRAME_DATA) continue;
    const int s = frame.stream == CVY_LINK_UP ? 0 : 1;
    if (pieces[0] < LONG_PIECES && pieces[1] < LONG_PIECES && last >= 0) together++, in_turn += s != last;
    pieces[s]++;
    last = s;
  }
  /* all but those that went out before the second thread came */
  if (in_turn < LONG_PIECES || together - in_turn > 4)
    check_fail(d, "of %d pieces of two messages %d came in turn", together, in_turn);
  for (int s = 0; s < 2; s++) {
    cvy_thread_join(sends[s].thread);
    check_ok(sends[s].status);
  }
  close(fd);
  tcp_fleet_close(f);
}

/* Whatever comes behind a right handshake, node 0 goes on. */
CHECK_TEST(random_frames) {
  case_rng r = check_rng_make(d, 2);
  for (int i = 0; i < 25; i++) {
    if (!check_case(d, "random frames=%d", i)) continue;
    tcp_fleet *const f = begin_waiting(d, NULL);
    const int fd = dial(f->ports[0]);
    int from = -1;
    assert_true(shake(fd, right_hello, NULL).done);
    say_frame(fd, (raw_frame){.kind = CVY_FRAME_START}, 0);
    for (int k = 0; k < 30; k++) {
      const int kind = case_int(&r, 2, 5), bytes = case_int(&r, 0, 2000);
      const bool data = kind == CVY_FRAME_DATA, control = kind == CVY_FRAME_CONTROL;
      const uint32_t length = data || control ? (uint32_t)(control && bytes > 1024 ? 1024 : bytes) : 0;
      say_frame(fd,
                (raw_frame){.kind = kind,
                            .stream = data || kind == CVY_FRAME_CREDIT ? case_int(&r, 0, 1) : 0,
                            .flags = data && case_int(&r, 0, 9) > 0,
                            .round = data ? (uint32_t)case_int(&r, 0, 2) : 0,
                            .bytes = length,
                            .value = data ? length + (uint64_t)case_int(&r, 0, 1) * 100 : 0},
                length);
    }
    cvy_thread_join(f->items[0].thread);
    check_ok(f->items[0].status);
    close(fd);
    uint8_t byte;
    while (cvy_link_poll(f->items[0].link, 5, &from) == CVY_LINK_MESSAGE) {
      uint8_t bytes[1024];
      cvy_status status = CVY_E_MISMATCH;
      cvy_log_attempt_begin();
      for (size_t size = 0; size <= 1024 && status == CVY_E_MISMATCH; size++)
        status = cvy_link_receive(f->items[0].link, 1, CVY_LINK_CONTROL, bytes, size);
      cvy_log_attempt_end(false);
    }
    assert_int_equal(cvy_link_receive(f->items[0].link, 1, CVY_LINK_UP, &byte, 1), CVY_E_INTERRUPTED);
    tcp_fleet_close(f);
    check_case_end(d);
  }
}

/* ---- --nodes, --node, --port ---- */

CHECK_TEST(nodes) {
  static cvy_tcp_nodes n;
  check_ok(cvy_tcp_nodes_read("pc1,pc2:7071,[fd00::2]:7072,[::1],10.0.0.4", 7070, &n));
  static const char *const hosts[] = {"pc1", "pc2", "fd00::2", "::1", "10.0.0.4"};
  static const int ports[] = {7070, 7071, 7072, 7070, 7070};
  assert_int_equal(n.n, 5);
  for (int i = 0; i < 5; i++) {
    assert_string_equal(n.items[i].host, hosts[i]);
    assert_int_equal(n.items[i].port, ports[i]);
  }
  assert_string_equal(n.items[2].name, "[fd00::2]:7072");
  check_fails(cvy_tcp_nodes_read("", 7070, &n), CVY_E_ARGUMENT, "a node without a name");
  check_fails(cvy_tcp_nodes_read("pc1,,pc2", 7070, &n), CVY_E_ARGUMENT, "a node without a name");
  check_fails(cvy_tcp_nodes_read("pc1,:7070", 7070, &n), CVY_E_ARGUMENT, "a node without a host");
  check_fails(cvy_tcp_nodes_read("pc1,fd00::2", 7070, &n), CVY_E_ARGUMENT, "stands in brackets");
  check_fails(cvy_tcp_nodes_read("pc1,[fd00::2", 7070, &n), CVY_E_ARGUMENT, "stands in brackets");
  check_fails(cvy_tcp_nodes_read("pc1,[fd00::2]7070", 7070, &n), CVY_E_ARGUMENT, "stands in brackets");
  check_fails(cvy_tcp_nodes_read("pc1:0", 7070, &n), CVY_E_ARGUMENT, "a number from 1 to 65535");
  check_fails(cvy_tcp_nodes_read("pc1:", 7070, &n), CVY_E_ARGUMENT, "a number from 1 to 65535");
  check_fails(cvy_tcp_nodes_read("pc1:65536", 7070, &n), CVY_E_ARGUMENT, "a number from 1 to 65535");
  check_fails(cvy_tcp_nodes_read("pc1:7070,pc2", 0, &n), CVY_E_ARGUMENT, "without --port");
  check_fails(cvy_tcp_nodes_read("pc1,pc2,pc1:7070", 7070, &n), CVY_E_ARGUMENT, "pc1:7070 stands there twice");
  check_fails(cvy_tcp_nodes_read("a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p,q,r,s,t,u,v,w,x,y,z,A,B,C,D,E,F,G,H,I,J,K,L,M,N,O,P,"
                                 "Q,"
                                 "R,S,T,U,V,W,X,Y,Z,0,1,2,3,4,5,6,7,8,9,aa,bb,cc",
                                 7070, &n),
              CVY_E_ARGUMENT, "at most 64");
}

CHECK_TEST(own_place) {
  cvy_link *link = NULL;
  cvy_link_tcp_params p = {.nodes = "127.0.0.1:9,127.0.0.1:10", .rank = 2};
  check_fails(cvy_link_tcp_open(&p, &link), CVY_E_ARGUMENT, "--node 2: --nodes has 2 nodes");
  p = (cvy_link_tcp_params){.nodes = "192.0.2.1:7070,127.0.0.1:7071", .rank = 0};
  check_fails(cvy_link_tcp_open(&p, &link), CVY_E_ARGUMENT, "192.0.2.1:7070 is not an address of this machine");
  p = (cvy_link_tcp_params){.nodes = "127.0.1.1,192.0.2.1", .rank = 0, .port = tcp_free_port()};
  check_fails(cvy_link_tcp_open(&p, &link), CVY_E_ARGUMENT, "127.0.1.1 is an address of this machine alone");
  p = (cvy_link_tcp_params){.nodes = "no-such-host.invalid,127.0.0.1", .rank = 1, .port = tcp_free_port()};
  cvy_log_attempt_begin();
  const cvy_status status = cvy_link_tcp_open(&p, &link);
  cvy_log_attempt_end(false);
  assert_true(status == CVY_E_ARGUMENT || status == CVY_E_IO); /* IO: no name server answers here */
  assert_null(link);
}

/* It listens on the address of its own name, and on no other one; the port must be free. */
CHECK_TEST(listens) {
  tcp_fleet *const f = begin_waiting(d, NULL);
  const int fd = dial(f->ports[0]);
  close(fd);
  struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)f->ports[0])};
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK + 1); /* 127.0.0.2 */
  const int other = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  assert_int_equal(connect(other, (const struct sockaddr *)&at, sizeof at), -1);
  close(other);
  cvy_link *link = NULL;
  check_fails(cvy_link_tcp_open(&f->items[0].params, &link), CVY_E_IO, "cannot listen on 127.0.0.1");
  end_waiting(d, f);
}

static void *stop_soon(void *stop) {
  usleep(100000);
  cvy_stop_request(stop);
  return NULL;
}

CHECK_TEST(waiting_ends) {
  static cvy_stop stop;
  tcp_fleet *const f = check_own(d, cvy_calloc(1, sizeof *f), cvy_free);
  cvy_thread thread;
  tcp_fleet_name(f, 3);
  f->items[1].params.wait_seconds = 1.3;
  check_fails(cvy_link_tcp_open(&f->items[1].params, &f->items[1].link), CVY_E_IO, "did not all come within 1.3 s");
  assert_true(
      check_log_contains(check_text("node 1 of 3 waits for 127.0.0.1:%d, 127.0.0.1:%d", f->ports[0], f->ports[2])));
  f->items[1].params.stop = &stop;
  f->items[1].params.wait_seconds = 0;
  check_ok(cvy_thread_start(&thread, "stop", stop_soon, &stop));
  const uint64_t begun_ns = cvy_clock_ns();
  check_fails(cvy_link_tcp_open(&f->items[1].params, &f->items[1].link), CVY_E_INTERRUPTED, "stopped while waiting");
  assert_true(cvy_clock_seconds_since(begun_ns) < 2);
  cvy_thread_join(thread);
}

/* A node that comes, goes, and comes again while others are still waited for. */
CHECK_TEST(comes_again) {
  tcp_fleet *const f = check_own(d, cvy_calloc(1, sizeof *f), cvy_free);
  tcp_fleet_name(f, 3);
  cvy_link_tcp_params impatient = f->items[2].params;
  impatient.wait_seconds = 0.5;
  check_ok(cvy_thread_start(&f->items[0].thread, "node", tcp_node_open, &f->items[0]));
  check_fails(cvy_link_tcp_open(&impatient, &f->items[2].link), CVY_E_IO, "did not all come");
  for (int i = 0; i < 200 && !check_log_contains("has gone; waiting for it again"); i++) usleep(5000);
  assert_true(check_log_contains("has gone; waiting for it again"));
  for (int i = 1; i < 3; i++) check_ok(cvy_thread_start(&f->items[i].thread, "node", tcp_node_open, &f->items[i]));
  for (int i = 0; i < 3; i++) cvy_thread_join(f->items[i].thread);
  for (int i = 0; i < 3; i++) check_ok(f->items[i].status);
  tcp_fleet_close(f);
}

static int lines_with(const char *word) {
  int n = 0;
  for (const char *at = check_log_get(); (at = strstr(at, word)); at += strlen(word)) n++;
  return n;
}

/* Node 0 of three waits for node 2; peers of this test come as node 1, one after the other. */
static tcp_fleet *begin_displacing(check_device *d, const char *key, int peers[2]) {
  static const cvy_hello hello = {.version = CVY_HELLO_VERSION, .size = 3, .from = 1, .to = 0};
  tcp_fleet *const f = check_own(d, cvy_calloc(1, sizeof *f), cvy_free);
  tcp_fleet_name(f, 3);
  for (int i = 0; i < 3; i++) {
    f->items[i].params.key = key;
    f->items[i].params.key_bytes = key ? strlen(key) : 0;
  }
  check_ok(cvy_thread_start(&f->items[0].thread, "node", tcp_node_open, &f->items[0]));
  for (int i = 0; i < 2; i++) {
    cvy_hello own = hello;
    own.keyed = key != NULL;
    peers[i] = dial(f->ports[0]);
    assert_true(shake(peers[i], own, key).done);
  }
  return f;
}

static void end_displacing(check_device *d, tcp_fleet *f) {
  for (int i = 1; i < 3; i++) check_ok(cvy_thread_start(&f->items[i].thread, "node", tcp_node_open, &f->items[i]));
  for (int i = 0; i < 3; i++) cvy_thread_join(f->items[i].thread);
  for (int i = 0; i < 3; i++) check_ok(f->items[i].status);
  tcp_fleet_close(f);
  check_case_end(d);
}

/* Without a key nobody takes the place of a node that has come, and many who try make few lines. When its connection
 * ends, also behind its START, its place is free. */
CHECK_TEST(displaced) {
  int peers[2];
  uint8_t start[CVY_FRAME_HEADER];
  const cvy_hello hello = {.version = CVY_HELLO_VERSION, .size = 3, .from = 1, .to = 0};
  tcp_fleet *const f = begin_displacing(d, NULL, peers);
  expect_refused(d, peers[1], "it calls itself node 1 (");
  for (int i = 0; i < 100; i++) {
    const int fd = dial(f->ports[0]);
    (void)shake(fd, hello, NULL);
    assert_true(is_closed(fd));
    close(fd);
  }
  assert_true(lines_with("it calls itself") < 40);
  assert_int_equal(recv(peers[0], start, 1, MSG_DONTWAIT), -1); /* it is still there */
  assert_int_equal(errno, EAGAIN);
  cvy_frame_write(&(cvy_frame){.kind = CVY_FRAME_START}, start);
  say(peers[0], start, sizeof start);
  close(peers[0]);
  end_displacing(d, f);
}

/* A key is a proof: a node that was started anew takes its own place, as its old connection may stay for long. */
CHECK_TEST(displaced_with_a_key) {
  int peers[2];
  if (cvy_key_init() != CVY_OK) skip();
  tcp_fleet *const f = begin_displacing(d, KEY, peers);
  assert_true(is_closed(peers[0]));
  assert_true(check_log_contains("has come again"));
  for (int i = 0; i < 2; i++) close(peers[i]);
  end_displacing(d, f);
}

int main(int argc, char **argv) { return check_run(argc, argv, CHECK_HOST); }
