/* SPDX-License-Identifier: MIT
 * Callbacks for the library's messages. The library never prints: without a callback it drops them. */
#ifndef CONVOY_LOG_H
#define CONVOY_LOG_H

#ifdef __cplusplus
extern "C" {
#endif

typedef enum cvy_log_level { CVY_LOG_ERROR, CVY_LOG_WARNING, CVY_LOG_INFO, CVY_LOG_DEBUG } cvy_log_level;

/* `message` is one sentence or a few lines without a final newline, borrowed for the call.
 * The thread that has the message calls it: any thread of the library, without a lock that another one needs, and never
 * two threads at once for one log. The callback must not call the library. A thread that trains waits for it: it should
 * not block. */
typedef void (*cvy_log_fn)(void *user, cvy_log_level level, const char *message);

/* Sets the callback of the process's log, which every thread uses that has no other; NULL drops everything. `level`:
 * the
 * least urgent level that is delivered. Any thread. */
void cvy_log_set(cvy_log_fn fn, void *user, cvy_log_level level);

/* A log for one part of the process, such as a library that uses this one. */
typedef struct cvy_log cvy_log;
/* NULL: out of memory. Destroy it when no thread uses it and nothing that was made with it is left. */
cvy_log *cvy_log_create(cvy_log_fn fn, void *user, cvy_log_level level);
void cvy_log_destroy(cvy_log **log);
/* From now on this thread's calls, and for all their life the threads that these calls start (a team's, a data set's),
 * use `log`. NULL: the process's log, which drivers' own threads always use. Returns the log that this thread used so
 * far. */
cvy_log *cvy_log_use(cvy_log *log);

#ifdef __cplusplus
}
#endif
#endif
