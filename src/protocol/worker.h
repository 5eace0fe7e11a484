/* SPDX-License-Identifier: MIT
 * A host thread that runs a queue of tasks in order. Only it uses a device's objects. */
#ifndef CVY_PROTOCOL_WORKER_H
#define CVY_PROTOCOL_WORKER_H

#include <stdbool.h>

#include "src/base/sync.h"

typedef struct cvy_worker cvy_worker;
typedef cvy_status (*cvy_task_fn)(void *owner, void *arg);

/* One posted task. The caller owns its memory, which must live until cvy_worker_wait has returned. */
typedef struct cvy_task {
  cvy_task_fn fn;
  void *arg;
  cvy_status status;
  bool done;
  struct cvy_task *next;
} cvy_task;

/* `owner` is passed to every task. name: at most 15 characters. CVY_E_MEMORY. */
cvy_status cvy_worker_create(const char *name, void *owner, cvy_worker **out);
/* Runs the queued tasks, then ends the thread. An abandoned worker keeps its thread and its memory. */
void cvy_worker_destroy(cvy_worker **worker);
void cvy_worker_post(cvy_worker *worker, cvy_task *task, cvy_task_fn fn, void *arg);
/* Waits until the task has run; its status. */
cvy_status cvy_worker_wait(cvy_worker *worker, cvy_task *task);
/* post and wait. */
cvy_status cvy_worker_call(cvy_worker *worker, cvy_task_fn fn, void *arg);

/* Abandons a thread that does not return from its task: every wait for one of its tasks returns CVY_E_DEVICE, and
 * the worker runs no further task. The caller may free the tasks, but not the memory that the running one uses. */
void cvy_worker_abandon(cvy_worker *worker);
/* [the worker's thread] Marks that the thread waits for other threads: the watchdog does not count this as a hang of
 * the device. */
void cvy_worker_set_asleep(cvy_worker *worker, bool asleep);
/* The number (from 1, in order) of the current task; 0: none, or the worker sleeps or is abandoned. */
unsigned long cvy_worker_running(cvy_worker *worker);

#endif
