/* SPDX-License-Identifier: MIT */
#include "src/team/replan.h"

#include "src/base/mem.h"
#include "src/team/calibrate.h"
#include "src/team/publish.h"

typedef struct replan_args {
  cvy_team *team;
  const int *share_max;
  bool keep_choices; /* layers go on with the algorithms they have */
  bool last_way;     /* a device that has no memory for it is lost */
  bool running;      /* there is an exchange thread, which takes devices out */
} replan_args;

static cvy_status replan(void *device, void *arg) {
  cvy_replica *const r = device;
  const replan_args *const a = arg;
  const int i = r->setup.index;
  if (cvy_roster_is_lost(a->team->roster, i)) return CVY_OK;
  const cvy_status status =
      cvy_replica_fns.plan(r, a->share_max[i], cvy_shares_is_lone(a->team->shares, i), false, a->keep_choices);
  if (status == CVY_OK || (status == CVY_E_DEVICE_MEMORY && !a->last_way) || !a->running) return status;
  cvy_roster_fault(a->team->roster, i, status);
  /* the device is lost; the others go on */
  return status == CVY_E_MEMORY || status == CVY_E_BUILD ? CVY_E_DEVICE : status;
}

/* Divides the batch by these shares from now on, and plans every device for its largest share. */
static cvy_status plan_shares(cvy_team *team, const cvy_pace *pace, const int *shares, bool keep_choices,
                              bool last_way) {
  cvy_status status = CVY_OK;
  const int n = cvy_roster_size(team->roster);
  int *const share_max = cvy_calloc((size_t)n, sizeof *share_max);
  CVY_REQUIRE(share_max, CVY_E_MEMORY, "out of host memory");
  cvy_shares_set_rule(team->shares, shares);
  CVY_TRY(cvy_shares_find(team->shares, cvy_team_most_samples(team), share_max));
  cvy_shares_leave_room(team->shares, pace ? cvy_calibrate_few(pace) : 0, share_max);
  replan_args args = {.team = team,
                      .share_max = share_max,
                      .keep_choices = keep_choices,
                      .last_way = last_way,
                      .running = team->ring != NULL};
  CVY_TRY(cvy_roster_call_all(team->roster, replan, &args));
fail:
  cvy_free(share_max);
  return status;
}

static bool has_share_and_is_lost(const cvy_team *team, const int *shares) {
  bool any = false;
  for (int i = 0; i < cvy_roster_size(team->roster); i++) any |= shares[i] > 0 && cvy_roster_is_lost(team->roster, i);
  return any;
}

/* Lowers the cap of devices without memory for `wanted`, and goes back to `now`. */
static cvy_status plan_back(cvy_team *team, cvy_pace *pace, const int *now, const int *wanted) {
  cvy_status status = CVY_OK;
  cvy_log_warning("there is no memory for the new shares; the previous shares are kept");
  for (int i = 0; pace && i < cvy_roster_size(team->roster); i++)
    if (wanted[i] > now[i] && team->replicas[i].share_max == 0) pace->devices[i].cap = now[i];
  CVY_TRY(cvy_ring_wait(team->ring));                /* another device may have failed at its plan */
  CVY_TRY(plan_shares(team, pace, now, true, true)); /* another program may have taken the memory meanwhile */
fail:
  return status;
}

cvy_status cvy_replan_first(cvy_team *team, const cvy_pace *pace, const int *shares) {
  return plan_shares(team, pace, shares, false, false);
}

cvy_status cvy_replan(cvy_team *team, cvy_pace *pace, const int *shares, bool *done) {
  cvy_status status = CVY_OK;
  const size_t n = (size_t)cvy_roster_size(team->roster);
  int *const before = cvy_calloc(n, sizeof *before);
  *done = false;
  CVY_REQUIRE(before, CVY_E_MEMORY, "out of host memory");
  CVY_TRY(cvy_team_sync(team));
  if (has_share_and_is_lost(team, shares)) goto fail; /* a device was lost meanwhile; the caller finds new shares */
  cvy_shares_full(team->shares, before);
  status = plan_shares(team, pace, shares, true, false);
  *done = status == CVY_OK;
  if (status == CVY_E_DEVICE_MEMORY) status = plan_back(team, pace, before, shares);
  if (status == CVY_OK && cvy_ledger_is_initialised(team->ledger)) {
    status = cvy_team_publish(team, cvy_ring_next_number(team->ring));
    *done = *done && !has_share_and_is_lost(team, shares);
  }
  /* the others continue without it */
  if (status == CVY_E_DEVICE || status == CVY_E_DEVICE_MEMORY) status = cvy_ring_wait(team->ring);
fail:
  cvy_free(before);
  return status;
}
