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

#include "convoy/convoy.h"
#include "src/base/file.h"
#include "tests/check.h"

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

static const char *folder_of_test;

static const char *path_in(const char *name) {
  static char path[16][512];
  static int turn;
  char *const p = path[turn++ % 16];
  snprintf(p, sizeof path[0], "%s/%s", folder_of_test, name);
  return p;
}

/* How the teams of `run` are made: bn, ghost, split; statistics per share and an even split if a test says nothing. */
static cvy_team_params team_of_test;

static int staleness;
static uint64_t data_seed;

/* One process's worth of a run, from nothing to the weights file. */
static cvy_status run(const check_device *d, const char *suffix, const cvy_train_params *given, record *r,
                      const char *save, cvy_train_result *out) {
  cvy_net *net;
  cvy_data *data;
  cvy_devices *devices;
  cvy_team *team;
  char selector[64];
  snprintf(selector, sizeof selector, "%s%s", d->place, suffix);
  check_ok(cvy_net_create(1, 10, 10, &net));
  cvy_node x = cvy_net_conv2d(net, cvy_net_input(net), "0", &(cvy_conv2d_spec){.filters = 16, .kernel = {3, 3}});
  x = cvy_net_relu(net, cvy_net_batchnorm(net, x, "1", NULL));
  x = cvy_net_linear(net, cvy_net_avgpool(net, x, &(cvy_pool2d_spec){.kernel = {2, 2}}), "5", 10, false);
  check_ok(cvy_net_finish(net, x));
  char spec[32];
  snprintf(spec, sizeof spec, "synthetic:%d:10x10x1", SAMPLES);
  check_ok(cvy_data_load(spec, &(cvy_data_params){.seed = data_seed}, &data));
  check_ok(cvy_devices_select(selector, &devices));
  cvy_team_params how = team_of_test;
  how.batch = how.batch ? how.batch : BATCH;
  how.momentum = 0.9f;
  how.staleness = staleness;
  cvy_checkpoint *opened = NULL;
  cvy_resume_facts facts;
  if (given->resume && given->checkpoint_dir) check_ok(cvy_checkpoint_open(given->checkpoint_dir, &opened));
  if (opened) {
    facts = cvy_checkpoint_facts(opened);
    how.resume = &facts;
  }
  check_ok(cvy_team_create(devices, net, &how, &team));
  check_ok(cvy_team_init(team, &(cvy_init_params){.kind = CVY_INIT_HE, .seed = 3}));
  check_ok(cvy_team_attach(team, data));
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
  const cvy_status status = cvy_train(team, data, &p, out ? out : &result);
  if (save) check_ok(cvy_team_save(team, save));
  cvy_team_destroy(&team);
  cvy_checkpoint_close(&opened);
  cvy_devices_destroy(&devices);
  cvy_data_destroy(&data);
  cvy_net_destroy(&net);
  return status;
}

static void same_file(check_device *d, const char *a, const char *b) {
  char *x, *y;
  size_t nx, ny;
  check_ok(cvy_file_read(a, 1 << 24, &x, &nx));
  check_ok(cvy_file_read(b, 1 << 24, &y, &ny));
  const bool same = nx == ny && memcmp(x, y, nx) == 0;
  cvy_free(x);
  cvy_free(y);
  if (!same) check_fail(d, "%s and %s differ", a, b);
}

static const char *const teams[] = {"", "*2"};

static void test_epochs(check_device *d) {
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
static void test_resume(check_device *d) {
  folder_of_test = check_temp_dir();
  for (int i = 0; i < 5; i++) { /* from the third on: the second team, stale, with gradients as bfloat16, both */
    staleness = i == 2 || i == 4;
    team_of_test.exchange = i >= 3 ? CVY_EXCHANGE_BF16 : CVY_EXCHANGE_FP32;
    char folder[32];
    snprintf(folder, sizeof folder, "pieces%d", i);
    const char *const dir = path_in(folder), *const settings = "{\"lr\": 0.05, \"epochs\": 3}";
    record whole = {0}, pieces = {0};
    check_ok(run(d, teams[i > 0], &(cvy_train_params){.epochs = 3, .max_steps = 12}, &whole, path_in("whole"), NULL));
    check_ok(run(
        d, teams[i > 0],
        &(cvy_train_params){.epochs = 3, .max_steps = 4, .checkpoint_dir = dir, .resume = true, .settings = settings},
        &pieces, NULL, NULL));
    assert_int_equal(pieces.steps, 4);
    pieces.stop_at = 7;
    cvy_train_result out;
    assert_int_equal(run(d, teams[i > 0],
                         &(cvy_train_params){.epochs = 3, .checkpoint_dir = dir, .resume = true, .settings = settings},
                         &pieces, NULL, &out),
                     CVY_E_INTERRUPTED);
    const long stopped = out.steps;
    assert_true(stopped >= 7 && stopped <= 8); /* a step that was under way is finished */
    pieces.stop_at = 0;
    check_ok(run(d, teams[i > 0],
                 &(cvy_train_params){.epochs = 3,
                                     .max_steps = 12,
                                     .checkpoint_dir = dir,
                                     .checkpoint_every = 2,
                                     .resume = true,
                                     .settings = settings},
                 &pieces, path_in("pieces"), &out));
    assert_int_equal(pieces.steps, 12);
    assert_int_equal(out.steps, 12);
    if (memcmp(whole.losses, pieces.losses, sizeof whole.losses) != 0)
      check_fail(d, "losses of the run in pieces differ");
    assert_true(whole.test_acc[1] == pieces.test_acc[1] && whole.test_acc[2] == pieces.test_acc[2]);
    same_file(d, path_in("whole"), path_in("pieces"));
    /* finished: nothing is left to do, the weights are there */
    record none = {0};
    check_ok(run(
        d, teams[i > 0],
        &(cvy_train_params){.epochs = 3, .max_steps = 12, .checkpoint_dir = dir, .resume = true, .settings = settings},
        &none, path_in("again"), &out));
    assert_true(out.already_finished && none.steps == 0 && out.test_acc == whole.test_acc[2]);
    same_file(d, path_in("whole"), path_in("again"));
    /* other settings, another team, a folder that is in use */
    check_fails(run(d, teams[i > 0],
                    &(cvy_train_params){
                        .epochs = 3, .checkpoint_dir = dir, .resume = true, .settings = "{\"lr\": 0.1, \"epochs\": 3}"},
                    &none, NULL, NULL),
                CVY_E_MISMATCH, "lr");
    check_fails(run(d,
                    i == 0   ? "*2"
                    : i == 1 ? ""
                             : "*3",
                    &(cvy_train_params){.epochs = 3, .checkpoint_dir = dir, .resume = true, .settings = settings},
                    &none, NULL, NULL),
                CVY_E_MISMATCH, "ghost groups or sync, which can go on anywhere");
    check_fails(run(d, teams[i > 0], &(cvy_train_params){.epochs = 3, .checkpoint_dir = dir, .settings = settings},
                    &none, NULL, NULL),
                CVY_E_ARGUMENT, "resume");
    assert_int_equal(none.steps, 0);
  }
  staleness = 0;
  team_of_test = (cvy_team_params){0};
}

/* A run that begins on one team and goes on on others: within rounding of a run in one piece, where batch statistics do
 * not depend on the split. */
static void test_resume_elsewhere(check_device *d) {
  static const double uneven[3] = {20, 0, 12}, thirds[3] = {4, 24, 4};
  static const struct part {
    const char *suffix;
    const double *shares;
    int until;
  } parts[] = {{"", NULL, 3}, {"*3", uneven, 6}, {"*2", NULL, 8}, {"*3", thirds, 10}, {"", NULL, 12}};
  static const cvy_team_params modes[] = {{.bn = CVY_BN_GHOST, .ghost = 4}, {.bn = CVY_BN_SYNC}};
  folder_of_test = check_temp_dir();
  for (int m = 0; m < 2; m++) {
    char folder[32];
    snprintf(folder, sizeof folder, "elsewhere%d", m);
    const char *const dir = path_in(folder);
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
      assert_false(check_log_contains("chosen anew"));
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
                CVY_E_MISMATCH, "batches of 32 samples, not 16");
  }
  /* statistics per share: on other devices with the same shares, but not with others */
  static const double halves[3] = {16, 0, 16};
  const char *const dir = path_in("shares");
  record whole = {0}, pieces = {0};
  team_of_test = (cvy_team_params){0};
  check_ok(run(d, "*2", &(cvy_train_params){.epochs = 2, .max_steps = 4}, &whole, NULL, NULL));
  check_ok(run(d, "*2", &(cvy_train_params){.epochs = 2, .max_steps = 2, .checkpoint_dir = dir}, &pieces, NULL, NULL));
  team_of_test = (cvy_team_params){.split = CVY_SPLIT_SHARES, .split_values = uneven};
  check_fails(
      run(d, "*3", &(cvy_train_params){.epochs = 2, .checkpoint_dir = dir, .resume = true}, &pieces, NULL, NULL),
      CVY_E_MISMATCH, "with the shares 16,16 of a batch, each with batch statistics of its own");
  team_of_test.split_values = halves;
  check_ok(run(d, "*3", &(cvy_train_params){.epochs = 2, .max_steps = 4, .checkpoint_dir = dir, .resume = true},
               &pieces, NULL, NULL));
  for (int s = 0; s < 4; s++) assert_true(fabs(pieces.losses[s] - whole.losses[s]) <= 1e-5 * whole.losses[s]);
  team_of_test = (cvy_team_params){0};
}

/* What rounding has left of gradients belongs to a team's devices: elsewhere it begins at zero, and that is said. */
static void test_bf16_elsewhere(check_device *d) {
  static const struct {
    const char *suffix;
    cvy_exchange_kind exchange;
    int until;
    const char *said;
  } parts[] = {{"*2", CVY_EXCHANGE_FP32, 3, NULL},
               {"*2", CVY_EXCHANGE_BF16, 6, "is not in the checkpoint"},
               {"*2", CVY_EXCHANGE_BF16, 7, NULL},
               {"*3", CVY_EXCHANGE_BF16, 9, "belongs to another team"}};
  folder_of_test = check_temp_dir();
  const char *const dir = path_in("bf16");
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
    if (check_log_contains("what rounding had left") != (parts[i].said != NULL) ||
        (parts[i].said && !check_log_contains(parts[i].said)))
      check_fail(d, "part %d: '%s' is not what is said", i, parts[i].said ? parts[i].said : "nothing");
  }
  for (int s = 0; s < 9; s++)
    if (!(fabs(pieces.losses[s] - whole.losses[s]) <= 5e-3 * whole.losses[s]))
      check_fail(d, "loss of step %d is %.6g, with fp32 %.6g", s, pieces.losses[s], whole.losses[s]);
  team_of_test = ghost;
  check_fails(
      run(d, "*3", &(cvy_train_params){.epochs = 3, .checkpoint_dir = dir, .resume = true}, &pieces, NULL, NULL),
      CVY_E_MISMATCH, "made with exchange bf16");
  team_of_test = (cvy_team_params){0};
}

/* The newest checkpoint is broken: the one before it serves, with a warning. */
static void test_broken_checkpoint(check_device *d) {
  folder_of_test = check_temp_dir();
  const char *const dir = path_in("broken");
  record r = {0}, again = {0};
  check_ok(run(
      d, "", &(cvy_train_params){.epochs = 2, .max_steps = 6, .checkpoint_dir = dir, .checkpoint_every = 2, .keep = 3},
      &r, NULL, NULL));
  char newest[600];
  snprintf(newest, sizeof newest, "%s/step-0000000006.safetensors", dir);
  assert_int_equal(truncate(newest, 1000), 0);
  check_log_clear();
  check_ok(run(d, "", &(cvy_train_params){.epochs = 2, .max_steps = 6, .checkpoint_dir = dir, .resume = true}, &again,
               NULL, NULL));
  assert_int_equal(again.steps, 2); /* from step 4 */
  assert_true(check_log_contains("step-0000000006"));
  assert_true(again.losses[4] == r.losses[4] && again.losses[5] == r.losses[5]);
}

static void test_stop_flag(check_device *d) {
  folder_of_test = check_temp_dir();
  cvy_stop stop = {0};
  record r = {0};
  cvy_train_result out;
  const char *const dir = path_in("stopped");
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
static void test_single_statistics(check_device *d) {
  static const struct {
    int batch, ghost, samples;
    bool good;
  } cases[] = {{8, 0, 24, true}, {8, 0, 25, false}, {1, 0, 24, false},
               {8, 3, 24, true}, {7, 3, 21, false}, {8, 3, 28, false}};
  for (int i = 0; i < (int)(sizeof cases / sizeof *cases); i++) {
    cvy_net *net;
    cvy_data *data;
    cvy_devices *devices;
    cvy_team *team;
    char spec[32];
    check_ok(cvy_net_create(1, 4, 4, &net));
    cvy_node x = cvy_net_conv2d(net, cvy_net_input(net), "0", &(cvy_conv2d_spec){.filters = 16, .kernel = {4, 4}});
    check_ok(cvy_net_finish(net, cvy_net_linear(net, cvy_net_batchnorm(net, x, "1", NULL), "2", 10, false)));
    snprintf(spec, sizeof spec, "synthetic:%d:4x4x1", cases[i].samples);
    check_ok(cvy_data_load(spec, NULL, &data));
    check_ok(cvy_devices_select(d->place, &devices));
    check_ok(cvy_team_create(
        devices, net,
        &(cvy_team_params){
            .batch = cases[i].batch, .bn = cases[i].ghost ? CVY_BN_GHOST : CVY_BN_DEVICE, .ghost = cases[i].ghost},
        &team));
    check_ok(cvy_team_init(team, NULL));
    check_ok(cvy_team_attach(team, data));
    cvy_train_result out;
    check_log_clear();
    const cvy_status status = cvy_train(team, data, &(cvy_train_params){.epochs = 1}, &out);
    if (status != (cases[i].good ? CVY_OK : CVY_E_ARGUMENT)) check_fail(d, "case %d: %s", i, cvy_status_name(status));
    if (!cases[i].good) assert_true(check_log_contains("another batch size") && !check_log_contains("step 0"));
    cvy_team_destroy(&team);
    cvy_devices_destroy(&devices);
    cvy_data_destroy(&data);
    cvy_net_destroy(&net);
  }
}

static int on_whole_step(void *user, const cvy_step_result *step, int epoch, long steps_per_epoch, float lr) {
  int *const steps = user;
  (void)lr;
  assert_int_equal(steps_per_epoch, 4);
  assert_int_equal(epoch, step->step / 4);
  assert_int_equal(step->images, BATCH);
  ++*steps;
  return 0;
}

/* Epochs of whole batches only. */
static void test_drop_last(check_device *d) {
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
  (void)epoch, (void)steps_per_epoch, (void)lr;
  const disk *const full = user;
  struct rlimit limit;
  assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
  limit.rlim_cur = step->step >= full->from && step->step < full->to ? 1000 : limit.rlim_max;
  assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
  return 0;
}

static void test_full_disk(check_device *d) {
  void (*const before)(int) = signal(SIGXFSZ, SIG_IGN);
  for (int i = 0; i < 2; i++) { /* room again before the end; never again */
    const char *const dir = folder_of_test = check_temp_dir();
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
    char name[64];
    for (int s = 0; s < 4; s++) {
      snprintf(name, sizeof name, "step-%010ld.safetensors", steps[s]);
      assert_int_equal(cvy_file_exists(path_in(name)), s == 0 || (s == 3 && i == 0));
    }
  }
  signal(SIGXFSZ, before);
}

/* The rate becomes 100,000 times higher after six steps: the checkpoint of step 6 stays beside the newest, also in a
 * run that goes on. */
static void test_loss_jump(check_device *d) {
  const char *const dir = folder_of_test = check_temp_dir();
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
  assert_true(cvy_file_exists(path_in("step-0000000006.safetensors")) && cvy_file_exists(path_in("step-0000000014."
                                                                                                 "safetensors")));
  assert_false(cvy_file_exists(path_in("step-0000000008.safetensors")) || cvy_file_exists(path_in("step-0000000012."
                                                                                                  "safetensors")));
}

/* Other images of the same name, number and size; a folder that another process uses. */
static void test_other_files(check_device *d) {
  const char *const dir = folder_of_test = check_temp_dir();
  record unused = {0};
  cvy_train_params p = {.epochs = 2, .max_steps = 2, .checkpoint_dir = dir, .resume = true, .no_eval = true};
  check_ok(run(d, "", &p, &unused, NULL, NULL));
  data_seed = 7;
  check_fails(run(d, "", &p, &unused, NULL, NULL), CVY_E_MISMATCH, "data_content: ");
  data_seed = 0;
  const int fd = open(dir, O_RDONLY | O_DIRECTORY);
  assert_int_equal(flock(fd, LOCK_EX), 0);
  char own[32];
  snprintf(own, sizeof own, "in use by process %ld", (long)getpid());
  check_fails(run(d, "", &p, &unused, NULL, NULL), CVY_E_ARGUMENT, own);
  close(fd);
  check_ok(run(d, "", &p, &unused, NULL, NULL));
}

static void test_wrong_use(check_device *d) {
  record r = {0};
  check_fails(run(d, "", &(cvy_train_params){.epochs = -1}, &r, NULL, NULL), CVY_E_ARGUMENT, "-1 epochs");
  check_fails(run(d, "", &(cvy_train_params){.resume = true}, &r, NULL, NULL), CVY_E_ARGUMENT, "checkpoint folder");
  check_fails(run(d, "", &(cvy_train_params){.max_steps = -3}, &r, NULL, NULL), CVY_E_ARGUMENT, "max_steps");
  assert_int_equal(r.steps, 0);
}

/* Checkpoints by hand that cannot be; tests/examples/train_by_hand.c shows those that can. */
static void test_by_hand(check_device *d) {
  static const char settings[] = "{\"a\":1}";
  const char *const dir = check_temp_dir();
  cvy_net *net;
  cvy_data *data;
  cvy_devices *devices;
  cvy_team *team, *plain;
  cvy_checkpoint *opened;
  cvy_run_position at = {.step = 3, .seed = 9, .kept_step = 2, .kept_median = 0.5};
  check_ok(cvy_net_lenet(1, 28, 28, 10, &net));
  check_ok(cvy_data_load("synthetic:60", NULL, &data));
  check_ok(cvy_devices_select(d->place, &devices));
  check_ok(cvy_team_create(devices, net, &(cvy_team_params){.batch = 4, .momentum = 0.9f}, &team));
  check_ok(cvy_team_create(devices, net, &(cvy_team_params){.batch = 4}, &plain));
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
  check_fails(cvy_team_save(plain, path_in("none")), CVY_E_ARGUMENT, "no weights"); /* nothing was taken of it */
  check_fails(cvy_checkpoint_load(team, opened, "{\"a\":2}"), CVY_E_MISMATCH, "a: 1 in the checkpoint, 2 now");
  check_ok(cvy_checkpoint_load(team, opened, settings));
  cvy_checkpoint_close(&opened);
  cvy_team_destroy(&plain);
  cvy_team_destroy(&team);
  cvy_devices_destroy(&devices);
  cvy_data_destroy(&data);
  cvy_net_destroy(&net);
}

int main(int argc, char **argv) {
  static const check_test tests[] = {{"epochs", test_epochs},
                                     {"resume", test_resume},
                                     {"resume_elsewhere", test_resume_elsewhere},
                                     {"bf16_elsewhere", test_bf16_elsewhere},
                                     {"broken_checkpoint", test_broken_checkpoint},
                                     {"stop_flag", test_stop_flag},
                                     {"single_statistics", test_single_statistics},
                                     {"drop_last", test_drop_last},
                                     {"full_disk", test_full_disk},
                                     {"loss_jump", test_loss_jump},
                                     {"other_files", test_other_files},
                                     {"wrong_use", test_wrong_use},
                                     {"by_hand", test_by_hand}};
  return check_main(argc, argv, tests, (int)(sizeof tests / sizeof *tests), CHECK_DEVICES);
}
