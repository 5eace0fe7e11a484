/* SPDX-License-Identifier: MIT
 * The output files of a training run. They are checked and locked before any work; at the end, files that the run
 * created and did not write to are removed. */
#ifndef CVY_TOOLS_PROGRAM_TRAIN_RUN_FILES_H
#define CVY_TOOLS_PROGRAM_TRAIN_RUN_FILES_H

#include "src/base/file.h"
#include "tools/program/options/train_options.h"

typedef struct run_files {
  int log;                   /* descriptor of --log until the log is begun, -1: none */
  int trace;                 /* of --trace, so that a pipe's reader sees no end before the trace is written; -1: none */
  bool log_made, trace_made; /* created by this run */
  int folders_made;          /* of --checkpoint */
  cvy_file_lock *log_lock, *trace_lock, *folder_lock;
} run_files;

/* EXIT_DONE, or the exit status, with the reason printed; call run_files_close either way. */
int run_files_open(const train_options *options, run_files *out);
void run_files_close(const train_options *options, run_files *files);

#endif
