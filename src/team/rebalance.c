/* SPDX-License-Identifier: MIT
 * Outline: texts of a change · the first shares · between steps. */
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
#include "src/team/bn_sync.h"
#include "src/team/calibrate.h"
#include "src/team/noted_devices.h"
#include "src/team/replan.h"

/* Devices whose speeds differ by less count as alike (convoy/team.h). */
static const double UNLIKE = 0.1;
/* With batch normalisation over each device's share: the least share that gives usable statistics. */
enum { LEAST_FOR_STATISTICS = 8 };
/* An idle device is tried TRY_STEPS steps after it became idle, then after twice as many more, and so on. */
enum { TRY_STEPS = 50, MOST_TRY_STEPS = 1600 };

struct cvy_rebalance {
  cvy_team *team;
  cvy_pace *pace;
  long next_try;  /* the step before which idle devices are tried */
  int try_steps;  /* from that try to the next one; 0: no step has begun yet */
  int *now, *new; /* shares, scratch of a step */
  double *busy_s;
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
    for (int i = 0; i < c->n_devices; i++)
      cvy_text_add(text, "%s%s takes %.2fx", i ? ", " : " ", cvy_roster_label(b->team->roster, i),
                   cvy_pace_factor(pace, i));
    cvy_text_add(text, ")");
  }
  for (int i = 0; i < c->n_devices; i++) {
    char why[256];
    if (c->shares[i] > 0) continue;
    cvy_balance_explain(&pace->params, c->shares, pace->why, i, why, sizeof why);
    cvy_text_add(text, "; %s gets nothing: %s", cvy_roster_label(b->team->roster, i), why);
  }
}

/* Logs the change from the shares `before` to the present ones, and adds its event. */
static cvy_status tell(cvy_rebalance *b, const int *before, double after_s, double before_s, bool first) {
  cvy_status status = CVY_OK;
  cvy_team *const team = b->team;
  const int n = cvy_roster_size(team->roster);
  cvy_text text = {0};
  char *json = NULL;
  int *const shares = cvy_calloc((size_t)n, sizeof *shares);
  CVY_REQUIRE(shares, CVY_E_MEMORY, "out of host memory");
  cvy_shares_full(team->shares, shares);
  cvy_shares_change change = {.step = team->ring ? cvy_ring_next_number(team->ring) : 0,
                              .n_devices = n,
                              .shares = shares,
                              .before = before,
                              .ms = 1e3 * after_s,
                              .ms_before = 1e3 * before_s};
  describe(b, &change, first, &text);
  json = describe_json(b, &change);
  CVY_REQUIRE(json && !text.failed, CVY_E_MEMORY, "out of host memory");
  change.text = cvy_text_get(&text);
  change.json = json;
  cvy_log_info("%s", change.text);
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
  const int each = team->params.batch / cvy_roster_size(team->roster);
  if (team->params.inference || team->params.bn != CVY_BN_DEVICE || team->layout->n_running == 0) return 1;
  return each > LEAST_FOR_STATISTICS ? LEAST_FOR_STATISTICS : each > 1 ? each : 1;
}

bool cvy_rebalance_wanted(const cvy_team_params *params) {
  return params->split == CVY_SPLIT_AUTO || params->split == CVY_SPLIT_UNLIKE;
}

/* Devices without a share in the checkpoint (lost ones) are left out if the new team is smaller. */
cvy_status cvy_rebalance_resume(cvy_team_params *params, const cvy_devices *devices, bool any_split_will_do,
                                cvy_split_params *split, double *values) {
  cvy_status status = CVY_OK;
  const cvy_resume_facts *const facts = params->resume;
  bool same = true;
  if (!facts || !facts->shares || devices->n == 1 || !cvy_rebalance_wanted(params)) return CVY_OK;
  /* other devices have other speeds */
  if (any_split_will_do) CVY_TRY(cvy_noted_same(facts->devices, devices, &same));
  if (!same) return CVY_OK;
  if (params->split == CVY_SPLIT_UNLIKE) params->split = facts->shares_by_speed ? CVY_SPLIT_AUTO : CVY_SPLIT_EVEN;
  if (!cvy_rebalance_wanted(params)) return CVY_OK;
  const bool fewer = facts->n_shares != devices->n;
  int n = 0;
  int64_t sum = 0;
  for (int i = 0; i < facts->n_shares && n <= devices->n; i++) {
    if (facts->shares[i] == 0 && fewer) continue;
    if (n < devices->n) values[n] = facts->shares[i];
    sum += facts->shares[i];
    n++;
  }
  /* these shares do not fit this team or batch; the trainer decides whether the run can go on */
  if (n != devices->n || sum != params->batch) return CVY_OK;
  split->rule = CVY_RULE_SHARES;
  split->values = values;
fail:
  return status;
}

static cvy_status create(cvy_team *team, cvy_rebalance **out) {
  cvy_status status = CVY_OK;
  const size_t n = (size_t)cvy_roster_size(team->roster);
  cvy_rebalance *b = cvy_calloc(1, sizeof *b);
  *out = NULL;
  CVY_REQUIRE(b, CVY_E_MEMORY, "out of host memory");
  *b = (cvy_rebalance){.team = team,
                       .now = cvy_calloc(n, sizeof *b->now),
                       .new = cvy_calloc(n, sizeof *b->new),
                       .busy_s = cvy_calloc(n, sizeof *b->busy_s)};
  CVY_REQUIRE(b->now && b->new && b->busy_s, CVY_E_MEMORY, "out of host memory");
  CVY_TRY(
      cvy_pace_create((int)n, team->params.batch, cvy_shares_rule(team->shares)->group, least_share(team), &b->pace));
  *out = b;
  return CVY_OK;
fail:
  cvy_rebalance_destroy(&b);
  return status;
}

void cvy_rebalance_destroy(cvy_rebalance **rebalance) {
  cvy_rebalance *const b = *rebalance;
  if (!b) return;
  cvy_pace_destroy(&b->pace);
  cvy_free(b->now);
  cvy_free(b->new);
  cvy_free(b->busy_s);
  cvy_free(b);
  *rebalance = NULL;
}

/* Measures, and plans the devices for the best shares; `resumed`: for the present ones. */
static cvy_status choose_first(cvy_rebalance *b, bool resumed) {
  cvy_status status = CVY_OK;
  cvy_team *const team = b->team;
  const cvy_balance_params *const params = &b->pace->params;
  cvy_shares_full(team->shares, b->now);
  cvy_shares_full(team->shares, b->new);
  if (!resumed) CVY_TRY(cvy_pace_first(b->pace, b->new));
  const uint64_t start = cvy_clock_ns();
  CVY_TRY(cvy_replan_first(team, b->pace, b->new));
  b->pace->change_s = cvy_clock_seconds_since(start);
  CVY_TRY(cvy_calibrate_shares(team, b->pace, b->new));
  if (resumed) return CVY_OK;
  CVY_TRY(cvy_pace_first(b->pace, b->new));
  CVY_TRY(cvy_replan_first(team, b->pace, b->new));
  CVY_TRY(tell(b, b->now, cvy_balance_step_time(params, b->new), cvy_balance_step_time(params, b->now), true));
fail:
  return status;
}

cvy_status cvy_rebalance_start(cvy_team *team, cvy_rebalance **out) {
  cvy_status status = CVY_OK;
  const int n = cvy_roster_size(team->roster);
  const bool only_unlike = team->params.split == CVY_SPLIT_UNLIKE;
  const bool resumed = cvy_shares_rule(team->shares)->rule == CVY_RULE_SHARES;
  cvy_rebalance *b = NULL;
  *out = NULL;
  if (!cvy_rebalance_wanted(&team->params)) return CVY_OK;
  bool follows = n > 1 && !(only_unlike && cvy_calibrate_alike(team));
  if (follows) {
    CVY_TRY(create(team, &b));
    CVY_TRY(cvy_calibrate(team, b->pace));
    const int each = team->params.batch / n > 1 ? team->params.batch / n : 1;
    follows = !only_unlike || cvy_balance_differ(&b->pace->params, each, UNLIKE);
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

/* Hands the devices' compute times of a finished step to `pace`. */
static void learn(cvy_rebalance *b, cvy_step *step) {
  for (int i = 0; i < cvy_roster_size(b->team->roster); i++) {
    const uint64_t began = cvy_stamp_ns(step->parts[i].began), ended = cvy_stamp_ns(step->parts[i].ended);
    b->busy_s[i] = began && ended > began ? 1e-9 * (double)(ended - began) - cvy_bn_sync_waited(step->bn, i) : 0;
    cvy_stamp_destroy(&step->parts[i].began);
    cvy_stamp_destroy(&step->parts[i].ended);
  }
  if (step->n == b->team->params.batch) cvy_pace_step(b->pace, step->shares, b->busy_s);
}

static void try_later(cvy_rebalance *b) {
  b->try_steps = TRY_STEPS;
  b->next_try = cvy_ring_next_number(b->team->ring) + TRY_STEPS;
}

/* Tries idle devices after TRY_STEPS steps, and then more and more seldom, since a try delays the step. */
static cvy_status try_idle(cvy_rebalance *b) {
  cvy_status status = CVY_OK;
  cvy_team *const team = b->team;
  const long next = cvy_ring_next_number(team->ring);
  if (next < b->next_try) return CVY_OK;
  for (int i = 0; i < cvy_roster_size(team->roster); i++)
    if (cvy_calibrate_is_idle(team, i) && b->pace->devices[i].cap != 0)
      CVY_TRY(cvy_calibrate_idle(team, b->pace, i)); /* devices may be lost while others are tried */
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
  for (int i = 0; i < cvy_roster_size(team->roster); i++) {
    if (b->pace->known[i].lost || !cvy_roster_is_lost(team->roster, i)) continue;
    cvy_pace_lose(b->pace, i);
    news = true;
  }
  if (!news || team->params.bn == CVY_BN_SYNC) return CVY_OK;
  CVY_TRY(cvy_pace_lift_caps(b->pace, &lifted));
  if (lifted)
    cvy_log_info(
        "the batch of %d fits on the devices that are left only in several passes: memory does not limit the shares",
        team->params.batch);
fail:
  return status;
}

cvy_status cvy_rebalance_step(cvy_rebalance *b, cvy_step *step) {
  cvy_status status = CVY_OK;
  bool better;
  double before_s, after_s;
  learn(b, step);
  CVY_TRY(note_lost(b));
  if (b->try_steps == 0) try_later(b);
  CVY_TRY(try_idle(b));
  CVY_TRY(note_lost(b));
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

cvy_pace *cvy_rebalance_pace(cvy_rebalance *b) { return b->pace; }
