/* SPDX-License-Identifier: MIT */
#include "src/run/muster.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "convoy/convoy.h"
#include "src/base/json.h"
#include "src/base/mem.h"
#include "src/run/checkpoint.h"
#include "src/team/inside.h"
#include "src/team/nodes.h"

/* Digits that tell floats apart and end before their rounding shows: 0.1, not 0.100000001. */
enum { SHOWN = JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(8) };

static json_t *hash_json(uint64_t hash) { return json_sprintf("%016" PRIx64, hash); }

static uint64_t hash_of(const float *values, size_t n, uint64_t seed) {
  return values ? XXH64(values, n * sizeof *values, seed) : seed;
}

/* The state that the run begins with. */
static uint64_t hash_state(const cvy_team *team) {
  const cvy_layout *const l = team->layout;
  const cvy_ledger *const ledger = team->ledger;
  uint64_t hash = hash_of(cvy_ledger_w(ledger), l->n_floats, 0);
  for (int m = 0; m < CVY_MOMENTS; m++) hash = hash_of(cvy_ledger_moment(ledger, m), l->n_floats, hash);
  hash = hash_of(cvy_ledger_previous(ledger), l->n_floats, hash);
  return hash_of(cvy_ledger_running(ledger), l->n_running_floats, hash);
}

/* Of all parameters: whether they are trained, and how they are updated. */
static uint64_t hash_layout(const cvy_layout *l) {
  uint64_t hash = l->n_frozen_floats;
  for (int i = 0; i < l->n_params; i++) {
    const cvy_param *const p = &l->params[i];
    const float rule[] = {p->lr_factor, p->decays, p->frozen};
    hash = hash_of(rule, 3, hash);
  }
  return hash;
}

/* With mean and deviation as they are with the data set attached. */
static json_t *input_json(const cvy_input_params *p) {
  const cvy_augment *const a = &p->augment;
  json_t *const moments = json_array();
  for (int c = 0; c < p->n_channels; c++) {
    json_array_append_new(moments, json_real((double)p->mean[c]));
    json_array_append_new(moments, json_real((double)p->deviation[c]));
  }
  return json_pack("{so sb si s[ff] s[ffff] si sI}", "normalize", moments, "flip", a->flip, "crop", a->crop,
                   "resized_crop", (double)a->resized_crop[0], (double)a->resized_crop[1], "jitter",
                   (double)a->jitter[0], (double)a->jitter[1], (double)a->jitter[2], (double)a->jitter[3], "cutout",
                   a->cutout, "seed", (json_int_t)p->seed);
}

static void add_team(json_t *all, const cvy_team *team) {
  const cvy_team_params *const p = &team->params;
  json_object_set_new(all, "version", json_string(cvy_version()));
  json_object_set_new(all, "parameters", json_integer((json_int_t)team->layout->n_floats));
  json_object_set_new(all, "buckets", json_integer(team->layout->n_buckets));
  json_object_set_new(all, "data", json_string(team->data->name));
  json_object_set_new(all, "data_content", hash_json(team->data->content));
  json_object_set_new(all, "state", hash_json(hash_state(team)));
  json_object_set_new(all, "batch", json_integer(p->batch));
  json_object_set_new(all, "input", input_json(cvy_team_input(team)));
  json_object_set_new(all, "bn", json_integer(p->bn));
  json_object_set_new(all, "ghost", json_integer(p->ghost));
  json_object_set_new(all, "layout", hash_json(hash_layout(team->layout)));
  json_object_set_new(all, "momentum", json_real((double)p->momentum));
  json_object_set_new(all, "weight_decay", json_real((double)p->weight_decay));
  json_object_set_new(all, "nesterov", json_boolean(p->nesterov));
  json_object_set_new(all, "clip_norm", json_real((double)p->clip_norm));
  json_object_set_new(all, "label_smoothing", json_real((double)p->label_smoothing));
  json_object_set_new(
      all, "optimizer",
      json_sprintf("%d %.9g %.9g %.9g", (int)p->optimizer, (double)p->betas[0], (double)p->betas[1], (double)p->eps));
  json_object_set_new(all, "run_ahead", json_integer(p->run_ahead));
  json_object_set_new(all, "staleness", json_integer(p->staleness));
  json_object_set_new(all, "exchange", json_integer(p->exchange));
  json_object_set_new(all, "allow_nan", json_boolean(p->allow_nan));
  json_object_set_new(all, "on_device_loss_stop", json_boolean(p->fault_stops));
}

static void add_run(json_t *all, const cvy_train_params *p, const cvy_run_position *at) {
  json_object_set_new(all, "epochs", json_integer(p->epochs));
  json_object_set_new(all, "lr", json_real((double)p->lr));
  json_object_set_new(
      all, "lr_schedule",
      json_sprintf("%d %ld %d %g %ld %d", (int)p->schedule.kind, p->schedule.every, p->schedule.every_epochs,
                   (double)p->schedule.gamma, p->schedule.warmup, p->schedule.warmup_epochs));
  json_object_set_new(all, "seed", json_integer((json_int_t)p->seed));
  json_object_set_new(all, "no_shuffle", json_boolean(p->no_shuffle));
  json_object_set_new(all, "drop_last", json_boolean(p->drop_last));
  json_object_set_new(all, "no_eval", json_boolean(p->no_eval));
  json_object_set_new(all, "max_steps", json_integer(p->max_steps));
  json_object_set_new(all, "save_best", json_boolean(p->save_best != NULL));
  json_object_set_new(all, "precise_bn", json_integer(p->precise_bn));
  json_object_set_new(all, "patience", json_integer(p->patience));
  json_object_set_new(all, "verify_every", json_integer(p->verify_every));
  json_object_set_new(all, "checkpoint", json_boolean(p->checkpoint_dir != NULL));
  json_object_set_new(all, "checkpoint_every", json_integer(p->checkpoint_every));
  json_object_set_new(all, "checkpoint_epochs", json_boolean(p->checkpoint_epochs));
  json_object_set_new(all, "step", json_integer(at->step));
  json_object_set_new(all, "epoch", json_integer(at->epoch));
}

/* The shares that every node has computed for all devices. */
static json_t *shares_json(const cvy_team *team) {
  json_t *const list = json_array();
  const int n = cvy_shares_all(team->shares);
  int *const shares = cvy_calloc((size_t)n, sizeof *shares);
  if (shares) cvy_shares_full(team->shares, shares);
  for (int i = 0; shares && i < n; i++) json_array_append_new(list, json_integer(shares[i]));
  cvy_free(shares);
  return list;
}

/* Logs each entry of `head` that `other` has not, or has otherwise. */
static int compare(const cvy_fleet *fleet, int first, const json_t *head, int r, const json_t *other) {
  int n = 0;
  const char *key;
  json_t *value;
  json_object_foreach((json_t *)head, key, value) {
    const json_t *const its = json_object_get(other, key);
    if (json_equal(value, its)) continue;
    char *const a = json_dumps(value, SHOWN);
    char *const b = its ? json_dumps(its, SHOWN) : NULL;
    cvy_log_error("%s: %s on node %d (%s), %s on node %d (%s); expected the same on all nodes", key, a ? a : "?", first,
                  cvy_fleet_name(fleet, first), b ? b : "nothing", r, cvy_fleet_name(fleet, r));
    free(a);
    free(b);
    n++;
  }
  return n;
}

cvy_status cvy_muster_compare(cvy_fleet *fleet, const json_t *all) {
  cvy_status status = CVY_OK;
  char *own = NULL, **texts = NULL;
  json_t *head = NULL;
  int first = 0, differences = 0;
  own = json_dumps(all, JSON_COMPACT | JSON_SORT_KEYS | JSON_REAL_PRECISION(15));
  CVY_REQUIRE(own, CVY_E_MEMORY, "out of host memory");
  CVY_TRY(cvy_fleet_gather_texts(fleet, own, &texts));
  while (!cvy_fleet_has(fleet, first)) first++;
  CVY_TRY(cvy_json_read(texts[first], 0, &head));
  for (int r = first + 1; r < cvy_fleet_size(fleet); r++) {
    json_t *other = NULL;
    if (!cvy_fleet_has(fleet, r)) continue;
    CVY_TRY(cvy_json_read(texts[r], 0, &other));
    differences += compare(fleet, first, head, r, other);
    json_decref(other);
  }
  CVY_REQUIRE(differences == 0, CVY_E_MISMATCH,
              "the nodes would not train the same network in the same way: %d difference%s", differences,
              differences == 1 ? "" : "s");
fail:
  cvy_fleet_free_texts(fleet, &texts);
  free(own);
  json_decref(head);
  return status;
}

cvy_status cvy_muster_any(cvy_fleet *fleet, bool *yes) {
  cvy_status status = CVY_OK;
  char **texts = NULL;
  if (!fleet) return CVY_OK;
  CVY_TRY(cvy_fleet_gather_texts(fleet, *yes ? "yes" : "no", &texts));
  for (int r = 0; r < cvy_fleet_size(fleet); r++) *yes |= cvy_fleet_has(fleet, r) && strcmp(texts[r], "yes") == 0;
fail:
  cvy_fleet_free_texts(fleet, &texts);
  return status;
}

cvy_status cvy_muster(cvy_team *team, const cvy_train_params *params, const cvy_run_position *position) {
  if (!team->params.fleet) return CVY_OK;
  json_t *const all = json_object();
  add_team(all, team);
  add_run(all, params, position);
  json_object_set_new(all, "shares", shares_json(team));
  const cvy_status status = cvy_muster_compare(team->params.fleet, all);
  json_decref(all);
  return status;
}
