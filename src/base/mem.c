/* SPDX-License-Identifier: MIT */
#include "src/base/mem.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/base/cgroup.h"

enum { ALIGNMENT = 64 };

static atomic_long live[CVY_LIVE_KINDS];

void cvy_live_add(cvy_live_kind kind, int delta) { atomic_fetch_add(&live[kind], delta); }
long cvy_live_count(cvy_live_kind kind) { return atomic_load(&live[kind]); }

const char *cvy_live_name(cvy_live_kind kind) {
  static const char *const names[CVY_LIVE_KINDS] = {
      [CVY_LIVE_MEMORY] = "host allocations",
      [CVY_LIVE_CONTEXT] = "contexts",
      [CVY_LIVE_QUEUE] = "queues",
      [CVY_LIVE_BUFFER] = "buffers",
      [CVY_LIVE_PROGRAM] = "programs",
      [CVY_LIVE_KERNEL] = "kernels",
      [CVY_LIVE_EVENT] = "events",
  };
  return (unsigned)kind < CVY_LIVE_KINDS ? names[kind] : "?";
}

uint64_t cvy_host_memory_bytes(void) {
  const long pages = sysconf(_SC_PHYS_PAGES), page_bytes = sysconf(_SC_PAGESIZE);
  const uint64_t machine = pages > 0 && page_bytes > 0 ? (uint64_t)pages * (uint64_t)page_bytes : UINT64_MAX;
  const uint64_t group = cvy_cgroup_memory_bytes("");
  return group > 0 && group < machine ? group : machine;
}

bool cvy_mul_size(size_t a, size_t b, size_t *out) {
  size_t product;
  if (__builtin_mul_overflow(a, b, &product)) return false;
  *out = product;
  return true;
}

void *cvy_alloc_unset(size_t count, size_t elem_bytes) {
  size_t bytes;
  void *p = NULL;
  if (!cvy_mul_size(count, elem_bytes, &bytes) || bytes > PTRDIFF_MAX - ALIGNMENT ||
      posix_memalign(&p, ALIGNMENT, bytes ? bytes : 1) != 0) {
    errno = ENOMEM; /* which posix_memalign does not change */
    return NULL;
  }
  cvy_live_add(CVY_LIVE_MEMORY, 1);
  return p;
}

void *cvy_calloc(size_t count, size_t elem_bytes) {
  void *const p = cvy_alloc_unset(count, elem_bytes);
  if (p) memset(p, 0, count * elem_bytes);
  return p;
}

void *cvy_realloc(void *p, size_t old_count, size_t new_count, size_t elem_bytes) {
  void *const grown = cvy_calloc(new_count, elem_bytes);
  if (!grown) return NULL;
  if (p) memcpy(grown, p, (old_count < new_count ? old_count : new_count) * elem_bytes);
  cvy_free(p);
  return grown;
}

void *cvy_grow(void *p, size_t n, size_t *capacity, size_t first, size_t elem_bytes) {
  if (n < *capacity) return p;
  const size_t more = *capacity ? 2 * *capacity : first;
  void *const grown = cvy_realloc(p, n, more, elem_bytes);
  if (grown) *capacity = more;
  return grown;
}

char *cvy_strdup(const char *text) { return cvy_strndup(text, SIZE_MAX); }

char *cvy_strndup(const char *text, size_t max_bytes) {
  const size_t n = strnlen(text, max_bytes);
  char *const copy = cvy_calloc(n + 1, 1);
  if (copy) memcpy(copy, text, n);
  return copy;
}

void cvy_free(void *p) {
  if (!p) return;
  cvy_live_add(CVY_LIVE_MEMORY, -1);
  free(p);
}
