/* SPDX-License-Identifier: MIT */
#include "src/cl/blas.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

bool cvy_blas_probe(char *what, size_t what_bytes) {
  static const char soname[] = "libclblast.so.1";
  static const char *const symbols[] = {"CLBlastSgemm", "CLBlastSgemmStridedBatched", "CLBlastClearCache"};
  static void *library; /* stays open: closing it while a driver's threads run is asking for trouble */
  bool good = false;
  pthread_mutex_lock(&lock);
  if (!library) library = dlopen(soname, RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    snprintf(what, what_bytes, "%s", dlerror());
  } else {
    const char *missing = NULL;
    for (size_t i = 0; i < sizeof symbols / sizeof symbols[0] && !missing; i++)
      if (!dlsym(library, symbols[i])) missing = symbols[i];
    good = !missing;
    if (good) snprintf(what, what_bytes, "%s", soname);
    else snprintf(what, what_bytes, "%s has no %s", soname, missing);
  }
  pthread_mutex_unlock(&lock);
  return good;
}
