/* SPDX-License-Identifier: MIT */
#include "src/base/sync.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "src/base/clock.h"
#include "src/base/mem.h"

#if defined(__clang__) /* the analysis trusts the wrappers' attributes, which it cannot check */
#pragma clang diagnostic ignored "-Wthread-safety-analysis"
#endif

void cvy_mutex_init(cvy_mutex *mutex) { pthread_mutex_init(&mutex->posix, NULL); }
void cvy_mutex_end(cvy_mutex *mutex) { pthread_mutex_destroy(&mutex->posix); }
void cvy_mutex_lock(cvy_mutex *mutex) {
  pthread_mutex_lock(&mutex->posix);
  cvy_log_hold();
}

void cvy_mutex_unlock(cvy_mutex *mutex) {
  pthread_mutex_unlock(&mutex->posix);
  cvy_log_release();
}

void cvy_cond_init(cvy_cond *condition) {
  pthread_condattr_t attributes;
  pthread_condattr_init(&attributes);
  pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
  pthread_cond_init(&condition->posix, &attributes);
  pthread_condattr_destroy(&attributes);
}

void cvy_cond_end(cvy_cond *condition) { pthread_cond_destroy(&condition->posix); }

void cvy_cond_wait(cvy_cond *condition, cvy_mutex *mutex) { pthread_cond_wait(&condition->posix, &mutex->posix); }

void cvy_cond_wait_for(cvy_cond *condition, cvy_mutex *mutex, double seconds) {
  const uint64_t until_ns = cvy_clock_ns() + (uint64_t)(1e9 * seconds);
  const struct timespec until = {.tv_sec = (time_t)(until_ns / 1000000000u), .tv_nsec = (long)(until_ns % 1000000000u)};
  (void)pthread_cond_timedwait(&condition->posix, &mutex->posix, &until);
}

void cvy_cond_wake_one(cvy_cond *condition) { pthread_cond_signal(&condition->posix); }
void cvy_cond_wake_all(cvy_cond *condition) { pthread_cond_broadcast(&condition->posix); }

/* cvy_thread_start passes the new thread its name and its function. */
typedef struct thread_start {
  char name[16];
  void *(*fn)(void *);
  void *arg;
  cvy_log *log; /* of the thread that starts it */
} thread_start;

/* A thread sets its own name before its function runs, and without /proc, which may be read-only. */
static void *thread_main(void *arg) {
  thread_start *const at = arg;
  const thread_start start = *at;
  cvy_free(at);
  pthread_setname_np(pthread_self(), start.name);
  (void)cvy_log_use(start.log);
  return start.fn(start.arg);
}

cvy_status cvy_thread_start(cvy_thread *thread, const char *name, void *(*fn)(void *), void *arg) {
  cvy_status status = CVY_OK;
  int error = 0;
  thread_start *start = cvy_calloc(1, sizeof *start);
  CVY_REQUIRE(start, CVY_E_MEMORY, "no memory to start the thread %s", name);
  snprintf(start->name, sizeof start->name, "%s", name);
  start->fn = fn, start->arg = arg, start->log = cvy_log_used();
  error = pthread_create(&thread->posix, NULL, thread_main, start);
  CVY_REQUIRE(error == 0, CVY_E_MEMORY, "cannot start the thread %s: %s", name, strerror(error));
  return CVY_OK;
fail:
  cvy_free(start);
  return status;
}

void cvy_thread_join(cvy_thread thread) { pthread_join(thread.posix, NULL); }
void cvy_thread_detach(cvy_thread thread) { pthread_detach(thread.posix); }

void cvy_thread_park(void) {
  for (;;) pause();
}
