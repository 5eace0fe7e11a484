/* SPDX-License-Identifier: MIT
 * OpenCL devices: what there is (the list of convoy/device.h), and one of them opened for use (device = context + three
 * in-order queues + programs). Only src/cl includes OpenCL headers; everybody else sees the opaque types here. */
#ifndef CVY_CL_OPENED_DEVICE_H
#define CVY_CL_OPENED_DEVICE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "convoy/device.h"
#include "src/base/failure.h"

/* A choice of the selector (selector.h): a device or a part of it. */
typedef struct cvy_device_choice {
  int item;           /* position in the list */
  int units;          /* compute units of the sub-device, 0 = the whole device */
  int unit_first;     /* compute units of the parts before this one in the same /a+b+… term */
  int part, n_parts;  /* this is part `part` of n_parts of a partition: created together so that parts do not overlap */
  int part_units[64]; /* units of all parts of that term */
  char label[160];    /* "0:0 NVIDIA H200"; second part "0:0/1 pthread-…"; second replica "0:0#1 …"; for result lines */
} cvy_device_choice;

typedef struct cvy_device cvy_device; /* opened */
typedef struct cvy_queue cvy_queue;   /* in-order command queue of a device */
typedef struct cvy_event cvy_event;   /* completion of a command; reference-counted, see buffer.h */

/* What multiplies matrices beside plain instructions. Whether it gives the right numbers is for src/ops/math.c to find
 * out. */
typedef enum cvy_matrix_unit {
  CVY_MATRIX_NONE = 0,
  CVY_MATRIX_NVIDIA, /* mma.sync with TF32: compute capability 8.0 and up */
  CVY_MATRIX_AMD,    /* MFMA with float32: gfx908, gfx90a, gfx94x, gfx950 */
} cvy_matrix_unit;

/* Facts that choose kernels, from info and probes: the one place where they are made (facts_fill in device.c). */
typedef struct cvy_device_facts {
  bool cpu_shaped;   /* wants float16 vectors and one work-item per work-group; false: SIMT.
                                       CVY_FORCE_SHAPE=cpu|simt overrides it at opening, for tests and experiments */
  int compute_units; /* of this (sub-)device */
  size_t local_bytes, max_work_group;
  bool host_unified;
  bool has_prefetch;           /* compiler takes __builtin_prefetch of an address: -D CVY_PREFETCH */
  cvy_matrix_unit matrix_unit; /* CVY_FORCE_MATRIX=nvidia|amd claims one on any SIMT-shaped device, for tests */
  bool emulates_matrix;        /* CVY_FORCE_MATRIX=nvidia-emulated|amd-emulated: kernels for it do without its
                                       instruction */
  bool has_min_vector_width;   /* compiler takes __attribute__((min_vector_width(512))): -D CVY_MIN_VECTOR_WIDTH=512 */
} cvy_device_facts;

/* Opens a choice: sub-device if asked, context, queues. `profiling`: queues record event times.
 * CVY_E_DEVICE / CVY_E_UNSUPPORTED (cannot partition like that). Each open is independent (own context), also of the
 * same device. A cvy_device and what is made from it is used by one thread at a time, except that queues, events and
 * buffers may be used from another thread when the caller orders the accesses. */
cvy_status cvy_device_open(const cvy_device_list *list, const cvy_device_choice *choice, bool profiling,
                           cvy_device **out);
void cvy_device_close(cvy_device **device);                             /* after everything made from it is destroyed */
const cvy_device_info *cvy_device_get_info(const cvy_device *device);   /* borrowed */
const cvy_device_facts *cvy_device_get_facts(const cvy_device *device); /* borrowed */
const char *cvy_device_label(const cvy_device *device);
/* What src/ops/math.c has found out about the device; it lasts as long as the device is open. */
typedef struct cvy_matrix_state {
  bool tried, works, told;
} cvy_matrix_state;
cvy_matrix_state *cvy_device_matrix(cvy_device *device); /* borrowed */
const cvy_matrix_state *cvy_device_get_matrix(const cvy_device *device);
cvy_queue *cvy_device_compute_queue(cvy_device *device); /* borrowed */
/* What comes from the device, and what goes to it: a queue for each way, because what comes is enqueued long before it
 * is ready, and what goes must not stand behind it. */
cvy_queue *cvy_device_transfer_queue(cvy_device *device); /* borrowed */
cvy_queue *cvy_device_upload_queue(cvy_device *device);   /* borrowed */

/* How others see whether a device's thread still gets on. Whoever enters or leaves a call of buffer.h, launch.h or a
 * library, or one below here, moves `beats`, and so does each program that is built, and each object that is released.
 * A thread that finds itself given up stops here for good: a hung call may return hours later, when its objects are
 * gone. Both are one number, so that a thread either beats before it is given up, which is refused then, or sees it. */
typedef struct cvy_pulse {
  atomic_ulong beats;
} cvy_pulse;
#define CVY_PULSE_ABANDONED (~(~0ul >> 1))
/* False: the thread has been given up, and parks (cvy_thread_park). */
static inline bool cvy_pulse_beat(cvy_pulse *pulse) {
  /* release: what the thread has looked at so far may be gone once somebody has found that it hangs */
  return !(atomic_fetch_add_explicit(&pulse->beats, 1, memory_order_release) & CVY_PULSE_ABANDONED);
}
/* cvy_device_open for a device with a pulse, which moves while it is opened, too. `pulse` stays for as long as a thread
 * may be inside a call. Abandoned: behind the driver's call that the thread is in, it does not look at list or choice
 * any more. */
cvy_status cvy_device_open_watched(const cvy_device_list *list, const cvy_device_choice *choice, bool profiling,
                                   cvy_pulse *pulse, cvy_device **out);
/* Gives the device up for good: threads that are inside its calls stay there. False, and nothing is given up: `beats`
 * of the pulse is not `seen` any more. *objects, which are never released: without programs; 0 for device NULL, one
 * that a thread is opening or closing. From now on cvy_devices_abandoned counts it. */
bool cvy_device_abandon(const cvy_device *device, cvy_pulse *pulse, unsigned long seen, long *objects);

/* Submits what is enqueued, without waiting. */
cvy_status cvy_queue_flush(cvy_queue *queue);
/* Waits until everything enqueued is done. Reports failures of earlier commands as CVY_E_DEVICE. */
cvy_status cvy_queue_finish(cvy_queue *queue);
cvy_device *cvy_queue_device(cvy_queue *queue);
/* The same of all queues of the device, of the others too when one fails; the first failure. */
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
/* Room for n more events at a time: events are used again, and as long as no more are alive none is allocated. */
cvy_status cvy_device_reserve_events(cvy_device *device, int n);

#endif
