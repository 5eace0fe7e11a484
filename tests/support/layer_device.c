/* SPDX-License-Identifier: MIT
 * Words, devices and how they are named: at the top of layer.c; what the words say: layer_faults.h.
 * How a delay is made: behind the command goes a barrier that waits for a user event, which a thread of the layer
 * completes at the right time. The queue's later commands and whoever waits for the command wait for the barrier; the
 * host does not, and no core is used. */
#include "tests/support/layer_device.h"
#include "tests/support/layer_faults.h"
#include "tests/support/layer_maps.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST_UNITS = 256, MOST_QUEUES = 1024, MOST_CONTEXTS = 512, MOST_PARTS = 256, N_STARTS = 8192, MOST_JOBS = 8192 };
#define TIMER_CREDIT_NS 300000 /* what a launch may make up for the layer's own delays */

/* One device as words name it. Its counters start again whenever $CVY_LAYER changes. */
typedef struct unit {
  int device, part;
  long calls[N_CALLS], launches, commands;
  uint64_t first_launch_ns;
  bool hung;
} unit;

typedef struct queue_state {
  cl_command_queue queue;
  cl_context context;
  unit *unit;
  uint64_t free_ns; /* when its last delayed command ends */
  bool hung;        /* nothing behind this moment runs */
} queue_state;

typedef struct job { /* a user event and when it is to be completed */
  cl_event gate;
  uint64_t at_ns;
  unsigned while_version; /* not 0: when the words are no longer those of this number */
} job;

static const cl_icd_dispatch *below;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t news;
static bool timer_runs;
static char words[LAYER_WORDS]; /* the present ones */
static unsigned version = 1;
static fault faults[MOST_FAULTS];
static int n_faults;
static unit units[MOST_UNITS];
static int n_units, n_unnamed;
static queue_state queues[MOST_QUEUES];
static int n_queues;
static struct {
  cl_context context;
  unit *unit;
} contexts[MOST_CONTEXTS];
static int n_contexts, oldest_context, oldest_queue;
static struct {
  cl_device_id id;
  int part;
} parts[MOST_PARTS];
static int n_parts;
static struct {
  cl_event event;
  cl_ulong start;
} starts[N_STARTS];
static job jobs[MOST_JOBS];
static int n_jobs;

static uint64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* ---- words ---- */

/* Calls of a kind ("any": of all) on all devices since the words changed. */
long cvy_test_layer_calls(const char *name);
long cvy_test_layer_calls(const char *name) {
  const int c = layer_call_find(name);
  long n = 0;
  if (c < 0) layer_order_wrong(name);
  pthread_mutex_lock(&lock);
  for (int i = 0; i < n_units; i++) n += units[i].calls[c];
  pthread_mutex_unlock(&lock);
  return n;
}

/* Under the lock: what is wanted now. */
static void read_words(void) {
  if (!layer_order_read(words)) return;
  version++;
  n_faults = layer_faults_read(words, faults);
  for (int i = 0; i < n_units; i++) units[i] = (unit){.device = units[i].device, .part = units[i].part};
  for (int i = 0; i < n_queues; i++) queues[i].hung = false;
}

static bool wanted(const char *name) { return layer_order_has(name, NULL, 0); }

/* Under no lock: no words of faults are in force, and a call may go straight to the driver. */
static bool all_well(void) {
  pthread_mutex_lock(&lock);
  read_words();
  const bool none = n_faults == 0;
  pthread_mutex_unlock(&lock);
  return none;
}

static bool is_for(const fault *f, const unit *u) {
  if (f->part >= 0) return f->part == u->part;
  return f->device < 0 || f->device == u->device;
}

/* ---- who is who ---- */

/* The thread that opens a device is named after its index in the team (team.c): that is what holds when all are opened
 * side by side. On other threads: the order of opening, from 0 again after 64. */
static int index_here(void) {
  char name[32] = "";
  int index;
  pthread_getname_np(pthread_self(), name, sizeof name);
  return sscanf(name, "cvy-dev%d", &index) == 1 ? index : n_unnamed++ % 64;
}

static unit *unit_of(int device, int part) {
  for (int i = 0; i < n_units; i++)
    if (units[i].device == device && units[i].part == part) return &units[i];
  if (n_units == MOST_UNITS) abort();
  units[n_units] = (unit){.device = device, .part = part};
  return &units[n_units++];
}

static unit *unit_of_context(cl_context context) {
  for (int i = 0; i < n_contexts; i++)
    if (contexts[i].context == context) return contexts[i].unit;
  return NULL;
}

static queue_state *state_of(cl_command_queue queue) {
  for (int i = 0; i < n_queues; i++)
    if (queues[i].queue == queue) return &queues[i];
  return NULL;
}

static queue_state *state_of_event(cl_event event) {
  cl_command_queue queue = NULL;
  if (below->clGetEventInfo(event, CL_EVENT_COMMAND_QUEUE, sizeof queue, &queue, NULL) != CL_SUCCESS) return NULL;
  return queue ? state_of(queue) : NULL;
}

/* ---- the thread that completes user events ---- */

static void *timer_main(void *arg) {
  (void)arg;
  pthread_setname_np(pthread_self(), "layer-timer");
  pthread_mutex_lock(&lock);
  for (;;) {
    uint64_t next = now_ns() + 10000000u; /* words may change without a call */
    int due = -1;
    read_words();
    for (int i = 0; i < n_jobs && due < 0; i++) {
      if (jobs[i].while_version ? jobs[i].while_version != version : jobs[i].at_ns <= now_ns()) due = i;
      else if (!jobs[i].while_version && jobs[i].at_ns < next) next = jobs[i].at_ns;
    }
    if (due < 0) {
      const struct timespec until = {(time_t)(next / 1000000000u), (long)(next % 1000000000u)};
      pthread_cond_timedwait(&news, &lock, &until);
      continue;
    }
    const cl_event gate = jobs[due].gate;
    jobs[due] = jobs[--n_jobs];
    pthread_mutex_unlock(&lock);
    below->clSetUserEventStatus(gate, CL_COMPLETE);
    below->clReleaseEvent(gate);
    pthread_mutex_lock(&lock);
  }
  return NULL;
}

/* Under the lock. */
static void schedule(cl_event gate, uint64_t at_ns, unsigned while_version) {
  if (!timer_runs) {
    pthread_t thread;
    pthread_condattr_t clock;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&news, &clock);
    pthread_condattr_destroy(&clock);
    if (pthread_create(&thread, NULL, timer_main, NULL) != 0) abort();
    pthread_detach(thread);
    timer_runs = true;
  }
  if (n_jobs == MOST_JOBS) abort();
  jobs[n_jobs++] = (job){.gate = gate, .at_ns = at_ns, .while_version = while_version};
  pthread_cond_signal(&news);
}

/* ---- faults of calls ---- */

/* Counts the call; what it fails with, or CL_SUCCESS. May stay inside for as long as the words do not change.
 * `command`: it puts something on the queue (NULL: a call without a queue). Under the lock, which it may let go
 * meanwhile. */
static cl_int enter(unit *u, queue_state *q, call c, bool command) {
  read_words();
  if (!u || n_faults == 0) return CL_SUCCESS;
  const bool quiet = c == CALL_INFO || c == CALL_RELEASE || c == CALL_CONTEXT || c == CALL_BUILD;
  const long number = u->calls[c]++, any = quiet ? -1 : u->calls[CALL_ANY]++, nth = command ? u->commands++ : -1;
  const unsigned since = version;
  cl_int code = CL_SUCCESS;
  for (int i = 0; i < n_faults && since == version; i++) {
    const fault *const f = &faults[i];
    if (!is_for(f, u)) continue;
    const bool counted = f->call == c || (f->call == CALL_ANY && !quiet);
    const long n = f->call == CALL_ANY ? any : number;
    if (f->kind == FAIL && counted && n >= f->at) code = f->code;
    if (f->kind == FAIL_ONCE && counted && n == f->at) code = f->code;
    if (f->kind == HANG && command && nth >= f->at) u->hung = true;
    if (f->kind == HANG_CALL && counted && n >= f->at)
      while (since == version) {
        pthread_mutex_unlock(&lock);
        nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
        pthread_mutex_lock(&lock);
        read_words();
      }
  }
  if (since == version && q && command && u->hung && !q->hung) {
    cl_int made;
    const cl_event gate = below->clCreateUserEvent(q->context, &made);
    if (made != CL_SUCCESS) abort();
    below->clEnqueueBarrierWithWaitList(q->queue, 1, &gate, NULL);
    schedule(gate, 0, version);
    q->hung = true;
  }
  return code;
}

/* What an event of this device is said to have ended with: from the N-th command on, everything fails. */
static cl_int event_code(const unit *u) {
  for (int i = 0; u && i < n_faults; i++)
    if (faults[i].kind == BAD_EVENT && is_for(&faults[i], u) && (faults[i].at == 0 || u->commands > faults[i].at))
      return faults[i].code;
  return CL_SUCCESS;
}

/* LATE or SPIN. */
static bool waits_so(const unit *u, fault_kind kind) {
  for (int i = 0; u && i < n_faults; i++)
    if (faults[i].kind == kind && is_for(&faults[i], u)) return true;
  return false;
}

static cl_int enter_queue(cl_command_queue queue, call c, bool command) {
  if (all_well()) return CL_SUCCESS;
  pthread_mutex_lock(&lock);
  queue_state *const q = state_of(queue);
  const cl_int code = enter(q ? q->unit : NULL, q, c, command);
  pthread_mutex_unlock(&lock);
  return code;
}

/* ---- delays ---- */

typedef struct delay {
  cl_command_queue queue;
  cl_event gate, command, out; /* out: what the caller has as the command's event, or NULL */
  double factor;               /* launches */
  uint64_t fixed_ns;           /* transfers */
} delay;

static size_t slot_of(cl_event event) { return ((uintptr_t)event >> 4) % N_STARTS; }

static void CL_CALLBACK command_done(cl_event event, cl_int state, void *user) {
  delay *const d = user;
  cl_ulong queued = 0, start = 0, end = 0;
  (void)state;
  below->clGetEventProfilingInfo(event, CL_PROFILING_COMMAND_QUEUED, sizeof queued, &queued, NULL);
  below->clGetEventProfilingInfo(event, CL_PROFILING_COMMAND_START, sizeof start, &start, NULL);
  below->clGetEventProfilingInfo(event, CL_PROFILING_COMMAND_END, sizeof end, &end, NULL);
  pthread_mutex_lock(&lock);
  queue_state *const q = state_of(d->queue);
  const uint64_t now = now_ns();
  const uint64_t own = end > start ? end - start : 0;
  const uint64_t span = d->fixed_ns ? d->fixed_ns : (uint64_t)(d->factor * (double)own);
  /* The command should have begun when the one before it ended; timers and callbacks are late. Times are counted back
   * from now: the device's clock may be another. */
  uint64_t begin = now - own;
  if (q && q->free_ns && q->free_ns < begin)
    begin = begin - q->free_ns < TIMER_CREDIT_NS ? q->free_ns : begin - TIMER_CREDIT_NS;
  const uint64_t at = begin + span;
  if (q) q->free_ns = at;
  if (d->out) {
    starts[slot_of(d->out)].event = d->out;
    starts[slot_of(d->out)].start = start;
  }
  schedule(d->gate, at, 0);
  pthread_mutex_unlock(&lock);
  below->clReleaseEvent(event);
  free(d);
}

/* The command that has just been enqueued takes longer. `event`: as the caller asked; gets the end of the delay. With
 * `blocking` waits for it. */
static cl_int delay_command(cl_command_queue queue, cl_context context, cl_event command, double factor,
                            uint64_t fixed_ns, bool blocking, cl_event *event) {
  cl_int code;
  cl_event ends = NULL;
  delay *const d = calloc(1, sizeof *d);
  if (!d) abort();
  *d = (delay){.queue = queue, .command = command, .factor = factor, .fixed_ns = fixed_ns};
  d->gate = below->clCreateUserEvent(context, &code);
  if (code == CL_SUCCESS) code = below->clEnqueueBarrierWithWaitList(queue, 1, &d->gate, &ends);
  if (code != CL_SUCCESS) abort();
  d->out = event ? ends : NULL;
  if (below->clSetEventCallback(command, CL_COMPLETE, command_done, d) != CL_SUCCESS) abort();
  if (blocking) code = below->clWaitForEvents(1, &ends);
  if (event) *event = ends;
  else below->clReleaseEvent(ends);
  return code;
}

/* What is in force for a launch (1: nothing). */
static double factor_of(unit *u) {
  double factor = 1;
  const uint64_t now = now_ns();
  if (!u->first_launch_ns) u->first_launch_ns = now;
  const double launch = (double)u->launches++, seconds = 1e-9 * (double)(now - u->first_launch_ns);
  for (int i = 0; i < n_faults; i++) {
    const fault *const f = &faults[i];
    const double at = f->seconds ? seconds : launch;
    if (f->kind == SLOW && is_for(f, u) && at >= f->from && at < f->to) factor *= f->number;
  }
  return factor;
}

static uint64_t transfer_ns(const unit *u, call c, size_t bytes) {
  const bool up = c == CALL_WRITE || c == CALL_UNMAP;
  for (int i = 0; i < n_faults; i++)
    if (faults[i].kind == LINK && is_for(&faults[i], u))
      return (uint64_t)((double)bytes / (up ? faults[i].up : faults[i].number)) + 1;
  return 0;
}

/* Under no lock: counts a transfer; its code; *ns it is to take (0: as it is) and the queue's context. */
static cl_int enter_transfer(cl_command_queue queue, call c, size_t bytes, uint64_t *ns, cl_context *context) {
  *ns = 0;
  *context = NULL;
  if (all_well()) return CL_SUCCESS;
  pthread_mutex_lock(&lock);
  queue_state *const q = state_of(queue);
  const cl_int code = enter(q ? q->unit : NULL, q, c, true);
  *ns = q && bytes ? transfer_ns(q->unit, c, bytes) : 0;
  *context = q ? q->context : NULL;
  pthread_mutex_unlock(&lock);
  return code;
}

/* ---- the calls ---- */

/* Whether the word is there for a transfer that does not block, and its host memory is not pinned. */
static bool is_pageable(const char *word, cl_bool blocking, const void *host, size_t size) {
  return !blocking && wanted(word) && !layer_maps_pinned(host, size);
}

static cl_int CL_API_CALL enqueue_kernel(cl_command_queue queue, cl_kernel kernel, cl_uint dims, const size_t *offset,
                                         const size_t *global, const size_t *local, cl_uint n, const cl_event *list,
                                         cl_event *event) {
  cl_event command;
  if (all_well()) return below->clEnqueueNDRangeKernel(queue, kernel, dims, offset, global, local, n, list, event);
  pthread_mutex_lock(&lock);
  queue_state *const q = state_of(queue);
  cl_int code = enter(q ? q->unit : NULL, q, CALL_LAUNCH, true);
  const double factor = q && code == CL_SUCCESS ? factor_of(q->unit) : 1;
  const cl_context context = q ? q->context : NULL;
  pthread_mutex_unlock(&lock);
  if (code != CL_SUCCESS) return code;
  if (factor <= 1) return below->clEnqueueNDRangeKernel(queue, kernel, dims, offset, global, local, n, list, event);
  code = below->clEnqueueNDRangeKernel(queue, kernel, dims, offset, global, local, n, list, &command);
  return code == CL_SUCCESS ? delay_command(queue, context, command, factor, 0, false, event) : code;
}

static cl_int CL_API_CALL enqueue_read(cl_command_queue queue, cl_mem buffer, cl_bool blocking, size_t offset,
                                       size_t size, void *to, cl_uint n, const cl_event *list, cl_event *event) {
  uint64_t ns;
  cl_context context;
  cl_event command;
  if (is_pageable("no-pageable", blocking, to, size)) return CL_INVALID_OPERATION;
  if (is_pageable("block-pageable", blocking, to, size)) blocking = CL_TRUE;
  cl_int code = enter_transfer(queue, CALL_READ, size, &ns, &context);
  if (code != CL_SUCCESS) return code;
  if (!ns) return below->clEnqueueReadBuffer(queue, buffer, blocking, offset, size, to, n, list, event);
  code = below->clEnqueueReadBuffer(queue, buffer, CL_FALSE, offset, size, to, n, list, &command);
  return code == CL_SUCCESS ? delay_command(queue, context, command, 0, ns, blocking, event) : code;
}

static cl_int CL_API_CALL enqueue_write(cl_command_queue queue, cl_mem buffer, cl_bool blocking, size_t offset,
                                        size_t size, const void *from, cl_uint n, const cl_event *list,
                                        cl_event *event) {
  uint64_t ns;
  cl_context context;
  cl_event command;
  if (is_pageable("no-pageable", blocking, from, size)) return CL_INVALID_OPERATION;
  if (is_pageable("block-pageable", blocking, from, size)) blocking = CL_TRUE;
  cl_int code = enter_transfer(queue, CALL_WRITE, size, &ns, &context);
  if (code != CL_SUCCESS) return code;
  if (!ns) return below->clEnqueueWriteBuffer(queue, buffer, blocking, offset, size, from, n, list, event);
  code = below->clEnqueueWriteBuffer(queue, buffer, CL_FALSE, offset, size, from, n, list, &command);
  return code == CL_SUCCESS ? delay_command(queue, context, command, 0, ns, blocking, event) : code;
}

static void *CL_API_CALL enqueue_map(cl_command_queue queue, cl_mem buffer, cl_bool blocking, cl_map_flags flags,
                                     size_t offset, size_t size, cl_uint n, const cl_event *list, cl_event *event,
                                     cl_int *code_ret) {
  uint64_t ns;
  cl_context context;
  cl_event command;
  cl_int code = enter_transfer(queue, CALL_MAP, size, &ns, &context);
  void *at = NULL;
  if (code == CL_SUCCESS)
    at = below->clEnqueueMapBuffer(queue, buffer, ns ? CL_FALSE : blocking, flags, offset, size, n, list,
                                   ns ? &command : event, &code);
  if (code == CL_SUCCESS) {
    layer_maps_add(buffer, at, size, ns != 0, (flags & CL_MAP_READ) != flags);
    if (ns) code = delay_command(queue, context, command, 0, ns, blocking, event);
  }
  if (code_ret) *code_ret = code;
  return at;
}

static cl_int CL_API_CALL enqueue_unmap(cl_command_queue queue, cl_mem buffer, void *at, cl_uint n,
                                        const cl_event *list, cl_event *event) {
  uint64_t ns;
  cl_context context;
  cl_event command;
  cl_int code = enter_transfer(queue, CALL_UNMAP, layer_maps_remove(at), &ns, &context);
  if (code != CL_SUCCESS) return code;
  if (!ns) return below->clEnqueueUnmapMemObject(queue, buffer, at, n, list, event);
  code = below->clEnqueueUnmapMemObject(queue, buffer, at, n, list, &command);
  return code == CL_SUCCESS ? delay_command(queue, context, command, 0, ns, false, event) : code;
}

static cl_int CL_API_CALL enqueue_fill(cl_command_queue queue, cl_mem buffer, const void *pattern, size_t pattern_size,
                                       size_t offset, size_t size, cl_uint n, const cl_event *list, cl_event *event) {
  const cl_int code = enter_queue(queue, CALL_FILL, true);
  if (code != CL_SUCCESS) return code;
  return below->clEnqueueFillBuffer(queue, buffer, pattern, pattern_size, offset, size, n, list, event);
}

static cl_int CL_API_CALL enqueue_copy(cl_command_queue queue, cl_mem from, cl_mem to, size_t from_offset,
                                       size_t to_offset, size_t size, cl_uint n, const cl_event *list,
                                       cl_event *event) {
  const cl_int code = enter_queue(queue, CALL_COPY, true);
  if (code != CL_SUCCESS) return code;
  return below->clEnqueueCopyBuffer(queue, from, to, from_offset, to_offset, size, n, list, event);
}

static cl_int CL_API_CALL enqueue_marker(cl_command_queue queue, cl_uint n, const cl_event *list, cl_event *event) {
  const cl_int code = enter_queue(queue, CALL_MARKER, true);
  return code != CL_SUCCESS ? code : below->clEnqueueMarkerWithWaitList(queue, n, list, event);
}

static cl_int CL_API_CALL enqueue_barrier(cl_command_queue queue, cl_uint n, const cl_event *list, cl_event *event) {
  const cl_int code = enter_queue(queue, CALL_BARRIER, true);
  return code != CL_SUCCESS ? code : below->clEnqueueBarrierWithWaitList(queue, n, list, event);
}

static cl_int CL_API_CALL flush(cl_command_queue queue) {
  const cl_int code = enter_queue(queue, CALL_FLUSH, false);
  return code != CL_SUCCESS ? code : below->clFlush(queue);
}

static cl_int CL_API_CALL finish(cl_command_queue queue) {
  const cl_int code = enter_queue(queue, CALL_FINISH, false);
  return code != CL_SUCCESS ? code : below->clFinish(queue);
}

static cl_int CL_API_CALL wait_for_events(cl_uint n, const cl_event *list) {
  if (all_well()) return below->clWaitForEvents(n, list);
  pthread_mutex_lock(&lock);
  queue_state *const q = n > 0 ? state_of_event(list[0]) : NULL;
  cl_int code = enter(q ? q->unit : NULL, q, CALL_WAIT, false);
  pthread_mutex_unlock(&lock);
  if (code != CL_SUCCESS) return code;
  pthread_mutex_lock(&lock);
  const bool spins = q && waits_so(q->unit, SPIN);
  pthread_mutex_unlock(&lock);
  for (cl_int state = CL_QUEUED; spins && state > CL_COMPLETE;)
    if (below->clGetEventInfo(list[0], CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof state, &state, NULL)) break;
  code = below->clWaitForEvents(n, list);
  pthread_mutex_lock(&lock);
  const bool bad = q && event_code(q->unit) != CL_SUCCESS, late = q && waits_so(q->unit, LATE);
  const cl_command_queue queue = q ? q->queue : NULL;
  pthread_mutex_unlock(&lock);
  if (late && code == CL_SUCCESS) code = below->clFinish(queue);
  return bad && code == CL_SUCCESS ? CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST : code;
}

static cl_int enter_event(cl_event event, call c) {
  if (all_well()) return CL_SUCCESS;
  pthread_mutex_lock(&lock);
  queue_state *const q = state_of_event(event);
  const cl_int code = enter(q ? q->unit : NULL, q, c, false);
  pthread_mutex_unlock(&lock);
  return code;
}

static cl_int CL_API_CALL release_event(cl_event event) {
  const cl_int bad = enter_event(event, CALL_RELEASE), code = below->clReleaseEvent(event);
  return bad != CL_SUCCESS ? bad : code;
}

static cl_int CL_API_CALL get_event_info(cl_event event, cl_event_info what, size_t size, void *value,
                                         size_t *size_ret) {
  cl_int code = enter_event(event, CALL_INFO);
  if (code == CL_SUCCESS) code = below->clGetEventInfo(event, what, size, value, size_ret);
  if (code != CL_SUCCESS || !value || what != CL_EVENT_COMMAND_EXECUTION_STATUS || all_well()) return code;
  pthread_mutex_lock(&lock);
  read_words();
  const queue_state *const q = state_of_event(event);
  const cl_int bad = event_code(q ? q->unit : NULL);
  pthread_mutex_unlock(&lock);
  if (bad != CL_SUCCESS && *(cl_int *)value == CL_COMPLETE) *(cl_int *)value = bad;
  return code;
}

/* A slowed launch begins where the launch does and ends where its delay does. */
static cl_int CL_API_CALL get_profiling_info(cl_event event, cl_profiling_info what, size_t size, void *value,
                                             size_t *size_ret) {
  const cl_int code = below->clGetEventProfilingInfo(event, what, size, value, size_ret);
  if (code != CL_SUCCESS || !value) return code;
  cl_command_type type = 0;
  if (below->clGetEventInfo(event, CL_EVENT_COMMAND_TYPE, sizeof type, &type, NULL) != CL_SUCCESS) return code;
  pthread_mutex_lock(&lock);
  const size_t slot = slot_of(event);
  const bool delay = starts[slot].event == event && type == CL_COMMAND_BARRIER;
  if (delay && what == CL_PROFILING_COMMAND_START && starts[slot].start < *(cl_ulong *)value)
    *(cl_ulong *)value = starts[slot].start;
  pthread_mutex_unlock(&lock);
  if (!delay && (type == CL_COMMAND_BARRIER || type == CL_COMMAND_MARKER)) {
    if (layer_order_is("marker-times", "0")) *(cl_ulong *)value = 0;
    if (layer_order_is("marker-times", "none")) return CL_PROFILING_INFO_NOT_AVAILABLE;
  }
  return code;
}

static cl_mem CL_API_CALL create_buffer(cl_context context, cl_mem_flags flags, size_t size, void *host, cl_int *code) {
  char limit[32];
  pthread_mutex_lock(&lock);
  cl_int bad = enter(unit_of_context(context), NULL, CALL_BUFFER, false);
  pthread_mutex_unlock(&lock);
  if (layer_order_has("no-buffer", limit, sizeof limit) && size >= strtoull(limit, NULL, 10))
    bad = CL_MEM_OBJECT_ALLOCATION_FAILURE;
  if (flags & CL_MEM_ALLOC_HOST_PTR && wanted("no-pinned")) bad = CL_MEM_OBJECT_ALLOCATION_FAILURE;
  if (bad == CL_SUCCESS) {
    const cl_mem buffer = below->clCreateBuffer(context, flags, size, host, code);
    layer_maps_buffer(buffer, flags & CL_MEM_ALLOC_HOST_PTR);
    return buffer;
  }
  if (code) *code = bad;
  return NULL;
}

static cl_int CL_API_CALL set_arg(cl_kernel kernel, cl_uint index, size_t size, const void *value) {
  cl_context context = NULL;
  cl_int code = CL_SUCCESS;
  if (all_well()) return below->clSetKernelArg(kernel, index, size, value);
  if (below->clGetKernelInfo(kernel, CL_KERNEL_CONTEXT, sizeof context, &context, NULL) == CL_SUCCESS) {
    pthread_mutex_lock(&lock);
    code = enter(unit_of_context(context), NULL, CALL_ARG, false);
    pthread_mutex_unlock(&lock);
  }
  return code != CL_SUCCESS ? code : below->clSetKernelArg(kernel, index, size, value);
}

/* ---- contexts, queues, parts ---- */

static cl_context CL_API_CALL create_context(const cl_context_properties *properties, cl_uint n,
                                             const cl_device_id *devices,
                                             void(CL_CALLBACK *notify)(const char *, const void *, size_t, void *),
                                             void *user, cl_int *code) {
  if (wanted("no-context")) {
    if (code) *code = CL_OUT_OF_RESOURCES;
    return NULL;
  }
  int i = 0, part = -1;
  pthread_mutex_lock(&lock);
  for (int k = 0; n > 0 && k < n_parts; k++)
    if (parts[k].id == devices[0]) part = parts[k].part;
  unit *const who = unit_of(index_here(), part);
  const cl_int bad = notify ? enter(who, NULL, CALL_CONTEXT, false) : CL_SUCCESS; /* the list's have none */
  pthread_mutex_unlock(&lock);
  if (bad != CL_SUCCESS) {
    if (code) *code = bad;
    return NULL;
  }
  const cl_context context = below->clCreateContext(properties, n, devices, notify, user, code);
  if (!context || n == 0) return context;
  pthread_mutex_lock(&lock);
  while (i < n_contexts && contexts[i].context != context) i++; /* an address may come back */
  if (i == MOST_CONTEXTS) i = oldest_context++ % MOST_CONTEXTS; /* long closed */
  contexts[i].context = context;
  contexts[i].unit = who;
  if (i == n_contexts) n_contexts++;
  pthread_mutex_unlock(&lock);
  return context;
}

static cl_int CL_API_CALL build_program(cl_program program, cl_uint n, const cl_device_id *devices, const char *options,
                                        void(CL_CALLBACK *notify)(cl_program, void *), void *user) {
  cl_context context = NULL;
  cl_int code = CL_SUCCESS;
  if (below->clGetProgramInfo(program, CL_PROGRAM_CONTEXT, sizeof context, &context, NULL) == CL_SUCCESS) {
    pthread_mutex_lock(&lock);
    code = enter(unit_of_context(context), NULL, CALL_BUILD, false);
    pthread_mutex_unlock(&lock);
  }
  return code != CL_SUCCESS ? code : below->clBuildProgram(program, n, devices, options, notify, user);
}

static cl_command_queue CL_API_CALL create_queue(cl_context context, cl_device_id device,
                                                 cl_command_queue_properties properties, cl_int *code) {
  if (wanted("no-queue")) {
    if (code) *code = CL_OUT_OF_HOST_MEMORY;
    return NULL;
  }
  /* delays are counted from what the commands have taken */
  if (layer_order_wants_faults()) properties |= CL_QUEUE_PROFILING_ENABLE;
  const cl_command_queue queue = below->clCreateCommandQueue(context, device, properties, code);
  if (!queue) return queue;
  pthread_mutex_lock(&lock);
  int i = 0;
  while (i < n_queues && queues[i].queue != queue) i++;
  if (i == MOST_QUEUES) i = oldest_queue++ % MOST_QUEUES;
  queues[i] = (queue_state){.queue = queue, .context = context, .unit = unit_of_context(context)};
  if (i == n_queues) n_queues++;
  pthread_mutex_unlock(&lock);
  return queue;
}

static cl_int CL_API_CALL create_sub_devices(cl_device_id device, const cl_device_partition_property *how, cl_uint n,
                                             cl_device_id *out, cl_uint *n_ret) {
  if (wanted("no-sub-devices")) return CL_DEVICE_PARTITION_FAILED;
  const cl_int code = below->clCreateSubDevices(device, how, n, out, n_ret);
  pthread_mutex_lock(&lock);
  for (cl_uint k = 0; code == CL_SUCCESS && out && k < n; k++) {
    int i = 0;
    while (i < n_parts && parts[i].id != out[k]) i++;
    if (i == MOST_PARTS) i = n_parts = 0; /* the oldest are gone by now */
    parts[i].id = out[k];
    parts[i].part = (int)k;
    if (i == n_parts) n_parts++;
  }
  pthread_mutex_unlock(&lock);
  return code;
}

void layer_device_init(const cl_icd_dispatch *driver, cl_icd_dispatch *above) {
  below = driver;
  above->clCreateContext = create_context;
  above->clBuildProgram = build_program;
  above->clCreateCommandQueue = create_queue;
  above->clCreateSubDevices = create_sub_devices;
  above->clCreateBuffer = create_buffer;
  above->clSetKernelArg = set_arg;
  above->clEnqueueNDRangeKernel = enqueue_kernel;
  above->clEnqueueReadBuffer = enqueue_read;
  above->clEnqueueWriteBuffer = enqueue_write;
  above->clEnqueueMapBuffer = enqueue_map;
  above->clEnqueueUnmapMemObject = enqueue_unmap;
  above->clEnqueueFillBuffer = enqueue_fill;
  above->clEnqueueCopyBuffer = enqueue_copy;
  above->clEnqueueMarkerWithWaitList = enqueue_marker;
  above->clEnqueueBarrierWithWaitList = enqueue_barrier;
  above->clFlush = flush;
  above->clFinish = finish;
  above->clWaitForEvents = wait_for_events;
  above->clGetEventInfo = get_event_info;
  above->clReleaseEvent = release_event;
  above->clGetEventProfilingInfo = get_profiling_info;
}
