/* SPDX-License-Identifier: MIT
 * How long a step takes on a team of the first k of some devices, from what each of them takes alone and what the exchange
 * takes alone. Pure.
 *
 * Computing. A device's time for its share is that measured alone (balance.h). Devices of one place share its cores: as
 * long as those at work have no more than the whole of them between them, none takes from another; else all of them end
 * when the place has done the work of all. What else neighbours cost each other (memory, caches, clocks, cores that are
 * two threads of one) is one number per device, measured with all at work at once, and taken to grow evenly with the cores
 * of the place that are at work. Is it below 1, a device alone leaves cores idle, for a share that is too small for them,
 * and the first neighbour already uses them: by share, that part of its time is taken to fall as its time per sample does.
 * Exchange. Its last bucket comes when backward is over, and nothing hides it; the rest is hidden as far as half of the
 * computing goes (CVY_BALANCE_HIDDEN). Where the host's cores all compute, it hides behind nothing: who sums up does not
 * compute. A team of one has none. */
#ifndef CVY_TRAIN_SCALING_H
#define CVY_TRAIN_SCALING_H

#include "src/train/balance.h"

typedef struct cvy_scaling_device {
  cvy_balance_device alone;         /* its points: whole steps of it alone, by share; the rest is not used */
  int place;                        /* devices of the same number share cores */
  double part;                      /* of the place's cores, above 0, at most 1 */
  double crowded;                   /* time with all devices at work, by what follows from `part`; 0: 1 */
  int crowded_share;                /* its share when that was measured; 0: the same for all shares */
} cvy_scaling_device;

typedef struct cvy_scaling_exchange {
  double transfer_s, host_s;        /* of this team, alone: both ways on all devices at once; sum and update */
  double tail;                      /* part of the gradients that is in the last bucket */
  int host_place;                   /* the place of the host's cores; -1: other than all devices' */
} cvy_scaling_exchange;

typedef enum cvy_scaling_limit {
  CVY_SCALING_COMPUTE,              /* the devices compute nearly all the time */
  CVY_SCALING_EXCHANGE,             /* the exchange that is not hidden is the largest rest */
  CVY_SCALING_IMBALANCE,            /* waiting for a slower device is */
  CVY_SCALING_HOST,                 /* what nothing explains is: launches, threads that wake up late */
  CVY_SCALING_CORES                 /* computing, of devices that share cores: more of them are not more */
} cvy_scaling_limit;
const char *cvy_scaling_limit_name(cvy_scaling_limit limit);   /* "compute", … */

typedef struct cvy_scaling_step {
  double step_s;
  double compute_s;                 /* of the slowest device */
  double exposed_s;                 /* exchange that is not hidden */
  double imbalance_s;               /* the slowest device's computing less the mean of those with a share */
  bool shares_cores;                /* some device with a share has to share its cores */
} cvy_scaling_step;

/* The step of the first k of n devices with these shares (k of them). exchange NULL: without one. */
cvy_scaling_step cvy_scaling_predict(const cvy_scaling_device *devices, int n, int k, const int *shares,
                                     const cvy_scaling_exchange *exchange);
/* What limits a step of step_s seconds (a measured one, or the predicted). */
cvy_scaling_limit cvy_scaling_limits(const cvy_scaling_step *predicted, double step_s);

/* The step of k devices like this one, each with `share` samples, cores and link of its own, fed by the same host:
 * the transfers of all go on at once and take what one device's take, the sum reads k parts and the weights and writes
 * them at the speed measured: host_s of `measured_k` devices times (k + 2) / (measured_k + 2). */
cvy_scaling_step cvy_scaling_extrapolate(const cvy_scaling_device *device, int k, int share,
                                         const cvy_scaling_exchange *measured, int measured_k);

/* "adding 1:0 makes a step 1.12x faster", "adding 1:0 is not worth it: 0.97x, because …". before_s, after_s: measured
 * steps at the same batch without and with it; `with`: the step with it, as predicted. */
void cvy_scaling_verdict(const char *name, double before_s, double after_s, const cvy_scaling_step *with, char *text,
                         size_t size);

#endif
