/* SPDX-License-Identifier: MIT */
#include "src/cl/compile/compile_faults.h"

#include <pthread.h>
#include <string.h>

#include "src/cl/compile/driver_cache.h"
#include "src/cl/compile/driver_linker.h"
#include "src/cl/compile/source.h"
#include "src/cl/opencl.h"

typedef struct fault {
  struct fault *next;
  char *key;                     /* cvy_source_key */
  char *warning;                 /* NULL: it was logged */
  const cvy_device *device;      /* that met it first and may warn of it; compared only */
  char *name, *happened, *lines; /* the kernel that was asked for */
} fault;

static struct {
  pthread_mutex_t lock;
  fault *first;
} faults = {.lock = PTHREAD_MUTEX_INITIALIZER};
static atomic_bool has_some; /* spares every kernel of a process without faults its key */

/* With the lock; NULL: there is none. A fault that is there stays for good. */
static const fault *find(const char *key) {
  const fault *f = faults.first;
  while (f && strcmp(f->key, key) != 0) f = f->next;
  return f;
}

static void fault_free(fault *f) {
  if (!f) return;
  cvy_free(f->key);
  cvy_free(f->warning);
  cvy_free(f->name);
  cvy_free(f->happened);
  cvy_free(f->lines);
  cvy_free(f);
}

void cvy_compile_fault_add(const cvy_device *device, const cvy_compile_request *request, const char *happened,
                           const char *lines) {
  cvy_text key = {0}, warning = {0};
  fault *added = cvy_calloc(1, sizeof *added);
  if (!added || cvy_source_key(&device->info, request->file, request->options, NULL, &key) != CVY_OK) goto done;
  added->key = key.data, key = (cvy_text){0};
  added->name = cvy_strdup(request->name), added->happened = cvy_strdup(happened), added->lines = cvy_strdup(lines);
  if (!added->name || !added->happened || !added->lines) goto done;
  cvy_text_add(&warning, "%s: the driver's compiler %s at kernel %s of %s.cl: other kernels are used", device->label,
               happened, request->name, request->file);
  if (warning.failed) goto done;
  added->device = device, added->warning = warning.data, warning = (cvy_text){0};
  pthread_mutex_lock(&faults.lock);
  const bool is_new = !find(added->key);
  if (is_new) added->next = faults.first, faults.first = added, added = NULL;
  pthread_mutex_unlock(&faults.lock);
  atomic_store(&has_some, true);
  if (is_new)
    cvy_log_debug("%s: the driver's compiler %s at kernel %s of %s.cl; options: %s; its last lines: %s", device->label,
                  happened, request->name, request->file, request->options, *lines ? lines : "none");
done:
  fault_free(added);
  cvy_text_clear(&key);
  cvy_text_clear(&warning);
}

/* A warning of the device that was not logged yet, to be freed; NULL: there is none. */
static char *take_warning(const cvy_device *device) {
  char *taken = NULL;
  pthread_mutex_lock(&faults.lock);
  for (fault *f = faults.first; f && !taken; f = f->next)
    if (f->device == device) taken = f->warning, f->warning = NULL;
  pthread_mutex_unlock(&faults.lock);
  return taken;
}

void cvy_compile_faults_warn(const cvy_device *device) {
  if (!cvy_compile_has_faults()) return;
  for (char *warning; (warning = take_warning(device)); cvy_free(warning)) cvy_log_warning("%s", warning);
}

cvy_status cvy_compile_fault_check(cvy_device *device, const char *file, const char *name, const char *options) {
  cvy_status status = CVY_OK;
  cvy_text key = {0};
  if (!cvy_compile_has_faults()) return CVY_OK;
  CVY_TRY(cvy_source_key(&device->info, file, options, NULL, &key));
  pthread_mutex_lock(&faults.lock);
  const fault *const f = find(key.data);
  pthread_mutex_unlock(&faults.lock);
  if (!f) goto fail; /* nothing is wrong */
  device->n_refused++;
  cvy_log_error(
      "%s: kernel %s of %s.cl is not compiled: the driver's compiler %s at it in another process; options: "
      "%s; its last lines: %s",
      device->label, name ? name : f->name, file, f->happened, options, *f->lines ? f->lines : "none");
  cvy_driver_cache_explain(&device->info, false);
  cvy_driver_linker_explain(&device->info);
  status = CVY_E_BUILD;
fail:
  cvy_text_clear(&key);
  return status;
}

void cvy_compile_faults_forget(void) {
  pthread_mutex_lock(&faults.lock);
  for (fault *f; (f = faults.first);) {
    faults.first = f->next;
    fault_free(f);
  }
  atomic_store(&has_some, false);
  pthread_mutex_unlock(&faults.lock);
}

bool cvy_compile_has_faults(void) { return atomic_load(&has_some); }
unsigned long cvy_compile_refusals(const cvy_device *device) { return device->n_refused; }
