/* SPDX-License-Identifier: MIT
 * POSIX threads with cvy_status. */
#ifndef CVY_BASE_THREAD_H
#define CVY_BASE_THREAD_H

#include <pthread.h>

#include "src/base/status.h"

/* Starts a joinable thread named `name` (15 characters at most). */
cvy_status cvy_thread_start(pthread_t *thread, const char *name, void *(*fn)(void *), void *arg);

/* A condition whose timed waits follow cvy_clock_ns: the time of day may be set while a thread waits. */
void cvy_cond_init(pthread_cond_t *condition);
/* pthread_cond_timedwait on such a condition, for at most so long. */
void cvy_cond_wait_for(pthread_cond_t *condition, pthread_mutex_t *lock, double seconds);

/* A fixed-size pool for loops over memory on the host. NULL pool = runs on the caller. */
typedef struct cvy_pool cvy_pool;
cvy_status cvy_pool_create(int n_threads, cvy_pool **out);   /* n_threads - 1 workers; the caller is the last one */
void cvy_pool_destroy(cvy_pool **pool);
/* Calls fn(arg, begin, end) for disjoint ranges that cover [0,n), multiples of `grain` but the last; returns when all
 * are done.
 * The cut depends on n and grain only where results could depend on it: fn must be elementwise. One caller at a time
 * per pool. */
void cvy_pool_run(cvy_pool *pool, size_t n, size_t grain, void (*fn)(void *arg, size_t begin, size_t end), void *arg);

#endif
