/* SPDX-License-Identifier: MIT
 * The nodes of a fleet change the shares of a batch together, between two steps. [caller]
 *
 *   ask    The head's caller says in the sums of its steps (chain.h) that it knows better shares.
 *   meet   When a step with that word counts, it counts on all nodes: their callers meet before the step that takes its
 *          slot in the ring. No step is under way then. The head proposes shares, or none.
 *   plan   Each node plans its devices for them. If one of them is short of memory, all nodes plan for the old shares
 *          again.
 *
 * The nodes meet and exchange the outcome of the plans by an operation of the chain, which is done on all remaining
 * nodes or on none. When a node or a device is lost meanwhile, those that are left do it again. So all nodes
 * have the same shares in each step. */
#ifndef CVY_FLEET_NEW_SHARES_H
#define CVY_FLEET_NEW_SHARES_H

#include "src/fleet/chain.h"

typedef struct cvy_new_shares cvy_new_shares;

typedef struct cvy_new_shares_params {
  cvy_fleet *fleet;
  cvy_chain *chain;
  cvy_roster *roster;
  cvy_ring *ring;
  cvy_shares *shares;
  cvy_ledger *ledger;
  int run_ahead;    /* steps */
  int most_samples; /* of a step */
  int few;          /* devices without a share are planned for so many, with which they can be tried */
  /* The head's caller looks for better shares of a full batch than `now`, for the devices that are there. *better: it
   * has found some. A failure ends its run. */
  cvy_status (*propose)(void *user, const int *now, int *shares, bool *better);
  void *user;
} cvy_new_shares_params;

/* The outcome of a meeting. Arrays have one entry per device of all nodes; they are lent until the next call. */
typedef struct cvy_new_shares_result {
  bool tried;            /* there were other shares; else nothing has happened, and the rest is not set */
  bool changed;          /* they are those of the next step; else memory was short */
  const int *before;     /* the shares until now */
  const int *wanted;     /* the other ones */
  const bool *short_for; /* devices without memory for them */
  double cost_s;         /* of planning, on the slowest node */
} cvy_new_shares_result;

/* CVY_E_MEMORY. */
cvy_status cvy_new_shares_create(const cvy_new_shares_params *params, cvy_new_shares **out);
void cvy_new_shares_destroy(cvy_new_shares **new_shares);

/* This node, if it is the head, wants to propose shares. */
void cvy_new_shares_ask(cvy_new_shares *new_shares);
/* Every node calls it before each step, with the slot that the step will use. Meets the other nodes if the finished
 * step that had the slot says so. Fails with the team's status, or with that of the proposal. */
cvy_status cvy_new_shares_step(cvy_new_shares *new_shares, cvy_step *step, cvy_new_shares_result *out);

#endif
