/* SPDX-License-Identifier: MIT
 * An opened OpenCL device (device_open.h): a context, three in-order queues, programs. Only src/cl includes OpenCL
 * headers; other layers see the opaque types here. */
#ifndef CVY_CL_OPENED_DEVICE_H
#define CVY_CL_OPENED_DEVICE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "convoy/device.h"
#include "src/base/failure.h"
#include "src/cl/devices/capabilities.h"
#include "src/cl/devices/cards.h"

typedef struct cvy_device cvy_device; /* opened */
typedef struct cvy_queue cvy_queue;   /* in-order command queue of a device */
typedef struct cvy_event cvy_event;   /* completion of a command */
typedef struct cvy_buffer cvy_buffer;
typedef struct cvy_kernel cvy_kernel;

const cvy_device_info *cvy_device_get_info(const cvy_device *device);          /* borrowed */
const cvy_capabilities *cvy_device_get_capabilities(const cvy_device *device); /* borrowed */
const char *cvy_device_label(const cvy_device *device);
/* All zero: not found yet. Borrowed. */
cvy_device_rates *cvy_device_get_rates(cvy_device *device);
/* Borrowed; may be changed before anything is planned. */
cvy_simt_constants *cvy_device_get_constants(cvy_device *device);
/* Results of src/ops/conv2d/math.c's test of the device's matrix instructions. */
typedef struct cvy_matrix_state {
  bool tried, works, warned;
} cvy_matrix_state;
cvy_matrix_state *cvy_device_matrix(cvy_device *device); /* borrowed */
const cvy_matrix_state *cvy_device_get_matrix(const cvy_device *device);
cvy_queue *cvy_device_compute_queue(cvy_device *device); /* borrowed */
/* A queue for reads from the device, and one for uploads to it: reads are queued long before their data is ready, and
 * on one queue uploads would wait behind them. */
cvy_queue *cvy_device_transfer_queue(cvy_device *device); /* borrowed */
cvy_queue *cvy_device_upload_queue(cvy_device *device);   /* borrowed */

/* Signs of life of a device's threads, for the watchdog. A thread increments `beats` when it enters or leaves a call of
 * buffer.h, launch.h, a library or one below, and around each program that it builds and each object that it releases.
 * A thread that finds CVY_PULSE_ABANDONED set stops here for good: a hung call may return hours later, when its objects
 * are gone. Count and mark are one number: a thread either beats before the watchdog abandons it, which then fails, or
 * sees the mark. */
typedef struct cvy_pulse {
  atomic_ulong beats;
} cvy_pulse;
#define CVY_PULSE_ABANDONED (~(~0ul >> 1))
/* False: the thread is abandoned and must park (cvy_thread_park). */
static inline bool cvy_pulse_beat(cvy_pulse *pulse) {
  /* release: the watchdog may free objects that the thread has read before it abandons the thread */
  return !(atomic_fetch_add_explicit(&pulse->beats, 1, memory_order_release) & CVY_PULSE_ABANDONED);
}

/* Threads that wait for the device's commands now sleep between looks at their state, and a wait ends later by up to
 * 1/64 of the usual one. Otherwise they wait in the driver, and those of NVIDIA and of Intel's graphics cards keep a
 * core busy. Before other threads use the device. */
void cvy_device_wait_asleep(cvy_device *device);
/* [watchdog] Abandons the device for good: threads that are inside its calls stop when the calls return. False: `beats`
 * is not `seen` any more, and nothing changes. *objects: how many are never released, programs not counted; 0 if device
 * is NULL, because a thread is opening or closing it. cvy_devices_abandoned counts the device. */
bool cvy_device_abandon(const cvy_device *device, cvy_pulse *pulse, unsigned long seen, long *objects);

typedef enum cvy_command_kind {
  CVY_COMMAND_KERNEL,   /* launches, fills and copies on the device */
  CVY_COMMAND_TRANSFER, /* write, read, map, unmap */
  CVY_COMMAND_WAIT      /* a queue held until a command of the other queue is done */
} cvy_command_kind;

/* Submits what is enqueued, without waiting. */
cvy_status cvy_queue_flush(cvy_queue *queue);
/* Waits until everything enqueued is done. Reports failures of earlier commands as CVY_E_DEVICE. */
cvy_status cvy_queue_finish(cvy_queue *queue);
cvy_device *cvy_queue_device(cvy_queue *queue);
/* The same for all queues of the device, also after one fails; the first failure. */
cvy_status cvy_device_finish(cvy_device *device);
/* Makes later commands of `queue` wait for the event (of another queue of the same device). */
cvy_status cvy_queue_wait(cvy_queue *queue, cvy_event *event);
/* An event that completes when everything enqueued so far has. */
cvy_status cvy_queue_marker(cvy_queue *queue, cvy_event **out);

/* Blocks until complete; CVY_E_DEVICE if the command failed (its name is in the message). NULL is complete. */
cvy_status cvy_event_wait(cvy_event *event);
/* Times in ns of the device clock, profiling queues only; false if the driver has none (0 is none). */
bool cvy_event_times(const cvy_event *event, uint64_t *start_ns, uint64_t *end_ns);
void cvy_event_destroy(cvy_event **event);
/* Makes room for n more events at a time. Events are used again: none is allocated while no more are alive. */
cvy_status cvy_device_reserve_events(cvy_device *device, int n);

#endif
