/* SPDX-License-Identifier: MIT
 * Progress of a run on stderr. On a terminal whose TERM is set and not "dumb": a bar, redrawn at most ten times a
 * second; else plain lines. One per process; the library may log from any thread. Devices: status_lines.h. */
#ifndef CVY_TOOLS_PROGRAM_VIEW_PROGRESS_H
#define CVY_TOOLS_PROGRAM_VIEW_PROGRESS_H

#include <stdbool.h>
#include <stddef.h>

#include "convoy/train.h"

/* Until this call, and with `quiet`, only progress_message prints. */
void progress_start(bool quiet, int epochs, long max_steps);
/* Shows the work before the first step: on a terminal until the next drawing, else as a line. */
void progress_status(const char *text);
/* The same, but only on a terminal; at most ten times a second. */
void progress_transient(const char *text);
/* From now until progress_wait_end, on a terminal: a thread redraws a line five times a second; `describe` makes the
 * line from the elapsed seconds. For long work without messages. */
typedef void (*progress_describe_fn)(void *user, double seconds, char *out, size_t out_bytes);
void progress_wait_begin(progress_describe_fn describe, void *user);
void progress_wait_end(void);
/* Columns of stderr's terminal, 80 without a terminal. */
int progress_columns(void);
/* A step is done. `ms`: since the previous one. A process's first step does not count in the rate. */
void progress_step(int epoch, long step, long steps_per_epoch, double loss, int images, double ms, bool evaluates);
/* An epoch is done: "epoch 3/10 loss 0.41 train acc 0.86 test acc 0.87 13.4 s", without accuracies that are not
 * known. */
void progress_epoch(const cvy_epoch_result *epoch);
/* A device's figures beside the bar. */
typedef struct progress_device {
  const char *label; /* borrowed until the program ends */
  int share;
  double images_per_second;
  double idle; /* fraction of time without computing, negative: not known */
} progress_device;
/* Sets the n devices under the bar (0: none); a single one has its figures in the bar. Without a terminal
 * progress_epoch lists them. Copied. */
void progress_devices(const progress_device *devices, int n);
/* Removes the bar. */
void progress_end(void);
/* True between start and end, unless quiet. Any thread. */
bool progress_talks(void);
/* Prints a permanent line above the bar. */
void progress_line(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Waits until the terminal has accepted all lines, at most `most_ms`; negative: no limit. Other calls do not wait for
 * the terminal: text is buffered (terminal.h). */
void progress_await_terminal(int most_ms);
/* "convoy: " kind message, without breaking the bar. Any thread. */
void progress_message(const char *kind, const char *message);

/* Small plot of accuracies y[i] over x[i] (epochs, from 1), for a text terminal; nothing with fewer than two points. */
void progress_curve(const char *title, const long *x, const double *y, int n);
/* Sets the curve that a terminal with enough room shows under the bar, beside the loss by step. Copied. */
void progress_curve_show(const char *title, const long *x, const double *y, int n);

#endif
