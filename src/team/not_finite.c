/* SPDX-License-Identifier: MIT
 * Finds why the loss of an evaluation is not finite: a tensor of the weights, or the first layer whose output is not
 * finite. */
#include <math.h>

#include "src/nn/weights.h"
#include "src/team/not_finite.h"
#include "src/team/publish.h"
#include "src/team/replica_parts.h"

typedef struct search {
  cvy_team *team;
  bool on_train;
  int first, n; /* the replica's samples; then those of the pass with such a loss */
  bool found;
  int layer; /* -1: every output of the pass is finite */
} search;

/* [worker] Repeats the evaluation's passes until one has a loss that is not finite. */
static cvy_status search_passes(void *device, void *arg) {
  cvy_status status = CVY_OK;
  cvy_replica *const r = device;
  search *const s = arg;
  cvy_queue *const queue = cvy_device_compute_queue(r->device);
  const int micro = cvy_instance_micro_batch(r->instance), end = s->first + s->n;
  int32_t *const samples = cvy_calloc((size_t)micro, sizeof *samples);
  CVY_REQUIRE(samples, CVY_E_MEMORY, "out of host memory for %d sample numbers", micro);
  CVY_TRY(cvy_team_settle(s->team, r));
  for (int at = s->first; at < end && !s->found; at += micro) {
    const cvy_pass pass = {.n = end - at < micro ? end - at : micro, .batch = end - at < micro ? end - at : micro};
    cvy_xent_result result = {0};
    for (int i = 0; i < pass.n; i++) samples[i] = at + i;
    CVY_TRY(cvy_replica_data_load(r->data, !s->on_train, samples, pass.n));
    CVY_TRY(cvy_instance_forward(r->instance, &pass, false));
    CVY_TRY(cvy_instance_loss(r->instance, &pass, false));
    CVY_TRY(cvy_buffer_read(queue, cvy_instance_result(r->instance), 0, sizeof result, &result, NULL, NULL));
    if (isfinite(result.loss_sum)) continue;
    CVY_TRY(
        cvy_replica_data_load(r->data, !s->on_train, samples, pass.n)); /* later layers may lie where the input lay */
    CVY_TRY(cvy_instance_find_not_finite(r->instance, &pass, &s->layer));
    s->found = true;
    s->first = at;
    s->n = pass.n;
  }
fail:
  if (status != CVY_OK) (void)cvy_queue_finish(queue);
  cvy_free(samples);
  return status;
}

void cvy_team_explain_loss(cvy_team *team, bool on_train, const int *shares, const double *loss_sums) {
  const char *const what = on_train ? "training" : "test";
  char name[128];
  if (cvy_team_sync(team) != CVY_OK) return;
  if (cvy_weights_find_not_finite(team->layout, cvy_ledger_w(team->ledger), cvy_ledger_running(team->ledger), name,
                                  sizeof name)) {
    cvy_log_warning("the loss of the %s images is not finite: tensor '%s' of the weights has values that are not", what,
                    name);
    return;
  }
  search s = {.team = team, .on_train = on_train};
  int first = 0;
  for (int r = 0; r < cvy_roster_size(team->roster) && !s.found; first += shares[r++]) {
    if (isfinite(loss_sums[r]) || cvy_roster_is_lost(team->roster, r)) continue;
    s.first = first;
    s.n = shares[r];
    if (cvy_worker_call(cvy_roster_worker(team->roster, r), search_passes, &s) != CVY_OK) return;
  }
  if (s.found && s.layer >= 0)
    cvy_log_warning(
        "the loss of the %s images is not finite: %s is the first layer with an output that is not, on images %d to %d",
        what, cvy_layer_title(team->net, s.layer, name, sizeof name), s.first, s.first + s.n - 1);
  else
    cvy_log_warning("the loss of the %s images is not finite: the outputs of the network are, but lie too far apart",
                    what);
}
