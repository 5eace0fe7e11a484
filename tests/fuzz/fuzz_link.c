/* SPDX-License-Identifier: MIT
 * Bytes that a node of a fleet reads from a connection: link/tcp_hello.h, then frames into inboxes (link/tcp_frame.h,
 * link/tcp_inbox.h), whose bytes a receiver takes from time to time, and renews. Input: a hello, a byte of seed, frames
 * with their bytes. */
#include <stdlib.h>
#include <string.h>

#include "src/link/tcp_frame.h"
#include "src/link/tcp_hello.h"
#include "src/link/tcp_inbox.h"
#include "tests/fuzz/fuzz.h"

enum { WINDOW = 4 * CVY_INBOX_MESSAGE, MOST = 100000 };

static void seed(const cvy_frame *frames, int n) {
  uint8_t bytes[CVY_HELLO_BYTES + 1 + 8 * (CVY_FRAME_HEADER + 1000)] = {0};
  size_t size = CVY_HELLO_BYTES + 1;
  cvy_hello_write(&(cvy_hello){.version = CVY_HELLO_VERSION, .size = 2, .from = 1, .to = 0}, bytes);
  for (int i = 0; i < n; i++) {
    cvy_frame_write(&frames[i], bytes + size);
    size += CVY_FRAME_HEADER + frames[i].bytes;
  }
  fuzz_seed(bytes, size, NULL, 0);
}

void fuzz_seeds(void) {
  const cvy_frame frames[] = {
      {.kind = CVY_FRAME_DATA, .first = true, .bytes = 900, .value = 1000},
      {.kind = CVY_FRAME_CONTROL, .stream = CVY_LINK_UP, .bytes = 100},
      {.kind = CVY_FRAME_DATA, .bytes = 100, .value = 100},
      {.kind = CVY_FRAME_DATA, .stream = CVY_LINK_DOWN, .first = true, .round = 1, .bytes = 500, .value = 5000},
      {.kind = CVY_FRAME_DATA, .stream = CVY_LINK_DOWN, .first = true, .round = 2, .bytes = 0},
      {.kind = CVY_FRAME_CREDIT, .value = WINDOW},
      {.kind = CVY_FRAME_PING},
      {.kind = CVY_FRAME_BYE},
  };
  for (int i = 1; i <= 8; i++) seed(frames, i);
  seed(frames + 3, 3);
}

/* The receiver takes what is there of the oldest message, and the message when it is whole. */
static void receive(cvy_inbox *inbox) {
  static uint8_t sink[MOST];
  const cvy_inbox_message *const m = cvy_inbox_first(inbox);
  if (!m) return;
  CVY_ASSERT(m->taken <= m->arrived && m->arrived <= m->bytes);
  while (m->arrived > m->taken) {
    uint64_t n;
    const uint8_t *const bytes = cvy_inbox_stored(inbox, &n);
    CVY_ASSERT(n > 0 && n <= WINDOW);
    memcpy(sink, bytes, n);
    cvy_inbox_take(inbox, n);
  }
  if (m->taken == m->bytes) cvy_inbox_drop(inbox);
}

static void check(const cvy_inbox *inbox) {
  CVY_ASSERT(inbox->stored - inbox->left <= WINDOW);
  CVY_ASSERT(inbox->end - inbox->first <= inbox->n_most);
  CVY_ASSERT(inbox->back <= inbox->cost && inbox->cost <= inbox->granted);
}

/* False: the connection is closed here. */
static bool take_frame(cvy_inbox *inboxes, const cvy_frame *f, const uint8_t *body, uint32_t round) {
  static uint8_t posted[MOST];
  cvy_inbox *const inbox = &inboxes[f->stream];
  if (f->kind != CVY_FRAME_DATA) return f->kind != CVY_FRAME_BYE && f->kind != CVY_FRAME_CUT;
  if (!cvy_inbox_begin(inbox, f->first, f->round, f->value, f->bytes, round)) return false;
  inbox->posted = f->round % 2 ? posted : NULL;
  inbox->posted_bytes = f->value;
  for (uint64_t done = 0; done < f->bytes;) {
    uint64_t n;
    uint8_t *const place = cvy_inbox_place(inbox, round, f->bytes - done, &n);
    CVY_ASSERT(n > 0 && n <= f->bytes - done);
    if (place) memcpy(place, body + done, n);
    (void)cvy_inbox_commit(inbox, place, n);
    done += n;
  }
  inbox->posted = NULL;
  check(inbox);
  return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  cvy_hello hello, own = {.version = CVY_HELLO_VERSION, .size = 2, .from = 0, .to = 1};
  char why[160];
  for (size_t n = 0; n < CVY_HELLO_BYTES && n < size; n++)
    if (cvy_hello_read(data, n, &hello)) return 0;
  if (size <= CVY_HELLO_BYTES || cvy_hello_read(data, CVY_HELLO_BYTES, &hello)) return 0;
  (void)cvy_hello_fits(&own, &hello, why, sizeof why);
  cvy_inbox inboxes[2];
  for (int s = 0; s < 2; s++) FUZZ_OK(cvy_inbox_init(&inboxes[s], WINDOW));
  unsigned dice = data[CVY_HELLO_BYTES];
  uint32_t round = 0;
  for (size_t at = CVY_HELLO_BYTES + 1; size - at >= CVY_FRAME_HEADER;) {
    cvy_frame f;
    const char *const wrong = cvy_frame_read(data + at, MOST, &f);
    at += CVY_FRAME_HEADER;
    if (wrong || f.bytes > size - at || !take_frame(inboxes, &f, data + at, round)) break;
    at += f.bytes;
    dice = dice * 1103515245u + 12345u;
    for (int s = 0; s < 2; s++) {
      if (dice >> 16 & (1u << s)) receive(&inboxes[s]);
      if ((dice >> 20) % 16 == 0) cvy_inbox_renew(&inboxes[s], round + 1);
      const uint64_t credit = cvy_inbox_credit(&inboxes[s]);
      if (credit) inboxes[s].granted = credit;
      check(&inboxes[s]);
    }
    round += (dice >> 20) % 16 == 0;
  }
  for (int s = 0; s < 2; s++) cvy_inbox_end(&inboxes[s]);
  fuzz_end();
  return 0;
}
