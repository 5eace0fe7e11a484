/* SPDX-License-Identifier: MIT
 * Teams whose shares follow speeds: slow devices are made by tests/support/layer.c, so far slower than the others that
 * noise does not matter. */
#include <limits.h>
#include <math.h>
#include <stdio.h>

#include "src/base/file.h"
#include "src/team/calibrate.h"
#include "tests/support/newest.h"
#include "src/run/resume.h"
#include "src/team/publish.h"
#include "src/team/rebalance.h"
#include "src/team/replan.h"
#include "tests/support/layer_words.h"
#include "tests/support/check_team.h"

enum { BATCH = 96, CLASSES = 10 };

static cvy_net *net;
static cvy_data *data;
static cvy_devices *devices;

/* Each test has a network, data and two devices. */
static void begin(check_device *d) {
  layer_words(NULL);
  unsetenv("CVY_MEMORY_LIMIT_MIB");
  net = check_net(d, 1, 16, 16);
  cvy_node x = cvy_net_conv2d(net, cvy_net_input(net), "0", &(cvy_conv2d_spec){.filters = 32, .kernel = {3, 3}});
  x = cvy_net_relu(net, cvy_net_batchnorm(net, x, "1", NULL));
  x = cvy_net_conv2d(net, x, "2", &(cvy_conv2d_spec){.filters = 32, .kernel = {3, 3}});
  x = cvy_net_relu(net, x);
  check_ok(cvy_net_finish(net, cvy_net_linear(net, x, "3", CLASSES, false)));
  data = check_data(d, "synthetic:6000:16x16x1");
  devices = check_devices(d, "*2");
}

static void end(check_device *d) {
  layer_words(NULL);
  unsetenv("CVY_MEMORY_LIMIT_MIB");
}

/* To what half of the batch takes and a little more. */
static void limit_memory(const cvy_team *team) {
  setenv("CVY_MEMORY_LIMIT_MIB", check_text("%zu", (cvy_instance_device_bytes(team->replicas[0].instance) >> 20) + 1),
         1);
}

static cvy_team *open_team(check_device *d, const cvy_team_params *params) {
  return check_team(d, devices, net, params, 3, data);
}

/* Steps `first` to `last` - 1 of the run. */
static void steps(cvy_team *team, int first, int last) {
  int32_t samples[BATCH];
  for (int s = first; s < last; s++) {
    for (int i = 0; i < BATCH; i++) samples[i] = (s * 31 + i * 7) % data->train.n;
    check_ok(cvy_team_step(team, samples, BATCH, 0.05f));
  }
}

static void expect_same(check_device *d, cvy_team *a, cvy_team *b, const char *what) {
  const cvy_layout *const l = cvy_net_layout(net);
  check_ok(cvy_team_sync(a));
  check_ok(cvy_team_sync(b));
  if (memcmp(cvy_ledger_w(a->ledger), cvy_ledger_w(b->ledger), l->n_floats * sizeof(float)) ||
      memcmp(cvy_ledger_running(a->ledger), cvy_ledger_running(b->ledger), l->n_running_floats * sizeof(float)))
    check_fail(d, "%s: other bits", what);
}

static cvy_pace *pace_of(cvy_team *team) { return team->rebalance ? cvy_rebalance_pace(team->rebalance) : NULL; }

static cvy_status set_shares(cvy_team *team, const int *shares, bool *done) {
  return cvy_replan(team, pace_of(team), shares, done);
}

/* Of a full batch, now. Lent until the next call. */
static const int *shares_of(cvy_team *team) {
  static int shares[8];
  cvy_shares_full(team->shares, shares);
  return shares;
}

static bool next_change(cvy_team *team, cvy_shares_change *out) {
  cvy_team_event event;
  const bool got = cvy_team_next_event(team, &event) && event.kind == CVY_TEAM_SHARES_CHANGED;
  if (got) *out = event.of.shares;
  return got;
}

static bool next_lost(cvy_team *team, cvy_lost_device *out) {
  cvy_team_event event;
  bool got;
  while ((got = cvy_team_next_event(team, &event)) && event.kind != CVY_TEAM_DEVICE_LOST) continue;
  if (got) *out = event.of.lost;
  return got;
}

/* Shares that change in mid-run give what a team with these shares makes of the same weights. */
CHECK_TEST(set_shares) {
  for (int run_ahead = CVY_RUN_AHEAD_NONE; run_ahead <= 2; run_ahead += run_ahead < 0 ? 2 : 1) {
    const char *const file = check_path("weights%d", run_ahead);
    bool done;
    cvy_team *const changed = open_team(d, &(cvy_team_params){.batch = BATCH,
                                                              .run_ahead = run_ahead,
                                                              .split = CVY_SPLIT_SHARES,
                                                              .split_values = (double[]){70, 26}}),
                    *const fixed = open_team(d, &(cvy_team_params){.batch = BATCH,
                                                                   .run_ahead = run_ahead,
                                                                   .split = CVY_SPLIT_SHARES,
                                                                   .split_values = (double[]){16, 80}});
    assert_int_equal(changed->replicas[1].params.sharers, 2); /* of one memory */
    steps(changed, 0, 3);
    check_ok(set_shares(changed, (int[]){16, 80}, &done));
    assert_true(done);
    assert_int_equal(changed->replicas[0].share_max, fixed->replicas[0].share_max);
    check_ok(cvy_team_save(changed, file));
    check_ok(cvy_team_load(fixed, file));
    steps(changed, 3, 6);
    steps(fixed, 3, 6);
    expect_same(d, changed, fixed, "after new shares");
    check_ok(cvy_team_verify(changed));
    /* a device without share, and back */
    check_ok(set_shares(changed, (int[]){0, 96}, &done));
    steps(changed, 6, 8);
    check_ok(set_shares(changed, (int[]){50, 46}, &done));
    steps(changed, 8, 10);
    check_ok(cvy_team_verify(changed));
    check_release(d, changed);
  }
}

/* What rounding has left of gradients outlives new shares; and with shares that follow speeds, the run is that of the
 * same shares, given. */
CHECK_TEST(bf16) {
  const size_t bytes = cvy_net_layout(net)->n_floats * sizeof(float);
  cvy_team_params p = {
      .batch = BATCH, .exchange = CVY_EXCHANGE_BF16, .split = CVY_SPLIT_SHARES, .split_values = (double[]){70, 26}};
  cvy_team *team = open_team(d, &p);
  float **before, **after;
  bool done;
  steps(team, 0, 3);
  check_ok(cvy_team_get_residuals(team, &before));
  check_ok(set_shares(team, (int[]){16, 80}, &done));
  check_ok(cvy_team_get_residuals(team, &after));
  for (int r = 0; r < 2; r++) {
    assert_memory_equal(after[r], before[r], bytes);
    size_t n = 0;
    for (size_t i = 0; i < bytes / sizeof(float); i++) n += before[r][i] != 0;
    assert_true(n > bytes / sizeof(float) / 4);
  }
  cvy_team_free_residuals(team, &before);
  cvy_team_free_residuals(team, &after);
  steps(team, 3, 5);
  check_ok(cvy_team_verify(team));
  check_release(d, team);
  layer_words("slow=1:20");
  p = (cvy_team_params){.batch = BATCH, .exchange = CVY_EXCHANGE_BF16, .split = CVY_SPLIT_AUTO};
  team = open_team(d, &p);
  const double shares[2] = {shares_of(team)[0], shares_of(team)[1]};
  p.split = CVY_SPLIT_SHARES;
  p.split_values = shares;
  cvy_team *const fixed = open_team(d, &p);
  steps(team, 0, 3);
  steps(fixed, 0, 3);
  check_ok(cvy_team_wait(team));
  if (shares_of(team)[0] == (int)shares[0])
    expect_same(d, team, fixed, "measured shares"); /* they have not moved since */
  check_ok(cvy_team_verify(team));
}

/* Measuring leaves nothing behind: the run is that of the same shares, given. */
CHECK_TEST(first_shares) {
  layer_words("slow=1:20");
  cvy_team *const measured =
      check_bare_team(d, devices, net, &(cvy_team_params){.batch = BATCH, .split = CVY_SPLIT_AUTO});
  assert_int_equal(cvy_team_split(measured), CVY_SPLIT_AUTO);
  const int *const shares = shares_of(measured);
  if (!(shares[0] > 2 * shares[1]))
    check_fail(d, "%d and %d samples for one that is 20 times slower", shares[0], shares[1]);
  cvy_shares_change change = {0};
  assert_true(next_change(measured, &change));
  assert_int_equal(change.step, 0);
  assert_int_equal(change.shares[0], shares[0]);
  assert_int_equal(change.before[0], BATCH / 2);
  assert_true(change.ms < change.ms_before);
  assert_non_null(strstr(change.json, "\"measured_ms\":[[8,"));
  assert_false(next_change(measured, &change));
  float zeros[32 * 9];
  check_ok(cvy_team_param_get(measured, 1, "0.weight", zeros, 32 * 9));
  for (int i = 0; i < 32 * 9; i++) assert_true(zeros[i] == 0);
  const cvy_layout *const l = cvy_net_layout(net);
  for (size_t i = 0; i < l->n_floats; i++) assert_true(cvy_ledger_w(measured->ledger)[i] == 0);
  for (size_t i = 0; i < l->n_running_floats; i++) assert_true(cvy_ledger_running(measured->ledger)[i] == 0);
  int32_t sample = 0;
  check_ok(cvy_team_attach(measured, data));
  check_fails(cvy_team_step(measured, &sample, 1, 0.1f), CVY_E_ARGUMENT, "no weights");
  check_ok(cvy_team_init(measured, &(cvy_init_params){.kind = CVY_INIT_HE, .seed = 3}));
  layer_words(NULL);
  cvy_team *const given = open_team(
      d,
      &(cvy_team_params){.batch = BATCH, .split = CVY_SPLIT_SHARES, .split_values = (double[]){shares[0], shares[1]}});
  steps(measured, 0, 4);
  steps(given, 0, 4);
  expect_same(d, measured, given, "measured shares");
}

CHECK_TEST(slowdown) {
  cvy_team *const team = open_team(d, &(cvy_team_params){.batch = BATCH, .split = CVY_SPLIT_AUTO});
  cvy_shares_change change = {0};
  bool told = false;
  steps(team, 0, 8);
  while (next_change(team, &change)) continue;
  layer_words("slow=1:30");
  int s = 8;
  for (; s < 28 && !told; s++) {
    steps(team, s, s + 1);
    while (next_change(team, &change)) told |= change.shares[1] < change.before[1] && change.step == s;
  }
  if (!told) check_fail(d, "20 steps after the slowdown shares are %d and %d", shares_of(team)[0], shares_of(team)[1]);
  assert_non_null(strstr(change.text, "instead of"));
  steps(team, s, s + 3);
  check_ok(cvy_team_verify(team));
}

/* A device without a share is tried again. */
CHECK_TEST(idle) {
  bool done;
  cvy_team *team = open_team(d, &(cvy_team_params){.batch = BATCH, .split = CVY_SPLIT_AUTO});
  pace_of(team)->devices[1].factor = 1e6;
  check_ok(set_shares(team, (int[]){BATCH, 0}, &done));
  steps(team, 0, 20);
  assert_true(cvy_pace_factor(pace_of(team), 1) == 1e6);
  steps(team, 20, 52);
  assert_true(cvy_pace_factor(pace_of(team), 1) < 1000);
  check_ok(cvy_team_verify(team));
  /* and lost if it fails at that */
  pace_of(team)->devices[1].factor = 1e6;
  check_ok(set_shares(team, (int[]){BATCH, 0}, &done));
  layer_words("fail=1:launch:0:-5");
  steps(team, 52, 106);
  layer_words(NULL);
  cvy_lost_device loss;
  assert_true(next_lost(team, &loss));
  assert_int_equal(loss.device, 1);
  check_ok(cvy_team_verify(team));
  /* who was lost, or got a share, while another one was tried is left alone */
  cvy_step_time tried;
  check_ok(cvy_calibrate_idle(team, pace_of(team), 1, &tried));
  assert_int_equal(tried.n, 0);
  check_ok(cvy_calibrate_idle(team, pace_of(team), 0, &tried));
  assert_int_equal(tried.n, 0);
}

/* Devices of one kind are not measured unless that is asked for; one device never is. */
CHECK_TEST(default) {
  static const struct {
    const char *suffix;
    cvy_split_kind split;
  } cases[] = {{"", CVY_SPLIT_UNLIKE}, {"", CVY_SPLIT_AUTO}, {"*2", CVY_SPLIT_UNLIKE}};
  for (int i = 0; i < 3; i++) {
    devices = check_devices(d, cases[i].suffix);
    cvy_team *const team = open_team(d, &(cvy_team_params){.batch = BATCH, .split = cases[i].split});
    cvy_shares_change change = {0};
    assert_int_equal(cvy_team_split(team), CVY_SPLIT_EVEN);
    assert_false(next_change(team, &change));
    steps(team, 0, 2);
    check_release(d, team);
  }
}

/* Sizes are measured in whole groups: where a layer has one pixel, a group of one sample has no statistics. */
CHECK_TEST(groups) {
  enum { SMALL = 40, GROUP = 4 };
  int32_t samples[SMALL];
  net = check_net(d, 1, 16, 16);
  cvy_node x = cvy_net_linear(net, cvy_net_input(net), "0", 32, false);
  x = cvy_net_relu(net, cvy_net_batchnorm(net, x, "1", NULL));
  check_ok(cvy_net_finish(net, cvy_net_linear(net, x, "2", CLASSES, false)));
  cvy_team *const team =
      open_team(d, &(cvy_team_params){.batch = SMALL, .bn = CVY_BN_GHOST, .ghost = GROUP, .split = CVY_SPLIT_AUTO});
  for (int r = 0; r < 2; r++)
    for (int k = 0; k < pace_of(team)->known[r].n_points; k++)
      if (pace_of(team)->known[r].points[k].n % GROUP != 0)
        check_fail(d, "device %d was measured with %d samples", r, pace_of(team)->known[r].points[k].n);
  for (int i = 0; i < SMALL; i++) samples[i] = i;
  check_ok(cvy_team_step(team, samples, SMALL, 0.05f));
  check_ok(cvy_team_verify(team));
}

/* Memory limits a share where it would mean several passes. */
CHECK_TEST(memory) {
  cvy_team *const roomy = open_team(d, &(cvy_team_params){.batch = BATCH});
  cvy_replica_info info;
  assert_true(cvy_team_replica(roomy, 0, &info));
  int most;
  limit_memory(roomy);
  check_ok(cvy_instance_room(roomy->replicas[0].instance, BATCH, &most));
  assert_true(most >= BATCH / 2 && most < BATCH);
  check_release(d, roomy);
  layer_words("slow=1:40");
  cvy_team *team = open_team(d, &(cvy_team_params){.batch = BATCH, .split = CVY_SPLIT_AUTO});
  for (int r = 0; r < 2; r++) {
    assert_true(cvy_team_replica(team, r, &info));
    if (info.share > most || info.micro_batch < info.share)
      check_fail(d, "device %d has a share of %d in passes of %d, room for %d", r, info.share, info.micro_batch, most);
  }
  steps(team, 0, 3);
  /* which ends with the device that had the rest: the other one does the batch in several passes */
  layer_words("fail=1:launch:0:-5");
  steps(team, 3, 4);
  layer_words(NULL);
  cvy_lost_device loss;
  check_ok(cvy_team_wait(team));
  assert_true(next_lost(team, &loss));
  assert_int_equal(loss.device, 1);
  steps(team, 4, 4 + 2 * CVY_PACE_WINDOW);
  check_ok(cvy_team_wait(team));
  assert_true(cvy_team_replica(team, 0, &info));
  assert_int_equal(info.share, BATCH);
  assert_true(info.micro_batch < BATCH);
  check_ok(cvy_team_verify(team));
}

/* Batch statistics of all need each share in one pass. Where those that are left have no memory for that, the run ends
 * with its state whole, also if the device was lost between two steps. */
CHECK_TEST(no_room) {
  int32_t samples[BATCH] = {0};
  cvy_lost_device loss;
  const cvy_team_params params = {.batch = BATCH, .bn = CVY_BN_SYNC};
  cvy_team *team = open_team(d, &params);
  limit_memory(team);
  check_release(d, team);
  for (int between = 0; between < 2; between++) {
    team = open_team(d, &params);
    steps(team, 0, 2);
    check_ok(cvy_team_wait(team));
    check_log_clear();
    layer_words("fail=1:any:0:-36");
    if (between) check_ok(cvy_team_verify(team));
    check_fails(cvy_team_step(team, samples, BATCH, 0.05f) || cvy_team_wait(team) ? CVY_E_ARGUMENT : CVY_OK,
                CVY_E_ARGUMENT, "needs each share in one pass: device 0");
    layer_words(NULL);
    assert_true(next_lost(team, &loss));
    assert_int_equal(loss.device, 1);
    assert_true(cvy_roster_ended_by_devices(team->roster));
    assert_int_equal(cvy_ledger_steps(team->ledger), 2);
    check_ok(cvy_team_save(team, check_path("weights%d", between)));
    check_release(d, team);
  }
}

/* No memory for the new shares, and none any more for the old ones: such a device is lost, and with the last one the
 * run ends, its state whole. */
CHECK_TEST(no_way_back) {
  static const char *const words[] = {"fail=1:buffer:0:-4", "fail=1:any:0:-6", "fail=all:buffer:0:-4"};
  for (int i = 0; i < 3; i++) {
    const bool all = i == 2;
    cvy_team *team =
        open_team(d, &(cvy_team_params){.batch = BATCH, .split = CVY_SPLIT_SHARES, .split_values = (double[]){70, 26}});
    cvy_eval_result evaluated;
    cvy_lost_device loss = {0};
    bool done;
    steps(team, 0, 2);
    check_ok(cvy_team_wait(team));
    check_log_clear();
    layer_words(words[i]);
    const cvy_status status = set_shares(team, (int[]){50, 46}, &done);
    layer_words(NULL);
    assert_false(done);
    assert_true(next_lost(team, &loss));
    if (!all) assert_int_equal(loss.device, 1);
    if (all) { /* both fail at once: recovery may find them together, or one after the other in either order */
      const int first = loss.device;
      assert_true(next_lost(team, &loss));
      assert_int_equal(loss.device, 1 - first);
      assert_int_equal(status, CVY_E_DEVICE_MEMORY);
      assert_true(cvy_roster_ended_by_devices(team->roster));
      assert_int_equal(cvy_ledger_steps(team->ledger), 2);
      check_fails(cvy_team_evaluate(team, CVY_SET_TEST, &evaluated), CVY_E_DEVICE_MEMORY, "");
      check_ok(cvy_team_save(team, check_path("weights_left")));
    } else {
      check_ok(status);
      assert_true(check_log_contains("the team continues without it, on 1 device"));
      steps(team, 2, 4);
      check_ok(cvy_team_evaluate(team, CVY_SET_TEST, &evaluated));
      check_ok(cvy_team_verify(team));
      assert_int_equal(shares_of(team)[0], BATCH);
    }
    check_release(d, team);
  }
}

/* The price of the exchange is that of what crosses; with staleness it goes on beside the next step. */
CHECK_TEST(exchange_price) {
  enum { LINK = 1000000 }; /* bytes per second: nothing else is as slow */
  const double floats = (double)cvy_net_layout(net)->n_floats;
  for (int packs = 0; packs < 2; packs++) {
    const double least = floats * (packs ? 6 : 8) / LINK;
    double transfer_s = INFINITY, host_s;
    cvy_team *team =
        open_team(d, &(cvy_team_params){.batch = BATCH, .exchange = packs ? CVY_EXCHANGE_BF16 : CVY_EXCHANGE_FP32});
    layer_words("link=all:0.001");
    /* Other programs on the machine may make one measurement longer, and none shorter: the least of four counts. */
    for (int measured = 0; measured < 4 && transfer_s >= 1.2 * least; measured++) {
      double once_s;
      check_ok(cvy_calibrate_exchange(team, &once_s, &host_s));
      transfer_s = fmin(transfer_s, once_s);
    }
    layer_words(NULL);
    if (!(transfer_s > 0.95 * least && transfer_s < 1.2 * least))
      check_fail(d, "%s: %g s, the link takes %g s", packs ? "bf16" : "fp32", transfer_s, least);
    check_ok(cvy_team_verify(team));
    check_release(d, team);
  }
  cvy_team *team = open_team(d, &(cvy_team_params){.batch = BATCH, .split = CVY_SPLIT_AUTO, .staleness = 1});
  for (int r = 0; r < 2; r++) {
    assert_true(pace_of(team)->devices[r].stale && pace_of(team)->devices[r].exchange_s > 0);
    assert_true(pace_of(team)->devices[r].tail_s == 0);
  }
  assert_true(pace_of(team)->params.part_s == 0);
  steps(team, 0, 2);
  check_ok(cvy_team_verify(team));
}

/* The only checkpoint of the folder with its shares, "48,48", replaced, and a checksum that is right again: the message
 * of the wrong one says which. */
static void replace_shares(const cvy_team *team, const char *dir, const char *shares) {
  const char *const path = check_text("%s/step-0000000001.safetensors", dir);
  size_t n;
  cvy_checkpoint_data c;
  bool found;
  char *const bytes = check_read(path, &n);
  char *const at = memmem(bytes, n, "\"48,48\"", 7);
  assert_non_null(at);
  memcpy(at + 1, shares, 5);
  check_write(path, bytes, n);
  check_fails(newest_load(dir, team->layout, NULL, &c, &found), CVY_E_FORMAT, "stored is ");
  const char *const is = strstr(check_log_get(), "its content is ") + 15, *const was = strstr(is, "stored is ") + 10;
  char *const stored = memmem(bytes, n, was, 16);
  assert_non_null(stored);
  memcpy(stored, is, 16);
  check_write(path, bytes, n);
}

/* Checkpoints that say of themselves that they are whole, with shares that cannot be. */
CHECK_TEST(hostile_shares) {
  static const char *const wrong[] = {"xxxxx", "48,-8", "48,,8", "1e1,0", "48,48"};
  cvy_team *const team = open_team(d, &(cvy_team_params){.batch = BATCH});
  for (int i = 0; i < 5; i++) {
    const char *const dir = check_path("hostile%d", i);
    const cvy_checkpoint_data c = {.at.step = 1,
                                   .shares = (int[]){48, 48},
                                   .n_shares = 2,
                                   .w = cvy_ledger_w(team->ledger),
                                   .running = cvy_ledger_running(team->ledger)};
    check_ok(cvy_checkpoint_write(dir, team->layout, &c, 1));
    if (i < 4) replace_shares(team, dir, wrong[i]);
    cvy_checkpoint_data read;
    bool found;
    if (i < 4) {
      check_fails(newest_load(dir, team->layout, NULL, &read, &found), CVY_E_FORMAT, "numbers of samples");
      continue;
    }
    check_ok(newest_load(dir, team->layout, NULL, &read, &found));
    const cvy_resume_values resume_values = cvy_checkpoint_resume_values(newest_opened);
    check_log_clear();
    cvy_team *const other = check_bare_team(
        d, devices, net, &(cvy_team_params){.batch = BATCH, .split = CVY_SPLIT_AUTO, .resume = &resume_values});
    newest_clear(&read);
    assert_true(cvy_shares_rule(other->shares)->values[0] == 48 && !check_log_contains("shares by measured"));
  }
  bool same; /* 2^32 + 96 */
  const cvy_checkpoint_data c = {
      .at.step = 1, .shares = (int[]){INT_MAX, INT_MAX, BATCH + 2}, .n_shares = 3, .devices = "[]"};
  check_fails(cvy_resume_check(team, &c, &same), CVY_E_MISMATCH, "batches of 4294967392 samples");
}

int main(int argc, char **argv) {
  check_around(begin, end);
  return check_run(argc, argv, CHECK_DEVICES | CHECK_NOT_RUSTICL);
}
