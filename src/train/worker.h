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
/* Runs what is queued, then ends the thread. */
void cvy_worker_destroy(cvy_worker **worker);
void cvy_worker_post(cvy_worker *worker, cvy_task *task, cvy_task_fn fn, void *arg);
/* Waits until the task has run; its status. */
cvy_status cvy_worker_wait(cvy_worker *worker, cvy_task *task);
/* post and wait. */
cvy_status cvy_worker_call(cvy_worker *worker, cvy_task_fn fn, void *arg);

#endif
