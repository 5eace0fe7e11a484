/* SPDX-License-Identifier: MIT */
#include "src/cl/compile/ahead.h"

#include <stdlib.h>
#include <string.h>

#include "src/cl/compile/compile_faults.h"
#include "src/cl/compile/compile_ways.h"
#include "src/cl/compile/compilers.h"
#include "src/cl/launch.h"
#include "src/cl/opencl.h"

void cvy_ahead_begin(cvy_device *device) {
  CVY_ASSERT(!device->noted.on && !device->noted.first);
  device->noted.on = true;
  device->noted.behind = &device->noted.first;
}

void cvy_ahead_cancel(cvy_device *device) {
  device->noted.on = false;
  for (cvy_kernel *kernel; (kernel = device->noted.first);) {
    device->noted.first = kernel->next_noted;
    kernel->next_noted = NULL;
  }
  device->noted.behind = NULL;
}

static bool same_program(const cvy_compile_request *a, const cvy_compile_request *b) {
  return strcmp(a->file, b->file) == 0 && strcmp(a->options, b->options) == 0;
}

static bool same_kernel(const cvy_compile_request *a, const cvy_compile_request *b) {
  return strcmp(a->name, b->name) == 0 && same_program(a, b);
}

/* The kernels that are not built yet, or one of each program where helpers build programs, each once, in order of need.
 */
static cvy_status list_requests(const cvy_device *device, cvy_compile_request **out, int *n) {
  cvy_status status = CVY_OK;
  size_t count = 0;
  int programs = 0;
  cvy_compile_request *list = NULL;
  const bool whole = cvy_compile_way_of(device) == CVY_COMPILE_BUILT;
  *n = 0;
  for (const cvy_kernel *k = device->noted.first; k; k = k->next_noted) count++;
  list = cvy_calloc(count, sizeof *list);
  CVY_REQUIRE(list, CVY_E_MEMORY, "no memory for a list of %zu kernels", count);
  for (const cvy_kernel *k = device->noted.first; k; k = k->next_noted) {
    if (k->cl) continue;
    cvy_compile_request *const r = &list[*n];
    *r = (cvy_compile_request){.file = k->file, .name = k->name, .options = k->options, .program = -1};
    bool known = false;
    for (int i = 0; i < *n && !known; i++) {
      if (same_program(&list[i], r)) r->program = list[i].program;
      known = whole ? same_program(&list[i], r) : same_kernel(&list[i], r);
    }
    if (known) continue;
    if (r->program < 0) r->program = programs++;
    r->order = *n;
    ++*n;
  }
  *out = list;
fail:
  return status;
}

/* Has helpers compile what the caches lack. */
static cvy_status fill_caches(cvy_device *device, bool (*stop)(void *user), void *user) {
  cvy_status status = CVY_OK;
  cvy_compile_request *list = NULL;
  int n;
  if (!device->noted.first || !cvy_compilers_serve(device)) return CVY_OK;
  CVY_TRY(list_requests(device, &list, &n));
  do {
    const int listed = n;
    n = 0;
    for (int i = 0; i < listed; i++)
      if (!cvy_compiled_before(device, &list[i])) list[n++] = list[i];
  } while (n > 0 && !cvy_compilers_run(device, list, n, stop, user));
fail:
  cvy_free(list);
  return status;
}

/* True if the compiler has died or hung at one of the noted kernels. */
static bool is_refused(cvy_device *device) {
  bool refused = false;
  cvy_log_attempt_begin();
  for (const cvy_kernel *k = device->noted.first; k && !refused; k = k->next_noted)
    refused = !k->cl && cvy_compile_fault_check(device, k->file, k->name, k->options) != CVY_OK;
  cvy_log_attempt_end(false);
  return refused;
}

cvy_status cvy_ahead_end(cvy_device *device, bool *again) {
  cvy_status status = CVY_OK;
  CVY_ASSERT(device->noted.on);
  device->noted.on = false;
  *again = false;
  CVY_TRY(fill_caches(device, NULL, NULL));
  *again = cvy_compile_has_faults() && is_refused(device);
  if (*again) goto fail; /* nothing is built */
  for (cvy_kernel *kernel; (kernel = device->noted.first);) {
    CVY_TRY(cvy_kernel_make(kernel));
    device->noted.first = kernel->next_noted;
    kernel->next_noted = NULL;
  }
  cvy_compile_faults_warn(device);
fail:
  cvy_ahead_cancel(device);
  return status;
}

cvy_status cvy_ahead_fill(cvy_device *device, bool (*stop)(void *user), void *user) {
  CVY_ASSERT(device->noted.on);
  const cvy_status status = fill_caches(device, stop, user);
  cvy_ahead_cancel(device);
  return status;
}
