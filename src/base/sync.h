/* SPDX-License-Identifier: MIT
 * Threads, and the mutexes and conditions between them: POSIX's, in wrappers. clang's -Wthread-safety follows the
 * wrappers (the attributes below), and the simulation of a team replaces them by fibers on one thread
 * (tests/fleet/sim/sim_sync.c). */
#ifndef CVY_BASE_SYNC_H
#define CVY_BASE_SYNC_H

#include <pthread.h>

#include "src/base/failure.h"

#if defined(__clang__)
#define CVY_CAPABILITY(name) __attribute__((capability(name)))
#define CVY_LOCKS(...) __attribute__((acquire_capability(__VA_ARGS__)))
#define CVY_UNLOCKS(...) __attribute__((release_capability(__VA_ARGS__)))
#define CVY_HOLDS(...) __attribute__((requires_capability(__VA_ARGS__)))
#else
#define CVY_CAPABILITY(name)
#define CVY_LOCKS(...)
#define CVY_UNLOCKS(...)
#define CVY_HOLDS(...)
#endif

typedef struct CVY_CAPABILITY("mutex") cvy_mutex {
  pthread_mutex_t posix;
} cvy_mutex;

void cvy_mutex_init(cvy_mutex *mutex);
void cvy_mutex_end(cvy_mutex *mutex);
/* Messages that a thread logs while it holds a mutex are delivered when it holds none (logging.h). */
void cvy_mutex_lock(cvy_mutex *mutex) CVY_LOCKS(mutex);
void cvy_mutex_unlock(cvy_mutex *mutex) CVY_UNLOCKS(mutex);

/* A condition whose timed waits follow cvy_clock_ns: the time of day may change while a thread waits. */
typedef struct cvy_cond {
  pthread_cond_t posix;
} cvy_cond;

void cvy_cond_init(cvy_cond *condition);
void cvy_cond_end(cvy_cond *condition);
void cvy_cond_wait(cvy_cond *condition, cvy_mutex *mutex) CVY_HOLDS(mutex);
/* Waits with a time limit. */
void cvy_cond_wait_for(cvy_cond *condition, cvy_mutex *mutex, double seconds) CVY_HOLDS(mutex);
void cvy_cond_wake_one(cvy_cond *condition);
void cvy_cond_wake_all(cvy_cond *condition);

typedef struct cvy_thread {
  pthread_t posix;
} cvy_thread;

/* Starts a joinable thread named `name` (15 characters at most), which uses the log of this one. CVY_E_MEMORY. */
cvy_status cvy_thread_start(cvy_thread *thread, const char *name, void *(*fn)(void *), void *arg);
void cvy_thread_join(cvy_thread thread);
/* No thread joins it: it may never end. */
void cvy_thread_detach(cvy_thread thread);
/* Stops the calling thread forever; it accesses no object any more. */
_Noreturn void cvy_thread_park(void);

#endif
