/* SPDX-License-Identifier: MIT */
#include "src/team/fleet_pace.h"

#include <math.h>
#include <string.h>

#include "src/base/mem.h"
#include "src/fleet/node_messages.h"

/* A device, as it crosses. */
typedef struct speed {
  cvy_balance_point points[CVY_PACE_POINTS];
  double exchange_s, tail_s;
  double part_s; /* of its node */
  int32_t n_points, cap;
} speed;

cvy_status cvy_fleet_pace_links(cvy_team *team, cvy_link_rate *rates) {
  return cvy_link_rates(team->params.fleet, CVY_FLEET_LINK_S, rates);
}

cvy_chain_cost cvy_fleet_pace_chain(const cvy_link_rate *rates, int n_nodes, int r, double bytes, double last_bytes) {
  cvy_chain_cost cost = {0};
  const double piece = fmin(last_bytes, (double)(CVY_CHAIN_PIECE * sizeof(float)));
  double slowest_s = 0; /* of a byte, on the links behind node r */
  for (int k = 0; k < n_nodes - 1; k++) {
    const cvy_link_rate *const link = &rates[k];
    const double slower = fmin(link->both_up, link->both_down);
    cost.whole_s = fmax(cost.whole_s, bytes / slower);
    if (k < r) continue;
    cost.way_s += piece / link->both_up + piece / link->both_down + 2 * link->latency_s;
    slowest_s = fmax(slowest_s, 1 / slower);
  }
  cost.way_s += (last_bytes - piece) * slowest_s;
  return cost;
}

static void write_own(const cvy_pace *own, speed *speeds) {
  for (int i = 0; i < own->params.n_devices; i++) {
    const cvy_pace_device *const known = &own->known[i];
    speeds[i].n_points = known->n_points;
    speeds[i].cap = own->devices[i].cap;
    speeds[i].exchange_s = own->devices[i].exchange_s;
    speeds[i].tail_s = own->devices[i].tail_s;
    speeds[i].part_s = own->params.part_s;
    memcpy(speeds[i].points, known->points, (size_t)known->n_points * sizeof *known->points);
  }
}

static bool is_time(double seconds) { return isfinite(seconds) && seconds >= 0; }

enum { SAMPLES_MOST = 1 << 24 }; /* of a measurement */

/* Measurements as cvy_pace keeps them. */
static bool is_speed(const speed *s) {
  bool right = s->n_points >= 1 && s->n_points <= CVY_PACE_POINTS && s->cap >= -1 && is_time(s->exchange_s) &&
               is_time(s->tail_s) && is_time(s->part_s);
  for (int k = 0; right && k < s->n_points; k++)
    right = s->points[k].n >= 1 && s->points[k].n <= SAMPLES_MOST && is_time(s->points[k].seconds);
  return right;
}

static void read_device(const speed *s, const cvy_chain_cost *chain, cvy_pace *all, int i) {
  cvy_balance_device *const d = &all->devices[i];
  for (int k = 0; k < s->n_points; k++) cvy_pace_add_point(all, i, s->points[k].n, s->points[k].seconds);
  d->cap = s->cap;
  if (!chain) return;
  d->exchange_s = fmax(s->exchange_s, chain->whole_s) + chain->way_s;
  d->tail_s = d->stale ? 0 : s->tail_s + chain->way_s;
  all->params.part_s = fmax(all->params.part_s, s->part_s);
}

cvy_status cvy_fleet_pace_gather(cvy_team *team, const cvy_link_rate *rates, const cvy_pace *own, cvy_pace *all) {
  cvy_status status = CVY_OK;
  cvy_fleet *const fleet = team->params.fleet;
  const cvy_layout *const l = team->layout;
  const size_t n = (size_t)cvy_shares_all(team->shares), first = (size_t)cvy_shares_first(team->shares);
  speed *const speeds = cvy_calloc(n, sizeof *speeds);
  CVY_REQUIRE(speeds, CVY_E_MEMORY, "out of host memory for the speeds of a fleet");
  write_own(own, speeds + first);
  CVY_TRY(cvy_fleet_gather(fleet, speeds, n * sizeof *speeds, first * sizeof *speeds,
                           (size_t)own->params.n_devices * sizeof *speeds));
  const double bytes = (double)((cvy_layout_trained(l) + cvy_layout_moving(l)) * sizeof(float));
  for (int r = 0; r < cvy_fleet_size(fleet); r++) {
    const cvy_chain_cost chain = cvy_fleet_pace_chain(rates, cvy_fleet_size(fleet), r, bytes,
                                                      (double)(l->buckets[l->n_buckets - 1].size * sizeof(float)));
    for (int i = cvy_fleet_first_of(fleet, r); i < cvy_fleet_first_of(fleet, r + 1); i++) {
      all->devices[i].stale = team->params.staleness > 0;
      if (!is_speed(&speeds[i]))
        CVY_TRY(cvy_fleet_refuse(fleet, r, "has measured its device %d otherwise than a node does",
                                 i - cvy_fleet_first_of(fleet, r)));
      read_device(&speeds[i], team->params.inference ? NULL : &chain, all, i);
    }
  }
fail:
  cvy_free(speeds);
  return status;
}

cvy_status cvy_fleet_pace_spread(cvy_team *team, int *numbers, int n) {
  cvy_status status = CVY_OK;
  cvy_fleet *const fleet = team->params.fleet;
  size_t bytes = (size_t)n * sizeof *numbers;
  void *data = numbers;
  CVY_TRY(cvy_fleet_spread(fleet, &data, &bytes, bytes));
  if (data == numbers) return CVY_OK;
  if (bytes == (size_t)n * sizeof *numbers) memcpy(numbers, data, bytes);
  cvy_free(data);
  CVY_REQUIRE(bytes == (size_t)n * sizeof *numbers, CVY_E_FORMAT,
              "the head's shares have %zu bytes: expected %zu, for %d numbers", bytes, (size_t)n * sizeof *numbers, n);
fail:
  return status;
}
