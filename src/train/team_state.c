/* SPDX-License-Identifier: MIT
 * The team's weights: first values, files, copies on the devices, and whether these are all the same. */
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "src/base/mem.h"
#include "src/base/text.h"
#include "src/nn/init.h"
#include "src/nn/weights.h"
#include "src/train/team.h"

typedef struct put_args {
  cvy_team *team;
  long step;
} put_args;

static cvy_status put_state(void *owner, void *arg) {
  const put_args *const a = arg;
  const cvy_state *const s = a->team->state;
  const cvy_status status = cvy_replica_put_state(owner, a->step, cvy_state_w(s), s->before,
                                                  s->has_momentum ? cvy_state_v(s) : NULL, cvy_state_running(s));
  return status == CVY_OK && a->step == 0 ? cvy_replica_put_rest(owner, NULL) : status;
}

cvy_status cvy_team_settle(cvy_team *team, cvy_replica *r) {
  cvy_status status = CVY_OK;
  put_args args = {.team = team, .step = team->next_step};
  if (r->rests && !r->no_sync && r->mail && r->mail[0].upload_step < team->next_step) CVY_TRY(put_state(r, &args));
  CVY_TRY(cvy_replica_settle(r, team->next_step));
fail:
  return status;
}

cvy_status cvy_team_publish_state(cvy_team *team, long step) {
  cvy_status status = CVY_OK;
  put_args args = {.team = team, .step = step};
  CVY_TRY(cvy_team_wait(team));
  pthread_mutex_lock(&team->lock);   /* the exchange thread compares the last two */
  team->first_step = team->next_step = team->finished = step;
  pthread_mutex_unlock(&team->lock);
  if (step == 0 && team->state->before) /* the first step has nothing older to start from */
    memcpy(team->state->before, cvy_state_w(team->state), team->layout->n_floats * sizeof(float));
  CVY_TRY(cvy_team_do_all(team, put_state, &args));
  team->initialised = true;
  team->state_step = step;
  team->state_batches = team->n_batches;
  team->state_is_behind = false;
fail:
  return status;
}

/* Into the next generation: a device that fails meanwhile leaves this one whole. */
static cvy_status get_state(void *owner, void *arg) {
  const cvy_state *const s = arg;
  const int next = (int)((s->generation + 1) & 1);
  return cvy_replica_get_state(owner, s->w[next], s->has_momentum ? s->v[next] : NULL, s->running[next]);
}

cvy_status cvy_team_sync_state(cvy_team *team) {
  cvy_status status = CVY_OK;
  CVY_TRY(cvy_team_wait(team));
  if (!team->state_is_behind) return CVY_OK;
  status = cvy_worker_call(team->replicas[0].worker, get_state, team->state);
  if (status != CVY_OK) {
    cvy_team_fail_replica(team, &team->replicas[0], status);
    return cvy_team_wait(team);
  }
  cvy_state_advance(team->state);
  team->state_step = team->finished;
  team->state_batches = team->n_batches;
  team->state_is_behind = false;
fail:
  return status;
}

/* ---- what rounding has left of gradients that cross as bfloat16 ---- */

void cvy_team_free_rests(const cvy_team *team, float ***rests) {
  for (int r = 0; *rests && r < team->n; r++) cvy_free((*rests)[r]);
  cvy_free(*rests);
  *rests = NULL;
}

/* What a driver reads and writes is the worker's: it stays with a thread that hangs. */
static cvy_status get_rest(void *owner, void *arg) {
  cvy_status status = CVY_OK;
  const cvy_replica *const r = owner;
  float **const out = arg, *rest = cvy_calloc(r->layout->n_floats, sizeof *rest);
  CVY_REQUIRE(rest, CVY_E_MEMORY, "out of host memory for what rounding has left of the gradients");
  CVY_TRY(cvy_replica_get_rest(owner, rest));
  *out = rest;
  rest = NULL;
fail:
  cvy_free(rest);
  return status;
}

static cvy_status put_rest(void *owner, void *arg) {
  cvy_status status = CVY_OK;
  const cvy_replica *const r = owner;
  const float *const from = arg;
  float *const rest = from ? cvy_calloc(r->layout->n_floats, sizeof *rest) : NULL;
  CVY_REQUIRE(rest || !from, CVY_E_MEMORY, "out of host memory for what rounding has left of the gradients");
  if (from) memcpy(rest, from, r->layout->n_floats * sizeof *rest);
  CVY_TRY(cvy_replica_put_rest(owner, rest));
fail:
  cvy_free(rest);
  return status;
}

cvy_status cvy_team_get_rests(cvy_team *team, float ***out) {
  cvy_status status = CVY_OK;
  *out = NULL;
  CVY_TRY(cvy_team_wait(team));
  if (team->params.exchange != CVY_EXCHANGE_BF16) return CVY_OK;
  *out = cvy_calloc((size_t)team->n, sizeof **out);
  CVY_REQUIRE(*out, CVY_E_MEMORY, "out of host memory");
  for (int r = 0; r < team->n; r++) {
    if (team->replicas[r].lost) continue;
    status = cvy_worker_call(team->replicas[r].worker, get_rest, &(*out)[r]);
    if (status == CVY_OK) continue;
    cvy_team_fail_replica(team, &team->replicas[r], status); /* then all are dropped */
    cvy_team_free_rests(team, out);
    return cvy_team_wait(team);
  }
fail:
  if (status != CVY_OK) cvy_team_free_rests(team, out);
  return status;
}

cvy_status cvy_team_put_rests(cvy_team *team, float *const *rests) {
  cvy_status status = CVY_OK;
  CVY_TRY(cvy_team_wait(team));
  for (int r = 0; r < team->n && team->params.exchange == CVY_EXCHANGE_BF16; r++) {
    if (team->replicas[r].lost) continue;
    status = cvy_worker_call(team->replicas[r].worker, put_rest, rests ? rests[r] : NULL);
    if (status == CVY_OK) continue;
    cvy_team_fail_replica(team, &team->replicas[r], status); /* then all are dropped */
    return cvy_team_wait(team);
  }
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
  const bool allow_nan = team->params.allow_nan || team->params.inference;
  CVY_TRY(cvy_weights_load(team->layout, path, allow_nan, cvy_state_w(s), cvy_state_running(s), &n_batches));
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
  CVY_REQUIRE(!team->params.no_sync, CVY_E_ARGUMENT,
              "a team without exchange (no_sync) does not train: its weights are not saved");
  status = cvy_team_sync_state(team);
  if (status != CVY_OK && team->device_failed) {
    cvy_log_warning("%s: the weights as they were after %ld steps, the newest that are whole", path, team->state_step);
    status = CVY_OK;
  }
  CVY_TRY(status);
  CVY_TRY(cvy_weights_save(team->layout, cvy_state_w(team->state), cvy_state_running(team->state), team->state_batches,
                           path));
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
  cvy_replica *const r = owner;
  read_args *const a = arg;
  float *w = cvy_calloc(r->layout->n_floats, sizeof *w);
  CVY_REQUIRE(w, CVY_E_MEMORY, "out of host memory");
  CVY_TRY(cvy_team_settle(a->team, r));
  CVY_TRY(cvy_replica_get_state(r, w, NULL, NULL));
  a->w = w;
  w = NULL;
fail:
  cvy_free(w);
  return status;
}

/* *w: what the device holds; the caller frees it. NULL: the device is lost, at this or before, and the others hold what is in
 * the state, whose bits are the same. Waits. */
static cvy_status get_weights(cvy_team *team, cvy_replica *r, float **w) {
  cvy_status status = CVY_OK;
  read_args args = {.team = team};
  *w = NULL;
  CVY_TRY(cvy_team_wait(team));
  if (r->lost) return CVY_OK;
  status = cvy_worker_call(r->worker, read_weights, &args);
  if (status == CVY_OK) {
    *w = args.w;
  } else {
    cvy_team_fail_replica(team, r, status);
    status = cvy_team_wait(team);
  }
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
  CVY_TRY(get_weights(team, &team->replicas[device], &w));
  if (!w)
    cvy_log_warning("parameter '%s': device %d (%s) is lost, what is given is what the others hold", name, device,
                    cvy_devices_label(team->devices, device));
  cvy_param_to_dense(param, w ? w : cvy_state_w(team->state), out);
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
  const float *const master = cvy_state_w(team->state);
  const XXH64_hash_t want = XXH64(master, bytes, 0);
  for (int r = 0; r < team->n; r++) {
    CVY_TRY(get_weights(team, &team->replicas[r], &w));
    if (!w) continue;
    const XXH64_hash_t got = XXH64(w, bytes, 0);
    CVY_REQUIRE(got == want, CVY_E_DIVERGED,
                "after step %ld the weights on device %d (%s) are not the team's: first difference in '%s' (hash "
                "%016llx, not %016llx)",
                team->finished - 1, r, cvy_devices_label(team->devices, r), first_difference(team->layout, master, w),
                (unsigned long long)got, (unsigned long long)want);
    cvy_free(w);
    w = NULL;
  }
fail:
  cvy_free(w);
  return status;
}
