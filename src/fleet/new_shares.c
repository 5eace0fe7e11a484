/* SPDX-License-Identifier: MIT
 * Outline: life · the proposal · plans · between steps. */
#include "src/fleet/new_shares.h"

#include <string.h>

#include "src/base/clock.h"
#include "src/base/mem.h"
#include "src/fleet/kept_state.h"

/* As it crosses; behind it the shares. */
typedef struct proposal {
  int64_t better;
} proposal;

/* As it crosses; behind it a byte per device: 1: its memory is short. */
typedef struct outcome {
  double cost_s; /* of the slowest node so far */
} outcome;

struct cvy_new_shares {
  cvy_new_shares_params params;
  int n, first; /* devices of all nodes; the place of this node's first one */
  int quiet;    /* so many more steps were begun before the last meeting, which has answered them */
  proposal *proposal;
  int32_t *proposed; /* behind it */
  size_t proposal_bytes;
  outcome *outcome;
  uint8_t *is_short; /* behind it */
  size_t outcome_bytes;
  uint64_t began_ns;
  int *now, *wanted, *share_max;
  bool *short_here;  /* one per device of this node: the worker of each writes its own */
  bool *short_for;   /* one per device of all nodes */
  cvy_status status; /* of the head's proposal */
};

/* ---- life ---- */

cvy_status cvy_new_shares_create(const cvy_new_shares_params *params, cvy_new_shares **out) {
  cvy_status status = CVY_OK;
  const size_t n = (size_t)cvy_shares_all(params->shares), own = (size_t)cvy_roster_size(params->roster);
  cvy_new_shares *s = cvy_calloc(1, sizeof *s);
  *out = NULL;
  CVY_REQUIRE(s, CVY_E_MEMORY, "out of host memory");
  *s = (cvy_new_shares){.params = *params,
                        .n = (int)n,
                        .first = cvy_shares_first(params->shares),
                        .proposal_bytes = sizeof *s->proposal + n * sizeof *s->proposed,
                        .outcome_bytes = sizeof *s->outcome + n * sizeof *s->is_short,
                        .now = cvy_calloc(n, sizeof *s->now),
                        .wanted = cvy_calloc(n, sizeof *s->wanted),
                        .share_max = cvy_calloc(own, sizeof *s->share_max),
                        .short_here = cvy_calloc(own, sizeof *s->short_here),
                        .short_for = cvy_calloc(n, sizeof *s->short_for)};
  s->proposal = cvy_calloc(1, s->proposal_bytes);
  s->outcome = cvy_calloc(1, s->outcome_bytes);
  CVY_REQUIRE(s->now && s->wanted && s->share_max && s->short_here && s->short_for && s->proposal && s->outcome,
              CVY_E_MEMORY, "out of host memory for the shares of a fleet");
  s->proposed = (int32_t *)(s->proposal + 1);
  s->is_short = (uint8_t *)(s->outcome + 1);
  *out = s;
  return CVY_OK;
fail:
  cvy_new_shares_destroy(&s);
  return status;
}

void cvy_new_shares_destroy(cvy_new_shares **new_shares) {
  cvy_new_shares *const s = *new_shares;
  if (!s) return;
  cvy_free(s->proposal);
  cvy_free(s->outcome);
  cvy_free(s->now);
  cvy_free(s->wanted);
  cvy_free(s->share_max);
  cvy_free(s->short_here);
  cvy_free(s->short_for);
  cvy_free(s);
  *new_shares = NULL;
}

/* ---- the proposal ---- */

static void propose(void *user, void *data) {
  cvy_new_shares *const s = user;
  (void)data; /* s->proposal */
  bool better = false;
  if (!cvy_fleet_is_head(s->params.fleet)) return;
  s->status = s->params.propose(s->params.user, s->now, s->wanted, &better);
  s->proposal->better = s->status == CVY_OK && better;
  for (int i = 0; i < s->n; i++) s->proposed[i] = s->wanted[i];
}

static cvy_status take_proposal(cvy_new_shares *s, bool *better) {
  cvy_status status = CVY_OK;
  const int batch = cvy_shares_rule(s->params.shares)->batch;
  int64_t sum = 0;
  *better = s->proposal->better != 0;
  if (!*better) return CVY_OK;
  for (int i = 0; i < s->n; i++) {
    CVY_REQUIRE(s->proposed[i] >= 0 && s->proposed[i] <= batch, CVY_E_MISMATCH,
                "the head proposes a share of %d for device %d; expected 0 to %d, the batch", (int)s->proposed[i], i,
                batch);
    s->wanted[i] = s->proposed[i];
    sum += s->proposed[i];
  }
  CVY_REQUIRE(sum == batch, CVY_E_MISMATCH, "the head proposes shares of %lld samples; expected %d, the batch",
              (long long)sum, batch);
fail:
  return status;
}

/* Until all nodes that are left have the proposal of the same head. */
static cvy_status meet(cvy_new_shares *s, bool *better) {
  cvy_status status = CVY_OK;
  const cvy_new_shares_params *const p = &s->params;
  cvy_chain_ask(p->chain, CVY_ASKS_MEET, false);
  for (bool again = true; again;) {
    uint32_t round;
    CVY_TRY(cvy_chain_settle(p->chain, &round));
    CVY_TRY(cvy_ring_wait(p->ring)); /* also for steps that are redone since that round began */
    cvy_shares_full(p->shares, s->now);
    memset(s->proposal, 0, s->proposal_bytes);
    s->status = CVY_OK;
    CVY_TRY(cvy_chain_reduce(p->chain, round, s->proposal, s->proposal_bytes, propose, s, &again));
  }
  CVY_TRY(s->status);
  CVY_TRY(take_proposal(s, better));
fail:
  return status;
}

/* ---- plans ---- */

typedef struct plan_args {
  cvy_new_shares *new_shares;
  bool last_way; /* a device that has no memory for it is lost */
} plan_args;

/* [worker] The device gets the state again, since other memory is empty. */
static cvy_status plan(void *device, void *arg) {
  cvy_status status = CVY_OK;
  const plan_args *const a = arg;
  cvy_new_shares *const s = a->new_shares;
  const cvy_new_shares_params *const p = &s->params;
  const int i = cvy_roster_index(p->roster, device);
  const cvy_member_fns *const fns = cvy_roster_fns(p->roster, i);
  const cvy_generation truth = cvy_ledger_generation(p->ledger, cvy_ring_next_number(p->ring));
  status = fns->plan(device, s->share_max[i], cvy_shares_is_lone(p->shares, i), false, true);
  s->short_here[i] = status == CVY_E_DEVICE_MEMORY && !a->last_way;
  if (s->short_here[i]) return CVY_OK;
  CVY_TRY(status);
  CVY_TRY(fns->put(device, &truth));
fail:
  return status;
}

static void add_outcome(void *user, void *data) {
  cvy_new_shares *const s = user;
  (void)data; /* s->outcome */
  const double cost_s = cvy_clock_seconds_since(s->began_ns);
  if (cost_s > s->outcome->cost_s) s->outcome->cost_s = cost_s;
  for (int i = 0; i < cvy_roster_size(s->params.roster); i++) s->is_short[s->first + i] = s->short_here[i];
}

/* Divides the batch by these shares from now on, and plans all devices that are there for them. When a device or a node
 * is lost at it, those that are left have other shares, by the same rule: all nodes plan again. *good: memory was not
 * short anywhere. */
static cvy_status plan_all(cvy_new_shares *s, const int *shares, bool last_way, bool *good) {
  cvy_status status = CVY_OK;
  const cvy_new_shares_params *const p = &s->params;
  plan_args args = {.new_shares = s, .last_way = last_way};
  bool whole;
  s->began_ns = cvy_clock_ns();
  cvy_shares_set_rule(p->shares, shares);
  for (bool again = true; again;) {
    uint32_t round;
    CVY_TRY(cvy_chain_settle(p->chain, &round));
    CVY_TRY(cvy_shares_find(p->shares, p->most_samples, s->share_max));
    cvy_shares_leave_room(p->shares, p->few, s->share_max);
    memset(s->short_here, 0, (size_t)cvy_roster_size(p->roster) * sizeof *s->short_here);
    CVY_TRY(cvy_roster_try_all(p->roster, plan, &args, &whole)); /* if not whole, the round ends */
    memset(s->outcome, 0, s->outcome_bytes);
    CVY_TRY(cvy_chain_reduce(p->chain, round, s->outcome, s->outcome_bytes, add_outcome, s, &again));
  }
  *good = true;
  for (int i = 0; i < s->n; i++) *good = *good && !s->is_short[i];
fail:
  return status;
}

/* ---- between steps ---- */

/* The plans begin from the ledger. */
static cvy_status keep(const cvy_new_shares *s) {
  const cvy_new_shares_params *const p = &s->params;
  return cvy_keep_state(&(cvy_keep_params){.roster = p->roster,
                                           .ring = p->ring,
                                           .shares = p->shares,
                                           .ledger = p->ledger,
                                           .fleet = p->fleet,
                                           .chain = p->chain});
}

void cvy_new_shares_ask(cvy_new_shares *s) {
  if (cvy_fleet_is_head(s->params.fleet)) cvy_chain_ask(s->params.chain, CVY_ASKS_MEET, true);
}

/* The steps that were under way when the nodes last met carry the same word as the one that made them meet. */
static bool is_due(cvy_new_shares *s, cvy_step *step) {
  const bool due = step->meets && s->quiet == 0;
  step->meets = false;
  if (s->quiet > 0) s->quiet--;
  return due;
}

cvy_status cvy_new_shares_step(cvy_new_shares *s, cvy_step *step, cvy_new_shares_result *out) {
  cvy_status status = CVY_OK;
  *out = (cvy_new_shares_result){0};
  if (!is_due(s, step)) return CVY_OK;
  s->quiet = s->params.run_ahead;
  CVY_TRY(meet(s, &out->tried));
  if (!out->tried) return CVY_OK;
  CVY_TRY(keep(s));
  CVY_TRY(plan_all(s, s->wanted, false, &out->changed));
  out->before = s->now;
  out->wanted = s->wanted;
  out->cost_s = s->outcome->cost_s;
  for (int i = 0; i < s->n; i++) s->short_for[i] = s->is_short[i];
  out->short_for = s->short_for;
  bool back;
  /* another program may have taken the memory meanwhile: that device is lost */
  if (!out->changed) CVY_TRY(plan_all(s, s->now, true, &back));
fail:
  return status;
}
