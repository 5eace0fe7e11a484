/* SPDX-License-Identifier: MIT */
#include "src/base/thread.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "src/base/clock.h"
#include "src/base/mem.h"

/* cvy_thread_start hands the new thread its name and its function. */
typedef struct thread_start { char name[16]; void *(*fn)(void *); void *arg; } thread_start;

/* A thread names itself: its first line has the name already, and nothing is written under /proc, which may be read-only. */
static void *thread_main(void *arg) {
  thread_start *const at = arg;
  const thread_start start = *at;
  cvy_free(at);
  pthread_setname_np(pthread_self(), start.name);
  return start.fn(start.arg);
}

cvy_status cvy_thread_start(pthread_t *thread, const char *name, void *(*fn)(void *), void *arg) {
  cvy_status status = CVY_OK;
  int error = 0;
  thread_start *start = cvy_calloc(1, sizeof *start);
  CVY_REQUIRE(start, CVY_E_MEMORY, "no memory to start the thread %s", name);
  snprintf(start->name, sizeof start->name, "%s", name);
  start->fn = fn, start->arg = arg;
  error = pthread_create(thread, NULL, thread_main, start);
  CVY_REQUIRE(error == 0, CVY_E_MEMORY, "cannot start the thread %s: %s", name, strerror(error));
  return CVY_OK;
fail:
  cvy_free(start);
  return status;
}

void cvy_cond_init(pthread_cond_t *condition) {
  pthread_condattr_t attributes;
  pthread_condattr_init(&attributes);
  pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
  pthread_cond_init(condition, &attributes);
  pthread_condattr_destroy(&attributes);
}

void cvy_cond_wait_for(pthread_cond_t *condition, pthread_mutex_t *lock, double seconds) {
  const uint64_t until_ns = cvy_clock_ns() + (uint64_t)(1e9 * seconds);
  const struct timespec until = {.tv_sec = (time_t)(until_ns / 1000000000u), .tv_nsec = (long)(until_ns % 1000000000u)};
  (void)pthread_cond_timedwait(condition, lock, &until);
}

/* One job at a time. Pieces are taken by an atomic counter, so a disturbed thread does not hold up the others. */
struct cvy_pool {
  pthread_mutex_t lock;
  pthread_cond_t start, done;
  pthread_t *threads;
  int n_workers;
  unsigned job;   /* grows by one per cvy_pool_run */
  int busy;       /* workers that have not finished this job */
  bool quit;
  size_t n, piece;
  atomic_size_t next;
  void (*fn)(void *arg, size_t begin, size_t end);
  void *arg;
};

enum { PIECES_PER_THREAD = 4 };

static void work(cvy_pool *pool) {
  for (;;) {
    const size_t begin = atomic_fetch_add(&pool->next, 1) * pool->piece;
    if (begin >= pool->n) return;
    const size_t left = pool->n - begin;
    pool->fn(pool->arg, begin, begin + (left < pool->piece ? left : pool->piece));
  }
}

static void *worker(void *arg) {
  cvy_pool *const pool = arg;
  unsigned seen = 0;
  pthread_mutex_lock(&pool->lock);
  for (;;) {
    while (!pool->quit && pool->job == seen) pthread_cond_wait(&pool->start, &pool->lock);
    if (pool->quit) break;
    seen = pool->job;
    pthread_mutex_unlock(&pool->lock);
    work(pool);
    pthread_mutex_lock(&pool->lock);
    if (--pool->busy == 0) pthread_cond_signal(&pool->done);
  }
  pthread_mutex_unlock(&pool->lock);
  return NULL;
}

cvy_status cvy_pool_create(int n_threads, cvy_pool **out) {
  cvy_status status = CVY_OK;
  cvy_pool *pool = NULL;
  CVY_REQUIRE(n_threads >= 1, CVY_E_ARGUMENT, "a pool of %d threads: at least 1 is needed", n_threads);
  pool = cvy_calloc(1, sizeof *pool);
  CVY_REQUIRE(pool, CVY_E_MEMORY, "no memory for a thread pool");
  pthread_mutex_init(&pool->lock, NULL);
  cvy_cond_init(&pool->start);
  cvy_cond_init(&pool->done);
  pool->threads = cvy_calloc((size_t)n_threads, sizeof *pool->threads);
  CVY_REQUIRE(pool->threads, CVY_E_MEMORY, "no memory for %d threads", n_threads);
  for (int i = 0; i < n_threads - 1; i++) {
    CVY_TRY(cvy_thread_start(&pool->threads[i], "cvy-pool", worker, pool));
    pool->n_workers++;
  }
  *out = pool;
  return CVY_OK;
fail:
  cvy_pool_destroy(&pool);
  return status;
}

void cvy_pool_destroy(cvy_pool **p) {
  if (!p || !*p) return;
  cvy_pool *const pool = *p;
  pthread_mutex_lock(&pool->lock);
  pool->quit = true;
  pthread_cond_broadcast(&pool->start);
  pthread_mutex_unlock(&pool->lock);
  for (int i = 0; i < pool->n_workers; i++) pthread_join(pool->threads[i], NULL);
  pthread_cond_destroy(&pool->start);
  pthread_cond_destroy(&pool->done);
  pthread_mutex_destroy(&pool->lock);
  cvy_free(pool->threads);
  cvy_free(pool);
  *p = NULL;
}

void cvy_pool_run(cvy_pool *pool, size_t n, size_t grain, void (*fn)(void *arg, size_t begin, size_t end), void *arg) {
  CVY_ASSERT(grain > 0);
  if (n == 0) return;
  const size_t grains = n / grain + (n % grain != 0);
  if (!pool || pool->n_workers == 0 || grains == 1) {
    fn(arg, 0, n);
    return;
  }
  const size_t pieces = (size_t)(pool->n_workers + 1) * PIECES_PER_THREAD;
  pthread_mutex_lock(&pool->lock);
  pool->n = n;
  pool->piece = (grains / pieces + (grains % pieces != 0)) * grain;
  pool->fn = fn;
  pool->arg = arg;
  atomic_store(&pool->next, 0);
  pool->busy = pool->n_workers;
  pool->job++;
  pthread_cond_broadcast(&pool->start);
  pthread_mutex_unlock(&pool->lock);
  work(pool);
  pthread_mutex_lock(&pool->lock);
  while (pool->busy > 0) pthread_cond_wait(&pool->done, &pool->lock);
  pthread_mutex_unlock(&pool->lock);
}
