/* SPDX-License-Identifier: MIT
 * A run as its log (json_log.h) tells it: for reports. A run that was resumed is one run: a step or epoch that comes
 * again takes the place of the earlier one and of all behind that. No line is trusted: the reader counts lines that it
 * cannot read, as the half last one of a killed run, and leaves them out. */
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
  char *name; /* for people; owned */
  log_step *steps;
  log_epoch *epochs;
  size_t n_steps, n_epochs, steps_room, epochs_room;
  int n_parts;    /* how often it was begun or resumed */
  long n_skipped; /* lines that are no log's */
  bool no_memory;
  json_t *run, *shares, *times, *end, *error, *lost; /* the newest of each, NULL: none; lost: an array of all */
} run_log;

/* Call run_log_close either way. False when out of memory. */
bool run_log_open(const char *name, run_log *out);
void run_log_close(run_log *log);
/* Takes one line in; borrowed. False: it is no line of a log. */
bool run_log_take(run_log *log, const json_t *line);
/* Takes `size` bytes of a file in. */
void run_log_read(run_log *log, const char *text, size_t size);
/* The same with a plain file. CVY_E_IO with the reason said. */
cvy_status run_log_load(run_log *log, const char *path);
/* A setting of the run as text, "" if it is not known; `room` may be returned. */
const char *run_log_setting(const run_log *log, const char *name, char *room, size_t room_bytes);

#endif
