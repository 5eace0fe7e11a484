/* SPDX-License-Identifier: MIT
 * Placement of storages in slots (plan.h). Storages come by size, the largest first. Each goes to a slot that is free
 * during its whole life and not much larger, else into a part that it cuts from the rest of such a buffer, else into
 * any larger free slot, else into a new buffer. No order is the best one for all networks, so it is varied a little,
 * and the placement that needs the least memory of N_WAYS stays. ResNet-18 and -50, MobileNetV2 and DenseNet-121 train
 * within 1 % of the bytes that live at one time. With recompute, whose segments have tensors of unlike sizes, they take
 * up to 14 % more than storages that lie anywhere would. */
#include "src/nn/plan.h"

#include <limits.h>
#include <math.h>

/* Storages that are not larger, and no slot has room for, are parts of buffers of POOL_BYTES: statistics and masks are
 * many and small, and a driver's buffer takes a page at least. */
enum { SMALL_BYTES = 64 << 10, POOL_BYTES = 1 << 20 };

enum { N_WAYS = 48 };
/* Way w: a storage takes a free slot at once that has at most this part of its size, in hundredths … */
static int spare_of(int way) {
  static const int spare[] = {100, 130, 200, 400};
  return spare[way % 4];
}
/* … and comes in the order of its size times this. The first ways leave sizes as they are. */
static double weight_of(int way, int storage) {
  static const double amplitude[] = {0, 0.5, 1, 1.5};
  uint32_t bits = (uint32_t)way * 2654435761u ^ (uint32_t)storage * 2246822519u; /* scrambled: no order of its own */
  bits = (bits ^ bits >> 15) * 2246822519u;
  bits = (bits ^ bits >> 13) * 3266489917u;
  return exp2(amplitude[way / 4 % 4] * ((double)(bits ^ bits >> 16) / 2147483648.0 - 1));
}

typedef struct slot {
  cvy_slot is;
  size_t cut_bytes; /* of a buffer: handed out to its parts, from its beginning */
  int newest;       /* storage that was placed last, -1: none */
} slot;

typedef struct placement {
  const cvy_storage *storages;
  slot *slots;
  int n_slots;
  int *slot_of;  /* per storage */
  int *previous; /* per storage: the one that was placed in its slot before it, -1: none */
  size_t bytes;  /* of all buffers */
} placement;

static bool lives_meet(const cvy_storage *a, const cvy_storage *b) {
  return a->first <= b->last && b->first <= a->last;
}

/* No storage of the slot itself lives at a time when `s` does. */
static bool is_idle(const placement *p, int number, const cvy_storage *s) {
  for (int other = p->slots[number].newest; other >= 0; other = p->previous[other])
    if (lives_meet(s, &p->storages[other])) return false;
  return true;
}

/* Nor does one of the buffer that the slot is a part of, or of the parts of the buffer that the slot is. */
static bool is_free(const placement *p, int number, const cvy_storage *s) {
  const int inside = p->slots[number].is.inside;
  if (!is_idle(p, number, s)) return false;
  if (inside >= 0) return is_idle(p, inside, s);
  if (p->slots[number].cut_bytes == 0) return true;
  for (int part = number + 1; part < p->n_slots; part++)
    if (p->slots[part].is.inside == number && !is_idle(p, part, s)) return false;
  return true;
}

/* The smallest free slot that has room, -1: none. */
static int find_free(const placement *p, const cvy_storage *s) {
  int best = -1;
  for (int i = 0; i < p->n_slots; i++) {
    const size_t size = p->slots[i].is.size_bytes;
    if (size < s->size_bytes || (best >= 0 && size >= p->slots[best].is.size_bytes)) continue;
    if (is_free(p, i, s)) best = i;
  }
  return best;
}

/* The buffer with the least left of which the storage may become a part, -1: none. */
static int find_rest(const placement *p, const cvy_storage *s) {
  int best = -1;
  size_t best_rest = SIZE_MAX;
  for (int i = 0; i < p->n_slots; i++) {
    const slot *const buffer = &p->slots[i];
    const size_t rest = buffer->is.size_bytes - buffer->cut_bytes;
    if (buffer->is.inside >= 0 || rest < s->size_bytes || rest >= best_rest || !is_idle(p, i, s)) continue;
    best = i;
    best_rest = rest;
  }
  return best;
}

static int add_slot(placement *p, size_t size_bytes, int inside) {
  slot *const made = &p->slots[p->n_slots];
  *made = (slot){.is = {.size_bytes = size_bytes, .inside = inside}, .newest = -1};
  if (inside < 0) {
    p->bytes += size_bytes;
  } else {
    made->is.offset_bytes = p->slots[inside].cut_bytes;
    p->slots[inside].cut_bytes += size_bytes;
  }
  return p->n_slots++;
}

static int choose_slot(placement *p, const cvy_storage *s, int spare_hundredths) {
  const int whole = find_free(p, s);
  if (whole >= 0 && p->slots[whole].is.size_bytes / 100 <= s->size_bytes / 100 * (size_t)spare_hundredths / 100)
    return whole;
  const int rest = find_rest(p, s);
  if (rest >= 0) return add_slot(p, s->size_bytes, rest);
  if (whole >= 0) return whole;
  if (s->size_bytes > SMALL_BYTES) return add_slot(p, s->size_bytes, -1);
  return add_slot(p, s->size_bytes, add_slot(p, POOL_BYTES, -1));
}

static void place_all(placement *p, const int *order, int n, int spare_hundredths) {
  p->n_slots = 0;
  p->bytes = 0;
  for (int i = 0; i < n; i++) {
    const int number = choose_slot(p, &p->storages[order[i]], spare_hundredths);
    p->slot_of[order[i]] = number;
    p->previous[order[i]] = p->slots[number].newest;
    p->slots[number].newest = order[i];
  }
}

/* A buffer of which only parts are used ends behind the last one. */
static void trim_pools(placement *p) {
  for (int i = 0; i < p->n_slots; i++) {
    slot *const buffer = &p->slots[i];
    if (buffer->is.inside >= 0 || buffer->newest >= 0) continue;
    p->bytes -= buffer->is.size_bytes - buffer->cut_bytes;
    buffer->is.size_bytes = buffer->cut_bytes;
  }
}

/* Of one weight: by the beginnings of their lives. */
static bool comes_before(const cvy_storage *a, double a_weight, const cvy_storage *b, double b_weight) {
  return a_weight != b_weight ? a_weight > b_weight : a->first < b->first;
}

static void sort_storages(const cvy_storage *storages, int n, int way, int *order, double *weight) {
  for (int i = 0; i < n; i++) {
    weight[i] = (double)storages[i].size_bytes * weight_of(way, i);
    int at = i;
    for (; at > 0; at--) {
      const int before = order[at - 1];
      if (!comes_before(&storages[i], weight[i], &storages[before], weight[before])) break;
      order[at] = before;
    }
    order[at] = i;
  }
}

static void keep(cvy_plan *plan, const placement *p) {
  plan->n_slots = p->n_slots;
  plan->slots_bytes = p->bytes;
  for (int i = 0; i < p->n_slots; i++) plan->slots[i] = p->slots[i].is;
  for (int s = 0; s < plan->n_storages; s++) plan->storages[s].slot = p->slot_of[s];
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

cvy_status cvy_plan_place(cvy_plan *plan) {
  cvy_status status = CVY_OK;
  const size_t n = (size_t)plan->n_storages;
  size_t least;
  int *const order = cvy_calloc(n, sizeof *order);
  double *const weight = cvy_calloc(n, sizeof *weight);
  placement p = {.storages = plan->storages,
                 .slots = cvy_calloc(2 * n, sizeof *p.slots), /* a storage adds a part, and perhaps a buffer for it */
                 .slot_of = cvy_calloc(n, sizeof *p.slot_of),
                 .previous = cvy_calloc(n, sizeof *p.previous)};
  cvy_free(plan->slots);
  plan->slots = cvy_calloc(2 * n, sizeof *plan->slots);
  CVY_REQUIRE(order && weight && p.slots && p.slot_of && p.previous && plan->slots, CVY_E_MEMORY, "out of host memory");
  CVY_TRY(cvy_plan_peak_bytes(plan, &least));
  for (int way = 0; way < N_WAYS && (way == 0 || plan->slots_bytes > least + least / 100); way++) {
    sort_storages(plan->storages, plan->n_storages, way, order, weight);
    place_all(&p, order, plan->n_storages, spare_of(way));
    trim_pools(&p);
    if (way == 0 || p.bytes < plan->slots_bytes) keep(plan, &p);
  }
  plan->largest_bytes = 0;
  for (int i = 0; i < plan->n_slots; i++)
    if (plan->slots[i].size_bytes > plan->largest_bytes) plan->largest_bytes = plan->slots[i].size_bytes;
fail:
  cvy_free(order);
  cvy_free(weight);
  cvy_free(p.slots);
  cvy_free(p.slot_of);
  cvy_free(p.previous);
  return status;
}
