/* SPDX-License-Identifier: MIT
 * CLBlast's C interface, of which this file declares what it uses: it opens the library and does not link it. */
#include "src/cl/blas.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/env.h"
#include "src/cl/command_times.h"
#include "src/cl/opencl.h"

/* CLBlast's enumerations: layout, transposition. */
enum { ROW_MAJOR = 101, PLAIN = 111, TRANSPOSED = 112 };

typedef int (*sgemm_fn)(int layout, int a_transpose, int b_transpose, size_t m, size_t n, size_t k, float alpha,
                        cl_mem a, size_t a_offset, size_t a_ld, cl_mem b, size_t b_offset, size_t b_ld, float beta,
                        cl_mem c, size_t c_offset, size_t c_ld, cl_command_queue *queue, cl_event *event, cl_mem temp);
typedef int (*temp_size_fn)(int layout, int a_transpose, int b_transpose, size_t m, size_t n, size_t k, size_t a_offset,
                            size_t a_ld, size_t b_offset, size_t b_ld, size_t c_offset, size_t c_ld,
                            cl_command_queue *queue, size_t *temp_bytes);
typedef int (*clear_fn)(void);

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* Under the lock. The library stays open: it cannot be closed safely while a driver's threads run. */
static struct {
  void *library;
  sgemm_fn sgemm;
  temp_size_fn temp_size;
  clear_fn clear;
} blas;

static bool find_symbol(const char *name, void *function, size_t size, const char **missing) {
  void *const address = dlsym(blas.library, name);
  memcpy(function, &address, size); /* ISO C knows no cast from object to function pointers */
  if (!address) *missing = name;
  return address != NULL;
}

/* Under the lock. */
static bool open_library(char *what, size_t what_bytes) {
  static const char soname[] = "libclblast.so.1";
  const char *const asked = cvy_env_text(CVY_ENV_CLBLAST), *const file = asked ? asked : soname;
  if (!strcmp(file, "none")) {
    snprintf(what, what_bytes, "CVY_CLBLAST=none");
    return false;
  }
  if (!blas.library) {
    const char *missing = NULL;
    blas.library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (!blas.library) {
      snprintf(what, what_bytes, "%s", dlerror());
      return false;
    }
    if (!find_symbol("CLBlastSgemmWithTempBuffer", &blas.sgemm, sizeof blas.sgemm, &missing) ||
        !find_symbol("CLBlastSGemmTempBufferSize", &blas.temp_size, sizeof blas.temp_size, &missing) ||
        !find_symbol("CLBlastClearCache", &blas.clear, sizeof blas.clear, &missing)) {
      snprintf(what, what_bytes, "%s has no %s", file, missing);
      dlclose(blas.library); /* nothing of it has run */
      blas.library = NULL;
      return false;
    }
  }
  snprintf(what, what_bytes, "%s", file);
  return true;
}

bool cvy_blas_probe(char *what, size_t what_bytes) {
  pthread_mutex_lock(&lock);
  const bool good = open_library(what, what_bytes);
  pthread_mutex_unlock(&lock);
  return good;
}

/* ---- errors ---- */

/* CLBlast's own codes; those from -1 to -70 are OpenCL's. */
#define BLAS_ERROR_MAP(X)              \
  X(-1024, "NotImplemented")           \
  X(-1022, "InvalidMatrixA")           \
  X(-1021, "InvalidMatrixB")           \
  X(-1020, "InvalidMatrixC")           \
  X(-1017, "InvalidDimension")         \
  X(-1016, "InvalidLeadDimA")          \
  X(-1015, "InvalidLeadDimB")          \
  X(-1014, "InvalidLeadDimC")          \
  X(-1011, "InsufficientMemoryA")      \
  X(-1010, "InsufficientMemoryB")      \
  X(-1009, "InsufficientMemoryC")      \
  X(-2050, "InsufficientMemoryTemp")   \
  X(-2049, "InvalidBatchCount")        \
  X(-2048, "InvalidOverrideKernel")    \
  X(-2047, "MissingOverrideParameter") \
  X(-2046, "InvalidLocalMemUsage")     \
  X(-2045, "NoHalfPrecision")          \
  X(-2044, "NoDoublePrecision")        \
  X(-2041, "DatabaseError")            \
  X(-2040, "UnknownError")             \
  X(-2039, "UnexpectedError")

static const char *error_name(int code) {
  switch (code) {
#define NAME_CASE(value, name) \
  case value: return "CLBlast" name;
    BLAS_ERROR_MAP(NAME_CASE)
#undef NAME_CASE
    default: return cvy_cl_error_name(code);
  }
}

static cvy_status status_of(int code) {
  switch (code) {
    case CL_SUCCESS: return CVY_OK;
    case CL_MEM_OBJECT_ALLOCATION_FAILURE: return CVY_E_DEVICE_MEMORY;
    case CL_OUT_OF_HOST_MEMORY: return CVY_E_MEMORY;
    case CL_COMPILER_NOT_AVAILABLE:
    case CL_BUILD_PROGRAM_FAILURE:
    case CL_INVALID_BINARY:
    case CL_INVALID_BUILD_OPTIONS:
    case CL_INVALID_WORK_GROUP_SIZE: /* tiles tuned for another device */
    case CL_INVALID_WORK_ITEM_SIZE:
    case -2046: return CVY_E_UNSUPPORTED;
    default: return code <= -1007 && code >= -1024 ? CVY_E_ARGUMENT : CVY_E_DEVICE;
  }
}

/* ---- products ---- */

static int transposition(bool transposed) { return transposed ? TRANSPOSED : PLAIN; }

cvy_status cvy_blas_sgemm_temp_bytes(cvy_queue *queue, size_t m, size_t n, size_t k, bool a_transposed,
                                     bool b_transposed, size_t *bytes) {
  cvy_status status = CVY_OK;
  char what[256];
  int code = 0;
  *bytes = 0;
  pthread_mutex_lock(&lock);
  const bool there = open_library(what, sizeof what);
  /* With offsets and rows that fit no tile CLBlast copies every matrix, so this is the most that any call needs. */
  if (there)
    code = blas.temp_size(ROW_MAJOR, transposition(a_transposed), transposition(b_transposed), m, n, k, 1,
                          (a_transposed ? m : k) + 1, 1, (b_transposed ? k : n) + 1, 1, n + 1, &queue->cl, bytes);
  pthread_mutex_unlock(&lock);
  CVY_REQUIRE(there, CVY_E_UNSUPPORTED, "%s: a product needs CLBlast: %s", queue->device->label, what);
  CVY_REQUIRE(code == 0, status_of(code), "%s: CLBlast's memory for a product of %zux%zu by %zux%zu: %s (%d)",
              queue->device->label, m, k, k, n, error_name(code), code);
fail:
  return status;
}

cvy_status cvy_blas_sgemm(cvy_queue *queue, size_t m, size_t n, size_t k, const cvy_blas_matrix *a,
                          const cvy_blas_matrix *b, const cvy_blas_matrix *c, bool accumulate, cvy_buffer *temp) {
  cvy_status status = CVY_OK;
  cvy_device *const device = queue->device;
  char what[256];
  int code = 0;
  CVY_REQUIRE(!c->transposed && a->buffer->device == device && b->buffer->device == device &&
                  c->buffer->device == device && (!temp || temp->device == device),
              CVY_E_ARGUMENT, "%s: a product needs four buffers of this device, its result not transposed",
              device->label);
  CVY_TRY(cvy_profile_begin(queue));
  cvy_device_beat(device); /* before locking: an abandoned thread stops here and would hold the lock forever */
  pthread_mutex_lock(&lock);
  const bool there = open_library(what, sizeof what);
  if (there) {
    device->blas.used = true;
    code =
        blas.sgemm(ROW_MAJOR, transposition(a->transposed), transposition(b->transposed), m, n, k, 1.0f, a->buffer->cl,
                   a->offset, a->row_pitch, b->buffer->cl, b->offset, b->row_pitch, accumulate ? 1.0f : 0.0f,
                   c->buffer->cl, c->offset, c->row_pitch, &queue->cl, NULL, temp ? temp->cl : NULL);
  }
  pthread_mutex_unlock(&lock);
  cvy_device_beat(device);
  CVY_TRY(cvy_queue_observe(queue, &(cvy_enqueued){.kind = CVY_COMMAND_KERNEL, .name = "clblast_sgemm"}));
  CVY_REQUIRE(there, CVY_E_UNSUPPORTED, "%s: a product needs CLBlast: %s", device->label, what);
  CVY_REQUIRE(code == 0, status_of(code), "%s: CLBlast's product of %zux%zu%s by %zux%zu%s failed: %s (%d)",
              device->label, m, k, a->transposed ? " (transposed)" : "", k, n, b->transposed ? " (transposed)" : "",
              error_name(code), code);
fail:
  return status;
}

void cvy_blas_forget(cvy_device *device) {
  if (!device->blas.used) return;
  pthread_mutex_lock(&lock);
  blas.clear();
  pthread_mutex_unlock(&lock);
  device->blas.used = false;
}

/* ---- probe ---- */

/* Integers from -4 to 4 without a pattern that tiles could share: sums of 2^20 products are exact. */
static float probe_value(size_t i) { return (float)((int)((i * 2654435761u >> 7) % 9) - 4); }

static cvy_status upload_probe(cvy_queue *queue, size_t floats, size_t seed, float *host, cvy_buffer **out) {
  cvy_status status = CVY_OK;
  for (size_t i = 0; i < floats; i++) host[i] = probe_value(i + seed);
  CVY_TRY(cvy_buffer_create(queue->device, floats * sizeof(float), out));
  CVY_TRY(cvy_buffer_write(queue, *out, 0, floats * sizeof(float), host, NULL, NULL));
fail:
  return status;
}

/* Compares 512 places of one product with exact sums. *right: they all agree. */
static cvy_status try_product(cvy_queue *queue, size_t m, size_t n, size_t k, bool a_transposed, bool b_transposed,
                              bool accumulate, bool *right) {
  cvy_status status = CVY_OK;
  const size_t most = (m > n ? m : n) + 3, size_a = m * k + k + m, size_b = k * n + k + n, size_c = m * (n + 1);
  const cvy_blas_matrix none = {0};
  cvy_blas_matrix a = none, b = none, c = none;
  cvy_buffer *temp = NULL;
  size_t temp_bytes = 0;
  float *const ha = cvy_calloc(size_a, sizeof *ha), *const hb = cvy_calloc(size_b, sizeof *hb),
               *const hc = cvy_calloc(size_c, sizeof *hc);
  CVY_REQUIRE(ha && hb && hc, CVY_E_MEMORY, "no memory to try products of %zu rows", most);
  a.transposed = a_transposed, b.transposed = b_transposed;
  a.row_pitch = (a_transposed ? m : k) + 1, b.row_pitch = b_transposed ? k : n, c.row_pitch = n + 1;
  CVY_TRY(upload_probe(queue, size_a, 1, ha, &a.buffer));
  CVY_TRY(upload_probe(queue, size_b, 77, hb, &b.buffer));
  CVY_TRY(upload_probe(queue, size_c, 5, hc, &c.buffer));
  if (!accumulate) CVY_TRY(cvy_buffer_fill(queue, c.buffer, 0, size_c * sizeof(float), UINT32_C(0x7fc00000)));
  CVY_TRY(cvy_blas_sgemm_temp_bytes(queue, m, n, k, a_transposed, b_transposed, &temp_bytes));
  if (temp_bytes) CVY_TRY(cvy_buffer_create(queue->device, temp_bytes, &temp));
  CVY_TRY(cvy_blas_sgemm(queue, m, n, k, &a, &b, &c, accumulate, temp));
  CVY_TRY(cvy_buffer_read(queue, c.buffer, 0, size_c * sizeof(float), hc, NULL, NULL));
  *right = true;
  for (size_t probe = 0; probe < 512; probe++) {
    const size_t i = probe == 1 ? m - 1 : probe * 7919 % m, j = probe == 1 ? n - 1 : probe * 104729 % n;
    double want = accumulate ? (double)probe_value(i * c.row_pitch + j + 5) : 0.0;
    for (size_t l = 0; l < k; l++)
      want += (double)ha[a_transposed ? l * a.row_pitch + i : i * a.row_pitch + l] *
              hb[b_transposed ? j * b.row_pitch + l : l * b.row_pitch + j];
    *right = *right && (double)hc[i * c.row_pitch + j] == want;
  }
fail:
  cvy_queue_finish(queue);
  cvy_buffer_destroy(&a.buffer);
  cvy_buffer_destroy(&b.buffer);
  cvy_buffer_destroy(&c.buffer);
  cvy_buffer_destroy(&temp);
  cvy_free(ha);
  cvy_free(hb);
  cvy_free(hc);
  return status;
}

bool cvy_blas_works(cvy_device *device, bool a_transposed, bool b_transposed, const char **why) {
  cvy_queue *const queue = &device->compute;
  cvy_probe *const probe = &device->blas.works[(a_transposed ? 2 : 0) + (b_transposed ? 1 : 0)];
  if (!probe->done) {
    bool right = false;
    cvy_log_attempt_begin();
    cvy_status status = try_product(queue, 5, 7, 3, a_transposed, b_transposed, true, &right);
    /* From some size on, which is in its table of devices, CLBlast uses other kernels and needs temp. */
    size_t side = 65, temp_bytes = 0;
    while (status == CVY_OK && right && side < 1100) {
      status = cvy_blas_sgemm_temp_bytes(queue, side, side + 6, side + 2, a_transposed, b_transposed, &temp_bytes);
      if (temp_bytes) break;
      side += side - 1;
    }
    if (status == CVY_OK && right && temp_bytes)
      status = try_product(queue, side, side + 6, side + 2, a_transposed, b_transposed, false, &right);
    cvy_log_attempt_end(false);
    probe->done = true, probe->good = status == CVY_OK && right;
    if (status != CVY_OK) snprintf(probe->why, sizeof probe->why, "CLBlast fails here: %s", cvy_status_text(status));
    else if (!right) snprintf(probe->why, sizeof probe->why, "CLBlast's products are wrong here");
    if (!probe->good) cvy_log_warning("%s: %s", device->label, probe->why);
  }
  if (why && !probe->good) *why = probe->why;
  return probe->good;
}
