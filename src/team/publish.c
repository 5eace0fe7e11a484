/* SPDX-License-Identifier: MIT */
#include "src/team/publish.h"

#include <string.h>

#include "src/base/mem.h"
#include "src/fleet/kept_state.h"
#include "src/replica/replica_parts.h"

typedef struct put_args {
  const cvy_ledger *ledger;
  long step;
} put_args;

static cvy_status put_state(void *device, void *arg) {
  cvy_status status = CVY_OK;
  const put_args *const a = arg;
  const cvy_generation truth = cvy_ledger_generation(a->ledger, a->step);
  CVY_TRY(cvy_replica_fns.put(device, &truth));
  if (a->step > 0) return CVY_OK;
  cvy_step_inputs_note(((cvy_replica *)device)->notes, -1, 0); /* of other weights */
  CVY_TRY(cvy_replica_fns.put_residual(device, NULL));
fail:
  return status;
}

static bool is_idle(cvy_team *team, int i) {
  cvy_roster_lock(team->roster);
  const bool idle = cvy_roster_is_idle(team->roster, i);
  cvy_roster_unlock(team->roster);
  return idle;
}

cvy_status cvy_team_settle(cvy_team *team, cvy_replica *r) {
  cvy_status status = CVY_OK;
  put_args args = {.ledger = team->ledger, .step = cvy_ring_next_number(team->ring)};
  const bool has_weights = !r->mail || r->lone || team->params.no_sync || cvy_mail_has_weights(r->mail, args.step);
  if (!has_weights && is_idle(team, r->setup.index)) CVY_TRY(put_state(r, &args));
  CVY_TRY(cvy_replica_settle(r, args.step));
fail:
  return status;
}

cvy_status cvy_team_publish(cvy_team *team, long step) {
  cvy_status status = CVY_OK;
  put_args args = {.ledger = team->ledger, .step = step};
  float *const previous = cvy_ledger_previous(team->ledger);
  CVY_TRY(cvy_ring_wait(team->ring));
  cvy_ring_renumber(team->ring, step);
  if (step == 0 && previous) /* there is no older generation yet */
    memcpy(previous, cvy_ledger_w(team->ledger), team->layout->n_floats * sizeof *previous);
  cvy_ledger_start(team->ledger, step, true); /* a loss meanwhile, also in another node, lets recovery put it again */
  CVY_TRY(cvy_roster_do_all(team->roster, put_state, &args));
fail:
  return status;
}

cvy_status cvy_team_call(cvy_team *team, int i, cvy_task_fn fn, void *arg, bool *there) {
  *there = !cvy_roster_is_lost(team->roster, i);
  if (!*there) return CVY_OK;
  const cvy_status status = cvy_worker_call(cvy_roster_worker(team->roster, i), fn, arg);
  *there = status == CVY_OK;
  if (*there) return CVY_OK;
  cvy_roster_fault(team->roster, i, status);
  return cvy_ring_wait(team->ring);
}

cvy_status cvy_team_sync(cvy_team *team) {
  return cvy_keep_state(&(cvy_keep_params){.roster = team->roster,
                                           .ring = team->ring,
                                           .shares = team->shares,
                                           .ledger = team->ledger,
                                           .fleet = team->params.fleet,
                                           .chain = cvy_team_chain(team)});
}

cvy_status cvy_team_sync_for_all(cvy_team *team) {
  return cvy_team_is_alone(team) ? cvy_ring_wait(team->ring) : cvy_team_sync(team);
}

/* ---- residuals ---- */

void cvy_team_free_residuals(const cvy_team *team, float ***residuals) {
  for (int i = 0; *residuals && i < cvy_shares_all(team->shares); i++) cvy_free((*residuals)[i]);
  cvy_free(*residuals);
  *residuals = NULL;
}

typedef struct residual_args {
  size_t n_floats;
  const float *from; /* NULL: zeros */
  float *got;
} residual_args;

/* The worker owns the memory that the driver writes: if the thread hangs, the driver may still write it later. */
static cvy_status get_residual(void *device, void *arg) {
  cvy_status status = CVY_OK;
  residual_args *const a = arg;
  float *got = cvy_calloc(a->n_floats, sizeof *got);
  CVY_REQUIRE(got, CVY_E_MEMORY, "out of host memory for the residuals of the gradients");
  CVY_TRY(cvy_replica_fns.get_residual(device, got));
  a->got = got;
  return CVY_OK;
fail:
  cvy_free(got);
  return status;
}

static cvy_status put_residual(void *device, void *arg) {
  cvy_status status = CVY_OK;
  const residual_args *const a = arg;
  float *const copy = a->from ? cvy_calloc(a->n_floats, sizeof *copy) : NULL;
  CVY_REQUIRE(copy || !a->from, CVY_E_MEMORY, "out of host memory for the residuals of the gradients");
  if (copy) memcpy(copy, a->from, a->n_floats * sizeof *copy);
  CVY_TRY(cvy_replica_fns.put_residual(device, copy));
fail:
  cvy_free(copy);
  return status;
}

/* This team's own residuals, one per device; NULL: lost. *whole: no device was lost at it. */
static cvy_status get_own_residuals(cvy_team *team, float **own, bool *whole) {
  cvy_status status = CVY_OK;
  *whole = true;
  for (int i = 0; i < cvy_roster_size(team->roster) && *whole; i++) {
    residual_args args = {.n_floats = team->layout->n_floats};
    bool there;
    const bool was_lost = cvy_roster_is_lost(team->roster, i);
    CVY_TRY(cvy_team_call(team, i, get_residual, &args, &there));
    own[i] = args.got;
    *whole = there || was_lost;
  }
fail:
  return status;
}

/* A device's residual on its way through the fleet. */
typedef struct residual_way {
  bool dropped;     /* the nodes have agreed anew since this one has read its residuals */
  const float *own; /* NULL: it is no device of this node, or has none */
  size_t n_floats;
} residual_way;

/* Its head, and then its values. */
enum { WAY_DROPPED, WAY_PRESENT, WAY_HEAD };

static void add_residual(void *user, void *data) {
  const residual_way *const way = user;
  float *const values = data;
  if (way->dropped) values[WAY_DROPPED] = 1;
  if (!way->own) return;
  values[WAY_PRESENT] = 1;
  memcpy(values + WAY_HEAD, way->own, way->n_floats * sizeof *values);
}

/* One device after the other, so that memory is needed for one of them. *dropped: the nodes have agreed anew since
 * `round`, and all residuals were dropped. */
static cvy_status gather_residuals(cvy_team *team, uint32_t round, float **all, bool *dropped) {
  cvy_status status = CVY_OK;
  const size_t n = team->layout->n_floats, bytes = (WAY_HEAD + n) * sizeof(float);
  const bool is_head = cvy_fleet_is_head(team->params.fleet);
  float *const values = cvy_alloc_unset(WAY_HEAD + n, sizeof *values);
  *dropped = false;
  CVY_REQUIRE(values, CVY_E_MEMORY, "out of host memory for the residuals of the gradients");
  for (int i = 0; i < cvy_shares_all(team->shares) && !*dropped; i++) {
    residual_way way = {.own = all[i], .n_floats = n};
    for (bool again = true; again;) {
      uint32_t now;
      memset(values, 0, bytes);
      CVY_TRY(cvy_chain_settle(cvy_team_chain(team), &now));
      way.dropped = now != round;
      CVY_TRY(cvy_chain_reduce(cvy_team_chain(team), now, values, bytes, add_residual, &way, &again));
    }
    *dropped = values[WAY_DROPPED] != 0;
    if (values[WAY_PRESENT] == 0 || all[i] || !is_head) continue;
    all[i] = cvy_alloc_unset(n, sizeof *values);
    CVY_REQUIRE(all[i], CVY_E_MEMORY, "out of host memory for the residuals of the gradients");
    memcpy(all[i], values + WAY_HEAD, n * sizeof *values);
  }
fail:
  cvy_free(values);
  return status;
}

cvy_status cvy_team_get_residuals(cvy_team *team, float ***out) {
  cvy_status status = CVY_OK;
  bool whole, dropped = false;
  *out = NULL;
  CVY_TRY(cvy_ring_wait(team->ring));
  if (team->params.exchange != CVY_EXCHANGE_BF16) return CVY_OK;
  uint32_t round = 0;
  if (cvy_team_chain(team)) CVY_TRY(cvy_chain_settle(cvy_team_chain(team), &round));
  *out = cvy_calloc((size_t)cvy_shares_all(team->shares), sizeof **out);
  CVY_REQUIRE(*out, CVY_E_MEMORY, "out of host memory");
  CVY_TRY(get_own_residuals(team, *out + cvy_shares_first(team->shares), &whole));
  if (cvy_team_chain(team)) CVY_TRY(gather_residuals(team, round, *out, &dropped));
  if (!whole || dropped) cvy_team_free_residuals(team, out);
fail:
  if (status != CVY_OK) cvy_team_free_residuals(team, out);
  return status;
}

cvy_status cvy_team_put_residuals(cvy_team *team, float *const *residuals) {
  cvy_status status = CVY_OK;
  CVY_TRY(cvy_ring_wait(team->ring));
  for (int i = 0; i < cvy_roster_size(team->roster) && team->params.exchange == CVY_EXCHANGE_BF16; i++) {
    residual_args args = {.n_floats = team->layout->n_floats,
                          .from = residuals ? residuals[cvy_shares_first(team->shares) + i] : NULL};
    bool there;
    const bool was_lost = cvy_roster_is_lost(team->roster, i);
    CVY_TRY(cvy_team_call(team, i, put_residual, &args, &there));
    if (!there && !was_lost) return CVY_OK; /* the device was lost at it: all are dropped */
  }
fail:
  return status;
}
