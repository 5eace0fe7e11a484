/* SPDX-License-Identifier: MIT
 * Shares that follow the devices' speeds. Outline: shares of the next step · what is told about a change · the first
 * shares · between steps. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/clock.h"
#include "src/base/mem.h"
#include "src/base/text.h"
#include "src/train/calibrate.h"
#include "src/train/checkpoint.h"
#include "src/train/resume.h"
#include "src/train/team.h"

/* Speeds that differ by less do not make a team unlike (convoy/team.h). */
static const double UNLIKE = 0.1;
/* Fewer samples are no statistic, where batch normalisation takes them over each device's share. */
enum { LEAST_FOR_STATISTICS = 8 };
/* A device without a share is tried so many steps after it lost its share, then after twice as many more, and so on. */
enum { TRY_STEPS = 50, MOST_TRY_STEPS = 1600 };

/* ---- shares of the next step ---- */

typedef struct replan_args {
  cvy_team *team;
  const int *share_max;
  bool keep_choices;                /* layers go on with the algorithms they have */
  bool last_way;                    /* who has no memory for it is lost */
} replan_args;

static cvy_status replan(void *owner, void *arg) {
  cvy_status status = CVY_OK;
  cvy_replica *const r = owner;
  const replan_args *const a = arg;
  const cvy_team *const team = a->team;
  const int layers = team->net->n_layers, share_max = a->share_max[r->index];
  cvy_conv_choices *kept = NULL;
  if (r->lost || (r->instance && r->share_max == share_max)) return CVY_OK;
  cvy_replica_params params = cvy_team_replica_params(team, r, share_max);
  if (a->keep_choices && r->instance) {
    kept = cvy_calloc((size_t)layers, sizeof *kept);
    CVY_REQUIRE(kept, CVY_E_MEMORY, "out of host memory");
    for (int l = 0; l < layers; l++) (void)cvy_instance_choices(r->instance, l, &kept[l]);
    params.choices = kept;
  }
  CVY_TRY(cvy_replica_replan(r, &params));
  if (team->data) CVY_TRY(cvy_replica_attach(r, team->data));
fail:
  if (status != CVY_OK) r->share_max = 0; /* there may be no instance: whoever plans it next does all of it */
  if (status != CVY_OK && (status != CVY_E_DEVICE_MEMORY || a->last_way) && team->thread_started) {
    cvy_team_fail_replica(a->team, r, status);
    if (status == CVY_E_MEMORY || status == CVY_E_BUILD) status = CVY_E_DEVICE; /* it is lost; the others go on */
  }
  cvy_free(kept);
  return status;
}

/* Split by these shares from now on, and every replica planned for what it may get. */
static cvy_status plan_shares(cvy_team *team, const int *shares, bool keep_choices, bool last_way) {
  cvy_status status = CVY_OK;
  int *const share_max = cvy_calloc((size_t)team->n, sizeof *share_max);
  CVY_REQUIRE(share_max, CVY_E_MEMORY, "out of host memory");
  if (!team->split_values) team->split_values = cvy_calloc((size_t)team->n, sizeof *team->split_values);
  CVY_REQUIRE(team->split_values, CVY_E_MEMORY, "out of host memory");
  for (int i = 0; i < team->n; i++) team->split_values[i] = shares[i];
  team->split.kind = CVY_SPLIT_SHARES;
  team->split.values = team->split_values;
  CVY_TRY(cvy_team_find_shares(team, share_max));
  if (team->pace) {
    /* one that has nothing to do can be tried */
    const int few = cvy_calibrate_few(team->pace);
    for (int i = 0; i < team->n; i++)
      if (shares[i] == 0 && share_max[i] < few) share_max[i] = few;
  }
  replan_args args = {.team = team, .share_max = share_max, .keep_choices = keep_choices, .last_way = last_way};
  CVY_TRY(cvy_team_call_all(team, replan, &args));
fail:
  cvy_free(share_max);
  return status;
}

cvy_status cvy_team_set_shares(cvy_team *team, const int *shares, bool *done) {
  cvy_status status = CVY_OK;
  int *const before = cvy_calloc((size_t)team->n, sizeof *before);
  CVY_REQUIRE(before, CVY_E_MEMORY, "out of host memory");
  *done = false;
  CVY_TRY(cvy_team_wait(team));
  for (int i = 0; i < team->n; i++)
    if (team->replicas[i].lost && shares[i] > 0) goto fail; /* meanwhile: who asks finds others */
  cvy_team_copy_shares(team, before);
  status = plan_shares(team, shares, true, false);
  *done = status == CVY_OK;
  if (status == CVY_E_DEVICE_MEMORY) {
    cvy_log_warning("there is no memory for the new shares: the batch is divided as before");
    for (int i = 0; team->pace && i < team->n; i++)
      if (shares[i] > before[i] && team->replicas[i].share_max == 0) team->pace->devices[i].cap = before[i];
    CVY_TRY(cvy_team_wait(team));   /* another one may have failed at its plan */
    status = plan_shares(team, before, true, true); /* what was given back may be gone: another program has taken it */
  }
  if (status == CVY_OK && team->initialised) {
    status = cvy_team_publish_state(team, team->next_step);
    for (int i = 0; i < team->n; i++)
      if (team->replicas[i].lost && shares[i] > 0) *done = false;
  }
  if ((status == CVY_E_DEVICE || status == CVY_E_DEVICE_MEMORY) && team->thread_started)
    status = cvy_team_wait(team);   /* the others go on without it */
fail:
  cvy_free(before);
  return status;
}

/* ---- what is told about a change ---- */

static void free_entry(cvy_change_entry *e) {
  if (!e) return;
  union { const int *in; void *out; } shares = {.in = e->change.shares};   /* `before` lies behind them */
  union { const char *in; void *out; } text = {.in = e->change.text}, json = {.in = e->change.json};
  cvy_free(shares.out);
  cvy_free(text.out);
  cvy_free(json.out);
  cvy_free(e);
}

static double rounded(double value, double unit) { return round(value / unit) * unit; }

static json_t *whole_numbers(const int *values, int n) {
  json_t *const list = json_array();
  for (int i = 0; i < n; i++) json_array_append_new(list, json_integer(values[i]));
  return list;
}

/* Everything that decided, as one object; the caller frees it with free(). */
static char *describe_json(const cvy_team *team, const cvy_shares_change *c) {
  const cvy_pace *const pace = team->pace;
  json_t *const root = json_object(), *const devices = json_array();
  json_object_set_new(root, "step", json_integer(c->step));
  json_object_set_new(root, "shares", whole_numbers(c->shares, team->n));
  json_object_set_new(root, "before", whole_numbers(c->before, team->n));
  json_object_set_new(root, "expected_ms", json_real(rounded(c->ms, 1e-3)));
  json_object_set_new(root, "expected_ms_before", json_real(rounded(c->ms_before, 1e-3)));
  for (int i = 0; i < team->n; i++) {
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

static void describe(const cvy_team *team, const cvy_shares_change *c, bool first, cvy_text *text) {
  const cvy_pace *const pace = team->pace;
  if (first) {
    cvy_text_add(text, "shares by measured speed: ");
    add_shares(text, c->shares, team->n);
    cvy_text_add(text, " (expected %.3g s a step, even shares %.3g s)", 1e-3 * c->ms, 1e-3 * c->ms_before);
  } else {
    cvy_text_add(text, "shares from step %ld on: ", c->step);
    add_shares(text, c->shares, team->n);
    cvy_text_add(text, " instead of ");
    add_shares(text, c->before, team->n);
    cvy_text_add(text, " (expected %.3g s a step instead of %.3g s; compared with the first measurement", 1e-3 * c->ms,
                 1e-3 * c->ms_before);
    for (int i = 0; i < team->n; i++)
      cvy_text_add(text, "%s%s takes %.2fx", i ? ", " : " ", cvy_devices_label(team->devices, i),
                   cvy_pace_factor(pace, i));
    cvy_text_add(text, ")");
  }
  for (int i = 0; i < team->n; i++) {
    char why[256];
    if (c->shares[i] > 0) continue;
    cvy_balance_explain(&pace->params, c->shares, pace->why, i, why, sizeof why);
    cvy_text_add(text, "; %s gets nothing: %s", cvy_devices_label(team->devices, i), why);
  }
}

static cvy_status tell(cvy_team *team, const int *before, double after_s, double before_s, bool first) {
  cvy_status status = CVY_OK;
  const size_t n = (size_t)team->n;
  cvy_text text = {0};
  char *json = NULL;
  cvy_change_entry *const e = cvy_calloc(1, sizeof *e);
  int *const shares = cvy_calloc(2 * n, sizeof *shares);
  if (!e || !shares) {
    cvy_free(e);
    cvy_free(shares);
    CVY_FAIL(CVY_E_MEMORY, "out of host memory");
  }
  cvy_team_copy_shares(team, shares);
  memcpy(shares + n, before, n * sizeof *shares);
  e->change = (cvy_shares_change){.step = team->next_step,
                                  .n_devices = team->n,
                                  .shares = shares,
                                  .before = shares + n,
                                  .ms = 1e3 * after_s,
                                  .ms_before = 1e3 * before_s};
  describe(team, &e->change, first, &text);
  json = describe_json(team, &e->change);
  e->change.text = cvy_strdup(cvy_text_get(&text));
  e->change.json = json ? cvy_strdup(json) : NULL;
  if (!e->change.text || !e->change.json || text.failed) {
    free_entry(e);
    CVY_FAIL(CVY_E_MEMORY, "out of host memory");
  }
  cvy_log_info("%s", e->change.text);
  if (team->last_change) team->last_change->next = e;
  else team->changes = e;
  team->last_change = e;
fail:
  free(json);
  cvy_text_clear(&text);
  return status;
}

bool cvy_team_take_change(cvy_team *team, cvy_shares_change *out) {
  cvy_change_entry *const e = team->changes;
  if (!e) return false;
  team->changes = e->next;
  if (!e->next) team->last_change = NULL;
  free_entry(team->taken_change);
  team->taken_change = e;
  *out = e->change;
  return true;
}

cvy_split_kind cvy_team_split(const cvy_team *team) { return team->pace ? CVY_SPLIT_AUTO : team->params.split; }

void cvy_team_balance_end(cvy_team *team) {
  cvy_shares_change unused;
  while (cvy_team_take_change(team, &unused)) continue;
  free_entry(team->taken_change);
  team->taken_change = NULL;
  cvy_pace_destroy(&team->pace);
}

/* ---- the first shares ---- */

static bool follows_speed(const cvy_team *team) {
  return team->params.split == CVY_SPLIT_AUTO || team->params.split == CVY_SPLIT_UNLIKE;
}

/* The run that is resumed had shares that follow no speeds. */
static cvy_status was_even(const char *dir, bool *even) {
  cvy_status status = CVY_OK;
  char *text = NULL;
  CVY_TRY(cvy_checkpoint_newest_settings(dir, &text));
  json_t *const settings = text ? json_loads(text, 0, NULL) : NULL;
  const char *const split = json_string_value(json_object_get(settings, "split"));
  *even = !split || strcmp(split, "auto") != 0;
  json_decref(settings);
fail:
  cvy_free(text);
  return status;
}

cvy_status cvy_team_balance_resume(cvy_team *team) {
  cvy_status status = CVY_OK;
  char *text = NULL;
  double *values = NULL;
  int *counts = NULL;
  const char *const dir = team->params.resume_from;
  if (!dir || team->n == 1 || !follows_speed(team)) return CVY_OK;
  bool other;
  CVY_TRY(cvy_resume_is_free(team, dir, &other));
  if (other) return CVY_OK; /* its speeds say nothing about these devices */
  CVY_TRY(cvy_checkpoint_newest_shares(dir, &text));
  if (!text) return CVY_OK;
  if (team->params.split == CVY_SPLIT_UNLIKE) {
    bool even;
    CVY_TRY(was_even(dir, &even));
    if (even) team->params.split = CVY_SPLIT_EVEN;
    else team->params.split = CVY_SPLIT_AUTO;
  }
  if (!follows_speed(team)) goto fail;
  int n = 0, parts = 1;
  int64_t sum = 0;
  for (const char *at = text; *at; at++) parts += *at == ',';
  values = cvy_calloc((size_t)team->n, sizeof *values);
  counts = cvy_calloc((size_t)parts, sizeof *counts);
  CVY_REQUIRE(values && counts, CVY_E_MEMORY, "out of host memory");
  (void)cvy_parse_counts(text, counts, &parts);
  /* those that are left of a team take over its parts, and leave the lost ones out */
  const bool fewer = parts != team->n;
  for (int i = 0; i < parts && n <= team->n; i++) {
    if (counts[i] == 0 && fewer) continue;
    if (n < team->n) values[n] = counts[i];
    sum += counts[i];
    n++;
  }
  /* another team's, another batch's, or no shares at all: whether that can be resumed is for the trainer to say */
  if (n != team->n || sum != team->params.batch) goto fail;
  team->split_values = values;
  values = NULL;
  team->split.kind = CVY_SPLIT_SHARES;
  team->split.values = team->split_values;
fail:
  cvy_free(text);
  cvy_free(values);
  cvy_free(counts);
  return status;
}

static int least_share(const cvy_team *team) {
  const int each = team->params.batch / team->n;
  if (team->params.inference || team->params.bn != CVY_BN_DEVICE || team->layout->n_running == 0) return 1;
  return each > LEAST_FOR_STATISTICS ? LEAST_FOR_STATISTICS : each > 1 ? each : 1;
}

cvy_status cvy_team_balance_start(cvy_team *team) {
  cvy_status status = CVY_OK;
  int *shares = NULL;
  if (!follows_speed(team)) return CVY_OK;
  const bool only_unlike = team->params.split == CVY_SPLIT_UNLIKE;
  const bool resumed = team->split.kind == CVY_SPLIT_SHARES;
  if (team->n == 1 || (only_unlike && cvy_calibrate_alike(team))) {
    team->params.split = CVY_SPLIT_EVEN;
    return CVY_OK;
  }
  shares = cvy_calloc(2 * (size_t)team->n, sizeof *shares);
  CVY_REQUIRE(shares, CVY_E_MEMORY, "out of host memory");
  CVY_TRY(cvy_pace_create(team->n, team->params.batch, team->split.group, least_share(team), &team->pace));
  CVY_TRY(cvy_calibrate(team, team->pace));
  const int each = team->params.batch / team->n > 1 ? team->params.batch / team->n : 1;
  if (only_unlike && !cvy_balance_differ(&team->pace->params, each, UNLIKE)) {
    cvy_pace_destroy(&team->pace);
    team->params.split = CVY_SPLIT_EVEN;
    goto fail;
  }
  int *const before = shares + team->n;
  memcpy(before, team->full_shares, (size_t)team->n * sizeof *before);
  if (resumed) memcpy(shares, before, (size_t)team->n * sizeof *shares);
  else CVY_TRY(cvy_pace_first(team->pace, shares));
  const uint64_t start = cvy_clock_ns();
  CVY_TRY(plan_shares(team, shares, false, false));
  team->pace->change_s = cvy_clock_seconds_since(start);
  CVY_TRY(cvy_calibrate_shares(team, team->pace, shares));
  if (!resumed) {
    CVY_TRY(cvy_pace_first(team->pace, shares));
    CVY_TRY(plan_shares(team, shares, false, false));
  }
  if (!resumed)
    CVY_TRY(tell(team, before, cvy_balance_step_time(&team->pace->params, shares),
                 cvy_balance_step_time(&team->pace->params, before), true));
fail:
  cvy_free(shares);
  return status;
}

/* ---- between steps ---- */

/* How long each device computed in a finished step. */
static void learn(cvy_team *team, cvy_step *step, double *busy_s) {
  bool whole = step->n == team->params.batch;
  for (int i = 0; i < team->n; i++) {
    const uint64_t began = cvy_stamp_ns(step->began[i]), ended = cvy_stamp_ns(step->ended[i]);
    busy_s[i] = began && ended > began ? 1e-9 * (double)(ended - began) - cvy_bn_sync_waited(step->bn, i) : 0;
    cvy_stamp_destroy(&step->began[i]);
    cvy_stamp_destroy(&step->ended[i]);
  }
  if (whole) cvy_pace_step(team->pace, step->shares, busy_s);
}

static void try_later(cvy_team *team) {
  team->try_steps = TRY_STEPS;
  team->next_try = team->next_step + TRY_STEPS;
}

/* Tries devices without a share, again after TRY_STEPS steps and then more and more seldom: it holds the step up. */
static cvy_status try_idle(cvy_team *team) {
  cvy_status status = CVY_OK;
  if (team->next_step < team->next_try) return CVY_OK;
  for (int i = 0; i < team->n; i++) {
    pthread_mutex_lock(&team->lock);  /* devices may be lost while others are tried */
    const bool idle = !team->replicas[i].lost && team->full_shares[i] == 0;
    pthread_mutex_unlock(&team->lock);
    if (idle && team->pace->devices[i].cap != 0) CVY_TRY(cvy_calibrate_idle(team, team->pace, i));
  }
  team->next_try = team->next_step + team->try_steps;
  if (team->try_steps < MOST_TRY_STEPS) team->try_steps *= 2;
fail:
  return status;
}

/* Those that are left may have to do in several passes what they have no memory for at once, as the team was planned anew when
 * it lost the others. Batch statistics of all need each share in one pass. */
static cvy_status note_lost(cvy_team *team) {
  cvy_status status = CVY_OK;
  bool news = false, lifted = false;
  pthread_mutex_lock(&team->lock);
  for (int i = 0; i < team->n; i++) {
    if (!team->replicas[i].lost || team->pace->known[i].lost) continue;
    cvy_pace_lose(team->pace, i);
    news = true;
  }
  pthread_mutex_unlock(&team->lock);
  if (!news || team->params.bn == CVY_BN_SYNC) return CVY_OK;
  CVY_TRY(cvy_pace_lift_caps(team->pace, &lifted));
  if (lifted)
    cvy_log_info("the batch of %d fits on the devices that are left only in several passes: memory does not limit the shares",
                 team->params.batch);
fail:
  return status;
}

cvy_status cvy_team_balance_step(cvy_team *team, cvy_slot *slot) {
  cvy_status status = CVY_OK;
  int *shares = NULL;
  if (!team->pace) return CVY_OK;
  double *const busy_s = cvy_calloc((size_t)team->n, sizeof *busy_s);
  shares = cvy_calloc(2 * (size_t)team->n, sizeof *shares);
  CVY_REQUIRE(busy_s && shares, CVY_E_MEMORY, "out of host memory");
  learn(team, &slot->step, busy_s);
  CVY_TRY(note_lost(team));
  if (team->try_steps == 0) try_later(team);
  CVY_TRY(try_idle(team));
  CVY_TRY(note_lost(team));
  bool better;
  double before_s, after_s;
  int *const before = shares + team->n;
  cvy_team_copy_shares(team, before);
  CVY_TRY(cvy_pace_propose(team->pace, before, shares, &better, &before_s, &after_s));
  if (!better) goto fail;
  const uint64_t start = cvy_clock_ns();
  CVY_TRY(cvy_team_set_shares(team, shares, &better));
  cvy_pace_changed(team->pace, cvy_clock_seconds_since(start));
  try_later(team);
  if (better) CVY_TRY(tell(team, before, after_s, before_s, false));
fail:
  cvy_free(busy_s);
  cvy_free(shares);
  return status;
}
