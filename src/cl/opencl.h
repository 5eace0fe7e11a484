/* SPDX-License-Identifier: MIT
 * OpenCL for the files of src/cl alone: the headers, the fifth verb of error handling (cl), and the inside of the
 * opaque types. */
#ifndef CVY_CL_OPENCL_H
#define CVY_CL_OPENCL_H

#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <CL/cl_ext.h>

#include <stdatomic.h>

#include "src/base/mem.h"
#include "src/base/sync.h"
#include "src/base/text.h"
#include "src/cl/opened_device.h"

/* "CL_OUT_OF_RESOURCES"; "unknown error" for others. */
const char *cvy_cl_error_name(cl_int code);
/* Logs "0:0 NAME: clFoo failed: CL_BAR (-5) [file:line]" and gives the status that fits the code. */
cvy_status cvy_cl_failed(cl_int code, const char *call, const char *label, const char *file, int line);

/* cl: an OpenCL call that returns its code. `label` names the device. */
#define CVY_CL(label, call)                                                 \
  do {                                                                      \
    const cl_int cl_code_ = (call);                                         \
    if (cl_code_ != CL_SUCCESS) {                                           \
      status = cvy_cl_failed(cl_code_, #call, (label), __FILE__, __LINE__); \
      goto fail;                                                            \
    }                                                                       \
  } while (0)
/* The same for calls that give their code through a pointer: CVY_CL_CODE(label, code, "clCreateBuffer"). */
#define CVY_CL_CODE(label, code, call_name)                                     \
  do {                                                                          \
    if ((code) != CL_SUCCESS) {                                                 \
      status = cvy_cl_failed((code), (call_name), (label), __FILE__, __LINE__); \
      goto fail;                                                                \
    }                                                                           \
  } while (0)

struct cvy_queue {
  cvy_device *device;
  cl_command_queue cl;
  const char *name;             /* "compute", "transfer", "upload" */
  atomic_ulong events, flushed; /* events made of its commands; the number of the last one that a flush has submitted */
};

struct cvy_event {
  cl_event cl;
  cvy_queue *queue;     /* of the command */
  unsigned long number; /* among the queue's events, from 1 */
  char name[64];        /* of the command */
  cvy_event *next;      /* spare */
};

typedef struct cvy_arg_slot cvy_arg_slot;
struct cvy_kernel {
  cvy_device *device;
  cl_kernel cl; /* NULL: noted, and not built yet */
  char *file, *name;
  char *options;          /* of the program; NULL once it is built */
  cvy_kernel *next_noted; /* in cvy_device.noted */
  bool is_forward, launched;
  cl_uint n_args;
  cvy_arg_slot *slots;       /* one per argument */
  size_t max_group;          /* of this kernel on this device */
  size_t required[3];        /* reqd_work_group_size, zeros if none */
  size_t static_local_bytes; /* __local arrays of the kernel, without arguments */
};

/* A command, as its queue gets it. */
typedef struct cvy_enqueued {
  cvy_command_kind kind;
  const char *file, *name;     /* of a kernel; file NULL: another command */
  const struct cvy_grid *grid; /* of a launch, with its arguments */
  const struct cvy_arg *args;
  int n_args;
  size_t bytes;
  cl_event event; /* NULL: the command has none, or it is not wanted */
} cvy_enqueued;

/* Sees the commands of a device: their times are noted (command_times.c), or a plan is made of them (dry_run.c). */
typedef struct cvy_observer {
  bool (*wants_events)(void); /* with profiling: of commands that the calling thread enqueues */
  cvy_status (*command)(cvy_queue *queue, const cvy_enqueued *command);
  void (*destroy)(void *data);
} cvy_observer;

/* The result of trying a library on a device. */
typedef struct cvy_probe {
  bool done, good;
  char why[96];
} cvy_probe;

struct cvy_device {
  cvy_device_info info; /* of the whole device */
  cvy_capabilities capabilities;
  char label[160];
  cl_device_id id; /* the sub-device if is_part */
  bool is_part, profiling;
  bool is_dry_run;            /* no driver: nothing is enqueued */
  bool kernel_facts_wrong;    /* its driver reports wrong sizes of a kernel (device_open.c) */
  bool reads_header;          /* its compiler reads clang's opencl-c.h for every program (program.c) */
  bool waits_asleep;          /* cvy_device_wait_asleep */
  atomic_ulong usual_wait_ns; /* opened_device.c: mean of such waits, the later ones weigh more */
  bool keeps_programs;        /* its driver caches compiled programs on the disk: we save no binaries (program.c) */
  cl_context context;
  cvy_queue compute, transfer, upload;
  struct {
    cvy_mutex lock;
    cvy_event *spare;           /* to be used again */
  } events;                     /* opened_device.c */
  cvy_mutex args_lock;          /* kernel_args.c: which arguments hold which buffers */
  struct cvy_program *programs; /* live until the device is closed */
  struct {
    bool on;             /* new kernels are only noted (ahead.h) */
    cvy_kernel *first;   /* the noted ones, in order of need */
    cvy_kernel **behind; /* where the next one goes */
  } noted;
  unsigned long n_refused;      /* compile_faults.h */
  cvy_pulse *pulse;             /* NULL: no watchdog looks at the device */
  const cvy_observer *observer; /* NULL: none */
  void *observer_data;
  atomic_long children; /* buffers, kernels and events that are alive */
  cvy_matrix_state matrix;
  cvy_device_rates rates;
  cvy_simt_constants simt;
  struct {
    bool used;
    cvy_probe works[4];
  } blas; /* blas.c */
  struct {
    bool used;
    struct cvy_fft_plan *plans;
    struct cvy_fft_size *sizes;
  } fft; /* fft.c */
};

/* The calling thread enters or leaves a call on the device; an abandoned thread stops here for good. */
static inline void cvy_device_beat(const cvy_device *device) {
  if (device->pulse && !cvy_pulse_beat(device->pulse)) cvy_thread_park();
}

/* A thread that stays in a call for long asks whether it was abandoned meanwhile. This is no beat: the watchdog must
 * see that the device does not answer. */
static inline void cvy_device_park_if_abandoned(const cvy_device *device) {
  if (device->pulse && atomic_load_explicit(&device->pulse->beats, memory_order_relaxed) & CVY_PULSE_ABANDONED)
    cvy_thread_park();
}

static inline bool cvy_device_wants_events(const cvy_device *device) {
  return device->profiling && device->observer->wants_events();
}
/* The command was enqueued, or would be on a device without a driver. */
static inline cvy_status cvy_queue_observe(cvy_queue *queue, const cvy_enqueued *command) {
  const cvy_observer *const observer = queue->device->observer;
  return observer ? observer->command(queue, command) : CVY_OK;
}

struct cvy_buffer {
  cvy_device *device;
  cl_mem cl;
  cvy_buffer *root; /* itself, or the buffer of which it is a slice */
  size_t offset_bytes, size_bytes;
  atomic_int refs;       /* of a root: itself and its slices */
  cvy_arg_slot *holders; /* kernel_args.c: kernels' arguments that were last set to it; under device->args_lock */
};

/* opened_device.c: frees the events that are kept for use. */
void cvy_events_forget(cvy_device *device);
/* Wraps `cl` (takes it over, also on failure). */
cvy_status cvy_event_wrap(cvy_queue *queue, cl_event cl, const char *name, cvy_event **out);
/* The event as wait list of a command on `queue`: *n is 0 or 1. Flushes the event's queue if it is another one. */
cvy_status cvy_event_list(cvy_queue *queue, cvy_event *event, cl_uint *n, const cl_event **list);

#endif
