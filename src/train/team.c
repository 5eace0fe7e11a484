/* SPDX-License-Identifier: MIT
 * Outline: create and destroy · state: init, load, save, publish · reading parameters, verify · attach and evaluate. */
#include "src/train/team.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "src/base/clock.h"
#include "src/base/mem.h"
#include "src/base/text.h"
#include "src/nn/init.h"
#include "src/nn/weights.h"

/* ---- create and destroy ---- */

typedef struct open_args {
  cvy_team *team;
  int *share_max;
} open_args;

static cvy_status open_replica(void *owner, void *arg) {
  cvy_replica *const r = owner;
  const open_args *const a = arg;
  const cvy_team *const team = a->team;
  return cvy_replica_open(r,
                          &(cvy_replica_params){.list = team->devices->list,
                                                .choice = &team->devices->choices[r->index],
                                                .share_max = a->share_max[r->index],
                                                .group_size = team->params.bn == CVY_BN_GHOST ? team->params.ghost : 0,
                                                .inference = team->params.inference,
                                                .momentum = team->params.momentum != 0});
}

static cvy_status close_replica(void *owner, void *arg) {
  (void)arg;
  cvy_replica_close(owner);
  return CVY_OK;
}

/* The shares of a full batch, and the largest share that each device can get in a batch of any size up to it: rounding
 * may give a shorter batch a larger share. */
static cvy_status find_shares(cvy_team *team, int *share_max) {
  cvy_status status = CVY_OK;
  int *const shares = cvy_calloc((size_t)team->n, sizeof *shares);
  team->full_shares = cvy_calloc((size_t)team->n, sizeof *team->full_shares);
  CVY_REQUIRE(shares && team->full_shares, CVY_E_MEMORY, "out of host memory");
  CVY_TRY(cvy_split_shares(&team->split, team->params.batch, team->full_shares));
  for (int r = 0; r < team->n; r++) share_max[r] = team->split.group > 1 ? team->split.group : 1;
  for (int n = team->params.batch; n >= 1; n--) {
    CVY_TRY(cvy_split_shares(&team->split, n, shares));
    for (int r = 0; r < team->n; r++)
      if (shares[r] > share_max[r]) share_max[r] = shares[r];
  }
fail:
  cvy_free(shares);
  return status;
}

static cvy_status take_params(cvy_team *team, const cvy_team_params *given) {
  cvy_status status = CVY_OK;
  cvy_team_params *const p = &team->params;
  *p = given ? *given : (cvy_team_params){0};
  if (p->batch == 0) p->batch = 256;
  CVY_REQUIRE(p->batch >= 1, CVY_E_ARGUMENT, "batch %d: must be at least 1", p->batch);
  if (p->run_ahead == -1) p->run_ahead = 1;
  CVY_REQUIRE(p->run_ahead >= 0 && p->run_ahead <= CVY_MAX_RUN_AHEAD, CVY_E_ARGUMENT, "run-ahead %d: must be 0 to %d",
              p->run_ahead, CVY_MAX_RUN_AHEAD);
  CVY_REQUIRE(p->bn == CVY_BN_DEVICE || (p->bn == CVY_BN_GHOST && p->ghost >= 1), CVY_E_ARGUMENT,
              "BN groups of %d samples: must be at least 1", p->ghost);
  CVY_REQUIRE(isfinite(p->momentum) && p->momentum >= 0, CVY_E_ARGUMENT, "momentum %g: must be 0 or more",
              (double)p->momentum);
  CVY_REQUIRE(isfinite(p->weight_decay) && p->weight_decay >= 0, CVY_E_ARGUMENT, "weight decay %g: must be 0 or more",
              (double)p->weight_decay);
  CVY_REQUIRE(!p->nesterov || p->momentum > 0, CVY_E_ARGUMENT, "Nesterov needs a momentum above 0");
  if (p->split != CVY_SPLIT_EVEN) {
    CVY_REQUIRE(p->split_values, CVY_E_ARGUMENT, "a split by weights or shares needs one value per device");
    team->split_values = cvy_calloc((size_t)team->n, sizeof *team->split_values);
    CVY_REQUIRE(team->split_values, CVY_E_MEMORY, "out of host memory");
    memcpy(team->split_values, p->split_values, (size_t)team->n * sizeof *team->split_values);
    p->split_values = team->split_values;
  }
  team->split = (cvy_split_params){.kind = p->split,
                                   .n_devices = team->n,
                                   .batch = p->batch,
                                   .values = team->split_values,
                                   .group = p->bn == CVY_BN_GHOST ? p->ghost : 1};
fail:
  return status;
}

cvy_status cvy_team_create(const cvy_devices *devices, const cvy_net *net, const cvy_team_params *params,
                           cvy_team **out) {
  cvy_status status = CVY_OK;
  int *share_max = NULL;
  cvy_team *team = cvy_calloc(1, sizeof *team);
  *out = NULL;
  CVY_REQUIRE(team, CVY_E_MEMORY, "out of host memory");
  pthread_mutex_init(&team->lock, NULL);
  pthread_cond_init(&team->changed, NULL);
  CVY_REQUIRE(net->finished && net->status == CVY_OK, CVY_E_ARGUMENT,
              "the network is not finished: call cvy_net_finish first");
  team->devices = devices;
  team->net = net;
  team->layout = cvy_net_layout(net);
  team->n = devices->n;
  CVY_TRY(take_params(team, params));
  CVY_TRY(cvy_state_create(team->layout, team->params.momentum != 0, &team->state));
  share_max = cvy_calloc((size_t)team->n, sizeof *share_max);
  team->replicas = cvy_calloc((size_t)team->n, sizeof *team->replicas);
  CVY_REQUIRE(share_max && team->replicas, CVY_E_MEMORY, "out of host memory");
  CVY_TRY(find_shares(team, share_max));
  for (int i = 0; i < team->n; i++) {
    cvy_replica *const r = &team->replicas[i];
    *r = (cvy_replica){.index = i,
                       .alone = team->n == 1,
                       .net = net,
                       .layout = team->layout,
                       .lock = &team->lock,
                       .changed = &team->changed,
                       .team_status = &team->status};
    char name[16];
    snprintf(name, sizeof name, "cvy-dev%d", i % 10000);
    CVY_TRY(cvy_worker_create(name, r, &r->worker));
  }
  open_args args = {.team = team, .share_max = share_max};
  CVY_TRY(cvy_team_call_all(team, open_replica, &args));
  const long cores = sysconf(_SC_NPROCESSORS_ONLN);
  CVY_TRY(cvy_pool_create(cores > 1 ? (int)(cores < 16 ? cores : 16) : 1, &team->pool));
  if (!team->params.inference) CVY_TRY(cvy_team_start_pipeline(team));
  cvy_free(share_max);
  *out = team;
  return CVY_OK;
fail:
  cvy_free(share_max);
  cvy_team_destroy(&team);
  return status;
}

void cvy_team_destroy(cvy_team **out) {
  cvy_team *const team = *out;
  if (!team) return;
  cvy_team_stop_pipeline(team);
  for (int i = 0; team->replicas && i < team->n; i++) {
    cvy_replica *const r = &team->replicas[i];
    if (!r->worker) continue;
    (void)cvy_worker_call(r->worker, close_replica, NULL);
    cvy_worker_destroy(&r->worker);
  }
  cvy_free(team->replicas);
  cvy_pool_destroy(&team->pool);
  cvy_state_destroy(&team->state);
  cvy_free(team->split_values);
  cvy_free(team->full_shares);
  pthread_cond_destroy(&team->changed);
  pthread_mutex_destroy(&team->lock);
  cvy_free(team);
  *out = NULL;
}

int cvy_team_size(const cvy_team *team) { return team->n; }

cvy_status cvy_team_call_all(cvy_team *team, cvy_task_fn fn, void *arg) {
  cvy_status status = CVY_OK;
  cvy_task *const tasks = cvy_calloc((size_t)team->n, sizeof *tasks);
  if (!tasks) {
    cvy_log_error("out of host memory");
    return CVY_E_MEMORY;
  }
  for (int i = 0; i < team->n; i++) cvy_worker_post(team->replicas[i].worker, &tasks[i], fn, arg);
  for (int i = 0; i < team->n; i++) {
    const cvy_status one = cvy_worker_wait(team->replicas[i].worker, &tasks[i]);
    if (status == CVY_OK) status = one;
  }
  cvy_free(tasks);
  return status;
}

cvy_split_params cvy_team_split_of(const cvy_team *team, int n) {
  cvy_split_params split = team->split;
  split.batch = n;
  split.group = 1;
  if (split.kind == CVY_SPLIT_SHARES) split.kind = CVY_SPLIT_WEIGHTS; /* the shares sum to the batch, not to n */
  return split;
}

/* ---- state ---- */

typedef struct put_args {
  cvy_team *team;
  long step;
} put_args;

static cvy_status put_state(void *owner, void *arg) {
  const put_args *const a = arg;
  const cvy_state *const s = a->team->state;
  return cvy_replica_put_state(owner, a->step, cvy_state_w(s), s->has_momentum ? cvy_state_v(s) : NULL,
                               cvy_state_running(s));
}

cvy_status cvy_team_publish_state(cvy_team *team, long step) {
  cvy_status status = CVY_OK;
  put_args args = {.team = team, .step = step};
  CVY_TRY(cvy_team_wait(team));
  team->first_step = team->next_step = team->finished = step;
  CVY_TRY(cvy_team_call_all(team, put_state, &args));
  team->initialised = true;
  team->state_is_behind = false;
fail:
  return status;
}

static cvy_status get_state(void *owner, void *arg) {
  const cvy_state *const s = arg;
  return cvy_replica_get_state(owner, cvy_state_w(s), s->has_momentum ? cvy_state_v(s) : NULL, cvy_state_running(s));
}

cvy_status cvy_team_sync_state(cvy_team *team) {
  cvy_status status = CVY_OK;
  CVY_TRY(cvy_team_wait(team));
  if (!team->state_is_behind) return CVY_OK;
  CVY_TRY(cvy_worker_call(team->replicas[0].worker, get_state, team->state));
  team->state_is_behind = false;
fail:
  return status;
}

cvy_status cvy_team_init(cvy_team *team, const cvy_init_params *params) {
  cvy_status status = CVY_OK;
  const cvy_init_params p = params ? *params : (cvy_init_params){0};
  CVY_REQUIRE(!team->initialised || p.force, CVY_E_ARGUMENT,
              "the team is initialised already; initialising again would reset its weights: say so with .force");
  CVY_TRY(cvy_team_wait(team));
  cvy_state *const s = team->state;
  CVY_TRY(cvy_init_weights(team->layout, p.kind, p.seed, cvy_state_w(s), cvy_state_running(s)));
  if (s->has_momentum) memset(cvy_state_v(s), 0, team->layout->n_floats * sizeof(float));
  team->n_batches = 0;
  CVY_TRY(cvy_team_publish_state(team, 0));
fail:
  return status;
}

cvy_status cvy_team_load(cvy_team *team, const char *path) {
  cvy_status status = CVY_OK;
  cvy_state *const s = team->state;
  int64_t n_batches = 0;
  CVY_TRY(cvy_team_wait(team));
  CVY_TRY(cvy_weights_load(team->layout, path, cvy_state_w(s), cvy_state_running(s), &n_batches));
  if (s->has_momentum) memset(cvy_state_v(s), 0, team->layout->n_floats * sizeof(float));
  team->n_batches = n_batches;
  CVY_TRY(cvy_team_publish_state(team, 0));
fail:
  return status;
}

cvy_status cvy_team_save(cvy_team *team, const char *path) {
  cvy_status status = CVY_OK;
  CVY_REQUIRE(team->initialised, CVY_E_ARGUMENT,
              "there are no weights to save yet: call cvy_team_init or cvy_team_load first");
  CVY_TRY(cvy_team_sync_state(team));
  CVY_TRY(
      cvy_weights_save(team->layout, cvy_state_w(team->state), cvy_state_running(team->state), team->n_batches, path));
fail:
  return status;
}

/* ---- reading parameters ---- */

typedef struct read_args {
  cvy_team *team;
  float *w;
} read_args;

static cvy_status read_weights(void *owner, void *arg) {
  cvy_status status = CVY_OK;
  const read_args *const a = arg;
  CVY_TRY(cvy_replica_settle(owner, a->team->next_step));
  CVY_TRY(cvy_replica_get_state(owner, a->w, NULL, NULL));
fail:
  return status;
}

cvy_status cvy_team_param_get(cvy_team *team, int device, const char *name, float *out, size_t n_floats) {
  cvy_status status = CVY_OK;
  float *w = NULL;
  const int i = cvy_layout_find(team->layout, name);
  CVY_REQUIRE(i >= 0, CVY_E_ARGUMENT, "the network has no parameter '%s'", name);
  if (device < 0 || device >= team->n) {
    cvy_text where = {0};
    for (int r = 0; r < team->n; r++)
      cvy_text_add(&where, "%s%d (%s)", r ? ", " : "", r, cvy_devices_label(team->devices, r));
    cvy_log_error("parameter '%s' is not on device %d: it is on device%s %s", name, device, team->n > 1 ? "s" : "",
                  cvy_text_get(&where));
    cvy_text_clear(&where);
    return CVY_E_ARGUMENT;
  }
  const cvy_param *const param = &team->layout->params[i];
  CVY_REQUIRE(n_floats == param->elems, CVY_E_ARGUMENT, "parameter '%s' has %zu values, not %zu", name, param->elems,
              n_floats);
  CVY_TRY(cvy_team_wait(team));
  w = cvy_calloc(team->layout->n_floats, sizeof *w);
  CVY_REQUIRE(w, CVY_E_MEMORY, "out of host memory");
  read_args args = {.team = team, .w = w};
  CVY_TRY(cvy_worker_call(team->replicas[device].worker, read_weights, &args));
  cvy_param_to_dense(param, w, out);
fail:
  cvy_free(w);
  return status;
}

/* Name of the first tensor that differs in bits, for the message. */
static const char *first_difference(const cvy_layout *l, const float *a, const float *b) {
  for (int i = 0; i < l->n_params; i++)
    if (memcmp(a + l->params[i].offset, b + l->params[i].offset, l->params[i].size * sizeof(float)) != 0)
      return l->params[i].name;
  return "padding between tensors";
}

cvy_status cvy_team_verify(cvy_team *team) {
  cvy_status status = CVY_OK;
  float *w = NULL;
  const size_t n = team->layout->n_floats, bytes = n * sizeof(float);
  CVY_TRY(cvy_team_wait(team));
  if (team->n == 1) return CVY_OK; /* its device holds the only copy: there is nothing to diverge from */
  w = cvy_calloc(n, sizeof *w);
  CVY_REQUIRE(w, CVY_E_MEMORY, "out of host memory");
  const float *const master = cvy_state_w(team->state);
  const XXH64_hash_t want = XXH64(master, bytes, 0);
  read_args args = {.team = team, .w = w};
  for (int r = 0; r < team->n; r++) {
    CVY_TRY(cvy_worker_call(team->replicas[r].worker, read_weights, &args));
    const XXH64_hash_t got = XXH64(w, bytes, 0);
    CVY_REQUIRE(got == want, CVY_E_DIVERGED,
                "after step %ld the weights on device %d (%s) are not the team's: first difference in '%s' (hash "
                "%016llx, not %016llx)",
                team->finished - 1, r, cvy_devices_label(team->devices, r), first_difference(team->layout, master, w),
                (unsigned long long)got, (unsigned long long)want);
  }
fail:
  cvy_free(w);
  return status;
}

bool cvy_team_replica(const cvy_team *team, int device, cvy_replica_info *out) {
  if (device < 0 || device >= team->n) return false;
  const cvy_replica *const r = &team->replicas[device];
  *out = (cvy_replica_info){.label = cvy_devices_label(team->devices, device),
                            .share = team->full_shares[device],
                            .micro_batch = cvy_instance_micro_batch(r->instance),
                            .device_bytes = cvy_replica_device_bytes(r)};
  return true;
}

/* ---- data and evaluation ---- */

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
  CVY_TRY(cvy_team_wait(team));
  union {
    const cvy_data *in;
    void *out;
  } borrowed = {.in = data};
  CVY_TRY(cvy_team_call_all(team, attach, borrowed.out));
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
  for (int i = 0; i < r->index; i++) first += a->shares[i];
  CVY_TRY(cvy_replica_settle(r, a->team->next_step));
  CVY_TRY(cvy_replica_evaluate(r, a->on_train, first, a->shares[r->index], &a->loss[r->index], &a->correct[r->index]));
fail:
  return status;
}

cvy_status cvy_team_evaluate(cvy_team *team, bool on_train, cvy_eval_result *out) {
  cvy_status status = CVY_OK;
  eval_args a = {.team = team, .on_train = on_train};
  *out = (cvy_eval_result){0};
  CVY_REQUIRE(team->data, CVY_E_ARGUMENT, "there is no data to evaluate on: call cvy_team_attach first");
  CVY_REQUIRE(team->initialised, CVY_E_ARGUMENT,
              "there are no weights to evaluate: call cvy_team_init or cvy_team_load first");
  const int n = on_train ? team->data->train.n : team->data->test.n;
  CVY_REQUIRE(n > 0, CVY_E_ARGUMENT, "data set %s has no %s samples", team->data->name, on_train ? "training" : "test");
  CVY_TRY(cvy_team_wait(team));
  const uint64_t start = cvy_clock_ns();
  a.shares = cvy_calloc((size_t)team->n, sizeof *a.shares);
  a.loss = cvy_calloc((size_t)team->n, sizeof *a.loss);
  a.correct = cvy_calloc((size_t)team->n, sizeof *a.correct);
  CVY_REQUIRE(a.shares && a.loss && a.correct, CVY_E_MEMORY, "out of host memory");
  const cvy_split_params by_sample = cvy_team_split_of(team, n);
  CVY_TRY(cvy_split_shares(&by_sample, n, a.shares));
  CVY_TRY(cvy_team_call_all(team, evaluate, &a));
  long correct = 0;
  for (int r = 0; r < team->n; r++) {
    out->loss += a.loss[r] / n;
    correct += a.correct[r];
  }
  out->images = n;
  out->correct = (int)correct;
  out->accuracy = (double)correct / n;
  out->seconds = cvy_clock_seconds_since(start);
fail:
  cvy_free(a.shares);
  cvy_free(a.loss);
  cvy_free(a.correct);
  return status;
}
