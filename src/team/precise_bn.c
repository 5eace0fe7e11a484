/* SPDX-License-Identifier: MIT */
#include "src/team/precise_bn.h"

#include <string.h>

#include "src/base/mem.h"
#include "src/replica/bn_sync.h"
#include "src/team/publish.h"
#include "src/replica/replica_parts.h"

struct cvy_precise_bn {
  cvy_team *team;
  size_t n_moments;
  int *all_shares;     /* of the batch, one per device of the fleet; without one, of the team */
  const int *shares;   /* one per device of the team, a part of these */
  double *parts;       /* sums of the batch (cvy_instance_add_moments), one run of n_moments per device */
  bool *broken;        /* per device: a halt of the team ended its work */
  double *batch, *sum; /* of all devices, and of all batches so far; batch: nodes that were asked to stop behind it */
  double n_samples;
};

/* One batch, as the workers see it. */
typedef struct batch_args {
  const cvy_precise_bn *precise;
  cvy_bn_sync *bn; /* NULL: no statistics over all shares */
  const int32_t *samples;
  int n, epoch, group_size;
} batch_args;

void cvy_precise_bn_destroy(cvy_precise_bn **precise) {
  cvy_precise_bn *const p = *precise;
  if (!p) return;
  cvy_free(p->all_shares);
  cvy_free(p->parts);
  cvy_free(p->broken);
  cvy_free(p->batch);
  cvy_free(p->sum);
  cvy_free(p);
  *precise = NULL;
}

cvy_status cvy_precise_bn_create(cvy_team *team, cvy_precise_bn **out) {
  cvy_status status = CVY_OK;
  const size_t n_devices = (size_t)cvy_roster_size(team->roster), n = cvy_layout_moving(team->layout);
  cvy_precise_bn *p = cvy_calloc(1, sizeof *p);
  *out = NULL;
  CVY_REQUIRE(p, CVY_E_MEMORY, "out of host memory");
  *p = (cvy_precise_bn){.team = team,
                        .n_moments = n,
                        .all_shares = cvy_calloc((size_t)cvy_shares_all(team->shares), sizeof *p->all_shares),
                        .parts = cvy_calloc(n_devices * n, sizeof *p->parts),
                        .broken = cvy_calloc(n_devices, sizeof *p->broken),
                        .batch = cvy_calloc(n + 1, sizeof *p->batch),
                        .sum = cvy_calloc(n, sizeof *p->sum)};
  CVY_REQUIRE(p->all_shares && p->parts && p->broken && p->batch && p->sum, CVY_E_MEMORY,
              "out of host memory for batch statistics of %d devices", (int)n_devices);
  p->shares = p->all_shares + cvy_shares_first(team->shares);
  *out = p;
  return CVY_OK;
fail:
  cvy_precise_bn_destroy(&p);
  return status;
}

/* ---- workers ---- */

static cvy_status run_passes(cvy_replica *r, const batch_args *a, int first, int share, double *moments) {
  cvy_status status = CVY_OK;
  const int micro = cvy_replica_pass_size(r, share, a->group_size);
  CVY_TRY(cvy_team_settle(a->precise->team, r));
  for (int at = 0; at < share; at += micro) {
    cvy_pass pass = {.n = share - at < micro ? share - at : micro,
                     .batch = a->n,
                     .group_size = a->group_size,
                     .accumulate = at > 0,
                     .epoch = a->epoch,
                     .parts = cvy_bn_sync_parts(a->bn, r->setup.index)};
    CVY_TRY(cvy_replica_data_load(r->data, CVY_SET_TRAIN, a->samples + first + at, pass.n, a->epoch));
    pass.samples = cvy_replica_data_numbers(r->data);
    CVY_TRY(cvy_instance_forward(r->instance, &pass, true));
    CVY_TRY(cvy_instance_add_moments(r->instance, &pass, moments));
  }
  cvy_timeline_drain(r->timeline, r->setup.index);
fail:
  if (status != CVY_OK && r->device) (void)cvy_queue_finish(cvy_device_compute_queue(r->device));
  return status;
}

/* A device that fails is noted at once: the others may be waiting for its statistics. */
static cvy_status run_share(void *device, void *arg) {
  cvy_replica *const r = device;
  const batch_args *const a = arg;
  const cvy_precise_bn *const p = a->precise;
  const int i = r->setup.index, share = p->shares[i];
  int first = 0;
  if (share == 0) return CVY_OK;
  for (const int *before = p->all_shares; before < p->shares + i; before++) first += *before;
  const cvy_status status = run_passes(r, a, first, share, p->parts + (size_t)i * p->n_moments);
  if (status == CVY_E_INTERRUPTED) {
    p->broken[i] = true;
    return CVY_OK;
  }
  if (status != CVY_OK) cvy_roster_fault(r->setup.roster, i, status);
  return status;
}

/* ---- caller ---- */

/* Adds this node's devices, in their order, to the sums of the nodes before it. */
static void add_parts(void *user, void *data) {
  const cvy_precise_bn *const p = user;
  double *const sums = data;
  for (int r = 0; r < cvy_roster_size(p->team->roster); r++) {
    const double *const part = p->parts + (size_t)r * p->n_moments;
    for (size_t i = 0; i < p->n_moments; i++) sums[i] += part[i];
  }
  const bool stops =
      cvy_team_chain(p->team) ? cvy_team_is_asked_to_stop(p->team) : cvy_stop_requested(p->team->params.stop);
  sums[p->n_moments] += stops;
}

/* One attempt on the devices that are there. *done: none was lost at it. */
static cvy_status attempt(cvy_precise_bn *p, batch_args *a, bool *done) {
  cvy_status status = CVY_OK;
  cvy_team *const team = p->team;
  cvy_chain *const chain = cvy_team_chain(team);
  const size_t n_devices = (size_t)cvy_roster_size(team->roster), bytes = (p->n_moments + 1) * sizeof *p->batch;
  uint32_t round = 0;
  bool again = false;
  *done = false;
  if (chain) CVY_TRY(cvy_chain_settle(chain, &round));
  CVY_TRY(cvy_shares_of_batch(team->shares, a->n, p->all_shares));
  cvy_bn_sync_begin(a->bn, p->shares);
  memset(p->parts, 0, n_devices * p->n_moments * sizeof *p->parts);
  memset(p->broken, 0, n_devices * sizeof *p->broken);
  memset(p->batch, 0, bytes);
  CVY_TRY(cvy_roster_try_all(team->roster, run_share, a, done));
  for (size_t i = 0; i < n_devices; i++) *done = *done && !p->broken[i];
  if (!*done) return cvy_roster_settle(team->roster);
  if (chain) CVY_TRY(cvy_chain_reduce(chain, round, p->batch, bytes, add_parts, p, &again));
  else add_parts(p, p->batch);
  *done = !again;
fail:
  return status;
}

cvy_status cvy_precise_bn_add(cvy_precise_bn *p, const int32_t *samples, int n, int epoch) {
  cvy_status status = CVY_OK;
  const cvy_team_params *const params = &p->team->params;
  CVY_TRY(cvy_ring_wait(p->team->ring));
  /* the next step, which the caller has not begun, has the place where workers meet */
  batch_args args = {.precise = p,
                     .bn = cvy_ring_next(p->team->ring)->bn,
                     .samples = samples,
                     .n = n,
                     .epoch = epoch,
                     .group_size = params->bn == CVY_BN_GHOST ? params->ghost : 0};
  for (bool done = false; !done;) CVY_TRY(attempt(p, &args, &done));
  if (p->batch[p->n_moments] > 0) return CVY_E_INTERRUPTED;
  for (size_t i = 0; i < p->n_moments; i++) p->sum[i] += p->batch[i];
  p->n_samples += n;
fail:
  return status;
}

cvy_status cvy_precise_bn_finish(cvy_precise_bn *p) {
  cvy_status status = CVY_OK;
  cvy_team *const team = p->team;
  CVY_ASSERT(p->n_samples > 0);
  CVY_TRY(cvy_team_sync(team));
  float *const values = cvy_ledger_running(team->ledger);
  for (int l = 0; l < team->layout->n_running; l++) {
    const cvy_running *const running = &team->layout->running[l];
    if (running->frozen) continue;
    const size_t means = running->offset, variances = means + (size_t)running->pitch;
    for (size_t c = 0; c < (size_t)running->c; c++) {
      const double mean = p->sum[means + c] / p->n_samples;
      const double variance = p->sum[variances + c] / p->n_samples - mean * mean;
      values[means + c] = (float)mean;
      values[variances + c] = variance > 0 ? (float)variance : variance == variance ? 0.0f : (float)variance;
    }
  }
  CVY_TRY(cvy_team_publish(team, cvy_ring_next_number(team->ring)));
fail:
  return status;
}
