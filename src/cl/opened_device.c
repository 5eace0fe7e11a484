/* SPDX-License-Identifier: MIT
 * Outline: the device · queues · events. */
#include "src/cl/opened_device.h"

#include <stdio.h>
#include <time.h>

#include "src/base/clock.h"
#include "src/cl/opencl.h"

static atomic_int n_abandoned;

bool cvy_device_abandon(const cvy_device *device, cvy_pulse *pulse, unsigned long seen, long *objects) {
  if (!atomic_compare_exchange_strong(&pulse->beats, &seen, seen | CVY_PULSE_ABANDONED)) return false;
  atomic_fetch_add(&n_abandoned, 1);
  *objects = device ? atomic_load(&device->children) + 4 : 0; /* context, three queues */
  return true;
}

int cvy_devices_abandoned(void) { return atomic_load(&n_abandoned); }

const cvy_device_info *cvy_device_get_info(const cvy_device *device) { return &device->info; }
const cvy_capabilities *cvy_device_get_capabilities(const cvy_device *device) { return &device->capabilities; }
const char *cvy_device_label(const cvy_device *device) { return device->label; }
cvy_matrix_state *cvy_device_matrix(cvy_device *device) { return &device->matrix; }
const cvy_matrix_state *cvy_device_get_matrix(const cvy_device *device) { return &device->matrix; }
cvy_device_rates *cvy_device_get_rates(cvy_device *device) { return &device->rates; }
cvy_simt_constants *cvy_device_get_constants(cvy_device *device) { return &device->simt; }
cvy_queue *cvy_device_compute_queue(cvy_device *device) { return &device->compute; }
cvy_queue *cvy_device_transfer_queue(cvy_device *device) { return &device->transfer; }
cvy_queue *cvy_device_upload_queue(cvy_device *device) { return &device->upload; }

/* ---- queues ---- */

/* Other threads may flush at the same time. */
static void note_flush(cvy_queue *queue, unsigned long upto) {
  unsigned long now = atomic_load(&queue->flushed);
  while (now < upto && !atomic_compare_exchange_weak(&queue->flushed, &now, upto)) continue;
}

cvy_status cvy_queue_flush(cvy_queue *queue) {
  cvy_status status = CVY_OK;
  cvy_device_beat(queue->device);
  const unsigned long made = atomic_load(&queue->events);
  if (!queue->device->is_dry_run) CVY_CL(queue->device->label, clFlush(queue->cl));
  note_flush(queue, made);
fail:
  cvy_device_beat(queue->device);
  return status;
}

cvy_status cvy_queue_finish(cvy_queue *queue) {
  cvy_status status = CVY_OK;
  cvy_device_beat(queue->device);
  if (!queue->device->is_dry_run) CVY_CL(queue->device->label, clFinish(queue->cl));
fail:
  cvy_device_beat(queue->device);
  return status;
}

cvy_status cvy_device_finish(cvy_device *device) {
  const cvy_status compute = cvy_queue_finish(&device->compute), transfer = cvy_queue_finish(&device->transfer),
                   upload = cvy_queue_finish(&device->upload);
  return compute != CVY_OK ? compute : transfer != CVY_OK ? transfer : upload;
}

cvy_device *cvy_queue_device(cvy_queue *queue) { return queue->device; }

/* ---- events ---- */

static void put_spare(cvy_device *device, cvy_event *event) {
  cvy_mutex_lock(&device->events.lock);
  event->next = device->events.spare;
  device->events.spare = event;
  cvy_mutex_unlock(&device->events.lock);
}

static cvy_event *take_spare(cvy_device *device) {
  cvy_mutex_lock(&device->events.lock);
  cvy_event *const event = device->events.spare;
  if (event) device->events.spare = event->next;
  cvy_mutex_unlock(&device->events.lock);
  return event;
}

cvy_status cvy_device_reserve_events(cvy_device *device, int n) {
  cvy_status status = CVY_OK;
  for (int i = 0; i < n; i++) {
    cvy_event *const event = cvy_calloc(1, sizeof *event);
    CVY_REQUIRE(event, CVY_E_MEMORY, "%s: no memory for an event", device->label);
    put_spare(device, event);
  }
fail:
  return status;
}

void cvy_events_forget(cvy_device *device) {
  for (cvy_event *event; (event = take_spare(device));) cvy_free(event);
  cvy_mutex_end(&device->events.lock);
}

cvy_status cvy_event_wrap(cvy_queue *queue, cl_event cl, const char *name, cvy_event **out) {
  cvy_status status = CVY_OK;
  cvy_event *event = take_spare(queue->device);
  if (!event) {
    status = cvy_device_reserve_events(queue->device, 1);
    event = take_spare(queue->device);
  }
  if (!event) {
    clReleaseEvent(cl);
    return status;
  }
  event->cl = cl;
  event->queue = queue;
  event->number = atomic_fetch_add(&queue->events, 1) + 1; /* behind the command: no flush counts it too early */
  snprintf(event->name, sizeof event->name, "%s", name);
  atomic_fetch_add(&queue->device->children, 1);
  cvy_live_add(CVY_LIVE_EVENT, 1);
  *out = event;
  return CVY_OK;
}

/* Its command has been submitted to the device. */
static bool is_flushed(const cvy_event *event) { return event->number <= atomic_load(&event->queue->flushed); }

void cvy_event_destroy(cvy_event **p) {
  if (!p || !*p) return;
  cvy_event *const event = *p;
  cvy_device_beat(event->queue->device);
  clReleaseEvent(event->cl);
  cvy_device_beat(event->queue->device);
  atomic_fetch_sub(&event->queue->device->children, 1);
  cvy_live_add(CVY_LIVE_EVENT, -1);
  put_spare(event->queue->device, event);
  *p = NULL;
}

cvy_status cvy_event_list(cvy_queue *queue, cvy_event *event, cl_uint *n, const cl_event **list) {
  cvy_status status = CVY_OK;
  *n = event ? 1 : 0;
  *list = event ? &event->cl : NULL;
  if (!event) return CVY_OK;
  CVY_REQUIRE(event->queue->device == queue->device, CVY_E_ARGUMENT,
              "%s: a command cannot wait for '%s' of another device (%s): only the host can", queue->device->label,
              event->name, event->queue->device->label);
  /* Unflushed commands never start, and a command of another queue would wait for them forever. */
  if (event->queue != queue && !is_flushed(event)) CVY_TRY(cvy_queue_flush(event->queue));
fail:
  return status;
}

cvy_status cvy_queue_wait(cvy_queue *queue, cvy_event *event) {
  cvy_status status = CVY_OK;
  cvy_device_beat(queue->device);
  cl_uint n;
  const cl_event *list;
  if (!event || event->queue == queue) return CVY_OK; /* in-order */
  CVY_TRY(cvy_event_list(queue, event, &n, &list));
  CVY_CL(queue->device->label, clEnqueueBarrierWithWaitList(queue->cl, n, list, NULL));
  CVY_TRY(cvy_queue_observe(queue, &(cvy_enqueued){.kind = CVY_COMMAND_WAIT, .name = "wait"}));
fail:
  cvy_device_beat(queue->device);
  return status;
}

cvy_status cvy_queue_marker(cvy_queue *queue, cvy_event **out) {
  cvy_status status = CVY_OK;
  cvy_device_beat(queue->device);
  cl_event event;
  CVY_CL(queue->device->label, clEnqueueMarkerWithWaitList(queue->cl, 0, NULL, &event));
  CVY_TRY(cvy_event_wrap(queue, event, "marker", out));
fail:
  cvy_device_beat(queue->device);
  return status;
}

void cvy_device_wait_asleep(cvy_device *device) { device->waits_asleep = true; }

/* Sleeps until the command is done or has failed; asks for its state 64 times in a usual wait, and less often in a
 * longer one. */
static cvy_status sleep_until_done(cvy_event *event, cl_int *state) {
  enum { ASKED = 64, SHORTEST_NS = 20000, LONGEST_NS = 1000000, WEIGHT = 8 };
  cvy_status status = CVY_OK;
  cvy_device *const device = event->queue->device;
  const uint64_t since = cvy_clock_ns();
  const unsigned long usual = atomic_load(&device->usual_wait_ns);
  unsigned long waited = 0;
  do {
    const unsigned long part = (waited > usual ? waited : usual) / ASKED;
    const long pause_ns = part < SHORTEST_NS ? SHORTEST_NS : part > LONGEST_NS ? LONGEST_NS : (long)part;
    (void)nanosleep(&(struct timespec){.tv_nsec = pause_ns}, NULL);
    cvy_device_park_if_abandoned(device);
    CVY_CL(device->label, clGetEventInfo(event->cl, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof *state, state, NULL));
    waited = (unsigned long)(cvy_clock_ns() - since);
  } while (*state > CL_COMPLETE);
  /* Another thread may store its wait in between: a mean that misses one wait is as good. */
  atomic_store(&device->usual_wait_ns, usual - usual / WEIGHT + waited / WEIGHT);
fail:
  return status;
}

cvy_status cvy_event_wait(cvy_event *event) {
  cvy_status status = CVY_OK;
  if (!event) return CVY_OK;
  cvy_device_beat(event->queue->device);
  const char *const label = event->queue->device->label;
  cl_int state = CL_QUEUED;
  CVY_CL(label, clGetEventInfo(event->cl, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof state, &state, NULL));
  if (state > CL_COMPLETE) {
    if (!is_flushed(event)) CVY_TRY(cvy_queue_flush(event->queue));
    if (event->queue->device->waits_asleep) CVY_TRY(sleep_until_done(event, &state));
  }
  if (state > CL_COMPLETE) {
    const cl_int code = clWaitForEvents(1, &event->cl);
    CVY_CL(label, clGetEventInfo(event->cl, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof state, &state, NULL));
    if (state >= 0) CVY_CL_CODE(label, code, "clWaitForEvents");
  }
  CVY_REQUIRE(state == CL_COMPLETE, CVY_E_DEVICE, "%s: the command '%s' on the %s queue failed: %s (%d)", label,
              event->name, event->queue->name, cvy_cl_error_name(state), (int)state);
fail:
  cvy_device_beat(event->queue->device);
  return status;
}

bool cvy_event_times(const cvy_event *event, uint64_t *start_ns, uint64_t *end_ns) {
  cl_ulong start, end;
  if (!event || !event->queue->device->profiling ||
      clGetEventProfilingInfo(event->cl, CL_PROFILING_COMMAND_START, sizeof start, &start, NULL) != CL_SUCCESS ||
      clGetEventProfilingInfo(event->cl, CL_PROFILING_COMMAND_END, sizeof end, &end, NULL) != CL_SUCCESS || end == 0)
    return false;
  *start_ns = start;
  *end_ns = end;
  return true;
}
