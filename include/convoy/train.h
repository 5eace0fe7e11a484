/* SPDX-License-Identifier: MIT
 * Training from start to end: epochs, shuffling, evaluation, checkpoints, callbacks. A program can do the same by hand,
 * with cvy_team_step (team.h) and the functions below: tests/examples/train_by_hand.c does, and gets the same weights
 * and checkpoints to the bit. */
#ifndef CONVOY_TRAIN_H
#define CONVOY_TRAIN_H

#include "convoy/stop.h"
#include "convoy/team.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How the learning rate of a run changes from step to step; zero: not at all.
 * Steps count from 0 over the whole run; W: steps of warm-up; T: steps of the whole run, epochs x steps of an epoch.
 *   step < W       lr * (step + 1) / W: in equal parts up to lr
 *   CONST          lr
 *   COSINE         lr * (1 + cos(pi * (step - W) / (T - W))) / 2
 *   LINEAR         lr * (1 - (step - W) / (T - W))
 *   STEP           lr * gamma^floor(step / every), counted from the start of the run
 * max_steps does not change T: a run in pieces has the rates of a run in one. */
typedef enum cvy_lr_kind { CVY_LR_CONST = 0, CVY_LR_COSINE, CVY_LR_LINEAR, CVY_LR_STEP } cvy_lr_kind;
typedef struct cvy_lr_schedule {
  cvy_lr_kind kind;
  long every; /* STEP: steps, or epochs with every_epochs; >= 1 */
  bool every_epochs;
  float gamma; /* STEP: above 0 */
  long warmup; /* W: steps, or epochs with warmup_epochs; below T */
  bool warmup_epochs;
} cvy_lr_schedule;
/* CVY_E_ARGUMENT: a wrong value, which the message names. */
cvy_status cvy_lr_check(const cvy_lr_schedule *schedule, long steps_per_epoch, long steps);
/* The rate of a step, 0 <= step < steps (T), of a schedule that was checked. Pure. */
float cvy_lr_at(const cvy_lr_schedule *schedule, float lr, long step, long steps_per_epoch, long steps);

/* Where a run stands; zero: before its first step. */
typedef struct cvy_run_position {
  long step;             /* updates since its start */
  int epoch;             /* under way, from 0 */
  long epoch_batches;    /* finished ones of that epoch */
  long epoch_images;     /* samples of these */
  long epoch_correct;    /* right answers among them; negative: not known (of an older program) */
  double epoch_loss_sum; /* their losses: each step's mean times its images, added up in order; saved to the bit */
  uint64_t seed;         /* of cvy_sampler_order */
  bool finished;         /* no step is left to do */
  long kept_step;        /* an older checkpoint, which stays beside the newest; 0: none */
  double kept_median;    /* why it stays: the loss jumped from this median (cvy_train) */
  /* With save_best or patience (cvy_train): full epochs until the best of them, the first of equal ones (0: none yet),
   * its accuracy, saved to the bit, and how many full epochs have been judged. */
  int best_epochs, judged_epochs;
  double best_acc;
} cvy_run_position;

/* Writes the team's state and `position`, whose step is the team's, as the newest checkpoint of the folder, which is
 * made if missing, and removes all but the newest `keep` (0: 2). settings: as cvy_train_params.settings. Waits for
 * steps under way; the data set must be attached. No other process may use the folder meanwhile. When the last device
 * has failed, the state of the last finished step can still be saved. CVY_E_IO: it cannot be written, and older ones
 * are untouched · CVY_E_ARGUMENT: no weights, no data, another step than the team's, or no_sync · CVY_E_MEMORY ·
 * CVY_E_DEVICE. */
cvy_status cvy_checkpoint_save(cvy_team *team, const char *dir, int keep, const char *settings,
                               const cvy_run_position *position);

/* A checkpoint of a run, read and proved whole. All its pointers are borrowed until it is closed. */
typedef struct cvy_checkpoint cvy_checkpoint;
/* The newest good one in the folder; *out NULL with CVY_OK: no folder, or no checkpoint in it. A broken file is named
 * in a warning, and the next older one is taken; one that cannot be read may be whole, and ends the search: CVY_E_IO.
 * CVY_E_FORMAT: there are checkpoints, all broken · CVY_E_MISMATCH: of another version of the format · CVY_E_MEMORY. */
cvy_status cvy_checkpoint_open(const char *dir, cvy_checkpoint **out);
/* The same for all nodes of a fleet (fleet.h), each of which calls it before its team is made: the head's checkpoint,
 * of which every node gets a copy. The others' folders are not looked at. CVY_E_IO also: a node was lost. */
cvy_status cvy_checkpoint_open_fleet(const char *dir, cvy_fleet *fleet, cvy_checkpoint **out);
void cvy_checkpoint_close(cvy_checkpoint **checkpoint);
/* The run's settings (cvy_train_params.settings, with cvy_train's additions). */
const char *cvy_checkpoint_settings(const cvy_checkpoint *checkpoint);
/* For the team that goes on with it (cvy_team_params.resume). */
cvy_resume_facts cvy_checkpoint_facts(const cvy_checkpoint *checkpoint);
cvy_run_position cvy_checkpoint_position(const cvy_checkpoint *checkpoint);
/* Gives the team, which was created with the facts, the checkpoint's state: its next step is the position's. settings
 * (those of the run that goes on; NULL: not compared) may differ in what changes no number to come. Waits for steps
 * under way; the data set must be attached. CVY_E_MISMATCH: other settings (each named), data, algorithms or network,
 * with the team as it was · CVY_E_FORMAT · CVY_E_MEMORY · CVY_E_DEVICE. */
cvy_status cvy_checkpoint_load(cvy_team *team, const cvy_checkpoint *checkpoint, const char *settings);

typedef struct cvy_epoch_result {
  int epoch;         /* from 0 */
  double train_loss; /* mean over the epoch's samples (of this run's part of it) */
  /* Right answers of the same steps, each with the weights that it began with; negative: not known. */
  double train_acc;
  double val_acc;  /* negative: there is no validation set, or it was not evaluated */
  double test_acc; /* negative: not evaluated; with a validation set only the run's last epoch is */
  double seconds;  /* of training, the final wait included, without start_seconds */
  bool full;       /* this process ran all steps of the epoch */
  bool best;       /* with save_best or patience: better than all full epochs before */
} cvy_epoch_result;

/* Answers to all samples of a set. */
typedef struct cvy_train_predictions {
  cvy_set set;
  int epoch;                  /* after which, or in which if the run ended there; from 0 */
  const float *probabilities; /* n x classes of the network, as cvy_team_classify has them; for convoy/predictions.h */
  const cvy_eval_result *result;
} cvy_train_predictions;

typedef struct cvy_train_params {
  int epochs;               /* 0 = 10 */
  float lr;                 /* above 0; 0 = 0.1 */
  cvy_lr_schedule schedule; /* zero: lr at every step */
  uint64_t seed;
  bool no_shuffle;
  bool no_eval; /* neither the test set nor the validation set is evaluated */
  /* Weights file, written after each full epoch that is better than all before (aside, synced, renamed): by accuracy on
   * the validation set, or where there is none on the test set, with a warning. NULL: none. One that cannot be written
   * is a warning; the next better epoch tries again. */
  const char *save_best;
  /* When the run is over: the running values of batch normalisation become mean and variance over so many batches of
   * training samples, which are augmented and normalised as in training, with the weights as they are (Wu and Johnson
   * 2021, "Rethinking 'Batch' in BatchNorm"). The batches are those of the epoch behind the run's last one, and so on.
   * Then the sets are evaluated once more. Checkpoints and save_best keep the running values of training, so that a
   * run can go on; a finished run that is resumed computes the new ones again. Frozen ones stay as they are. 0: no;
   * CVY_E_ARGUMENT: the network has none that training changes. */
  int precise_bn;
  int patience; /* the run is over after so many full epochs in a row that were not better; 0: never */
  /* An epoch ends with its last whole batch, without the remaining samples, which differ from one shuffled epoch to
   * the next; a batch larger than the data set is refused. */
  bool drop_last;
  long max_steps;             /* of the whole run, resumed parts included; 0: no limit */
  int verify_every;           /* steps; 0: never */
  const char *checkpoint_dir; /* NULL: none */
  int checkpoint_every;       /* steps, or epochs with checkpoint_epochs; 0: at the end and on interruption only */
  bool checkpoint_epochs;
  int keep; /* how many of the newest checkpoints stay, 0 = 2 */
  /* From the newest good checkpoint in checkpoint_dir; an empty or missing folder starts afresh. */
  bool resume;
  const cvy_checkpoint *opened; /* that checkpoint, if the team was created with its facts; NULL: cvy_train opens it */
  /* JSON object of the run's settings (text), stored and compared on resume; NULL: {}. */
  const char *settings;
  /* Called on the thread of cvy_train, in order; lr: the step's. A return value other than 0 stops the run as an
   * interruption does: steps under way (at most run_ahead) are finished and reported first. NULL: none. */
  int (*on_step)(void *user, const cvy_step_result *step, int epoch, long steps_per_epoch, float lr);
  int (*on_epoch)(void *user, const cvy_epoch_result *epoch);
  /* Reports the result's start_seconds; called before on_step for this process's second step. NULL: none. */
  void (*on_started)(void *user, double seconds);
  /* Shares were chosen by measured speeds, or a device was lost: called before on_step for the first step with these
   * shares, or for the step that the others repeated. NULL: none. */
  void (*on_event)(void *user, const cvy_team_event *event, int epoch);
  /* After each evaluation, before on_epoch, on every node of a fleet; all is borrowed for the call. If one node of a
   * fleet wants them, all of them make them. NULL: none, and evaluation keeps no probabilities. */
  void (*on_predictions)(void *user, const cvy_train_predictions *answers);
  /* The last step is done, and whatever comes behind it (an evaluation, precise_bn) has not begun: a callback that
   * saves the weights (cvy_team_save) loses nothing if that fails. Once, on every node of a fleet. NULL: none. */
  void (*on_trained)(void *user);
  void *user;
  /* A team of one has its state on the device: the host copies it every so many seconds, and saves the copy if the
   * device fails; 0: 30. */
  double snapshot_s;
  /* Requested (in a signal handler): finish the step, save a checkpoint if there is a folder, return. */
  const cvy_stop *stop;
} cvy_train_params;

typedef struct cvy_train_result {
  long steps; /* of the whole run */
  int epochs_done;
  double test_acc;      /* last evaluation, negative: none */
  double val_acc;       /* the same of the validation set */
  int best_epoch;       /* from 0, with save_best or patience; -1: none yet */
  double best_acc;      /* its accuracy: on the validation set, or without one on the test set */
  bool out_of_patience; /* why the run is over */
  int precise_bn;       /* batches that the running values were computed anew from; 0: they were not */
  double precise_bn_seconds;
  bool save_best_failed; /* the newest best weights could not be written */
  double sec_per_epoch;  /* mean over full epochs, without start_seconds; 0: there was none */
  /* Time of this process's first step less that of its second, for as many samples: drivers compile kernels in the
   * first; 0 with a single step. */
  double start_seconds;
  double images_per_second; /* over this process's steps except the first; evaluation does not count */
  double last_loss;         /* of this process's last step; NaN: it made none */
  /* The devices failed, or the data cannot be read any more (CVY_E_IO), but the state after `steps` steps is whole: it
   * has been saved in the checkpoint folder, and cvy_team_save saves it. */
  bool state_is_whole;
  bool checkpoint_failed; /* the last checkpoint could not be written: the folder has older ones, if any */
  long checkpoint_step;   /* of the newest one that this run has written or begun with, -1: none */
  bool already_finished;  /* --resume of a finished run: no step was left to do */
} cvy_train_result;

/* CVY_E_ARGUMENT: wrong params, or checkpoint_dir holds checkpoints and !resume.
 * The team must be initialised (or is, by `resume`) and have data attached. CVY_E_INTERRUPTED after `stop` or a
 * callback's stop, with *out filled;
 * CVY_E_DEVICE and others when the last device has failed (or the first, with fault_stops), also with *out filled;
 * CVY_E_MISMATCH: resume with other settings (each named) or algorithms (cvy_team_params.resume);
 * CVY_E_NOT_FINITE: see cvy_team_step. No other process may use checkpoint_dir meanwhile (CVY_E_ARGUMENT: one does). A
 * checkpoint that cannot be written is a warning as long as there is a next one; CVY_E_IO at the end, with *out filled.
 * When the loss jumps (not finite, or 10 times the median of the last 100 steps), the newest checkpoint from before the
 * jump stays beside the `keep` newest. */
cvy_status cvy_train(cvy_team *team, const cvy_data *data, const cvy_train_params *params, cvy_train_result *out);

#ifdef __cplusplus
}
#endif
#endif
