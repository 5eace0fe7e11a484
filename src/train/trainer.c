/* SPDX-License-Identifier: MIT
 * The training loop of convoy/train.h: where the run stands, epochs of steps, evaluation, checkpoints. */
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "convoy/convoy.h"
#include "src/base/clock.h"
#include "src/base/mem.h"
#include "src/base/text.h"
#include "src/nn/weights.h"
#include "src/train/checkpoint.h"
#include "src/train/choices.h"
#include "src/train/loss_watch.h"
#include "src/train/resume.h"
#include "src/train/team.h"

/* A team of one: seconds between two states on the host. */
enum { SNAPSHOT_S = 30 };

typedef struct trainer {
  cvy_team *team;
  const cvy_data *data;
  cvy_train_params p;
  long steps_per_epoch;
  int32_t *order;
  /* where the run stands: steps whose results have been taken */
  long step;
  int epoch;
  long epoch_batches, epoch_images;
  double epoch_loss_sum;
  /* this process's part */
  double epoch_ms, total_ms, full_epochs_ms, start_ms; /* start_ms: cvy_train_result.start_seconds */
  long total_images, steps_taken;
  int full_epochs, first_epoch;
  bool first_epoch_full;
  bool epoch_whole; /* this process has run the epoch from its first step */
  bool stopping;
  long saved_step; /* of the newest checkpoint, -1: none */
  long pinned_step; /* of the one from before the loss jumped, 0: none */
  double pinned_median; /* of the losses before that */
  cvy_loss_watch losses;
  char *settings;  /* those of the run with what cvy_settings_extend adds */
  cvy_file_lock *folder_lock;
  int folders_made;
  bool has_change; /* the team has been asked: */
  cvy_shares_change change;
  bool has_loss;   /* the same */
  cvy_device_loss loss;
  struct position { /* of the newest state on the host, in a team of one */
    long step, epoch_batches, epoch_images;
    int epoch;
    double epoch_loss_sum;
  } kept;
  uint64_t kept_ns;
  cvy_train_result result;
} trainer;

/* ---- checkpoints ---- */

static bool run_is_over(const trainer *t) {
  return t->epoch >= t->p.epochs || (t->p.max_steps > 0 && t->step >= t->p.max_steps);
}

/* The state is on the host. */
static void note_kept(trainer *t) {
  t->kept = (struct position){t->step, t->epoch_batches, t->epoch_images, t->epoch, t->epoch_loss_sum};
  t->kept_ns = cvy_clock_ns();
}

/* What is on the host, as the state after t->step steps. rests: cvy_team_get_rests. */
static cvy_status write_checkpoint(trainer *t, float *const *rests) {
  cvy_status status = CVY_OK;
  cvy_team *const team = t->team;
  char *devices = NULL;
  char *settings = NULL;
  int *const shares = cvy_calloc((size_t)team->n, sizeof *shares);
  CVY_REQUIRE(shares, CVY_E_MEMORY, "out of host memory");
  cvy_team_copy_shares(team, shares);
  CVY_TRY(cvy_settings_extend(t->p.settings, t->data->content, t->pinned_step, t->pinned_median, &settings));
  CVY_TRY(cvy_resume_devices(team->devices, &devices));
  CVY_TRY(cvy_checkpoint_save(t->p.checkpoint_dir, team->layout,
                              &(cvy_checkpoint){.step = t->step,
                                                .epoch = t->epoch,
                                                .epoch_batches = t->epoch_batches,
                                                .epoch_loss_sum = t->epoch_loss_sum,
                                                .epoch_images = t->epoch_images,
                                                .seed = t->p.seed,
                                                .finished = run_is_over(t),
                                                .n_batches = team->state_batches,
                                                .kept = t->pinned_step,
                                                .settings = settings,
                                                .choices = team->choices,
                                                .devices = devices,
                                                .n_shares = team->n,
                                                .shares = shares,
                                                .w = cvy_state_w(team->state),
                                                .v = team->state->has_momentum ? cvy_state_v(team->state) : NULL,
                                                .w_before = team->state->before,
                                                .residuals = rests,
                                                .running = cvy_state_running(team->state)},
                              t->p.keep));
  t->saved_step = t->result.checkpoint_step = t->step;
fail:
  cvy_free(settings);
  cvy_free(shares);
  cvy_free(devices);
  return status;
}

/* `last`: nothing comes after it. Before that, a disk that is full at one checkpoint may have room at the next. */
static cvy_status save_checkpoint(trainer *t, bool last) {
  cvy_status status = CVY_OK;
  float **rests = NULL;
  if (!t->p.checkpoint_dir || t->saved_step == t->step) return CVY_OK;
  CVY_TRY(cvy_team_sync_state(t->team));
  CVY_TRY(cvy_team_get_rests(t->team, &rests));
  note_kept(t);
  t->result.checkpoint_failed = true;
  cvy_weights_warn(t->team->layout, cvy_state_w(t->team->state), cvy_state_running(t->team->state), t->p.checkpoint_dir);
  cvy_log_attempt_begin();
  status = write_checkpoint(t, rests);
  cvy_log_attempt_end(last && status != CVY_OK);
  t->result.checkpoint_failed = status != CVY_OK;
  if (status == CVY_E_IO && !last) {
    char newest[64] = "there is none yet";
    if (t->saved_step >= 0) snprintf(newest, sizeof newest, "the newest is that of step %ld", t->saved_step);
    cvy_log_warning("no checkpoint of step %ld: %s; training goes on and tries again at the next one (%s)", t->step,
                    cvy_log_attempt_text(), newest);
    status = CVY_OK;
  }
fail:
  cvy_team_free_rests(t->team, &rests);
  return status;
}

static cvy_status resume(trainer *t) {
  cvy_status status = CVY_OK;
  cvy_team *const team = t->team;
  cvy_state *const s = team->state;
  cvy_checkpoint c = {0};
  bool found, same;
  CVY_TRY(cvy_checkpoint_load_newest(t->p.checkpoint_dir, team->layout, t->settings, cvy_resume_may_differ(team), &c,
                                     &found));
  if (!found) return CVY_OK;
  CVY_TRY(cvy_resume_check(team, &c, &same));
  CVY_REQUIRE(c.seed == t->p.seed, CVY_E_MISMATCH, "the checkpoint of step %ld was made with seed %llu, not %llu",
              c.step, (unsigned long long)c.seed, (unsigned long long)t->p.seed);
  CVY_REQUIRE(s->has_momentum == (c.v != NULL), CVY_E_MISMATCH,
              "the checkpoint of step %ld has %s momentum, the run has %s", c.step, c.v ? "a" : "no",
              s->has_momentum ? "one" : "none");
  CVY_REQUIRE(
      c.epoch_batches < t->steps_per_epoch, CVY_E_MISMATCH,
      "the checkpoint of step %ld stands at batch %ld of an epoch, which has %ld: another data set or batch size",
      c.step, c.epoch_batches, t->steps_per_epoch);
  CVY_REQUIRE((team->params.staleness > 0) == (c.w_before != NULL), CVY_E_MISMATCH,
              "the checkpoint of step %ld was made with staleness %d, the run has %d", c.step, c.w_before != NULL,
              team->params.staleness);
  const bool packs = team->params.exchange == CVY_EXCHANGE_BF16;
  CVY_REQUIRE(!c.residuals || packs, CVY_E_MISMATCH,
              "the checkpoint of step %ld was made with exchange bf16, the run has fp32", c.step);
  if (same) CVY_TRY(cvy_choices_compare(c.choices, team->choices));
  CVY_TRY(cvy_team_wait(team));
  memcpy(cvy_state_w(s), c.w, team->layout->n_floats * sizeof(float));
  if (c.w_before) memcpy(s->before, c.w_before, team->layout->n_floats * sizeof(float));
  if (c.v) memcpy(cvy_state_v(s), c.v, team->layout->n_floats * sizeof(float));
  if (team->layout->n_running_floats)
    memcpy(cvy_state_running(s), c.running, team->layout->n_running_floats * sizeof(float));
  team->n_batches = c.n_batches;
  CVY_TRY(cvy_team_publish_state(team, c.step));
  CVY_TRY(cvy_team_put_rests(team, same ? c.residuals : NULL));
  t->step = t->saved_step = t->result.checkpoint_step = c.step;
  t->pinned_step = cvy_settings_kept(c.settings, &t->pinned_median);
  if (t->pinned_step) t->losses = (cvy_loss_watch){.losses = {t->pinned_median}, .n = 1, .next = 1, .high = true};
  t->epoch = c.epoch;
  t->epoch_batches = c.epoch_batches;
  t->epoch_images = c.epoch_images;
  t->epoch_loss_sum = c.epoch_loss_sum;
  cvy_log_info("resumed from the checkpoint of step %ld (epoch %d, batch %ld)", c.step, c.epoch, c.epoch_batches);
  if (!same) cvy_resume_tell(team, &c);
  else if (!cvy_resume_knows_make(c.devices))
    cvy_log_info("the checkpoint is of a program that did not note compute units and driver versions: it is not known whether the devices "
                 "are the same in that; if not, the run goes on within rounding, not bit for bit");
  if (packs && (!same || !c.residuals))
    cvy_log_info("exchange bf16: what rounding had left of the gradients %s and begins again at zero",
                 c.residuals ? "belongs to another team" : "is not in the checkpoint");
fail:
  cvy_checkpoint_clear(&c);
  return status;
}

/* ---- steps ---- */

static float lr_of(const trainer *t, long step) {
  return cvy_lr_at(&t->p.schedule, t->p.lr, step, t->steps_per_epoch, t->p.epochs * t->steps_per_epoch);
}

/* Tells of new shares up to those of `step`. */
static void tell_shares(trainer *t, long step) {
  for (;;) {
    if (!t->has_change) t->has_change = cvy_team_take_change(t->team, &t->change);
    if (!t->has_change || t->change.step > step) return;
    if (t->p.on_shares) t->p.on_shares(t->p.user, &t->change, t->epoch);
    t->has_change = false;
  }
}

static void tell_losses(trainer *t, long step) {
  for (;;) {
    if (!t->has_loss) t->has_loss = cvy_team_take_loss(t->team, &t->loss);
    if (!t->has_loss || t->loss.step > step) return;
    if (t->p.on_device_lost) t->p.on_device_lost(t->p.user, &t->loss, t->epoch);
    t->has_loss = false;
  }
}

/* The first step's kernels are compiled while it runs: how much longer it took than the second. */
static void note_start(trainer *t, const cvy_step_result *second) {
  const double usual_ms = second->ms * (double)t->total_images / second->images;
  t->start_ms = fmax(t->total_ms - usual_ms, 0);
  t->total_ms = t->total_images = 0;
  if (t->p.on_started) t->p.on_started(t->p.user, t->start_ms * 1e-3);
}

/* A run that diverges would push the last good checkpoint out of --keep. */
static void watch_loss(trainer *t, const cvy_step_result *r) {
  if (!cvy_loss_jumps(&t->losses, r->loss) || !t->p.checkpoint_dir || t->saved_step <= 0) return;
  t->pinned_step = t->saved_step;
  t->pinned_median = t->losses.median;
  cvy_log_warning("the loss jumps to %g in step %ld (median of the steps before: %g): the checkpoint of step %ld stays in %s beside the "
                  "newest", r->loss, r->step, t->losses.median, t->pinned_step, t->p.checkpoint_dir);
}

static cvy_status take_results(trainer *t, bool all) {
  cvy_status status = CVY_OK;
  cvy_step_result r;
  bool got;
  for (;;) {
    CVY_TRY(cvy_team_take(t->team, all, &r, &got));
    if (!got) break;
    tell_losses(t, r.step);
    tell_shares(t, r.step);
    t->step = r.step + 1;
    t->epoch_batches++;
    t->epoch_images += r.images;
    t->epoch_loss_sum += r.loss * r.images;
    t->epoch_ms += r.ms;
    if (t->steps_taken++ == 1) note_start(t, &r);
    t->total_ms += r.ms;
    t->total_images += r.images;
    t->result.last_loss = r.loss;
    watch_loss(t, &r);
    if (t->p.on_step && t->p.on_step(t->p.user, &r, t->epoch, t->steps_per_epoch, lr_of(t, r.step))) t->stopping = true;
  }
fail:
  return status;
}

static bool due(long step, int every) { return every > 0 && step % every == 0; }

/* What has to be done between two steps, with the pipeline empty. */
static cvy_status between_steps(trainer *t, long started) {
  cvy_status status = CVY_OK;
  const bool verify = due(started, t->p.verify_every);
  const bool save = !t->p.checkpoint_epochs && t->p.checkpoint_dir && due(started, t->p.checkpoint_every);
  const bool keep = t->team->n == 1 && !t->team->params.no_sync &&
                    cvy_clock_seconds_since(t->kept_ns) >= (t->p.snapshot_s > 0 ? t->p.snapshot_s : SNAPSHOT_S);
  if (!verify && !save && !keep) return take_results(t, false);
  CVY_TRY(take_results(t, true));
  if (keep) {
    CVY_TRY(cvy_team_sync_state(t->team));
    note_kept(t);
  }
  if (verify) CVY_TRY(cvy_team_verify(t->team));
  if (save && t->epoch_batches < t->steps_per_epoch)
    CVY_TRY(save_checkpoint(t, false)); /* at an epoch's end: after its evaluation */
fail:
  return status;
}

/* Runs the epoch from where it stands to its end, the run's last step, or a stop. */
static cvy_status run_steps(trainer *t) {
  cvy_status status = CVY_OK;
  const int n = t->data->train.n, batch = t->team->params.batch;
  cvy_sampler_order(t->p.seed, t->epoch, t->p.no_shuffle, n, t->order);
  long started = t->step;
  for (long b = t->epoch_batches; b < t->steps_per_epoch; b++) {
    if ((t->p.stop && *t->p.stop) || t->stopping) break;
    if (t->p.max_steps > 0 && started >= t->p.max_steps) break;
    const long at = b * batch;
    CVY_TRY(cvy_team_step(t->team, t->order + at, (int)(n - at < batch ? n - at : batch), lr_of(t, started)));
    started++;
    CVY_TRY(between_steps(t, started));
  }
  CVY_TRY(take_results(t, true));
  if (t->p.stop && *t->p.stop) t->stopping = true;
fail:
  return status;
}

/* ---- epochs ---- */

static bool wants_test(const trainer *t) { return !t->p.no_eval && t->data->test.n > 0; }

/* Test accuracy; negative where none is wanted, and when the run is being stopped: what was trained matters more. */
static cvy_status test_accuracy(trainer *t, double *accuracy) {
  cvy_eval_result eval;
  *accuracy = -1;
  if (!wants_test(t) || t->stopping) return CVY_OK;
  const cvy_status status = cvy_team_evaluate(t->team, false, &eval);
  if (status == CVY_OK) *accuracy = eval.accuracy;
  if (status != CVY_E_INTERRUPTED || !t->p.stop || !*t->p.stop) return status;
  t->stopping = true;
  return CVY_OK;
}

static cvy_status end_epoch(trainer *t, bool complete) {
  cvy_status status = CVY_OK;
  cvy_epoch_result e = {.epoch = t->epoch,
                        .train_loss = t->epoch_images ? cvy_unsigned_nan(t->epoch_loss_sum / (double)t->epoch_images) : NAN,
                        .test_acc = -1,
                        .seconds = (t->epoch_ms - (t->epoch == t->first_epoch ? t->start_ms : 0)) * 1e-3,
                        .full = complete && t->epoch_whole};
  CVY_TRY(test_accuracy(t, &e.test_acc));
  t->result.test_acc = e.test_acc;
  if (e.full) {
    t->first_epoch_full |= t->epoch == t->first_epoch;
    t->full_epochs++;
    t->full_epochs_ms += t->epoch_ms;
  }
  if (t->p.on_epoch && t->p.on_epoch(t->p.user, &e)) t->stopping = true;
  if (!complete) return CVY_OK;
  t->epoch++;
  t->epoch_batches = t->epoch_images = 0;
  t->epoch_loss_sum = t->epoch_ms = 0;
  t->epoch_whole = true;
  const bool save = t->p.checkpoint_epochs ? due(t->epoch, t->p.checkpoint_every) : due(t->step, t->p.checkpoint_every);
  if (save) CVY_TRY(save_checkpoint(t, run_is_over(t)));
fail:
  return status;
}

static cvy_status run(trainer *t) {
  cvy_status status = CVY_OK;
  t->result.already_finished = run_is_over(t);
  if (t->result.already_finished) CVY_TRY(test_accuracy(t, &t->result.test_acc));
  while (!run_is_over(t) && !t->stopping) {
    CVY_TRY(run_steps(t));
    const bool complete = t->epoch_batches == t->steps_per_epoch;
    if (complete || !t->stopping) CVY_TRY(end_epoch(t, complete));
  }
  const bool over = run_is_over(t) && (t->result.test_acc >= 0 || !wants_test(t));
  CVY_TRY(save_checkpoint(t, true));
  if (t->stopping && !over) status = CVY_E_INTERRUPTED;
fail:
  return status;
}

/* Batch normalisation of 1x1 images needs two samples in every group of every pass: refused before the first step, not
 * found at the end of an epoch. `n`: samples of a batch that the run will come to. */
static cvy_status check_statistics(const trainer *t, int n) {
  cvy_status status = CVY_OK;
  const cvy_team *const team = t->team;
  const cvy_layer *single = NULL;
  for (int i = 0; i < team->net->n_layers && !single; i++) {
    const cvy_layer *const l = &team->net->layers[i];
    if (l->kind == CVY_LAYER_BATCHNORM && l->shape.h * l->shape.w == 1) single = l;
  }
  int *shares = NULL;
  if (!single || n == 0) return CVY_OK;
  CVY_REQUIRE(team->params.bn != CVY_BN_SYNC || n > 1, CVY_E_ARGUMENT,
              "batchnorm '%s' sees images of 1x1 pixels: a batch of 1 sample has no variance; choose another batch size",
              single->name);
  if (team->params.bn == CVY_BN_SYNC) return CVY_OK;
  const int group = team->params.bn == CVY_BN_GHOST ? team->params.ghost : 0;
  shares = cvy_calloc((size_t)team->n, sizeof *shares);
  CVY_REQUIRE(shares, CVY_E_MEMORY, "out of host memory");
  CVY_TRY(cvy_team_shares(team, &team->split, n, shares));
  for (int r = 0; r < team->n; r++) {
    if (shares[r] == 0) continue;
    const int pass = cvy_replica_pass_size(&team->replicas[r], shares[r], group);
    const int unit = group ? group : pass, rest = shares[r] % unit;
    CVY_REQUIRE(
        unit > 1 && rest != 1, CVY_E_ARGUMENT,
        "batchnorm '%s' sees images of 1x1 pixels: in a batch of %d samples device %d (%s) would have a group of "
        "one, which has no variance; choose another batch size%s",
        single->name, n, r, cvy_devices_label(team->devices, r), group ? " or group size" : "");
  }
fail:
  cvy_free(shares);
  return status;
}

static cvy_status take_params(trainer *t, const cvy_train_params *params) {
  cvy_status status = CVY_OK;
  t->p = params ? *params : (cvy_train_params){0};
  if (t->p.epochs == 0) t->p.epochs = 10;
  if (t->p.lr == 0) t->p.lr = 0.1f;
  if (t->p.keep == 0) t->p.keep = 2;
  CVY_REQUIRE(t->p.epochs > 0, CVY_E_ARGUMENT, "%d epochs: must be at least 1", t->p.epochs);
  CVY_REQUIRE(isfinite(t->p.lr) && t->p.lr > 0, CVY_E_ARGUMENT, "learning rate %g: must be a finite number above 0",
              (double)t->p.lr);
  CVY_REQUIRE(t->p.max_steps >= 0 && t->p.verify_every >= 0 && t->p.checkpoint_every >= 0 && t->p.keep >= 1,
              CVY_E_ARGUMENT, "max_steps, verify_every and checkpoint_every must be 0 or more, keep 1 or more");
  CVY_REQUIRE(!t->team->params.no_sync || !t->p.checkpoint_dir, CVY_E_ARGUMENT,
              "a team without exchange (no_sync) does not train: there is nothing to keep in a checkpoint");
  CVY_REQUIRE(!t->p.resume || t->p.checkpoint_dir, CVY_E_ARGUMENT, "resuming needs a checkpoint folder");
  CVY_REQUIRE(t->data->train.n > 0, CVY_E_ARGUMENT, "data set %s has no training samples", t->data->name);
  CVY_REQUIRE(!t->p.drop_last || t->data->train.n >= t->team->params.batch, CVY_E_ARGUMENT,
              "drop_last: nothing is left of %d training samples in batches of %d; choose a batch of at most %d",
              t->data->train.n, t->team->params.batch, t->data->train.n);
  CVY_REQUIRE(t->team->data == t->data, CVY_E_ARGUMENT,
              "data set %s is not attached to the team: call cvy_team_attach first", t->data->name);
fail:
  return status;
}

/* No device is left, or one was lost in a run that ends then: what the run had reached is saved. */
static void save_what_is_there(trainer *t) {
  cvy_team *const team = t->team;
  if (!team->device_failed) return;
  (void)take_results(t, false);
  if (team->n == 1) {
    t->step = t->kept.step;
    t->epoch = t->kept.epoch;
    t->epoch_batches = t->kept.epoch_batches;
    t->epoch_images = t->kept.epoch_images;
    t->epoch_loss_sum = t->kept.epoch_loss_sum;
  }
  if (t->epoch_batches == t->steps_per_epoch) { /* it failed in the evaluation */
    t->epoch++;
    t->epoch_batches = t->epoch_images = 0;
    t->epoch_loss_sum = 0;
  }
  tell_losses(t, LONG_MAX);
  t->result.state_is_whole = t->step == team->state_step;
  if (!t->result.state_is_whole || !t->p.checkpoint_dir || t->saved_step == t->step) return;
  t->result.checkpoint_failed = write_checkpoint(t, NULL) != CVY_OK;
}

cvy_status cvy_train(cvy_team *team, const cvy_data *data, const cvy_train_params *params, cvy_train_result *out) {
  cvy_status status = CVY_OK;
  trainer t = {.team = team, .data = data, .epoch_whole = true, .saved_step = -1, .result = {.test_acc = -1, .checkpoint_step = -1, .last_loss = NAN}};
  CVY_TRY(take_params(&t, params));
  const int n = data->train.n, batch = team->params.batch, rest = t.p.drop_last ? 0 : n % batch;
  t.steps_per_epoch = n / batch + (rest > 0);
  CVY_TRY(cvy_lr_check(&t.p.schedule, t.steps_per_epoch, t.p.epochs * t.steps_per_epoch));
  t.order = cvy_calloc((size_t)data->train.n, sizeof *t.order);
  CVY_REQUIRE(t.order, CVY_E_MEMORY, "out of host memory");
  CVY_TRY(cvy_settings_extend(t.p.settings, data->content, 0, 0, &t.settings));
  if (t.p.checkpoint_dir) CVY_TRY(cvy_checkpoint_claim(t.p.checkpoint_dir, &t.folders_made, &t.folder_lock));
  if (t.p.resume)
    CVY_TRY(resume(&t));
  else if (t.p.checkpoint_dir)
    CVY_TRY(cvy_checkpoint_require_none(t.p.checkpoint_dir));
  CVY_REQUIRE(team->initialised, CVY_E_ARGUMENT, "the team has no weights: call cvy_team_init or cvy_team_load first");
  CVY_TRY(check_statistics(&t, n < batch ? n : batch));
  if (t.p.max_steps == 0 || t.p.max_steps >= t.steps_per_epoch) CVY_TRY(check_statistics(&t, rest));
  team->stop_flag = t.p.stop;
  t.step = team->next_step;
  t.epoch_whole = t.epoch_batches == 0;
  t.first_epoch = t.epoch;
  note_kept(&t);
  status = run(&t);
  if (status != CVY_OK && status != CVY_E_INTERRUPTED) save_what_is_there(&t);
  else tell_losses(&t, LONG_MAX);
  t.result.steps = t.step;
  t.result.epochs_done = t.epoch;
  if (t.first_epoch_full) t.full_epochs_ms -= t.start_ms;
  t.result.start_seconds = t.start_ms * 1e-3;
  t.result.sec_per_epoch = t.full_epochs ? t.full_epochs_ms * 1e-3 / t.full_epochs : 0;
  t.result.images_per_second = t.total_ms > 0 ? (double)t.total_images / (t.total_ms * 1e-3) : 0;
  *out = t.result;
fail:
  team->stop_flag = NULL;
  if (t.folders_made) cvy_remove_dirs(t.p.checkpoint_dir, t.folders_made); /* nothing has come into them */
  cvy_file_lock_release(&t.folder_lock);
  cvy_free(t.settings);
  cvy_free(t.order);
  return status;
}

const char *cvy_version(void) { return CVY_VERSION; }
