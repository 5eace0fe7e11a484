/* SPDX-License-Identifier: MIT
 * Sending messages to the callbacks of convoy/log.h. Any thread; each log serialises its messages by its own lock.
 * Messages longer than 4 KiB are cut (build logs go out in several). */
#ifndef CVY_BASE_LOGGING_H
#define CVY_BASE_LOGGING_H

#include <stdbool.h>
#include <stdint.h>

#include "convoy/log.h"

#if defined(__GNUC__)
#define CVY_PRINTF(fmt, first) __attribute__((format(printf, fmt, first)))
#else
#define CVY_PRINTF(fmt, first)
#endif

void cvy_log_error(const char *format, ...) CVY_PRINTF(1, 2);
void cvy_log_warning(const char *format, ...) CVY_PRINTF(1, 2);
void cvy_log_info(const char *format, ...) CVY_PRINTF(1, 2);
void cvy_log_debug(const char *format, ...) CVY_PRINTF(1, 2);

/* Between the two calls this thread holds a lock (sync.h). Its messages wait until it holds none, since the callback
 * may be slow. The calls nest. */
void cvy_log_hold(void);
void cvy_log_release(void);

/* Between the two calls this thread's errors and warnings are logged at debug level: the caller has a fallback. failed:
 * the fallback also failed, and the last error is logged as an error. The calls nest. */
void cvy_log_attempt_begin(void);
void cvy_log_attempt_end(bool failed);
/* The log that this thread uses; NULL: the process's. */
cvy_log *cvy_log_used(void);

/* The last error of this thread's last attempt, "" if there was none. Borrowed until the next attempt. */
const char *cvy_log_attempt_text(void);
bool cvy_log_is_attempt(void);

/* Threads that do the same work on several devices may fail for the same reason. In a group, an error that differs from
 * another thread's earlier error only in the device's label is logged at debug level. Zero-initialise; it must live
 * until all threads have left. */
typedef struct cvy_log_group {
  uint64_t said[16];      /* hashes of errors, without labels */
  const char *by[16];     /* labels of the threads that logged them */
  int n_said, n_silenced; /* silenced: threads with an error that was not logged again */
} cvy_log_group;
void cvy_log_group_enter(cvy_log_group *group, const char *label); /* both borrowed */
void cvy_log_group_leave(void);

#endif
