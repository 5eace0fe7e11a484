/* SPDX-License-Identifier: MIT
 * Shares of a batch for devices of different speeds. Pure functions of their arguments: no device, no state, any
 * thread; the same arguments give the same shares.
 *
 * Each device has measured times of a few sizes of share. Between two sizes its time is linear. Below the smallest
 * size, the line through the two smallest continues down to a fixed cost (not below 0, and non-decreasing). Above the
 * largest size, the slope is that between the two largest, but per sample at least the largest share's time without the
 * fixed cost, and at least a tenth of its whole time. The time of a larger share is never less than that of a smaller
 * one. With kernels that process whole tiles of `multiple` samples, n samples cost as much as the next multiple.
 *
 * A device with a share n > 0 is done after
 *   max(time(n) + tail_s, (1 - CVY_BALANCE_HIDDEN) time(n) + exchange_s)
 * The exchange of gradients and weights begins with the first gradients and overlaps the fraction CVY_BALANCE_HIDDEN of
 * the computing; its last part (tail_s) follows the computing. With staleness no device waits for the exchange of the
 * previous step, which overlaps the whole computing; the device is done after
 *   max(time(n), exchange_s)
 * A step takes as long as the last device, and part_s for each device with a share: the host's time for adding up one
 * more part, if computing waits for it.
 *
 * With may_be_lone a device with the whole batch has no exchange: its step is only its computing. */
#ifndef CVY_SHARE_BALANCE_H
#define CVY_SHARE_BALANCE_H

#include <stdbool.h>
#include <stddef.h>

#include "src/base/failure.h"

/* Measured on ResNet-18: the fraction of a step's computing that follows the first bucket's gradient (stage 4). */
#define CVY_BALANCE_HIDDEN 0.5

typedef struct cvy_balance_point {
  int n;
  double seconds;
} cvy_balance_point;

typedef struct cvy_balance_device {
  const cvy_balance_point *points; /* measured, ascending n >= 1, seconds > 0; borrowed */
  int n_points;                    /* >= 1 */
  double factor;                   /* current times / times of the points; 0: 1 */
  double exchange_s, tail_s;       /* gradients down and weights up, alone; of it, the time that cannot be hidden */
  bool stale;                      /* the exchange overlaps the next step, without a tail */
  int cap;                         /* limit of its share by memory, 0: no share; negative: no limit */
  int multiple;                    /* samples that its kernels process at once; 0 or 1: single ones */
} cvy_balance_device;

typedef struct cvy_balance_params {
  int batch; /* >= 1 */
  /* BN groups, as in split.h: shares are multiples, a remainder goes to the last device with samples; 0 or 1: single
   * samples. */
  int group;
  /* Smallest share other than 0 (of groups: that of the remainder may be smaller); a batch of fewer samples goes to
   * one device. 0 or 1: any. */
  int least;
  double part_s;    /* seconds, see above */
  bool may_be_lone; /* see above */
  int n_devices;    /* >= 1 */
  const cvy_balance_device *devices;
  int *scratch; /* 5 x n_devices; then the functions allocate nothing; NULL: they do */
} cvy_balance_params;

/* The reason why a device has no share. */
typedef enum cvy_balance_why {
  CVY_BALANCE_WORKS,     /* it has a share */
  CVY_BALANCE_TOO_SLOW,  /* its smallest share takes longer than the whole step without it */
  CVY_BALANCE_NO_GAIN,   /* with it the step would not be shorter */
  CVY_BALANCE_NO_MEMORY, /* the smallest share does not fit */
} cvy_balance_why;

/* Seconds until the device is done with n samples, exchange included; 0 for n = 0. */
double cvy_balance_time(const cvy_balance_device *device, int n);
/* Seconds of its computing. */
double cvy_balance_compute_time(const cvy_balance_device *device, int n);
/* Seconds of a step with these shares. */
double cvy_balance_step_time(const cvy_balance_params *params, const int *shares);

/* Fills shares[n_devices] with those of the shortest step; of several such, one with the fewest devices. why[n_devices]
 * (may be NULL): the reason why a device has no share. CVY_E_ARGUMENT: sizes or times out of range.
 * CVY_E_DEVICE_MEMORY: the caps do not allow the whole batch (message: their sum). CVY_E_MEMORY. */
cvy_status cvy_balance_find(const cvy_balance_params *params, int *shares, cvy_balance_why *why);

/* *fits: the caps allow the whole batch. Other failures as in cvy_balance_find. */
cvy_status cvy_balance_fits(const cvy_balance_params *params, bool *fits);

/* Sentence for a device without a share, e.g. "even 8 images would take it 1.20 s; without it a step takes 0.90 s". */
void cvy_balance_explain(const cvy_balance_params *params, const int *shares, const cvy_balance_why *why, int device,
                         char *text, size_t size);

/* True if the devices' speeds at n samples each (images per second, exchange not counted) differ by more than `by`: the
 * fastest is more than 1 + by times as fast as the slowest. Devices whose cap is below n are left out. */
bool cvy_balance_differ(const cvy_balance_params *params, int n, double by);

#endif
