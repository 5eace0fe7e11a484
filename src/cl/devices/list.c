/* SPDX-License-Identifier: MIT
 * The list of devices. It trusts no driver's answers: a query that fails leaves zeros, and a device that lacks a thing
 * that kernels need is unusable, with the reason. */
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "src/base/env.h"
#include "src/base/mem.h"
#include "src/base/text.h"
#include "src/base/user_cache.h"
#include "src/cl/devices/devices.h"
#include "src/cl/compile/driver_cache.h"
#include "src/cl/opencl.h"

enum { LONGEST_TEXT = 1 << 20, EXTENSIONS_BYTES = 1 << 16 };
/* Headers of extensions may be older than drivers. */
enum {
  PCI_BUS_ID_NV = 0x4008,
  PCI_SLOT_ID_NV = 0x4009,
  PCI_DOMAIN_ID_NV = 0x400A,
  TOPOLOGY_AMD = 0x4037,
  PCI_BUS_INFO_KHR = 0x410F,
  UUID_KHR = 0x106A,
  MAX_NUM_SUB_GROUPS = 0x105C
};

static void trim(char *text) {
  char *start = text;
  while (*start == ' ' || *start == '\t' || *start == '\n') start++;
  size_t n = strlen(start);
  while (n > 0 && (start[n - 1] == ' ' || start[n - 1] == '\t' || start[n - 1] == '\n')) n--;
  memmove(text, start, n);
  text[n] = 0;
}

/* A string of a platform or a device, made plain (it goes into logs, traces and checkpoints) and cut to out_bytes; ""
 * if the query fails. CVY_E_MEMORY. */
static cvy_status get_text(cl_platform_id platform, cl_device_id device, cl_uint what, char *out, size_t out_bytes) {
  cvy_status status = CVY_OK;
  char *whole = NULL;
  size_t size = 0;
  out[0] = 0;
  cl_int code =
      device ? clGetDeviceInfo(device, what, 0, NULL, &size) : clGetPlatformInfo(platform, what, 0, NULL, &size);
  if (code != CL_SUCCESS || size == 0 || size > LONGEST_TEXT) return CVY_OK;
  whole = cvy_calloc(size + 1, 1);
  CVY_REQUIRE(whole, CVY_E_MEMORY, "no memory for the names of the devices");
  code =
      device ? clGetDeviceInfo(device, what, size, whole, NULL) : clGetPlatformInfo(platform, what, size, whole, NULL);
  if (code == CL_SUCCESS) {
    trim(whole);
    cvy_plain_copy(whole, "", out, out_bytes);
  }
  cvy_free(whole);
fail:
  return status;
}

/* A value of fixed size; false (and zeros) if the query fails. */
static bool get_value(cl_device_id device, cl_uint what, void *out, size_t out_bytes) {
  size_t size = 0;
  memset(out, 0, out_bytes);
  return clGetDeviceInfo(device, what, out_bytes, out, &size) == CL_SUCCESS && size == out_bytes;
}

static bool has_extension(const char *all, const char *name) {
  const size_t n = strlen(name);
  for (const char *at = strstr(all, name); at; at = strstr(at + n, name))
    if ((at == all || at[-1] == ' ') && (at[n] == ' ' || at[n] == 0)) return true;
  return false;
}

/* The bus address if the driver reports it (in one of several ways), else the UUID. The address comes first: two
 * drivers of one card agree on it. */
static void get_uuid(cl_device_id device, char *out, size_t out_bytes) {
  struct {
    cl_uint domain, bus, device, function;
  } khr;
  cl_uint bus = 0, slot = 0, domain = 0;
  unsigned char amd[24], uuid[16];
  if (get_value(device, PCI_BUS_INFO_KHR, &khr, sizeof khr)) {
    snprintf(out, out_bytes, "pci:%04x:%02x:%02x.%x", khr.domain, khr.bus, khr.device, khr.function);
  } else if (get_value(device, PCI_BUS_ID_NV, &bus, sizeof bus) &&
             get_value(device, PCI_SLOT_ID_NV, &slot, sizeof slot)) {
    get_value(device, PCI_DOMAIN_ID_NV, &domain, sizeof domain);
    snprintf(out, out_bytes, "pci:%04x:%02x:%02x.%x", domain, bus, slot >> 3, slot & 7);
  } else if (get_value(device, TOPOLOGY_AMD, amd, sizeof amd) && amd[0] == 1) {
    snprintf(out, out_bytes, "pci:0000:%02x:%02x.%x", amd[21], amd[22], amd[23]);
  } else if (get_value(device, UUID_KHR, uuid, sizeof uuid)) {
    int n = snprintf(out, out_bytes, "uuid:");
    for (int i = 0; i < 16; i++) n += snprintf(out + n, out_bytes - (size_t)n, "%02x", uuid[i]);
  } else {
    out[0] = 0;
  }
}

static void reason(cvy_device_info *info, const char *format, ...) CVY_PRINTF(2, 3);
static void reason(cvy_device_info *info, const char *format, ...) {
  va_list args;
  va_start(args, format);
  info->usable = false;
  vsnprintf(info->reason, sizeof info->reason, format, args);
  va_end(args);
}

static void judge(cvy_device_info *info, cl_device_id device, bool tries) {
  cl_bool available, compiler, little;
  int major = 0, minor = 0;
  const bool knows = get_value(device, CL_DEVICE_AVAILABLE, &available, sizeof available) &&
                     get_value(device, CL_DEVICE_COMPILER_AVAILABLE, &compiler, sizeof compiler) &&
                     get_value(device, CL_DEVICE_ENDIAN_LITTLE, &little, sizeof little);
  info->usable = true;
  if (!knows || info->compute_units < 1 || info->global_bytes == 0 || info->max_alloc_bytes == 0 ||
      info->max_work_group == 0)
    reason(info, "its driver does not answer basic questions");
  else if (sscanf(info->version, "OpenCL %d.%d", &major, &minor) != 2 || major * 10 + minor < 12)
    reason(info, "its version is \"%s\", OpenCL 1.2 is needed", info->version);
  else if (!available) reason(info, "its driver reports that it is not available");
  else if (!compiler) reason(info, "its driver has no compiler");
  else if (!little) reason(info, "it is big-endian");
  if (!info->usable || !tries) return;
  /* Some drivers list a device that no context can be made for. */
  cl_int code;
  const cl_context context = clCreateContext(NULL, 1, &device, NULL, NULL, &code);
  if (code != CL_SUCCESS || !context)
    reason(info, "a context cannot be created: %s (%d)", cvy_cl_error_name(code), (int)code);
  else clReleaseContext(context);
}

static cvy_status describe(cvy_device_info *info, cl_device_id device) {
  cl_device_type type;
  cl_uint units, width, align_bits;
  cl_ulong global, most, local, cache;
  size_t group;
  cl_bool unified;
  cl_device_local_mem_type local_type;
  cvy_status status = CVY_OK;
  char *extensions = NULL;
  CVY_TRY(get_text(NULL, device, CL_DEVICE_NAME, info->name, sizeof info->name));
  CVY_TRY(get_text(NULL, device, CL_DEVICE_VENDOR, info->vendor, sizeof info->vendor));
  CVY_TRY(get_text(NULL, device, CL_DRIVER_VERSION, info->driver, sizeof info->driver));
  CVY_TRY(get_text(NULL, device, CL_DEVICE_VERSION, info->version, sizeof info->version));
  get_value(device, CL_DEVICE_TYPE, &type, sizeof type);
  get_value(device, CL_DEVICE_MAX_COMPUTE_UNITS, &units, sizeof units);
  get_value(device, CL_DEVICE_GLOBAL_MEM_SIZE, &global, sizeof global);
  get_value(device, CL_DEVICE_MAX_MEM_ALLOC_SIZE, &most, sizeof most);
  get_value(device, CL_DEVICE_LOCAL_MEM_SIZE, &local, sizeof local);
  get_value(device, CL_DEVICE_GLOBAL_MEM_CACHE_SIZE, &cache, sizeof cache);
  get_value(device, CL_DEVICE_MAX_WORK_GROUP_SIZE, &group, sizeof group);
  get_value(device, CL_DEVICE_MEM_BASE_ADDR_ALIGN, &align_bits, sizeof align_bits);
  get_value(device, CL_DEVICE_NATIVE_VECTOR_WIDTH_FLOAT, &width, sizeof width);
  get_value(device, CL_DEVICE_HOST_UNIFIED_MEMORY, &unified, sizeof unified);
  get_value(device, CL_DEVICE_LOCAL_MEM_TYPE, &local_type, sizeof local_type);
  get_uuid(device, info->uuid, sizeof info->uuid);
  info->compute_units = (int)units;
  info->global_bytes = (size_t)global;
  info->max_alloc_bytes = (size_t)most;
  info->local_bytes = (size_t)local;
  info->cache_bytes = (size_t)cache;
  info->max_work_group = group;
  info->base_align_bytes = align_bits >= 8 ? align_bits / 8 : 1;
  info->float_vector_width = (int)width;
  info->host_unified = unified;
  info->local_is_dedicated = local_type == CL_LOCAL;
  /* llvmpipe is the host's cores whatever type it claims; PoCL's `basic` is one thread, for debugging. */
  const bool llvmpipe = strstr(info->name, "llvmpipe") || strstr(info->name, "softpipe");
  const bool pocl_basic = strstr(info->platform_name, "Portable Computing Language") &&
                          (!strncmp(info->name, "basic", 5) || !strncmp(info->name, "cpu-minimal", 11));
  info->kind = (type & CL_DEVICE_TYPE_CPU) || llvmpipe ? CVY_DEVICE_CPU
               : (type & CL_DEVICE_TYPE_GPU)           ? CVY_DEVICE_GPU
                                                       : CVY_DEVICE_OTHER;
  info->software = llvmpipe || pocl_basic;
  if (info->kind == CVY_DEVICE_CPU) { /* drivers report the machine's memory, a container may have less */
    const uint64_t host = cvy_host_memory_bytes();
    if (host < info->global_bytes) info->global_bytes = (size_t)host;
    if (host < info->max_alloc_bytes) info->max_alloc_bytes = (size_t)host;
  }

  extensions = cvy_calloc(EXTENSIONS_BYTES, 1);
  CVY_REQUIRE(extensions, CVY_E_MEMORY, "no memory for the extensions of the devices");
  CVY_TRY(get_text(NULL, device, CL_DEVICE_EXTENSIONS, extensions, EXTENSIONS_BYTES));
  cl_uint n_subgroups;
  info->has_fp16 = has_extension(extensions, "cl_khr_fp16");
  info->has_fp64 = has_extension(extensions, "cl_khr_fp64");
  info->has_subgroups = has_extension(extensions, "cl_khr_subgroups") ||
                        has_extension(extensions, "cl_intel_subgroups") ||
                        (get_value(device, MAX_NUM_SUB_GROUPS, &n_subgroups, sizeof n_subgroups) && n_subgroups > 0);
  cl_device_partition_property ways[16];
  size_t size = 0;
  if (clGetDeviceInfo(device, CL_DEVICE_PARTITION_PROPERTIES, sizeof ways, ways, &size) == CL_SUCCESS)
    for (size_t i = 0; i < size / sizeof ways[0]; i++)
      info->can_partition_by_counts |= ways[i] == CL_DEVICE_PARTITION_BY_COUNTS;
fail:
  cvy_free(extensions);
  return status;
}

/* Adds a row; NULL when out of memory. */
static cvy_device_info *add_row(cvy_device_list *list, void *handle) {
  cvy_device_info *const items = cvy_realloc(list->items, (size_t)list->n, (size_t)list->n + 1, sizeof *items);
  if (!items) return NULL;
  list->items = items;
  void **const handles = cvy_realloc(list->handles, (size_t)list->n, (size_t)list->n + 1, sizeof *handles);
  if (!handles) return NULL;
  list->handles = handles;
  list->handles[list->n] = handle;
  list->items[list->n].same_as = -1;
  return &list->items[list->n++];
}

void cvy_device_list_mark_same(cvy_device_list *list) {
  int cpu = -1;
  for (int i = 0; i < list->n; i++) {
    cvy_device_info *const a = &list->items[i];
    if (!a->usable) continue;
    if (a->kind == CVY_DEVICE_CPU) {
      if (cpu < 0 || (list->items[cpu].software && !a->software)) cpu = i;
    } else if (a->uuid[0]) {
      /* Devices of one platform are never the same: parts of one card (MIG) share its bus address. */
      for (int j = 0; j < i && a->same_as < 0; j++) {
        const cvy_device_info *const b = &list->items[j];
        if (b->usable && b->kind != CVY_DEVICE_CPU && b->same_as < 0 && b->platform != a->platform &&
            !strcmp(a->uuid, b->uuid)) {
          a->same_as = j;
          a->duplicate = true;
        }
      }
    }
  }
  for (int i = 0; i < list->n; i++)
    if (list->items[i].usable && list->items[i].kind == CVY_DEVICE_CPU && i != cpu) list->items[i].same_as = cpu;
}

/* PoCL 7's default method of running work-items loses values that live across barriers: sums over a work-group and
 * clFFT's transforms are wrong without any error (seen with 7.1 and LLVM 21 by the tests softmax, batchnorm and
 * conv2d_libs). Its other method is right. PoCL reads the variable when it compiles a kernel. */
static void choose_pocl_method(const char *platform_version) {
  if (strstr(platform_version, "PoCL 7.") && !cvy_env_text(CVY_ENV_POCL_WORK_GROUP_METHOD))
    setenv("POCL_WORK_GROUP_METHOD", "cbs", 1);
}

static cvy_status create(bool tries, cvy_device_list **out) {
  cvy_status status = CVY_OK;
  cl_platform_id *platforms = NULL;
  cl_device_id *devices = NULL;
  cl_uint n_platforms = 0;
  cvy_device_list *list = cvy_calloc(1, sizeof *list);
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  CVY_REQUIRE(list, CVY_E_MEMORY, "no memory for the list of devices");

  pthread_once(&once, cvy_driver_cache_prepare);
  cl_int code = clGetPlatformIDs(0, NULL, &n_platforms);
  if (code != CL_SUCCESS) {
    /* -1001: the loader found no platform at all, which is no failure */
    if (code != -1001) cvy_log_warning("clGetPlatformIDs failed: %s (%d)", cvy_cl_error_name(code), (int)code);
    n_platforms = 0;
  }
  if (n_platforms > 0) {
    platforms = cvy_calloc(n_platforms, sizeof *platforms);
    CVY_REQUIRE(platforms, CVY_E_MEMORY, "no memory for %u platforms", n_platforms);
    CVY_CL("OpenCL", clGetPlatformIDs(n_platforms, platforms, NULL));
  }
  for (cl_uint p = 0; p < n_platforms; p++) {
    cvy_device_info base = {.platform = (int)p, .index = -1, .same_as = -1};
    cl_uint n = 0;
    CVY_TRY(get_text(platforms[p], NULL, CL_PLATFORM_NAME, base.platform_name, sizeof base.platform_name));
    CVY_TRY(get_text(platforms[p], NULL, CL_PLATFORM_VERSION, base.platform_version, sizeof base.platform_version));
    choose_pocl_method(base.platform_version);
    code = clGetDeviceIDs(platforms[p], CL_DEVICE_TYPE_ALL, 0, NULL, &n);
    if (code == CL_SUCCESS && n > 0) {
      devices = cvy_calloc(n, sizeof *devices);
      CVY_REQUIRE(devices, CVY_E_MEMORY, "no memory for %u devices", n);
      code = clGetDeviceIDs(platforms[p], CL_DEVICE_TYPE_ALL, n, devices, NULL);
    }
    if (code != CL_SUCCESS || n == 0) {
      cvy_device_info *const row = add_row(list, NULL);
      CVY_REQUIRE(row, CVY_E_MEMORY, "no memory for the list of devices");
      *row = base;
      if (code != CL_SUCCESS && code != CL_DEVICE_NOT_FOUND)
        reason(row, "its devices cannot be listed: %s (%d)", cvy_cl_error_name(code), (int)code);
      else if (!strcmp(base.platform_name, "rusticl"))
        reason(row,
               "no devices (rusticl shows those of the Mesa drivers named in RUSTICL_ENABLE, such as radeonsi, iris or "
               "llvmpipe)");
      else reason(row, "no devices");
    } else {
      for (cl_uint i = 0; i < n; i++) {
        cvy_device_info *const row = add_row(list, devices[i]);
        CVY_REQUIRE(row, CVY_E_MEMORY, "no memory for the list of devices");
        *row = base;
        row->index = (int)i;
        CVY_TRY(describe(row, devices[i]));
        judge(row, devices[i], tries);
      }
    }
    cvy_free(devices);
    devices = NULL;
  }
  cvy_device_list_mark_same(list);
  *out = list;
  list = NULL;
fail:
  cvy_free(platforms);
  cvy_free(devices);
  cvy_device_list_destroy(&list);
  return status;
}

cvy_status cvy_device_list_create(cvy_device_list **out) { return create(true, out); }
cvy_status cvy_device_list_create_untried(cvy_device_list **out) { return create(false, out); }

void cvy_device_list_destroy(cvy_device_list **list) {
  if (!list || !*list) return;
  cvy_free((*list)->items);
  cvy_free((*list)->handles);
  cvy_free(*list);
  *list = NULL;
}
