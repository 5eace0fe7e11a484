/* SPDX-License-Identifier: MIT */
#include "tests/support/layer_faults.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const call_names[] = {
#define X(id, name) name,
    CALL_LIST(X)
#undef X
};

static const char *const fault_names[] = {"slow", "link",      "fail", "fail-once", "bad-event",
                                          "hang", "hang-call", "late", "spin"};

/* The next piece of a text with colons; NULL at its end. */
static char *piece(char **at) { return *at ? strsep(at, ":") : NULL; }

int layer_call_find(const char *name) {
  for (int c = 0; name && c < N_CALLS; c++)
    if (!strcmp(name, call_names[c])) return c;
  return -1;
}

static void read_call(fault *f, const char *text, const char *whole) {
  const int c = layer_call_find(text);
  if (c < 0) layer_order_wrong(whole);
  f->call = (call)c;
}

static long read_count(const char *text, const char *whole) {
  char *end;
  if (!text) layer_order_wrong(whole);
  const long n = strtol(text, &end, 10);
  if (*end) layer_order_wrong(whole);
  return n;
}

static void read_fault(fault *f, fault_kind kind, char *arg, const char *whole) {
  *f = (fault){.kind = kind, .device = -1, .part = -1, .from = 0, .to = 1e30};
  const char *const who = piece(&arg);
  if (!who) layer_order_wrong(whole);
  if (who[0] == '/') f->part = (int)read_count(who + 1, whole);
  else if (strcmp(who, "all") != 0) f->device = (int)read_count(who, whole);
  if (kind == LATE || kind == SPIN) return;
  if (kind == SLOW || kind == LINK) {
    const char *const number = piece(&arg), *const range = piece(&arg);
    if (!number || (f->number = atof(number)) <= 0) layer_order_wrong(whole);
    if (kind == LINK) {
      f->up = range ? atof(range) : f->number;
      if (f->up <= 0) layer_order_wrong(whole);
    } else if (range) {
      const int got = sscanf(range, "%lf-%lf", &f->from, &f->to);
      if (got < 1) layer_order_wrong(whole);
      f->seconds = strchr(range, 's') != NULL;
      if (f->seconds) (void)sscanf(range, "%lfs-%lfs", &f->from, &f->to);
    }
    return;
  }
  if (kind == FAIL || kind == FAIL_ONCE || kind == HANG_CALL) read_call(f, piece(&arg), whole);
  f->at = read_count(piece(&arg), whole);
  if (kind == FAIL || kind == FAIL_ONCE || kind == BAD_EVENT) f->code = (cl_int)read_count(piece(&arg), whole);
  if (arg) layer_order_wrong(whole);
}

int layer_faults_read(const char *words, fault *out) {
  int n = 0;
  char copy[LAYER_WORDS], *at = copy;
  snprintf(copy, sizeof copy, "%s", words);
  for (char *word; (word = strsep(&at, ",")) != NULL;) {
    char whole[LAYER_WORDS];
    snprintf(whole, sizeof whole, "%s", word);
    char *arg = word;
    const char *const name = strsep(&arg, "=");
    for (int k = 0; k < N_FAULTS; k++) {
      if (strcmp(name, fault_names[k]) != 0) continue;
      if (n == MOST_FAULTS) layer_order_wrong(whole);
      read_fault(&out[n++], (fault_kind)k, arg, whole);
    }
  }
  return n;
}
