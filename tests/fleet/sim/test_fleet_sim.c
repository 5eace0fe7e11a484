/* SPDX-License-Identifier: MIT
 * The protocol of a fleet without devices, machines and threads: thousands of schedules, each drawn from a seed, on one
 * thread and a simulated clock (sim_sync.h, sim_device.h, sim_link.h). Nodes die at any moment, alone or together, also
 * while they agree; the network is cut; devices fail and hang; a node is asked to stop; one sends what no node sends.
 * After each schedule:
 *
 * - no node hangs; without silence and cuts every node that has a device finishes;
 * - the state of each node, whether it has finished or ended with an error, is that of a plain loop after its steps;
 * - results come once and in order, with the right loss; a stop is seen in the same step;
 * - shares change between steps, as the head draws them, or memory is short for them on some node: all nodes have the
 *   same shares in each step, and the times that all have measured;
 * - no step is done again whose result the head's caller has, but for those that only a lone device had done, and all
 *   that finish have it;
 * - of two parts that are silent to each other one goes on at most, and it does so if it is the larger one, or of two
 *   equal ones that with the first node;
 * - nothing is left of a node that has ended;
 * - a node that sends what no node sends is refused, and the others go on without it;
 * - a node that only ends before others is not lost to them;
 * - where a loss ends the run, all end after the same step.
 *
 *   CVY_SIM_SCHEDULES=N   how many (10,000; with CVY_TEST_FULL 100,000)
 *   CVY_SIM_SEED=N        this one alone, saying what happens */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/fleet/sim/sim_forge.h"
#include "tests/fleet/sim/sim_link.h"
#include "tests/fleet/sim/sim_sync.h"
#include "tests/fleet/sim/sim_team.h"
#include "src/fleet/node_messages.h"

enum { MOST_FAILURES = 5 };

typedef enum fate { RUNNING, FINISHED, FAILED } fate;

/* A node carries its plan out when the scheduler has switched its fibers so often as the test drew. */
typedef struct plan {
  uint32_t dying;      /* these nodes die */
  sim_death how;       /* and the others learn so */
  uint32_t part, rest; /* each of one is cut from each of the other */
  int stop_at;         /* the step at which this node is asked to stop; -1: never */
} plan;

typedef struct one {
  sim_team team;
  plan plan;
  fate fate;
  bool hung;
  long finished;
} one;

static struct scene {
  sim_job job;
  int n, opened;
  bool armed, silent, any_lost;
  int hostile;      /* the node in whose name control messages are forged; -1: none */
  bool only_forged; /* and nothing else happens */
  bool to_all;      /* every other node gets such a message, and none is changed */
  bool partial;     /* nodes that are cut from each other have others in common */
  int n_losses;     /* nodes that died and devices that were lost */
  one nodes[SIM_NODES];
  bool evaluates_at[SIM_STEPS];
  uint32_t cut[SIM_NODES];            /* bit b of [a]: a and b are cut */
  uint32_t before;                    /* nodes that all had agreed on when the first cut came */
  long silence[SIM_NODES][SIM_NODES]; /* the most steps of any node when one of the two learned of it; -1: neither */
} scene;

static struct {
  long forged, refused_nodes;
  long died, cuts, silent, faults, hangs, lost, failed, finished, stopped, schedules_with_loss, changed, refused, lone,
      redone;
} seen;

/* ---- deaths, cuts and silence ---- */

static void die(int n) {
  const plan *const p = &scene.nodes[n].plan;
  for (int r = 0; r < scene.n; r++)
    if (p->dying >> r & 1 && scene.nodes[r].fate == RUNNING) sim_link_kill(r, p->how);
}

/* Nodes that are alive, if all of these have agreed that the others are not there; else all. */
static uint32_t agreed_nodes(void) {
  const uint32_t all = (1u << scene.n) - 1;
  uint32_t alive = 0;
  for (int r = 0; r < scene.n; r++)
    if (!sim_link_is_dead(r)) alive |= 1u << r;
  for (int r = 0; r < scene.n; r++) {
    if (!(alive >> r & 1)) continue;
    if (scene.nodes[r].fate != RUNNING || cvy_fleet_view(scene.nodes[r].team.fleet) != alive) return all;
  }
  return alive;
}

static void begin_cuts(void) {
  if (!scene.before) scene.before = agreed_nodes();
  scene.silent = true;
  scene.job.net.told = NULL; /* a node that is cut off may still begin what the others have done meanwhile */
}

/* Whether the other part can go on depends on what was said in its name before. */
static void note_refusal(int me, int other) {
  begin_cuts();
  seen.refused_nodes++;
  scene.cut[me] |= 1u << other;
  scene.cut[other] |= 1u << me;
  scene.partial = true;
}

static void cut(int n) {
  const plan *const p = &scene.nodes[n].plan;
  begin_cuts();
  seen.cuts++;
  for (int a = 0; a < scene.n; a++)
    for (int b = 0; b < scene.n; b++)
      if (p->part >> a & 1 && p->rest >> b & 1) {
        sim_link_cut(a, b);
        scene.cut[a] |= 1u << b;
        scene.cut[b] |= 1u << a;
      }
  scene.partial |= ((p->part | p->rest) & scene.before) != scene.before;
}

static void forge(int n) { sim_forge_send(n, scene.to_all); }

/* That a node has finished: its ledger may have fewer, where a lone device has the others. */
static long steps_of(const one *o) {
  cvy_ring *const ring = o->team.ring;
  return o->fate != RUNNING ? o->finished : ring ? cvy_ring_next_number(ring) - cvy_ring_under_way(ring) : 0;
}

static void note_silence(int me, int other) {
  const int a = me < other ? me : other, b = me < other ? other : me;
  if (scene.silence[a][b] >= 0) return;
  scene.silence[a][b] = 0;
  for (int r = 0; r < scene.n; r++)
    if (steps_of(&scene.nodes[r]) > scene.silence[a][b]) scene.silence[a][b] = steps_of(&scene.nodes[r]);
}

/* ---- drawing ---- */

/* Draws small numbers mostly: early moments are as likely as late ones. */
static long draw_moment(void) { return 1 + sim_below(1u << (3 + sim_below(12))); }

static void draw_devices(void) {
  const bool any = sim_below(3) == 0;
  for (int r = 0; r < scene.n; r++) {
    one *const o = &scene.nodes[r];
    const int slow = sim_below(6) == 0 ? 2 + (int)sim_below(20) : 0;
    for (int i = 0; i < o->team.n; i++) {
      o->team.devices[i].slow = slow;
      if (any && sim_below(2)) sim_draw_fault(&o->team.devices[i], 0);
      seen.faults += o->team.devices[i].fault == SIM_FAILS;
      seen.hangs += o->team.devices[i].fault > SIM_FAILS;
    }
  }
}

static void draw_deaths(void) {
  const bool together = sim_below(3) == 0;
  for (int r = 0; r < scene.n; r++) {
    plan *const p = &scene.nodes[r].plan;
    if (sim_below(2)) continue;
    p->dying = 1u << r | (together ? sim_below(1u << scene.n) : 0);
    p->how = sim_below(3) ? SIM_DEATH_ENDED : sim_below(2) ? SIM_DEATH_SILENT : SIM_DEATH_MIXED;
    scene.silent |= p->how != SIM_DEATH_ENDED;
    if (sim_below(3)) sim_node_at(r, 0, draw_moment(), die);
    else sim_link_dies_agreeing(r, 1 + (int)sim_below(8), p->how);
  }
}

static void draw_cut(void) {
  const int r = (int)sim_below((uint32_t)scene.n);
  plan *const p = &scene.nodes[r].plan;
  const uint32_t all = (1u << scene.n) - 1;
  if (sim_below(3)) {
    p->part = 1 + sim_below(all - 1);
    p->rest = all & ~p->part;
  } else {
    p->part = 1u << sim_below((uint32_t)scene.n);
    p->rest = 1u << sim_below((uint32_t)scene.n) & ~p->part;
  }
  sim_node_at(r, 1, draw_moment(), cut);
}

/* Of a hostile node each message that is made up is refused at once; what it says in meetings is changed, too. */
static void draw_forging(void) {
  const int h = scene.hostile = (int)sim_below((uint32_t)scene.n);
  const bool views = !scene.only_forged && sim_below(2);
  scene.to_all = scene.n == 2 || sim_below(2);
  if (!scene.to_all) sim_forge_change(h, views);
  sim_node_at(h, 2, draw_moment(), forge);
  scene.partial = true;
}

static void draw(void) {
  sim_job *const j = &scene.job;
  scene.n = 2 + (int)sim_below(sim_below(3) ? 2 : 4);
  for (int r = 0; r < scene.n; r++) {
    one *const o = &scene.nodes[r];
    o->team.job = j;
    o->team.n = 1 + (int)sim_below(2);
    o->plan.stop_at = -1;
    j->n_all += o->team.n;
    for (int b = 0; b < scene.n; b++) scene.silence[r][b] = -1;
  }
  sim_job_draw(j);
  j->net.told = &j->told;
  for (int t = 0; t < j->steps; t++) scene.evaluates_at[t] = j->evaluates && sim_below(3) == 0;
  if (sim_below(6) == 0) scene.nodes[sim_below((uint32_t)scene.n)].plan.stop_at = (int)sim_below((uint32_t)j->steps);
  const sim_wires wires = {.meets = sim_below(2),
                           .late_s = sim_below(4) ? 0.3 : 5,
                           .on_silence = note_silence,
                           .on_refusal = note_refusal,
                           .on_control = sim_forge_control};
  sim_link_begin(scene.n, &wires);
  sim_forge_begin(scene.n, 2);
  scene.hostile = -1;
  scene.only_forged = sim_below(16) == 0;
  if (!scene.only_forged) draw_devices();
}

/* When all nodes are open: until then a loss is the end. */
static void draw_losses(void) {
  if (scene.only_forged || sim_below(16) == 0) draw_forging();
  if (scene.only_forged) return;
  if (sim_below(4)) draw_deaths();
  if (sim_below(4) == 0) draw_cut();
}

/* ---- a node ---- */

/* A stop that one node has been asked for is seen by all in the same step, and at that time no node has begun more than
 * run_ahead steps behind it. */
static long last_step(const sim_team *t) {
  const long last = t->stops_in < 0 ? t->job->steps : t->stops_in + t->job->run_ahead + 1;
  return last < t->job->steps ? last : t->job->steps;
}

/* As trainer.c: a node asks all others to keep a lone device's state, and all do so between the same steps. */
static cvy_status keep(sim_team *t, long next) {
  cvy_status status = CVY_OK;
  cvy_chain *const chain = cvy_exchange_chain(t->exchange);
  if (sim_below(8) == 0) cvy_chain_ask(chain, CVY_ASKS_KEEP, true);
  if (t->keeps_in < 0 || next <= t->keeps_in + t->job->run_ahead) return CVY_OK;
  CVY_TRY(sim_team_sync(t));
  sim_team_take(t);
  t->keeps_in = -1;
  cvy_chain_ask(chain, CVY_ASKS_KEEP, false);
fail:
  return status;
}

static cvy_status train(one *o) {
  cvy_status status = CVY_OK;
  sim_team *const team = &o->team;
  CVY_TRY(sim_team_publish(team, 0));
  for (long t = 0; t < last_step(team); t++) {
    if (t == o->plan.stop_at) cvy_chain_ask(cvy_exchange_chain(team->exchange), CVY_ASKS_STOP, true);
    CVY_TRY(keep(team, t));
    CVY_TRY(sim_team_step(team, t));
    sim_team_take(team);
    if (scene.evaluates_at[t]) CVY_TRY(sim_team_evaluate(team));
  }
  CVY_TRY(sim_team_evaluate(team));
fail:
  return status;
}

static void open_node(one *o) {
  const int me = sim_node();
  char own[2] = {(char)('A' + me), 0}, **texts;
  sim_must(cvy_fleet_create(sim_link_open(), &o->team.fleet), "fleet");
  sim_must(cvy_fleet_gather_devices(o->team.fleet, o->team.n, "[]"), "devices");
  sim_must(cvy_fleet_gather_texts(o->team.fleet, own, &texts), "texts");
  for (int r = 0; r < scene.n; r++)
    if (texts[r][0] != 'A' + r || texts[r][1]) sim_fail("the text of node %d is %s", r, texts[r]);
  cvy_fleet_free_texts(o->team.fleet, &texts);
  sim_team_open(&o->team);
  scene.opened++;
  sim_wake(&scene.opened);
  while (!scene.armed) sim_wait(&scene.opened, 0);
}

static void *node_main(void *arg) {
  one *const o = arg;
  open_node(o);
  const cvy_status status = train(o);
  sim_say("training ends: %d", (int)status);
  sim_team_check(&o->team);
  o->finished = cvy_ledger_steps(o->team.ledger);
  o->fate = status == CVY_OK ? FINISHED : FAILED;
  o->hung = !sim_team_close(&o->team);
  return NULL;
}

/* ---- what must be ---- */

static bool has_devices(int r) { return scene.nodes[r].team.n_lost < scene.nodes[r].team.n; }

static void check_finished(int r) {
  const one *const o = &scene.nodes[r];
  if (!has_devices(r)) sim_fail("node %d goes on without a device", r);
  if (o->finished != last_step(&o->team)) sim_fail("node %d ends after %ld steps", r, o->finished);
  if (o->finished < scene.job.told)
    sim_fail("node %d has %ld steps, and the head has told %ld", r, o->finished, scene.job.told);
  for (int b = 0; b < scene.n; b++)
    if (scene.nodes[b].fate == FINISHED && scene.nodes[b].finished != o->finished)
      sim_fail("node %d ends after %ld steps, node %d after %ld", r, o->finished, b, scene.nodes[b].finished);
}

/* Nodes that could go on without all others, whatever becomes of these: all of them, if they are many enough of those
 * that were there. */
static bool must_go_on(uint32_t part) {
  const uint32_t before = scene.before ? scene.before : (1u << scene.n) - 1;
  const int n = __builtin_popcount(part & before), were = __builtin_popcount(before);
  return 2 * n > were || (2 * n == were && part & before & -before);
}

static void check_failed(int r) {
  if (!has_devices(r) || (scene.job.fault_stops && (scene.any_lost || scene.silent))) return;
  if (!scene.silent) sim_fail("node %d ends with an error for no reason", r);
  if (scene.partial) return;
  uint32_t part = 0; /* that this node belongs to, as far as it could go on */
  for (int b = 0; b < scene.n; b++) {
    if (sim_link_is_dead(b) || !has_devices(b) || scene.cut[r] >> b & 1) continue;
    if (scene.nodes[b].fate == FINISHED) return; /* and left, and was missed by those that were a little later */
    part |= 1u << b;
  }
  if (must_go_on(part)) sim_fail("node %d ends with an error, though its part may go on", r);
}

/* What no node sends ends nobody but its sender. (Where one node alone has got it, another one that hears of the cut
 * between both cannot know which of them to believe.) */
static void check_forged(void) {
  const uint32_t others = ((1u << scene.n) - 1) & ~(1u << scene.hostile);
  if (!scene.only_forged || !scene.to_all || scene.job.fault_stops || scene.n_losses > 0) return;
  int finished = 0; /* and perhaps left, and were missed by those that were a little later */
  for (int r = 0; r < scene.n; r++) finished += r != scene.hostile && scene.nodes[r].fate == FINISHED;
  if (must_go_on(others) && 2 * finished < scene.n - 1)
    sim_fail("%d nodes have finished of %d others than node %d, which was hostile", finished, scene.n - 1,
             scene.hostile);
}

/* Nodes leave as they finish, in any order: nothing of that may look like a loss. */
static void check_ends(void) {
  if (scene.n_losses > 0 || scene.silent) return;
  for (int r = 0; r < scene.n; r++)
    if (scene.nodes[r].team.lost_nodes) sim_fail("node %d takes one for lost that has finished", r);
}

/* Where a loss ends the run it ends after the same step on all nodes. (A second loss may come between them.) */
static void check_stops(void) {
  long steps = -1;
  if (!scene.job.fault_stops || scene.n_losses != 1 || scene.silent) return;
  for (int r = 0; r < scene.n; r++) {
    if (sim_link_is_dead(r)) continue;
    if (steps >= 0 && scene.nodes[r].finished != steps)
      sim_fail("a loss ends the run after step %ld, and on node %d after step %ld", steps, r, scene.nodes[r].finished);
    steps = scene.nodes[r].finished;
  }
}

static void check_cuts(void) {
  if (scene.hostile >= 0) return; /* its word may keep two parts apart */
  for (int a = 0; a < scene.n; a++)
    for (int b = a + 1; b < scene.n; b++) {
      if (!(scene.cut[a] >> b & 1) || sim_link_is_dead(a) || sim_link_is_dead(b) || scene.silence[a][b] < 0) continue;
      const long most = scene.silence[a][b] + 1;
      if (scene.nodes[a].finished > most && scene.nodes[b].finished > most)
        sim_fail("nodes %d and %d have both gone on without each other after step %ld", a, b, most);
    }
}

static void run_schedule(void *arg) {
  (void)arg;
  memset(&scene, 0, sizeof scene);
  sim_events_begin();
  draw();
  sim_limit(5000);
  for (int r = 0; r < scene.n; r++) sim_node_start(r, "caller", node_main, &scene.nodes[r]);
  while (scene.opened < scene.n) sim_wait(&scene.opened, 0);
  draw_losses();
  scene.armed = true;
  sim_wake(&scene.opened);
  for (int r = 0; r < scene.n; r++)
    while (scene.nodes[r].fate == RUNNING && !sim_link_is_dead(r)) sim_sleep(2);
  sim_sleep(1000); /* they close */
  sim_limit(0);
  sim_settle(); /* threads come back from calls that hung, and must not look at anything */
  for (int r = 0; r < scene.n; r++) {
    const bool dead = sim_link_is_dead(r);
    scene.n_losses += dead + scene.nodes[r].team.n_lost;
    scene.any_lost |= dead || scene.nodes[r].team.n_lost > 0;
    seen.died += dead;
    seen.lost += scene.nodes[r].team.n_lost;
    seen.changed += scene.nodes[r].team.n_changes;
    seen.refused += scene.nodes[r].team.n_refused;
    for (int i = 0; i < scene.nodes[r].team.n; i++) {
      seen.lone += scene.nodes[r].team.devices[i].lone_steps;
      seen.redone += scene.nodes[r].team.devices[i].redone_steps;
    }
    seen.finished += scene.nodes[r].fate == FINISHED;
    seen.failed += scene.nodes[r].fate == FAILED;
    seen.stopped += scene.nodes[r].fate == FINISHED && scene.nodes[r].team.stops_in >= 0;
  }
  seen.schedules_with_loss += scene.any_lost;
  for (int r = 0; r < scene.n; r++) {
    if (scene.nodes[r].fate == FINISHED) check_finished(r);
    if (scene.nodes[r].fate == FAILED) check_failed(r);
  }
  seen.forged += sim_forge_count();
  check_forged();
  check_ends();
  check_stops();
  check_cuts();
}

static long number(const char *name, long otherwise) {
  const char *const text = getenv(name);
  return text ? atol(text) : otherwise;
}

int main(void) {
  const long one_alone = number("CVY_SIM_SEED", -1),
             n = one_alone >= 0 ? 1 : number("CVY_SIM_SCHEDULES", getenv("CVY_TEST_FULL") ? 100000 : 10000);
  const clock_t begun = clock();
  int failures = 0;
  for (long i = 0; i < n; i++) {
    const long seed = one_alone >= 0 ? one_alone : i;
    const char *const why = sim_run((uint64_t)seed, one_alone >= 0, run_schedule, NULL);
    if (!why) continue;
    printf("schedule %ld: %s\nrepeat it: CVY_SIM_SEED=%ld tests/test_fleet_sim\n", seed, why, seed);
    if (++failures == MOST_FAILURES) break;
  }
  if (failures) return 1;
  printf(
      "%ld schedules in %.1f s: %ld nodes died, %ld cuts, %ld messages forged and %ld times their sender refused, %ld "
      "faults and %ld hangs planned, %ld devices lost; %ld "
      "nodes finished, %ld of them since one was asked to stop, %ld ended with an error; %ld times a node changed its "
      "shares, %ld times memory was short for them; %ld steps of a lone device, %ld parts of steps redone\n",
      n, (double)(clock() - begun) / CLOCKS_PER_SEC, seen.died, seen.cuts, seen.forged, seen.refused_nodes, seen.faults,
      seen.hangs, seen.lost, seen.finished, seen.stopped, seen.failed, seen.changed, seen.refused, seen.lone,
      seen.redone);
  return 0;
}
