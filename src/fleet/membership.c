/* SPDX-License-Identifier: MIT */
#include "src/fleet/membership.h"

#include <string.h>

#include "src/base/clock.h"
#include "src/base/mem.h"
#include "src/fleet/standing.h"

/* So often may a node ask for another round while no operation gets done: more than a fleet can lose. */
enum { ASKS_MOST = 1024 };
/* After so long this node's own link knows what has become of a node that others know to have ended. */
static const double DOUBT_S = 30;

typedef cvy_standing_message message;

struct cvy_membership {
  cvy_fleet *fleet;
  cvy_roster *roster;
  /* with the lock: */
  uint32_t round; /* this node's, or that it wants */
  bool stopping;
  cvy_link_news gone[CVY_NODES_MOST]; /* ENDED, SILENT, LEFT; NOTHING: it is there */
  bool told[CVY_NODES_MOST];
  message inbox[CVY_NODES_MOST]; /* the newest of each node: it stands for all before it */
  bool fresh[CVY_NODES_MOST];
  int asks[CVY_NODES_MOST]; /* for another round, by each node, since an operation was done */
  bool doubts;              /* a meeting waits for what this node's own link knows of a node */
  /* of the exchange thread, in a meeting: */
  uint64_t view;
  int64_t counted;        /* as in own, of the newest meeting */
  uint64_t claimed, outs; /* nodes that have ended, say others; nodes that go on without this one */
  bool heard[CVY_NODES_MOST];
  message said[CVY_NODES_MOST]; /* by those that were heard */
  int stopper;
};

cvy_status cvy_membership_create(cvy_fleet *fleet, cvy_roster *roster, cvy_membership **out) {
  cvy_status status = CVY_OK;
  cvy_membership *const a = cvy_calloc(1, sizeof *a);
  *out = NULL;
  CVY_REQUIRE(a, CVY_E_MEMORY, "out of host memory");
  a->fleet = fleet;
  a->roster = roster;
  a->round = cvy_fleet_round(fleet);
  a->stopper = -1;
  *out = a;
fail:
  return status;
}

void cvy_membership_destroy(cvy_membership **membership) {
  cvy_free(*membership);
  *membership = NULL;
}

/* ---- monitor ---- */

static void note_message(cvy_membership *a, int from, const message *m) {
  cvy_standing_expected expected = {.size = cvy_fleet_size(a->fleet),
                                    .self = cvy_fleet_rank(a->fleet),
                                    .from = from,
                                    .view = cvy_fleet_view(a->fleet),
                                    .devices = cvy_fleet_devices_of(a->fleet, from)};
  cvy_roster_lock(a->roster);
  expected.round = a->round;
  const char *why = cvy_standing_wrong(m, &expected);
  const bool asks = cvy_fleet_has(a->fleet, from) && m->round > a->round;
  if (!why && asks && ++a->asks[from] > ASKS_MOST) why = "requests rounds without progress";
  if (!why) {
    a->inbox[from] = *m;
    a->fresh[from] = true;
    if (asks) cvy_roster_halt(a->roster);
    cvy_roster_wake(a->roster);
  }
  cvy_roster_unlock(a->roster);
  if (why) cvy_link_refuse(cvy_fleet_link(a->fleet), from, why);
}

static void note_gone(cvy_membership *a, int r, cvy_link_news how) {
  cvy_roster_lock(a->roster);
  a->gone[r] = how;
  if (how != CVY_LINK_LEFT && cvy_fleet_has(a->fleet, r)) cvy_roster_halt(a->roster);
  cvy_roster_wake(a->roster);
  cvy_roster_unlock(a->roster);
}

void cvy_membership_listen(cvy_membership *a, double seconds) {
  cvy_link *const link = cvy_fleet_link(a->fleet);
  int from = -1;
  message m;
  const cvy_link_news news = cvy_link_poll(link, seconds, &from);
  switch (news) {
    case CVY_LINK_NOTHING: break;
    case CVY_LINK_LEFT:
    case CVY_LINK_ENDED:
    case CVY_LINK_SILENT: note_gone(a, from, news); break;
    case CVY_LINK_MESSAGE:
      if (cvy_link_receive(link, from, CVY_LINK_CONTROL, &m, sizeof m) == CVY_OK) note_message(a, from, &m);
      break;
  }
  cvy_roster_lock(a->roster);
  if (a->doubts) cvy_roster_wake(a->roster); /* the meeting looks at the clock */
  cvy_roster_unlock(a->roster);
}

bool cvy_membership_has_news(const cvy_membership *a) {
  bool any = false;
  for (int r = 0; r < cvy_fleet_size(a->fleet); r++)
    any |= cvy_fleet_has(a->fleet, r) && (a->gone[r] || (a->fresh[r] && a->inbox[r].round > a->round));
  return any;
}

bool cvy_membership_misses_one(cvy_membership *a) {
  bool any = false;
  cvy_roster_lock(a->roster);
  for (int r = 0; r < cvy_fleet_size(a->fleet); r++) any |= cvy_fleet_has(a->fleet, r) && a->gone[r];
  cvy_roster_unlock(a->roster);
  return any;
}

void cvy_membership_stop(cvy_membership *a) {
  cvy_roster_lock(a->roster);
  a->stopping = true;
  cvy_roster_wake(a->roster);
  cvy_roster_unlock(a->roster);
}

/* ---- a meeting ---- */

/* It will not go on, that is certain. Others are believed where this node's own link has lost it, too. */
static bool has_ended(const cvy_membership *a, int r) {
  const uint64_t bit = cvy_view_bit(r);
  if (a->outs & bit) return false;
  return a->gone[r] == CVY_LINK_ENDED || a->gone[r] == CVY_LINK_LEFT ||
         (a->gone[r] == CVY_LINK_SILENT && a->claimed & bit);
}

static message standing_of(const cvy_membership *a, const cvy_standing *own) CVY_HOLDS(a->roster);
static message standing_of(const cvy_membership *a, const cvy_standing *own) {
  const int n = cvy_fleet_devices_of(a->fleet, cvy_fleet_rank(a->fleet));
  message m = {.magic = CVY_STANDING_MAGIC, .round = a->round, .view = a->view, .done = own->done};
  if (own->stops) m.stops = CVY_STANDING_HAS_LOST;
  for (int r = 0; r < cvy_fleet_size(a->fleet); r++)
    if (has_ended(a, r)) m.ended |= cvy_view_bit(r);
  m.ended |= a->claimed & ~a->view; /* each node asks its own link */
  for (int i = 0; i < n; i++) m.devices[i / 8] |= (uint8_t)(own->devices[i] << i % 8);
  return m;
}

/* Sends to all others: those in the view must answer, and those outside learn that the fleet continues without them.
 * The loss of a node meanwhile is further news. */
static void say(cvy_membership *a, const message *m) {
  const int self = cvy_fleet_rank(a->fleet);
  for (int r = 0; r < cvy_fleet_size(a->fleet); r++) {
    message one = *m;
    one.ended &= ~cvy_view_bit(r); /* hearsay; it knows better */
    if (r != self) (void)cvy_link_send(cvy_fleet_link(a->fleet), r, CVY_LINK_CONTROL, &one, sizeof one);
  }
}

static void change(cvy_membership *a, uint64_t view, uint32_t round) {
  a->view = view;
  a->round = round;
  memset(a->heard, 0, sizeof a->heard);
}

static void take_message(cvy_membership *a, int r, bool *changed) CVY_HOLDS(a->roster);
static void take_message(cvy_membership *a, int r, bool *changed) {
  const message *const m = &a->inbox[r];
  const bool same_view = m->view == a->view;
  a->fresh[r] = false;
  if (!(m->view & cvy_view_bit(cvy_fleet_rank(a->fleet)))) { /* the word of one node: the larger part goes on */
    a->outs |= cvy_view_bit(r);
    change(a, a->view & ~cvy_view_bit(r), a->round + 1);
    *changed = true;
    return;
  }
  if (m->round < a->round) return;
  if (!cvy_standing_done_fits(m->done, a->counted)) {
    cvy_link_refuse(cvy_fleet_link(a->fleet), r, "sent a standing with impossible progress");
    return; /* its loss is news */
  }
  a->claimed |= m->ended;
  if (m->round > a->round || !same_view) {
    change(a, a->view & m->view, m->round + !same_view);
    *changed = true;
  }
  if (same_view) {
    a->heard[r] = true;
    a->said[r] = *m;
  }
}

/* Takes in what the monitor has noted. *changed: this node has to speak again. */
static void take_news(cvy_membership *a, bool *changed) CVY_HOLDS(a->roster);
static void take_news(cvy_membership *a, bool *changed) {
  for (int r = 0; r < cvy_fleet_size(a->fleet); r++)
    if (a->view & cvy_view_bit(r) && a->fresh[r]) take_message(a, r, changed);
  for (int r = 0; r < cvy_fleet_size(a->fleet); r++) {
    if (!(a->view & cvy_view_bit(r)) || !a->gone[r] || (a->gone[r] == CVY_LINK_LEFT && a->heard[r])) continue;
    change(a, a->view & ~cvy_view_bit(r), a->round + 1);
    *changed = true;
  }
}

/* Of the nodes that were there before, this part goes on (see above). believed: nodes that have ended as others say. */
static bool may_go_on(const cvy_membership *a, uint64_t before, uint64_t believed) {
  int here = 0, were = 0;
  bool first_is_here = false, all_ended = true;
  for (int r = 0; r < cvy_fleet_size(a->fleet); r++) {
    if (!(before & cvy_view_bit(r))) continue;
    const bool is_here = a->view & cvy_view_bit(r);
    if (were == 0) first_is_here = is_here;
    were++;
    here += is_here;
    all_ended &= is_here || has_ended(a, r) || (believed & cvy_view_bit(r));
  }
  return all_ended || 2 * here > were || (2 * here == were && first_is_here);
}

static void settle(cvy_membership *a, cvy_standing *agreed) {
  int at = 0;
  a->stopper = -1;
  agreed->done = INT64_MAX;
  agreed->stops = false;
  for (int r = 0; r < cvy_fleet_size(a->fleet); r++) {
    const bool there = a->view & cvy_view_bit(r);
    const message *const m = &a->said[r];
    if (there && m->done < agreed->done) agreed->done = m->done;
    agreed->stops |= there && m->stops;
    if (a->stopper < 0 && there && m->stops) a->stopper = r;
    for (int i = 0; i < cvy_fleet_devices_of(a->fleet, r); i++)
      agreed->devices[at++] = there && (m->devices[i / 8] >> i % 8 & 1);
  }
}

/* Others know that nodes have ended of which this node's own link knows nothing yet, and it makes a difference. */
static bool is_in_doubt(const cvy_membership *a, uint64_t before) {
  uint64_t unknown = 0;
  for (int r = 0; r < cvy_fleet_size(a->fleet); r++)
    if (!a->gone[r]) unknown |= a->claimed & ~a->outs & cvy_view_bit(r);
  return unknown && !may_go_on(a, before, 0) && may_go_on(a, before, unknown);
}

/* Nodes whose standing is missing. */
static uint64_t unheard(const cvy_membership *a) {
  uint64_t nodes = 0;
  for (int r = 0; r < cvy_fleet_size(a->fleet); r++)
    if (a->view & cvy_view_bit(r) && !a->heard[r]) nodes |= cvy_view_bit(r);
  return nodes;
}

/* Until all that are there have said the same. */
static void meet(cvy_membership *a, const cvy_standing *own, uint64_t before) CVY_HOLDS(a->roster);
static void meet(cvy_membership *a, const cvy_standing *own, uint64_t before) {
  const int self = cvy_fleet_rank(a->fleet);
  cvy_patience *const patience = cvy_fleet_patience(a->fleet);
  uint64_t doubted_ns = 0;
  bool changed = true;
  change(a, before, a->round + 1);
  while (!a->stopping) {
    take_news(a, &changed);
    if (changed) {
      const message m = standing_of(a, own);
      changed = false;
      a->heard[self] = true;
      a->said[self] = m;
      cvy_roster_unlock(a->roster);
      say(a, &m);
      cvy_roster_lock(a->roster);
      continue;
    }
    const uint64_t missing = unheard(a);
    a->doubts = !missing && is_in_doubt(a, before);
    if (!a->doubts) doubted_ns = 0;
    else if (doubted_ns == 0) doubted_ns = cvy_clock_ns();
    if (!missing && (!a->doubts || cvy_clock_seconds_since(doubted_ns) > DOUBT_S)) break;
    cvy_patience_begin(patience, CVY_WAIT_MEETING, missing);
    cvy_roster_wait(a->roster);
  }
  a->doubts = false;
  cvy_patience_end(patience, CVY_WAIT_MEETING);
}

void cvy_membership_leave(cvy_membership *a, const cvy_standing *own) {
  cvy_roster_lock(a->roster);
  change(a, cvy_fleet_view(a->fleet), a->round + 1);
  message m = standing_of(a, own);
  cvy_roster_unlock(a->roster);
  m.stops = CVY_STANDING_WAS_ASKED;
  say(a, &m);
}

cvy_status cvy_membership_meet(cvy_membership *a, const cvy_standing *own, cvy_standing *agreed) {
  cvy_status status = CVY_OK;
  const uint64_t before = cvy_fleet_view(a->fleet);
  cvy_roster_lock(a->roster);
  if (own->counted != a->counted) memset(a->asks, 0, sizeof a->asks);
  a->counted = own->counted;
  meet(a, own, before);
  const bool enough = may_go_on(a, before, 0), stopping = a->stopping;
  cvy_roster_unlock(a->roster);
  if (stopping) return CVY_E_INTERRUPTED;
  CVY_REQUIRE(enough || !(a->outs & before), CVY_E_DEVICE,
              "the other nodes have continued without this one: it did not answer in time");
  CVY_REQUIRE(enough, CVY_E_DEVICE,
              "too few of the other nodes answer: they may have continued without this one, so it ends");
  settle(a, agreed);
  cvy_fleet_set_view(a->fleet, a->view);
  cvy_fleet_renew(a->fleet, a->round);
fail:
  return status;
}

int cvy_membership_next_lost(cvy_membership *a, cvy_link_news *how) {
  int next = -1;
  cvy_roster_lock(a->roster);
  for (int r = 0; r < cvy_fleet_size(a->fleet) && next < 0; r++) {
    if (a->told[r] || cvy_fleet_has(a->fleet, r)) continue;
    a->told[r] = true;
    next = r;
    /* else silent: to this node, or to others, whose word it has taken over */
    *how = a->gone[r] == CVY_LINK_LEFT ? CVY_LINK_LEFT : has_ended(a, r) ? CVY_LINK_ENDED : CVY_LINK_SILENT;
  }
  cvy_roster_unlock(a->roster);
  return next;
}

int cvy_membership_stopper(const cvy_membership *a, bool *asked) {
  *asked = a->stopper >= 0 && a->said[a->stopper].stops == CVY_STANDING_WAS_ASKED;
  return a->stopper;
}
