/* SPDX-License-Identifier: MIT */
#include "tests/support/layer_order.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char given[LAYER_WORDS]; /* by the test, in place of $CVY_LAYER */
static bool is_given;
static char always[LAYER_WORDS]; /* $CVY_LAYER_ALWAYS */
static pthread_once_t once = PTHREAD_ONCE_INIT;

_Noreturn void layer_order_wrong(const char *text) {
  fprintf(stderr, "test layer: cannot read '%s' in CVY_LAYER\n", text);
  abort();
}

static const char *checked(const char *words) {
  if (!words) return "";
  if (strlen(words) >= LAYER_WORDS) layer_order_wrong(words);
  return words;
}

static void read_always(void) { snprintf(always, sizeof always, "%s", checked(getenv("CVY_LAYER_ALWAYS"))); }

void cvy_test_layer_words(const char *text);
void cvy_test_layer_words(const char *text) {
  pthread_mutex_lock(&lock);
  snprintf(given, sizeof given, "%s", checked(text));
  is_given = true;
  pthread_mutex_unlock(&lock);
}

/* Under the lock. */
static const char *present(void) { return is_given ? given : checked(getenv("CVY_LAYER")); }

bool layer_order_read(char out[LAYER_WORDS]) {
  pthread_mutex_lock(&lock);
  const char *const now = present();
  const bool differs = strcmp(now, out) != 0;
  if (differs) snprintf(out, LAYER_WORDS, "%s", now);
  pthread_mutex_unlock(&lock);
  return differs;
}

static bool find(const char *words, const char *name, char *arg, size_t arg_bytes) {
  const size_t n = strlen(name);
  for (const char *at = words; *at;) {
    const size_t size = strcspn(at, ",");
    if (size >= n && !strncmp(at, name, n) && (size == n || at[n] == '=')) {
      if (arg) snprintf(arg, arg_bytes, "%.*s", size == n ? 0 : (int)(size - n - 1), at + n + 1);
      return true;
    }
    at += size + (at[size] == ',');
  }
  return false;
}

bool layer_order_has(const char *name, char *arg, size_t arg_bytes) {
  pthread_once(&once, read_always);
  pthread_mutex_lock(&lock);
  const bool found = find(present(), name, arg, arg_bytes) || find(always, name, arg, arg_bytes);
  pthread_mutex_unlock(&lock);
  return found;
}

bool layer_order_is(const char *name, const char *arg) {
  char is[64];
  return layer_order_has(name, is, sizeof is) && !strcmp(is, arg);
}

bool layer_order_wants_faults(void) {
  pthread_mutex_lock(&lock);
  const bool wants = is_given || getenv("CVY_LAYER");
  pthread_mutex_unlock(&lock);
  return wants;
}
