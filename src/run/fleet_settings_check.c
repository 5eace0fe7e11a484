/* SPDX-License-Identifier: MIT */
#include "src/run/fleet_settings_check.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "convoy/convoy.h"
#include "src/base/json.h"
#include "src/base/mem.h"
#include "src/base/text.h"
#include "src/run/checkpoint.h"
#include "src/fleet/node_messages.h"
#include "src/team/inside.h"

/* Digits that tell floats apart and end before their rounding shows: 0.1, not 0.100000001. */
enum { SHOWN = JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(7) };

static json_t *hash_json(uint64_t hash) { return json_sprintf("xxh64 %016" PRIx64, hash); }

static uint64_t hash_of(const float *values, size_t n, uint64_t seed) {
  return values ? XXH64(values, n * sizeof *values, seed) : seed;
}

/* The initial state of the run. */
static uint64_t hash_state(const cvy_team *team) {
  const cvy_layout *const l = team->layout;
  const cvy_ledger *const ledger = team->ledger;
  uint64_t hash = hash_of(cvy_ledger_w(ledger), l->n_floats, 0);
  for (int m = 0; m < CVY_MOMENTS; m++) hash = hash_of(cvy_ledger_moment(ledger, m), l->n_floats, hash);
  hash = hash_of(cvy_ledger_previous(ledger), l->n_floats, hash);
  return hash_of(cvy_ledger_running(ledger), l->n_running_floats, hash);
}

/* How each parameter is updated. */
static json_t *parameters_json(const cvy_layout *l) {
  json_t *const all = json_object();
  for (int i = 0; i < l->n_params; i++) {
    const cvy_param *const p = &l->params[i];
    json_object_set_new(all, p->name,
                        p->fixed    ? json_string("constant")
                        : p->frozen ? json_string("frozen")
                                    : json_sprintf("%zu values, lr-mult %.9g%s", p->elems, (double)p->lr_factor,
                                                   p->decays ? "" : ", no decay"));
  }
  return all;
}

/* With mean and deviation as they are with the data set attached. */
static void add_input(json_t *all, const cvy_input_params *p) {
  const cvy_augment *const a = &p->augment;
  json_t *const moments = json_array();
  for (int c = 0; c < p->n_channels; c++) {
    json_array_append_new(moments, json_real((double)p->mean[c]));
    json_array_append_new(moments, json_real((double)p->deviation[c]));
  }
  json_object_set_new(all, "normalize", moments);
  json_object_set_new(all, "augment",
                      json_pack("{sb si s[ff] s[ffff] si sI}", "flip", a->flip, "crop", a->crop, "resized_crop",
                                (double)a->resized_crop[0], (double)a->resized_crop[1], "jitter", (double)a->jitter[0],
                                (double)a->jitter[1], (double)a->jitter[2], (double)a->jitter[3], "cutout", a->cutout,
                                "seed", (json_int_t)p->seed));
}

static json_t *optimizer_json(const cvy_team_params *p) {
  static const char *const names[] = {"sgd", "adam", "adamw"};
  return json_pack("{ss sf sf sf sf sb}", "kind", names[p->optimizer], "beta_1", (double)p->betas[0], "beta_2",
                   (double)p->betas[1], "eps", (double)p->eps, "momentum", (double)p->momentum, "nesterov",
                   p->nesterov);
}

static json_t *bn_json(const cvy_team_params *p) {
  return p->bn == CVY_BN_GHOST ? json_sprintf("ghost:%d", p->ghost)
                               : json_string(p->bn == CVY_BN_SYNC ? "sync" : "device");
}

/* Each node may have the same images in another folder. */
static void add_data(json_t *all, const cvy_data *data) {
  json_object_set_new(all, "images", json_pack("[iii]", data->train.n, data->val.n, data->test.n));
  json_object_set_new(all, "training_images_and_labels", hash_json(data->content));
  json_object_set_new(all, "other_images_and_labels", hash_json(data->content_to_evaluate));
}

/* The network's and its classes' names, where the caller has given them (cvy_team_describe). */
static void add_names(json_t *all, const char *model_info) {
  static const char *const names[] = {"model", "class_names"};
  json_t *const given = model_info ? json_loads(model_info, 0, NULL) : NULL;
  for (size_t i = 0; given && i < sizeof names / sizeof *names; i++) {
    json_t *const value = json_object_get(given, names[i]);
    if (value) json_object_set(all, names[i], value);
  }
  json_decref(given);
}

static void add_team(json_t *all, const cvy_team *team) {
  const cvy_team_params *const p = &team->params;
  json_object_set_new(all, "version", json_string(cvy_version()));
  add_names(all, cvy_ledger_model_info(team->ledger));
  json_object_set_new(all, "parameters", parameters_json(team->layout));
  json_object_set_new(all, "buckets", json_integer(team->layout->n_buckets));
  add_data(all, team->data);
  json_object_set_new(all, "first_weights", hash_json(hash_state(team)));
  json_object_set_new(all, "batch", json_integer(p->batch));
  add_input(all, cvy_team_input(team));
  json_object_set_new(all, "bn", bn_json(p));
  json_object_set_new(all, "optimizer", optimizer_json(p));
  json_object_set_new(all, "weight_decay", json_real((double)p->weight_decay));
  json_object_set_new(all, "clip_norm", json_real((double)p->clip_norm));
  json_object_set_new(all, "log_grad_norm", json_boolean(p->grad_norm));
  json_object_set_new(all, "label_smoothing", json_real((double)p->label_smoothing));
  json_object_set_new(all, "run_ahead", json_integer(p->run_ahead));
  json_object_set_new(all, "staleness", json_integer(p->staleness));
  json_object_set_new(all, "recompute", json_boolean(p->recompute));
  json_object_set_new(all, "exchange", json_string(p->exchange == CVY_EXCHANGE_BF16 ? "bf16" : "fp32"));
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

/* An entry of both, or a part of one. */
typedef struct difference {
  const json_t *a, *b;
  const char *part; /* NULL: the whole entry */
  int others;       /* parts that differ, too */
} difference;

/* Of two objects the first part that differs: one of a hundred parameters is enough to see why. */
static difference narrow(const json_t *a, const json_t *b) {
  difference d = {.a = a, .b = b};
  const char *key;
  json_t *value;
  if (!json_is_object(a) || !json_is_object(b)) return d;
  json_object_foreach((json_t *)a, key, value) {
    const json_t *const its = json_object_get(b, key);
    if (json_equal(value, its)) continue;
    if (d.part) d.others++;
    else d = (difference){.a = value, .b = its, .part = key};
  }
  json_object_foreach((json_t *)b, key, value) {
    if (json_object_get(a, key)) continue;
    if (d.part) d.others++;
    else d = (difference){.a = NULL, .b = value, .part = key};
  }
  return d;
}

/* Another node's value, as plain text. */
static void show(const json_t *value, cvy_text *out) {
  char *const text = value ? json_dumps(value, SHOWN) : NULL;
  cvy_text_add_plain(out, text ? text : "nothing", "");
  free(text);
}

/* Logs each entry of `head` that `other` lacks or has with another value. */
static int compare(const cvy_fleet *fleet, int first, const json_t *head, int r, const json_t *other) {
  int n = 0;
  const char *key;
  json_t *value;
  json_object_foreach((json_t *)head, key, value) {
    const json_t *const its = json_object_get(other, key);
    char more[48] = "";
    if (json_equal(value, its)) continue;
    const difference d = narrow(value, its);
    cvy_text a = {0}, b = {0}, part = {0};
    show(d.a, &a);
    show(d.b, &b);
    if (d.part) cvy_text_add_plain(&part, d.part, "");
    if (d.others) snprintf(more, sizeof more, " (and %d more of %s)", d.others, key);
    cvy_log_error("%s%s%s: %s on node %d (%s), %s on node %d (%s)%s; expected the same on all nodes", key,
                  d.part ? " " : "", cvy_text_get(&part), cvy_text_get(&a), first, cvy_fleet_name(fleet, first),
                  cvy_text_get(&b), r, cvy_fleet_name(fleet, r), more);
    cvy_text_clear(&a);
    cvy_text_clear(&b);
    cvy_text_clear(&part);
    n++;
  }
  return n;
}

cvy_status cvy_fleet_settings_compare(cvy_fleet *fleet, const json_t *all) {
  cvy_status status = CVY_OK;
  char *own = NULL, **texts = NULL;
  json_t *head = NULL;
  uint64_t others = 0;
  int first = 0, differences = 0;
  own = json_dumps(all, JSON_COMPACT | JSON_REAL_PRECISION(15));
  CVY_REQUIRE(own, CVY_E_MEMORY, "out of host memory");
  CVY_TRY(cvy_fleet_gather_texts(fleet, own, &texts));
  while (!cvy_fleet_has(fleet, first)) first++;
  CVY_TRY(cvy_fleet_read_json(fleet, first, texts[first], &head));
  for (int r = first + 1; r < cvy_fleet_size(fleet); r++) {
    json_t *other = NULL;
    if (!cvy_fleet_has(fleet, r)) continue;
    CVY_TRY(cvy_fleet_read_json(fleet, r, texts[r], &other));
    const int n = compare(fleet, first, head, r, other);
    differences += n;
    if (n > 0) others |= cvy_view_bit(r);
    json_decref(other);
  }
  if (differences > 0)
    cvy_log_error("the nodes' settings differ: %d difference%s", differences, differences == 1 ? "" : "s");
  CVY_TRY(cvy_fleet_refuse_others(fleet, others));
fail:
  cvy_fleet_free_texts(fleet, &texts);
  free(own);
  json_decref(head);
  return status;
}

cvy_status cvy_fleet_settings_any(cvy_fleet *fleet, bool *yes) {
  cvy_status status = CVY_OK;
  char **texts = NULL;
  if (!fleet) return CVY_OK;
  CVY_TRY(cvy_fleet_gather_texts(fleet, *yes ? "yes" : "no", &texts));
  for (int r = 0; r < cvy_fleet_size(fleet); r++) *yes |= cvy_fleet_has(fleet, r) && strcmp(texts[r], "yes") == 0;
fail:
  cvy_fleet_free_texts(fleet, &texts);
  return status;
}

cvy_status cvy_fleet_settings_check(cvy_team *team, const cvy_train_params *params, const cvy_run_position *position) {
  if (!team->params.fleet) return CVY_OK;
  json_t *const all = json_object();
  add_team(all, team);
  add_run(all, params, position);
  json_object_set_new(all, "shares", shares_json(team));
  const cvy_status status = cvy_fleet_settings_compare(team->params.fleet, all);
  json_decref(all);
  return status;
}
