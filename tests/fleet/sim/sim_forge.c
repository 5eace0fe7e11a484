/* SPDX-License-Identifier: MIT */
#include "tests/fleet/sim/sim_forge.h"

#include <string.h>

#include "tests/fleet/sim/sim_link.h"
#include "src/fleet/standing.h"

static struct {
  int n, devices, count;
  int changing; /* the node whose messages are changed; -1: none */
  bool views;
} forge;

void sim_forge_begin(int n, int devices) {
  memset(&forge, 0, sizeof forge);
  forge.n = n;
  forge.devices = devices;
  forge.changing = -1;
}

int sim_forge_count(void) { return forge.count; }

static int64_t draw_done(void) { return sim_below(2) ? -1 - (int64_t)sim_below(100) : 1000 + (int64_t)sim_below(1000); }

static int other_than(int a) { return (a + 1 + (int)sim_below((uint32_t)forge.n - 1)) % forge.n; }

/* Neither of both; -1: there is none. */
static int third(int a, int b) {
  int r = (int)sim_below((uint32_t)forge.n);
  for (int i = 0; i < forge.n && (r == a || r == b); i++) r = (r + 1) % forge.n;
  return r == a || r == b ? -1 : r;
}

enum {
  SIZE,
  MAGIC,
  NO_NODE,
  NOT_ITSELF,
  ENDED_RECEIVER,
  ENDED_ITSELF,
  ENDED_NO_NODE,
  ROUND_FAR,
  ROUND_LAST,
  ROUND_FIRST,
  DONE,
  STOPS,
  DEVICES,
  WRONG, /* so many are wrong; the others are what no node is believed alone */
  ENDED_THIRD = WRONG,
  VIEW,
  KINDS
};

static void falsify(cvy_standing_message *m, int from, int to, int kind, size_t *bytes) {
  const int x = third(from, to), device = forge.devices + (int)sim_below((uint32_t)(CVY_FLEET_DEVICES - forge.devices));
  switch (kind) {
    case SIZE: *bytes = sim_below(2) ? sim_below(sizeof *m) : sizeof *m + 1 + sim_below(100); break;
    case MAGIC: m->magic ^= 1u << sim_below(32); break;
    case NO_NODE: m->view |= (uint64_t)1 << (forge.n + (int)sim_below((uint32_t)(64 - forge.n))); break;
    case NOT_ITSELF: m->view &= ~cvy_view_bit(from); break;
    case ENDED_RECEIVER: m->ended |= cvy_view_bit(to); break;
    case ENDED_ITSELF: m->ended |= cvy_view_bit(from); break;
    case ENDED_NO_NODE: m->ended |= (uint64_t)1 << (forge.n + (int)sim_below((uint32_t)(64 - forge.n))); break;
    case ROUND_FAR: m->round += 1000000 + sim_below(1000000); break;
    case ROUND_LAST: m->round = UINT32_MAX - sim_below(CVY_STANDING_ROUNDS); break;
    case ROUND_FIRST: m->round = 0; break;
    case DONE: m->done = draw_done(); break;
    case STOPS: m->stops = (uint8_t)(3 + sim_below(253)); break;
    case DEVICES: m->devices[device / 8] |= (uint8_t)(1 << device % 8); break;
    case ENDED_THIRD: m->ended |= x >= 0 ? cvy_view_bit(x) : 0; break;
    case VIEW: m->view &= x >= 0 ? ~cvy_view_bit(x) : ~(uint64_t)0; break;
  }
}

/* Of a round that the receiver has not begun: an old one may say what it likes. */
static void send_to(int from, int to, bool all) {
  int kind = (int)sim_below(WRONG);
  if (all && kind == DONE && forge.n > 2) kind = ROUND_FAR; /* looked at in a meeting, if nothing newer has come */
  char content[SIM_CONTROL_BYTES] = {0};
  cvy_standing_message m = {
      .magic = CVY_STANDING_MAGIC, .round = 200, .view = ((uint64_t)1 << forge.n) - 1, .done = draw_done()};
  size_t bytes = sizeof m;
  falsify(&m, from, to, kind, &bytes);
  memcpy(content, &m, sizeof m);
  if (sim_link_inject(from, to, content, bytes)) forge.count++;
}

void sim_forge_send(int from, bool all) {
  const int one = other_than(from);
  for (int to = 0; to < forge.n; to++)
    if (to != from && (all || to == one)) send_to(from, to, all);
}

void sim_forge_change(int from, bool views) {
  forge.changing = from;
  forge.views = views;
}

void sim_forge_control(int from, int to, void *content, size_t *bytes, bool *forged) {
  cvy_standing_message m;
  *forged = from == forge.changing && *bytes == sizeof m && sim_below(2);
  if (!*forged) return;
  memcpy(&m, content, sizeof m);
  falsify(&m, from, to, (int)sim_below(forge.views ? KINDS : KINDS - 1), bytes);
  memcpy(content, &m, sizeof m);
  forge.count++;
}
