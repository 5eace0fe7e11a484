/* SPDX-License-Identifier: MIT
 * Predicts the time of a step on a team of the first k devices, from the time of each device alone and of the exchange
 * alone. Pure.
 *
 * Computing. A device's time for its share is that measured alone (balance.h). Devices of one place share its cores. If
 * the working devices need at most all cores, they do not slow each other down; else all of them end when the place has
 * finished the work of all. One factor per device models other costs of neighbours (memory, caches, clocks,
 * hyper-threads). It is measured with all devices working, and grows linearly with the busy cores of the place. A
 * factor below 1 means that a device alone leaves cores unused, since its share is too small, and that a neighbour uses
 * them: this fraction of its time falls with its time per sample.
 *
 * Exchange. Its last bucket follows the backward pass and does not overlap computing. The other buckets overlap at most
 * half of the computing (CVY_BALANCE_HIDDEN). If devices use all of the host's cores, no bucket overlaps: a core that
 * adds does not compute. A team of one has no exchange.
 *
 * Fleet. The units of a step's gradients go through the chain of nodes and back (fleet/chain.h). Measured for each node
 * alone: the time at which its parts of each unit are ready, and the times of adding and updating them. The links'
 * rates give the rest. A node adds a unit when it has its own parts and the sum of the previous nodes, sends the sum on
 * before it takes the next unit, and the totals return in the same way. Its next step begins when it has the last
 * total. With equal units and only the links, a step takes (units + 2 (nodes - 1) - 1) times the time of one unit on
 * one link. */
#ifndef CVY_SHARE_SCALING_H
#define CVY_SHARE_SCALING_H

#include "src/share/balance.h"

typedef struct cvy_scaling_device {
  cvy_balance_device alone; /* its points: whole steps of the device alone, by share; other members are not used */
  int place;                /* devices with the same number share cores */
  double cores;             /* fraction of the place's cores that it uses, above 0, at most 1 */
  double crowded;           /* time with all devices working / time expected from `cores`; 0: 1 */
  int crowded_share;        /* its share when that was measured; 0: the same for all shares */
} cvy_scaling_device;

typedef struct cvy_scaling_exchange {
  double transfer_s, host_s; /* of this team, alone: both directions on all devices at once; sum and update */
  double tail;               /* fraction of the gradients in the last bucket */
  int host_place;            /* the place of the host's cores; -1: not shared with any device */
} cvy_scaling_exchange;

typedef enum cvy_scaling_limit {
  CVY_SCALING_COMPUTE,   /* the devices compute nearly all the time */
  CVY_SCALING_EXCHANGE,  /* most of the other time is exchange that does not overlap */
  CVY_SCALING_IMBALANCE, /* most of it is waiting for a slower device */
  CVY_SCALING_HOST,      /* most of it is unexplained: launches, threads that wake up late */
  CVY_SCALING_CORES      /* computing, on cores that the devices share */
} cvy_scaling_limit;
const char *cvy_scaling_limit_name(cvy_scaling_limit limit); /* "compute", … */

typedef struct cvy_scaling_step {
  double step_s;
  double compute_s;   /* of the slowest device */
  double exposed_s;   /* exchange that does not overlap */
  double imbalance_s; /* the slowest device's computing less the mean of those with a share */
  bool shares_cores;  /* a device with a share shares its cores with others */
} cvy_scaling_step;

/* The step of the first k of n devices with these shares (k of them). exchange NULL: without one. */
cvy_scaling_step cvy_scaling_predict(const cvy_scaling_device *devices, int n, int k, const int *shares,
                                     const cvy_scaling_exchange *exchange);
/* The limit of a step of step_s seconds (measured or predicted). */
cvy_scaling_limit cvy_scaling_limits(const cvy_scaling_step *predicted, double step_s);

/* The step of k devices like this one, each with `share` samples, its own cores and link, and the same host:
 * all transfers run at once and take as long as one device's; the sum reads k parts and the weights and writes them at
 * the measured speed: host_s of `measured_k` devices times (k + 2) / (measured_k + 2). */
cvy_scaling_step cvy_scaling_extrapolate(const cvy_scaling_device *device, int k, int share,
                                         const cvy_scaling_exchange *measured, int measured_k);

/* A node alone; seconds of each unit. */
typedef struct cvy_scaling_node {
  const double *ready_s; /* from the beginning of its step, ascending: its own parts lie on the host */
  const double *sum_s, *update_s;
} cvy_scaling_node;
/* Between a node and the next one, with both directions busy. */
typedef struct cvy_scaling_link {
  double up, down; /* bytes per second: to the next node, from it */
  double latency_s;
} cvy_scaling_link;
typedef struct cvy_scaling_chain {
  int n_nodes, n_units; /* 1 or more */
  const double *bytes;  /* of each unit, on a link */
  const cvy_scaling_node *nodes;
  const cvy_scaling_link *links; /* n_nodes - 1 */
  double *scratch;               /* n_nodes * (n_units + 2) */
} cvy_scaling_chain;
/* Seconds of a step among many consecutive ones. */
double cvy_scaling_chain_step(const cvy_scaling_chain *chain);
/* Seconds that the links need for a step if all parts are ready at once, without adding and updating. */
double cvy_scaling_chain_links(const cvy_scaling_chain *chain);

/* "with pc2 a step is 1.70x as fast", "pc2 is not worth it: 0.83x, because …". without_s, with_s: the step without and
 * with the node. own_s, others_s: the node's time for its share by itself, and that of the slowest other node. links_s:
 * of only the links. */
void cvy_scaling_node_verdict(const char *name, double without_s, double with_s, double own_s, double others_s,
                              double links_s, char *text, size_t size);

/* "adding 1:0 makes a step 1.12x faster", "adding 1:0 is not worth it: 0.97x, because …". before_s, after_s: measured
 * steps at the same batch without and with it; `with`: the step with it, as predicted. */
void cvy_scaling_verdict(const char *name, double before_s, double after_s, const cvy_scaling_step *with, char *text,
                         size_t size);

#endif
