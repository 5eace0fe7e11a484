/* SPDX-License-Identifier: MIT
 * Devices that fail while a team trains (tests/support/layer.c): the others do the step again, and what comes out is
 * bit for bit what a team of them alone would have made of the same state. Nothing hangs or leaks. Devices that hang
 * are in test_faults.py: their threads cannot be had back.
 *
 * Every fault is injected at random moments: CVY_FAULT_ROUNDS of them (default 2; 100 is the full test). */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <unistd.h>

#include "convoy/convoy.h"
#include "src/team/publish.h"
#include "src/team/replan.h"
#include "tests/support/check.h"
#include "tests/support/layer_words.h"
#include "tests/support/team_net.h"

enum { BATCH = 12, STEPS = 6, REPLICAS = 3 };

/* A step that is done again must see the same pictures. */
static const cvy_input_params input = {.of_data = true, .augment = {.flip = true, .crop = 2}, .seed = 9};

static cvy_team *open_team(check_device *d, int replicas, const cvy_team_params *params) {
  cvy_team_params p = *params;
  p.input = input;
  return check_team(d, check_devices(d, check_text("*%d", replicas)), net, &p, 3, data);
}

static cvy_status step(cvy_team *team, int s) {
  int32_t samples[BATCH];
  const int n = s == STEPS - 1 ? BATCH - 3 : BATCH;
  for (int i = 0; i < n; i++) samples[i] = (s * 17 + i * 7) % SAMPLES;
  cvy_team_set_epoch(team, s / 2);
  return cvy_team_step(team, samples, n, 0.1f);
}

typedef struct outcome {
  cvy_status status;
  int n_lost;
  long lost_step[REPLICAS]; /* ascending */
  float *w, *v, *running;   /* NULL: the run ended; of `whole` steps */
  long whole; /* fewer than steps where the last device was lone and is lost: nothing else has the others */
  long steps;
  double losses[STEPS];
  double accuracy;
} outcome;

static float *keep(check_device *d, const float *from, size_t n) {
  float *const copy = check_floats(d, n);
  memcpy(copy, from, n * sizeof *copy);
  return copy;
}

static void note_state(check_device *d, cvy_team *team, outcome *o) {
  const cvy_layout *const l = team->layout;
  o->w = keep(d, cvy_ledger_w(team->ledger), l->n_floats);
  o->v = keep(d, cvy_ledger_moment(team->ledger, 0), l->n_floats);
  o->running = keep(d, cvy_ledger_running(team->ledger), l->n_running_floats);
  o->whole = cvy_ledger_steps(team->ledger);
}

/* A device that fails at the moment at which the exchange thread asks for the memory of a step's result, or says that a
 * loss is not finite. */
static struct {
  cvy_team *team;
  long in;
  bool no_memory;
} trip;

static void trip_now(void) {
  cvy_team *const team = trip.team;
  trip.team = NULL;
  cvy_roster_fault(team->roster, 1, CVY_E_DEVICE);
}

static bool on_exchange_thread(void) {
  char name[32] = "";
  pthread_getname_np(pthread_self(), name, sizeof name);
  return strcmp(name, "cvy-exchange") == 0;
}

/* In place of the C library's, which src/base/mem.c calls. */
int posix_memalign(void **out, size_t alignment, size_t size) {
  if (size == REPLICAS * sizeof(int) && trip.team && on_exchange_thread() && trip.in-- == 0) {
    const bool fails = trip.no_memory;
    trip_now();
    if (fails) return ENOMEM;
  }
  *out = aligned_alloc(alignment, cvy_round_up(size, alignment));
  return *out ? 0 : ENOMEM;
}

static void trip_at_message(void *user, cvy_log_level level, const char *message) {
  if (trip.team && strstr(message, "training has diverged")) trip_now();
}

static bool next_lost(cvy_team *team, cvy_lost_device *out) {
  cvy_team_event event;
  const bool got = cvy_team_next_event(team, &event);
  if (got) *out = event.of.lost;
  return got;
}

/* Trains with the layer's words in force. */
static outcome run(check_device *d, int replicas, const cvy_team_params *params, const char *words) {
  outcome o = {.status = CVY_OK};
  check_log_clear();
  cvy_team *const team = open_team(d, replicas, params);
  if (words) layer_words(words);
  if (trip.in > 0) trip.team = team;
  for (int s = 0; s < STEPS && o.status == CVY_OK; s++) o.status = step(team, s);
  if (o.status == CVY_OK) o.status = cvy_team_wait(team);
  for (bool got = true; got;) {
    cvy_step_result r;
    if (cvy_team_take(team, false, &r, &got) != CVY_OK || !got) break;
    assert_int_equal(r.step, o.steps);
    o.losses[o.steps++] = r.loss;
  }
  cvy_eval_result eval = {0};
  if (o.status == CVY_OK) {
    o.status = cvy_team_evaluate(team, CVY_SET_TEST, &eval); /* may lose devices too */
    o.accuracy = eval.accuracy;
  }
  if (o.status == CVY_OK) {
    assert_int_equal(o.steps, STEPS);
    check_ok(cvy_team_verify(team));
  } else { /* it sticks */
    assert_int_equal(step(team, 0), o.status);
    assert_int_equal(cvy_team_evaluate(team, CVY_SET_TEST, &eval), o.status);
    assert_int_equal(cvy_team_verify(team), o.status);
  }
  for (cvy_lost_device loss; next_lost(team, &loss); o.n_lost++) {
    int at = o.n_lost;
    for (; at > 0 && o.lost_step[at - 1] > loss.step; at--) o.lost_step[at] = o.lost_step[at - 1];
    o.lost_step[at] = loss.step;
    assert_false(loss.hung);
    cvy_replica_info info;
    assert_true(cvy_team_replica(team, loss.device, &info));
    assert_int_equal(info.lost_step, loss.step);
    if (o.status == CVY_OK) assert_int_equal(loss.shares[loss.device], 0);
    if (!check_log_contains("is lost in step")) check_fail(d, "nothing is said of the loss");
  }
  if (replicas > 1 || o.status == CVY_OK) {
    if (o.status == CVY_OK) check_ok(cvy_team_sync(team));
    note_state(d, team, &o);
  }
  layer_words(NULL);
  check_release(d, team);
  return o;
}

/* The same without faults: as many devices as were left in each step, each team going on from the state of the one
 * before. `steps`: how far. */
static outcome reference(check_device *d, int replicas, const cvy_team_params *params, const outcome *faulty,
                         int steps) {
  outcome o = {.status = CVY_OK};
  int s = 0;
  for (int lost = 0; lost <= faulty->n_lost; lost++) {
    const int until = lost < faulty->n_lost && faulty->lost_step[lost] < steps ? (int)faulty->lost_step[lost] : steps;
    if (lost == replicas || (until == s && o.w)) continue;
    cvy_team *const team = open_team(d, replicas - lost > 1 ? replicas - lost : 1, params);
    cvy_ledger *const state = team->ledger;
    if (o.w) {
      memcpy(cvy_ledger_w(state), o.w, team->layout->n_floats * sizeof(float));
      memcpy(cvy_ledger_moment(state, 0), o.v, team->layout->n_floats * sizeof(float));
      memcpy(cvy_ledger_running(state), o.running, team->layout->n_running_floats * sizeof(float));
      check_ok(cvy_team_publish(team, s));
    }
    for (; s < until; s++) check_ok(step(team, s));
    check_ok(cvy_team_sync(team));
    note_state(d, team, &o);
    check_release(d, team);
  }
  return o;
}

static void compare(check_device *d, int replicas, const cvy_team_params *params, const outcome *got,
                    const char *words) {
  const cvy_layout *const l = cvy_net_layout(net);
  const outcome want = reference(d, replicas, params, got, (int)got->whole);
  if (memcmp(got->w, want.w, l->n_floats * sizeof(float)) != 0 ||
      memcmp(got->v, want.v, l->n_floats * sizeof(float)) != 0 ||
      memcmp(got->running, want.running, l->n_running_floats * sizeof(float)) != 0)
    check_fail(d, "%s: after %ld steps, with losses in %d (%ld, %ld), the state is not that of a team without the lost",
               words, got->whole, got->n_lost, got->lost_step[0], got->lost_step[1]);
}

static const cvy_team_params usual = {.batch = BATCH, .momentum = 0.9f};

/* The layer's words, with numbers in them. */
static const char *words_of(const char *format, int a, int b) {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
  return check_text(format, a, b);
#pragma GCC diagnostic pop
}

static int rounds(void) {
  const char *const text = getenv("CVY_FAULT_ROUNDS");
  return text ? atoi(text) : 2;
}

CHECK_TEST(healthy) {
  for (int replicas = 1; replicas <= REPLICAS; replicas++) {
    const outcome o = run(d, replicas, &usual, NULL);
    check_ok(o.status);
    assert_int_equal(o.n_lost, 0);
    compare(d, replicas, &usual, &o, "nothing");
    check_case_end(d);
  }
}

static const char *const one_faults[] = {
    "fail=%d:launch:%d:-4",  "fail=%d:launch:%d:-5",    "fail=%d:launch:%d:-2",     "fail=%d:launch:%d:-14",
    "fail=%d:launch:%d:-36", "fail=%d:launch:%d:-9999", "bad-event=%d:%d:-4",       "bad-event=%d:%d:-5",
    "bad-event=%d:%d:-2",    "bad-event=%d:%d:-14",     "bad-event=%d:%d:-36",      "bad-event=%d:%d:-9999",
    "fail=%d:any:%d:-5",     "fail-once=%d:any:%d:-5",  "fail-once=%d:launch:%d:-5"};
/* Calls that are few in a step: moments up to some 8 of them in each. */
static const char *const rare_faults[] = {
    "fail=%d:map:%d:-12",       "fail=%d:write:%d:-5",     "fail=%d:unmap:%d:-5",
    "fail=%d:flush:%d:-36",     "fail=%d:marker:%d:-5",    "fail=%d:barrier:%d:-14",
    "fail-once=%d:write:%d:-4", "fail-once=%d:read:%d:-5", "fail=%d:wait:%d:-14"};
enum { N_ONE = sizeof one_faults / sizeof *one_faults, N_RARE = sizeof rare_faults / sizeof *rare_faults };

static void one_fault(check_device *d, case_rng *rng, const char *format, int most, bool stage) {
  cvy_team_params params = usual;
  params.run_ahead = case_int(rng, CVY_RUN_AHEAD_NONE, 2);
  params.bn = (cvy_bn_mode[]){CVY_BN_DEVICE, CVY_BN_GHOST, CVY_BN_SYNC}[case_int(rng, 0, 2)];
  if (params.bn == CVY_BN_GHOST) params.ghost = 4;
  const int replicas = case_int(rng, 2, REPLICAS);
  if (replicas > 2) params.exchange = (cvy_exchange_kind)case_int(rng, 0, 1); /* needs two that are left */
  const int device = case_int(rng, 0, replicas - 1);
  const char *const words = words_of(format, device, case_int(rng, 0, most));
  if (!check_case(d, "%s of %d, run-ahead %d, bn %d%s%s", words, replicas, params.run_ahead, (int)params.bn,
                  params.exchange == CVY_EXCHANGE_BF16 ? ", bf16" : "", stage ? ", staged" : ""))
    return;
  if (stage) setenv("CVY_FORCE_STAGING", "1", 1);
  const outcome o = run(d, replicas, &params, words);
  check_ok(o.status);
  if (o.n_lost > 1) check_fail(d, "%d devices lost", o.n_lost);
  compare(d, replicas, &params, &o, words);
  unsetenv("CVY_FORCE_STAGING");
  check_case_end(d);
}

CHECK_TEST(one_fails) {
  case_rng rng = check_rng_make(d, 11);
  for (int round = 0; round < rounds(); round++) {
    for (int f = 0; f < N_ONE; f++) one_fault(d, &rng, one_faults[f], 180, round % 4 == 3);
    for (int f = 0; f < N_RARE; f++) one_fault(d, &rng, rare_faults[f], 30, round % 2 == 1);
  }
}

/* While the others take over, they fail too: in the call that fails them all, or for want of memory. */
CHECK_TEST(several_fail) {
  static const char *const faults[] = {"fail=0:launch:%d:-5,fail=1:launch:%d:-5",
                                       "fail=0:launch:%d:-5,fail=2:finish:0:-5",
                                       "fail=1:launch:%d:-5,fail=0:buffer:3:-4", "fail=2:any:%d:-5,bad-event=0:%d:-14",
                                       "fail=2:launch:%d:-5,fail=0:finish:1:-36,fail=1:unmap:0:-5"};
  case_rng rng = check_rng_make(d, 12);
  for (int round = 0; round < rounds(); round++)
    for (int f = 0; f < 5; f++) {
      const char *const words = words_of(faults[f], case_int(&rng, 0, 100), case_int(&rng, 0, 300));
      if (!check_case(d, "%s", words)) continue;
      const outcome o = run(d, REPLICAS, &usual, words);
      if (o.n_lost == REPLICAS) assert_int_not_equal(o.status, CVY_OK);
      else check_ok(o.status);
      compare(d, REPLICAS, &usual, &o, words);
      check_case_end(d);
    }
}

/* Before the first step: weights and data reach the devices that are left, which train as if they had been alone. */
CHECK_TEST(before_training) {
  static const char *const faults[] = {"fail=1:write:%d:-5", "fail=0:any:%d:-5", "bad-event=2:%d:-14"};
  static const int moments[] = {0, 1, 0, 3}; /* the weights, running values, the weights, the data; then any */
  case_rng rng = check_rng_make(d, 14);
  for (int round = 0; round < 2 + 2 * rounds(); round++) {
    cvy_team_params params = usual;
    params.input = input;
    params.exchange = (cvy_exchange_kind)case_int(&rng, 0, 1);
    const char *const words = words_of(faults[round % 3], round < 4 ? moments[round] : case_int(&rng, 0, 5), 0);
    if (!check_case(d, "%s%s", words, params.exchange == CVY_EXCHANGE_BF16 ? ", bf16" : "")) continue;
    outcome o = {.status = CVY_OK};
    cvy_team *const team = check_bare_team(d, check_devices(d, check_text("*%d", REPLICAS)), net, &params);
    layer_words(words);
    check_ok(cvy_team_init(team, &(cvy_init_params){.kind = CVY_INIT_HE, .seed = 3}));
    check_ok(cvy_team_attach(team, data));
    for (; o.steps < STEPS; o.steps++) check_ok(step(team, (int)o.steps));
    check_ok(cvy_team_sync(team));
    for (cvy_lost_device loss; next_lost(team, &loss); o.n_lost++) o.lost_step[o.n_lost] = loss.step;
    layer_words(NULL);
    if (o.n_lost != 1 || (round < 4 && o.lost_step[0] != 0))
      check_fail(d, "%d devices lost, the first in step %ld", o.n_lost, o.lost_step[0]);
    note_state(d, team, &o);
    check_release(d, team);
    compare(d, REPLICAS, &params, &o, words);
    check_case_end(d);
  }
}

/* The last device: the run ends, with the driver's error named and the newest state whole. */
CHECK_TEST(all_fail) {
  static const char *const faults[] = {"bad-event=all:%d:-5", "fail=all:launch:%d:-5"};
  case_rng rng = check_rng_make(d, 13);
  for (int replicas = 1; replicas <= REPLICAS; replicas += 2)
    for (int run_ahead = CVY_RUN_AHEAD_NONE; run_ahead <= 2; run_ahead += run_ahead < 0 ? 2 : 1)
      for (int f = 0; f < 2; f++) {
        cvy_team_params params = usual;
        params.run_ahead = run_ahead;
        const char *const words = words_of(faults[f], case_int(&rng, 0, 40), 0);
        if (!check_case(d, "%s of %d, run-ahead %d", words, replicas, run_ahead)) continue;
        const outcome o = run(d, replicas, &params, words);
        if (o.status != CVY_E_DEVICE) check_fail(d, "%s, not CVY_E_DEVICE", cvy_status_name(o.status));
        if (!check_log_contains("CL_OUT_OF_RESOURCES")) check_fail(d, "the driver's error is not named");
        if (!check_log_contains("it was the last one")) check_fail(d, "it is not said that no device is left");
        assert_int_equal(o.n_lost, replicas);
        if (replicas > 1) compare(d, replicas, &params, &o, words);
        check_case_end(d);
      }
}

/* The last devices fail in a step that a device lost earlier has had no part in: nobody waits for its part at the
 * end. */
CHECK_TEST(lost_before) {
  cvy_team_params params = usual;
  params.run_ahead = 2;
  if (check_case(d, "one, then the others")) {
    cvy_team *const team = open_team(d, 3, &params);
    layer_words("fail=0:launch:3:-5");
    check_ok(step(team, 0));
    check_ok(cvy_team_wait(team));
    layer_words("fail=1:launch:3:-5,fail=2:launch:3:-5");
    cvy_status status = step(team, 1);
    if (status == CVY_OK) status = cvy_team_wait(team);
    layer_words(NULL);
    assert_int_equal(status, CVY_E_DEVICE);
  }
  check_case_end(d);
}

/* With fault_stops the first one ends the run; the state is whole and can be saved. */
CHECK_TEST(stop) {
  cvy_team_params params = usual;
  params.fault_stops = true;
  check_log_clear();
  cvy_team *const team = open_team(d, 3, &params);
  for (int s = 0; s < 2; s++) check_ok(step(team, s));
  check_ok(cvy_team_wait(team));
  layer_words("fail=1:launch:3:-5");
  cvy_status status = CVY_OK;
  for (int s = 2; s < STEPS && status == CVY_OK; s++) status = step(team, s);
  if (status == CVY_OK) status = cvy_team_wait(team);
  layer_words(NULL);
  assert_int_equal(status, CVY_E_DEVICE);
  assert_true(check_log_contains("device 1"));
  check_ok(cvy_team_save(team, check_path("w.safetensors")));
  assert_true(check_log_contains("the weights after 2 steps"));
  const outcome two = {.status = CVY_OK};
  const outcome want = reference(d, 3, &params, &two, 2);
  assert_memory_equal(cvy_ledger_w(team->ledger), want.w, team->layout->n_floats * sizeof(float));
}

/* An evaluation is done again by those that are left: the same hits. */
CHECK_TEST(evaluation) {
  cvy_eval_result before, after;
  for (int inference = 0; inference < 2; inference++) {
    cvy_team_params params = usual;
    params.inference = inference;
    cvy_team *const team = open_team(d, 3, &params);
    check_ok(cvy_team_evaluate(team, CVY_SET_TRAIN, &before));
    layer_words("fail=1:launch:2:-5");
    check_ok(cvy_team_evaluate(team, CVY_SET_TRAIN, &after));
    assert_int_equal(after.correct, before.correct);
    assert_int_equal(after.images, before.images);
    layer_words("bad-event=2:1:-9999");
    check_ok(cvy_team_evaluate(team, CVY_SET_TRAIN, &after));
    assert_int_equal(after.correct, before.correct);
    layer_words("bad-event=0:1:-9999");
    check_fails(cvy_team_evaluate(team, CVY_SET_TRAIN, &after), CVY_E_DEVICE, "it was the last one");
    layer_words(NULL);
    check_case_end(d);
  }
}

/* A device without a share is not sent anything in a step, however slow or broken its link is, and has the newest
 * weights whenever it is asked for something, and when it gets a share again. */
CHECK_TEST(rests) {
  for (int staleness = 0; staleness < 2; staleness++) {
    cvy_team_params params = usual;
    params.staleness = staleness;
    cvy_team *const team = open_team(d, 3, &params);
    cvy_eval_result rested;
    cvy_lost_device loss;
    bool done;
    for (int s = 0; s < 2; s++) check_ok(step(team, s));
    check_ok(cvy_replan(team, NULL, (const int[]){7, 5, 0}, &done));
    assert_true(done);
    layer_words("fail=2:write:0:-5");
    for (int s = 2; s < STEPS; s++) check_ok(step(team, s));
    check_ok(cvy_team_wait(team));
    layer_words(NULL);
    if (next_lost(team, &loss)) check_fail(d, "something was written to device %d", loss.device);
    check_ok(cvy_team_verify(team)); /* also of the idle one */
    check_ok(cvy_team_evaluate(team, CVY_SET_TEST, &rested));
    for (int s = 0; s < 2; s++) check_ok(step(team, s));
    check_ok(cvy_replan(team, NULL, (const int[]){4, 4, 4}, &done));
    assert_true(done);
    check_ok(cvy_team_verify(team));
    for (int s = 0; s < 2; s++) check_ok(step(team, s));
    check_ok(cvy_team_verify(team));
    check_case_end(d);
  }
}

/* Weights that are still on their way over a slow link do not come behind those that are put there next. */
CHECK_TEST(put_behind) {
  setenv("CVY_FORCE_STAGING", "1", 1);
  for (int staleness = 0; staleness < 2; staleness++) {
    cvy_team_params params = usual;
    params.staleness = staleness;
    params.bucket_mib = 0.01; /* the layer keeps back what comes behind the first one */
    cvy_team *const team = open_team(d, 2, &params);
    assert_true(team->layout->n_buckets > 1);
    layer_words("link=1:0.0001");
    for (int s = 0; s < 2; s++) check_ok(step(team, s));
    check_ok(cvy_team_wait(team));
    layer_words(NULL); /* what is on its way stays slow */
    check_ok(cvy_team_init(team, &(cvy_init_params){.kind = CVY_INIT_HE, .seed = 4, .force = true}));
    for (int r = 0; r < 2; r++) check_ok(cvy_queue_finish(cvy_device_upload_queue(team->replicas[r].device)));
    check_ok(cvy_team_verify(team));
    check_case_end(d);
  }
  unsetenv("CVY_FORCE_STAGING");
}

/* A step whose result finds no memory, or whose loss is not finite, has not been applied: with a device failing at that
 * moment it is not done a second time on top of itself. */
CHECK_TEST(result) {
  for (int no_memory = 0; no_memory < 2; no_memory++) {
    trip.in = 1; /* the second result that finds none of the first entries free */
    trip.no_memory = no_memory;
    const outcome o = run(d, REPLICAS, &usual, NULL);
    trip.in = 0;
    check_ok(o.status);
    assert_int_equal(o.n_lost, 1);
    compare(d, REPLICAS, &usual, &o, no_memory ? "no memory for a result" : "memory for a result");
    check_case_end(d);
  }
  cvy_team *const team = open_team(d, 2, &usual);
  int32_t samples[BATCH] = {0};
  cvy_status status = CVY_OK;
  cvy_log_set(trip_at_message, NULL, CVY_LOG_ERROR);
  trip.in = LONG_MAX;
  trip.team = team;
  for (int s = 0; s < 20 && status == CVY_OK; s++) status = cvy_team_step(team, samples, BATCH, 1e30f);
  if (status == CVY_OK) status = cvy_team_wait(team);
  trip.in = 0;
  check_log_start();
  assert_null(trip.team);
  assert_int_equal(status, CVY_E_NOT_FINITE);
  assert_int_equal(cvy_ledger_updates(team->ledger), cvy_ring_finished(team->ring));
  assert_false(cvy_roster_is_lost(team->roster, 1)); /* the run is over: nothing is done again without it */
}

int main(int argc, char **argv) {
  check_around(make_net, drop_net);
  return check_run(argc, argv, CHECK_DEVICES | CHECK_NOT_RUSTICL);
}
