/* SPDX-License-Identifier: MIT
 * Outline: wires · losses · data · news · rounds · life. */
#include "tests/fleet/sim/sim_link.h"

#include <string.h>

#include "src/base/clock.h"
#include "src/base/mem.h"

enum { UNDER_WAY = 64, MOST_BYTES = SIM_CONTROL_BYTES };

typedef struct message {
  uint32_t round;
  size_t bytes;
  bool forged;
  uint64_t arrives_ns;
  char content[MOST_BYTES];
} message;

/* One stream from one node to another: messages [first, end) are under way or not received yet. */
typedef struct pipe {
  message messages[UNDER_WAY];
  long first, end;
  uint64_t last_ns; /* of the newest arrival */
} pipe;

typedef struct sim_link {
  cvy_link base;
  uint32_t round;
  bool broken; /* the round has ended */
  int inside;  /* threads in a send or receive of data */
} sim_link;

/* The loss of another node, of which node `me` learns at at_ns. */
typedef struct loss {
  uint64_t at_ns; /* 0: it is not lost */
  cvy_link_news news;
  bool noted, told;
} loss;

static struct wires {
  int n;
  sim_wires rules;
  sim_link *links[SIM_NODES];
  bool dead[SIM_NODES], left[SIM_NODES];
  bool cut[SIM_NODES][SIM_NODES];
  loss losses[SIM_NODES][SIM_NODES]; /* [me][other] */
  int controls[SIM_NODES], dies_at[SIM_NODES];
  sim_death dies_how[SIM_NODES];
} wires;

static pipe pipes[SIM_NODES][SIM_NODES][CVY_STREAMS];
static const char *const names[SIM_NODES] = {"a", "b", "c", "d", "e"};

static sim_link *sim_of(cvy_link *link) { return (sim_link *)(void *)link; }

void sim_link_begin(int n, const sim_wires *rules) {
  wires = (struct wires){.n = n, .rules = *rules};
  for (int from = 0; from < n; from++)
    for (int to = 0; to < n; to++)
      for (int s = 0; s < CVY_STREAMS; s++) {
        pipe *const p = &pipes[from][to][s];
        p->first = p->end = 0;
        p->last_ns = 0;
      }
}

bool sim_link_is_dead(int n) { return wires.dead[n]; }

static uint64_t later(double most_s) { return cvy_clock_ns() + 1 + (uint64_t)(most_s * 1e6 * sim_below(1001)); }

/* Mostly at once. */
static uint64_t arrival(const pipe *p) {
  const uint64_t now = cvy_clock_ns();
  const uint32_t kind = sim_below(16);
  const uint64_t at = kind < 8 ? now : kind < 15 ? later(0.005) : later(wires.rules.late_s);
  return at > p->last_ns ? at : p->last_ns;
}

/* ---- losses ---- */

/* Any suffix of what is under way is lost. */
static void lose_suffix(pipe *p) {
  const long n = p->end - p->first;
  if (n > 0) p->end -= sim_below((uint32_t)n + 1);
}

/* Node `me` learns of the loss, after what still comes from that node. */
static void lose(int me, int other, cvy_link_news news) {
  loss *const l = &wires.losses[me][other];
  if (l->at_ns || wires.dead[me] || !wires.links[me]) return;
  uint64_t at = cvy_clock_ns();
  for (int s = 0; s < CVY_STREAMS; s++) {
    pipe *const p = &pipes[other][me][s];
    if (!wires.left[other]) lose_suffix(p);
    for (long i = p->first; i < p->end; i++)
      if (p->messages[i % UNDER_WAY].arrives_ns > at) at = p->messages[i % UNDER_WAY].arrives_ns;
  }
  const uint64_t after = news == CVY_LINK_SILENT ? later(8) : sim_below(4) ? later(0.02) : later(2);
  l->news = news;
  l->at_ns = at + (after - cvy_clock_ns());
  sim_wake(wires.links[me]);
}

void sim_link_kill(int n, sim_death death) {
  if (wires.dead[n] || wires.left[n]) return;
  wires.dead[n] = true;
  sim_node_kill(n);
  for (int me = 0; me < wires.n; me++) {
    const bool silent = death == SIM_DEATH_SILENT || (death == SIM_DEATH_MIXED && sim_below(2));
    if (me != n) lose(me, n, silent ? CVY_LINK_SILENT : CVY_LINK_ENDED);
  }
  sim_wake(&wires);
}

void sim_link_dies_agreeing(int n, int messages, sim_death death) {
  wires.dies_at[n] = messages;
  wires.dies_how[n] = death;
}

void sim_link_cut(int a, int b) {
  if (wires.cut[a][b]) return;
  sim_say("CUT between %d and %d", a, b);
  wires.cut[a][b] = wires.cut[b][a] = true;
  lose(a, b, CVY_LINK_SILENT);
  lose(b, a, CVY_LINK_SILENT);
}

/* The node notes the losses whose time has come, and its round ends. */
static void look(sim_link *l) {
  const int me = l->base.rank;
  for (int r = 0; r < wires.n; r++) {
    loss *const one = &wires.losses[me][r];
    if (one->noted || !one->at_ns || one->at_ns > cvy_clock_ns()) continue;
    one->noted = true;
    l->broken |= one->news != CVY_LINK_LEFT;
    sim_say("learns that node %d %s", r,
            one->news == CVY_LINK_SILENT ? "is silent"
            : one->news == CVY_LINK_LEFT ? "has left"
                                         : "has ended");
    if (one->news == CVY_LINK_SILENT && wires.rules.on_silence) wires.rules.on_silence(me, r);
    sim_wake(l);
  }
}

static void earlier(uint64_t *until_ns, uint64_t at_ns) {
  if (at_ns > cvy_clock_ns() && (!*until_ns || at_ns < *until_ns)) *until_ns = at_ns;
}

/* Waits for anything new, at most until then (0: no limit). */
static void wait(sim_link *l, uint64_t until_ns) {
  for (int r = 0; r < wires.n; r++)
    if (!wires.losses[l->base.rank][r].noted) earlier(&until_ns, wires.losses[l->base.rank][r].at_ns);
  sim_wait(l, until_ns);
  look(l);
}

static bool is_gone(const sim_link *l, int r) { return wires.losses[l->base.rank][r].noted; }
static bool is_over(const sim_link *l, cvy_stream stream) { return stream != CVY_LINK_CONTROL && l->broken; }

/* ---- data ---- */

/* False: it does not arrive. */
static bool push_from(int me, uint32_t round, int to, cvy_stream stream, const void *data, size_t bytes, bool forged) {
  pipe *const p = &pipes[me][to][stream];
  if (wires.cut[me][to] || wires.dead[to] || wires.left[to]) return false;
  if (bytes > MOST_BYTES || p->end - p->first == UNDER_WAY) sim_fail("a message has no room");
  message *const m = &p->messages[p->end++ % UNDER_WAY];
  m->round = round;
  m->bytes = bytes;
  m->forged = forged;
  memcpy(m->content, data, bytes);
  m->arrives_ns = p->last_ns = arrival(p);
  if (wires.links[to]) sim_wake(wires.links[to]);
  return true;
}

static bool push(const sim_link *l, int to, cvy_stream stream, const void *data, size_t bytes) {
  char content[MOST_BYTES];
  bool forged = false;
  if (stream != CVY_LINK_CONTROL || !wires.rules.on_control || bytes > MOST_BYTES)
    return push_from(l->base.rank, l->round, to, stream, data, bytes, false);
  memcpy(content, data, bytes);
  wires.rules.on_control(l->base.rank, to, content, &bytes, &forged);
  return push_from(l->base.rank, l->round, to, stream, content, bytes, forged);
}

bool sim_link_inject(int from, int to, const void *data, size_t bytes) {
  const pipe *const p = &pipes[from][to][CVY_LINK_CONTROL];
  if (!wires.links[from] || !wires.links[to] || wires.dead[from] || p->end - p->first == UNDER_WAY) return false;
  if (!push_from(from, 0, to, CVY_LINK_CONTROL, data, bytes, true)) return false;
  /* a moment later, since nobody was awake to send it: sim_sync.c would take whom it wakes for one that slept in */
  pipe *const to_it = &pipes[from][to][CVY_LINK_CONTROL];
  uint64_t *const at_ns = &to_it->messages[(to_it->end - 1) % UNDER_WAY].arrives_ns;
  if (*at_ns <= cvy_clock_ns()) *at_ns = to_it->last_ns = cvy_clock_ns() + 1;
  return true;
}

static void count_control(int me) {
  if (++wires.controls[me] != wires.dies_at[me]) return;
  sim_link_kill(me, wires.dies_how[me]);
  sim_yield();
}

static cvy_status send(cvy_link *link, int to, cvy_stream stream, const void *data, size_t bytes) {
  sim_link *const l = sim_of(link);
  cvy_status status = CVY_OK;
  l->inside += stream != CVY_LINK_CONTROL;
  sim_yield();
  look(l);
  if (is_gone(l, to) || is_over(l, stream)) {
    status = CVY_E_INTERRUPTED;
  } else {
    const bool pushed = push(l, to, stream, data, bytes);
    const pipe *const p = &pipes[link->rank][to][stream];
    const long own = p->end;
    while (wires.rules.meets && stream != CVY_LINK_CONTROL && status == CVY_OK &&
           (wires.cut[link->rank][to] || wires.dead[to] || !pushed || p->first < own)) {
      wait(l, 0);
      if ((is_gone(l, to) && (!pushed || p->first < own)) || is_over(l, stream)) status = CVY_E_INTERRUPTED;
    }
  }
  if (stream == CVY_LINK_CONTROL) count_control(link->rank);
  l->inside -= stream != CVY_LINK_CONTROL;
  return status;
}

static void drop_old(const sim_link *l, pipe *p) {
  while (p->first < p->end && p->messages[p->first % UNDER_WAY].round < l->round) p->first++;
}

static cvy_status receive(cvy_link *link, int from, cvy_stream stream, void *data, size_t bytes) {
  sim_link *const l = sim_of(link);
  pipe *const p = &pipes[from][link->rank][stream];
  cvy_status status = CVY_OK;
  l->inside += stream != CVY_LINK_CONTROL;
  sim_yield();
  uint64_t until_ns = 0;
  for (look(l);; wait(l, until_ns)) {
    if (stream != CVY_LINK_CONTROL) drop_old(l, p);
    const message *const m = p->first < p->end ? &p->messages[p->first % UNDER_WAY] : NULL;
    const bool there = m && (stream == CVY_LINK_CONTROL || m->round == l->round);
    if ((is_gone(l, from) && !there) || is_over(l, stream)) {
      status = CVY_E_INTERRUPTED;
      break;
    }
    if (there && m->arrives_ns <= cvy_clock_ns()) {
      if (m->bytes != bytes && !m->forged) sim_fail("a message has %zu bytes, not %zu", m->bytes, bytes);
      if (m->bytes != bytes) {
        cvy_link_refuse(link, from, "sends a message of a wrong size");
        status = CVY_E_INTERRUPTED;
        break;
      }
      memcpy(data, m->content, bytes);
      p->first++;
      if (wires.links[from]) sim_wake(wires.links[from]);
      break;
    }
    until_ns = there ? m->arrives_ns : 0;
  }
  l->inside -= stream != CVY_LINK_CONTROL;
  return status;
}

/* ---- news ---- */

static cvy_link_news poll(cvy_link *link, double seconds, int *from) {
  sim_link *const l = sim_of(link);
  const int me = link->rank, begin = (int)sim_below((uint32_t)wires.n);
  const uint64_t end_ns = cvy_clock_ns() + (uint64_t)(1e9 * seconds);
  sim_yield();
  look(l);
  for (;;) {
    uint64_t until_ns = end_ns;
    for (int i = 0; i < wires.n; i++) {
      const int r = (begin + i) % wires.n;
      const pipe *const p = &pipes[r][me][CVY_LINK_CONTROL];
      loss *const one = &wires.losses[me][r];
      *from = r;
      if (p->first < p->end) {
        const uint64_t at_ns = p->messages[p->first % UNDER_WAY].arrives_ns;
        if (at_ns <= cvy_clock_ns()) return CVY_LINK_MESSAGE;
        earlier(&until_ns, at_ns);
      } else if (one->noted && !one->told) {
        one->told = true;
        return one->news;
      }
    }
    if (cvy_clock_ns() >= end_ns) return CVY_LINK_NOTHING;
    wait(l, until_ns);
  }
}

/* ---- rounds ---- */

static void interrupt(cvy_link *link) {
  sim_of(link)->broken = true;
  sim_wake(link);
}

static void renew(cvy_link *link, uint32_t round) {
  sim_link *const l = sim_of(link);
  look(l);
  if (l->inside) sim_fail("node %d: a round begins with %d threads inside the link", link->rank, l->inside);
  if (round <= l->round) sim_fail("node %d: round %u follows round %u", link->rank, round, l->round);
  sim_say("round %u", round);
  l->round = round;
  l->broken = false;
}

/* What comes from the other one is dropped from now on. */
static void refuse(cvy_link *link, int node, const char *why) {
  const int me = link->rank;
  sim_say("node %d is refused: it %s", node, why);
  for (int s = 0; s < CVY_STREAMS; s++) pipes[node][me][s].first = pipes[node][me][s].end;
  if (wires.rules.on_refusal) wires.rules.on_refusal(me, node);
  sim_link_cut(me, node);
}

/* ---- life ---- */

static void close_link(cvy_link *link) {
  const int me = link->rank;
  if (sim_of(link)->inside) sim_fail("node %d closes its link with a thread inside", me);
  wires.left[me] = true;
  wires.links[me] = NULL;
  for (int r = 0; r < wires.n; r++)
    if (r != me) lose(r, me, CVY_LINK_LEFT);
  cvy_free(link);
}

static const cvy_link_fns fns = {.send = send,
                                 .receive = receive,
                                 .poll = poll,
                                 .interrupt = interrupt,
                                 .renew = renew,
                                 .refuse = refuse,
                                 .close = close_link};

cvy_link *sim_link_open(void) {
  const int me = sim_node();
  sim_link *const l = cvy_calloc(1, sizeof *l);
  l->base = (cvy_link){.fns = &fns, .kind = "simulated", .rank = me, .size = wires.n, .names = names, .survives = true};
  wires.links[me] = l;
  return &l->base;
}
