/* SPDX-License-Identifier: MIT */
#include "src/cl/fft.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

bool cvy_fft_probe(char *what, size_t what_bytes) {
  static const char soname[] = "libclFFT.so.2";
  static const char *const symbols[] = {"clfftSetup", "clfftCreateDefaultPlan", "clfftBakePlan",
                                        "clfftEnqueueTransform", "clfftTeardown"};
  static void *library; /* stays open, as in blas.c */
  bool good = false;
  pthread_mutex_lock(&lock);
  if (!library) library = dlopen(soname, RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    snprintf(what, what_bytes, "%s", dlerror());
  } else {
    const char *missing = NULL;
    int (*get_version)(unsigned *major, unsigned *minor, unsigned *patch);
    void *const address = dlsym(library, "clfftGetVersion");
    memcpy(&get_version, &address, sizeof get_version); /* ISO C knows no cast from object to function pointers */
    for (size_t i = 0; i < sizeof symbols / sizeof symbols[0] && !missing; i++)
      if (!dlsym(library, symbols[i])) missing = symbols[i];
    if (!get_version) missing = "clfftGetVersion";
    unsigned major = 0, minor = 0, patch = 0;
    good = !missing && get_version(&major, &minor, &patch) == 0;
    if (good) snprintf(what, what_bytes, "%s %u.%u.%u", soname, major, minor, patch);
    else if (missing) snprintf(what, what_bytes, "%s has no %s", soname, missing);
    else snprintf(what, what_bytes, "%s does not tell its version", soname);
  }
  pthread_mutex_unlock(&lock);
  return good;
}
