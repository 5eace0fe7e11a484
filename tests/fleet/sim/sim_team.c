/* SPDX-License-Identifier: MIT
 * Outline: drawing · shares that change · life · state · evaluation · steps · the end. */
#include "tests/fleet/sim/sim_team.h"

#include <string.h>

#include "tests/fleet/sim/sim_sync.h"
#include "src/base/mem.h"
#include "src/fleet/kept_state.h"

static int sample_of(long step, int k) { return (int)(step * 40 + k); }

/* ---- drawing ---- */

static void draw_net(sim_job *j) {
  cvy_layout *const l = &j->net.layout;
  size_t at = 0;
  l->n_buckets = 1 + (int)sim_below(SIM_BUCKETS);
  l->buckets = j->buckets;
  for (int b = 0; b < l->n_buckets; at += j->buckets[b++].size)
    j->buckets[b] = (cvy_bucket){.offset = at, .size = 1 + sim_below(2)};
  l->n_floats = at;
  l->n_running = (int)sim_below(2);
  l->running = &j->bn;
  j->bn = (cvy_running){.c = 1, .pitch = 1, .momentum = 0.5f};
  l->n_running_floats = 2 * (size_t)l->n_running;
}

static void run_plain(sim_job *j) {
  const cvy_layout *const l = &j->net.layout;
  sim_plain *const p = &j->want;
  for (size_t i = 0; i < l->n_floats; i++) p->w[0][i] = (float)(int)(i % 3);
  for (int t = 0; t < j->steps; t++) {
    const float *const from = p->w[t >= j->net.staleness ? t - j->net.staleness : 0];
    for (size_t i = 0; i < l->n_floats; i++) {
      float g = 0;
      for (int k = 0; k < j->samples[t]; k++) g += sim_gradient(t, sample_of(t, k), (int)i, from[i]);
      p->w[t + 1][i] = p->w[t][i] - g;
    }
    for (int i = 0; i < 2 * l->n_running; i++) {
      float sum = 0;
      for (int k = 0; k < j->samples[t]; k++) sum += sim_running_sum(t, sample_of(t, k), i);
      p->running[t + 1][i] = 0.5f * sum + 0.5f * p->running[t][i];
    }
    for (int k = 0; k < j->samples[t]; k++) p->loss[t] += sim_loss(t, sample_of(t, k));
  }
}

void sim_job_draw(sim_job *j) {
  draw_net(j);
  j->net.alone = j->n_all == 1;
  j->lone = j->n_all > 1 && sim_below(3) == 0 ? (int)sim_below((uint32_t)j->n_all) : -1;
  j->net.staleness = j->n_all > 1 && j->lone < 0 && sim_below(3) == 0;
  j->net.packed = j->n_all > 1 && j->lone < 0 && sim_below(3) == 0;
  j->batch = 1 + (int)sim_below(SIM_BATCH);
  j->run_ahead = (int)sim_below(CVY_RUN_AHEAD_MOST + 1);
  j->steps = 1 + (int)sim_below(SIM_STEPS);
  j->fault_stops = sim_below(4) == 0;
  j->evaluates = sim_below(3) == 0;
  j->takes_late = sim_below(3) == 0;
  j->changes_shares = sim_below(2);
  for (int t = 0; t < j->steps; t++)
    j->samples[t] = t + 1 < j->steps || sim_below(2) ? j->batch : 1 + (int)sim_below((uint32_t)j->batch);
  run_plain(j);
  sim_say("%d devices, batch %d, %d steps, run-ahead %d, staleness %d, packed %d", j->n_all, j->batch, j->steps,
          j->run_ahead, j->net.staleness, j->net.packed);
}

void sim_draw_fault(sim_device *d, int at) {
  static const cvy_status how[] = {CVY_E_DEVICE, CVY_E_DEVICE, CVY_E_DEVICE_MEMORY, CVY_E_MEMORY, CVY_E_BUILD};
  const uint32_t kind = sim_below(8);
  d->fails_with = how[sim_below(5)];
  d->fault_at = at ? at : 1 + (int)sim_below(160);
  d->fault = kind < 4 ? SIM_HEALTHY : kind < 6 ? SIM_FAILS : kind == 6 ? SIM_HANGS : SIM_HANGS_LATE;
}

/* ---- shares that change ---- */

void sim_must(cvy_status status, const char *what) {
  if (status != CVY_OK) sim_fail("%s: status %d", what, (int)status);
}

static int first_of(const sim_team *s) {
  return s->fleet ? cvy_fleet_first_of(s->fleet, cvy_fleet_rank(s->fleet)) : -1;
}

/* Any shares for the devices that are there, often all samples for one of them. */
static cvy_status propose(void *user, const int *now, int *shares, bool *better) {
  const sim_team *const s = user;
  const int n = s->job->n_all;
  bool there[SIM_NODES * SIM_DEVICES];
  int left = s->job->batch, last = -1;
  (void)now;
  if (!cvy_fleet_is_head(s->fleet)) sim_fail("a node proposes shares that is not the head");
  cvy_shares_present(s->shares, there);
  const bool one = sim_below(3) == 0;
  for (int i = 0; i < n; i++) {
    shares[i] = !there[i] ? 0 : one ? left * (int)sim_below(2) : (int)sim_below((uint32_t)left + 1);
    left -= shares[i];
    if (there[i]) last = i;
  }
  *better = sim_below(8) > 0;
  if (last < 0) sim_fail("the head has no device");
  shares[last] += left;
  return CVY_OK;
}

static void open_new_shares(sim_team *s) {
  sim_must(cvy_new_shares_create(&(cvy_new_shares_params){.fleet = s->fleet,
                                                          .chain = cvy_exchange_chain(s->exchange),
                                                          .roster = s->roster,
                                                          .ring = s->ring,
                                                          .shares = s->shares,
                                                          .ledger = s->ledger,
                                                          .run_ahead = s->job->run_ahead,
                                                          .most_samples = s->job->batch,
                                                          .few = 2,
                                                          .propose = propose,
                                                          .user = s},
                                 &s->new_shares),
           "new shares");
  for (int i = 0; i < s->n; i++) s->devices[i].limit = sim_below(4) ? 0 : 1 + (int)sim_below((uint32_t)s->job->batch);
}

static cvy_step_time time_of(long step, int device) {
  return (cvy_step_time){.n = 1 + device, .tried = step & 1, .seconds = (double)(1 + step)};
}

/* The times of all nodes that are there came with the step that had the slot. */
static void check_times(const sim_team *s, const cvy_step *step, long t) {
  const long before = t - s->job->run_ahead - 1;
  for (int i = 0; i < s->job->n_all && before >= 0; i++) {
    const cvy_step_time want = time_of(before, i), none = {0}, *const got = &step->times[i];
    const bool own = i >= first_of(s) && i < first_of(s) + s->n;
    if (memcmp(got, &want, sizeof want) != 0 && (own || memcmp(got, &none, sizeof none) != 0))
      sim_fail("step %ld comes with %g s of device %d, not %g", before, got->seconds, i, want.seconds);
  }
}

/* As rebalance.c. */
static cvy_status change_shares(sim_team *s, cvy_step *step, long t) {
  cvy_status status = CVY_OK;
  cvy_new_shares_result result;
  check_times(s, step, t);
  memset(step->times, 0, (size_t)s->job->n_all * sizeof *step->times);
  for (int i = first_of(s); i < first_of(s) + s->n; i++) step->times[i] = time_of(t, i);
  CVY_TRY(cvy_new_shares_step(s->new_shares, step, &result));
  s->n_changes += result.tried && result.changed;
  s->n_refused += result.tried && !result.changed;
  if (sim_below(3) == 0) cvy_new_shares_ask(s->new_shares);
fail:
  return status;
}

/* All nodes have the same ones in each step. */
static void check_shares(sim_job *j, const cvy_step_result *r) {
  int *const known = j->shares[r->step];
  const size_t bytes = (size_t)j->n_all * sizeof *known;
  if (!j->has_shares[r->step]) memcpy(known, r->shares, bytes);
  j->has_shares[r->step] = true;
  if (memcmp(known, r->shares, bytes) != 0) sim_fail("the nodes have other shares in step %ld", r->step);
}

/* ---- life ---- */

static cvy_status replace_exchange(void *user) { return cvy_exchange_replace(((sim_team *)user)->exchange); }

static void add_devices(sim_team *s, cvy_mail **mail) {
  int share_max[SIM_DEVICES];
  sim_must(cvy_shares_find(s->shares, s->job->batch, share_max), "shares");
  for (int i = 0; i < s->n; i++) {
    sim_device *const d = &s->devices[i];
    d->index = i;
    d->net = &s->job->net;
    d->open = true;
    d->roster = s->roster;
    d->share_max = share_max[i];
    d->lone = cvy_shares_is_lone(s->shares, i);
    d->first = cvy_shares_first(s->shares);
    if (!s->job->net.alone) sim_must(cvy_mail_create(s->roster, i, s->job->net.layout.n_buckets + 1, &d->mail), "mail");
    mail[i] = d->mail;
    sim_must(cvy_roster_add(s->roster, i, &sim_device_fns, d, i, "fake"), "roster");
  }
}

void sim_team_open(sim_team *s) {
  const sim_job *const j = s->job;
  cvy_mail *mail[SIM_DEVICES] = {NULL};
  double all_samples[SIM_NODES * SIM_DEVICES] = {0};
  cvy_split_params split = {.batch = j->batch, .n_devices = j->n_all};
  if (j->lone >= 0) {
    all_samples[j->lone] = j->batch;
    split.rule = CVY_RULE_SHARES;
    split.values = all_samples;
  }
  s->stops_in = s->keeps_in = -1;
  sim_must(cvy_roster_create(s->n, &s->roster), "roster");
  sim_must(cvy_shares_create(s->roster, &split, first_of(s), false, !j->net.staleness && !j->net.packed, &s->shares),
           "shares");
  sim_must(cvy_ledger_create(&j->net.layout, 0, j->net.staleness > 0, &s->ledger), "ledger");
  sim_must(cvy_events_create(j->n_all, &s->events), "events");
  add_devices(s, mail);
  sim_must(cvy_watch_start(s->roster, 2, replace_exchange, s, &s->watch), "watch");
  sim_must(cvy_results_create(j->n_all, 2, &s->results), "results");
  sim_must(
      cvy_ring_create(
          &(cvy_ring_params){.roster = s->roster, .shares = s->shares, .batch = j->batch, .run_ahead = j->run_ahead},
          &s->ring),
      "ring");
  sim_must(cvy_exchange_create(&(cvy_exchange_params){.roster = s->roster,
                                                      .ring = s->ring,
                                                      .ledger = s->ledger,
                                                      .results = s->results,
                                                      .events = s->events,
                                                      .shares = s->shares,
                                                      .fleet = s->fleet,
                                                      .mail = mail,
                                                      .packed = j->net.packed,
                                                      .fleet_piece = 1,
                                                      .fault_stops = j->fault_stops,
                                                      .most_samples = j->batch,
                                                      .read_result = sim_read_result},
                               &s->exchange),
           "exchange");
  sim_must(cvy_exchange_start(s->exchange), "exchange");
  if (s->fleet && j->changes_shares) open_new_shares(s);
}

/* ---- state ---- */

typedef struct put_args {
  sim_team *team;
  long step;
} put_args;

static cvy_status put_state(void *device, void *arg) {
  const put_args *const a = arg;
  const cvy_generation truth = cvy_ledger_generation(a->team->ledger, a->step);
  return sim_device_fns.put(device, &truth);
}

cvy_status sim_team_publish(sim_team *s, long step) {
  cvy_status status = CVY_OK;
  const cvy_layout *const l = &s->job->net.layout;
  put_args args = {.team = s, .step = step};
  CVY_TRY(cvy_ring_wait(s->ring));
  cvy_ring_renumber(s->ring, step);
  if (step == 0) memcpy(cvy_ledger_w(s->ledger), s->job->want.w[0], l->n_floats * sizeof(float));
  if (step == 0 && cvy_ledger_previous(s->ledger))
    memcpy(cvy_ledger_previous(s->ledger), cvy_ledger_w(s->ledger), l->n_floats * sizeof(float));
  cvy_ledger_start(s->ledger, step, true);
  CVY_TRY(cvy_roster_do_all(s->roster, put_state, &args));
fail:
  return status;
}

cvy_status sim_team_sync(sim_team *s) {
  return cvy_keep_state(&(cvy_keep_params){.roster = s->roster,
                                           .ring = s->ring,
                                           .shares = s->shares,
                                           .ledger = s->ledger,
                                           .fleet = s->fleet,
                                           .chain = cvy_exchange_chain(s->exchange)});
}

/* ---- evaluation ---- */

static cvy_status compare(void *device, void *arg) {
  cvy_status status = CVY_OK;
  sim_team *const s = arg;
  sim_device *const d = device;
  const long next = cvy_ring_next_number(s->ring);
  const float *const mine = d->w[s->job->net.staleness ? next & 1 : 0];
  if (!s->job->net.alone) {
    cvy_roster_lock(s->roster);
    const bool idle = cvy_roster_is_idle(s->roster, d->index);
    cvy_roster_unlock(s->roster);
    put_args args = {.team = s, .step = next};
    if (idle && !cvy_mail_has_weights(d->mail, next)) CVY_TRY(put_state(d, &args));
    CVY_TRY(sim_settle_device(d, next));
    if (memcmp(mine, cvy_ledger_w(s->ledger), s->job->net.layout.n_floats * sizeof *mine) != 0)
      sim_fail("device %d has other weights than the ledger before step %ld", d->index, next);
  }
fail:
  return status;
}

static cvy_status compare_all(sim_team *s) {
  cvy_status status = CVY_OK;
  for (bool good = false; !good;) {
    CVY_TRY(s->job->net.alone ? cvy_ring_wait(s->ring) : sim_team_sync(s));
    status = cvy_roster_try_all(s->roster, compare, s, &good);
    if (status == CVY_OK && !good) status = cvy_roster_settle(s->roster);
    CVY_TRY(status);
  }
fail:
  return status;
}

/* Of images, which the nodes divide as the devices do. */
typedef struct eval_sums {
  double value;
  int64_t images;
} eval_sums;

static double value_of(int image) { return (double)(1 + sim_hash(4, (uint32_t)image, 0, 0) % 1000); }

static void add_sums(void *own, void *data) {
  const eval_sums *const mine = own;
  eval_sums *const all = data;
  all->value += mine->value;
  all->images += mine->images;
}

/* This node's part, by the shares of now. */
static cvy_status sum_own(sim_team *s, int n, eval_sums *own) {
  cvy_status status = CVY_OK;
  int shares[SIM_NODES * SIM_DEVICES];
  const int first = first_of(s);
  int at = 0;
  *own = (eval_sums){0};
  CVY_TRY(cvy_shares_of_samples(s->shares, n, shares));
  CVY_TRY(compare_all(s));
  for (int i = 0; i < s->job->n_all; at += shares[i++])
    for (int k = 0; i >= first && i < first + s->n && k < shares[i]; k++, own->images++) own->value += value_of(at + k);
fail:
  return status;
}

cvy_status sim_team_evaluate(sim_team *s) {
  cvy_status status = CVY_OK;
  const int n = 7 + s->job->batch;
  cvy_chain *const chain = cvy_exchange_chain(s->exchange);
  eval_sums own, all, want = {.images = n};
  if (!s->fleet) return compare_all(s);
  CVY_TRY(cvy_ring_wait(s->ring));
  for (bool again = true; again;) {
    uint32_t round;
    all = (eval_sums){0};
    CVY_TRY(cvy_chain_settle(chain, &round));
    CVY_TRY(sum_own(s, n, &own));
    CVY_TRY(cvy_chain_reduce(chain, round, &all, sizeof all, add_sums, &own, &again));
  }
  for (int k = 0; k < n; k++) want.value += value_of(k);
  if (all.value != want.value || all.images != want.images)
    sim_fail("an evaluation sees %d images with %g in all, not %d with %g", (int)all.images, all.value,
             (int)want.images, want.value);
fail:
  return status;
}

/* ---- steps ---- */

cvy_status sim_team_step(sim_team *s, long t) {
  cvy_status status = CVY_OK;
  CVY_TRY(cvy_roster_settle(s->roster));
  const uint64_t begun_ns = cvy_ring_begins(s->ring);
  cvy_step *const step = cvy_ring_next(s->ring);
  if (s->new_shares) CVY_TRY(change_shares(s, step, t));
  step->n = s->job->samples[t];
  step->begun_ns = begun_ns;
  step->update = (cvy_update_params){.lr = 1};
  for (int k = 0; k < step->n; k++) step->samples[k] = sample_of(t, k);
  CVY_TRY(cvy_ring_begin(s->ring));
fail:
  return status;
}

void sim_team_take(sim_team *s) {
  cvy_step_result r;
  sim_job *const j = s->job;
  for (; cvy_results_take(s->results, &r); s->n_results++) {
    if (r.step != s->n_results) sim_fail("the result of step %ld comes as number %d", r.step, s->n_results);
    const double loss = j->want.loss[r.step] / j->samples[r.step];
    if (r.loss != loss || r.correct != j->samples[r.step])
      sim_fail("step %ld: loss %g and %d samples, not %g and %d", r.step, r.loss, r.correct, loss, j->samples[r.step]);
    if (s->fleet) check_shares(j, &r);
    if (r.stops && s->stops_in < 0) s->stops_in = r.step;
    if (r.keeps && s->keeps_in < 0) s->keeps_in = r.step;
    if (s->fleet && cvy_fleet_is_head(s->fleet) && j->told <= r.step) j->told = r.step + 1;
  }
}

/* ---- the end ---- */

static void check_ledger(const sim_team *s) {
  const sim_job *const j = s->job;
  const cvy_layout *const l = &j->net.layout;
  const long steps = cvy_ledger_steps(s->ledger);
  if (steps < 0 || steps > j->steps) sim_fail("the ledger has %ld steps", steps);
  for (size_t i = 0; i < l->n_floats; i++)
    if (cvy_ledger_w(s->ledger)[i] != j->want.w[steps][i])
      sim_fail("w[%zu] is %g after %ld steps, not %g", i, (double)cvy_ledger_w(s->ledger)[i], steps,
               (double)j->want.w[steps][i]);
  for (size_t i = 0; i < l->n_running_floats; i++)
    if (cvy_ledger_running(s->ledger)[i] != j->want.running[steps][i])
      sim_fail("running[%zu] is %g after %ld steps, not %g", i, (double)cvy_ledger_running(s->ledger)[i], steps,
               (double)j->want.running[steps][i]);
}

static void check_events(sim_team *s) {
  cvy_team_event e;
  bool lost[SIM_DEVICES] = {false};
  while (cvy_events_take(s->events, &e)) {
    if (e.kind == CVY_TEAM_NODE_LOST) {
      const cvy_lost_node *const node = &e.of.node;
      if (s->lost_nodes >> node->node & 1 || cvy_fleet_has(s->fleet, node->node))
        sim_fail("node %d is said to be lost twice, or is there", node->node);
      s->lost_nodes |= 1u << node->node;
      continue;
    }
    if (e.kind != CVY_TEAM_DEVICE_LOST || lost[e.of.lost.device]) sim_fail("an event comes twice");
    lost[e.of.lost.device] = true;
    s->n_lost++;
  }
  for (int i = 0; i < s->n; i++)
    if (lost[i] != cvy_roster_is_lost(s->roster, i)) sim_fail("device %d: lost, or said to be lost, but not both", i);
}

void sim_team_check(sim_team *s) {
  sim_team_take(s);
  check_ledger(s);
  const long finished = cvy_ring_finished(s->ring);
  if (s->n_results != finished) sim_fail("%d results of %ld steps", s->n_results, finished);
  check_events(s);
}

static cvy_status close_task(void *device, void *arg) {
  (void)arg;
  sim_device_fns.close(device);
  return CVY_OK;
}

bool sim_team_close(sim_team *s) {
  (void)cvy_ring_wait(s->ring);
  cvy_exchange_stop(s->exchange);
  for (int i = 0; i < s->n; i++) (void)cvy_worker_call(cvy_roster_worker(s->roster, i), close_task, NULL);
  cvy_watch_stop(&s->watch);
  cvy_roster_end_workers(s->roster);
  const bool hung = cvy_roster_hung(s->roster) > 0;
  if (!hung) {
    cvy_new_shares_destroy(&s->new_shares);
    cvy_exchange_destroy(&s->exchange);
    cvy_ring_destroy(&s->ring);
    for (int i = 0; i < s->n; i++) cvy_mail_destroy(&s->devices[i].mail);
    cvy_results_destroy(&s->results);
    cvy_shares_destroy(&s->shares);
    cvy_roster_destroy(&s->roster);
    cvy_events_destroy(&s->events);
    cvy_ledger_destroy(&s->ledger);
  }
  cvy_fleet_close(&s->fleet);
  if (hung) return false;
  if (sim_events()) sim_fail("%ld events are left", sim_events());
  if (sim_blocks()) sim_fail("%ld blocks of memory are left", sim_blocks());
  return true;
}
