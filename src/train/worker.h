/* SPDX-License-Identifier: MIT
 * A host thread with a queue of tasks, run one after the other: the thread that owns a device's objects. */
#ifndef CVY_TRAIN_WORKER_H
#define CVY_TRAIN_WORKER_H

#include <stdbool.h>

#include "src/base/thread.h"

typedef struct cvy_worker cvy_worker;
typedef cvy_status (*cvy_task_fn)(void *owner, void *arg);

/* One posted task; memory of the caller, which stays until cvy_task_wait has returned. */
typedef struct cvy_task {
  cvy_task_fn fn;
  void *arg;
  cvy_status status;
  bool done;
  struct cvy_task *next;
} cvy_task;

/* `owner` is passed to every task. name: at most 15 characters. */
cvy_status cvy_worker_create(const char *name, void *owner, cvy_worker **out);
/* Gives up on a thread that does not come back from its task: whoever waits for one of its tasks gets CVY_E_DEVICE, and
 * no task is run any more. The memory of the tasks is the caller's again; what the running one uses beside must stay. */
void cvy_worker_abandon(cvy_worker *worker);
/* pthread_cond_wait, for a worker that waits for other threads rather than for its device: no sign that it hangs. Any
 * thread. */
void cvy_worker_sleep(pthread_cond_t *condition, pthread_mutex_t *lock);
/* The number (from 1, in order) of the task that is being run now; 0: none, or it sleeps (cvy_worker_sleep). */
unsigned long cvy_worker_running(cvy_worker *worker);
/* Runs what is queued, then ends the thread; an abandoned one is left alone, with its memory. */
void cvy_worker_destroy(cvy_worker **worker);
void cvy_worker_post(cvy_worker *worker, cvy_task *task, cvy_task_fn fn, void *arg);
/* Waits until the task has run; its status. */
cvy_status cvy_worker_wait(cvy_worker *worker, cvy_task *task);
/* post and wait. */
cvy_status cvy_worker_call(cvy_worker *worker, cvy_task_fn fn, void *arg);

#endif
