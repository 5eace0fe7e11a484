/* SPDX-License-Identifier: MIT
 * Training from start to end: epochs, shuffling, evaluation, checkpoints, callbacks. What cvy_train does can also be
 * written by hand with cvy_team_step (team.h); tests/examples/d2l_section.c does so. */
#ifndef CONVOY_TRAIN_H
#define CONVOY_TRAIN_H

#include "convoy/team.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The order of training samples in an epoch: a permutation of 0..n-1 by (seed, epoch), the identity with no_shuffle.
 * Pure. */
void cvy_sampler_order(uint64_t seed, int epoch, bool no_shuffle, int n, int32_t *order);

/* How the learning rate of a run changes from step to step; zero: it does not.
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
  long every;                       /* STEP: steps, or epochs with every_epochs; >= 1 */
  bool every_epochs;
  float gamma;                      /* STEP: above 0 */
  long warmup;                      /* W: steps, or epochs with warmup_epochs; below T */
  bool warmup_epochs;
} cvy_lr_schedule;
/* CVY_E_ARGUMENT with what is wrong. */
cvy_status cvy_lr_check(const cvy_lr_schedule *schedule, long steps_per_epoch, long steps);
/* The rate of a step, 0 <= step < steps (T), of a schedule that was checked. Pure. */
float cvy_lr_at(const cvy_lr_schedule *schedule, float lr, long step, long steps_per_epoch, long steps);

typedef struct cvy_epoch_result {
  int epoch;                        /* from 0 */
  double train_loss;                /* mean over the epoch's samples (of this run's part of it) */
  double test_acc;                  /* negative: not evaluated */
  double seconds;                   /* training alone, the final wait included, without start_seconds */
  bool full;                        /* all steps of the epoch were run in this process */
} cvy_epoch_result;

typedef struct cvy_train_params {
  int epochs;                       /* 0 = 10 */
  float lr;                         /* above 0; 0 = 0.1 */
  cvy_lr_schedule schedule;         /* zero: lr at every step */
  uint64_t seed;
  bool no_shuffle, no_eval;
  bool drop_last;                   /* an epoch ends with its last whole batch: the samples that are left over, others in every
                                       shuffled epoch, are not trained on; a batch larger than the data set is refused */
  long max_steps;                   /* of the whole run, resumed parts included; 0: no limit */
  int verify_every;                 /* steps; 0: never */
  const char *checkpoint_dir;       /* NULL: none */
  int checkpoint_every;             /* steps, or epochs with checkpoint_epochs; 0: at the end and on interruption only
                                       */
  bool checkpoint_epochs;
  int keep;                         /* newest checkpoints kept, 0 = 2 */
  bool resume;                      /* from the newest good checkpoint in checkpoint_dir; an empty or missing folder
                                       starts afresh */
  const char *settings;             /* JSON object of the run's settings (text), stored and compared on resume; NULL:
                                       {} */
  /* Called on the thread of cvy_train, in order; lr: the step's. A return value other than 0 stops as an interruption does: steps
     under way (at most run_ahead) are finished and told of first. NULL: none. */
  int (*on_step)(void *user, const cvy_step_result *step, int epoch, long steps_per_epoch, float lr);
  int (*on_epoch)(void *user, const cvy_epoch_result *epoch);
  /* The result's start_seconds are known: called before on_step for this process's second step. NULL: none. */
  void (*on_started)(void *user, double seconds);
  /* Shares were chosen by measured speeds: called before on_step for the first step with them. NULL: none. */
  void (*on_shares)(void *user, const cvy_shares_change *change, int epoch);
  void *user;
  /* A device was lost; called before the result of the step that the others did again. NULL: none. */
  void (*on_device_lost)(void *user, const cvy_device_loss *loss, int epoch);
  double snapshot_s;                /* a team of one has its state on the device: the host reads it every so many seconds, and
                                       that is what is saved if the device fails; 0: 30 */
  const volatile int *stop;         /* becomes non-zero (in a signal handler): finish the step, save a checkpoint if
                                       there is a folder, return */
} cvy_train_params;

typedef struct cvy_train_result {
  long steps;                       /* of the whole run */
  int epochs_done;
  double test_acc;                  /* last evaluation, negative: none */
  double sec_per_epoch;             /* mean over full epochs, without start_seconds; 0: there was none */
  double start_seconds;             /* what this process's first step took longer than its second, for as many samples: in
                                       it drivers compile kernels; 0 with a single step */
  double images_per_second;         /* over this process's steps but the first (which may
                                       compile kernels), evaluation not counted */
  double last_loss;                 /* of this process's last step; NaN: it made none */
  bool state_is_whole;              /* the devices failed, but what the run had reached after `steps` steps is there: it has
                                       been saved in the checkpoint folder, and cvy_team_save saves it */
  bool checkpoint_failed;           /* the last checkpoint could not be written: the folder has older ones, if any */
  long checkpoint_step;             /* of the newest one that this run has written or begun with, -1: none */
  bool already_finished;            /* --resume of a finished run: nothing was left to do */
} cvy_train_result;

/* The settings (cvy_train_params.settings, with what cvy_train has added) in the newest good checkpoint of the folder: free();
 * NULL: there is none. CVY_E_IO: it cannot be read. CVY_E_MEMORY. */
cvy_status cvy_checkpoint_settings(const char *checkpoint_dir, char **settings);

/* CVY_E_ARGUMENT: wrong params, or checkpoint_dir holds checkpoints and !resume.
 * The team must be initialised (or is, by `resume`) and have data attached. CVY_E_INTERRUPTED after *stop or a
 * callback's stop, with *out filled;
 * CVY_E_DEVICE and others when the last device has failed (or the first, with loss_stops), also with *out filled;
 * CVY_E_MISMATCH: resume with other settings (each named) or algorithms (cvy_team_params.resume_from); CVY_E_NOT_FINITE: see cvy_team_step.
 * checkpoint_dir belongs to this process meanwhile (CVY_E_ARGUMENT: another one has it). A checkpoint that cannot be written is a
 * warning as long as there is a next one; CVY_E_IO at the end, with *out filled. Where the loss jumps (not finite, or 10 times the
 * median of the last 100 steps), the newest checkpoint from before stays beside the `keep` newest. */
cvy_status cvy_train(cvy_team *team, const cvy_data *data, const cvy_train_params *params, cvy_train_result *out);

#ifdef __cplusplus
}
#endif
#endif
