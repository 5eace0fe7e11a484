/* SPDX-License-Identifier: MIT */
#include "src/base/pool.h"

#include <stdatomic.h>
#include <stdbool.h>

#include "src/base/mem.h"

/* One job at a time. Threads take pieces by an atomic counter, so that a slow thread does not delay the others. Waking
 * a thread takes tens of microseconds, as long as a small job. The caller therefore begins at once and at the end waits
 * only for threads that have joined the job. It wakes two threads, and each thread that joins wakes two more. */
struct cvy_pool {
  cvy_mutex lock;
  cvy_cond start, done;
  cvy_thread *threads;
  int n_workers;
  unsigned job; /* grows by one per cvy_pool_run */
  bool open;    /* workers may still join the job */
  int busy;     /* workers that have joined the job and not left it */
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

/* Unless all pieces are taken. */
static void wake_two(cvy_pool *pool) {
  for (int i = 0; i < 2 && atomic_load(&pool->next) * pool->piece < pool->n; i++) cvy_cond_wake_one(&pool->start);
}

static void *worker(void *arg) {
  cvy_pool *const pool = arg;
  unsigned seen = 0;
  cvy_mutex_lock(&pool->lock);
  for (;;) {
    while (!pool->quit && (!pool->open || pool->job == seen)) cvy_cond_wait(&pool->start, &pool->lock);
    if (pool->quit) break;
    seen = pool->job;
    pool->busy++;
    cvy_mutex_unlock(&pool->lock);
    wake_two(pool);
    work(pool);
    cvy_mutex_lock(&pool->lock);
    if (--pool->busy == 0) cvy_cond_wake_one(&pool->done);
  }
  cvy_mutex_unlock(&pool->lock);
  return NULL;
}

cvy_status cvy_pool_create(int n_threads, cvy_pool **out) {
  cvy_status status = CVY_OK;
  cvy_pool *pool = NULL;
  CVY_REQUIRE(n_threads >= 1, CVY_E_ARGUMENT, "a pool of %d threads; expected at least 1", n_threads);
  pool = cvy_calloc(1, sizeof *pool);
  CVY_REQUIRE(pool, CVY_E_MEMORY, "no memory for a thread pool");
  cvy_mutex_init(&pool->lock);
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
  cvy_mutex_lock(&pool->lock);
  pool->quit = true;
  cvy_cond_wake_all(&pool->start);
  cvy_mutex_unlock(&pool->lock);
  for (int i = 0; i < pool->n_workers; i++) cvy_thread_join(pool->threads[i]);
  cvy_cond_end(&pool->start);
  cvy_cond_end(&pool->done);
  cvy_mutex_end(&pool->lock);
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
  cvy_mutex_lock(&pool->lock);
  pool->n = n;
  pool->piece = (grains / pieces + (grains % pieces != 0)) * grain;
  pool->fn = fn;
  pool->arg = arg;
  atomic_store(&pool->next, 0);
  pool->open = true;
  pool->job++;
  cvy_mutex_unlock(&pool->lock);
  wake_two(pool);
  work(pool);
  cvy_mutex_lock(&pool->lock);
  pool->open = false;
  while (pool->busy > 0) cvy_cond_wait(&pool->done, &pool->lock);
  cvy_mutex_unlock(&pool->lock);
}
