/* SPDX-License-Identifier: MIT
 * Whole runs: epochs and callbacks, a run in pieces equals a run in one (bit for bit, weights file included),
 * interruption, settings that changed, broken checkpoints, finished runs. */
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <unistd.h>

#include "src/base/file.h"
#include "tests/support/check_team.h"

enum { BATCH = 32, SAMPLES = 150 }; /* 5 steps an epoch, the last of 22 samples */

typedef struct record {
  int steps, epochs, stop_at; /* stop_at: on_step asks to stop after that step */
  double losses[64], test_acc[8];
  bool full[8];
} record;

static int on_step(void *user, const cvy_step_result *step, int epoch, long steps_per_epoch, float lr) {
  record *const r = user;
  assert_int_equal(steps_per_epoch, 5);
  assert_int_equal(epoch, step->step / 5);
  assert_true(lr == 0.05f);
  assert_int_equal(step->images, step->step % 5 == 4 ? 22 : BATCH);
  assert_true(step->ms > 0);
  r->losses[step->step] = step->loss;
  r->steps++;
  return r->stop_at && step->step + 1 >= r->stop_at;
}

static int on_epoch(void *user, const cvy_epoch_result *e) {
  record *const r = user;
  r->test_acc[e->epoch] = e->test_acc;
  r->full[e->epoch] = e->full;
  assert_true(e->seconds > 0 && e->train_loss > 0);
  r->epochs++;
  return 0;
}

/* How the teams of `run` are made: bn, ghost, split; statistics per share and an even split if a test says nothing. */
static cvy_team_params team_of_test;

static int staleness;
static uint64_t data_seed;

/* The last of the training samples become a validation set. 0: there is none. */
static int n_val;
static cvy_data with_val;

static const cvy_data *split_off(const cvy_data *data) {
  const size_t image = (size_t)data->h * (size_t)data->w * (size_t)data->c;
  with_val = *data;
  with_val.train.n -= n_val;
  with_val.val = (cvy_samples){.n = n_val,
                               .images = data->train.images + (size_t)with_val.train.n * image,
                               .labels = data->train.labels + with_val.train.n};
  return &with_val;
}

/* One process's worth of a run, from nothing to the weights file. */
static cvy_status run(check_device *d, const char *suffix, const cvy_train_params *given, record *r, const char *save,
                      cvy_train_result *out) {
  cvy_net *const net = check_net(d, 1, 10, 10);
  cvy_node x = cvy_net_conv2d(net, cvy_net_input(net), "0", &(cvy_conv2d_spec){.filters = 16, .kernel = {3, 3}});
  x = cvy_net_relu(net, cvy_net_batchnorm(net, x, "1", NULL));
  x = cvy_net_dropout(net, cvy_net_avgpool(net, x, &(cvy_pool2d_spec){.kernel = {2, 2}}), 0.1f);
  x = cvy_net_linear(net, x, "5", 10, false);
  check_ok(cvy_net_finish(net, x));
  cvy_data *data;
  check_ok(cvy_data_load(check_text("synthetic:%d:10x10x1", SAMPLES), &(cvy_data_params){.seed = data_seed}, &data));
  check_own(d, data, check_close_data);
  cvy_team_params how = team_of_test;
  how.batch = how.batch ? how.batch : BATCH;
  how.momentum = 0.9f;
  how.staleness = staleness;
  cvy_checkpoint *opened = NULL;
  cvy_resume_values resume_values;
  if (given->resume && given->checkpoint_dir) check_ok(cvy_checkpoint_open(given->checkpoint_dir, &opened));
  if (opened) {
    resume_values = cvy_checkpoint_resume_values(opened);
    how.resume = &resume_values;
  }
  const cvy_data *const used = n_val ? split_off(data) : data;
  cvy_team *const team = check_team(d, check_devices(d, suffix), net, &how, 3, used);
  cvy_train_params p = *given;
  p.opened = opened;
  p.lr = 0.05f;
  p.seed = 3;
  if (!p.on_step) {
    p.on_step = on_step;
    p.on_epoch = on_epoch;
    p.user = r;
  }
  cvy_train_result result;
  const cvy_status status = cvy_train(team, used, &p, out ? out : &result);
  if (save) check_ok(cvy_team_save(team, save));
  check_release(d, net);
  cvy_checkpoint_close(&opened);
  return status;
}

static const char *const teams[] = {"", "*2"};

/* ---- the best epoch ---- */

enum { MOST_EPOCHS = 24 };
typedef struct judged {
  int steps, epochs, n_best, stop_at;
  double correct[MOST_EPOCHS], train[MOST_EPOCHS], val[MOST_EPOCHS], test[MOST_EPOCHS];
  bool best[MOST_EPOCHS];
} judged;

static int judged_step(void *user, const cvy_step_result *step, int epoch, long steps_per_epoch, float lr) {
  judged *const r = user;
  (void)steps_per_epoch;
  (void)lr;
  r->correct[epoch] += step->correct;
  r->steps++;
  return r->stop_at && step->step + 1 >= r->stop_at;
}

static int judged_epoch(void *user, const cvy_epoch_result *e) {
  judged *const r = user;
  r->train[e->epoch] = e->train_acc;
  r->val[e->epoch] = e->val_acc;
  r->test[e->epoch] = e->test_acc;
  r->best[e->epoch] = e->best;
  r->n_best += e->best;
  r->epochs++;
  return 0;
}

static cvy_train_params judge_with(judged *r, cvy_train_params p) {
  p.on_step = judged_step;
  p.on_epoch = judged_epoch;
  p.user = r;
  return p;
}

/* A validation set steers; the test set is used once, at the end; the file has the weights of the first best epoch. */
CHECK_TEST(best) {
  n_val = 30;
  judged r = {0}, to_best = {0};
  cvy_train_result out;
  const char *const file = check_path("best");
  cvy_train_params p = judge_with(&r, (cvy_train_params){.epochs = MOST_EPOCHS, .patience = 3, .save_best = file});
  check_ok(run(d, "*2", &p, NULL, NULL, &out));
  assert_true(r.epochs < MOST_EPOCHS && out.out_of_patience); /* 30 samples are soon known */
  int best = 0;
  for (int e = 0; e < r.epochs; e++) {
    assert_true(r.train[e] == r.correct[e] / (SAMPLES - n_val));
    assert_true(r.val[e] >= 0);
    assert_true((r.test[e] >= 0) == (e == r.epochs - 1));
    if (r.val[e] > r.val[best]) best = e;
    assert_true(r.best[e] == (e == 0 || best == e));
  }
  assert_int_equal(out.best_epoch, best);
  assert_true(out.best_acc == r.val[best] && out.test_acc == r.test[r.epochs - 1]);
  assert_int_equal(r.epochs, best + 1 + 3);
  p = judge_with(&to_best, (cvy_train_params){.epochs = best + 1});
  check_ok(run(d, "*2", &p, NULL, check_path("at_best"), NULL));
  check_same_files(file, check_path("at_best"));

  /* in pieces: within an epoch, at the end of the best one, whose evaluation is left out, within a later one, and to
   * the end */
  judged pieces = {0};
  const char *const again = check_path("best_again");
  const char *const dir = check_path("best_pieces");
  const cvy_train_params part = judge_with(
      &pieces, (cvy_train_params){
                   .epochs = MOST_EPOCHS, .patience = 3, .save_best = again, .checkpoint_dir = dir, .resume = true});
  const int end = 4 * (best + 1), stops[] = {3, end, end + 6}; /* steps of an epoch: 4 */
  for (int i = 0; i < 3; i++) {
    pieces.stop_at = stops[i];
    assert_int_equal(run(d, "*2", &part, NULL, NULL, &out), CVY_E_INTERRUPTED);
  }
  pieces.stop_at = 0;
  check_ok(run(d, "*2", &part, NULL, NULL, &out));
  assert_int_equal(out.best_epoch, best);
  assert_int_equal(out.epochs_done, r.epochs);
  assert_true(out.best_acc == r.val[best]);
  assert_memory_equal(pieces.train, r.train, sizeof r.train); /* counts go on within an epoch */
  check_same_files(file, again);
  unlink(file);
  check_ok(run(d, "*2", &part, NULL, NULL, &out)); /* it is over, and stays so */
  assert_true(out.already_finished && out.test_acc == r.test[r.epochs - 1]);
  n_val = 0;
}

CHECK_TEST(best_refused) {
  judged r = {0};
  cvy_train_result out;
  cvy_train_params p = judge_with(&r, (cvy_train_params){.epochs = 1, .patience = 1, .no_eval = true});
  check_fails(run(d, "", &p, NULL, NULL, &out), CVY_E_ARGUMENT, "needs an accuracy to choose the best epoch");
  p = judge_with(&r, (cvy_train_params){.epochs = 1, .patience = -1});
  check_fails(run(d, "", &p, NULL, NULL, &out), CVY_E_ARGUMENT, "patience, keep: expected 0 or more");
  /* without a validation set the test set chooses; a file that cannot be written does not end the run */
  p = judge_with(&r, (cvy_train_params){.epochs = 1, .save_best = check_path("missing/folder/best")});
  check_ok(run(d, "", &p, NULL, NULL, &out));
  assert_true(out.save_best_failed && out.best_acc == r.test[0] && r.test[0] >= 0);
}

CHECK_TEST(epochs) {
  for (int i = 0; i < 2; i++) {
    record r = {0};
    cvy_train_result out;
    check_ok(run(d, teams[i], &(cvy_train_params){.epochs = 3, .verify_every = 2}, &r, NULL, &out));
    assert_int_equal(r.steps, 15);
    assert_int_equal(r.epochs, 3);
    assert_int_equal(out.steps, 15);
    assert_int_equal(out.epochs_done, 3);
    assert_true(out.sec_per_epoch > 0 && out.images_per_second > 0 && !out.already_finished);
    for (int e = 0; e < 3; e++) assert_true(r.full[e] && r.test_acc[e] >= 0 && r.test_acc[e] <= 1);
    assert_true(out.test_acc == r.test_acc[2] && out.last_loss == r.losses[14]);
    assert_true(r.losses[14] < 0.5 * r.losses[0]); /* it learns */
  }
}

/* 12 steps in one run, and as 4 (limit) + 3 (stopped by the callback) + the rest. */
CHECK_TEST(resume) {
  for (int i = 0; i < 5; i++) { /* from the third on: the second team, stale, with gradients as bfloat16, both */
    staleness = i == 2 || i == 4;
    team_of_test.exchange = i >= 3 ? CVY_EXCHANGE_BF16 : CVY_EXCHANGE_FP32;
    const char *const suffix = teams[i > 0], *const dir = check_path("pieces%d", i);
    const cvy_train_params resumed = {
        .epochs = 3, .checkpoint_dir = dir, .resume = true, .settings = "{\"lr\": 0.05, \"epochs\": 3}"};
    cvy_train_params p = resumed;
    record whole = {0}, pieces = {0};
    check_ok(run(d, suffix, &(cvy_train_params){.epochs = 3, .max_steps = 12}, &whole, check_path("whole"), NULL));
    p.max_steps = 4;
    check_ok(run(d, suffix, &p, &pieces, NULL, NULL));
    assert_int_equal(pieces.steps, 4);
    pieces.stop_at = 7;
    cvy_train_result out;
    assert_int_equal(run(d, suffix, &resumed, &pieces, NULL, &out), CVY_E_INTERRUPTED);
    const long stopped = out.steps;
    assert_true(stopped >= 7 && stopped <= 8); /* a step that was under way is finished */
    pieces.stop_at = 0;
    p.max_steps = 12;
    p.checkpoint_every = 2;
    check_ok(run(d, suffix, &p, &pieces, check_path("pieces"), &out));
    assert_int_equal(pieces.steps, 12);
    assert_int_equal(out.steps, 12);
    if (memcmp(whole.losses, pieces.losses, sizeof whole.losses) != 0)
      check_fail(d, "losses of the run in pieces differ");
    assert_true(whole.test_acc[1] == pieces.test_acc[1] && whole.test_acc[2] == pieces.test_acc[2]);
    check_same_files(check_path("whole"), check_path("pieces"));
    /* finished: nothing is left to do, the weights are there */
    record none = {0};
    p.checkpoint_every = 0;
    check_ok(run(d, suffix, &p, &none, check_path("again"), &out));
    assert_true(out.already_finished && none.steps == 0 && out.test_acc == whole.test_acc[2]);
    check_same_files(check_path("whole"), check_path("again"));
    /* other settings, another team, a folder that is in use */
    p = resumed;
    p.settings = "{\"lr\": 0.1, \"epochs\": 3}";
    check_fails(run(d, suffix, &p, &none, NULL, NULL), CVY_E_MISMATCH, "lr");
    const char *const other = i == 0 ? "*2" : i == 1 ? "" : "*3";
    check_fails(run(d, other, &resumed, &none, NULL, NULL), CVY_E_MISMATCH,
                "ghost groups or sync, which can resume on any team");
    p = resumed;
    p.resume = false;
    check_fails(run(d, suffix, &p, &none, NULL, NULL), CVY_E_ARGUMENT, "resume");
    assert_int_equal(none.steps, 0);
  }
  staleness = 0;
  team_of_test = (cvy_team_params){0};
}

/* A run that begins on one team and goes on on others: within rounding of a run in one piece, where batch statistics do
 * not depend on the split. */
CHECK_TEST(resume_elsewhere) {
  static const double uneven[3] = {20, 0, 12}, thirds[3] = {4, 24, 4};
  static const struct part {
    const char *suffix;
    const double *shares;
    int until;
  } parts[] = {{"", NULL, 3}, {"*3", uneven, 6}, {"*2", NULL, 8}, {"*3", thirds, 10}, {"", NULL, 12}};
  static const cvy_team_params modes[] = {{.bn = CVY_BN_GHOST, .ghost = 4}, {.bn = CVY_BN_SYNC}};
  for (int m = 0; m < 2; m++) {
    const char *const dir = check_path("elsewhere%d", m);
    record whole = {0}, pieces = {0};
    team_of_test = modes[m];
    check_ok(run(d, "", &(cvy_train_params){.epochs = 3, .max_steps = 12}, &whole, NULL, NULL));
    for (int i = 0; i < 5; i++) {
      team_of_test = modes[m];
      if (parts[i].shares) team_of_test.split = CVY_SPLIT_SHARES, team_of_test.split_values = parts[i].shares;
      check_log_clear();
      check_ok(run(d, parts[i].suffix,
                   &(cvy_train_params){.epochs = 3,
                                       .max_steps = parts[i].until,
                                       .checkpoint_dir = dir,
                                       .resume = true,
                                       .settings = parts[i].shares ? "{\"split\": \"shares\", \"shares\": [1]}"
                                                                   : "{\"split\": \"even\", \"shares\": [2]}"},
                   &pieces, NULL, NULL));
      if (check_log_contains("on another team") != (i > 0)) check_fail(d, "piece %d: %s", i, check_log_get());
      assert_false(check_log_contains("choose new ones"));
    }
    assert_int_equal(pieces.steps, 12);
    double worst = 0;
    for (int s = 0; s < 12; s++) worst = fmax(worst, fabs(pieces.losses[s] - whole.losses[s]) / whole.losses[s]);
    printf("  %s: losses of a run on five teams differ by %.1e at most\n", m ? "sync" : "ghost:4", worst);
    if (!(worst <= 1e-5)) check_fail(d, "losses differ by %.2e, more than 1e-5", worst);
    /* not with other batches */
    record none = {0};
    team_of_test = modes[m];
    team_of_test.batch = 16;
    check_fails(run(d, "", &(cvy_train_params){.epochs = 3, .checkpoint_dir = dir, .resume = true}, &none, NULL, NULL),
                CVY_E_MISMATCH, "batches of 32 samples, the run 16");
  }
  /* statistics per share: on other devices with the same shares, but not with others */
  static const double halves[3] = {16, 0, 16};
  const char *const dir = check_path("shares");
  record whole = {0}, pieces = {0};
  team_of_test = (cvy_team_params){0};
  check_ok(run(d, "*2", &(cvy_train_params){.epochs = 2, .max_steps = 4}, &whole, NULL, NULL));
  check_ok(run(d, "*2", &(cvy_train_params){.epochs = 2, .max_steps = 2, .checkpoint_dir = dir}, &pieces, NULL, NULL));
  team_of_test = (cvy_team_params){.split = CVY_SPLIT_SHARES, .split_values = uneven};
  check_fails(
      run(d, "*3", &(cvy_train_params){.epochs = 2, .checkpoint_dir = dir, .resume = true}, &pieces, NULL, NULL),
      CVY_E_MISMATCH, "with the shares 16,16 of a batch, each with its own batch statistics");
  team_of_test.split_values = halves;
  check_ok(run(d, "*3", &(cvy_train_params){.epochs = 2, .max_steps = 4, .checkpoint_dir = dir, .resume = true},
               &pieces, NULL, NULL));
  for (int s = 0; s < 4; s++) assert_true(fabs(pieces.losses[s] - whole.losses[s]) <= 1e-5 * whole.losses[s]);
  team_of_test = (cvy_team_params){0};
}

/* What rounding has left of gradients belongs to a team's devices: elsewhere it begins at zero, and that is said. */
CHECK_TEST(bf16_elsewhere) {
  static const struct {
    const char *suffix;
    cvy_exchange_kind exchange;
    int until;
    const char *said;
  } parts[] = {{"*2", CVY_EXCHANGE_FP32, 3, NULL},
               {"*2", CVY_EXCHANGE_BF16, 6, "is not in the checkpoint"},
               {"*2", CVY_EXCHANGE_BF16, 7, NULL},
               {"*3", CVY_EXCHANGE_BF16, 9, "belongs to another team"}};
  const char *const dir = check_path("bf16");
  const cvy_team_params ghost = {.bn = CVY_BN_GHOST, .ghost = 4};
  record whole = {0}, pieces = {0};
  team_of_test = ghost;
  check_ok(run(d, "*2", &(cvy_train_params){.epochs = 3, .max_steps = 9}, &whole, NULL, NULL));
  for (int i = 0; i < 4; i++) {
    team_of_test = ghost;
    team_of_test.exchange = parts[i].exchange;
    check_log_clear();
    check_ok(run(d, parts[i].suffix,
                 &(cvy_train_params){.epochs = 3, .max_steps = parts[i].until, .checkpoint_dir = dir, .resume = true},
                 &pieces, NULL, NULL));
    if (check_log_contains("the residual of the gradient") != (parts[i].said != NULL) ||
        (parts[i].said && !check_log_contains(parts[i].said)))
      check_fail(d, "part %d: '%s' is not what is said", i, parts[i].said ? parts[i].said : "nothing");
  }
  for (int s = 0; s < 9; s++)
    if (!(fabs(pieces.losses[s] - whole.losses[s]) <= 5e-3 * whole.losses[s]))
      check_fail(d, "loss of step %d is %.6g, with fp32 %.6g", s, pieces.losses[s], whole.losses[s]);
  team_of_test = ghost;
  check_fails(
      run(d, "*3", &(cvy_train_params){.epochs = 3, .checkpoint_dir = dir, .resume = true}, &pieces, NULL, NULL),
      CVY_E_MISMATCH, "has exchange bf16");
  team_of_test = (cvy_team_params){0};
}

/* The newest checkpoint is broken: the one before it serves, with a warning. */
CHECK_TEST(broken_checkpoint) {
  const char *const dir = check_path("broken");
  record r = {0}, again = {0};
  check_ok(run(
      d, "", &(cvy_train_params){.epochs = 2, .max_steps = 6, .checkpoint_dir = dir, .checkpoint_every = 2, .keep = 3},
      &r, NULL, NULL));
  assert_int_equal(truncate(check_text("%s/step-0000000006.safetensors", dir), 1000), 0);
  check_log_clear();
  check_ok(run(d, "", &(cvy_train_params){.epochs = 2, .max_steps = 6, .checkpoint_dir = dir, .resume = true}, &again,
               NULL, NULL));
  assert_int_equal(again.steps, 2); /* from step 4 */
  assert_true(check_log_contains("step-0000000006"));
  assert_true(again.losses[4] == r.losses[4] && again.losses[5] == r.losses[5]);
}

CHECK_TEST(stop_flag) {
  cvy_stop stop = {0};
  record r = {0};
  cvy_train_result out;
  const char *const dir = check_path("stopped");
  cvy_stop_request(&stop);
  assert_int_equal(run(d, "", &(cvy_train_params){.epochs = 2, .stop = &stop, .checkpoint_dir = dir}, &r, NULL, &out),
                   CVY_E_INTERRUPTED);
  assert_int_equal(r.steps, 0);
  stop = (cvy_stop){0};
  check_ok(run(d, "", &(cvy_train_params){.epochs = 2, .stop = &stop, .checkpoint_dir = dir, .resume = true}, &r, NULL,
               &out));
  assert_int_equal(r.steps, 10);
}

/* A last batch of one sample, or groups that leave one, in front of batchnorm on 1x1 images: refused before step 0. */
CHECK_TEST(single_statistics) {
  static const struct {
    const char *devices;
    int batch, ghost, samples; /* ghost: -1 is CVY_BN_SYNC */
    bool good, drops;          /* --drop-last helps */
  } cases[] = {{"", 8, 0, 24, true, false},    {"", 8, 0, 25, false, true},   {"", 1, 0, 24, false, false},
               {"", 8, 3, 24, true, false},    {"", 7, 3, 21, false, false},  {"", 8, 3, 28, false, true},
               {"*2", 2, 0, 24, false, false}, {"*2", 4, 0, 24, true, false}, {"*2", 4, 0, 26, false, true},
               {"*2", 2, -1, 24, true, false}, {"*2", 8, -1, 25, false, true}};
  for (int i = 0; i < (int)(sizeof cases / sizeof *cases); i++) {
    cvy_net *const net = check_net(d, 1, 4, 4);
    cvy_node x = cvy_net_conv2d(net, cvy_net_input(net), "0", &(cvy_conv2d_spec){.filters = 16, .kernel = {4, 4}});
    check_ok(cvy_net_finish(net, cvy_net_linear(net, cvy_net_batchnorm(net, x, "1", NULL), "2", 10, false)));
    const cvy_data *const data = check_data(d, check_text("synthetic:%d:4x4x1", cases[i].samples));
    const cvy_team_params params = {.batch = cases[i].batch,
                                    .bn = cases[i].ghost < 0 ? CVY_BN_SYNC
                                          : cases[i].ghost   ? CVY_BN_GHOST
                                                             : CVY_BN_DEVICE,
                                    .ghost = cases[i].ghost < 0 ? 0 : cases[i].ghost};
    cvy_team *const team = check_team(d, check_devices(d, cases[i].devices), net, &params, 0, data);
    cvy_train_result out;
    check_log_clear();
    const cvy_status status = cvy_train(team, data, &(cvy_train_params){.epochs = 1}, &out);
    if (status != (cases[i].good ? CVY_OK : CVY_E_ARGUMENT)) check_fail(d, "case %d: %s", i, cvy_status_name(status));
    if (!cases[i].good) {
      assert_true(check_log_contains("batchnorm '1' sees") && check_log_contains("another batch size"));
      assert_false(check_log_contains("step 0"));
    }
    assert_int_equal(check_log_contains("(--drop-last)"), cases[i].drops);
    check_case_end(d);
  }
}

static int on_whole_step(void *user, const cvy_step_result *step, int epoch, long steps_per_epoch, float lr) {
  int *const steps = user;
  assert_int_equal(steps_per_epoch, 4);
  assert_int_equal(epoch, step->step / 4);
  assert_int_equal(step->images, BATCH);
  ++*steps;
  return 0;
}

/* Epochs of whole batches only. */
CHECK_TEST(drop_last) {
  record r = {0};
  int steps = 0;
  cvy_train_result out;
  cvy_train_params p = {.epochs = 2, .drop_last = true, .on_step = on_whole_step, .user = &steps};
  check_ok(run(d, "*2", &p, &r, NULL, &out));
  assert_int_equal(steps, 8);
  assert_int_equal(out.steps, 8);
  assert_int_equal(out.epochs_done, 2);
  team_of_test.batch = SAMPLES + 1;
  check_fails(run(d, "", &p, &r, NULL, NULL), CVY_E_ARGUMENT, "a batch of at most 150");
  team_of_test = (cvy_team_params){0};
  assert_int_equal(steps, 8);
}

/* No file may grow during steps 3 to 6: their checkpoints are missed, those after them are written. */
typedef struct disk {
  long from, to;
} disk;

static int fill_disk(void *user, const cvy_step_result *step, int epoch, long steps_per_epoch, float lr) {
  const disk *const full = user;
  struct rlimit limit;
  assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
  limit.rlim_cur = step->step >= full->from && step->step < full->to ? 1000 : limit.rlim_max;
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
  return 0;
}

CHECK_TEST(full_disk) {
  void (*const before)(int) = signal(SIGXFSZ, SIG_IGN);
  for (int i = 0; i < 2; i++) { /* room again before the end; never again */
    const char *const dir = check_temp_dir();
    disk full = {.from = 2, .to = i ? 1000 : 6};
    record unused = {0};
    cvy_train_result out;
    check_log_clear();
    const cvy_status status = run(d, "",
                                  &(cvy_train_params){.epochs = 3,
                                                      .max_steps = 8,
                                                      .checkpoint_dir = dir,
                                                      .checkpoint_every = 2,
                                                      .keep = 9,
                                                      .no_eval = true,
                                                      .on_step = fill_disk,
                                                      .user = &full},
                                  &unused, NULL, &out);
    fill_disk(&(disk){0}, &(cvy_step_result){0}, 0, 0, 0);
    assert_int_equal(status, i ? CVY_E_IO : CVY_OK);
    assert_true(out.steps == 8 && out.checkpoint_failed == (i == 1) && out.checkpoint_step == (i ? 2 : 8));
    assert_true(check_log_contains("[warning] no checkpoint of step 4: cannot write ") &&
                check_log_contains("tries again at the next one (the newest is that of step 2)"));
    assert_int_equal(check_log_contains("[error]"), i);
    static const long steps[] = {2, 4, 6, 8};
    for (int s = 0; s < 4; s++)
      assert_int_equal(cvy_file_exists(check_path("step-%010ld.safetensors", steps[s])), s == 0 || (s == 3 && i == 0));
  }
  signal(SIGXFSZ, before);
}

/* The rate becomes 100,000 times higher after six steps: the checkpoint of step 6 stays beside the newest, also in a
 * run that goes on. */
CHECK_TEST(loss_jump) {
  const char *const dir = check_temp_dir();
  record unused = {0};
  cvy_train_result out;
  team_of_test.allow_nan = true;
  for (long last = 10; last <= 14; last += 4)
    check_ok(run(d, "",
                 &(cvy_train_params){.epochs = 3,
                                     .max_steps = last,
                                     .checkpoint_dir = dir,
                                     .checkpoint_every = 2,
                                     .keep = 1,
                                     .resume = true,
                                     .no_eval = true,
                                     .schedule = {.kind = CVY_LR_STEP, .every = 6, .gamma = 1e5f},
                                     .on_step = fill_disk,
                                     .user = &(disk){0}},
                 &unused, NULL, &out));
  team_of_test.allow_nan = false;
  assert_true(cvy_file_exists(check_path("step-0000000006.safetensors")) && cvy_file_exists(check_path("step-"
                                                                                                       "0000000014."
                                                                                                       "safetensors")));
  assert_false(cvy_file_exists(check_path("step-0000000008.safetensors")) || cvy_file_exists(check_path("step-"
                                                                                                        "0000000012."
                                                                                                        "safetensor"
                                                                                                        "s")));
}

/* Other images of the same name, number and size; a folder that another process uses. */
CHECK_TEST(other_files) {
  const char *const dir = check_temp_dir();
  record unused = {0};
  cvy_train_params p = {.epochs = 2, .max_steps = 2, .checkpoint_dir = dir, .resume = true, .no_eval = true};
  check_ok(run(d, "", &p, &unused, NULL, NULL));
  data_seed = 7;
  check_fails(run(d, "", &p, &unused, NULL, NULL), CVY_E_MISMATCH, "data_content: ");
  data_seed = 0;
  const int fd = open(dir, O_RDONLY | O_DIRECTORY);
  assert_int_equal(flock(fd, LOCK_EX), 0);
  check_fails(run(d, "", &p, &unused, NULL, NULL), CVY_E_ARGUMENT, check_text("in use by process %ld", (long)getpid()));
  close(fd);
  check_ok(run(d, "", &p, &unused, NULL, NULL));
}

CHECK_TEST(wrong_use) {
  record r = {0};
  check_fails(run(d, "", &(cvy_train_params){.epochs = -1}, &r, NULL, NULL), CVY_E_ARGUMENT, "-1 epochs");
  check_fails(run(d, "", &(cvy_train_params){.resume = true}, &r, NULL, NULL), CVY_E_ARGUMENT, "checkpoint folder");
  check_fails(run(d, "", &(cvy_train_params){.max_steps = -3}, &r, NULL, NULL), CVY_E_ARGUMENT, "max_steps");
  assert_int_equal(r.steps, 0);
}

/* Checkpoints by hand that cannot be; tests/examples/train_by_hand.c shows those that can. */
CHECK_TEST(by_hand) {
  static const char settings[] = "{\"a\":1}";
  const char *const dir = check_temp_dir();
  cvy_checkpoint *opened;
  cvy_run_position at = {.step = 3, .seed = 9, .kept_step = 2, .kept_median = 0.5};
  const cvy_net *const net = check_model(d, "lenet", 1, 28);
  const cvy_data *const data = check_data(d, "synthetic:60");
  cvy_devices *const devices = check_devices(d, "");
  cvy_team *const team = check_bare_team(d, devices, net, &(cvy_team_params){.batch = 4, .momentum = 0.9f}),
                  *const plain = check_bare_team(d, devices, net, &(cvy_team_params){.batch = 4});
  check_ok(cvy_team_init(team, NULL));
  check_fails(cvy_checkpoint_save(team, dir, 0, settings, &at), CVY_E_ARGUMENT, "a team that trains");
  check_ok(cvy_team_attach(team, data));
  check_fails(cvy_checkpoint_save(team, dir, 0, settings, &at), CVY_E_ARGUMENT, "that after 0 steps");
  at.step = 0;
  check_ok(cvy_checkpoint_save(team, dir, 0, settings, &at));
  check_ok(cvy_checkpoint_open(dir, &opened));
  const cvy_run_position read = cvy_checkpoint_position(opened);
  assert_true(read.seed == 9 && read.kept_step == 2 && read.kept_median == 0.5 && !read.finished);
  check_fails(cvy_checkpoint_load(plain, opened, NULL), CVY_E_ARGUMENT, "no data");
  check_ok(cvy_team_attach(plain, data));
  check_fails(cvy_checkpoint_load(plain, opened, NULL), CVY_E_MISMATCH, "has a momentum");
  check_fails(cvy_team_save(plain, check_path("none")), CVY_E_ARGUMENT, "no weights"); /* nothing was taken of it */
  check_fails(cvy_checkpoint_load(team, opened, "{\"a\":2}"), CVY_E_MISMATCH, "a: 1 in the checkpoint, 2 now");
  check_ok(cvy_checkpoint_load(team, opened, settings));
  cvy_checkpoint_close(&opened);
}

int main(int argc, char **argv) { return check_run(argc, argv, CHECK_DEVICES); }
