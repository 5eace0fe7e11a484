/* SPDX-License-Identifier: MIT
 * The options of `convoy train` and their checks. */
#ifndef CVY_TOOLS_PROGRAM_OPTIONS_TRAIN_OPTIONS_H
#define CVY_TOOLS_PROGRAM_OPTIONS_TRAIN_OPTIONS_H

#include <jansson.h>

#include "convoy/convoy.h"
#include "tools/program/options/input_options.h"
#include "tools/program/node.h"
#include "tools/program/options/options.h"
#include "tools/program/options/train_values.h"

typedef struct train_options {
  const char *data, *data_dir, *devices, *init_from, *init_skip, *freeze, *lr_mult, *save, *save_best, *checkpoint;
  const char *log, *plot, *report, *trace, *conv_algo;
  const char *model;
  int init, tune, math, on_device_loss, exchange; /* cvy_tune_mode, cvy_math, …, cvy_exchange_kind */
  int64_t classes, batch, epochs, seed, run_ahead, staleness, max_steps, keep, verify_every, trace_events, patience;
  int64_t precise_bn;
  int optimizer; /* cvy_optimizer_kind */
  double lr, momentum, weight_decay, eps, label_smoothing, clip_norm, bucket_mib, device_timeout;
  rates_option rates; /* lr and seed: the first of them */
  seeds_option seeds;
  const char *run_of_sweep; /* "lr 0.1, seed 0"; NULL: no sweep */
  betas_option betas;
  split_option split;
  shares_option shares;
  bn_option bn;
  normalize_option normalize;
  augment_option augment;
  every_option checkpoint_every, warmup;
  schedule_option schedule;
  image_options images;
  fleet_options fleet;
  cvy_fleet *joined;      /* --resume in a fleet: opened while options are parsed. cmd_train closes it */
  cvy_checkpoint *opened; /* --resume: the checkpoint; NULL: there is none. cmd_train closes it */
  bool nesterov, decay_only_weights, no_shuffle, drop_last, no_eval, resume, allow_nan, no_overlap, no_sync,
      log_grad_norm, no_times, recompute, quiet;
} train_options;

/* OPTIONS_GO_ON or the exit status, after train_options_check. */
int train_options_parse(int argc, char **argv, train_options *out);
/* Number of runs; more than one are a sweep. */
static inline int train_options_runs(const train_options *options) { return options->rates.list.n * options->seeds.n; }
/* [train_checks.c] Checks everything that needs no device: shares that do not sum to the batch, options that need
 * others. */
int train_options_check(const train_options *options);
/* The command line of the last train_options_parse, or its checkpoint, had this option. */
bool train_options_given(const char *name);
/* The options of the last train_options_parse that a resumed run takes from its checkpoint, as {name: text}. */
json_t *train_options_json(void);
/* One number per device for weights and shares; `labels` for the message. */
int train_options_check_devices(const train_options *options, int n_devices, const char *labels);
/* --lr-schedule and --warmup as the library's parameters. */
cvy_lr_schedule train_options_schedule(const train_options *options);
/* The values of --model, --init and --tune. Static. */
const char *train_options_model(const train_options *options);
const char *train_options_init(const train_options *options);
const char *train_options_tune(const train_options *options);
const char *train_options_optimizer(const train_options *options);

/* ---- settings, as JSON (train_settings.c) ---- */

/* The settings that change a run's results, as effective values: saved in checkpoints and compared on --resume. The
 * reference is the caller's. */
json_t *train_settings(const train_options *options, const cvy_net *net, const cvy_data *data, const cvy_team *team);
/* The same with all other settings, for the log. */
json_t *train_settings_all(const train_options *options, const cvy_net *net, const cvy_data *data,
                           const cvy_team *team);

#endif
