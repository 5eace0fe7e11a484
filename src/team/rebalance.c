/* SPDX-License-Identifier: MIT
 * Outline: texts of a change · the first shares · between steps · between the steps of a fleet. */
#include "src/team/rebalance.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/clock.h"
#include "src/base/mem.h"
#include "src/base/text.h"
#include "src/cl/stamp.h"
#include "src/replica/bn_sync.h"
#include "src/team/calibrate.h"
#include "src/team/fleet_pace.h"
#include "src/fleet/node_messages.h"
#include "src/fleet/new_shares.h"
#include "src/team/noted_devices.h"
#include "src/team/opening.h"
#include "src/team/replan.h"

/* Devices whose speeds differ by less count as alike (convoy/team.h). */
static const double UNLIKE = 0.1;
/* With batch normalisation over each device's share: the least share that gives usable statistics. */
enum { LEAST_FOR_STATISTICS = 8 };
/* An idle device is tried TRY_STEPS steps after it became idle, then after twice as many more, and so on. */
enum { TRY_STEPS = 50, MOST_TRY_STEPS = 1600 };

/* In a fleet, else NULL. */
typedef struct fleet_parts {
  cvy_pace *own; /* of this node's devices, until there are steps */
  cvy_link_rate *rates;
  cvy_new_shares *new_shares; /* since the first step */
} fleet_parts;

struct cvy_rebalance {
  cvy_team *team;
  int n, first, n_own; /* devices of the run; the place of this node's first one; this node's */
  cvy_pace *pace;      /* of all devices; in a fleet every node has it */
  long next_try;       /* the step before which idle devices are tried */
  int try_steps;       /* from that try to the next one; 0: no step has begun yet */
  cvy_step_time *own;  /* this node's times of a finished step */
  fleet_parts fleet;
  /* scratch of a step: */
  int *now, *new, *measured; /* shares */
  double *busy_s;
  bool *there;
};

/* ---- texts of a change ---- */

static double rounded(double value, double step) { return round(value / step) * step; }

static json_t *whole_numbers(const int *values, int n) {
  json_t *const list = json_array();
  for (int i = 0; i < n; i++) json_array_append_new(list, json_integer(values[i]));
  return list;
}

/* All numbers behind the decision, as one JSON object; the caller frees it with free(). */
static char *describe_json(const cvy_rebalance *b, const cvy_shares_change *c) {
  const cvy_pace *const pace = b->pace;
  json_t *const root = json_object(), *const devices = json_array();
  json_object_set_new(root, "step", json_integer(c->step));
  json_object_set_new(root, "shares", whole_numbers(c->shares, c->n_devices));
  json_object_set_new(root, "before", whole_numbers(c->before, c->n_devices));
  json_object_set_new(root, "expected_ms", json_real(rounded(c->ms, 1e-3)));
  json_object_set_new(root, "expected_ms_before", json_real(rounded(c->ms_before, 1e-3)));
  for (int i = 0; i < c->n_devices; i++) {
    const cvy_balance_device *const d = &pace->devices[i];
    json_t *const device = json_object(), *const points = json_array();
    for (int k = 0; k < d->n_points; k++)
      json_array_append_new(points, json_pack("[if]", d->points[k].n, rounded(1e3 * d->points[k].seconds, 1e-3)));
    json_object_set_new(device, "measured_ms", points);
    json_object_set_new(device, "factor", json_real(rounded(cvy_pace_factor(pace, i), 1e-4)));
    json_object_set_new(device, "exchange_ms", json_real(rounded(1e3 * d->exchange_s, 1e-3)));
    json_object_set_new(device, "most", d->cap >= 0 ? json_integer(d->cap) : json_null());
    if (c->shares[i] == 0) {
      char why[256];
      cvy_balance_explain(&pace->params, c->shares, pace->why, i, why, sizeof why);
      json_object_set_new(device, "without_share", json_string(why));
    }
    json_array_append_new(devices, device);
  }
  json_object_set_new(root, "devices", devices);
  char *const text = json_dumps(root, JSON_COMPACT | JSON_REAL_PRECISION(12));
  json_decref(root);
  return text;
}

static void add_shares(cvy_text *text, const int *shares, int n) {
  for (int i = 0; i < n; i++) cvy_text_add(text, "%s%d", i ? "+" : "", shares[i]);
}

/* "0:0 NAME", in a fleet "pc2: 0:0 NAME". */
static void add_label(const cvy_rebalance *b, int i, cvy_text *text) {
  const cvy_fleet *const fleet = b->team->params.fleet;
  int r = 0;
  while (fleet && i >= cvy_fleet_first_of(fleet, r + 1)) r++;
  if (fleet) cvy_text_add(text, "%s: ", cvy_fleet_name(fleet, r));
  cvy_text_add(text, "%s", cvy_devices_label(cvy_opening_everyone(b->team->opening), i));
}

static void describe(const cvy_rebalance *b, const cvy_shares_change *c, bool first, cvy_text *text) {
  const cvy_pace *const pace = b->pace;
  if (first) {
    cvy_text_add(text, "shares by measured speed: ");
    add_shares(text, c->shares, c->n_devices);
    cvy_text_add(text, " (expected %.3g s a step, even shares %.3g s)", 1e-3 * c->ms, 1e-3 * c->ms_before);
  } else {
    cvy_text_add(text, "shares from step %ld on: ", c->step);
    add_shares(text, c->shares, c->n_devices);
    cvy_text_add(text, " instead of ");
    add_shares(text, c->before, c->n_devices);
    cvy_text_add(text, " (expected %.3g s a step instead of %.3g s; compared with the first measurement", 1e-3 * c->ms,
                 1e-3 * c->ms_before);
    for (int i = 0; i < c->n_devices; i++) {
      cvy_text_add(text, "%s", i ? ", " : " ");
      add_label(b, i, text);
      cvy_text_add(text, " takes %.2fx", cvy_pace_factor(pace, i));
    }
    cvy_text_add(text, ")");
  }
  for (int i = 0; i < c->n_devices; i++) {
    char why[256];
    if (c->shares[i] > 0) continue;
    cvy_balance_explain(&pace->params, c->shares, pace->why, i, why, sizeof why);
    cvy_text_add(text, "; ");
    add_label(b, i, text);
    cvy_text_add(text, " gets no images: %s", why);
  }
}

/* Logs the change from the shares `before` to the present ones (in a fleet the head does), and adds its event. */
static cvy_status tell(cvy_rebalance *b, const int *before, double after_s, double before_s, bool first) {
  cvy_status status = CVY_OK;
  cvy_team *const team = b->team;
  cvy_text text = {0};
  char *json = NULL;
  int *const shares = cvy_calloc((size_t)b->n, sizeof *shares);
  CVY_REQUIRE(shares, CVY_E_MEMORY, "out of host memory");
  cvy_shares_full(team->shares, shares);
  cvy_shares_change change = {.step = team->ring ? cvy_ring_next_number(team->ring) : 0,
                              .n_devices = b->n,
                              .shares = shares,
                              .before = before,
                              .ms = 1e3 * after_s,
                              .ms_before = 1e3 * before_s};
  describe(b, &change, first, &text);
  json = describe_json(b, &change);
  CVY_REQUIRE(json && !text.failed, CVY_E_MEMORY, "out of host memory");
  change.text = cvy_text_get(&text);
  change.json = json;
  if (cvy_fleet_writes(team->params.fleet)) cvy_log_info("%s", change.text);
  CVY_TRY(cvy_events_add(team->events,
                         &(cvy_team_event){.kind = CVY_TEAM_SHARES_CHANGED, .step = change.step, .of.shares = change}));
fail:
  free(json);
  cvy_free(shares);
  cvy_text_clear(&text);
  return status;
}

/* ---- the first shares ---- */

static int least_share(const cvy_team *team) {
  const int each = team->params.batch / cvy_shares_all(team->shares);
  if (team->params.inference || team->params.bn != CVY_BN_DEVICE || !cvy_layout_moves(team->layout)) return 1;
  return each > LEAST_FOR_STATISTICS ? LEAST_FOR_STATISTICS : each > 1 ? each : 1;
}

bool cvy_rebalance_wanted(const cvy_team_params *params) {
  return params->split == CVY_SPLIT_AUTO || params->split == CVY_SPLIT_UNLIKE;
}

/* Devices without a share in the checkpoint (lost ones) are left out if the new team is smaller. */
cvy_status cvy_rebalance_resume(cvy_team_params *params, const cvy_devices *devices, bool any_split_will_do,
                                cvy_split_params *split, double *values) {
  cvy_status status = CVY_OK;
  const cvy_resume_values *const resume = params->resume;
  bool same = true;
  if (!resume || !resume->shares || devices->n == 1 || !cvy_rebalance_wanted(params)) return CVY_OK;
  /* other devices have other speeds */
  if (any_split_will_do) CVY_TRY(cvy_noted_same(resume->devices, devices, &same));
  if (!same) return CVY_OK;
  if (params->split == CVY_SPLIT_UNLIKE) params->split = resume->shares_by_speed ? CVY_SPLIT_AUTO : CVY_SPLIT_EVEN;
  if (!cvy_rebalance_wanted(params)) return CVY_OK;
  const bool fewer = resume->n_shares != devices->n;
  int n = 0;
  int64_t sum = 0;
  for (int i = 0; i < resume->n_shares && n <= devices->n; i++) {
    if (resume->shares[i] == 0 && fewer) continue;
    if (n < devices->n) values[n] = resume->shares[i];
    sum += resume->shares[i];
    n++;
  }
  /* these shares do not fit this team or batch; the trainer decides whether the run can go on */
  if (n != devices->n || sum != params->batch) return CVY_OK;
  split->rule = CVY_RULE_SHARES;
  split->values = values;
fail:
  return status;
}

/* The parts for which a fleet knows more than its node's devices. */
static cvy_status create_fleet_parts(cvy_rebalance *b) {
  cvy_status status = CVY_OK;
  const cvy_balance_params *const p = &b->pace->params;
  const size_t n_links = (size_t)cvy_fleet_size(b->team->params.fleet) - 1;
  b->fleet.rates = cvy_calloc(n_links + 1, sizeof *b->fleet.rates);
  CVY_REQUIRE(b->fleet.rates, CVY_E_MEMORY, "out of host memory");
  CVY_TRY(cvy_pace_create(b->n_own, p->batch, p->group, p->least, &b->fleet.own));
fail:
  return status;
}

static cvy_status create(cvy_team *team, cvy_rebalance **out) {
  cvy_status status = CVY_OK;
  const int n = cvy_shares_all(team->shares), n_own = cvy_roster_size(team->roster);
  cvy_rebalance *b = cvy_calloc(1, sizeof *b);
  *out = NULL;
  CVY_REQUIRE(b, CVY_E_MEMORY, "out of host memory");
  *b = (cvy_rebalance){.team = team,
                       .n = n,
                       .first = cvy_shares_first(team->shares),
                       .n_own = n_own,
                       .own = cvy_calloc((size_t)n_own, sizeof *b->own),
                       .now = cvy_calloc((size_t)n, sizeof *b->now),
                       .new = cvy_calloc((size_t)n, sizeof *b->new),
                       .measured = cvy_calloc((size_t)n, sizeof *b->measured),
                       .busy_s = cvy_calloc((size_t)n, sizeof *b->busy_s),
                       .there = cvy_calloc((size_t)n, sizeof *b->there)};
  CVY_REQUIRE(b->own && b->now && b->new && b->measured && b->busy_s && b->there, CVY_E_MEMORY, "out of host memory");
  CVY_TRY(cvy_pace_create(n, team->params.batch, cvy_shares_rule(team->shares)->group, least_share(team), &b->pace));
  b->pace->params.may_be_lone = cvy_team_may_be_lone(&team->params);
  if (team->params.fleet) CVY_TRY(create_fleet_parts(b));
  *out = b;
  return CVY_OK;
fail:
  cvy_rebalance_destroy(&b);
  return status;
}

void cvy_rebalance_destroy(cvy_rebalance **rebalance) {
  cvy_rebalance *const b = *rebalance;
  if (!b) return;
  cvy_new_shares_destroy(&b->fleet.new_shares);
  cvy_pace_destroy(&b->fleet.own);
  cvy_free(b->fleet.rates);
  cvy_pace_destroy(&b->pace);
  cvy_free(b->own);
  cvy_free(b->now);
  cvy_free(b->new);
  cvy_free(b->measured);
  cvy_free(b->busy_s);
  cvy_free(b->there);
  cvy_free(b);
  *rebalance = NULL;
}

static const char *split_name(int32_t kind) {
  static const char *const names[] = {[CVY_SPLIT_EVEN] = "even",
                                      [CVY_SPLIT_WEIGHTS] = "weights",
                                      [CVY_SPLIT_SHARES] = "shares",
                                      [CVY_SPLIT_AUTO] = "auto",
                                      [CVY_SPLIT_UNLIKE] = "the default"};
  return kind >= 0 && kind <= CVY_SPLIT_UNLIKE ? names[kind] : "?";
}

/* Compares the settings by which the nodes find shares together, before they do; run/fleet_settings_check.h compares
 * all others. */
static cvy_status check_nodes(const cvy_team *team) {
  cvy_status status = CVY_OK;
  cvy_fleet *const fleet = team->params.fleet;
  const size_t rank = (size_t)cvy_fleet_rank(fleet), size = (size_t)cvy_fleet_size(fleet);
  struct {
    int32_t split, batch;
  } all[CVY_NODES_MOST] = {{0}};
  all[rank].split = (int32_t)team->params.split;
  all[rank].batch = team->params.batch;
  CVY_TRY(cvy_fleet_gather(fleet, all, size * sizeof *all, rank * sizeof *all, sizeof *all));
  uint64_t others = 0;
  for (size_t r = 1; r < size; r++) {
    const bool split = all[r].split == all[0].split, batch = all[r].batch == all[0].batch;
    if (!split)
      cvy_log_error("split: %s on node 0 (%s), %s on node %zu (%s); expected the same on all nodes",
                    split_name(all[0].split), cvy_fleet_name(fleet, 0), split_name(all[r].split), r,
                    cvy_fleet_name(fleet, (int)r));
    if (!batch)
      cvy_log_error("batch: %d on node 0 (%s), %d on node %zu (%s); expected the same on all nodes", (int)all[0].batch,
                    cvy_fleet_name(fleet, 0), (int)all[r].batch, r, cvy_fleet_name(fleet, (int)r));
    if (!split || !batch) others |= cvy_view_bit((int)r);
  }
  CVY_TRY(cvy_fleet_refuse_others(fleet, others));
fail:
  return status;
}

/* Times, caps and costs of all devices, of which this node has measured its own. */
static cvy_status gather(cvy_rebalance *b) {
  cvy_team *const team = b->team;
  return team->params.fleet ? cvy_fleet_pace_gather(team, b->fleet.rates, b->fleet.own, b->pace) : CVY_OK;
}

static cvy_status measure(cvy_rebalance *b) {
  cvy_status status = CVY_OK;
  cvy_team *const team = b->team;
  bool lifted;
  if (team->params.fleet && !team->params.inference) CVY_TRY(cvy_fleet_pace_links(team, b->fleet.rates));
  CVY_TRY(cvy_calibrate(team, team->params.fleet ? b->fleet.own : b->pace));
  CVY_TRY(gather(b));
  if (team->params.bn == CVY_BN_SYNC) return CVY_OK;
  CVY_TRY(cvy_pace_lift_caps(b->pace, &lifted));
  if (lifted && cvy_fleet_writes(team->params.fleet))
    cvy_log_info("the batch of %d fits on the %d devices only in several passes each; shares ignore the memory limits",
                 team->params.batch, b->n);
fail:
  return status;
}

/* The head's numbers, in a fleet. */
static cvy_status as_the_head(const cvy_rebalance *b, int *numbers, int n) {
  return b->team->params.fleet ? cvy_fleet_pace_spread(b->team, numbers, n) : CVY_OK;
}

static cvy_status find_first(cvy_rebalance *b) {
  cvy_status status = CVY_OK;
  CVY_TRY(cvy_pace_first(b->pace, b->new));
  CVY_TRY(as_the_head(b, b->new, b->n));
fail:
  return status;
}

/* Measures, and plans the devices for the best shares; `resumed`: for the present ones. */
static cvy_status choose_first(cvy_rebalance *b, bool resumed) {
  cvy_status status = CVY_OK;
  cvy_team *const team = b->team;
  const cvy_balance_params *const params = &b->pace->params;
  cvy_shares_full(team->shares, b->now);
  cvy_shares_full(team->shares, b->new);
  if (!resumed) CVY_TRY(find_first(b));
  const uint64_t start = cvy_clock_ns();
  CVY_TRY(cvy_replan_first(team, b->pace, b->new));
  b->pace->change_s = cvy_clock_seconds_since(start);
  CVY_TRY(cvy_calibrate_shares(team, team->params.fleet ? b->fleet.own : b->pace, b->new + b->first));
  CVY_TRY(gather(b));
  if (resumed) return CVY_OK;
  CVY_TRY(find_first(b));
  CVY_TRY(cvy_replan_first(team, b->pace, b->new));
  CVY_TRY(tell(b, b->now, cvy_balance_step_time(params, b->new), cvy_balance_step_time(params, b->now), true));
fail:
  return status;
}

cvy_status cvy_rebalance_start(cvy_team *team, cvy_rebalance **out) {
  cvy_status status = CVY_OK;
  const int n = cvy_shares_all(team->shares);
  const bool only_unlike = team->params.split == CVY_SPLIT_UNLIKE;
  const bool resumed = cvy_shares_rule(team->shares)->rule == CVY_RULE_SHARES;
  cvy_rebalance *b = NULL;
  *out = NULL;
  if (team->params.fleet) CVY_TRY(check_nodes(team));
  if (!cvy_rebalance_wanted(&team->params)) return CVY_OK;
  int follows = n > 1 && !(only_unlike && cvy_calibrate_alike(team));
  if (follows) {
    CVY_TRY(create(team, &b));
    CVY_TRY(measure(b));
    const int each = team->params.batch / n > 1 ? team->params.batch / n : 1;
    follows = !only_unlike || cvy_balance_differ(&b->pace->params, each, UNLIKE);
    CVY_TRY(as_the_head(b, &follows, 1));
  }
  if (follows) {
    CVY_TRY(choose_first(b, resumed));
    *out = b;
    return CVY_OK;
  }
  team->params.split = CVY_SPLIT_EVEN;
fail:
  cvy_rebalance_destroy(&b);
  return status;
}

/* ---- between steps ---- */

/* This node's times of the finished step that had the slot. */
static void take_stamps(cvy_rebalance *b, cvy_step *step) {
  for (int i = 0; i < b->n_own; i++) {
    const uint64_t began = cvy_stamp_ns(step->parts[i].began), ended = cvy_stamp_ns(step->parts[i].ended);
    const double busy_s = began && ended > began ? 1e-9 * (double)(ended - began) - cvy_bn_sync_waited(step->bn, i) : 0;
    const bool measured = busy_s > 0 && step->n == b->team->params.batch;
    b->own[i] = (cvy_step_time){.n = measured ? step->shares[i] : 0, .seconds = busy_s};
    cvy_stamp_destroy(&step->parts[i].began);
    cvy_stamp_destroy(&step->parts[i].ended);
  }
}

/* Hands the times of all devices to `pace`. */
static void learn(cvy_rebalance *b, const cvy_step_time *times) {
  for (int i = 0; i < b->n; i++) {
    const cvy_step_time *const t = &times[i];
    if (t->tried && t->seconds > 0) cvy_pace_try(b->pace, i, t->n, t->seconds);
    b->measured[i] = t->tried ? 0 : t->n;
    b->busy_s[i] = t->seconds;
  }
  cvy_pace_step(b->pace, b->measured, b->busy_s);
}

static void try_later(cvy_rebalance *b) {
  b->try_steps = TRY_STEPS;
  b->next_try = cvy_ring_next_number(b->team->ring) + TRY_STEPS;
}

/* Tries this node's idle devices after TRY_STEPS steps, and then more and more seldom, since a try delays the step. */
static cvy_status try_idle(cvy_rebalance *b) {
  cvy_status status = CVY_OK;
  cvy_team *const team = b->team;
  const long next = cvy_ring_next_number(team->ring);
  if (b->try_steps == 0) try_later(b);
  if (next < b->next_try) return CVY_OK;
  for (int i = 0; i < b->n_own; i++)
    if (cvy_calibrate_is_idle(team, i) && b->pace->devices[b->first + i].cap != 0)
      CVY_TRY(cvy_calibrate_idle(team, b->pace, i, &b->own[i])); /* devices may be lost while others are tried */
  b->next_try = next + b->try_steps;
  if (b->try_steps < MOST_TRY_STEPS) b->try_steps *= 2;
fail:
  return status;
}

/* Notes lost devices in `pace`. The devices that are left may then take shares that need several passes, unless
 * statistics of the whole batch need each share in one pass. */
static cvy_status note_lost(cvy_rebalance *b) {
  cvy_status status = CVY_OK;
  cvy_team *const team = b->team;
  bool news = false, lifted = false;
  cvy_shares_present(team->shares, b->there);
  for (int i = 0; i < b->n; i++) {
    if (b->pace->known[i].lost || b->there[i]) continue;
    cvy_pace_lose(b->pace, i);
    news = true;
  }
  if (!news || team->params.bn == CVY_BN_SYNC) return CVY_OK;
  CVY_TRY(cvy_pace_lift_caps(b->pace, &lifted));
  if (lifted && cvy_fleet_writes(team->params.fleet))
    cvy_log_info(
        "the batch of %d fits on the remaining devices only in several passes; shares ignore the memory limits",
        team->params.batch);
fail:
  return status;
}

/* Changes the shares of a team without a fleet, if this makes steps shorter. */
static cvy_status change_alone(cvy_rebalance *b) {
  cvy_status status = CVY_OK;
  bool better;
  double before_s, after_s;
  learn(b, b->own);
  cvy_shares_full(b->team->shares, b->now);
  CVY_TRY(cvy_pace_propose(b->pace, b->now, b->new, &better, &before_s, &after_s));
  if (!better) return CVY_OK;
  const uint64_t start = cvy_clock_ns();
  CVY_TRY(cvy_replan(b->team, b->pace, b->new, &better));
  cvy_pace_changed(b->pace, cvy_clock_seconds_since(start));
  try_later(b);
  if (better) CVY_TRY(tell(b, b->now, after_s, before_s, false));
fail:
  return status;
}

/* ---- between the steps of a fleet ---- */

/* [head] For the devices that are there. */
static cvy_status propose(void *rebalance, const int *now, int *shares, bool *better) {
  cvy_status status = CVY_OK;
  cvy_rebalance *const b = rebalance;
  double before_s, after_s;
  CVY_TRY(note_lost(b));
  CVY_TRY(cvy_pace_propose(b->pace, now, shares, better, &before_s, &after_s));
fail:
  return status;
}

static cvy_status create_new_shares(cvy_rebalance *b) {
  cvy_team *const team = b->team;
  const int run_ahead = team->params.run_ahead;
  return cvy_new_shares_create(&(cvy_new_shares_params){.fleet = team->params.fleet,
                                                        .chain = cvy_team_chain(team),
                                                        .roster = team->roster,
                                                        .ring = team->ring,
                                                        .shares = team->shares,
                                                        .ledger = team->ledger,
                                                        .run_ahead = run_ahead == CVY_RUN_AHEAD_NONE ? 0 : run_ahead,
                                                        .most_samples = cvy_team_most_samples(team),
                                                        .few = cvy_calibrate_few(b->pace),
                                                        .propose = propose,
                                                        .user = b},
                               &b->fleet.new_shares);
}

/* The nodes have met. */
static cvy_status note_change(cvy_rebalance *b, const cvy_new_shares_result *r) {
  cvy_status status = CVY_OK;
  const cvy_balance_params *const p = &b->pace->params;
  const double before_s = cvy_balance_step_time(p, r->before), after_s = cvy_balance_step_time(p, r->wanted);
  for (int i = 0; i < b->n; i++)
    if (r->short_for[i] && r->wanted[i] > r->before[i]) b->pace->devices[i].cap = r->before[i];
  cvy_pace_changed(b->pace, r->cost_s);
  try_later(b);
  if (r->changed) CVY_TRY(tell(b, r->before, after_s, before_s, false));
  else if (cvy_fleet_writes(b->team->params.fleet))
    cvy_log_warning("a node has no memory for the new shares; the previous shares are kept");
fail:
  return status;
}

/* Times of all nodes came with the finished step; this node's go with the one that begins. */
static cvy_status change_together(cvy_rebalance *b, cvy_step *step) {
  cvy_status status = CVY_OK;
  bool better;
  cvy_new_shares_result result;
  if (!b->fleet.new_shares) CVY_TRY(create_new_shares(b));
  learn(b, step->times);
  memset(step->times, 0, (size_t)b->n * sizeof *step->times);
  memcpy(step->times + b->first, b->own, (size_t)b->n_own * sizeof *b->own);
  CVY_TRY(cvy_new_shares_step(b->fleet.new_shares, step, &result));
  if (result.tried) return note_change(b, &result);
  if (!cvy_fleet_is_head(b->team->params.fleet)) return CVY_OK;
  cvy_shares_full(b->team->shares, b->now);
  CVY_TRY(propose(b, b->now, b->new, &better));
  if (better) cvy_new_shares_ask(b->fleet.new_shares);
fail:
  return status;
}

cvy_status cvy_rebalance_step(cvy_rebalance *b, cvy_step *step) {
  cvy_status status = CVY_OK;
  take_stamps(b, step);
  CVY_TRY(note_lost(b));
  CVY_TRY(try_idle(b));
  CVY_TRY(note_lost(b));
  CVY_TRY(b->team->params.fleet ? change_together(b, step) : change_alone(b));
fail:
  return status;
}

cvy_pace *cvy_rebalance_pace(cvy_rebalance *b) { return b->pace; }
