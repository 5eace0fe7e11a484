/* SPDX-License-Identifier: MIT
 * What the user sees on stderr while a run goes on: a bar that is redrawn at most ten times a second on a terminal
 * whose TERM is neither missing nor "dumb", plain lines else. One per process; messages of the library may come from
 * any thread. Devices: status_lines.h. */
#ifndef CVY_TOOLS_PROGRESS_H
#define CVY_TOOLS_PROGRESS_H

#include <stdbool.h>
#include <stddef.h>

/* Before this, and with `quiet`, only progress_message prints. */
void progress_start(bool quiet, int epochs, long max_steps);
/* What goes on while there are no steps yet; gone with the next drawing on a terminal, a line else. */
void progress_status(const char *text);
/* The same, but only on a terminal; at most ten times a second. */
void progress_transient(const char *text);
/* From now until progress_wait_end, on a terminal: a line that a thread of its own renews five times a second,
 * `describe`d from the seconds since. For what is silent for long. */
typedef void (*progress_describe_fn)(void *user, double seconds, char *out, size_t out_bytes);
void progress_wait_begin(progress_describe_fn describe, void *user);
void progress_wait_end(void);
/* Columns of the terminal that stderr is, 80 where it is none. */
int progress_columns(void);
/* A step is done. `ms`: since the one before. The first one of a process says nothing of how fast the others are. */
void progress_step(int epoch, long step, long steps_per_epoch, double loss, int images, double ms, bool evaluates);
/* An epoch is done: "epoch 3/10 loss 0.41 test acc 0.87 13.4 s"; test_acc < 0: not evaluated. */
void progress_epoch(int epoch, double loss, double test_acc, double seconds);
/* What is shown of a device beside the bar. */
typedef struct progress_device {
  const char *label; /* borrowed, as long as the program talks */
  int share;
  double images_per_second;
  double idle; /* part of the time in which it does not compute, negative: not known */
} progress_device;
/* From now on the bar has these n devices under it (0: none); one alone is told of in the bar. Where there is no
 * terminal progress_epoch lists them. Copied. */
void progress_devices(const progress_device *devices, int n);
/* Takes the bar away. */
void progress_end(void);
/* Between start and end, and not quiet. Any thread. */
bool progress_talks(void);
/* A line of its own that stays, without breaking the bar. */
void progress_line(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Waits until the terminal has taken all lines, at most so long; negative: as long as that takes. What it does not take
 * at once waits otherwise, and training does not (screen.h). */
void progress_await_terminal(int most_ms);
/* "convoy: " kind message, without breaking the bar. Any thread. */
void progress_message(const char *kind, const char *message);

/* Small plot of accuracies y[i] over x[i] (epochs, from 1), for a text terminal; nothing with fewer than two points. */
void progress_curve(const char *title, const int *x, const double *y, int n);

#endif
