/* SPDX-License-Identifier: MIT
 * The I/O thread's loop. */
#include <errno.h>
#include <poll.h>
#include <unistd.h>

#include "src/base/clock.h"
#include "src/link/tcp_inside.h"

static const uint64_t SECOND_NS = 1000000000u;

/* A sign of life so often that a few may be late. */
static uint64_t ping_ns(const cvy_tcp *t) { return t->silent_ns / 4 < SECOND_NS ? t->silent_ns / 4 : SECOND_NS; }
static bool is_live(const cvy_tcp_peer *p) { return p->fd >= 0 && !p->lost && !p->left; }

/* Frames of the I/O thread's own. Where there is no room for one it goes later. */
static void add_frames(const cvy_tcp *t, cvy_tcp_peer *p) {
  for (int s = 0; s < 2; s++) {
    cvy_inbox *const inbox = &p->inboxes[s];
    const uint64_t limit = cvy_inbox_credit(inbox);
    const cvy_frame credit = {.kind = CVY_FRAME_CREDIT, .stream = (cvy_stream)s, .value = limit};
    if (limit && cvy_tcp_ready(p, &credit, NULL)) inbox->granted = limit;
  }
  if (cvy_clock_ns() - p->spoke_ns >= ping_ns(t) && !p->blocked && p->n_ready == p->n_gone)
    (void)cvy_tcp_ready(p, &(cvy_frame){.kind = CVY_FRAME_PING}, NULL);
}

/* Sends what can be sent. True: more can be at once. */
static bool write_all(cvy_tcp *t) CVY_HOLDS(t->lock);
static bool write_all(cvy_tcp *t) {
  bool more = false;
  for (int i = 0; i < t->link.size; i++) {
    cvy_tcp_peer *const p = &t->peers[i];
    if (p->fd >= 0 && (p->ended || p->lost == CVY_LINK_ENDED || (t->closing && p->lost))) {
      close(p->fd);
      p->fd = -1;
    }
    if (is_live(p) && !p->last) add_frames(t, p);
    if (p->fd >= 0 && cvy_tcp_write(t, p)) more = true;
  }
  return more;
}

/* Milliseconds until a sign of life is due or missed. */
static int time_to_wait(const cvy_tcp *t) {
  const uint64_t now_ns = cvy_clock_ns();
  uint64_t until_ns = now_ns + 10 * SECOND_NS;
  for (int i = 0; i < t->link.size; i++) {
    const cvy_tcp_peer *const p = &t->peers[i];
    if (!is_live(p)) continue;
    const uint64_t silent_ns = p->heard_ns + t->silent_ns, speak_ns = p->spoke_ns + ping_ns(t);
    if (silent_ns < until_ns) until_ns = silent_ns;
    if (!p->blocked && !p->shut && speak_ns < until_ns) until_ns = speak_ns;
  }
  if (t->closing && until_ns > now_ns + SECOND_NS / 10) until_ns = now_ns + SECOND_NS / 10;
  return until_ns <= now_ns ? 0 : (int)((until_ns - now_ns) / 1000000) + 1;
}

/* Bytes that came while this process could not run are read before their sender is judged. */
static void judge(cvy_tcp *t) CVY_HOLDS(t->lock);
static void judge(cvy_tcp *t) {
  const uint64_t now_ns = cvy_clock_ns();
  for (int i = 0; i < t->link.size; i++) {
    cvy_tcp_peer *const p = &t->peers[i];
    if (is_live(p) && !p->ended && now_ns > p->heard_ns + t->silent_ns)
      cvy_tcp_lose(t, p, CVY_LINK_SILENT, "has been silent for too long");
  }
}

static void wait_and_read(cvy_tcp *t, bool at_once) CVY_HOLDS(t->lock);
static void wait_and_read(cvy_tcp *t, bool at_once) {
  struct pollfd fds[CVY_NODES_MOST + 1] = {{.fd = t->wake_fd, .events = POLLIN}};
  int ranks[CVY_NODES_MOST + 1], n = 1;
  for (int i = 0; i < t->link.size; i++) {
    const cvy_tcp_peer *const p = &t->peers[i];
    if (p->fd < 0) continue;
    ranks[n] = i;
    fds[n++] = (struct pollfd){.fd = p->fd, .events = (short)((p->lost ? 0 : POLLIN) | (p->blocked ? POLLOUT : 0))};
  }
  const int ms = at_once ? 0 : time_to_wait(t);
  t->asleep = true;
  cvy_mutex_unlock(&t->lock);
  const int n_ready = poll(fds, (nfds_t)n, ms);
  uint64_t count;
  if (n_ready > 0 && fds[0].revents) (void)!read(t->wake_fd, &count, sizeof count);
  cvy_mutex_lock(&t->lock);
  t->asleep = false;
  for (int i = 1; i < n && n_ready > 0; i++) {
    cvy_tcp_peer *const p = &t->peers[ranks[i]];
    if (fds[i].revents & (POLLOUT | POLLERR | POLLHUP)) p->blocked = false;
    if (!(fds[i].revents & ~POLLOUT)) continue;
    /* Data of a lost node do not matter any more. It may have been lost since the poll, by a caller: then this node's
     * word on that (CVY_FRAME_CUT) still has to go, without which the other takes this one's process for ended. */
    if (p->lost) p->ended |= (fds[i].revents & (POLLERR | POLLHUP | POLLNVAL)) != 0;
    else if (p->left || t->closing) cvy_tcp_read_away(p);
    else cvy_tcp_read(t, p);
  }
  if (n_ready >= 0) judge(t);
}

/* All nodes have taken what this one sent, or have had time enough. */
static bool is_done(const cvy_tcp *t) {
  bool open = false;
  if (!t->closing) return false;
  for (int i = 0; i < t->link.size; i++) open = open || t->peers[i].fd >= 0;
  return !open || cvy_clock_ns() - t->closing_ns > t->silent_ns;
}

void *cvy_tcp_io_main(void *link) {
  cvy_tcp *const t = link;
  cvy_mutex_lock(&t->lock);
  while (!is_done(t)) wait_and_read(t, write_all(t));
  cvy_mutex_unlock(&t->lock);
  return NULL;
}
