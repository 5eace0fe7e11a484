/* SPDX-License-Identifier: MIT */
#include "src/cl/devices/device_open.h"

#include <stdio.h>
#include <string.h>

#include "src/base/env.h"
#include "src/cl/blas.h"
#include "src/cl/command_times.h"
#include "src/cl/compile/program.h"
#include "src/cl/fft.h"
#include "src/cl/opencl.h"

/* Headers of extensions may be older than drivers. */
enum { COMPUTE_CAPABILITY_MAJOR_NV = 0x4000, SIMD_PER_COMPUTE_UNIT_AMD = 0x4040, SUB_GROUP_SIZES_INTEL = 0x4108 };

static void CL_CALLBACK on_context_error(const char *message, const void *data, size_t size, void *user) {
  (void)data, (void)size, (void)user;
  /* The driver may call this on a thread of its own, also for failures that a call then returns: not an error by
   * itself. It may be late, so this does not use the device's label. */
  cvy_log_debug("OpenCL driver: %s", message);
}

/* Asks the driver what is not in the device's info. */
static cvy_status capabilities_fill(cvy_device *device) {
  cvy_status status = CVY_OK;
  const cvy_device_info *const info = &device->info;
  cvy_driver_answers answers = {0};
  cl_uint units = 0, number = 0;
  size_t sizes[16], bytes = 0;
  CVY_CL(device->label, clGetDeviceInfo(device->id, CL_DEVICE_MAX_COMPUTE_UNITS, sizeof units, &units, NULL));
  answers.units = (int)units;
  if (clGetDeviceInfo(device->id, COMPUTE_CAPABILITY_MAJOR_NV, sizeof number, &number, NULL) == CL_SUCCESS)
    answers.nv_capability = (int)number;
  if (clGetDeviceInfo(device->id, SIMD_PER_COMPUTE_UNIT_AMD, sizeof number, &number, NULL) == CL_SUCCESS)
    answers.amd_simds = (int)number;
  if (clGetDeviceInfo(device->id, SUB_GROUP_SIZES_INTEL, sizeof sizes, sizes, &bytes) == CL_SUCCESS)
    for (size_t i = 0; i < bytes / sizeof *sizes; i++)
      if (!answers.least_subgroup || sizes[i] < (size_t)answers.least_subgroup) answers.least_subgroup = (int)sizes[i];
  CVY_TRY(cvy_capabilities_find(info, &answers, device->label, &device->capabilities));
  /* rusticl (Mesa 22.3) gives the size of a sub-group for CL_KERNEL_WORK_GROUP_SIZE and runs larger groups all the
   * same, and counts a kernel's local arrays twice in CL_KERNEL_LOCAL_MEM_SIZE. */
  device->kernel_facts_wrong = !strcmp(info->platform_name, "rusticl");
  device->keeps_programs = strstr(info->platform_name, "Portable Computing Language") != NULL;
  device->reads_header = device->keeps_programs && info->kind == CVY_DEVICE_CPU;
fail:
  return status;
}

/* Makes the selected sub-device. Creates all parts of the term, so that the driver gives each its own cores, and
 * releases the others. */
static cvy_status part_create(cvy_device *device, cl_device_id whole, const cvy_selected_device *selected) {
  cvy_status status = CVY_OK;
  const cvy_device_info *const info = &device->info;
  cl_device_id parts[64] = {0};
  cl_device_partition_property how[64 + 3];
  int total = 0, n = 0;
  CVY_REQUIRE(info->can_partition_by_counts, CVY_E_UNSUPPORTED,
              "%s: its driver cannot make sub-devices by compute units", selected->label);
  CVY_ASSERT(selected->n_parts >= 1 && selected->n_parts <= 64 && selected->part >= 0 &&
             selected->part < selected->n_parts);
  how[n++] = CL_DEVICE_PARTITION_BY_COUNTS;
  for (int i = 0; i < selected->n_parts; i++) {
    total += selected->part_units[i];
    how[n++] = selected->part_units[i];
  }
  how[n++] = CL_DEVICE_PARTITION_BY_COUNTS_LIST_END;
  how[n++] = 0;
  CVY_REQUIRE(total <= info->compute_units, CVY_E_ARGUMENT, "%s: %d compute units asked for, it has %d",
              selected->label, total, info->compute_units);
  cl_uint n_made = 0;
  const cl_int code = clCreateSubDevices(whole, how, (cl_uint)selected->n_parts, parts, &n_made);
  cvy_device_beat(device);
  CVY_REQUIRE(code == CL_SUCCESS, CVY_E_UNSUPPORTED,
              "%s: clCreateSubDevices with %d parts failed: %s (%d); %d:%d*%d puts replicas on the whole of it",
              selected->label, selected->n_parts, cvy_cl_error_name(code), (int)code, info->platform, info->index,
              selected->n_parts);
  for (int i = 0; i < selected->n_parts; i++)
    if (i != selected->part && parts[i]) clReleaseDevice(parts[i]);
  device->id = parts[selected->part];
  device->is_part = true;
fail:
  return status;
}

static cvy_status queue_create(cvy_device *device, cvy_queue *queue, const char *name) {
  cvy_status status = CVY_OK;
  cl_int code;
  queue->device = device;
  queue->name = name;
  queue->cl =
      clCreateCommandQueue(device->context, device->id, device->profiling ? CL_QUEUE_PROFILING_ENABLE : 0, &code);
  cvy_device_beat(device);
  if (code != CL_SUCCESS) queue->cl = NULL;
  CVY_CL_CODE(device->label, code, "clCreateCommandQueue");
  cvy_live_add(CVY_LIVE_QUEUE, 1);
fail:
  return status;
}

static void queue_destroy(cvy_queue *queue) {
  if (!queue->cl) return;
  clReleaseCommandQueue(queue->cl);
  cvy_live_add(CVY_LIVE_QUEUE, -1);
}

/* CVY_FORCE_PLAN: a SIMT-shaped device gets the units, cache and rates of a known card. */
static cvy_status force_plan(cvy_device *device) {
  cvy_status status = CVY_OK;
  const char *const word = cvy_env_text(CVY_ENV_FORCE_PLAN);
  const cvy_known_device *const known = word ? cvy_known_device_find(word) : NULL;
  CVY_REQUIRE(!word || known, CVY_E_ARGUMENT, "CVY_FORCE_PLAN=%s: it must be one of " CVY_KNOWN_DEVICES, word);
  if (!known || device->capabilities.cpu_shaped) return CVY_OK;
  device->capabilities.compute_units = known->units;
  device->capabilities.cache_bytes = known->cache_bytes;
  device->rates = cvy_known_device_rates(known);
  device->simt = *known->constants;
fail:
  return status;
}

cvy_status cvy_device_open_watched(const cvy_device_list *list, const cvy_selected_device *selected, bool profiling,
                                   cvy_pulse *pulse, cvy_device **out) {
  cvy_status status = CVY_OK;
  cvy_device *device = NULL;
  cl_int code;
  CVY_REQUIRE(selected->item >= 0 && selected->item < list->n, CVY_E_ARGUMENT,
              "there is no device at position %d of a list of %d", selected->item, list->n);
  const cvy_device_info *const info = &list->items[selected->item];
  CVY_REQUIRE(info->usable, CVY_E_DEVICE, "%d:%d %s cannot be used: %s", info->platform, info->index, info->name,
              info->reason);
  device = cvy_calloc(1, sizeof *device);
  CVY_REQUIRE(device, CVY_E_MEMORY, "no memory for a device");
  device->info = *info;
  device->profiling = profiling;
  device->pulse = pulse;
  cvy_mutex_init(&device->events.lock);
  cvy_mutex_init(&device->args_lock);
  cvy_device_beat(device);
  device->id = list->handles[selected->item];
  snprintf(device->label, sizeof device->label, "%s", selected->label);
  if (selected->units > 0) CVY_TRY(part_create(device, device->id, selected));
  device->context = clCreateContext(NULL, 1, &device->id, on_context_error, NULL, &code);
  cvy_device_beat(device);
  if (code != CL_SUCCESS) device->context = NULL;
  CVY_CL_CODE(device->label, code, "clCreateContext");
  cvy_live_add(CVY_LIVE_CONTEXT, 1);
  if (profiling) CVY_TRY(cvy_profile_create(device));
  CVY_TRY(queue_create(device, &device->compute, "compute"));
  CVY_TRY(queue_create(device, &device->transfer, "transfer"));
  CVY_TRY(queue_create(device, &device->upload, "upload"));
  CVY_TRY(capabilities_fill(device));
  device->simt = *cvy_simt_constants_of(device->info.name);
  CVY_TRY(force_plan(device));
  *out = device;
  return CVY_OK;
fail:
  cvy_device_close(&device);
  return status;
}

cvy_status cvy_device_open(const cvy_device_list *list, const cvy_selected_device *selected, bool profiling,
                           cvy_device **out) {
  return cvy_device_open_watched(list, selected, profiling, NULL, out);
}

void cvy_device_close(cvy_device **p) {
  if (!p || !*p) return;
  cvy_device *const device = *p;
  /* A caller with a buffer left cannot release it after this: warn now, since it may crash later. */
  const long children = atomic_load(&device->children);
  if (children != 0)
    cvy_log_warning("%s: closed while %ld buffers, kernels or events of it are alive", device->label, children);
  if (device->compute.cl) clFinish(device->compute.cl);
  if (device->transfer.cl) clFinish(device->transfer.cl);
  if (device->upload.cl) clFinish(device->upload.cl);
  cvy_events_forget(device);
  cvy_mutex_end(&device->args_lock);
  if (device->observer) device->observer->destroy(device->observer_data);
  cvy_programs_destroy(device);
  cvy_blas_forget(device);
  cvy_fft_forget(device);
  queue_destroy(&device->compute);
  queue_destroy(&device->transfer);
  queue_destroy(&device->upload);
  if (device->context) {
    clReleaseContext(device->context);
    cvy_live_add(CVY_LIVE_CONTEXT, -1);
  }
  /* After clFinish has returned, a thread of PoCL 3.1 still releases a finished command's event and reads its device:
   * it crashes if a sub-device is gone by then. PoCL's sub-devices stay until the process ends, some bytes each. */
  const bool keeps = strstr(device->info.platform_name, "Portable Computing Language") != NULL;
  if (device->is_part && !keeps) clReleaseDevice(device->id);
  cvy_free(device);
  *p = NULL;
}
