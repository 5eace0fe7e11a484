/* SPDX-License-Identifier: MIT
 * clFFT's interface, of which this file declares what it uses: it opens the library and does not link it. */
#include "src/cl/fft.h"

#include <dlfcn.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/env.h"
#include "src/cl/command_times.h"
#include "src/cl/opencl.h"

typedef size_t plan_handle;
typedef struct setup_data {
  cl_uint major, minor, patch;
  cl_ulong debug_flags;
} setup_data;

/* clFFT's enumerations: dimension, precision, layouts, placement, direction. */
enum { TWO_DIMENSIONS = 2, SINGLE = 1, HERMITIAN = 3, REAL = 5, OUT_OF_PLACE = 2, FORWARD = -1, BACKWARD = 1 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* Under the lock. The library stays open, as in blas.c. */
static struct {
  void *library;
  bool set_up;
  int devices; /* that use it */
  int (*get_version)(cl_uint *major, cl_uint *minor, cl_uint *patch);
  int (*setup)(const setup_data *data);
  int (*teardown)(void);
  int (*create)(plan_handle *plan, cl_context context, int dimensions, const size_t *lengths);
  int (*set_precision)(plan_handle plan, int precision);
  int (*set_layout)(plan_handle plan, int in, int out);
  int (*set_location)(plan_handle plan, int placement);
  int (*set_batch)(plan_handle plan, size_t count);
  int (*set_in_stride)(plan_handle plan, int dimensions, size_t *strides);
  int (*set_out_stride)(plan_handle plan, int dimensions, size_t *strides);
  int (*set_distance)(plan_handle plan, size_t in, size_t out);
  int (*bake)(plan_handle plan, cl_uint n_queues, cl_command_queue *queues, void (*notify)(plan_handle, void *),
              void *user);
  int (*temp_size)(plan_handle plan, size_t *bytes);
  int (*enqueue)(plan_handle plan, int direction, cl_uint n_queues, cl_command_queue *queues, cl_uint n_wait,
                 const cl_event *wait, cl_event *events, cl_mem *in, cl_mem *out, cl_mem temp);
  int (*destroy)(plan_handle *plan);
} fft;

struct cvy_fft_plan {
  struct cvy_fft_plan *next;
  int h, w, planes;
  size_t temp_bytes;
  plan_handle forward, backward;
  bool has_forward, has_backward;
};

struct cvy_fft_size {
  struct cvy_fft_size *next;
  int h, w;
  cvy_probe probe;
};

/* Under the lock. */
static bool open_library(char *what, size_t what_bytes) {
  static const char soname[] = "libclFFT.so.2";
  const struct {
    const char *name;
    void *function;
  } symbols[] = {{"clfftGetVersion", &fft.get_version},
                 {"clfftSetup", &fft.setup},
                 {"clfftTeardown", &fft.teardown},
                 {"clfftCreateDefaultPlan", &fft.create},
                 {"clfftSetPlanPrecision", &fft.set_precision},
                 {"clfftSetLayout", &fft.set_layout},
                 {"clfftSetResultLocation", &fft.set_location},
                 {"clfftSetPlanBatchSize", &fft.set_batch},
                 {"clfftSetPlanInStride", &fft.set_in_stride},
                 {"clfftSetPlanOutStride", &fft.set_out_stride},
                 {"clfftSetPlanDistance", &fft.set_distance},
                 {"clfftBakePlan", &fft.bake},
                 {"clfftGetTmpBufSize", &fft.temp_size},
                 {"clfftEnqueueTransform", &fft.enqueue},
                 {"clfftDestroyPlan", &fft.destroy}};
  const char *const asked = cvy_env_text(CVY_ENV_CLFFT), *const file = asked ? asked : soname;
  cl_uint major = 0, minor = 0, patch = 0;
  if (!strcmp(file, "none")) {
    snprintf(what, what_bytes, "CVY_CLFFT=none");
    return false;
  }
  if (!fft.library) {
    const char *missing = NULL;
    fft.library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (!fft.library) {
      snprintf(what, what_bytes, "%s", dlerror());
      return false;
    }
    for (size_t i = 0; i < sizeof symbols / sizeof *symbols && !missing; i++) {
      void *const address = dlsym(fft.library, symbols[i].name);
      if (!address) missing = symbols[i].name;
      memcpy(symbols[i].function, &address, sizeof address); /* no cast from object to function pointers in ISO C */
    }
    if (missing || fft.get_version(&major, &minor, &patch) != 0) {
      snprintf(what, what_bytes, missing ? "%s has no %s" : "%s does not report its version", file, missing);
      dlclose(fft.library); /* nothing of it runs */
      fft.library = NULL;
      return false;
    }
  }
  fft.get_version(&major, &minor, &patch);
  snprintf(what, what_bytes, "%s %u.%u.%u", file, major, minor, patch);
  return true;
}

bool cvy_fft_probe(char *what, size_t what_bytes) {
  pthread_mutex_lock(&lock);
  const bool good = open_library(what, what_bytes);
  pthread_mutex_unlock(&lock);
  return good;
}

int cvy_fft_width(int least) {
  static const int primes[] = {2, 3, 5, 7, 11, 13};
  for (int length = least;; length++) {
    int rest = length;
    for (size_t i = 0; i < sizeof primes / sizeof *primes; i++)
      while (rest % primes[i] == 0) rest /= primes[i];
    if (rest == 1) return length;
  }
}

int cvy_fft_rows(int least) {
  int rows = cvy_fft_width(least);
  while (rows % 2) rows = cvy_fft_width(rows + 1);
  return rows;
}

/* ---- errors ---- */

/* clFFT's own codes count from 4096. */
static const char *error_name(int code) {
  static const char *const names[] = {
      "CLFFT_BUGCHECK",       "CLFFT_NOTIMPLEMENTED",      "CLFFT_TRANSPOSED_NOTIMPLEMENTED",
      "CLFFT_FILE_NOT_FOUND", "CLFFT_FILE_CREATE_FAILURE", "CLFFT_VERSION_MISMATCH",
      "CLFFT_INVALID_PLAN",   "CLFFT_DEVICE_NO_DOUBLE",    "CLFFT_DEVICE_MISMATCH"};
  const int n = (int)(sizeof names / sizeof *names);
  return code >= 4096 && code < 4096 + n ? names[code - 4096] : cvy_cl_error_name(code);
}

static cvy_status status_of(int code) {
  switch (code) {
    case CL_SUCCESS: return CVY_OK;
    case CL_MEM_OBJECT_ALLOCATION_FAILURE: return CVY_E_DEVICE_MEMORY;
    case CL_OUT_OF_HOST_MEMORY: return CVY_E_MEMORY;
    case CL_COMPILER_NOT_AVAILABLE:
    case CL_BUILD_PROGRAM_FAILURE:
    case CL_INVALID_PROGRAM: /* clFFT returns it for a kernel that does not compile */
    case CL_INVALID_PROGRAM_EXECUTABLE:
    case CL_INVALID_WORK_GROUP_SIZE:
    case CL_INVALID_WORK_ITEM_SIZE: return CVY_E_UNSUPPORTED;
    default: return code >= 4096 ? CVY_E_UNSUPPORTED : CVY_E_DEVICE;
  }
}

/* ---- plans ---- */

/* Under the lock: the first use by a device. */
static int use(cvy_device *device) {
  if (!fft.set_up) {
    setup_data data = {0};
    fft.get_version(&data.major, &data.minor, &data.patch);
    const int code = fft.setup(&data);
    if (code) return code;
    fft.set_up = true;
  }
  if (!device->fft.used) fft.devices++;
  device->fft.used = true;
  return 0;
}

/* Under the lock. */
static int make_plan(cvy_device *device, cvy_fft_plan *plan, bool forward, plan_handle *handle, bool *has) {
  const size_t columns = (size_t)plan->w / 2 + 1, spectrum = cvy_fft_spectrum(plan->h, plan->w);
  const size_t lengths[2] = {(size_t)plan->w, (size_t)plan->h}, dense = lengths[0] * lengths[1];
  size_t real_strides[2] = {1, lengths[0]}, complex_strides[2] = {1, columns}, temp = 0;
  int code = fft.create(handle, device->context, TWO_DIMENSIONS, lengths);
  if (code) return code;
  *has = true;
  if ((code = fft.set_precision(*handle, SINGLE)) ||
      (code = fft.set_layout(*handle, forward ? REAL : HERMITIAN, forward ? HERMITIAN : REAL)) ||
      (code = fft.set_location(*handle, OUT_OF_PLACE)) || (code = fft.set_batch(*handle, (size_t)plan->planes)) ||
      (code = fft.set_in_stride(*handle, TWO_DIMENSIONS, forward ? real_strides : complex_strides)) ||
      (code = fft.set_out_stride(*handle, TWO_DIMENSIONS, forward ? complex_strides : real_strides)) ||
      (code = fft.set_distance(*handle, forward ? dense : spectrum, forward ? spectrum : dense)) ||
      (code = fft.bake(*handle, 1, &device->compute.cl, NULL, NULL)) || (code = fft.temp_size(*handle, &temp)))
    return code;
  if (temp > plan->temp_bytes) plan->temp_bytes = temp;
  return 0;
}

/* Under the lock. */
static void drop_plan(cvy_fft_plan *plan) {
  if (plan->has_forward) fft.destroy(&plan->forward);
  if (plan->has_backward) fft.destroy(&plan->backward);
  cvy_free(plan);
}

/* `trying`: a failure is no error of the run. */
static cvy_status get_plan(cvy_device *device, int h, int w, int planes, bool trying, const cvy_fft_plan **out) {
  cvy_status status = CVY_OK;
  char what[256];
  int code = 0;
  cvy_fft_plan *plan = device->fft.plans;
  while (plan && (plan->h != h || plan->w != w || plan->planes != planes)) plan = plan->next;
  if (plan) {
    *out = plan;
    return CVY_OK;
  }
  plan = cvy_calloc(1, sizeof *plan);
  CVY_REQUIRE(plan, CVY_E_MEMORY, "%s: no memory for a plan of transforms", device->label);
  plan->h = h, plan->w = w, plan->planes = planes;
  cvy_device_beat(device); /* before locking: an abandoned thread stops here and would hold the lock forever */
  pthread_mutex_lock(&lock);
  const bool there = open_library(what, sizeof what);
  if (there && !(code = use(device)) && !(code = make_plan(device, plan, true, &plan->forward, &plan->has_forward)))
    code = make_plan(device, plan, false, &plan->backward, &plan->has_backward);
  if (!there || code) {
    drop_plan(plan);
    plan = NULL;
  } else {
    plan->next = device->fft.plans;
    device->fft.plans = plan;
  }
  pthread_mutex_unlock(&lock);
  cvy_device_beat(device);
  CVY_REQUIRE(there, CVY_E_UNSUPPORTED, "%s: transforms need clFFT: %s", device->label, what);
  if (code && trying) return status_of(code);
  CVY_REQUIRE(code == 0, status_of(code), "%s: clFFT cannot plan %d transforms of %dx%d: %s (%d)", device->label,
              planes, h, w, error_name(code), code);
  *out = plan;
fail:
  return status;
}

cvy_status cvy_fft_plan_get(cvy_device *device, int h, int w, int planes, const cvy_fft_plan **out) {
  return get_plan(device, h, w, planes, false, out);
}

size_t cvy_fft_temp_bytes(const cvy_fft_plan *plan) { return plan->temp_bytes; }

static cvy_status transform(cvy_queue *queue, const cvy_fft_plan *plan, bool forward, cvy_buffer *in, cvy_buffer *out,
                            cvy_buffer *temp) {
  cvy_status status = CVY_OK;
  cvy_device *const device = queue->device;
  CVY_REQUIRE(in->device == device && out->device == device && (!temp || temp->device == device), CVY_E_ARGUMENT,
              "%s: a transform needs buffers of this device", device->label);
  const size_t real = (size_t)plan->planes * (size_t)plan->h * (size_t)plan->w * sizeof(float),
               spectrum = (size_t)plan->planes * cvy_fft_spectrum(plan->h, plan->w) * 2 * sizeof(float);
  CVY_REQUIRE(in->size_bytes >= (forward ? real : spectrum) && out->size_bytes >= (forward ? spectrum : real) &&
                  (temp ? temp->size_bytes : 0) >= plan->temp_bytes,
              CVY_E_ARGUMENT, "%s: %d transforms of %dx%d want %zu and %zu bytes and %zu of scratch, got %zu, %zu, %zu",
              device->label, plan->planes, plan->h, plan->w, real, spectrum, plan->temp_bytes,
              forward ? in->size_bytes : out->size_bytes, forward ? out->size_bytes : in->size_bytes,
              temp ? temp->size_bytes : 0);
  CVY_TRY(cvy_profile_begin(queue));
  cvy_device_beat(device);
  pthread_mutex_lock(&lock);
  const int code = fft.enqueue(forward ? plan->forward : plan->backward, forward ? FORWARD : BACKWARD, 1, &queue->cl, 0,
                               NULL, NULL, &in->cl, &out->cl, temp ? temp->cl : NULL);
  pthread_mutex_unlock(&lock);
  cvy_device_beat(device);
  CVY_TRY(cvy_queue_observe(queue, &(cvy_enqueued){.kind = CVY_COMMAND_KERNEL, .name = "clfft"}));
  CVY_REQUIRE(code == 0, status_of(code), "%s: clFFT's %d transforms of %dx%d failed: %s (%d)", device->label,
              plan->planes, plan->h, plan->w, error_name(code), code);
fail:
  return status;
}

cvy_status cvy_fft_forward(cvy_queue *queue, const cvy_fft_plan *plan, cvy_buffer *real, cvy_buffer *spectrum,
                           cvy_buffer *temp) {
  return transform(queue, plan, true, real, spectrum, temp);
}

cvy_status cvy_fft_backward(cvy_queue *queue, const cvy_fft_plan *plan, cvy_buffer *spectrum, cvy_buffer *real,
                            cvy_buffer *temp) {
  return transform(queue, plan, false, spectrum, real, temp);
}

void cvy_fft_forget(cvy_device *device) {
  for (struct cvy_fft_size *size = device->fft.sizes, *next; size; size = next) {
    next = size->next;
    cvy_free(size);
  }
  device->fft.sizes = NULL;
  if (!device->fft.used) return;
  pthread_mutex_lock(&lock);
  for (cvy_fft_plan *plan = device->fft.plans, *next; plan; plan = next) {
    next = plan->next;
    drop_plan(plan);
  }
  if (--fft.devices == 0) {
    fft.teardown();
    fft.set_up = false;
  }
  pthread_mutex_unlock(&lock);
  device->fft.plans = NULL, device->fft.used = false;
}

/* ---- probe ---- */

enum { PROBE_PLANES = 2, PROBE_POINTS = 5, PROBE_FREQUENCIES = 4096 };
static const double two_pi = 6.283185307179586;

/* Place and value of point `i` of a probing plane, which is zero elsewhere. */
static int probe_place(int plane, int i, int area) { return (int)(((int64_t)area - 1) * (i + plane + i * plane) / 14); }
static float probe_value(int plane, int i) { return (float)(i - 7 * plane) + 0.5f; }

static bool is_spectrum_right(const cvy_fft_plan *plan, const float *spectrum) {
  const int columns = plan->w / 2 + 1, all = plan->h * columns, step = all / PROBE_FREQUENCIES + 1;
  for (int plane = 0; plane < PROBE_PLANES; plane++)
    for (int f = 0; f < all; f += step) {
      const float *const got = spectrum + 2 * ((size_t)plane * cvy_fft_spectrum(plan->h, plan->w) + (size_t)f);
      double re = 0, im = 0, size = 0;
      for (int i = 0; i < PROBE_POINTS; i++) {
        const int at = probe_place(plane, i, plan->h * plan->w);
        const double value = (double)probe_value(plane, i),
                     angle = two_pi * ((double)(f / columns) * (at / plan->w) / plan->h +
                                       (double)(f % columns) * (at % plan->w) / plan->w);
        re += value * cos(angle), im -= value * sin(angle), size += fabs(value);
      }
      if (!(fabs(got[0] - re) <= 1e-5 * size && fabs(got[1] - im) <= 1e-5 * size)) return false;
    }
  return true;
}

/* Transforms some points forward and back. *right: the spectrum is the expected one, and the points come back. */
static cvy_status try_size(cvy_queue *queue, int h, int w, bool *right) {
  cvy_status status = CVY_OK;
  const cvy_fft_plan *plan = NULL;
  cvy_buffer *real = NULL, *spectrum = NULL, *temp = NULL;
  const size_t area = (size_t)h * (size_t)w, n_real = PROBE_PLANES * area,
               n_spectrum = PROBE_PLANES * cvy_fft_spectrum(h, w) * 2;
  float *const points = cvy_calloc(n_real, sizeof *points), *const got = cvy_calloc(n_spectrum + n_real, sizeof *got);
  CVY_REQUIRE(points && got, CVY_E_MEMORY, "no memory to try transforms of %dx%d", h, w);
  for (int plane = 0; plane < PROBE_PLANES; plane++)
    for (int i = 0; i < PROBE_POINTS; i++)
      points[(size_t)plane * area + (size_t)probe_place(plane, i, (int)area)] += probe_value(plane, i);
  CVY_TRY(get_plan(queue->device, h, w, PROBE_PLANES, true, &plan));
  CVY_TRY(cvy_buffer_create(queue->device, n_real * sizeof(float), &real));
  CVY_TRY(cvy_buffer_create(queue->device, n_spectrum * sizeof(float), &spectrum));
  if (plan->temp_bytes) CVY_TRY(cvy_buffer_create(queue->device, plan->temp_bytes, &temp));
  CVY_TRY(cvy_buffer_write(queue, real, 0, n_real * sizeof(float), points, NULL, NULL));
  CVY_TRY(cvy_buffer_fill(queue, spectrum, 0, n_spectrum * sizeof(float), UINT32_C(0x7fc00000)));
  CVY_TRY(cvy_fft_forward(queue, plan, real, spectrum, temp));
  CVY_TRY(cvy_buffer_read(queue, spectrum, 0, n_spectrum * sizeof(float), got, NULL, NULL));
  *right = is_spectrum_right(plan, got);
  CVY_TRY(cvy_buffer_fill(queue, real, 0, n_real * sizeof(float), UINT32_C(0x7fc00000)));
  CVY_TRY(cvy_fft_backward(queue, plan, spectrum, real, temp));
  CVY_TRY(cvy_buffer_read(queue, real, 0, n_real * sizeof(float), got, NULL, NULL));
  for (size_t i = 0; i < n_real; i++) *right = *right && fabsf(got[i] - points[i]) <= 1e-4f;
fail:
  cvy_queue_finish(queue);
  cvy_buffer_destroy(&real);
  cvy_buffer_destroy(&spectrum);
  cvy_buffer_destroy(&temp);
  cvy_free(points);
  cvy_free(got);
  return status;
}

bool cvy_fft_works(cvy_device *device, int h, int w, const char **why) {
  struct cvy_fft_size *size = device->fft.sizes;
  while (size && (size->h != h || size->w != w)) size = size->next;
  if (!size) {
    size = cvy_calloc(1, sizeof *size);
    if (!size) {
      if (why) *why = "no memory to try clFFT";
      return false;
    }
    size->h = h, size->w = w, size->next = device->fft.sizes;
    device->fft.sizes = size;
    cvy_probe *const probe = &size->probe;
    bool right = false;
    cvy_log_attempt_begin();
    const cvy_status status = try_size(&device->compute, h, w, &right);
    cvy_log_attempt_end(false);
    probe->done = true, probe->good = status == CVY_OK && right;
    if (status != CVY_OK)
      snprintf(probe->why, sizeof probe->why, "clFFT's transforms of %dx%d fail here: %s", h, w,
               cvy_status_text(status));
    else if (!right) snprintf(probe->why, sizeof probe->why, "clFFT's transforms of %dx%d are wrong here", h, w);
    if (!probe->good) cvy_log_debug("%s: %s", device->label, probe->why);
  }
  if (why && !size->probe.good) *why = size->probe.why;
  return size->probe.good;
}
