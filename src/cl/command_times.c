/* SPDX-License-Identifier: MIT
 * Outline: the scope of a thread's commands · noting events · delivering their times. */
#include "src/cl/command_times.h"

#include <pthread.h>
#include <string.h>

#include "src/base/clock.h"
#include "src/cl/opencl.h"

typedef struct profiled {
  cl_event event, before; /* before NULL: the command's own times; else from the end of `before` to that of `event` */
  cvy_command command;    /* without its times */
} profiled;

typedef struct event_list {
  profiled *items;
  size_t n, capacity;
} event_list;

/* Threads that enqueue fill `fresh`; the thread that takes moves it to `taken`, which it alone touches. A list doubles
 * when a step has more commands than all earlier steps: in the first steps. */
struct cvy_profile {
  pthread_mutex_t lock; /* fresh, names */
  event_list fresh[CVY_QUEUES], taken[CVY_QUEUES];
  char **names; /* of kernels: they outlive the kernels */
  size_t n_names, names_capacity;
  cl_mem marks;                 /* mark() fills it, MARK_BYTES for each queue */
  cl_event library[CVY_QUEUES]; /* the mark of cvy_profile_begin; NULL: no library is at work */
};

enum { MARK_BYTES = 64, LIST_FIRST = 256, NAMES_FIRST = 64 };

/* ---- the scope of a thread's commands ---- */

static _Thread_local struct {
  int scope;
  long step;
  bool noted;
} now = {CVY_SCOPE_NONE, -1, true};

void cvy_profile_scope(cvy_device *device, int scope) {
  if (device->observer) now.scope = scope;
}

int cvy_profile_get_scope(void) { return now.scope; }

void cvy_profile_step(cvy_device *device, long step, bool noted) {
  if (device->profiling) now.step = step, now.noted = noted;
}

/* ---- noting events ---- */

static bool is_noted(void) { return now.noted; }

/* Makes room for one more. */
static bool list_has_room(event_list *list) {
  profiled *const items = cvy_grow(list->items, list->n, &list->capacity, LIST_FIRST, sizeof *items);
  if (items) list->items = items;
  return items != NULL;
}

static cvy_queue_kind kind_of(const cvy_queue *queue) {
  const cvy_device *const device = queue->device;
  return queue == &device->compute    ? CVY_QUEUE_COMPUTE
         : queue == &device->transfer ? CVY_QUEUE_TRANSFER
                                      : CVY_QUEUE_UPLOAD;
}

/* A fill, since every driver reports when it ended. For a marker or a barrier NVIDIA's driver reports 0, others
 * CL_PROFILING_INFO_NOT_AVAILABLE. */
static cvy_status mark(cvy_queue *queue, cl_event *event) {
  cvy_status status = CVY_OK;
  const struct cvy_profile *const p = queue->device->observer_data;
  const cl_uint zero = 0;
  *event = NULL;
  CVY_CL(queue->device->label, clEnqueueFillBuffer(queue->cl, p->marks, &zero, sizeof zero,
                                                   (size_t)kind_of(queue) * MARK_BYTES, sizeof zero, 0, NULL, event));
fail:
  return status;
}

static profiled *list_add(event_list *list) { return list_has_room(list) ? &list->items[list->n++] : NULL; }

static void list_drop_first(event_list *list, size_t n) {
  list->n -= n;
  memmove(list->items, list->items + n, list->n * sizeof *list->items);
}

static void release(profiled *p) {
  clReleaseEvent(p->event);
  if (p->before) clReleaseEvent(p->before);
}

static void list_clear(event_list *list) {
  for (size_t i = 0; i < list->n; i++) release(&list->items[i]);
  list->n = 0;
}

/* The name as a string that lives as long as the device; NULL when out of memory. */
static const char *keep_name(struct cvy_profile *p, const char *name) {
  for (size_t i = 0; i < p->n_names; i++)
    if (!strcmp(p->names[i], name)) return p->names[i];
  char **const names = cvy_grow(p->names, p->n_names, &p->names_capacity, NAMES_FIRST, sizeof *names);
  if (!names) return NULL;
  p->names = names;
  char *const copy = cvy_strdup(name);
  if (copy) p->names[p->n_names++] = copy;
  return copy;
}

static cvy_status keep(cvy_queue *queue, const cvy_enqueued *command, cl_event event, cl_event before) {
  cvy_status status = CVY_OK;
  struct cvy_profile *const p = queue->device->observer_data;
  const cvy_queue_kind which = kind_of(queue);
  const uint64_t enqueued_ns = cvy_clock_ns();
  pthread_mutex_lock(&p->lock);
  const char *const kept = keep_name(p, command->name);
  profiled *const entry = kept ? list_add(&p->fresh[which]) : NULL;
  if (entry) {
    *entry = (profiled){.event = event,
                        .before = before,
                        .command = {.name = kept,
                                    .kind = command->kind,
                                    .queue = which,
                                    .scope = now.scope,
                                    .step = now.step,
                                    .bytes = command->bytes,
                                    .enqueued_ns = enqueued_ns}};
    (void)clRetainEvent(event);
    if (before) (void)clRetainEvent(before);
  }
  pthread_mutex_unlock(&p->lock);
  CVY_REQUIRE(entry, CVY_E_MEMORY, "%s: no memory for the times of its commands", queue->device->label);
fail:
  return status;
}

/* A command without an event ends with a mark behind it: a wait, and a library's commands since cvy_profile_begin.
 */
static cvy_status note_command(cvy_queue *queue, const cvy_enqueued *command) {
  cvy_status status = CVY_OK;
  struct cvy_profile *const p = queue->device->observer_data;
  cl_event made = NULL, before = NULL;
  if (!is_noted()) return CVY_OK;
  if (!command->event) {
    before = p->library[kind_of(queue)], p->library[kind_of(queue)] = NULL;
    CVY_TRY(mark(queue, &made));
  }
  CVY_TRY(keep(queue, command, made ? made : command->event, before));
fail:
  if (made) clReleaseEvent(made);
  if (before) clReleaseEvent(before);
  return status;
}

cvy_status cvy_profile_begin(cvy_queue *queue) {
  struct cvy_profile *const p = queue->device->observer_data;
  return cvy_device_wants_events(queue->device) ? mark(queue, &p->library[kind_of(queue)]) : CVY_OK;
}

static void profile_destroy(void *data) {
  struct cvy_profile *const p = data;
  for (int q = 0; q < CVY_QUEUES; q++) {
    list_clear(&p->fresh[q]);
    list_clear(&p->taken[q]);
    cvy_free(p->fresh[q].items);
    cvy_free(p->taken[q].items);
  }
  for (size_t i = 0; i < p->n_names; i++) cvy_free(p->names[i]);
  cvy_free(p->names);
  if (p->marks) clReleaseMemObject(p->marks);
  pthread_mutex_destroy(&p->lock);
  cvy_free(p);
}

cvy_status cvy_profile_create(cvy_device *device) {
  static const cvy_observer observer = {.wants_events = is_noted, .command = note_command, .destroy = profile_destroy};
  cvy_status status = CVY_OK;
  bool room = true;
  struct cvy_profile *const p = cvy_calloc(1, sizeof *p);
  CVY_REQUIRE(p, CVY_E_MEMORY, "%s: no memory for the times of commands", device->label);
  pthread_mutex_init(&p->lock, NULL);
  device->observer = &observer, device->observer_data = p;
  for (int q = 0; q < CVY_QUEUES; q++) room = list_has_room(&p->fresh[q]) && list_has_room(&p->taken[q]) && room;
  CVY_REQUIRE(room, CVY_E_MEMORY, "%s: no memory for the times of commands", device->label);
  cl_int code;
  p->marks = clCreateBuffer(device->context, CL_MEM_READ_WRITE, CVY_QUEUES * MARK_BYTES, NULL, &code);
  if (code != CL_SUCCESS) p->marks = NULL;
  CVY_CL_CODE(device->label, code, "clCreateBuffer");
fail:
  return status;
}

/* ---- delivering times ---- */

static cvy_status move_fresh(cvy_device *device) {
  cvy_status status = CVY_OK;
  struct cvy_profile *const p = device->observer_data;
  pthread_mutex_lock(&p->lock);
  for (int q = 0; q < CVY_QUEUES; q++) {
    event_list *const from = &p->fresh[q], *const to = &p->taken[q];
    if (to->n == 0) { /* the usual case: the last call took everything */
      const event_list empty = *to;
      *to = *from;
      *from = empty;
      continue;
    }
    size_t i = 0;
    for (profiled *entry; i < from->n && (entry = list_add(to)); i++) *entry = from->items[i];
    if (i < from->n) status = CVY_E_MEMORY;
    list_drop_first(from, i);
  }
  pthread_mutex_unlock(&p->lock);
  if (status != CVY_OK) cvy_log_error("%s: no memory for the times of its commands", device->label);
  return status;
}

/* *known: the driver has times of the command. */
static cvy_status times_of(const cvy_device *device, const profiled *p, cvy_command *c, bool *known) {
  cvy_status status = CVY_OK;
  cl_ulong times[3] = {0}; /* queued, start, end */
  const cl_event first = p->before ? p->before : p->event;
  const struct {
    cl_event event;
    cl_profiling_info what;
  } asked[3] = {{first, CL_PROFILING_COMMAND_QUEUED},
                {first, p->before ? CL_PROFILING_COMMAND_END : CL_PROFILING_COMMAND_START},
                {p->event, CL_PROFILING_COMMAND_END}};
  *known = true;
  for (int i = 0; i < 3; i++) {
    const cl_int code = clGetEventProfilingInfo(asked[i].event, asked[i].what, sizeof times[i], &times[i], NULL);
    *known = *known && code != CL_PROFILING_INFO_NOT_AVAILABLE;
    if (code != CL_PROFILING_INFO_NOT_AVAILABLE) CVY_CL_CODE(device->label, code, "clGetEventProfilingInfo");
  }
  *known = *known && times[2] != 0;
  *c = p->command;
  c->queued_ns = times[0], c->start_ns = times[1], c->end_ns = times[2];
fail:
  return status;
}

static cvy_status take_list(cvy_device *device, event_list *list, cvy_profile_fn sink, void *user) {
  cvy_status status = CVY_OK;
  size_t done = 0;
  for (; done < list->n && status == CVY_OK; done++) {
    profiled *const p = &list->items[done];
    cl_int state = CL_QUEUED;
    cvy_command command;
    bool known = false;
    cvy_device_beat(device);
    CVY_CL(device->label, clGetEventInfo(p->event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof state, &state, NULL));
    if (state > CL_COMPLETE) break;
    if (state == CL_COMPLETE) status = times_of(device, p, &command, &known);
    release(p);
    cvy_device_beat(device); /* an abandoned thread stops here and does not call the sink */
    if (status == CVY_OK && known) sink(user, &command);
  }
fail:
  cvy_device_beat(device);
  list_drop_first(list, done);
  return status;
}

cvy_status cvy_profile_take(cvy_device *device, cvy_profile_fn sink, void *user) {
  cvy_status status = CVY_OK;
  struct cvy_profile *const p = device->observer_data;
  if (!device->profiling) return CVY_OK;
  CVY_TRY(move_fresh(device));
  for (int q = 0; q < CVY_QUEUES; q++) CVY_TRY(take_list(device, &p->taken[q], sink, user));
fail:
  return status;
}

cvy_status cvy_profile_collect(cvy_device *device, cvy_profile_fn sink, void *user) {
  cvy_status status = CVY_OK;
  CVY_REQUIRE(device->profiling, CVY_E_ARGUMENT, "%s: command times need a device opened with profiling",
              device->label);
  CVY_TRY(cvy_device_finish(device));
  CVY_TRY(cvy_profile_take(device, sink, user));
fail:
  /* drops the commands after a failure, too: their times would come twice */
  for (int q = 0; device->profiling && q < CVY_QUEUES; q++)
    list_clear(&((struct cvy_profile *)device->observer_data)->taken[q]);
  return status;
}

cvy_status cvy_profile_clocks(cvy_device *device, cvy_clock_pair *out) {
  cvy_status status = CVY_OK;
  cl_event made = NULL;
  cl_ulong queued, end;
  CVY_REQUIRE(device->profiling, CVY_E_ARGUMENT, "%s: command times need a device opened with profiling",
              device->label);
  cvy_device_beat(device);
  out->host_before = cvy_clock_ns();
  CVY_TRY(mark(&device->compute, &made));
  out->host_enqueued = cvy_clock_ns();
  CVY_CL(device->label, clFlush(device->compute.cl));
  CVY_CL(device->label, clWaitForEvents(1, &made));
  out->host_done = cvy_clock_ns();
  CVY_CL(device->label, clGetEventProfilingInfo(made, CL_PROFILING_COMMAND_QUEUED, sizeof queued, &queued, NULL));
  CVY_CL(device->label, clGetEventProfilingInfo(made, CL_PROFILING_COMMAND_END, sizeof end, &end, NULL));
  out->queued_ns = queued, out->end_ns = end;
fail:
  if (made) clReleaseEvent(made);
  cvy_device_beat(device);
  return status;
}
