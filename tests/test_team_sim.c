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

#include "sim_device.h"
#include "sim_sync.h"
#include "src/base/mem.h"
#include "src/team/exchange.h"
#include "src/team/recover.h"
#include "src/team/watch.h"

enum { MOST_STEPS = 9 };

/* What is drawn for a schedule, and the team that it is about. */
typedef struct scene {
  sim_net net;
  cvy_bucket buckets[SIM_BUCKETS];
  cvy_running bn;
  int n, batch, run_ahead, steps;
  bool fault_stops, rebalances, evaluates, takes_late;
  sim_device devices[SIM_DEVICES];
  cvy_roster *roster;
  cvy_shares *shares;
  cvy_ledger *ledger;
  cvy_ring *ring;
  cvy_results *results;
  cvy_events *events;
  cvy_exchange *exchange;
  cvy_watch *watch;
  /* what was seen */
  int samples[MOST_STEPS], n_results, n_lost;
  bool in_order;
} scene;

static struct {
  long faults, hangs, lost, ended, stale, packed, rebalanced;
} seen;

/* ---- drawing ---- */

static void draw_net(scene *s) {
  cvy_layout *const l = &s->net.layout;
  size_t at = 0;
  l->n_buckets = 1 + (int)sim_below(SIM_BUCKETS);
  l->buckets = s->buckets;
  for (int b = 0; b < l->n_buckets; at += s->buckets[b++].size)
    s->buckets[b] = (cvy_bucket){.offset = at, .size = 1 + sim_below(2)};
  l->n_floats = at;
  l->n_running = (int)sim_below(2);
  l->running = &s->bn;
  s->bn = (cvy_running){.c = 1, .pitch = 1, .momentum = 0.5f};
  l->n_running_floats = 2 * (size_t)l->n_running;
}

static void draw_faults(scene *s) {
  static const cvy_status how[] = {CVY_E_DEVICE, CVY_E_DEVICE, CVY_E_DEVICE_MEMORY, CVY_E_MEMORY, CVY_E_BUILD};
  const bool together = sim_below(4) == 0;
  const int at = (int)sim_below(120);
  for (int i = 0; i < s->n; i++) {
    sim_device *const d = &s->devices[i];
    const uint32_t kind = sim_below(8);
    d->fails_with = how[sim_below(5)];
    d->fault_at = together ? at : 1 + (int)sim_below(160);
    d->fault = kind < 4 ? SIM_HEALTHY : kind < 6 ? SIM_FAILS : kind == 6 ? SIM_HANGS : SIM_HANGS_LATE;
  }
}

static void draw(scene *s) {
  draw_net(s);
  s->n = 1 + (int)sim_below(sim_below(3) ? 4 : SIM_DEVICES);
  s->net.alone = s->n == 1;
  s->net.staleness = s->n > 1 && sim_below(3) == 0;
  s->net.packed = s->n > 1 && sim_below(3) == 0;
  s->batch = 1 + (int)sim_below(SIM_BATCH);
  s->run_ahead = (int)sim_below(CVY_RUN_AHEAD_MOST + 1);
  s->steps = 1 + (int)sim_below(MOST_STEPS);
  s->fault_stops = sim_below(8) == 0;
  s->rebalances = s->n > 1 && sim_below(3) == 0;
  s->evaluates = sim_below(3) == 0;
  s->takes_late = sim_below(3) == 0;
  for (int i = 0; i < s->n; i++) s->devices[i] = (sim_device){.index = i, .net = &s->net, .open = true};
  if (sim_below(4)) draw_faults(s);
  for (int i = 0; i < s->n; i++) {
    seen.faults += s->devices[i].fault == SIM_FAILS;
    seen.hangs += s->devices[i].fault > SIM_FAILS;
  }
  seen.stale += s->net.staleness;
  seen.packed += s->net.packed;
}

static void draw_counts(const scene *s, int *counts) {
  memset(counts, 0, (size_t)s->n * sizeof *counts);
  const int among = 1 + (int)sim_below((uint32_t)s->n);
  for (int k = 0; k < s->batch; k++) counts[sim_below((uint32_t)among)]++;
}

/* ---- the team, as src/team/team.c makes it ---- */

static void must(cvy_status status, const char *what) {
  if (status != CVY_OK) sim_fail("%s: status %d", what, (int)status);
}

static cvy_status replace_exchange(void *user) { return cvy_exchange_replace(((scene *)user)->exchange); }

static void open_team(scene *s) {
  cvy_mail *mail[SIM_DEVICES] = {NULL};
  int share_max[SIM_DEVICES];
  const cvy_split_params split = {.batch = s->batch, .n_devices = s->n};
  must(cvy_roster_create(s->n, &s->roster), "roster");
  must(cvy_shares_create(s->roster, &split, -1, false, &s->shares), "shares");
  must(cvy_ledger_create(&s->net.layout, false, s->net.staleness > 0, &s->ledger), "ledger");
  must(cvy_events_create(s->n, &s->events), "events");
  must(cvy_shares_find(s->shares, s->batch, share_max), "shares");
  for (int i = 0; i < s->n; i++) {
    sim_device *const d = &s->devices[i];
    d->roster = s->roster;
    d->share_max = share_max[i];
    if (!s->net.alone) must(cvy_mail_create(s->roster, i, s->net.layout.n_buckets + 1, &d->mail), "mail");
    mail[i] = d->mail;
    must(cvy_roster_add(s->roster, i, &sim_device_fns, d, "fake"), "roster");
  }
  must(cvy_watch_start(s->roster, 2, replace_exchange, s, &s->watch), "watch");
  must(cvy_results_create(s->n, 2, &s->results), "results");
  must(cvy_ring_create(
           &(cvy_ring_params){.roster = s->roster, .shares = s->shares, .batch = s->batch, .run_ahead = s->run_ahead},
           &s->ring),
       "ring");
  must(cvy_exchange_create(&(cvy_exchange_params){.roster = s->roster,
                                                  .ring = s->ring,
                                                  .ledger = s->ledger,
                                                  .results = s->results,
                                                  .events = s->events,
                                                  .shares = s->shares,
                                                  .mail = mail,
                                                  .crosses = s->n > 1,
                                                  .on_device = s->n == 1,
                                                  .packed = s->net.packed,
                                                  .fault_stops = s->fault_stops,
                                                  .most_samples = s->batch,
                                                  .read_result = sim_read_result},
                           &s->exchange),
       "exchange");
  must(cvy_exchange_start(s->exchange), "exchange");
}

typedef struct put_args {
  scene *scene;
  long step;
} put_args;

static cvy_status put_state(void *device, void *arg) {
  const put_args *const a = arg;
  const cvy_generation truth = cvy_ledger_generation(a->scene->ledger, a->step);
  return sim_device_fns.put(device, &truth);
}

/* As publish.c. */
static cvy_status publish(scene *s, long step) {
  cvy_status status = CVY_OK;
  put_args args = {.scene = s, .step = step};
  CVY_TRY(cvy_ring_wait(s->ring));
  cvy_ring_renumber(s->ring, step);
  if (step == 0 && cvy_ledger_previous(s->ledger))
    memcpy(cvy_ledger_previous(s->ledger), cvy_ledger_w(s->ledger), s->net.layout.n_floats * sizeof(float));
  CVY_TRY(cvy_roster_do_all(s->roster, put_state, &args));
  cvy_ledger_start(s->ledger, step, true);
fail:
  return status;
}

typedef struct plan_args {
  scene *scene;
  int share_max[SIM_DEVICES];
} plan_args;

static cvy_status plan_device(void *device, void *arg) {
  sim_device *const d = device;
  const plan_args *const a = arg;
  if (cvy_roster_is_lost(a->scene->roster, d->index)) return CVY_OK;
  const cvy_status status = sim_device_fns.plan(d, a->share_max[d->index], false, true);
  if (status != CVY_OK) cvy_roster_fault(a->scene->roster, d->index, status);
  return status == CVY_E_MEMORY || status == CVY_E_BUILD ? CVY_E_DEVICE : status;
}

/* As replan.c. */
static cvy_status rebalance(scene *s) {
  cvy_status status = CVY_OK;
  plan_args args = {.scene = s};
  int counts[SIM_DEVICES];
  draw_counts(s, counts);
  CVY_TRY(cvy_ring_wait(s->ring));
  for (int i = 0; i < s->n; i++)
    if (counts[i] && cvy_roster_is_lost(s->roster, i)) return CVY_OK;
  seen.rebalanced++;
  cvy_shares_set_rule(s->shares, counts);
  CVY_TRY(cvy_shares_find(s->shares, s->batch, args.share_max));
  status = cvy_roster_call_all(s->roster, plan_device, &args);
  if (status == CVY_OK) status = publish(s, cvy_ring_next_number(s->ring));
  if (status == CVY_E_DEVICE || status == CVY_E_DEVICE_MEMORY) status = cvy_ring_wait(s->ring);
fail:
  return status;
}

/* What the device would compute with next is the ledger's truth. */
static cvy_status compare(void *device, void *arg) {
  cvy_status status = CVY_OK;
  scene *const s = arg;
  sim_device *const d = device;
  const long next = cvy_ring_next_number(s->ring);
  const float *const mine = d->w[s->net.staleness ? next & 1 : 0];
  if (!s->net.alone) {
    cvy_roster_lock(s->roster);
    const bool idle = cvy_roster_is_idle(s->roster, d->index);
    cvy_roster_unlock(s->roster);
    put_args args = {.scene = s, .step = next};
    if (idle && !cvy_mail_has_weights(d->mail, next)) CVY_TRY(put_state(d, &args));
    CVY_TRY(sim_settle_device(d, next));
    if (memcmp(mine, cvy_ledger_w(s->ledger), s->net.layout.n_floats * sizeof *mine) != 0)
      sim_fail("device %d has other weights than the ledger before step %ld", d->index, next);
  }
fail:
  return status;
}

/* As evaluate.c. */
static cvy_status evaluate(scene *s) {
  cvy_status status = CVY_OK;
  CVY_TRY(cvy_ring_wait(s->ring));
  for (bool good = false; !good;) {
    status = cvy_roster_try_all(s->roster, compare, s, &good);
    if (status == CVY_OK && !good) status = cvy_roster_settle(s->roster);
    CVY_TRY(status);
  }
fail:
  return status;
}

/* ---- the truth ---- */

static int sample_of(long step, int k) { return (int)(step * 40 + k); }

/* A plain loop's weights, running values and losses. */
typedef struct plain {
  float w[MOST_STEPS + 1][SIM_FLOATS], running[MOST_STEPS + 1][2];
  double loss[MOST_STEPS];
} plain;

static void run_plain(const scene *s, plain *p) {
  const cvy_layout *const l = &s->net.layout;
  memset(p, 0, sizeof *p);
  for (size_t i = 0; i < l->n_floats; i++) p->w[0][i] = (float)(int)(i % 3);
  for (int t = 0; t < s->steps; t++) {
    const float *const from = p->w[t >= s->net.staleness ? t - s->net.staleness : 0];
    for (size_t i = 0; i < l->n_floats; i++) {
      float g = 0;
      for (int k = 0; k < s->samples[t]; k++) g += sim_gradient(t, sample_of(t, k), (int)i, from[i]);
      p->w[t + 1][i] = p->w[t][i] - g;
    }
    for (int i = 0; i < 2 * l->n_running; i++) {
      float sum = 0;
      for (int k = 0; k < s->samples[t]; k++) sum += sim_running_sum(t, sample_of(t, k), i);
      p->running[t + 1][i] = 0.5f * sum + 0.5f * p->running[t][i];
    }
    for (int k = 0; k < s->samples[t]; k++) p->loss[t] += sim_loss(t, sample_of(t, k));
  }
}

static void take_results(scene *s, const plain *want) {
  cvy_step_result r;
  for (; cvy_results_take(s->results, &r); s->n_results++) {
    if (r.step != s->n_results) sim_fail("the result of step %ld comes as number %d", r.step, s->n_results);
    if (r.loss != want->loss[r.step] / s->samples[r.step] || r.correct != s->samples[r.step])
      sim_fail("step %ld: loss %g and %d samples, not %g and %d", r.step, r.loss, r.correct,
               want->loss[r.step] / s->samples[r.step], s->samples[r.step]);
  }
}

static cvy_status read_device(void *device, void *arg) {
  const cvy_ledger *const l = arg;
  return sim_device_fns.get(device, cvy_ledger_next_w(l), NULL, cvy_ledger_next_running(l));
}

/* As cvy_team_sync. */
static cvy_status sync_ledger(scene *s) {
  cvy_status status = CVY_OK;
  CVY_TRY(cvy_ring_wait(s->ring));
  if (!cvy_ledger_is_behind(s->ledger)) return CVY_OK;
  status = cvy_worker_call(cvy_roster_worker(s->roster, 0), read_device, s->ledger);
  if (status == CVY_OK) {
    cvy_ledger_read(s->ledger, cvy_ring_finished(s->ring));
    return CVY_OK;
  }
  cvy_roster_fault(s->roster, 0, status);
  CVY_TRY(cvy_ring_wait(s->ring));
fail:
  return status;
}

static void check_ledger(const scene *s, const plain *want) {
  const cvy_layout *const l = &s->net.layout;
  const long steps = cvy_ledger_steps(s->ledger);
  if (steps < 0 || steps > s->steps) sim_fail("the ledger has %ld steps", steps);
  for (size_t i = 0; i < l->n_floats; i++)
    if (cvy_ledger_w(s->ledger)[i] != want->w[steps][i])
      sim_fail("w[%zu] is %g after %ld steps, not %g", i, (double)cvy_ledger_w(s->ledger)[i], steps,
               (double)want->w[steps][i]);
  for (size_t i = 0; i < l->n_running_floats; i++)
    if (cvy_ledger_running(s->ledger)[i] != want->running[steps][i])
      sim_fail("running[%zu] is %g after %ld steps, not %g", i, (double)cvy_ledger_running(s->ledger)[i], steps,
               (double)want->running[steps][i]);
}

static void check_events(scene *s) {
  cvy_team_event e;
  bool lost[SIM_DEVICES] = {false};
  for (; cvy_events_take(s->events, &e); s->n_lost++) {
    if (e.kind != CVY_TEAM_DEVICE_LOST || lost[e.of.lost.device]) sim_fail("an event comes twice");
    lost[e.of.lost.device] = true;
  }
  for (int i = 0; i < s->n; i++)
    if (lost[i] != cvy_roster_is_lost(s->roster, i)) sim_fail("device %d: lost, or said to be lost, but not both", i);
}

/* ---- a schedule ---- */

static cvy_status train(scene *s, const plain *want) {
  cvy_status status = CVY_OK;
  memcpy(cvy_ledger_w(s->ledger), want->w[0], s->net.layout.n_floats * sizeof(float));
  CVY_TRY(publish(s, 0));
  for (long t = 0; t < s->steps; t++) {
    if (s->rebalances && sim_below(3) == 0) CVY_TRY(rebalance(s));
    CVY_TRY(cvy_roster_settle(s->roster));
    const uint64_t begun_ns = cvy_ring_begins(s->ring);
    cvy_step *const step = cvy_ring_next(s->ring);
    step->n = s->samples[t];
    step->begun_ns = begun_ns;
    step->sgd = (cvy_sgd_params){.lr = 1};
    for (int k = 0; k < step->n; k++) step->samples[k] = sample_of(t, k);
    CVY_TRY(cvy_ring_begin(s->ring));
    if (!s->takes_late) take_results(s, want);
    if (s->evaluates && sim_below(3) == 0) CVY_TRY(evaluate(s));
    if (s->net.alone && sim_below(3) == 0) CVY_TRY(sync_ledger(s));
  }
  CVY_TRY(evaluate(s));
  CVY_TRY(sync_ledger(s));
fail:
  return status;
}

static cvy_status close_task(void *device, void *arg) {
  (void)arg;
  sim_device_fns.close(device);
  return CVY_OK;
}

static void close_team(scene *s) {
  (void)cvy_ring_wait(s->ring);
  cvy_exchange_stop(s->exchange);
  for (int i = 0; i < s->n; i++) (void)cvy_worker_call(cvy_roster_worker(s->roster, i), close_task, NULL);
  cvy_watch_stop(&s->watch);
  cvy_roster_end_workers(s->roster);
  if (cvy_roster_hung(s->roster) > 0) {
    sim_settle(); /* threads come back from calls that hung, and must not look at anything */
    return;
  }
  cvy_exchange_destroy(&s->exchange);
  cvy_ring_destroy(&s->ring);
  for (int i = 0; i < s->n; i++) cvy_mail_destroy(&s->devices[i].mail);
  cvy_results_destroy(&s->results);
  cvy_shares_destroy(&s->shares);
  cvy_roster_destroy(&s->roster);
  cvy_events_destroy(&s->events);
  cvy_ledger_destroy(&s->ledger);
  if (sim_events()) sim_fail("%ld events are left", sim_events());
  if (sim_blocks()) sim_fail("%ld blocks of memory are left", sim_blocks());
}

static void run_schedule(void *arg) {
  scene *const s = arg;
  static plain want;
  memset(s, 0, sizeof *s);
  sim_events_begin();
  draw(s);
  for (int t = 0; t < s->steps; t++)
    s->samples[t] = t + 1 < s->steps || sim_below(2) ? s->batch : 1 + (int)sim_below((uint32_t)s->batch);
  sim_say("%d devices, batch %d, %d steps, run-ahead %d, staleness %d, packed %d", s->n, s->batch, s->steps,
          s->run_ahead, s->net.staleness, s->net.packed);
  run_plain(s, &want);
  open_team(s);
  const cvy_status status = train(s, &want);
  take_results(s, &want);
  sim_say("training ends: %d", (int)status);
  check_ledger(s, &want);
  const long finished = cvy_ring_finished(s->ring);
  if (s->n_results != finished) sim_fail("%d results of %ld steps", s->n_results, finished);
  if (status == CVY_OK && finished != s->steps) sim_fail("%ld of %d steps are finished", finished, s->steps);
  if (status == CVY_OK && cvy_ledger_steps(s->ledger) != s->steps)
    sim_fail("the ledger has %ld of %d steps", cvy_ledger_steps(s->ledger), s->steps);
  check_events(s);
  if (status != CVY_OK && s->n_lost < s->n && !(s->fault_stops && s->n_lost > 0))
    sim_fail("the run ends with status %d, though %d of %d devices are left", (int)status, s->n - s->n_lost, s->n);
  if (status == CVY_OK && s->n_lost == s->n) sim_fail("all devices are lost, and the run goes on");
  seen.lost += s->n_lost;
  seen.ended += status != CVY_OK;
  close_team(s);
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
      "%ld packed, %ld times other shares\n",
      n, (double)(clock() - begun) / CLOCKS_PER_SEC, seen.faults, seen.hangs, seen.lost, seen.ended, seen.stale,
      seen.packed, seen.rebalanced);
  return 0;
}
