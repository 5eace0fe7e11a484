/* SPDX-License-Identifier: MIT
 * The team's protocol without devices: thousands of schedules, each drawn from a seed, on one thread and a simulated
 * clock (sim_sync.h, sim_device.h). After each one: every update was applied exactly once, with the parts of exactly
 * one attempt; the state is that of a plain loop; results came once and in order; nobody waits for ever; nothing was
 * freed twice or left.
 *
 *   CVY_SIM_SCHEDULES=N   how many (20,000)          CVY_SIM_SEED=N   this one alone, saying what happens */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/fleet/sim/sim_sync.h"
#include "tests/fleet/sim/sim_team.h"

/* A schedule draws the job; the team does it. */
typedef struct scene {
  sim_job job;
  sim_team team;
  bool rebalances;
} scene;

static struct {
  long faults, hangs, lost, ended, stale, packed, rebalanced, lone, redone;
} seen;

/* ---- drawing ---- */

static void draw(scene *s) {
  sim_job *const j = &s->job;
  sim_team *const t = &s->team;
  t->job = j;
  t->n = j->n_all = 1 + (int)sim_below(sim_below(3) ? 4 : SIM_DEVICES);
  sim_job_draw(j);
  s->rebalances = t->n > 1 && sim_below(3) == 0;
  const bool any = sim_below(4) > 0;
  const int together = sim_below(4) == 0 ? 1 + (int)sim_below(120) : 0;
  for (int i = 0; any && i < t->n; i++) {
    sim_draw_fault(&t->devices[i], together);
    seen.faults += t->devices[i].fault == SIM_FAILS;
    seen.hangs += t->devices[i].fault > SIM_FAILS;
  }
  seen.stale += j->net.staleness;
  seen.packed += j->net.packed;
}

static void draw_counts(const scene *s, int *counts) {
  memset(counts, 0, (size_t)s->team.n * sizeof *counts);
  const int among = 1 + (int)sim_below((uint32_t)s->team.n);
  if (sim_below(2)) { /* a lone device */
    counts[sim_below((uint32_t)s->team.n)] = s->job.batch;
    return;
  }
  for (int k = 0; k < s->job.batch; k++) counts[sim_below((uint32_t)among)]++;
}

/* ---- other shares ---- */

typedef struct plan_args {
  sim_team *team;
  int share_max[SIM_DEVICES];
} plan_args;

static cvy_status plan_device(void *device, void *arg) {
  sim_device *const d = device;
  const plan_args *const a = arg;
  if (cvy_roster_is_lost(a->team->roster, d->index)) return CVY_OK;
  const cvy_status status =
      sim_device_fns.plan(d, a->share_max[d->index], cvy_shares_lone(a->team->shares) == d->index, false, true);
  if (status != CVY_OK) cvy_roster_fault(a->team->roster, d->index, status);
  return status == CVY_E_MEMORY || status == CVY_E_BUILD ? CVY_E_DEVICE : status;
}

/* As replan.c. */
static cvy_status rebalance(scene *s) {
  cvy_status status = CVY_OK;
  sim_team *const t = &s->team;
  plan_args args = {.team = t};
  int counts[SIM_DEVICES];
  draw_counts(s, counts);
  CVY_TRY(sim_team_sync(t));
  for (int i = 0; i < t->n; i++)
    if (counts[i] && cvy_roster_is_lost(t->roster, i)) return CVY_OK;
  seen.rebalanced++;
  cvy_shares_set_rule(t->shares, counts);
  CVY_TRY(cvy_shares_find(t->shares, s->job.batch, args.share_max));
  status = cvy_roster_call_all(t->roster, plan_device, &args);
  if (status == CVY_OK) status = sim_team_publish(t, cvy_ring_next_number(t->ring));
  if (status == CVY_E_DEVICE || status == CVY_E_DEVICE_MEMORY) status = cvy_ring_wait(t->ring);
fail:
  return status;
}

/* ---- a schedule ---- */

static cvy_status train(scene *s) {
  cvy_status status = CVY_OK;
  sim_team *const team = &s->team;
  CVY_TRY(sim_team_publish(team, 0));
  for (long t = 0; t < s->job.steps; t++) {
    if (s->rebalances && sim_below(3) == 0) CVY_TRY(rebalance(s));
    CVY_TRY(sim_team_step(team, t));
    if (!s->job.takes_late) sim_team_take(team);
    if (s->job.evaluates && sim_below(3) == 0) CVY_TRY(sim_team_evaluate(team));
    if (cvy_shares_lone(team->shares) >= 0 && sim_below(3) == 0) CVY_TRY(sim_team_sync(team));
  }
  CVY_TRY(sim_team_evaluate(team));
  CVY_TRY(sim_team_sync(team));
fail:
  return status;
}

static void run_schedule(void *arg) {
  scene *const s = arg;
  sim_team *const t = &s->team;
  memset(s, 0, sizeof *s);
  sim_events_begin();
  draw(s);
  sim_team_open(t);
  const cvy_status status = train(s);
  sim_say("training ends: %d", (int)status);
  sim_team_check(t);
  const long finished = cvy_ring_finished(t->ring), ledger_has = cvy_ledger_steps(t->ledger);
  if (status == CVY_OK && finished != s->job.steps) sim_fail("%ld of %d steps are finished", finished, s->job.steps);
  if (status == CVY_OK && ledger_has != s->job.steps)
    sim_fail("the ledger has %ld of %d steps", ledger_has, s->job.steps);
  if (status != CVY_OK && t->n_lost < t->n && !(s->job.fault_stops && t->n_lost > 0))
    sim_fail("the run ends with status %d, though %d of %d devices are left", (int)status, t->n - t->n_lost, t->n);
  if (status == CVY_OK && t->n_lost == t->n) sim_fail("all devices are lost, and the run goes on");
  seen.lost += t->n_lost;
  for (int i = 0; i < t->n && t->n > 1; i++) {
    seen.lone += t->devices[i].lone_steps;
    seen.redone += t->devices[i].redone_steps;
  }
  seen.ended += status != CVY_OK;
  if (!sim_team_close(t)) sim_settle(); /* threads come back from calls that hung, and must not look at anything */
}

static long number(const char *name, long otherwise) {
  const char *const text = getenv(name);
  return text ? atol(text) : otherwise;
}

int main(void) {
  static scene s;
  const long one = number("CVY_SIM_SEED", -1), n = one >= 0 ? 1 : number("CVY_SIM_SCHEDULES", 20000);
  const clock_t begun = clock();
  for (long i = 0; i < n; i++) {
    const long seed = one >= 0 ? one : i;
    const char *const why = sim_run((uint64_t)seed, one >= 0, run_schedule, &s);
    if (!why) continue;
    printf("schedule %ld: %s\nrepeat it: CVY_SIM_SEED=%ld tests/test_team_sim\n", seed, why, seed);
    return 1;
  }
  printf(
      "%ld schedules in %.1f s: %ld faults and %ld hangs planned, %ld devices lost, %ld runs ended by it, %ld stale, "
      "%ld packed, %ld times other shares; %ld steps of a lone device, %ld redone\n",
      n, (double)(clock() - begun) / CLOCKS_PER_SEC, seen.faults, seen.hangs, seen.lost, seen.ended, seen.stale,
      seen.packed, seen.rebalanced, seen.lone, seen.redone);
  return 0;
}
