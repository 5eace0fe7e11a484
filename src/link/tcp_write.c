/* SPDX-License-Identifier: MIT
 * Making frames. The I/O thread, but for what callers leave. */
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "src/base/clock.h"
#include "src/link/tcp_inside.h"

enum { BUDGET = 1024 * 1024 };

static uint64_t smaller(uint64_t a, uint64_t b) { return a < b ? a : b; }

static void put(cvy_tcp_peer *p, const void *bytes, size_t n) {
  for (size_t done = 0; done < n;) {
    const size_t place = p->n_ready % CVY_TCP_READY, some = smaller(n - done, CVY_TCP_READY - place);
    memcpy(p->ready + place, (const char *)bytes + done, some);
    p->n_ready += some, done += some;
  }
}

bool cvy_tcp_ready(cvy_tcp_peer *p, const cvy_frame *frame, const void *body) {
  uint8_t header[CVY_FRAME_HEADER];
  if (CVY_TCP_READY - (p->n_ready - p->n_gone) < sizeof header + frame->bytes) return false;
  cvy_frame_write(frame, header);
  put(p, header, sizeof header);
  put(p, body, frame->bytes);
  return true;
}

bool cvy_tcp_is_writing(const cvy_tcp_peer *p, cvy_stream stream) { return p->inside && p->writing == (int)stream; }

void cvy_tcp_break_off(cvy_tcp_peer *p, cvy_stream stream) {
  if (p->writing == (int)stream) {
    memcpy(p->spill, p->out[1].at, p->out[1].n);
    p->out[1].at = p->spill;
    p->writing = -1;
  }
  p->outboxes[stream].data = NULL;
}

/* The next piece of a message: of UP and DOWN in turn. False: there is none, or its receiver has no room for it. */
static bool begin_piece(cvy_tcp *t, cvy_tcp_peer *p) CVY_HOLDS(t->lock);
static bool begin_piece(cvy_tcp *t, cvy_tcp_peer *p) {
  for (int i = 0; i < 2; i++) {
    const cvy_stream stream = i == 0 ? p->turn : p->turn == CVY_LINK_UP ? CVY_LINK_DOWN : CVY_LINK_UP;
    cvy_tcp_outbox *const o = &p->outboxes[stream];
    const uint64_t fixed = o->first ? CVY_INBOX_MESSAGE : 0, room = o->limit - o->cost;
    const uint64_t left = o->bytes - o->sent;
    if (!o->data || room < fixed + (left > 0)) continue;
    const uint32_t n = (uint32_t)smaller(smaller(left, room - fixed), CVY_FRAME_PIECE);
    cvy_frame_write(
        &(cvy_frame){
            .kind = CVY_FRAME_DATA, .stream = stream, .first = o->first, .round = t->round, .bytes = n, .value = left},
        p->out_header);
    p->out[0] = (cvy_tcp_bytes){p->out_header, CVY_FRAME_HEADER};
    p->out[1] = (cvy_tcp_bytes){o->data + o->sent, n};
    p->writing = (int)stream;
    o->cost += fixed + n, o->sent += n, o->first = false;
    p->turn = stream == CVY_LINK_UP ? CVY_LINK_DOWN : CVY_LINK_UP;
    return true;
  }
  return false;
}

/* The piece is written. */
static void end_piece(cvy_tcp_peer *p) {
  if (p->writing < 0) return;
  cvy_tcp_outbox *const o = &p->outboxes[p->writing];
  p->writing = -1;
  if (o->sent < o->bytes) return;
  o->data = NULL;
  cvy_cond_wake_all(&o->changed);
}

/* One system call. A connection that is broken takes nothing more; reading finds out what became of it, after what has
 * come before. */
static size_t write_some(cvy_tcp *t, cvy_tcp_peer *p, struct iovec *parts, size_t n_parts) CVY_HOLDS(t->lock);
static size_t write_some(cvy_tcp *t, cvy_tcp_peer *p, struct iovec *parts, size_t n_parts) {
  const struct msghdr message = {.msg_iov = parts, .msg_iovlen = n_parts};
  p->inside = true;
  cvy_mutex_unlock(&t->lock);
  const ssize_t n = sendmsg(p->fd, &message, MSG_NOSIGNAL);
  const int error = errno;
  cvy_mutex_lock(&t->lock);
  p->inside = false;
  if (p->writing >= 0 && t->round_over) cvy_cond_wake_all(&p->outboxes[p->writing].changed);
  if (n >= 0) {
    p->spoke_ns = cvy_clock_ns();
    return (size_t)n;
  }
  if (error == EAGAIN || error == ENOBUFS) p->blocked = true;
  else if (error != EINTR) p->shut = true, p->error = error;
  return 0;
}

static size_t write_piece(cvy_tcp *t, cvy_tcp_peer *p) CVY_HOLDS(t->lock);
static size_t write_piece(cvy_tcp *t, cvy_tcp_peer *p) {
  struct iovec parts[2];
  size_t n_parts = 0;
  for (int i = 0; i < 2; i++)
    if (p->out[i].n > 0) parts[n_parts++] = (struct iovec){(void *)(uintptr_t)p->out[i].at, p->out[i].n};
  const size_t n = n_parts ? write_some(t, p, parts, n_parts) : 0;
  size_t left = n;
  for (int i = 0; i < 2; i++) {
    const size_t some = smaller(left, p->out[i].n);
    p->out[i].at += some, p->out[i].n -= some, left -= some;
  }
  if (p->out[0].n + p->out[1].n == 0) end_piece(p);
  return n;
}

static size_t write_ready(cvy_tcp *t, cvy_tcp_peer *p) CVY_HOLDS(t->lock);
static size_t write_ready(cvy_tcp *t, cvy_tcp_peer *p) {
  const size_t place = p->n_gone % CVY_TCP_READY, all = p->n_ready - p->n_gone;
  struct iovec part = {p->ready + place, smaller(all, CVY_TCP_READY - place)};
  const size_t n = write_some(t, p, &part, 1);
  p->n_gone += n;
  return n;
}

bool cvy_tcp_write(cvy_tcp *t, cvy_tcp_peer *p) {
  for (size_t done = 0; !p->blocked && !p->shut && p->fd >= 0;) {
    if (done >= BUDGET) return true;
    if (p->out[0].n + p->out[1].n > 0) done += write_piece(t, p);
    else if (p->n_ready > p->n_gone) done += write_ready(t, p);
    else if (p->parting) {
      if (p->last == CVY_FRAME_BYE) (void)shutdown(p->fd, SHUT_WR);
      p->shut = true;
    } else if (p->last) p->parting = cvy_tcp_ready(p, &(cvy_frame){.kind = p->last}, NULL);
    else if (p->lost || !begin_piece(t, p)) break;
  }
  return false;
}
