/* SPDX-License-Identifier: MIT */
#include "src/train/worker.h"

#include <stdatomic.h>

#include "src/base/mem.h"

/* Of the worker whose thread this is. */
static _Thread_local atomic_bool *here_asleep;

struct cvy_worker {
  pthread_t thread;
  pthread_mutex_t lock;
  pthread_cond_t posted, finished;
  cvy_task *first, *last;
  void *owner;
  bool started, stop, abandoned;
  atomic_bool asleep;
  unsigned long running;            /* number of the task that is being run, 0: none */
  unsigned long n_run;
};

static void *worker_main(void *arg) {
  cvy_worker *const w = arg;
  here_asleep = &w->asleep;
  pthread_mutex_lock(&w->lock);
  for (;;) {
    while (!w->first && !w->stop) pthread_cond_wait(&w->posted, &w->lock);
    cvy_task *const task = w->first;
    if (!task) break;
    w->first = task->next;
    if (!w->first) w->last = NULL;
    w->running = ++w->n_run;
    const cvy_task_fn fn = task->fn;
    void *const arg = task->arg;
    pthread_mutex_unlock(&w->lock); /* if it is given up, the task's memory is its owner's again */
    const cvy_status status = fn(w->owner, arg);
    pthread_mutex_lock(&w->lock);
    w->running = 0;
    if (w->abandoned) break;
    task->status = status;
    task->done = true;
    pthread_cond_broadcast(&w->finished);
  }
  pthread_mutex_unlock(&w->lock);
  return NULL;
}

cvy_status cvy_worker_create(const char *name, void *owner, cvy_worker **out) {
  cvy_status status = CVY_OK;
  cvy_worker *w = cvy_calloc(1, sizeof *w);
  *out = NULL;
  CVY_REQUIRE(w, CVY_E_MEMORY, "out of host memory for a worker thread");
  pthread_mutex_init(&w->lock, NULL);
  cvy_cond_init(&w->posted);
  cvy_cond_init(&w->finished);
  w->owner = owner;
  CVY_TRY(cvy_thread_start(&w->thread, name, worker_main, w));
  w->started = true;
  *out = w;
  return CVY_OK;
fail:
  cvy_worker_destroy(&w);
  return status;
}

void cvy_worker_destroy(cvy_worker **worker) {
  cvy_worker *const w = *worker;
  if (!w) return;
  if (w->started) {
    pthread_mutex_lock(&w->lock);
    const bool abandoned = w->abandoned;
    w->stop = true;
    pthread_cond_broadcast(&w->posted);
    pthread_mutex_unlock(&w->lock);
    if (abandoned) { /* the thread may come back and look at it */
      pthread_detach(w->thread);
      *worker = NULL;
      return;
    }
    pthread_join(w->thread, NULL);
  }
  pthread_cond_destroy(&w->finished);
  pthread_cond_destroy(&w->posted);
  pthread_mutex_destroy(&w->lock);
  cvy_free(w);
  *worker = NULL;
}

void cvy_worker_post(cvy_worker *w, cvy_task *task, cvy_task_fn fn, void *arg) {
  *task = (cvy_task){.fn = fn, .arg = arg};
  pthread_mutex_lock(&w->lock);
  if (w->abandoned) {
    task->status = CVY_E_DEVICE;
    task->done = true;
    pthread_mutex_unlock(&w->lock);
    return;
  }
  if (w->last)
    w->last->next = task;
  else
    w->first = task;
  w->last = task;
  pthread_cond_signal(&w->posted);
  pthread_mutex_unlock(&w->lock);
}

cvy_status cvy_worker_wait(cvy_worker *w, cvy_task *task) {
  pthread_mutex_lock(&w->lock);
  while (!task->done && !w->abandoned) pthread_cond_wait(&w->finished, &w->lock);
  const cvy_status status = task->done ? task->status : CVY_E_DEVICE;
  pthread_mutex_unlock(&w->lock);
  return status;
}

void cvy_worker_sleep(pthread_cond_t *condition, pthread_mutex_t *lock) {
  if (here_asleep) atomic_store(here_asleep, true);
  pthread_cond_wait(condition, lock);
  if (here_asleep) atomic_store(here_asleep, false);
}

void cvy_worker_abandon(cvy_worker *w) {
  pthread_mutex_lock(&w->lock);
  w->abandoned = true;
  w->first = w->last = NULL;
  pthread_cond_broadcast(&w->finished);
  pthread_mutex_unlock(&w->lock);
}

unsigned long cvy_worker_running(cvy_worker *w) {
  pthread_mutex_lock(&w->lock);
  const unsigned long running = w->abandoned || atomic_load(&w->asleep) ? 0 : w->running;
  pthread_mutex_unlock(&w->lock);
  return running;
}

cvy_status cvy_worker_call(cvy_worker *w, cvy_task_fn fn, void *arg) {
  cvy_task task;
  cvy_worker_post(w, &task, fn, arg);
  return cvy_worker_wait(w, &task);
}
