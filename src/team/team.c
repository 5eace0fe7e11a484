/* SPDX-License-Identifier: MIT
 * A team: settings, creation and destruction, and small getters. */
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "src/base/mem.h"
#include "src/cl/stamp.h"
#include "src/team/arrangement.h"
#include "src/exchange/exchange.h"
#include "src/fleet/node_messages.h"
#include "src/fleet/nodes.h"
#include "src/replica/bn_sync.h"
#include "src/team/noted_devices.h"
#include "src/team/opening.h"
#include "src/team/rebalance.h"
#include "src/protocol/watch.h"

/* Default time limit of the watchdog. */
enum { DEVICE_TIMEOUT_S = 60 };

/* ---- settings ---- */

static cvy_status check_fleet(const cvy_team_params *p) {
  cvy_status status = CVY_OK;
  if (!p->fleet) return CVY_OK;
  CVY_REQUIRE(p->bn != CVY_BN_SYNC, CVY_E_ARGUMENT,
              "batch normalisation over the whole batch (sync) is not supported in a fleet; expected ghost groups");
  CVY_REQUIRE(!p->no_sync, CVY_E_ARGUMENT, "no_sync is not supported in a fleet; measure a node alone");
fail:
  return status;
}

static cvy_status take_optimizer(cvy_team_params *p) {
  cvy_status status = CVY_OK;
  const bool adam = p->optimizer == CVY_OPTIMIZER_ADAM || p->optimizer == CVY_OPTIMIZER_ADAMW;
  CVY_REQUIRE(adam || p->optimizer == CVY_OPTIMIZER_SGD, CVY_E_ARGUMENT, "optimizer %d; expected sgd, adam or adamw",
              (int)p->optimizer);
  CVY_REQUIRE(!adam || (p->momentum == 0 && !p->nesterov), CVY_E_ARGUMENT, "momentum %g%s with Adam; expected betas",
              (double)p->momentum, p->nesterov ? " and Nesterov" : "");
  CVY_REQUIRE(adam || (p->betas[0] == 0 && p->betas[1] == 0 && p->eps == 0), CVY_E_ARGUMENT,
              "betas %g,%g and eps %g with SGD; expected adam or adamw", (double)p->betas[0], (double)p->betas[1],
              (double)p->eps);
  if (!adam) return CVY_OK;
  if (p->betas[0] == 0 && p->betas[1] == 0) p->betas[0] = 0.9f, p->betas[1] = 0.999f;
  if (p->eps == 0) p->eps = 1e-8f;
  for (int i = 0; i < 2; i++)
    CVY_REQUIRE(p->betas[i] >= 0 && p->betas[i] < 1, CVY_E_ARGUMENT, "beta%d %g; expected 0 to below 1", i + 1,
                (double)p->betas[i]);
  CVY_REQUIRE(p->eps >= 1e-20f && p->eps <= 1, CVY_E_ARGUMENT, "eps %g; expected 1e-20 to 1", (double)p->eps);
fail:
  return status;
}

static cvy_status take_params(cvy_team_params *p, int n_own, const cvy_team_params *given) {
  cvy_status status = CVY_OK;
  *p = given ? *given : (cvy_team_params){0};
  const int n = p->fleet ? cvy_fleet_devices(p->fleet) : n_own;
  CVY_TRY(check_fleet(p));
  if (p->batch == 0) p->batch = 256;
  CVY_REQUIRE(p->batch >= 1, CVY_E_ARGUMENT, "batch %d; expected at least 1", p->batch);
  CVY_REQUIRE(p->samples >= 0, CVY_E_ARGUMENT, "%d samples; expected 0 or more", p->samples);
  CVY_REQUIRE(isfinite(p->device_timeout_s), CVY_E_ARGUMENT, "device timeout %g s; expected a number of seconds",
              p->device_timeout_s);
  if (p->device_timeout_s == 0) p->device_timeout_s = DEVICE_TIMEOUT_S;
  if (p->run_ahead == 0) p->run_ahead = 1;
  CVY_REQUIRE(p->run_ahead == CVY_RUN_AHEAD_NONE || (p->run_ahead >= 1 && p->run_ahead <= CVY_RUN_AHEAD_MOST),
              CVY_E_ARGUMENT, "run-ahead %d; expected 1 to %d, or CVY_RUN_AHEAD_NONE", p->run_ahead,
              CVY_RUN_AHEAD_MOST);
  CVY_REQUIRE(p->staleness == 0 || p->staleness == 1, CVY_E_ARGUMENT, "staleness %d; expected 0 or 1", p->staleness);
  CVY_REQUIRE(p->staleness == 0 || n > 1, CVY_E_ARGUMENT, "staleness 1 on one device: needs several devices");
  CVY_REQUIRE(p->exchange == CVY_EXCHANGE_FP32 || p->exchange == CVY_EXCHANGE_BF16, CVY_E_ARGUMENT,
              "exchange %d; expected fp32 or bf16", (int)p->exchange);
  CVY_REQUIRE(p->exchange == CVY_EXCHANGE_FP32 || n > 1 || p->fleet, CVY_E_ARGUMENT,
              "exchange bf16 on one device: needs several devices");
  CVY_REQUIRE(p->exchange == CVY_EXCHANGE_FP32 || !p->no_sync, CVY_E_ARGUMENT,
              "exchange bf16 and no_sync exclude each other");
  CVY_REQUIRE(!p->recompute || !p->inference, CVY_E_ARGUMENT,
              "recompute with inference: there is no backward pass; expected one of them");
  CVY_REQUIRE(p->bucket_mib == 0 || (p->bucket_mib >= 0.001 && p->bucket_mib <= 4096), CVY_E_ARGUMENT,
              "buckets of %g MiB; expected 0.001 to 4096", p->bucket_mib);
  CVY_REQUIRE(!p->input.of_data || p->input.n_channels == 0, CVY_E_ARGUMENT,
              "mean and deviation both of the data (of_data) and given; expected one of them");
  CVY_REQUIRE(p->bn == CVY_BN_DEVICE || p->bn == CVY_BN_SYNC || (p->bn == CVY_BN_GHOST && p->ghost >= 1),
              CVY_E_ARGUMENT, "BN groups of %d samples; expected at least 1", p->ghost);
  CVY_TRY(take_optimizer(p));
  CVY_REQUIRE(isfinite(p->momentum) && p->momentum >= 0, CVY_E_ARGUMENT, "momentum %g; expected 0 or more",
              (double)p->momentum);
  CVY_REQUIRE(isfinite(p->weight_decay) && p->weight_decay >= 0, CVY_E_ARGUMENT, "weight decay %g; expected 0 or more",
              (double)p->weight_decay);
  CVY_REQUIRE(p->label_smoothing >= 0 && p->label_smoothing <= 1, CVY_E_ARGUMENT, "label smoothing %g; expected 0 to 1",
              (double)p->label_smoothing);
  CVY_REQUIRE(p->clip_norm >= 0 && isfinite(p->clip_norm), CVY_E_ARGUMENT, "clip norm %g; expected 0 or more",
              (double)p->clip_norm);
  CVY_REQUIRE((p->clip_norm == 0 && !p->grad_norm) || !p->no_sync, CVY_E_ARGUMENT,
              "the norm of the gradient and no_sync exclude each other");
  CVY_REQUIRE(p->math == CVY_MATH_FP32 || p->math == CVY_MATH_TF32, CVY_E_ARGUMENT, "math %d; expected fp32 or tf32",
              (int)p->math);
  CVY_REQUIRE(p->tune == CVY_TUNE_CACHED || p->tune == CVY_TUNE_OFF || p->tune == CVY_TUNE_QUICK, CVY_E_ARGUMENT,
              "tune mode %d; expected cached, off or quick", (int)p->tune);
  CVY_REQUIRE(!p->nesterov || p->momentum > 0, CVY_E_ARGUMENT, "Nesterov needs a momentum above 0");
  const bool by_values = p->split == CVY_SPLIT_WEIGHTS || p->split == CVY_SPLIT_SHARES;
  CVY_REQUIRE(p->split_values || !by_values, CVY_E_ARGUMENT, "a split by weights or shares needs one value per device");
fail:
  return status;
}

static cvy_status make_shares(cvy_team *team) {
  cvy_status status = CVY_OK;
  cvy_team_params *const p = &team->params;
  const bool sync = p->bn == CVY_BN_SYNC && !p->inference && cvy_layout_moves(team->layout);
  const int n = p->fleet ? cvy_fleet_devices(p->fleet) : team->devices->n;
  const int first = p->fleet ? cvy_fleet_first_of(p->fleet, cvy_fleet_rank(p->fleet)) : -1;
  double *const noted = cvy_calloc((size_t)n, sizeof *noted);
  cvy_split_params split = {.rule = p->split == CVY_SPLIT_SHARES    ? CVY_RULE_SHARES
                                    : p->split == CVY_SPLIT_WEIGHTS ? CVY_RULE_WEIGHTS
                                                                    : CVY_RULE_EVEN, /* until there are measurements */
                            .n_devices = n,
                            .batch = p->batch,
                            .values = p->split_values,
                            .group = p->bn == CVY_BN_GHOST ? p->ghost : 1};
  CVY_REQUIRE(noted, CVY_E_MEMORY, "out of host memory");
  if (split.rule == CVY_RULE_EVEN) split.values = NULL;
  CVY_TRY(cvy_rebalance_resume(p, cvy_opening_everyone(team->opening), cvy_team_any_split(team), &split, noted));
  CVY_TRY(cvy_shares_create(team->roster, &split, first, sync, cvy_team_may_be_lone(p), &team->shares));
fail:
  cvy_free(noted);
  return status;
}

/* ---- devices ---- */

static cvy_status make_replicas(cvy_team *team) {
  cvy_status status = CVY_OK;
  const cvy_team_params *const p = &team->params;
  const int n = team->devices->n;
  team->replicas = cvy_calloc((size_t)n, sizeof *team->replicas);
  CVY_REQUIRE(team->replicas, CVY_E_MEMORY, "out of host memory");
  for (int i = 0; i < n; i++) {
    const cvy_replica_setup setup = {.index = i,
                                     .roster = team->roster,
                                     .net = team->net,
                                     .alone = cvy_team_is_alone(team),
                                     .no_overlap = p->no_overlap,
                                     .no_sync = p->no_sync,
                                     .packs = p->exchange == CVY_EXCHANGE_BF16 && !p->inference,
                                     .staleness = p->staleness};
    cvy_replica_init(&team->replicas[i], &setup);
    CVY_TRY(cvy_roster_add(team->roster, i, &cvy_replica_fns, &team->replicas[i], team->devices->selected[i].place,
                           cvy_devices_label(team->devices, i)));
  }
fail:
  return status;
}

/* A device that has failed while it was tuned is not opened. */
static cvy_status open_device(void *device, void *arg) {
  const cvy_team *const team = arg;
  cvy_replica *const r = device;
  const int i = r->setup.index;
  const cvy_status tuned = cvy_opening_faults(team->opening)[i];
  if (tuned != CVY_OK) return tuned;
  const cvy_replica_params params = cvy_opening_params(team->opening, i);
  return cvy_replica_open(r, &params);
}

/* The devices that have failed, of which one did with `status`, may be left out. Not where the caller wants all
 * or none, or where a fleet's shares are given: they count the devices of all nodes. */
static bool may_open_without(const cvy_team *team, cvy_status status) {
  const cvy_team_params *const p = &team->params;
  const cvy_status *const faults = cvy_opening_faults(team->opening);
  const bool given = p->split == CVY_SPLIT_WEIGHTS || p->split == CVY_SPLIT_SHARES;
  if (status == CVY_OK || p->all_open || (p->fleet && given) || cvy_roster_hung(team->roster) > 0) return false;
  for (int i = 0; i < team->devices->n; i++)
    if (faults[i] != CVY_OK && !cvy_is_device_fault(faults[i])) return false;
  return cvy_devices_may_leave_out(team->devices, faults);
}

/* A task of opening, on all devices. All nodes of a fleet call it: if one of them opens its team anew, all do. */
static cvy_status open_all(cvy_team *team, cvy_task_fn fn, void *arg) {
  cvy_status status = CVY_OK;
  cvy_fleet *const fleet = team->params.fleet;
  const cvy_status first = cvy_roster_call_each(team->roster, fn, arg, cvy_opening_faults(team->opening));
  uint8_t again[CVY_NODES_MOST] = {0}; /* from other nodes */
  const size_t rank = fleet ? (size_t)cvy_fleet_rank(fleet) : 0, n = fleet ? (size_t)cvy_fleet_size(fleet) : 1;
  again[rank] = may_open_without(team, first);
  if (first != CVY_OK && !again[rank]) return first;
  if (fleet) CVY_TRY(cvy_fleet_gather(fleet, again, n * sizeof *again, rank * sizeof *again, sizeof *again));
  for (size_t r = 0; r < n; r++)
    if (again[r]) {
      cvy_opening_set_again(team->opening);
      if (fleet) cvy_fleet_expect_fewer(fleet, (int)r);
    }
  if (cvy_opening_is_again(team->opening)) status = first != CVY_OK ? first : CVY_E_DEVICE;
fail:
  return status;
}

typedef struct plan_args {
  cvy_shares *shares;
  const int *share_max;
} plan_args;

static cvy_status plan_replica(void *device, void *arg) {
  cvy_replica *const r = device;
  const plan_args *const a = arg;
  return cvy_replica_make(r, a->share_max[r->setup.index], cvy_shares_is_lone(a->shares, r->setup.index));
}

static cvy_status open_clock(void *device, void *arg) {
  cvy_replica *const r = device;
  cvy_timeline_open(arg, r->setup.index, r->device);
  cvy_timeline_set_instance(arg, r->setup.index, r->instance);
  r->timeline = arg;
  return CVY_OK;
}

/* Names the devices that hang while the team is opened. Some of them may only wait for a lock of their driver, or of a
 * library, that the hung one holds: the watchdog cannot tell them apart. */
static void say_hung(const cvy_team *team) {
  for (int i = 0; i < cvy_roster_size(team->roster); i++) {
    if (cvy_roster_is(team->roster, i, CVY_HUNG))
      cvy_log_error("device %d (%s) hangs while the team is opened; select devices without it", i,
                    cvy_roster_label(team->roster, i));
  }
}

/* ---- steps ---- */

static cvy_status make_step(void *user, cvy_step *step) {
  const cvy_team *const team = user;
  size_t pitch = 0;
  if (team->params.bn != CVY_BN_SYNC || team->devices->n == 1 || !cvy_layout_moves(team->layout)) return CVY_OK;
  for (int i = 0; i < team->layout->n_running; i++)
    if ((size_t)team->layout->running[i].pitch > pitch) pitch = (size_t)team->layout->running[i].pitch;
  return cvy_bn_sync_create(team->roster, 2 * pitch, &step->bn);
}

static void drop_stamps(const cvy_team *team, cvy_step *step) {
  for (int i = 0; step->parts && i < team->devices->n; i++) {
    cvy_stamp_destroy(&step->parts[i].began);
    cvy_stamp_destroy(&step->parts[i].ended);
  }
}

static void free_step(void *user, cvy_step *step) {
  drop_stamps(user, step);
  cvy_bn_sync_destroy(&step->bn);
}

static void cut_step(void *user, cvy_step *step) {
  drop_stamps(user, step); /* stamps of an attempt that broke off */
  cvy_bn_sync_begin(step->bn, step->shares);
}

static cvy_status replace_exchange(void *user) {
  cvy_team *const team = user;
  return cvy_exchange_replace(team->exchange);
}

static cvy_status start_steps(cvy_team *team) {
  cvy_status status = CVY_OK;
  const cvy_team_params *const p = &team->params;
  const int n = team->devices->n;
  cvy_mail **const mail = cvy_calloc((size_t)n, sizeof *mail);
  CVY_REQUIRE(mail, CVY_E_MEMORY, "out of host memory");
  for (int i = 0; i < n; i++) mail[i] = team->replicas[i].mail;
  CVY_TRY(cvy_results_create(cvy_shares_all(team->shares), CVY_RUN_AHEAD_MOST + 2, &team->results));
  CVY_TRY(cvy_ring_create(&(cvy_ring_params){.roster = team->roster,
                                             .shares = team->shares,
                                             .batch = p->batch,
                                             .run_ahead = p->run_ahead == CVY_RUN_AHEAD_NONE ? 0 : p->run_ahead,
                                             .timed = team->rebalance != NULL,
                                             .on_make = make_step,
                                             .on_cut = cut_step,
                                             .on_free = free_step,
                                             .user = team},
                          &team->ring));
  CVY_TRY(cvy_exchange_create(&(cvy_exchange_params){.roster = team->roster,
                                                     .ring = team->ring,
                                                     .ledger = team->ledger,
                                                     .results = team->results,
                                                     .events = team->events,
                                                     .shares = team->shares,
                                                     .fleet = p->fleet,
                                                     .mail = mail,
                                                     .pool = team->pool,
                                                     .timeline = team->timeline,
                                                     .no_sync = p->no_sync,
                                                     .packed = p->exchange == CVY_EXCHANGE_BF16,
                                                     .fault_stops = p->fault_stops,
                                                     .device_timeout_s = p->device_timeout_s,
                                                     .most_samples = cvy_team_most_samples(team),
                                                     .allow_nan = p->allow_nan,
                                                     .norm = {p->clip_norm, p->grad_norm},
                                                     .read_norm = cvy_replica_read_norm,
                                                     .read_result = cvy_replica_read_result},
                              &team->exchange));
  /* the watchdog may have given up a device while the team was opened */
  CVY_TRY(cvy_roster_settle(team->roster));
  CVY_TRY(cvy_exchange_start(team->exchange));
fail:
  cvy_free(mail);
  return status;
}

/* ---- life ---- */

static cvy_status gather_devices(cvy_fleet *fleet, const cvy_devices *devices) {
  cvy_status status = CVY_OK;
  char *noted = NULL;
  CVY_TRY(cvy_noted_text(devices, &noted));
  CVY_TRY(cvy_fleet_gather_devices(fleet, devices->n, noted));
fail:
  cvy_free(noted);
  return status;
}

static void say_clip(const cvy_team *team) {
  const double mib = (double)cvy_layout_trained(team->layout) * sizeof(float) / (1 << 20);
  if (team->params.clip_norm == 0 || team->params.inference) return;
  if (cvy_team_is_alone(team))
    cvy_log_info("clip norm %g: the update waits for the whole gradient, %.1f MiB, which is read again",
                 (double)team->params.clip_norm, mib);
  else
    cvy_log_info(
        "clip norm %g: the update waits for the whole gradient, so the upload of %.1f MiB of weights does not overlap "
        "the backward pass",
        (double)team->params.clip_norm, mib);
}

static cvy_status make_team(cvy_team *team, const cvy_team_params *params, int *share_max) {
  cvy_status status = CVY_OK;
  const int n = team->devices->n;
  const long cores = sysconf(_SC_NPROCESSORS_ONLN);
  if (params && params->fleet) CVY_TRY(gather_devices(params->fleet, team->devices));
  CVY_TRY(take_params(&team->params, n, params));
  CVY_TRY(cvy_team_arrange(team));
  CVY_TRY(cvy_opening_create(team->devices, team->net, &team->params, &team->opening));
  CVY_TRY(cvy_roster_create(n, &team->roster));
  CVY_TRY(make_shares(team));
  CVY_TRY(cvy_events_create(cvy_shares_all(team->shares), &team->events));
  team->params.conv_algo = NULL; /* the caller's memory, borrowed for this call alone */
  team->params.resume = NULL;
  team->params.split_values = NULL;
  CVY_TRY(cvy_shares_find(team->shares, cvy_team_most_samples(team), share_max));
  CVY_TRY(make_replicas(team));
  if (team->params.device_timeout_s > 0)
    CVY_TRY(cvy_watch_start(team->roster, team->params.device_timeout_s, replace_exchange, team, &team->watch));
  cvy_opening_tune(team->opening, team->roster, share_max);
  CVY_TRY(open_all(team, open_device, team));
  CVY_TRY(cvy_team_choose_buckets(team));
  team->params.freeze = team->params.lr_mult = NULL; /* the caller's memory */
  CVY_TRY(cvy_ledger_create(team->layout, cvy_team_moments(&team->params), team->params.staleness > 0, &team->ledger));
  for (int i = 0; i < n; i++) CVY_TRY(cvy_replica_arrange(&team->replicas[i], team->layout, team->params.inference));
  CVY_TRY(open_all(team, plan_replica, &(plan_args){team->shares, share_max}));
  CVY_TRY(cvy_pool_create(cores > 1 ? (int)(cores < 16 ? cores : 16) : 1, &team->pool));
  CVY_TRY(cvy_rebalance_start(team, &team->rebalance));
  if (!team->rebalance) CVY_TRY(cvy_shares_check_room(team->shares, share_max));
  CVY_TRY(cvy_opening_note(team->opening, team->replicas));
  if (cvy_opening_keeps_times(&team->params)) {
    CVY_TRY(cvy_timeline_create(team->devices, team->layout, &team->timeline));
    CVY_TRY(cvy_roster_call_all(team->roster, open_clock, team->timeline));
  }
  say_clip(team);
  CVY_TRY(start_steps(team));
fail:
  return status;
}

/* The caller finds the devices that were left out among the events, as those that are lost later. */
static cvy_status tell_left_out(const cvy_team *team, const cvy_devices *devices) {
  cvy_status status = CVY_OK;
  int *const shares = cvy_calloc((size_t)cvy_shares_all(team->shares), sizeof *shares);
  CVY_REQUIRE(shares, CVY_E_MEMORY, "out of host memory");
  cvy_shares_full(team->shares, shares);
  for (int i = 0; i < devices->n_left_out; i++)
    CVY_TRY(cvy_events_add(team->events,
                           &(cvy_team_event){.kind = CVY_TEAM_DEVICE_LOST,
                                             .of.lost = {.device = -1,
                                                         .label = devices->left_out[i].label,
                                                         .reason = cvy_status_text(devices->left_out[i].fault),
                                                         .shares = shares}}));
fail:
  cvy_free(shares);
  return status;
}

/* One attempt. *again: devices that failed, faults[i], may be left out. */
static cvy_status try_create(const cvy_devices *devices, const cvy_net *net, const cvy_team_params *params,
                             cvy_status *faults, bool *again, cvy_team **out) {
  cvy_status status = CVY_OK;
  const size_t n = (size_t)devices->n;
  int *const share_max = cvy_calloc(n, sizeof *share_max);
  cvy_team *team = cvy_calloc(1, sizeof *team);
  *again = false;
  CVY_REQUIRE(team && share_max, CVY_E_MEMORY, "out of host memory");
  team->devices = devices;
  team->net = net;
  CVY_TRY(make_team(team, params, share_max));
  CVY_TRY(tell_left_out(team, devices));
  cvy_free(share_max);
  *out = team;
  return CVY_OK;
fail:
  if (team && team->roster) say_hung(team);
  cvy_free(share_max);
  if (team && team->opening && cvy_opening_is_again(team->opening)) {
    *again = true;
    memcpy(faults, cvy_opening_faults(team->opening), n * sizeof *faults);
  }
  cvy_team_destroy(&team);
  return status;
}

/* Takes the devices with faults out of the choice, and their values out of `values`. Shares become weights: the others
 * take the samples of those that are gone. */
static cvy_status leave_out(cvy_devices *devices, const cvy_status *faults, cvy_team_params *p, double *values) {
  int kept = 0, n_faults = 0;
  for (int i = 0; i < devices->n; i++) {
    n_faults += faults[i] != CVY_OK;
    if (p->split_values && faults[i] == CVY_OK) values[kept++] = p->split_values[i];
  }
  if (n_faults == 0) return CVY_OK; /* another node's have failed */
  if (p->split_values) p->split_values = values;
  if (p->split == CVY_SPLIT_SHARES) p->split = CVY_SPLIT_WEIGHTS;
  return cvy_devices_leave_out(devices, faults);
}

cvy_status cvy_team_create(cvy_devices *devices, const cvy_net *net, const cvy_team_params *given, cvy_team **out) {
  cvy_status status = CVY_OK;
  const size_t n = (size_t)devices->n;
  cvy_status *faults = NULL;
  double *values = NULL;
  cvy_team_params params = given ? *given : (cvy_team_params){0};
  *out = NULL;
  CVY_REQUIRE(net->finished && net->status == CVY_OK, CVY_E_ARGUMENT,
              "the network is not finished: call cvy_net_finish first");
  const cvy_shape *const in = &net->layers[0].shape;
  if (!params.inference) CVY_TRY(cvy_net_check_classes(net, "training"));
  CVY_TRY(cvy_input_check(&params.input, in->h, in->w, in->c));
  faults = cvy_calloc(n, sizeof *faults);
  values = cvy_calloc(n, sizeof *values);
  CVY_REQUIRE(faults && values, CVY_E_MEMORY, "out of host memory");
  for (bool again = true; again;) {
    status = try_create(devices, net, &params, faults, &again, out);
    if (again) CVY_TRY(leave_out(devices, faults, &params, values));
  }
fail:
  cvy_free(faults);
  cvy_free(values);
  return status;
}

static cvy_status close_replica(void *device, void *arg) {
  (void)arg;
  cvy_replica_fns.close(device);
  return CVY_OK;
}

/* Ends every thread. False: some hang in a driver, and may read the team's memory at any time. */
static bool end_threads(cvy_team *team) {
  if (!team->roster) return true;
  if (team->exchange) {
    (void)cvy_ring_wait(team->ring);
    cvy_exchange_stop(team->exchange);
  }
  for (int i = 0; team->replicas && i < cvy_roster_size(team->roster); i++)
    if (cvy_roster_worker(team->roster, i))
      (void)cvy_worker_call(cvy_roster_worker(team->roster, i), close_replica, NULL);
  cvy_watch_stop(&team->watch);
  cvy_roster_end_workers(team->roster);
  return cvy_roster_hung(team->roster) == 0;
}

void cvy_team_destroy(cvy_team **out) {
  cvy_team *const team = *out;
  *out = NULL;
  if (!team) return;
  if (team->roster) (void)cvy_team_trace_end(team, NULL);
  if (!end_threads(team)) return; /* a thread that hangs may still return and use these; they are leaked on purpose */
  cvy_exchange_destroy(&team->exchange);
  cvy_ring_destroy(&team->ring);
  cvy_timeline_destroy(&team->timeline);
  for (int i = 0; team->replicas && i < team->devices->n; i++) cvy_replica_end(&team->replicas[i]);
  cvy_free(team->replicas);
  cvy_rebalance_destroy(&team->rebalance);
  cvy_results_destroy(&team->results);
  cvy_shares_destroy(&team->shares);
  cvy_roster_destroy(&team->roster);
  cvy_events_destroy(&team->events);
  cvy_pool_destroy(&team->pool);
  cvy_pool_destroy(&team->copies);
  cvy_ledger_destroy(&team->ledger);
  cvy_opening_destroy(&team->opening);
  cvy_layout_clear(&team->own_layout);
  cvy_free(team);
}

/* ---- getters ---- */

const cvy_net *cvy_team_net(const cvy_team *team) { return team->net; }
int cvy_team_size(const cvy_team *team) { return cvy_roster_size(team->roster); }
cvy_status cvy_team_wait(cvy_team *team) { return cvy_ring_wait(team->ring); }
bool cvy_team_next_event(cvy_team *team, cvy_team_event *out) { return cvy_events_take(team->events, out); }
const char *cvy_team_conv_choices(const cvy_team *team) { return cvy_opening_choices(team->opening); }
cvy_split_kind cvy_team_split(const cvy_team *team) { return team->rebalance ? CVY_SPLIT_AUTO : team->params.split; }

void cvy_team_shares(const cvy_team *team, int *shares) {
  (void)cvy_roster_settle(team->roster);
  cvy_shares_full(team->shares, shares);
}

const char *cvy_conv_algo_wrong(const char *text) {
  cvy_conv_algo_list unused;
  return cvy_conv_algos_read(text, &unused);
}

bool cvy_team_replica(const cvy_team *team, int i, cvy_replica_info *out) {
  cvy_lost_member lost;
  if (i < 0 || i >= team->devices->n) return false;
  const cvy_replica *const r = &team->replicas[i];
  *out = (cvy_replica_info){.label = cvy_devices_label(team->devices, i),
                            .lost_step = -1,
                            .compute_units = cvy_devices_units(team->devices, i),
                            .driver = cvy_devices_driver(team->devices, i)};
  (void)cvy_roster_settle(team->roster); /* waits until lost devices are taken out and the others planned anew */
  cvy_roster_lock(team->roster);
  if (cvy_roster_lost(team->roster, i, &lost)) {
    out->lost_step = lost.step;
  } else if (r->instance) { /* a plan may have failed for a reason that ends the team */
    out->share = cvy_shares_full_of(team->shares, team->roster, i);
    out->micro_batch = cvy_instance_micro_batch(r->instance);
    out->device_bytes = cvy_replica_device_bytes(r);
    out->math = cvy_instance_math(r->instance);
  }
  cvy_roster_unlock(team->roster);
  return true;
}
