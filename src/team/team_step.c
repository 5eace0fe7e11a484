/* SPDX-License-Identifier: MIT
 * The caller's functions for training: steps, and their results. */
#include <math.h>
#include <string.h>

#include "src/team/publish.h"
#include "src/team/rebalance.h"
#include "src/team/team_step.h"

static cvy_status check_step(const cvy_team *team, int n, float lr) {
  cvy_status status = CVY_OK;
  const int most = cvy_team_most_samples(team);
  CVY_REQUIRE(!team->params.inference, CVY_E_ARGUMENT, "the team was created for inference: it cannot train");
  CVY_REQUIRE(cvy_ledger_is_initialised(team->ledger), CVY_E_ARGUMENT,
              "there are no weights to train: call cvy_team_init or cvy_team_load first");
  CVY_REQUIRE(n >= 1 && n <= team->params.batch, CVY_E_ARGUMENT,
              "a step of %d samples; expected 1 to %d, the team's batch", n, team->params.batch);
  CVY_REQUIRE(n <= most, CVY_E_ARGUMENT,
              "a step of %d samples; expected 1 to %d, the team's training samples (samples)", n, most);
  CVY_REQUIRE(isfinite(lr), CVY_E_ARGUMENT, "learning rate %g; expected a finite number", (double)lr);
fail:
  return status;
}

static cvy_status check_samples(const cvy_team *team, const int32_t *samples, int n) {
  cvy_status status = CVY_OK;
  for (int i = 0; i < n; i++)
    CVY_REQUIRE(samples[i] >= 0 && samples[i] < team->data->train.n, CVY_E_ARGUMENT,
                "sample %d: data set %s has training samples 0 to %d", samples[i], team->data->name,
                team->data->train.n - 1);
fail:
  return status;
}

cvy_status cvy_team_next_step(cvy_team *team, int n, float lr, size_t image_floats, cvy_step **out) {
  cvy_status status = CVY_OK;
  const cvy_team_params *const p = &team->params;
  CVY_TRY(check_step(team, n, lr));
  CVY_TRY(cvy_roster_settle(team->roster));
  if (cvy_ring_is_full(team->ring, image_floats)) CVY_TRY(cvy_team_sync(team));
  const uint64_t begun_ns = cvy_ring_begins(team->ring);
  cvy_step *const step = *out = cvy_ring_next(team->ring);
  if (team->rebalance) CVY_TRY(cvy_rebalance_step(team->rebalance, step));
  step->n = n;
  step->begun_ns = begun_ns;
  step->group_size = p->bn == CVY_BN_GHOST ? p->ghost : 0;
  step->update = cvy_team_update(p, lr, cvy_ring_next_number(team->ring) + 1);
fail:
  return status;
}

cvy_status cvy_team_step(cvy_team *team, const int32_t *samples, int n, float lr) {
  cvy_status status = CVY_OK;
  cvy_step *step;
  const uint64_t since = cvy_timeline_now(team->timeline);
  CVY_REQUIRE(team->data, CVY_E_ARGUMENT, "there is no data to train on: call cvy_team_attach first");
  CVY_TRY(check_samples(team, samples, n));
  CVY_TRY(cvy_team_next_step(team, n, lr, 0, &step));
  step->given = false;
  memcpy(step->samples, samples, (size_t)n * sizeof *samples);
  status = cvy_ring_begin(team->ring);
  cvy_timeline_work(team->timeline, CVY_WORK_STEP, -1, -1, cvy_ring_next_number(team->ring) - 1, since);
fail:
  return status;
}

void cvy_team_set_epoch(cvy_team *team, int epoch) { cvy_ring_set_epoch(team->ring, epoch); }

cvy_status cvy_team_take(cvy_team *team, bool wait, cvy_step_result *out, bool *got) {
  for (;;) {
    const long finished = cvy_ring_finished(team->ring); /* read before the results, so that none is missed */
    bool more = false;
    *got = cvy_results_take(team->results, out);
    if (*got) return CVY_OK;
    const cvy_status status = cvy_ring_await_more(team->ring, finished, wait, &more);
    if (!more) return status;
  }
}
