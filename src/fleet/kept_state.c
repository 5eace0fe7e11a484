/* SPDX-License-Identifier: MIT */
#include "src/fleet/kept_state.h"

/* [worker] Reads into the next generation, so that the truth stays whole if the device fails meanwhile. */
static cvy_status get_state(void *device, void *arg) {
  const cvy_keep_params *const k = arg;
  float *const moments[CVY_MOMENTS] = {cvy_ledger_next_moment(k->ledger, 0), cvy_ledger_next_moment(k->ledger, 1)};
  const cvy_member_fns *const fns = cvy_roster_fns(k->roster, cvy_roster_index(k->roster, device));
  return fns->get(device, cvy_ledger_next_w(k->ledger), moments, cvy_ledger_next_running(k->ledger));
}

/* Reads device i of this node. *there: it was read; else it is lost, now or before. */
static void read_device(const cvy_keep_params *k, int i, bool *there) {
  union {
    const cvy_keep_params *in;
    void *out;
  } borrowed = {.in = k};
  *there = !cvy_roster_is_lost(k->roster, i);
  if (!*there) return;
  const cvy_status status = cvy_worker_call(cvy_roster_worker(k->roster, i), get_state, borrowed.out);
  *there = status == CVY_OK;
  if (!*there) cvy_roster_fault(k->roster, i, status);
}

/* The state that was read becomes the truth. With the lock, since a recovery begins from the truth. */
static void adopt(const cvy_keep_params *k, const cvy_roster *roster) CVY_HOLDS(roster);
static void adopt(const cvy_keep_params *k, const cvy_roster *roster) {
  cvy_ledger_read(k->ledger, cvy_ring_kept(k->ring, roster));
}

static void adopt_counted(void *user, cvy_roster *roster) CVY_HOLDS(roster) { adopt(user, roster); }

static void keep_alone(const cvy_keep_params *k) {
  const int lone = cvy_shares_lone(k->shares);
  bool there = false;
  if (lone >= 0) read_device(k, lone, &there);
  if (!there) return; /* others redo its steps, for which the caller waits */
  cvy_roster_lock(k->roster);
  adopt(k, k->roster);
  cvy_roster_unlock(k->roster);
}

/* The node whose device it is. */
static int node_of(const cvy_fleet *fleet, int device) {
  int r = 0;
  while (device >= cvy_fleet_first_of(fleet, r + 1)) r++;
  return r;
}

/* One attempt to bring the state of the lone device to all nodes. It does nothing when they have agreed anew since
 * `round`. */
static cvy_status keep_in_fleet(const cvy_keep_params *k, uint32_t round) {
  cvy_status status = CVY_OK;
  const cvy_layout *const l = cvy_ledger_layout(k->ledger);
  const size_t trained = cvy_layout_trained(l) * sizeof(float), moving = cvy_layout_moving(l) * sizeof(float);
  cvy_chain_block blocks[2 + CVY_MOMENTS] = {{cvy_ledger_next_w(k->ledger), trained},
                                             {cvy_ledger_next_running(k->ledger), moving}};
  int n_blocks = 2;
  bool there = true, again;
  union {
    const cvy_keep_params *in;
    void *out;
  } borrowed = {.in = k};
  for (int m = 0; m < cvy_ledger_moments(k->ledger); m++)
    blocks[n_blocks++] = (cvy_chain_block){cvy_ledger_next_moment(k->ledger, m), trained};
  const int lone = cvy_shares_lone(k->shares);
  if (lone < 0) return CVY_OK; /* they have, and redo its steps */
  const int from = node_of(k->fleet, lone);
  if (from == cvy_fleet_rank(k->fleet)) read_device(k, lone - cvy_shares_first(k->shares), &there);
  if (there) CVY_TRY(cvy_chain_spread(k->chain, round, from, blocks, n_blocks, adopt_counted, borrowed.out, &again));
fail:
  return status;
}

cvy_status cvy_keep_state(const cvy_keep_params *k) {
  cvy_status status = CVY_OK;
  uint32_t round = 0;
  for (;;) {
    if (k->chain) CVY_TRY(cvy_chain_settle(k->chain, &round));
    CVY_TRY(cvy_ring_wait(k->ring)); /* steps that are redone since that round began are finished, too */
    if (!cvy_ring_is_behind(k->ring)) break;
    if (k->chain) CVY_TRY(keep_in_fleet(k, round));
    else keep_alone(k);
  }
fail:
  return status;
}
