/* SPDX-License-Identifier: MIT
 * The team's weights: first values, files, reading them from a device, and comparing all devices. */
#include <math.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "src/base/mem.h"
#include "src/base/text.h"
#include "src/nn/init.h"
#include "src/nn/model_info.h"
#include "src/nn/weights.h"
#include "src/team/publish.h"
#include "src/team/team_weights.h"

/* Those of an optimiser that has made no update. */
static void clear_moments(const cvy_team *team) {
  for (int m = 0; m < cvy_ledger_moments(team->ledger); m++)
    memset(cvy_ledger_moment(team->ledger, m), 0, team->layout->n_floats * sizeof(float));
}

cvy_status cvy_team_init(cvy_team *team, const cvy_init_params *params) {
  cvy_status status = CVY_OK;
  const cvy_init_params p = params ? *params : (cvy_init_params){0};
  CVY_REQUIRE(!cvy_ledger_is_initialised(team->ledger) || p.force, CVY_E_ARGUMENT,
              "the team is already initialised; set .force to reset its weights");
  CVY_TRY(cvy_ring_wait(team->ring));
  cvy_ledger *const l = team->ledger;
  CVY_TRY(cvy_init_weights(team->layout, p.kind, p.seed, cvy_ledger_w(l), cvy_ledger_running(l)));
  clear_moments(team);
  cvy_ledger_set_batches(l, 0);
  CVY_TRY(cvy_team_publish(team, 0));
fail:
  return status;
}

static cvy_status load(cvy_team *team, const char *path, cvy_globs *skip) {
  cvy_status status = CVY_OK;
  cvy_ledger *const l = team->ledger;
  int64_t n_batches = 0;
  CVY_TRY(cvy_ring_wait(team->ring));
  const bool allow_nan = team->params.allow_nan || team->params.inference;
  CVY_TRY(
      cvy_weights_load_except(team->layout, path, allow_nan, skip, cvy_ledger_w(l), cvy_ledger_running(l), &n_batches));
  clear_moments(team);
  cvy_ledger_set_batches(l, n_batches);
  CVY_TRY(cvy_team_publish(team, 0));
fail:
  return status;
}

cvy_status cvy_team_describe(cvy_team *team, const cvy_model_info *info) {
  cvy_status status = CVY_OK;
  const cvy_shape *const in = &team->net->layers[0].shape;
  char *text = NULL;
  if (info) {
    CVY_REQUIRE(info->channels == in->c && info->height == in->h && info->width == in->w, CVY_E_MISMATCH,
                "the metadata has an input of %dx%dx%d (channels, height, width), the network %dx%dx%d", info->channels,
                info->height, info->width, in->c, in->h, in->w);
    CVY_REQUIRE(info->classes == cvy_net_classes(team->net), CVY_E_MISMATCH,
                "the metadata has %d classes, the network %d", info->classes, cvy_net_classes(team->net));
    CVY_TRY(cvy_model_info_write(info, &text));
  }
  cvy_ledger_take_model_info(team->ledger, text);
fail:
  return status;
}

cvy_status cvy_team_load(cvy_team *team, const char *path) { return load(team, path, NULL); }

cvy_status cvy_team_load_except(cvy_team *team, const char *path, const char *globs) {
  cvy_status status = CVY_OK;
  cvy_globs skip = {0};
  CVY_REQUIRE(cvy_ledger_is_initialised(team->ledger), CVY_E_ARGUMENT,
              "there are no weights to keep (%s): call cvy_team_init first", globs);
  CVY_TRY(cvy_team_sync(team)); /* a lone device has the weights */
  CVY_TRY(cvy_globs_read("init-skip", globs, false, &skip));
  CVY_TRY(load(team, path, &skip));
fail:
  cvy_globs_clear(&skip);
  return status;
}

cvy_status cvy_team_save(cvy_team *team, const char *path) {
  cvy_status status = CVY_OK;
  CVY_REQUIRE(cvy_ledger_is_initialised(team->ledger), CVY_E_ARGUMENT,
              "there are no weights to save yet: call cvy_team_init or cvy_team_load first");
  CVY_REQUIRE(!team->params.no_sync, CVY_E_ARGUMENT,
              "a team without exchange (no_sync) does not train: its weights are not saved");
  status = cvy_team_sync(team);
  if (status != CVY_OK && cvy_roster_ended_by_devices(team->roster)) {
    cvy_log_warning("%s: the weights after %ld steps, the newest complete ones", path, cvy_ledger_steps(team->ledger));
    status = CVY_OK;
  }
  CVY_TRY(status);
  CVY_TRY(cvy_weights_save(team->layout, cvy_ledger_w(team->ledger), cvy_ledger_running(team->ledger),
                           cvy_ledger_batches_in(team->ledger), cvy_ledger_model_info(team->ledger), path));
fail:
  return status;
}

/* ---- parameters ---- */

typedef struct read_args {
  cvy_team *team;
  float *w;
} read_args;

static cvy_status read_weights(void *device, void *arg) {
  cvy_status status = CVY_OK;
  cvy_replica *const r = device;
  read_args *const a = arg;
  float *w = cvy_calloc(r->setup.layout->n_floats, sizeof *w);
  CVY_REQUIRE(w, CVY_E_MEMORY, "out of host memory");
  CVY_TRY(cvy_team_settle(a->team, r));
  CVY_TRY(cvy_replica_fns.get(r, w, NULL, NULL));
  a->w = w;
  return CVY_OK;
fail:
  cvy_free(w);
  return status;
}

/* Reads device i's weights into *w, which the caller frees. NULL: the device is lost, in this call or before; the
 * ledger has the same bits. Waits for steps under way. */
static cvy_status get_weights(cvy_team *team, int i, float **w) {
  cvy_status status = CVY_OK;
  read_args args = {.team = team};
  bool there;
  *w = NULL;
  CVY_TRY(cvy_team_sync_for_all(team));
  CVY_TRY(cvy_team_call(team, i, read_weights, &args, &there));
  *w = args.w;
fail:
  return status;
}

cvy_status cvy_team_find_param(const cvy_team *team, const char *name, size_t n_floats, const cvy_param **out) {
  cvy_status status = CVY_OK;
  const int i = cvy_layout_find(team->layout, name);
  CVY_REQUIRE(i >= 0, CVY_E_ARGUMENT, "the network has no parameter '%s'", name);
  const cvy_param *const param = *out = &team->layout->params[i];
  CVY_REQUIRE(n_floats == param->elems, CVY_E_ARGUMENT, "parameter '%s' has %zu values; got %zu", name, param->elems,
              n_floats);
fail:
  return status;
}

cvy_status cvy_team_param_get(cvy_team *team, int device, const char *name, float *out, size_t n_floats) {
  cvy_status status = CVY_OK;
  float *w = NULL;
  const cvy_param *param;
  const int n = cvy_roster_size(team->roster);
  CVY_TRY(cvy_team_find_param(team, name, n_floats, &param));
  if (device < 0 || device >= n) {
    cvy_text where = {0};
    for (int r = 0; r < n; r++) cvy_text_add(&where, "%s%d (%s)", r ? ", " : "", r, cvy_roster_label(team->roster, r));
    cvy_log_error("parameter '%s' is not on device %d: it is on device%s %s", name, device, n > 1 ? "s" : "",
                  cvy_text_get(&where));
    cvy_text_clear(&where);
    return CVY_E_ARGUMENT;
  }
  CVY_TRY(get_weights(team, device, &w));
  if (!w)
    cvy_log_warning("parameter '%s': device %d (%s) is lost; the values are those of the other devices", name, device,
                    cvy_roster_label(team->roster, device));
  cvy_param_to_dense(param, w ? w : cvy_ledger_w(team->ledger), out);
fail:
  cvy_free(w);
  return status;
}

cvy_status cvy_team_param_set(cvy_team *team, const char *name, const float *values, size_t n_floats) {
  cvy_status status = CVY_OK;
  const cvy_param *param;
  const bool allow_nan = team->params.allow_nan || team->params.inference;
  CVY_TRY(cvy_team_find_param(team, name, n_floats, &param));
  CVY_REQUIRE(cvy_ledger_is_initialised(team->ledger), CVY_E_ARGUMENT,
              "there are no weights to change: call cvy_team_init or cvy_team_load first");
  CVY_REQUIRE(!param->fixed, CVY_E_ARGUMENT, "'%s' is a constant of the network, not a parameter", name);
  CVY_REQUIRE(!team->params.no_sync, CVY_E_ARGUMENT,
              "a team without exchange (no_sync) does not train: its parameters are not set");
  for (size_t i = 0; i < n_floats && !allow_nan; i++)
    CVY_REQUIRE(isfinite(values[i]), CVY_E_NOT_FINITE, "value %zu for parameter '%s' is %g; expected finite numbers", i,
                name, (double)values[i]);
  CVY_TRY(cvy_team_sync(team));
  cvy_param_to_flat(param, values, cvy_ledger_w(team->ledger));
  if (cvy_ledger_previous(team->ledger)) cvy_param_to_flat(param, values, cvy_ledger_previous(team->ledger));
  CVY_TRY(cvy_team_publish(team, cvy_ring_next_number(team->ring)));
fail:
  return status;
}

/* Name of the first tensor that differs in bits, for the message. */
static const char *first_difference(const cvy_layout *l, const float *a, const float *b) {
  for (int i = 0; i < l->n_params; i++)
    if (memcmp(a + l->params[i].offset, b + l->params[i].offset, l->params[i].size * sizeof(float)) != 0)
      return l->params[i].name;
  return "padding between tensors";
}

typedef struct node_hashes {
  int rank;
  uint64_t own, all[CVY_NODES_MOST];
} node_hashes;

static void add_hash(void *user, void *data) {
  const node_hashes *const h = user;
  ((uint64_t *)data)[h->rank] = h->own;
}

/* Every node of the fleet has the weights whose hash is `own` here. */
static cvy_status verify_nodes(cvy_team *team, uint64_t own) {
  cvy_status status = CVY_OK;
  const cvy_fleet *const fleet = team->params.fleet;
  node_hashes h = {.rank = cvy_fleet_rank(fleet), .own = own};
  for (bool again = true; again;) {
    uint32_t round;
    CVY_TRY(cvy_chain_settle(cvy_team_chain(team), &round));
    CVY_TRY(cvy_chain_reduce(cvy_team_chain(team), round, h.all, sizeof h.all, add_hash, &h, &again));
  }
  for (int r = 0; r < cvy_fleet_size(fleet); r++)
    CVY_REQUIRE(!cvy_fleet_has(fleet, r) || h.all[r] == own, CVY_E_DIVERGED,
                "after step %ld the weights of node %d (%s) are not those of node %d (%s): hash %016llx, not %016llx",
                cvy_ring_finished(team->ring) - 1, r, cvy_fleet_name(fleet, r), h.rank, cvy_fleet_name(fleet, h.rank),
                (unsigned long long)h.all[r], (unsigned long long)own);
fail:
  return status;
}

cvy_status cvy_team_verify(cvy_team *team) {
  cvy_status status = CVY_OK;
  float *w = NULL;
  const size_t n = team->layout->n_floats, bytes = n * sizeof(float);
  CVY_TRY(cvy_ring_wait(team->ring));
  if (cvy_team_is_alone(team)) return CVY_OK; /* its device holds the only copy */
  CVY_TRY(cvy_team_sync(team));
  const float *const master = cvy_ledger_w(team->ledger);
  const XXH64_hash_t want = XXH64(master, bytes, 0);
  for (int r = 0; r < cvy_roster_size(team->roster); r++) {
    CVY_TRY(get_weights(team, r, &w));
    if (!w) continue;
    const XXH64_hash_t got = XXH64(w, bytes, 0);
    CVY_REQUIRE(got == want, CVY_E_DIVERGED,
                "after step %ld the weights on device %d (%s) are not the team's: first difference in '%s' (hash "
                "%016llx, not %016llx)",
                cvy_ring_finished(team->ring) - 1, r, cvy_roster_label(team->roster, r),
                first_difference(team->layout, master, w), (unsigned long long)got, (unsigned long long)want);
    cvy_free(w);
    w = NULL;
  }
  if (cvy_team_chain(team)) CVY_TRY(verify_nodes(team, want));
fail:
  cvy_free(w);
  return status;
}
