/* SPDX-License-Identifier: MIT
 * The times of a device's commands, as its driver reports them. On a device opened with profiling this module holds the
 * event of every launch, fill, copy, wait for another queue, and transfer that does not block, until cvy_profile_take
 * or cvy_profile_collect.
 *
 * A command carries the scope and the step that its thread has set. A thread may leave out the commands of a step.
 * Costs nothing without profiling. */
#ifndef CVY_CL_COMMAND_TIMES_H
#define CVY_CL_COMMAND_TIMES_H

#include "src/cl/opened_device.h"

typedef enum cvy_queue_kind { CVY_QUEUE_COMPUTE, CVY_QUEUE_TRANSFER, CVY_QUEUE_UPLOAD, CVY_QUEUES } cvy_queue_kind;

enum { CVY_SCOPE_NONE = -1 };
typedef struct cvy_command {
  const char *name; /* the kernel's, "fill", "copy", "write", "read", "map", "unmap", "wait"; lives with the device */
  cvy_command_kind kind;
  cvy_queue_kind queue;
  int scope;
  long step;
  size_t bytes;                         /* of transfers, fills and copies */
  uint64_t enqueued_ns;                 /* host's clock, just after it was enqueued */
  uint64_t queued_ns, start_ns, end_ns; /* device's clock; queued: when it was enqueued */
} cvy_command;

/* Set the scope and the step of commands that the calling thread enqueues from now on, in numbers of the caller's
 * (nn/instance.h, times/timeline.h), and whether these commands are noted. At first CVY_SCOPE_NONE, step -1, noted. */
void cvy_profile_scope(cvy_device *device, int scope);
void cvy_profile_step(cvy_device *device, long step, bool noted);
/* The scope of the calling thread. */
int cvy_profile_get_scope(void);

typedef void (*cvy_profile_fn)(void *user, const cvy_command *command);
/* Waits until all queues are empty, hands all commands to the sink, those of each queue in the order of enqueuing, and
 * forgets them. Leaves out commands without times. CVY_E_ARGUMENT without profiling. */
cvy_status cvy_profile_collect(cvy_device *device, cvy_profile_fn sink, void *user);
/* The same without waiting: of each queue the commands up to the first that is not done. Drops failed commands. One
 * thread at a time; others may go on enqueuing. */
cvy_status cvy_profile_take(cvy_device *device, cvy_profile_fn sink, void *user);
/* Relates the device's clock to the host's: enqueues a tiny fill on the compute queue, waits for it, and gives the
 * driver's times of its enqueuing and its end, with the host's clock before and after each. */
typedef struct cvy_clock_pair {
  uint64_t host_before, host_enqueued, host_done, queued_ns, end_ns;
} cvy_clock_pair;
cvy_status cvy_profile_clocks(cvy_device *device, cvy_clock_pair *out);

/* In front of commands that a library enqueues and whose events it keeps: the queue's next command that is observed
 * without an event has the time from here on. */
cvy_status cvy_profile_begin(cvy_queue *queue);

/* [device_open.c] Observes the commands of a device that is opened with profiling. */
cvy_status cvy_profile_create(cvy_device *device);

#endif
