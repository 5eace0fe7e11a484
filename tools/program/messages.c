/* SPDX-License-Identifier: MIT */
#include "tools/program/messages.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "convoy/convoy.h"
#include "src/base/text.h"
#include "tools/program/program_name.h"
#include "tools/program/view/progress.h"

/* Any thread of the library may log, while the main thread changes these. */
static struct {
  pthread_mutex_t lock;
  char last_error[1024];
  char speaker[300]; /* "": this process prints everything */
  bool waiting;      /* prefix of other nodes' messages */
} talk = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* speaker: room for as much as talk.speaker. True: processes other than the head print only warnings and errors. */
static bool has_speaker(char *speaker, bool *waiting) {
  pthread_mutex_lock(&talk.lock);
  memcpy(speaker, talk.speaker, sizeof talk.speaker);
  *waiting = talk.waiting;
  pthread_mutex_unlock(&talk.lock);
  return *speaker != 0;
}

static void print(const char *speaker, const char *kind, const char *text) {
  char with_speaker[sizeof talk.speaker + 20];
  if (*speaker) {
    snprintf(with_speaker, sizeof with_speaker, "%s: %s", speaker, kind);
    kind = with_speaker;
  }
  progress_message(kind, text);
}

static void keep_error(const char *message) {
  pthread_mutex_lock(&talk.lock);
  snprintf(talk.last_error, sizeof talk.last_error, "%s", message);
  pthread_mutex_unlock(&talk.lock);
}

static void on_message(void *user, cvy_log_level level, const char *message) {
  char speaker[sizeof talk.speaker];
  bool waiting;
  (void)user;
  const bool spoken = has_speaker(speaker, &waiting);
  if (level == CVY_LOG_INFO && !waiting && (spoken || !progress_talks())) return;
  if (level == CVY_LOG_ERROR) keep_error(message);
  char text[4096];
  program_name_message(message, text, sizeof text);
  print(speaker, level == CVY_LOG_ERROR ? "error: " : level == CVY_LOG_WARNING ? "warning: " : "", text);
}

void program_speak_as(const char *name) {
  pthread_mutex_lock(&talk.lock);
  snprintf(talk.speaker, sizeof talk.speaker, "%s", name ? name : "");
  pthread_mutex_unlock(&talk.lock);
}

void program_hear_of_waiting(bool hears) {
  pthread_mutex_lock(&talk.lock);
  talk.waiting = hears;
  pthread_mutex_unlock(&talk.lock);
}

void program_log_start(void) { cvy_log_set(on_message, NULL, CVY_LOG_INFO); }

const char *program_last_error(void) {
  static _Thread_local char copy[sizeof talk.last_error];
  pthread_mutex_lock(&talk.lock);
  memcpy(copy, talk.last_error, sizeof copy);
  pthread_mutex_unlock(&talk.lock);
  return copy;
}

static void say(const char *kind, const char *format, va_list args) {
  char text[2048], speaker[sizeof talk.speaker];
  bool waiting;
  vsnprintf(text, sizeof text, format, args);
  if (!has_speaker(speaker, &waiting) || *kind) print(speaker, kind, text);
}

void program_say(const char *format, ...) {
  va_list args;
  va_start(args, format);
  say("", format, args);
  va_end(args);
}

void program_warn(const char *format, ...) {
  va_list args;
  va_start(args, format);
  say("warning: ", format, args);
  va_end(args);
}

void program_print(const char *format, ...) {
  char *text = NULL, one[CVY_PLAIN_MOST];
  va_list args;
  va_start(args, format);
  if (vasprintf(&text, format, args) < 0) text = NULL;
  va_end(args);
  const char *at = text ? text : "(out of memory)\n";
  for (size_t n; (n = cvy_plain_next(at, "\n\t", one)) > 0; at += n) fputs(one, stdout);
  free(text);
}
