/* SPDX-License-Identifier: MIT */
#include "src/team/arrangement.h"

#include <math.h>

#include "src/base/env.h"
#include "src/base/mem.h"
#include "src/team/exchange_cost.h"
#include "src/fleet/node_messages.h"

static const double lone_mib = CVY_LAYOUT_LONE_FLOATS * sizeof(float) / (double)(1 << 20);

static cvy_status arrange(cvy_team *team, double bucket_mib) {
  cvy_status status = CVY_OK;
  const cvy_team_params *const p = &team->params;
  const cvy_layout_params params = {.bucket_floats = (size_t)ceil(bucket_mib * (1 << 20) / sizeof(float)),
                                    .freeze = p->freeze,
                                    .lr_mult = p->lr_mult,
                                    .decay_only_weights = p->decay_only_weights};
  if (bucket_mib == 0 && !p->freeze && !p->lr_mult && !p->decay_only_weights) return CVY_OK;
  cvy_layout_clear(&team->own_layout);
  CVY_TRY(cvy_layout_arrange(cvy_net_layout(team->net), &params, &team->own_layout));
  team->layout = &team->own_layout;
fail:
  return status;
}

cvy_status cvy_team_arrange(cvy_team *team) {
  team->layout = cvy_net_layout(team->net);
  return team->params.inference ? CVY_OK : arrange(team, team->params.bucket_mib);
}

/* [worker] A device that cannot be measured is left out: a fault of it is found when it is planned. */
static cvy_status measure(void *device, void *arg) {
  cvy_replica *const r = device;
  cvy_exchange_cost *const cost = (cvy_exchange_cost *)arg + r->setup.index;
  cvy_log_attempt_begin();
  if (cvy_exchange_cost_measure(r->device, cost) != CVY_OK) *cost = (cvy_exchange_cost){0};
  cvy_log_attempt_end(false);
  return CVY_OK;
}

/* [worker] Whether the device updates its weights by kernels for graphics cards. */
static cvy_status ask_shape(void *device, void *arg) {
  *(bool *)arg = !cvy_device_get_capabilities(((cvy_replica *)device)->device)->cpu_shaped;
  return CVY_OK;
}

/* Large buckets for a lone graphics card. A processor updates a bucket whose gradient is still in its caches. */
static cvy_status arrange_lone(cvy_team *team) {
  cvy_status status = CVY_OK;
  bool simt = false;
  if (cvy_env_on(CVY_ENV_NO_TUNE) || !cvy_team_may_be_lone(&team->params)) return CVY_OK;
  CVY_TRY(cvy_roster_call_all(team->roster, ask_shape, &simt));
  if (simt) CVY_TRY(arrange(team, lone_mib));
fail:
  return status;
}

/* Of the slowest node. */
static cvy_status gather(cvy_fleet *fleet, cvy_exchange_cost *cost) {
  cvy_status status = CVY_OK;
  cvy_exchange_cost all[CVY_NODES_MOST] = {{0}};
  const size_t n = (size_t)cvy_fleet_size(fleet), rank = (size_t)cvy_fleet_rank(fleet);
  all[rank] = *cost;
  CVY_TRY(cvy_fleet_gather(fleet, all, n * sizeof *all, rank * sizeof *all, sizeof *all));
  for (size_t r = 0; r < n; r++) {
    const bool measured = isfinite(all[r].byte_s) && isfinite(all[r].bucket_s) && all[r].byte_s > 0;
    if (!measured || !(cost->byte_s > 0)) *cost = (cvy_exchange_cost){0};
    else *cost = (cvy_exchange_cost){fmax(cost->bucket_s, all[r].bucket_s), fmax(cost->byte_s, all[r].byte_s)};
  }
fail:
  return status;
}

cvy_status cvy_team_choose_buckets(cvy_team *team) {
  cvy_status status = CVY_OK;
  const cvy_team_params *const p = &team->params;
  const int n = team->devices->n;
  const double bytes = (double)cvy_layout_trained(team->layout) * sizeof(float);
  cvy_exchange_cost *costs = NULL, cost = {0};
  if (p->bucket_mib > 0 || p->inference || p->no_sync) return CVY_OK;
  if (cvy_team_is_alone(team)) return arrange_lone(team);
  if (!cvy_env_on(CVY_ENV_NO_TUNE)) {
    costs = cvy_calloc((size_t)n, sizeof *costs);
    CVY_REQUIRE(costs, CVY_E_MEMORY, "out of host memory");
    CVY_TRY(cvy_roster_call_all(team->roster, measure, costs));
    cost = cvy_exchange_cost_together(costs, n);
  }
  if (p->fleet) CVY_TRY(gather(p->fleet, &cost));
  const double mib = cvy_exchange_bucket_mib(&cost, bytes);
  if (mib == 1) goto fail; /* done: the layout has these */
  cvy_log_info("buckets of %g MiB: each costs %.3g ms, and a MiB of gradients %.3g ms", mib, 1e3 * cost.bucket_s,
               1e3 * (1 << 20) * cost.byte_s);
  CVY_TRY(arrange(team, mib));
fail:
  cvy_free(costs);
  return status;
}
