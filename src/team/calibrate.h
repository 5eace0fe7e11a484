/* SPDX-License-Identifier: MIT
 * A short measurement of all devices of a team, for dividing its batches (pace.h). In a fleet each node measures its
 * own; numbers and arrays of devices are of this node's. */
#ifndef CVY_TEAM_CALIBRATE_H
#define CVY_TEAM_CALIBRATE_H

#include "src/share/pace.h"
#include "src/team/inside.h"

/* Measures on the opened replicas, before the team has weights, and fills the points, caps and exchange costs of
 * `pace`. First whole passes (forward, loss, backward; of an inference team forward and loss) on random images with
 * random weights, at three sizes in whole BN groups, from a few samples up to a pass of about CVY_CALIBRATE_PASS_S. All
 * devices run at once, since they may share cores, memory or a bus while they train. Then the time of the exchange:
 * every gradient down (in the form that crosses) and every weight up on all devices at once, and the host's sum and
 * update. Takes a few seconds at most. Leaves weights and running values at zero on all devices. */
cvy_status cvy_calibrate(cvy_team *team, cvy_pace *pace);
#define CVY_CALIBRATE_PASS_S 0.25
/* The same passes with the shares that were found, for which the replicas are planned by now: a point where it counts,
 * since larger shares may be cheaper per image. Nothing is measured if a step is expected to take longer than
 * CVY_CALIBRATE_STEP_S. */
cvy_status cvy_calibrate_shares(cvy_team *team, cvy_pace *pace, const int *shares);
#define CVY_CALIBRATE_STEP_S 4.0

/* Samples of the smallest size, in whole BN groups. */
int cvy_calibrate_few(const cvy_pace *pace);
/* Device i is there and has no share of a full batch. Any thread of the team. */
bool cvy_calibrate_is_idle(cvy_team *team, int i);
/* While the team trains: times passes of a few samples, as many as for `pace`, on a device that has no share of the
 * steps under way. Weights may arrive on it meanwhile: the results of these passes are not used. Measures nothing if
 * the device is lost or has a share by now. */
cvy_status cvy_calibrate_idle(cvy_team *team, const cvy_pace *pace, int device, cvy_step_time *out);
/* Times the exchange alone, on a training team of several that has weights and no step under way: transfers of all
 * devices at once, and the host's sum and update. Changes nothing. */
cvy_status cvy_calibrate_exchange(cvy_team *team, double *transfer_s, double *host_s);

/* True if all devices (in a fleet: of all nodes) have the same driver, name and number of compute units: a measurement
 * would find differences no larger than noise. */
bool cvy_calibrate_alike(const cvy_team *team);

#endif
