/* SPDX-License-Identifier: MIT
 * Where the library's messages go. The library never prints: without a callback messages are dropped. */
#ifndef CONVOY_LOG_H
#define CONVOY_LOG_H

#ifdef __cplusplus
extern "C" {
#endif

typedef enum cvy_log_level { CVY_LOG_ERROR, CVY_LOG_WARNING, CVY_LOG_INFO, CVY_LOG_DEBUG } cvy_log_level;

/* `message` is one sentence or a few lines without a final newline, borrowed for the call.
 * Called on whatever thread the event happens on, with no lock that another thread of the library needs, never by two
 * threads at once for one log. Must not call the library. A thread that trains waits for it: it should not block. */
typedef void (*cvy_log_fn)(void *user, cvy_log_level level, const char *message);

/* Sets the callback of the process's log, which every thread uses that has no other; NULL drops everything. `level` is
 * the least urgent that is delivered. Any thread. */
void cvy_log_set(cvy_log_fn fn, void *user, cvy_log_level level);

/* A log for a part of the process, as a library has that uses this one. */
typedef struct cvy_log cvy_log;
/* NULL: out of memory. Destroy it when no thread uses it and nothing that was made with it is left. */
cvy_log *cvy_log_create(cvy_log_fn fn, void *user, cvy_log_level level);
void cvy_log_destroy(cvy_log **log);
/* From now on the messages of this thread's calls go to `log`, and those of the threads that these calls start, as a
 * team's and a data set's do for all their life. NULL: to the process's, as what drivers say on threads of their own.
 * Gives the log that was used before. */
cvy_log *cvy_log_use(cvy_log *log);

#ifdef __cplusplus
}
#endif
#endif
