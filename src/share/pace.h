/* SPDX-License-Identifier: MIT
 * Tracks the devices' speeds during training, and decides when to change shares. Pure: the caller passes the times of
 * steps and requests shares; no device, no clock. One thread.
 *
 * Calibration gives each device's time for shares of a few sizes (balance.h). Each step then gives each device's actual
 * time. The device's factor is its ratio to the expected time, the median over the last CVY_PACE_WINDOW steps since
 * shares changed, so that a single slow step has no effect. New shares are proposed when all devices with a share have
 * a full window, the step would become shorter by more than CVY_PACE_GAIN, and CVY_PACE_HORIZON steps would save the
 * cost of the change. */
#ifndef CVY_SHARE_PACE_H
#define CVY_SHARE_PACE_H

#include "src/share/balance.h"

enum { CVY_PACE_POINTS = 8, CVY_PACE_WINDOW = 7, CVY_PACE_HORIZON = 50 };
#define CVY_PACE_GAIN 0.05
/* The even split is kept if other shares gain less than this: equal shares in every run are preferred. */
#define CVY_PACE_EVEN 0.02

typedef struct cvy_pace_device {
  cvy_balance_point points[CVY_PACE_POINTS];
  int n_points;
  double ratios[CVY_PACE_WINDOW]; /* measured / expected of the last steps, a ring */
  int n_ratios;                   /* counted since shares changed */
  bool lost;                      /* cvy_pace_lose */
} cvy_pace_device;

typedef struct cvy_pace {
  cvy_balance_params params; /* devices[i].points are those of known[i], factors as last measured */
  cvy_balance_device *devices;
  cvy_pace_device *known;
  cvy_balance_why *why; /* of the last shares found */
  int *scratch;         /* the params' */
  double change_s;      /* the cost of a change, which plans memory anew */
} cvy_pace;

/* `batch`, `group`, `least` as in cvy_balance_params. Devices have no measurements and no cap yet. */
cvy_status cvy_pace_create(int n_devices, int batch, int group, int least, cvy_pace **out);
void cvy_pace_destroy(cvy_pace **pace);
/* Adds a measured point, in any order; one for the same n replaces it if it is shorter. Points after the
 * CVY_PACE_POINTS-th are dropped. */
void cvy_pace_add_point(cvy_pace *pace, int device, int n, double seconds);
/* Removes the caps of all remaining devices if they do not allow a batch, which then takes several passes on some
 * device. *lifted: caps were removed. Fails as cvy_balance_fits. */
cvy_status cvy_pace_lift_caps(cvy_pace *pace, bool *lifted);
/* The device is lost and gets no further share. */
void cvy_pace_lose(cvy_pace *pace, int device);
/* The shares to begin with: those of the shortest step, or the even split if that is hardly longer. As
 * cvy_balance_find. */
cvy_status cvy_pace_first(cvy_pace *pace, int *shares);
/* A step with these shares was measured: busy_s[i] seconds of computing on device i, 0 or less where unknown or without
 * a share. */
void cvy_pace_step(cvy_pace *pace, const int *shares, const double *busy_s);
/* A device without a share was tried: n samples took `seconds`. */
void cvy_pace_try(cvy_pace *pace, int device, int n, double seconds);
/* Looks for better shares than `now`. *better true: use shares[], then call cvy_pace_changed. before_s, after_s:
 * expected seconds of a step. If no shares fit, `now` is kept. */
cvy_status cvy_pace_propose(cvy_pace *pace, const int *now, int *shares, bool *better, double *before_s,
                            double *after_s);
/* Shares have changed, which took `cost_s` seconds: measuring restarts. */
void cvy_pace_changed(cvy_pace *pace, double cost_s);
/* The device's current time / its time at calibration. */
double cvy_pace_factor(const cvy_pace *pace, int device);

#endif
