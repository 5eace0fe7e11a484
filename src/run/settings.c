/* SPDX-License-Identifier: MIT
 * Comparing the settings of a checkpoint with those of the run that resumes it. */
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/json.h"
#include "src/base/mem.h"
#include "src/base/text.h"
#include "src/run/checkpoint.h"

/* Settings that do not change results. All others (model, data, classes, conv_algo, math, batch, split, bn, lr,
 * momentum, nesterov, weight_decay, init, init_from, seed, no_shuffle, staleness, …; unknown ones, too) must be the
 * same in a
 * resumed run. The checkpoint itself holds the choices of tune, the devices and the shares (resume.h). */
#define NO_NUMBER                                                                                                  \
  "epochs", "max_steps", "no_eval", "on_device_loss", "device_timeout", "allow_nan", "verify_every", "run_ahead",  \
      "tune", "bucket_mib", "data_dir", "save", "checkpoint", "checkpoint_dir", "checkpoint_every",                \
      "checkpoint_epochs", "keep", "resume", "log", "plot", "trace", "json", "quiet", "kept_step", "kept_median",  \
      "options", "save_best", "patience", "precise_bn", "report", "epoch_correct", "best_epochs", "judged_epochs", \
      "best_acc"
const char *const cvy_settings_may_differ[] = {NO_NUMBER, "devices", "shares", NULL};
const char *const cvy_settings_may_differ_any_split[] = {NO_NUMBER, "devices", "shares", "split", "math_used", NULL};

/* Settings that older versions did not write, with the values that they always had. */
static const struct {
  const char *key, *value;
} came_later[] = {{"math", "fp32"},     {"lr_schedule", "const"}, {"warmup", "0"},       {"size", "files"},
                  {"gray", "no"},       {"val_split", "0"},       {"normalize", "none"}, {"augment", "none"},
                  {"optimizer", "sgd"}, {"png16", "clip"},        {"exif", "ignore"}};

static const char data_content[] = "data_content", kept_step[] = "kept_step", kept_median[] = "kept_median",
                  epoch_correct[] = "epoch_correct", best_epochs[] = "best_epochs", judged_epochs[] = "judged_epochs",
                  best_acc[] = "best_acc";

/* Advice for other images or labels: a new run. */
static const char other_data[] =
    ". To continue with other data, start a run with these weights: --init-from FILE, and with other classes "
    "--init-skip GLOBS for the last layer";

/* '-' and '_' are the same. */
static bool same_key(const char *a, const char *b) {
  for (; *a && *b; a++, b++)
    if ((*a == '-' ? '_' : *a) != (*b == '-' ? '_' : *b)) return false;
  return *a == *b;
}

static const json_t *find(const json_t *object, const char *key) {
  const char *other;
  json_t *value;
  json_object_foreach((json_t *)object, other, value) {
    if (same_key(key, other)) return json_is_null(value) ? NULL : value;
  }
  return NULL;
}

static bool listed(const char *const *list, const char *key) {
  for (; *list; list++)
    if (same_key(*list, key)) return true;
  return false;
}

/* The same images and labels, by their hash, lie in another place. */
static bool moved_data(const char *key, const json_t *old_settings, const json_t *new_settings) {
  const json_t *const was = find(old_settings, data_content), *const is = find(new_settings, data_content);
  return same_key(key, "data") && was && is && json_equal(was, is);
}

/* A team without some devices may go on with other shares than by speed: resume.h compares the shares. */
static bool followed_speed(const char *key, const json_t *old_value) {
  return same_key(key, "split") && json_is_string(old_value) && strcmp(json_string_value(old_value), "auto") == 0;
}

/* Appends "lr: 0.1 in the checkpoint, 0.2 now". */
static void add_difference(cvy_text *text, const char *key, const json_t *old_value, const json_t *new_value) {
  char *const was =
      old_value ? json_dumps(old_value, JSON_COMPACT | JSON_ENCODE_ANY | JSON_SORT_KEYS | JSON_REAL_PRECISION(15))
                : NULL;
  char *const is =
      new_value ? json_dumps(new_value, JSON_COMPACT | JSON_ENCODE_ANY | JSON_SORT_KEYS | JSON_REAL_PRECISION(15))
                : NULL;
  cvy_text_add(text, "%s%s: %s in the checkpoint, %s now", text->size ? "; " : "", key, was ? was : "not given",
               is ? is : "not given");
  free(was);
  free(is);
}

cvy_status cvy_settings_compare(const char *old_json, const char *new_json, const char *const *may_differ) {
  cvy_status status = CVY_OK;
  cvy_text differences = {0};
  bool data_changed = false;
  json_t *old_settings = NULL, *new_settings = NULL;
  CVY_TRY(cvy_json_read(old_json, JSON_REJECT_DUPLICATES, &old_settings));
  CVY_REQUIRE(json_is_object(old_settings), CVY_E_FORMAT,
              "the settings in the checkpoint are not a JSON object: %.200s", old_json);
  CVY_TRY(cvy_json_read(new_json, JSON_REJECT_DUPLICATES, &new_settings));
  CVY_REQUIRE(json_is_object(new_settings), CVY_E_FORMAT, "the settings of this run are not a JSON object: %.200s",
              new_json);
  if (!may_differ) may_differ = cvy_settings_may_differ;
  for (size_t i = 0; i < sizeof came_later / sizeof *came_later; i++)
    if (!find(old_settings, came_later[i].key) && find(new_settings, came_later[i].key))
      CVY_REQUIRE(json_object_set_new(old_settings, came_later[i].key, json_string(came_later[i].value)) == 0,
                  CVY_E_MEMORY, "no memory to compare settings");

  if (!find(old_settings, data_content))
    (void)json_object_del(new_settings, data_content); /* older versions did not hash the data */

  const char *key;
  json_t *value;
  json_object_foreach(old_settings, key, value) {
    const json_t *const now = find(new_settings, key);
    if (json_is_null(value) ? !now : now && json_equal(value, now)) continue;
    if (now && (followed_speed(key, value) || moved_data(key, old_settings, new_settings))) continue;
    if (listed(may_differ, key)) continue;
    add_difference(&differences, key, json_is_null(value) ? NULL : value, now);
    data_changed |= same_key(key, "data") || same_key(key, data_content);
  }
  json_object_foreach(new_settings, key, value) {
    if (json_is_null(value) || find(old_settings, key) || listed(may_differ, key)) continue;
    bool null_before = false; /* seen in the loop above */
    const char *other;
    json_t *unused;
    json_object_foreach(old_settings, other, unused) null_before |= same_key(key, other);
    if (!null_before) add_difference(&differences, key, NULL, value);
  }
  CVY_REQUIRE(!differences.failed, CVY_E_MEMORY, "no memory to compare settings");
  CVY_REQUIRE(differences.size == 0, CVY_E_MISMATCH, "settings have changed, the run cannot be resumed (%s)%s",
              cvy_text_get(&differences), data_changed ? other_data : "");
fail:
  cvy_text_clear(&differences);
  json_decref(old_settings);
  json_decref(new_settings);
  return status;
}

static json_t *bits_json(double value) {
  uint64_t bits;
  memcpy(&bits, &value, sizeof bits);
  return json_sprintf("%016" PRIx64, bits);
}

/* True if the object took everything over. */
static bool add_position(json_t *all, const cvy_run_position *at) {
  bool set = true;
  if (at->kept_step > 0) {
    set = json_object_set_new(all, kept_step, json_integer(at->kept_step)) == 0;
    if (isfinite(at->kept_median)) set = json_object_set_new(all, kept_median, json_real(at->kept_median)) == 0 && set;
  }
  if (at->epoch_images > 0 && at->epoch_correct >= 0)
    set = json_object_set_new(all, epoch_correct, json_integer(at->epoch_correct)) == 0 && set;
  if (at->judged_epochs > 0) {
    set = json_object_set_new(all, best_epochs, json_integer(at->best_epochs)) == 0 && set;
    set = json_object_set_new(all, judged_epochs, json_integer(at->judged_epochs)) == 0 && set;
    set = json_object_set_new(all, best_acc, bits_json(at->best_acc)) == 0 && set;
  }
  return set;
}

cvy_status cvy_settings_extend(const char *settings, uint64_t content, const cvy_run_position *at, char **out) {
  cvy_status status = CVY_OK;
  json_t *all = NULL;
  char *dumped = NULL;
  CVY_TRY(cvy_json_read(settings ? settings : "{}", JSON_REJECT_DUPLICATES, &all));
  if (json_is_object(all)) {
    bool set = json_object_set_new(all, data_content, json_sprintf("%016" PRIx64, content)) == 0;
    if (at) set = add_position(all, at) && set;
    if (set) dumped = json_dumps(all, JSON_COMPACT | JSON_SORT_KEYS | JSON_REAL_PRECISION(15));
    CVY_REQUIRE(dumped, CVY_E_MEMORY, "no memory for the settings of the run");
  }
  *out = cvy_strdup(dumped ? dumped : settings);
  CVY_REQUIRE(*out, CVY_E_MEMORY, "no memory for the settings of the run");
fail:
  free(dumped);
  json_decref(all);
  return status;
}

/* A number of 0 to INT_MAX; else 0. */
static int count_of(const json_t *all, const char *key) {
  const json_int_t value = json_integer_value(json_object_get(all, key));
  return value > 0 && value <= INT_MAX ? (int)value : 0;
}

cvy_status cvy_settings_position(const char *settings, cvy_run_position *at) {
  cvy_status status = CVY_OK;
  json_t *all;
  uint64_t bits;
  CVY_TRY(cvy_json_read(settings, 0, &all));
  const long kept = (long)json_integer_value(json_object_get(all, kept_step));
  if (kept > 0) at->kept_median = json_number_value(json_object_get(all, kept_median));
  at->kept_step = kept > 0 ? kept : 0;
  const json_t *const correct = json_object_get(all, epoch_correct);
  const json_int_t n = json_integer_value(correct);
  at->epoch_correct = json_is_integer(correct) && n >= 0 && n <= at->epoch_images ? (long)n : at->epoch_images ? -1 : 0;
  const char *const acc = json_string_value(json_object_get(all, best_acc));
  at->best_epochs = at->judged_epochs = 0;
  at->best_acc = 0;
  if (acc && strlen(acc) == 16 && cvy_parse_uint(acc, 16, &bits)) {
    memcpy(&at->best_acc, &bits, sizeof bits);
    at->best_epochs = count_of(all, best_epochs);
    at->judged_epochs = count_of(all, judged_epochs);
  }
  json_decref(all);
fail:
  return status;
}
