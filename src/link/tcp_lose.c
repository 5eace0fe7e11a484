/* SPDX-License-Identifier: MIT
 * Signals between the threads of a link: work for the I/O thread, the end of a round, and the loss of a node. */
#include <errno.h>
#include <unistd.h>

#include "src/link/tcp_inside.h"

void cvy_tcp_wake(cvy_tcp *t) {
  const uint64_t one = 1;
  if (!t->asleep) return;
  t->asleep = false;
  while (write(t->wake_fd, &one, sizeof one) < 0 && errno == EINTR) {
  }
}

void cvy_tcp_end_round(cvy_tcp *t) {
  t->round_over = true;
  for (int i = 0; i < t->link.size; i++) {
    cvy_tcp_peer *const p = &t->peers[i];
    for (int s = 0; s < 2; s++) {
      cvy_cond_wake_all(&p->outboxes[s].changed);
      cvy_cond_wake_all(&p->arrived[s]);
    }
  }
}

/* The I/O thread closes the socket, which it may be using now. */
void cvy_tcp_lose(cvy_tcp *t, cvy_tcp_peer *p, cvy_link_news news, const char *why) {
  if (p->lost || t->closing) return;
  p->lost = news;
  cvy_log_warning("node %d (%s) %s", p->rank, t->names[p->rank], why);
  if (news == CVY_LINK_SILENT && !p->last) p->last = CVY_FRAME_CUT;
  cvy_tcp_end_round(t);
  cvy_cond_wake_all(&p->arrived[CVY_LINK_CONTROL]);
  cvy_cond_wake_all(&t->news);
  cvy_tcp_wake(t);
}

/* It runs, so that it is not known to have ended. */
void cvy_tcp_refuse(cvy_tcp *t, cvy_tcp_peer *p, const char *why) {
  p->refused = true;
  if (!p->left) cvy_tcp_lose(t, p, CVY_LINK_SILENT, why);
}
