/* SPDX-License-Identifier: MIT
 * A device that fails or hangs (tests/support/layer.c) at what the caller asks of it between steps: what another one
 * can answer is answered, what lay on the device is gone and said to be gone, the trace is written, and the team goes
 * on in any case.
 *
 * Threads that hang cannot be had back: their objects are alive at the end. That nothing else is, is seen where a
 * device only fails. */
#include <stdio.h>
#include <unistd.h>

#include "src/team/publish.h"
#include "src/protocol/watch.h"
#include "tests/support/layer_words.h"
#include "tests/support/team_net.h"

enum { BATCH = 12, LOADED = 11, CLASSES = 10 };

typedef struct scene {
  check_device *d;
  cvy_team *team;
  const char *words; /* what happens to the device (the last one) */
  bool hangs;
  int n, steps;
  float x[LOADED * 64];
  const char *trace;
} scene;

static void do_step(scene *s) {
  int32_t samples[BATCH];
  for (int i = 0; i < BATCH; i++) samples[i] = (s->steps * 17 + i * 7) % SAMPLES;
  check_ok(cvy_team_step(s->team, samples, BATCH, 0.1f));
  s->steps++;
}

/* A team that has trained and is being traced. */
static scene begin(check_device *d, int n, const char *words, bool hangs) {
  scene s = {.d = d, .n = n, .words = words, .hangs = hangs};
  case_rng rng = check_rng_make(d, 1);
  case_fill(&rng, s.x, LOADED * 64, CASE_FILL_NORMAL);
  const cvy_team_params params = {.batch = BATCH, .device_timeout_s = 5};
  s.team = check_team(d, check_devices(d, check_text("*%d", n)), net, &params, 3, data);
  s.trace = check_path("trace.json");
  check_ok(cvy_team_trace_begin(s.team, s.trace, 0));
  for (int i = 0; i < 2; i++) do_step(&s);
  check_ok(cvy_team_wait(s.team));
  check_log_clear();
  return s;
}

/* How long the device may be silent, tenfold outside of steps. */
static void be_patient(scene *s, double seconds) { cvy_watch_be_strict(s->team->watch, seconds); }

static void strike(scene *s) {
  be_patient(s, 0.3);
  layer_words(s->words);
}

static void relent(scene *s) {
  layer_words(NULL);
  be_patient(s, 60);
}

/* The device is lost, the others train. */
static void goes_on(scene *s) {
  cvy_team_event event;
  relent(s);
  check_ok(cvy_team_wait(s->team));
  if (!cvy_team_next_event(s->team, &event)) check_fail(s->d, "no device is lost");
  const cvy_lost_device loss = event.of.lost;
  assert_int_equal(loss.device, s->n - 1);
  assert_int_equal(loss.hung, s->hangs);
  assert_int_equal(loss.shares[loss.device], 0);
  assert_false(cvy_team_next_event(s->team, &event));
  assert_true(check_log_contains("the team continues without it"));
  do_step(s);
  check_ok(cvy_team_wait(s->team));
  check_ok(cvy_team_verify(s->team));
}

static bool ends_whole(const char *path) {
  char last[3] = "";
  FILE *const f = fopen(path, "r");
  if (!f) return false;
  const bool read = fseek(f, -2, SEEK_END) == 0 && fread(last, 1, 2, f) == 2;
  fclose(f);
  return read && strcmp(last, "}\n") == 0;
}

/* ---- what is asked ---- */

static void ask_parameter(scene *s) {
  const size_t n = 16 * 36 * CLASSES;
  float *const want = check_floats(s->d, n), *const got = check_floats(s->d, n);
  check_ok(cvy_team_param_get(s->team, 0, "2.weight", want, n));
  strike(s);
  for (int again = 0; again < 2; again++) {
    check_ok(cvy_team_param_get(s->team, s->n - 1, "2.weight", got, n));
    assert_true(check_log_contains("the values are those of the other devices"));
    assert_memory_equal(got, want, n * sizeof *got);
    memset(got, 0xff, n * sizeof *got);
    if (again == 0) relent(s);
  }
  goes_on(s);
}

static void ask_verify(scene *s) {
  strike(s);
  check_ok(cvy_team_verify(s->team));
  goes_on(s);
}

/* The pass begins again on the others: every sample has its probabilities, within rounding. */
static void ask_classify(scene *s) {
  const size_t n = (size_t)data->test.n * CLASSES;
  float *const want = check_floats(s->d, n), *const got = check_floats(s->d, n);
  cvy_eval_result before, after;
  check_ok(cvy_team_classify(s->team, CVY_SET_TEST, want, &before));
  memset(got, 0xff, n * sizeof *got);
  strike(s);
  check_ok(cvy_team_classify(s->team, CVY_SET_TEST, got, &after));
  relent(s);
  assert_int_equal(after.images, before.images);
  for (size_t i = 0; i < n; i++) assert_float_equal(got[i], want[i], 1e-5f);
  goes_on(s);
}

static void read_logits(scene *s, cvy_tensor **shards, float *out) {
  for (int i = 0, at = 0, n; i < s->n; i++) {
    cvy_tensor *y = NULL;
    if (!shards[i]) continue;
    check_ok(cvy_team_forward(s->team, shards[i], &y));
    cvy_tensor_shape(y, &n, NULL, NULL, NULL, NULL);
    check_ok(cvy_tensor_read(y, out + at * CLASSES, (size_t)n * CLASSES));
    at += n;
    cvy_tensor_destroy(&y);
  }
}

static void ask_load(scene *s) {
  float want[LOADED * CLASSES], got[LOADED * CLASSES];
  cvy_tensor *shards[3];
  check_ok(cvy_team_split_and_load(s->team, s->x, LOADED, shards));
  read_logits(s, shards, want);
  for (int i = 0; i < s->n; i++) cvy_tensor_destroy(&shards[i]);
  strike(s);
  check_ok(cvy_team_split_and_load(s->team, s->x, LOADED, shards));
  relent(s);
  assert_null(shards[s->n - 1]);
  read_logits(s, shards, got);
  for (int i = 0; i < LOADED * CLASSES; i++) assert_float_equal(got[i], want[i], 1e-4f);
  for (int i = 0; i < s->n; i++) cvy_tensor_destroy(&shards[i]);
  goes_on(s);
}

static void ask_forward(scene *s) {
  float values[LOADED * 64];
  cvy_tensor *shards[3], *y = NULL;
  int n;
  check_ok(cvy_team_split_and_load(s->team, s->x, LOADED, shards));
  cvy_tensor_shape(shards[s->n - 1], &n, NULL, NULL, NULL, NULL);
  strike(s);
  for (int again = 0; again < 2; again++) {
    const cvy_status status = cvy_team_forward(s->team, shards[s->n - 1], &y);
    assert_int_equal(status, CVY_E_DEVICE);
    assert_null(y);
    assert_true(check_log_contains("no forward pass: the batch was on device 2"));
    if (again == 0) relent(s);
  }
  check_fails(cvy_tensor_read(shards[s->n - 1], values, (size_t)n * 64), CVY_E_DEVICE, "and is lost with it");
  check_ok(cvy_team_forward(s->team, shards[0], &y));
  cvy_tensor_destroy(&y);
  for (int i = 0; i < s->n; i++) cvy_tensor_destroy(&shards[i]);
  cvy_log_error("the team continues without it"); /* check_fails has dropped it */
  goes_on(s);
}

static void ask_read(scene *s) {
  float values[LOADED * 64];
  cvy_tensor *shards[3];
  int n;
  check_ok(cvy_team_split_and_load(s->team, s->x, LOADED, shards));
  cvy_tensor_shape(shards[s->n - 1], &n, NULL, NULL, NULL, NULL);
  strike(s);
  assert_int_equal(cvy_tensor_read(shards[s->n - 1], values, (size_t)n * 64), CVY_E_DEVICE);
  assert_true(check_log_contains("nothing to read: the batch was on device 2"));
  relent(s);
  check_ok(cvy_tensor_read(shards[0], values, 4 * 64));
  assert_memory_equal(values, s->x, 4 * 64 * sizeof(float));
  for (int i = 0; i < s->n; i++) cvy_tensor_destroy(&shards[i]);
  goes_on(s);
}

/* The trace has what there is. */
static void ask_trace(scene *s) {
  cvy_trace_totals totals;
  strike(s);
  check_ok(cvy_team_trace_end(s->team, &totals));
  assert_true(totals.events > 0);
  assert_true(ends_whole(s->trace));
  assert_true(check_log_contains("the trace does not have all of device"));
  if (s->n > 1) goes_on(s);
  else assert_int_equal(cvy_team_wait(s->team), CVY_E_DEVICE);
  check_ok(cvy_team_trace_end(s->team, &totals)); /* there is none any more */
  assert_int_equal(totals.events, 0);
  relent(s);
}

static void ask_end(scene *s) {
  strike(s);
  check_release(s->d, s->team);
  assert_true(ends_whole(s->trace));
  layer_words(NULL);
}

typedef void (*ask_fn)(scene *s);

static long n_alive(void) {
  long n = 0;
  for (int kind = 0; kind < CVY_LIVE_KINDS; kind++) n += cvy_live_count((cvy_live_kind)kind);
  return n;
}

static void run_asks(check_device *d, const ask_fn *asks, const char *const *names, int n_asks, int n, const char *fail,
                     const char *hang) {
  for (int hangs = 0; hangs < 2; hangs++)
    for (int i = 0; i < n_asks; i++) {
      if (!check_case(d, "%s, the device %s", names[i], hangs ? "hangs" : "fails")) continue;
      const long alive = n_alive();
      scene s = begin(d, n, hangs ? hang : fail, hangs);
      asks[i](&s);
      check_case_end(d);
      if (!hangs) assert_int_equal(n_alive(), alive);
    }
}

CHECK_TEST(asked) {
  static const ask_fn asks[] = {ask_parameter, ask_verify, ask_classify, ask_load, ask_forward, ask_read};
  static const char *const names[] = {"parameter", "verify", "classify", "load", "forward", "read"};
  run_asks(d, asks, names, 6, 3, "fail=2:any:0:-36", "hang=2:0");
}

CHECK_TEST(trace) {
  static const ask_fn trace[] = {ask_trace}, end_of_team[] = {ask_end};
  run_asks(d, trace, (const char *const[]){"trace"}, 1, 3, "fail=2:any:0:-36", "hang-call=2:finish:0");
  run_asks(d, trace, (const char *const[]){"trace of one"}, 1, 1, "fail=0:any:0:-36", "hang-call=0:finish:0");
  run_asks(d, end_of_team, (const char *const[]){"end"}, 1, 3, "fail=2:any:0:-36", "hang-call=2:finish:0");
}

/* Every call may be the one that hangs, on any thread: the steps are done by the others. */
CHECK_TEST(anywhere) {
  static const char *const calls[] = {"info", "release", "info", "release"};
  static const int most[] = {400, 200, 40, 40}; /* in two steps */
  case_rng rng = check_rng_make(d, 21);
  for (int i = 0; i < 4; i++) {
    const char *const words = check_text("hang-call=2:%s:%d", calls[i], case_int(&rng, 0, most[i]));
    if (!check_case(d, "%s", words)) continue;
    scene s = begin(d, 3, words, true);
    do_step(&s);
    check_ok(cvy_team_wait(s.team));
    strike(&s);
    be_patient(&s, 2);
    for (int k = 0; k < 6; k++) do_step(&s);
    check_ok(cvy_team_wait(s.team));
    goes_on(&s);
    cvy_step_result result;
    bool got = true;
    for (int k = 0; k < s.steps; k++) { /* each once, and as many updates as results */
      check_ok(cvy_team_take(s.team, false, &result, &got));
      if (!got || result.step != k) check_fail(d, "step %ld for result %d", got ? result.step : -1, k);
    }
    check_ok(cvy_team_take(s.team, false, &result, &got));
    assert_false(got);
    assert_int_equal(cvy_ledger_updates(s.team->ledger), s.steps);
    check_case_end(d);
  }
}

/* The exchange thread is inside a call on device i. */
static bool is_inside(cvy_team *team, int i) {
  cvy_vital_signs signs;
  cvy_roster_lock(team->roster);
  const bool inside = cvy_roster_look(team->roster, i, &signs) && signs.entered;
  cvy_roster_unlock(team->roster);
  return inside;
}

/* The team has failed for another reason while its exchange thread is inside a call that hangs. */
CHECK_TEST(stop) {
  scene s = begin(d, 3, "hang=2:12", true);
  strike(&s);
  be_patient(&s, 2);
  do_step(&s);
  for (int seen = 0, tries = 0; seen < 5; seen = is_inside(s.team, 2) ? seen + 1 : 0) {
    if (tries++ == 500) check_fail(d, "the exchange thread is never inside the device");
    usleep(20000);
  }
  cvy_roster_lock(s.team->roster);
  cvy_roster_fail(s.team->roster, CVY_E_NOT_FINITE);
  cvy_roster_unlock(s.team->roster);
  check_release(d, s.team);
  layer_words(NULL);
}

int main(int argc, char **argv) {
  check_around(make_net, drop_net);
  return check_run(argc, argv, CHECK_DEVICES | CHECK_NOT_RUSTICL);
}
