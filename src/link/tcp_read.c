/* SPDX-License-Identifier: MIT
 * Taking frames apart. The I/O thread. */
#include <errno.h>
#include <sys/uio.h>
#include <unistd.h>

#include "src/base/clock.h"
#include "src/link/tcp_inside.h"

enum { BUDGET = 1024 * 1024, DROPPED = 64 * 1024 };

static uint32_t own_round(const cvy_tcp *t, cvy_stream stream) { return stream == CVY_LINK_CONTROL ? 0 : t->round; }

static void tell(cvy_tcp *t, cvy_tcp_peer *p, cvy_stream stream) CVY_HOLDS(t->lock);
static void tell(cvy_tcp *t, cvy_tcp_peer *p, cvy_stream stream) {
  cvy_cond_wake_all(&p->arrived[stream]);
  if (stream == CVY_LINK_CONTROL) cvy_cond_wake_all(&t->news);
}

/* The node leaves in order: callers that wait for it see that. */
static void leave(cvy_tcp *t, cvy_tcp_peer *p) CVY_HOLDS(t->lock);
static void leave(cvy_tcp *t, cvy_tcp_peer *p) {
  p->left = p->shut = true;
  for (int s = 0; s < CVY_STREAMS; s++) tell(t, p, (cvy_stream)s);
  for (int s = 0; s < 2; s++) cvy_cond_wake_all(&p->outboxes[s].changed);
}

static void begin_frame(cvy_tcp *t, cvy_tcp_peer *p) CVY_HOLDS(t->lock);
static void begin_frame(cvy_tcp *t, cvy_tcp_peer *p) {
  cvy_frame *const f = &p->frame;
  const char *const why = cvy_frame_read(p->header, t->most_bytes, f);
  p->n_header = 0;
  if (why) {
    cvy_tcp_refuse(t, p, why);
    return;
  }
  p->n_body = f->bytes;
  switch (f->kind) {
    case CVY_FRAME_START: cvy_tcp_refuse(t, p, "begins a second time"); break;
    case CVY_FRAME_PING: break;
    case CVY_FRAME_BYE: leave(t, p); break;
    case CVY_FRAME_CUT:
      cvy_tcp_lose(t, p, CVY_LINK_SILENT, "goes on without this node, which was silent for too long or was refused");
      break;
    case CVY_FRAME_CREDIT: {
      cvy_tcp_outbox *const o = &p->outboxes[f->stream];
      if (f->value < o->limit || f->value > o->cost + CVY_TCP_WINDOW)
        cvy_tcp_refuse(t, p, "has more room than there is");
      else o->limit = f->value;
      break;
    }
    case CVY_FRAME_CONTROL: {
      cvy_inbox *const inbox = &p->inboxes[CVY_LINK_CONTROL];
      f->stream = CVY_LINK_CONTROL;
      inbox->granted = inbox->back + inbox->window; /* its sender does not ask */
      if (!cvy_inbox_begin(inbox, true, 0, f->bytes, f->bytes, 0))
        cvy_tcp_refuse(t, p, "sends too many control messages");
      else if (f->bytes == 0) tell(t, p, CVY_LINK_CONTROL);
      break;
    }
    case CVY_FRAME_DATA:
      if (!cvy_inbox_begin(&p->inboxes[f->stream], f->first, f->round, f->value, f->bytes, t->round))
        cvy_tcp_refuse(t, p, "sends what it may not");
      else if (f->bytes == 0) tell(t, p, f->stream);
      break;
  }
}

/* No more bytes will come. */
static void end_reading(cvy_tcp *t, cvy_tcp_peer *p, int error) CVY_HOLDS(t->lock);
static void end_reading(cvy_tcp *t, cvy_tcp_peer *p, int error) {
  const int first_error = p->error ? p->error : error;
  const bool unreachable = first_error == ETIMEDOUT || first_error == EHOSTUNREACH || first_error == ENETUNREACH ||
                           first_error == ENETDOWN || first_error == EHOSTDOWN;
  p->ended = true;
  if (p->left) return;
  if (unreachable) cvy_tcp_lose(t, p, CVY_LINK_SILENT, "cannot be reached");
  else cvy_tcp_lose(t, p, CVY_LINK_ENDED, "has ended");
}

/* One system call: the rest of the frame's body, and the next header where that may follow. False: no more for now. */
static bool read_some(cvy_tcp *t, cvy_tcp_peer *p, size_t *budget) CVY_HOLDS(t->lock);
static bool read_some(cvy_tcp *t, cvy_tcp_peer *p, size_t *budget) {
  uint8_t dropped[DROPPED];
  struct iovec parts[2];
  int n_parts = 0;
  uint64_t n_place = 0;
  uint8_t *place = NULL;
  cvy_inbox *const inbox = &p->inboxes[p->frame.stream];
  if (p->n_body > 0) {
    place = cvy_inbox_place(inbox, own_round(t, p->frame.stream), p->n_body, &n_place);
    if (!place && n_place > DROPPED) n_place = DROPPED;
    parts[n_parts++] = (struct iovec){place ? place : dropped, n_place};
  }
  if (n_place == p->n_body) parts[n_parts++] = (struct iovec){p->header + p->n_header, CVY_FRAME_HEADER - p->n_header};
  cvy_mutex_unlock(&t->lock);
  const ssize_t n = readv(p->fd, parts, n_parts);
  const int error = errno;
  cvy_mutex_lock(&t->lock);
  const size_t got = n > 0 ? (size_t)n : 0, body = got < n_place ? got : n_place;
  if (n_place > 0 && cvy_inbox_commit(inbox, place, body)) tell(t, p, p->frame.stream);
  if (n < 0 && error == EINTR) return true;
  if (n < 0 && error == EAGAIN) return false;
  if (n <= 0) {
    end_reading(t, p, n < 0 ? error : 0);
    return false;
  }
  p->heard_ns = cvy_clock_ns();
  p->n_body -= (uint32_t)body;
  p->n_header += got - body;
  *budget -= got < *budget ? got : *budget;
  if (p->n_header == CVY_FRAME_HEADER) begin_frame(t, p);
  return true;
}

void cvy_tcp_read(cvy_tcp *t, cvy_tcp_peer *p) {
  size_t budget = BUDGET;
  while (budget > 0 && !p->lost && !p->left && read_some(t, p, &budget)) {
  }
}

void cvy_tcp_read_away(cvy_tcp_peer *p) {
  uint8_t dropped[DROPPED];
  for (int i = 0; i < BUDGET / DROPPED; i++) {
    const ssize_t n = read(p->fd, dropped, sizeof dropped);
    if (n > 0 || (n < 0 && errno == EINTR)) continue;
    if (n == 0 || errno != EAGAIN) p->ended = true;
    return;
  }
}
