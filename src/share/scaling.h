/* SPDX-License-Identifier: MIT
 * Predicts the time of a step on a team of the first k of some devices, from the time of each device alone and of the
 * exchange alone. Pure.
 *
 * Computing. A device's time for its share is that measured alone (balance.h). Devices of one place share its cores:
 * while the devices at work need no more than all cores, none slows another; else all of them end when the place has
 * done the work of all. One number per device stands for other costs of neighbours (memory, caches, clocks, cores that
 * are two threads of one): it is measured with all devices at work, and grows evenly with the cores of the place that
 * are at work. Below 1 it means that a device alone leaves cores unused, since its share is too small, and that a
 * neighbour uses them: this fraction of its time falls with its time per sample.
 *
 * Exchange. Its last bucket comes when backward is over, and no computing hides it; the other buckets hide behind at
 * most half of the computing (CVY_BALANCE_HIDDEN). If devices use all of the host's cores, no bucket is hidden: a core
 * that sums up does not compute. A team of one has no exchange.
 *
 * Fleet. The units of a step's gradients go through the chain of nodes and back (fleet/chain.h). Each node is known by
 * itself: when its own parts of each unit are ready, how long it needs for adding and for updating them. The rest
 * follows from the links' rates: a node adds a unit when it has its own parts and the sum of the nodes before it, sends
 * the sum on before it takes the next unit, and in the same way down again; its next step begins when it has the last
 * total. Of equal units and nothing else than the links, a step takes (units + 2 (nodes - 1) - 1) times that of one
 * unit on one link. */
#ifndef CVY_SHARE_SCALING_H
#define CVY_SHARE_SCALING_H

#include "src/share/balance.h"

typedef struct cvy_scaling_device {
  cvy_balance_device alone; /* its points: whole steps of it alone, by share; the rest is not used */
  int place;                /* devices of the same number share cores */
  double cores;             /* fraction of the place's cores that it uses, above 0, at most 1 */
  double crowded;           /* time with all devices at work / time that follows from `cores`; 0: 1 */
  int crowded_share;        /* its share when that was measured; 0: the same for all shares */
} cvy_scaling_device;

typedef struct cvy_scaling_exchange {
  double transfer_s, host_s; /* of this team, alone: both ways on all devices at once; sum and update */
  double tail;               /* fraction of the gradients in the last bucket */
  int host_place;            /* the place of the host's cores; -1: other than all devices' */
} cvy_scaling_exchange;

typedef enum cvy_scaling_limit {
  CVY_SCALING_COMPUTE,   /* the devices compute nearly all the time */
  CVY_SCALING_EXCHANGE,  /* most of the other time is exchange that is not hidden */
  CVY_SCALING_IMBALANCE, /* most of it is waiting for a slower device */
  CVY_SCALING_HOST,      /* most of it is unexplained: launches, threads that wake up late */
  CVY_SCALING_CORES      /* computing, on cores that the devices share */
} cvy_scaling_limit;
const char *cvy_scaling_limit_name(cvy_scaling_limit limit); /* "compute", … */

typedef struct cvy_scaling_step {
  double step_s;
  double compute_s;   /* of the slowest device */
  double exposed_s;   /* exchange that is not hidden */
  double imbalance_s; /* the slowest device's computing less the mean of those with a share */
  bool shares_cores;  /* a device with a share shares its cores with others */
} cvy_scaling_step;

/* The step of the first k of n devices with these shares (k of them). exchange NULL: without one. */
cvy_scaling_step cvy_scaling_predict(const cvy_scaling_device *devices, int n, int k, const int *shares,
                                     const cvy_scaling_exchange *exchange);
/* The limit of a step of step_s seconds (measured or predicted). */
cvy_scaling_limit cvy_scaling_limits(const cvy_scaling_step *predicted, double step_s);

/* The step of k devices like this one, each with `share` samples, cores and link of its own, fed by the same host:
 * all transfers run at once and take as long as one device's; the sum reads k parts and the weights and writes them at
 * the measured speed: host_s of `measured_k` devices times (k + 2) / (measured_k + 2). */
cvy_scaling_step cvy_scaling_extrapolate(const cvy_scaling_device *device, int k, int share,
                                         const cvy_scaling_exchange *measured, int measured_k);

/* A node by itself; seconds of each unit. */
typedef struct cvy_scaling_node {
  const double *ready_s; /* from the beginning of its step, ascending: its own parts lie on the host */
  const double *sum_s, *update_s;
} cvy_scaling_node;
/* Between a node and the next one, while both ways are at work. */
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
/* Seconds of a step in a row of many. */
double cvy_scaling_chain_step(const cvy_scaling_chain *chain);
/* Seconds that the links alone need for a step: all parts are there at once, and nothing is added or updated. */
double cvy_scaling_chain_links(const cvy_scaling_chain *chain);

/* "with pc2 a step is 1.70x as fast", "pc2 is not worth it: 0.83x, because …". without_s, with_s: the step without and
 * with the node. own_s, others_s: the node's time for its share by itself, and that of the slowest other node. links_s:
 * of the links alone. */
void cvy_scaling_node_verdict(const char *name, double without_s, double with_s, double own_s, double others_s,
                              double links_s, char *text, size_t size);

/* "adding 1:0 makes a step 1.12x faster", "adding 1:0 is not worth it: 0.97x, because …". before_s, after_s: measured
 * steps at the same batch without and with it; `with`: the step with it, as predicted. */
void cvy_scaling_verdict(const char *name, double before_s, double after_s, const cvy_scaling_step *with, char *text,
                         size_t size);

#endif
