/* SPDX-License-Identifier: MIT
 * Outline: one device's passes · its exchange · the host's work · rounds over all devices · alike. */
#include "src/team/calibrate.h"

#include <math.h>
#include <string.h>

#include "src/base/clock.h"
#include "src/base/mem.h"
#include "src/nn/init.h"
#include "src/team/noted_devices.h"
#include "src/team/opening.h"
#include "src/team/publish.h"

enum {
  FEW = 8, /* samples of the smallest size */
  SIZES = 3,
  LEAST_PASSES = 2,
  MOST_PASSES = 64,
};
/* All devices together measure a size for at least so long. */
static const double ROUND_S = 0.15;
/* A pass that takes so long is measured once. */
static const double LONG_S = 0.7;
/* A pass that takes so many times longer than expected is measured again. */
static const double SURPRISE = 1.3;

typedef struct round_args {
  cvy_team *team;
  const cvy_pace *pace;
  int *n;         /* samples per pass of each device, 0: does not take part */
  double seconds; /* at least */
  double *pass_s; /* out: the shortest pass, 0 if it took no part */
} round_args;

/* ---- one device ---- */

static cvy_status run_pass(cvy_replica *r, int n, const cvy_team *team) {
  cvy_status status = CVY_OK;
  const bool training = !team->params.inference;
  const cvy_pass pass = {.n = n,
                         .batch = n,
                         .samples = cvy_instance_labels(r->instance), /* dropped values do not affect the time */
                         .group_size = team->params.bn == CVY_BN_GHOST && training ? team->params.ghost : 0};
  CVY_TRY(cvy_instance_forward(r->instance, &pass, training));
  CVY_TRY(cvy_instance_loss(r->instance, &pass, training));
  if (training) CVY_TRY(cvy_instance_backward(r->instance, &pass));
  CVY_TRY(cvy_queue_finish(cvy_device_compute_queue(r->device)));
fail:
  return status;
}

/* The shortest pass shows the device's speed: the first pass of a size may compile kernels or touch memory for the
 * first time, and other programs slow some passes down. A long pass is measured once. */
static cvy_status measure_passes(void *device, void *arg) {
  cvy_status status = CVY_OK;
  cvy_replica *const r = device;
  const round_args *const a = arg;
  const int n = a->n[r->setup.index];
  double shortest = INFINITY;
  a->pass_s[r->setup.index] = 0;
  if (n == 0) return CVY_OK;
  const uint64_t start = cvy_clock_ns();
  for (int passes = 0; passes < MOST_PASSES; passes++) {
    const double elapsed = cvy_clock_seconds_since(start);
    if (passes > 0 && elapsed >= a->seconds && (passes > LEAST_PASSES || elapsed >= LONG_S)) break;
    const uint64_t begin = cvy_clock_ns();
    CVY_TRY(run_pass(r, n, a->team));
    shortest = fmin(shortest, cvy_clock_seconds_since(begin));
  }
  a->pass_s[r->setup.index] = shortest;
fail:
  return status;
}

/* Fills the input with differing values: some devices are faster, or draw less power, on zeros. */
static cvy_status fill_images(void *device, void *arg) {
  cvy_status status = CVY_OK;
  cvy_replica *const r = device;
  cvy_buffer *const input = cvy_instance_input(r->instance);
  cvy_queue *const queue = cvy_device_compute_queue(r->device);
  const size_t n = cvy_buffer_size(input) / sizeof(float);
  float *const x = cvy_calloc(n, sizeof *x);
  (void)arg;
  CVY_REQUIRE(x, CVY_E_MEMORY, "out of host memory");
  uint32_t random = 1;
  for (size_t i = 0; i < n; i++) {
    random = random * 1664525u + 1013904223u;
    x[i] = (float)(random >> 8) / (float)(1 << 24);
  }
  CVY_TRY(cvy_buffer_write(queue, input, 0, n * sizeof *x, x, NULL, NULL));
  CVY_TRY(cvy_buffer_fill(queue, cvy_instance_labels(r->instance), 0, cvy_buffer_size(cvy_instance_labels(r->instance)),
                          0));
fail:
  cvy_free(x);
  return status;
}

/* The second round counts: the first one touches memory for the first time. */
static cvy_status measure_exchange(void *device, void *arg) {
  cvy_status status = CVY_OK;
  cvy_replica *const r = device;
  const round_args *const a = arg;
  const float *const w = cvy_ledger_w(a->team->ledger);
  CVY_TRY(cvy_replica_stage_all(r, w));
  for (int round = 0; round < 2; round++) {
    const uint64_t start = cvy_clock_ns();
    CVY_TRY(cvy_replica_cross(r, w));
    a->pass_s[r->setup.index] = cvy_clock_seconds_since(start);
  }
fail:
  return status;
}

/* ---- the host's work ---- */

/* Seconds of adding up a part from each device and of the update, into the generation that is not the truth and into
 * the memory from which the devices' weights are uploaded. No upload is under way. */
static cvy_status measure_host(cvy_team *team, double *seconds) {
  cvy_status status = CVY_OK;
  const int n_devices = cvy_roster_size(team->roster);
  const cvy_layout *const l = team->layout;
  const cvy_update_params update = cvy_team_update(&team->params, 0, 1);
  const bool packs = team->params.exchange == CVY_EXCHANGE_BF16;
  const void **const parts = cvy_calloc((size_t)n_devices, sizeof *parts);
  float **const copies = cvy_calloc((size_t)n_devices, sizeof *copies);
  uint16_t *const packed = cvy_calloc(packs ? l->n_floats : 1, sizeof *packed);
  CVY_REQUIRE(parts && copies && packed, CVY_E_MEMORY, "out of host memory");
  /* pages that were never written would share one page of memory */
  memset(packed, 0, (packs ? l->n_floats : 1) * sizeof *packed);
  for (int round = 0; round < 2; round++) {
    const uint64_t start = cvy_clock_ns();
    for (int b = 0; b < l->n_buckets; b++) {
      const size_t at = l->buckets[b].offset, size = l->buckets[b].size;
      const void *const part = packs ? (void *)(packed + at) : cvy_ledger_w(team->ledger) + at;
      int n_copies = 0;
      for (int i = 0; i < n_devices; i++) {
        float *const staged = cvy_replica_fns.stage(&team->replicas[i], b, 0);
        parts[i] = part;
        if (staged) copies[n_copies++] = staged;
      }
      cvy_ledger_update(team->ledger, team->pool, &update,
                        &(cvy_ledger_piece){.offset = at,
                                            .size = size,
                                            .parts = parts,
                                            .n_parts = n_devices,
                                            .packed = packs,
                                            .scale = 1,
                                            .copies = copies,
                                            .n_copies = n_copies});
    }
    *seconds = cvy_clock_seconds_since(start);
  }
fail:
  cvy_free(parts);
  cvy_free(copies);
  cvy_free(packed);
  return status;
}

/* ---- all devices ---- */

/* Samples that each device can be given in one pass: as many as were planned, or, if these fit, up to a whole batch. */
static cvy_status find_caps(cvy_team *team, cvy_pace *pace) {
  cvy_status status = CVY_OK;
  for (int i = 0; i < cvy_roster_size(team->roster); i++) {
    int most;
    CVY_TRY(cvy_instance_room(team->replicas[i].instance, pace->params.batch, &most));
    pace->devices[i].cap = most < pace->params.batch ? most : -1;
  }
fail:
  return status;
}

/* Rounds n down to whole BN groups: a group cut short may have too few samples for statistics. */
static int whole_groups(const cvy_pace *pace, int n) {
  const int group = pace->params.group > 1 ? pace->params.group : 1;
  return n > group ? n - n % group : n;
}

/* The largest size takes about CVY_CALIBRATE_PASS_S, by the time of the smallest, and fits the plan. */
static int largest_size(const cvy_replica *r, int few, double seconds) {
  const int room = cvy_instance_micro_batch(r->instance), limit = room < r->share_max ? room : r->share_max;
  const double n = seconds > 0 ? few * CVY_CALIBRATE_PASS_S / seconds : few;
  return n < 2 * few ? (2 * few < limit ? 2 * few : limit) : n > limit ? limit : (int)n;
}

int cvy_calibrate_few(const cvy_pace *pace) {
  const int group = pace->params.group > 1 ? pace->params.group : 1;
  return cvy_ceil_div(FEW, group) * group;
}

static cvy_status measure_sizes(cvy_team *team, cvy_pace *pace, round_args *a) {
  cvy_status status = CVY_OK;
  const int n_devices = cvy_roster_size(team->roster);
  int *const few = cvy_calloc(2 * (size_t)n_devices, sizeof *few);
  int *const most = few + n_devices;
  CVY_REQUIRE(few, CVY_E_MEMORY, "out of host memory");
  for (int i = 0; i < n_devices; i++) {
    const cvy_replica *const r = &team->replicas[i];
    const int wanted = cvy_calibrate_few(pace), room = cvy_instance_micro_batch(r->instance);
    few[i] = wanted < room ? wanted : whole_groups(pace, room);
  }
  memcpy(a->n, few, (size_t)n_devices * sizeof *few);
  a->seconds = 0;
  CVY_TRY(cvy_roster_call_all(team->roster, measure_passes, a)); /* compiles */
  a->seconds = ROUND_S;
  for (int size = 0; size < SIZES; size++) {
    CVY_TRY(cvy_roster_call_all(team->roster, measure_passes, a));
    for (int i = 0; i < n_devices; i++) {
      cvy_pace_add_point(pace, i, a->n[i], a->pass_s[i]);
      if (size == 0) most[i] = whole_groups(pace, largest_size(&team->replicas[i], few[i], a->pass_s[i]));
      /* the geometric mean, then the largest */
      a->n[i] = size == 0 ? whole_groups(pace, (int)(sqrt((double)few[i] * most[i]) + 0.5)) : most[i];
    }
  }
fail:
  cvy_free(few);
  return status;
}

static cvy_status measure_all(cvy_team *team, cvy_pace *pace, round_args *a) {
  cvy_status status = CVY_OK;
  const int n_devices = cvy_roster_size(team->roster);
  CVY_TRY(measure_sizes(team, pace, a));
  CVY_TRY(find_caps(team, pace));
  if (team->params.inference) return CVY_OK;
  double host_s;
  CVY_TRY(cvy_roster_call_all(team->roster, measure_exchange, a));
  CVY_TRY(measure_host(team, &host_s));
  /* Nothing hides the exchange of the last bucket, which backward finishes last, unless the next step does not wait for
   * it. */
  const cvy_layout *const l = team->layout;
  const bool stale = team->params.staleness > 0;
  const double last = stale ? 0 : (double)l->buckets[l->n_buckets - 1].size / (double)cvy_layout_trained(l);
  for (int i = 0; i < n_devices; i++) {
    pace->devices[i].stale = stale;
    pace->devices[i].exchange_s = a->pass_s[i] + host_s;
    pace->devices[i].tail_s = last * (a->pass_s[i] + host_s);
  }
  pace->params.part_s = last * host_s / n_devices;
fail:
  return status;
}

static cvy_status put_state(void *device, void *arg) {
  const cvy_generation truth = cvy_ledger_generation(arg, 0);
  return cvy_replica_fns.put(device, &truth);
}

/* The ledger's weights on all devices; there are no steps yet. */
static cvy_status put_all(cvy_team *team) { return cvy_roster_call_all(team->roster, put_state, team->ledger); }

/* Calls `measure` with random weights on all devices, and sets them to zero afterwards. */
static cvy_status with_weights(cvy_team *team, cvy_pace *pace, const int *shares,
                               cvy_status (*measure)(cvy_team *, cvy_pace *, round_args *)) {
  cvy_status status = CVY_OK;
  const int n_devices = cvy_roster_size(team->roster);
  const cvy_layout *const l = team->layout;
  cvy_ledger *const s = team->ledger;
  round_args a = {.team = team,
                  .n = cvy_calloc((size_t)n_devices, sizeof *a.n),
                  .pass_s = cvy_calloc((size_t)n_devices, sizeof *a.pass_s)};
  CVY_REQUIRE(a.n && a.pass_s, CVY_E_MEMORY, "out of host memory");
  CVY_ASSERT(!cvy_ledger_is_initialised(s));
  if (shares) memcpy(a.n, shares, (size_t)n_devices * sizeof *a.n);
  CVY_TRY(cvy_init_weights(l, CVY_INIT_HE, 0, cvy_ledger_w(s), cvy_ledger_running(s)));
  CVY_TRY(put_all(team));
  CVY_TRY(cvy_roster_call_all(team->roster, fill_images, &a));
  CVY_TRY(measure(team, pace, &a));
  memset(cvy_ledger_w(s), 0, l->n_floats * sizeof(float));
  if (l->n_running_floats) memset(cvy_ledger_running(s), 0, l->n_running_floats * sizeof(float));
  CVY_TRY(put_all(team));
fail:
  cvy_ledger_start(s, 0, false);
  cvy_free(a.n);
  cvy_free(a.pass_s);
  return status;
}

cvy_status cvy_calibrate(cvy_team *team, cvy_pace *pace) { return with_weights(team, pace, NULL, measure_all); }

static cvy_status measure_shares(cvy_team *team, cvy_pace *pace, round_args *a) {
  cvy_status status = CVY_OK;
  const int n_devices = cvy_roster_size(team->roster);
  double *const shortest = cvy_calloc((size_t)n_devices, sizeof *shortest);
  CVY_REQUIRE(shortest, CVY_E_MEMORY, "out of host memory");
  for (int i = 0; i < n_devices; i++) {
    const int fit = cvy_instance_micro_batch(team->replicas[i].instance);
    if (a->n[i] > fit) a->n[i] = fit;
  }
  a->seconds = ROUND_S;
  bool again = true;
  for (int round = 0; round < 2 && again; round++) {
    again = false;
    CVY_TRY(cvy_roster_call_all(team->roster, measure_passes, a));
    for (int i = 0; i < n_devices; i++) {
      if (a->n[i] == 0) continue;
      /* a single pass that took so long may have compiled kernels for the new plan */
      again |= a->pass_s[i] > SURPRISE * cvy_balance_compute_time(&pace->devices[i], a->n[i]);
      shortest[i] = round == 0 ? a->pass_s[i] : fmin(shortest[i], a->pass_s[i]);
    }
  }
  for (int i = 0; i < n_devices; i++)
    if (a->n[i] > 0) cvy_pace_add_point(pace, i, a->n[i], shortest[i]);
fail:
  cvy_free(shortest);
  return status;
}

cvy_status cvy_calibrate_shares(cvy_team *team, cvy_pace *pace, const int *shares) {
  if (cvy_balance_step_time(&pace->params, shares) > CVY_CALIBRATE_STEP_S) return CVY_OK;
  return with_weights(team, pace, shares, measure_shares);
}

bool cvy_calibrate_is_idle(cvy_team *team, int i) {
  cvy_roster_lock(team->roster);
  const bool idle =
      cvy_roster_state(team->roster, i) != CVY_LOST && cvy_shares_full_of(team->shares, team->roster, i) == 0;
  cvy_roster_unlock(team->roster);
  return idle;
}

/* [worker] The task looks again whether the device is idle: if another device was lost meanwhile, this one may have got
 * a share. */
static cvy_status measure_idle(void *device, void *arg) {
  cvy_replica *const r = device;
  const round_args *const a = arg;
  if (!cvy_calibrate_is_idle(a->team, r->setup.index)) return CVY_OK;
  const int wanted = cvy_calibrate_few(a->pace), fit = cvy_instance_micro_batch(r->instance);
  a->n[r->setup.index] = wanted < fit ? wanted : whole_groups(a->pace, fit);
  return measure_passes(r, arg);
}

cvy_status cvy_calibrate_idle(cvy_team *team, const cvy_pace *pace, int i, cvy_step_time *out) {
  cvy_status status = CVY_OK;
  const int n_devices = cvy_roster_size(team->roster);
  bool there;
  round_args a = {.team = team,
                  .pace = pace,
                  .n = cvy_calloc((size_t)n_devices, sizeof *a.n),
                  .pass_s = cvy_calloc((size_t)n_devices, sizeof *a.pass_s)};
  *out = (cvy_step_time){0};
  CVY_REQUIRE(a.n && a.pass_s, CVY_E_MEMORY, "out of host memory");
  CVY_TRY(cvy_team_call(team, i, measure_idle, &a, &there));
  if (there && a.n[i] > 0) *out = (cvy_step_time){.n = a.n[i], .tried = 1, .seconds = a.pass_s[i]};
fail:
  cvy_free(a.n);
  cvy_free(a.pass_s);
  return status;
}

cvy_status cvy_calibrate_exchange(cvy_team *team, double *transfer_s, double *host_s) {
  cvy_status status = CVY_OK;
  const int n_devices = cvy_roster_size(team->roster);
  round_args a = {.team = team, .pass_s = cvy_calloc((size_t)n_devices, sizeof *a.pass_s)};
  CVY_REQUIRE(a.pass_s, CVY_E_MEMORY, "out of host memory");
  CVY_TRY(cvy_team_sync(team)); /* every device gets the weights of the host */
  CVY_TRY(cvy_roster_call_all(team->roster, measure_exchange, &a));
  CVY_TRY(measure_host(team, host_s));
  *transfer_s = 0;
  for (int i = 0; i < n_devices; i++) *transfer_s = fmax(*transfer_s, a.pass_s[i]);
fail:
  cvy_free(a.pass_s);
  return status;
}

bool cvy_calibrate_alike(const cvy_team *team) {
  if (team->params.fleet) return cvy_noted_alike(cvy_opening_everyone(team->opening));
  const cvy_device_info *const first = cvy_device_get_info(team->replicas[0].device);
  const int units = cvy_device_get_capabilities(team->replicas[0].device)->compute_units;
  for (int i = 1; i < cvy_roster_size(team->roster); i++) {
    const cvy_device_info *const info = cvy_device_get_info(team->replicas[i].device);
    if (strcmp(info->name, first->name) != 0 || strcmp(info->platform_name, first->platform_name) != 0 ||
        strcmp(info->driver, first->driver) != 0 ||
        cvy_device_get_capabilities(team->replicas[i].device)->compute_units != units)
      return false;
  }
  return true;
}
