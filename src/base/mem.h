/* SPDX-License-Identifier: MIT
 * Counted host allocations and checked size arithmetic. Any thread. */
#ifndef CVY_BASE_MEM_H
#define CVY_BASE_MEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Zeroed memory for `count` elements of `elem_bytes`, 64-byte aligned; NULL and errno ENOMEM if it does not fit or the
 * product overflows (the caller turns that into CVY_E_MEMORY). Free with cvy_free. count 0 gives a valid pointer. */
void *cvy_calloc(size_t count, size_t elem_bytes);
/* The same without the zeros: the system provides each page when the caller first writes to it. */
void *cvy_alloc_unset(size_t count, size_t elem_bytes);
/* Grows to new_count elements, copies the old ones, zeroes the new. On NULL the old block is still the caller's. */
void *cvy_realloc(void *p, size_t old_count, size_t new_count, size_t elem_bytes);
/* Makes room for one more element in a list of n that has room for *capacity: returns `p` while there is room, else
 * doubles the list as cvy_realloc does (an empty list gets `first` elements). On NULL the list and *capacity are
 * unchanged. */
void *cvy_grow(void *p, size_t n, size_t *capacity, size_t first, size_t elem_bytes);
char *cvy_strdup(const char *text); /* NULL when out of memory */
char *cvy_strndup(const char *text, size_t max_bytes);
void cvy_free(void *p); /* NULL is fine */

/* The memory that this process can have at most: the machine's, or its container's limit (cgroups 1 and 2). */
uint64_t cvy_host_memory_bytes(void);
/* Reserves large memory on the host in the accounting. */
void cvy_host_memory_hold(size_t bytes);
void cvy_host_memory_release(size_t bytes);
/* Memory for devices that use the host's memory: all except reserved memory and room for the program and its drivers.
 * Constant while the reservations are. */
uint64_t cvy_host_memory_left(void);
/* Number of processes that may compile kernels for this one at once, >= 1: cvy_host_memory_left leaves room for
 * them. */
int cvy_host_memory_compilers(void);

/* *out = a * b, false (and *out untouched) on overflow. */
bool cvy_mul_size(size_t a, size_t b, size_t *out);
/* Rounds up to a multiple of `to` (> 0). The caller ensures that it does not overflow. */
static inline size_t cvy_round_up(size_t a, size_t to) { return (a + to - 1) / to * to; }
static inline int cvy_ceil_div(int a, int b) { return (a + b - 1) / b; }

/* Objects alive by kind, for the leak check at the end of tests. */
typedef enum cvy_live_kind {
  CVY_LIVE_MEMORY,
  CVY_LIVE_CONTEXT,
  CVY_LIVE_QUEUE,
  CVY_LIVE_BUFFER,
  CVY_LIVE_PROGRAM,
  CVY_LIVE_KERNEL,
  CVY_LIVE_EVENT,
  CVY_LIVE_KINDS
} cvy_live_kind;
void cvy_live_add(cvy_live_kind kind, int delta);
long cvy_live_count(cvy_live_kind kind);
const char *cvy_live_name(cvy_live_kind kind);

#endif
