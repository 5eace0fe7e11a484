/* SPDX-License-Identifier: MIT
 * The functions of a link. The callers' threads. */
#include "src/link/tcp.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "src/base/clock.h"
#include "src/base/mem.h"
#include "src/link/tcp_inside.h"
#include "src/link/tcp_key.h"
#include "src/link/tcp_meet.h"
#include "src/link/tcp_socket.h"

static bool is_gone(const cvy_tcp_peer *p) { return p->left || p->lost != CVY_LINK_NOTHING; }

static cvy_status send_control(cvy_tcp *t, cvy_tcp_peer *p, const void *data, size_t bytes) {
  cvy_status status = CVY_OK;
  CVY_ASSERT(bytes <= CVY_CONTROL_BYTES);
  cvy_mutex_lock(&t->lock);
  if (is_gone(p)) status = CVY_E_INTERRUPTED;
  else if (!cvy_tcp_ready(p, &(cvy_frame){.kind = CVY_FRAME_CONTROL, .bytes = (uint32_t)bytes}, data)) {
    cvy_log_error("too many control messages wait for node %d (%s)", p->rank, t->names[p->rank]);
    status = CVY_E_MEMORY;
  } else cvy_tcp_wake(t);
  cvy_mutex_unlock(&t->lock);
  return status;
}

static cvy_status tcp_send(cvy_link *link, int to, cvy_stream stream, const void *data, size_t bytes) {
  cvy_tcp *const t = (cvy_tcp *)link;
  CVY_ASSERT(to >= 0 && to < link->size && to != link->rank);
  cvy_tcp_peer *const p = &t->peers[to];
  if (stream == CVY_LINK_CONTROL) return send_control(t, p, data, bytes);
  CVY_ASSERT(bytes <= t->most_bytes);
  cvy_tcp_outbox *const o = &p->outboxes[stream];
  cvy_status status = CVY_E_INTERRUPTED;
  cvy_mutex_lock(&t->lock);
  if (!is_gone(p) && !t->round_over) {
    o->data = bytes ? data : (const uint8_t *)""; /* an empty message may have no address */
    o->bytes = bytes, o->sent = 0, o->first = true;
    cvy_tcp_wake(t);
    while (o->data && ((!t->round_over && !p->left) || cvy_tcp_is_writing(p, stream)))
      cvy_cond_wait(&o->changed, &t->lock);
    if (o->data) cvy_tcp_break_off(p, stream);
    else status = CVY_OK;
  }
  cvy_mutex_unlock(&t->lock);
  return status;
}

/* Copies what lies in the ring; the I/O thread goes on meanwhile. */
static void take_stored(cvy_tcp *t, cvy_inbox *inbox, uint8_t *to) CVY_HOLDS(t->lock);
static void take_stored(cvy_tcp *t, cvy_inbox *inbox, uint8_t *to) {
  uint64_t n;
  const uint8_t *const from = cvy_inbox_stored(inbox, &n);
  cvy_mutex_unlock(&t->lock);
  memcpy(to, from, n);
  cvy_mutex_lock(&t->lock);
  cvy_inbox_take(inbox, n);
  if (cvy_inbox_credit(inbox)) cvy_tcp_wake(t);
}

static void refuse_size(cvy_tcp *t, cvy_tcp_peer *p, uint64_t came, size_t expected) CVY_HOLDS(t->lock);
static void refuse_size(cvy_tcp *t, cvy_tcp_peer *p, uint64_t came, size_t expected) {
  char why[120];
  snprintf(why, sizeof why, "sent a message of %llu bytes where this node expects %zu", (unsigned long long)came,
           expected);
  cvy_tcp_refuse(t, p, why);
}

static cvy_status tcp_receive(cvy_link *link, int from, cvy_stream stream, void *data, size_t bytes) {
  cvy_tcp *const t = (cvy_tcp *)link;
  CVY_ASSERT(from >= 0 && from < link->size && from != link->rank);
  cvy_tcp_peer *const p = &t->peers[from];
  cvy_inbox *const inbox = &p->inboxes[stream];
  const bool control = stream == CVY_LINK_CONTROL;
  cvy_status status = CVY_OK;
  bool done = false;
  cvy_mutex_lock(&t->lock);
  while (!done) {
    const bool open = !p->refused && (control || !t->round_over);
    const cvy_inbox_message *const m = open ? cvy_inbox_first(inbox) : NULL;
    const bool mine = m && (control || m->round == t->round);
    if (mine && m->bytes != bytes) {
      refuse_size(t, p, m->bytes, bytes);
      status = CVY_E_INTERRUPTED, done = true;
    } else if (mine && m->arrived > m->taken) {
      take_stored(t, inbox, (uint8_t *)data + m->taken);
    } else if (mine && m->taken == m->bytes) {
      cvy_inbox_drop(inbox);
      if (cvy_inbox_credit(inbox)) cvy_tcp_wake(t);
      done = true;
    } else if ((!control && t->round_over) || is_gone(p)) {
      status = CVY_E_INTERRUPTED, done = true;
    } else {
      inbox->posted = data, inbox->posted_bytes = bytes;
      cvy_cond_wait(&p->arrived[stream], &t->lock);
      inbox->posted = NULL;
      while (inbox->direct) cvy_cond_wait(&p->arrived[stream], &t->lock); /* the I/O thread is writing to `data` */
    }
  }
  cvy_mutex_unlock(&t->lock);
  return status;
}

/* Control messages of a node come before its end. */
static cvy_link_news look(cvy_tcp *t, int *from) CVY_HOLDS(t->lock);
static cvy_link_news look(cvy_tcp *t, int *from) {
  const int size = t->link.size;
  for (int i = 0; i < size; i++) {
    const int rank = (t->poll_from + i) % size;
    cvy_tcp_peer *const p = &t->peers[rank];
    if (rank == t->link.rank) continue;
    const cvy_inbox_message *const m = cvy_inbox_first(&p->inboxes[CVY_LINK_CONTROL]);
    const bool message = m && m->arrived == m->bytes && !p->refused;
    if (!message && (!is_gone(p) || p->told)) continue;
    if (!message) p->told = true;
    *from = rank;
    t->poll_from = (rank + 1) % size;
    return message ? CVY_LINK_MESSAGE : p->left ? CVY_LINK_LEFT : p->lost;
  }
  return CVY_LINK_NOTHING;
}

static cvy_link_news tcp_poll(cvy_link *link, double seconds, int *from) {
  cvy_tcp *const t = (cvy_tcp *)link;
  const uint64_t begun_ns = cvy_clock_ns();
  cvy_mutex_lock(&t->lock);
  cvy_link_news news = look(t, from);
  for (double left = seconds; news == CVY_LINK_NOTHING && left > 0;) {
    cvy_cond_wait_for(&t->news, &t->lock, left);
    news = look(t, from);
    left = seconds - cvy_clock_seconds_since(begun_ns);
  }
  cvy_mutex_unlock(&t->lock);
  return news;
}

static void tcp_interrupt(cvy_link *link) {
  cvy_tcp *const t = (cvy_tcp *)link;
  cvy_mutex_lock(&t->lock);
  cvy_tcp_end_round(t);
  cvy_mutex_unlock(&t->lock);
}

/* The new round is over at once where a node is lost that poll has not named yet: it was lost too late to be a reason
 * for this renewal. */
static void tcp_renew(cvy_link *link, uint32_t round) {
  cvy_tcp *const t = (cvy_tcp *)link;
  cvy_mutex_lock(&t->lock);
  CVY_ASSERT(round > t->round);
  t->round = round;
  t->round_over = false;
  for (int i = 0; i < link->size; i++) {
    cvy_tcp_peer *const p = &t->peers[i];
    if (i == link->rank) continue;
    cvy_inbox_renew(&p->inboxes[CVY_LINK_UP], round);
    cvy_inbox_renew(&p->inboxes[CVY_LINK_DOWN], round);
    if (p->lost && !p->told) t->round_over = true;
  }
  cvy_tcp_wake(t); /* there is room for more */
  cvy_mutex_unlock(&t->lock);
}

static void tcp_refuse(cvy_link *link, int node, const char *why) {
  cvy_tcp *const t = (cvy_tcp *)link;
  CVY_ASSERT(node >= 0 && node < link->size && node != link->rank);
  cvy_mutex_lock(&t->lock);
  cvy_tcp_refuse(t, &t->peers[node], why);
  cvy_mutex_unlock(&t->lock);
}

static void free_link(cvy_tcp *t) {
  for (int i = 0; t->peers && i < t->link.size; i++) {
    cvy_tcp_peer *const p = &t->peers[i];
    if (p->fd >= 0) close(p->fd);
    for (int s = 0; s < CVY_STREAMS; s++) {
      cvy_inbox_end(&p->inboxes[s]);
      cvy_cond_end(&p->arrived[s]);
    }
    for (int s = 0; s < 2; s++) cvy_cond_end(&p->outboxes[s].changed);
    cvy_free(p->ready);
    cvy_free(p->spill);
  }
  cvy_free(t->peers);
  if (t->wake_fd >= 0) close(t->wake_fd);
  cvy_cond_end(&t->news);
  cvy_mutex_end(&t->lock);
  cvy_free(t);
}

static void tcp_close(cvy_link *link) {
  cvy_tcp *const t = (cvy_tcp *)link;
  cvy_mutex_lock(&t->lock);
  t->closing = true;
  t->closing_ns = cvy_clock_ns();
  for (int i = 0; i < link->size; i++)
    if (!t->peers[i].last) t->peers[i].last = CVY_FRAME_BYE;
  cvy_tcp_wake(t);
  cvy_mutex_unlock(&t->lock);
  cvy_thread_join(t->io);
  free_link(t);
}

static const cvy_link_fns functions = {tcp_send,  tcp_receive, tcp_poll, tcp_interrupt,
                                       tcp_renew, tcp_refuse,  tcp_close};

static double or_else(double value, double otherwise) { return value > 0 ? value : otherwise; }

static cvy_status make_peer(cvy_tcp_peer *p, int rank) {
  cvy_status status = CVY_OK;
  p->rank = rank, p->writing = -1;
  for (int s = 0; s < CVY_STREAMS; s++) CVY_TRY(cvy_inbox_init(&p->inboxes[s], CVY_TCP_WINDOW));
  for (int s = 0; s < 2; s++) p->outboxes[s].limit = CVY_TCP_WINDOW;
  p->ready = cvy_alloc_unset(CVY_TCP_READY, 1);
  p->spill = cvy_alloc_unset(CVY_FRAME_PIECE, 1);
  if (!p->ready || !p->spill) status = CVY_E_MEMORY;
fail:
  return status;
}

cvy_status cvy_link_tcp_open(const cvy_link_tcp_params *params, cvy_link **out) {
  cvy_status status = CVY_OK;
  const double silent_seconds = or_else(params->silent_seconds, 10);
  int sockets[CVY_NODES_MOST];
  cvy_tcp *t = cvy_calloc(1, sizeof *t);
  *out = NULL;
  CVY_REQUIRE(t, CVY_E_MEMORY, "no memory for a link of TCP connections");
  cvy_mutex_init(&t->lock);
  cvy_cond_init(&t->news);
  t->wake_fd = -1;
  CVY_TRY(cvy_tcp_nodes_read(params->nodes, params->port, &t->nodes));
  CVY_REQUIRE(params->rank >= 0 && params->rank < t->nodes.n, CVY_E_ARGUMENT,
              "--node %d: --nodes has %d nodes, which count from 0", params->rank, t->nodes.n);
  if (params->key_bytes > 0) CVY_TRY(cvy_key_init());
  t->peers = cvy_calloc((size_t)t->nodes.n, sizeof *t->peers);
  CVY_REQUIRE(t->peers, CVY_E_MEMORY, "no memory for a link of TCP connections");
  t->link = (cvy_link){
      .fns = &functions, .kind = "tcp", .rank = params->rank, .size = t->nodes.n, .names = t->names, .survives = true};
  t->most_bytes = params->most_bytes ? params->most_bytes : (uint64_t)1 << 40;
  t->silent_ns = (uint64_t)(1e9 * silent_seconds);
  for (int i = 0; i < t->nodes.n; i++) {
    t->names[i] = t->nodes.items[i].name;
    t->peers[i].fd = -1;
    for (int s = 0; s < CVY_STREAMS; s++) cvy_cond_init(&t->peers[i].arrived[s]);
    for (int s = 0; s < 2; s++) cvy_cond_init(&t->peers[i].outboxes[s].changed);
  }
  for (int i = 0; i < t->nodes.n; i++)
    CVY_REQUIRE(i == params->rank || make_peer(&t->peers[i], i) == CVY_OK, CVY_E_MEMORY,
                "no memory for a link of TCP connections");
  t->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  CVY_REQUIRE(t->wake_fd >= 0, CVY_E_IO, "the system has no event for the I/O thread: %s", strerror(errno));
  const cvy_tcp_meet_params meet = {.nodes = &t->nodes,
                                    .rank = params->rank,
                                    .key = params->key,
                                    .n_key = params->key_bytes,
                                    .wait_seconds = or_else(params->wait_seconds, 600),
                                    .hello_seconds = or_else(params->hello_seconds, 5),
                                    .stop = params->stop};
  CVY_TRY(cvy_tcp_meet(&meet, sockets));
  for (int i = 0; i < t->nodes.n; i++) {
    t->peers[i].fd = sockets[i];
    t->peers[i].heard_ns = t->peers[i].spoke_ns = cvy_clock_ns();
    if (i != params->rank) cvy_tcp_tune(sockets[i], 3 * silent_seconds);
  }
  CVY_TRY(cvy_thread_start(&t->io, "link-tcp", cvy_tcp_io_main, t));
  *out = &t->link;
  return CVY_OK;
fail:
  if (t) free_link(t);
  return status;
}
