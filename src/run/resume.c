/* SPDX-License-Identifier: MIT */
#include "src/run/resume.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/mem.h"
#include "src/base/text.h"
#include "src/team/noted_devices.h"
#include "src/team/opening.h"

const char *const *cvy_resume_may_differ(const cvy_team *team) {
  return cvy_team_any_split(team) ? cvy_settings_may_differ_any_split : cvy_settings_may_differ;
}

/* The same shares in the same order; devices without samples make no difference. */
static bool same_shares(const int *a, int n_a, const int *b, int n_b) {
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

cvy_status cvy_resume_check(const cvy_team *team, const cvy_checkpoint_data *c, bool *same) {
  cvy_status status = CVY_OK;
  cvy_text was = {0}, is = {0};
  const int n = cvy_shares_all(team->shares);
  int *const now = cvy_calloc((size_t)n, sizeof *now);
  int64_t batch = 0;
  CVY_REQUIRE(now, CVY_E_MEMORY, "out of host memory");
  cvy_shares_full(team->shares, now);
  for (int i = 0; i < c->n_shares; i++) batch += c->shares[i];
  CVY_REQUIRE(batch == team->params.batch, CVY_E_MISMATCH,
              "the checkpoint of step %ld has batches of %" PRId64 " samples, the run %d", c->at.step, batch,
              team->params.batch);
  CVY_TRY(cvy_noted_same(c->devices, cvy_opening_everyone(team->opening), same));
  *same = *same && c->n_shares == n && memcmp(c->shares, now, (size_t)n * sizeof *now) == 0;
  CVY_REQUIRE(*same || cvy_team_any_split(team) || same_shares(c->shares, c->n_shares, now, n), CVY_E_MISMATCH,
              "the checkpoint of step %ld was made with the shares %s of a batch, each with its own batch statistics "
              "(bn device); the shares %s would change training. Resume on a team with the checkpoint's shares, or "
              "train from the start with ghost groups or sync, which can resume on any team",
              c->at.step, add_shares(&was, c->shares, c->n_shares, ","), add_shares(&is, now, n, ","));
fail:
  cvy_free(now);
  cvy_text_clear(&was);
  cvy_text_clear(&is);
  return status;
}

void cvy_resume_tell(const cvy_team *team, const cvy_checkpoint_data *c) {
  cvy_text labels = {0}, was = {0}, is = {0}, anew = {0}, other = {0};
  json_t *const before = json_loads(c->devices, 0, NULL);
  const int n = cvy_shares_all(team->shares);
  int *const rows = cvy_calloc((size_t)n, sizeof *rows), *const now = cvy_calloc((size_t)n, sizeof *now);
  if (now) cvy_shares_full(team->shares, now);
  if (rows) (void)cvy_noted_rows(c->devices, cvy_opening_everyone(team->opening), rows);
  for (size_t i = 0; i < json_array_size(before); i++) {
    const char *const label = cvy_noted_label(json_array_get(before, i));
    cvy_text_add(&labels, "%s%s", i ? ", " : "", label ? label : "?");
  }
  for (int i = 0; i < n && rows; i++) {
    const json_t *const noted = rows[i] < 0 ? NULL : json_array_get(before, (size_t)rows[i]);
    const char *const label = cvy_noted_label(noted);
    const char *const driver = json_string_value(json_object_get(noted, "driver"));
    if (!label || strcmp(label, cvy_devices_label(cvy_opening_everyone(team->opening), i)) != 0 ||
        cvy_noted_same_make(noted, cvy_opening_everyone(team->opening), i))
      continue;
    cvy_text_add(&other, "%s%s has %d compute units and driver %s, had %d and %s", other.size ? "; " : "", label,
                 cvy_devices_units(cvy_opening_everyone(team->opening), i),
                 cvy_devices_driver(cvy_opening_everyone(team->opening), i),
                 (int)json_integer_value(json_object_get(noted, "units")), driver ? driver : "?");
  }
  if (other.size) cvy_log_warning("%s: results may differ in the last bits", cvy_text_get(&other));
  for (int i = 0; i < n && rows; i++)
    if (rows[i] < 0)
      cvy_text_add(&anew, "%s%s", anew.size ? ", " : "", cvy_devices_label(cvy_opening_everyone(team->opening), i));
  cvy_log_info(
      "the checkpoint was written by [%s] with shares %s; the run resumes with shares %s on another team: results are "
      "equal within rounding, not bit for bit; layers keep the algorithms of devices with the same name%s%s",
      cvy_text_get(&labels), add_shares(&was, c->shares, c->n_shares, "+"), add_shares(&is, now, now ? n : 0, "+"),
      anew.size ? ", and choose new ones on " : "", anew.size ? cvy_text_get(&anew) : "");
  cvy_text_clear(&labels);
  cvy_text_clear(&was);
  cvy_text_clear(&is);
  cvy_text_clear(&anew);
  cvy_text_clear(&other);
  cvy_free(rows);
  cvy_free(now);
  json_decref(before);
}
