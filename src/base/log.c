/* SPDX-License-Identifier: MIT */
#include "src/base/log.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#define XXH_STATIC_LINKING_ONLY   /* the state of a hash on the stack */
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

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

static _Thread_local cvy_log_group *group;
static _Thread_local const char *group_label;
static _Thread_local bool group_silenced;

void cvy_log_group_enter(cvy_log_group *a_group, const char *label) {
  group = a_group;
  group_label = label;
  group_silenced = false;
}

void cvy_log_group_leave(void) { group = NULL; }

/* Under the lock. True if another of the group has had this error, but for the label. */
static bool group_had(const char *message) {
  const size_t n_label = strlen(group_label);
  XXH64_state_t hash;
  XXH64_reset(&hash, 0);
  for (const char *at = message, *found; *at; at = found + n_label) {
    found = n_label ? strstr(at, group_label) : NULL;
    XXH64_update(&hash, at, found ? (size_t)(found - at) : strlen(at));
    if (!found) break;
  }
  const uint64_t digest = XXH64_digest(&hash);
  for (int i = 0; i < group->n_said; i++) {
    if (group->said[i] != digest) continue;
    if (group->by[i] == group_label) return false;
    group->n_silenced += !group_silenced;
    return group_silenced = true;
  }
  if (group->n_said < (int)(sizeof group->said / sizeof *group->said)) {
    group->by[group->n_said] = group_label;
    group->said[group->n_said++] = digest;
  }
  return false;
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
  if (group && level == CVY_LOG_ERROR && group_had(message)) level = CVY_LOG_DEBUG;
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
