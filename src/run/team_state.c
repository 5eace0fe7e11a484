/* SPDX-License-Identifier: MIT
 * A team's state and its checkpoints (convoy/train.h). */
#include <string.h>

#include "src/base/mem.h"
#include "src/nn/choices.h"
#include "src/nn/weights.h"
#include "src/run/checkpoint.h"
#include "src/run/resume.h"
#include "src/team/noted_devices.h"
#include "src/team/opening.h"
#include "src/team/publish.h"

/* ---- saving ---- */

cvy_status cvy_state_write(cvy_team *team, const char *dir, int keep, const char *settings, const cvy_run_position *at,
                           float **residuals) {
  cvy_status status = CVY_OK;
  char *devices = NULL, *extended = NULL;
  int *const shares = cvy_calloc((size_t)cvy_shares_all(team->shares), sizeof *shares);
  CVY_REQUIRE(shares, CVY_E_MEMORY, "out of host memory");
  cvy_shares_full(team->shares, shares);
  CVY_TRY(cvy_settings_extend(settings, team->data->content, at, &extended));
  CVY_TRY(cvy_noted_text(cvy_opening_everyone(team->opening), &devices));
  CVY_TRY(cvy_checkpoint_write(
      dir, team->layout,
      &(cvy_checkpoint_data){.at = *at,
                             .n_batches = cvy_ledger_batches_in(team->ledger),
                             .settings = extended,
                             .choices = cvy_team_conv_choices(team),
                             .model_info = cvy_ledger_model_info(team->ledger),
                             .devices = devices,
                             .n_shares = cvy_shares_all(team->shares),
                             .shares = shares,
                             .w = cvy_ledger_w(team->ledger),
                             .kind = team->params.optimizer,
                             .moments = {cvy_ledger_moment(team->ledger, 0), cvy_ledger_moment(team->ledger, 1)},
                             .w_previous = cvy_ledger_previous(team->ledger),
                             .residuals = residuals,
                             .running = cvy_ledger_running(team->ledger)},
      keep));
fail:
  cvy_free(extended);
  cvy_free(devices);
  cvy_free(shares);
  return status;
}

cvy_status cvy_checkpoint_save(cvy_team *team, const char *dir, int keep, const char *settings,
                               const cvy_run_position *position) {
  cvy_status status = CVY_OK;
  float **residuals = NULL;
  cvy_ledger *const l = team->ledger;
  CVY_REQUIRE(cvy_ledger_is_initialised(l) && team->data && !team->params.no_sync, CVY_E_ARGUMENT,
              "a checkpoint needs a team that trains, with weights (cvy_team_init or cvy_team_load) and data "
              "(cvy_team_attach)");
  status = cvy_team_sync(team);
  if (status == CVY_OK || !cvy_roster_ended_by_devices(team->roster)) {
    CVY_TRY(status);
    CVY_TRY(cvy_team_get_residuals(team, &residuals));
  }
  CVY_REQUIRE(position->step == cvy_ledger_steps(l), CVY_E_ARGUMENT,
              "a checkpoint of step %ld: the team's state is that after %ld steps", position->step,
              cvy_ledger_steps(l));
  cvy_weights_warn(team->layout, cvy_ledger_w(l), cvy_ledger_running(l), dir);
  status = cvy_state_write(team, dir, keep ? keep : CVY_KEEP, settings, position, residuals);
fail:
  cvy_team_free_residuals(team, &residuals);
  return status;
}

/* ---- loading ---- */

/* Names the vectors that the optimiser keeps. */
static const char *kept_by(cvy_optimizer_kind kind, const float *first) {
  return !first ? "no momentum" : kind == CVY_OPTIMIZER_SGD ? "a momentum" : "the moments of Adam";
}

/* Compares properties that change results and that a caller's settings may lack. */
static cvy_status check_kind(const cvy_team *team, const cvy_checkpoint_data *c) {
  cvy_status status = CVY_OK;
  const char *const run = kept_by(team->params.optimizer, cvy_ledger_moment(team->ledger, 0)), *const was = kept_by(
                                                                                                   c->kind,
                                                                                                   c->moments[0]);
  CVY_REQUIRE(strcmp(run, was) == 0 && !c->moments[1] == !cvy_ledger_moment(team->ledger, 1), CVY_E_MISMATCH,
              "the checkpoint of step %ld has %s, the run has %s", c->at.step, was, run);
  CVY_REQUIRE((team->params.staleness > 0) == (c->w_previous != NULL), CVY_E_MISMATCH,
              "the checkpoint of step %ld has staleness %d, the run has %d", c->at.step, c->w_previous != NULL,
              team->params.staleness);
  CVY_REQUIRE(!c->residuals || team->params.exchange == CVY_EXCHANGE_BF16, CVY_E_MISMATCH,
              "the checkpoint of step %ld has exchange bf16, the run has fp32", c->at.step);
fail:
  return status;
}

/* same: the checkpoint's own team. */
static void tell(const cvy_team *team, const cvy_checkpoint_data *c, bool same) {
  cvy_log_info("resumed from the checkpoint of step %ld (epoch %d, batch %ld)", c->at.step, c->at.epoch,
               c->at.epoch_batches);
  if (!same) cvy_resume_tell(team, c);
  else if (!cvy_noted_makes(c->devices))
    cvy_log_info(
        "the checkpoint of an older program lacks compute units and driver versions of its devices; if these differ, "
        "results are equal within rounding, not bit for bit");
  if (team->params.exchange == CVY_EXCHANGE_BF16 && (!same || !c->residuals))
    cvy_log_info("exchange bf16: the residual of the gradients %s and starts at zero",
                 c->residuals ? "belongs to another team" : "is not in the checkpoint");
}

cvy_status cvy_checkpoint_load(cvy_team *team, const cvy_checkpoint *checkpoint, const char *settings) {
  cvy_status status = CVY_OK;
  cvy_ledger *const l = team->ledger;
  const size_t bytes = team->layout->n_floats * sizeof(float);
  cvy_checkpoint_data c = {0};
  char *extended = NULL;
  bool same;
  CVY_REQUIRE(team->data, CVY_E_ARGUMENT, "there is no data to resume with: call cvy_team_attach first");
  if (settings) CVY_TRY(cvy_settings_extend(settings, team->data->content, NULL, &extended));
  CVY_TRY(cvy_checkpoint_read(checkpoint, team->layout, extended, cvy_resume_may_differ(team), &c));
  CVY_TRY(cvy_resume_check(team, &c, &same));
  CVY_TRY(check_kind(team, &c));
  if (same) CVY_TRY(cvy_choices_compare(c.choices, cvy_team_conv_choices(team)));
  CVY_TRY(cvy_team_wait(team));
  memcpy(cvy_ledger_w(l), c.w, bytes);
  if (c.w_previous) memcpy(cvy_ledger_previous(l), c.w_previous, bytes);
  for (int m = 0; m < cvy_ledger_moments(l); m++) memcpy(cvy_ledger_moment(l, m), c.moments[m], bytes);
  if (team->layout->n_running_floats)
    memcpy(cvy_ledger_running(l), c.running, team->layout->n_running_floats * sizeof(float));
  cvy_ledger_set_batches(l, c.n_batches);
  CVY_TRY(cvy_team_publish(team, c.at.step));
  CVY_TRY(cvy_team_put_residuals(team, same ? c.residuals : NULL));
  tell(team, &c, same);
fail:
  cvy_checkpoint_clear(&c);
  cvy_free(extended);
  return status;
}
