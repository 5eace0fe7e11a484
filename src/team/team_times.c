/* SPDX-License-Identifier: MIT
 * Functions of convoy/profile.h: the devices' use of time, and traces. */
#include "src/team/inside.h"

bool cvy_team_device_times(cvy_team *team, int device, cvy_device_times *out) {
  return cvy_timeline_times(team->timeline, device, out);
}

cvy_status cvy_team_trace_begin(cvy_team *team, const char *path, long events_max) {
  cvy_status status = CVY_OK;
  CVY_REQUIRE(team->timeline, CVY_E_ARGUMENT,
              "%s: a trace needs the times of devices, which this team does not collect", path);
  CVY_REQUIRE(events_max >= 0, CVY_E_ARGUMENT, "%s: a trace of %ld events; expected 0 (a million) or more", path,
              events_max);
  CVY_TRY(cvy_team_wait(team));
  CVY_TRY(cvy_timeline_trace_begin(team->timeline, path, events_max));
fail:
  return status;
}

/* Finishes the queues first: uploads of the last step may still run, and have no times until they end. */
static cvy_status take_last(void *device, void *arg) {
  cvy_status status = CVY_OK;
  cvy_replica *const r = device;
  const bool *const finish = arg;
  if (*finish) CVY_TRY(cvy_device_finish(r->device));
  cvy_timeline_fetch(r->timeline, r->setup.index);
fail:
  return status;
}

cvy_status cvy_team_trace_end(cvy_team *team, cvy_trace_totals *out) {
  bool good = true;
  if (out) *out = (cvy_trace_totals){.first_left_out = -1};
  if (!cvy_timeline_is_traced(team->timeline)) return CVY_OK;
  bool finish = cvy_team_wait(team) == CVY_OK;
  (void)cvy_roster_try_all(team->roster, take_last, &finish, &good);
  if (!good) (void)cvy_roster_settle(team->roster);
  for (int i = 0; i < cvy_roster_size(team->roster); i++)
    if (cvy_roster_is_lost(team->roster, i)) {
      cvy_timeline_leave_out(team->timeline, i);
      cvy_log_warning("the trace does not have all of device %d (%s), which is lost", i,
                      cvy_roster_label(team->roster, i));
    }
  return cvy_timeline_trace_end(team->timeline, out);
}
