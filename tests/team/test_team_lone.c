/* SPDX-License-Identifier: MIT
 * A device that has all samples of every batch, beside devices that have none (shares.h, lone): it gives the bits of a
 * team of one, the optimiser's moments follow when shares change, and when it is lost (tests/support/layer.c), the
 * others redo what it alone has done. */
#include <math.h>
#include <string.h>

#include "src/protocol/journal.h"
#include "src/team/publish.h"
#include "src/team/replan.h"
#include "tests/support/layer_words.h"
#include "tests/support/team_net.h"

enum { BATCH = 12, STEPS = 9 };

static void begin(check_device *d) {
  layer_words(NULL);
  make_net(d);
}

static void end(check_device *d) {
  layer_words(NULL);
  drop_net(d);
}

static void do_steps(cvy_team *team, int first, int last) {
  int32_t samples[BATCH];
  for (int s = first; s < last; s++) {
    for (int i = 0; i < BATCH; i++) samples[i] = (s * 17 + i * 7) % SAMPLES;
    cvy_team_set_epoch(team, s / 4);
    check_ok(cvy_team_step(team, samples, BATCH, 0.05f));
  }
}

/* Results come once, in order, and are those of the steps. */
static int take_results(cvy_team *team, int from, double *losses, double *norms) {
  cvy_step_result r;
  for (bool got = true; got;) {
    check_ok(cvy_team_take(team, false, &r, &got));
    if (!got) break;
    assert_int_equal(r.step, from);
    losses[from % STEPS] = r.loss;
    norms[from++ % STEPS] = r.grad_norm;
  }
  return from;
}

static cvy_team *open_team(check_device *d, const char *suffix, const cvy_team_params *params) {
  return check_team(d, check_devices(d, suffix), net, params, 3, data);
}

static bool same_state(cvy_team *a, cvy_team *b) {
  check_ok(cvy_team_sync(a));
  check_ok(cvy_team_sync(b));
  const size_t bytes = a->layout->n_floats * sizeof(float);
  bool same = memcmp(cvy_ledger_w(a->ledger), cvy_ledger_w(b->ledger), bytes) == 0 &&
              memcmp(cvy_ledger_running(a->ledger), cvy_ledger_running(b->ledger),
                     a->layout->n_running_floats * sizeof(float)) == 0;
  for (int m = 0; m < cvy_ledger_moments(a->ledger); m++)
    same = same && memcmp(cvy_ledger_moment(a->ledger, m), cvy_ledger_moment(b->ledger, m), bytes) == 0;
  return same && cvy_ledger_batches_in(a->ledger) == cvy_ledger_batches_in(b->ledger);
}

/* The optimisers, with what a step does beside them. */
static const cvy_team_params ways[] = {
    {.batch = BATCH, .momentum = 0.9f, .weight_decay = 1e-3f},
    {.batch = BATCH, .optimizer = CVY_OPTIMIZER_ADAM},
    {.batch = BATCH, .momentum = 0.9f, .nesterov = true, .clip_norm = 0.5f, .grad_norm = true},
    {.batch = BATCH, .bn = CVY_BN_SYNC, .momentum = 0.9f},
    {.batch = BATCH, .bn = CVY_BN_GHOST, .ghost = 4, .run_ahead = CVY_RUN_AHEAD_NONE},
};
enum { WAYS = sizeof ways / sizeof *ways };

CHECK_TEST(as_a_team_of_one) {
  static const double all[2][2] = {{BATCH, 0}, {0, BATCH}};
  for (int w = 0; w < WAYS; w++)
    for (int lone = 0; lone < 2; lone++) {
      if (!check_case(d, "way %d, device %d", w, lone)) continue;
      double want[STEPS], got[STEPS], want_norms[STEPS], got_norms[STEPS];
      cvy_team_params params = ways[w];
      cvy_team *const one = open_team(d, "", &params);
      params.split = CVY_SPLIT_SHARES;
      params.split_values = all[lone];
      cvy_team *const team = open_team(d, "*2", &params);
      assert_non_null(team->replicas[lone].lone);
      assert_null(team->replicas[1 - lone].lone);
      do_steps(one, 0, STEPS);
      do_steps(team, 0, STEPS);
      check_ok(cvy_team_wait(one));
      check_ok(cvy_team_wait(team));
      assert_int_equal(take_results(one, 0, want, want_norms), STEPS);
      assert_int_equal(take_results(team, 0, got, got_norms), STEPS);
      for (int s = 0; s < STEPS; s++)
        if (got[s] != want[s] || got_norms[s] != want_norms[s])
          check_fail(d, "step %d: loss %.9g, norm %.9g; a team of one has %.9g, %.9g", s, got[s], got_norms[s], want[s],
                     want_norms[s]);
      /* the idle device evaluates with the lone one's weights, and shows them */
      cvy_eval_result alone, both;
      check_ok(cvy_team_evaluate(one, CVY_SET_TEST, &alone));
      check_ok(cvy_team_evaluate(team, CVY_SET_TEST, &both));
      assert_true(both.correct == alone.correct && fabs(both.loss - alone.loss) <= 1e-6 * fabs(alone.loss));
      check_ok(cvy_team_verify(team));
      if (!same_state(team, one)) check_fail(d, "other bits than a team of one");
      check_case_end(d);
    }
}

/* Commands of these steps, on all the team's devices. (How often threads wait depends on what is ready when.) */
static long commands_of_steps(cvy_team *team, int first, int last) {
  static int times;
  static const char *const words[] = {"fail=0:launch:1000000:-5",
                                      "fail=0:launch:2000000:-5"}; /* so that calls are counted */
  layer_words(words[times++ % 2]);
  do_steps(team, first, last);
  check_ok(cvy_team_wait(team));
  static const char *const kinds[] = {"launch", "read", "write", "map", "unmap", "fill", "copy"};
  long commands = 0;
  for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) commands += layer_calls(kinds[k]);
  layer_words(NULL);
  return commands;
}

/* Beside idle devices a step has the commands of a team of one: nothing crosses. */
CHECK_TEST(nothing_crosses) {
  static const double all[] = {0, BATCH}, both[] = {4, 8};
  cvy_team_params params = ways[0];
  cvy_team *const one = open_team(d, "", &params);
  params.split = CVY_SPLIT_SHARES;
  params.split_values = all;
  cvy_team *const lone = open_team(d, "*2", &params);
  params.split_values = both;
  cvy_team *const team = open_team(d, "*2", &params);
  cvy_team *const teams[] = {one, lone, team};
  for (int t = 0; t < 3; t++) do_steps(teams[t], 0, 2);
  for (int t = 0; t < 3; t++) check_ok(cvy_team_wait(teams[t])); /* the commands of all are counted */
  const long want = commands_of_steps(one, 2, STEPS), got = commands_of_steps(lone, 2, STEPS),
             crossing = commands_of_steps(team, 2, STEPS);
  if (want <= 0 || got != want) check_fail(d, "%ld commands in %d steps, a team of one has %ld", got, STEPS - 2, want);
  if (crossing <= want + STEPS)
    check_fail(d, "%ld commands where gradients cross, %ld where they do not", crossing, want);
}

/* An idle device shows the weights of the lone one, also right behind a step. */
CHECK_TEST(weights_of_idle_devices) {
  const double all[] = {0, BATCH};
  const cvy_team_params params = {.batch = BATCH, .split = CVY_SPLIT_SHARES, .split_values = all};
  cvy_team *const team = open_team(d, "*2", &params);
  const size_t n = 16 * 9;
  float *const lone = check_floats(d, n), *const idle = check_floats(d, n);
  for (int s = 0; s < 3; s++) {
    do_steps(team, s, s + 1);
    check_ok(cvy_team_param_get(team, 1, "0.weight", lone, n));
    check_ok(cvy_team_param_get(team, 0, "0.weight", idle, n));
    assert_memory_equal(lone, idle, n * sizeof *lone);
  }
}

/* Shares go from one device to both, and to the other one: weights, moments and running values follow. Batch
 * statistics are those of groups, so that all shares compute the same but for rounding. */
CHECK_TEST(shares_change) {
  static const int shares[][2] = {{BATCH, 0}, {4, 8}, {0, BATCH}, {BATCH, 0}, {0, BATCH}, {8, 4}};
  enum { CHANGES = sizeof shares / sizeof *shares };
  for (int w = 0; w < 3; w++) {
    if (!check_case(d, "way %d", w)) continue;
    cvy_team_params params = ways[w];
    params.bn = CVY_BN_GHOST;
    params.ghost = 4;
    cvy_team *const one = open_team(d, "", &params), *const team = open_team(d, "*2", &params);
    for (int c = 0; c < CHANGES; c++) {
      bool done;
      check_ok(cvy_replan(team, NULL, shares[c], &done));
      assert_true(done);
      for (int i = 0; i < 2; i++) assert_int_equal(team->replicas[i].lone != NULL, shares[c][1 - i] == 0);
      do_steps(team, 3 * c, 3 * c + 3);
      do_steps(one, 3 * c, 3 * c + 3);
    }
    check_ok(cvy_team_sync(one));
    check_ok(cvy_team_sync(team));
    double worst = 0, length = 0;
    const cvy_param *const bias = &net->layout.params[cvy_layout_find(&net->layout, "0.bias")];
    for (size_t i = 0; i < net->layout.n_floats; i++) {
      /* in front of a batch normalisation: its gradient is rounding alone, of which Adam makes whole steps */
      if (i >= bias->offset && i < bias->offset + bias->size) continue;
      const double want = cvy_ledger_w(one->ledger)[i], off = cvy_ledger_w(team->ledger)[i] - want;
      worst += off * off;
      length += want * want;
    }
    /* as K devices against one: 1e-5 a step (DESIGN), for the steps here */
    if (!(sqrt(worst / length) <= 1e-5 * 3 * CHANGES))
      check_fail(d, "weights are off by %.3g of their length", sqrt(worst / length));
    check_case_end(d);
  }
}

/* Device 0 is lost in or between any of the steps: device 1 gives the bits that it would have given. */
CHECK_TEST(lone_device_is_lost) {
  static const struct {
    const char *words;
    int synced; /* the host has read the device after so many steps; -1: never */
  } cases[] = {{"fail=0:launch:40:-5", -1}, {"fail=0:launch:100:-5", -1}, {"fail=0:launch:110:-5", 2},
               {"fail=0:any:60:-5", -1},    {"fail=0:any:250:-5", 2},     {"fail=0:read:0:-5", -1},
               {"bad-event=0:60:-5", -1}};
  const double all[] = {BATCH, 0};
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
    if (!check_case(d, "%s, synced %d", cases[c].words, cases[c].synced)) continue;
    double want[STEPS], got[STEPS], norms[STEPS];
    cvy_team_params params = ways[0];
    cvy_team *const one = open_team(d, "", &params);
    params.split = CVY_SPLIT_SHARES;
    params.split_values = all;
    cvy_team *const team = open_team(d, "*2", &params);
    do_steps(one, 0, STEPS);
    do_steps(team, 0, 1);
    check_ok(cvy_team_wait(one)); /* the words are for its device, too */
    check_ok(cvy_team_wait(team));
    check_log_clear();
    layer_words(cases[c].words);
    for (int s = 1; s < STEPS; s++) {
      do_steps(team, s, s + 1);
      if (s == cases[c].synced) check_ok(cvy_team_sync(team));
    }
    check_ok(cvy_team_wait(team));
    check_ok(cvy_team_evaluate(team, CVY_SET_TEST, NULL)); /* reads the device: the latest moment for its loss */
    layer_words(NULL);
    if (!check_log_contains("the team continues without it") || !check_log_contains("are repeated"))
      check_fail(d, "no step of a lost device is done again");
    assert_non_null(team->replicas[1].lone);
    assert_int_equal(take_results(one, 0, want, norms), STEPS);
    assert_int_equal(take_results(team, 0, got, norms), STEPS);
    for (int s = 0; s < STEPS; s++)
      if (got[s] != want[s]) check_fail(d, "step %d: loss %.9g, not %.9g", s, got[s], want[s]);
    if (!same_state(team, one)) check_fail(d, "other bits than a team of one");
    check_case_end(d);
  }
}

/* Two devices are left of three: they redo the steps together, and the host has each of them. */
CHECK_TEST(two_take_over) {
  const double all[] = {0, BATCH, 0};
  const cvy_team_params params = {
      .batch = BATCH, .bn = CVY_BN_GHOST, .ghost = 4, .momentum = 0.9f, .split = CVY_SPLIT_SHARES, .split_values = all};
  cvy_team *const one = open_team(d, "",
                                  &(cvy_team_params){.batch = BATCH, .bn = CVY_BN_GHOST, .ghost = 4, .momentum = 0.9f}),
                  *const team = open_team(d, "*3", &params);
  do_steps(one, 0, STEPS);
  do_steps(team, 0, 5);
  layer_words("fail=1:launch:0:-5");
  do_steps(team, 5, STEPS);
  check_ok(cvy_team_wait(team));
  layer_words(NULL);
  for (int i = 0; i < 3; i++) assert_null(team->replicas[i].lone);
  assert_false(cvy_ring_is_behind(team->ring));
  assert_int_equal(cvy_ledger_steps(team->ledger), STEPS);
  assert_int_equal(cvy_ledger_batches_in(team->ledger), STEPS);
  check_ok(cvy_team_sync(one));
  for (size_t i = 0; i < net->layout.n_floats; i++)
    assert_float_equal(cvy_ledger_w(team->ledger)[i], cvy_ledger_w(one->ledger)[i], 1e-4f);
  check_ok(cvy_team_verify(team));
}

/* The host reads the device when the journal is full. */
CHECK_TEST(journal_is_full) {
  const double all[] = {0, BATCH};
  const cvy_team_params params = {.batch = BATCH, .split = CVY_SPLIT_SHARES, .split_values = all};
  cvy_team *const team = open_team(d, "*2", &params);
  const int most = CVY_JOURNAL_STEPS + 3;
  double losses[STEPS], norms[STEPS];
  for (int s = 0, taken = 0; s < most; s++) {
    do_steps(team, s, s + 1);
    taken = take_results(team, taken, losses, norms);
  }
  check_ok(cvy_team_wait(team));
  const long truth = cvy_ring_truth(team->ring);
  if (truth <= 0 || truth > CVY_JOURNAL_STEPS) check_fail(d, "the host has %ld steps of %d", truth, most);
  assert_int_equal(cvy_ledger_steps(team->ledger), truth);
}

int main(int argc, char **argv) {
  check_around(begin, end);
  return check_run(argc, argv, CHECK_DEVICES | CHECK_NOT_RUSTICL);
}
