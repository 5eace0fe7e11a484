/* SPDX-License-Identifier: MIT
 * Evaluation of the whole team on its data set. */
#include <math.h>
#include <string.h>

#include "src/base/clock.h"
#include "src/base/mem.h"
#include "src/base/text.h"
#include "src/team/publish.h"
#include "src/team/not_finite.h"

static cvy_status attach(void *owner, void *arg) { return cvy_replica_attach(owner, arg); }

cvy_status cvy_team_attach(cvy_team *team, const cvy_data *data) {
  cvy_status status = CVY_OK;
  const cvy_shape *const in = &team->net->layers[0].shape;
  CVY_REQUIRE(data->h == in->h && data->w == in->w && data->c == in->c, CVY_E_MISMATCH,
              "data set %s has images of %dx%dx%d (height, width, channels), the network takes %dx%dx%d", data->name,
              data->h, data->w, data->c, in->h, in->w, in->c);
  CVY_REQUIRE(data->classes <= cvy_net_classes(team->net), CVY_E_MISMATCH,
              "data set %s has %d classes, the network tells only %d apart", data->name, data->classes,
              cvy_net_classes(team->net));
  CVY_REQUIRE(data->train.images || data->train.n == 0, CVY_E_ARGUMENT,
              "the images of data set %s are not there yet: call cvy_data_load_end first", data->name);
  CVY_TRY(cvy_ring_wait(team->ring));
  union {
    const cvy_data *in;
    void *out;
  } borrowed = {.in = data};
  CVY_TRY(cvy_roster_do_all(team->roster, attach, borrowed.out));
  team->data = data;
fail:
  return status;
}

typedef struct eval_args {
  cvy_team *team;
  bool on_train;
  int *shares;
  double *loss;
  long *correct;
} eval_args;

static cvy_status evaluate(void *owner, void *arg) {
  cvy_status status = CVY_OK;
  cvy_replica *const r = owner;
  const eval_args *const a = arg;
  int first = 0;
  for (int i = 0; i < r->setup.index; i++) first += a->shares[i];
  CVY_TRY(cvy_team_settle(a->team, r));
  CVY_TRY(cvy_replica_evaluate(r, a->on_train, first, a->shares[r->setup.index], a->team->stop,
                               &a->loss[r->setup.index], &a->correct[r->setup.index]));
fail:
  return status;
}

cvy_status cvy_team_evaluate(cvy_team *team, bool on_train, cvy_eval_result *out) {
  cvy_status status = CVY_OK;
  const int n_devices = cvy_roster_size(team->roster);
  eval_args a = {.team = team, .on_train = on_train};
  *out = (cvy_eval_result){0};
  CVY_REQUIRE(team->data, CVY_E_ARGUMENT, "there is no data to evaluate on: call cvy_team_attach first");
  CVY_REQUIRE(cvy_ledger_is_initialised(team->ledger), CVY_E_ARGUMENT,
              "there are no weights to evaluate: call cvy_team_init or cvy_team_load first");
  const int n = on_train ? team->data->train.n : team->data->test.n;
  CVY_REQUIRE(n > 0, CVY_E_ARGUMENT, "data set %s has no %s samples", team->data->name, on_train ? "training" : "test");
  CVY_TRY(cvy_ring_wait(team->ring));
  const uint64_t start = cvy_clock_ns();
  a.shares = cvy_calloc((size_t)n_devices, sizeof *a.shares);
  a.loss = cvy_calloc((size_t)n_devices, sizeof *a.loss);
  a.correct = cvy_calloc((size_t)n_devices, sizeof *a.correct);
  CVY_REQUIRE(a.shares && a.loss && a.correct, CVY_E_MEMORY, "out of host memory");
  for (bool done = false; !done;) { /* again from the start when a device is lost */
    CVY_TRY(cvy_shares_of_samples(team->shares, n, a.shares));
    memset(a.loss, 0, (size_t)n_devices * sizeof *a.loss);
    memset(a.correct, 0, (size_t)n_devices * sizeof *a.correct);
    status = cvy_roster_try_all(team->roster, evaluate, &a, &done);
    if (status == CVY_OK && !done) status = cvy_roster_settle(team->roster);
    CVY_TRY(status);
  }
  long correct = 0;
  for (int r = 0; r < n_devices; r++) {
    out->loss += a.loss[r] / n;
    correct += a.correct[r];
  }
  out->loss = cvy_unsigned_nan(out->loss);
  out->images = n;
  out->correct = (int)correct;
  out->accuracy = (double)correct / n;
  out->seconds = cvy_clock_seconds_since(start);
  if (!isfinite(out->loss) && !team->params.allow_nan) cvy_team_explain_loss(team, on_train, a.shares, a.loss);
  cvy_timeline_work(team->timeline, CVY_WORK_EVALUATE, -1, -1, -1, start);
fail:
  cvy_free(a.shares);
  cvy_free(a.loss);
  cvy_free(a.correct);
  return status;
}
