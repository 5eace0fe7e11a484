/* SPDX-License-Identifier: MIT
 * convoy train: options → team → epochs → result line and files. */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tools/program/view/progress.h"
#include "tools/program/log/run_log.h"
#include "tools/program/signals.h"
#include "tools/program/train/train_sweep.h"
#include "tools/program/train/training.h"
#include "tools/program/view/wait_line.h"
#include "tools/program/weights_info.h"

/* Call before the first event of the log. */
static void begin(training *t, int epoch) {
  if (t->begun) return;
  t->begun = true;
  epoch_curve_resume(&t->curve, epoch); /* reads the log of earlier parts before this part appends to it */
  train_log_begin(t);
}

static void on_shares(training *t, const cvy_shares_change *change) {
  if (t->log) json_log_line(t->log, json_pack("{so}", "balance", json_loads(change->json, 0, NULL)));
  memcpy(t->shares, change->shares, (size_t)change->n_devices * sizeof *t->shares);
  if (change->step == 0) return;
  if (t->n_changes < MOST_CHANGES) t->changes[t->n_changes] = change->step;
  t->n_changes++;
}

/* No evaluation without test images. */
static bool measures(const training *t) { return !t->options->no_eval && t->run.data->test.n > 0; }

enum { WATCH_MS = 1000 };

/* State of the devices, for the status lines. */
static void watch_devices(device_watch *watch, const int *shares, double least_ms) {
  const progress_device *devices;
  const int n = device_watch_look(watch, shares, least_ms, &devices);
  if (n > 0) progress_devices(devices, n);
}

/* If the head was lost and this node is the new head, it prints and logs from now on. */
static void take_over(training *t) {
  if (t->writes || !cvy_fleet_writes(t->fleet)) return;
  t->writes = true;
  program_speak_as(NULL);
  progress_start(t->options->quiet, (int)t->options->epochs, (long)t->options->max_steps);
  if (!t->options->quiet) program_say("this node prints, logs and saves from now on");
  if (run_files_open(t->options, &t->files) != EXIT_DONE) t->log_failed = true;
  train_log_begin(t);
}

static void on_event(void *user, const cvy_team_event *event, int epoch) {
  training *const t = user;
  take_over(t);
  begin(t, epoch);
  switch (event->kind) {
    case CVY_TEAM_SHARES_CHANGED: on_shares(t, &event->of.shares); break;
    case CVY_TEAM_DEVICE_LOST: train_log_device_lost(t, &event->of.lost); break;
    case CVY_TEAM_NODE_LOST: train_log_node_lost(t, &event->of.node); break;
  }
}

/* ---- until the first step is done ---- */

enum { COMPILE_SAID_S = 2 }; /* loading takes less */

/* A node started by hand has its own terminal; processes of an MPI share the head's. */
static bool has_screen(const training *t) { return t->writes || t->options->fleet.nodes; }

static void on_started(void *user, double seconds) {
  const training *const t = user;
  const double all = train_compile_seconds(t, seconds);
  if (!t->options->quiet && has_screen(t) && all >= COMPILE_SAID_S) progress_line("kernels compiled in %.1f s", all);
}

static void save_weights(training *t) {
  const char *const file = t->options->save;
  t->saved = file && cvy_fleet_writes(t->fleet) && cvy_team_save(t->team, file) == CVY_OK;
}

/* Saves the weights before anything after the last step can fail. */
static void on_trained(void *user) { save_weights(user); }

static void report_renew(training *t, bool epoch_ended) {
  if (t->log && live_report_is_due(&t->report, epoch_ended))
    live_report_write(&t->report, device_report_json(t->team), true);
}

/* Images of a step for the rate on this terminal: the fleet's on the writing node, else this node's. */
static int shown_images(const training *t, const cvy_step_result *step, const int *own_shares) {
  int own = 0;
  if (t->writes) return step->images;
  for (int i = 0; i < cvy_devices_count(t->run.devices); i++) own += own_shares[i];
  return own;
}

/* The first line of a node that does not write: its part of each step. */
static void say_own_share(const training *t) {
  const int first = cvy_fleet_first_device(t->fleet);
  int own = 0;
  for (int i = 0; i < cvy_devices_count(t->run.devices); i++) own += t->shares[first + i];
  progress_line("node %d of %d: %d of %lld images a step, on %s", cvy_fleet_rank(t->fleet), cvy_fleet_size(t->fleet),
                own, (long long)t->options->batch, t->labels);
}

/* Shares for the lines of devices: of a whole batch. NULL for a short one, the last of an epoch: the lines keep those
 * of the step before. */
static const int *usual_shares(training *t, const cvy_step_result *step, const int *own_shares) {
  if (step->images < t->most_images) return NULL;
  t->most_images = step->images;
  return own_shares;
}

static int on_step(void *user, const cvy_step_result *step, int epoch, long steps_per_epoch, float lr) {
  training *const t = user;
  progress_wait_end();
  take_over(t);
  begin(t, epoch);
  const int *const shares = step->shares + (t->fleet ? cvy_fleet_first_device(t->fleet) : 0);
  const int *const usual = usual_shares(t, step, shares);
  watch_devices(t->watch, usual, WATCH_MS);
  const progress_device *unused;
  (void)device_watch_look(t->epoch_watch, usual, INFINITY, &unused);
  progress_step(epoch, step->step, steps_per_epoch, step->loss, shown_images(t, step, shares), step->ms, measures(t));
  json_log_step(t->log, epoch, step, lr, train_devices(t));
  report_renew(t, false);
  return 0;
}

enum { ANSWERS_MOST = 1 << 26 }; /* limit of probabilities kept for the page's predictions: 256 MiB */

/* Predictions for the page. All nodes of a fleet keep them, since any node may become the head. */
static void on_predictions(void *user, const cvy_train_predictions *answers) {
  training *const t = user;
  const cvy_data *const d = t->run.data;
  const class_predictions all = {.samples = answers->set == CVY_SET_VAL ? &d->val : &d->test,
                                 .probabilities = answers->probabilities,
                                 .classes = cvy_net_classes(t->run.net),
                                 .names = d->class_names};
  live_report_predictions(&t->report, &all, answers->set, answers->epoch, d);
}

/* False, with the reason printed: the page has no predictions. */
static bool shows_predictions(const training *t) {
  const cvy_data *const d = t->run.data;
  const int64_t n = d->val.n > d->test.n ? d->val.n : d->test.n, classes = cvy_net_classes(t->run.net);
  if (!t->options->report || t->options->no_eval) return false;
  if (n * classes <= ANSWERS_MOST) return true;
  program_warn("--report: without predictions: %lld images and %lld classes exceed %d probabilities", (long long)n,
               (long long)classes, ANSWERS_MOST);
  return false;
}

static int on_epoch(void *user, const cvy_epoch_result *epoch) {
  training *const t = user;
  take_over(t);
  watch_devices(t->epoch_watch, NULL, 0);
  progress_epoch(epoch);
  json_log_epoch(t->log, epoch);
  epoch_curve_add(&t->curve, epoch, cvy_fleet_writes(t->fleet));
  epoch_curve_show(&t->curve);
  report_renew(t, true);
  return 0;
}

/* --lr in float32, as training uses it: never 0, which would mean the default. */
static float rate_of(const train_options *o) { return o->lr > FLT_TRUE_MIN ? (float)o->lr : FLT_TRUE_MIN; }

/* The team with its first weights and its data, ready for cvy_train. */
static cvy_status team_open(training *t) {
  const train_options *const o = t->options;
  const bool shares = o->shares.list.n > 0;
  const cvy_resume_values resume = o->opened ? cvy_checkpoint_resume_values(o->opened) : (cvy_resume_values){0};
  const cvy_team_params params = {
      .batch = (int)o->batch,
      .samples = t->run.data->train.n,
      .split = shares ? CVY_SPLIT_SHARES : o->split.kind,
      .split_values = shares                               ? o->shares.list.values
                      : o->split.kind == CVY_SPLIT_WEIGHTS ? o->split.values.values
                                                           : NULL,
      .bn = o->bn.mode,
      .ghost = o->bn.ghost,
      .input = input_options_params(&o->normalize, &o->augment, o->seed),
      .optimizer = (cvy_optimizer_kind)o->optimizer,
      .betas = {o->betas.values[0], o->betas.values[1]},
      .eps = (float)o->eps,
      .label_smoothing = (float)o->label_smoothing,
      .clip_norm = (float)o->clip_norm,
      .grad_norm = o->log_grad_norm,
      .decay_only_weights = o->decay_only_weights,
      .freeze = o->freeze,
      .lr_mult = o->lr_mult,
      .momentum = (float)o->momentum,
      .weight_decay = (float)o->weight_decay,
      .nesterov = o->nesterov,
      .run_ahead = o->run_ahead == 0 ? CVY_RUN_AHEAD_NONE : (int)o->run_ahead,
      .staleness = (int)o->staleness,
      .exchange = (cvy_exchange_kind)o->exchange,
      .recompute = o->recompute,
      .bucket_mib = o->bucket_mib,
      .no_overlap = o->no_overlap,
      .no_sync = o->no_sync,
      .allow_nan = o->allow_nan,
      .fault_stops = o->on_device_loss == 1,
      .all_open = o->on_device_loss == 1,
      .device_timeout_s = o->device_timeout > 0 ? o->device_timeout : -1,
      .conv_algo = o->conv_algo,
      .tune = (cvy_tune_mode)o->tune,
      .math = (cvy_math)o->math,
      .resume = o->opened ? &resume : NULL,
      .untimed = o->no_times,
      .fleet = t->fleet,
  };
  progress_status("preparing the devices (kernels are compiled the first time)");
  wait_line_preparing(t->run.devices);
  cvy_status status = cvy_team_create(t->run.devices, t->run.net, &params, &t->team);
  if (status != CVY_OK) return status;
  const bool loads = o->init_from && !o->opened;
  if (!loads || o->init_skip)
    status = cvy_team_init(t->team, &(cvy_init_params){.kind = (cvy_init_kind)o->init, .seed = (uint64_t)o->seed});
  if (status == CVY_OK && loads)
    status =
        o->init_skip ? cvy_team_load_except(t->team, o->init_from, o->init_skip) : cvy_team_load(t->team, o->init_from);
  if (status == CVY_OK) status = cvy_data_load_end(t->run.data);
  if (status == CVY_OK) status = cvy_team_attach(t->team, t->run.data);
  if (status != CVY_OK) return status;
  /* attached, so the mean of the data set is known */
  const cvy_model_info info =
      program_model_info(o->model, t->run.net, t->run.data, &o->images, cvy_team_input(t->team));
  return cvy_team_describe(t->team, &info);
}

static cvy_status train(training *t, cvy_train_result *result) {
  const train_options *const o = t->options;
  json_t *const settings = train_settings(o, t->run.net, t->run.data, t->team);
  char *const settings_text = json_dumps(settings, JSON_COMPACT | JSON_SORT_KEYS | JSON_REAL_PRECISION(15));
  json_decref(settings);
  if (!settings_text) return CVY_E_MEMORY;
  const cvy_train_params params = {
      .epochs = (int)o->epochs,
      .lr = rate_of(o),
      .schedule = train_options_schedule(o),
      .seed = (uint64_t)o->seed,
      .no_shuffle = o->no_shuffle,
      .drop_last = o->drop_last,
      .no_eval = o->no_eval,
      .max_steps = (long)o->max_steps,
      .verify_every = (int)o->verify_every,
      .checkpoint_dir = o->checkpoint,
      .checkpoint_every = o->checkpoint_every.n,
      .checkpoint_epochs = o->checkpoint_every.epochs,
      .keep = (int)o->keep,
      .save_best = o->save_best,
      .patience = (int)o->patience,
      .precise_bn = (int)o->precise_bn,
      .resume = o->resume,
      .opened = o->opened,
      .settings = settings_text,
      .on_step = on_step,
      .on_epoch = on_epoch,
      .on_predictions = shows_predictions(t) ? on_predictions : NULL,
      .on_started = on_started,
      .on_trained = on_trained,
      .on_event = on_event,
      .user = t,
      .stop = signals_soft(),
  };
  t->watch = device_watch_start(t->team);
  t->epoch_watch = device_watch_start(t->team);
  cvy_status status = o->trace ? cvy_team_trace_begin(t->team, o->trace, (long)o->trace_events) : CVY_OK;
  wait_line_first_step();
  if (status == CVY_OK) status = cvy_train(t->team, t->run.data, &params, result);
  progress_wait_end();
  free(settings_text);
  device_watch_end(&t->watch);
  device_watch_end(&t->epoch_watch);
  return status;
}

/* Also after a failure: its trace is useful. */
static int trace_finish(training *t) {
  cvy_trace_totals totals;
  if (!t->options->trace) return EXIT_DONE;
  const cvy_status status = cvy_team_trace_end(t->team, &totals);
  if (status != CVY_OK) return program_exit_code(status);
  if (totals.left_out > 0)
    program_warn(
        "--trace %s: %ld events written, the last %ld left out, from step %ld on; --trace-events N raises the limit",
        t->options->trace, totals.events, totals.left_out, totals.first_left_out);
  return EXIT_DONE;
}

/* After training, also after an interruption: saves the files and prints the result. */
static int finish(training *t, cvy_status status, const cvy_train_result *result) {
  const train_options *const o = t->options;
  int code = program_exit_code(status);
  if (t->begun) take_over(t);
  if (t->begun && code == EXIT_USAGE)
    code = EXIT_FAILED; /* after the first step: the remaining devices cannot finish the run */
  /* ended early with a state; also if only the checkpoint could not be written */
  const bool early =
      status == CVY_E_INTERRUPTED || result->state_is_whole || (status == CVY_E_IO && result->checkpoint_failed);
  if (status == CVY_OK || early) {
    if (status == CVY_OK && result->already_finished) epoch_curve_finished(&t->curve, result->epochs_done);
    if (!t->saved || result->precise_bn > 0) save_weights(t);
    if (o->save && cvy_fleet_writes(t->fleet) && !t->saved) code = EXIT_FAILED;
    if (t->curve.failed || result->save_best_failed) code = EXIT_FAILED;
  }
  if ((early || t->saved) && status != CVY_OK && cvy_fleet_writes(t->fleet))
    train_say_kept(t, status, result, t->saved);
  train_log_end(t, status, result);
  if (status == CVY_OK) {
    if (result->already_finished && !o->quiet)
      program_say("the run in %s is already finished, after %ld steps", o->checkpoint, result->steps);
    const bool quiet = o->quiet || !cvy_fleet_writes(t->fleet);
    if (!quiet) epoch_curve_print(&t->curve);
    if (!quiet) train_say_best(t, result);
    if (!quiet) train_say_precise_bn(t, result);
    if (cvy_fleet_writes(t->fleet)) train_say_shares(t);
    if (!quiet && !result->already_finished) device_report_print(t->team);
    train_say_result(t, result);
  }
  return code;
}

static int run_train(training *t, program_run *kept) {
  const train_options *const o = t->options;
  const program_file inputs[] = {{"--init-from", o->opened ? NULL : o->init_from},
                                 {0}}; /* the checkpoint has the weights */
  const program_file outputs[] = {{"--save", o->save},
                                  {"--save-best", o->save_best},
                                  {"--plot", o->plot},
                                  {"--report", o->report},
                                  {"--log", o->log},
                                  {"--trace", o->trace},
                                  {0}};
  const program_run_spec spec = {.verb = "train",
                                 .inputs = inputs,
                                 .outputs = outputs,
                                 .devices = o->devices,
                                 .model = train_options_model(o),
                                 .data = o->data,
                                 .data_dir = o->data_dir,
                                 .classes = o->classes,
                                 .batch = o->batch,
                                 .seed = o->seed,
                                 .images = &o->images,
                                 .tunes = o->tune == CVY_TUNE_QUICK,
                                 .trains = true,
                                 .quiet = o->quiet || t->fleet};
  int code = EXIT_DONE;
  if (o->joined) t->fleet = o->joined;
  else code = fleet_meet(&o->fleet, o->quiet, &t->fleet);
  if (code == EXIT_DONE && !o->joined) code = fleet_check_outputs("train", t->fleet, outputs);
  if (code != EXIT_DONE) return code;
  const bool writes = t->writes = cvy_fleet_writes(t->fleet), quiet = o->quiet || !has_screen(t);
  if (writes) code = program_check_outputs("train", outputs, inputs);
  if (code == EXIT_DONE && writes) code = run_files_open(o, &t->files);
  if (code != EXIT_DONE) return code;
  progress_start(quiet, (int)o->epochs, (long)o->max_steps);
  wait_line_begin();
  if (!kept->data) code = program_run_open(&spec, kept);
  t->run = *kept;
  if (code == EXIT_DONE && o->init_from && !o->opened) {
    cvy_model_info *info = NULL;
    const char *model = o->model;
    code = weights_info("train", o->init_from, &model, &info);
    cvy_model_info_free(&info);
  }
  if (code != EXIT_DONE) return code;
  t->labels = program_team_labels(t->run.devices, NULL);
  char *title = NULL;
  if (!t->labels || asprintf(&title, "%s on %s, batch %lld, lr %g, [%s]", spec.model, t->run.data->name,
                             (long long)o->batch, o->lr, t->labels) < 0)
    title = NULL;
  if (!epoch_curve_open((int)o->epochs, o->plot, o->log, title, &t->curve)) {
    program_say("error: out of memory");
    return EXIT_FAILED;
  }
  if (o->batch > t->run.data->train.n && o->drop_last) {
    program_say("error: --drop-last: %d training images do not fill a batch of %lld; expected --batch %d or less",
                t->run.data->train.n, (long long)o->batch, t->run.data->train.n);
    return EXIT_USAGE;
  }
  if (o->batch > t->run.data->train.n) {
    program_warn("--batch %lld is larger than the %d training images: every step uses all of them", (long long)o->batch,
                 t->run.data->train.n);
  }
  code = t->fleet ? OPTIONS_GO_ON : train_options_check_devices(o, cvy_devices_count(t->run.devices), t->labels);
  if (code != OPTIONS_GO_ON) return code;

  cvy_status status = team_open(t);
  if (status != CVY_OK) {
    progress_end();
    train_log_not_begun(t, status);
    return program_exit_code(status);
  }
  free(t->labels);
  t->labels = program_team_labels(t->run.devices, NULL); /* without devices that were left out */
  t->shares = t->labels ? calloc((size_t)train_devices(t), sizeof *t->shares) : NULL;
  if (!t->shares) {
    progress_end();
    program_say("error: out of memory");
    return EXIT_FAILED;
  }
  cvy_team_shares(t->team, t->shares);
  if (t->fleet) code = train_options_check_devices(o, cvy_fleet_devices(t->fleet), t->labels);
  if (code != OPTIONS_GO_ON) return code;
  if (writes) train_say_start(t);
  progress_start(quiet, (int)o->epochs, (long)o->max_steps);
  if (!writes && !quiet) say_own_share(t);
  t->status = status = train(t, &t->result);
  progress_end();
  code = finish(t, status, &t->result);
  const int traced = trace_finish(t); /* last, since a device may hang here: the weights are saved by now */
  if (code == EXIT_DONE) code = traced;
  if (t->log) live_report_write(&t->report, NULL, false);
  if (t->report.failed && code == EXIT_DONE) code = EXIT_FAILED;
  if ((!json_log_close(&t->log) || t->log_failed) && code == EXIT_DONE) code = EXIT_FAILED;
  if (code == EXIT_DONE && t->writes) train_say_saved(t, t->curve.n > 0);
  return code;
}

/* Shared by the runs of a sweep: devices, and data as long as they do not depend on the seed. */
typedef struct shared_run {
  program_run run;
  int64_t seed;
  bool again; /* the fleet must meet again */
} shared_run;

/* Epochs of earlier parts of the run, or of one that was finished before. */
static void take_from_log(const char *path, sweep_outcome *out) {
  run_log log;
  if (!path || strcmp(path, "-") == 0 || cvy_file_kind_of(path) != CVY_FILE_REGULAR) return;
  if (run_log_open(path, &log) && run_log_load(&log, path) == CVY_OK && log.n_epochs > 0) {
    out->loss = log.epochs[log.n_epochs - 1].train_loss;
    for (size_t i = 0; i < log.n_epochs; i++)
      if (log.epochs[i].val_acc > out->best_val_acc) out->best_val_acc = log.epochs[i].val_acc;
  }
  run_log_close(&log);
}

static void fill_outcome(const training *t, sweep_outcome *out) {
  const epoch_curve *const curve = &t->curve;
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  out->status = t->status;
  out->finished_before = t->result.already_finished;
  out->steps = t->result.steps;
  out->test_acc = t->result.test_acc;
  for (int i = 0; i < curve->n; i++)
    if (curve->points[i].val_acc > out->best_val_acc) out->best_val_acc = curve->points[i].val_acc;
  if (t->result.best_epoch >= 0 && t->run.data->val.n > 0) out->best_val_acc = t->result.best_acc;
  out->loss = curve->n > 0 ? curve->points[curve->n - 1].train_loss : t->result.last_loss;
  if (t->options->run_of_sweep) take_from_log(t->options->log, out);
  if (!out->finished_before)
    out->seconds = (double)now.tv_sec + 1e-9 * (double)now.tv_nsec - 1e-9 * (double)t->start_ns;
}

/* sweep_run_fn; user: shared_run. */
static int train_once(train_options *options, void *user, sweep_outcome *out) {
  shared_run *const shared = user;
  const bool drawn = options->images.val_split > 0 || strncmp(options->data, "synthetic", 9) == 0; /* by the seed */
  struct timespec now;
  if (drawn && options->seed != shared->seed) program_run_close(&shared->run);
  shared->seed = options->seed;
  clock_gettime(CLOCK_MONOTONIC, &now);
  training t = {.options = options,
                .files = {.log = -1, .trace = -1},
                .status = CVY_E_ARGUMENT,
                .result = {.test_acc = -1, .val_acc = -1, .best_epoch = -1, .last_loss = NAN},
                .built_ns = cvy_launch_get_totals().build_ns,
                .start_ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec};
  const int code = run_train(&t, &shared->run);
  progress_wait_end();
  fill_outcome(&t, out);
  program_flush(); /* all files are written; a driver may crash when its objects are released */
  cvy_team_destroy(&t.team);
  shared->again = fleet_end(&options->fleet, options->quiet, code, &t.fleet);
  json_log_close(&t.log);
  run_files_close(options, &t.files);
  cvy_checkpoint_close(&options->opened);
  free(t.shares);
  epoch_curve_close(&t.curve);
  live_report_close(&t.report);
  free(t.labels);
  return code;
}

/* *again: the fleet must meet again, and the command starts over. */
static int train_all(int argc, char **argv, bool *again) {
  static train_options options; /* large lists: not on the stack */
  shared_run shared = {0};
  sweep_outcome outcome = {.test_acc = -1, .best_val_acc = -1};
  memset(&options, 0, sizeof options);
  int code = train_options_parse(argc, argv, &options);
  if (code != OPTIONS_GO_ON) {
    *again = fleet_end(&options.fleet, options.quiet, code, &options.joined);
    return code;
  }
  signals_text("\nconvoy: interrupted before the first step; nothing was saved\n");
  code = train_options_runs(&options) > 1 ? train_sweep(argc, argv, &options, train_once, &shared)
                                          : train_once(&options, &shared, &outcome);
  program_run_close(&shared.run);
  *again = shared.again;
  return code;
}

int cmd_train(int argc, char **argv) { return fleet_repeat(train_all, argc, argv); }
