/* SPDX-License-Identifier: MIT
 * Making and ending a team: settings, shares, replicas with their workers. */
#include "src/train/team.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "src/base/mem.h"
#include "src/train/checkpoint.h"
#include "src/train/choices.h"
#include "src/train/resume.h"
#include "src/train/timeline.h"

typedef struct open_args {
  cvy_team *team;
  int *share_max;
} open_args;

/* --tune quick: seconds for measuring, all devices together; what has begun when they are over is finished. */
enum { QUICK_BUDGET_S = 15 };

/* Without a sign of life for so long, a device counts as failed. */
enum { DEVICE_TIMEOUT_S = 60 };

/* Device r's layers take what the checkpoint notes. */
static bool is_resumed(const cvy_team *team, int r) { return team->resumed && team->resumed_rows[r] >= 0; }

static bool uses_tuned(const cvy_team *team, int r) {
  return team->algos.n == 0 && !is_resumed(team, r) && team->params.tune != CVY_TUNE_OFF;
}

/* Times of commands that are nobody's but the timeline's. */
static bool keeps_times(const cvy_team *team) {
  return !team->params.inference && !team->params.untimed && !team->params.profile;
}

/* Replicas on one device, its parts, and the CPU by several drivers. */
static int count_sharers(const cvy_team *team, int device) {
  const cvy_device_info *const items = team->devices->list->items;
  const int mine = team->devices->choices[device].item;
  int n = 0;
  for (int i = 0; i < team->n; i++) {
    const int other = team->devices->choices[i].item;
    n += other == mine || items[mine].same_as == other || items[other].same_as == mine;
  }
  return n;
}

cvy_replica_params cvy_team_replica_params(const cvy_team *team, const cvy_replica *r, int share_max) {
  const size_t first = (size_t)r->index * (size_t)team->net->n_layers;
  return (cvy_replica_params){.list = team->devices->list,
                              .choice = &team->devices->choices[r->index],
                              .share_max = share_max,
                              .group_size = team->params.bn == CVY_BN_GHOST ? team->params.ghost : 0,
                              .sharers = count_sharers(team, r->index),
                              .inference = team->params.inference,
                              .momentum = team->params.momentum != 0,
                              .profile = team->params.profile || keeps_times(team),
                              .algos = team->algos,
                              .math = team->params.math,
                              .choices = is_resumed(team, r->index) ? team->resumed + first : NULL,
                              .use_tuned = uses_tuned(team, r->index),
                              .tuned = team->tuned ? team->tuned[r->index] : NULL};
}

static cvy_status open_replica(void *owner, void *arg) {
  cvy_replica *const r = owner;
  const open_args *const a = arg;
  const cvy_replica_params params = cvy_team_replica_params(a->team, r, a->share_max[r->index]);
  return cvy_replica_open(r, &params);
}

static cvy_status tune_replica(void *owner, void *arg) {
  cvy_replica *const r = owner;
  const open_args *const a = arg;
  const cvy_replica_params params = cvy_team_replica_params(a->team, r, a->share_max[r->index]);
  return cvy_replica_tune(r, &params, (double)QUICK_BUDGET_S / a->team->n, &a->team->tuned[r->index]);
}

/* One device after the other: devices that share cores or memory must not be measured at once, and what one has found
 * the next of its kind reads. */
static cvy_status tune_quickly(cvy_team *team, open_args *args) {
  cvy_status status = CVY_OK;
  if (team->params.tune != CVY_TUNE_QUICK) return CVY_OK;
  team->tuned = cvy_calloc((size_t)team->n, sizeof *team->tuned);
  CVY_REQUIRE(team->tuned, CVY_E_MEMORY, "out of host memory");
  for (int r = 0; r < team->n; r++)
    if (uses_tuned(team, r)) CVY_TRY(cvy_worker_call(team->replicas[r].worker, tune_replica, args));
fail:
  return status;
}

/* How long the tuner takes for a pass of a layer on a fast device (four times as long was seen on a slow one), and at most by
 * default. */
#define TUNE_PASS_S 0.6
enum { TUNE_MOST_S = 60 };

/* What could be faster is said once, for all devices and reasons, and all teams of a process (bench scaling opens many). */
static void tell_untuned(const cvy_team *team) {
  static atomic_bool told;
  int untuned = 0, most = 0;
  bool tf32 = false;
  const char *wrong = NULL;
  char file[160] = "no tuned kernels for this network and batch here";
  for (int r = 0; r < team->n; r++) {
    const int here = cvy_instance_untuned(team->replicas[r].instance);
    untuned += here;
    if (here > 0 && !wrong) wrong = team->replicas[r].tuned_wrong;
    tf32 |= here > 0 && cvy_instance_math(team->replicas[r].instance) == CVY_MATH_TF32;
    if (here > most) most = here;
  }
  if (untuned == 0 || atomic_exchange(&told, true)) return;
  const double seconds = ceil(TUNE_PASS_S * most);
  char takes[32] = "";
  if (seconds < TUNE_MOST_S) snprintf(takes, sizeof takes, "%.0f to ", seconds);
  if (wrong) snprintf(file, sizeof file, "the file of tuned kernels %s", wrong);
  cvy_log_info("%s: the shipped defaults are used; 'convoy tune%s' may find faster ones, and takes about %s%d s", file,
               tf32 ? " --math tf32" : "", takes, TUNE_MOST_S);
}

static cvy_status close_replica(void *owner, void *arg) {
  (void)arg;
  cvy_replica_close(owner);
  return CVY_OK;
}

cvy_status cvy_team_find_shares(cvy_team *team, int *share_max) {
  cvy_status status = CVY_OK;
  int *const shares = cvy_calloc((size_t)team->n, sizeof *shares);
  bool *const any = cvy_calloc((size_t)team->n, sizeof *any);
  CVY_REQUIRE(shares && any, CVY_E_MEMORY, "out of host memory");
  CVY_TRY(cvy_team_shares(team, &team->split, team->params.batch, shares));
  pthread_mutex_lock(&team->lock);
  memcpy(team->full_shares, shares, (size_t)team->n * sizeof *shares);
  pthread_mutex_unlock(&team->lock);
  for (int r = 0; r < team->n; r++) share_max[r] = team->split.group > 1 ? team->split.group : 1;
  bool more = true; /* a smaller batch may still give some device more than any so far (split.h) */
  for (int n = cvy_team_most_samples(team); n >= 1 && more; n--) {
    CVY_TRY(cvy_team_shares(team, &team->split, n, shares));
    for (int r = 0; r < team->n; r++)
      if (shares[r] > share_max[r]) share_max[r] = shares[r];
    for (int r = 0; r < team->n; r++) any[r] |= shares[r] > 0;
    more = false;
    for (int r = 0; r < team->n; r++)
      more |= team->full_shares[r] > 0 && share_max[r] < cvy_split_bound(&team->split, n, team->full_shares[r]);
  }
  pthread_mutex_lock(&team->lock);
  for (int r = 0; r < team->n; r++) team->replicas[r].rests = !any[r];
  pthread_mutex_unlock(&team->lock);
fail:
  cvy_free(any);
  cvy_free(shares);
  return status;
}

void cvy_team_copy_shares(cvy_team *team, int *shares) {
  pthread_mutex_lock(&team->lock);
  memcpy(shares, team->full_shares, (size_t)team->n * sizeof *shares);
  pthread_mutex_unlock(&team->lock);
}

static cvy_status take_params(cvy_team *team, const cvy_team_params *given) {
  cvy_status status = CVY_OK;
  cvy_team_params *const p = &team->params;
  *p = given ? *given : (cvy_team_params){0};
  if (p->batch == 0) p->batch = 256;
  CVY_REQUIRE(p->batch >= 1, CVY_E_ARGUMENT, "batch %d: must be at least 1", p->batch);
  CVY_REQUIRE(p->samples >= 0, CVY_E_ARGUMENT, "%d samples: must be 0 or more", p->samples);
  if (p->run_ahead == -1) p->run_ahead = 1;
  CVY_REQUIRE(isfinite(p->device_timeout_s), CVY_E_ARGUMENT, "device timeout %g s: must be a number of seconds",
              p->device_timeout_s);
  if (p->device_timeout_s == 0) p->device_timeout_s = DEVICE_TIMEOUT_S;
  CVY_REQUIRE(p->run_ahead >= 0 && p->run_ahead <= CVY_MAX_RUN_AHEAD, CVY_E_ARGUMENT, "run-ahead %d: must be 0 to %d",
              p->run_ahead, CVY_MAX_RUN_AHEAD);
  CVY_REQUIRE(p->staleness == 0 || p->staleness == 1, CVY_E_ARGUMENT, "staleness %d: must be 0 or 1", p->staleness);
  CVY_REQUIRE(p->staleness == 0 || team->n > 1, CVY_E_ARGUMENT,
              "staleness 1 on one device: there is no exchange that a step could go ahead of; it needs a team of several");
  CVY_REQUIRE(p->exchange == CVY_EXCHANGE_FP32 || p->exchange == CVY_EXCHANGE_BF16, CVY_E_ARGUMENT,
              "exchange %d: must be fp32 or bf16", (int)p->exchange);
  CVY_REQUIRE(p->exchange == CVY_EXCHANGE_FP32 || team->n > 1, CVY_E_ARGUMENT,
              "exchange bf16 on one device: it updates its own weights and nothing crosses; it needs a team of several");
  CVY_REQUIRE(p->exchange == CVY_EXCHANGE_FP32 || !p->no_sync, CVY_E_ARGUMENT,
              "exchange bf16 without exchange (no_sync): nothing crosses that could be bf16; leave out one of the two");
  CVY_REQUIRE(p->bucket_mib == 0 || (p->bucket_mib >= 0.001 && p->bucket_mib <= 4096), CVY_E_ARGUMENT,
              "buckets of %g MiB: must be from 0.001 to 4096", p->bucket_mib);
  CVY_REQUIRE(p->bn == CVY_BN_DEVICE || p->bn == CVY_BN_SYNC || (p->bn == CVY_BN_GHOST && p->ghost >= 1),
              CVY_E_ARGUMENT, "BN groups of %d samples: must be at least 1", p->ghost);
  CVY_REQUIRE(isfinite(p->momentum) && p->momentum >= 0, CVY_E_ARGUMENT, "momentum %g: must be 0 or more",
              (double)p->momentum);
  CVY_REQUIRE(isfinite(p->weight_decay) && p->weight_decay >= 0, CVY_E_ARGUMENT, "weight decay %g: must be 0 or more",
              (double)p->weight_decay);
  if (p->conv_algo) CVY_TRY(cvy_conv_algos_parse(p->conv_algo, &team->algos));
  CVY_REQUIRE(p->math == CVY_MATH_FP32 || p->math == CVY_MATH_TF32, CVY_E_ARGUMENT, "math %d: must be fp32 or tf32",
              (int)p->math);
  CVY_REQUIRE(p->tune == CVY_TUNE_CACHED || p->tune == CVY_TUNE_OFF || p->tune == CVY_TUNE_QUICK, CVY_E_ARGUMENT,
              "tune mode %d: must be cached, off or quick", (int)p->tune);
  CVY_REQUIRE(!p->nesterov || p->momentum > 0, CVY_E_ARGUMENT, "Nesterov needs a momentum above 0");
  const bool measured = p->split == CVY_SPLIT_AUTO || p->split == CVY_SPLIT_UNLIKE;
  if (!measured && p->split != CVY_SPLIT_EVEN) {
    CVY_REQUIRE(p->split_values, CVY_E_ARGUMENT, "a split by weights or shares needs one value per device");
    team->split_values = cvy_calloc((size_t)team->n, sizeof *team->split_values);
    CVY_REQUIRE(team->split_values, CVY_E_MEMORY, "out of host memory");
    memcpy(team->split_values, p->split_values, (size_t)team->n * sizeof *team->split_values);
    p->split_values = team->split_values;
  }
  team->split = (cvy_split_params){.kind = measured ? CVY_SPLIT_EVEN : p->split, /* until there are measurements */
                                   .n_devices = team->n,
                                   .batch = p->batch,
                                   .values = team->split_values,
                                   .group = p->bn == CVY_BN_GHOST ? p->ghost : 1};
fail:
  return status;
}

/* What the layers took in the run that is resumed. */
static cvy_status read_choices(cvy_team *team, const char *dir) {
  cvy_status status = CVY_OK;
  char *text = NULL, *devices = NULL;
  CVY_TRY(cvy_checkpoint_newest_choices(dir, &text));
  if (!text) return CVY_OK;
  CVY_TRY(cvy_checkpoint_newest_devices(dir, &devices));
  team->resumed = cvy_calloc((size_t)team->n * (size_t)team->net->n_layers, sizeof *team->resumed);
  team->resumed_rows = cvy_calloc((size_t)team->n, sizeof *team->resumed_rows);
  CVY_REQUIRE(team->resumed && team->resumed_rows, CVY_E_MEMORY, "out of host memory");
  cvy_resume_rows(devices ? devices : "[]", team->devices, team->resumed_rows);
  cvy_choices_read(text, team->net, team->n, team->resumed_rows, team->resumed);
fail:
  cvy_free(text);
  cvy_free(devices);
  return status;
}

cvy_status cvy_team_check_parts(const cvy_team *team, const int *shares) {
  cvy_status status = CVY_OK;
  if (team->params.bn != CVY_BN_SYNC || team->params.inference || !team->layout->n_running) return CVY_OK;
  for (int r = 0; r < team->n; r++) {
    if (team->replicas[r].lost) continue;
    const int fit = cvy_instance_micro_batch(team->replicas[r].instance);
    CVY_REQUIRE(shares[r] <= fit, CVY_E_ARGUMENT,
                "batch normalisation over the whole batch (sync) needs each share in one pass: device %d (%s) has a share "
                "of %d samples and memory for %d at a time; expected a share of at most %d (a smaller batch, other "
                "shares, more devices), or ghost groups of at most %d samples",
                r, cvy_devices_label(team->devices, r), shares[r], fit, fit, fit);
  }
fail:
  return status;
}

cvy_status cvy_team_make_bn_sync(cvy_team *team, cvy_bn_sync **out) {
  size_t pitch = 0;
  *out = NULL;
  if (team->params.bn != CVY_BN_SYNC || team->n == 1 || !team->layout->n_running) return CVY_OK;
  for (int i = 0; i < team->layout->n_running; i++)
    if ((size_t)team->layout->running[i].pitch > pitch) pitch = (size_t)team->layout->running[i].pitch;
  return cvy_bn_sync_create(team->n, 2 * pitch, &team->lock, &team->changed, &team->halted, out);
}

static cvy_status note_choices(cvy_team *team) {
  cvy_status status = CVY_OK;
  const size_t layers = (size_t)team->net->n_layers;
  cvy_conv_choices *const table = cvy_calloc((size_t)team->n * layers, sizeof *table);
  CVY_REQUIRE(table, CVY_E_MEMORY, "out of host memory");
  for (int r = 0; r < team->n; r++)
    for (size_t l = 0; l < layers; l++)
      (void)cvy_instance_choices(team->replicas[r].instance, (int)l, &table[(size_t)r * layers + l]);
  CVY_TRY(cvy_choices_write(team->net, table, team->n, &team->choices));
fail:
  cvy_free(table);
  return status;
}

/* Which devices a team cannot be opened with, as they hang. Others may be among them that wait for a lock of their
 * driver, or of a library, which the hung one holds: from here they look the same. */
static void tell_hung(cvy_team *team) {
  pthread_mutex_lock(&team->lock);
  for (int r = 0; team->replicas && r < team->n; r++)
    if (team->replicas[r].hung)
      cvy_log_error("device %d (%s) hangs while the team is opened: choose devices without it", r,
                    cvy_devices_label(team->devices, r));
  pthread_mutex_unlock(&team->lock);
}

cvy_status cvy_team_create(const cvy_devices *devices, const cvy_net *net, const cvy_team_params *params,
                           cvy_team **out) {
  cvy_status status = CVY_OK;
  int *share_max = NULL;
  cvy_team *team = cvy_calloc(1, sizeof *team);
  *out = NULL;
  CVY_REQUIRE(team, CVY_E_MEMORY, "out of host memory");
  pthread_mutex_init(&team->lock, NULL);
  cvy_cond_init(&team->changed);
  cvy_cond_init(&team->watch_wakes);
  CVY_REQUIRE(net->finished && net->status == CVY_OK, CVY_E_ARGUMENT,
              "the network is not finished: call cvy_net_finish first");
  team->devices = devices;
  team->net = net;
  team->n = devices->n;
  CVY_TRY(take_params(team, params));
  team->layout = cvy_net_layout(net);
  if (team->params.bucket_mib > 0) {
    CVY_TRY(cvy_layout_cut(team->layout, (size_t)ceil(team->params.bucket_mib * (1 << 20) / sizeof(float)), &team->own_layout));
    team->layout = &team->own_layout;
  }
  CVY_TRY(cvy_state_create(team->layout, team->params.momentum != 0, &team->state));
  if (team->params.staleness) CVY_TRY(cvy_state_keep_before(team->state));
  share_max = cvy_calloc((size_t)team->n, sizeof *share_max);
  team->replicas = cvy_calloc((size_t)team->n, sizeof *team->replicas);
  team->full_shares = cvy_calloc((size_t)team->n, sizeof *team->full_shares);
  team->told_shares = cvy_calloc((size_t)team->n, sizeof *team->told_shares);
  team->done_shares = cvy_calloc((size_t)team->n, sizeof *team->done_shares);
  CVY_REQUIRE(share_max && team->replicas && team->full_shares && team->told_shares && team->done_shares, CVY_E_MEMORY,
              "out of host memory");
  CVY_TRY(cvy_team_balance_resume(team));
  CVY_TRY(cvy_team_find_shares(team, share_max));
  for (int i = 0; i < team->n; i++) {
    cvy_replica *const r = &team->replicas[i];
    *r = (cvy_replica){.index = i,
                       .alone = team->n == 1,
                       .rests = r->rests,
                       .no_overlap = team->params.no_overlap,
                       .no_sync = team->params.no_sync,
                       .staleness = team->params.staleness,
                       .packs = team->params.exchange == CVY_EXCHANGE_BF16 && !team->params.inference,
                       .net = net,
                       .layout = team->layout,
                       .lock = &team->lock,
                       .changed = &team->changed,
                       .team_status = &team->halted};
    char name[16];
    snprintf(name, sizeof name, "cvy-dev%d", i % 10000);
    CVY_TRY(cvy_worker_create(name, r, &r->worker));
  }
  if (team->params.resume_from) CVY_TRY(read_choices(team, team->params.resume_from));
  team->params.conv_algo = team->params.resume_from = NULL; /* borrowed for the call */
  open_args args = {.team = team, .share_max = share_max};
  CVY_TRY(cvy_team_start_watch(team));
  CVY_TRY(tune_quickly(team, &args));
  CVY_TRY(cvy_team_call_all(team, open_replica, &args));
  tell_untuned(team);
  const long cores = sysconf(_SC_NPROCESSORS_ONLN);
  CVY_TRY(cvy_pool_create(cores > 1 ? (int)(cores < 16 ? cores : 16) : 1, &team->pool));
  CVY_TRY(cvy_team_balance_start(team));
  if (!team->pace) CVY_TRY(cvy_team_check_parts(team, share_max));
  memcpy(team->done_shares, team->full_shares, (size_t)team->n * sizeof *team->done_shares);
  CVY_TRY(note_choices(team));
  if (keeps_times(team)) CVY_TRY(cvy_timeline_create(team->replicas, team->n, &team->timeline));
  for (int i = 0; i < team->n; i++) team->replicas[i].timeline = team->timeline;
  CVY_TRY(cvy_team_start_pipeline(team));
  cvy_free(share_max);
  *out = team;
  return CVY_OK;
fail:
  if (team) tell_hung(team);
  cvy_free(share_max);
  cvy_team_destroy(&team);
  return status;
}

void cvy_team_destroy(cvy_team **out) {
  cvy_team *const team = *out;
  if (!team) return;
  (void)cvy_team_trace_end(team, NULL);
  cvy_team_stop_pipeline(team);
  for (int i = 0; team->replicas && i < team->n; i++) {
    cvy_replica *const r = &team->replicas[i];
    if (!r->worker) continue;
    (void)cvy_worker_call(r->worker, close_replica, NULL);
  }
  cvy_team_stop_watch(team);
  for (int i = 0; team->replicas && i < team->n; i++) cvy_worker_destroy(&team->replicas[i].worker);
  if (team->n_hung > 0) { /* their threads may look at it at any time */
    *out = NULL;
    return;
  }
  cvy_timeline_destroy(&team->timeline);
  cvy_free(team->replicas);
  cvy_pool_destroy(&team->pool);
  cvy_state_destroy(&team->state);
  cvy_team_balance_end(team);
  cvy_layout_clear(&team->own_layout);
  cvy_free(team->split_values);
  cvy_free(team->full_shares);
  cvy_free(team->told_shares);
  cvy_free(team->done_shares);
  cvy_free(team->resumed);
  cvy_free(team->resumed_rows);
  for (int i = 0; team->tuned && i < team->n; i++) cvy_tune_table_destroy(&team->tuned[i]);
  cvy_free(team->tuned);
  cvy_free(team->choices);
  pthread_cond_destroy(&team->watch_wakes);
  pthread_cond_destroy(&team->changed);
  pthread_mutex_destroy(&team->lock);
  cvy_free(team);
  *out = NULL;
}

int cvy_team_size(const cvy_team *team) { return team->n; }

cvy_task *cvy_team_post_all(cvy_team *team, cvy_task_fn fn, void *arg) {
  cvy_task *const tasks = cvy_calloc((size_t)team->n, sizeof *tasks);
  if (!tasks) {
    cvy_log_error("out of host memory");
    return NULL;
  }
  pthread_mutex_lock(&team->lock);
  for (int i = 0; i < team->n; i++)
    if (!team->replicas[i].lost) cvy_worker_post(team->replicas[i].worker, &tasks[i], fn, arg);
  pthread_mutex_unlock(&team->lock);
  return tasks;
}

/* A task of all devices, whose errors are told once where they have one reason. */
typedef struct group_call { cvy_team *team; cvy_task_fn fn; void *arg; cvy_log_group errors; } group_call;

static cvy_status run_grouped(void *owner, void *arg) {
  const cvy_replica *const r = owner;
  group_call *const call = arg;
  cvy_log_group_enter(&call->errors, cvy_devices_label(call->team->devices, r->index));
  const cvy_status status = call->fn(owner, call->arg);
  cvy_log_group_leave();
  return status;
}

cvy_status cvy_team_call_all(cvy_team *team, cvy_task_fn fn, void *arg) {
  cvy_status status = CVY_OK;
  group_call *const call = cvy_calloc(1, sizeof *call);
  CVY_REQUIRE(call, CVY_E_MEMORY, "out of host memory");
  *call = (group_call){.team = team, .fn = fn, .arg = arg};
  cvy_task *const tasks = cvy_team_post_all(team, run_grouped, call);
  if (!tasks) status = CVY_E_MEMORY;
  for (int i = 0; tasks && i < team->n; i++) {
    if (!tasks[i].fn) continue;
    const cvy_status one = cvy_worker_wait(team->replicas[i].worker, &tasks[i]);
    if (status == CVY_OK) status = one;
  }
  cvy_free(tasks);
  pthread_mutex_lock(&team->lock);
  const bool is_over = team->n_hung == 0;   /* a thread that hangs may still use it */
  pthread_mutex_unlock(&team->lock);
  const int others = is_over ? call->errors.n_silenced : 0;
  if (others > 0) cvy_log_info("the same on %d other device%s", others, others > 1 ? "s" : "");
  if (is_over) cvy_free(call);
fail:
  return status;
}

cvy_split_params cvy_team_split_of(const cvy_team *team, int n) {
  cvy_split_params split = team->split;
  split.batch = n;
  split.group = 1;
  if (split.kind == CVY_SPLIT_SHARES) split.kind = CVY_SPLIT_WEIGHTS; /* the shares sum to the batch, not to n */
  return split;
}

const char *cvy_team_conv_choices(const cvy_team *team) { return team->choices; }

const char *cvy_conv_algo_wrong(const char *text) {
  cvy_conv_algo_list unused;
  return cvy_conv_algos_read(text, &unused);
}

bool cvy_team_replica(const cvy_team *asked, int device, cvy_replica_info *out) {
  const union { const cvy_team *in; cvy_team *out; } borrowed = {.in = asked};
  cvy_team *const team = borrowed.out; /* for its lock */
  if (device < 0 || device >= team->n) return false;
  const cvy_replica *const r = &team->replicas[device];
  *out = (cvy_replica_info){.label = cvy_devices_label(team->devices, device),
                             .lost_step = -1,
                             .compute_units = cvy_devices_units(team->devices, device),
                             .driver = cvy_devices_driver(team->devices, device)};
  pthread_mutex_lock(&team->lock);
  while (team->halted != CVY_OK && team->status == CVY_OK) /* devices are taken out, the others planned anew */
    pthread_cond_wait(&team->changed, &team->lock);
  if (r->lost) {
    out->lost_step = r->lost_step;
  } else if (r->instance) { /* a plan may have failed for a reason that ends the team */
    out->share = team->full_shares[device];
    out->micro_batch = cvy_instance_micro_batch(r->instance);
    out->device_bytes = cvy_replica_device_bytes(r);
    out->math = cvy_instance_math(r->instance);
  }
  pthread_mutex_unlock(&team->lock);
  return true;
}
