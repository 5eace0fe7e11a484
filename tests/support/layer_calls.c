/* SPDX-License-Identifier: MIT
 * One function for each call that the program or its libraries make. */
#include "tests/support/layer_calls.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/layer_dump.h"
#include "tests/support/layer_order.h"
#include "tests/support/layer_ring.h"
#include "tests/support/layer_table.h"

static const cl_icd_dispatch *below;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static layer_table queues; /* → a text that stays for good */
static int n_queues;

#define V(value) ((uint64_t)(value))
#define H(handle) ((uint64_t)(uintptr_t)(handle))
#define M(mem) V((mem).number), V((mem).root), V((mem).origin), V((mem).size)
#define SIZES(s, n) V(sizes(s, n, 0)), V(sizes(s, n, 1)), V(sizes(s, n, 2))

static uint64_t sizes(const size_t *of, cl_uint n, cl_uint i) { return of && i < n ? of[i] : of ? 1 : 0; }

static layer_call *begin(const char *function, const char *format, const uint64_t *values, size_t n) {
  static _Thread_local bool later;
  layer_dump_keep(!later);
  later = true;
  return layer_ring_begin(function + strlen("on_"), format, values, n);
}
#define BEGIN(format, ...)                                                          \
  layer_call *const call = begin(__func__, format, (const uint64_t[]){__VA_ARGS__}, \
                                 sizeof((const uint64_t[]){__VA_ARGS__}) / sizeof(uint64_t))

/* Questions may fail: that is their answer. */
static cl_int asked(layer_call *call, cl_int code) {
  layer_ring_end(call, code, 0);
  return code;
}

static cl_int ended(layer_call *call, const char *function, cl_int code) {
  layer_ring_end(call, code, 0);
  if (code != CL_SUCCESS) layer_dump_failure(function + strlen("on_"), code);
  return code;
}
#define END(...) return ended(call, __func__, below->__VA_ARGS__)

static void made(layer_call *call, const char *function, const void *object, cl_int code, cl_int *code_ret) {
  layer_ring_end(call, code, H(object));
  if (code != CL_SUCCESS) layer_dump_failure(function + strlen("on_"), code);
  if (code_ret) *code_ret = code;
}

/* ---- queues ---- */

static void name_queue(cl_command_queue queue, cl_device_id device) {
  char name[80] = "", *const text = malloc(128);
  if (!text) abort();
  (void)below->clGetDeviceInfo(device, CL_DEVICE_NAME, sizeof name, name, NULL);
  pthread_mutex_lock(&lock);
  snprintf(text, 128, "queue %d of %s", ++n_queues, name);
  layer_table_put(&queues, queue, text);
  pthread_mutex_unlock(&lock);
}

static uint64_t queue_text(cl_command_queue queue) {
  pthread_mutex_lock(&lock);
  const char *const text = layer_table_find(&queues, queue);
  pthread_mutex_unlock(&lock);
  return H(text ? text : "a queue that is not known");
}

/* ---- contexts, queues, programs ---- */

static cl_context CL_API_CALL on_clCreateContext(const cl_context_properties *properties, cl_uint n,
                                                 const cl_device_id *devices,
                                                 void(CL_CALLBACK *notify)(const char *, const void *, size_t, void *),
                                                 void *user, cl_int *code_ret) {
  cl_int code = CL_SUCCESS;
  BEGIN("%u devices, the first %x", V(n), H(n > 0 && devices ? devices[0] : NULL));
  const cl_context context = below->clCreateContext(properties, n, devices, notify, user, &code);
  made(call, __func__, context, code, code_ret);
  return context;
}

static cl_command_queue CL_API_CALL on_clCreateCommandQueue(cl_context context, cl_device_id device,
                                                            cl_command_queue_properties properties, cl_int *code_ret) {
  cl_int code = CL_SUCCESS;
  BEGIN("context %x, device %x, properties %x", H(context), H(device), V(properties));
  const cl_command_queue queue = below->clCreateCommandQueue(context, device, properties, &code);
  if (queue) name_queue(queue, device);
  made(call, __func__, queue, code, code_ret);
  return queue;
}

static cl_program CL_API_CALL on_clCreateProgramWithSource(cl_context context, cl_uint n, const char **texts,
                                                           const size_t *lengths, cl_int *code_ret) {
  cl_int code = CL_SUCCESS;
  BEGIN("context %x, %u texts, the first of %u bytes", H(context), V(n), V(n > 0 && lengths ? lengths[0] : 0));
  const cl_program program = below->clCreateProgramWithSource(context, n, texts, lengths, &code);
  made(call, __func__, program, code, code_ret);
  return program;
}

static cl_program CL_API_CALL on_clCreateProgramWithBinary(cl_context context, cl_uint n, const cl_device_id *devices,
                                                           const size_t *bytes, const unsigned char **binaries,
                                                           cl_int *codes, cl_int *code_ret) {
  cl_int code = CL_SUCCESS;
  BEGIN("context %x, %u devices, %u bytes for the first", H(context), V(n), V(n > 0 && bytes ? bytes[0] : 0));
  const cl_program program = below->clCreateProgramWithBinary(context, n, devices, bytes, binaries, codes, &code);
  made(call, __func__, program, code, code_ret);
  return program;
}

static cl_int CL_API_CALL on_clBuildProgram(cl_program program, cl_uint n, const cl_device_id *devices,
                                            const char *options, void(CL_CALLBACK *notify)(cl_program, void *),
                                            void *user) {
  BEGIN("program %x, options: %s", H(program), H(layer_kept_text(options)));
  END(clBuildProgram(program, n, devices, options, notify, user));
}

#define ONE_HANDLE(function, type, what)                 \
  static cl_int CL_API_CALL on_##function(type object) { \
    BEGIN(what " %x", H(object));                        \
    END(function(object));                               \
  }
ONE_HANDLE(clReleaseContext, cl_context, "context")
ONE_HANDLE(clRetainContext, cl_context, "context")
ONE_HANDLE(clReleaseCommandQueue, cl_command_queue, "queue")
ONE_HANDLE(clRetainCommandQueue, cl_command_queue, "queue")
ONE_HANDLE(clReleaseProgram, cl_program, "program")
ONE_HANDLE(clRetainProgram, cl_program, "program")
ONE_HANDLE(clReleaseDevice, cl_device_id, "device")
ONE_HANDLE(clReleaseEvent, cl_event, "event")
ONE_HANDLE(clRetainEvent, cl_event, "event")

/* ---- buffers ---- */

static cl_mem CL_API_CALL on_clCreateBuffer(cl_context context, cl_mem_flags flags, size_t bytes, void *host,
                                            cl_int *code_ret) {
  cl_int code = CL_SUCCESS;
  BEGIN("context %x, flags %x, %u bytes, host memory %x", H(context), V(flags), V(bytes), H(host));
  const cl_mem buffer = below->clCreateBuffer(context, flags, bytes, host, &code);
  made(call, __func__, buffer, code, code_ret);
  return buffer;
}

static cl_mem CL_API_CALL on_clCreateSubBuffer(cl_mem root, cl_mem_flags flags, cl_buffer_create_type type,
                                               const void *region, cl_int *code_ret) {
  const cl_buffer_region none = {0}, *const r = type == CL_BUFFER_CREATE_TYPE_REGION && region ? region : &none;
  const layer_mem of = layer_mem_of(root);
  cl_int code = CL_SUCCESS;
  BEGIN("%m, flags %x, %u bytes at %u", M(of), V(flags), V(r->size), V(r->origin));
  const cl_mem buffer = below->clCreateSubBuffer(root, flags, type, region, &code);
  made(call, __func__, buffer, code, code_ret);
  return buffer;
}

static cl_int CL_API_CALL on_clReleaseMemObject(cl_mem mem) {
  const layer_mem m = layer_mem_of(mem);
  BEGIN("%m, %x", M(m), H(mem));
  END(clReleaseMemObject(mem));
}

static cl_int CL_API_CALL on_clRetainMemObject(cl_mem mem) {
  const layer_mem m = layer_mem_of(mem);
  BEGIN("%m, %x", M(m), H(mem));
  END(clRetainMemObject(mem));
}

/* ---- kernels ---- */

static cl_kernel CL_API_CALL on_clCreateKernel(cl_program program, const char *name, cl_int *code_ret) {
  cl_int code = CL_SUCCESS;
  BEGIN("program %x, %s", H(program), H(layer_kept_text(name)));
  const cl_kernel kernel = below->clCreateKernel(program, name, &code);
  made(call, __func__, kernel, code, code_ret);
  return kernel;
}

static cl_int CL_API_CALL on_clReleaseKernel(cl_kernel kernel) {
  const layer_kernel k = layer_kernel_of(kernel);
  BEGIN("kernel #%u %s", V(k.number), H(k.name));
  END(clReleaseKernel(kernel));
}

static cl_int CL_API_CALL on_clRetainKernel(cl_kernel kernel) {
  const layer_kernel k = layer_kernel_of(kernel);
  BEGIN("kernel #%u %s", V(k.number), H(k.name));
  END(clRetainKernel(kernel));
}

static cl_int CL_API_CALL on_clSetKernelArg(cl_kernel kernel, cl_uint index, size_t bytes, const void *value) {
  const layer_kernel k = layer_kernel_of(kernel);
  cl_mem mem = NULL;
  uint64_t number = 0;
  if (value && bytes == sizeof mem) memcpy(&mem, value, sizeof mem);
  if (value) memcpy(&number, value, bytes < sizeof number ? bytes : sizeof number);
  const layer_mem m = layer_mem_of(mem);
  if (m.number) {
    BEGIN("kernel #%u %s, argument %u, %m", V(k.number), H(k.name), V(index), M(m));
    END(clSetKernelArg(kernel, index, bytes, value));
  }
  BEGIN("kernel #%u %s, argument %u, %u bytes: %x", V(k.number), H(k.name), V(index), V(bytes), number);
  END(clSetKernelArg(kernel, index, bytes, value));
}

static void note_launch(const char *queue, cl_kernel kernel, const layer_kernel *k, cl_uint dims, const size_t *global,
                        const size_t *local) {
  char text[1024], one[200];
  size_t n =
      (size_t)snprintf(text, sizeof text, "  %zux%zux%zu work-items in groups of %zux%zux%zu\n",
                       (size_t)sizes(global, dims, 0), (size_t)sizes(global, dims, 1), (size_t)sizes(global, dims, 2),
                       (size_t)sizes(local, dims, 0), (size_t)sizes(local, dims, 1), (size_t)sizes(local, dims, 2));
  for (unsigned i = 0; n < sizeof text - sizeof one && layer_kernel_arg(kernel, i, one, sizeof one); i++)
    n += (size_t)snprintf(text + n, sizeof text - n, "  argument %u: %s\n", i, one);
  layer_ring_launch(queue, k, text);
}

static cl_int CL_API_CALL on_clEnqueueNDRangeKernel(cl_command_queue queue, cl_kernel kernel, cl_uint dims,
                                                    const size_t *offset, const size_t *global, const size_t *local,
                                                    cl_uint n, const cl_event *list, cl_event *event) {
  const layer_kernel k = layer_kernel_of(kernel);
  const uint64_t on = queue_text(queue);
  BEGIN("%s, kernel #%u %s, %ux%ux%u work-items in groups of %ux%ux%u, %u events to wait for", on, V(k.number),
        H(k.name), SIZES(global, dims), SIZES(local, dims), V(n));
  note_launch((const char *)(uintptr_t)on, kernel, &k, dims, global, local);
  END(clEnqueueNDRangeKernel(queue, kernel, dims, offset, global, local, n, list, event));
}

/* ---- transfers ---- */

static cl_int CL_API_CALL on_clEnqueueReadBuffer(cl_command_queue queue, cl_mem mem, cl_bool blocking, size_t offset,
                                                 size_t bytes, void *to, cl_uint n, const cl_event *list,
                                                 cl_event *event) {
  const layer_mem m = layer_mem_of(mem);
  BEGIN("%s, %m, blocking %u, %u bytes at %u, to %x, %u events to wait for", queue_text(queue), M(m), V(blocking),
        V(bytes), V(offset), H(to), V(n));
  END(clEnqueueReadBuffer(queue, mem, blocking, offset, bytes, to, n, list, event));
}

static cl_int CL_API_CALL on_clEnqueueWriteBuffer(cl_command_queue queue, cl_mem mem, cl_bool blocking, size_t offset,
                                                  size_t bytes, const void *from, cl_uint n, const cl_event *list,
                                                  cl_event *event) {
  const layer_mem m = layer_mem_of(mem);
  BEGIN("%s, %m, blocking %u, %u bytes at %u, from %x, %u events to wait for", queue_text(queue), M(m), V(blocking),
        V(bytes), V(offset), H(from), V(n));
  END(clEnqueueWriteBuffer(queue, mem, blocking, offset, bytes, from, n, list, event));
}

static void *CL_API_CALL on_clEnqueueMapBuffer(cl_command_queue queue, cl_mem mem, cl_bool blocking, cl_map_flags flags,
                                               size_t offset, size_t bytes, cl_uint n, const cl_event *list,
                                               cl_event *event, cl_int *code_ret) {
  const layer_mem m = layer_mem_of(mem);
  cl_int code = CL_SUCCESS;
  BEGIN("%s, %m, blocking %u, flags %x, %u bytes at %u, %u events to wait for", queue_text(queue), M(m), V(blocking),
        V(flags), V(bytes), V(offset), V(n));
  void *const at = below->clEnqueueMapBuffer(queue, mem, blocking, flags, offset, bytes, n, list, event, &code);
  made(call, __func__, at, code, code_ret);
  return at;
}

static cl_int CL_API_CALL on_clEnqueueUnmapMemObject(cl_command_queue queue, cl_mem mem, void *at, cl_uint n,
                                                     const cl_event *list, cl_event *event) {
  const layer_mem m = layer_mem_of(mem);
  BEGIN("%s, %m, host memory %x, %u events to wait for", queue_text(queue), M(m), H(at), V(n));
  END(clEnqueueUnmapMemObject(queue, mem, at, n, list, event));
}

static cl_int CL_API_CALL on_clEnqueueFillBuffer(cl_command_queue queue, cl_mem mem, const void *pattern,
                                                 size_t pattern_bytes, size_t offset, size_t bytes, cl_uint n,
                                                 const cl_event *list, cl_event *event) {
  const layer_mem m = layer_mem_of(mem);
  BEGIN("%s, %m, a pattern of %u bytes, %u bytes at %u, %u events to wait for", queue_text(queue), M(m),
        V(pattern_bytes), V(bytes), V(offset), V(n));
  END(clEnqueueFillBuffer(queue, mem, pattern, pattern_bytes, offset, bytes, n, list, event));
}

static cl_int CL_API_CALL on_clEnqueueCopyBuffer(cl_command_queue queue, cl_mem from, cl_mem to, size_t from_offset,
                                                 size_t to_offset, size_t bytes, cl_uint n, const cl_event *list,
                                                 cl_event *event) {
  const layer_mem a = layer_mem_of(from), b = layer_mem_of(to);
  BEGIN("%s, from %m at %u, to %m at %u, %u bytes, %u events to wait for", queue_text(queue), M(a), V(from_offset),
        M(b), V(to_offset), V(bytes), V(n));
  END(clEnqueueCopyBuffer(queue, from, to, from_offset, to_offset, bytes, n, list, event));
}

/* ---- order ---- */

static cl_int CL_API_CALL on_clEnqueueMarkerWithWaitList(cl_command_queue queue, cl_uint n, const cl_event *list,
                                                         cl_event *event) {
  BEGIN("%s, %u events to wait for", queue_text(queue), V(n));
  END(clEnqueueMarkerWithWaitList(queue, n, list, event));
}

static cl_int CL_API_CALL on_clEnqueueBarrierWithWaitList(cl_command_queue queue, cl_uint n, const cl_event *list,
                                                          cl_event *event) {
  BEGIN("%s, %u events to wait for", queue_text(queue), V(n));
  END(clEnqueueBarrierWithWaitList(queue, n, list, event));
}

static cl_int CL_API_CALL on_clFlush(cl_command_queue queue) {
  BEGIN("%s", queue_text(queue));
  END(clFlush(queue));
}

static cl_int CL_API_CALL on_clFinish(cl_command_queue queue) {
  BEGIN("%s", queue_text(queue));
  END(clFinish(queue));
}

static cl_int CL_API_CALL on_clWaitForEvents(cl_uint n, const cl_event *list) {
  BEGIN("%u events, the first %x", V(n), H(n > 0 && list ? list[0] : NULL));
  END(clWaitForEvents(n, list));
}

static cl_event CL_API_CALL on_clCreateUserEvent(cl_context context, cl_int *code_ret) {
  cl_int code = CL_SUCCESS;
  BEGIN("context %x", H(context));
  const cl_event event = below->clCreateUserEvent(context, &code);
  made(call, __func__, event, code, code_ret);
  return event;
}

static cl_int CL_API_CALL on_clSetUserEventStatus(cl_event event, cl_int state) {
  BEGIN("event %x, state %d", H(event), V((int64_t)state));
  END(clSetUserEventStatus(event, state));
}

static cl_int CL_API_CALL on_clSetEventCallback(cl_event event, cl_int state,
                                                void(CL_CALLBACK *notify)(cl_event, cl_int, void *), void *user) {
  BEGIN("event %x, state %d", H(event), V((int64_t)state));
  END(clSetEventCallback(event, state, notify, user));
}

/* ---- questions ---- */

#define QUESTION(function, type, what, kind)                                                                       \
  static cl_int CL_API_CALL on_##function(type object, kind which, size_t bytes, void *value, size_t *bytes_ret) { \
    BEGIN(what " %x, %x", H(object), V(which));                                                                    \
    return asked(call, below->function(object, which, bytes, value, bytes_ret));                                   \
  }
QUESTION(clGetPlatformInfo, cl_platform_id, "platform", cl_platform_info)
QUESTION(clGetDeviceInfo, cl_device_id, "device", cl_device_info)
QUESTION(clGetContextInfo, cl_context, "context", cl_context_info)
QUESTION(clGetCommandQueueInfo, cl_command_queue, "queue", cl_command_queue_info)
QUESTION(clGetMemObjectInfo, cl_mem, "object", cl_mem_info)
QUESTION(clGetProgramInfo, cl_program, "program", cl_program_info)
QUESTION(clGetKernelInfo, cl_kernel, "kernel", cl_kernel_info)
QUESTION(clGetEventInfo, cl_event, "event", cl_event_info)
QUESTION(clGetEventProfilingInfo, cl_event, "event", cl_profiling_info)

static cl_int CL_API_CALL on_clGetPlatformIDs(cl_uint n, cl_platform_id *platforms, cl_uint *n_ret) {
  BEGIN("room for %u", V(n));
  return asked(call, below->clGetPlatformIDs(n, platforms, n_ret));
}

static cl_int CL_API_CALL on_clGetDeviceIDs(cl_platform_id platform, cl_device_type type, cl_uint n,
                                            cl_device_id *devices, cl_uint *n_ret) {
  BEGIN("platform %x, type %x, room for %u", H(platform), V(type), V(n));
  return asked(call, below->clGetDeviceIDs(platform, type, n, devices, n_ret));
}

static cl_int CL_API_CALL on_clCreateSubDevices(cl_device_id device, const cl_device_partition_property *how, cl_uint n,
                                                cl_device_id *out, cl_uint *n_ret) {
  BEGIN("device %x, the first property %x, room for %u", H(device), V(how ? how[0] : 0), V(n));
  return asked(call, below->clCreateSubDevices(device, how, n, out, n_ret));
}

static cl_int CL_API_CALL on_clGetProgramBuildInfo(cl_program program, cl_device_id device, cl_program_build_info which,
                                                   size_t bytes, void *value, size_t *bytes_ret) {
  BEGIN("program %x, device %x, %x", H(program), H(device), V(which));
  return asked(call, below->clGetProgramBuildInfo(program, device, which, bytes, value, bytes_ret));
}

static cl_int CL_API_CALL on_clGetKernelWorkGroupInfo(cl_kernel kernel, cl_device_id device,
                                                      cl_kernel_work_group_info which, size_t bytes, void *value,
                                                      size_t *bytes_ret) {
  const layer_kernel k = layer_kernel_of(kernel);
  BEGIN("kernel #%u %s, device %x, %x", V(k.number), H(k.name), H(device), V(which));
  return asked(call, below->clGetKernelWorkGroupInfo(kernel, device, which, bytes, value, bytes_ret));
}

void layer_calls_init(const cl_icd_dispatch *next, cl_icd_dispatch *above) {
  char file[LAYER_WORDS] = "stderr", after[32] = "", *end = after;
  const bool calls = layer_order_has("calls", file, sizeof file);
  if (!layer_order_has("dump-after", after, sizeof after) && !calls) return;
  const double seconds = *after ? strtod(after, &end) : 0;
  if (*end || !(seconds >= 0) || !*file) layer_order_wrong(*file ? after : "calls");
  below = next;
#define ON(function) above->function = on_##function
  ON(clCreateContext);
  ON(clReleaseContext);
  ON(clRetainContext);
  ON(clCreateCommandQueue);
  ON(clReleaseCommandQueue);
  ON(clRetainCommandQueue);
  ON(clCreateProgramWithSource);
  ON(clCreateProgramWithBinary);
  ON(clBuildProgram);
  ON(clReleaseProgram);
  ON(clRetainProgram);
  ON(clReleaseDevice);
  ON(clReleaseEvent);
  ON(clRetainEvent);
  ON(clCreateBuffer);
  ON(clCreateSubBuffer);
  ON(clReleaseMemObject);
  ON(clRetainMemObject);
  ON(clCreateKernel);
  ON(clReleaseKernel);
  ON(clRetainKernel);
  ON(clSetKernelArg);
  ON(clEnqueueNDRangeKernel);
  ON(clEnqueueReadBuffer);
  ON(clEnqueueWriteBuffer);
  ON(clEnqueueMapBuffer);
  ON(clEnqueueUnmapMemObject);
  ON(clEnqueueFillBuffer);
  ON(clEnqueueCopyBuffer);
  ON(clEnqueueMarkerWithWaitList);
  ON(clEnqueueBarrierWithWaitList);
  ON(clFlush);
  ON(clFinish);
  ON(clWaitForEvents);
  ON(clCreateUserEvent);
  ON(clSetUserEventStatus);
  ON(clSetEventCallback);
  ON(clGetPlatformInfo);
  ON(clGetDeviceInfo);
  ON(clGetContextInfo);
  ON(clGetCommandQueueInfo);
  ON(clGetMemObjectInfo);
  ON(clGetProgramInfo);
  ON(clGetKernelInfo);
  ON(clGetEventInfo);
  ON(clGetEventProfilingInfo);
  ON(clGetPlatformIDs);
  ON(clGetDeviceIDs);
  ON(clCreateSubDevices);
  ON(clGetProgramBuildInfo);
  ON(clGetKernelWorkGroupInfo);
#undef ON
  layer_dump_start(file, seconds);
}
