/* SPDX-License-Identifier: MIT
 * A sweep: several values of --lr and --seed, one run after the other, and a table at the end. A run of a sweep is the
 * command line followed by its own --lr and --seed, with its own names of files: "-lr0.05-seed0" before the extension
 * of a file's name or at the end of a folder's. Started alone, the same run gives the same bits. */
#ifndef CVY_TOOLS_PROGRAM_TRAIN_TRAIN_SWEEP_H
#define CVY_TOOLS_PROGRAM_TRAIN_TRAIN_SWEEP_H

#include "tools/program/options/train_options.h"

/* Result of a run; accuracies < 0: none; other numbers NaN: not known. */
typedef struct sweep_outcome {
  cvy_status status;
  bool finished_before; /* --resume found it finished */
  long steps;
  double test_acc, best_val_acc, loss, seconds;
} sweep_outcome;

/* Does one run; EXIT_DONE or its exit status. */
typedef int (*sweep_run_fn)(train_options *options, void *user, sweep_outcome *out);

/* All runs, by rates and then by seeds, in the order in which they are given. `options` holds those of argv, and then
 * of each run. Returns the exit status of the run that ended the sweep; a run that diverges does not end it. */
int train_sweep(int argc, char **argv, train_options *options, sweep_run_fn run, void *user);

#endif
