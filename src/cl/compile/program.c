/* SPDX-License-Identifier: MIT */
#include "src/cl/compile/program.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/clock.h"
#include "src/base/env.h"
#include "src/cl/compile/cache.h"
#include "src/cl/compile/compile_faults.h"
#include "src/cl/compile/driver_cache.h"
#include "src/cl/compile/source.h"

enum { LOG_PIECE = 3500 };

static atomic_long n_compiled, n_cached;

/* Time during which at least one device builds a program. */
static struct {
  pthread_mutex_t lock;
  int active;
  uint64_t since_ns, sum_ns;
} building = {.lock = PTHREAD_MUTEX_INITIALIZER};

void cvy_building_begins(void) {
  pthread_mutex_lock(&building.lock);
  if (building.active++ == 0) building.since_ns = cvy_clock_ns();
  pthread_mutex_unlock(&building.lock);
}

void cvy_building_ends(void) {
  pthread_mutex_lock(&building.lock);
  if (--building.active == 0) building.sum_ns += cvy_clock_ns() - building.since_ns;
  pthread_mutex_unlock(&building.lock);
}

void cvy_program_totals(cvy_launch_totals *totals) {
  totals->compiled = atomic_load(&n_compiled);
  totals->cached = atomic_load(&n_cached);
  pthread_mutex_lock(&building.lock);
  totals->build_ns = building.sum_ns;
  pthread_mutex_unlock(&building.lock);
}

/* We save binaries on the disk unless the driver has a better cache of its own. Measured with four register-tile
 * kernels, seconds to build all in the second run, without and with our cache: Intel's CPU runtime 1.5 (it has none)
 * and 0.02. PoCL has a cache, and we do not ask it for binaries: if asked, it compiles every kernel of the program for
 * groups of any size, and at the first launch again for the launched size. ResNet-18 on two cores with empty caches,
 * seconds to the first forward kernel and to the end of the first step: 62 and 94 with binaries, 10 and 43 without.
 *
 * To find a program in its cache PoCL preprocesses the source, and with it clang's opencl-c.h with its 17000 lines.
 * With the header's guard defined it skips the header, and cl/builtins.clh declares the functions that our kernels
 * call: 0.02–0.04 s of processor time for each program instead of 0.06–0.10 (AVX-512 Xeon, 2.5 GHz), and a quarter of a
 * second less to compile one. The machine code is the same, bit for bit (41 kernels of ResNet-18, LeNet compared). */
static const char own_builtins[] = " -w -D _OPENCL_H_ -D CVY_OWN_BUILTINS"; /* -w: clang would print their number */

static int compare_defines(const void *a, const void *b) {
  return strcmp(((const cvy_define *)a)->name, ((const cvy_define *)b)->name);
}

cvy_status cvy_program_options(const cvy_device *device, const cvy_define *defines, int n_defines, cvy_text *out) {
  cvy_status status = CVY_OK;
  cvy_define *const sorted = cvy_calloc((size_t)n_defines, sizeof *sorted);
  CVY_REQUIRE(sorted, CVY_E_MEMORY, "no memory for %d defines", n_defines);
  for (int i = 0; i < n_defines; i++) sorted[i] = defines[i];
  qsort(sorted, (size_t)n_defines, sizeof *sorted, compare_defines);
  cvy_text_add(out, "-cl-std=CL1.2 -D CVY_CPU=%d", device->capabilities.cpu_shaped ? 1 : 0);
  if (device->capabilities.vector_floats)
    cvy_text_add(out, " -D CVY_VECTOR_FLOATS=%d", device->capabilities.vector_floats);
  if (device->capabilities.has_min_vector_width) cvy_text_add(out, " -D CVY_MIN_VECTOR_WIDTH=512");
  if (device->capabilities.has_prefetch) cvy_text_add(out, " -D CVY_PREFETCH");
  if (device->capabilities.sub_group) cvy_text_add(out, " -D CVY_SUB_GROUP=%d", device->capabilities.sub_group);
  if (device->capabilities.register_limit)
    cvy_text_add(out, " -D CVY_REGISTER_LIMIT=%d -cl-nv-maxrregcount=%d", device->capabilities.register_limit,
                 device->capabilities.register_limit);
  for (int i = 0; i < n_defines; i++) cvy_text_add(out, " -D %s=%ld", sorted[i].name, sorted[i].value);
  const char *const more = cvy_env_text(CVY_ENV_BUILD_OPTIONS);
  if (more) cvy_text_add(out, " %s", more);
  CVY_REQUIRE(!out->failed, CVY_E_MEMORY, "no memory for the compiler's options");
fail:
  cvy_free(sorted);
  return status;
}

/* Logs the compiler's output, cut at line ends into pieces that fit a message. */
static void build_log(const cvy_device *device, cl_program program, bool failed) {
  size_t size = 0;
  char *log = NULL;
  if (clGetProgramBuildInfo(program, device->id, CL_PROGRAM_BUILD_LOG, 0, NULL, &size) != CL_SUCCESS || size <= 1) {
    /* Since version 525 NVIDIA's compiler is a library of its own, which containers may lack. */
    const bool nvidia = strstr(device->info.platform_name, "NVIDIA") != NULL;
    if (failed)
      cvy_log_error("nothing%s",
                    nvidia ? "; the driver's libnvidia-nvvm.so.4 may be missing beside its libnvidia-opencl.so.1" : "");
    if (failed) cvy_driver_cache_explain(&device->info, true);
    return;
  }
  log = cvy_calloc(size + 1, 1);
  if (!log) return;
  if (clGetProgramBuildInfo(program, device->id, CL_PROGRAM_BUILD_LOG, size, log, NULL) == CL_SUCCESS) {
    for (const char *at = log; *at;) {
      size_t n = strnlen(at, LOG_PIECE);
      if (at[n]) {
        size_t cut = n;
        while (cut > 0 && at[cut - 1] != '\n') cut--;
        if (cut > 0) n = cut;
      }
      const int shown = (int)(n > 0 && at[n - 1] == '\n' ? n - 1 : n);
      if (shown > 0 && failed) cvy_log_error("%.*s", shown, at);
      else if (shown > 0) cvy_log_debug("%.*s", shown, at);
      at += n;
    }
  }
  cvy_free(log);
  if (failed) cvy_driver_cache_explain(&device->info, false);
}

static bool from_binary(cvy_device *device, const char *key, const char *options, cl_program *out) {
  unsigned char *binary = NULL;
  size_t size;
  cl_int binary_code = CL_SUCCESS, code;
  if (!cvy_cache_load(key, &binary, &size)) return false;
  const cl_program program = clCreateProgramWithBinary(device->context, 1, &device->id, &size,
                                                       (const unsigned char **)&binary, &binary_code, &code);
  cvy_free(binary);
  if (code != CL_SUCCESS || !program) return false;
  if (binary_code != CL_SUCCESS || clBuildProgram(program, 1, &device->id, options, NULL, NULL) != CL_SUCCESS) {
    cvy_log_debug("%s: its driver refuses a binary from the cache: compiling", device->label);
    clReleaseProgram(program);
    return false;
  }
  *out = program;
  atomic_fetch_add(&n_cached, 1);
  return true;
}

static void to_cache(const char *key, cl_program program) {
  size_t size = 0;
  if (clGetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, sizeof size, &size, NULL) != CL_SUCCESS || size == 0) return;
  unsigned char *binary = cvy_calloc(size, 1);
  if (!binary) return;
  if (clGetProgramInfo(program, CL_PROGRAM_BINARIES, sizeof binary, &binary, NULL) == CL_SUCCESS)
    cvy_cache_store(key, binary, size);
  cvy_free(binary);
}

/* Builds without opencl-c.h if the source has declarations of its own. False also if a kernel calls a function that
 * they lack. */
static bool build_without_header(cvy_device *device, const char *file, const char *source, const char *options,
                                 cl_program program) {
  cvy_text short_options = {0};
  if (!device->reads_header || !strstr(source, "CVY_OWN_BUILTINS")) return false;
  cvy_text_add(&short_options, "%s%s", options, own_builtins);
  const bool built =
      !short_options.failed && clBuildProgram(program, 1, &device->id, short_options.data, NULL, NULL) == CL_SUCCESS;
  cvy_device_beat(device);
  if (!built)
    cvy_log_debug("%s: %s.cl calls what cl/builtins.clh does not declare: built with opencl-c.h", device->label, file);
  cvy_text_clear(&short_options);
  return built;
}

static cvy_status build(cvy_device *device, const char *file, const char *options, cl_program *out) {
  cvy_status status = CVY_OK;
  cvy_text source = {0}, key = {0};
  cl_program program = NULL;
  cl_int code;
  CVY_TRY(cvy_source_key(&device->info, file, options, &source, &key));
  cvy_device_beat(device);
  if (!device->keeps_programs && from_binary(device, key.data, options, out)) goto fail; /* done */
  cvy_device_beat(device);
  CVY_TRY(cvy_compile_fault_check(device, file, NULL, options));
  const char *text = source.data;
  program = clCreateProgramWithSource(device->context, 1, &text, &source.size, &code);
  if (code != CL_SUCCESS) program = NULL;
  CVY_CL_CODE(device->label, code, "clCreateProgramWithSource");
  code = CL_SUCCESS;
  if (!build_without_header(device, file, text, options, program)) {
    code = clBuildProgram(program, 1, &device->id, options, NULL, NULL);
    cvy_device_beat(device);
  }
  if (code != CL_SUCCESS) {
    cvy_log_error("%s: %s.cl does not compile: %s (%d); options: %s; compiler log:", device->label, file,
                  cvy_cl_error_name(code), (int)code, options);
    build_log(device, program, true);
    status = CVY_E_BUILD;
    goto fail;
  }
  build_log(device, program, false);
  atomic_fetch_add(&n_compiled, 1);
  if (!device->keeps_programs) to_cache(key.data, program);
  *out = program;
  program = NULL;
fail:
  cvy_device_beat(device);
  if (program) clReleaseProgram(program);
  cvy_text_clear(&source);
  cvy_text_clear(&key);
  return status;
}

cvy_status cvy_program_get(cvy_device *device, const char *file, const char *options, cvy_program **out) {
  cvy_status status = CVY_OK;
  cvy_text key = {0};
  cvy_program *program = NULL;
  cvy_text_add(&key, "%s %s", file, options);
  CVY_REQUIRE(!key.failed, CVY_E_MEMORY, "no memory for the key of %s", file);
  for (cvy_program *known = device->programs; known; known = known->next) {
    if (!strcmp(known->key, key.data)) {
      *out = known;
      goto fail; /* done */
    }
  }
  program = cvy_calloc(1, sizeof *program);
  CVY_REQUIRE(program, CVY_E_MEMORY, "no memory for a program");
  cvy_log_debug("program %s", key.data); /* test_kernel_variants reads this */
  cvy_building_begins();
  status = build(device, file, options, &program->cl);
  cvy_building_ends();
  CVY_TRY(status);
  program->key = key.data;
  key = (cvy_text){0};
  program->next = device->programs;
  device->programs = program;
  cvy_live_add(CVY_LIVE_PROGRAM, 1);
  *out = program;
  program = NULL;
fail:
  cvy_free(program);
  cvy_text_clear(&key);
  return status;
}

void cvy_programs_destroy(cvy_device *device) {
  for (cvy_program *program = device->programs, *next; program; program = next) {
    next = program->next;
    clReleaseProgram(program->cl);
    cvy_free(program->key);
    cvy_free(program);
    cvy_live_add(CVY_LIVE_PROGRAM, -1);
  }
  device->programs = NULL;
}
