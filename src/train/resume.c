/* SPDX-License-Identifier: MIT */
#include "src/train/resume.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/mem.h"
#include "src/base/text.h"

/* "0:0/1 NAME" → "NAME". */
static const char *name_of(const char *label) {
  const char *const space = strchr(label, ' ');
  return space ? space + 1 : label;
}

/* A device of a checkpoint: an object, or in older ones its label alone. */
static const char *label_of(const json_t *device) {
  return json_string_value(json_is_object(device) ? json_object_get(device, "label") : device);
}

cvy_status cvy_resume_devices(const cvy_devices *devices, char **text) {
  cvy_status status = CVY_OK;
  json_t *const list = json_array();
  char *dumped = NULL;
  *text = NULL;
  for (int i = 0; i < devices->n; i++)
    (void)json_array_append_new(list, json_pack("{sssiss}", "label", cvy_devices_label(devices, i), "units", cvy_devices_units(devices, i),
                                                "driver", cvy_devices_driver(devices, i)));
  if (json_array_size(list) == (size_t)devices->n) dumped = json_dumps(list, JSON_COMPACT);
  if (dumped) *text = cvy_strdup(dumped);
  CVY_REQUIRE(*text, CVY_E_MEMORY, "no memory to note the devices");
fail:
  free(dumped);
  json_decref(list);
  return status;
}

void cvy_resume_rows(const char *checkpoint_devices, const cvy_devices *devices, int *rows) {
  json_t *const list = json_loads(checkpoint_devices, 0, NULL);
  const int n = (int)json_array_size(list);
  for (int i = 0; i < devices->n; i++) {
    const char *const own = cvy_devices_label(devices, i);
    rows[i] = -1;
    for (int pass = 0; pass < 3 && rows[i] < 0; pass++) /* in its own place, anywhere, of the same name */
      for (int row = pass ? 0 : i; row < (pass ? n : i + 1) && rows[i] < 0; row++) {
        const char *const label = label_of(json_array_get(list, (size_t)row));
        if (label && strcmp(pass < 2 ? label : name_of(label), pass < 2 ? own : name_of(own)) == 0) rows[i] = row;
      }
  }
  json_decref(list);
}

/* The device has the compute units and the driver that the checkpoint notes, if it does. */
static bool same_make(const json_t *noted, const cvy_devices *devices, int i) {
  const json_t *const units = json_object_get(noted, "units");
  const char *const driver = json_string_value(json_object_get(noted, "driver"));
  return (!units || json_integer_value(units) == cvy_devices_units(devices, i)) &&
         (!driver || strcmp(driver, cvy_devices_driver(devices, i)) == 0);
}

bool cvy_resume_knows_make(const char *checkpoint_devices) {
  json_t *const list = json_loads(checkpoint_devices, 0, NULL);
  bool known = true;
  for (size_t i = 0; i < json_array_size(list); i++)
    known &= json_is_integer(json_object_get(json_array_get(list, i), "units")) &&
             json_is_string(json_object_get(json_array_get(list, i), "driver"));
  json_decref(list);
  return known;
}

static bool any_split_will_do(const cvy_team *team) {
  return team->params.bn != CVY_BN_DEVICE || team->layout->n_running == 0;
}

const char *const *cvy_resume_may_differ(const cvy_team *team) {
  return any_split_will_do(team) ? cvy_settings_may_differ_any_split : cvy_settings_may_differ;
}

bool cvy_resume_same_devices(const cvy_devices *devices, const char *checkpoint_devices) {
  json_t *const list = json_loads(checkpoint_devices, 0, NULL);
  bool same = (int)json_array_size(list) == devices->n;
  for (int i = 0; i < devices->n && same; i++) {
    const json_t *const noted = json_array_get(list, (size_t)i);
    const char *const label = label_of(noted);
    same = label && strcmp(label, cvy_devices_label(devices, i)) == 0 && same_make(noted, devices, i);
  }
  json_decref(list);
  return same;
}

cvy_status cvy_resume_is_free(const cvy_team *team, const char *dir, bool *free_split) {
  cvy_status status = CVY_OK;
  char *devices = NULL;
  *free_split = false;
  if (!any_split_will_do(team)) return CVY_OK;
  CVY_TRY(cvy_checkpoint_newest_devices(dir, &devices));
  *free_split = devices && !cvy_resume_same_devices(team->devices, devices);
fail:
  cvy_free(devices);
  return status;
}

/* The same parts in the same order; devices without samples make no difference. */
static bool same_parts(const int *a, int n_a, const int *b, int n_b) {
  int i = 0, j = 0;
  for (;;) {
    while (i < n_a && a[i] == 0) i++;
    while (j < n_b && b[j] == 0) j++;
    if (i == n_a || j == n_b) return i == n_a && j == n_b;
    if (a[i++] != b[j++]) return false;
  }
}

static const char *add_shares(cvy_text *text, const int *shares, int n, const char *between) {
  for (int i = 0; i < n; i++) cvy_text_add(text, "%s%d", i ? between : "", shares[i]);
  return cvy_text_get(text);
}

cvy_status cvy_resume_check(const cvy_team *team, const cvy_checkpoint *c, bool *same) {
  cvy_status status = CVY_OK;
  cvy_text was = {0}, is = {0};
  int64_t batch = 0;
  for (int i = 0; i < c->n_shares; i++) batch += c->shares[i];
  CVY_REQUIRE(batch == team->params.batch, CVY_E_MISMATCH,
              "the checkpoint of step %ld was made with batches of %" PRId64 " samples, not %d", c->step, batch,
              team->params.batch);
  *same = c->n_shares == team->n && memcmp(c->shares, team->full_shares, (size_t)team->n * sizeof *c->shares) == 0 &&
          cvy_resume_same_devices(team->devices, c->devices);
  CVY_REQUIRE(*same || any_split_will_do(team) || same_parts(c->shares, c->n_shares, team->full_shares, team->n),
              CVY_E_MISMATCH,
              "the checkpoint of step %ld was made with the shares %s of a batch, each with batch statistics of its own (bn "
              "device): with the shares %s training would be another; resume on a team with the checkpoint's shares, or "
              "train from the start with ghost groups or sync, which can go on anywhere",
              c->step, add_shares(&was, c->shares, c->n_shares, ","), add_shares(&is, team->full_shares, team->n, ","));
fail:
  cvy_text_clear(&was);
  cvy_text_clear(&is);
  return status;
}

void cvy_resume_tell(const cvy_team *team, const cvy_checkpoint *c) {
  cvy_text labels = {0}, was = {0}, is = {0}, anew = {0}, other = {0};
  json_t *const before = json_loads(c->devices, 0, NULL);
  int *const rows = cvy_calloc((size_t)team->n, sizeof *rows);
  if (rows) cvy_resume_rows(c->devices, team->devices, rows);
  for (size_t i = 0; i < json_array_size(before); i++) {
    const char *const label = label_of(json_array_get(before, i));
    cvy_text_add(&labels, "%s%s", i ? ", " : "", label ? label : "?");
  }
  for (int i = 0; i < team->n && rows; i++) {
    const json_t *const noted = rows[i] < 0 ? NULL : json_array_get(before, (size_t)rows[i]);
    const char *const label = label_of(noted), *const driver = json_string_value(json_object_get(noted, "driver"));
    if (!label || strcmp(label, cvy_devices_label(team->devices, i)) != 0 || same_make(noted, team->devices, i)) continue;
    cvy_text_add(&other, "%s%s has %d compute units and driver %s, had %d and %s", other.size ? "; " : "", label,
                 cvy_devices_units(team->devices, i), cvy_devices_driver(team->devices, i),
                 (int)json_integer_value(json_object_get(noted, "units")), driver ? driver : "?");
  }
  if (other.size) cvy_log_warning("%s: for the bits that come out it is another device", cvy_text_get(&other));
  for (int i = 0; i < team->n && rows; i++)
    if (rows[i] < 0) cvy_text_add(&anew, "%s%s", anew.size ? ", " : "", cvy_devices_label(team->devices, i));
  cvy_log_info("the checkpoint was made by [%s] with shares %s, the run goes on with shares %s on another team: the same "
               "training within rounding, not bit for bit; layers keep the algorithms noted for devices of the same name%s%s",
               cvy_text_get(&labels), add_shares(&was, c->shares, c->n_shares, "+"),
               add_shares(&is, team->full_shares, team->n, "+"), anew.size ? ", chosen anew on " : "",
               anew.size ? cvy_text_get(&anew) : "");
  cvy_text_clear(&labels);
  cvy_text_clear(&was);
  cvy_text_clear(&is);
  cvy_text_clear(&anew);
  cvy_text_clear(&other);
  cvy_free(rows);
  json_decref(before);
}
