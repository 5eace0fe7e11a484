/* SPDX-License-Identifier: MIT
 * Each device's share of a batch, by the rule of share/split.h. A lost device gets nothing; the others divide the batch
 * as a team of them alone would (shares given as numbers are weights then). The roster's lock guards the shares. The
 * rule itself changes between steps only, on the caller's thread.
 *
 * In a fleet the rule is for the devices of all nodes, and every node computes all shares; a device is there if the
 * nodes have agreed so. */
#ifndef CVY_PROTOCOL_SHARES_H
#define CVY_PROTOCOL_SHARES_H

#include "src/share/split.h"
#include "src/protocol/roster.h"

typedef struct cvy_shares cvy_shares;

/* `split`: the rule, for all devices; its values are copied. first: in a fleet, the place of this node's first device
 * among all; else -1. sync: batch statistics of the whole batch, so that each share must fit in one pass (no fleet).
 * may_be_lone: a device with all samples updates its own weights. CVY_E_MEMORY. */
cvy_status cvy_shares_create(cvy_roster *roster, const cvy_split_params *split, int first, bool sync, bool may_be_lone,
                             cvy_shares **out);
void cvy_shares_destroy(cvy_shares **shares);

/* How many devices the shares are for, and the place of this node's first one. */
int cvy_shares_all(const cvy_shares *shares);
int cvy_shares_first(const cvy_shares *shares);
/* [exchange thread] In a fleet: these devices are there. */
void cvy_shares_set_agreed(cvy_shares *shares, const bool *there);
/* Which devices are there, of all that the shares are for. */
void cvy_shares_present(cvy_shares *shares, bool *there);

/* The present rule. Borrowed. */
const cvy_split_params *cvy_shares_rule(const cvy_shares *shares);
/* From now on the batch is divided by these numbers, one per device. */
void cvy_shares_set_rule(cvy_shares *shares, const int *counts);

/* All devices' shares of a step's n samples, n at most the batch. Fails as cvy_split_shares; with `sync`
 * CVY_E_ARGUMENT if a share does not fit in one pass. */
cvy_status cvy_shares_cut(cvy_shares *shares, cvy_roster *roster, int n, int *out) CVY_HOLDS(roster);
/* The shares of n samples that are no training batch: no groups, and n may be larger than the batch. Any thread of the
 * team. */
cvy_status cvy_shares_of_samples(cvy_shares *shares, int n, int *out);
/* The shares of a training batch of n samples. Takes the lock itself. */
cvy_status cvy_shares_of_batch(cvy_shares *shares, int n, int *out);
/* Computes the shares of a full batch for cvy_shares_full. share_max: the largest share that each device of this node
 * can get in a batch of any size up to `most`, since rounding may give a shorter batch a larger share. Notes in the
 * roster which devices are idle, and which one is lone. */
cvy_status cvy_shares_find(cvy_shares *shares, int most, int *share_max);
/* After cvy_shares_find: share_max of devices without a share of a full batch becomes at least `few`, so that they can
 * be tried. */
void cvy_shares_leave_room(cvy_shares *shares, int few, int *share_max);
/* The same rule with these shares: CVY_E_ARGUMENT with `sync` if one does not fit in one pass. */
cvy_status cvy_shares_check_room(const cvy_shares *shares, const int *counts);

/* The lone device's place among all that the shares are for: it gets all samples of every batch, and updates its own
 * weights. -1: there is none, and gradients cross. As cvy_shares_find has found; the second one for holders of the
 * lock. */
int cvy_shares_lone(cvy_shares *shares);
int cvy_shares_lone_now(const cvy_shares *shares, const cvy_roster *roster) CVY_HOLDS(roster);
/* That device is number i of this node. */
bool cvy_shares_is_lone(cvy_shares *shares, int i);

/* The present shares of a full batch. */
void cvy_shares_full(cvy_shares *shares, int *out);
int cvy_shares_full_of(const cvy_shares *shares, const cvy_roster *roster, int i) CVY_HOLDS(roster);
/* The exchange thread has finished a step with the present shares. */
void cvy_shares_step_done(cvy_shares *shares, const cvy_roster *roster) CVY_HOLDS(roster);
/* The run ends because of its devices: goes back to the shares of the newest finished step. */
void cvy_shares_go_back(cvy_shares *shares, const cvy_roster *roster) CVY_HOLDS(roster);

#endif
