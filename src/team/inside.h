/* SPDX-License-Identifier: MIT
 * Internals of cvy_team (convoy/team.h). Threads: the caller's · one worker per device · the exchange thread · the
 * watchdog. They share the roster's lock; every other lock belongs to one member, and threads hold it briefly.
 *
 * Only a member's own file accesses its state: most of these types are opaque elsewhere. */
#ifndef CVY_TEAM_INSIDE_H
#define CVY_TEAM_INSIDE_H

#include "convoy/team.h"
#include "src/cl/devices/devices.h"
#include "src/protocol/events.h"
#include "src/exchange/exchange.h"
#include "src/protocol/ledger.h"
#include "src/replica/replica.h"
#include "src/protocol/results.h"
#include "src/protocol/ring.h"
#include "src/protocol/shares.h"
#include "src/times/timeline.h"

struct cvy_team {
  const cvy_devices *devices;
  const cvy_net *net;
  const cvy_layout *layout; /* the net's, or: */
  cvy_layout own_layout;    /* arranged as params says */
  cvy_team_params params;   /* defaults filled in */
  cvy_replica *replicas;    /* one per device */
  cvy_roster *roster;
  cvy_shares *shares;
  cvy_ledger *ledger;
  cvy_ring *ring;
  cvy_results *results;
  cvy_events *events;
  struct cvy_opening *opening;
  struct cvy_rebalance *rebalance; /* shares follow speeds; else NULL */
  cvy_exchange *exchange;
  struct cvy_watch *watch;
  cvy_pool *pool;         /* the exchange thread's */
  cvy_pool *copies;       /* the caller's, for its batches; NULL: none yet */
  cvy_timeline *timeline; /* NULL: times are not recorded */
  const cvy_data *data;
};

/* Samples of the largest step that the team is planned for: a device that gets nothing of so many has no weights. */
static inline int cvy_team_most_samples(const cvy_team *team) {
  const int samples = team->params.samples, batch = team->params.batch;
  return samples > 0 && samples < batch ? samples : batch;
}

/* The chain to the other nodes of the fleet; NULL without one. */
static inline cvy_chain *cvy_team_chain(const cvy_team *team) {
  return team->exchange ? cvy_exchange_chain(team->exchange) : NULL;
}

/* The caller of this node's team was asked to stop. */
static inline bool cvy_team_is_asked_to_stop(const cvy_team *team) {
  return cvy_stop_requested(team->params.stop) || cvy_chain_asks(cvy_team_chain(team), CVY_ASKS_STOP);
}

/* True with one device on all nodes together: no exchange. */
static inline bool cvy_team_is_alone(const cvy_team *team) { return team->devices->n == 1 && !team->params.fleet; }

/* A device with all samples updates its own weights, with the same arithmetic, without the host's sum. Not with bf16
 * gradients or staleness, nor in a fleet of one node, which measures a node's chain. */
static inline bool cvy_team_may_be_lone(const cvy_team_params *p) {
  return (!p->fleet || cvy_fleet_size(p->fleet) > 1) && !p->inference && !p->no_sync && p->staleness == 0 &&
         p->exchange == CVY_EXCHANGE_FP32;
}

/* Update number `number` of the run, from 1. */
static inline cvy_update_params cvy_team_update(const cvy_team_params *p, float lr, long number) {
  return (cvy_update_params){.kind = p->optimizer,
                             .lr = lr,
                             .weight_decay = p->weight_decay,
                             .momentum = p->momentum,
                             .nesterov = p->nesterov,
                             .betas = {p->betas[0], p->betas[1]},
                             .eps = p->eps,
                             .number = number};
}

/* Vectors that the optimiser keeps. */
static inline int cvy_team_moments(const cvy_team_params *p) {
  const cvy_update_params update = cvy_team_update(p, 0, 1);
  return cvy_update_moments(&update);
}

/* The split of a batch changes results by rounding only. */
static inline bool cvy_team_any_split(const cvy_team *team) {
  return team->params.bn != CVY_BN_DEVICE || !cvy_layout_moves(team->layout);
}

#endif
