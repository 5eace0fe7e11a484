/* SPDX-License-Identifier: MIT
 * State of a run of `convoy train`: cmd_train.c drives it, train_log.c logs it, run_summary.c prints its start and
 * end. */
#ifndef CVY_TOOLS_PROGRAM_TRAIN_TRAINING_H
#define CVY_TOOLS_PROGRAM_TRAIN_TRAINING_H

#include "tools/program/view/device_report.h"
#include "tools/program/view/epoch_curve.h"
#include "tools/program/log/json_log.h"
#include "tools/program/program_common.h"
#include "tools/program/view/report_html.h"
#include "tools/program/train/run_files.h"
#include "tools/program/options/train_options.h"

enum { MOST_CHANGES = 16 };

typedef struct training {
  const train_options *options;
  program_run run;  /* borrowed: the runs of a sweep share it */
  cvy_fleet *fleet; /* NULL: this machine alone */
  cvy_team *team;
  run_files files;
  json_log *log;                     /* of a process that does not write: lines held back */
  device_watch *watch, *epoch_watch; /* of the last moments; since the epoch's start */
  char *labels;
  cvy_status status; /* of cvy_train */
  cvy_train_result result;
  epoch_curve curve;
  live_report report;
  bool log_failed, begun;     /* begun: this process has finished a step */
  bool saved;                 /* --save has written the weights of the last step */
  bool writes;                /* this process prints and writes files */
  long changes[MOST_CHANGES]; /* first steps with other shares, of --split auto */
  int n_changes;
  int most_images;   /* of a step so far: an epoch's last one may have fewer */
  int *shares;       /* as chosen, one per device of the run; they differ after a device was lost */
  uint64_t built_ns; /* compile time before it began */
  uint64_t start_ns; /* CLOCK_MONOTONIC, close to the start of the process */
} training;

/* Devices of the run: of all nodes of a fleet. */
static inline int train_devices(const training *t) {
  return t->fleet ? cvy_fleet_devices(t->fleet) : cvy_devices_count(t->run.devices);
}

/* ---- the log (train_log.c) ---- */

/* Begins the log with the first event of the run, so that a refused run does not change an older log. A process that
 * has become the head continues the log of the lost node with the missing lines. */
void train_log_begin(training *t);
void train_log_device_lost(training *t, const cvy_lost_device *lost);
void train_log_node_lost(training *t, const cvy_lost_node *lost);
/* For a run that ended while its devices were prepared: the log holds only the error. */
void train_log_not_begun(training *t, cvy_status status);
void train_log_end(training *t, cvy_status status, const cvy_train_result *result);
/* Seconds of compiling kernels in this run; start_seconds: cvy_train_result's. */
double train_compile_seconds(const training *t, double start_seconds);

/* ---- messages (run_summary.c) ---- */

void train_say_start(const training *t);
/* Prints that running values of batch normalisation were recomputed. */
void train_say_precise_bn(const training *t, const cvy_train_result *result);
/* The result line. */
void train_say_result(const training *t, const cvy_train_result *result);
/* "--shares 300,212": the option that repeats a run of --split auto. */
void train_say_shares(const training *t);
/* Prints where the state of a run that ended early was saved. */
void train_say_kept(const training *t, cvy_status status, const cvy_train_result *result, bool saved);
/* Prints the files of a completed run. */
void train_say_saved(const training *t, bool plotted);
/* Prints the best epoch, and whether --patience ended the run. */
void train_say_best(const training *t, const cvy_train_result *result);

#endif
