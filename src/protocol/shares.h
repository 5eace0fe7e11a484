/* SPDX-License-Identifier: MIT
 * Each device's share of a batch, by the rule of share/split.h. A lost device gets no share; the others split the batch
 * like a team without it (shares given as numbers are then weights). The roster's lock guards the shares. The rule
 * itself changes only between steps, on the caller's thread.
 *
 * In a fleet the rule is for the devices of all nodes, and every node computes all shares; the nodes agree on the lost
 * devices. */
#ifndef CVY_PROTOCOL_SHARES_H
#define CVY_PROTOCOL_SHARES_H

#include "src/share/split.h"
#include "src/protocol/roster.h"

typedef struct cvy_shares cvy_shares;

/* `split`: the rule, for all devices; its values are copied. first: in a fleet, the index of this node's first device
 * among all; else -1. sync: batch statistics of the whole batch, so that each share must fit in one pass (no fleet).
 * may_be_lone: a device with all samples updates its own weights. CVY_E_MEMORY. */
cvy_status cvy_shares_create(cvy_roster *roster, const cvy_split_params *split, int first, bool sync, bool may_be_lone,
                             cvy_shares **out);
void cvy_shares_destroy(cvy_shares **shares);

/* Number of devices of the shares, and the index of this node's first one. */
int cvy_shares_all(const cvy_shares *shares);
int cvy_shares_first(const cvy_shares *shares);
/* [exchange thread] In a fleet: sets the devices that are not lost. */
void cvy_shares_set_agreed(cvy_shares *shares, const bool *there);
/* The devices that are not lost, of all devices of the shares. */
void cvy_shares_present(cvy_shares *shares, bool *there);

/* The current rule. Borrowed. */
const cvy_split_params *cvy_shares_rule(const cvy_shares *shares);
/* Sets the numbers by which batches are split, one per device. */
void cvy_shares_set_rule(cvy_shares *shares, const int *counts);

/* All devices' shares of a step's n samples, n at most the batch. Fails as cvy_split_shares; with `sync`
 * CVY_E_ARGUMENT if a share does not fit in one pass. */
cvy_status cvy_shares_cut(cvy_shares *shares, cvy_roster *roster, int n, int *out) CVY_HOLDS(roster);
/* The shares of n samples outside training: without groups, and n may be larger than the batch. Any thread of the
 * team. */
cvy_status cvy_shares_of_samples(cvy_shares *shares, int n, int *out);
/* The shares of a training batch of n samples. Takes the lock itself. */
cvy_status cvy_shares_of_batch(cvy_shares *shares, int n, int *out);
/* Computes the shares of a full batch for cvy_shares_full. share_max: the largest share that each device of this node
 * can get in a batch of any size up to `most`, since rounding may give a shorter batch a larger share. Records idle
 * devices and the lone device in the roster. */
cvy_status cvy_shares_find(cvy_shares *shares, int most, int *share_max);
/* After cvy_shares_find: share_max of devices without a share of a full batch becomes at least `few`, so that they can
 * be tried. */
void cvy_shares_leave_room(cvy_shares *shares, int few, int *share_max);
/* The same rule with these shares: CVY_E_ARGUMENT with `sync` if one does not fit in one pass. */
cvy_status cvy_shares_check_room(const cvy_shares *shares, const int *counts);

/* Index of the lone device among all devices of the shares: it gets all samples of every batch, and updates its own
 * weights. -1: none, and gradients are exchanged. The result of cvy_shares_find; the second function is for holders of
 * the lock. */
int cvy_shares_lone(cvy_shares *shares);
int cvy_shares_lone_now(const cvy_shares *shares, const cvy_roster *roster) CVY_HOLDS(roster);
/* True if that device is number i of this node. */
bool cvy_shares_is_lone(cvy_shares *shares, int i);

/* The current shares of a full batch. */
void cvy_shares_full(cvy_shares *shares, int *out);
int cvy_shares_full_of(const cvy_shares *shares, const cvy_roster *roster, int i) CVY_HOLDS(roster);
/* The exchange thread has finished a step with the current shares. */
void cvy_shares_step_done(cvy_shares *shares, const cvy_roster *roster) CVY_HOLDS(roster);
/* The run ends because of its devices: restores the shares of the newest finished step. */
void cvy_shares_go_back(cvy_shares *shares, const cvy_roster *roster) CVY_HOLDS(roster);

#endif
