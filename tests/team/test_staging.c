/* SPDX-License-Identifier: MIT
 * A device whose memory is its own gets and sends through pinned memory (CVY_FORCE_STAGING), one that shares the host's
 * has its gradients mapped: the same bits, whatever the links let the one overtake (tests/support/layer.c). */
#include <math.h>
#include <stdio.h>

#include "src/team/publish.h"
#include "src/replica/staging.h"
#include "tests/support/layer_words.h"
#include "tests/support/check_team.h"
#include "tests/support/team_net.h"

enum { BATCH = 12, STEPS = 6 };

typedef struct run {
  double losses[STEPS];
  float *w;
} run;

/* One batch has two samples: the last of three devices has no share of it. */
static run train(check_device *d, cvy_team *team, const char *words) {
  const size_t n = team->layout->n_floats;
  run out = {.w = check_floats(d, n)};
  check_ok(cvy_team_init(team, &(cvy_init_params){.kind = CVY_INIT_HE, .seed = 3, .force = true}));
  layer_words(words);
  for (int s = 0; s < STEPS; s++) {
    int32_t samples[BATCH];
    const int images = s == STEPS / 2 ? 2 : BATCH;
    for (int i = 0; i < images; i++) samples[i] = (s * 17 + i * 7) % SAMPLES;
    check_ok(cvy_team_step(team, samples, images, 0.1f));
  }
  check_ok(cvy_team_wait(team));
  layer_words(NULL);
  for (int s = 0; s < STEPS; s++) {
    cvy_step_result r;
    bool got;
    check_ok(cvy_team_take(team, true, &r, &got));
    assert_true(got);
    out.losses[s] = r.loss;
  }
  check_ok(cvy_team_verify(team));
  memcpy(out.w, cvy_ledger_w(team->ledger), n * sizeof *out.w);
  return out;
}

CHECK_TEST(staged) {
  static const char *const links[] = {NULL, "link=all:0.02", "link=all:0.1:0.005", "link=all:0.005:0.1"};
  if (!layer_is_loaded()) check_skip(d, "%s is not there, or not loaded: links cannot be slow", CVY_TEST_LAYER);
  if (!cvy_device_get_capabilities(d->cl)->host_unified)
    check_skip(d, "the device's memory is its own: nothing can be mapped");
  cvy_devices *const devices = check_devices(d, "*3");
  for (int how = 0; how < 4; how++) {
    cvy_team_params params = {.batch = BATCH,
                              .staleness = how & 1,
                              .exchange = how & 2 ? CVY_EXCHANGE_BF16 : CVY_EXCHANGE_FP32,
                              .momentum = 0.9f,
                              .bucket_mib = 0.001};
    run want = {.w = NULL};
    for (int staged = 0; staged < 2; staged++)
      for (params.run_ahead = CVY_RUN_AHEAD_NONE; params.run_ahead <= 2;
           params.run_ahead += params.run_ahead < 0 ? 2 : 1) {
        if (staged) setenv("CVY_FORCE_STAGING", "1", 1);
        cvy_team *const team = check_bare_team(d, devices, net, &params);
        unsetenv("CVY_FORCE_STAGING");
        assert_true(cvy_staging_maps(team->replicas[0].staging) == !staged);
        check_ok(cvy_team_attach(team, data));
        for (size_t l = 0; l < sizeof links / sizeof *links; l++) {
          const run got = train(d, team, links[l]);
          if (!want.w) want = got;
          if (memcmp(got.w, want.w, team->layout->n_floats * sizeof *got.w) != 0 ||
              memcmp(got.losses, want.losses, sizeof got.losses) != 0)
            check_fail(d,
                       "%s, staleness %d, exchange %s, run-ahead %d, %s: other bits than mapped without links (last "
                       "loss %.9g, not %.9g)",
                       staged ? "staged" : "mapped", params.staleness, params.exchange ? "bf16" : "fp32",
                       params.run_ahead, links[l] ? links[l] : "no links", got.losses[STEPS - 1],
                       want.losses[STEPS - 1]);
        }
        check_release(d, team);
      }
  }
}

/* Calls of the driver in STEPS steps with buckets of this size, and how many buckets there are. */
typedef struct calls {
  double all, flushes, barriers;
  int buckets;
} calls;

static void run_steps(cvy_team *team, int steps) {
  const int32_t samples[BATCH] = {0};
  for (int s = 0; s < steps; s++) check_ok(cvy_team_step(team, samples, BATCH, 0.01f));
  check_ok(cvy_team_wait(team));
}

static calls count_calls(check_device *d, double bucket_mib, bool clips, int devices) {
  /* calls are counted while something is to fail, here never */
  static const char *const words[] = {"fail=all:any:1000000000:-5", "fail=all:any:1000000001:-5"};
  static int times;
  const cvy_team_params params = {
      .batch = BATCH, .bucket_mib = bucket_mib, .clip_norm = clips ? 1e6f : 0, .untimed = true};
  cvy_team *const team = check_team(d, check_devices(d, check_text("*%d", devices)), check_model(d, "lenet", 1, 28),
                                    &params, 0, check_data(d, "synthetic:64"));
  run_steps(team, 2);              /* compiles kernels, and sets arguments that stay */
  layer_words(words[times++ % 2]); /* counts begin anew at the next call */
  run_steps(team, STEPS);
  const calls out = {.all = (double)(layer_calls("any") + layer_calls("info") + layer_calls("release")),
                     .flushes = (double)layer_calls("flush"),
                     .barriers = (double)layer_calls("barrier"),
                     .buckets = team->layout->n_buckets};
  layer_words(NULL);
  check_case_end(d);
  return out;
}

/* The calls of its driver that one more bucket costs a device: marker and flush of the compute queue, read and flush,
 * the marker's release, a look at the read, perhaps a wait and another look, its release, write and flush, the write's
 * release. The compute queue waits for uploads once a step; with a limit for the gradient's norm, after which the first
 * bucket goes up last, for each. */
CHECK_TEST(calls) {
  enum { DEVICES = 2, MOST = 12 };
  if (!layer_is_loaded()) check_skip(d, "%s is not there, or not loaded: it counts the calls", CVY_TEST_LAYER);
  setenv("CVY_FORCE_STAGING", "1", 1);
  for (int clips = 0; clips < 2; clips++) {
    const calls one = count_calls(d, 64, clips, DEVICES), more = count_calls(d, 0.001, clips, DEVICES);
    const double buckets = (double)(more.buckets - one.buckets) * DEVICES * STEPS;
    const double each = (more.all - one.all) / buckets, flushes = (more.flushes - one.flushes) / buckets,
                 waits = (more.barriers - one.barriers) / buckets;
    assert_true(one.buckets == 1 && more.buckets >= 3);
    print_message("%s: a bucket more costs a device %.2f calls of its driver, %.2f of them flushes, %.2f barriers\n",
                  clips ? "clipped" : "plain", each, flushes, waits);
    if (each > MOST + clips) check_fail(d, "a bucket costs %.2f calls, expected at most %d", each, MOST + clips);
    if (fabs(flushes - 3) > 0.01) check_fail(d, "a bucket costs %.2f flushes, expected one of each queue", flushes);
    if (!clips && waits > 0.01) check_fail(d, "a bucket costs %.2f waits of the compute queue, expected none", waits);
  }
  unsetenv("CVY_FORCE_STAGING");
}

/* A driver may have no pinned memory: the run goes on with ordinary memory, the same bits and a warning. */
CHECK_TEST(not_pinned) {
  if (!layer_is_loaded()) check_skip(d, "%s is not there, or not loaded: no memory can be missing", CVY_TEST_LAYER);
  cvy_devices *const devices = check_devices(d, "*2");
  const cvy_team_params params = {.batch = BATCH, .momentum = 0.9f, .bucket_mib = 0.001};
  run want = {.w = NULL};
  setenv("CVY_FORCE_STAGING", "1", 1);
  for (int missing = 0; missing < 2; missing++) {
    layer_words(missing ? "no-pinned" : NULL);
    check_log_clear();
    cvy_team *const team = check_bare_team(d, devices, net, &params);
    check_ok(cvy_team_attach(team, data));
    assert_int_equal(check_log_contains("no pinned memory"), missing);
    const run got = train(d, team, missing ? "no-pinned" : NULL);
    if (!missing) want = got;
    else if (memcmp(got.w, want.w, team->layout->n_floats * sizeof *got.w) != 0) check_fail(d, "other bits");
    check_release(d, team);
  }
  unsetenv("CVY_FORCE_STAGING");
  layer_words(NULL);
}

int main(int argc, char **argv) {
  check_around(make_net, drop_net);
  return check_run(argc, argv, CHECK_DEVICES | CHECK_NOT_RUSTICL);
}
