/* SPDX-License-Identifier: MIT
 * The ordered chain: how the nodes of a fleet add up a step, with the bits of one team.
 *
 *   node 0              node 1              node 2 (last)
 *   its devices' parts
 *   their sum   ──up──► + its parts  ──up──► + its parts  = total
 *   update ◄─────down── update ◄─────down─── update
 *
 * The host adds the parts of one team in device order, from the left: ((d0 + d1) + d2). A node takes the sum of the
 * nodes before it as the first part and sends on, so the fleet's sum has the same additions in the same order. The
 * total goes back down, and each node updates its own state with the same arithmetic. Each link carries a parcel once
 * in each direction, in pieces: while one piece goes down the next one goes up, and backward still computes other
 * parcels.
 *
 * The last unit of a step carries the sums of the loss, and the times that the nodes have measured. It makes the step
 * count:
 *
 *   1. up:    a node adds its own when all its parts are sent
 *   2. down:  the commit. A node passes it on when its own state of the next generation is whole
 *   3. up:    the word that the head has it; only then does a node go on to the next step
 *
 * So when the head has the commit, every node has it, and the head alone writes logs: nothing written is ever taken
 * back. And no node overwrites the generation before while another may have to do the step again. When a node is lost,
 * the others agree (membership.h): if all that are left have the commit, the step is done, else all do it again.
 *
 * Where one device of the fleet has all samples (shares.h), it updates its own weights: no parcel crosses, and the step
 * is its last unit. The other nodes get the state when the callers keep it (kept_state.h).
 *
 * An operation is a step, or what the caller's thread asks of all nodes while no step is under way (cvy_chain_reduce,
 * cvy_chain_spread). Every node has the same operations in the same order.
 *
 * Threads: up, down, and a monitor that waits for news of other nodes. The roster's lock guards what threads share;
 * when it is halted, every wait ends. */
#ifndef CVY_FLEET_CHAIN_H
#define CVY_FLEET_CHAIN_H

#include "src/ops/norm_sum.h"
#include "src/fleet/membership.h"
#include "src/fleet/chain_block.h"
#include "src/protocol/ledger.h"
#include "src/protocol/ring.h"
#include "src/protocol/step_sums.h"
#include "src/fleet/chain_units.h"

typedef struct cvy_chain cvy_chain;

typedef struct cvy_chain_params {
  cvy_fleet *fleet; /* its devices are counted */
  cvy_roster *roster;
  cvy_ledger *ledger;
  cvy_pool *pool;          /* for updates; NULL: the thread alone */
  bool packed;             /* parts are bfloat16 */
  double device_timeout_s; /* as of the team; 0 or less: other nodes are waited for without end */
  size_t piece;            /* floats of a message, at most; 0: CVY_CHAIN_PIECE */
  cvy_norm_params norm;    /* of gradients; with a limit updates wait for the whole gradient */
} cvy_chain_params;

/* CVY_E_MEMORY. */
cvy_status cvy_chain_create(const cvy_chain_params *params, cvy_chain **out);
/* Starts the threads. CVY_E_MEMORY. */
cvy_status cvy_chain_start(cvy_chain *chain);
/* Ends them. The team must be at rest, or ended. */
void cvy_chain_stop(cvy_chain *chain);
void cvy_chain_destroy(cvy_chain **chain);

/* Units of a step: its parcels in the order in which they cross, then the sums. */
int cvy_chain_parcels(const cvy_chain *chain);
int cvy_chain_parcel_at(const cvy_chain *chain, int unit);

/* When a piece of a step was worked on here, by cvy_clock_ns. */
typedef struct cvy_chain_times {
  uint64_t given_ns;   /* this node's parts lie on the host */
  uint64_t summed_ns;  /* the sum with them is made, and sent on */
  uint64_t updated_ns; /* this node's state has the total */
} cvy_chain_times;
/* [caller, no step under way] Notes the times of all pieces from the next step on, for at most so many steps: piece i
 * of the k-th of them at times[k * cvy_chain_pieces + i]. A step that is done again counts as another one. They may be
 * read when no step is under way; `times` is borrowed until the team ends. */
void cvy_chain_note(cvy_chain *chain, cvy_chain_times *times, int n_steps);

/* ---- exchange thread: a step ---- */

/* `step` stays as it is until the chain is at rest again. */
void cvy_chain_begin(cvy_chain *chain, const cvy_step *step);
/* This node's parts of the next unit, in device order, lie at `parts` until the unit is updated. */
void cvy_chain_give(cvy_chain *chain, const void *const *parts, int n_parts);
/* The same for the sums: losses[i] of each device with samples, added in this order. norm: of the gradient of this
 * node's lone device; 0: it has none. */
void cvy_chain_give_sums(cvy_chain *chain, const double *losses, int n, int64_t correct, double norm);
/* Waits until this node's state has more than `than` units of the step, or all; how many. -1: the team is halted. */
int cvy_chain_await_updates(cvy_chain *chain, int than);
/* The same without waiting. */
int cvy_chain_updates(cvy_chain *chain);
/* Waits until the step counts on all nodes. False: the team is halted. */
bool cvy_chain_await_end(cvy_chain *chain, cvy_chain_sums *total);
/* With a step that counts: the times that came with it, of all devices (cvy_step.times). Until the next one begins. */
const cvy_step_time *cvy_chain_measured(const cvy_chain *chain);
/* The norm of the gradient of the step that has ended; negative: not computed. */
double cvy_chain_grad_norm(const cvy_chain *chain);

/* ---- exchange thread: after a halt ---- */

/* Ends what is under way, and waits until no thread uses the link. */
void cvy_chain_rest(cvy_chain *chain);
/* The step under way was given up (cvy_chain_set_stop): lets the other nodes know. False: it was not. */
bool cvy_chain_gave_up(cvy_chain *chain);
/* Agrees with the nodes that are left. devices: the fleet's that are left, has room for all. *stops: this node wants
 * the end of the run; then, any does. *done: the step under way counts (*total), else it is to be done again. Fails as
 * cvy_membership_meet. */
cvy_status cvy_chain_agree(cvy_chain *chain, bool *stops, bool *devices, bool *done, cvy_chain_sums *total);
/* [with the roster's lock] The nodes have to agree again before the team goes on. */
bool cvy_chain_has_news(const cvy_chain *chain);
/* The opening has ended by the loss of a node: the nodes may meet again (convoy/fleet.h), and none goes on alone. */
bool cvy_chain_meets_again(cvy_chain *chain);
int cvy_chain_next_lost(cvy_chain *chain, cvy_link_news *how); /* as cvy_membership_next_lost */
int cvy_chain_stopper(const cvy_chain *chain, bool *asked);    /* as cvy_membership_stopper */

/* ---- caller ---- */

/* From now on this node's sums ask for that, or do not. Any thread. */
void cvy_chain_ask(cvy_chain *chain, cvy_chain_request request, bool asks);
bool cvy_chain_asks(cvy_chain *chain, cvy_chain_request request);
/* The caller's stop, NULL: none. The monitor sees it while the caller waits for a step. Where the launcher ends all
 * nodes when one has ended (cvy_link.survives), a stop may be all that this node learns of a loss, and a kill follows:
 * the monitor gives up a step that does not end soon after the stop, so that the head can still save its state. */
void cvy_chain_set_stop(cvy_chain *chain, const cvy_stop *stop);

/* Waits until no node or device has to be taken out. *round: the caller's results from now on are for this one, since
 * the devices' shares change when it ends. Fails with the team's status. */
cvy_status cvy_chain_settle(cvy_chain *chain, uint32_t *round);
/* With no step under way: each node in turn changes `data` by add(user, data), the head first; after the call all have
 * what the last node made of it. *again: the round has ended, since a node or a device was lost, and the caller has to
 * begin anew with cvy_chain_settle. Fails with the team's status. */
cvy_status cvy_chain_reduce(cvy_chain *chain, uint32_t round, void *data, size_t bytes,
                            void (*add)(void *user, void *data), void *user, bool *again);

/* The same for blocks of node `from`, which all others get (chain_block.h).
 * counted: called with the roster's lock when the operation counts on this node, which all nodes that are left have the
 * bytes for, before any thread goes on; NULL: not called. Where it does not count, the blocks have anything. */
cvy_status cvy_chain_spread(cvy_chain *chain, uint32_t round, int from, const cvy_chain_block *blocks, int n_blocks,
                            void (*counted)(void *user, cvy_roster *roster), void *user, bool *again);

#endif
