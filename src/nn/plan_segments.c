/* SPDX-License-Identifier: MIT
 * Where the schedule is cut so that values may be made again (plan.h, Recompute). */
#include <string.h>

#include "src/base/mem.h"
#include "src/nn/plan_parts.h"

void cvy_plan_cut(int n, const size_t *made, const size_t *across, int parts, int *segment) {
  size_t total = 0, sum = 0;
  for (int u = 0; u < n; u++) total += made[u];
  /* a segment ends where the least lies across, among the places where it has made one part, and at most a half more */
  const size_t least = total / (size_t)parts, most = least + least / 2;
  int number = 0, cut = -1;
  for (int u = 0; u < n; u++) {
    segment[u] = number;
    sum += made[u];
    if (u + 1 < n && sum >= least && across[u + 1] != SIZE_MAX && (cut < 0 || across[u + 1] < across[cut])) cut = u + 1;
    if (cut < 0 || sum < most) continue;
    number++;
    sum = 0;
    for (int v = cut; v <= u; v++) {
      segment[v] = number;
      sum += made[v];
    }
    cut = -1;
  }
}

/* Bytes of the values that each unit makes, and of those that lie across a cut in front of it; SIZE_MAX: no cut. */
static void weigh(const cvy_planner *p, size_t *made, size_t *across, int *last_reader) {
  const cvy_plan *const plan = p->plan;
  for (int u = 0; u < plan->n_units; u++) {
    last_reader[plan->units[u].x[0]] = last_reader[plan->units[u].source] = u;
    if (plan->units[u].x[1] >= 0) last_reader[plan->units[u].x[1]] = u;
  }
  for (int u = 0; u < plan->n_units; u++) {
    const cvy_unit *const unit = &plan->units[u];
    made[u] = unit->deferred || unit->copy.number > 1 ? 0 : plan->storages[plan->value[unit->y]].size_bytes;
    for (int v = u + 1; made[u] > 0 && v <= last_reader[unit->y]; v++) across[v] += made[u];
  }
  for (int u = 1; u < plan->n_units; u++)
    if (plan->units[u - 1].more) across[u] = SIZE_MAX;
}

cvy_status cvy_plan_choose_segments(cvy_planner *p) {
  static const int parts[] = {2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 14, 16, 18, 20, 22, 24, 28, 32, 40, 48};
  cvy_status status = CVY_OK;
  const size_t n = (size_t)p->plan->n_units;
  size_t *const made = cvy_calloc(n, sizeof *made), *const across = cvy_calloc(n, sizeof *across);
  int *const best = cvy_calloc(n, sizeof *best);
  int *const last_reader = cvy_calloc((size_t)p->net->n_layers, sizeof *last_reader);
  CVY_REQUIRE(made && across && best && last_reader, CVY_E_MEMORY, "out of host memory");
  weigh(p, made, across, last_reader);
  CVY_TRY(cvy_plan_place(p->plan));
  size_t least = p->plan->slots_bytes;
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
    cvy_plan_cut((int)n, made, across, parts[i], p->segment);
    cvy_plan_lay_out(p);
    CVY_TRY(cvy_plan_place(p->plan));
    if (p->plan->slots_bytes >= least) continue;
    least = p->plan->slots_bytes;
    memcpy(best, p->segment, n * sizeof *best);
  }
  memcpy(p->segment, best, n * sizeof *best);
  cvy_plan_lay_out(p);
fail:
  cvy_free(made);
  cvy_free(across);
  cvy_free(best);
  cvy_free(last_reader);
  return status;
}
