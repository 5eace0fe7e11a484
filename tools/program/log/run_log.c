/* SPDX-License-Identifier: MIT */
#include "tools/program/log/run_log.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/base/file.h"
#include "src/base/text.h"

bool run_log_open(const char *name, run_log *out) {
  *out = (run_log){.name = strdup(name), .lost = json_array()};
  return out->name && out->lost;
}

void run_log_close(run_log *log) {
  free(log->name);
  free(log->steps);
  free(log->epochs);
  json_decref(log->run);
  json_decref(log->shares);
  json_decref(log->times);
  json_decref(log->end);
  json_decref(log->error);
  json_decref(log->lost);
  *log = (run_log){0};
}

static double number_of(const json_t *object, const char *key) {
  const json_t *const value = json_object_get(object, key);
  const double number = json_is_number(value) ? json_number_value(value) : NAN;
  return isfinite(number) ? number : NAN;
}

static double accuracy_of(const json_t *object, const char *key) {
  const double value = number_of(object, key);
  return value >= 0 && value <= 1 ? value : NAN;
}

/* Limit that keeps sums finite. */
static double milliseconds_of(const json_t *object, const char *key) {
  static const double century_ms = 100 * 366 * 86400e3;
  const double value = number_of(object, key);
  return value >= 0 && value <= century_ms ? value : NAN;
}

/* A whole number from 0 to `most`; -1: not one. */
static long count_of(const json_t *object, const char *key, long most) {
  const json_t *const value = json_object_get(object, key);
  const json_int_t number = json_integer_value(value);
  return json_is_integer(value) && number >= 0 && number <= most ? (long)number : -1;
}

static void hold(json_t **place, json_t *value) {
  json_decref(*place);
  *place = json_incref(value);
}

/* The list with room for one more; NULL when out of memory, and the list is unchanged. */
static void *grow(void *list, size_t n, size_t *room, size_t size) {
  if (n < *room) return list;
  const size_t more = *room ? 2 * *room : 256;
  void *const grown = realloc(list, more * size);
  if (grown) *room = more;
  return grown;
}

static void drop_epochs(run_log *log, int from) {
  while (log->n_epochs > 0 && log->epochs[log->n_epochs - 1].epoch >= from) log->n_epochs--;
}

static long sum_of(const json_t *shares) {
  long sum = 0;
  size_t i;
  json_t *share;
  json_array_foreach(shares, i, share) sum += (long)json_integer_value(share) % (1L << 31);
  return sum;
}

static bool take_step(run_log *log, const json_t *line) {
  const long step = count_of(line, "step", LONG_MAX / 2), epoch = count_of(line, "epoch", INT_MAX - 1);
  if (step < 0 || epoch < 0) return false;
  while (log->n_steps > 0 && log->steps[log->n_steps - 1].step >= step) log->n_steps--;
  drop_epochs(log, (int)epoch);
  log_step *const steps = grow(log->steps, log->n_steps, &log->steps_room, sizeof *steps);
  log->no_memory |= !steps;
  if (!steps) return true;
  log->steps = steps;
  steps[log->n_steps++] = (log_step){.step = step,
                                     .epoch = (int)epoch,
                                     .loss = number_of(line, "loss"),
                                     .lr = number_of(line, "lr"),
                                     .ms = milliseconds_of(line, "ms"),
                                     .grad_norm = number_of(line, "grad_norm"),
                                     .images = count_of(line, "images", LONG_MAX),
                                     .correct = count_of(line, "correct", LONG_MAX)};
  /* an epoch's last batch may be short and is not representative */
  json_t *const shares = json_object_get(line, "shares");
  if (json_is_array(shares) && sum_of(shares) >= sum_of(log->shares)) hold(&log->shares, shares);
  return true;
}

static bool take_epoch(run_log *log, const json_t *line) {
  const long epoch = count_of(line, "epoch", INT_MAX - 1);
  if (epoch < 0) return false;
  drop_epochs(log, (int)epoch);
  log_epoch *const epochs = grow(log->epochs, log->n_epochs, &log->epochs_room, sizeof *epochs);
  log->no_memory |= !epochs;
  if (!epochs) return true;
  log->epochs = epochs;
  epochs[log->n_epochs++] = (log_epoch){.epoch = (int)epoch,
                                        .train_loss = number_of(line, "train_loss"),
                                        .train_acc = accuracy_of(line, "train_acc"),
                                        .val_acc = accuracy_of(line, "val_acc"),
                                        .test_acc = accuracy_of(line, "test_acc"),
                                        .sec = number_of(line, "sec"),
                                        .best = json_is_true(json_object_get(line, "best"))};
  return true;
}

bool run_log_take(run_log *log, const json_t *line) {
  static const char *const others[] = {"balance", "start", "precise_bn", "device_lost", "node_lost"};
  json_t *const run = json_object_get(line, "run"), *const end = json_object_get(line, "end"),
                *const error = json_object_get(line, "error");
  if (json_is_object(run)) {
    hold(&log->run, run);
    hold(&log->end, NULL);
    hold(&log->error, NULL);
    log->n_parts++;
    return true;
  }
  if (json_object_get(line, "train_loss")) return take_epoch(log, line);
  if (json_object_get(line, "step")) return take_step(log, line);
  if (json_is_object(end)) {
    hold(&log->end, end);
    if (json_is_object(json_object_get(end, "times"))) hold(&log->times, json_object_get(end, "times"));
    return true;
  }
  if (json_is_object(error)) {
    hold(&log->error, error);
    return true;
  }
  for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
    json_t *const value = json_object_get(line, others[i]);
    if (!value) continue;
    if (i >= 3) log->no_memory |= json_array_append(log->lost, value) != 0;
    return true;
  }
  return false;
}

void run_log_read(run_log *log, const char *text, size_t size) {
  for (size_t at = 0; at < size;) {
    const char *const end = memchr(text + at, '\n', size - at);
    const size_t length = end ? (size_t)(end - text) - at : size - at;
    json_t *const line = json_loadb(text + at, length, 0, NULL);
    if (length > 0 && !(json_is_object(line) && run_log_take(log, line))) log->n_skipped++;
    json_decref(line);
    at += length + 1;
  }
}

/* A line longer than any line of a log is counted and dropped. */
static void read_lines(run_log *log, FILE *file) {
  enum { LINE_MOST = 1 << 24 };
  char *line = NULL;
  size_t n = 0, room = 0;
  int c;
  do {
    c = getc_unlocked(file);
    if (c == '\n' || c == EOF) {
      if (n > LINE_MOST) log->n_skipped++;
      else run_log_read(log, line, n);
      n = 0;
    } else {
      char *const grown = n < LINE_MOST ? grow(line, n, &room, 1) : line;
      log->no_memory |= !grown;
      if (!grown) break;
      line = grown;
      if (n < LINE_MOST) line[n] = (char)c;
      if (n <= LINE_MOST) n++;
    }
  } while (c != EOF);
  free(line);
}

cvy_status run_log_load(run_log *log, const char *path) {
  int fd;
  const cvy_status status = cvy_file_open(path, &fd);
  if (status != CVY_OK) return status;
  FILE *const file = fdopen(fd, "r");
  if (!file) {
    close(fd);
    return CVY_E_MEMORY;
  }
  read_lines(log, file);
  const bool failed = ferror(file) != 0;
  fclose(file);
  return failed ? CVY_E_IO : log->no_memory ? CVY_E_MEMORY : CVY_OK;
}

const char *run_log_setting(const run_log *log, const char *name, char *room, size_t room_bytes) {
  const json_t *const value = json_object_get(json_object_get(log->run, "settings"), name);
  if (json_is_string(value)) return json_string_value(value);
  char *const text =
      value && !json_is_null(value) ? json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(6)) : NULL;
  cvy_plain_copy(text ? text : "", "", room, room_bytes);
  free(text);
  return room;
}
