/* SPDX-License-Identifier: MIT */
#include "src/times/usage.h"

#include <stdlib.h>
#include <string.h>

#include "src/base/mem.h"

bool cvy_spans_have_room(cvy_spans *s) {
  cvy_span *const items = cvy_grow(s->items, s->n, &s->capacity, 64, sizeof *items);
  if (items) s->items = items;
  return items != NULL;
}

bool cvy_spans_add(cvy_spans *s, uint64_t begin_ns, uint64_t end_ns) {
  if (end_ns <= begin_ns) return true;
  if (s->n > 0 && begin_ns >= s->items[s->n - 1].begin_ns && begin_ns <= s->items[s->n - 1].end_ns) {
    /* the commands of a busy queue follow without a gap */
    if (end_ns > s->items[s->n - 1].end_ns) s->items[s->n - 1].end_ns = end_ns;
    return true;
  }
  if (!cvy_spans_have_room(s)) return false;
  s->items[s->n++] = (cvy_span){begin_ns, end_ns};
  return true;
}

void cvy_spans_forget(cvy_spans *s, uint64_t before_ns) {
  size_t kept = 0;
  for (size_t i = 0; i < s->n; i++)
    if (s->items[i].end_ns > before_ns) s->items[kept++] = s->items[i];
  s->n = kept;
}

void cvy_spans_clear(cvy_spans *s) {
  cvy_free(s->items);
  *s = (cvy_spans){0};
}

static int by_begin(const void *a, const void *b) {
  const cvy_span *const x = a, *const y = b;
  return (x->begin_ns > y->begin_ns) - (x->begin_ns < y->begin_ns);
}

/* Sorts the spans and joins overlapping ones. */
static void join(cvy_spans *s) {
  bool sorted = true;
  for (size_t i = 1; i < s->n && sorted; i++) sorted = s->items[i - 1].end_ns < s->items[i].begin_ns;
  if (sorted) return;
  qsort(s->items, s->n, sizeof *s->items, by_begin);
  size_t last = 0;
  for (size_t i = 1; i < s->n; i++) {
    if (s->items[i].begin_ns <= s->items[last].end_ns) {
      if (s->items[i].end_ns > s->items[last].end_ns) s->items[last].end_ns = s->items[i].end_ns;
    } else {
      s->items[++last] = s->items[i];
    }
  }
  s->n = last + 1;
}

void cvy_usage_divide(uint64_t begin_ns, uint64_t end_ns, cvy_spans uses[CVY_USE_IDLE], uint64_t ns[CVY_USES]) {
  size_t at[CVY_USE_IDLE] = {0};
  for (int u = 0; u < CVY_USE_IDLE; u++) join(&uses[u]);
  for (uint64_t t = begin_ns; t < end_ns;) {
    uint64_t until = end_ns; /* no span begins or ends before it */
    int use = CVY_USE_IDLE;
    for (int u = 0; u < CVY_USE_IDLE && use == CVY_USE_IDLE; u++) {
      const cvy_spans *const s = &uses[u];
      while (at[u] < s->n && s->items[at[u]].end_ns <= t) at[u]++;
      if (at[u] == s->n) continue;
      const cvy_span *const next = &s->items[at[u]];
      const bool inside = next->begin_ns <= t;
      const uint64_t edge = inside ? next->end_ns : next->begin_ns;
      if (inside) use = u;
      if (edge < until) until = edge;
    }
    ns[use] += until - t;
    t = until;
  }
}

cvy_clock_bounds cvy_clock_intersect(cvy_clock_bounds a, cvy_clock_bounds b) {
  return (cvy_clock_bounds){a.low_ns > b.low_ns ? a.low_ns : b.low_ns, a.high_ns < b.high_ns ? a.high_ns : b.high_ns};
}

cvy_clock_bounds cvy_clock_between(uint64_t t_ns, uint64_t a_ns, uint64_t b_ns) {
  return (cvy_clock_bounds){(int64_t)(a_ns - t_ns), (int64_t)(b_ns - t_ns)};
}
