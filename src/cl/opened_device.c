/* SPDX-License-Identifier: MIT */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/base/env.h"
#include "src/cl/blas.h"
#include "src/cl/fft.h"
#include "src/cl/opencl.h"
#include "src/cl/paper_notes.h"

static void CL_CALLBACK on_context_error(const char *message, const void *data, size_t size, void *user) {
  (void)data, (void)size, (void)user;
  /* The driver may call this on a thread of its own, also for failures that a call then returns: not an error by
   * itself. It may be late, so this does not use the device's label. */
  cvy_log_debug("OpenCL driver: %s", message);
}

/* NVIDIA's compiler takes inline PTX, AMD's is clang and knows its builtins; compilers of other drivers for these
 * devices (PoCL, rusticl) do not. */
static cvy_status find_matrix_unit(cvy_device *device) {
  cvy_status status = CVY_OK;
  static const char *const forces[] = {"nvidia", "nvidia-emulated", "amd", "amd-emulated"};
  static const char *const mfma[] = {"gfx908", "gfx90a", "gfx94", "gfx950"};
  const cvy_device_info *const info = &device->info;
  cvy_device_facts *const facts = &device->facts;
  const char *const forced = cvy_env_text(CVY_ENV_FORCE_MATRIX);
  if (forced) {
    int i = 0;
    while (i < 4 && strcmp(forced, forces[i]) != 0) i++;
    CVY_REQUIRE(i < 4, CVY_E_ARGUMENT, "CVY_FORCE_MATRIX=%s: it must be nvidia, amd, nvidia-emulated or amd-emulated",
                forced);
    if (facts->cpu_shaped) return CVY_OK;
    facts->matrix_unit = i < 2 ? CVY_MATRIX_NVIDIA : CVY_MATRIX_AMD;
    facts->emulates_matrix = i % 2 == 1;
    return CVY_OK;
  }
  if (facts->cpu_shaped || info->kind != CVY_DEVICE_GPU) return CVY_OK;
  cl_uint capability = 0;
  if (strstr(info->platform_name, "NVIDIA") &&
      clGetDeviceInfo(device->id, CL_DEVICE_COMPUTE_CAPABILITY_MAJOR_NV, sizeof capability, &capability, NULL) ==
          CL_SUCCESS &&
      capability >= 8)
    facts->matrix_unit = CVY_MATRIX_NVIDIA;
  if (strstr(info->platform_name, "AMD Accelerated Parallel Processing"))
    for (size_t i = 0; i < sizeof mfma / sizeof *mfma; i++)
      if (!strncmp(info->name, mfma[i], strlen(mfma[i]))) facts->matrix_unit = CVY_MATRIX_AMD;
fail:
  return status;
}

/* The one place that turns a driver's answers into facts; kernels are chosen by facts alone. */
static cvy_status facts_fill(cvy_device *device) {
  cvy_status status = CVY_OK;
  const cvy_device_info *const info = &device->info;
  cvy_device_facts *const facts = &device->facts;
  cl_uint units = 0;
  CVY_CL(device->label, clGetDeviceInfo(device->id, CL_DEVICE_MAX_COMPUTE_UNITS, sizeof units, &units, NULL));
  facts->compute_units = (int)units;
  facts->local_bytes = info->local_bytes;
  facts->max_work_group = info->max_work_group;
  facts->cache_bytes = info->cache_bytes;
  facts->host_unified = info->host_unified && !cvy_env_on(CVY_ENV_FORCE_STAGING);

  const bool rusticl = !strcmp(info->platform_name, "rusticl");
  const bool pocl = strstr(info->platform_name, "Portable Computing Language") != NULL;
  /* llvmpipe runs work-items as lanes of vectors: it wants SIMT kernels although it is a CPU, and is slow with
   * float16. It also ends every loop after 65535 rounds (seen in Mesa 22.3: a kernel that counts to 80000 counts to
   * 65535); a CPU kernel's work-item, which does a whole piece of a tensor alone, needs more. */
  facts->cpu_shaped = info->kind == CVY_DEVICE_CPU && !rusticl;
  const char *const forced = cvy_env_text(CVY_ENV_FORCE_SHAPE);
  if (forced) {
    CVY_REQUIRE(!strcmp(forced, "cpu") || !strcmp(forced, "simt"), CVY_E_ARGUMENT,
                "CVY_FORCE_SHAPE=%s: it must be cpu or simt", forced);
    facts->cpu_shaped = !strcmp(forced, "cpu");
    CVY_REQUIRE(!facts->cpu_shaped || !rusticl || info->kind != CVY_DEVICE_CPU, CVY_E_UNSUPPORTED,
                "%s: CVY_FORCE_SHAPE=cpu: llvmpipe ends loops after 65535 rounds, CPU-shaped kernels need more; use "
                "simt",
                device->label);
  }
  /* PoCL compiles with clang, which knows the attribute, and tunes for 256-bit vectors where the core may have 512-bit
   * units. Intel's CPU runtime uses 512-bit registers by itself. Mesa's front end is clang too, but SPIR-V drops the
   * attribute. */
  facts->has_min_vector_width = pocl && info->kind == CVY_DEVICE_CPU;
  /* PoCL and Intel's runtime compile with clang, for flat addresses. oclgrind's front end is clang too, but its
   * simulator does not know the instruction. */
  facts->has_prefetch =
      info->kind == CVY_DEVICE_CPU && (pocl || strstr(info->platform_name, "Intel(R) OpenCL") != NULL);
  CVY_TRY(find_matrix_unit(device));
  /* rusticl (Mesa 22.3) gives the size of a sub-group for CL_KERNEL_WORK_GROUP_SIZE and runs larger groups all the
   * same. */
  device->kernel_group_wrong = rusticl;
  device->keeps_programs = pocl;
  device->reads_header = pocl && info->kind == CVY_DEVICE_CPU;
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
  CVY_TRY(facts_fill(device));
  CVY_TRY(cvy_known_device_force(device));
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
  cvy_paper_destroy(device);
  cvy_profile_destroy(device);
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

static atomic_int n_abandoned;

bool cvy_device_abandon(const cvy_device *device, cvy_pulse *pulse, unsigned long seen, long *objects) {
  if (!atomic_compare_exchange_strong(&pulse->beats, &seen, seen | CVY_PULSE_ABANDONED)) return false;
  atomic_fetch_add(&n_abandoned, 1);
  *objects = device ? atomic_load(&device->children) + 4 : 0; /* context, three queues */
  return true;
}

int cvy_devices_abandoned(void) { return atomic_load(&n_abandoned); }

const cvy_device_info *cvy_device_get_info(const cvy_device *device) { return &device->info; }
const cvy_device_facts *cvy_device_get_facts(const cvy_device *device) { return &device->facts; }
const char *cvy_device_label(const cvy_device *device) { return device->label; }
cvy_matrix_state *cvy_device_matrix(cvy_device *device) { return &device->matrix; }
const cvy_matrix_state *cvy_device_get_matrix(const cvy_device *device) { return &device->matrix; }
cvy_device_rates *cvy_device_get_rates(cvy_device *device) { return &device->rates; }
cvy_queue *cvy_device_compute_queue(cvy_device *device) { return &device->compute; }
cvy_queue *cvy_device_transfer_queue(cvy_device *device) { return &device->transfer; }
cvy_queue *cvy_device_upload_queue(cvy_device *device) { return &device->upload; }
