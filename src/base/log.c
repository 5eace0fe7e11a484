/* SPDX-License-Identifier: MIT */
#include "src/base/log.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>

enum { LONGEST_MESSAGE = 4096 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static cvy_log_fn callback;
static void *callback_user;
static atomic_int threshold = -1; /* -1: no callback; read without the lock to make dropped messages cheap */

static _Thread_local int attempts;                       /* under way, one within the other */
static _Thread_local char attempt_error[LONGEST_MESSAGE]; /* the last one */

void cvy_log_attempt_begin(void) {
  if (attempts++ == 0) attempt_error[0] = '\0';
}

void cvy_log_attempt_end(bool tell) {
  if (--attempts == 0 && tell && attempt_error[0]) cvy_log_error("%s", attempt_error);
}

bool cvy_log_is_attempt(void) { return attempts > 0; }

void cvy_log_set(cvy_log_fn fn, void *user, cvy_log_level level) {
  pthread_mutex_lock(&lock);
  callback = fn;
  callback_user = user;
  atomic_store(&threshold, fn ? (int)level : -1);
  pthread_mutex_unlock(&lock);
}

static void log_va(cvy_log_level level, const char *format, va_list args) {
  if (attempts > 0 && level < CVY_LOG_INFO) {
    va_list again;
    va_copy(again, args);
    if (level == CVY_LOG_ERROR) vsnprintf(attempt_error, sizeof attempt_error, format, again);
    va_end(again);
    level = CVY_LOG_DEBUG;
  }
  if ((int)level > atomic_load(&threshold)) return;
  char message[LONGEST_MESSAGE];
  vsnprintf(message, sizeof message, format, args);
  pthread_mutex_lock(&lock);
  if (callback && (int)level <= atomic_load(&threshold)) callback(callback_user, level, message);
  pthread_mutex_unlock(&lock);
}

const char *cvy_log_attempt_text(void) { return attempt_error; }

#define DEFINE_LOG(name, level)              \
  void cvy_log_##name(const char *format, ...) { \
    va_list args;                            \
    va_start(args, format);                  \
    log_va(level, format, args);             \
    va_end(args);                            \
  }
DEFINE_LOG(error, CVY_LOG_ERROR)
DEFINE_LOG(warning, CVY_LOG_WARNING)
DEFINE_LOG(info, CVY_LOG_INFO)
DEFINE_LOG(debug, CVY_LOG_DEBUG)
