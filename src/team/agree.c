/* SPDX-License-Identifier: MIT */
#include "src/team/agree.h"

#include <string.h>

#include "src/base/mem.h"

enum { MAGIC = 0x43564131 };
enum { GOES_ON, HAS_LOST, WAS_ASKED }; /* why the run ends */

typedef struct message {
  uint32_t magic, round;
  uint64_t view;
  uint64_t ended; /* nodes that the sender knows to have ended */
  int64_t done;
  uint8_t stops;                          /* GOES_ON, HAS_LOST, WAS_ASKED */
  uint8_t devices[CVY_FLEET_DEVICES / 8]; /* bit i % 8 of byte i / 8: device i of the sender works */
} message;
_Static_assert(sizeof(message) <= CVY_CONTROL_BYTES, "a standing is one control message");

struct cvy_agree {
  cvy_fleet *fleet;
  cvy_roster *roster;
  /* with the lock: */
  uint32_t round; /* this node's, or that it wants */
  bool stopping;
  cvy_link_news gone[CVY_NODES_MOST]; /* ENDED, SILENT, LEFT; NOTHING: it is there */
  bool told[CVY_NODES_MOST];
  message inbox[CVY_NODES_MOST]; /* the newest of each node: it stands for all before it */
  bool fresh[CVY_NODES_MOST];
  /* of the exchange thread, in a meeting: */
  uint64_t view;
  bool heard[CVY_NODES_MOST];
  message said[CVY_NODES_MOST]; /* by those that were heard */
  int stopper;
};

cvy_status cvy_agree_create(cvy_fleet *fleet, cvy_roster *roster, cvy_agree **out) {
  cvy_status status = CVY_OK;
  cvy_agree *const a = cvy_calloc(1, sizeof *a);
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

void cvy_agree_destroy(cvy_agree **agree) {
  cvy_free(*agree);
  *agree = NULL;
}

/* ---- monitor ---- */

static void note_message(cvy_agree *a, int from, const message *m) {
  cvy_roster_lock(a->roster);
  a->inbox[from] = *m;
  a->fresh[from] = true;
  if (cvy_fleet_has(a->fleet, from) && m->round > a->round) cvy_roster_halt(a->roster);
  cvy_roster_wake(a->roster);
  cvy_roster_unlock(a->roster);
}

static void note_gone(cvy_agree *a, int r, cvy_link_news how) {
  cvy_roster_lock(a->roster);
  a->gone[r] = how;
  if (how != CVY_LINK_LEFT && cvy_fleet_has(a->fleet, r)) cvy_roster_halt(a->roster);
  cvy_roster_wake(a->roster);
  cvy_roster_unlock(a->roster);
}

void cvy_agree_listen(cvy_agree *a, double seconds) {
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
      if (cvy_link_receive(link, from, CVY_LINK_CONTROL, &m, sizeof m) == CVY_OK && m.magic == MAGIC)
        note_message(a, from, &m);
      break;
  }
}

bool cvy_agree_has_news(const cvy_agree *a) {
  bool any = false;
  for (int r = 0; r < cvy_fleet_size(a->fleet); r++)
    any |= cvy_fleet_has(a->fleet, r) && (a->gone[r] || (a->fresh[r] && a->inbox[r].round > a->round));
  return any;
}

void cvy_agree_stop(cvy_agree *a) {
  cvy_roster_lock(a->roster);
  a->stopping = true;
  cvy_roster_wake(a->roster);
  cvy_roster_unlock(a->roster);
}

/* ---- a meeting ---- */

/* It will not go on, that is certain. */
static bool has_ended(const cvy_agree *a, int r) { return a->gone[r] == CVY_LINK_ENDED || a->gone[r] == CVY_LINK_LEFT; }

static message standing_of(const cvy_agree *a, const cvy_standing *own) CVY_HOLDS(a->roster);
static message standing_of(const cvy_agree *a, const cvy_standing *own) {
  const int n = cvy_fleet_devices_of(a->fleet, cvy_fleet_rank(a->fleet));
  message m = {.magic = MAGIC, .round = a->round, .view = a->view, .done = own->done};
  if (own->stops) m.stops = HAS_LOST;
  for (int r = 0; r < cvy_fleet_size(a->fleet); r++)
    if (has_ended(a, r)) m.ended |= cvy_view_bit(r);
  for (int i = 0; i < n; i++) m.devices[i / 8] |= (uint8_t)(own->devices[i] << i % 8);
  return m;
}

/* Tells all others: those in the view have to answer, and those that are not learn that the fleet goes on without
 * them. A node that is lost meanwhile is news of its own. */
static void say(cvy_agree *a, const message *m) {
  const int self = cvy_fleet_rank(a->fleet);
  for (int r = 0; r < cvy_fleet_size(a->fleet); r++)
    if (r != self) (void)cvy_link_send(cvy_fleet_link(a->fleet), r, CVY_LINK_CONTROL, m, sizeof *m);
}

static bool all_heard(const cvy_agree *a) {
  for (int r = 0; r < cvy_fleet_size(a->fleet); r++)
    if (a->view & cvy_view_bit(r) && !a->heard[r]) return false;
  return true;
}

static void change(cvy_agree *a, uint64_t view, uint32_t round) {
  a->view = view;
  a->round = round;
  memset(a->heard, 0, sizeof a->heard);
}

/* Another node has seen that these have ended. */
static void note_ended(cvy_agree *a, uint64_t ended) {
  for (int r = 0; r < cvy_fleet_size(a->fleet); r++) {
    if ((ended & cvy_view_bit(r)) && !has_ended(a, r)) a->gone[r] = CVY_LINK_ENDED;
  }
}

static bool take_message(cvy_agree *a, int r, bool *changed) CVY_HOLDS(a->roster);
static bool take_message(cvy_agree *a, int r, bool *changed) {
  const message *const m = &a->inbox[r];
  const bool same_view = m->view == a->view;
  a->fresh[r] = false;
  if (!(m->view & cvy_view_bit(cvy_fleet_rank(a->fleet)))) return false;
  if (m->round < a->round) return true;
  note_ended(a, m->ended);
  if (m->round > a->round || !same_view) {
    change(a, a->view & m->view, m->round + !same_view);
    *changed = true;
  }
  if (same_view) {
    a->heard[r] = true;
    a->said[r] = *m;
  }
  return true;
}

/* Takes in what the monitor has noted. *changed: this node has to speak again. False: the others go on without it. */
static bool take_news(cvy_agree *a, bool *changed) CVY_HOLDS(a->roster);
static bool take_news(cvy_agree *a, bool *changed) {
  for (int r = 0; r < cvy_fleet_size(a->fleet); r++) {
    if (a->view & cvy_view_bit(r) && a->fresh[r] && !take_message(a, r, changed)) return false;
  }
  for (int r = 0; r < cvy_fleet_size(a->fleet); r++) {
    if (!(a->view & cvy_view_bit(r)) || !a->gone[r] || (a->gone[r] == CVY_LINK_LEFT && a->heard[r])) continue;
    change(a, a->view & ~cvy_view_bit(r), a->round + 1);
    *changed = true;
  }
  return true;
}

/* Of the nodes that were there before, this part goes on (see above). */
static bool may_go_on(const cvy_agree *a, uint64_t before) {
  int here = 0, were = 0;
  bool first_is_here = false, all_ended = true;
  for (int r = 0; r < cvy_fleet_size(a->fleet); r++) {
    if (!(before & cvy_view_bit(r))) continue;
    const bool is_here = a->view & cvy_view_bit(r);
    if (were == 0) first_is_here = is_here;
    were++;
    here += is_here;
    all_ended &= is_here || has_ended(a, r);
  }
  return all_ended || 2 * here > were || (2 * here == were && first_is_here);
}

static void settle(cvy_agree *a, cvy_standing *agreed) {
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

/* Until all that are there have said the same. False: the others go on without this node. */
static bool meet(cvy_agree *a, const cvy_standing *own) CVY_HOLDS(a->roster);
static bool meet(cvy_agree *a, const cvy_standing *own) {
  const int self = cvy_fleet_rank(a->fleet);
  bool changed = true;
  change(a, cvy_fleet_view(a->fleet), a->round + 1);
  while (!a->stopping) {
    if (!take_news(a, &changed)) return false;
    if (changed) {
      const message m = standing_of(a, own);
      changed = false;
      a->heard[self] = true;
      a->said[self] = m;
      cvy_roster_unlock(a->roster);
      say(a, &m);
      cvy_roster_lock(a->roster);
    } else if (all_heard(a)) {
      break;
    } else {
      cvy_roster_wait(a->roster);
    }
  }
  return true;
}

void cvy_agree_leave(cvy_agree *a, const cvy_standing *own) {
  cvy_roster_lock(a->roster);
  change(a, cvy_fleet_view(a->fleet), a->round + 1);
  message m = standing_of(a, own);
  cvy_roster_unlock(a->roster);
  m.stops = WAS_ASKED;
  say(a, &m);
}

cvy_status cvy_agree_meet(cvy_agree *a, const cvy_standing *own, cvy_standing *agreed) {
  cvy_status status = CVY_OK;
  const uint64_t before = cvy_fleet_view(a->fleet);
  cvy_roster_lock(a->roster);
  const bool accepted = meet(a, own), enough = may_go_on(a, before), stopping = a->stopping;
  cvy_roster_unlock(a->roster);
  if (stopping) return CVY_E_INTERRUPTED;
  CVY_REQUIRE(accepted, CVY_E_DEVICE, "the other nodes have gone on without this one: it did not answer them in time");
  CVY_REQUIRE(enough, CVY_E_DEVICE,
              "too few of the other nodes answer: they may be going on without this one, so it ends here");
  settle(a, agreed);
  cvy_fleet_set_view(a->fleet, a->view);
  cvy_fleet_renew(a->fleet, a->round);
fail:
  return status;
}

int cvy_agree_next_lost(cvy_agree *a, cvy_link_news *how) {
  int next = -1;
  cvy_roster_lock(a->roster);
  for (int r = 0; r < cvy_fleet_size(a->fleet) && next < 0; r++) {
    if (a->told[r] || cvy_fleet_has(a->fleet, r)) continue;
    a->told[r] = true;
    next = r;
    *how = a->gone[r] ? a->gone[r] : CVY_LINK_SILENT; /* to others, whose word this node has taken over */
  }
  cvy_roster_unlock(a->roster);
  return next;
}

int cvy_agree_stopper(const cvy_agree *a, bool *asked) {
  *asked = a->stopper >= 0 && a->said[a->stopper].stops == WAS_ASKED;
  return a->stopper;
}
