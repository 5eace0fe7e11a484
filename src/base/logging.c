/* SPDX-License-Identifier: MIT */
#include "src/base/logging.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#define XXH_STATIC_LINKING_ONLY /* allows the state of a hash on the stack */
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "src/base/mem.h"

enum { LONGEST_MESSAGE = 4096 };

typedef struct message {
  struct message *next;
  cvy_log_level level;
  char text[];
} message;

struct cvy_log {
  pthread_mutex_t lock;
  cvy_log_fn fn;
  void *user;
  atomic_int threshold;     /* -1: no callback; read without the lock to make dropped messages cheap */
  message *oldest, *newest; /* of cvy_log_store, n_stored of them */
  int n_stored;
};

static cvy_log of_process = {.lock = PTHREAD_MUTEX_INITIALIZER, .threshold = -1};
static _Thread_local cvy_log *used; /* NULL: the process's */

/* Messages that wait until this thread holds no lock. Each is its level as a character, its text, and NUL. */
static _Thread_local struct {
  int depth;
  size_t size;
  char text[LONGEST_MESSAGE + 2];
} held;

static _Thread_local int attempts;                        /* attempts of this thread; they nest */
static _Thread_local char attempt_error[LONGEST_MESSAGE]; /* the last error of the outermost one */

void cvy_log_attempt_begin(void) {
  if (attempts++ == 0) attempt_error[0] = '\0';
}

void cvy_log_attempt_end(bool failed) {
  if (--attempts == 0 && failed && attempt_error[0]) cvy_log_error("%s", attempt_error);
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

/* [under the log's lock] True: another thread of the group has logged this error, apart from the label. */
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

static void set(cvy_log *log, cvy_log_fn fn, void *user, cvy_log_level level) {
  pthread_mutex_lock(&log->lock);
  log->fn = fn;
  log->user = user;
  atomic_store(&log->threshold, fn ? (int)level : -1);
  pthread_mutex_unlock(&log->lock);
}

void cvy_log_set(cvy_log_fn fn, void *user, cvy_log_level level) { set(&of_process, fn, user, level); }

cvy_log *cvy_log_create(cvy_log_fn fn, void *user, cvy_log_level level) {
  cvy_log *const log = cvy_calloc(1, sizeof *log);
  if (!log) return NULL;
  pthread_mutex_init(&log->lock, NULL);
  set(log, fn, user, level);
  return log;
}

/* [under the log's lock] */
static message *take(cvy_log *log) {
  message *const oldest = log->oldest;
  if (!oldest) return NULL;
  log->oldest = oldest->next;
  if (!log->oldest) log->newest = NULL;
  log->n_stored--;
  return oldest;
}

/* The callback of cvy_log_store. */
static void store(void *user, cvy_log_level level, const char *text) {
  cvy_log *const log = user;
  const size_t bytes = strlen(text) + 1;
  message *const m = cvy_calloc(1, sizeof *m + bytes);
  if (!m) return;
  m->level = level;
  memcpy(m->text, text, bytes);
  if (log->newest) log->newest->next = m;
  else log->oldest = m;
  log->newest = m;
  if (++log->n_stored > CVY_LOG_STORED) cvy_free(take(log));
}

cvy_log *cvy_log_store(cvy_log_level level) {
  cvy_log *const log = cvy_log_create(NULL, NULL, level);
  if (log) set(log, store, log, level);
  return log;
}

bool cvy_log_take(cvy_log *log, cvy_log_level *level, char *out, size_t out_bytes) {
  pthread_mutex_lock(&log->lock);
  message *const m = take(log);
  pthread_mutex_unlock(&log->lock);
  if (!m) return false;
  *level = m->level;
  if (out_bytes) snprintf(out, out_bytes, "%s", m->text);
  cvy_free(m);
  return true;
}

void cvy_log_destroy(cvy_log **log) {
  if (!*log) return;
  for (message *m; (m = take(*log));) cvy_free(m);
  pthread_mutex_destroy(&(*log)->lock);
  cvy_free(*log);
  *log = NULL;
}

cvy_log *cvy_log_use(cvy_log *log) {
  cvy_log *const before = used;
  used = log;
  return before;
}

cvy_log *cvy_log_used(void) { return used; }

static void deliver(cvy_log_level level, const char *message) {
  cvy_log *const log = used ? used : &of_process;
  pthread_mutex_lock(&log->lock);
  if (group && level == CVY_LOG_ERROR && group_had(message)) level = CVY_LOG_DEBUG;
  if (log->fn && (int)level <= atomic_load(&log->threshold)) log->fn(log->user, level, message);
  pthread_mutex_unlock(&log->lock);
}

/* Cuts or drops a message that does not fit: messages under a lock are short. */
static void keep(cvy_log_level level, const char *message) {
  const size_t room = sizeof held.text - held.size;
  if (room < 3) return;
  held.text[held.size] = (char)('0' + (int)level);
  const int n = snprintf(held.text + held.size + 1, room - 1, "%s", message);
  held.size += 2 + ((size_t)n < room - 1 ? (size_t)n : room - 2);
}

void cvy_log_hold(void) { held.depth++; }

void cvy_log_release(void) {
  if (--held.depth > 0 || held.size == 0) return;
  for (size_t at = 0; at < held.size; at += strlen(held.text + at) + 1)
    deliver((cvy_log_level)(held.text[at] - '0'), held.text + at + 1);
  held.size = 0;
}

/* Preserves errno across the callback, since the caller may still need it. */
static void log_va(cvy_log_level level, const char *format, va_list args) {
  const int code = errno;
  if (attempts > 0 && level < CVY_LOG_INFO) {
    va_list again;
    va_copy(again, args);
    if (level == CVY_LOG_ERROR) vsnprintf(attempt_error, sizeof attempt_error, format, again);
    va_end(again);
    level = CVY_LOG_DEBUG;
  }
  if ((int)level > atomic_load(&(used ? used : &of_process)->threshold)) return;
  char message[LONGEST_MESSAGE];
  vsnprintf(message, sizeof message, format, args);
  if (held.depth > 0) keep(level, message);
  else deliver(level, message);
  errno = code;
}

const char *cvy_log_attempt_text(void) { return attempt_error; }

#define DEFINE_LOG(name, level)                  \
  void cvy_log_##name(const char *format, ...) { \
    va_list args;                                \
    va_start(args, format);                      \
    log_va(level, format, args);                 \
    va_end(args);                                \
  }
DEFINE_LOG(error, CVY_LOG_ERROR)
DEFINE_LOG(warning, CVY_LOG_WARNING)
DEFINE_LOG(info, CVY_LOG_INFO)
DEFINE_LOG(debug, CVY_LOG_DEBUG)
