/* SPDX-License-Identifier: MIT */
#include "tests/fleet/link_cases.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/clock.h"
#include "src/base/mem.h"
#include "src/base/sync.h"

enum { LARGEST = 3 * 1024 * 1024, MESSAGES = 12 };
static const double PATIENCE_SECONDS = 60; /* against hanging */

void link_wrong(int rank, const char *file, int line, const char *cond, const char *format, ...) {
  char text[512];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  fprintf(stderr, "%s:%d: node %d: %s is false: %s\n", file, line, rank, cond, text);
  abort();
}

/* splitmix64 (Steele, Lea, Flood 2014). */
static uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

static uint64_t key_of(const link_message *m) {
  const uint64_t place =
      (uint64_t)m->from << 40 | (uint64_t)m->to << 32 | (uint64_t)m->stream << 24 | (uint64_t)m->index;
  return mix(mix(m->seed ^ (uint64_t)m->round << 8) ^ place);
}

size_t link_message_size(const link_message *m) {
  static const size_t most[] = {0, 1, 64, 1024, 4096, 70000, 300000, LARGEST};
  const uint64_t key = key_of(m);
  const size_t limit = most[key % 64 == 0 ? 7 : key % 7];
  return limit ? 1 + (key >> 16) % limit : 0;
}

static uint64_t word_of(uint64_t key, size_t i) { return mix(key + i); }

void link_message_fill(const link_message *m, uint8_t *out, size_t bytes) {
  const uint64_t key = key_of(m);
  for (size_t i = 0; i < bytes; i += 8) {
    const uint64_t word = word_of(key, i);
    memcpy(out + i, &word, bytes - i < 8 ? bytes - i : 8);
  }
}

void link_message_check(const link_message *m, const uint8_t *bytes, size_t n) {
  const uint64_t key = key_of(m);
  for (size_t i = 0; i < n; i += 8) {
    const uint64_t word = word_of(key, i);
    if (memcmp(bytes + i, &word, n - i < 8 ? n - i : 8) != 0)
      link_wrong(m->to, __FILE__, __LINE__, "same bytes",
                 "message %d of stream %d from node %d in round %u, %zu bytes: wrong at byte %zu", m->index, m->stream,
                 m->from, m->round, n, i);
  }
}

/* ---- agreement ---- */

typedef struct words {
  uint32_t kind, value;
} words;
enum { HERE = 1, ALL_HERE, BREAK };

static void tell(cvy_link *link, int to, uint32_t kind, uint32_t value) {
  const words w = {kind, value};
  LINK_CHECK(link, cvy_link_send(link, to, CVY_LINK_CONTROL, &w, sizeof w) == CVY_OK, "to node %d", to);
}

/* The next control message, if one comes in time. */
static bool hear(cvy_link *link, double seconds, int *from, words *out) {
  const cvy_link_news news = cvy_link_poll(link, seconds, from);
  if (news == CVY_LINK_NOTHING) return false;
  LINK_CHECK(link, news == CVY_LINK_MESSAGE, "node %d is lost (%d)", *from, news);
  LINK_CHECK(link, cvy_link_receive(link, *from, CVY_LINK_CONTROL, out, sizeof *out) == CVY_OK, "from node %d", *from);
  return true;
}

/* All report to node 0, which then lets all go on: so no node hears of what comes later. n_here: reports that node 0
 * has heard before. */
static void meet(cvy_link *link, uint32_t word, int n_here) {
  const uint64_t begun_ns = cvy_clock_ns();
  words w;
  if (link->rank != 0) { /* asks node 0 alone: another one may be in the next case already */
    tell(link, 0, HERE, word);
    LINK_CHECK(link, cvy_link_receive(link, 0, CVY_LINK_CONTROL, &w, sizeof w) == CVY_OK, "word %u", word);
    LINK_CHECK(link, w.kind == ALL_HERE && w.value == word, "node 0 tells %u %u", w.kind, w.value);
    return;
  }
  for (int left = link->size - 1 - n_here; left > 0;) {
    int from;
    LINK_CHECK(link, cvy_clock_seconds_since(begun_ns) < PATIENCE_SECONDS, "%d nodes do not come to meet", left);
    if (!hear(link, 0.1, &from, &w)) continue;
    LINK_CHECK(link, w.kind == HERE && w.value == word, "node %d tells %u %u", from, w.kind, w.value);
    left--;
  }
  for (int i = 1; i < link->size; i++) tell(link, i, ALL_HERE, word);
}

void link_meet(cvy_link *link, uint32_t word) { meet(link, word, 0); }

/* ---- rounds of random messages ---- */

/* A thread that sends or receives all messages of one stream between two nodes. */
typedef struct mover {
  cvy_link *link;
  link_message first;
  bool sends;
  int n, done;
  cvy_status status;
  cvy_thread thread;
  struct movers *all;
} mover;

typedef struct movers {
  mover items[8];
  int n;
  cvy_mutex lock;
  int n_running;
} movers;

static void *move(void *arg) {
  mover *const m = arg;
  uint8_t *const bytes = cvy_alloc_unset(LARGEST + 8, 1);
  LINK_CHECK(m->link, bytes, "no memory");
  for (m->done = 0; m->done < m->n; m->done++) {
    link_message message = m->first;
    message.index = m->done;
    const size_t size = link_message_size(&message);
    if (m->sends) {
      link_message_fill(&message, bytes, size);
      m->status = cvy_link_send(m->link, message.to, message.stream, bytes, size);
      if (m->status != CVY_OK) break;
      memset(bytes, 0xee, size); /* the message is not in this memory any more */
    } else {
      m->status = cvy_link_receive(m->link, message.from, message.stream, bytes, size);
      if (m->status != CVY_OK) break;
      link_message_check(&message, bytes, size);
    }
  }
  cvy_free(bytes);
  cvy_mutex_lock(&m->all->lock);
  m->all->n_running--;
  cvy_mutex_unlock(&m->all->lock);
  return NULL;
}

static void add_mover(movers *all, cvy_link *link, link_message first, bool sends, int n) {
  mover *const m = &all->items[all->n++];
  *m = (mover){.link = link, .first = first, .sends = sends, .n = n, .all = all};
}

/* UP and DOWN both ways between this node and the next ones of the ring. */
static void start_movers(movers *all, cvy_link *link, uint64_t seed, uint32_t round) {
  const int own = link->rank, after = (own + 1) % link->size, before = (own + link->size - 1) % link->size;
  const int n = 1 + (int)(mix(seed ^ round * 77u) % MESSAGES);
  all->n = 0;
  for (int s = 0; s < 2; s++) {
    const cvy_stream stream = s == 0 ? CVY_LINK_UP : CVY_LINK_DOWN;
    const int to = s == 0 ? after : before, from = s == 0 ? before : after;
    add_mover(all, link, (link_message){seed, own, to, stream, round, 0}, true, n);
    add_mover(all, link, (link_message){seed, from, own, stream, round, 0}, false, n);
  }
  all->n_running = all->n;
  for (int i = 0; i < all->n; i++)
    LINK_CHECK(link, cvy_thread_start(&all->items[i].thread, "mover", move, &all->items[i]) == CVY_OK, "no thread");
}

static bool are_running(movers *all) {
  cvy_mutex_lock(&all->lock);
  const bool running = all->n_running > 0;
  cvy_mutex_unlock(&all->lock);
  return running;
}

/* One node may break the round off, at a random moment; the others hear of it. */
static void one_round(cvy_link *link, uint64_t seed, uint32_t round) {
  movers all = {.n = 0};
  const uint64_t dice = mix(seed * 31 + round), begun_ns = cvy_clock_ns();
  const int breaker = (int)(dice % (uint64_t)(link->size + 1)); /* size: none */
  const double until = 1e-6 * (double)((dice >> 8) % ((dice >> 40) % 2 ? 300 : 6000));
  bool broken = false;
  int n_here = 0;
  cvy_mutex_init(&all.lock);
  start_movers(&all, link, seed, round);
  /* A node that has all it wants is not done while another may still break the round off. */
  while (are_running(&all) || (breaker < link->size && !broken)) {
    int from;
    words w;
    LINK_CHECK(link, cvy_clock_seconds_since(begun_ns) < PATIENCE_SECONDS, "round %u hangs: %d movers", round,
               all.n_running);
    const bool heard = hear(link, 0.0005, &from, &w);
    if (heard && w.kind == HERE && w.value == 2000 + round) {
      n_here++; /* that node is done already */
      continue;
    }
    LINK_CHECK(link, !heard || (w.kind == BREAK && w.value == round && link->rank != breaker && !broken),
               "node %d tells %u of %u in round %u", from, w.kind, w.value, round);
    if (!heard && (link->rank != breaker || broken || cvy_clock_seconds_since(begun_ns) < until)) continue;
    cvy_link_interrupt(link);
    broken = true;
    if (link->rank == 0) { /* the others hear of it from node 0, as of the end of the round before */
      for (int i = 1; i < link->size; i++)
        if (i != breaker) tell(link, i, BREAK, round);
    } else if (link->rank == breaker) tell(link, 0, BREAK, round);
  }
  for (int i = 0; i < all.n; i++) cvy_thread_join(all.items[i].thread);
  for (int i = 0; i < all.n; i++) {
    const mover *const m = &all.items[i];
    LINK_CHECK(link, m->status == (m->done == m->n ? CVY_OK : CVY_E_INTERRUPTED), "round %u, mover %d: %s", round, i,
               cvy_status_name(m->status));
    LINK_CHECK(link, broken || m->done == m->n, "round %u, mover %d stops at %d of %d", round, i, m->done, m->n);
  }
  cvy_mutex_end(&all.lock);
  meet(link, 2000 + round, n_here);
}

/* ---- streams do not wait for each other ---- */

/* The last node sends a long message on one stream, which node 0 takes only when others have come through. */
static void *send_long(void *arg) {
  mover *const m = arg;
  uint8_t *const bytes = cvy_alloc_unset(8 * (size_t)LARGEST, 1);
  LINK_CHECK(m->link, bytes, "no memory");
  link_message_fill(&m->first, bytes, 8 * (size_t)LARGEST);
  m->status = cvy_link_send(m->link, m->first.to, m->first.stream, bytes, 8 * (size_t)LARGEST);
  cvy_free(bytes);
  return NULL;
}

static void independent(cvy_link *link, uint64_t seed, cvy_stream stuck) {
  const int last = link->size - 1;
  const cvy_stream free_one = stuck == CVY_LINK_UP ? CVY_LINK_DOWN : CVY_LINK_UP;
  const link_message m = {seed, last, 0, stuck, 0, 0};
  uint8_t *const bytes = cvy_alloc_unset(8 * (size_t)LARGEST, 1);
  LINK_CHECK(link, bytes, "no memory");
  if (link->rank == last) {
    mover sender = {.link = link, .first = m};
    LINK_CHECK(link, cvy_thread_start(&sender.thread, "long", send_long, &sender) == CVY_OK, "no thread");
    for (int i = 0; i < 20; i++) {
      const link_message other = {seed, last, 0, free_one, 0, i};
      link_message_fill(&other, bytes, 20000);
      LINK_CHECK(link, cvy_link_send(link, 0, free_one, bytes, 20000) == CVY_OK, "message %d", i);
    }
    link_meet(link, 1000 + stuck); /* node 0 has all of these, and nothing of the long one */
    cvy_thread_join(sender.thread);
    LINK_CHECK(link, sender.status == CVY_OK, "%s", cvy_status_name(sender.status));
  } else {
    if (link->rank == 0)
      for (int i = 0; i < 20; i++) {
        const link_message other = {seed, last, 0, free_one, 0, i};
        LINK_CHECK(link, cvy_link_receive(link, last, free_one, bytes, 20000) == CVY_OK, "message %d", i);
        link_message_check(&other, bytes, 20000);
      }
    link_meet(link, 1000 + stuck);
    if (link->rank == 0) {
      LINK_CHECK(link, cvy_link_receive(link, last, stuck, bytes, 8 * (size_t)LARGEST) == CVY_OK, "the long one");
      link_message_check(&m, bytes, 8 * (size_t)LARGEST);
    }
  }
  link_meet(link, 1100 + stuck);
  cvy_free(bytes);
}

/* Control messages of all sizes, many at once, in order. */
static void control(cvy_link *link, uint64_t seed) {
  enum { N = 64 };
  uint8_t bytes[CVY_CONTROL_BYTES];
  for (int i = 0; i < N; i++)
    for (int to = 0; to < link->size; to++) {
      const link_message m = {seed, link->rank, to, CVY_LINK_CONTROL, 0, i};
      const size_t size = i == N - 1 ? sizeof bytes : (size_t)i * 16;
      if (to == link->rank) continue;
      link_message_fill(&m, bytes, size);
      LINK_CHECK(link, cvy_link_send(link, to, CVY_LINK_CONTROL, bytes, size) == CVY_OK, "message %d", i);
    }
  for (int k = 0; k < N * link->size; k++) {
    int from = k % link->size;
    if (from == link->rank) continue;
    const link_message m = {seed, from, link->rank, CVY_LINK_CONTROL, 0, k / link->size};
    const size_t size = m.index == N - 1 ? sizeof bytes : (size_t)m.index * 16;
    if (link->size == 2) { /* else poll may name another node */
      const cvy_link_news news = cvy_link_poll(link, PATIENCE_SECONDS, &from);
      LINK_CHECK(link, news == CVY_LINK_MESSAGE && from == m.from, "%d from %d", news, from);
    }
    LINK_CHECK(link, cvy_link_receive(link, from, CVY_LINK_CONTROL, bytes, size) == CVY_OK, "from %d", from);
    link_message_check(&m, bytes, size);
  }
  int from;
  if (link->rank != 0) LINK_CHECK(link, cvy_link_poll(link, 0, &from) == CVY_LINK_NOTHING, "news where none are");
  link_meet(link, 1200);
}

void link_cases(cvy_link *link, uint64_t seed, int rounds) {
  link_meet(link, 1);
  if (link->size > 1) {
    control(link, seed);
    independent(link, seed, CVY_LINK_UP);
    independent(link, seed, CVY_LINK_DOWN);
    for (uint32_t round = 0; round < (uint32_t)rounds; round++) {
      one_round(link, seed, round);
      cvy_link_renew(link, round + 1);
    }
  }
  link_meet(link, 2);
}
