/* SPDX-License-Identifier: MIT */
#include "src/link/tcp_meet.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "src/base/clock.h"
#include "src/base/failure.h"
#include "src/base/mem.h"
#include "src/base/text.h"
#include "src/link/tcp_frame.h"
#include "src/link/tcp_key.h"
#include "src/link/tcp_shake.h"
#include "src/link/tcp_socket.h"

/* LISTENERS: addresses of one host name. STRANGERS: connections that have come and proved nothing yet. */
enum { LISTENERS = 4, STRANGERS = 32, WARNINGS = 32, TICK_MS = 100 };
/* Lines on who waits for whom; after so many of them they come less often, for as long as the meeting lasts. */
enum { NAMED_OFTEN = 32 };

typedef struct other_node {
  struct addrinfo *addresses, *next; /* next: to be dialled */
  cvy_shake dialled;                 /* fd -1: not now */
  uint64_t dial_ns;                  /* not before */
  char refused[160];                 /* why the last time, so that no reason is logged twice */
  int fd;                            /* has proved itself; -1: not yet */
  bool start_sent;
  size_t n_start; /* bytes of its START that have come */
  uint8_t start[CVY_FRAME_HEADER];
} other_node;

typedef struct meeting {
  const cvy_tcp_meet_params *params;
  int listeners[LISTENERS], n_listeners;
  cvy_shake strangers[STRANGERS];
  other_node others[CVY_NODES_MOST];
  int n_warnings, n_said;
  uint64_t begun_ns, said_ns;
  cvy_text said; /* the nodes that the last message named */
} meeting;

static int size_of(const meeting *m) { return m->params->nodes->n; }
static const char *name_of(const meeting *m, int rank) { return m->params->nodes->items[rank].name; }
static uint64_t in_ns(double seconds) { return cvy_clock_ns() + (uint64_t)(1e9 * seconds); }

/* ---- addresses ---- */

static cvy_status resolve(meeting *m) {
  cvy_status status = CVY_OK;
  const int own = m->params->rank;
  bool all_loopback = true, far = false;
  for (int i = 0; i < size_of(m); i++) {
    /* Nodes of higher rank dial this one, which need not know where they are. */
    if (i > own) cvy_log_attempt_begin();
    const cvy_status found = cvy_tcp_resolve(&m->params->nodes->items[i], &m->others[i].addresses);
    if (i > own) cvy_log_attempt_end(false);
    if (i <= own) CVY_TRY(found);
    for (const struct addrinfo *a = m->others[i].addresses; a; a = a->ai_next) {
      if (i == own) all_loopback = all_loopback && cvy_tcp_is_loopback(a);
      else far = far || !cvy_tcp_is_loopback(a);
    }
  }
  CVY_REQUIRE(!all_loopback || !far || own == size_of(m) - 1, CVY_E_ARGUMENT,
              "--nodes: %s is an address of this machine alone (see /etc/hosts), where no other node reaches it; name "
              "this "
              "node by its address in the network",
              name_of(m, own));
fail:
  return status;
}

static cvy_status listen_all(meeting *m) {
  cvy_status status = CVY_OK;
  const int own = m->params->rank;
  for (const struct addrinfo *a = size_of(m) > 1 ? m->others[own].addresses : NULL; a && m->n_listeners < LISTENERS;
       a = a->ai_next) {
    const int fd = cvy_tcp_bind(a);
    char text[CVY_ADDRESS_TEXT];
    cvy_tcp_address_text(a->ai_addr, a->ai_addrlen, text);
    CVY_REQUIRE(fd >= 0 || errno != EADDRNOTAVAIL, CVY_E_ARGUMENT,
                "--node %d is %s, but %s is not an address of this machine; --node says which of --nodes runs here",
                own, name_of(m, own), text);
    CVY_REQUIRE(fd >= 0, CVY_E_IO, "node %d (%s) cannot listen on %s: %s", own, name_of(m, own), text, strerror(errno));
    m->listeners[m->n_listeners++] = fd;
    CVY_REQUIRE(own == size_of(m) - 1 || listen(fd, SOMAXCONN) == 0, CVY_E_IO, "node %d (%s) cannot listen on %s: %s",
                own, name_of(m, own), text, strerror(errno));
  }
fail:
  return status;
}

/* ---- refusing ---- */

/* False: peers have made lines enough. */
static bool may_warn(meeting *m) {
  if (m->n_warnings++ < WARNINGS) return true;
  if (m->n_warnings == WARNINGS + 1) cvy_log_warning("more such peers are refused without a message");
  return false;
}

static void warn(meeting *m, const char *address, const char *why) {
  if (may_warn(m)) cvy_log_warning("refused %s on this node's port: %s", address, why);
}

static void refuse_stranger(meeting *m, cvy_shake *s, const char *why) {
  warn(m, s->address, why);
  cvy_shake_end(s);
}

/* A node that was dialled is not there yet (`why` NULL), or is not the right one. */
static void dial_again(meeting *m, int rank, const char *why) {
  other_node *const o = &m->others[rank];
  cvy_shake_end(&o->dialled);
  o->next = o->next->ai_next ? o->next->ai_next : o->addresses;
  o->dial_ns = in_ns(why ? 2 : 0.25);
  if (!why || strcmp(o->refused, why) == 0) return;
  snprintf(o->refused, sizeof o->refused, "%s", why);
  if (may_warn(m)) cvy_log_warning("node %d (%s) is not the right one: %s; trying again", rank, name_of(m, rank), why);
}

/* ---- nodes that are there ---- */

static void forget(other_node *o) {
  if (o->fd >= 0) close(o->fd);
  o->fd = -1, o->start_sent = false, o->n_start = 0;
}

/* The handshake is done. A node that has come before and comes again was started anew, if it has proved that it has the
 * key. Without one it may be any program: the first stays, as long as its connection does. */
static void welcome(meeting *m, cvy_shake *s) {
  other_node *const o = &m->others[s->rank];
  if (o->fd >= 0 && m->params->n_key == 0) {
    char why[CVY_NODE_HOST + 80];
    snprintf(why, sizeof why, "it calls itself node %d (%s), which has come and is connected", s->rank,
             name_of(m, s->rank));
    refuse_stranger(m, s, why);
    return;
  }
  if (o->fd >= 0 && may_warn(m)) cvy_log_info("node %d (%s) has come again", s->rank, name_of(m, s->rank));
  forget(o);
  o->fd = s->fd;
  s->fd = -1;
  cvy_tcp_keep_alive(o->fd); /* a machine that has lost its power closes nothing */
}

static void lose(meeting *m, int rank) {
  if (may_warn(m)) cvy_log_info("node %d (%s) has gone; waiting for it again", rank, name_of(m, rank));
  forget(&m->others[rank]);
}

static bool send_start(int fd) {
  uint8_t header[CVY_FRAME_HEADER];
  cvy_frame_write(&(cvy_frame){.kind = CVY_FRAME_START}, header);
  return send(fd, header, sizeof header, MSG_NOSIGNAL) == (ssize_t)sizeof header;
}

static void read_start(meeting *m, int rank) {
  other_node *const o = &m->others[rank];
  const ssize_t n = recv(o->fd, o->start + o->n_start, sizeof o->start - o->n_start, 0);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (n > 0) o->n_start += (size_t)n;
  cvy_frame frame;
  const bool wrong =
      o->n_start == sizeof o->start && (cvy_frame_read(o->start, 0, &frame) != NULL || frame.kind != CVY_FRAME_START);
  if (n <= 0 || wrong) lose(m, rank);
}

/* True: all nodes are there and know it of each other. */
static bool all_started(meeting *m) {
  bool all = true;
  for (int i = 0; i < size_of(m); i++) all = all && (i == m->params->rank || m->others[i].fd >= 0);
  if (!all) return false;
  for (int i = 0; i < size_of(m); i++) {
    other_node *const o = &m->others[i];
    if (i == m->params->rank) continue;
    if (!o->start_sent && !send_start(o->fd)) forget(o);
    else o->start_sent = true;
    all = all && o->n_start == CVY_FRAME_HEADER;
  }
  return all;
}

/* "pc2, pc3": the nodes that are not there. */
static cvy_text missing(meeting *m) {
  cvy_text text = {0};
  for (int i = 0; i < size_of(m); i++)
    if (i != m->params->rank && m->others[i].fd < 0) cvy_text_add(&text, "%s%s", text.size ? ", " : "", name_of(m, i));
  return text;
}

/* Names the nodes that are not there: when that changes, and every half minute. */
static void say(meeting *m) {
  if (cvy_clock_seconds_since(m->said_ns) < 1) return;
  cvy_text text = missing(m);
  const bool changed = m->n_said < NAMED_OFTEN && strcmp(cvy_text_get(&text), cvy_text_get(&m->said)) != 0;
  if (text.size && (changed || cvy_clock_seconds_since(m->said_ns) > 30)) {
    m->n_said++;
    cvy_log_info("node %d of %d waits for %s", m->params->rank, size_of(m), cvy_text_get(&text));
    m->said_ns = cvy_clock_ns();
    cvy_text_clear(&m->said);
    m->said = text;
  } else cvy_text_clear(&text);
}

/* ---- one round of the loop ---- */

static void dial_all(meeting *m) {
  for (int i = 0; i < m->params->rank; i++) {
    other_node *const o = &m->others[i];
    if (o->fd >= 0 || o->dialled.fd >= 0 || cvy_clock_ns() < o->dial_ns) continue;
    char text[CVY_ADDRESS_TEXT];
    cvy_tcp_address_text(o->next->ai_addr, o->next->ai_addrlen, text);
    const int fd = cvy_tcp_dial(o->next);
    if (fd < 0) dial_again(m, i, NULL);
    else cvy_shake_begin(&o->dialled, fd, i, text, in_ns(m->params->hello_seconds));
  }
}

/* A flood of silent connections does not keep a node out: the oldest of them makes room. */
static void accept_one(meeting *m, int listener) {
  char from[CVY_ADDRESS_TEXT];
  const int fd = cvy_tcp_accept(listener, from);
  if (fd < 0) return;
  cvy_shake *place = &m->strangers[0];
  for (int i = 0; i < STRANGERS; i++) {
    cvy_shake *const s = &m->strangers[i];
    if (s->fd < 0) {
      place = s;
      break;
    }
    if (s->deadline_ns < place->deadline_ns) place = s;
  }
  if (place->fd >= 0) refuse_stranger(m, place, "it sends nothing, and others wait");
  cvy_shake_begin(place, fd, -1, from, in_ns(m->params->hello_seconds));
}

static void go_on(meeting *m, cvy_shake *s, bool ready) {
  const int dialled = s->dials ? s->rank : -1;
  const char *why = NULL;
  cvy_shake_result result = ready ? cvy_shake_go_on(s, m->params, &why) : CVY_SHAKE_WAITS;
  if (result == CVY_SHAKE_WAITS && cvy_clock_ns() >= s->deadline_ns) result = CVY_SHAKE_LATE;
  if (result == CVY_SHAKE_DONE) welcome(m, s);
  else if (result == CVY_SHAKE_WAITS) return;
  else if (dialled >= 0) dial_again(m, dialled, result == CVY_SHAKE_WRONG ? why : NULL);
  else
    refuse_stranger(m, s,
                    result == CVY_SHAKE_WRONG  ? why
                    : result == CVY_SHAKE_LATE ? "it sends nothing, or too little"
                                               : "it has hung up");
}

enum { POLLED_MOST = LISTENERS + STRANGERS + 2 * CVY_NODES_MOST };

/* Waits for one of the sockets, and does what it asks for. */
static void poll_all(meeting *m) {
  struct pollfd fds[POLLED_MOST];
  int n = 0;
  for (int i = 0; i < m->n_listeners && m->params->rank < size_of(m) - 1; i++)
    fds[n++] = (struct pollfd){.fd = m->listeners[i], .events = POLLIN};
  const int n_listeners = n;
  cvy_shake *shakes[STRANGERS + CVY_NODES_MOST];
  for (int i = 0; i < STRANGERS; i++)
    if (m->strangers[i].fd >= 0) shakes[n++ - n_listeners] = &m->strangers[i];
  for (int i = 0; i < size_of(m); i++)
    if (m->others[i].dialled.fd >= 0) shakes[n++ - n_listeners] = &m->others[i].dialled;
  const int n_shakes = n - n_listeners;
  for (int i = 0; i < n_shakes; i++)
    fds[n_listeners + i] = (struct pollfd){.fd = shakes[i]->fd, .events = cvy_shake_events(shakes[i])};
  int ranks[CVY_NODES_MOST];
  for (int i = 0; i < size_of(m); i++) {
    const other_node *const o = &m->others[i];
    if (o->fd < 0) continue;
    ranks[n - n_listeners - n_shakes] = i;
    /* behind START come frames of the link */
    fds[n++] = (struct pollfd){.fd = o->fd, .events = o->n_start == CVY_FRAME_HEADER ? POLLRDHUP : POLLIN};
  }
  if (poll(fds, (nfds_t)n, TICK_MS) < 0) return;
  /* Nodes first, listeners last: a new connection may take the place of a stranger, or of a node that had gone. */
  for (int i = n_listeners + n_shakes; i < n; i++) {
    if (!fds[i].revents) continue;
    if (fds[i].events == POLLIN) read_start(m, ranks[i - n_listeners - n_shakes]);
    else lose(m, ranks[i - n_listeners - n_shakes]);
  }
  for (int i = 0; i < n_shakes; i++) go_on(m, shakes[i], fds[n_listeners + i].revents != 0);
  for (int i = 0; i < n_listeners; i++)
    if (fds[i].revents) accept_one(m, m->listeners[i]);
}

static void end_meeting(meeting *m) {
  for (int i = 0; i < m->n_listeners; i++) close(m->listeners[i]);
  for (int i = 0; i < STRANGERS; i++) cvy_shake_end(&m->strangers[i]);
  for (int i = 0; i < size_of(m); i++) {
    cvy_shake_end(&m->others[i].dialled);
    if (m->others[i].addresses) freeaddrinfo(m->others[i].addresses);
    if (m->others[i].fd >= 0) close(m->others[i].fd);
  }
  cvy_text_clear(&m->said);
}

cvy_status cvy_tcp_meet(const cvy_tcp_meet_params *params, int sockets[CVY_NODES_MOST]) {
  cvy_status status = CVY_OK;
  meeting *const m = cvy_calloc(1, sizeof *m);
  CVY_REQUIRE(m, CVY_E_MEMORY, "no memory to meet the other nodes");
  m->params = params;
  m->begun_ns = m->said_ns = cvy_clock_ns();
  for (int i = 0; i < STRANGERS; i++) m->strangers[i].fd = -1;
  for (int i = 0; i < size_of(m); i++) m->others[i].fd = m->others[i].dialled.fd = -1;
  CVY_TRY(resolve(m));
  for (int i = 0; i < size_of(m); i++) m->others[i].next = m->others[i].addresses;
  CVY_TRY(listen_all(m));
  while (!all_started(m)) {
    CVY_REQUIRE(!cvy_stop_requested(params->stop), CVY_E_INTERRUPTED, "stopped while waiting for the other nodes");
    if (cvy_clock_seconds_since(m->begun_ns) > params->wait_seconds) {
      cvy_text_clear(&m->said);
      m->said = missing(m);
      CVY_FAIL(CVY_E_IO, "the nodes of the fleet did not all come within %g s; missing: %s", params->wait_seconds,
               m->said.size ? cvy_text_get(&m->said) : "a word of one that all have met");
    }
    dial_all(m);
    poll_all(m);
    say(m);
  }
  for (int i = 0; i < size_of(m); i++) sockets[i] = m->others[i].fd, m->others[i].fd = -1;
fail:
  if (m) end_meeting(m);
  cvy_free(m);
  return status;
}
