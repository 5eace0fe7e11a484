/* SPDX-License-Identifier: MIT
 * A trace file in Chrome's JSON format, for Perfetto. One object:
 *   {"traceEvents": [one event per line …], "displayTimeUnit": "ms", "otherData": {…}}
 * Events: "M" names a process or thread and gives its place · "X" a slice: ts and dur in microseconds with three
 * digits, ts from the trace's begin. Slices of one row nest by their times; an outer one is written before its inner
 * ones. Events are written at once: memory does not grow, and a killed run leaves a file that lacks only its end. */
#ifndef CVY_TIMES_TRACE_H
#define CVY_TIMES_TRACE_H

#include <jansson.h>
#include <stdint.h>

#include "src/base/failure.h"

typedef struct cvy_trace cvy_trace;

typedef struct cvy_trace_row {
  int process, thread;
} cvy_trace_row;

/* CVY_E_IO with path and reason. events_max > 0. Times are counted from begin_ns. */
cvy_status cvy_trace_open(const char *path, long events_max, uint64_t begin_ns, cvy_trace **out);
/* Names a row; rows and processes are shown in the order of their numbers. Not counted. */
void cvy_trace_name_process(cvy_trace *trace, int process, const char *name);
void cvy_trace_name_row(cvy_trace *trace, cvy_trace_row row, const char *name);
/* One slice, of step `step` (-1: of none). Takes ownership of `args` (NULL: only the step). A slice that ends before
 * begin_ns
 * is left out; one that begins before it is cut. */
void cvy_trace_slice(cvy_trace *trace, cvy_trace_row row, const char *category, const char *name, long step,
                     uint64_t begin_ns, uint64_t end_ns, json_t *args);
long cvy_trace_events(const cvy_trace *trace);
long cvy_trace_left_out(const cvy_trace *trace);
/* The lowest step with an event that was left out, -1: none. */
long cvy_trace_first_left_out(const cvy_trace *trace);
/* Writes the end with `other` (takes ownership) as otherData, to which the counts are added, closes and frees. CVY_E_IO
 * if a
 * write has failed. */
cvy_status cvy_trace_close(cvy_trace **trace, json_t *other);

#endif
