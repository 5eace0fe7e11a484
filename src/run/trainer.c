/* SPDX-License-Identifier: MIT
 * The training loop of convoy/train.h: the run's position, epochs of steps, evaluation, checkpoints. */
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "convoy/convoy.h"
#include "src/base/clock.h"
#include "src/base/mem.h"
#include "src/base/text.h"
#include "src/nn/weights.h"
#include "src/run/best.h"
#include "src/run/checkpoint.h"
#include "src/run/lag_watch.h"
#include "src/run/loss_watch.h"
#include "src/run/fleet_settings_check.h"
#include "src/run/resume.h"
#include "src/run/statistics_check.h"
#include "src/run/train_params.h"
#include "src/team/precise_bn.h"
#include "src/team/publish.h"
#include "src/team/rebalance.h"
#include "src/replica/replica_data.h"

/* Of a lone device: seconds between two states on the host. */
enum { SNAPSHOT_S = 30 };

typedef struct trainer {
  cvy_team *team;
  const cvy_data *data;
  cvy_train_params p;
  long steps_per_epoch;
  int32_t *order;
  /* the run's position: steps whose results have been taken */
  cvy_run_position at;
  /* counted in this process */
  double epoch_ms, total_ms, full_epochs_ms, start_ms; /* start_ms: cvy_train_result.start_seconds */
  long total_images, steps_taken;
  int full_epochs, first_epoch;
  bool first_epoch_full;
  bool epoch_whole; /* this process has run the epoch from its first step */
  bool stopping;
  bool is_told;     /* on_trained was called */
  long stops_after; /* in a fleet: the first step in whose results a node was asked to stop; -1: none */
  long saved_step;  /* of the newest checkpoint, -1: none */
  cvy_loss_watch losses;
  bool said_lag;
  char *settings; /* those of the run with what cvy_settings_extend adds */
  cvy_file_lock *folder_lock;
  int folders_made;
  bool has_event; /* `event` is taken and not yet passed on */
  cvy_team_event event;
  float *probabilities;     /* of on_predictions, for the largest set that is evaluated; NULL: no node wants them */
  cvy_run_position on_host; /* position of the newest state on the host, which may be behind a lone device */
  uint64_t on_host_ns;
  double keep_s;    /* the newest took so long to bring there */
  long keeps_after; /* in a fleet: the first step in whose results a node wants a newer one; -1: none */
  cvy_train_result result;
} trainer;

/* ---- checkpoints ---- */

static bool run_is_over(const trainer *t) {
  return t->at.epoch >= t->p.epochs || (t->p.max_steps > 0 && t->at.step >= t->p.max_steps) ||
         (t->at.epoch_batches == 0 && cvy_best_is_past(&t->at, t->p.patience));
}

static cvy_chain *chain_of(const trainer *t) { return cvy_team_chain(t->team); }

/* In a fleet all nodes are there after the same step, and have taken the same results. */
static void note_on_host(trainer *t) {
  t->on_host = t->at;
  t->on_host_ns = cvy_clock_ns();
  t->keeps_after = -1;
  if (chain_of(t)) cvy_chain_ask(chain_of(t), CVY_ASKS_KEEP, false);
}

/* Writes the state on the host, which is that after t->at.step steps. residuals: cvy_team_get_residuals. */
static cvy_status write_checkpoint(trainer *t, float **residuals) {
  t->at.finished = run_is_over(t);
  const cvy_status status = cvy_state_write(t->team, t->p.checkpoint_dir, t->p.keep, t->p.settings, &t->at, residuals);
  if (status == CVY_OK) t->saved_step = t->result.checkpoint_step = t->at.step;
  t->result.checkpoint_failed = status != CVY_OK;
  return status;
}

static bool writes(const trainer *t) { return cvy_fleet_writes(t->team->params.fleet); }

static cvy_status claim_folder(trainer *t) {
  if (!t->p.checkpoint_dir || t->folder_lock || !writes(t)) return CVY_OK;
  return cvy_checkpoint_claim(t->p.checkpoint_dir, &t->folders_made, &t->folder_lock);
}

/* `last`: the run's last checkpoint. A failure of an earlier one does not end the run: the disk may have room at the
 * next. */
static cvy_status save_checkpoint(trainer *t, bool last) {
  cvy_status status = CVY_OK;
  float **residuals = NULL;
  if (!t->p.checkpoint_dir || t->saved_step == t->at.step) return CVY_OK;
  CVY_TRY(cvy_team_sync(t->team));
  CVY_TRY(cvy_team_get_residuals(t->team, &residuals));
  note_on_host(t);
  if (!writes(t)) {
    t->saved_step = t->at.step;
    goto fail;
  }
  CVY_TRY(claim_folder(t)); /* the head before was lost */
  cvy_weights_warn(t->team->layout, cvy_ledger_w(t->team->ledger), cvy_ledger_running(t->team->ledger),
                   t->p.checkpoint_dir);
  cvy_log_attempt_begin();
  status = write_checkpoint(t, residuals);
  cvy_log_attempt_end(status != CVY_OK && (last || status != CVY_E_IO));
  if (status == CVY_E_IO && !last) {
    char newest[64] = "there is none yet";
    if (t->saved_step >= 0) snprintf(newest, sizeof newest, "the newest is that of step %ld", t->saved_step);
    cvy_log_warning("no checkpoint of step %ld: %s; training continues and tries again at the next one (%s)",
                    t->at.step, cvy_log_attempt_text(), newest);
    status = CVY_OK;
  }
fail:
  cvy_team_free_residuals(t->team, &residuals);
  return status;
}

static cvy_status resume(trainer *t) {
  cvy_status status = CVY_OK;
  cvy_checkpoint *own = NULL;
  cvy_fleet *const fleet = t->team->params.fleet;
  if (!t->p.opened && fleet) CVY_TRY(cvy_checkpoint_open_fleet(t->p.checkpoint_dir, fleet, &own));
  else if (!t->p.opened) CVY_TRY(cvy_checkpoint_open(t->p.checkpoint_dir, &own));
  const cvy_checkpoint *const opened = t->p.opened ? t->p.opened : own;
  if (!opened) return CVY_OK;
  const cvy_run_position at = cvy_checkpoint_position(opened);
  CVY_TRY(cvy_settings_compare(cvy_checkpoint_settings(opened), t->settings, cvy_resume_may_differ(t->team)));
  CVY_REQUIRE(at.seed == t->p.seed, CVY_E_MISMATCH, "the checkpoint of step %ld has seed %llu, the run %llu", at.step,
              (unsigned long long)at.seed, (unsigned long long)t->p.seed);
  CVY_REQUIRE(at.epoch_batches < t->steps_per_epoch, CVY_E_MISMATCH,
              "the checkpoint of step %ld is at batch %ld of an epoch with %ld batches: another data set or batch size",
              at.step, at.epoch_batches, t->steps_per_epoch);
  CVY_TRY(cvy_checkpoint_load(t->team, opened, NULL));
  t->at = at;
  t->saved_step = t->result.checkpoint_step = at.step;
  if (at.kept_step) t->losses = (cvy_loss_watch){.losses = {at.kept_median}, .n = 1, .next = 1, .high = true};
fail:
  cvy_checkpoint_close(&own);
  return status;
}

/* ---- steps ---- */

static float lr_of(const trainer *t, long step) {
  return cvy_lr_at(&t->p.schedule, t->p.lr, step, t->steps_per_epoch, t->p.epochs * t->steps_per_epoch);
}

/* Passes on the team's events up to `step`. */
static void pass_events(trainer *t, long step) {
  for (;;) {
    if (!t->has_event) t->has_event = cvy_team_next_event(t->team, &t->event);
    if (!t->has_event || t->event.step > step) return;
    if (t->p.on_event) t->p.on_event(t->p.user, &t->event, t->at.epoch);
    t->has_event = false;
  }
}

/* The workers compile kernels in the first step: the start's time is the difference to the second step. */
static void note_start(trainer *t, const cvy_step_result *second) {
  const double usual_ms = second->ms * (double)t->total_images / second->images;
  t->start_ms = fmax(t->total_ms - usual_ms, 0);
  t->total_ms = 0;
  t->total_images = 0;
  if (t->p.on_started) t->p.on_started(t->p.user, t->start_ms * 1e-3);
}

/* Keeps the newest checkpoint beside those of --keep: a diverging run would push it out. */
static void watch_loss(trainer *t, const cvy_step_result *r) {
  if (!cvy_loss_jumps(&t->losses, r->loss) || !t->p.checkpoint_dir || t->saved_step <= 0) return;
  t->at.kept_step = t->saved_step;
  t->at.kept_median = t->losses.median;
  cvy_log_warning(
      "the loss jumps to %g in step %ld (median of the previous steps: %g): the checkpoint of step %ld is kept in %s "
      "beside the newest",
      r->loss, r->step, t->losses.median, t->at.kept_step, t->p.checkpoint_dir);
}

/* ---- a stop ---- */

/* In a fleet all nodes stop after the same step: the request is sent with a step's sums. */
static void ask_to_stop(trainer *t) {
  if (chain_of(t)) cvy_chain_ask(chain_of(t), CVY_ASKS_STOP, true);
  else t->stopping = true;
}

/* In a fleet, before step number `next` is begun: all nodes know what came with the result of step `after` (-1: none).
 * Results up to the one run_ahead before `next` have been taken then, on every node. */
static bool all_know(const trainer *t, long after, long next) {
  const int run_ahead = t->team->params.run_ahead == CVY_RUN_AHEAD_NONE ? 0 : t->team->params.run_ahead;
  return after >= 0 && next > after + run_ahead;
}

static bool stops_before(trainer *t, long next) {
  if (cvy_stop_requested(t->p.stop)) ask_to_stop(t);
  return chain_of(t) ? all_know(t, t->stops_after, next) : t->stopping;
}

/* All results have been taken. */
static void note_stop(trainer *t) {
  if (cvy_stop_requested(t->p.stop)) ask_to_stop(t);
  if (t->stops_after >= 0) t->stopping = true;
}

static cvy_status take_results(trainer *t, bool all) {
  cvy_status status = CVY_OK;
  cvy_step_result r;
  bool got;
  for (;;) {
    CVY_TRY(cvy_team_take(t->team, all, &r, &got));
    if (!got) break;
    pass_events(t, r.step);
    t->at.step = r.step + 1;
    t->at.epoch_batches++;
    t->at.epoch_images += r.images;
    t->at.epoch_loss_sum += r.loss * r.images;
    if (t->at.epoch_correct >= 0) t->at.epoch_correct += r.correct;
    t->epoch_ms += r.ms;
    if (t->steps_taken++ == 1) note_start(t, &r);
    t->total_ms += r.ms;
    t->total_images += r.images;
    t->result.last_loss = r.loss;
    if (t->at.step <= cvy_ring_truth(t->team->ring)) t->on_host = t->at;
    watch_loss(t, &r);
    if (r.stops && t->stops_after < 0) t->stops_after = r.step;
    if (r.keeps && t->keeps_after < 0) t->keeps_after = r.step;
    if (t->p.on_step && t->p.on_step(t->p.user, &r, t->at.epoch, t->steps_per_epoch, lr_of(t, r.step))) ask_to_stop(t);
  }
fail:
  return status;
}

static bool due(long step, int every) { return every > 0 && step % every == 0; }

/* The state of a lone device goes to the host again. It may take a hundredth of the time. */
static bool keep_is_due(const trainer *t) {
  const double snapshot_s = fmax(t->p.snapshot_s > 0 ? t->p.snapshot_s : SNAPSHOT_S, 100 * t->keep_s);
  return cvy_shares_lone(t->team->shares) >= 0 && cvy_clock_seconds_since(t->on_host_ns) >= snapshot_s;
}

/* Before step number `next`. In a fleet the head's clock decides, and its word rides in a step's sums. */
static bool keeps_before(const trainer *t, long next) {
  const bool due = keep_is_due(t);
  if (cvy_ring_is_full(t->team->ring, 0)) return true;
  if (!chain_of(t)) return due;
  if (due && writes(t)) cvy_chain_ask(chain_of(t), CVY_ASKS_KEEP, true);
  return all_know(t, t->keeps_after, next);
}

/* No step is under way, and all results have been taken. */
static cvy_status keep_state(trainer *t) {
  const uint64_t since = cvy_clock_ns();
  const cvy_status status = cvy_team_sync(t->team);
  if (status != CVY_OK) return status;
  note_on_host(t);
  t->keep_s = cvy_clock_seconds_since(since);
  return CVY_OK;
}

/* Verifies, saves and snapshots before step number `next` when due; then no step is under way. */
static cvy_status between_steps(trainer *t, long next) {
  cvy_status status = CVY_OK;
  const bool verify = due(next, t->p.verify_every);
  const bool save = !t->p.checkpoint_epochs && t->p.checkpoint_dir && due(next, t->p.checkpoint_every);
  const bool keep = keeps_before(t, next);
  if (!verify && !save && !keep) return take_results(t, false);
  CVY_TRY(take_results(t, true));
  if (keep) CVY_TRY(keep_state(t));
  if (verify) CVY_TRY(cvy_team_verify(t->team));
  if (save && t->at.epoch_batches < t->steps_per_epoch)
    CVY_TRY(save_checkpoint(t, false)); /* at an epoch's end: after its evaluation */
fail:
  return status;
}

/* Runs the epoch from where it stands to its end, the run's last step, or a stop. */
static cvy_status run_steps(trainer *t) {
  cvy_status status = CVY_OK;
  const int n = t->data->train.n, batch = t->team->params.batch;
  cvy_sampler_order(t->p.seed, t->at.epoch, t->p.no_shuffle, n, t->order);
  long started = t->at.step;
  cvy_team_set_epoch(t->team, t->at.epoch);
  for (long b = t->at.epoch_batches; b < t->steps_per_epoch; b++) {
    if (stops_before(t, started)) break;
    if (t->p.max_steps > 0 && started >= t->p.max_steps) break;
    const long at = b * batch;
    CVY_TRY(cvy_team_step(t->team, t->order + at, (int)(n - at < batch ? n - at : batch), lr_of(t, started)));
    started++;
    CVY_TRY(between_steps(t, started));
  }
  CVY_TRY(take_results(t, true));
  note_stop(t);
fail:
  return status;
}

/* ---- epochs ---- */

static bool wants(const trainer *t, cvy_set set) { return cvy_train_wants(&t->p, t->data, set); }

/* Accuracy on a set; negative if it is not wanted or the run is being stopped: then the checkpoint comes first. */
static cvy_status measure(trainer *t, cvy_set set, double *accuracy) {
  cvy_eval_result eval;
  *accuracy = -1;
  if (!wants(t, set) || t->stopping) return CVY_OK;
  const cvy_status status = cvy_team_classify(t->team, set, t->probabilities, &eval);
  if (status == CVY_OK && cvy_ring_truth(t->team->ring) == t->at.step) note_on_host(t);
  if (status == CVY_OK) *accuracy = eval.accuracy;
  if (status == CVY_OK && t->p.on_predictions)
    t->p.on_predictions(t->p.user, &(cvy_train_predictions){.set = set,
                                                            .epoch = t->at.epoch - (t->at.epoch_batches == 0),
                                                            .probabilities = t->probabilities,
                                                            .result = &eval});
  if (status != CVY_E_INTERRUPTED || !(chain_of(t) || cvy_stop_requested(t->p.stop))) return status;
  t->stopping = true;
  return CVY_OK;
}

/* Writes --save-best. A failure does not end the run: the disk may have room at the next better epoch. */
static cvy_status write_best(trainer *t) {
  cvy_status status = CVY_OK;
  CVY_TRY(cvy_team_sync(t->team));
  note_on_host(t);
  if (!writes(t)) return CVY_OK;
  cvy_log_attempt_begin();
  const cvy_status saved = cvy_team_save(t->team, t->p.save_best);
  cvy_log_attempt_end(saved != CVY_OK && saved != CVY_E_IO);
  t->result.save_best_failed = saved != CVY_OK;
  if (saved == CVY_E_IO)
    cvy_log_warning("the weights of epoch %d, the best so far, are not saved: %s; training continues", t->at.epoch,
                    cvy_log_attempt_text());
  else status = saved;
fail:
  return status;
}

/* Compares the epoch that has ended with the best before it. An epoch whose evaluation was stopped is judged when the
 * run goes on. */
static cvy_status judge(trainer *t, double accuracy, bool *best) {
  *best = false;
  if (!cvy_train_judges(&t->p) || accuracy < 0) return CVY_OK;
  *best = cvy_best_judge(&t->at, accuracy);
  t->result.out_of_patience = cvy_best_is_past(&t->at, t->p.patience);
  return *best && t->p.save_best ? write_best(t) : CVY_OK;
}

/* Judges the epoch at whose end the run was stopped before it was judged. */
static cvy_status judge_belated(trainer *t) {
  cvy_status status = CVY_OK;
  double accuracy;
  bool best;
  if (!cvy_train_judges(&t->p) || t->at.epoch_batches > 0 || t->at.epoch <= t->at.judged_epochs) return CVY_OK;
  CVY_TRY(measure(t, cvy_train_judge_set(t->data), &accuracy));
  CVY_TRY(judge(t, accuracy, &best));
fail:
  return status;
}

static void next_epoch(cvy_run_position *at) {
  at->epoch++;
  at->epoch_batches = at->epoch_images = at->epoch_correct = 0;
  at->epoch_loss_sum = 0;
}

/* At the run's end the head may save the weights, and the other nodes are not there then. */
static cvy_status keep_for_head(trainer *t) { return chain_of(t) ? keep_state(t) : CVY_OK; }

/* Once. */
static void tell_trained(trainer *t) {
  if (t->is_told || !run_is_over(t)) return;
  t->is_told = true;
  if (t->p.on_trained) t->p.on_trained(t->p.user);
}

static cvy_status end_epoch(trainer *t, bool complete) {
  cvy_status status = CVY_OK;
  cvy_epoch_result e = {
      .epoch = t->at.epoch,
      .train_loss = t->at.epoch_images ? cvy_unsigned_nan(t->at.epoch_loss_sum / (double)t->at.epoch_images) : NAN,
      .train_acc = t->at.epoch_images && t->at.epoch_correct >= 0
                       ? (double)t->at.epoch_correct / (double)t->at.epoch_images
                       : -1,
      .val_acc = -1,
      .test_acc = -1,
      .seconds = (t->epoch_ms - (t->at.epoch == t->first_epoch ? t->start_ms : 0)) * 1e-3,
      .full = complete && t->epoch_whole};
  if (complete) next_epoch(&t->at);
  if (run_is_over(t)) CVY_TRY(keep_for_head(t));
  tell_trained(t);
  CVY_TRY(measure(t, CVY_SET_VAL, &e.val_acc));
  if (t->data->val.n == 0) CVY_TRY(measure(t, CVY_SET_TEST, &e.test_acc));
  if (complete) CVY_TRY(judge(t, t->data->val.n > 0 ? e.val_acc : e.test_acc, &e.best));
  if (t->data->val.n > 0 && run_is_over(t) && t->p.precise_bn == 0) /* else behind it */
    CVY_TRY(measure(t, CVY_SET_TEST, &e.test_acc));
  if (complete && writes(t) && t->p.precise_bn == 0)
    cvy_lag_warn(t->team->layout, t->at.step, e.train_acc, t->data->val.n > 0 ? e.val_acc : e.test_acc, &t->said_lag);
  t->result.val_acc = e.val_acc;
  t->result.test_acc = e.test_acc;
  if (e.full) {
    t->first_epoch_full |= e.epoch == t->first_epoch;
    t->full_epochs++;
    t->full_epochs_ms += t->epoch_ms;
  }
  if (t->p.on_epoch && t->p.on_epoch(t->p.user, &e)) ask_to_stop(t);
  if (!complete) return CVY_OK;
  t->epoch_ms = 0;
  t->epoch_whole = true;
  const bool save =
      t->p.checkpoint_epochs ? due(t->at.epoch, t->p.checkpoint_every) : due(t->at.step, t->p.checkpoint_every);
  if (save) CVY_TRY(save_checkpoint(t, run_is_over(t)));
fail:
  return status;
}

/* Accuracies of the result. */
static cvy_status measure_end(trainer *t) {
  cvy_status status = CVY_OK;
  CVY_TRY(measure(t, CVY_SET_VAL, &t->result.val_acc));
  CVY_TRY(measure(t, CVY_SET_TEST, &t->result.test_acc));
fail:
  return status;
}

/* Recomputes running values from the batches that would come next if the run continued with whole epochs. They depend
 * only on the checkpoint's content, so a resumed run gets the same bits. */
static cvy_status renew_running(trainer *t) {
  cvy_status status = CVY_OK;
  const int n = t->data->train.n, batch = t->team->params.batch;
  const uint64_t start = cvy_clock_ns();
  cvy_precise_bn *precise = NULL;
  int epoch = t->at.epoch + (t->at.epoch_batches > 0);
  CVY_TRY(cvy_precise_bn_create(t->team, &precise));
  for (int done = 0; done < t->p.precise_bn; done++) {
    const long b = done % t->steps_per_epoch, at = b * batch;
    if (b == 0) cvy_sampler_order(t->p.seed, epoch++, t->p.no_shuffle, n, t->order);
    status = cvy_precise_bn_add(precise, t->order + at, (int)(n - at < batch ? n - at : batch), epoch - 1);
    if (status == CVY_E_INTERRUPTED && (chain_of(t) || cvy_stop_requested(t->p.stop))) {
      t->stopping = true;
      status = CVY_OK;
      goto fail;
    }
    CVY_TRY(status);
  }
  CVY_TRY(cvy_precise_bn_finish(precise));
  note_on_host(t);
  t->result.precise_bn = t->p.precise_bn;
  t->result.precise_bn_seconds = cvy_clock_seconds_since(start);
fail:
  cvy_precise_bn_destroy(&precise);
  return status;
}

static cvy_status run(trainer *t) {
  cvy_status status = CVY_OK;
  const bool renews = t->p.precise_bn > 0;
  CVY_TRY(judge_belated(t));
  t->result.already_finished = run_is_over(t);
  if (t->result.already_finished && !renews) CVY_TRY(measure_end(t));
  while (!run_is_over(t) && !t->stopping) {
    CVY_TRY(run_steps(t));
    const bool complete = t->at.epoch_batches == t->steps_per_epoch;
    if (complete || !t->stopping) CVY_TRY(end_epoch(t, complete));
  }
  if (!t->is_told) CVY_TRY(keep_for_head(t));
  CVY_TRY(save_checkpoint(t, true));
  tell_trained(t); /* out of patience */
  if (renews && run_is_over(t) && !t->stopping) {
    CVY_TRY(renew_running(t));
    CVY_TRY(measure_end(t));
  }
  const bool over =
      run_is_over(t) && (t->result.test_acc >= 0 || !wants(t, CVY_SET_TEST)) && t->result.precise_bn == t->p.precise_bn;
  if (t->stopping && !over) status = CVY_E_INTERRUPTED;
fail:
  return status;
}

/* All nodes of a fleet compute predictions if one of them requests them, since they are exchanged. */
static cvy_status take_room_for_predictions(trainer *t) {
  cvy_status status = CVY_OK;
  bool wanted = t->p.on_predictions != NULL;
  const size_t val = wants(t, CVY_SET_VAL) ? (size_t)t->data->val.n : 0,
               test = wants(t, CVY_SET_TEST) ? (size_t)t->data->test.n : 0,
               classes = (size_t)cvy_net_classes(t->team->net);
  CVY_TRY(cvy_fleet_settings_any(t->team->params.fleet, &wanted));
  if (!wanted || val + test == 0) return CVY_OK;
  t->probabilities = cvy_calloc((val > test ? val : test) * classes, sizeof *t->probabilities);
  CVY_REQUIRE(t->probabilities, CVY_E_MEMORY, "out of host memory for the probabilities of %zu samples",
              val > test ? val : test);
fail:
  return status;
}

/* Saves the newest whole state after the team's devices, data that cannot be read, or a stop that could not wait for a
 * step, ended the run with `status`. */
static void save_what_is_there(trainer *t, cvy_status status) {
  cvy_team *const team = t->team;
  if (!cvy_roster_ended_by_devices(team->roster)) {
    if (status != CVY_E_IO || t->result.checkpoint_failed || team->params.fleet || take_results(t, true) != CVY_OK)
      return;
    if (t->at.epoch_batches == t->steps_per_epoch) next_epoch(&t->at); /* an evaluation could not read the data */
    t->result.state_is_whole = save_checkpoint(t, true) == CVY_OK;
    return;
  }
  (void)take_results(t, false);
  const long steps_on_host = cvy_ledger_steps(team->ledger);
  if (t->at.step != steps_on_host && t->on_host.step == steps_on_host) { /* a lone device had the newest steps */
    t->on_host.kept_step = t->at.kept_step;
    t->on_host.kept_median = t->at.kept_median;
    t->at = t->on_host;
  }
  if (t->at.epoch_batches == t->steps_per_epoch) next_epoch(&t->at); /* a position needs a batch to go on with */
  pass_events(t, LONG_MAX);
  t->result.state_is_whole = t->at.step == steps_on_host;
  if (!t->result.state_is_whole || !t->p.checkpoint_dir || t->saved_step == t->at.step) return;
  if (claim_folder(t) == CVY_OK && t->folder_lock) (void)write_checkpoint(t, NULL);
}

cvy_status cvy_train(cvy_team *team, const cvy_data *data, const cvy_train_params *params, cvy_train_result *out) {
  cvy_status status = CVY_OK;
  const cvy_stop *const stop = team->params.stop; /* of evaluations outside this call */
  trainer t = {.team = team,
               .data = data,
               .epoch_whole = true,
               .saved_step = -1,
               .stops_after = -1,
               .keeps_after = -1,
               .result = {.test_acc = -1, .val_acc = -1, .best_epoch = -1, .checkpoint_step = -1, .last_loss = NAN}};
  CVY_TRY(cvy_train_params_take(team, data, params, &t.p));
  t.at.seed = t.p.seed;
  const int n = data->train.n, batch = team->params.batch, rest = t.p.drop_last ? 0 : n % batch;
  t.steps_per_epoch = n / batch + (rest > 0);
  CVY_TRY(cvy_lr_check(&t.p.schedule, t.steps_per_epoch, t.p.epochs * t.steps_per_epoch));
  t.order = cvy_calloc((size_t)data->train.n, sizeof *t.order);
  CVY_REQUIRE(t.order, CVY_E_MEMORY, "out of host memory");
  CVY_TRY(cvy_settings_extend(t.p.settings, data->content, NULL, &t.settings));
  CVY_TRY(claim_folder(&t));
  if (t.p.resume) CVY_TRY(resume(&t));
  else if (t.p.checkpoint_dir && writes(&t)) CVY_TRY(cvy_checkpoint_require_none(t.p.checkpoint_dir));
  CVY_REQUIRE(cvy_ledger_is_initialised(team->ledger), CVY_E_ARGUMENT,
              "the team has no weights: call cvy_team_init or cvy_team_load first");
  CVY_TRY(cvy_check_statistics(t.team, n < batch ? n : batch));
  if (t.p.max_steps == 0 || t.p.max_steps >= t.steps_per_epoch || t.p.precise_bn >= t.steps_per_epoch)
    CVY_TRY(cvy_check_statistics(t.team, rest));
  if (t.p.stop) team->params.stop = t.p.stop;
  if (chain_of(&t)) cvy_chain_set_stop(chain_of(&t), team->params.stop);
  t.at.step = cvy_ring_next_number(team->ring);
  CVY_TRY(cvy_fleet_settings_check(team, &t.p, &t.at));
  CVY_TRY(take_room_for_predictions(&t));
  if (cvy_train_judges(&t.p) && data->val.n == 0 && writes(&t))
    cvy_log_warning(
        "there is no validation set: the test set selects the best epoch, so its accuracy is too optimistic (expected "
        "--val-split)");
  t.epoch_whole = t.at.epoch_batches == 0;
  t.first_epoch = t.at.epoch;
  note_on_host(&t);
  status = run(&t);
  if (status != CVY_OK && (status != CVY_E_INTERRUPTED || cvy_roster_ended_by_devices(team->roster)))
    save_what_is_there(&t, status);
  else pass_events(&t, LONG_MAX);
  t.result.steps = t.at.step;
  t.result.epochs_done = t.at.epoch;
  t.result.best_epoch = t.at.best_epochs - 1;
  t.result.best_acc = t.at.best_acc;
  if (t.first_epoch_full) t.full_epochs_ms -= t.start_ms;
  t.result.start_seconds = t.start_ms * 1e-3;
  t.result.sec_per_epoch = t.full_epochs ? t.full_epochs_ms * 1e-3 / t.full_epochs : 0;
  t.result.images_per_second = t.total_ms > 0 ? (double)t.total_images / (t.total_ms * 1e-3) : 0;
  *out = t.result;
fail:
  team->params.stop = stop;
  if (chain_of(&t)) cvy_chain_set_stop(chain_of(&t), NULL);
  if (t.folders_made) cvy_remove_dirs(t.p.checkpoint_dir, t.folders_made); /* removes only folders that are empty */
  cvy_file_lock_release(&t.folder_lock);
  cvy_free(t.probabilities);
  cvy_free(t.settings);
  cvy_free(t.order);
  return status;
}
