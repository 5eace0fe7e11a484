/* SPDX-License-Identifier: MIT
 * Uses of time: spans of several kinds, and the division of a stretch of time among them. Pure. */
#ifndef CVY_TIMES_USAGE_H
#define CVY_TIMES_USAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The first that applies counts: a transfer that overlaps computing counts as computing. */
typedef enum cvy_use {
  CVY_USE_COMPUTING,  /* kernels run */
  CVY_USE_EXCHANGING, /* else: a transfer runs */
  CVY_USE_WAITING,    /* else: it waits for weights or for the other devices */
  CVY_USE_IDLE,       /* else: no command is enqueued */
  CVY_USES
} cvy_use;

typedef struct cvy_span {
  uint64_t begin_ns, end_ns;
} cvy_span;
typedef struct cvy_spans {
  cvy_span *items;
  size_t n, capacity;
} cvy_spans; /* zero-initialise */

/* Makes room for one more, 64 at first. False when out of memory. */
bool cvy_spans_have_room(cvy_spans *spans);
/* Spans may come in any order and overlap; empty ones are left out. False when out of memory. */
bool cvy_spans_add(cvy_spans *spans, uint64_t begin_ns, uint64_t end_ns);
/* Removes spans that end before. */
void cvy_spans_forget(cvy_spans *spans, uint64_t before_ns);
void cvy_spans_clear(cvy_spans *spans); /* frees */

/* Divides [begin, end) among the uses; adds to ns[CVY_USES] exactly end - begin (nothing if end <= begin). uses[u]: the
 * spans of use u, for all except IDLE; they are sorted. */
void cvy_usage_divide(uint64_t begin_ns, uint64_t end_ns, cvy_spans uses[CVY_USE_IDLE], uint64_t ns[CVY_USES]);

/* Two clocks: host = device + offset. Two observations bound the offset: the host enqueued a command between two
 * readings of its clock, and saw its end between two others. */
typedef struct cvy_clock_bounds {
  int64_t low_ns, high_ns;
} cvy_clock_bounds; /* of the offset; low > high: none */
cvy_clock_bounds cvy_clock_intersect(cvy_clock_bounds a, cvy_clock_bounds b);
/* The bounds that follow from device time t lying between host times a and b. */
cvy_clock_bounds cvy_clock_between(uint64_t t_ns, uint64_t a_ns, uint64_t b_ns);

#endif
