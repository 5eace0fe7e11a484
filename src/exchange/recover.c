/* SPDX-License-Identifier: MIT */
#include "src/exchange/recover.h"

#include "src/base/mem.h"

struct cvy_recovery {
  cvy_exchange_params params;
  cvy_roster *roster;
  cvy_chain *chain; /* in a fleet */
  int n;            /* devices */
  int *share_max;   /* of each device, in the attempt under way */
  int *full;        /* shares of a full batch, for events */
  bool *agreed;     /* in a fleet: its devices that are not lost */
  cvy_lost_member *lost;
  int n_lost; /* in all attempts of this recovery */
  cvy_lost_node nodes[CVY_NODES_MOST];
  int n_nodes;      /* the same for nodes of the fleet */
  cvy_status fault; /* of a device here, by which the run ends; else CVY_OK */
};

cvy_status cvy_recovery_create(const cvy_exchange_params *params, cvy_chain *chain, cvy_recovery **out) {
  cvy_status status = CVY_OK;
  const size_t n = (size_t)cvy_roster_size(params->roster);
  cvy_recovery *r = cvy_calloc(1, sizeof *r);
  *out = NULL;
  CVY_REQUIRE(r, CVY_E_MEMORY, "out of host memory");
  *r = (cvy_recovery){.params = *params,
                      .roster = params->roster,
                      .chain = chain,
                      .n = (int)n,
                      .share_max = cvy_calloc(n, sizeof *r->share_max),
                      .full = cvy_calloc((size_t)cvy_shares_all(params->shares), sizeof *r->full),
                      .agreed = cvy_calloc((size_t)cvy_shares_all(params->shares), sizeof *r->agreed),
                      .lost = cvy_calloc(n, sizeof *r->lost)};
  CVY_REQUIRE(r->share_max && r->full && r->agreed && r->lost, CVY_E_MEMORY, "out of host memory");
  *out = r;
  return CVY_OK;
fail:
  cvy_recovery_destroy(&r);
  return status;
}

void cvy_recovery_destroy(cvy_recovery **recovery) {
  cvy_recovery *const r = *recovery;
  if (!r) return;
  cvy_free(r->share_max);
  cvy_free(r->full);
  cvy_free(r->agreed);
  cvy_free(r->lost);
  cvy_free(r);
  *recovery = NULL;
}

/* ---- devices that are lost ---- */

/* `more`: another lost device is logged next; the consequence for the team is logged with the last one. */
static void say_lost(const cvy_recovery *r, const cvy_lost_member *lost, int left, bool more) {
  const bool ends = r->params.fault_stops;
  cvy_log_error("device %d (%s) is lost in step %ld: %s%s", lost->device, cvy_roster_label(r->roster, lost->device),
                lost->step, lost->reason,
                more        ? ""
                : left == 0 ? "; it was the last one"
                : ends      ? ""
                : left == 1 ? "; the team continues without it, on 1 device"
                            : "; the team continues without it");
  if (more || ends || left == 0) return;
  if (left > 1) cvy_log_error("%d devices are left", left);
  if (r->params.packed)
    cvy_log_warning(
        "exchange bf16: the residuals of the gradients, less than one step's rounding errors, are dropped on all "
        "devices");
}

static void forget_messages(const cvy_recovery *r, int i) {
  if (r->params.mail[i]) cvy_mail_forget_events(r->params.mail[i]);
  cvy_ring_forget(r->params.ring, i);
}

static cvy_status close_lost(void *device, void *task) {
  const cvy_recovery *const r = task;
  const int i = cvy_roster_index(r->roster, device);
  forget_messages(r, i);
  cvy_roster_fns(r->roster, i)->close(device);
  return CVY_OK;
}

/* Called with the new shares in r->full before the halt ends: the caller finds the events when its wait ends. */
static void tell_lost(cvy_recovery *r) {
  for (int i = 0; i < r->n_nodes; i++) {
    r->nodes[i].shares = r->full;
    (void)cvy_events_add(
        r->params.events,
        &(cvy_team_event){.kind = CVY_TEAM_NODE_LOST, .step = r->nodes[i].step, .of.node = r->nodes[i]});
  }
  r->n_nodes = 0;
  for (int i = 0; i < r->n_lost; i++) {
    const cvy_lost_member *const lost = &r->lost[i];
    (void)cvy_events_add(r->params.events,
                         &(cvy_team_event){.kind = CVY_TEAM_DEVICE_LOST,
                                           .step = lost->step,
                                           .of.lost = {.device = lost->device,
                                                       .step = lost->step,
                                                       .label = cvy_roster_label(r->roster, lost->device),
                                                       .reason = lost->reason,
                                                       .hung = lost->hung,
                                                       .shares = r->full}});
  }
  r->n_lost = 0;
}

/* Later news of other nodes halts the team again. */
static bool may_restart(void *recovery) {
  cvy_recovery *const r = recovery;
  if (r->chain && cvy_chain_has_news(r->chain)) return false;
  tell_lost(r);
  return true;
}

static void end_run(cvy_recovery *r, cvy_status status) {
  cvy_roster_lock(r->roster);
  if (cvy_roster_status(r->roster) == CVY_OK) cvy_shares_go_back(r->params.shares, r->roster);
  cvy_roster_unlock(r->roster);
  cvy_shares_full(r->params.shares, r->full);
  tell_lost(r);
  cvy_roster_lock(r->roster);
  (void)cvy_roster_end(r->roster, status);
  cvy_roster_unlock(r->roster);
}

/* Removes failed devices from the team. False: the run has ended. In a fleet that a loss ends, this node first agrees
 * with the others (see agree). */
static bool take_out(cvy_recovery *r) {
  int n_lost, left;
  cvy_lost_member *const leaving = r->lost + r->n_lost;
  const cvy_status first = cvy_roster_take_out(r->roster, cvy_ring_finished(r->params.ring), leaving, &n_lost, &left);
  r->n_lost += n_lost;
  const cvy_status unread = cvy_roster_unread(r->roster);
  const bool goes_on = left > 0 && unread == CVY_OK && (first == CVY_OK || !r->params.fault_stops);
  const cvy_status fault = goes_on ? CVY_OK : first != CVY_OK ? first : unread != CVY_OK ? unread : CVY_E_DEVICE;
  const bool meets = r->chain && r->params.fault_stops;
  if (r->fault == CVY_OK) r->fault = fault;
  for (int i = 0; i < n_lost; i++) {
    const cvy_lost_member *const lost = &leaving[i];
    say_lost(r, lost, left, i + 1 < n_lost);
    if (!lost->hung && goes_on) (void)cvy_worker_call(cvy_roster_worker(r->roster, lost->device), close_lost, r);
  }
  if (!goes_on && !meets) end_run(r, fault);
  cvy_roster_lock(r->roster);
  const bool ended = cvy_roster_status(r->roster) != CVY_OK;
  cvy_roster_unlock(r->roster);
  return (goes_on || meets) && !ended;
}

/* ---- the others ---- */

cvy_status cvy_recovery_clear_device(void *device, void *task) {
  const cvy_recovery *const r = task;
  const int i = cvy_roster_index(r->roster, device);
  const cvy_status status = cvy_roster_fns(r->roster, i)->drain(device);
  forget_messages(r, i);
  return status;
}

/* Plans memory for a larger share, and puts the state on the device if the team has weights. */
static cvy_status refill(void *device, void *task) {
  cvy_status status = CVY_OK;
  const cvy_recovery *const r = task;
  const int i = cvy_roster_index(r->roster, device);
  const cvy_member_fns *const fns = cvy_roster_fns(r->roster, i);
  const cvy_generation truth = cvy_ledger_generation(r->params.ledger, cvy_ring_truth(r->params.ring));
  CVY_TRY(fns->plan(device, r->share_max[i], cvy_shares_is_lone(r->params.shares, i), true, false));
  if (!cvy_ledger_is_initialised(r->params.ledger)) return CVY_OK;
  CVY_TRY(fns->put(device, &truth));
  CVY_TRY(fns->put_residual(device, NULL)); /* drops the residuals of the aborted step and of later ones */
fail:
  return status;
}

/* ---- a fleet ---- */

static const char *how_lost(cvy_link_news how) {
  return how == CVY_LINK_SILENT ? "it does not answer" : how == CVY_LINK_LEFT ? "it has left" : "its process has ended";
}

/* Records the lost nodes. `ends`: this ends the run. Returns their number. */
static int note_lost_nodes(cvy_recovery *r, bool ends) {
  const cvy_fleet *const fleet = r->params.fleet;
  const int left = __builtin_popcountll(cvy_fleet_view(fleet)), before = r->n_nodes;
  cvy_link_news how;
  for (int rank; (rank = cvy_chain_next_lost(r->chain, &how)) >= 0;) {
    r->nodes[r->n_nodes] = (cvy_lost_node){.node = rank,
                                           .name = cvy_fleet_name(fleet, rank),
                                           .step = cvy_ring_finished(r->params.ring),
                                           .reason = how_lost(how),
                                           .silent = how == CVY_LINK_SILENT,
                                           .n_left = left};
    const cvy_lost_node *const lost = &r->nodes[r->n_nodes++];
    cvy_log_error("node %d (%s) is lost in step %ld: %s; %s", rank, lost->name, lost->step, lost->reason,
                  ends        ? "the run ends (--on-device-loss stop)"
                  : left == 1 ? "this node continues alone"
                              : "the fleet continues without it");
  }
  return r->n_nodes - before;
}

/* With fault_stops a loss ends the run on all nodes after the same step: a node that has lost a device notifies the
 * others, and all nodes see the loss of a node. */
static cvy_status agree(cvy_recovery *r, cvy_count_fn *count, void *user) {
  cvy_status status = CVY_OK;
  cvy_chain_sums total;
  bool stops = r->fault != CVY_OK, done, asked;
  cvy_chain_rest(r->chain);
  if (cvy_chain_gave_up(r->chain)) return CVY_E_INTERRUPTED;
  if (cvy_chain_meets_again(r->chain)) return CVY_E_IO;
  CVY_TRY(cvy_chain_agree(r->chain, &stops, r->agreed, &done, &total));
  if (done) CVY_TRY(count(user, &total));
  const int n_lost = note_lost_nodes(r, r->params.fault_stops), stopper = cvy_chain_stopper(r->chain, &asked);
  if (stops || (r->params.fault_stops && n_lost > 0)) {
    const cvy_fleet *const fleet = r->params.fleet;
    if (asked) {
      cvy_log_warning("node %d (%s) was asked to stop; the run ends", stopper, cvy_fleet_name(fleet, stopper));
      return CVY_E_INTERRUPTED;
    }
    if (stopper >= 0 && stopper != cvy_fleet_rank(fleet))
      cvy_log_error("node %d (%s) has lost a device in step %ld; the run ends (--on-device-loss stop)", stopper,
                    cvy_fleet_name(fleet, stopper), cvy_ring_finished(r->params.ring));
    return r->fault != CVY_OK ? r->fault : CVY_E_DEVICE;
  }
  cvy_shares_set_agreed(r->params.shares, r->agreed);
fail:
  return status;
}

static void say_redone(const cvy_recovery *r) {
  const long first = cvy_ring_truth(r->params.ring);
  const int n = cvy_ring_to_redo(r->params.ring);
  if (n > 0) cvy_log_info("steps %ld to %ld are repeated: only a lost device has their weights", first, first + n - 1);
}

/* One attempt to continue with the remaining devices. *again: one of them has failed in it. */
static cvy_status go_on(cvy_recovery *r, cvy_count_fn *count, void *user, bool *again) {
  cvy_status status = CVY_OK;
  bool good = true;
  *again = false;
  if (r->chain) CVY_TRY(agree(r, count, user));
  CVY_TRY(cvy_shares_find(r->params.shares, r->params.most_samples, r->share_max));
  say_redone(r);
  cvy_ledger_fall_back(r->params.ledger);
  CVY_TRY(cvy_roster_try_all(r->roster, cvy_recovery_clear_device, r, &good));
  if (good) CVY_TRY(cvy_roster_try_all(r->roster, refill, r, &good));
  *again = !good;
  cvy_shares_full(r->params.shares, r->full);
  if (good) CVY_TRY(cvy_ring_restart(r->params.ring, may_restart, r, again));
fail:
  return status;
}

void cvy_recover(cvy_recovery *r, cvy_count_fn *count, void *user) {
  cvy_ring_await_steps(r->params.ring);
  for (bool again = true; again && take_out(r);) {
    const cvy_status status = go_on(r, count, user, &again);
    if (status == CVY_OK) continue;
    end_run(r, status);
    return;
  }
}
