/* SPDX-License-Identifier: MIT
 * A device whose memory is its own gets and sends through pinned memory (CVY_FORCE_STAGING), one that shares the host's
 * has its gradients mapped: the same bits, whatever the links let the one overtake (tests/layer.c). */
#include <stdio.h>

#include "src/team/publish.h"
#include "src/team/staging.h"
#include "tests/layer_words.h"
#include "tests/team_net.h"

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
  if (!cvy_device_get_facts(d->cl)->host_unified)
    check_skip(d, "the device's memory is its own: nothing can be mapped");
  const cvy_devices *const devices = check_devices(d, "*3");
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

/* A driver may have no pinned memory: the run goes on with ordinary memory, the same bits and a warning. */
CHECK_TEST(not_pinned) {
  if (!layer_is_loaded()) check_skip(d, "%s is not there, or not loaded: no memory can be missing", CVY_TEST_LAYER);
  const cvy_devices *const devices = check_devices(d, "*2");
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
