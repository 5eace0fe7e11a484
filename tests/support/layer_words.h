/* SPDX-License-Identifier: MIT
 * For tests that run with the layer (layer.c): what it does from now on, in place of $CVY_LAYER, whose change other
 * threads' calls would race with. Before the layer is loaded the variable is set. */
#ifndef CVY_TESTS_SUPPORT_LAYER_WORDS_H
#define CVY_TESTS_SUPPORT_LAYER_WORDS_H

#include <dlfcn.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* Once OpenCL has been called: false if the layer is not built, or the OpenCL loader takes none. */
static inline bool layer_is_loaded(void) {
  void *const layer = dlopen(CVY_TEST_LAYER, RTLD_LAZY | RTLD_NOLOAD);
  if (layer) dlclose(layer);
  return layer != NULL;
}

/* words: as $CVY_LAYER; NULL: nothing. */
static inline void layer_words(const char *words) {
  void (*set)(const char *) = NULL;
  void *const layer = dlopen(CVY_TEST_LAYER, RTLD_LAZY | RTLD_NOLOAD), *const found =
                                                                           layer ? dlsym(layer, "cvy_test_layer_words")
                                                                                 : NULL;
  memcpy(&set, &found, sizeof set);
  if (set) set(words);
  else if (words) setenv("CVY_LAYER", words, 1);
  else unsetenv("CVY_LAYER");
  if (layer) dlclose(layer);
}

/* How often a call (by the names of layer.c; "any" leaves info and release out) was made since the words
 * changed, if these have a fault. */
static inline long layer_calls(const char *name) {
  long (*count)(const char *) = NULL;
  void *const layer = dlopen(CVY_TEST_LAYER, RTLD_LAZY | RTLD_NOLOAD), *const found =
                                                                           layer ? dlsym(layer, "cvy_test_layer_calls")
                                                                                 : NULL;
  memcpy(&count, &found, sizeof count);
  const long n = count ? count(name) : -1;
  if (layer) dlclose(layer);
  return n;
}

#endif
