/* SPDX-License-Identifier: MIT
 * What is known of the devices' speeds while a team trains, and when it is worth dividing the batch anew. Pure: steps are
 * told to it, it proposes shares; no device, no clock. One thread.
 *
 * Calibration gives each device's time for shares of a few sizes (balance.h). Each step then tells how long each device
 * really computed; the ratio to what was expected is the device's factor, the median over the last CVY_PACE_WINDOW steps
 * since shares changed, so that a single slow step moves nothing. New shares are proposed when all devices at work have a
 * full window and the step would become shorter by more than CVY_PACE_GAIN, and when CVY_PACE_HORIZON steps would make up
 * for what the change itself costs. */
#ifndef CVY_TRAIN_PACE_H
#define CVY_TRAIN_PACE_H

#include "src/train/balance.h"

enum { CVY_PACE_POINTS = 8, CVY_PACE_WINDOW = 7, CVY_PACE_HORIZON = 50 };
#define CVY_PACE_GAIN 0.05
/* With less to win than this the even split stays: the same shares in every run are worth more. */
#define CVY_PACE_EVEN 0.02

typedef struct cvy_pace_device {
  cvy_balance_point points[CVY_PACE_POINTS];
  int n_points;
  double ratios[CVY_PACE_WINDOW];   /* measured / expected of the last steps, a ring */
  int n_ratios;                     /* told since shares changed */
  bool lost;                        /* cvy_pace_lose */
} cvy_pace_device;

typedef struct cvy_pace {
  cvy_balance_params params;        /* devices[i].points are those of known[i], factors as last measured */
  cvy_balance_device *devices;
  cvy_pace_device *known;
  cvy_balance_why *why;             /* of the last shares found */
  double change_s;                  /* what a change costs: memory is planned anew */
} cvy_pace;

/* `batch`, `group`, `least` as in cvy_balance_params. Devices know nothing yet and have no cap. */
cvy_status cvy_pace_create(int n_devices, int batch, int group, int least, cvy_pace **out);
void cvy_pace_destroy(cvy_pace **pace);
/* Adds a measured point, in any order; one for the same n replaces it if it is shorter. Points after the
 * CVY_PACE_POINTS-th are dropped. */
void cvy_pace_add_point(cvy_pace *pace, int device, int n, double seconds);
/* Where the caps leave no way to place a batch, which takes several passes on some device then, none of those that are left
 * has a cap any more. *lifted: so it was. As cvy_balance_fits. */
cvy_status cvy_pace_lift_caps(cvy_pace *pace, bool *lifted);
/* The device gets nothing any more. */
void cvy_pace_lose(cvy_pace *pace, int device);
/* The shares to begin with: those of the shortest step, or the even split if that is hardly longer. As
 * cvy_balance_find. */
cvy_status cvy_pace_first(cvy_pace *pace, int *shares);
/* A step with these shares was measured: busy_s[i] seconds of computing on device i, 0 or less where unknown or without a
 * share. */
void cvy_pace_step(cvy_pace *pace, const int *shares, const double *busy_s);
/* A device without a share was tried: n samples took it so long. */
void cvy_pace_try(cvy_pace *pace, int device, int n, double seconds);
/* What a change from `now` would bring. *better true: shares[] are to be taken, and cvy_pace_changed called then.
 * before_s, after_s: expected seconds of a step. Where no shares fit, `now` is as good as any. */
cvy_status cvy_pace_propose(cvy_pace *pace, const int *now, int *shares, bool *better, double *before_s, double *after_s);
/* Shares have changed, after `cost_s` seconds of work for it: measuring begins anew. */
void cvy_pace_changed(cvy_pace *pace, double cost_s);
/* How much longer than at calibration the device computes now. */
double cvy_pace_factor(const cvy_pace *pace, int device);

#endif
