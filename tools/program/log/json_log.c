/* SPDX-License-Identifier: MIT */
#include "tools/program/log/json_log.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/file.h"
#include "tools/program/messages.h"

struct json_log {
  FILE *file; /* NULL: the lines are for the report alone, or held */
  const char *path;
  bool failed;
  run_log *report; /* NULL: none */
  json_t *held;    /* the newest lines, at most MOST_HELD; NULL: lines are not held */
};

enum {
  MOST_HELD = 8,       /* most lines that a log lacks: of the steps under way, CVY_RUN_AHEAD_MOST + 1 */
  TAIL_BYTES = 1 << 18 /* of a file: longer than these lines */
};

json_t *json_number(double value) { return isfinite(value) ? json_real(value) : json_null(); }

/* True if the last line of the file is incomplete: a run was killed. */
static bool last_line_is_cut(const char *path) {
  int fd;
  char last;
  struct stat info;
  if (cvy_file_kind_of(path) != CVY_FILE_REGULAR || cvy_file_open(path, &fd) != CVY_OK) return false;
  const bool cut =
      fstat(fd, &info) == 0 && info.st_size > 0 && pread(fd, &last, 1, info.st_size - 1) == 1 && last != '\n';
  close(fd);
  return cut;
}

json_log *json_log_open(const char *path, int fd, bool append) {
  struct stat info;
  json_log *const log = calloc(1, sizeof *log);
  const bool cut = append && last_line_is_cut(path);
  const bool begins = append || fstat(fd, &info) != 0 || !S_ISREG(info.st_mode) || ftruncate(fd, 0) == 0;
  if (log && begins) log->file = fdopen(fd, "a");
  if (!log || !log->file) {
    program_say("error: --log %s: cannot be written: %s", path, strerror(errno));
    free(log);
    close(fd);
    return NULL;
  }
  log->path = path;
  if (cut) fputc('\n', log->file);
  return log;
}

bool json_log_watch(json_log **log, run_log *to) {
  if (!*log) *log = calloc(1, sizeof **log);
  if (*log) (*log)->report = to;
  return *log != NULL;
}

json_log *json_log_hold(void) {
  json_log *const log = calloc(1, sizeof *log);
  if (log) log->held = json_array();
  if (log && log->held) return log;
  free(log);
  return NULL;
}

bool json_log_holds(const json_log *log) { return log && log->held; }

static void hold(json_t *held, json_t *line) {
  json_array_append(held, line);
  if (json_array_size(held) > MOST_HELD) json_array_remove(held, 0);
}

static char *text_of(const json_t *line) { return json_dumps(line, JSON_COMPACT | JSON_REAL_PRECISION(15)); }

/* The line's text without times, which differ between nodes; the caller frees it. */
static char *text_without_times(const json_t *line) {
  static const char *const times[] = {"ms", "sec"};
  json_t *const copy = json_copy((json_t *)line);
  for (size_t i = 0; i < sizeof times / sizeof times[0]; i++) json_object_del(copy, times[i]);
  char *const text = text_of(copy);
  json_decref(copy);
  return text;
}

/* Opens a log for reading; NULL: it is not a regular file. */
static FILE *open_to_read(const char *path) {
  int fd;
  if (cvy_file_kind_of(path) != CVY_FILE_REGULAR || cvy_file_open(path, &fd) != CVY_OK) return NULL;
  FILE *const file = fdopen(fd, "r");
  if (!file) close(fd);
  return file;
}

/* Removes held lines that the end of the file has. */
static void remove_lines_of(const char *path, json_t *lines) {
  char *texts[MOST_HELD], *line = NULL;
  bool is_there[MOST_HELD] = {false};
  const size_t n = json_array_size(lines);
  size_t room = 0;
  FILE *const file = open_to_read(path);
  if (!file) return;
  for (size_t i = 0; i < n; i++) texts[i] = text_without_times(json_array_get(lines, i));
  (void)fseek(file, -TAIL_BYTES, SEEK_END); /* fails if the file is shorter; it is read from its beginning then */
  while (getline(&line, &room, file) > 0) {
    json_t *const value = json_loads(line, 0, NULL);
    char *const text = value ? text_without_times(value) : NULL;
    for (size_t i = 0; text && i < n; i++) is_there[i] |= texts[i] && strcmp(text, texts[i]) == 0;
    free(text);
    json_decref(value);
  }
  for (size_t i = n; i-- > 0; free(texts[i]))
    if (is_there[i]) json_array_remove(lines, i);
  free(line);
  fclose(file);
}

json_t *json_log_missing(json_log **log, const char *path) {
  json_t *const lines = json_incref((*log)->held);
  json_log_close(log);
  if (path) remove_lines_of(path, lines);
  return lines;
}

void json_log_line(json_log *log, json_t *value) {
  if (log && log->held) hold(log->held, value);
  if (log && log->report) (void)run_log_take(log->report, value);
  const bool writes = log && log->file && !log->failed;
  char *const text = writes ? text_of(value) : NULL;
  if (writes) {
    errno = ENOMEM;
    log->failed = !text || fputs(text, log->file) < 0 || fputc('\n', log->file) < 0 || fflush(log->file) != 0;
    if (log->failed)
      program_say("error: --log %s: cannot be written, the log ends here: %s", log->path, strerror(errno));
  }
  free(text);
  json_decref(value);
}

/* The double with the fewest digits that is this float: 0.1 and not 0.100000001490116. */
static double shortest(float value) {
  char text[32];
  for (int digits = 6; digits <= 9; digits++) {
    snprintf(text, sizeof text, "%.*g", digits, (double)value);
    if (strtof(text, NULL) == value) return strtod(text, NULL);
  }
  return (double)value;
}

static double round_to(double value, double step) { return round(value / step) * step; }

void json_log_step(json_log *log, int epoch, const cvy_step_result *step, float lr, int n_devices) {
  if (!log) return;
  json_t *const shares = json_array();
  for (int i = 0; i < n_devices; i++) json_array_append_new(shares, json_integer(step->shares[i]));
  json_t *const line =
      json_pack("{si sI so so si si so so}", "epoch", epoch, "step", (json_int_t)step->step, "loss",
                json_number(step->loss), "lr", json_number(shortest(lr)), "images", step->images, "correct",
                step->correct, "shares", shares, "ms", json_number(round_to(step->ms, 1e-3)));
  if (!(step->grad_norm < 0)) json_object_set_new(line, "grad_norm", json_number(step->grad_norm));
  json_log_line(log, line);
}

static json_t *accuracy(double value) { return value >= 0 ? json_number(value) : json_null(); }

void json_log_epoch(json_log *log, const cvy_epoch_result *epoch) {
  if (!log) return;
  json_t *const line = json_pack("{si so so so so}", "epoch", epoch->epoch, "train_loss",
                                 json_number(epoch->train_loss), "train_acc", accuracy(epoch->train_acc), "test_acc",
                                 accuracy(epoch->test_acc), "sec", json_number(round_to(epoch->seconds, 1e-6)));
  if (epoch->val_acc >= 0) json_object_set_new(line, "val_acc", accuracy(epoch->val_acc));
  if (epoch->best) json_object_set_new(line, "best", json_true());
  json_log_line(log, line);
}

static double accuracy_of(const json_t *line, const char *key) {
  const json_t *const acc = json_object_get(line, key);
  return json_is_number(acc) ? json_number_value(acc) : -1;
}

bool json_log_epochs(const char *path, int n, plot_point *points) {
  char *line = NULL;
  size_t room = 0;
  FILE *const file = open_to_read(path);
  if (!file) return false;
  while (getline(&line, &room, file) > 0) {
    json_t *const value = json_loads(line, 0, NULL);
    const json_t *const epoch = json_object_get(value, "epoch"), *const step = json_object_get(value, "step"),
                        *const loss = json_object_get(value, "train_loss");
    const json_int_t e = json_is_integer(epoch) ? json_integer_value(epoch) : -1;
    if (json_is_integer(step) && json_integer_value(step) == 0) { /* another run begins */
      memset(points, 0, (size_t)n * sizeof *points);
    } else if (loss && e >= 0 && e < n) {
      points[e] = (plot_point){.epoch = (int)e + 1,
                               .train_loss = json_is_number(loss) ? json_number_value(loss) : NAN,
                               .train_acc = accuracy_of(value, "train_acc"),
                               .val_acc = accuracy_of(value, "val_acc"),
                               .test_acc = accuracy_of(value, "test_acc")};
    }
    json_decref(value);
  }
  free(line);
  fclose(file);
  return true;
}

bool json_log_close(json_log **log) {
  if (!*log) return true;
  const bool ok = (!(*log)->file || fclose((*log)->file) == 0) && !(*log)->failed;
  json_decref((*log)->held);
  free(*log);
  *log = NULL;
  return ok;
}
