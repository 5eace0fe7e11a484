/* SPDX-License-Identifier: MIT
 * What cvy_train does, written by hand: LeNet on two devices, with a learning rate that changes, evaluation,
 * checkpoints, Ctrl-C and resuming. Weights and checkpoints are those of cvy_train to the bit, and each goes on from
 * the other's.
 *
 * cc train_by_hand.c $(pkg-config --cflags --libs convoy) -lm
 * ./a.out hand|train FOLDER [DATA [STEPS]]   by hand or with cvy_train, from the newest checkpoint in FOLDER, which
 *                                            gets the weights, too; as if by Ctrl-C it ends after STEPS steps */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "convoy/convoy.h"

enum { EPOCHS = 3, BATCH = 64, SEED = 5, SAVE_EVERY = 4 };
static const float rate = 0.05f;
static const cvy_lr_schedule schedule = {.kind = CVY_LR_COSINE, .warmup = 3};
static const char settings[] = "{\"model\":\"lenet\",\"lr\":0.05}"; /* compared when the run is resumed */

static cvy_stop stop;
static long steps_left = -1; /* -1: no end but the run's */

static void on_signal(int number) {
  (void)number;
  cvy_stop_request(&stop);
}

static void count_step(void) {
  if (steps_left > 0 && --steps_left == 0) raise(SIGINT);
}

static void show_message(void *user, cvy_log_level level, const char *message) {
  (void)user;
  fprintf(stderr, "%s%s\n", level <= CVY_LOG_WARNING ? "convoy: " : "", message);
}

static void check(cvy_status status) {
  if (status == CVY_OK) return;
  fprintf(stderr, "%s\n", cvy_status_text(status));
  exit(1);
}

/* ---- by hand ---- */

typedef struct run {
  cvy_team *team;
  const cvy_data *data;
  const char *folder;
  cvy_run_position at; /* of the steps whose results have been taken */
  long saved_step;
} run;

static void save(run *r) {
  if (r->saved_step == r->at.step) return;
  r->at.finished = r->at.epoch == EPOCHS;
  check(cvy_checkpoint_save(r->team, r->folder, 2, settings, &r->at));
  r->saved_step = r->at.step;
}

/* Results of finished steps; all: also of those that are under way. */
static void take_results(run *r, bool all) {
  cvy_step_result step;
  bool got;
  for (check(cvy_team_take(r->team, all, &step, &got)); got; check(cvy_team_take(r->team, all, &step, &got))) {
    r->at.step++;
    r->at.epoch_batches++;
    r->at.epoch_images += step.images;
    r->at.epoch_loss_sum += step.loss * step.images;
    if (r->at.epoch_correct >= 0) r->at.epoch_correct += step.correct;
    count_step();
  }
}

/* The epoch under way, to its end or until Ctrl-C. False: that was it. */
static bool run_epoch(run *r, int32_t *order) {
  const int n = r->data->train.n;
  const long steps = (n + BATCH - 1) / BATCH;
  long step = r->at.step;
  cvy_sampler_order(SEED, r->at.epoch, false, n, order);
  for (long b = r->at.epoch_batches; b < steps && !cvy_stop_requested(&stop); b++) {
    const int at = (int)b * BATCH;
    const float lr = cvy_lr_at(&schedule, rate, step++, steps, EPOCHS * steps);
    check(cvy_team_step(r->team, order + at, n - at < BATCH ? n - at : BATCH, lr)); /* one step runs ahead */
    const bool saves = step % SAVE_EVERY == 0 && b < steps - 1;
    take_results(r, saves);
    if (saves) save(r);
  }
  take_results(r, true);
  if (r->at.epoch_batches < steps) return false;
  cvy_eval_result eval = {0};
  const cvy_status status = cvy_team_evaluate(r->team, CVY_SET_TEST, &eval);
  if (status != CVY_E_INTERRUPTED) check(status);
  printf("epoch %d: loss %.4f, test acc %.4f\n", r->at.epoch + 1, r->at.epoch_loss_sum / (double)r->at.epoch_images,
         eval.accuracy);
  r->at.epoch++;
  r->at.epoch_batches = r->at.epoch_images = r->at.epoch_correct = 0;
  r->at.epoch_loss_sum = 0;
  if (r->at.step % SAVE_EVERY == 0) save(r);
  return !cvy_stop_requested(&stop);
}

static void by_hand(cvy_team *team, const cvy_data *data, const char *folder, const cvy_checkpoint *opened) {
  run r = {.team = team, .data = data, .folder = folder, .at = {.seed = SEED}, .saved_step = -1};
  int32_t *const order = malloc((size_t)data->train.n * sizeof *order);
  if (!order) exit(1);
  if (opened) {
    check(cvy_checkpoint_load(team, opened, settings));
    r.at = cvy_checkpoint_position(opened);
    r.saved_step = r.at.step;
  }
  while (r.at.epoch < EPOCHS && run_epoch(&r, order)) {
  }
  save(&r);
  free(order);
}

/* ---- with cvy_train ---- */

static int on_step(void *user, const cvy_step_result *step, int epoch, long steps_per_epoch, float lr) {
  (void)user, (void)step, (void)epoch, (void)steps_per_epoch, (void)lr;
  count_step();
  return 0;
}

static void with_cvy_train(cvy_team *team, const cvy_data *data, const char *folder, const cvy_checkpoint *opened) {
  cvy_train_result result;
  const cvy_train_params params = {.epochs = EPOCHS,
                                   .lr = rate,
                                   .schedule = schedule,
                                   .seed = SEED,
                                   .checkpoint_dir = folder,
                                   .checkpoint_every = SAVE_EVERY,
                                   .resume = true,
                                   .opened = opened,
                                   .settings = settings,
                                   .on_step = on_step,
                                   .stop = &stop};
  const cvy_status status = cvy_train(team, data, &params, &result);
  if (status != CVY_E_INTERRUPTED) check(status);
}

int main(int argc, char **argv) {
  if (argc < 3 || (strcmp(argv[1], "hand") != 0 && strcmp(argv[1], "train") != 0)) {
    fprintf(stderr, "usage: %s hand|train FOLDER [DATA [STEPS]]\n", argv[0]);
    return 2;
  }
  if (cvy_api_version() / 10000 != CVY_API_VERSION_MAJOR || cvy_api_version() < CVY_API_VERSION) {
    fprintf(stderr, "this program is to be compiled again: the library is another one\n");
    return 1;
  }
  const char *const folder = argv[2];
  if (argc > 4) steps_left = atol(argv[4]);
  signal(SIGINT, on_signal);
  cvy_log_set(show_message, NULL, CVY_LOG_INFO);

  cvy_data *data;
  cvy_net *net;
  cvy_devices *devices;
  check(cvy_data_load(argc > 3 ? argv[3] : "fashion-mnist", NULL, &data));
  check(cvy_net_lenet(data->c, data->h, data->w, data->classes, &net));
  check(cvy_devices_select("0:0*2", &devices));

  /* The newest checkpoint, if there is one: the team takes its algorithms, and in the end its state. */
  cvy_checkpoint *opened;
  check(cvy_checkpoint_open(folder, &opened));
  const cvy_resume_values resume_values = opened ? cvy_checkpoint_resume_values(opened) : (cvy_resume_values){0};
  cvy_team *team;
  check(cvy_team_create(
      devices, net,
      &(cvy_team_params){.batch = BATCH, .momentum = 0.9f, .stop = &stop, .resume = opened ? &resume_values : NULL},
      &team));
  check(cvy_team_init(team, &(cvy_init_params){.kind = CVY_INIT_HE, .seed = SEED}));
  check(cvy_team_attach(team, data));
  /* With this metadata in its files `convoy eval` and `convoy predict` need no --model. */
  check(cvy_team_describe(team, &(cvy_model_info){.model = "lenet",
                                                  .channels = data->c,
                                                  .height = data->h,
                                                  .width = data->w,
                                                  .classes = data->classes,
                                                  .class_names = data->class_names}));

  (strcmp(argv[1], "hand") == 0 ? by_hand : with_cvy_train)(team, data, folder, opened);

  char path[4096];
  snprintf(path, sizeof path, "%s/weights.safetensors", folder);
  check(cvy_team_save(team, path));
  cvy_checkpoint_close(&opened);
  cvy_team_destroy(&team);
  cvy_devices_destroy(&devices);
  cvy_net_destroy(&net);
  cvy_data_destroy(&data);
  return 0;
}
