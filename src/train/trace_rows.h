/* SPDX-License-Identifier: MIT
 * What stands in a team's trace (trace.h): the processes, the host and each device; their rows, threads and queues; and the
 * slices of each, named after layers and units of the exchange. Keeps nothing. */
#ifndef CVY_TRAIN_TRACE_ROWS_H
#define CVY_TRAIN_TRACE_ROWS_H

#include "src/cl/devices.h"
#include "src/cl/profile.h"
#include "src/train/replica.h"
#include "src/train/timeline.h"
#include "src/train/trace.h"

/* A command of a device; times by the host's clock. */
typedef struct cvy_row_command {
  uint64_t begin_ns, end_ns;
  const char *name;                 /* lives as long as the device */
  cvy_command_kind kind;
  cvy_queue_kind queue;
  int scope;
  long step;
  size_t bytes;
} cvy_row_command;

/* What a host thread did. */
typedef struct cvy_row_work { cvy_work work; int replica, unit; long step; uint64_t begin_ns, end_ns; } cvy_row_work;

/* Names the rows of the host and of n devices. */
void cvy_rows_name(cvy_trace *trace, const cvy_devices *devices, int n);
void cvy_rows_work(cvy_trace *trace, const cvy_layout *layout, const cvy_row_work *work);
/* The host's row of whole steps. */
void cvy_rows_step(cvy_trace *trace, const cvy_step *step, uint64_t begin_ns, uint64_t done_ns);
/* n commands of a replica that is open, those of each queue in order. Those on the compute queue that belong to steps after
 * `step` are not written, as a step's commands must be together: they move to the front; returns how many they are. */
size_t cvy_rows_commands(cvy_trace *trace, const cvy_replica *replica, cvy_row_command *commands, size_t n, long step);

#endif
