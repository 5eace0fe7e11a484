/* SPDX-License-Identifier: MIT */
#include "src/fleet/standing.h"

_Static_assert(sizeof(cvy_standing_message) == 104, "no padding crosses");
_Static_assert(sizeof(cvy_standing_message) <= CVY_CONTROL_BYTES, "a standing is one control message");

static uint64_t all_nodes(int size) { return size < 64 ? ((uint64_t)1 << size) - 1 : ~(uint64_t)0; }

static bool has_devices_behind(const cvy_standing_message *m, int n) {
  bool any = false;
  for (int i = n; i < CVY_FLEET_DEVICES; i++) any |= m->devices[i / 8] >> i % 8 & 1;
  return any;
}

const char *cvy_standing_wrong(const cvy_standing_message *m, const cvy_standing_expected *f) {
  const uint64_t all = all_nodes(f->size), self = cvy_view_bit(f->self), from = cvy_view_bit(f->from);
  const bool together = m->view & self && f->view & from;
  if (m->magic != CVY_STANDING_MAGIC) return "sent a control message that is not a standing";
  if (m->view & ~all || m->ended & ~all) return "sent a standing with nodes that the fleet does not have";
  if (!(m->view & from)) return "sent a standing of a view in which it is not itself";
  if (m->ended & (self | from)) return "sent a standing by which it has ended itself, or this node has, which runs";
  if (m->round == 0 || m->round > UINT32_MAX - CVY_STANDING_ROUNDS)
    return "sent a standing of a round that no node is in";
  if (together && m->round > f->round && m->round - f->round > CVY_STANDING_ROUNDS)
    return "sent a standing of a round far ahead of the others";
  if (m->stops > CVY_STANDING_WAS_ASKED) return "sent a standing with an unknown reason for the end of the run";
  if (has_devices_behind(m, f->devices)) return "sent a standing with devices that it does not have";
  return NULL;
}

bool cvy_standing_done_fits(int64_t done, int64_t counted) { return done == counted || done == counted + 1; }
