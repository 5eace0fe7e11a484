/* SPDX-License-Identifier: MIT
 * Rows and slices of a team's trace (trace.h): its processes are the host and each device, their rows threads and
 * queues; slices are named after layers and parcels of the exchange. No state. */
#ifndef CVY_TIMES_TRACE_ROWS_H
#define CVY_TIMES_TRACE_ROWS_H

#include "src/cl/devices/devices.h"
#include "src/cl/command_times.h"
#include "src/nn/instance.h"
#include "src/times/timeline.h"
#include "src/times/trace.h"

/* A command of a device; times by the host's clock. */
typedef struct cvy_row_command {
  uint64_t begin_ns, end_ns;
  const char *name; /* lives as long as the device */
  cvy_command_kind kind;
  cvy_queue_kind queue;
  int scope;
  long step;
  size_t bytes;
} cvy_row_command;

/* A host thread's work. */
typedef struct cvy_row_work {
  cvy_work work;
  int device, parcel;
  long step;
  uint64_t begin_ns, end_ns;
} cvy_row_work;

/* The device of the commands. */
typedef struct cvy_row_source {
  int device;                   /* its number in the team */
  const cvy_layout *layout;     /* names parcels of the exchange */
  const cvy_instance *instance; /* names layers; NULL: the device has none now */
} cvy_row_source;

/* Names the rows of the host and of n devices. */
void cvy_rows_name(cvy_trace *trace, const cvy_devices *devices, int n);
void cvy_rows_work(cvy_trace *trace, const cvy_layout *layout, const cvy_row_work *work);
/* The host's row of whole steps. */
void cvy_rows_step(cvy_trace *trace, const cvy_timeline_step *step, uint64_t begin_ns, uint64_t done_ns);
/* Writes n commands of a device, those of each queue in order. A step's commands must be written together: those on the
 * compute queue of steps after `step` move to the front instead; returns how many they are. */
size_t cvy_rows_commands(cvy_trace *trace, const cvy_row_source *source, cvy_row_command *commands, size_t n,
                         long step);

#endif
