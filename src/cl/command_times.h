/* SPDX-License-Identifier: MIT
 * The times of a device's commands, as its driver says them: on a device opened with profiling, every launch, fill,
 * copy, wait for another queue, and every transfer that does not block, keeps its event until somebody takes its times.
 *
 * A command carries what its thread said it belongs to: a scope and a step. Costs nothing without profiling. */
#ifndef CVY_CL_COMMAND_TIMES_H
#define CVY_CL_COMMAND_TIMES_H

#include "src/cl/opened_device.h"

typedef enum cvy_command_kind {
  CVY_COMMAND_KERNEL,   /* launches, fills and copies on the device */
  CVY_COMMAND_TRANSFER, /* write, read, map, unmap */
  CVY_COMMAND_WAIT      /* a queue held until a command of the other queue is done */
} cvy_command_kind;

typedef enum cvy_queue_kind { CVY_QUEUE_COMPUTE, CVY_QUEUE_TRANSFER, CVY_QUEUE_UPLOAD, CVY_QUEUES } cvy_queue_kind;

enum { CVY_SCOPE_NONE = -1 };
typedef struct cvy_command {
  const char *name; /* the kernel's, "fill", "copy", "write", "read", "map", "unmap", "wait"; lives as long
                                       as the device */
  cvy_command_kind kind;
  cvy_queue_kind queue;
  int scope;
  long step;
  size_t bytes;                         /* of transfers, fills and copies */
  uint64_t enqueued_ns;                 /* host's clock, just after it was enqueued */
  uint64_t queued_ns, start_ns, end_ns; /* device's clock; queued: when it was enqueued */
} cvy_command;

/* What the commands that the calling thread enqueues from now on belong to: numbers that mean something to who sets
 * them (nn/instance.h, train/timeline.h). At first CVY_SCOPE_NONE and step -1. */
void cvy_profile_scope(cvy_device *device, int scope);
void cvy_profile_step(cvy_device *device, long step);

typedef void (*cvy_profile_fn)(void *user, const cvy_command *command);
/* Waits until all queues are empty and hands all commands to the sink, those of each queue in the order of enqueuing,
 * then forgets them. Commands that the driver has no times of are left out. CVY_E_ARGUMENT without profiling. */
cvy_status cvy_profile_collect(cvy_device *device, cvy_profile_fn sink, void *user);
/* The same for those that are done already, without waiting: of each queue up to the first that is not. Failed commands
 * are dropped. One thread at a time; others may go on enqueuing. */
cvy_status cvy_profile_take(cvy_device *device, cvy_profile_fn sink, void *user);
/* Enqueues a tiny fill on the compute queue and waits for it: the times at which the driver says that it was enqueued
 * and done, and the host's clock before and after each. For finding out how the clocks lie to each other. */
typedef struct cvy_clock_pair {
  uint64_t host_before, host_enqueued, host_done, queued_ns, end_ns;
} cvy_clock_pair;
cvy_status cvy_profile_clocks(cvy_device *device, cvy_clock_pair *out);

#endif
