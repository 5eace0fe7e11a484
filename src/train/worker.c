/* SPDX-License-Identifier: MIT */
#include "src/train/worker.h"

#include "src/base/mem.h"

struct cvy_worker {
  pthread_t thread;
  pthread_mutex_t lock;
  pthread_cond_t posted, finished;
  cvy_task *first, *last;
  void *owner;
  bool started, stop;
};

static void *worker_main(void *arg) {
  cvy_worker *const w = arg;
  pthread_mutex_lock(&w->lock);
  for (;;) {
    while (!w->first && !w->stop) pthread_cond_wait(&w->posted, &w->lock);
    cvy_task *const task = w->first;
    if (!task) break;
    w->first = task->next;
    if (!w->first) w->last = NULL;
    pthread_mutex_unlock(&w->lock);
    const cvy_status status = task->fn(w->owner, task->arg);
    pthread_mutex_lock(&w->lock);
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
  pthread_cond_init(&w->posted, NULL);
  pthread_cond_init(&w->finished, NULL);
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
    w->stop = true;
    pthread_cond_broadcast(&w->posted);
    pthread_mutex_unlock(&w->lock);
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
  while (!task->done) pthread_cond_wait(&w->finished, &w->lock);
  pthread_mutex_unlock(&w->lock);
  return task->status;
}

cvy_status cvy_worker_call(cvy_worker *w, cvy_task_fn fn, void *arg) {
  cvy_task task;
  cvy_worker_post(w, &task, fn, arg);
  return cvy_worker_wait(w, &task);
}
