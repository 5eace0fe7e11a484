/* SPDX-License-Identifier: MIT
 * Outline: one device's passes · its exchange · the host's part · rounds over all devices · alike. */
#include "src/train/calibrate.h"

#include <math.h>
#include <string.h>

#include "src/base/clock.h"
#include "src/base/mem.h"
#include "src/nn/init.h"

enum {
  FEW = 8,                          /* samples of the smallest size */
  SIZES = 3,
  LEAST_PASSES = 2,
  MOST_PASSES = 64,
};
/* How long a size is measured at least, all devices together. */
static const double ROUND_S = 0.15;
/* After so long one pass is enough. */
static const double LONG_S = 0.7;
/* So many times longer than expected. */
static const double SURPRISE = 1.3;

typedef struct round_args {
  cvy_team *team;
  int *n;                           /* samples per pass of each device, 0: does not take part */
  double seconds;                   /* at least */
  double *pass_s;                   /* out: the shortest pass, 0 if it took no part */
} round_args;

/* ---- one device ---- */

static cvy_status run_pass(cvy_replica *r, int n, const cvy_team *team) {
  cvy_status status = CVY_OK;
  const bool training = !team->params.inference;
  const cvy_pass pass = {
      .n = n, .batch = n, .group_size = team->params.bn == CVY_BN_GHOST && training ? team->params.ghost : 0};
  CVY_TRY(cvy_instance_forward(r->instance, &pass, training));
  CVY_TRY(cvy_instance_loss(r->instance, &pass, training));
  if (training) CVY_TRY(cvy_instance_backward(r->instance, &pass));
  CVY_TRY(cvy_queue_finish(cvy_device_compute_queue(r->device)));
fail:
  return status;
}

/* The shortest pass is what the device can do: the first of a size may compile, or touch memory for the first time, and
 * what other programs of the machine take away is only seen on some. A single long one must do. */
static cvy_status measure_passes(void *owner, void *arg) {
  cvy_status status = CVY_OK;
  cvy_replica *const r = owner;
  const round_args *const a = arg;
  const int n = a->n[r->index];
  double shortest = INFINITY;
  a->pass_s[r->index] = 0;
  if (n == 0) return CVY_OK;
  const uint64_t start = cvy_clock_ns();
  for (int passes = 0; passes < MOST_PASSES; passes++) {
    const double elapsed = cvy_clock_seconds_since(start);
    if (passes > 0 && elapsed >= a->seconds && (passes > LEAST_PASSES || elapsed >= LONG_S)) break;
    const uint64_t begin = cvy_clock_ns();
    CVY_TRY(run_pass(r, n, a->team));
    shortest = fmin(shortest, cvy_clock_seconds_since(begin));
  }
  a->pass_s[r->index] = shortest;
fail:
  return status;
}

/* Images that are not all the same: some devices are faster, or draw less power, on zeros. */
static cvy_status fill_images(void *owner, void *arg) {
  cvy_status status = CVY_OK;
  cvy_replica *const r = owner;
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
  CVY_TRY(cvy_buffer_fill(queue, cvy_instance_labels(r->instance), 0,
                          cvy_buffer_size(cvy_instance_labels(r->instance)), 0));
fail:
  cvy_free(x);
  return status;
}

/* Every gradient down, in the form in which it crosses, and every weight up, as a step brings them; the second time counts. */
static cvy_status measure_exchange(void *owner, void *arg) {
  cvy_status status = CVY_OK;
  cvy_replica *const r = owner;
  const round_args *const a = arg;
  const cvy_layout *const l = r->layout;
  cvy_queue *const queue = cvy_device_transfer_queue(r->device);
  const float *const w = cvy_state_w(a->team->state);
  for (int round = 0; round < 2; round++) {
    const uint64_t start = cvy_clock_ns();
    for (int b = 0; b < l->n_buckets; b++) {
      cvy_buffer *const gradients = r->packs ? r->packed[b] : cvy_instance_gradients(r->instance, b);
      const size_t floats = l->buckets[b].size, bytes = floats * (r->packs ? sizeof(uint16_t) : sizeof(float));
      if (r->map) {
        cvy_event *mapped = NULL;
        void *host = NULL;
        CVY_TRY(cvy_buffer_map(queue, gradients, bytes, NULL, &host, &mapped));
        status = cvy_event_wait(mapped);
        cvy_event_destroy(&mapped);
        CVY_TRY(status);
        CVY_TRY(cvy_buffer_unmap(queue, gradients, host));
      } else {
        CVY_TRY(cvy_buffer_read(queue, gradients, 0, bytes, r->staging_host + l->buckets[b].offset, NULL, NULL));
      }
      CVY_TRY(cvy_buffer_write(queue, cvy_instance_weights(r->instance, b), 0, floats * sizeof(float),
                               w + l->buckets[b].offset, NULL, NULL));
    }
    a->pass_s[r->index] = cvy_clock_seconds_since(start);
  }
fail:
  return status;
}

/* ---- the host's part ---- */

/* Seconds of adding up a part from each device and of the update, into the generation that is not the truth. */
static cvy_status measure_host(cvy_team *team, double *seconds) {
  cvy_status status = CVY_OK;
  const cvy_layout *const l = team->layout;
  const cvy_sgd_params sgd = {.lr = 0};
  const bool packs = team->params.exchange == CVY_EXCHANGE_BF16;
  const float **const parts = cvy_calloc((size_t)team->n, sizeof *parts);
  const uint16_t **const packed = cvy_calloc((size_t)team->n, sizeof *packed);
  uint16_t *const zeros = cvy_calloc(packs ? l->n_floats : 1, sizeof *zeros);
  CVY_REQUIRE(parts && packed && zeros, CVY_E_MEMORY, "out of host memory");
  memset(zeros, 0, (packs ? l->n_floats : 1) * sizeof *zeros); /* touched now: pages that were never written are all one */
  for (int round = 0; round < 2; round++) {
    const uint64_t start = cvy_clock_ns();
    for (int b = 0; b < l->n_buckets; b++) {
      const size_t at = l->buckets[b].offset, size = l->buckets[b].size;
      for (int i = 0; i < team->n; i++) {
        parts[i] = cvy_state_w(team->state) + at;
        packed[i] = packs ? zeros + at : zeros;
      }
      if (packs) cvy_state_update_packed(team->state, team->pool, &sgd, at, size, packed, team->n);
      else cvy_state_update(team->state, team->pool, &sgd, at, size, parts, team->n);
    }
    *seconds = cvy_clock_seconds_since(start);
  }
fail:
  cvy_free(parts);
  cvy_free(packed);
  cvy_free(zeros);
  return status;
}

/* ---- all devices ---- */

/* Samples that a device can be given in one pass: as many as were planned, or, if these fit, up to a whole batch. */
static cvy_status find_cap(cvy_team *team, cvy_pace *pace, int device) {
  cvy_status status = CVY_OK;
  int most;
  CVY_TRY(cvy_instance_room(team->replicas[device].instance, pace->params.batch, &most));
  pace->devices[device].cap = most < pace->params.batch ? most : -1;
fail:
  return status;
}

/* When times are known. */
static cvy_status find_caps(cvy_team *team, cvy_pace *pace) {
  cvy_status status = CVY_OK;
  bool lifted;
  for (int i = 0; i < team->n; i++) CVY_TRY(find_cap(team, pace, i));
  if (team->params.bn == CVY_BN_SYNC) return CVY_OK;
  CVY_TRY(cvy_pace_lift_caps(pace, &lifted));
  if (lifted)
    cvy_log_info("the batch of %d fits on the %d devices only in several passes each: memory does not limit the shares",
                 pace->params.batch, team->n);
fail:
  return status;
}

/* What is left of n in whole BN groups: a part of one may be too few samples for statistics. */
static int whole_groups(const cvy_pace *pace, int n) {
  const int group = pace->params.group > 1 ? pace->params.group : 1;
  return n > group ? n - n % group : n;
}

/* The largest size: about CVY_CALIBRATE_PASS_S long by what the smallest took, within what is planned. */
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
  int *const few = cvy_calloc(2 * (size_t)team->n, sizeof *few), *const most = few + team->n;
  CVY_REQUIRE(few, CVY_E_MEMORY, "out of host memory");
  for (int i = 0; i < team->n; i++) {
    const cvy_replica *const r = &team->replicas[i];
    const int wanted = cvy_calibrate_few(pace), room = cvy_instance_micro_batch(r->instance);
    few[i] = wanted < room ? wanted : whole_groups(pace, room);
  }
  memcpy(a->n, few, (size_t)team->n * sizeof *few);
  a->seconds = 0;
  CVY_TRY(cvy_team_call_all(team, measure_passes, a));        /* compiles */
  a->seconds = ROUND_S;
  for (int size = 0; size < SIZES; size++) {
    CVY_TRY(cvy_team_call_all(team, measure_passes, a));
    for (int i = 0; i < team->n; i++) {
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
  CVY_TRY(measure_sizes(team, pace, a));
  CVY_TRY(find_caps(team, pace));
  if (team->params.inference) return CVY_OK;
  double host_s;
  CVY_TRY(cvy_team_call_all(team, measure_exchange, a));
  CVY_TRY(measure_host(team, &host_s));
  /* backward finishes the last bucket last: only the next step's computing hides its exchange, if it does not wait for it */
  const cvy_layout *const l = team->layout;
  const bool stale = team->params.staleness > 0;
  const double last = stale ? 0 : (double)l->buckets[l->n_buckets - 1].size / (double)l->n_floats;
  for (int i = 0; i < team->n; i++) {
    pace->devices[i].stale = stale;
    pace->devices[i].exchange_s = a->pass_s[i] + host_s;
    pace->devices[i].tail_s = last * (a->pass_s[i] + host_s);
  }
  pace->params.part_s = last * host_s / team->n;
fail:
  return status;
}

/* With random weights on all devices, and zeros again when it is over. */
static cvy_status with_weights(cvy_team *team, cvy_pace *pace, const int *shares,
                               cvy_status (*measure)(cvy_team *, cvy_pace *, round_args *)) {
  cvy_status status = CVY_OK;
  const cvy_layout *const l = team->layout;
  cvy_state *const s = team->state;
  round_args a = {.team = team,
                  .n = cvy_calloc((size_t)team->n, sizeof *a.n),
                  .pass_s = cvy_calloc((size_t)team->n, sizeof *a.pass_s)};
  CVY_REQUIRE(a.n && a.pass_s, CVY_E_MEMORY, "out of host memory");
  CVY_ASSERT(!team->initialised);
  if (shares) memcpy(a.n, shares, (size_t)team->n * sizeof *a.n);
  CVY_TRY(cvy_init_weights(l, CVY_INIT_HE, 0, cvy_state_w(s), cvy_state_running(s)));
  CVY_TRY(cvy_team_publish_state(team, 0));
  CVY_TRY(cvy_team_call_all(team, fill_images, &a));
  CVY_TRY(measure(team, pace, &a));
  memset(cvy_state_w(s), 0, l->n_floats * sizeof(float));
  if (l->n_running_floats) memset(cvy_state_running(s), 0, l->n_running_floats * sizeof(float));
  CVY_TRY(cvy_team_publish_state(team, 0));
fail:
  team->initialised = false;
  cvy_free(a.n);
  cvy_free(a.pass_s);
  return status;
}

cvy_status cvy_calibrate(cvy_team *team, cvy_pace *pace) { return with_weights(team, pace, NULL, measure_all); }

static cvy_status measure_shares(cvy_team *team, cvy_pace *pace, round_args *a) {
  cvy_status status = CVY_OK;
  double *const shortest = cvy_calloc((size_t)team->n, sizeof *shortest);
  CVY_REQUIRE(shortest, CVY_E_MEMORY, "out of host memory");
  for (int i = 0; i < team->n; i++) {
    const int fit = cvy_instance_micro_batch(team->replicas[i].instance);
    if (a->n[i] > fit) a->n[i] = fit;
  }
  a->seconds = ROUND_S;
  bool again = true;
  for (int round = 0; round < 2 && again; round++) {
    again = false;
    CVY_TRY(cvy_team_call_all(team, measure_passes, a));
    for (int i = 0; i < team->n; i++) {
      if (a->n[i] == 0) continue;
      /* a single pass that took so long may have compiled kernels for the new plan */
      again |= a->pass_s[i] > SURPRISE * cvy_balance_compute_time(&pace->devices[i], a->n[i]);
      shortest[i] = round == 0 ? a->pass_s[i] : fmin(shortest[i], a->pass_s[i]);
    }
  }
  for (int i = 0; i < team->n; i++)
    if (a->n[i] > 0) cvy_pace_add_point(pace, i, a->n[i], shortest[i]);
fail:
  cvy_free(shortest);
  return status;
}

cvy_status cvy_calibrate_shares(cvy_team *team, cvy_pace *pace, const int *shares) {
  if (cvy_balance_step_time(&pace->params, shares) > CVY_CALIBRATE_STEP_S) return CVY_OK;
  return with_weights(team, pace, shares, measure_shares);
}

/* On the worker: when another device was lost meanwhile, this one may be closed by now, or have a share. It is closed, and gets
 * one, by tasks behind this one. */
static cvy_status measure_idle(void *owner, void *arg) {
  cvy_replica *const r = owner;
  const round_args *const a = arg;
  cvy_team *const team = a->team;
  pthread_mutex_lock(&team->lock);
  const bool idle = !r->lost && team->full_shares[r->index] == 0;
  pthread_mutex_unlock(&team->lock);
  if (!idle) return CVY_OK;
  const int wanted = cvy_calibrate_few(team->pace), fit = cvy_instance_micro_batch(r->instance);
  a->n[r->index] = wanted < fit ? wanted : whole_groups(team->pace, fit);
  return measure_passes(r, arg);
}

cvy_status cvy_calibrate_idle(cvy_team *team, cvy_pace *pace, int device) {
  cvy_status status = CVY_OK;
  cvy_replica *const r = &team->replicas[device];
  round_args a = {.team = team,
                  .n = cvy_calloc((size_t)team->n, sizeof *a.n),
                  .pass_s = cvy_calloc((size_t)team->n, sizeof *a.pass_s)};
  CVY_REQUIRE(a.n && a.pass_s, CVY_E_MEMORY, "out of host memory");
  status = cvy_worker_call(r->worker, measure_idle, &a);
  if (status == CVY_OK) {
    if (a.n[device] > 0) cvy_pace_try(pace, device, a.n[device], a.pass_s[device]);
  } else {
    cvy_team_fail_replica(team, r, status);
    status = cvy_team_wait(team);
  }
fail:
  cvy_free(a.n);
  cvy_free(a.pass_s);
  return status;
}

cvy_status cvy_calibrate_exchange(cvy_team *team, double *transfer_s, double *host_s) {
  cvy_status status = CVY_OK;
  round_args a = {.team = team, .pass_s = cvy_calloc((size_t)team->n, sizeof *a.pass_s)};
  CVY_REQUIRE(a.pass_s, CVY_E_MEMORY, "out of host memory");
  CVY_TRY(cvy_team_wait(team));
  CVY_TRY(cvy_team_call_all(team, measure_exchange, &a));
  CVY_TRY(measure_host(team, host_s));
  *transfer_s = 0;
  for (int i = 0; i < team->n; i++) *transfer_s = fmax(*transfer_s, a.pass_s[i]);
fail:
  cvy_free(a.pass_s);
  return status;
}

bool cvy_calibrate_alike(const cvy_team *team) {
  const cvy_device_info *const first = cvy_device_get_info(team->replicas[0].device);
  const int units = cvy_device_get_facts(team->replicas[0].device)->compute_units;
  for (int i = 1; i < team->n; i++) {
    const cvy_device_info *const info = cvy_device_get_info(team->replicas[i].device);
    if (strcmp(info->name, first->name) || strcmp(info->platform_name, first->platform_name) ||
        strcmp(info->driver, first->driver) || cvy_device_get_facts(team->replicas[i].device)->compute_units != units)
      return false;
  }
  return true;
}
