/* SPDX-License-Identifier: MIT
 * Division of the host's memory among the program, data and weights, and devices without their own memory. */
#include <limits.h>
#include <stdatomic.h>

#include "src/base/mem.h"

/* Program and drivers need 46 MiB with PoCL's kernels in its cache. While kernels are compiled for ResNet-18, the
 * process needs 290 MiB, or 100 and 172 in each compiler process. */
enum { PROGRAM_BYTES = 320 << 20, COMPILER_BYTES = 192 << 20, COMPILERS_PART = 16 };

static atomic_size_t held;

void cvy_host_memory_hold(size_t bytes) { atomic_fetch_add(&held, bytes); }
void cvy_host_memory_release(size_t bytes) { atomic_fetch_sub(&held, bytes); }

uint64_t cvy_host_memory_left(void) {
  const uint64_t all = cvy_host_memory_bytes(), program = PROGRAM_BYTES + all / COMPILERS_PART;
  const uint64_t taken = atomic_load(&held) + (program < all / 2 ? program : all / 2);
  return taken < all ? all - taken : 0;
}

int cvy_host_memory_compilers(void) {
  const uint64_t n = 1 + cvy_host_memory_bytes() / COMPILERS_PART / COMPILER_BYTES;
  return n < INT_MAX ? (int)n : INT_MAX;
}
