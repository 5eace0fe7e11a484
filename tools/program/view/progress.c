/* SPDX-License-Identifier: MIT */
#include "tools/program/view/progress.h"

#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "src/base/env.h"
#include "src/base/text.h"
#include "tools/program/view/terminal.h"
#include "tools/program/signals.h"
#include "tools/program/view/status_lines.h"
#include "tools/program/view/text_curve.h"

enum { LOSSES = 64, LIVE_ROWS = 5, LIVE_COLUMNS = 28, LIVE_LINES = LIVE_ROWS + TEXT_CURVE_MORE };
enum {
  CURVE_COLUMNS = 20,
  CURVE_ROWS = 8,
  CURVE_SPARE = 4,
  BAR_MOST = 30,
  LINE_MOST = 320,
  DEVICE_LINES = 8,
  WAIT_NS = 200000000
};
static const double redraw_seconds = 0.1, plain_seconds = 30, rate_memory_ms = 10e3;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
  bool on, terminal;
  int drawn, sizes[1 + STATUS_LINES_MOST]; /* lines and the columns of each, the cursor is on the last */
  int epochs;
  long max_steps, in_epoch, steps_per_epoch;
  double last;                                /* time of the last drawing, seconds */
  long steps;                                 /* of this process */
  double sum_ms, sum_images, sum_steps, loss; /* decaying sums: the last ten seconds count most */
  progress_device *devices;
  int n_devices;
  /* the loss since the process began: means of `losses_per` steps each, which doubles when the array is full */
  struct {
    double sum[LOSSES];
    long n[LOSSES], last_step[LOSSES];
    long per;
    int used;
  } losses;
  text_curve accuracy; /* n 0: none yet */
} state;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int progress_columns(void) {
  struct winsize size;
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

static int rows(void) {
  struct winsize size;
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 0 ? size.ws_row : 24;
}

/* Moves the cursor to the beginning of the first drawn line. A terminal that became narrower has wrapped lines. */
static void go_up(void) {
  const int width = progress_columns();
  int up = -1;
  for (int i = 0; i < state.drawn; i++) up += state.sizes[i] > width ? (state.sizes[i] + width - 1) / width : 1;
  terminal_add("\r");
  if (up > 0) terminal_add("\033[%dA", up);
}

/* A signal handler has printed below the drawing, which is not redrawn then. */
static void leave_to_signals(void) {
  if (signals_told()) state.drawn = 0;
}

/* Clears the drawing; the next text replaces it. */
static void wipe(void) {
  leave_to_signals();
  if (state.drawn) {
    go_up();
    terminal_add("\033[J");
  }
  const long lost = terminal_lost();
  if (lost > 0) terminal_add("convoy: %ld lines were dropped while the terminal accepted no output\n", lost);
}

/* Sends the added lines, which are permanent. */
static void send_lines(void) {
  if (terminal_send(false)) state.drawn = 0;
}

/* Draws a line and others under it, cut to the terminal's width, until the next drawing. */
static void draw_lines(const char *text, const status_lines *under) {
  const int width = progress_columns() - 1, n = under ? under->n : 0, size = (int)strlen(text);
  leave_to_signals();
  go_up();
  terminal_add("%.*s\033[K", width > 0 ? width : 0, text);
  for (int i = 0; i < n; i++) terminal_add("\n%s\033[K", under->text[i]);
  terminal_add("\033[J");
  if (!terminal_send(true)) return;
  state.drawn = 1 + n;
  state.sizes[0] = size < width ? size : width;
  for (int i = 0; i < n; i++) state.sizes[1 + i] = (int)strlen(under->text[i]);
}

static void draw(const char *text) { draw_lines(text, NULL); }

/* True if stderr understands escape sequences. */
static bool is_terminal(void) {
  const char *const kind = cvy_env_text(CVY_ENV_TERM);
  return isatty(STDERR_FILENO) && kind && strcmp(kind, "dumb") != 0;
}

void progress_start(bool quiet, int epochs, long max_steps) {
  pthread_mutex_lock(&lock);
  state.on = !quiet;
  state.terminal = is_terminal();
  state.epochs = epochs;
  state.max_steps = max_steps;
  state.last = now();
  pthread_mutex_unlock(&lock);
}

/* The text may come from outside. */
static void add_plain(const char *text) {
  char one[CVY_PLAIN_MOST];
  for (size_t n; (n = cvy_plain_next(text, "\n\t", one)) > 0; text += n) terminal_add("%s", one);
}

void progress_status(const char *text) {
  pthread_mutex_lock(&lock);
  if (state.on && state.terminal) draw(text);
  else if (state.on) {
    add_plain(text);
    terminal_add("\n");
    send_lines();
  }
  pthread_mutex_unlock(&lock);
}

void progress_transient(const char *text) {
  pthread_mutex_lock(&lock);
  const double t = now();
  if (state.on && state.terminal && t - state.last >= redraw_seconds) {
    draw(text);
    state.last = t;
  }
  pthread_mutex_unlock(&lock);
}

/* ---- waits ---- */

static struct {
  pthread_t thread;
  pthread_cond_t ended; /* with CLOCK_MONOTONIC */
  bool runs, stop;
  progress_describe_fn describe;
  void *user;
  double begin;
} waiting;

static void *wait_thread(void *unused) {
  (void)unused;
  char line[LINE_MOST];
  struct timespec next;
  clock_gettime(CLOCK_MONOTONIC, &next);
  pthread_setname_np(pthread_self(), "cvy-status");
  pthread_mutex_lock(&lock);
  while (!waiting.stop) {
    next.tv_nsec += WAIT_NS;
    if (next.tv_nsec >= 1000000000) next.tv_sec++, next.tv_nsec -= 1000000000;
    if (pthread_cond_timedwait(&waiting.ended, &lock, &next) == 0 || waiting.stop) continue;
    waiting.describe(waiting.user, now() - waiting.begin, line, sizeof line);
    if (state.on) draw(line);
  }
  pthread_mutex_unlock(&lock);
  return NULL;
}

void progress_wait_begin(progress_describe_fn describe, void *user) {
  if (waiting.runs || !state.on || !state.terminal) return;
  pthread_condattr_t monotonic;
  sigset_t all, before;
  waiting.describe = describe;
  waiting.user = user;
  waiting.begin = now();
  waiting.stop = false;
  pthread_condattr_init(&monotonic);
  pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
  pthread_cond_init(&waiting.ended, &monotonic);
  pthread_condattr_destroy(&monotonic);
  sigfillset(&all); /* the main thread handles signals */
  pthread_sigmask(SIG_SETMASK, &all, &before);
  waiting.runs = pthread_create(&waiting.thread, NULL, wait_thread, NULL) == 0;
  pthread_sigmask(SIG_SETMASK, &before, NULL);
}

void progress_wait_end(void) {
  if (!waiting.runs) return;
  pthread_mutex_lock(&lock);
  waiting.stop = true;
  pthread_cond_signal(&waiting.ended);
  pthread_mutex_unlock(&lock);
  pthread_join(waiting.thread, NULL);
  pthread_cond_destroy(&waiting.ended);
  waiting.runs = false;
}

/* ---- steps ---- */

/* The text after the bar, or its first figures that fit into `room` columns. */
static void make_tail(char *out, size_t out_bytes, int room, const char *end) {
  char rate[32] = "", idle[24] = "";
  if (state.steps > 1 && state.sum_ms > 0)
    snprintf(rate, sizeof rate, "  %.0f img/s", state.sum_images / state.sum_ms * 1e3);
  if (state.n_devices == 1 && state.devices[0].idle >= 0)
    snprintf(idle, sizeof idle, "  idle %.0f %%", 100 * state.devices[0].idle);
  for (int less = 0; less < 3; less++) {
    const int size =
        snprintf(out, out_bytes, " loss %.3f%s%s%s", state.loss, less < 2 ? rate : "", less < 1 ? idle : "", end);
    if (size <= room) return;
  }
}

static void duration(double seconds, char *out, size_t out_bytes) {
  const long s = seconds < 1e9 ? lround(seconds) : 0;
  if (s >= 3600) snprintf(out, out_bytes, "%ld:%02ld:%02ld", s / 3600, s / 60 % 60, s % 60);
  else snprintf(out, out_bytes, "%ld:%02ld", s / 60, s % 60);
}

static void note_loss(long step, double loss) {
  if (!isfinite(loss)) return;
  if (state.losses.per == 0) state.losses.per = 1;
  int at = state.losses.used - 1;
  if (at < 0 || state.losses.n[at] == state.losses.per) {
    if (state.losses.used == LOSSES) {
      for (int i = 0; i < LOSSES / 2; i++) {
        state.losses.sum[i] = state.losses.sum[2 * i] + state.losses.sum[2 * i + 1];
        state.losses.n[i] = state.losses.n[2 * i] + state.losses.n[2 * i + 1];
        state.losses.last_step[i] = state.losses.last_step[2 * i + 1];
      }
      state.losses.used = LOSSES / 2;
      state.losses.per *= 2;
    }
    at = state.losses.used++;
    state.losses.sum[at] = 0;
    state.losses.n[at] = 0;
  }
  state.losses.sum[at] += loss;
  state.losses.n[at]++;
  state.losses.last_step[at] = step + 1;
}

/* The curves under the bar: the loss by step, and beside it the accuracy by epoch. */
static void add_curves(int width, status_lines *out) {
  text_curve loss;
  long x[LOSSES];
  double y[LOSSES];
  const bool both = state.accuracy.n > 0 && width >= 2 * (TEXT_CURVE_MARGIN + LIVE_COLUMNS) + 8;
  for (int i = 0; i < state.losses.used; i++) {
    x[i] = state.losses.last_step[i];
    y[i] = state.losses.sum[i] / (double)state.losses.n[i];
  }
  const text_curve_spec spec = {.title = "loss",
                                .x_name = "step",
                                .x = x,
                                .y = y,
                                .n = state.losses.used,
                                .rows = LIVE_ROWS,
                                .columns = LIVE_COLUMNS,
                                .highest = INFINITY};
  const bool has_loss = text_curve_make(&spec, &loss);
  if (!has_loss && state.accuracy.n == 0) return;
  for (int i = 0; i < LIVE_LINES && out->n < STATUS_LINES_MOST; i++) {
    char line[2 * sizeof loss.text[0] + 8];
    if (both && has_loss)
      snprintf(line, sizeof line, "%-*s   %s", TEXT_CURVE_MARGIN + LIVE_COLUMNS + 5, loss.text[i],
               state.accuracy.text[i]);
    else snprintf(line, sizeof line, "%s", state.accuracy.n > 0 ? state.accuracy.text[i] : loss.text[i]);
    snprintf(out->text[out->n++], sizeof out->text[0], "%.*s", width, line);
  }
}

void progress_step(int epoch, long step, long steps_per_epoch, double loss, int images, double ms, bool evaluates) {
  pthread_mutex_lock(&lock);
  /* from the second step on without the first, whose launches compile kernels */
  const double keep = state.steps > 1 ? exp(-ms / rate_memory_ms) : 0,
               weight = state.steps > 0 && isfinite(state.loss) ? 0.9 : 0;
  state.steps++;
  state.sum_ms = state.sum_ms * keep + ms;
  state.sum_images = state.sum_images * keep + images;
  state.sum_steps = state.sum_steps * keep + 1;
  state.loss = weight * (weight > 0 ? state.loss : 0) + (1 - weight) * loss;
  note_loss(step, loss);
  const double t = now();
  const long in_epoch = step - epoch * steps_per_epoch + 1;
  state.in_epoch = in_epoch;
  state.steps_per_epoch = steps_per_epoch;
  const bool epoch_ends = in_epoch >= steps_per_epoch;
  if (state.on && steps_per_epoch > 0 &&
      (state.terminal ? t - state.last >= redraw_seconds || epoch_ends : t - state.last >= plain_seconds)) {
    long all = (long)state.epochs * steps_per_epoch;
    char eta[32], end[48] = "", tail[128], head[64], line[LINE_MOST];
    if (state.max_steps > 0 && state.max_steps < all) all = state.max_steps;
    const long left = all > step + 1 ? all - step - 1 : 0;
    duration((double)left * state.sum_ms / state.sum_steps * 1e-3, eta, sizeof eta);
    if (epoch_ends && evaluates) snprintf(end, sizeof end, "  evaluating");
    else if (state.steps > 1) snprintf(end, sizeof end, "  ETA %s", eta);
    const int head_size = snprintf(head, sizeof head, "epoch %d/%d ", epoch + 1, state.epochs);
    const int width = progress_columns() - 1;
    make_tail(tail, sizeof tail, state.terminal ? width - head_size - 5 : (int)sizeof tail, end);
    if (state.terminal) {
      const int room = width - head_size - 8 - (int)strlen(tail);
      const int bar = room > BAR_MOST ? BAR_MOST : room;
      const int done = bar > 0 ? (int)((double)bar * (double)in_epoch / (double)steps_per_epoch) : 0;
      const int percent = (int)(100 * in_epoch / steps_per_epoch);
      if (bar >= 8) {
        snprintf(line, sizeof line, "%s[%.*s%.*s] %3d %%%s", head, done, "##############################", bar - done,
                 "..............................", percent, tail);
      } else {
        snprintf(line, sizeof line, "%s%3d %%%s", head, percent, tail);
      }
      status_lines under;
      status_lines_make(state.devices, state.n_devices > 1 ? state.n_devices : 0, width,
                        rows() - 2 < DEVICE_LINES ? rows() - 2 : DEVICE_LINES, &under);
      if (rows() - 2 - under.n >= LIVE_LINES + CURVE_SPARE) add_curves(width, &under);
      draw_lines(line, &under);
    } else {
      terminal_add("%sstep %ld/%ld%s\n", head, in_epoch, steps_per_epoch, tail);
      send_lines();
    }
    state.last = t;
  }
  pthread_mutex_unlock(&lock);
}

void progress_epoch(const cvy_epoch_result *e) {
  pthread_mutex_lock(&lock);
  if (state.on) {
    wipe();
    terminal_add("epoch %d/%d loss %.2f", e->epoch + 1, state.epochs, e->train_loss);
    if (e->train_acc >= 0) terminal_add(" train acc %.2f", e->train_acc);
    if (e->val_acc >= 0) terminal_add(" val acc %.2f", e->val_acc);
    if (e->test_acc >= 0) terminal_add(" test acc %.2f", e->test_acc);
    terminal_add(" %.1f s", e->seconds);
    if (e->best) terminal_add(" best");
    if (state.in_epoch < state.steps_per_epoch) {
      terminal_add(" (%ld of %ld steps)", state.in_epoch, state.steps_per_epoch);
    }
    terminal_add("\n");
    for (int i = 0; i < state.n_devices && state.n_devices > 1 && !state.terminal; i++) {
      const progress_device *const d = &state.devices[i];
      terminal_add("  %s: %d images, %.0f img/s", d->label, d->share, d->images_per_second);
      if (d->idle >= 0) terminal_add(", idle %.0f %%", 100 * d->idle);
      terminal_add("\n");
    }
    send_lines();
    state.last = now();
  }
  pthread_mutex_unlock(&lock);
}

void progress_devices(const progress_device *devices, int n) {
  pthread_mutex_lock(&lock);
  if (n != state.n_devices) {
    free(state.devices);
    state.devices = n > 0 ? malloc((size_t)n * sizeof *state.devices) : NULL;
    state.n_devices = state.devices ? n : 0;
  }
  if (state.n_devices > 0) memcpy(state.devices, devices, (size_t)n * sizeof *devices);
  pthread_mutex_unlock(&lock);
}

void progress_end(void) {
  pthread_mutex_lock(&lock);
  wipe();
  send_lines();
  free(state.devices);
  state.devices = NULL;
  state.n_devices = 0;
  state.on = false;
  pthread_mutex_unlock(&lock);
}

bool progress_talks(void) {
  pthread_mutex_lock(&lock);
  const bool on = state.on;
  pthread_mutex_unlock(&lock);
  return on;
}

void progress_line(const char *format, ...) {
  va_list args;
  char *text = NULL;
  va_start(args, format);
  if (vasprintf(&text, format, args) < 0) text = NULL;
  va_end(args);
  pthread_mutex_lock(&lock);
  wipe();
  add_plain(text ? text : "(out of memory)");
  terminal_add("\n");
  send_lines();
  pthread_mutex_unlock(&lock);
  free(text);
}

void progress_message(const char *kind, const char *message) {
  pthread_mutex_lock(&lock);
  wipe();
  terminal_add("convoy: ");
  add_plain(kind);
  add_plain(message);
  terminal_add("\n");
  send_lines();
  pthread_mutex_unlock(&lock);
}

void progress_await_terminal(int most_ms) {
  pthread_mutex_lock(&lock);
  terminal_wait(most_ms);
  pthread_mutex_unlock(&lock);
}

static text_curve_spec accuracy_spec(const char *title, const long *x, const double *y, int n, int rows, int columns) {
  return (text_curve_spec){
      .title = title, .x_name = "epoch", .x = x, .y = y, .n = n, .rows = rows, .columns = columns, .highest = 1};
}

void progress_curve(const char *title, const long *x, const double *y, int n) {
  text_curve curve;
  const text_curve_spec spec = accuracy_spec(title, x, y, n, CURVE_ROWS, CURVE_COLUMNS);
  text_curve_make(&spec, &curve);
  for (int i = 0; i < curve.n; i++) progress_line("%s", curve.text[i]);
}

void progress_curve_show(const char *title, const long *x, const double *y, int n) {
  const text_curve_spec spec = accuracy_spec(title, x, y, n, LIVE_ROWS, LIVE_COLUMNS);
  pthread_mutex_lock(&lock);
  text_curve_make(&spec, &state.accuracy);
  pthread_mutex_unlock(&lock);
}
