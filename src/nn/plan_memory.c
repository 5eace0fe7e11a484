/* SPDX-License-Identifier: MIT
 * Placement of storages in arenas: largest first, each into the smallest hole that is free during its whole life (best
 * fit), else on top of the storages that live then. For the networks here this comes within a few per cent of the
 * least possible, the largest sum at any time of the storages that live then. */
#include "src/nn/plan.h"

#include <limits.h>

typedef struct span {
  size_t begin, end;
} span;

static bool lives_meet(const cvy_storage *a, const cvy_storage *b) {
  return a->first <= b->last && b->first <= a->last;
}

/* The spans of `arena` that are taken during the life of `s`, sorted by address. */
static int list_taken(const cvy_plan *plan, const int *placed, int n_placed, const cvy_storage *s, int arena,
                      span *taken) {
  int n = 0;
  for (int i = 0; i < n_placed; i++) {
    const cvy_storage *const other = &plan->storages[placed[i]];
    if (other->arena != arena || !lives_meet(s, other)) continue;
    int at = n++;
    for (; at > 0 && taken[at - 1].begin > other->offset_bytes; at--) taken[at] = taken[at - 1];
    taken[at] = (span){other->offset_bytes, other->offset_bytes + other->size_bytes};
  }
  return n;
}

/* Smallest hole of at least `size`, or the end of the last span. */
static size_t find_hole(const span *taken, int n, size_t size) {
  size_t top = 0, best = 0, best_size = SIZE_MAX;
  for (int i = 0; i < n; i++) {
    const size_t hole = taken[i].begin > top ? taken[i].begin - top : 0;
    if (hole >= size && hole < best_size) {
      best = top;
      best_size = hole;
    }
    if (taken[i].end > top) top = taken[i].end;
  }
  return best_size != SIZE_MAX ? best : top;
}

static void place_one(cvy_plan *plan, const int *placed, int n_placed, cvy_storage *s, size_t arena_max_bytes,
                      span *taken) {
  for (int arena = 0;; arena++) {
    const bool fresh = arena == plan->n_arenas;
    const int n = fresh ? 0 : list_taken(plan, placed, n_placed, s, arena, taken);
    const size_t offset = find_hole(taken, n, s->size_bytes);
    if (!fresh && offset + s->size_bytes > arena_max_bytes) continue;
    s->arena = arena;
    s->offset_bytes = offset;
    if (fresh) plan->n_arenas++;
    if (plan->arena_bytes[arena] < offset + s->size_bytes) plan->arena_bytes[arena] = offset + s->size_bytes;
    return;
  }
}

cvy_status cvy_plan_peak_bytes(const cvy_plan *plan, size_t *bytes) {
  cvy_status status = CVY_OK;
  int begin = INT_MAX, end = INT_MIN; /* of the times at which something lives */
  for (int i = 0; i < plan->n_storages; i++) {
    const cvy_storage *const s = &plan->storages[i];
    if (s->first < begin) begin = s->first;
    if (s->last >= end) end = s->last + 1;
  }
  const size_t times = begin < end ? (size_t)(end - begin) + 1 : 1;
  size_t *const more = cvy_calloc(times, sizeof *more);
  size_t *const less = cvy_calloc(times, sizeof *less);
  CVY_REQUIRE(more && less, CVY_E_MEMORY, "out of host memory");
  for (int i = 0; i < plan->n_storages; i++) {
    const cvy_storage *const s = &plan->storages[i];
    if (s->first > s->last) continue;
    more[s->first - begin] += s->size_bytes;
    less[s->last + 1 - begin] += s->size_bytes;
  }
  *bytes = 0;
  for (size_t time = 0, sum = 0; time < times; time++) {
    sum += more[time] - less[time]; /* unsigned: a difference below zero is right, too */
    if (sum > *bytes) *bytes = sum;
  }
fail:
  cvy_free(more);
  cvy_free(less);
  return status;
}

cvy_status cvy_plan_place(cvy_plan *plan, size_t arena_max_bytes) {
  cvy_status status = CVY_OK;
  const size_t n = (size_t)plan->n_storages, max = arena_max_bytes ? arena_max_bytes : SIZE_MAX;
  int *const order = cvy_calloc(n, sizeof *order);
  span *const taken = cvy_calloc(n, sizeof *taken);
  plan->arena_bytes = cvy_calloc(n, sizeof *plan->arena_bytes);
  CVY_REQUIRE(order && taken && plan->arena_bytes, CVY_E_MEMORY, "out of host memory");
  for (int i = 0; i < plan->n_storages; i++) {
    int at = i;
    for (; at > 0 && plan->storages[order[at - 1]].size_bytes < plan->storages[i].size_bytes; at--)
      order[at] = order[at - 1];
    order[at] = i;
  }
  for (int i = 0; i < plan->n_storages; i++) place_one(plan, order, i, &plan->storages[order[i]], max, taken);
  for (int a = 0; a < plan->n_arenas; a++) plan->arenas_bytes += plan->arena_bytes[a];
  if (n) plan->largest_bytes = plan->storages[order[0]].size_bytes;
fail:
  cvy_free(order);
  cvy_free(taken);
  return status;
}
