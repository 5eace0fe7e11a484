/* SPDX-License-Identifier: MIT
 * What $CVY_LAYER's words say of single devices (layer.c): the faults that layer_device.c makes. */
#ifndef CVY_TESTS_SUPPORT_LAYER_FAULTS_H
#define CVY_TESTS_SUPPORT_LAYER_FAULTS_H

#include <stdbool.h>

#include "tests/support/layer_device.h"
#include "tests/support/layer_order.h"

/* The calls that can be counted and made to fail, by the names that words use. */
#define CALL_LIST(X)                                                                                              \
  X(ANY, "any")                                                                                                   \
  X(LAUNCH, "launch")                                                                                             \
  X(READ, "read")                                                                                                 \
  X(WRITE, "write")                                                                                               \
  X(MAP, "map")                                                                                                   \
  X(UNMAP, "unmap")                                                                                               \
  X(FILL, "fill")                                                                                                 \
  X(COPY, "copy") X(MARKER, "marker") X(BARRIER, "barrier") X(FLUSH, "flush") X(FINISH, "finish") X(WAIT, "wait") \
      X(BUFFER, "buffer") X(ARG, "arg") X(INFO, "info") X(RELEASE, "release") X(CONTEXT, "context") X(BUILD, "build")
typedef enum call {
#define X(id, name) CALL_##id,
  CALL_LIST(X)
#undef X
      N_CALLS
} call;
typedef enum fault_kind { SLOW, LINK, FAIL, FAIL_ONCE, BAD_EVENT, HANG, HANG_CALL, LATE, SPIN, N_FAULTS } fault_kind;

typedef struct fault {
  fault_kind kind;
  int device;    /* index in the team; -1 all */
  int part;      /* instead: the part of a partition; -1 none */
  double number; /* factor of SLOW, GB/s of LINK */
  double up;     /* LINK: GB/s to the device */
  call call;
  long at; /* FAIL…: the call's number */
  cl_int code;
  double from, to; /* SLOW: launches, or seconds */
  bool seconds;
} fault;

enum { MOST_FAULTS = 32 };

/* The faults among the words, at most MOST_FAULTS, to `out`; how many. Other words are layer.c's. A word of a fault
 * that cannot be read ends the program. */
int layer_faults_read(const char *words, fault *out);
/* The call of this name; -1: none. */
int layer_call_find(const char *name);

#endif
