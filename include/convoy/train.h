/* SPDX-License-Identifier: MIT
 * Training from start to end: epochs, shuffling, evaluation, checkpoints, callbacks. tests/examples/train_by_hand.c
 * does the same with cvy_team_step (team.h) and the functions below, and gets the same weights and checkpoints bit for
 * bit. */
#ifndef CONVOY_TRAIN_H
#define CONVOY_TRAIN_H

#include "convoy/stop.h"
#include "convoy/team.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Schedule of the learning rate; zero: constant.
 * Steps count from 0 over the whole run; W: steps of warm-up; T: steps of the whole run, epochs x steps of an epoch.
 *   step < W       lr * (step + 1) / W: in equal parts up to lr
 *   CONST          lr
 *   COSINE         lr * (1 + cos(pi * (step - W) / (T - W))) / 2
 *   LINEAR         lr * (1 - (step - W) / (T - W))
 *   STEP           lr * gamma^floor(step / every), counted from the start of the run
 * max_steps does not change T: an interrupted and resumed run has the same rates. */
typedef enum cvy_lr_kind { CVY_LR_CONST = 0, CVY_LR_COSINE, CVY_LR_LINEAR, CVY_LR_STEP } cvy_lr_kind;
typedef struct cvy_lr_schedule {
  cvy_lr_kind kind;
  long every; /* STEP: steps, or epochs with every_epochs; >= 1 */
  bool every_epochs;
  float gamma; /* STEP: above 0 */
  long warmup; /* W: steps, or epochs with warmup_epochs; below T */
  bool warmup_epochs;
} cvy_lr_schedule;
/* CVY_E_ARGUMENT: a value out of range; the message has it. */
cvy_status cvy_lr_check(const cvy_lr_schedule *schedule, long steps_per_epoch, long steps);
/* The rate of a step, 0 <= step < steps (T), of a schedule that was checked. Pure. */
float cvy_lr_at(const cvy_lr_schedule *schedule, float lr, long step, long steps_per_epoch, long steps);

/* Position of a run; zero: before its first step. */
typedef struct cvy_run_position {
  long step;             /* updates since its start */
  int epoch;             /* the current one, from 0 */
  long epoch_batches;    /* finished batches of that epoch */
  long epoch_images;     /* samples in these batches */
  long epoch_correct;    /* correct predictions among them; negative: not known (older checkpoint) */
  double epoch_loss_sum; /* their losses: each step's mean times its images, added up in order; saved to the bit */
  uint64_t seed;         /* of cvy_sampler_order */
  bool finished;         /* all steps are done */
  long kept_step;        /* step of an older checkpoint that is kept beside the newest; 0: none */
  double kept_median;    /* the median from which the loss jumped (cvy_train) */
  /* With save_best or patience (cvy_train): full epochs until the best of them, the first of equal ones (0: none yet),
   * its accuracy, saved to the bit, and how many full epochs have been judged. */
  int best_epochs, judged_epochs;
  double best_acc;
} cvy_run_position;

/* Writes the team's state and `position`, whose step is the team's, as the newest checkpoint of the folder, which is
 * created if missing, and removes all but the newest `keep` (0: 2). settings: as cvy_train_params.settings. Waits for
 * steps under way; the data set must be attached. No other process may use the folder meanwhile. After the last device
 * has failed, the state of the last finished step can still be saved. CVY_E_IO: it cannot be written; older ones are
 * unchanged · CVY_E_ARGUMENT: no weights, no data, another step than the team's, or no_sync · CVY_E_MEMORY ·
 * CVY_E_DEVICE. */
cvy_status cvy_checkpoint_save(cvy_team *team, const char *dir, int keep, const char *settings,
                               const cvy_run_position *position);

/* A checkpoint of a run, read and verified. All its pointers are borrowed until it is closed. */
typedef struct cvy_checkpoint cvy_checkpoint;
/* Opens the newest intact one in the folder. *out NULL with CVY_OK: no folder, or no checkpoint in it. A broken file
 * causes a warning, and the next older one is opened. A file that cannot be read may be intact, so the search ends
 * there: CVY_E_IO. CVY_E_FORMAT: all checkpoints are broken · CVY_E_MISMATCH: another version of the format ·
 * CVY_E_MEMORY. */
cvy_status cvy_checkpoint_open(const char *dir, cvy_checkpoint **out);
/* The same for a fleet (fleet.h). Every node calls it before it creates its team, and gets a copy of the head's
 * checkpoint. The folders of the other nodes are not read. CVY_E_IO also: a node was lost. */
cvy_status cvy_checkpoint_open_fleet(const char *dir, cvy_fleet *fleet, cvy_checkpoint **out);
void cvy_checkpoint_close(cvy_checkpoint **checkpoint);
/* The run's settings (cvy_train_params.settings, with cvy_train's additions). */
const char *cvy_checkpoint_settings(const cvy_checkpoint *checkpoint);
/* For the resuming team (cvy_team_params.resume). */
cvy_resume_values cvy_checkpoint_resume_values(const cvy_checkpoint *checkpoint);
cvy_run_position cvy_checkpoint_position(const cvy_checkpoint *checkpoint);
/* Restores the checkpoint's state in a team created with cvy_checkpoint_resume_values: its next step is the position's.
 * settings (of the resuming run; NULL: not compared) may differ where this does not change later results. Waits for
 * steps under way; the data set must be attached. CVY_E_MISMATCH: other settings (each named), data, algorithms or
 * network; the team is unchanged · CVY_E_FORMAT · CVY_E_MEMORY · CVY_E_DEVICE. */
cvy_status cvy_checkpoint_load(cvy_team *team, const cvy_checkpoint *checkpoint, const char *settings);

typedef struct cvy_epoch_result {
  int epoch;         /* from 0 */
  double train_loss; /* mean over the epoch's samples (of this run's part of it) */
  /* Accuracy of the same steps, each with the weights at its start; negative: not known. */
  double train_acc;
  double val_acc;  /* negative: there is no validation set, or it was not evaluated */
  double test_acc; /* negative: not evaluated; with a validation set it is evaluated only after the last epoch */
  double seconds;  /* of training, including the final wait, without start_seconds */
  bool full;       /* this process ran all steps of the epoch */
  bool best;       /* with save_best or patience: better than all full epochs before */
} cvy_epoch_result;

/* Predictions for all samples of a set. */
typedef struct cvy_train_predictions {
  cvy_set set;
  int epoch;                  /* the epoch before the evaluation, which may be incomplete; from 0 */
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
  /* Weights file, written (atomically) after each full epoch with a higher accuracy than all before: on the validation
   * set, or without one on the test set, with a warning. NULL: none. A failed write is a warning; the next better epoch
   * writes again. */
  const char *save_best;
  /* Number of batches for precise batch normalisation (Wu and Johnson 2021, "Rethinking 'Batch' in BatchNorm"). At the
   * end of the run the running values become mean and variance over these batches of training samples, augmented and
   * normalised as in training, with the final weights. The batches are the first ones of the next epoch. Then the sets
   * are evaluated once more. Checkpoints and save_best keep the running values of training, so that a run can be
   * resumed; a finished run that is resumed computes the new ones again. Frozen layers keep theirs. 0: off;
   * CVY_E_ARGUMENT: the network has no batch normalisation that training changes. */
  int precise_bn;
  int patience; /* full epochs in a row without improvement after which the run ends; 0: no limit */
  /* Each epoch leaves out the samples after its last whole batch; with shuffling these differ from epoch to epoch. A
   * batch larger than the data set is an error. */
  bool drop_last;
  long max_steps;             /* of the whole run, resumed parts included; 0: no limit */
  int verify_every;           /* steps; 0: never */
  const char *checkpoint_dir; /* NULL: none */
  int checkpoint_every;       /* steps, or epochs with checkpoint_epochs; 0: at the end and on interruption only */
  bool checkpoint_epochs;
  int keep; /* number of the newest checkpoints to keep, 0 = 2 */
  /* Resume from the newest intact checkpoint in checkpoint_dir; with an empty or missing folder the run starts from
   * step 0. */
  bool resume;
  const cvy_checkpoint
      *opened; /* that checkpoint, if the team was created with its resume values; NULL: cvy_train opens it */
  /* JSON object (text) of the run's settings, stored and compared on resume; NULL: {}. */
  const char *settings;
  /* Called on the thread of cvy_train, in order; lr: the step's. A return value other than 0 stops the run as an
   * interruption does: steps under way (at most run_ahead) are finished and reported first. NULL: none. */
  int (*on_step)(void *user, const cvy_step_result *step, int epoch, long steps_per_epoch, float lr);
  int (*on_epoch)(void *user, const cvy_epoch_result *epoch);
  /* Reports the result's start_seconds; called before on_step for this process's second step. NULL: none. */
  void (*on_started)(void *user, double seconds);
  /* Reports new shares, a lost device or a lost node, before on_step for the first step with these shares or for the
   * step that was repeated. NULL: none. */
  void (*on_event)(void *user, const cvy_team_event *event, int epoch);
  /* After each evaluation, before on_epoch, on every node of a fleet; all pointers are borrowed for the call. If one
   * node of a fleet sets it, all nodes compute predictions. NULL: none, and evaluation stores no probabilities. */
  void (*on_predictions)(void *user, const cvy_train_predictions *answers);
  /* Called once after the last step, before a final evaluation or precise_bn, on every node of a fleet. A callback can
   * save the weights (cvy_team_save) here, before anything later can fail. NULL: none. */
  void (*on_trained)(void *user);
  void *user;
  /* Interval in seconds at which the host copies the state of a team of one from its device. If the device fails, the
   * copy is saved. 0: 30. */
  double snapshot_s;
  /* Requested (also by a signal handler): the run finishes the step, saves a checkpoint if there is a folder, and
   * returns. */
  const cvy_stop *stop;
} cvy_train_params;

typedef struct cvy_train_result {
  long steps; /* of the whole run */
  int epochs_done;
  double test_acc;      /* last evaluation, negative: none */
  double val_acc;       /* the same for the validation set */
  int best_epoch;       /* from 0, with save_best or patience; -1: none yet */
  double best_acc;      /* its accuracy: on the validation set, or without one on the test set */
  bool out_of_patience; /* `patience` ended the run */
  int precise_bn;       /* batches from which the running values were recomputed; 0: none */
  double precise_bn_seconds;
  bool save_best_failed; /* the newest best weights could not be written */
  double sec_per_epoch;  /* mean over full epochs, without start_seconds; 0: there was none */
  /* Time of this process's first step minus that of its second, scaled to the same number of samples: drivers compile
   * kernels in the first. 0 with a single step. */
  double start_seconds;
  double images_per_second; /* over this process's steps except the first, without evaluation */
  double last_loss;         /* of this process's last step; NaN: it made none */
  /* The devices failed, or the data can no longer be read (CVY_E_IO), but the state after `steps` steps is intact: it
   * is saved in the checkpoint folder, and cvy_team_save can save it. */
  bool state_is_whole;
  bool checkpoint_failed; /* the last checkpoint could not be written; the folder may have older ones */
  long checkpoint_step;   /* step of the newest one that this run has written or resumed from, -1: none */
  bool already_finished;  /* resumed a finished run: no step was left */
} cvy_train_result;

/* CVY_E_ARGUMENT: wrong params, or checkpoint_dir holds checkpoints and !resume.
 * The team must be initialised (`resume` does that) and have data attached. CVY_E_INTERRUPTED after `stop` or a
 * callback's stop, with *out filled;
 * CVY_E_DEVICE and others when the last device has failed (or the first, with fault_stops), also with *out filled;
 * CVY_E_MISMATCH: resume with other settings (each named) or algorithms (cvy_team_params.resume);
 * CVY_E_NOT_FINITE: see cvy_team_step. No other process may use checkpoint_dir meanwhile (CVY_E_ARGUMENT: one does). A
 * failed write of a checkpoint is a warning, or for the last one CVY_E_IO with *out filled. When the loss jumps (not
 * finite, or 10 times the median of the last 100 steps), the newest checkpoint from before the jump is kept beside the
 * `keep` newest. */
cvy_status cvy_train(cvy_team *team, const cvy_data *data, const cvy_train_params *params, cvy_train_result *out);

#ifdef __cplusplus
}
#endif
#endif
