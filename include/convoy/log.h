/* SPDX-License-Identifier: MIT
 * Callbacks for the library's messages. The library never prints: without a callback it drops them. */
#ifndef CONVOY_LOG_H
#define CONVOY_LOG_H

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum cvy_log_level { CVY_LOG_ERROR, CVY_LOG_WARNING, CVY_LOG_INFO, CVY_LOG_DEBUG } cvy_log_level;

/* `message` is one sentence or a few lines without a final newline, borrowed for the call.
 * Any thread of the library may call it, without holding a lock that another thread needs; for one log never two
 * threads at once. The callback must not call the library. It should not block: a training thread waits for it. */
typedef void (*cvy_log_fn)(void *user, cvy_log_level level, const char *message);

/* Sets the callback of the process's log, the default log of every thread; NULL drops all messages. `level`: the least
 * urgent level that is delivered. Any thread. */
void cvy_log_set(cvy_log_fn fn, void *user, cvy_log_level level);

/* A log for one part of the process, such as a library that uses this one. */
typedef struct cvy_log cvy_log;
/* NULL: out of memory. Destroy it when no thread uses it and all objects created with it are destroyed. */
cvy_log *cvy_log_create(cvy_log_fn fn, void *user, cvy_log_level level);
void cvy_log_destroy(cvy_log **log);
/* A log without a callback: it stores its messages until cvy_log_take. For programs in languages whose functions the
 * library's threads cannot call. It keeps the newest CVY_LOG_STORED messages; older ones are dropped, and memory that
 * cannot be had drops the new one. NULL: out of memory. Destroy it as a log of cvy_log_create. */
enum { CVY_LOG_STORED = 256 };
cvy_log *cvy_log_store(cvy_log_level level);
/* Takes the oldest stored message out of the log: *level, and its text in `out`, NUL-terminated and cut at out_bytes
 * (messages have less than 4096). False: there is none, or the log has a callback. Any thread; does not wait. */
bool cvy_log_take(cvy_log *log, cvy_log_level *level, char *out, size_t out_bytes);
/* Sets the log of this thread, and of the threads that its calls start from now on (a team's, a data set's). NULL: the
 * process's log. Threads of drivers always use the process's log. Returns the previous log of this thread. */
cvy_log *cvy_log_use(cvy_log *log);

#ifdef __cplusplus
}
#endif
#endif
