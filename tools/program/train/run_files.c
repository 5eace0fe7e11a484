/* SPDX-License-Identifier: MIT */
#include "tools/program/train/run_files.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/program/program_common.h"
#include "tools/program/signals.h"

/* Opens --log or --trace, which grow during the run, and locks it: two runs would mix their lines. */
static int open_growing(const char *option, const char *path, int *fd, bool *made, cvy_file_lock **lock) {
  const char *why;
  *fd = cvy_file_append(path, made, &why);
  if (*fd < 0) return program_output_refused("train", option, path, why);
  if (cvy_file_kind_of(path) != CVY_FILE_REGULAR) return EXIT_DONE;
  return program_exit_code(cvy_file_lock_take(option, path, lock));
}

static int open_folder(const char *path, run_files *files) {
  char inside[4096];
  const char *why;
  const cvy_status status = cvy_make_dirs(path, &files->folders_made);
  if (status != CVY_OK) return program_output_refused("train", "--checkpoint", path, "it cannot be created");
  /* as long as the longest name of a checkpoint */
  if (snprintf(inside, sizeof inside, "%s/step-0000000000.safetensors", path) >= (int)sizeof inside)
    return program_output_refused("train", "--checkpoint", path, "the path is too long");
  if (!cvy_file_exists(inside) && !cvy_file_try(inside, &why))
    return program_output_refused("train", "--checkpoint", path, why);
  return program_exit_code(cvy_file_lock_take("--checkpoint", path, &files->folder_lock));
}

/* Removes a file that this run created and did not write to. */
static void remove_empty(const char *path, bool made) {
  struct stat info;
  if (made && stat(path, &info) == 0 && S_ISREG(info.st_mode) && info.st_size == 0) unlink(path);
}

static void remove_unused(const train_options *o, const run_files *files) {
  remove_empty(o->log, files->log_made);
  remove_empty(o->trace, files->trace_made);
  if (files->folders_made) cvy_remove_dirs(o->checkpoint, files->folders_made);
}

/* For the signal handler: the files of the run. */
static const train_options *volatile run_options;
static const run_files *volatile run_opened;
static void remove_unused_at_end(void) {
  if (run_opened) remove_unused(run_options, run_opened);
}

static int open_all(const train_options *o, run_files *out) {
  const program_file files[] = {{"--save", o->save}, {"--save-best", o->save_best},
                                {"--plot", o->plot}, {"--report", o->report},
                                {"--log", o->log},   {"--trace", o->trace}};
  for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
    if (files[i].path && o->checkpoint && cvy_file_is_in(files[i].path, o->checkpoint, "step-"))
      return options_error("train",
                           "%s %s: names that begin with step- in --checkpoint %s are reserved for checkpoints; "
                           "expected another name",
                           files[i].option, files[i].path, o->checkpoint);
  }
  int code = program_try_output("train", "--save", o->save, false);
  if (code == EXIT_DONE) code = program_try_output("train", "--save-best", o->save_best, false);
  if (code == EXIT_DONE) code = program_try_output("train", "--plot", o->plot, false);
  if (code == EXIT_DONE) code = program_try_output("train", "--report", o->report, false);
  if (code == EXIT_DONE && o->log) {
    if (strcmp(o->log, "-") == 0) return program_try_output("train", "--log", o->log, false);
    code = open_growing("--log", o->log, &out->log, &out->log_made, &out->log_lock);
  }
  if (code == EXIT_DONE && o->trace) {
    if (strcmp(o->trace, "-") == 0) return program_try_output("train", "--trace", o->trace, false);
    code = open_growing("--trace", o->trace, &out->trace, &out->trace_made, &out->trace_lock);
  }
  if (code == EXIT_DONE && o->checkpoint) code = open_folder(o->checkpoint, out);
  return code;
}

int run_files_open(const train_options *o, run_files *out) {
  *out = (run_files){.log = -1, .trace = -1};
  signals_hold(true);
  const int code = open_all(o, out);
  run_options = o;
  run_opened = out;
  signals_before_end(remove_unused_at_end);
  signals_hold(false);
  return code;
}

void run_files_close(const train_options *o, run_files *files) {
  if (files->log >= 0) close(files->log);
  if (files->trace >= 0) close(files->trace);
  signals_before_end(NULL);
  remove_unused(o, files);
  cvy_file_lock_release(&files->log_lock);
  cvy_file_lock_release(&files->trace_lock);
  cvy_file_lock_release(&files->folder_lock);
}
