/* SPDX-License-Identifier: MIT
 * Where the library's messages go. The library never prints: without a callback messages are dropped. */
#ifndef CONVOY_LOG_H
#define CONVOY_LOG_H

#ifdef __cplusplus
extern "C" {
#endif

typedef enum cvy_log_level { CVY_LOG_ERROR, CVY_LOG_WARNING, CVY_LOG_INFO, CVY_LOG_DEBUG } cvy_log_level;

/* `message` is one sentence or a few lines without a final newline, borrowed for the call.
 * Called on whatever thread the event happens on, never by two threads at once. Must not call the library. */
typedef void (*cvy_log_fn)(void *user, cvy_log_level level, const char *message);

/* Sets the process-wide callback; NULL drops everything. `level` is the least urgent that is delivered. Any thread. */
void cvy_log_set(cvy_log_fn fn, void *user, cvy_log_level level);

#ifdef __cplusplus
}
#endif
#endif
