/* SPDX-License-Identifier: MIT
 * convoy train: options → team → epochs → result line and files. */
#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tools/device_report.h"
#include "tools/json_log.h"
#include "tools/epoch_curve.h"
#include "tools/program_common.h"
#include "tools/progress.h"
#include "tools/report_html.h"
#include "tools/run_files.h"
#include "tools/signals.h"
#include "tools/train_options.h"
#include "tools/wait_line.h"
#include "tools/weights_facts.h"

enum { MOST_CHANGES = 16 };

typedef struct training {
  const train_options *options;
  program_run run;
  cvy_fleet *fleet; /* NULL: this machine alone */
  cvy_team *team;
  run_files files;
  json_log *log;
  device_watch *watch, *epoch_watch; /* since moments ago; since the epoch's begin */
  char *labels;
  epoch_curve curve;
  live_report report;
  bool log_failed, begun;     /* begun: a step of this process is done */
  bool writes, took_over;     /* this process prints and writes files; since the head was lost in a step */
  long changes[MOST_CHANGES]; /* first steps with other shares, of --split auto */
  int n_changes;
  int *shares; /* as they were chosen, one per device of the run: others are those of a team that has lost devices */
  uint64_t start_ns; /* CLOCK_MONOTONIC, close to the start of the process */
} training;

/* Devices of the run: of all nodes of a fleet. */
static int devices_of(const training *t) {
  return t->fleet ? cvy_fleet_devices(t->fleet) : cvy_devices_count(t->run.devices);
}

/* Without test images nothing is measured. */
static bool measures(const training *t) { return !t->options->no_eval && t->run.data->test.n > 0; }

static void log_run(const training *t) {
  if (!t->log) return;
  json_t *const devices = json_array(), *const shares = json_array(), *const micro = json_array(),
                *const bytes = json_array(), *const units = json_array(), *const drivers = json_array();
  size_t parameters = 0;
  for (int i = 0; i < cvy_team_size(t->team); i++) {
    cvy_replica_info info;
    if (!cvy_team_replica(t->team, i, &info)) continue;
    json_array_append_new(devices, json_string(info.label));
    json_array_append_new(units, json_integer(info.compute_units));
    json_array_append_new(drivers, json_string(info.driver));
    json_array_append_new(shares, json_integer(info.share));
    json_array_append_new(micro, json_integer(info.micro_batch));
    json_array_append_new(bytes, json_integer((json_int_t)info.device_bytes));
  }
  for (int i = 0; i < cvy_net_param_count(t->run.net); i++) {
    cvy_param_info info;
    if (cvy_net_param(t->run.net, i, &info)) parameters += info.elems;
  }
  const cvy_data *const d = t->run.data;
  json_log_line(t->log, json_pack("{s{ss sI so* so so so so so so sI s{ss si si si si si si si} so so}}", "run",
                                  "version", cvy_version(), "seed", (json_int_t)t->options->seed, "nodes",
                                  t->fleet ? fleet_json(t->fleet) : NULL, "devices", devices, "compute_units", units,
                                  "drivers", drivers, "shares", shares, "micro_batches", micro, "device_bytes", bytes,
                                  "parameters", (json_int_t)parameters, "data", "name", d->name, "train", d->train.n,
                                  "val", d->val.n, "test", d->test.n, "height", d->h, "width", d->w, "channels", d->c,
                                  "classes", d->classes, "settings", train_settings_all(t->options, d, t->team),
                                  "conv_choices", json_loads(cvy_team_conv_choices(t->team), 0, NULL)));
}

/* Begins the log with the first event of the run: a run that is refused leaves an older log alone. */
static void log_begin(training *t) {
  const train_options *const o = t->options;
  if (!(o->log || o->report) || t->log || t->log_failed || !cvy_fleet_writes(t->fleet)) return;
  const bool appends = o->resume || t->took_over;
  t->log_failed = !live_report_open(o->report, appends ? o->log : NULL, &t->report); /* reads what is there */
  if (o->log) {
    t->log = json_log_open(o->log, t->files.log, appends);
    t->files.log = -1;
    t->log_failed |= !t->log;
  }
  if (o->report && !t->log_failed) t->log_failed = !json_log_watch(&t->log, &t->report.log);
  log_run(t);
}

/* Call before the first event of the log. */
static void begin(training *t, int epoch) {
  if (t->begun) return;
  t->begun = true;
  epoch_curve_resume(&t->curve, epoch); /* reads the log of earlier parts, before this part adds to it */
  log_begin(t);
}

static void on_shares(training *t, const cvy_shares_change *change) {
  if (t->log) json_log_line(t->log, json_pack("{so}", "balance", json_loads(change->json, 0, NULL)));
  memcpy(t->shares, change->shares, (size_t)change->n_devices * sizeof *t->shares);
  if (change->step == 0) return;
  if (t->n_changes < MOST_CHANGES) t->changes[t->n_changes] = change->step;
  t->n_changes++;
}

enum { WATCH_MS = 1000 };

/* How the devices do, for the status lines. */
static void watch_devices(device_watch *watch, const int *shares, double least_ms) {
  const progress_device *devices;
  const int n = device_watch_look(watch, shares, least_ms, &devices);
  if (n > 0) progress_devices(devices, n);
}

static void on_device_lost(training *t, const cvy_lost_device *lost) {
  json_t *const shares = json_array();
  for (int i = 0; i < devices_of(t); i++) json_array_append_new(shares, json_integer(lost->shares[i]));
  json_log_line(t->log,
                json_pack("{s{si ss sI ss sb so}}", "device_lost", "device", lost->device, "label", lost->label, "step",
                          (json_int_t)lost->step, "reason", lost->reason, "hung", lost->hung, "shares", shares));
}

static void on_node_lost(training *t, const cvy_lost_node *lost) {
  json_t *const shares = json_array();
  for (int i = 0; i < devices_of(t); i++) json_array_append_new(shares, json_integer(lost->shares[i]));
  json_log_line(t->log, json_pack("{s{si ss sI ss sb si so}}", "node_lost", "node", lost->node, "name", lost->name,
                                  "step", (json_int_t)lost->step, "reason", lost->reason, "silent", lost->silent,
                                  "nodes_left", lost->n_left, "shares", shares));
}

/* If the head was lost, and this node is the head now, it prints and logs from here on. */
static void take_over(training *t) {
  if (t->writes || !cvy_fleet_writes(t->fleet)) return;
  t->writes = true;
  t->took_over = t->begun;
  program_speak_as(NULL);
  progress_start(t->options->quiet, (int)t->options->epochs, (long)t->options->max_steps);
  if (!t->options->quiet) program_say("this node prints, logs and saves from now on");
  if (run_files_open(t->options, &t->files) != EXIT_DONE) t->log_failed = true;
  log_begin(t);
}

static void on_event(void *user, const cvy_team_event *event, int epoch) {
  training *const t = user;
  take_over(t);
  begin(t, epoch);
  switch (event->kind) {
    case CVY_TEAM_SHARES_CHANGED: on_shares(t, &event->of.shares); break;
    case CVY_TEAM_DEVICE_LOST: on_device_lost(t, &event->of.lost); break;
    case CVY_TEAM_NODE_LOST: on_node_lost(t, &event->of.node); break;
  }
}

/* ---- until the first step is done ---- */

static double compile_seconds(double start_seconds) {
  return 1e-9 * (double)cvy_launch_get_totals().build_ns + start_seconds;
}

enum { COMPILE_SAID_S = 2 }; /* loading takes less */

static void on_started(void *user, double seconds) {
  const training *const t = user;
  const double all = compile_seconds(seconds);
  if (!t->options->quiet && t->writes && all >= COMPILE_SAID_S) progress_line("kernels compiled in %.1f s", all);
}

static void report_renew(training *t, bool epoch_ended) {
  if (t->log && live_report_is_due(&t->report, epoch_ended))
    live_report_write(&t->report, device_report_json(t->team), true);
}

static int on_step(void *user, const cvy_step_result *step, int epoch, long steps_per_epoch, float lr) {
  training *const t = user;
  progress_wait_end();
  take_over(t);
  begin(t, epoch);
  const int *const shares = step->shares + (t->fleet ? cvy_fleet_first_device(t->fleet) : 0);
  watch_devices(t->watch, shares, WATCH_MS);
  const progress_device *unused;
  (void)device_watch_look(t->epoch_watch, shares, INFINITY, &unused);
  progress_step(epoch, step->step, steps_per_epoch, step->loss, step->images, step->ms, measures(t));
  json_log_step(t->log, epoch, step, lr, devices_of(t));
  report_renew(t, false);
  return 0;
}

enum { ANSWERS_MOST = 1 << 26 }; /* probabilities that the answers of a page may be taken from: 256 MiB */

/* The network's answers for the page; all nodes of a fleet keep them, since any of them may have to write it. */
static void on_answers(void *user, const cvy_train_answers *answers) {
  training *const t = user;
  const cvy_data *const d = t->run.data;
  const class_answers all = {.samples = answers->set == CVY_SET_VAL ? &d->val : &d->test,
                             .probabilities = answers->probabilities,
                             .classes = cvy_net_classes(t->run.net),
                             .names = d->class_names};
  live_report_answers(&t->report, &all, answers->set, answers->epoch, d);
}

/* False with the reason said: the page goes without. */
static bool shows_answers(const training *t) {
  const cvy_data *const d = t->run.data;
  const int64_t n = d->val.n > d->test.n ? d->val.n : d->test.n, classes = cvy_net_classes(t->run.net);
  if (!t->options->report || t->options->no_eval) return false;
  if (n * classes <= ANSWERS_MOST) return true;
  program_warn("--report: without the answers: %lld images and %lld classes are more than %d probabilities",
               (long long)n, (long long)classes, ANSWERS_MOST);
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

/* "300,212", however many; free() it. passes: "300(by 100)" where a share takes several. */
static char *shares_text(const training *t, const int *shares, const char *between, bool passes) {
  const int first = t->fleet ? cvy_fleet_first_device(t->fleet) : 0;
  char *text = NULL;
  size_t size;
  FILE *const out = open_memstream(&text, &size);
  for (int i = 0; out && i < devices_of(t); i++) {
    cvy_replica_info info;
    fprintf(out, "%s%d", i ? between : "", shares[i]);
    if (!passes || !cvy_team_replica(t->team, i - first, &info)) continue;
    if (info.micro_batch > 0 && info.micro_batch < info.share) fprintf(out, "(by %d)", info.micro_batch);
  }
  if (out) fclose(out);
  return text;
}

static void say_start(const training *t) {
  const cvy_data *const d = t->run.data;
  if (t->options->no_sync)
    program_warn("--no-sync: nothing is exchanged or updated; this is a measurement, not training");
  if (t->options->staleness)
    program_warn(
        "--staleness 1: every step computes with weights that lack the update of the step before; other numbers "
        "than without");
  if (t->options->lr < FLT_MIN)
    program_warn(
        "--lr %g: below float32's normal numbers (%.2g), where digits are lost and devices may take it for 0: the "
        "weights will hardly change",
        t->options->lr, (double)FLT_MIN);
  if (t->options->quiet) return;
  char *const shares = shares_text(t, t->shares, "+", true);
  char *const nodes = t->fleet ? fleet_labels(t->fleet) : NULL;
  char val[24] = "";
  if (d->val.n) snprintf(val, sizeof val, "%d + ", d->val.n);
  progress_line("%s on %s: %d + %s%d images %dx%dx%d, %d classes\nbatch %s on [%s]", train_options_model(t->options),
                d->name, d->train.n, val, d->test.n, d->h, d->w, d->c, d->classes, shares ? shares : "?",
                nodes ? nodes : t->labels);
  free(nodes);
  free(shares);
  const int rest = d->train.n % (int)t->options->batch;
  if (t->options->drop_last && rest > 0) progress_line("--drop-last: %d images are left out of every epoch", rest);
}

static void result_print(const training *t, const cvy_train_result *result) {
  const double acc = result->test_acc;
  if (!cvy_fleet_writes(t->fleet)) return;
  progress_await_terminal(-1); /* stdout may be the same one */
  if (t->options->no_sync) printf("not training (--no-sync)");
  else if (acc >= 0) printf("test acc: %.2f", acc);
  else if (result->val_acc >= 0) printf("val acc: %.2f", result->val_acc);
  else if (result->already_finished) printf("no step was left of %ld", result->steps);
  else printf("train loss: %.3f (last step)", result->last_loss);
  if (result->sec_per_epoch > 0) printf(", %.1f sec/epoch", result->sec_per_epoch);
  else if (result->images_per_second > 0) printf(", %.1f img/s", result->images_per_second);
  char *const labels = t->fleet ? fleet_labels(t->fleet) : program_team_labels(t->run.devices, t->team);
  printf(" on [%s]\n", labels ? labels : t->labels);
  free(labels);
}

/* True if the run ended before its first step, because of its options or its checkpoint folder. */
static bool was_refused(const training *t, cvy_status status) {
  return !t->begun && (program_exit_code(status) == EXIT_USAGE || status == CVY_E_IO || status == CVY_E_FORMAT);
}

static void log_end(training *t, cvy_status status, const cvy_train_result *result) {
  if (!was_refused(t, status)) log_begin(t);
  if (!t->log) return;
  if (status != CVY_OK && status != CVY_E_INTERRUPTED) {
    json_log_line(t->log, json_pack("{s{ss so}}", "error", "code", cvy_status_name(status), "message",
                                    program_text_json(program_last_error())));
    return;
  }
  const cvy_launch_totals totals = cvy_launch_get_totals();
  const double first_forward_s = totals.first_forward_ns ? 1e-9 * (double)(totals.first_forward_ns - t->start_ns) : 0;
  json_log_line(
      t->log, json_pack("{s{sf sf sf sI sI sI}}", "start", "first_forward_sec", first_forward_s, "compile_sec",
                        compile_seconds(result->start_seconds), "first_step_extra_sec", result->start_seconds,
                        "programs_compiled", (json_int_t)totals.compiled, "programs_cached", (json_int_t)totals.cached,
                        "kernels_ahead", (json_int_t)totals.ahead));
  json_log_line(
      t->log,
      json_pack("{s{sb sb sI si so so so so so so so}}", "end", "interrupted", status == CVY_E_INTERRUPTED, "trained",
                !t->options->no_sync, "steps", (json_int_t)result->steps, "epochs", result->epochs_done, "test_acc",
                result->test_acc >= 0 ? json_number(result->test_acc) : json_null(), "val_acc",
                result->val_acc >= 0 ? json_number(result->val_acc) : json_null(), "best_epoch",
                result->best_epoch >= 0 ? json_integer(result->best_epoch) : json_null(), "best_acc",
                result->best_epoch >= 0 ? json_number(result->best_acc) : json_null(), "sec_per_epoch",
                result->sec_per_epoch > 0 ? json_number(result->sec_per_epoch) : json_null(), "images_per_second",
                json_number(result->images_per_second), "times", device_report_json(t->team)));
}

/* --lr in float32, in which training computes: never 0, which would mean the default. */
static float rate_of(const train_options *o) { return o->lr > FLT_TRUE_MIN ? (float)o->lr : FLT_TRUE_MIN; }

/* The team with its first weights and its data, ready for cvy_train. */
static cvy_status team_open(training *t) {
  const train_options *const o = t->options;
  const bool shares = o->shares.list.n > 0;
  const cvy_resume_facts resume = o->opened ? cvy_checkpoint_facts(o->opened) : (cvy_resume_facts){0};
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
      .bucket_mib = o->bucket_mib,
      .no_overlap = o->no_overlap,
      .no_sync = o->no_sync,
      .allow_nan = o->allow_nan,
      .fault_stops = o->on_device_loss == 1,
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
  /* attached: the mean of the data set is known now */
  const cvy_model_facts facts = program_facts(train_options_model(o), t->run.data, &o->images, cvy_team_input(t->team));
  return cvy_team_describe(t->team, &facts);
}

static cvy_status train(training *t, cvy_train_result *result) {
  const train_options *const o = t->options;
  json_t *const settings = train_settings(o, t->run.data, t->team);
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
      .resume = o->resume,
      .opened = o->opened,
      .settings = settings_text,
      .on_step = on_step,
      .on_epoch = on_epoch,
      .on_answers = shows_answers(t) ? on_answers : NULL,
      .on_started = on_started,
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

/* "--shares 300,212": the option that repeats a run of --split auto. */
static void shares_print(const training *t) {
  char steps[512] = "";
  size_t used = 0;
  char *shares = NULL;
  if (t->options->quiet || cvy_team_split(t->team) != CVY_SPLIT_AUTO) return;
  int *const now = calloc((size_t)devices_of(t), sizeof *now);
  if (now) cvy_team_shares(t->team, now);
  if (now && memcmp(now, t->shares, (size_t)devices_of(t) * sizeof *now) == 0) shares = shares_text(t, now, ",", false);
  free(now);
  if (!shares) return; /* or devices were lost */
  if (t->n_changes == 0) {
    program_say("--shares %s repeats this run bit for bit%s", shares,
                t->options->resume ? ", if it began with them (its log says so)" : "");
    free(shares);
    return;
  }
  for (int i = 0; i < t->n_changes && i < MOST_CHANGES; i++)
    used += (size_t)snprintf(steps + used, sizeof steps - used, "%s%ld", i ? ", " : "", t->changes[i]);
  program_say("shares changed at step%s %s%s: no --shares repeat this run bit for bit; the last are --shares %s",
              t->n_changes > 1 ? "s" : "", steps, t->n_changes > MOST_CHANGES ? ", ..." : "", shares);
  free(shares);
}

/* Also after a failure, whose trace is wanted. */
static int trace_finish(training *t) {
  cvy_trace_totals totals;
  if (!t->options->trace) return EXIT_DONE;
  const cvy_status status = cvy_team_trace_end(t->team, &totals);
  if (status != CVY_OK) return program_exit_code(status);
  if (totals.left_out > 0)
    program_warn(
        "--trace %s: %ld events written, the last %ld left out, from step %ld on; --trace-events N gives more "
        "room",
        t->options->trace, totals.events, totals.left_out, totals.first_left_out);
  return EXIT_DONE;
}

/* Says where the state of a run is that ended early. */
static void kept_print(const training *t, cvy_status status, const cvy_train_result *result, bool saved) {
  const train_options *const o = t->options;
  const bool kept = o->checkpoint && result->checkpoint_step >= 0;
  const char *const why = status == CVY_E_INTERRUPTED ? "interrupted"
                          : result->state_is_whole    ? "error: no device to go on with"
                                                      : "error: no checkpoint can be written";
  char head[96], older[48] = "";
  if (kept && result->checkpoint_failed) snprintf(older, sizeof older, " of step %ld", result->checkpoint_step);
  snprintf(head, sizeof head, "%s after step %ld", why, result->steps);
  if (!kept && !saved)
    program_say("%s; nothing was saved (%s)", head,
                o->checkpoint || o->save ? "it could not be written" : "no --checkpoint, no --save");
  else
    program_say("%s; %s%s%s%s%s%s%s%s", head, kept ? "checkpoint" : "", older, kept ? " in " : "",
                kept ? o->checkpoint : "", kept ? ", go on with --resume" : "", kept && saved ? "; " : "",
                saved ? "weights in " : "", saved ? o->save : "");
}

/* Says where the files of a completed run are. */
static void saved_print(const training *t, bool plotted) {
  const train_options *const o = t->options;
  const char *const files[] = {o->save,  o->save_best, plotted ? o->plot : NULL, o->report, o->log,
                               o->trace, o->checkpoint};
  const char *between = "saved: ";
  char *text = NULL;
  size_t size;
  FILE *const out = open_memstream(&text, &size);
  for (size_t i = 0; i < sizeof files / sizeof files[0] && out; i++) {
    if (!files[i]) continue;
    fprintf(out, "%s%s", between, files[i]);
    between = ", ";
  }
  if (out) fclose(out);
  if (text && *text && !o->quiet) progress_line("%s", text);
  free(text);
}

/* Says which epoch was the best, and whether the run ended because no better one came. */
static void best_print(const training *t, const cvy_train_result *result) {
  const train_options *const o = t->options;
  if (o->quiet || result->best_epoch < 0) return;
  if (result->out_of_patience)
    program_say("--patience %lld: the run ends after epoch %d, none since epoch %d was better", (long long)o->patience,
                result->epochs_done, result->best_epoch + 1);
  const bool kept = o->save_best && !result->save_best_failed;
  progress_line("best: epoch %d, %s acc %.4f%s%s", result->best_epoch + 1, t->run.data->val.n > 0 ? "val" : "test",
                result->best_acc, kept ? ", weights in " : "", kept ? o->save_best : "");
}

/* After training: saves the files, also after an interruption, and prints the end. */
static int finish(training *t, cvy_status status, const cvy_train_result *result) {
  const train_options *const o = t->options;
  int code = program_exit_code(status);
  if (t->begun && code == EXIT_USAGE)
    code = EXIT_FAILED; /* after the first step: the devices that are left cannot finish the run */
  /* early, with a state: also if nothing but the checkpoint could not be written */
  const bool early =
      status == CVY_E_INTERRUPTED || result->state_is_whole || (status == CVY_E_IO && result->checkpoint_failed);
  bool saved = false;
  if (status == CVY_OK || early) {
    if (status == CVY_OK && result->already_finished) epoch_curve_finished(&t->curve, result->epochs_done);
    const bool saves = o->save && cvy_fleet_writes(t->fleet);
    saved = saves && cvy_team_save(t->team, o->save) == CVY_OK;
    if (saves && !saved) code = EXIT_FAILED;
    if (t->curve.failed || result->save_best_failed) code = EXIT_FAILED;
  }
  if (early && cvy_fleet_writes(t->fleet)) kept_print(t, status, result, saved);
  log_end(t, status, result);
  if (status == CVY_OK) {
    if (result->already_finished && !o->quiet)
      program_say("the run in %s was finished already, after %ld steps", o->checkpoint, result->steps);
    const bool quiet = o->quiet || !cvy_fleet_writes(t->fleet);
    if (!quiet) epoch_curve_print(&t->curve);
    if (!quiet) best_print(t, result);
    if (cvy_fleet_writes(t->fleet)) shares_print(t);
    if (!quiet && !result->already_finished) device_report_print(t->team);
    result_print(t, result);
  }
  return code;
}

static int run_train(training *t) {
  const train_options *const o = t->options;
  const program_file inputs[] = {{"--init-from", o->opened ? NULL : o->init_from},
                                 {0}}; /* weights are the checkpoint's */
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
                                 .quiet = o->quiet || t->fleet};
  cvy_train_result result = {.test_acc = -1, .val_acc = -1, .best_epoch = -1};
  int code = EXIT_DONE;
  if (o->joined) t->fleet = o->joined;
  else code = fleet_meet(&o->fleet, o->quiet, &t->fleet);
  if (code != EXIT_DONE) return code;
  const bool writes = t->writes = cvy_fleet_writes(t->fleet), quiet = o->quiet || !writes;
  if (writes) code = program_check_outputs("train", outputs, inputs);
  if (code == EXIT_DONE && writes) code = run_files_open(o, &t->files);
  if (code != EXIT_DONE) return code;
  progress_start(quiet, (int)o->epochs, (long)o->max_steps);
  wait_line_begin();
  code = program_run_open(&spec, &t->run);
  if (code == EXIT_DONE && o->init_from && !o->opened) {
    cvy_model_facts *facts = NULL;
    int model = o->model;
    code = weights_facts("train", o->init_from, true, &model, &facts);
    cvy_model_facts_free(&facts);
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
    program_say(
        "error: --drop-last: nothing is left of %d training images in batches of %lld; choose --batch %d or less",
        t->run.data->train.n, (long long)o->batch, t->run.data->train.n);
    return EXIT_USAGE;
  }
  if (o->batch > t->run.data->train.n) {
    program_warn("batch %lld is larger than the %d training images: every step takes all of them", (long long)o->batch,
                 t->run.data->train.n);
  }
  code = t->fleet ? OPTIONS_GO_ON : train_options_check_devices(o, cvy_devices_count(t->run.devices), t->labels);
  if (code != OPTIONS_GO_ON) return code;

  cvy_status status = team_open(t);
  if (status != CVY_OK) {
    progress_end();
    return program_exit_code(status);
  }
  t->shares = calloc((size_t)devices_of(t), sizeof *t->shares);
  if (!t->shares) {
    progress_end();
    program_say("error: out of memory");
    return EXIT_FAILED;
  }
  cvy_team_shares(t->team, t->shares);
  if (t->fleet) code = train_options_check_devices(o, cvy_fleet_devices(t->fleet), t->labels);
  if (code != OPTIONS_GO_ON) return code;
  if (writes) say_start(t);
  progress_start(quiet, (int)o->epochs, (long)o->max_steps);
  status = train(t, &result);
  progress_end();
  code = finish(t, status, &result);
  const int traced = trace_finish(t); /* last, since a device may hang at it: the weights are saved by now */
  if (code == EXIT_DONE) code = traced;
  if (t->log) live_report_write(&t->report, NULL, false);
  if (t->report.failed && code == EXIT_DONE) code = EXIT_FAILED;
  if ((!json_log_close(&t->log) || t->log_failed) && code == EXIT_DONE) code = EXIT_FAILED;
  if (code == EXIT_DONE && writes) saved_print(t, t->curve.n > 0);
  return code;
}

int cmd_train(int argc, char **argv) {
  static train_options options; /* large lists: not on the stack */
  int code = train_options_parse(argc, argv, &options);
  if (code != OPTIONS_GO_ON) {
    cvy_fleet_close(&options.joined);
    return code;
  }
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  training t = {.options = &options,
                .files = {.log = -1, .trace = -1},
                .start_ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec};
  signals_text("\nconvoy: interrupted before the first step; nothing was saved\n");
  code = run_train(&t);
  progress_wait_end();
  cvy_team_destroy(&t.team);
  cvy_fleet_close(&t.fleet);
  program_run_close(&t.run);
  json_log_close(&t.log);
  run_files_close(&options, &t.files);
  cvy_checkpoint_close(&options.opened);
  free(t.shares);
  epoch_curve_close(&t.curve);
  live_report_close(&t.report);
  free(t.labels);
  return code;
}
