/* SPDX-License-Identifier: MIT */
#include "src/run/train_params.h"

#include <math.h>

#include "convoy/convoy.h"
#include "src/run/checkpoint.h"
#include "src/team/inside.h"
#include "src/replica/replica_data.h"

bool cvy_train_wants(const cvy_train_params *p, const cvy_data *data, cvy_set set) {
  return !p->no_eval && cvy_set_samples(data, set)->n > 0;
}

bool cvy_train_judges(const cvy_train_params *p) { return p->save_best || p->patience > 0; }

cvy_set cvy_train_judge_set(const cvy_data *data) { return data->val.n > 0 ? CVY_SET_VAL : CVY_SET_TEST; }

cvy_status cvy_train_params_take(const cvy_team *team, const cvy_data *data, const cvy_train_params *given,
                                 cvy_train_params *out) {
  cvy_status status = CVY_OK;
  cvy_train_params p = given ? *given : (cvy_train_params){0};
  if (p.epochs == 0) p.epochs = 10;
  if (p.lr == 0) p.lr = 0.1f;
  if (p.keep == 0) p.keep = CVY_KEEP;
  CVY_REQUIRE(p.epochs > 0, CVY_E_ARGUMENT, "%d epochs; expected at least 1", p.epochs);
  CVY_REQUIRE(isfinite(p.lr) && p.lr > 0, CVY_E_ARGUMENT, "learning rate %g; expected a finite number above 0",
              (double)p.lr);
  CVY_REQUIRE(p.max_steps >= 0 && p.verify_every >= 0 && p.checkpoint_every >= 0 && p.patience >= 0 && p.keep >= 1,
              CVY_E_ARGUMENT,
              "max_steps, verify_every, checkpoint_every, patience, keep: expected 0 or more, keep 1 or more");
  CVY_REQUIRE(!cvy_train_judges(&p) || cvy_train_wants(&p, data, cvy_train_judge_set(data)), CVY_E_ARGUMENT,
              "%s: needs an accuracy to choose the best epoch (%s)", p.save_best ? "save_best" : "patience",
              p.no_eval ? "no_eval" : "neither a validation set nor a test set");
  CVY_REQUIRE(!cvy_train_judges(&p) || !team->params.no_sync, CVY_E_ARGUMENT,
              "a team without exchange (no_sync) does not train: there is no best epoch");
  bool bars;
  const char *const caveat = cvy_net_caveat(team->net, &bars);
  CVY_REQUIRE(!bars, CVY_E_UNSUPPORTED, "this network is not trained: %s", caveat);
  CVY_REQUIRE(p.precise_bn >= 0, CVY_E_ARGUMENT, "precise_bn of %d batches; expected 0 or more", p.precise_bn);
  CVY_REQUIRE(p.precise_bn == 0 || cvy_layout_moves(team->layout), CVY_E_ARGUMENT,
              "precise_bn: the network has no batch normalisation whose running values training changes%s",
              team->layout->n_running > 0 ? " (all are frozen)" : "");
  CVY_REQUIRE(p.precise_bn == 0 || !team->params.no_sync, CVY_E_ARGUMENT,
              "precise_bn: a team without exchange (no_sync) does not train");
  CVY_REQUIRE(!team->params.no_sync || !p.checkpoint_dir, CVY_E_ARGUMENT,
              "a team without exchange (no_sync) does not train: there is nothing to save in a checkpoint");
  CVY_REQUIRE(!p.resume || p.checkpoint_dir, CVY_E_ARGUMENT, "resuming needs a checkpoint folder");
  CVY_REQUIRE(data->train.n > 0, CVY_E_ARGUMENT, "data set %s has no training samples", data->name);
  CVY_REQUIRE(!p.drop_last || data->train.n >= team->params.batch, CVY_E_ARGUMENT,
              "drop_last: %d training samples do not fill a batch of %d; expected a batch of at most %d", data->train.n,
              team->params.batch, data->train.n);
  CVY_REQUIRE(team->data == data, CVY_E_ARGUMENT, "data set %s is not attached to the team: call cvy_team_attach first",
              data->name);
  *out = p;
fail:
  return status;
}
