/* SPDX-License-Identifier: MIT
 * Linked into tests that open devices hundreds of times and are not about opening, in front of the driver
 * (-Wl,--wrap): a context that the library releases is kept, and is what the library gets when it next creates one for
 * the same device. A driver of graphics cards takes a good part of a second for each. Contexts of parts of a device are
 * not kept, because each partition makes new parts. The library counts its contexts (cvy_live_count) as without this.
 * Not for tests in which calls fail: a context may be of no use afterwards. */
#include <pthread.h>
#include <stdio.h>

#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>

#include "tests/support/check.h"

typedef void(CL_CALLBACK *notify_fn)(const char *, const void *, size_t, void *);
cl_context __real_clCreateContext(const cl_context_properties *properties, cl_uint n, const cl_device_id *devices,
                                  notify_fn notify, void *user, cl_int *code);
cl_int __real_clReleaseContext(cl_context context);
cl_context __wrap_clCreateContext(const cl_context_properties *properties, cl_uint n, const cl_device_id *devices,
                                  notify_fn notify, void *user, cl_int *code);
cl_int __wrap_clReleaseContext(cl_context context);

enum { MOST_KEPT = 32 };
static struct {
  pthread_mutex_t lock;
  struct {
    cl_context context;
    cl_device_id device;
    notify_fn notify;
    bool in_use;
  } all[MOST_KEPT];
  int n, asked, made;
} kept = {.lock = PTHREAD_MUTEX_INITIALIZER};

static bool is_part(cl_device_id device) {
  cl_device_id parent = NULL;
  return clGetDeviceInfo(device, CL_DEVICE_PARENT_DEVICE, sizeof parent, &parent, NULL) != CL_SUCCESS || parent;
}

/* One that is free, marked as in use. */
static cl_context take(cl_device_id device, notify_fn notify) {
  cl_context context = NULL;
  pthread_mutex_lock(&kept.lock);
  kept.asked++;
  for (int i = 0; i < kept.n && !context; i++) {
    if (kept.all[i].in_use || kept.all[i].device != device || kept.all[i].notify != notify) continue;
    kept.all[i].in_use = true;
    context = kept.all[i].context;
  }
  if (!context) kept.made++;
  pthread_mutex_unlock(&kept.lock);
  return context;
}

cl_context __wrap_clCreateContext(const cl_context_properties *properties, cl_uint n, const cl_device_id *devices,
                                  notify_fn notify, void *user, cl_int *code) {
  const bool keeps = n == 1 && !properties && !user && !is_part(devices[0]);
  cl_context context = keeps ? take(devices[0], notify) : NULL;
  if (context) {
    if (code) *code = CL_SUCCESS;
    return context;
  }
  context = __real_clCreateContext(properties, n, devices, notify, user, code);
  if (!context || !keeps) return context;
  pthread_mutex_lock(&kept.lock);
  if (kept.n < MOST_KEPT) {
    kept.all[kept.n].context = context, kept.all[kept.n].device = devices[0];
    kept.all[kept.n].notify = notify, kept.all[kept.n++].in_use = true;
  }
  pthread_mutex_unlock(&kept.lock);
  return context;
}

cl_int __wrap_clReleaseContext(cl_context context) {
  bool found = false;
  pthread_mutex_lock(&kept.lock);
  for (int i = 0; i < kept.n && !found; i++) {
    found = kept.all[i].context == context && kept.all[i].in_use;
    if (found) kept.all[i].in_use = false;
  }
  pthread_mutex_unlock(&kept.lock);
  return found ? CL_SUCCESS : __real_clReleaseContext(context);
}

static void release_all(void) {
  fprintf(stderr, "contexts of whole devices: %d asked for, %d made\n", kept.asked, kept.made);
  for (int i = 0; i < kept.n; i++)
    if (!kept.all[i].in_use) __real_clReleaseContext(kept.all[i].context);
  kept.n = 0;
}

__attribute__((constructor)) static void add(void) { check_after_all(release_all); }
