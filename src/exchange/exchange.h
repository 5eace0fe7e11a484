/* SPDX-License-Identifier: MIT
 * The exchange thread: it finishes steps in order. In a team of several it takes the devices' parts of each parcel
 * (bucket, sums of batch normalisation) as they arrive, adds them in device order, updates the ledger's next generation
 * and sends the result to every device; then it takes the step's results. In a fleet the chain adds and updates
 * (chain.h), and the thread passes it the devices' parts. A lone device (shares.h) updates its own weights, and the
 * thread only waits for results, which in a fleet the chain sends to the other nodes. It also removes failed devices
 * (recover.h). */
#ifndef CVY_EXCHANGE_EXCHANGE_H
#define CVY_EXCHANGE_EXCHANGE_H

#include "src/ops/norm_sum.h"
#include "src/fleet/chain.h"
#include "src/protocol/events.h"
#include "src/protocol/ledger.h"
#include "src/protocol/mail.h"
#include "src/protocol/results.h"
#include "src/protocol/ring.h"
#include "src/times/timeline.h"

typedef struct cvy_exchange cvy_exchange;

typedef struct cvy_exchange_params {
  cvy_roster *roster;
  cvy_ring *ring;
  cvy_ledger *ledger;
  cvy_results *results;
  cvy_shares *shares;
  cvy_fleet *fleet;        /* NULL: the team is alone */
  cvy_mail *const *mail;   /* one per device; borrowed; NULL in a team of one */
  cvy_pool *pool;          /* for the sums; NULL: the exchange thread alone */
  cvy_timeline *timeline;  /* NULL: times are not recorded */
  bool no_sync;            /* no exchange and no update: it only waits for results */
  bool packed;             /* gradients are sent as bfloat16 */
  size_t fleet_piece;      /* floats of a message between nodes, at most; 0: CVY_CHAIN_PIECE */
  double device_timeout_s; /* as of the team */
  bool fault_stops;        /* a failed device ends the run; else the others continue */
  int most_samples;        /* of a step */
  cvy_events *events;      /* of lost devices */
  cvy_norm_params norm;    /* of gradients */
  bool allow_nan;          /* a loss that is not finite does not end the run */
  /* Adds a device's result of the step: mean loss times samples, and correct predictions. */
  void (*read_result)(void *device, long step, double *loss_sum, int *correct);
  /* The norm of a step's gradient, which has come with the result of a lone device. */
  double (*read_norm)(void *device, long step);
} cvy_exchange_params;

/* CVY_E_MEMORY. */
cvy_status cvy_exchange_create(const cvy_exchange_params *params, cvy_exchange **out);
/* The chain to the other nodes of the fleet; NULL without one. */
cvy_chain *cvy_exchange_chain(const cvy_exchange *exchange);
/* [caller] Starts the thread, which removes failed devices from then on. CVY_E_MEMORY. */
cvy_status cvy_exchange_start(cvy_exchange *exchange);
/* [watchdog, with the roster's lock] The exchange thread hangs inside a device's call: the watchdog abandons it and
 * starts another one. CVY_E_MEMORY. */
cvy_status cvy_exchange_replace(void *exchange);
/* [caller] Ends the thread. The ring must be at rest, or the team ended. */
void cvy_exchange_stop(cvy_exchange *exchange);
void cvy_exchange_destroy(cvy_exchange **exchange);

#endif
