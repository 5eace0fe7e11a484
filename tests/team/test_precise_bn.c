/* SPDX-License-Identifier: MIT
 * Running values that are computed anew at the end of a run: against plain loops in double, for every mode of batch
 * normalisation and several divisions of a batch; frozen layers; checkpoints and runs that are resumed. */
#include <math.h>
#include <string.h>

#include "src/run/lag_watch.h"
#include "src/team/publish.h"
#include "tests/support/check_team.h"

enum {
  SIDE = 8,
  INNER = SIDE - 2, /* behind a 3x3 filter without padding */
  FIRST = 6,
  SECOND = 5,
  SAMPLES = 50,
  BATCH = 20, /* 3 steps an epoch, the last of 10 samples */
  GROUP = 4,
  N_BATCHES = 5, /* more than an epoch */
  EPOCHS = 2,
  SEED = 7
};

static cvy_net *make_net_with(check_device *d, float dropout) {
  cvy_net *const net = check_net(d, 1, SIDE, SIDE);
  cvy_node x = cvy_net_conv2d(net, cvy_net_input(net), "0", &(cvy_conv2d_spec){.filters = FIRST, .kernel = {3, 3}});
  x = cvy_net_relu(net, cvy_net_batchnorm(net, x, "1", NULL));
  if (dropout > 0) x = cvy_net_dropout(net, x, dropout);
  x = cvy_net_conv2d(net, x, "3", &(cvy_conv2d_spec){.filters = SECOND, .kernel = {1, 1}});
  x = cvy_net_relu(net, cvy_net_batchnorm(net, x, "4", NULL));
  check_ok(cvy_net_finish(net, cvy_net_linear(net, x, "6", 10, false)));
  return net;
}

static cvy_net *make_net(check_device *d) { return make_net_with(d, 0); }

typedef struct kept {
  float running[2][2][8]; /* layer, mean or variance, channel */
  cvy_train_result result;
  cvy_team *team;
} kept;

/* A run from nothing; the team stays open until the case ends. */
static kept run(check_device *d, const char *suffix, const cvy_team_params *how, const cvy_train_params *given,
                const cvy_net *net, const cvy_data *data) {
  kept k = {0};
  cvy_team_params team_params = *how;
  cvy_checkpoint *opened = NULL;
  cvy_resume_values resume_values;
  team_params.batch = BATCH;
  if (given->resume) check_ok(cvy_checkpoint_open(given->checkpoint_dir, &opened));
  if (opened) {
    resume_values = cvy_checkpoint_resume_values(opened);
    team_params.resume = &resume_values;
  }
  k.team = check_team(d, check_devices(d, suffix), net, &team_params, SEED, data);
  cvy_train_params p = *given;
  p.opened = opened;
  p.lr = 0.05f;
  p.seed = SEED;
  if (p.epochs == 0) p.epochs = EPOCHS;
  check_ok(cvy_train(k.team, data, &p, &k.result));
  check_ok(cvy_team_sync(k.team));
  for (int l = 0; l < 2; l++) {
    const cvy_running *const r = &k.team->layout->running[l];
    const int at = strcmp(r->name, "1") == 0 ? 0 : 1;
    for (int row = 0; row < 2; row++)
      memcpy(k.running[at][row], cvy_ledger_running(k.team->ledger) + r->offset + row * r->pitch,
             (size_t)r->c * sizeof(float));
  }
  cvy_checkpoint_close(&opened);
  return k;
}

/* ---- the truth, in double ---- */

typedef struct truth {
  double w1[FIRST][9], b1[FIRST], g1[FIRST], s1[FIRST], w2[SECOND][FIRST], b2[SECOND];
  double sums[2][2][8]; /* layer; n times mean, n times mean of squares; channel */
  double n;
} truth;

static void get(cvy_team *team, const char *name, size_t n, double *out) {
  float values[FIRST * 9];
  check_ok(cvy_team_param_get(team, 0, name, values, n));
  for (size_t i = 0; i < n; i++) out[i] = (double)values[i];
}

enum { PIXELS = INNER * INNER };

/* Adds a group of n samples: of one device's share, of GROUP samples, or of the whole batch. */
static void add_group(truth *t, const cvy_data *data, const int32_t *samples, int n) {
  static double a[BATCH][PIXELS][FIRST];
  double mean[FIRST] = {0}, square[FIRST] = {0}, count = (double)n * PIXELS;
  for (int i = 0; i < n; i++) {
    const uint8_t *const image = data->train.images + (size_t)samples[i] * SIDE * SIDE;
    for (int p = 0; p < PIXELS; p++)
      for (int k = 0; k < FIRST; k++) {
        double sum = t->b1[k];
        for (int f = 0; f < 9; f++) sum += t->w1[k][f] * image[(p / INNER + f / 3) * SIDE + p % INNER + f % 3] / 255;
        a[i][p][k] = sum;
        mean[k] += sum / count;
      }
  }
  for (int i = 0; i < n; i++)
    for (int p = 0; p < PIXELS; p++)
      for (int k = 0; k < FIRST; k++) square[k] += (a[i][p][k] - mean[k]) * (a[i][p][k] - mean[k]) / count;
  for (int k = 0; k < FIRST; k++) {
    t->sums[0][0][k] += n * mean[k];
    t->sums[0][1][k] += n * (square[k] + mean[k] * mean[k]);
  }
  for (int i = 0; i < n; i++)
    for (int p = 0; p < PIXELS; p++)
      for (int q = 0; q < SECOND; q++) {
        double sum = t->b2[q];
        for (int k = 0; k < FIRST; k++) {
          const double y = (a[i][p][k] - mean[k]) / sqrt(square[k] + 1e-5) * t->g1[k] + t->s1[k];
          sum += t->w2[q][k] * (y > 0 ? y : 0);
        }
        t->sums[1][0][q] += n * sum / count;
        t->sums[1][1][q] += n * sum * sum / count;
      }
  t->n += n;
}

/* shares: of a full batch, 0 behind the last device. */
static void compare(const kept *k, const cvy_team_params *how, const int *shares, const cvy_data *data) {
  static truth t;
  t = (truth){0};
  get(k->team, "0.weight", (size_t)FIRST * 9, t.w1[0]);
  get(k->team, "0.bias", FIRST, t.b1);
  get(k->team, "1.weight", FIRST, t.g1);
  get(k->team, "1.bias", FIRST, t.s1);
  get(k->team, "3.weight", (size_t)SECOND * FIRST, t.w2[0]);
  get(k->team, "3.bias", SECOND, t.b2);
  int32_t order[SAMPLES];
  for (int b = 0; b < N_BATCHES; b++) {
    const int at = b % 3 * BATCH, n = SAMPLES - at < BATCH ? SAMPLES - at : BATCH;
    cvy_sampler_order(SEED, EPOCHS + b / 3, false, SAMPLES, order);
    if (how->bn == CVY_BN_SYNC) add_group(&t, data, order + at, n);
    for (int from = 0, i = 0; how->bn == CVY_BN_DEVICE && from < n; from += shares[i++] * n / BATCH)
      add_group(&t, data, order + at + from, shares[i] * n / BATCH);
    for (int from = 0; how->bn == CVY_BN_GHOST && from < n; from += GROUP)
      add_group(&t, data, order + at + from, n - from < GROUP ? n - from : GROUP);
  }
  assert_true(t.n == 90);
  for (int l = 0; l < 2; l++)
    for (int c = 0; c < (l ? SECOND : FIRST); c++) {
      const double mean = t.sums[l][0][c] / t.n, variance = t.sums[l][1][c] / t.n - mean * mean;
      const double off = fabs((double)k->running[l][0][c] - mean), wide = fabs((double)k->running[l][1][c] - variance);
      if (!(off <= 2e-5 * sqrt(variance + mean * mean)) || !(wide <= 5e-5 * (variance + 1e-5)))
        fail_msg("batchnorm %d, channel %d: mean %.9g, variance %.9g; expected %.9g, %.9g (bn %d, shares %d+%d)", l, c,
                 (double)k->running[l][0][c], (double)k->running[l][1][c], mean, variance, (int)how->bn, shares[0],
                 shares[1]);
    }
}

CHECK_TEST(against_double) {
  static const cvy_team_params modes[] = {
      {.bn = CVY_BN_DEVICE}, {.bn = CVY_BN_GHOST, .ghost = GROUP}, {.bn = CVY_BN_SYNC}};
  static const struct {
    const char *suffix;
    int shares[4];
  } teams[] = {{"", {BATCH}}, {"*2", {10, 10}}, {"*2", {16, 4}}};
  cvy_net *const net = make_net(d);
  cvy_data *const data = check_data(d, check_text("synthetic:%d:%dx%dx1", SAMPLES, SIDE, SIDE));
  for (size_t m = 0; m < sizeof modes / sizeof *modes; m++)
    for (size_t i = 0; i < sizeof teams / sizeof *teams; i++) {
      const double weights[] = {teams[i].shares[0], teams[i].shares[1]};
      cvy_team_params how = modes[m];
      how.split = CVY_SPLIT_WEIGHTS;
      how.split_values = weights;
      const kept k = run(d, teams[i].suffix, &how, &(cvy_train_params){.precise_bn = N_BATCHES}, net, data);
      assert_int_equal(k.result.precise_bn, N_BATCHES);
      assert_true(k.result.test_acc >= 0);
      compare(&k, &how, teams[i].shares, data);
    }
}

/* Dropouts draw as in training, by sample and epoch: one device and two have the same running values, which are not
 * those of the network without them. */
CHECK_TEST(dropped) {
  static const double even[] = {1, 1};
  cvy_data *const data = check_data(d, check_text("synthetic:%d:%dx%dx1", SAMPLES, SIDE, SIDE));
  const cvy_team_params how = {.bn = CVY_BN_SYNC, .split = CVY_SPLIT_WEIGHTS, .split_values = even};
  const cvy_train_params precise = {.precise_bn = N_BATCHES, .epochs = 1};
  kept k[3];
  for (int i = 0; i < 3; i++) {
    cvy_net *const net = make_net_with(d, i < 2 ? 0.5f : 0);
    k[i] = run(d, i == 1 ? "*2" : "", &how, &precise, net, data);
    assert_int_equal(k[i].result.precise_bn, N_BATCHES);
  }
  for (int c = 0; c < SECOND; c++)
    for (int row = 0; row < 2; row++) {
      const float one = k[0].running[1][row][c], two = k[1].running[1][row][c];
      if (!(fabsf(one - two) <= 1e-4f * (fabsf(one) + 1e-3f)))
        check_fail(d, "channel %d, row %d: %g on one device, %g on two", c, row, (double)one, (double)two);
    }
  assert_true(fabsf(k[0].running[1][1][0] / k[2].running[1][1][0] - 1) > 0.05f);
}

/* ---- running values that have not arrived ---- */

static cvy_train_result train_slow(check_device *d, float momentum, int precise) {
  cvy_net *const net = check_net(d, 1, SIDE, SIDE);
  const cvy_batchnorm_spec slow = {.momentum = momentum};
  cvy_node x = cvy_net_conv2d(net, cvy_net_input(net), "0", &(cvy_conv2d_spec){.filters = 16, .kernel = {3, 3}});
  x = cvy_net_relu(net, cvy_net_batchnorm(net, x, "1", &slow));
  check_ok(cvy_net_finish(net, cvy_net_linear(net, x, "6", 10, false)));
  cvy_data *const data = check_data(d, check_text("synthetic:%d:%dx%dx1", 20 * SAMPLES, SIDE, SIDE));
  cvy_team *const team = check_team(d, check_devices(d, ""), net, &(cvy_team_params){.batch = BATCH}, SEED, data);
  cvy_train_result result;
  check_log_clear();
  check_ok(cvy_train(team, data, &(cvy_train_params){.epochs = 2, .lr = 0.05f, .precise_bn = precise}, &result));
  return result;
}

static bool is_warned(void) { return check_log_contains("--precise-bn 100 recomputes them"); }

/* Training learns the images, evaluation answers by chance, and one line says why and what helps. */
CHECK_TEST(lag) {
  const cvy_train_result slow = train_slow(d, 1e-4f, 0);
  assert_true(slow.test_acc < 0.6);
  assert_true(is_warned() && check_log_contains("after 50 steps 100 % of their initial values are left"));
  const cvy_train_result precise = train_slow(d, 1e-4f, 50);
  assert_true(precise.test_acc > 0.9 && !is_warned());
  const cvy_train_result quick = train_slow(d, 0.1f, 0);
  assert_true(quick.test_acc > 0.9 && !is_warned());
  bool said = true;
  check_log_clear();
  const cvy_layout none = {0};
  cvy_lag_warn(&none, 1, 1, 0, &said);
  said = false;
  cvy_lag_warn(&none, 1, 1, 0, &said); /* no batch normalisation: overfitting */
  assert_true(!said && !is_warned());
}

/* ---- what stays as it is ---- */

CHECK_TEST(frozen) {
  cvy_net *const net = make_net(d);
  cvy_data *const data = check_data(d, check_text("synthetic:%d:%dx%dx1", SAMPLES, SIDE, SIDE));
  const kept k = run(d, "*2", &(cvy_team_params){.freeze = "0,1"}, &(cvy_train_params){.precise_bn = 2}, net, data);
  for (int c = 0; c < FIRST; c++) assert_true(k.running[0][0][c] == 0 && k.running[0][1][c] == 1);
  for (int c = 0; c < SECOND; c++) assert_true(k.running[1][0][c] != 0 && k.running[1][1][c] != 1);
  cvy_team *const team =
      check_team(d, check_devices(d, ""), net, &(cvy_team_params){.batch = BATCH, .freeze = "1,4"}, SEED, data);
  cvy_train_result unused;
  check_fails(cvy_train(team, data, &(cvy_train_params){.precise_bn = 2}, &unused), CVY_E_ARGUMENT,
              "no batch normalisation");
}

/* The checkpoint has the running values of training: a longer run goes on from it as if nothing had been computed anew,
 * and a finished run that is resumed computes the same ones again. */
CHECK_TEST(resumed) {
  cvy_net *const net = make_net(d);
  cvy_data *const data = check_data(d, check_text("synthetic:%d:%dx%dx1", SAMPLES, SIDE, SIDE));
  static const char *const teams[] = {"", "*2"};
  for (size_t i = 0; i < 2; i++) {
    const char *const dir = check_path(teams[i][0] ? "two" : "one");
    const cvy_team_params how = {.momentum = 0.9f};
    const cvy_train_params plain = {.epochs = 3}, precise = {.checkpoint_dir = dir, .precise_bn = 2};
    cvy_train_params again = precise, longer = precise;
    again.resume = longer.resume = true;
    longer.precise_bn = 0;
    longer.epochs = 3;
    const kept first = run(d, teams[i], &how, &precise, net, data), second = run(d, teams[i], &how, &again, net, data);
    assert_true(second.result.already_finished && second.result.precise_bn == 2);
    assert_memory_equal(first.running, second.running, sizeof first.running);
    assert_true(first.result.test_acc == second.result.test_acc);
    const kept whole = run(d, teams[i], &how, &plain, net, data), on = run(d, teams[i], &how, &longer, net, data);
    assert_true(on.result.steps == whole.result.steps);
    assert_memory_equal(on.running, whole.running, sizeof on.running);
  }
}

int main(int argc, char **argv) { return check_run(argc, argv, CHECK_DEVICES); }
