/* SPDX-License-Identifier: MIT
 * An OpenCL layer (ocl-icd, OPENCL_LAYERS=<this library>) that makes the driver below it misbehave, as $CVY_LAYER says
 * at each call, looks whether the program uses objects in a right order, and writes what it did where it crashes or
 * hangs. Words with commas, each with or without "=ARG"; those of $CVY_LAYER_ALWAYS, read once, hold besides, for
 * variables of a whole run of tests, but no faults of single devices:
 *   no-platforms          clGetPlatformIDs finds none (CL_PLATFORM_NOT_FOUND_KHR)
 *   broken-loader         clGetPlatformIDs fails
 *   no-devices            clGetDeviceIDs finds none
 *   broken-platform       clGetDeviceIDs fails
 *   no-info               clGetDeviceInfo fails for everything but names
 *   no-compiler, not-available, old-version
 *   platform-name=NAME    name of all platforms
 *   device-name=NAME      name of all devices
 *   gpu                   all devices are GPUs
 *   no-context, no-queue, no-sub-devices
 *   no-buffer=N           clCreateBuffer fails for N bytes or more
 *   no-binary             clCreateProgramWithBinary fails
 *   no-pageable           a read or write that does not block fails if its host memory is not pinned, that is, mapped
 *                         of a buffer of CL_MEM_ALLOC_HOST_PTR: with NVIDIA's driver it would hold the host up
 *   block-pageable        such a read or write holds the caller up until it has ended
 *   no-pinned             clCreateBuffer with CL_MEM_ALLOC_HOST_PTR fails
 *   marker-times=0        the times of markers and barriers are 0, as NVIDIA's driver says; =none: they are not
 *                         available
 * The order of objects (layer_objects.c). An object lives until the program has released it as often as it has created
 * and retained it, whatever the driver keeps longer. A line on the standard error stream has numbers (by creation),
 * sizes, origins and kernels.
 *   overlap=refuse        clCreateSubBuffer fails (CL_INVALID_VALUE) where the slice meets a slice of the same buffer
 *                         that lives; =say: only the line
 *   release=strict        the process aborts where a buffer or slice is released while a kernel that lives was last
 *                         given it as an argument, where a buffer is released before its slices, and where one is
 *                         released twice; =say: only the line. Kernels of clFFT are left out
 *   die-after=FILE        SIGKILL at the first release of a buffer at which FILE, a run's log, has its last line: as a
 *                         driver that crashes there
 * Where the program dies or hangs (layer_calls.c, layer_ring.c, layer_dump.c); read once, when the layer is loaded.
 *   calls=FILE            adds to the file the last launch with its kernel, build options and arguments, the last 64
 *                         calls with theirs, those that have not returned, and the backtraces of all threads: at
 *                         SIGSEGV, SIGBUS, SIGFPE and SIGABRT, with which the process then ends, and at SIGUSR2; where
 *                         a call fails with the calling thread's backtrace alone (8 times; questions do not count)
 *   dump-after=S          the same S seconds after the first OpenCL call; then the process ends with SIGABRT. Without
 *                         calls=FILE to the standard error stream
 * Faults of single devices. WHO is a device's index in the team, counted with those that were left out (devices
 * of a program that makes no team: the order in which they are opened), "/K": part K of a partitioned device, or "all".
 * Calls, commands and launches are counted per
 * device from 0 and start again when the variable changes.
 *   slow=WHO:F[:A-B]      a launch takes F times as long, without using a core; A-B: launches A to B-1 alone, or with
 *                         "10s-20s" those in that time after the device's first launch. Launches much shorter than
 *                         0.1 ms come out slower than asked: the layer's own delay is about that
 *   link=WHO:R[:U]        reads, writes, mappings (and unmappings of what was mapped for writing) take at least
 *                         bytes / R GB/s, on the way to the device bytes / U GB/s, on each queue for itself, without
 *                         using a core and, where the call does not block, without holding up the host
 *   fail=WHO:CALL:N:CODE  the N-th CALL and all later ones fail with CODE (-5). CALL: launch read write map unmap fill
 *                         copy marker barrier flush finish wait buffer arg; info release (of events); context (of a
 *                         device that is opened, not of one that is only listed) build; any (but these four)
 *   fail-once=WHO:CALL:N:CODE   the N-th alone
 *   bad-event=WHO:N:CODE  from the N-th command on, what the device has done is said to have ended with CODE
 *   hang=WHO:N            the N-th command and all behind it never end, on any of the device's queues; who waits for
 *                         them waits
 *   hang-call=WHO:CALL:N  the N-th CALL does not return
 *   spin=WHO              a thread that waits for a command keeps a core busy, as with NVIDIA's driver
 *   late=WHO              who waits for a command also waits for what has been enqueued behind it meanwhile
 * What hangs goes on when the variable changes. The words are read by layer_faults.c, and layer_device.c does it. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/layer_calls.h"
#include "tests/support/layer_device.h"
#include "tests/support/layer_objects.h"
#include "tests/support/layer_order.h"

static const cl_icd_dispatch *below;
static bool has(const char *name) { return layer_order_has(name, NULL, 0); }

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
  if (what == CL_PLATFORM_NAME && layer_order_has("platform-name", name, sizeof name))
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
  char name[128];
  if (what == CL_DEVICE_NAME && layer_order_has("device-name", name, sizeof name))
    return give_text(name, size, value, size_ret);
  if (what == CL_DEVICE_VERSION && has("old-version")) return give_text("OpenCL 1.1 antique", size, value, size_ret);
  const cl_int code = below->clGetDeviceInfo(device, what, size, value, size_ret);
  if (code != CL_SUCCESS || !value) return code;
  if ((what == CL_DEVICE_COMPILER_AVAILABLE && has("no-compiler")) || (what == CL_DEVICE_AVAILABLE && has("not-"
                                                                                                          "available")))
    memset(value, 0, sizeof(cl_bool));
  if (what == CL_DEVICE_TYPE && has("gpu")) *(cl_device_type *)value = CL_DEVICE_TYPE_GPU;
  return code;
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
  static cl_icd_dispatch objects, faults, calls; /* each above the one before */
  objects = *target;
  layer_objects_init(target, &objects);
  below = &objects;
  faults = objects;
  faults.clGetPlatformIDs = get_platform_ids;
  faults.clGetPlatformInfo = get_platform_info;
  faults.clGetDeviceIDs = get_device_ids;
  faults.clGetDeviceInfo = get_device_info;
  faults.clCreateProgramWithBinary = create_with_binary;
  layer_device_init(&objects, &faults);
  calls = faults;
  layer_calls_init(&faults, &calls);
  *n_ret = sizeof calls / sizeof(void *);
  *layer = &calls;
  return CL_SUCCESS;
}
