/* SPDX-License-Identifier: MIT
 * An OpenCL layer (ocl-icd, OPENCL_LAYERS=<this library>) that makes the driver below it misbehave, as $CVY_LAYER says
 * at each call. Words with commas, each with or without "=ARG":
 *   no-platforms          clGetPlatformIDs finds none (CL_PLATFORM_NOT_FOUND_KHR)
 *   broken-loader         clGetPlatformIDs fails
 *   no-devices            clGetDeviceIDs finds none
 *   broken-platform       clGetDeviceIDs fails
 *   no-info               clGetDeviceInfo fails for everything but names
 *   no-compiler, not-available, old-version
 *   platform-name=NAME    name of all platforms
 *   gpu                   all devices are GPUs
 *   no-context, no-queue, no-sub-devices
 *   no-buffer=N           clCreateBuffer fails for N bytes or more
 *   no-binary             clCreateProgramWithBinary fails
 *   die=Q:N               of the queues that launch kernels while this very word is in force, the Q-th (from 0): its N-th
 *                         launch (from 0) and all later ones fail
 *   slow=Q:MS             launches on the Q-th queue that is created take MS milliseconds more
 *   failed-event          commands end with CL_OUT_OF_RESOURCES, as after a fault on the device
 * Queues are counted from the start of the process. */
#define CL_TARGET_OPENCL_VERSION 300
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS
#include <CL/cl.h>
#include <CL/cl_layer.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST_QUEUES = 4096 };

static const cl_icd_dispatch *below;
static cl_icd_dispatch above;
static _Atomic(cl_command_queue) queues[MOST_QUEUES];
static atomic_int n_queues;

/* Queues that have launched since `die` had the argument it has, in the order of their first launch: devices are opened
 * side by side, so the order in which queues are created says nothing. */
static struct {
  pthread_mutex_t lock;
  char arg[64];
  int n;
  cl_command_queue queues[64];
  long launches[64];
} dying = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Whether $CVY_LAYER has the word, and its argument ("" without). */
static bool word(const char *name, char *arg, size_t arg_bytes) {
  const char *const all = getenv("CVY_LAYER");
  const size_t n = strlen(name);
  for (const char *at = all; at && *at;) {
    const size_t size = strcspn(at, ",");
    if (size >= n && !strncmp(at, name, n) && (size == n || at[n] == '=')) {
      if (arg) snprintf(arg, arg_bytes, "%.*s", size == n ? 0 : (int)(size - n - 1), at + n + 1);
      return true;
    }
    at += size + (at[size] == ',');
  }
  return false;
}
static bool has(const char *name) { return word(name, NULL, 0); }

static cl_int give_text(const char *text, size_t size, void *value, size_t *size_ret) {
  const size_t n = strlen(text) + 1;
  if (size_ret) *size_ret = n;
  if (value && size < n) return CL_INVALID_VALUE;
  if (value) memcpy(value, text, n);
  return CL_SUCCESS;
}

static cl_int CL_API_CALL get_platform_ids(cl_uint n, cl_platform_id *platforms, cl_uint *n_ret) {
  if (has("no-platforms")) {
    if (n_ret) *n_ret = 0;
    return -1001;
  }
  if (has("broken-loader")) return CL_OUT_OF_HOST_MEMORY;
  return below->clGetPlatformIDs(n, platforms, n_ret);
}

static cl_int CL_API_CALL get_platform_info(cl_platform_id platform, cl_platform_info what, size_t size, void *value,
                                            size_t *size_ret) {
  char name[128];
  if (what == CL_PLATFORM_NAME && word("platform-name", name, sizeof name))
    return give_text(name, size, value, size_ret);
  return below->clGetPlatformInfo(platform, what, size, value, size_ret);
}

static cl_int CL_API_CALL get_device_ids(cl_platform_id platform, cl_device_type type, cl_uint n, cl_device_id *devices,
                                         cl_uint *n_ret) {
  if (has("no-devices")) {
    if (n_ret) *n_ret = 0;
    return CL_DEVICE_NOT_FOUND;
  }
  if (has("broken-platform")) return CL_OUT_OF_RESOURCES;
  return below->clGetDeviceIDs(platform, type, n, devices, n_ret);
}

static cl_int CL_API_CALL get_device_info(cl_device_id device, cl_device_info what, size_t size, void *value,
                                          size_t *size_ret) {
  if (has("no-info") && what != CL_DEVICE_NAME && what != CL_DEVICE_VENDOR) return CL_OUT_OF_HOST_MEMORY;
  if (what == CL_DEVICE_VERSION && has("old-version")) return give_text("OpenCL 1.1 antique", size, value, size_ret);
  const cl_int code = below->clGetDeviceInfo(device, what, size, value, size_ret);
  if (code != CL_SUCCESS || !value) return code;
  if ((what == CL_DEVICE_COMPILER_AVAILABLE && has("no-compiler")) ||
      (what == CL_DEVICE_AVAILABLE && has("not-available")))
    memset(value, 0, sizeof(cl_bool));
  if (what == CL_DEVICE_TYPE && has("gpu")) *(cl_device_type *)value = CL_DEVICE_TYPE_GPU;
  return code;
}

static cl_context CL_API_CALL create_context(const cl_context_properties *properties, cl_uint n,
                                             const cl_device_id *devices,
                                             void(CL_CALLBACK *notify)(const char *, const void *, size_t, void *),
                                             void *user, cl_int *code) {
  if (has("no-context")) {
    if (code) *code = CL_OUT_OF_RESOURCES;
    return NULL;
  }
  return below->clCreateContext(properties, n, devices, notify, user, code);
}

static cl_command_queue CL_API_CALL create_queue(cl_context context, cl_device_id device,
                                                 cl_command_queue_properties properties, cl_int *code) {
  if (has("no-queue")) {
    if (code) *code = CL_OUT_OF_HOST_MEMORY;
    return NULL;
  }
  const cl_command_queue queue = below->clCreateCommandQueue(context, device, properties, code);
  const int i = atomic_fetch_add(&n_queues, 1);
  if (i < MOST_QUEUES) {
    for (int k = 0; k < i; k++) { /* an address may come back */
      cl_command_queue old = queue;
      atomic_compare_exchange_strong(&queues[k], &old, NULL);
    }
    atomic_store(&queues[i], queue);
  }
  return queue;
}

static cl_int CL_API_CALL create_sub_devices(cl_device_id device, const cl_device_partition_property *how, cl_uint n,
                                             cl_device_id *out, cl_uint *n_ret) {
  if (has("no-sub-devices")) return CL_DEVICE_PARTITION_FAILED;
  return below->clCreateSubDevices(device, how, n, out, n_ret);
}

static cl_mem CL_API_CALL create_buffer(cl_context context, cl_mem_flags flags, size_t size, void *host, cl_int *code) {
  char arg[32];
  if (word("no-buffer", arg, sizeof arg) && size >= strtoull(arg, NULL, 10)) {
    if (code) *code = CL_MEM_OBJECT_ALLOCATION_FAILURE;
    return NULL;
  }
  return below->clCreateBuffer(context, flags, size, host, code);
}

static cl_program CL_API_CALL create_with_binary(cl_context context, cl_uint n, const cl_device_id *devices,
                                                 const size_t *sizes, const unsigned char **binaries,
                                                 cl_int *binary_codes, cl_int *code) {
  if (has("no-binary")) {
    if (code) *code = CL_INVALID_BINARY;
    return NULL;
  }
  return below->clCreateProgramWithBinary(context, n, devices, sizes, binaries, binary_codes, code);
}

/* The two numbers of "Q:N". */
static bool on_queue(const char *name, cl_command_queue queue, int *index, long *number) {
  char arg[64], *end;
  if (!word(name, arg, sizeof arg)) return false;
  *index = (int)strtol(arg, &end, 10);
  *number = *end == ':' ? strtol(end + 1, NULL, 10) : 0;
  return *index >= 0 && *index < MOST_QUEUES && atomic_load(&queues[*index]) == queue;
}

static bool dies(cl_command_queue queue) {
  char arg[64], *end;
  if (!word("die", arg, sizeof arg)) return false;
  const long index = strtol(arg, &end, 10), number = *end == ':' ? strtol(end + 1, NULL, 10) : 0;
  pthread_mutex_lock(&dying.lock);
  if (strcmp(arg, dying.arg) != 0) {
    memcpy(dying.arg, arg, sizeof arg);
    dying.n = 0;
  }
  int i = 0;
  while (i < dying.n && dying.queues[i] != queue) i++;
  if (i == dying.n && i < (int)(sizeof dying.queues / sizeof dying.queues[0]))
    dying.queues[i] = queue, dying.launches[i] = 0, dying.n++;
  const bool dead = i == index && i < dying.n && dying.launches[i]++ >= number;
  pthread_mutex_unlock(&dying.lock);
  return dead;
}

static cl_int CL_API_CALL enqueue_kernel(cl_command_queue queue, cl_kernel kernel, cl_uint dims, const size_t *offset,
                                         const size_t *global, const size_t *local, cl_uint n, const cl_event *list,
                                         cl_event *event) {
  int index;
  long number;
  if (dies(queue)) return CL_OUT_OF_RESOURCES;
  if (on_queue("slow", queue, &index, &number)) {
    const struct timespec wait = {number / 1000, number % 1000 * 1000000};
    nanosleep(&wait, NULL);
  }
  return below->clEnqueueNDRangeKernel(queue, kernel, dims, offset, global, local, n, list, event);
}

static cl_int CL_API_CALL get_event_info(cl_event event, cl_event_info what, size_t size, void *value,
                                         size_t *size_ret) {
  const cl_int code = below->clGetEventInfo(event, what, size, value, size_ret);
  if (code == CL_SUCCESS && value && what == CL_EVENT_COMMAND_EXECUTION_STATUS && has("failed-event"))
    *(cl_int *)value = CL_OUT_OF_RESOURCES;
  return code;
}

CL_API_ENTRY cl_int CL_API_CALL clGetLayerInfo(cl_layer_info what, size_t size, void *value, size_t *size_ret) {
  if (what == CL_LAYER_NAME) return give_text("convoy test layer", size, value, size_ret);
  if (what != CL_LAYER_API_VERSION) return CL_INVALID_VALUE;
  if (size_ret) *size_ret = sizeof(cl_layer_api_version);
  if (value && size < sizeof(cl_layer_api_version)) return CL_INVALID_VALUE;
  if (value) *(cl_layer_api_version *)value = CL_LAYER_API_VERSION_100;
  return CL_SUCCESS;
}

CL_API_ENTRY cl_int CL_API_CALL clInitLayer(cl_uint n, const cl_icd_dispatch *target, cl_uint *n_ret,
                                            const cl_icd_dispatch **layer) {
  if (!target || !n_ret || !layer || n < sizeof *target / sizeof(void *)) return CL_INVALID_VALUE;
  below = target;
  above = *target;
  above.clGetPlatformIDs = get_platform_ids;
  above.clGetPlatformInfo = get_platform_info;
  above.clGetDeviceIDs = get_device_ids;
  above.clGetDeviceInfo = get_device_info;
  above.clCreateContext = create_context;
  above.clCreateCommandQueue = create_queue;
  above.clCreateSubDevices = create_sub_devices;
  above.clCreateBuffer = create_buffer;
  above.clCreateProgramWithBinary = create_with_binary;
  above.clEnqueueNDRangeKernel = enqueue_kernel;
  above.clGetEventInfo = get_event_info;
  *n_ret = sizeof above / sizeof(void *);
  *layer = &above;
  return CL_SUCCESS;
}
