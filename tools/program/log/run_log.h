/* SPDX-License-Identifier: MIT
 * A run read from its log (json_log.h), for reports. A resumed run is one run: a repeated step or epoch replaces the
 * earlier one and all after it. Lines are not trusted: the reader counts and skips lines that it cannot read, such as
 * the incomplete last line of a killed run. */
#ifndef CVY_TOOLS_PROGRAM_LOG_RUN_LOG_H
#define CVY_TOOLS_PROGRAM_LOG_RUN_LOG_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "convoy/status.h"

typedef struct log_step {
  long step;
  int epoch;
  double loss, lr, ms, grad_norm; /* NaN: not known or not finite */
  long images, correct;
} log_step;

typedef struct log_epoch {
  int epoch;                                            /* from 0 */
  double train_loss, train_acc, val_acc, test_acc, sec; /* NaN: not known */
  bool best;
} log_epoch;

typedef struct run_log {
  char *name; /* for display; owned */
  log_step *steps;
  log_epoch *epochs;
  size_t n_steps, n_epochs, steps_room, epochs_room;
  int n_parts;    /* number of starts and resumes */
  long n_skipped; /* lines that could not be read */
  bool no_memory;
  json_t *run, *shares, *times, *end, *error, *lost; /* the newest of each, NULL: none; lost: an array of all */
} run_log;

/* Call run_log_close either way. False when out of memory. */
bool run_log_open(const char *name, run_log *out);
void run_log_close(run_log *log);
/* Adds one line; borrowed. False: not a line of a log. */
bool run_log_take(run_log *log, const json_t *line);
/* Adds `size` bytes of a file. */
void run_log_read(run_log *log, const char *text, size_t size);
/* The same with a regular file. CVY_E_IO, with the reason logged. */
cvy_status run_log_load(run_log *log, const char *path);
/* A setting of the run as text, "" if it is not known; `room` may be returned. */
const char *run_log_setting(const run_log *log, const char *name, char *room, size_t room_bytes);

#endif
