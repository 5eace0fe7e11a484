/* SPDX-License-Identifier: MIT */
#include "src/protocol/worker.h"

#include <stdatomic.h>

#include "src/base/mem.h"

struct cvy_worker {
  cvy_thread thread;
  cvy_mutex lock;
  cvy_cond posted, finished;
  cvy_task *first, *last;
  void *owner;
  bool started, stop, abandoned;
  atomic_bool asleep;
  unsigned long running; /* number of the present task, 0: none */
  unsigned long n_run;
};

static void *worker_main(void *arg) {
  cvy_worker *const w = arg;
  cvy_mutex_lock(&w->lock);
  for (;;) {
    while (!w->first && !w->stop) cvy_cond_wait(&w->posted, &w->lock);
    cvy_task *const task = w->first;
    if (!task) break;
    w->first = task->next;
    if (!w->first) w->last = NULL;
    w->running = ++w->n_run;
    const cvy_task_fn fn = task->fn;
    void *const arg = task->arg;
    cvy_mutex_unlock(&w->lock); /* once the worker is abandoned, the poster may free the task */
    const cvy_status status = fn(w->owner, arg);
    cvy_mutex_lock(&w->lock);
    w->running = 0;
    if (w->abandoned) break;
    task->status = status;
    task->done = true;
    cvy_cond_wake_all(&w->finished);
  }
  cvy_mutex_unlock(&w->lock);
  return NULL;
}

cvy_status cvy_worker_create(const char *name, void *owner, cvy_worker **out) {
  cvy_status status = CVY_OK;
  cvy_worker *w = cvy_calloc(1, sizeof *w);
  *out = NULL;
  CVY_REQUIRE(w, CVY_E_MEMORY, "out of host memory for a worker thread");
  cvy_mutex_init(&w->lock);
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
    cvy_mutex_lock(&w->lock);
    const bool abandoned = w->abandoned;
    w->stop = true;
    cvy_cond_wake_all(&w->posted);
    cvy_mutex_unlock(&w->lock);
    if (abandoned) { /* the thread may return and read the worker */
      cvy_thread_detach(w->thread);
      *worker = NULL;
      return;
    }
    cvy_thread_join(w->thread);
  }
  cvy_cond_end(&w->finished);
  cvy_cond_end(&w->posted);
  cvy_mutex_end(&w->lock);
  cvy_free(w);
  *worker = NULL;
}

void cvy_worker_post(cvy_worker *w, cvy_task *task, cvy_task_fn fn, void *arg) {
  *task = (cvy_task){.fn = fn, .arg = arg};
  cvy_mutex_lock(&w->lock);
  if (w->abandoned) {
    task->status = CVY_E_DEVICE;
    task->done = true;
    cvy_mutex_unlock(&w->lock);
    return;
  }
  if (w->last) w->last->next = task;
  else w->first = task;
  w->last = task;
  cvy_cond_wake_one(&w->posted);
  cvy_mutex_unlock(&w->lock);
}

cvy_status cvy_worker_wait(cvy_worker *w, cvy_task *task) {
  cvy_mutex_lock(&w->lock);
  while (!task->done && !w->abandoned) cvy_cond_wait(&w->finished, &w->lock);
  const cvy_status status = task->done ? task->status : CVY_E_DEVICE;
  cvy_mutex_unlock(&w->lock);
  return status;
}

void cvy_worker_set_asleep(cvy_worker *w, bool asleep) { atomic_store(&w->asleep, asleep); }

void cvy_worker_abandon(cvy_worker *w) {
  cvy_mutex_lock(&w->lock);
  w->abandoned = true;
  w->first = w->last = NULL;
  cvy_cond_wake_all(&w->finished);
  cvy_mutex_unlock(&w->lock);
}

unsigned long cvy_worker_running(cvy_worker *w) {
  cvy_mutex_lock(&w->lock);
  const unsigned long running = w->abandoned || atomic_load(&w->asleep) ? 0 : w->running;
  cvy_mutex_unlock(&w->lock);
  return running;
}

cvy_status cvy_worker_call(cvy_worker *w, cvy_task_fn fn, void *arg) {
  cvy_task task;
  cvy_worker_post(w, &task, fn, arg);
  return cvy_worker_wait(w, &task);
}
